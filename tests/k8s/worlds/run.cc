#include "tests/k8s/worlds/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "k8s/types/gpu_pod.h"
#include "world/reduce.h"

namespace baton::k8s::testing {
namespace {

class Runner {
 public:
  explicit Runner(const Plan& plan)
      : plan_(plan),
        traits_(TraitsOf(plan)),
        world_(plan.seed, traits_.options),
        laws_(world_, {traits_.calm, traits_.keeps}) {
    world_.after_step = [this](const Effects& effects) { laws_.AfterStep(effects); };
    if (traits_.standby) world_.AddStandby();
  }

  Verdict Run() {
    Live();
    if (Holds()) ComeToRest();
    if (Holds()) laws_.AtRest();
    if (Holds()) StartAnew();
    if (Holds()) MakeRoom();
    if (Holds()) laws_.AtTheEnd();
    if (Holds()) DeleteAll();
    verdict_.broken = broken_.law.empty() ? laws_.broken() : broken_;
    if (verdict_.ok() && !world_.wrong().empty()) verdict_.broken = {"api", world_.wrong()};
    verdict_.writes = world_.writes();
    Count();
    return std::move(verdict_);
  }

 private:
  bool Holds() const {
    return broken_.law.empty() && laws_.broken().law.empty() && world_.wrong().empty();
  }
  void Break(const char* law, std::string text) {
    if (Holds()) broken_ = {law, std::move(text)};
  }
  // Of the core that has led so far.
  void Count() {
    const CoreCounts counts = world_.core().counts();
    verdict_.bound += counts.bound;
    verdict_.displaced += counts.displaced;
    verdict_.rounds += counts.rounds;
  }

  void Live() {
    for (const uint32_t number : plan_.deeds) {
      std::string said = Do(world_, traits_, plan_.seed, number);
      if (said == kRestart || said == kTakeOver) {
        Count();
        laws_.Restarted();
        said == kRestart ? world_.Restart() : world_.TakeOver();
      }
      verdict_.story.push_back(fmt::format("{:3} {}", number, said));
      if (number == traits_.nodes) {
        // What the world begins with is known.
        if (!world_.Settle()) return Break("rest", "it never rests");
        world_.faults = traits_.faults;
      }
      const int64_t ticks = world_.random().Spread(1, 60);
      for (int64_t t = 0; t < ticks && Holds(); ++t) world_.Tick();
      if (!Holds()) return;
    }
  }

  // Until nothing is under way and nothing ends.
  void Quiet() {
    const auto ending = [&] {
      const std::vector<Json> pods = world_.All(resources::kPods);
      return std::any_of(pods.begin(), pods.end(), [](const Json& pod) {
        return Find(pod, "metadata/deletionTimestamp") != nullptr;
      });
    };
    for (int turn = 0;; ++turn) {
      if (!world_.Settle()) return Break("rest", "it never rests");
      const uint64_t version = world_.store().version();
      Provision(world_);
      if (!Holds()) return;
      if (!ending() && world_.store().version() == version) return;
      if (turn == 200) return Break("rest", "pods displace each other for ever");
      if (ending()) world_.Reap();
    }
  }

  void ComeToRest() {
    world_.random() = Random(plan_.seed);
    Mend(world_, traits_, plan_);
    Quiet();
  }

  std::map<std::string, devmgr::Placement> Booked() {
    std::map<std::string, devmgr::Placement> all;
    for (const auto& [name, pod] : world_.core().cluster().pods()) all[name] = pod.placement;
    return all;
  }

  static std::string Differing(const std::map<std::string, devmgr::Placement>& before,
                               const std::map<std::string, devmgr::Placement>& after) {
    std::string names;
    for (const auto& [name, place] : before) {
      if (!after.contains(name)) names += " -" + name;
    }
    for (const auto& [name, place] : after) {
      const auto was = before.find(name);
      if (was == before.end() || !(was->second == place)) {
        names += (was == before.end() ? " +" : " ") + name;
      }
    }
    return names;
  }

