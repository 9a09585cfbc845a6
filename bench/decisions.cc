// What a decision of the token scheduler costs: the holder has drained and wants more; who is next?
// All pods are saturating, which is the longest queue there is. No sockets and no clock.
#include <benchmark/benchmark.h>

#include <memory>
#include <vector>

#include "scheduler/token_scheduler.h"

namespace baton::bench {
namespace {

constexpr Duration kHeld = std::chrono::milliseconds(5);

// One GPU with `pods` pods of one client each, all of them waiting but the one that holds.
class BusyGpu {
 public:
  BusyGpu(uint64_t pods, Instant now)
      : scheduler_(scheduler::SchedulerOptions{}, 0), seq_(pods + 1) {
    for (uint64_t i = 1; i <= pods; ++i) {
      policy::ShareSpec spec;
      // Unlike requests, so that the queue has something to decide; they add up to one GPU.
      spec.request = policy::Share(2 * policy::kMillion / pods * i / (pods + 1));
      if (spec.request < policy::kShareMin) spec.request = policy::kShareMin;
      const PodId pod{i};
      const ClientId client{i};
      scheduler_.Step(now, scheduler::PodSet{pod, *policy::Validated(spec)}, effects_);
      scheduler_.Step(now, scheduler::ClientAttached{client, pod}, effects_);
      Report(now, client, wire::Phase::kWaiting, 0, Duration(0));
    }
    FollowToken();
  }

  // The holder has drained and waits again: the scheduler charges it, picks, and grants.
  void Decide(Instant now) {
    Report(now, holder_, wire::Phase::kWaiting, epoch_, kHeld);
    FollowToken();
  }

  uint64_t epoch() const { return epoch_; }

 private:
  void Report(Instant now, ClientId client, wire::Phase phase, uint64_t epoch, Duration held) {
    scheduler::ClientReport report;
    report.client = client;
    report.seq = ++seq_[client.value];
    report.phase = phase;
    report.epoch = epoch;
    report.rev = epoch == 0 ? 0 : rev_;
    report.held = held;
    scheduler_.Step(now, report, effects_);
  }
  void FollowToken() {
    for (const scheduler::Effect& effect : effects_) {
      const auto* token = std::get_if<scheduler::SendToken>(&effect);
      if (token == nullptr || token->quota == Duration(0)) continue;
      holder_ = token->client;
      epoch_ = token->epoch;
      rev_ = token->rev;
    }
    effects_.clear();
  }

  scheduler::TokenScheduler scheduler_;
  scheduler::Effects effects_;
  std::vector<uint64_t> seq_;
  ClientId holder_;
  uint64_t epoch_ = 0, rev_ = 0;
};

// range(0) pods on each of range(1) GPUs, which decide in turn: a large cluster's schedulers do not
// all stay in the cache.
void Decisions(benchmark::State& state) {
  Instant now = InstantFromNanos(1'000'000'000);
  std::vector<std::unique_ptr<BusyGpu>> gpus;
  for (int64_t i = 0; i < state.range(1); ++i) {
    gpus.push_back(std::make_unique<BusyGpu>(static_cast<uint64_t>(state.range(0)), now));
  }
  const uint64_t first = gpus[0]->epoch();
  size_t next = 0;
  for (auto _ : state) {
    if (next == 0) now += kHeld;
    gpus[next]->Decide(now);
    next = next + 1 == gpus.size() ? 0 : next + 1;
  }
  // Every decision must have been a grant, or something else was measured.
  const auto rounds = static_cast<uint64_t>(state.iterations()) / gpus.size();
  if (gpus[0]->epoch() - first < rounds) state.SkipWithError("a decision granted nothing");
  state.SetItemsProcessed(state.iterations());
}

BENCHMARK(Decisions)->Name("decisions")->Args({64, 1})->Args({1000, 100});

}  // namespace
}  // namespace baton::bench

BENCHMARK_MAIN();
