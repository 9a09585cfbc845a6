// What Prometheus is told, in its text format (docs/metrics.md has every name). The text is made
// from a snapshot each time it is asked for, so the series of a pod end with the pod.
//
// Thread safe: plain data and pure functions.
#ifndef BATON_NET_METRICS_H_
#define BATON_NET_METRICS_H_

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"

namespace baton::net {

// How often which length of time was seen, in fixed buckets: 1 ms, 2 ms, 4 ms ... 8.192 s, longer.
// Copies and compares like a number; Observe() neither allocates nor locks. Not thread safe.
class Histogram {
 public:
  static constexpr size_t kBounds = 14;
  // What is this long or shorter is in bucket `i`, or one before it.
  static constexpr Duration Bound(size_t i) { return std::chrono::milliseconds(int64_t{1} << i); }

  // Negative lengths count as none.
  void Observe(Duration length) {
    if (length < Duration(0)) length = Duration(0);
    const int64_t ms = std::chrono::ceil<std::chrono::milliseconds>(length).count();
    const auto bucket =
        static_cast<size_t>(std::bit_width(static_cast<uint64_t>(ms > 0 ? ms - 1 : 0)));
    ++counts_[bucket < kBounds ? bucket : kBounds];
    sum_ += length;
  }
  // Of each bucket by itself; the last one is of what is longer than all bounds.
  const std::array<uint64_t, kBounds + 1>& counts() const { return counts_; }
  Duration sum() const { return sum_; }

 private:
  std::array<uint64_t, kBounds + 1> counts_{};
  Duration sum_{0};
};

// Ratios are 0 to 1 (a pod's limit and a GPU's allocation too: 1 is the whole GPU). Lengths of time
// and numbers of things are cumulative since the account began, unless said otherwise.
struct GpuMetrics {
  std::string uuid;  // as NVML and DCGM spell it
  std::string model;
  std::string node;
  double allocated_ratio = 0;           // the sum of the requests; above 1 where overcommitted
  uint64_t allocated_memory_bytes = 0;  // the sum of the memory caps
  uint64_t memory_bytes = 0;            // of the device
  uint64_t memory_used_bytes = 0;       // by attached pods
  Duration held{0};
  Duration busy{0};
  Duration idle{0};                                // nobody held it or waited for it
  double held_ratio = 0;                           // over the last 10 s
  double busy_ratio = 0;                           // over the last 10 s
  std::optional<double> sm_utilization_ratio;      // NVML's word; absent when it has none
  std::optional<double> memory_utilization_ratio;  // the same
  std::optional<double> energy_joules;             // since the daemon started, by NVML's counter
  std::optional<double> idle_energy_joules;        // of that, while nobody held
  Duration handoff{0};                             // what moving the token costs at present
  Duration handoff_total{0};                       // in which the GPU stood still for them
  uint64_t handoffs = 0;
  uint64_t sent_ahead = 0;           // tokens, while the holder before them drained
  uint64_t waiting_pods = 0;         // now, without those that their limit holds back
  uint64_t unmanaged_processes = 0;  // now
  bool hung = false;                 // its holder does not drain
  bool failed = false;               // it must not be used, or is not there any more
  bool link_up = true;               // to the node it is on
};

struct PodMetrics {
  std::string gpu;  // uuid
  std::string pod;
  std::string name_space;  // of Kubernetes; may be empty
  std::string team;        // may be empty
  double request_ratio = 0;
  double limit_ratio = 0;
  double achieved_ratio = 0;  // over the last 10 s
  Duration lag{0};            // negative: ahead of its share
  Duration held{0};
  Duration busy{0};
  Duration waited{0};
  Duration unmanaged{0};
  uint64_t memory_used_bytes = 0;
  uint64_t memory_cap_bytes = 0;  // 0: none, and no such series
  uint64_t launches = 0;
  uint64_t grants = 0;
  uint64_t revocations = 0;
  // Of a pod with a latency: its waits since the daemon started, and those that were longer.
  struct Latency {
    uint64_t waits = 0, late = 0;
  };
  std::optional<Latency> latency;
  std::optional<double> energy_joules;  // since the daemon started
  // In which its SMs were busy, and device memory was read or written, since the daemon started;
  // absent where NVML does not tell, or no longer.
  std::optional<double> sm_busy_seconds, memory_busy_seconds;
  Histogram waits;
  Histogram holds;
};

struct TeamMetrics {
  std::string team;
  double fair_share_factor = 0;
  double normalized_usage_ratio = 0;
  double normalized_shares_ratio = 0;
  std::optional<double> budget_used_ratio{};  // absent without a budget, or before it is known
};

struct MetricsSnapshot {
  std::string version;
  double start_time_seconds = 0;               // of this process, since 1970
  std::optional<bool> ledger_up;               // absent where no ledger is kept
  std::optional<bool> upstream_up;             // absent where usage is sent nowhere
  std::optional<int64_t> certificate_expires;  // seconds since 1970; absent without TLS
  std::vector<GpuMetrics> gpus;
  std::vector<PodMetrics> pods;   // one for each pod and GPU; in an order that stays
  std::vector<PodMetrics> parts;  // of pods without tokens: only what NVML tells of them
  std::vector<TeamMetrics> teams;
};

struct MetricsOptions {
  // Entries of `pods` and of `teams` that are told; of more, the first ones are, and
  // baton_metrics_dropped_series says how many are not. A pod on a GPU is some 50 lines.
  size_t pods_max = 5'000;
  size_t teams_max = 2'000;
};

// The text, as "text/plain; version=0.0.4". Some 80 microseconds per pod: HttpResponse::produce.
std::string MetricsText(const MetricsSnapshot& snapshot, const MetricsOptions& options = {});
inline constexpr const char* kMetricsContentType = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace baton::net

#endif  // BATON_NET_METRICS_H_
