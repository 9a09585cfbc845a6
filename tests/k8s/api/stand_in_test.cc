// The stand-in is what others are tested against: it answers as a real API server does.
#include <fmt/format.h>

#include "tests/k8s/api/fixture.h"

namespace baton::k8s::testing {
namespace {

using resources::kNodes;
using resources::kPods;
using resources::kSharePods;

const ObjectName kA{"default", "a"};

Json SharePodOf(const std::string& name) {
  return {{"apiVersion", "baton.dev/v1alpha1"},
          {"kind", "SharePod"},
          {"metadata", {{"name", name}, {"namespace", "default"}}},
          {"spec", {{"gpu", {{"request", "30"}}}}}};
}

TEST(StandIn, CreatesReadsReplacesAndDeletes) {
  ApiServer server;
  const auto client = ClientOf(server.config());
  const auto made = client->Create(kSharePods, kA, SharePodOf("a"));
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_FALSE(UidOf(*made).empty());
  EXPECT_EQ((*made)["metadata"]["generation"], 1);
  const auto twice = client->Create(kSharePods, kA, SharePodOf("a"));
  ASSERT_FALSE(twice);
  EXPECT_TRUE(twice.error().exists());

  Json changed = *made;
  changed["spec"]["gpu"]["request"] = "40";
  changed["status"]["phase"] = "Bound";  // not of the object's own path
  const auto replaced = client->Update(kSharePods, kA, changed);
  ASSERT_TRUE(replaced) << replaced.error().message;
  EXPECT_EQ((*replaced)["metadata"]["generation"], 2);
  EXPECT_FALSE(replaced->contains("status"));
  const auto stale = client->Update(kSharePods, kA, changed);
  ASSERT_FALSE(stale);
  EXPECT_TRUE(stale.error().conflict());

  // On /status only the status counts, and the generation stays.
  Json status = *replaced;
  status["status"]["phase"] = "Bound";
  status["spec"]["gpu"]["request"] = "90";
  const auto told = client->Update(kSharePods, kA, status, "status");
  ASSERT_TRUE(told) << told.error().message;
  EXPECT_EQ(TextAt(*told, "spec/gpu/request"), "40");
  EXPECT_EQ(TextAt(*told, "status/phase"), "Bound");
  EXPECT_EQ((*told)["metadata"]["generation"], 2);
  // What changes nothing makes no version.
  const auto same = client->Update(kSharePods, kA, *told, "status");
  ASSERT_TRUE(same);
  EXPECT_EQ(ResourceVersionOf(*same), ResourceVersionOf(*told));

  const auto wrong = client->Delete(kSharePods, kA, "another-uid");
  ASSERT_FALSE(wrong);
  EXPECT_TRUE(wrong.error().conflict());
  EXPECT_TRUE(client->Delete(kSharePods, kA, UidOf(*made)));
  const auto gone = client->Get(kSharePods, kA);
  ASSERT_FALSE(gone);
  EXPECT_TRUE(gone.error().not_found());
}

TEST(StandIn, BindsAPodOnceAndMergesItsAnnotations) {
  ApiServer server;
  const auto client = ClientOf(server.config());
  const auto pod = client->Create(kPods, kA, AnnotatedPod("a", {{"mine", "1"}}));
  ASSERT_TRUE(pod);
  const auto binding = [&](const std::string& uid, const std::string& node) {
    return client->Create(
        kPods, kA,
        {{"apiVersion", "v1"},
         {"kind", "Binding"},
         {"metadata", {{"name", "a"}, {"uid", uid}, {"annotations", {{"placed", "x"}}}}},
         {"target", {{"kind", "Node"}, {"name", node}}}},
        "binding");
  };
  EXPECT_TRUE(binding("other", "n1").error().conflict());
  ASSERT_TRUE(binding(UidOf(*pod), "n1"));
  EXPECT_TRUE(binding(UidOf(*pod), "n2").error().conflict());
  const auto bound = server.Get(kPods, kA);
  EXPECT_EQ(TextAt(*bound, "spec/nodeName"), "n1");
  EXPECT_EQ(TextAt(*bound, "metadata/annotations/mine"), "1");
  EXPECT_EQ(TextAt(*bound, "metadata/annotations/placed"), "x");
  // It goes with grace, and is evicted the same way.
  ASSERT_TRUE(client->Create(kPods, kA, {{"metadata", {{"name", "a"}}}}, "eviction"));
  EXPECT_FALSE(TextAt(*server.Get(kPods, kA), "metadata/deletionTimestamp").empty());
  ASSERT_TRUE(client->Delete(kPods, kA, {}, 0));
  EXPECT_FALSE(server.Get(kPods, kA));
}

TEST(StandIn, AnObjectWithFinalizersStaysUntilTheyAreGone) {
  ApiServer server;
  const auto client = ClientOf(server.config());
  Json object = SharePodOf("a");
  object["metadata"]["finalizers"] = {"baton.dev/node"};
  ASSERT_TRUE(client->Create(kSharePods, kA, object));
  ASSERT_TRUE(client->Delete(kSharePods, kA));
  ASSERT_TRUE(server.Get(kSharePods, kA));
  ASSERT_TRUE(
      client->Patch(kSharePods, kA, PatchKind::kMerge, {{"metadata", {{"finalizers", nullptr}}}}));
  EXPECT_FALSE(server.Get(kSharePods, kA));
}

TEST(StandIn, PatchesInEveryWay) {
  ApiServer server;
  const auto client = ClientOf(server.config());
  ASSERT_TRUE(client->Create(kPods, kA, AnnotatedPod("a", {{"keep", "1"}, {"drop", "2"}})));
  ASSERT_TRUE(client->Patch(kPods, kA, PatchKind::kMerge,
                            {{"metadata", {{"annotations", {{"drop", nullptr}}}}}}));
  ASSERT_TRUE(client->Patch(
      kPods, kA, PatchKind::kJson,
      Json::array({{{"op", "test"}, {"path", "/metadata/annotations/keep"}, {"value", "1"}},
                   {{"op", "add"}, {"path", "/metadata/annotations/new"}, {"value", "3"}}})));
  const auto refused = client->Patch(
      kPods, kA, PatchKind::kJson,
      Json::array({{{"op", "test"}, {"path", "/metadata/annotations/keep"}, {"value", "9"}}}));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, 422);
  ASSERT_TRUE(client->Patch(
      kPods, kA, PatchKind::kStrategic,
      {{"spec", {{"containers", Json::array({{{"name", "main"}, {"tty", true}}})}}}}));
  const Json pod = *server.Get(kPods, kA);
  EXPECT_EQ(pod["metadata"]["annotations"], (Json{{"keep", "1"}, {"new", "3"}}));
  EXPECT_EQ(pod["spec"]["containers"][0]["image"], "i");
  EXPECT_EQ(pod["spec"]["containers"][0]["tty"], true);
}

TEST(StandIn, AppliedFieldsMergeByManagerAndVanishWhenNoMoreApplied) {
  ApiServer server;
  const auto client = ClientOf(server.config());
  const auto applied = [&](const std::string& manager, const Json& status) {
    return client->Apply(kSharePods, kA,
                         {{"apiVersion", "baton.dev/v1alpha1"},
                          {"kind", "SharePod"},
                          {"metadata", {{"name", "a"}}},
                          {"status", status}},
                         "status", true, manager);
  };
  ASSERT_FALSE(applied("baton", Json::object()));  // there is none yet
  ASSERT_TRUE(client->Apply(kSharePods, kA, SharePodOf("a")));
  const auto condition = [](const char* type) {
    return Json::array({{{"type", type}, {"status", "True"}}});
  };
  ASSERT_TRUE(applied("baton", {{"conditions", condition("Bound")}, {"node", "n1"}}));
  ASSERT_TRUE(applied("baton-node", {{"conditions", condition("Attached")}, {"achieved", 30}}));
  Json status = (*server.Get(kSharePods, kA))["status"];
  EXPECT_EQ(status["conditions"].size(), 2u);
  EXPECT_EQ(status["node"], "n1");
  ASSERT_TRUE(applied("baton-node", {{"achieved", 31}}));
  status = (*server.Get(kSharePods, kA))["status"];
  EXPECT_EQ(status["conditions"], condition("Bound"));
  EXPECT_EQ(status["achieved"], 31);
}

TEST(StandIn, SelectsByLabelsAndFields) {
  ApiServer server;
  const auto client = ClientOf(server.config());
  for (const auto& [name, tier, node] :
       {std::tuple{"a", "web", "n1"}, {"b", "db", "n1"}, {"c", "web", ""}}) {
    Json pod = AnnotatedPod(name);
    pod["metadata"]["labels"]["tier"] = tier;
    if (*node != '\0') pod["spec"]["nodeName"] = node;
    ASSERT_TRUE(client->Create(kPods, {"default", name}, pod));
  }
  const auto names = [&](const std::string& labels, const std::string& fields) {
    ListOptions options;
    options.label_selector = labels;
    options.field_selector = fields;
    const auto list = client->List(kPods, {}, options);
    if (!list) return list.error().reason;
    std::string all;
    for (const Json& item : (*list)["items"]) all += NameOf(item).name;
    return all;
  };
  EXPECT_EQ(names("tier=web", ""), "ac");
  EXPECT_EQ(names("tier!=web", ""), "b");
  EXPECT_EQ(names("tier in (web, db),!gone", ""), "abc");
  EXPECT_EQ(names("tier notin (web)", ""), "b");
  EXPECT_EQ(names("gone", ""), "");
  EXPECT_EQ(names("", "spec.nodeName=n1"), "ab");
  EXPECT_EQ(names("tier=web", "spec.nodeName="), "c");
  EXPECT_EQ(names("", "spec.schedulerName!=default-scheduler"), "");
  EXPECT_EQ(names("", "spec.colour=red"), "BadRequest");
}

TEST(StandIn, RequiresTlsAndItsToken) {
  ApiServer server({.tls = true, .token = "secret"});
  EXPECT_TRUE(ClientOf(server.config())->GetPath("/version"));
  ClusterConfig config = server.config();
  config.token = "wrong";
  const auto refused = ClientOf(config)->GetPath("/version");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, 401);
}

