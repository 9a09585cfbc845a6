#include "bench/lanes.h"

#include <benchmark/benchmark.h>

#include <cstdio>

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
  echoes.central = std::make_unique<ChainedEcho>(*echoes.unix_socket, *echoes.curve);
  return true;
}

void Report(benchmark::State& state, const Lane& lane, Echoes& echoes) {
  for (auto _ : state) {
    const Result<cli::Compared> compared = lane(echoes);
    if (!compared) {
      state.SkipWithError(compared.error().message.c_str());
      return;
    }
    const cli::Quantiles token = cli::Summarize(compared->token);
    const cli::Quantiles echo = cli::Summarize(compared->echo);
    state.SetIterationTime(token.p50 / 1e6);
    state.counters["p50_us"] = token.p50;
    state.counters["p99_us"] = token.p99;
    state.counters["echo_p50_us"] = echo.p50;
    state.counters["echo_p99_us"] = echo.p99;
    state.counters["ratio"] = token.p50 / echo.p50;
  }
}

}  // namespace

int RunLanes(int argc, char** argv, const std::vector<std::pair<std::string, Lane>>& lanes) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  Echoes echoes;  // fork: before any thread
  if (const Result<bool> started = Start(echoes); !started) {
    std::fprintf(stderr, "%s\n", started.error().message.c_str());
    return 1;
  }
  for (const auto& [name, lane] : lanes) {
    benchmark::RegisterBenchmark(
        name.c_str(),
        [&lane = lane, &echoes](benchmark::State& state) { Report(state, lane, echoes); })
        ->Iterations(1)
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace baton::bench
