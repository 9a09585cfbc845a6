// How far pods that always want more get from their due under each rule: the worst |lag| over many
// mixes, in units of the longest hold L. scripts/compare-rules runs it. Prints one line per rule:
//   RULE  FEW  MANY  SLEEPERS
// Every hold takes 20 ms and up to 10 ms more. FEW: 2 to 12 pods; MANY: 13 to 100; SLEEPERS: 2 to
// 12, some of which sleep for up to a minute, and return for up to 20 s.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/random.h"
#include "policy/fair_queue.h"
#include "world/rule.h"

namespace baton::world {
namespace {

using policy::FairQueue;
using policy::kShareMin;
using policy::kWhole;
using policy::Share;
using policy::ShareSpec;
using policy::Slot;
using policy::Validated;
using std::chrono::milliseconds;
using std::chrono::minutes;

struct Kind {
  bool many = false;
  bool sleepers = false;
};

constexpr Duration kQuota = milliseconds(20);
constexpr Duration kLongest = milliseconds(30);

struct Pod {
  bool sleeper = false;
  Instant wakes{};
  Instant sleeps{};
};

// The worst |lag| of a pod that never sleeps, over five minutes, as a multiple of L.
double WorstLag(Rule rule, const Kind& kind, uint64_t seed) {
  Random random(seed);
  FairQueue queue({.order = OrderOf(rule)});
  Instant now{};
  const auto n = static_cast<Slot>(kind.many ? random.Between(13, 100) : random.Between(2, 12));
  std::vector<Pod> pods;
  int64_t left = policy::kMillion;
  for (Slot i = 0; i < n; ++i) {
    constexpr int64_t kLeast = kShareMin.millionths();
    const int64_t most = std::max(kLeast, std::min(left, 2 * left / (n - i)));
    const ShareSpec spec{.request = Share(random.Between(kLeast, most))};
    left -= spec.request.millionths();
    pods.push_back({.sleeper = kind.sleepers && i > 0 && random.OneIn(2)});
    queue.Add(PodId{i + 1}, Validated(spec).value(), now);
  }
  const auto wake = [&](Slot slot) {
    queue.SetActive(slot, true);
    queue.SetWaiting(slot, true, kLongest);
    pods[slot].sleeps = now + Duration(random.Spread(1'000'000, 20'000'000'000));
  };
  for (Slot i = 0; i < n; ++i) {
    if (!pods[i].sleeper) wake(i);
  }
  Duration worst{0};
  while (now < Instant(minutes(5))) {
    for (Slot i = 0; i < n; ++i) {
      Pod& pod = pods[i];
      if (!pod.sleeper) continue;
      if (queue.fluid().active(i) && pod.sleeps <= now) {
        queue.SetActive(i, false);
        pod.wakes = now + Duration(random.Spread(1'000'000, 60'000'000'000));
      } else if (!queue.fluid().active(i) && pod.wakes <= now) {
        wake(i);
      }
    }
    const Slot slot = queue.Pick(now).value();
    const Duration hold(random.Between(Nanos(kQuota), Nanos(kLongest)));
    now += hold;
    queue.Charge(slot, hold, now);
    for (Slot i = 0; i < n; ++i) {
      if (!pods[i].sleeper) worst = std::max(worst, std::chrono::abs(queue.Lag(i)));
    }
  }
  return static_cast<double>(Nanos(worst)) / static_cast<double>(Nanos(kLongest));
}

int Main(int argc, char** argv) {
  const int mixes = argc > 1 ? std::atoi(argv[1]) : 200;
  for (const Rule rule : kRules) {
    std::printf("%s", std::string(FormatRule(rule)).c_str());
    for (const Kind kind : {Kind{}, Kind{.many = true}, Kind{.sleepers = true}}) {
      double worst = 0;
      for (int seed = 1; seed <= mixes; ++seed) {
        worst = std::max(worst, WorstLag(rule, kind, static_cast<uint64_t>(seed)));
      }
      std::printf(" %.3f", worst);
    }
    std::printf("\n");
  }
  return 0;
}

}  // namespace
}  // namespace baton::world

int main(int argc, char** argv) { return baton::world::Main(argc, argv); }
