// What the benchmarks of the token's ways have in common: the raw echoes beside which they are
// measured, and the run under Google Benchmark.
#ifndef BATON_BENCH_LANES_H_
#define BATON_BENCH_LANES_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/zmq_lane.h"
#include "cli/handoff_floor.h"
#include "cli/measure.h"

namespace baton::bench {

struct Echoes {
  std::unique_ptr<cli::Echo> unix_socket;
  std::unique_ptr<cli::Echo> zmq;      // TCP on the loopback, no CURVE
  std::unique_ptr<cli::Echo> curve;    // with CURVE
  std::unique_ptr<cli::Echo> central;  // unix_socket, then curve: the way of the central deployment
  std::unique_ptr<cli::HandOffFloor> floor;
};

struct Measured : cli::Compared {
  std::vector<Duration> floor;  // of hand-offs; none in other lanes
};

using Lane = std::function<Result<Measured>(Echoes& echoes)>;

// Where the processes of a lane run: this one, the echoes' and the daemons'.
enum class Placement {
  kFree,    // where the kernel puts them, as in use
  kOneCpu,  // all on the same CPU. The kernel places a pair of processes now on one CPU, now on
            // two, which alone is a factor of ten; without that choice a ratio repeats to a few
            // percent, and what is measured is work, not wake-ups of an idle CPU.
};

// main() of such a benchmark. Each lane runs once per placement, with "/one_cpu" in its name for
// that one. Its counters are p50_us, p90_us and p99_us, the same with echo_, and ratio (of the
// medians).
int RunLanes(int argc, char** argv, const std::vector<Placement>& placements,
             const std::vector<std::pair<std::string, Lane>>& lanes);

}  // namespace baton::bench

#endif  // BATON_BENCH_LANES_H_
