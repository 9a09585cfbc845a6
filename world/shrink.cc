#include "world/shrink.h"

#include <algorithm>
#include <utility>

#include "world/reduce.h"

namespace baton::world {
namespace {

class Shrinker {
 public:
  Shrinker(const Plan& plan, const Verdict& failed, const RunOptions& options, Duration budget)
      : options_(options),
        length_max_(plan.length),
        until_(MonotonicNow() + budget),
        best_{plan, failed, 0} {
    options_.on_hold = nullptr;
  }

  Shrunk Run() {
    Accept(best_.plan, best_.verdict);
    for (bool smaller = true; smaller && !Late();) {
      smaller = false;
      smaller |= LeaveOutFaults();
      smaller |= LeaveOutPods();
      smaller |= Simplify();
      smaller |= Hurry();
    }
    return std::move(best_);
  }

 private:
  bool Late() const { return MonotonicNow() >= until_; }

  // The plan is the best so far when it fails the same check. A smaller one may take longer to.
  bool Try(Plan plan) {
    plan.length = std::min<Duration>(length_max_, plan.length * 3 / 2 + std::chrono::seconds(1));
    if (Late() || !CheckPlan(plan)) return false;
    ++best_.runs;
    const Verdict verdict = world::Run(plan, options_);
    if (verdict.ok || verdict.check != best_.verdict.check) return false;
    Accept(std::move(plan), verdict);
    return true;
  }

  // Nothing after the violation matters.
  void Accept(Plan plan, const Verdict& verdict) {
    plan.length = std::max<Duration>(kLengthMin, verdict.at);
    plan.calm_from = std::min(plan.calm_from, plan.length);
    std::erase_if(plan.faults, [&](const FaultPlan& f) { return f.at > verdict.at; });
    best_.plan = std::move(plan);
    best_.verdict = verdict;
  }

  bool LeaveOutFaults() {
    return Reduce([this] { return best_.plan.faults.size(); },
                  [this](size_t from, size_t to) {
                    Plan plan = best_.plan;
                    plan.faults.erase(plan.faults.begin() + static_cast<ptrdiff_t>(from),
                                      plan.faults.begin() + static_cast<ptrdiff_t>(to));
                    return Try(std::move(plan));
                  });
  }

  bool LeaveOutPods() {
    return Reduce([this] { return best_.plan.pods.size(); },
                  [this](size_t from, size_t to) {
                    Plan plan = best_.plan;
                    for (size_t i = from; i < to; ++i) {
                      const uint32_t id = plan.pods[i].id;
                      std::erase_if(plan.faults, [id](const FaultPlan& f) { return f.pod == id; });
                    }
                    plan.pods.erase(plan.pods.begin() + static_cast<ptrdiff_t>(from),
                                    plan.pods.begin() + static_cast<ptrdiff_t>(to));
                    return Try(std::move(plan));
                  });
  }

  bool Simplify() {
    bool smaller = false;
    for (size_t i = 0; i < best_.plan.pods.size(); ++i) {
      if (best_.plan.pods[i].processes > 1) {
        Plan plan = best_.plan;
        plan.pods[i].processes = 1;
        smaller |= Try(std::move(plan));
      }
      for (size_t g = best_.plan.pods[i].gpus.size(); g-- > 0;) {
        Plan plan = best_.plan;
        if (plan.pods[i].gpus.size() == 1) break;
        plan.pods[i].gpus.erase(plan.pods[i].gpus.begin() + static_cast<ptrdiff_t>(g));
        smaller |= Try(std::move(plan));
      }
    }
    for (uint32_t g = best_.plan.gpus; g-- > 0 && best_.plan.gpus > 1;) {
      smaller |= WithoutGpu(g);
    }
    return smaller;
  }

  // Where nobody is on it.
  bool WithoutGpu(uint32_t gone) {
    Plan plan = best_.plan;
    --plan.gpus;
    for (PodPlan& pod : plan.pods) {
      for (uint32_t& g : pod.gpus) {
        if (g == gone) return false;
        if (g > gone) --g;
      }
    }
    return Try(std::move(plan));
  }

  // The same faults in half the time.
  bool Hurry() {
    bool smaller = false;
    while (true) {
      Plan plan = best_.plan;
      for (FaultPlan& fault : plan.faults) fault.at /= 2;
      plan.calm_from /= 2;
      const Duration before = best_.plan.length;
      if (!Try(std::move(plan)) || best_.plan.length > before * 9 / 10) break;
      smaller = true;
    }
    return smaller;
  }

  RunOptions options_;
  const Duration length_max_;
  const Instant until_;
  Shrunk best_;
};

}  // namespace

Shrunk Shrink(const Plan& plan, const Verdict& failed, const RunOptions& options, Duration budget) {
  return Shrinker(plan, failed, options, budget).Run();
}

}  // namespace baton::world
