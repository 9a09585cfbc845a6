// A snapshot that is hard to tell Prometheus of.
#ifndef BATON_TESTS_NET_AWKWARD_H_
#define BATON_TESTS_NET_AWKWARD_H_

#include "net/metrics.h"

namespace baton::net {

// Two GPUs and names of the kind that users write.
inline MetricsSnapshot Awkward() {
  MetricsSnapshot snapshot;
  snapshot.version = "1.2.3";
  snapshot.start_time_seconds = 1.8e9;
  snapshot.ledger_up = true;
  snapshot.upstream_up = false;
  snapshot.certificate_expires = 1'900'000'000;
  GpuMetrics gpu;
  gpu.uuid = "GPU-5cb1";
  gpu.model = "NVIDIA \"H200\"";
  gpu.node = "node\\1";
  gpu.allocated_ratio = 0.75;
  gpu.memory_bytes = uint64_t{1} << 37;
  gpu.held = std::chrono::milliseconds(1500);
  gpu.sm_utilization_ratio = 0.5;
  snapshot.gpus.push_back(gpu);
  gpu = {};
  gpu.uuid = "GPU-0000";
  gpu.hung = true;
  gpu.link_up = false;
  gpu.failed = true;
  snapshot.gpus.push_back(gpu);
  PodMetrics pod;
  pod.gpu = "GPU-5cb1";
  pod.pod = "line\nfeed \"quoted\" \\ {label=\"x\"} \xff\xfe \xf0\x9f\x90\x8d";
  pod.name_space = "default";
  pod.team = "research/vision";
  pod.request_ratio = 0.25;
  pod.limit_ratio = 1;
  pod.lag = std::chrono::milliseconds(-20);
  pod.held = std::chrono::seconds(100);
  pod.memory_cap_bytes = 1 << 20;
  pod.waits.Observe(std::chrono::milliseconds(3));
  pod.holds.Observe(std::chrono::seconds(60));
  snapshot.pods.push_back(pod);
  pod = {};
  pod.gpu = "GPU-5cb1";
  pod.pod = std::string(1000, 'x') + "\xc3\xa9";
  snapshot.pods.push_back(pod);
  snapshot.teams.push_back({"research/vision", 0.5, 0.25, 0.125, 1.25});
  snapshot.teams.push_back({"", 1, 0, 0});
  return snapshot;
}

}  // namespace baton::net

#endif  // BATON_TESTS_NET_AWKWARD_H_
