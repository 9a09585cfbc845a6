// Pods and SharePods as users of Kueue, Volcano, KAI and the coscheduling plugin write them: their
// queues become teams, their pod groups gangs, and nobody gets a team by a queue that is not
// theirs.
#include "k8s/webhook/batch.h"

#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "k8s/api/base64.h"
#include "k8s/types/annotations.h"
#include "k8s/types/foreign_names.h"
#include "k8s/types/gpu_pod.h"
#include "k8s/webhook/admission.h"
#include "k8s/webhook/api_facts.h"
#include "tests/k8s/api/fixture.h"
#include "tests/k8s/chart/manifests.h"

namespace baton::k8s {
namespace {

class BatchCluster : public ClusterFacts {
 public:
  Result<Json> Namespace(const std::string& name) override {
    return Json{{"metadata", {{"name", name}, {"labels", labels[name]}}}};
  }
  Result<std::vector<Json>> Quotas(const std::string&) override { return std::vector<Json>(); }
  Result<std::vector<Json>> Pods(const std::string&) override { return std::vector<Json>(); }
  Result<Json> PodGroup(const Resource& resource, const ObjectName& name) override {
    ++asked;
    if (away) return Fail(ErrorCode::kUnavailable, "no answer");
    const auto found = groups.find(resource.group + "/" + name.Text());
    if (found == groups.end()) return Fail(ErrorCode::kNotFound, "not found");
    return Json{{"spec", found->second}};
  }
  Result<std::string> DefaultPriorityClass() override { return ""; }
  Result<void> AdmitEver(const devmgr::PodRequest&) override { return {}; }

  std::map<std::string, Json> labels;
  std::map<std::string, Json> groups;  // "GROUP/NAMESPACE/NAME": the spec
  bool away = false;
  int asked = 0;
};

class BatchWords : public ::testing::Test {
 protected:
  BatchWords() {
    options_.facts = cluster_;
    options_.batch = {true, true, true, true};
    cluster_->groups["scheduling.x-k8s.io/vision/ranks"] = {{"minMember", 4}};
    cluster_->groups["scheduling.volcano.sh/vision/job-1"] = {{"minMember", 2}, {"queue", "night"}};
  }

  // A pod with a share of 30 %, and this metadata.
  static Json Pod(const Json& metadata, const std::string& scheduler = "") {
    Json pod{{"apiVersion", "v1"}, {"kind", "Pod"}, {"metadata", metadata}};
    pod["metadata"]["name"] = "p";
    pod["spec"]["containers"] = {
        {{"name", "main"}, {"image", "x"}, {"resources", {{"limits", {{kShareResource, "30"}}}}}}};
    if (!scheduler.empty()) pod["spec"]["schedulerName"] = scheduler;
    return pod;
  }
  static Json Labelled(const std::string& key, const std::string& value) {
    return {{"labels", {{key, value}}}};
  }
  static Json Annotated(const std::string& key, const std::string& value) {
    return {{"annotations", {{key, value}}}};
  }
  static Json SharePod(const Json& metadata, const Json& of_template) {
    Json share{{"apiVersion", "baton.dev/v1alpha1"}, {"kind", "SharePod"}, {"metadata", metadata}};
    share["metadata"]["name"] = "s";
    share["spec"]["gpu"] = {{"request", "30"}, {"memory", "1Gi"}};
    share["spec"]["template"]["metadata"] = of_template;
    share["spec"]["template"]["spec"]["containers"] = {{{"name", "main"}, {"image", "x"}}};
    return share;
  }

