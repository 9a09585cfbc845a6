#include "bench/lanes.h"

#include <benchmark/benchmark.h>
#include <sched.h>

#include "cli/bench_run.h"

namespace baton::bench {
namespace {

// What a tenant's frame grows by between relay and batond.
constexpr size_t kRelayWrapping = 16;

class ChainedEcho : public cli::Echo {
 public:
  ChainedEcho(cli::Echo& first, cli::Echo& second) : first_(first), second_(second) {}
  Result<Duration> RoundTrip(size_t frame_size) override {
    const Result<Duration> first = first_.RoundTrip(frame_size);
    if (!first) return first;
    const Result<Duration> second = second_.RoundTrip(frame_size + kRelayWrapping);
    if (!second) return second;
    return *first + *second;
  }

 private:
  cli::Echo& first_;
  cli::Echo& second_;
};

Result<bool> Start(Echoes& echoes) {
  auto unix_socket = cli::UnixEcho::Start();
  if (!unix_socket) return tl::unexpected(unix_socket.error());
  echoes.unix_socket = std::move(*unix_socket);
  for (const bool curve : {false, true}) {
    auto zmq = ZmqEcho::Start(curve);
    if (!zmq) return tl::unexpected(zmq.error());
    (curve ? echoes.curve : echoes.zmq) = std::move(*zmq);
  }
  auto floor = cli::HandOffFloor::Start();
  if (!floor) return tl::unexpected(floor.error());
  echoes.floor = std::move(*floor);
  echoes.central = std::make_unique<ChainedEcho>(*echoes.unix_socket, *echoes.curve);
  return true;
}

// This process, and what it starts meanwhile, on one CPU.
class OnOneCpu {
 public:
  explicit OnOneCpu(Placement placement) : active_(placement == Placement::kOneCpu) {
    if (!active_) return;
    sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
  }
  ~OnOneCpu() {
    if (active_) sched_setaffinity(0, sizeof before_, &before_);
  }
  OnOneCpu(const OnOneCpu&) = delete;
  OnOneCpu& operator=(const OnOneCpu&) = delete;

 private:
  const bool active_;
  cpu_set_t before_;
};

// The echoes live as long as the lane, so that their other processes are where it is.
void Report(benchmark::State& state, const Lane& lane, Placement placement) {
  const OnOneCpu pinned(placement);
  Echoes echoes;
  if (const Result<bool> started = Start(echoes); !started) {
    state.SkipWithError(started.error().message.c_str());
  }
  for (auto _ : state) {
    const Result<Measured> compared = lane(echoes);
    if (!compared) {
      state.SkipWithError(compared.error().message.c_str());
      return;
    }
    const cli::Quantiles token = cli::Summarize(compared->token);
    const cli::Quantiles echo = cli::Summarize(compared->echo);
    state.SetIterationTime(token.p50 / 1e6);
    const auto tell = [&state](const std::string& of, const cli::Quantiles& quantiles) {
      state.counters[of + "p50_us"] = quantiles.p50;
      state.counters[of + "p90_us"] = quantiles.p90;
      state.counters[of + "p99_us"] = quantiles.p99;
    };
    tell("", token);
    tell("echo_", echo);
    if (!compared->floor.empty()) tell("floor_", cli::Summarize(compared->floor));
    state.counters["ratio"] = token.p50 / echo.p50;
  }
}

}  // namespace

int RunLanes(int argc, char** argv, const std::vector<Placement>& placements,
             const std::vector<std::pair<std::string, Lane>>& lanes) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  for (const Placement placement : placements) {
    for (const auto& [name, lane] : lanes) {
      benchmark::RegisterBenchmark(
          (name + (placement == Placement::kOneCpu ? "/one_cpu" : "")).c_str(),
          [&lane = lane, placement](benchmark::State& state) { Report(state, lane, placement); })
          ->Iterations(1)
          ->UseManualTime()
          ->Unit(benchmark::kMicrosecond);
    }
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace baton::bench
