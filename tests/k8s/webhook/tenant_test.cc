// Tenants: what a namespace may ask for, who asks, and what the webhook refuses. docs/threats.md
// has the list of a hostile tenant's attempts; each is a test here or in the binder's.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "k8s/api/base64.h"
#include "k8s/types/annotations.h"
#include "k8s/types/gpu_pod.h"
#include "k8s/types/team.h"
#include "k8s/webhook/admission.h"

namespace baton::k8s {
namespace {

constexpr const char* kController = "system:serviceaccount:kube-system:replicaset-controller";

// The cluster as the test has it.
class Facts : public ClusterFacts {
 public:
  Result<Json> Namespace(const std::string& name) override {
    ++asked;
    if (away) return Fail(ErrorCode::kUnavailable, "no answer");
    return Json{{"metadata", {{"name", name}, {"labels", labels[name]}}}};
  }
  Result<std::vector<Json>> Quotas(const std::string&) override {
    ++asked;
    if (away) return Fail(ErrorCode::kUnavailable, "no answer");
    return quotas;
  }
  Result<std::vector<Json>> Pods(const std::string&) override {
    ++asked;
    return pods;
  }
  Result<Json> PodGroup(const Resource&, const ObjectName&) override {
    return Fail(ErrorCode::kNotFound, "no such PodGroup");
  }
  Result<std::string> DefaultPriorityClass() override {
    if (classes_away) return Fail(ErrorCode::kUnavailable, "no answer");
    return default_class;
  }
  Result<void> AdmitEver(const devmgr::PodRequest& request) override {
    teams.Settle();
    return teams.quotas().AdmitEver(request);
  }
  TeamSet teams;
  std::map<std::string, Json> labels;
  std::vector<Json> quotas;
  std::vector<Json> pods;
  std::string default_class;
  bool away = false;
  bool classes_away = false;
  int asked = 0;
};

class HostileTenant : public ::testing::Test {
 protected:
  HostileTenant() {
    options_.facts = facts_;
    options_.tenancy.restricted =
        *ParseGrants("high-priority,exclusive,away-open,user,priority-class,gpu-uuid");
    options_.tenancy.teams = {*ParseTeamRule("vision-*=research/vision")};
    facts_->labels["vision"] = {{"baton.dev/team", "research.vision"}};
  }

  static Json Pod(const Json& annotations = Json::object(), const Json& spec = Json::object()) {
    Json pod{
        {"apiVersion", "v1"},
        {"kind", "Pod"},
        {"metadata", {{"name", "p"}, {"annotations", annotations}}},
        {"spec",
         {{"containers",
           {{{"name", "main"},
             {"image", "x"},
             {"resources",
              {{"limits", {{"baton.dev/gpu-share", "40"}, {"baton.dev/gpu-memory", "4"}}}}}}}}}}};
    pod["spec"].merge_patch(spec);
    return pod;
  }
  static Json SharePod(const Json& gpu, const Json& spec = Json::object()) {
    Json share{
        {"apiVersion", "baton.dev/v1alpha1"},
        {"kind", "SharePod"},
        {"metadata", {{"name", "s"}, {"namespace", "vision"}}},
        {"spec",
         {{"gpu", {{"request", "40"}, {"memory", "1Gi"}}},
          {"template", {{"spec", {{"containers", {{{"name", "main"}, {"image", "x"}}}}}}}}}}};
    share["spec"]["gpu"].merge_patch(gpu);
    share["spec"]["template"]["spec"].merge_patch(spec);
    return share;
  }
  Json Ask(const Json& object, const Json& old, const std::string& user, AdmissionKind kind,
           const std::string& name_space) {
    const bool pod = object["kind"] == "Pod";
    const Json review{{"apiVersion", "admission.k8s.io/v1"},
                      {"kind", "AdmissionReview"},
                      {"request",
                       {{"uid", "u"},
                        {"resource",
                         {{"group", pod ? "" : "baton.dev"},
                          {"version", pod ? "v1" : "v1alpha1"},
                          {"resource", pod ? "pods" : "sharepods"}}},
                        {"operation", old.is_null() ? "CREATE" : "UPDATE"},
                        {"namespace", name_space},
                        {"userInfo", {{"username", user}}},
                        {"object", object},
                        {"oldObject", old}}}};
    const AdmissionVerdict verdict = Review(review.dump(), kind, options_);
    return Json::parse(verdict.body)["response"];
  }
  // As the API server does it: what is new is completed, then checked. Why it was refused; empty:
  // it was not, and `object` is what there is then.
  std::string Create(Json& object, const std::string& user = "alice",
                     const std::string& name_space = "vision") {
    const Json mutated = Ask(object, nullptr, user, AdmissionKind::kMutate, name_space);
    if (mutated["allowed"] != true) return mutated["status"]["message"];
    if (mutated.contains("patch")) {
      object = object.patch(Json::parse(FromBase64(mutated["patch"].get<std::string>())));
    }
    const Json checked = Ask(object, nullptr, user, AdmissionKind::kValidate, name_space);
    return checked["allowed"] == true ? "" : checked["status"]["message"].get<std::string>();
  }
  std::string Refused(Json object, const std::string& user = "alice") {
    return Create(object, user);
  }
  std::string Changed(const Json& from, const Json& to, const std::string& user = "alice") {
    const Json checked = Ask(to, from, user, AdmissionKind::kValidate, "vision");
    return checked["allowed"] == true ? "" : checked["status"]["message"].get<std::string>();
  }
  static std::string Note(const Json& pod, const std::string& key) {
    return TextAt(pod, "metadata/annotations/baton.dev~1" + key);
  }