  Json Asked(const Json& object, const Json& old, AdmissionKind kind) {
    const bool pod = object["kind"] == "Pod";
    const Json review{
        {"apiVersion", "admission.k8s.io/v1"},
        {"kind", "AdmissionReview"},
        {"request",
         {{"uid", "u"},
          {"resource",
           {{"group", pod ? "" : "baton.dev"}, {"resource", pod ? "pods" : "sharepods"}}},
          {"operation", old.is_null() ? "CREATE" : "UPDATE"},
          {"namespace", "vision"},
          {"userInfo", {{"username", "alice"}}},
          {"object", object},
          {"oldObject", old}}}};
    return Json::parse(Review(review.dump(), kind, options_).body)["response"];
  }
  // Both phases, as the API server has them. Empty: it is admitted, and `object` is what it is
  // then.
  std::string Create(Json& object) {
    const Json mutated = Asked(object, nullptr, AdmissionKind::kMutate);
    warnings_ = mutated.value("warnings", Json::array());
    if (mutated["allowed"] != true) return mutated["status"]["message"];
    if (mutated.contains("patch")) {
      object = object.patch(Json::parse(FromBase64(mutated["patch"].get<std::string>())));
    }
    const Json checked = Asked(object, nullptr, AdmissionKind::kValidate);
    return checked["allowed"] == true ? "" : checked["status"]["message"].get<std::string>();
  }
  std::string Refused(Json object) { return Create(object); }
  // "TEAM GANG/SIZE" of what is created.
  std::string Understood(Json object) {
    if (std::string why = Create(object); !why.empty()) return why;
    if (object["kind"] == "SharePod") {
      const Json& gpu = object["spec"]["gpu"];
      return gpu.value("team", "") + " " +
             (gpu.contains("gang") ? gpu["gang"]["name"].get<std::string>() + "/" +
                                         std::to_string(gpu["gang"]["size"].get<int>())
                                   : "");
    }
    const auto read = ReadGpuPod(object, kMemoryUnitMib);
    if (!read) return read.error().message;
    return TextAt(object, "metadata/annotations/baton.dev~1team") + " " +
           (read->gang.empty() ? "" : read->gang + "/" + std::to_string(read->gang_size));
  }

