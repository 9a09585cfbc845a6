#include "k8s/webhook/admission.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "base/random.h"
#include "k8s/api/base64.h"
#include "k8s/api/object.h"
#include "k8s/types/annotations.h"
#include "k8s/types/flavors.h"
#include "k8s/types/read.h"

namespace baton::k8s {
namespace {

Json FromText(const std::string& text) { return Json::parse(text); }

Json PlainPod(const Json& limits, const Json& annotations = Json::object()) {
  Json pod = FromText(R"({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "p-"},
      "spec": {"containers": [{"name": "main", "image": "x", "resources": {}}]}})");
  pod["metadata"]["annotations"] = annotations;
  pod["spec"]["containers"][0]["resources"]["limits"] = limits;
  return pod;
}

Json PlainSharePod(const std::string& gpu) {
  Json pod = FromText(R"({"apiVersion": "baton.dev/v1alpha1", "kind": "SharePod",
      "metadata": {"name": "s", "namespace": "vision"}, "spec": {"template": {"spec": {
      "containers": [{"name": "main", "image": "x"}]}}}})");
  pod["spec"]["gpu"] = FromText(gpu);
  return pod;
}

Json ReviewOf(const Json& object, const Json& old = nullptr) {
  const bool pod = object["kind"] == "Pod";
  Json request{{"uid", "u-1"},
               {"resource",
                {{"group", pod ? "" : "baton.dev"},
                 {"version", pod ? "v1" : "v1alpha1"},
                 {"resource", pod ? "pods" : "sharepods"}}},
               {"operation", old.is_null() ? "CREATE" : "UPDATE"},
               {"namespace", "vision"},
               {"userInfo", {{"username", "somebody"}}},
               {"object", object},
               {"oldObject", old}};
  return {{"apiVersion", "admission.k8s.io/v1"}, {"kind", "AdmissionReview"}, {"request", request}};
}

Json Asked(const Json& review, AdmissionKind kind, const AdmissionOptions& options = {}) {
  const AdmissionVerdict verdict = Review(review.dump(), kind, options);
  EXPECT_EQ(verdict.status, 200) << verdict.body;
  const Json answer = FromText(verdict.body);
  EXPECT_EQ(answer["apiVersion"], "admission.k8s.io/v1");
  EXPECT_EQ(answer["kind"], "AdmissionReview");
  EXPECT_EQ(answer["response"]["uid"], "u-1");
  EXPECT_EQ(answer["response"]["allowed"], verdict.allowed);
  return answer["response"];
}

// Why it was refused; empty: it was not.
std::string Refusal(const Json& object, const Json& old = nullptr,
                    const AdmissionOptions& options = {}) {
  const Json response = Asked(ReviewOf(object, old), AdmissionKind::kValidate, options);
  return response["allowed"] == true ? std::string()
                                     : response["status"]["message"].get<std::string>();
}

std::string Warnings(const Json& object, const AdmissionOptions& options = {}) {
  const Json response = Asked(ReviewOf(object), AdmissionKind::kValidate, options);
  EXPECT_TRUE(response["allowed"]) << response;
  return response.value("warnings", Json::array()).dump();
}

AdmissionOptions WithTeams() {
  AdmissionOptions options;
  options.teams = std::make_shared<const teams::Teams>(
      teams::ParseTeams("[[team]]\nname = \"research/vision\"\n[[team]]\nname = \"sales\"\n", "t")
          .value());
  return options;
}

TEST(Admission, OnlyPodsThatRequestGpusAreMutated) {
  const Json pod = PlainPod({{"baton.dev/gpu-share", "30"}});
  const Json response = Asked(ReviewOf(pod), AdmissionKind::kMutate);
  ASSERT_EQ(response["patchType"], "JSONPatch");
  const Json patch = FromText(FromBase64(response["patch"]));
  Json wanted = pod;
  ASSERT_TRUE(Inject(wanted).value());
  EXPECT_EQ(pod.patch(patch), wanted);
  // Once more, as the API server does where another webhook changed the pod.
  EXPECT_FALSE(Asked(ReviewOf(wanted), AdmissionKind::kMutate).contains("patch"));
  EXPECT_FALSE(Asked(ReviewOf(PlainPod(Json::object())), AdmissionKind::kMutate).contains("patch"));
}