  std::shared_ptr<Facts> facts_ = std::make_shared<Facts>();
  AdmissionOptions options_;
};

TEST_F(HostileTenant, NamesNoTeamButItsOwn) {
  EXPECT_EQ(
      Refused(SharePod({{"team", "sales"}})),
      "spec.gpu.team: namespace vision is of team research/vision; name that team or one below "
      "it, or leave it out");
  EXPECT_NE(Refused(Pod({{"baton.dev/team", "research"}})), "");
  EXPECT_NE(Refused(Pod({{"baton.dev/team", "research/visionaries"}})), "");
  EXPECT_EQ(Refused(Pod({{"baton.dev/team", "research/vision/ocr"}})), "");
  const Json mine = SharePod({{"team", "research/vision"}, {"user", "alice"}});
  EXPECT_NE(Changed(mine, SharePod({{"team", "sales"}, {"user", "alice"}})), "");
  // One that names none is of its namespace's.
  Json share = SharePod(Json::object());
  EXPECT_EQ(Create(share), "");
  EXPECT_EQ(TextAt(share, "spec/gpu/team"), "research/vision");
  Json pod = Pod();
  EXPECT_EQ(Create(pod), "");
  EXPECT_EQ(Note(pod, "team"), "research/vision");
  // By a rule for names, where there is no label.
  Json other = Pod({{"baton.dev/team", "sales"}});
  EXPECT_NE(Create(other, "alice", "vision-2"), "");
  EXPECT_EQ(Create(other, "alice", "sales"), "");
}

TEST_F(HostileTenant, IsInTheBooksAsWhoItIs) {
  Json share = SharePod(Json::object());
  EXPECT_EQ(Create(share, "alice"), "");
  EXPECT_EQ(TextAt(share, "spec/gpu/user"), "alice");
  EXPECT_EQ(
      Refused(SharePod({{"user", "bob"}})),
      "spec.gpu.user: 'bob' is not who asks (alice); leave it out, or ask the cluster's operator "
      "for label baton.dev/allow-user=true on namespace vision");
  // A template may say anything: a controller asks for whoever wrote it, whom nobody knows.
  Json made = Pod({{"baton.dev/user", "bob"}});
  EXPECT_EQ(Create(made, kController), "");
  EXPECT_EQ(Note(made, "user"), "");
  EXPECT_NE(Changed(share, SharePod({{"user", "bob"}, {"team", "research/vision"}}), "alice"), "");
  // Who changes another's keeps the name.
  Json more = share;
  more["spec"]["gpu"]["request"] = "50";
  EXPECT_EQ(Changed(share, more, "carol"), "");
  // A hub that starts servers for its users has the operator's word.
  facts_->labels["vision"]["baton.dev/allow-user"] = "true";
  Json hub = Pod({{"baton.dev/user", "bob"}});
  EXPECT_EQ(Create(hub, "system:serviceaccount:vision:hub"), "");
  EXPECT_EQ(Note(hub, "user"), "bob");
}

// Its containers run on until their grace period is over, which may be years.
TEST_F(HostileTenant, GetsNoMoreForAPodThatIsBeingDeleted) {
  Json pod = Pod();
  ASSERT_EQ(Create(pod), "");
  pod["spec"]["nodeName"] = "gpu-1";
  pod["spec"]["terminationGracePeriodSeconds"] = 100'000'000;
  pod["metadata"]["deletionTimestamp"] = "2029-01-01T00:00:00Z";
  for (const auto& [key, value] : {std::pair{"priority", "high"}, std::pair{"team", "sales"},
                                   std::pair{"user", "bob"}, std::pair{"mode", "exclusive"}}) {
    Json more = pod;
    more["metadata"]["annotations"][std::string("baton.dev/") + key] = value;
    EXPECT_NE(Changed(pod, more), "") << key;
  }
  // Its end is held up by nothing.
  Json without = pod;
  without["metadata"]["finalizers"] = Json::array();
  EXPECT_EQ(Changed(pod, without), "");
}

TEST_F(HostileTenant, GetsNothingThatNeedsTheOperatorsWord) {
  struct Case {
    const char* grant;
    Json share;
    Json spec;
    Json annotations;
  };
  const std::vector<Case> cases{
      {"high-priority", {{"priority", "high"}}, Json::object(), {{"baton.dev/priority", "high"}}},
      {"away-open", {{"away", "open"}}, Json::object(), {{"baton.dev/away", "open"}}},
      {"priority-class", Json::object(), {{"priorityClassName", "inference"}}, Json::object()},
      {"gpu-uuid", {{"uuid", "GPU-1"}}, Json::object(), {{"baton.dev/gpu-uuid", "GPU-1"}}},
      {"gpu-uuid", {{"notUuid", "GPU-1"}}, Json::object(), {{"baton.dev/not-gpu-uuid", "GPU-1"}}},
  };
  for (const Case& one : cases) {
    const std::string label = std::string("baton.dev/allow-") + one.grant;
    const std::string why = Refused(SharePod(one.share, one.spec));
    EXPECT_NE(why.find("ask the cluster's operator for label " + label + "=true on it"),
              std::string::npos)
        << why;
    EXPECT_NE(Refused(Pod(one.annotations, one.spec)), "") << one.grant;
    // Nor later.
    const Json mine = SharePod({{"team", "research/vision"}, {"user", "alice"}});
    Json more = mine;
    more["spec"]["gpu"].merge_patch(one.share);
    more["spec"]["template"]["spec"].merge_patch(one.spec);
    EXPECT_NE(Changed(mine, more), "") << one.grant;
    // What was allowed before stays as it is, and can be given up.
    EXPECT_EQ(Changed(more, more), "");
    // These never change.
    if (one.grant != std::string("away-open") && one.grant != std::string("gpu-uuid")) {
      EXPECT_EQ(Changed(more, mine), "") << one.grant;
    }
    facts_->labels["vision"][label] = "true";
    EXPECT_EQ(Refused(SharePod(one.share, one.spec)), "") << one.grant;
    EXPECT_EQ(Refused(Pod(one.annotations, one.spec)), "") << one.grant;
    facts_->labels["vision"].erase(label);
    facts_->labels["vision"][label] = "false";
    EXPECT_NE(Refused(SharePod(one.share, one.spec)), "") << one.grant;
  }
  Json whole = SharePod({{"mode", "exclusive"}, {"request", nullptr}});
  EXPECT_NE(Create(whole), "");
  facts_->labels["vision"]["baton.dev/allow-exclusive"] = "true";
  EXPECT_EQ(Create(whole), "");
}

// The API server writes the default into each pod that names none, before the webhook sees it.
TEST_F(HostileTenant, HasTheClustersDefaultClassWithoutTheOperatorsWord) {
  const Json by_default{{"priorityClassName", "standard"}};
  const Json higher{{"priorityClassName", "inference"}};
  EXPECT_NE(Refused(Pod(Json::object(), by_default)), "");
  facts_->default_class = "standard";
  EXPECT_EQ(Refused(Pod(Json::object(), by_default)), "");
  EXPECT_EQ(Refused(SharePod(Json::object(), by_default)), "");
  EXPECT_NE(Refused(Pod(Json::object(), higher)), "");
  EXPECT_NE(Refused(SharePod(Json::object(), higher)), "");
  facts_->classes_away = true;
  EXPECT_NE(Refused(Pod(Json::object(), by_default)).find("try again"), std::string::npos);
  EXPECT_EQ(Refused(Pod()), "");
}

// The hook reads the variable, whoever wrote it.
TEST_F(HostileTenant, OpensItselfByNoEnvironment) {
  Json pod = Pod();
  pod["spec"]["containers"][0]["env"] = {{{"name", "BATON_AWAY"}, {"value", "open"}}};
  EXPECT_NE(Refused(pod), "");
  pod["spec"]["containers"][0]["env"] = {
      {{"name", "BATON_AWAY"},
       {"valueFrom", {{"configMapKeyRef", {{"name", "c"}, {"key", "k"}}}}}}};
  EXPECT_NE(Refused(pod), "");
  pod["spec"]["containers"][0]["env"] = {{{"name", "BATON_AWAY"}, {"value", "wait"}}};
  EXPECT_EQ(Refused(pod), "");
  Json share = SharePod(Json::object());
  share["spec"]["template"]["spec"]["containers"][0]["env"] = {
      {{"name", "BATON_AWAY"}, {"value", "open"}}};
  EXPECT_NE(Refused(share), "");
}

TEST_F(HostileTenant, ChoosesNeitherNodeNorGpu) {
  EXPECT_EQ(Refused(Pod(Json::object(), {{"nodeName", "n1"}})),
            "spec.nodeName: Baton chooses the node and the GPUs; use nodeSelector or affinity");
  EXPECT_NE(Refused(Pod({{"baton.dev/placement", "{}"}})), "");
  EXPECT_NE(Refused(Pod({{"main.container.baton.dev/visible-devices", "GPU-1"}})), "");
  // The last of one name would count.
  Json made = Pod();
  ASSERT_EQ(Create(made), "");
  Json twice = Pod();
  Json& env = twice["spec"]["containers"][0]["env"] = made["spec"]["containers"][0]["env"];
  EXPECT_EQ(Refused(twice), "");
  env.push_back({{"name", "NVIDIA_VISIBLE_DEVICES"}, {"value", "all"}});
  EXPECT_NE(Refused(twice), "");
}

// A pod that calls itself a SharePod's child would be read by its annotations alone.
TEST_F(HostileTenant, AsksForNoMoreThanItsLimitsSay) {
  Json pod = Pod({{"baton.dev/request", "95"}});
  pod["metadata"]["ownerReferences"] = {
      {{"apiVersion", "baton.dev/v1alpha1"}, {"kind", "SharePod"}, {"name", "s"}, {"uid", "u"}}};
  EXPECT_NE(Refused(pod), "");
}

TEST_F(HostileTenant, GrowsNotBeyondTheNamespacesQuota) {
  facts_->quotas = {{{"metadata", {{"name", "gpus"}}},
                     {"spec", {{"hard", {{"requests.baton.dev/gpu-share", "50"}}}}}}};
  const Json mine = SharePod({{"team", "research/vision"}, {"user", "alice"}});
  Json more = mine;
  more["spec"]["gpu"]["request"] = "95";
  EXPECT_EQ(Changed(mine, more),
            "exceeded quota: gpus, requested: requests.baton.dev/gpu-share=95, used: "
            "requests.baton.dev/gpu-share=0, limited: requests.baton.dev/gpu-share=50");
  more["spec"]["gpu"]["request"] = "50";
  EXPECT_EQ(Changed(mine, more), "");
  // Its own child is there, and others are.
  Json child = Pod();
  child["metadata"]["name"] = "s";
  Json other = Pod();
  other["metadata"]["name"] = "other";
  other["spec"]["containers"][0]["resources"]["limits"]["baton.dev/gpu-share"] = "5";
  facts_->pods = {child, other};
  EXPECT_NE(Changed(mine, more), "");
  more["spec"]["gpu"]["request"] = "45";
  EXPECT_EQ(Changed(mine, more), "");
  // One that has grown counts with what it has now; one that has ended does not.
  facts_->pods[1]["spec"]["nodeName"] = "n1";
  facts_->pods[1]["metadata"]["annotations"] = {{"baton.dev/request", "9"}};
  EXPECT_NE(Changed(mine, more), "");
  facts_->pods[1]["status"] = {{"phase", "Succeeded"}};
  EXPECT_EQ(Changed(mine, more), "");
  // An ordinary pod likewise, by its annotation; shrinking is always right.
  Json bound = Pod({{"baton.dev/request", "40"}}, {{"nodeName", "n1"}});
  Json grown = Pod({{"baton.dev/request", "60"}}, {{"nodeName", "n1"}});
  facts_->pods.clear();
  EXPECT_NE(Changed(bound, grown), "");
  EXPECT_EQ(Changed(grown, bound), "");
  EXPECT_EQ(Changed(bound, Pod({{"baton.dev/request", "50"}}, {{"nodeName", "n1"}})), "");
}

TEST_F(HostileTenant, AsksForNoMoreThanItsTeamMayEverUse) {
  facts_->teams.Set({{"metadata", {{"name", "vision"}}},
                     {"spec", {{"team", "research/vision"}, {"ceiling", {{"gpus", "0.5"}}}}}});
  const std::string sentence =
      "it asks for 0.8 GPUs, and team research/vision may use 0.5 at most; ask for less, or ask "
      "the cluster's operator to raise that";
  EXPECT_EQ(Refused(SharePod({{"request", "80"}})), "spec.gpu: " + sentence);
  EXPECT_EQ(Refused(SharePod({{"request", "40"}, {"count", 2}})), "spec.gpu: " + sentence);
  EXPECT_EQ(Refused(SharePod({{"request", "80"}, {"team", "research/vision/x"}})),
            "spec.gpu: " + sentence);
  EXPECT_EQ(Refused(SharePod({{"request", "50"}})), "");
  Json pod = Pod();
  pod["spec"]["containers"][0]["resources"]["limits"]["baton.dev/gpu-share"] = "80";
  EXPECT_EQ(Refused(pod), "spec: " + sentence);
  // One that is there: it does not grow, and may shrink or stay.
  const Json there = SharePod({{"request", "80"}, {"team", "research/vision"}});
  const auto with = [&](const char* request) {
    Json changed = there;
    changed["spec"]["gpu"]["request"] = request;
    return changed;
  };
  EXPECT_EQ(Changed(there, with("70")), "");
  EXPECT_NE(Changed(there, with("90")).find("may use 0.5 at most"), std::string::npos);
  // Other teams are not concerned, and what is over only now is the binder's to keep waiting.
  Json other = SharePod({{"request", "80"}, {"team", "ops"}});
  EXPECT_EQ(Create(other, "alice", "ops"), "");
}

TEST_F(HostileTenant, TurnsNoMemoryThatIsCountedIntoMemoryThatIsNot) {
  facts_->quotas = {{{"metadata", {{"name", "gpus"}}},
                     {"spec", {{"hard", {{"requests.baton.dev/gpu-memory", "8"}}}}}}};
  const Json mine = SharePod({{"team", "research/vision"}, {"user", "alice"}});
  for (const Json& memory : {Json("100%"), Json(nullptr), Json("4Gi")}) {
    Json more = mine;
    if (memory.is_null()) {
      more["spec"]["gpu"].erase("memory");
    } else {
      more["spec"]["gpu"]["memory"] = memory;
    }
    EXPECT_NE(Changed(mine, more), "") << memory;
  }
  Json more = mine;
  more["spec"]["gpu"]["memory"] = "2Gi";
  EXPECT_EQ(Changed(mine, more), "");
}

TEST_F(HostileTenant, GainsNothingWhileTheApiServerDoesNotAnswer) {
  facts_->away = true;
  EXPECT_NE(Refused(Pod({{"baton.dev/priority", "high"}})).find("try again"), std::string::npos);
  const Json mine = SharePod({{"team", "research/vision"}, {"user", "alice"}});
  Json more = mine;
  more["spec"]["gpu"]["request"] = "95";
  EXPECT_NE(Changed(mine, more), "");
  // What asks for nothing new is not held up.
  Json less = mine;
  less["spec"]["gpu"]["request"] = "5";
  EXPECT_EQ(Changed(mine, less), "");
}

TEST_F(HostileTenant, MeetsNoneOfThisWhereTheOperatorSaysNothing) {
  options_.tenancy = {};
  options_.facts = nullptr;
  EXPECT_EQ(Refused(Pod({{"baton.dev/priority", "high"}, {"baton.dev/user", "bob"}},
                        {{"priorityClassName", "inference"}})),
            "");
  EXPECT_EQ(facts_->asked, 0);
}

TEST(TenancyRules, AreReadWithASentenceForWhatIsWrong) {
  EXPECT_EQ(ParseGrants("").value().size(), 0u);
  EXPECT_NE(ParseGrants("high-prioritty").error().message.find("did you mean 'high-priority'?"),
            std::string::npos);
  for (const char* wrong : {"", "a", "=b", "a=", "*a*b*c*d*=t"}) {
    EXPECT_FALSE(ParseTeamRule(wrong)) << wrong;
  }
  TenancyOptions options;
  options.teams = {*ParseTeamRule("a-*-z=one"), *ParseTeamRule("*=rest")};
  const auto team = [&](const char* name, const Json& labels = Json::object()) {
    return RulesOf({{"metadata", {{"name", name}, {"labels", labels}}}}, options).team;
  };
  EXPECT_EQ(team("a-b-z"), "one");
  EXPECT_EQ(team("a-z"), "rest");
  EXPECT_EQ(team("a--z"), "one");
  EXPECT_EQ(team("x", {{"baton.dev/team", "a.b"}}), "a/b");
}

}  // namespace
}  // namespace baton::k8s