  std::shared_ptr<BatchCluster> cluster_ = std::make_shared<BatchCluster>();
  AdmissionOptions options_;
  Json warnings_;
};

TEST_F(BatchWords, AQueueIsTheTeam) {
  EXPECT_EQ(Understood(Pod(Labelled("kueue.x-k8s.io/queue-name", "night"))), "night ");
  EXPECT_EQ(Understood(Pod(Labelled("kueue.x-k8s.io/local-queue-name", "night"))), "night ");
  EXPECT_EQ(Understood(Pod(Annotated("scheduling.volcano.sh/queue-name", "night"))), "night ");
  EXPECT_EQ(Understood(Pod(Annotated("volcano.sh/queue-name", "night"))), "night ");
  EXPECT_EQ(Understood(Pod(Labelled("kai.scheduler/queue", "research.vision"))),
            "research/vision ");
  // Whoever places the pod.
  EXPECT_EQ(Understood(Pod(Labelled("kai.scheduler/queue", "night"), "kai-scheduler")), "night ");
}

TEST_F(BatchWords, AreInTheAnnotationAndWarnedOf) {
  Json pod = Pod(Labelled("kueue.x-k8s.io/queue-name", "night"));
  ASSERT_EQ(Create(pod), "");
  const std::string sentence = "kueue.x-k8s.io/queue-name: queue night means team night";
  EXPECT_EQ(TextAt(pod, "metadata/annotations/baton.dev~1translated"), sentence);
  EXPECT_EQ(warnings_, Json({sentence}));
  // Admission comes back where another webhook changed the pod: nothing is added twice.
  const Json again = Asked(pod, nullptr, AdmissionKind::kMutate);
  EXPECT_FALSE(again.contains("patch")) << FromBase64(again.value("patch", ""));
}

TEST_F(BatchWords, OfASharePodAreItsOwnOrItsTemplates) {
  const Json kueue = Labelled("kueue.x-k8s.io/queue-name", "night");
  const Json kai = Labelled("kueue.x-k8s.io/queue-name", "day");
  const Json none = Json::object();
  EXPECT_EQ(Understood(SharePod(kueue, none)), "night ");
  EXPECT_EQ(Understood(SharePod(none, kueue)), "night ");
  EXPECT_EQ(Understood(SharePod(kai, kueue)), "day ");
  EXPECT_EQ(Understood(SharePod(none, Labelled("scheduling.x-k8s.io/pod-group", "ranks"))),
            " ranks/4");
}

// docs/teams.md states it.
TEST_F(BatchWords, OwnWordsComeBeforeQueuesAndQueuesBeforeTheNamespace) {
  cluster_->labels["vision"] = {{"baton.dev/team", "research"}};
  options_.tenancy.restricted = *ParseGrants("high-priority");
  Json all{
      {"annotations",
       {{"baton.dev/team", "research/own"},
        {"scheduling.k8s.io/group-name", "job-1"},
        {"scheduling.volcano.sh/queue-name", "research.pod"}}},
      {"labels",
       {{"kueue.x-k8s.io/queue-name", "research.kueue"}, {"kai.scheduler/queue", "research.kai"}}}};
  cluster_->groups["scheduling.volcano.sh/vision/job-1"]["queue"] = "research.group";
  EXPECT_EQ(Understood(Pod(all)), "research/own job-1/2");
  all["annotations"].erase("baton.dev/team");
  EXPECT_EQ(Understood(Pod(all)), "research/kueue job-1/2");
  all["labels"].erase("kueue.x-k8s.io/queue-name");
  EXPECT_EQ(Understood(Pod(all)), "research/group job-1/2");
  all["annotations"].erase("scheduling.k8s.io/group-name");
  EXPECT_EQ(Understood(Pod(all)), "research/pod ");
  all["annotations"].erase("scheduling.volcano.sh/queue-name");
  EXPECT_EQ(Understood(Pod(all)), "research/kai ");
  all["labels"].erase("kai.scheduler/queue");
  EXPECT_EQ(Understood(Pod(all)), "research ");
}

TEST_F(BatchWords, GiveNobodyATeamThatIsNotTheirs) {
  cluster_->labels["vision"] = {{"baton.dev/team", "research.vision"}};
  options_.tenancy.restricted = *ParseGrants("high-priority");
  EXPECT_EQ(Refused(Pod(Labelled("kueue.x-k8s.io/queue-name", "sales"))),
            "metadata.labels[kueue.x-k8s.io/queue-name] (queue 'sales'): namespace vision is of "
            "team research/vision; name that team or one below it, or leave it out; baton.dev/team "
            "(of a SharePod spec.gpu.team) comes before the queue");
  for (const char* queue : {"research", "research.visionaries", "sales"}) {
    for (const Json& words :
         {Labelled("kueue.x-k8s.io/queue-name", queue), Labelled("kai.scheduler/queue", queue),
          Labelled("kueue.x-k8s.io/local-queue-name", queue),
          Annotated("scheduling.volcano.sh/queue-name", queue),
          Annotated("volcano.sh/queue-name", queue)}) {
      EXPECT_NE(Refused(Pod(words)), "") << words;
      EXPECT_NE(Refused(SharePod(words, Json::object())), "") << words;
      EXPECT_NE(Refused(SharePod(Json::object(), words)), "") << words;
    }
    // Nor by a PodGroup, which the tenant writes.
    cluster_->groups["scheduling.volcano.sh/vision/job-1"]["queue"] = queue;
    EXPECT_NE(Refused(Pod(Annotated("scheduling.k8s.io/group-name", "job-1"))), "") << queue;
  }
  EXPECT_EQ(Understood(Pod(Labelled("kueue.x-k8s.io/queue-name", "research.vision.ocr"))),
            "research/vision/ocr ");
  // Later labels change no team.
  Json pod = Pod(Labelled("kueue.x-k8s.io/queue-name", "research.vision.ocr"));
  ASSERT_EQ(Create(pod), "");
  Json changed = pod;
  changed["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "sales";
  EXPECT_EQ(Asked(changed, pod, AdmissionKind::kValidate)["allowed"], true);
  changed["metadata"]["annotations"]["baton.dev/team"] = "sales";
  EXPECT_EQ(Asked(changed, pod, AdmissionKind::kValidate)["allowed"], false);
}

TEST_F(BatchWords, AQueueOfNoKnownTeamIsRefusedWhereThoseAre) {
  auto tree = teams::ParseTeams("[[team]]\nname = \"night\"\n", "teams.toml");
  ASSERT_TRUE(tree) << tree.error().message;
  options_.teams = std::make_shared<const teams::Teams>(*std::move(tree));
  EXPECT_EQ(Understood(Pod(Labelled("kueue.x-k8s.io/queue-name", "night"))), "night ");
  const std::string why = Refused(Pod(Labelled("kueue.x-k8s.io/queue-name", "nigth")));
  EXPECT_EQ(why.find("metadata.labels[kueue.x-k8s.io/queue-name] (queue 'nigth'): "), 0u) << why;
}

TEST_F(BatchWords, APodGroupIsTheGang) {
  EXPECT_EQ(Understood(Pod(Labelled("scheduling.x-k8s.io/pod-group", "ranks"))), " ranks/4");
  EXPECT_EQ(Understood(Pod(Annotated("scheduling.k8s.io/group-name", "job-1"))), "night job-1/2");
  EXPECT_EQ(Understood(Pod(Annotated("scheduling.volcano.sh/group-name", "job-1"))),
            "night job-1/2");
  // Own words come first, and spare the question.
  cluster_->asked = 0;
  Json own = Labelled("scheduling.x-k8s.io/pod-group", "ranks");
  own["annotations"] = {{"baton.dev/gang", "mine"}, {"baton.dev/gang-size", "3"}};
  EXPECT_EQ(Understood(Pod(own)), " mine/3");
  // Another scheduler keeps its own groups together.
  EXPECT_EQ(Understood(Pod(Labelled("scheduling.x-k8s.io/pod-group", "ranks"), "gpus")), " ");
  EXPECT_EQ(cluster_->asked, 0);
  // One that may run by itself is no gang.
  cluster_->groups["scheduling.x-k8s.io/vision/ranks"] = {{"minMember", 1}};
  EXPECT_EQ(Understood(Pod(Labelled("scheduling.x-k8s.io/pod-group", "ranks"))), " ");
}

TEST_F(BatchWords, APodGroupThatCannotBeReadIsRefusedWithARemedy) {
  EXPECT_EQ(Refused(Pod(Labelled("scheduling.x-k8s.io/pod-group", "others"))),
            "metadata.labels[scheduling.x-k8s.io/pod-group]: namespace vision has no PodGroup "
            "others of scheduling.x-k8s.io/v1alpha1; create it before its pods");
  cluster_->groups["scheduling.x-k8s.io/vision/ranks"] = {{"minMember", 1025}};
  EXPECT_NE(Refused(Pod(Labelled("scheduling.x-k8s.io/pod-group", "ranks"))).find("1024"),
            std::string::npos);
  cluster_->away = true;
  const Json response = Asked(Pod(Labelled("scheduling.x-k8s.io/pod-group", "ranks")), nullptr,
                              AdmissionKind::kMutate);
  EXPECT_EQ(response["status"]["code"], 503) << response;
}

TEST_F(BatchWords, OddNamesAreRefusedAndAskNothing) {
  for (const char* name :
       {"..", ".", "a/b", "../../../api/v1/secrets", "a..b", "-a", "A", "a\n", "a%2f", " "}) {
    EXPECT_NE(Refused(Pod(Annotated("scheduling.k8s.io/group-name", name))), "") << name;
    EXPECT_NE(Refused(Pod(Annotated("scheduling.volcano.sh/queue-name", name))), "") << name;
    cluster_->groups["scheduling.volcano.sh/vision/job-2"] = {{"queue", name}};
  }
  EXPECT_NE(Refused(Pod(Annotated("volcano.sh/queue-name", std::string(254, 'a')))), "");
  EXPECT_EQ(cluster_->asked, 0);
  EXPECT_NE(Refused(Pod(Annotated("scheduling.k8s.io/group-name", "job-2"))), "");
  for (const Json& odd : {Json(3), Json(true), Json::array({1}), Json::object()}) {
    Json pod = Pod(Json::object());
    pod["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = odd;
    EXPECT_NE(Refused(pod), "") << odd;
    cluster_->groups["scheduling.x-k8s.io/vision/ranks"] = {{"minMember", odd}};
    (void)Refused(Pod(Labelled("scheduling.x-k8s.io/pod-group", "ranks")));
    cluster_->groups["scheduling.x-k8s.io/vision/ranks"] = odd;
    (void)Refused(Pod(Labelled("scheduling.x-k8s.io/pod-group", "ranks")));
  }
}

TEST_F(BatchWords, OfSchedulersThatAreOffMeanNothing) {
  Json all{
      {"annotations",
       {{"scheduling.k8s.io/group-name", "job-1"}, {"scheduling.volcano.sh/queue-name", "night"}}},
      {"labels",
       {{"kueue.x-k8s.io/queue-name", "night"},
        {"scheduling.x-k8s.io/pod-group", "ranks"},
        {"kai.scheduler/queue", "night"}}}};
  options_.batch = {};
  EXPECT_EQ(Understood(Pod(all)), " ");
  EXPECT_EQ(Understood(SharePod(all, all)), " ");
  EXPECT_EQ(cluster_->asked, 0);
  options_.batch.kai = true;
  EXPECT_EQ(Understood(Pod(all)), "night ");
  options_.batch = {.coscheduling = true};
  EXPECT_EQ(Understood(Pod(all)), " ranks/4");
  // Without a view of the cluster no PodGroup is read, and queues of pods count.
  options_.batch = {.volcano = true, .coscheduling = true};
  options_.facts = nullptr;
  EXPECT_EQ(Understood(Pod(all)), "night ");
}

// What the API server answers.
TEST(BatchFacts, PodGroupsAreReadFromTheApiServer) {
  testing::ApiServer server;
  const Resource groups{"scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup", true};
  const auto client = testing::ClientOf(server.config());
  ApiFacts facts(*client);
  const ObjectName ranks{"default", "ranks"};
  EXPECT_EQ(facts.PodGroup(groups, ranks).error().code, ErrorCode::kNotFound);  // no such kind
  server.Serve(groups);
  EXPECT_EQ(facts.PodGroup(groups, ranks).error().code, ErrorCode::kNotFound);
  ASSERT_TRUE(client->Create(groups, ranks,
                             {{"apiVersion", groups.ApiVersion()},
                              {"kind", "PodGroup"},
                              {"metadata", {{"name", "ranks"}, {"namespace", "default"}}},
                              {"spec", {{"minMember", 3}}}}));
  const auto got = facts.PodGroup(groups, ranks);
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_EQ((*got)["spec"]["minMember"], 3);
}

TEST(TenantFacts, TheDefaultPriorityClassIsTheApiServers) {
  testing::ApiServer server;
  const auto put = [&](const char* name, int value, bool is_default) {
    server.Put(resources::kPriorityClasses,
               {{"metadata", {{"name", name}}}, {"value", value}, {"globalDefault", is_default}});
  };
  put("inference", 1'000, false);
  put("standard", 100, true);
  const auto client = testing::ClientOf(server.config());
  ApiFacts facts(*client);
  const auto is = [&] { return facts.DefaultPriorityClass().value_or("unknown"); };
  EXPECT_EQ(is(), "standard");  // whether they were listed or not
  put("low", 10, true);
  EXPECT_TRUE(server.WaitFor([&] { return is() == "low"; })) << "the lowest, as Kubernetes has it";
  put("low", 10, false);
  EXPECT_TRUE(server.WaitFor([&] { return is() == "standard"; }));
  server.Remove(resources::kPriorityClasses, {"", "standard"});
  EXPECT_TRUE(server.WaitFor([&] { return is().empty(); }));
}

// With the roles of the chart before, the class counts as one that was named.
TEST(TenantFacts, TheDefaultPriorityClassMayBeOutOfReach) {
  testing::ApiServer server;
  server.AddFault({.path = "/priorityclasses", .times = 0, .status = 403});
  const auto client = testing::ClientOf(server.config());
  ApiFacts facts(*client);
  EXPECT_EQ(facts.DefaultPriorityClass().value_or("unknown"), "");
}

// The chart lets the webhook read the PodGroups that it asks for, and nothing else of them.
TEST(BatchFacts, TheChartAllowsToReadPodGroups) {
  const auto rules = [](const std::string& file) {
    std::map<std::string, Json> found;  // verbs by group
    for (const Json& role : Documents(kSource + file)) {
      if (role.value("kind", "") != "ClusterRole") continue;
      for (const Json& rule : role.value("rules", Json::array())) {
        if (rule.value("resources", Json::array()) != Json::array({"podgroups"})) continue;
        EXPECT_EQ(role["metadata"]["name"], "baton-webhook");
        for (const Json& group : rule["apiGroups"]) found[group] = rule["verbs"];
      }
    }
    return found;
  };
  const std::map<std::string, Json> both{{"scheduling.volcano.sh", {"get"}},
                                         {"scheduling.x-k8s.io", {"get"}}};
  EXPECT_EQ(rules("/tests/k8s/chart/everything.yaml"), both);
  EXPECT_TRUE(rules("/k8s/manifests/baton.yaml").empty()) << "off by default";
}

// What the example counts by is what pods ask for, and what the kubelet and the extender go by.
TEST(BatchDocs, KueuesExampleNamesResourcesThatThereAre) {
  const std::string page = Text(kSource + "/docs/kubernetes.md");
  const size_t at = page.find("### Quotas by Kueue");
  ASSERT_NE(at, std::string::npos);
  const size_t begin = page.find("```yaml\n", at) + 8;
  const auto documents = YAML::LoadAll(page.substr(begin, page.find("```", begin) - begin));
  ASSERT_EQ(documents.size(), 2u);
  const Json configuration = ToJson(documents[0])["resources"];
  const Json queue = ToJson(documents[1])["spec"]["resourceGroups"][0];

  std::set<std::string> inputs{std::string(kWholeResource)};
  for (const ForeignName& row : ForeignNames()) {
    if (row.place == ForeignPlace::kResource) inputs.emplace(row.name);
  }
  size_t outputs = 0;
  for (const Json& each : configuration["transformations"]) {
    EXPECT_TRUE(inputs.contains(each["input"])) << each;
    EXPECT_EQ(each["strategy"], "Replace");
    for (const auto& [name, quantity] : each["outputs"].items()) {
      ++outputs;
      EXPECT_EQ(name, kShareResource);
      // A whole GPU, or one percent of one.
      EXPECT_EQ(quantity, each["input"] == kWholeResource ? "100" : "1") << each;
    }
  }
  EXPECT_EQ(outputs, 2u);
  EXPECT_EQ(configuration["excludeResourcePrefixes"], Json({kMemoryResource}));
  EXPECT_EQ(queue["coveredResources"], Json({kShareResource}));
  EXPECT_EQ(queue["flavors"][0]["resources"][0]["name"], kShareResource);
  // By the same name a scheduler asks the extender.
  EXPECT_NE(page.find("managedResources: [{name: " + std::string(kShareResource) + "}]"),
            std::string::npos);
}

}  // namespace
}  // namespace baton::k8s
