#include "k8s/cluster/node_filter.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "devmgr/modes/modes.h"
#include "k8s/cluster/cluster_view.h"
#include "k8s/cluster/objects.h"
#include "tests/k8s/binder/objects.h"

namespace baton::k8s {
namespace {

using testing::CardsOn;
using testing::NodeOf;

Json PodWith(const char* spec) {
  return {{"metadata", {{"name", "p"}, {"namespace", "n"}}}, {"spec", Json::parse(spec)}};
}

// As the binder sees it.
NodeFacts Facts(const char* text) {
  Json node = Json::parse(text);
  ProjectNode(node);
  return ReadFacts(node);
}

std::string Ask(const char* spec, const NodeFacts& node) {
  const auto needs = ReadNeeds(PodWith(spec));
  return needs ? WhyNot(*needs, node) : "refused: " + needs.error().message;
}

const char* const kNode = R"({"metadata": {"name": "n1", "labels": {"zone": "a", "cpus": "8"}}})";

TEST(NodeFilter, SelectorsAndNamesMustHold) {
  const NodeFacts node = Facts(kNode);
  EXPECT_EQ(Ask("{}", node), "");
  EXPECT_EQ(Ask(R"({"nodeSelector": {"zone": "a"}})", node), "");
  EXPECT_EQ(Ask(R"({"nodeSelector": {"zone": "b"}})", node), "the node has no label zone=b");
  EXPECT_EQ(Ask(R"({"nodeName": "n2"})", node), "the pod requests node n2");
}

TEST(NodeFilter, SupportsEveryNodeAffinityOperator) {
  const NodeFacts node = Facts(kNode);
  const auto matches = [&](const std::string& expressions) {
    const std::string spec =
        R"({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
           {"nodeSelectorTerms": [)" +
        expressions + "]}}}}";
    return Ask(spec.c_str(), node).empty();
  };
  const auto one = [&](const std::string& key, const std::string& op, const std::string& values) {
    return matches(R"({"matchExpressions": [{"key": ")" + key + R"(", "operator": ")" + op +
                   R"(", "values": [)" + values + "]}]}");
  };
  EXPECT_TRUE(one("zone", "In", R"("a", "b")"));
  EXPECT_FALSE(one("zone", "In", R"("b")"));
  EXPECT_FALSE(one("rack", "In", R"("b")"));
  EXPECT_FALSE(one("zone", "NotIn", R"("a")"));
  EXPECT_TRUE(one("zone", "NotIn", R"("b")"));
  EXPECT_TRUE(one("rack", "NotIn", R"("b")"));
  EXPECT_TRUE(one("zone", "Exists", ""));
  EXPECT_FALSE(one("rack", "Exists", ""));
  EXPECT_TRUE(one("rack", "DoesNotExist", ""));
  EXPECT_FALSE(one("zone", "DoesNotExist", ""));
  EXPECT_TRUE(one("cpus", "Gt", R"("7")"));
  EXPECT_FALSE(one("cpus", "Gt", R"("8")"));
  EXPECT_TRUE(one("cpus", "Lt", R"("9")"));
  EXPECT_FALSE(one("zone", "Gt", R"("1")"));
  EXPECT_FALSE(one("zone", "Near", R"("a")"));
  // Terms are alternatives, expressions are not; an empty term holds nowhere, and so does none.
  EXPECT_TRUE(matches(
      R"({"matchExpressions": [{"key": "rack", "operator": "Exists"}]},
         {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]})"));
  EXPECT_FALSE(matches(
      R"({"matchExpressions": [{"key": "zone", "operator": "Exists"},
                               {"key": "rack", "operator": "Exists"}]})"));
  EXPECT_FALSE(matches("{}"));
  EXPECT_FALSE(matches(""));
}

TEST(NodeFilter, UntoleratedTaintsExcludeThePod) {
  const NodeFacts node = Facts(R"({"metadata": {"name": "n1"}, "spec": {"taints": [
      {"key": "gpu", "value": "yes", "effect": "NoSchedule"},
      {"key": "soft", "effect": "PreferNoSchedule"}]}})");
  EXPECT_EQ(Ask("{}", node), "untolerated taint gpu=yes:NoSchedule");
  EXPECT_EQ(Ask(R"({"tolerations": [{"key": "gpu", "value": "yes"}]})", node), "");
  EXPECT_NE(Ask(R"({"tolerations": [{"key": "gpu", "value": "no"}]})", node), "");
  EXPECT_EQ(Ask(R"({"tolerations": [{"key": "gpu", "operator": "Exists"}]})", node), "");
  EXPECT_EQ(Ask(R"({"tolerations": [{"operator": "Exists"}]})", node), "");
  EXPECT_NE(Ask(R"({"tolerations": [{"key": "gpu", "operator": "Exists",
                                     "effect": "NoExecute"}]})",
                node),
            "");
}

