// The binder's core in random worlds: whatever is lost, rejected, late or restarted, no GPU is
// given twice, and in the end everything that fits is bound.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "k8s/binder/core.h"
#include "k8s/binder/node_filter.h"
#include "k8s/binder/objects.h"
#include "k8s/types/gpu_pod.h"
#include "k8s/types/share_pod.h"
#include "tests/k8s/binder/core_fixture.h"
#include "tests/k8s/binder/objects.h"
#include "tests/k8s/binder/world.h"

namespace baton::k8s::testing {
namespace {

std::string RandomPercent(Random& random) {
  return std::to_string(random.Between(1, random.OneIn(3) ? 100 : 50));
}

// What the SharePod's child asks for.
devmgr::PodRequest ChildPodOf(const Json& share) {
  const auto child = ChildPod(share, kMemoryUnitMib);
  if (!child) return {};
  const auto gpu = ReadGpuPod(*child, kMemoryUnitMib);
  if (!gpu) return {};
  devmgr::PodRequest request = gpu->request;
  request.node_labels.clear();
  request.resources = OtherResources(*child);
  return request;
}

void DoSomething(World& world, int* number) {
  Random& random = world.random();
  const auto some = [&](const Resource& resource) -> std::string {
    const auto all = world.All(resource);
    if (all.empty()) return "";
    return TextAt(all[random.Next() % all.size()], "metadata/name");
  };
  switch (random.Between(0, 15)) {
    case 0:
    case 1:
    case 2: {
      Json gpu{{"request", RandomPercent(random)}};
      if (random.OneIn(3)) gpu["memory"] = fmt::format("{}Gi", random.Between(1, 40));
      if (random.OneIn(5)) gpu["count"] = 2;
      if (random.OneIn(10)) gpu = {{"mode", "exclusive"}};
      if (random.OneIn(4)) gpu["priority"] = "high";
      Json spec;
      if (random.OneIn(2)) spec["restartPolicy"] = random.OneIn(2) ? "Never" : "OnFailure";
      if (random.OneIn(4)) spec["priorityClassName"] = random.OneIn(2) ? "high" : "polite";
      world.AddShare(fmt::format("s{}", ++*number), gpu, spec);
      break;
    }
    case 3:
    case 4:
      world.AddPod(fmt::format("p{}", ++*number), {{"baton.dev/gpu-share", RandomPercent(random)}});
      break;
    case 5:
      world.Delete(resources::kSharePods, some(resources::kSharePods));
      break;
    case 6:
      world.Delete(resources::kPods, some(resources::kPods));
      break;
    case 7:
      random.OneIn(2) ? world.Stop() : world.Reap();
      break;
    case 8:
      world.SetPhase(some(resources::kPods), random.OneIn(3) ? "Succeeded" : "Running");
      break;
    case 9:
      world.Patch(resources::kSharePods, some(resources::kSharePods),
                  {{"spec", {{"gpu", {{"request", RandomPercent(random)}}}}}});
      if (random.OneIn(2)) {
        world.Patch(
            resources::kSharePods, some(resources::kSharePods),
            {{"spec", {{"gpu", {{"memory", fmt::format("{}Mi", random.Between(1, 60'000))}}}}}});
      }
      break;
    case 10:
      world.Cordon(some(resources::kNodes), random.OneIn(2));
      break;
    case 11: {
      const std::string name = some(resources::kNodes);
      if (!name.empty()) world.RemoveNode(name);
      break;
    }
    case 12: {
      // A kubelet refuses or ends a pod.
      const char* reasons[] = {"UnexpectedAdmissionError", "OutOfcpu", "NodeShutdown", "Evicted"};
      world.Fail(some(resources::kPods), reasons[random.Between(0, 3)], random.OneIn(2));
      if (random.OneIn(3)) world.ShutDown(some(resources::kPods));
      break;
    }
    case 13: {
      // Or all that come to a node, for a while.
      const std::string node = some(resources::kNodes);
      world.RefuseOn(node, random.OneIn(3) ? "UnexpectedAdmissionError" : "");
      break;
    }
    case 14: {
      const std::string gang = fmt::format("g{}", ++*number);
      const int64_t size = random.Between(1, 3);
      for (int64_t i = 0; i < size; ++i) {
        world.AddShare(fmt::format("{}-{}", gang, i), {{"request", RandomPercent(random)},
                                                       {"gang", {{"name", gang}, {"size", size}}}});
      }
      break;
    }
    default: {
      // A name is used again at once.
      const std::string pod = some(resources::kPods);
      if (pod.starts_with("p")) {
        world.Delete(resources::kPods, pod);
        world.AddPod(pod, {{"baton.dev/gpu-share", RandomPercent(random)}});
      }
      const std::string name = some(resources::kSharePods);
      if (name.empty()) break;
      world.Delete(resources::kSharePods, name);
      world.AddShare(name, {{"request", RandomPercent(random)}});
      break;
    }
  }
}

TEST(CoreProperty, NoGpuIsGivenTwiceAndAllThatFitsIsBound) {
  const uint64_t first = 20'261'121;
#ifdef BATON_SANITIZED
  const int worlds = 40;
#else
  const int worlds = 150;
#endif
  for (int w = 0; w < worlds; ++w) {
    const uint64_t seed = first + static_cast<uint64_t>(w);
    SCOPED_TRACE(fmt::format("seed {}", seed));
    CoreOptions options = Options();
    options.retry_max = std::chrono::seconds(5);
    World world(seed, options);
    Random& random = world.random();
    const auto one_in = [&] { return static_cast<uint64_t>(random.Between(3, 20)); };
    const WorldFaults faults{one_in(), one_in(), one_in(), one_in(), one_in()};
    world.faults = faults;
    world.AddClass("high", 1'000);
    world.AddClass("polite", 1'000, false);
    const int64_t nodes = random.Between(1, 3);
    for (int64_t n = 0; n < nodes; ++n) {
      const int64_t cards = random.Between(1, 3);
      world.AddNode(fmt::format("n{}", n), static_cast<size_t>(cards), 80'000,
                    random.OneIn(2) ? Json() : MemoryPlugin(cards * 80'000 / kMemoryUnitMib));
    }
    int number = 0;
    const int64_t deeds = random.Between(10, 40);
    for (int64_t d = 0; d < deeds; ++d) {
      DoSomething(world, &number);
      const int64_t ticks = random.Spread(1, 60);
      for (int64_t t = 0; t < ticks; ++t) world.Tick();
      if (random.OneIn(12)) world.Restart();
    }
    world.faults = {};
    for (const Json& node : world.All(resources::kGpuNodes)) {
      const std::string name = TextAt(node, "metadata/name");
      const size_t cards = node["status"]["cards"].size();
      if (!world.Get(resources::kNodes, name)) world.AddNode(name, cards);
      world.Cordon(name, false);
      world.RefuseOn(name, "");
    }
    ASSERT_TRUE(world.Settle()) << "it never rests";
    // Who goes for others ends, and then is made again where there is room.
    const auto ending = [&] {
      const std::vector<Json> pods = world.All(resources::kPods);
      return std::any_of(pods.begin(), pods.end(), [](const Json& pod) {
        return Find(pod, "metadata/deletionTimestamp") != nullptr;
      });
    };
    for (int turn = 0; ending(); ++turn) {
      ASSERT_LT(turn, 100) << "they displace each other for ever";
      world.Reap();
      ASSERT_TRUE(world.Settle()) << "it never rests";
    }
    ASSERT_EQ(world.wrong(), "");
    ASSERT_EQ(world.Wrong(), "");
    ASSERT_EQ(world.core().counts().unbooked, 0u);
    // What it has booked is what is bound, and no more.
    const auto booked = [&] {
      std::map<std::string, devmgr::Placement> all;
      for (const auto& [name, pod] : world.core().cluster().pods()) all[name] = pod.placement;
      return all;
    };
    std::map<std::string, devmgr::Placement> bound;
    size_t waiting = 0;
    size_t gangs = 0;  // SharePods of a gang that wait
    for (const Json& pod : world.All(resources::kPods)) {
      if (!TakesRoom(pod)) continue;
      const auto placement = ReadPlacement(pod);
      ASSERT_TRUE(placement);
      if (*placement) {
        bound[NameOf(pod).Text()] = **placement;
      } else if (Find(pod, "metadata/ownerReferences") == nullptr) {
        ++waiting;
        // It fits nowhere.
        const auto gpu = ReadGpuPod(pod, kMemoryUnitMib);
        ASSERT_TRUE(gpu) << gpu.error().message;
        devmgr::PodRequest request = gpu->request;
        request.node_labels.clear();
        request.resources = OtherResources(pod);
        EXPECT_FALSE(world.core().cluster().Decide(request)) << NameOf(pod).Text();
      }
    }
    EXPECT_EQ(booked(), bound);
    for (const Json& share : world.All(resources::kSharePods)) {
      const std::string name = TextAt(share, "metadata/name");
      const auto pod = world.Get(resources::kPods, name);
      const std::string phase = TextAt(share, "status/phase");
      if (phase == "Pending") {
        ASSERT_FALSE(pod && world.IsBound(name)) << name;
        const std::string reason = TextAt(ConditionOf(world, name, "Placed"), "reason");
        if (reason == "Invalid") continue;  // exclusive, with a request
        EXPECT_TRUE(reason == "Unschedulable" || reason == "WaitingForGang") << share;
        ++waiting;
        if (reason == "WaitingForGang" || Find(share, "spec/gpu/gang") != nullptr) {
          ++gangs;
          continue;
        }
        auto child = ChildPodOf(share);
        if (pod) child.resources = OtherResources(*pod);
        EXPECT_FALSE(world.core().cluster().Decide(child)) << name;
      } else if (phase == "Bound" || phase == "Running") {
        ASSERT_TRUE(pod) << name;
        EXPECT_EQ(TextAt(*pod, "spec/nodeName"), TextAt(share, "status/node"));
        EXPECT_EQ(EndOf(*pod), PodEnd::kNone) << name << " is not made again";
      } else {
        EXPECT_TRUE(phase == "Succeeded" || phase == "Failed") << name << " is " << phase;
        // Only what ended by itself has.
        EXPECT_TRUE(world.Completed(UidOf(share))) << *pod;
        EXPECT_NE(TextAt(share, "spec/template/spec/restartPolicy", "Always"), "Always") << name;
      }
    }
    EXPECT_EQ(world.core().counts().waiting, waiting);
    // One that knows only what stands there decides the same, and writes nothing.
    const auto before = booked();
    const uint64_t writes = world.writes();
    world.Restart();
    ASSERT_TRUE(world.Settle());
    EXPECT_EQ(booked(), before);
    // But which of a gang it names: that depends on the usual mix, and it on pods which are gone.
    EXPECT_LE(world.writes() - writes, 2 * gangs);  // of the SharePod, and of its pod
    // All goes, and all is free.
    for (const Json& share : world.All(resources::kSharePods)) {
      world.Delete(resources::kSharePods, TextAt(share, "metadata/name"));
    }
    ASSERT_TRUE(world.Settle());
    for (const Json& pod : world.All(resources::kPods)) {
      world.Delete(resources::kPods, TextAt(pod, "metadata/name"));
    }
    world.Reap();
    ASSERT_TRUE(world.Settle());
    EXPECT_TRUE(booked().empty());
    EXPECT_EQ(world.All(resources::kPods).size(), 0u);
    EXPECT_EQ(world.core().counts().waiting, 0u);
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace baton::k8s::testing
