// The binder's core: parts of GPUs that a node makes before a pod is bound to them, by MIG and MPS.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "devmgr/modes/mig_mode.h"
#include "k8s/types/annotations.h"
#include "k8s/types/gpu_node.h"
#include "k8s/types/gpu_pod.h"
#include "spec/modes.h"
#include "tests/k8s/binder/core_fixture.h"
#include "tests/k8s/binder/world.h"
#include "tests/scale.h"

namespace baton::k8s::testing {
namespace {

constexpr const char* kMain = "main.container.baton.dev/visible-devices";
constexpr const char* kTicketOfMain = "main.container.baton.dev/ticket";

// What an agent does: has made what pods with its node's label are to get, takes away what nobody
// is to have any more, which takes until the next look, and tells of both. Its word is what the GPU
// has.
class Maker {
 public:
  // On the first `divided` of its GPUs MIG is on.
  Maker(World& world, std::string node, size_t cards, size_t divided)
      : world_(world), mig_(divided > 0) {
    inventory_.name = std::move(node);
    for (size_t i = 0; i < cards; ++i) {
      devmgr::Card card;
      card.uuid = fmt::format("GPU-{}-{}", inventory_.name, i);
      card.model = "NVIDIA A100-SXM4-40GB";
      card.memory_mib = 40'960;
      card.mig_capable = true;
      card.mig_enabled = i < divided;
      inventory_.cards.push_back(card);
    }
    world.AddNode(inventory_.name, cards, 80'000,
                  {{"status", {{"allocatable", {{"baton.dev/gpu-mps", "48"}}}}}});
    Tell();
  }

  // Looks at the pods and tells what is there then. False: nothing was to be done.
  bool Look() {
    std::set<std::string> wanted;
    bool changed = false;
    for (const Json& pod : world_.All(resources::kPods)) {
      const std::string on = TextAt(pod, "spec/nodeName");
      const bool here = on.empty() ? MakesDevicesOn(pod) == inventory_.name : on == inventory_.name;
      const auto placement = ReadPlacement(pod);
      if (!here || !TakesRoom(pod) || !placement || !*placement) continue;
      if ((*placement)->node != inventory_.name) continue;
      for (const devmgr::Vgpu& vgpu : (*placement)->vgpus) {
        if (spec::ByToken(vgpu.mode)) continue;
        const Json& containers = pod.at("spec").at("containers");
        const std::string ticket =
            TicketOf(UidOf(pod), TextAt(containers.at(vgpu.container), "name"));
        wanted.insert(ticket);
        changed |= Make(ticket, vgpu);
      }
    }
    changed |= !leaving_.empty();
    leaving_.clear();
    for (auto part = parts_.begin(); part != parts_.end();) {
      if (wanted.contains(part->first)) {
        ++part;
        continue;
      }
      leaving_.push_back(part->second);
      part = parts_.erase(part);
      changed = true;
    }
    if (changed) Tell();
    return changed;
  }

  // What pods were given that was somebody else's; empty: nothing.
  const std::string& wrong() const { return wrong_; }
  size_t made() const { return parts_.size(); }
  std::string DeviceOf(const std::string& uid) const {
    const auto part = parts_.find(TicketOf(uid, "main"));
    return part == parts_.end() ? "" : part->second.device;
  }

 private:
  struct Part {
    std::string card;
    devmgr::MigInstance instance;
    std::string device;
  };

  bool Overlap(const Part& a, const Part& b) const {
    return mig_ && a.card == b.card && a.instance.start < b.instance.start + b.instance.slices &&
           b.instance.start < a.instance.start + a.instance.slices;
  }

  bool Make(const std::string& ticket, const devmgr::Vgpu& vgpu) {
    Part part{vgpu.card, {}, "/run/baton/mps/" + vgpu.card};
    if (mig_) {
      const auto at = mode_.PartOf(inventory_.cards[0], vgpu.fit.slot);
      if (!at) {
        wrong_ = fmt::format("{} gets slot {}, which there is not", ticket, vgpu.fit.slot);
        return false;
      }
      part.instance = {0, at->profile, "", at->start, at->slices};
      part.device = fmt::format("MIG-{}-{}-{}", vgpu.card, at->start, at->profile);
    }
    const auto known = parts_.find(ticket);
    if (known != parts_.end() && known->second.card == part.card &&
        known->second.instance == part.instance) {
      return false;
    }
    // As a driver, it makes nothing where something is. It may be about to go.
    if (std::any_of(leaving_.begin(), leaving_.end(),
                    [&](const Part& its) { return Overlap(its, part); }) ||
        std::any_of(parts_.begin(), parts_.end(), [&](const auto& its) {
          return its.first != ticket && Overlap(its.second, part);
        })) {
      return false;
    }
    parts_[ticket] = std::move(part);
    return true;
  }

