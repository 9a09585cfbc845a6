// The binder in a large cluster: two replicas of the program against the stand-in API server. With
// BATON_TEST_PODS=100000 BATON_TEST_NODES=5000 it measures what docs/results/kubernetes.md tells;
// without them the cluster is small, and only what must hold at any size is asserted.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/time.h"
#include "k8s/types/annotations.h"
#include "k8s/types/gpu_pod.h"
#include "k8s/types/share_pod.h"
#include "tests/k8s/binder/objects.h"
#include "tests/k8s/binder/program.h"
#include "tests/k8s/stand_in/api_server.h"

namespace baton::k8s::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

int Number(const char* name, int missing) {
  const char* said = std::getenv(name);
  return said != nullptr ? std::atoi(said) : missing;
}

std::string NodeName(int n) { return fmt::format("node-{:04}", n); }

// A pod as an API server has it: most of it is of no use to the binder. About 7 KB of text.
Json Bulky(Json pod, const std::string& uid) {
  Json fields = Json::object();
  for (int i = 0; i < 60; ++i) {
    fields[fmt::format("f:field-{}", i)] = {{".", Json::object()}, {"f:value", Json::object()}};
  }
  pod["metadata"]["uid"] = uid;
  pod["metadata"]["creationTimestamp"] = "2026-11-24T06:00:00Z";
  pod["metadata"]["labels"] = {{"app", "web"}, {"pod-template-hash", "6d4cf56db6"}};
  pod["metadata"]["managedFields"] = {
      {{"manager", "kubelet"}, {"operation", "Update"}, {"fieldsV1", fields}}};
  Json env = Json::array();
  for (int i = 0; i < 20; ++i) {
    env.push_back({{"name", fmt::format("VARIABLE_{}", i)}, {"value", std::string(40, 'x')}});
  }
  for (Json& container : pod["spec"]["containers"]) {
    container["env"] = env;
    container["resources"]["requests"] = {{"cpu", "250m"}, {"memory", "512Mi"}};
    container["volumeMounts"] = {
        {{"name", "token"}, {"mountPath", "/var/run/secrets/kubernetes.io/serviceaccount"}}};
  }
  pod["spec"]["volumes"] = {
      {{"name", "token"},
       {"projected", {{"sources", {{{"serviceAccountToken", {{"expirationSeconds", 3'607}}}}}}}}}};
  pod["spec"]["tolerations"] = {
      {{"key", "node.kubernetes.io/not-ready"}, {"operator", "Exists"}, {"effect", "NoExecute"}}};
  Json conditions = Json::array();
  for (const char* type : {"Initialized", "Ready", "ContainersReady", "PodScheduled"}) {
    conditions.push_back(
        {{"type", type}, {"status", "True"}, {"lastTransitionTime", "2026-11-24T06:00:00Z"}});
  }
  pod["status"] = {{"phase", "Running"},
                   {"conditions", conditions},
                   {"containerStatuses",
                    {{{"name", "main"}, {"image", std::string(80, 'i')}, {"ready", true}}}}};
  return pod;
}

class BinderScale : public ::testing::Test {
 protected:
  // A tenth of the pods have a share of a GPU, and half of those a SharePod.
  void Fill(int pods, int nodes) {
    for (int n = 0; n < nodes; ++n) {
      api_.Put(resources::kNodes,
               NodeOf(NodeName(n), {{"status", {{"allocatable", {{"pods", "250"}}}}}}));
      api_.Put(resources::kGpuNodes, CardsOn(NodeName(n), 8));
    }
    for (int p = 0; p < pods; ++p) {
      const std::string name = fmt::format("p{:06}", p);
      const std::string node = NodeName(p % nodes);
      const bool gpu = p % 10 == 0;
      Json pod = PodOf(name, gpu ? Json{{"baton.dev/gpu-share", "10"}} : Json::object());
      if (!gpu) pod["spec"]["schedulerName"] = "default-scheduler";
      Json share;
      if (p % 20 == 0) {
        share = ShareOf(name, {{"request", "10"}});
        share["metadata"].merge_patch({{"uid", "share-" + name}, {"generation", 1}});
        pod = *ChildPod(share, kMemoryUnitMib);
      }
      pod["spec"]["nodeName"] = node;
      if (gpu) {
        const auto read = ReadGpuPod(pod, kMemoryUnitMib);
        const devmgr::Placement place{node,
                                      {{0,
                                        0,
                                        fmt::format("GPU-{}-{}", node, (p / 10) % 8),
                                        "time-slice",
                                        {policy::Share(100'000), 0, 0, 0},
                                        ""}}};
        for (auto& [key, value] : PlacementAnnotations(*read, place, *read)) {
          pod["metadata"]["annotations"][key] = value;
        }
        if (!share.is_null()) {
          share["status"] = {{"phase", "Running"},
                             {"placement", PlacementText(*read, place)},
                             {"observedGeneration", 1}};
          api_.Put(resources::kSharePods, std::move(share));
        }
      }
      api_.Put(resources::kPods, Bulky(std::move(pod), fmt::format("uid-{}", name)));
    }
  }
  std::vector<std::string> Arguments(const std::string& pod, int lease_s) const {
    return {"binder",
            "--kubeconfig",
            file_.path(),
            "--namespace",
            "baton-system",
            "--pod",
            pod,
            "--lease-seconds",
            std::to_string(lease_s),
            "--listen",
            "",
            "--identity",
            pod};
  }
  void AddOwnPod(const std::string& name) {
    Json pod = PodOf(name, Json::object());
    pod["metadata"]["namespace"] = "baton-system";
    pod["spec"]["schedulerName"] = "default-scheduler";
    api_.Put(resources::kPods, pod);
  }
  void AddWaiting(const std::string& prefix, int count) {
    for (int i = 0; i < count; ++i) {
      api_.Put(resources::kPods,
               PodOf(fmt::format("{}{:05}", prefix, i), {{"baton.dev/gpu-share", "10"}}));
    }
  }
  bool AllBound(const std::string& prefix, int count, Duration timeout) {
    return api_.WaitFor(
        [&] {
          for (int i = count; i-- > 0;) {
            const auto pod =
                api_.Get(resources::kPods, {kSpace, fmt::format("{}{:05}", prefix, i)});
            if (!pod || TextAt(*pod, "spec/nodeName").empty()) return false;
          }
          return true;
        },
        timeout);
  }
  static double UnixNow() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
        .count();
  }
  // When the lease was renewed last, by its holder's word: 2026-11-24T06:00:00.123456Z.
  double Renewed() const {
    const auto lease = api_.Get(resources::kLeases, {"baton-system", "baton-binder"});
    const std::string text = lease ? TextAt(*lease, "spec/renewTime") : "";
    std::tm time{};
    double seconds_of_minute = 0;
    EXPECT_EQ(std::sscanf(text.c_str(), "%d-%d-%dT%d:%d:%lfZ", &time.tm_year, &time.tm_mon,
                          &time.tm_mday, &time.tm_hour, &time.tm_min, &seconds_of_minute),
              6)
        << text;
    time.tm_year -= 1900;
    time.tm_mon -= 1;
    return static_cast<double>(timegm(&time)) + seconds_of_minute;
  }
  std::string Holder() const {
    const auto lease = api_.Get(resources::kLeases, {"baton-system", "baton-binder"});
    return lease ? TextAt(*lease, "spec/holderIdentity") : "";
  }

  ApiServer api_;
  Kubeconfig file_{api_.url()};
};

TEST_F(BinderScale, StandbyTakesOverWithWhatItKnows) {
  const int pods = Number("BATON_TEST_PODS", 2'000);
  const int nodes = Number("BATON_TEST_NODES", 100);
  const bool large = pods >= 100'000;
  const int lease_s = large ? 15 : 3;
  const int burst = large ? 2'000 : 100;
  Fill(pods, nodes);
  AddOwnPod("binder-a");
  AddOwnPod("binder-b");
  auto first = std::make_unique<Program>(Arguments("binder-a", lease_s));
  const Instant began = MonotonicNow();
  AddWaiting("start-", 1);
  ASSERT_TRUE(AllBound("start-", 1, std::chrono::minutes(4)));
  const Duration start = MonotonicNow() - began;
  ASSERT_EQ(Holder(), "binder-a");
  // What it tells of each SharePod once.
  ASSERT_TRUE(api_.WaitFor(
      [&] { return api_.count("update sharepods/status") >= static_cast<uint64_t>(pods / 20); },
      std::chrono::minutes(2)));
  Program second(Arguments("binder-b", lease_s));
  // The second one has listed what there is.
  ASSERT_TRUE(api_.WaitFor([&] { return api_.count("watch pods") >= 2; }, std::chrono::minutes(4)));
  AddWaiting("burst-", burst);
  const Instant burst_began = MonotonicNow();
  ASSERT_TRUE(AllBound("burst-", burst, std::chrono::minutes(2)));
  const double per_s = burst / std::chrono::duration<double>(MonotonicNow() - burst_began).count();
  const uint64_t peak_kib = first->PeakKib();
  const uint64_t lists = api_.count("list pods");
  first->End(SIGKILL);
  const double expires = Renewed() + lease_s;
  AddWaiting("after-", 1);
  ASSERT_TRUE(AllBound("after-", 1, seconds(lease_s + 30)));
  const double after_lease = UnixNow() - expires;
  EXPECT_EQ(Holder(), "binder-b");
  // Before the lists below keep the stand-in from answering it.
  const uint64_t standby_peak_kib = second.PeakKib();
  ASSERT_GT(standby_peak_kib, 0u);
  // It knew the cluster: it did not list it again.
  EXPECT_EQ(api_.count("list pods"), lists);
  EXPECT_EQ(Overbooked(api_.List(resources::kPods), api_.List(resources::kGpuNodes)), "");
  std::printf(
      "%d pods, %d nodes: first binding after %.1f s, %.0f bindings per second, peak memory %.0f "
      "MiB "
      "(leader) and %.0f MiB (standby), takeover %.2f s after the lease\n",
      pods, nodes, std::chrono::duration<double>(start).count(), per_s,
      static_cast<double>(peak_kib) / 1'024, static_cast<double>(standby_peak_kib) / 1'024,
      after_lease);
  if (!large) return;
  EXPECT_LE(std::max(peak_kib, standby_peak_kib), uint64_t{1} << 20);
  EXPECT_GE(per_s, 200);
  EXPECT_LE(after_lease, 2);
}

}  // namespace
}  // namespace baton::k8s::testing