TEST(Admission, FlavorsAreFilledInWhereAPodOrSharePodNamesOne) {
  AdmissionOptions options;
  options.inject.flavors =
      ParseFlavors({"small=request=10,memory=4Gi", "medium=request=25,limit=50"}).value();
  const auto mutated = [&](const Json& object, const Json& old = nullptr) {
    const Json response = Asked(ReviewOf(object, old), AdmissionKind::kMutate, options);
    EXPECT_EQ(response["allowed"], true) << response;
    return response.contains("patch") ? object.patch(FromText(FromBase64(response["patch"])))
                                      : object;
  };
  const Json pod = mutated(PlainPod(Json::object(), {{"baton.dev/flavor", "small"}}));
  EXPECT_EQ(pod["spec"]["containers"][0]["resources"]["limits"],
            Json({{"baton.dev/gpu-share", "10"}, {"baton.dev/gpu-memory", "16"}}));
  EXPECT_EQ(pod["spec"]["schedulerName"], "baton");
  EXPECT_EQ(Refusal(pod, nullptr, options), "");
  EXPECT_EQ(Warnings(pod, options), "[]") << "it has a memory cap by its flavor";
  // It is looked up once.
  Json annotated = pod;
  annotated["metadata"]["annotations"]["baton.dev/flavor"] = "medium";
  EXPECT_NE(Refusal(annotated, pod, options).find("gets its flavor when it is created"),
            std::string::npos);

  const Json share_pod = mutated(PlainSharePod(R"({"flavor": "small"})"));
  EXPECT_EQ(share_pod["spec"]["gpu"]["request"], "10");
  EXPECT_EQ(Refusal(share_pod, nullptr, options), "");
  Json patched = share_pod;
  patched["spec"]["gpu"]["flavor"] = "medium";
  patched = mutated(patched, share_pod);
  EXPECT_EQ(patched["spec"]["gpu"]["request"], "25");
  EXPECT_EQ(patched["spec"]["gpu"]["limit"], "50");
  EXPECT_EQ(Refusal(patched, share_pod, options), "");
  EXPECT_EQ(mutated(patched, patched), patched);

  const Json refused =
      Asked(ReviewOf(PlainSharePod(R"({"flavor": "smal"})")), AdmissionKind::kMutate, options);
  EXPECT_EQ(refused["status"]["message"],
            "spec.gpu.flavor: there is no flavor 'smal'; did you mean 'small'?");
}

TEST(Admission, BothPhasesRefuseWithTheSameMessage) {
  const Json pod = PlainPod({{"baton.dev/gpu-share", 130}});
  const std::string why =
      "spec.containers[main].resources.limits[baton.dev/gpu-share]: '130' percent is more than one "
      "GPU; set at most 100, or set the number of GPUs in annotation baton.dev/count";
  EXPECT_EQ(Refusal(pod), why);
  const Json mutated = Asked(ReviewOf(pod), AdmissionKind::kMutate);
  EXPECT_EQ(mutated["status"]["message"], why);
  EXPECT_EQ(mutated["status"]["code"], 422);
}

TEST(Admission, InvalidSharePodsAreRefusedWithARemedy) {
  EXPECT_EQ(
      Refusal(PlainSharePod(R"({"request": 130})")),
      "spec.gpu.request: '130' is not a percentage of a GPU; write 0.1 to 100 in steps of 0.1, "
      "such as \"30\" or \"12.5\"");
  EXPECT_EQ(Refusal(PlainSharePod(R"({"request": "60", "limit": "30"})")),
            "spec.gpu.limit: the limit, 30 %, is less than the request, 60 %; raise the limit or "
            "lower the request");
  EXPECT_EQ(
      Refusal(PlainSharePod(R"({"request": "60", "memory": 0})")),
      "spec.gpu.memory: '0' is less than 1Mi of GPU memory; write a size such as 4Gi, or leave "
      "it out for no cap");
  const Json before = PlainSharePod(R"({"request": "60", "count": 1})");
  EXPECT_EQ(Refusal(PlainSharePod(R"({"request": "60", "count": 2})"), before),
            "spec.gpu.count: field is immutable (old value 1, new value 2); "
            "delete the SharePod and create it again");
  EXPECT_EQ(Refusal(PlainSharePod(R"({"request": "20", "limit": "50"})"), before), "");
  EXPECT_EQ(
      Refusal(PlainSharePod(R"({"request": "60", "team": "research/visoin"})"), nullptr,
              WithTeams()),
      "spec.gpu.team: team 'research/visoin' does not exist; did you mean 'research/vision'?");
  EXPECT_EQ(
      Refusal(PlainPod({{"baton.dev/gpu-share", 3}}, {{"baton.dev/team", "marketing"}}), nullptr,
              WithTeams()),
      "metadata.annotations[baton.dev/team]: team 'marketing' does not exist; ask the cluster's "
      "operator for the list of teams, or remove it for team 'default'");
}

