#include "world/fluid.h"

#include <algorithm>
#include <limits>

#include "policy/share.h"

namespace baton::world {
namespace {

// Times in nanoseconds; fractions of one matter to nobody.
constexpr double kEndless = std::numeric_limits<double>::infinity();

// One process: it works until `left` is used up, then pauses until `next`.
struct Source {
  size_t pod = 0;
  double left = 0;
  double next = 0;
  double began = 0;
};

double Ns(Duration d) { return static_cast<double>(Nanos(d)); }

}  // namespace

std::vector<Duration> FluidService(const Plan& plan, uint32_t gpu) {
  std::vector<Source> sources;
  for (size_t i = 0; i < plan.pods.size(); ++i) {
    const PodPlan& pod = plan.pods[i];
    if (std::count(pod.gpus.begin(), pod.gpus.end(), gpu) == 0) continue;
    for (uint32_t n = 0; n < pod.processes; ++n) sources.push_back({i, 0, Ns(pod.arrives), 0});
  }
  const double end = Ns(plan.length);
  std::vector<double> served(plan.pods.size());
  std::vector<double> rate(plan.pods.size());  // of each working process of the pod
  std::vector<uint32_t> working(plan.pods.size());
  std::vector<policy::Entitlement> shares;
  std::vector<size_t> active;
  bool changed = true;
  for (double now = 0; now < end;) {
    // Who begins and who leaves.
    for (Source& s : sources) {
      const PodPlan& pod = plan.pods[s.pod];
      const bool gone = now >= Ns(pod.leaves);
      if (s.left > 0 && gone) {
        s.left = 0;
        changed = true;
      } else if (s.left <= 0 && s.next <= now && !gone) {
        s.left = pod.burst == Duration(0) ? kEndless : Ns(pod.burst);
        s.began = now;
        changed = true;
      }
      if (gone) s.next = kEndless;
    }
    if (changed) {
      std::fill(working.begin(), working.end(), 0);
      for (const Source& s : sources) working[s.pod] += s.left > 0 ? 1 : 0;
      shares.clear();
      active.clear();
      std::fill(rate.begin(), rate.end(), 0);
      const auto take = [&](bool idle) {
        for (size_t i = 0; i < plan.pods.size(); ++i) {
          const policy::ShareSpec& spec = plan.pods[i].spec;
          if (working[i] == 0 || (spec.priority == policy::Priority::kIdle) != idle) continue;
          shares.push_back(
              {idle ? policy::kShareMin : spec.request, spec.limit, spec.slack_weight});
          active.push_back(i);
        }
      };
      take(false);
      if (active.empty()) take(true);  // they have what nobody else has work for
      policy::FluidShares(shares);
      for (size_t n = 0; n < active.size(); ++n) {
        rate[active[n]] = policy::Ratio(shares[n].fluid) / working[active[n]];
      }
      changed = false;
    }
    // Until somebody has done, begins or leaves.
    double until = end;
    for (const Source& s : sources) {
      if (s.left > 0) {
        until = std::min({until, now + s.left / rate[s.pod], Ns(plan.pods[s.pod].leaves)});
      } else {
        until = std::min(until, s.next);
      }
    }
    until = std::max(until, now + 1);
    for (Source& s : sources) {
      if (s.left <= 0) continue;
      const PodPlan& pod = plan.pods[s.pod];
      const double got = std::min(s.left, (until - now) * rate[s.pod]);
      served[s.pod] += got;
      s.left -= got;
      if (s.left < 0.5) {
        s.left = 0;
        s.next = std::max(until, (pod.periodic ? s.began : until) + Ns(pod.pause));
        changed = true;
      }
    }
    now = until;
  }
  std::vector<Duration> result;
  result.reserve(served.size());
  for (const double ns : served) result.emplace_back(static_cast<int64_t>(ns));
  return result;
}

}  // namespace baton::world