TEST(StandIn, ServesKindsOfCustomResourceDefinitions) {
  ApiServer server;
  const auto client = ClientOf(server.config());
  const Resource things{"example.org", "v1", "things", "Thing", true};
  EXPECT_TRUE(client->List(things, {}).error().not_found());
  ASSERT_TRUE(
      client->Create(resources::kCustomResourceDefinitions, {{}, "things.example.org"},
                     {{"apiVersion", "apiextensions.k8s.io/v1"},
                      {"kind", "CustomResourceDefinition"},
                      {"metadata", {{"name", "things.example.org"}}},
                      {"spec",
                       {{"group", "example.org"},
                        {"scope", "Namespaced"},
                        {"names", {{"plural", "things"}, {"kind", "Thing"}}},
                        {"versions", Json::array({{{"name", "v1"}, {"served", true}}})}}}}));
  EXPECT_TRUE(client->Create(things, kA, {{"metadata", {{"generateName", "t-"}}}}));
  EXPECT_EQ((*client->List(things, {}))["items"].size(), 1u);
  server.Unserve(things);
  EXPECT_TRUE(client->List(things, {}).error().not_found());
  const auto groups = client->GetPath("/apis");
  ASSERT_TRUE(groups);
  EXPECT_EQ(TextAt(*groups, "kind"), "APIGroupList");
}

// No assertion on time: it prints how fast both are together.
TEST(StandIn, ManyRequestsInARow) {
  ApiServer server;
  const auto client = ClientOf(server.config());
  constexpr int kMany = 500;
  const Instant begin = MonotonicNow();
  for (int i = 0; i < kMany; ++i) {
    const std::string name = fmt::format("p{}", i);
    ASSERT_TRUE(client->Create(kPods, {"default", name}, AnnotatedPod(name)));
    ASSERT_TRUE(client->Get(kPods, {"default", name}));
  }
  const double took = std::chrono::duration<double>(MonotonicNow() - begin).count();
  std::printf("%d requests, one after the other: %.0f per second\n", 2 * kMany, 2 * kMany / took);
  EXPECT_EQ(server.List(kPods).size(), size_t{kMany});
}

}  // namespace
}  // namespace baton::k8s::testing