TEST(Admission, TeamsParentsAndDefaultAreAccepted) {
  for (const char* team : {"research/vision", "research", "/sales/", "default", ""}) {
    Json pod = PlainSharePod(R"({"request": "60"})");
    pod["spec"]["gpu"]["team"] = team;
    if (*team == 0) pod["spec"]["gpu"].erase("team");
    EXPECT_EQ(Refusal(pod, nullptr, WithTeams()), "") << team;
  }
  // A file that changed holds up nobody who is there already.
  const Json old = PlainSharePod(R"({"request": "60", "team": "gone"})");
  EXPECT_EQ(Refusal(PlainSharePod(R"({"request": "50", "team": "gone"})"), old, WithTeams()), "");
}

TEST(Admission, OnlyBatonMayAssignGpus) {
  const Json limits{{"baton.dev/gpu-share", 30}};
  for (const char* key :
       {"baton.dev/placement", "main.container.baton.dev/visible-devices",
        "main.container.baton.dev/ticket", "main.container.baton.dev/mps-share",
        "main.container.baton.dev/mps-pipe", "main.container.baton.dev/mps-memory"}) {
    const Json with = PlainPod(limits, {{key, "GPU-1"}});
    EXPECT_NE(Refusal(with).find("only Baton may assign GPUs"), std::string::npos);
    EXPECT_NE(
        Refusal(PlainPod(limits, {{key, "GPU-2"}}), with).find("do not change the annotation"),
        std::string::npos);
    EXPECT_NE(Refusal(PlainPod(limits), with).find("do not change the annotation"),
              std::string::npos);
    EXPECT_EQ(Refusal(PlainPod(limits, {{key, "GPU-1"}, {"x", "y"}}), with), "");
    Json review = ReviewOf(with);
    review["request"]["userInfo"]["username"] = "system:serviceaccount:baton-system:baton-binder";
    EXPECT_TRUE(Asked(review, AdmissionKind::kValidate)["allowed"]);
    review["request"]["userInfo"]["username"] = "system:serviceaccount:baton-system2:baton-binder";
    EXPECT_FALSE(Asked(review, AdmissionKind::kValidate)["allowed"]);
  }
}

TEST(Admission, LimitsOfANewPodAlwaysCount) {
  Json pod = PlainPod({{"baton.dev/gpu-share", "1"}}, {{"baton.dev/request", "90"}});
  pod["metadata"]["ownerReferences"] = FromText(
      R"([{"apiVersion": "baton.dev/v1alpha1", "kind": "SharePod", "name": "s", "uid": "u"}])");
  EXPECT_NE(Refusal(pod).find("set this limit to 90"), std::string::npos) << Refusal(pod);
  Json review = ReviewOf(pod);
  review["request"]["userInfo"]["username"] = "system:serviceaccount:baton-system:baton-binder";
  EXPECT_TRUE(Asked(review, AdmissionKind::kValidate)["allowed"]);
}