  void Tell() {
    devmgr::Node node = inventory_;
    MadeDevices made;
    for (const auto& [ticket, part] : parts_) made[ticket] = {part.device};
    for (const Part& part : leaving_) {
      for (devmgr::Card& card : node.cards) {
        if (mig_ && card.uuid == part.card) card.instances.push_back(part.instance);
      }
    }
    Json object = GpuNodeOf(node);
    SetMountsHook(object, true);
    SetDevices(object, made);
    world_.Put(resources::kGpuNodes, object);
  }

  World& world_;
  const bool mig_;
  const devmgr::MigMode mode_;
  devmgr::Node inventory_;
  std::map<std::string, Part> parts_;  // by ticket
  std::vector<Part> leaving_;
  std::string wrong_;
};

void AddPart(World& world, const std::string& name, const std::string& mode, int percent,
             const std::string& memory) {
  world.AddPod(name, {{"baton.dev/gpu-share", std::to_string(percent)}},
               {{"baton.dev/mode", mode}, {"baton.dev/memory", memory}});
}

Json AnnotationsOf(World& world, const std::string& pod) {
  return world.Get(resources::kPods, pod).value().at("metadata").at("annotations");
}

TEST(CoreDevices, AnInstanceIsMadeBeforeThePodIsBound) {
  World world(1, Options());
  Maker node(world, "n1", 1, 1);
  AddPart(world, "a", "mig", 25, "8Gi");
  world.Settle(std::chrono::seconds(30));
  EXPECT_FALSE(world.IsBound("a"));
  EXPECT_TRUE(node.Look());
  world.Settle(std::chrono::seconds(30));
  ASSERT_TRUE(world.IsBound("a"));
  const std::string uid = UidOf(*world.Get(resources::kPods, "a"));
  EXPECT_EQ(AnnotationsOf(world, "a").at(kMain), node.DeviceOf(uid));
  EXPECT_EQ(node.DeviceOf(uid).substr(0, 8), "MIG-GPU-");
  // Of the model's seven compute slices two, which is what a quarter takes.
  EXPECT_EQ(world.core().cluster().Find("team/a")->placement.vgpus.at(0).fit.share,
            policy::Share(285'714));
  EXPECT_EQ(world.wrong(), "");
}

// Those that leave their mode open have what wastes least, and each is told what it needs there.
TEST(CoreDevices, PodsOfAnOpenModeTakeTurnsOrHaveAnInstance) {
  World world(1, Options());
  Maker divided(world, "n1", 1, 1), shared(world, "n2", 1, 0);
  // Two whole parts of seven are more than a quarter, so the first two share a GPU.
  for (const char* name : {"a", "b"}) AddPart(world, name, "auto", 45, "15Gi");
  world.Settle(std::chrono::seconds(30));
  for (const char* name : {"a", "b"}) {
    ASSERT_TRUE(world.IsBound(name)) << MessageOf(world, name);
    const Json annotations = AnnotationsOf(world, name);
    EXPECT_EQ(annotations.at(kMain), "GPU-n2-0");
    EXPECT_EQ(annotations.at(kTicketOfMain), UidOf(*world.Get(resources::kPods, name)) + "/main");
  }
  // There is no more room for turns. A SharePod's child is told likewise.
  AddPart(world, "c", "auto", 25, "8Gi");
  world.AddShare("d", {{"request", "25"}, {"mode", "auto"}, {"memory", "8Gi"}});
  // It has a limit, which no instance keeps.
  world.AddPod(
      "limited", {{"baton.dev/gpu-share", "25"}},
      {{"baton.dev/mode", "auto"}, {"baton.dev/limit", "25"}, {"baton.dev/memory", "8Gi"}});
  for (int i = 0; i < 3; ++i) {
    world.Settle(std::chrono::seconds(30));
    divided.Look();
    EXPECT_FALSE(shared.Look());
  }
  for (const char* name : {"c", "d"}) {
    ASSERT_TRUE(world.IsBound(name)) << MessageOf(world, name);
    const Json annotations = AnnotationsOf(world, name);
    EXPECT_EQ(annotations.at(kMain), divided.DeviceOf(UidOf(*world.Get(resources::kPods, name))));
    EXPECT_FALSE(annotations.contains(kTicketOfMain));
  }
  EXPECT_FALSE(world.IsBound("limited"));
  world.Delete(resources::kPods, "a");
  world.Reap();
  world.Settle(std::chrono::minutes(1));
  EXPECT_TRUE(world.IsBound("limited"));
  EXPECT_EQ(world.wrong(), "");
}

// One of its containers needs a part that has to be made, the other none.
TEST(CoreDevices, ContainersOfOnePodMayHaveTheirGpusInDifferentWays) {
  World world(1, Options());
  Maker node(world, "n1", 2, 1);
  const auto container = [](const char* name, const char* share) {
    return Json{{"name", name},
                {"image", "x"},
                {"resources", {{"limits", {{"baton.dev/gpu-share", share}}}}}};
  };
  world.AddPod("a", Json::object(), {{"baton.dev/mode", "auto"}},
               {{"containers", {container("main", "80"), container("side", "40")}}});
  for (int i = 0; i < 3; ++i) {
    world.Settle(std::chrono::seconds(30));
    node.Look();
  }
  ASSERT_TRUE(world.IsBound("a")) << MessageOf(world, "a");
  std::set<std::string> devices;
  for (const std::string name : {"main", "side"}) {
    const Json annotations = AnnotationsOf(world, "a");
    const std::string device = annotations.at(name + ".container.baton.dev/visible-devices");
    EXPECT_EQ(annotations.contains(name + ".container.baton.dev/ticket"), device == "GPU-n1-1");
    devices.insert(device.substr(0, 4));
  }
  EXPECT_EQ(devices, (std::set<std::string>{"GPU-", "MIG-"}));
}

// A SharePod's too, whose child is there before.
TEST(CoreDevices, ASharePodByMpsGetsItsPipes) {
  World world(1, Options());
  Maker node(world, "n1", 1, 0);
  world.AddShare("a", {{"request", "40"}, {"mode", "mps"}, {"memory", "4Gi"}});
  world.Settle(std::chrono::seconds(30));
  EXPECT_FALSE(world.IsBound("a"));
  EXPECT_TRUE(node.Look());
  world.Settle(std::chrono::seconds(30));
  ASSERT_TRUE(world.IsBound("a"));
  const Json annotations = AnnotationsOf(world, "a");
  EXPECT_EQ(annotations.at(kMain), "GPU-n1-0");
  EXPECT_EQ(annotations.at("main.container.baton.dev/mps-pipe"), "/run/baton/mps/GPU-n1-0");
  EXPECT_EQ(annotations.at("main.container.baton.dev/mps-share"), "40");
  EXPECT_EQ(annotations.at("main.container.baton.dev/mps-memory"), "GPU-n1-0=4096M");
  EXPECT_EQ(StatusText(world, "a", "node"), "n1");
  // What was made has a fixed size.
  world.Patch(resources::kSharePods, "a", {{"spec", {{"gpu", {{"request", "60"}}}}}});
  ASSERT_TRUE(world.Settle(std::chrono::minutes(10)));
  EXPECT_NE(TextAt(ConditionOf(world, "a", "Resized"), "message").find("fixed size"),
            std::string::npos)
      << ConditionOf(world, "a", "Resized").dump();
  EXPECT_EQ(AnnotationsOf(world, "a").at("main.container.baton.dev/mps-share"), "40");
  // A smaller request changes nothing.
  world.Patch(resources::kSharePods, "a", {{"spec", {{"gpu", {{"request", "30"}}}}}});
  ASSERT_TRUE(world.Settle(std::chrono::minutes(10)));
  EXPECT_EQ(world.wrong(), "");
}

TEST(CoreDevices, ANodeThatMakesNothingLosesThePod) {
  World world(1, Options());
  Maker node(world, "n1", 1, 1);
  AddPart(world, "a", "mig", 25, "8Gi");
  world.Settle(std::chrono::minutes(5));
  EXPECT_FALSE(world.IsBound("a"));
  EXPECT_NE(MessageOf(world, "a").find("n1 has not made"), std::string::npos)
      << MessageOf(world, "a");
  // It is tried again, and says where it is to be at each time.
  for (int i = 0; i < 100 && !world.IsBound("a"); ++i) {
    node.Look();
    world.Settle(std::chrono::seconds(10));
  }
  EXPECT_TRUE(world.IsBound("a"));
  EXPECT_EQ(node.made(), 1u);
}

TEST(CoreDevices, AnInstanceIsTakenBackWhereThePodDoesNotCome) {
  World world(1, Options());
  Maker node(world, "n1", 1, 1);
  AddPart(world, "a", "mig", 25, "8Gi");
  world.Settle(std::chrono::seconds(10));
  EXPECT_EQ(MakesDevicesOn(*world.Get(resources::kPods, "a")), "n1");
  world.RemoveNode("n1");
  world.Settle(std::chrono::seconds(30));
  EXPECT_EQ(MakesDevicesOn(*world.Get(resources::kPods, "a")), "");
  EXPECT_FALSE(AnnotationsOf(world, "a").contains("baton.dev/placement"));
}

TEST(CoreDevices, AnotherBinderGoesOnWithWhatIsBeingMade) {
  World world(1, Options());
  Maker node(world, "n1", 1, 1);
  // The second begins where the first ends.
  AddPart(world, "a", "mig", 10, "4Gi");
  AddPart(world, "b", "mig", 10, "4Gi");
  world.Settle(std::chrono::seconds(10));
  const Json before = AnnotationsOf(world, "b").at("baton.dev/placement");
  world.Delete(resources::kPods, "a");
  world.Reap();
  world.Restart();
  world.Settle(std::chrono::seconds(10));
  EXPECT_EQ(AnnotationsOf(world, "b").at("baton.dev/placement"), before);
  EXPECT_TRUE(node.Look());
  world.Settle(std::chrono::seconds(30));
  EXPECT_TRUE(world.IsBound("b"));
  EXPECT_EQ(node.wrong(), "");
}

TEST(CoreDevices, APodOfAHigherPriorityGetsThePartOfAnother) {
  World world(1, Options());
  world.AddClass("high", 1'000);
  Maker node(world, "n1", 1, 1);
  AddPart(world, "low", "mig", 100, "30Gi");
  world.Settle(std::chrono::seconds(10));
  node.Look();
  world.Settle(std::chrono::seconds(10));
  ASSERT_TRUE(world.IsBound("low"));
  world.AddPod("high", {{"baton.dev/gpu-share", "40"}},
               {{"baton.dev/mode", "mig"}, {"baton.dev/memory", "15Gi"}},
               {{"priorityClassName", "high"}});
  for (int i = 0; i < 10 && !world.IsBound("high"); ++i) {
    world.Settle(std::chrono::seconds(30));
    world.Reap();
    node.Look();
  }
  EXPECT_TRUE(world.IsBound("high"));
  EXPECT_FALSE(world.Get(resources::kPods, "low"));
  EXPECT_EQ(world.wrong(), "");
}

// Whatever is lost, refused or begun anew: no two pods are told the same part, each that is bound
// was told its own, and at the end nothing is left.
TEST(CoreDevices, InRandomWorldsEachPodHasItsOwnPart) {
  constexpr std::array<std::pair<int, const char*>, 4> kSizes{
      {{10, "4Gi"}, {25, "8Gi"}, {40, "15Gi"}, {100, "30Gi"}}};
  // BATON_TEST_SCALE: so many times as many.
  const char* scale = getenv("BATON_TEST_SCALE");
  const uint64_t seeds =
      (kSanitized ? 4 : 30) * std::max<uint64_t>(1, scale ? strtoull(scale, nullptr, 10) : 1);
  size_t bound = 0;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    World world(seed, Options(),
                {.lost_answers = 12, .lost_writes = 12, .conflicts = 15, .refusals = 15});
    std::array<std::unique_ptr<Maker>, 2> nodes{std::make_unique<Maker>(world, "n1", 2, 2),
                                                std::make_unique<Maker>(world, "n2", 1, 1)};
    Maker turns(world, "n3", 1, 0);
    // Where MIG is switched on under a decision, the pod's node says so.
    world.Settle(std::chrono::seconds(30));
    Random& random = world.random();
    std::set<std::string> there, shares;
    const auto remove = [&](const std::string& name) {
      world.Delete(shares.contains(name) ? resources::kSharePods : resources::kPods, name);
    };
    const auto check = [&] {
      std::set<std::string> devices;
      for (const Json& pod : world.All(resources::kPods)) {
        const std::string on = TextAt(pod, "spec/nodeName");
        if (on.empty() || !TakesRoom(pod)) continue;
        const Json& annotations = pod.at("metadata").at("annotations");
        const std::string device = annotations.value(kMain, "");
        if (on == "n3") {
          EXPECT_EQ(device, "GPU-n3-0");
          EXPECT_EQ(annotations.value(kTicketOfMain, ""), UidOf(pod) + "/main");
          continue;
        }
        EXPECT_EQ(device, nodes[on == "n1" ? 0 : 1]->DeviceOf(UidOf(pod)));
        EXPECT_FALSE(annotations.contains(kTicketOfMain));
        EXPECT_TRUE(devices.insert(device).second) << device << " twice";
      }
      for (const auto& node : nodes) EXPECT_EQ(node->wrong(), "");
      EXPECT_EQ(world.wrong(), "");
    };
    for (int i = 0; i < 40; ++i) {
      switch (random.Between(0, 5)) {
        case 0:
        case 1: {
          const std::string name = "p" + std::to_string(i);
          const auto& [percent, memory] = kSizes[random.Between(0, kSizes.size() - 1)];
          const std::string mode = random.OneIn(3) ? "auto" : "mig";
          if (random.OneIn(2)) {
            world.AddShare(
                name, {{"request", std::to_string(percent)}, {"mode", mode}, {"memory", memory}});
            shares.insert(name);
          } else {
            AddPart(world, name, mode, percent, memory);
          }
          there.insert(name);
          break;
        }
        case 2:
          if (!there.empty()) {
            const auto last = static_cast<int64_t>(there.size()) - 1;
            const auto gone = std::next(there.begin(), random.Between(0, last));
            remove(*gone);
            there.erase(gone);
          }
          break;
        case 3:
          world.Reap();
          break;
        case 4:
          if (random.OneIn(2)) world.Restart();
          break;
        default:
          break;
      }
      for (uint64_t t = random.Between(0, 30); t > 0; --t) {
        world.Tick();
        if (random.OneIn(5)) nodes[random.Between(0, 1)]->Look();
      }
      check();
      if (::testing::Test::HasFailure()) {
        FAIL() << "seed " << seed << ", deed " << i;
      }
    }
    world.faults = {};
    const auto rest = [&] {
      for (int i = 0; i < 60; ++i) {
        world.Reap();
        // A child whose SharePod has never been seen stays for ten.
        world.Settle(std::chrono::minutes(11));
        const bool first = nodes[0]->Look(), second = nodes[1]->Look();
        if (!first && !second && i > 5) return;
      }
    };
    rest();
    check();
    size_t has = 0;
    size_t has_part = 0;
    for (const std::string& name : there) {
      const auto pod = world.Get(resources::kPods, name);
      const std::string on = pod ? TextAt(*pod, "spec/nodeName") : "";
      if (!on.empty()) ++has;
      if (!on.empty() && on != "n3") ++has_part;
    }
    EXPECT_EQ(nodes[0]->made() + nodes[1]->made(), has_part) << "seed " << seed;
    EXPECT_TRUE(has > 0 || there.empty()) << "seed " << seed;
    bound += has;
    for (const std::string& name : there) remove(name);
    rest();
    EXPECT_EQ(nodes[0]->made() + nodes[1]->made(), 0u) << "seed " << seed;
    // All of it can be had again.
    for (const char* name : {"w1", "w2", "w3"}) AddPart(world, name, "mig", 100, "30Gi");
    rest();
    for (const char* name : {"w1", "w2", "w3"}) EXPECT_TRUE(world.IsBound(name)) << "seed " << seed;
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(bound, 2 * seeds);
}

}  // namespace
}  // namespace baton::k8s::testing
