#include "devmgr/placement/churn.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <queue>
#include <string>
#include <utility>

#include "base/random.h"
#include "devmgr/placement/csv.h"
#include "devmgr/placement/replay.h"

namespace baton::devmgr {
namespace {

// In (0, 1].
double Uniform(Random& random) { return static_cast<double>((random.Next() >> 11) + 1) * 0x1p-53; }
double Exponential(Random& random) { return -std::log(Uniform(random)); }

ChurnOutcome::Kind KindOf(const PodRequest& pod) {
  uint32_t count = 0;
  bool whole = true;
  for (const ContainerRequest& container : pod.containers) {
    for (const VgpuRequest& vgpu : container.vgpus) {
      count += vgpu.count;
      whole &= vgpu.share == policy::kWhole;
    }
  }
  if (count == 0) return ChurnOutcome::kNone;
  if (count > 1) return ChurnOutcome::kSeveral;
  return whole ? ChurnOutcome::kOne : ChurnOutcome::kFraction;
}

// A pod that is to leave.
struct Leaving {
  double at;
  std::string name;
  size_t index;  // of the pod in the trace
  Placement placement;

  bool operator<(const Leaving& other) const { return at > other.at; }  // the first on top
};

}  // namespace

Result<std::vector<double>> ReadTraceLifetimes(std::string_view text) {
  auto csv = Csv::Open(text, {"creation_time", "deletion_time"}, 2);
  if (!csv) return tl::unexpected(csv.error());
  std::vector<double> lifetimes;
  while (csv->Row()) {
    const auto most = std::numeric_limits<int64_t>::max() / 2;
    const auto from = csv->Number<int64_t>(0, most);
    const auto to = csv->Number<int64_t>(1, most);
    lifetimes.push_back(std::max(1.0, static_cast<double>(to - from)));
  }
  if (!csv->error().empty()) return Fail(ErrorCode::kInvalid, csv->error());
  return lifetimes;
}

ChurnOutcome Churn(Cluster& cluster, const std::vector<PodRequest>& pods,
                   std::span<const double> lifetimes, const ChurnOptions& options) {
  ChurnOutcome outcome;
  const double capacity = policy::Ratio(CapacityOf(cluster));
  std::vector<double> until;  // lifetimes of the pods up to this one
  double stay = 0;
  double demand = 0;  // of all pods over their lifetimes, in GPUs x time
  for (size_t i = 0; i < pods.size(); ++i) {
    const double lifetime = lifetimes.empty() ? 1 : lifetimes[i];
    stay += lifetime;
    demand += policy::Ratio(DemandOf(pods[i])) * lifetime;
    until.push_back(stay);
  }
  if (demand <= 0 || capacity <= 0) return outcome;
  const auto count = static_cast<double>(pods.size());
  const double mean = stay / count;
  const double rate = options.load * capacity / (demand / count);
  const double begin = options.warm_up * mean;
  const double end = begin + options.measured * mean;

  Random random(options.seed);
  std::priority_queue<Leaving> leaving;
  policy::ShareSum allocated;
  Contention contention;
  uint64_t number = 0;
  const auto arrive = [&](size_t index, double now, double lifetime) {
    PodRequest pod = pods[index];
    pod.name += "#" + std::to_string(number++);
    const bool counts = now > begin;
    const auto kind = KindOf(pod);
    outcome.arrived[kind] += counts ? 1 : 0;
    if (options.learn) cluster.Learn(pod);
    auto placement = PlaceKnowing(cluster, pod, options.known);
    if (!placement) {
      outcome.refused[kind] += counts ? 1 : 0;
      return;
    }
    allocated += DemandOf(pod);
    contention.Add(pod, *placement);
    leaving.push({now + lifetime, std::move(pod.name), index, *std::move(placement)});
  };
  for (double there = rate * mean; there >= 1; --there) {
    const auto at = std::lower_bound(until.begin(), until.end(), Uniform(random) * stay);
    const auto index = static_cast<size_t>(std::min(at, until.end() - 1) - until.begin());
    const double left =
        lifetimes.empty() ? Exponential(random) : lifetimes[index] * Uniform(random);
    arrive(index, 0, left);
  }
  ChurnOutcome area;
  double now = 0;
  double next = Exponential(random) / rate;
  while (now < end) {
    const bool leaves = !leaving.empty() && leaving.top().at < next;
    const double then = leaves ? leaving.top().at : next;
    const double counted = std::min(then, end) - std::max(now, begin);
    if (counted > 0) {
      area.allocated += policy::Ratio(allocated) * counted;
      area.wanted += policy::Ratio(contention.wanted()) * counted;
      area.executed += policy::Ratio(contention.executed()) * counted;
    }
    now = then;
    if (leaves) {
      const Leaving& pod = leaving.top();
      (void)cluster.Delete(pod.name);
      allocated -= DemandOf(pods[pod.index]);
      contention.Remove(pods[pod.index], pod.placement);
      leaving.pop();
      continue;
    }
    const auto index =
        static_cast<size_t>(random.Between(0, static_cast<int64_t>(pods.size()) - 1));
    arrive(index, now, lifetimes.empty() ? Exponential(random) : lifetimes[index]);
    next = now + Exponential(random) / rate;
  }
  const double whole = (end - begin) * capacity;
  outcome.allocated = area.allocated / whole;
  outcome.wanted = area.wanted / whole;
  outcome.executed = area.executed / whole;
  return outcome;
}

}  // namespace baton::devmgr