TEST(Admission, BoundPodMayChangeItsShareButNotItsGpus) {
  Json pod = PlainPod({{"baton.dev/gpu-share", 60}}, {{"baton.dev/request", "60"}});
  pod["spec"]["nodeName"] = "n1";
  const auto with = [&](const char* key, const char* value) {
    Json after = pod;
    after["metadata"]["annotations"][key] = value;
    return Refusal(after, pod);
  };
  EXPECT_EQ(with("baton.dev/request", "20"), "");
  EXPECT_EQ(with("baton.dev/limit", "80"), "");
  EXPECT_NE(with("baton.dev/limit", "20").find("is less than the request"), std::string::npos);
  for (const char* key : {"baton.dev/model", "baton.dev/affinity", "baton.dev/exclusion",
                          "baton.dev/gpu-uuid", "baton.dev/not-gpu-uuid"}) {
    EXPECT_EQ(with(key, "a1"), std::string("metadata.annotations[") + key +
                                   "]: immutable once the pod is bound; delete the pod and "
                                   "create it again");
  }
  EXPECT_NE(with("baton.dev/count", "2").find("immutable once the pod is bound"),
            std::string::npos);
}

// Its containers have the hook, or not, or learn it with their place.
TEST(Admission, APodsModeStaysAsItWasMade) {
  const Json limits{{"baton.dev/gpu-share", 100}};
  const auto change = [&](const std::string& was, const std::string& is, bool bound) {
    const auto pod = [&](const std::string& mode) {
      Json made = mode.empty() ? PlainPod(limits) : PlainPod(limits, {{"baton.dev/mode", mode}});
      if (bound) made["spec"]["nodeName"] = "n1";
      return made;
    };
    return Refusal(pod(is), pod(was));
  };
  for (const bool bound : {false, true}) {
    for (const auto& [was, is] :
         std::vector<std::pair<std::string, std::string>>{{"", "mig"},
                                                          {"", "auto"},
                                                          {"auto", ""},
                                                          {"auto", "time-slice"},
                                                          {"auto", "mig"},
                                                          {"mps", "mig"},
                                                          {"mig", ""}}) {
      EXPECT_NE(change(was, is, bound).find("baton.dev/mode]: immutable"), std::string::npos)
          << was << " " << is << " " << change(was, is, bound);
    }
    EXPECT_EQ(change("", "time-slice", bound), "");
    EXPECT_EQ(change("auto", "auto", bound), "");
  }
  // Until it has its GPUs, those by the token are the binder's matter.
  EXPECT_EQ(change("time-slice", "exclusive", false), "");
  EXPECT_NE(change("time-slice", "exclusive", true).find("immutable"), std::string::npos);
  // What decides an open mode may change where the pod is: it stays there.
  Json open = PlainPod(limits, {{"baton.dev/mode", "auto"}});
  open["spec"]["nodeName"] = "n1";
  Json high = open;
  high["metadata"]["annotations"]["baton.dev/priority"] = "high";
  EXPECT_EQ(Refusal(high, open), "");
}

TEST(Admission, LikelyMistakesGetAWarning) {
  const Json share{{"baton.dev/gpu-share", 30}};
  EXPECT_NE(Warnings(PlainPod(share)).find("container main has no GPU memory limit"),
            std::string::npos);
  EXPECT_EQ(Warnings(PlainPod({{"baton.dev/gpu-share", 30}, {"baton.dev/gpu-memory", 4}})), "[]");
  EXPECT_NE(Warnings(PlainPod(share, {{"baton.dev/limt", "3"}})).find("did you mean 'limit'?"),
            std::string::npos);
  EXPECT_NE(Warnings(PlainPod(share, {{"mian.container.baton.dev/limit", "30"}}))
                .find("did you mean 'main'?"),
            std::string::npos);
  // Each that there is, is known.
  const Json sizes{{"baton.dev/gpu-share", 30}, {"baton.dev/gpu-memory", 4}};
  for (const WishField& field : WishFields()) {
    const std::map<std::string_view, Json> values{
        {keys::kPriority, {{"priority", "high"}}},
        {keys::kLatency, {{"latency", "10ms"}}},
        {keys::kMode, {{"mode", "time-slice"}}},
        {keys::kNodePolicy, {{"node-policy", "spread"}}},
        {keys::kGpuPolicy, {{"gpu-policy", "binpack"}}},
        {keys::kAway, {{"away", "wait"}}},
        {keys::kGang, {{"gang", "g"}, {"gang-size", "2"}}},
        {keys::kGangSize, {{"gang", "g"}, {"gang-size", "2"}}},
        {keys::kSwap, {{"swap", "false"}}},
        {keys::kMemoryRequest, {{"swap", "true"}, {"memory", "4Gi"}, {"memory-request", "1Gi"}}}};
    const auto found = values.find(field.key);
    Json annotations = Json::object();
    if (found == values.end()) annotations[PodKey(field.key)] = "h100";
    if (found != values.end()) {
      for (const auto& [key, value] : found->second.items()) annotations[PodKey(key)] = value;
    }
    const Json pod = PlainPod(sizes, annotations);
    EXPECT_EQ(Refusal(pod), "") << annotations;
    EXPECT_EQ(Warnings(pod), "[]") << annotations;
  }
  EXPECT_NE(Warnings(PlainPod(Json::object(), {{"baton.dev/request", "3"}}))
                .find("the pod has GPU annotations but gets no GPU"),
            std::string::npos);
  EXPECT_NE(Warnings(PlainSharePod(R"({"request": "60"})")).find("spec.gpu.memory is not set"),
            std::string::npos);
  EXPECT_EQ(Warnings(PlainSharePod(R"({"request": "60", "memory": "4Gi"})")), "[]");
}

