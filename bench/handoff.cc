// A hand-off as the GPU sees it: from the end of the holder's last kernel to the start of the next
// holder's first, by the simulated device's own record. Two pods saturate one GPU; nothing but the
// token moves between them. Beside it: a raw echo, since the news travels to batond and on; and the
// floor, two processes that hand over by a word of shared memory.
// "/busy": other programs use all processors, as the data loaders of a training node do.
#include <algorithm>
#include <thread>

#include "bench/cluster.h"
#include "bench/lanes.h"
#include "bench/turns.h"
#include "sim/record.h"

namespace baton::bench {
namespace {

constexpr size_t kHandOffs = 500;
constexpr Duration kTurn = std::chrono::milliseconds(100);
constexpr Duration kPatience = std::chrono::seconds(60);
enum class Processors { kFree, kBusy };

// Two programs for each processor that never stop working.
Result<std::vector<Process>> StartHogs() {
  std::vector<Process> hogs;
  for (unsigned i = 0; i < 2 * std::max(1u, std::thread::hardware_concurrency()); ++i) {
    SpawnOptions spawn;
    spawn.command = {"/bin/sh", "-c", "while :; do :; done"};
    Result<Process> hog = Process::Spawn(spawn);
    if (!hog) return tl::unexpected(hog.error());
    hogs.push_back(std::move(*hog));
  }
  return hogs;
}

Result<Measured> HandOffs(Transport transport, cli::Echo& echo, cli::HandOffFloor& floor,
                          Processors processors) {
  ClusterOptions cluster_options;
  cluster_options.transport = transport;
  // Short quotas: more hand-offs in the same time.
  cluster_options.scheduler = "quota_min = \"5ms\"\nquota_max = \"5ms\"\n";
  const auto cluster = Cluster::Start(cluster_options);
  if (!cluster) return tl::unexpected(cluster.error());
  std::vector<Pod> pods;
  for (const char* name : {"one", "other"}) {
    PodOptions options;
    options.name = name;
    options.request = "50";
    options.command = {(*cluster)->Program("baton-burn"), "--kernel", "500us", "--seconds", "120"};
    Result<Pod> pod = (*cluster)->Run(options);
    if (!pod) return tl::unexpected(pod.error());
    pods.push_back(std::move(*pod));
  }
  const Device& device = (*cluster)->device(0, 0);
  for (const Pod& pod : pods) {
    const Result<bool> ran = (*cluster)->WaitForKernels(device, pod);
    if (!ran) return tl::unexpected(ran.error());
  }
  Result<std::vector<Process>> hogs = std::vector<Process>();
  if (processors == Processors::kBusy) hogs = StartHogs();
  if (!hogs) return tl::unexpected(hogs.error());
  Measured compared;
  const bool enough = WaitUntil(
      [&] {
        // In turns: hand-offs while nothing else runs, and then the others beside the same pods.
        // Whoever measures keeps a pod off its processor.
        const Result<uint64_t> first = sim::CountRecords(device.path);
        const int64_t from = Nanos(MonotonicNow());
        std::this_thread::sleep_for(kTurn);
        const int64_t to = Nanos(MonotonicNow());
        if (!first) return false;
        auto records = sim::ReadRecords(device.path, *first);
        if (!records) return false;
        std::erase_if(*records, [&](const auto& r) { return r.start_ns < from || r.end_ns > to; });
        const std::vector<Duration> gaps = HandOffGaps(*std::move(records));
        compared.token.insert(compared.token.end(), gaps.begin(), gaps.end());
        for (int i = 0; i < 20; ++i) {
          if (const Result<Duration> took = echo.RoundTrip(64)) compared.echo.push_back(*took);
          cli::Settle();
          if (i % 4 != 0) continue;
          if (const Result<Duration> took = floor.HandOff()) compared.floor.push_back(*took);
        }
        return compared.token.size() >= kHandOffs;
      },
      kPatience);
  if (!enough) {
    return Fail(ErrorCode::kUnavailable,
                "only " + std::to_string(compared.token.size()) + " hand-offs in a minute");
  }
  return compared;
}

}  // namespace
}  // namespace baton::bench

int main(int argc, char** argv) {
  using namespace baton::bench;
  std::vector<std::pair<std::string, Lane>> lanes;
  for (const auto& [busy, processors] :
       {std::pair("", Processors::kFree), std::pair("/busy", Processors::kBusy)}) {
    const auto lane = [processors = processors](Transport transport, auto Echoes::*echo) {
      return [=](Echoes& echoes) {
        return HandOffs(transport, *(echoes.*echo), *echoes.floor, processors);
      };
    };
    lanes.emplace_back(std::string("handoff/unix") + busy,
                       lane(Transport::kUnix, &Echoes::unix_socket));
    lanes.emplace_back(std::string("handoff/central") + busy,
                       lane(Transport::kCentral, &Echoes::central));
  }
  return RunLanes(argc, argv, {Placement::kFree}, lanes);
}
