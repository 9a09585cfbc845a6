// What the node's agent asks and tells the API server of its node.
#include <nlohmann/json.hpp>

#include "tests/k8s/device_plugin/agent_of_tests.h"

namespace baton::k8s {
namespace {

class AgentsNode : public AgentOfTests {};

// Else what is known of nodes that are deleted would add up. (The garbage collector is the test.)
TEST_F(AgentsNode, TheGpuNodeGoesWithItsNode) {
  refresh_every_ = std::chrono::milliseconds(200);
  const auto make_node = [&](const char* uid) {
    return api_.Put(resources::kNodes, {{"metadata", {{"name", "n1"}, {"uid", uid}}}});
  };
  const auto owner = [&] {
    const auto node = api_.Get(resources::kGpuNodes, {"", "n1"});
    return node ? TextAt(*node, "metadata/ownerReferences/0/uid") : "-";
  };
  make_node("node-1");
  // Of an agent of before.
  api_.Put(resources::kGpuNodes, {{"metadata", {{"name", "n1"}}}});
  StartAgent();
  ASSERT_TRUE(api_.WaitFor([&] { return owner() == "node-1"; }));
  const Json reference =
      (*api_.Get(resources::kGpuNodes, {"", "n1"}))["metadata"]["ownerReferences"][0];
  EXPECT_EQ(reference,
            Json({{"apiVersion", "v1"}, {"kind", "Node"}, {"name", "n1"}, {"uid", "node-1"}}));
  // The Node is made anew.
  api_.Remove(resources::kNodes, {"", "n1"});
  make_node("node-2");
  api_.Remove(resources::kGpuNodes, {"", "n1"});
  EXPECT_TRUE(api_.WaitFor([&] {
    return owner() == "node-2" &&
           Status(resources::kGpuNodes, {"", "n1"}).value("cards", Json::array()).size() == 2;
  }));
}

// By the role of an earlier chart it may not look at its Node; and some API servers let nobody name
// an owner who may not delete the object.
TEST_F(AgentsNode, TellsOfItsGpusWithoutAnOwnerToo) {
  api_.Put(resources::kNodes, {{"metadata", {{"name", "n1"}, {"uid", "node-1"}}}});
  const std::vector<testing::Fault> faults{
      {.verb = "get", .path = "/nodes/n1", .times = 0, .status = 403},
      {.verb = "apply",
       .body = "ownerReferences",
       .times = 0,
       .status = 403,
       .message = "cannot set an ownerRef on a resource you can't delete"}};
  for (const testing::Fault& fault : faults) {
    api_.AddFault(fault);
    StartAgent();
    EXPECT_TRUE(api_.WaitFor([&] {
      return Status(resources::kGpuNodes, {"", "n1"}).value("cards", Json::array()).size() == 2;
    }));
    EXPECT_FALSE(
        (*api_.Get(resources::kGpuNodes, {"", "n1"}))["metadata"].contains("ownerReferences"));
    StopAgent();
    api_.Remove(resources::kGpuNodes, {"", "n1"});
    api_.ClearFaults();
  }
}

// Of a label the API server has no index: each agent that watches by one costs it time for each
// event of any pod.
TEST_F(AgentsNode, WatchesPodsByTheirNodeAloneWhereNothingIsDivided) {
  StartAgent();
  ASSERT_TRUE(api_.WaitFor([&] { return Get("/readyz").status == 200; }));
  EXPECT_EQ(api_.count("list pods"), 2u);
  StopAgent();
  makes_mps_ = false;
  api_.Put(resources::kPods, PodOnNode("a", "60", "80"));
  StartAgent();
  ASSERT_TRUE(api_.WaitFor([&] { return Get("/readyz").status == 200; }));
  EXPECT_TRUE(AwaitRow("vision/a", 60));
  EXPECT_EQ(api_.count("list pods"), 3u);
}

// MIG can be on before the agent starts, or after a reboot that it outlives.
TEST_F(AgentsNode, FindsPodsThatWaitForAPartOnceMigIsOn) {
  DumbBatond batond(folder_ / "dumb");
  makes_mps_ = false;
  Json pod = PodOnNode("a", "10", "10");
  pod["spec"].erase("nodeName");
  pod["metadata"]["labels"][PodKey(keys::kMakesDevices)] = LabelOfNode("n1");
  Json& annotations = pod["metadata"]["annotations"];
  annotations[PodKey(keys::kMode)] = "mig";
  annotations.erase(PodKey(keys::kLimit));
  std::string placement = annotations[PodKey(keys::kPlacement)];
  placement.replace(placement.find("time-slice"), 10, "mig");
  annotations[PodKey(keys::kPlacement)] = placement;
  api_.Put(resources::kPods, pod);
  StartAgent(true, "dumb");
  ASSERT_TRUE(api_.WaitFor([&] { return batond.told() > 3; }));
  EXPECT_EQ(batond.asked(), 0);
  batond.TurnMigOn();
  EXPECT_TRUE(api_.WaitFor([&] { return batond.asked() > 0; }));
}

}  // namespace
}  // namespace baton::k8s