TEST(Admission, OtherObjectsAreLeftAlone) {
  const Json bad = PlainPod({{"baton.dev/gpu-share", 130}});
  Json review = ReviewOf(bad);
  review["request"]["namespace"] = "baton-system";
  EXPECT_TRUE(Asked(review, AdmissionKind::kValidate)["allowed"]);
  EXPECT_TRUE(Asked(review, AdmissionKind::kMutate)["allowed"]);
  for (const auto& [key, value] :
       {std::pair{"operation", "DELETE"}, {"operation", "CONNECT"}, {"subResource", "status"}}) {
    review = ReviewOf(bad);
    review["request"][key] = value;
    EXPECT_TRUE(Asked(review, AdmissionKind::kValidate)["allowed"]) << value;
  }
  review = ReviewOf(bad);
  review["request"]["resource"]["resource"] = "deployments";
  EXPECT_TRUE(Asked(review, AdmissionKind::kValidate)["allowed"]);
  // What is on its way out, or is not touched where it matters, is not held up by an old mistake.
  EXPECT_EQ(Refusal(bad, bad), "");
  Json touched = bad;
  touched["metadata"]["annotations"]["k8s.example/pod-networks"] = "{}";
  EXPECT_EQ(Refusal(touched, bad), "");
  touched["metadata"]["annotations"]["baton.dev/limit"] = "60";
  EXPECT_NE(Refusal(touched, bad), "");
  const Json old = PlainSharePod(R"({"request": 130})");
  Json leaving = old;
  leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z";
  leaving["spec"]["gpu"]["count"] = 3;
  EXPECT_EQ(Refusal(leaving, old), "");
}

// Whoever may debug pods could else write the hook that all pods of the node run.
TEST(Admission, EphemeralContainersMountBatonReadOnly) {
  Json old = PlainPod({{"baton.dev/gpu-share", 30}});
  ASSERT_TRUE(Inject(old).value());
  old["spec"]["volumes"] = FromText(R"([
      {"name": "baton-socket", "hostPath": {"path": "/run/baton"}},
      {"name": "baton-hook", "hostPath": {"path": "/var/lib/baton/hook"}}])");
  const auto with = [](Json pod, const char* name, const Json& mounts) {
    pod["spec"]["ephemeralContainers"].push_back({{"name", name}, {"volumeMounts", mounts}});
    return pod;
  };
  const auto refusal = [&](const Json& object, const Json& before) -> std::string {
    Json review = ReviewOf(object, before);
    review["request"]["subResource"] = "ephemeralcontainers";
    EXPECT_FALSE(Asked(review, AdmissionKind::kMutate).contains("patch"));
    const Json response = Asked(review, AdmissionKind::kValidate);
    return response["allowed"] == true ? "" : response["status"]["message"].get<std::string>();
  };
  for (const char* volume : {"baton-hook", "baton-socket"}) {
    EXPECT_EQ(refusal(with(old, "debug", {{{"name", volume}, {"mountPath", "/x"}}}), old),
              "spec.ephemeralContainers[debug].volumeMounts: '" + std::string(volume) +
                  "' is Baton's folder on the node, which all pods share; mount it with "
                  "readOnly: true");
    const Json mount{{"name", volume}, {"mountPath", "/x"}, {"readOnly", true}};
    EXPECT_EQ(refusal(with(old, "debug", Json::array({mount})), old), "");
  }
  EXPECT_EQ(refusal(with(old, "debug", Json::array()), old), "");
  // One of before there was a check is there for good, and holds up no other.
  const Json mistaken = with(old, "first", {{{"name", "baton-hook"}, {"mountPath", "/x"}}});
  EXPECT_EQ(refusal(with(mistaken, "second", Json::array()), mistaken), "");
  EXPECT_NE(
      refusal(with(mistaken, "second", {{{"name", "baton-hook"}, {"mountPath", "/y"}}}), mistaken)
          .find("[second]"),
      std::string::npos);
}