// A pod without the hook would launch without the token: it must not start where nobody mounts it.
TEST(NodeFilter, PodsThatRelyOnTheKubeletsMountsWaitForThem) {
  const auto pod = [](const char* injected) {
    Json pod = PodWith("{}");
    pod["metadata"]["annotations"]["baton.dev/injected"] = injected;
    return *ReadNeeds(pod);
  };
  const NodeFacts fresh = Facts(R"({"metadata": {"name": "n1"}, "status": {
      "nodeInfo": {"bootID": "b"}, "allocatable": {"cpu": "1"}}})");
  NodeFacts counted = Facts(R"({"metadata": {"name": "n1"}, "status": {
      "nodeInfo": {"bootID": "b"}, "allocatable": {"baton.dev/gpu-share": "0"}}})");
  EXPECT_TRUE(WhyNot(pod("2"), fresh).starts_with("the kubelet there does not mount"));
  EXPECT_EQ(WhyNot(pod("1"), fresh), "");
  EXPECT_EQ(WhyNot(pod("2"), counted), "");

  const devmgr::ModeSet modes;
  ClusterView view(256, {}, modes);
  const Json node = NodeOf("n1");
  Json agent = CardsOn("n1", 1);
  view.SetNode(node);
  EXPECT_NE(view.WhyOff(pod("2"), "n1"), "") << "no agent has told of it";
  ASSERT_NE(view.OffNodes(pod("2")), nullptr);
  view.Flush();
  view.SetGpuNode(agent);
  EXPECT_TRUE(view.Flush()) << "who waits is looked at again";
  EXPECT_EQ(view.WhyOff(pod("2"), "n1"), "");
  EXPECT_EQ(view.OffNodes(pod("2")), nullptr);
  // An agent of a version before takes its place.
  agent["metadata"].erase("annotations");
  view.SetGpuNode(agent);
  EXPECT_NE(view.OffNodes(pod("2")), nullptr);
  EXPECT_EQ(view.OffNodes(pod("1")), nullptr);
  view.SetGpuNode(CardsOn("n1", 1));
  view.RemoveGpuNode("n1");
  EXPECT_NE(view.OffNodes(pod("2")), nullptr);
}

TEST(NodeFilter, UnsupportedConstraintsAreRefused) {
  const NodeFacts node = Facts(kNode);
  EXPECT_NE(Ask(R"({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                 [{}]}}})",
                node)
                .find("spec.affinity.podAffinity"),
            std::string::npos);
  EXPECT_EQ(Ask(R"({"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution":
                 [{}]}}})",
                node),
            "");
  EXPECT_NE(Ask(R"({"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]})", node)
                .find("use ScheduleAnyway"),
            std::string::npos);
  EXPECT_EQ(
      Ask(R"({"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]})", node), "");
  EXPECT_NE(Ask(R"({"resourceClaims": [{"name": "x"}]})", node), "");
}

TEST(NodeFilter, OtherResourcesAddUpAsInTheKubelet) {
  const Json pod = PodWith(R"({
      "overhead": {"ephemeral-storage": "1Ki"},
      "initContainers": [
        {"name": "i", "resources": {"requests": {"example.com/fpga": "3"}}},
        {"name": "sidecar", "restartPolicy": "Always",
         "resources": {"requests": {"ephemeral-storage": "1Ki"}}}],
      "containers": [
        {"name": "a", "resources": {"limits": {"example.com/fpga": "1", "cpu": "1",
                                               "baton.dev/gpu-share": "30"}},
         "ports": [{"containerPort": 80, "hostPort": 8080}, {"containerPort": 81}]},
        {"name": "b", "resources": {"requests": {"example.com/fpga": "1",
                                                 "ephemeral-storage": "2Ki"}},
         "ports": [{"hostPort": 53, "protocol": "UDP"}]}]})");
  const std::map<std::string, uint64_t> expected{
      {"baton.dev/gpu-share", 30}, {"ephemeral-storage", 4'096},
      {"example.com/fpga", 3},     {"pods", 1},
      {"port TCP/8080", 1},        {"port UDP/53", 1}};
  EXPECT_EQ(OtherResources(pod), expected);
  EXPECT_TRUE(IsPort("port TCP/8080"));
  EXPECT_FALSE(IsPort("pods"));
  const Json node = Json::parse(R"({"status": {"allocatable": {
      "cpu": "8", "memory": "1Gi", "pods": "20", "ephemeral-storage": "1Mi",
      "nvidia.com/gpu": "8", "baton.dev/gpu-share": "800"}}})");
  const std::map<std::string, uint64_t> there{
      {"baton.dev/gpu-share", 800}, {"ephemeral-storage", 1 << 20}, {"pods", 20}};
  EXPECT_EQ(OtherAllocatable(node), there);
}

TEST(NodeFilter, RandomObjectsAreHarmless) {
  for (const char* text : {"null", "[]", "3", R"({"spec": 3})", R"({"spec": {"tolerations": [3]}})",
                           R"({"spec": {"containers": [[], {"ports": {}}, {"ports": [1]}]}})",
                           R"({"spec": {"affinity": []}, "metadata": {"labels": [1]}})"}) {
    const Json object = Json::parse(text);
    (void)ReadNeeds(object);
    (void)ReadFacts(object);
    (void)OtherResources(object);
    (void)OtherAllocatable(object);
    (void)VolumeTerms(object);
  }
}

}  // namespace
}  // namespace baton::k8s
