#include "policy/feasible.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "policy/rational.h"

namespace baton::policy {
namespace {

constexpr size_t kDeadlinesMax = 10'000;
constexpr size_t kStepsMax = 100'000;

// Demand is at most Σ rᵢ t + Σ (Cᵢ - rᵢ Dᵢ): from here on it is below t.
int64_t Horizon(std::span<const LatencyTask> tasks, Duration blocking) {
  ShareSum rates;
  int64_t ahead = Nanos(blocking);
  for (const LatencyTask& task : tasks) {
    rates += task.rate;
    ahead += std::max<int64_t>(0, Nanos(task.hold) - ServedIn(Nanos(task.latency), task.rate));
  }
  return rates < kWhole ? TimeToServe(ahead, ShareSum(kWhole) - rates) : kRationalMost;
}

}  // namespace

std::optional<MissedDeadline> FirstMissed(std::span<const LatencyTask> tasks, size_t task,
                                          Duration blocking) {
  BATON_CHECK(task < tasks.size());
  struct Next {
    int64_t deadline;
    int64_t period;  // rounded down: jobs come no closer than they may
    int64_t hold;
  };
  std::vector<Next> next;
  for (const LatencyTask& t : tasks) {
    BATON_CHECK(t.hold > Duration(0) && t.latency > Duration(0) && t.rate > Share(0));
    next.push_back({Nanos(t.latency), std::max(Nanos(t.hold), TimeToServe(Nanos(t.hold), t.rate)),
                    Nanos(t.hold)});
  }
  const int64_t own = Nanos(tasks[task].hold), first = Nanos(tasks[task].latency);
  const int64_t horizon = std::max(first, Horizon(tasks, blocking));
  int64_t work = Nanos(blocking);
  const size_t most = std::min(kDeadlinesMax, kStepsMax / tasks.size() + 1);
  for (size_t n = 0; n < most; ++n) {
    const auto by_deadline = [](const Next& a, const Next& b) { return a.deadline < b.deadline; };
    const int64_t at = std::min_element(next.begin(), next.end(), by_deadline)->deadline;
    if (at > horizon) break;
    for (Next& t : next) {
      if (t.deadline != at) continue;
      work += t.hold;
      t.deadline += t.period;
    }
    if (at >= first && work - own > at) return MissedDeadline{Duration(at), Duration(work - own)};
  }
  return std::nullopt;
}

}  // namespace baton::policy