  // Whether somebody waits though there is room, on a node that is kept for another.
  bool NodeIsKept() {
    for (const Resource* resource : {&resources::kSharePods, &resources::kPods}) {
      for (const Json& object : world_.All(*resource)) {
        const Json* conditions = Find(object, "status/conditions");
        if (conditions == nullptr) continue;
        for (const Json& condition : *conditions) {
          if (TextAt(condition, "message").find("which is kept for") != std::string::npos) {
            return true;
          }
        }
      }
    }
    return false;
  }

  // One that knows only what stands there decides the same, and writes nothing.
  void StartAnew() {
    size_t gangs = 0;
    for (const Json& share : world_.All(resources::kSharePods)) {
      gangs += Find(share, "spec/gpu/gang") != nullptr;
    }
    for (const Json& pod : world_.All(resources::kPods)) {
      gangs += Find(pod, "metadata/annotations/baton.dev~1gang") != nullptr;
    }
    const auto before = Booked();
    const bool kept = NodeIsKept();
    const uint64_t writes = world_.writes();
    Count();
    laws_.Restarted();
    world_.Restart();
    Quiet();
    // Teams that do not agree are taken by their age then.
    if (traits_.reforms || !Holds()) return;
    // How often a pod was passed over, and so for whom a node is kept, a restart forgets.
    if (const auto after = Booked(); after != before && !kept) {
      return Break("restart", "after a restart other pods have a place, or another:" +
                                  Differing(before, after));
    }
    // But which of a gang it names: that depends on the usual mix, and it on pods which are gone.
    if (const uint64_t more = world_.writes() - writes; more > 2 * gangs && !traits_.keeps) {
      Break("restart", fmt::format("after a restart it writes {} times", more));
    }
  }

  // Those that have a place go, a few at a time, until nobody has one.
  void MakeRoom() {
    for (int turn = 0; Holds(); ++turn) {
      if (turn == 500) return Break("rest", "the cluster never runs empty");
      bool any = false;
      for (const Json& pod : world_.All(resources::kPods)) {
        if (TextAt(pod, "spec/nodeName").empty()) continue;
        any = true;
        if (!world_.random().OneIn(3)) continue;
        const std::string name = NameOf(pod).name;
        if (Find(pod, "metadata/ownerReferences") != nullptr) {
          world_.Delete(resources::kSharePods, name);
        } else {
          world_.Delete(resources::kPods, name);
        }
      }
      if (!any) return;
      Quiet();
      if (Holds()) laws_.AtRest();
    }
  }

  void DeleteAll() {
    for (const Resource* kind : {&resources::kSharePods, &resources::kPods}) {
      for (const Json& object : world_.All(*kind)) world_.Delete(*kind, NameOf(object).name);
      Quiet();
    }
    if (!Booked().empty()) Break("books", "something is booked, and nothing is there");
    if (world_.core().counts().waiting != 0) Break("books", "something waits that is not there");
  }

  const Plan& plan_;
  const Traits traits_;
  World world_;
  Laws laws_;
  Violation broken_;
  Verdict verdict_;
};

}  // namespace

Verdict RunWorld(const Plan& plan) { return Runner(plan).Run(); }

Shrunk Shrink(const Plan& plan, const Verdict& failed, Duration budget) {
  const Instant until = MonotonicNow() + budget;
  Shrunk best{plan, failed, 0};
  const auto without = [&](size_t from, size_t to) {
    Plan smaller = best.plan;
    smaller.deeds.erase(smaller.deeds.begin() + static_cast<ptrdiff_t>(from),
                        smaller.deeds.begin() + static_cast<ptrdiff_t>(to));
    // Without classes the API server takes no pod that names one.
    const bool classes = !smaller.deeds.empty() && smaller.deeds.front() == 0;
    if (!classes || MonotonicNow() >= until) return false;
    ++best.runs;
    Verdict verdict = RunWorld(smaller);
    if (verdict.broken.law != failed.broken.law) return false;
    best.plan = std::move(smaller);
    best.verdict = std::move(verdict);
    return true;
  };
  while (world::Reduce([&] { return best.plan.deeds.size(); }, without) && MonotonicNow() < until) {
  }
  return best;
}

}  // namespace baton::k8s::testing