TEST(Admission, MalformedReviewGetsAMessage) {
  const std::string deep(300, '[');
  const Json fine = ReviewOf(PlainPod(Json::object()));
  std::vector<std::string> bodies{"",     "{",    "[]",
                                  "null", "7",    "{}",
                                  deep,   "\xff", R"({"apiVersion": "admission.k8s.io/v1beta1"})"};
  for (const char* part : {"apiVersion", "kind", "request"}) {
    Json review = fine;
    review[part] = "x";
    bodies.push_back(review.dump());
    review.erase(part);
    bodies.push_back(review.dump());
  }
  for (const char* part : {"uid", "object"}) {
    Json review = fine;
    review["request"][part] = 7;
    bodies.push_back(review.dump());
  }
  Json review = fine;
  review["request"]["operation"] = "UPDATE";
  bodies.push_back(review.dump());
  for (const std::string& body : bodies) {
    for (const auto kind : {AdmissionKind::kMutate, AdmissionKind::kValidate}) {
      const AdmissionVerdict verdict = Review(body, kind, {});
      EXPECT_EQ(verdict.status, 400) << body;
      EXPECT_FALSE(verdict.allowed);
      EXPECT_GT(FromText(verdict.body)["error"].get<std::string>().size(), 10u) << body;
    }
  }
}

TEST(Admission, RandomReviewsAreHarmless) {
  const std::string fine =
      ReviewOf(PlainPod({{"baton.dev/gpu-share", 30}, {"baton.dev/gpu-memory", 4}},
                        {{"baton.dev/limit", "60"}, {"main.container.baton.dev/memory", "1Gi"}}))
          .dump();
  const std::string update =
      ReviewOf(PlainSharePod(R"({"request": "30", "gang": {"name": "g", "size": 2}})"),
               PlainSharePod(R"({"request": "40", "team": "x"})"))
          .dump();
  const std::string_view letters = "{}[]\",:0123456789abn.\\-/ ";
  const AdmissionOptions options = WithTeams();
  uint64_t answered = 0;
  for (uint64_t seed = 1; seed <= 3'000; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    std::string body = random.OneIn(2) ? fine : update;
    for (int64_t i = random.Between(1, 4); i > 0; --i) {
      const auto at = static_cast<size_t>(random.Between(0, static_cast<int64_t>(body.size()) - 1));
      switch (random.Between(0, 2)) {
        case 0:
          body[at] = letters[static_cast<size_t>(
              random.Between(0, static_cast<int64_t>(letters.size()) - 1))];
          break;
        case 1:
          body.erase(at, static_cast<size_t>(random.Between(1, 8)));
          break;
        default:
          body.insert(at, body.substr(at, static_cast<size_t>(random.Between(1, 30))));
      }
    }
    for (const auto kind : {AdmissionKind::kMutate, AdmissionKind::kValidate}) {
      const AdmissionVerdict verdict = Review(body, kind, options);
      EXPECT_TRUE(verdict.status == 200 || verdict.status == 400);
      EXPECT_TRUE(Json::accept(verdict.body));
      answered += verdict.status == 200;
    }
  }
  EXPECT_GT(answered, 300u) << "it should not be only nonsense";
}

}  // namespace
}  // namespace baton::k8s
