// The whole of libbaton.so: a GPU that waits for the host.
#include <algorithm>
#include <cstdio>
#include <sstream>
#include <utility>
#include <vector>

#include "tests/hook/process_fixture.h"

namespace baton::hook {
namespace {

class HostWaits : public HookProcess {
 protected:
  // Makes the stream wait for the host, with work behind the wait.
  void WaitWithWorkBehind(const std::string& how) {
    const std::string launch = how == "function-ptds" ? "launch-ptds" : "stream-launch";
    ASSERT_EQ(child_->Ask("stream").substr(0, 2), "0 ");
    for (int i = 0; i < 3; ++i) ASSERT_EQ(child_->Ask(launch + " 1000"), "0");
    ASSERT_EQ(child_->Ask("wait-for-host " + how), "0");
    for (int i = 0; i < 3; ++i) ASSERT_EQ(child_->Ask(launch + " 1000"), "0");
  }
};

TEST_F(HostWaits, TheTokenIsReturnedWhileTheGpuWaitsAndTakenBeforeWhatFollowsRuns) {
  for (const char* how : {"function", "function-ptds", "callback", "value", "batch"}) {
    SCOPED_TRACE(how);
    StartIdler();
    WaitWithWorkBehind(how);
    Drain();  // the host is not ready
    ASSERT_EQ(child_->Ask("host-is-ready"), "ok");
    ASSERT_TRUE(backend_->WaitPhase(Phase::kWaiting));
    usleep(20'000);
    EXPECT_NE(child_->Ask("waits"), "0") << "went on without the token";
    backend_->SendToken(2, 1, 60'000 * kMs);
    for (int i = 0; i < 1000 && child_->Ask("waits") != "0"; ++i) usleep(1000);
    EXPECT_EQ(child_->Ask("waits"), "0");
    child_.reset();
  }
}

TEST_F(HostWaits, AnIdleGpuIsReturnedThoughWorkIsBehindAHostFunction) {
  StartBackend();
  StartChild();
  ASSERT_EQ(child_->Ask("init"), "0");
  child_->Send("launch 1000");
  ASSERT_TRUE(backend_->WaitPhase(Phase::kWaiting));
  backend_->SendToken(1, 1, 60'000 * kMs);
  ASSERT_EQ(child_->Read(), "0");
  ASSERT_TRUE(backend_->WaitPhase(Phase::kIdle));
  backend_->SetAutoQuota(60'000 * kMs);
  WaitWithWorkBehind("function");
  EXPECT_TRUE(backend_->WaitPhase(Phase::kIdle));
  ASSERT_EQ(child_->Ask("host-is-ready"), "ok");
  for (int i = 0; i < 1000 && child_->Ask("waits") != "0"; ++i) usleep(1000);
  EXPECT_EQ(child_->Ask("waits"), "0");
}

// Another stream's work holds the token, and waits by an event for what is behind the host
// function: the drain would never end if that waited for the next token. It is let pass, as a
// launch is that a drain waits for. Where the driver's queue is full as well, the client thread
// hangs there with that other stream's mark.
TEST_F(HostWaits, ADrainThatWaitsForWhatIsBehindAHostFunctionEnds) {
  for (const char* how : {"function", "callback", "value"}) {
    for (const bool full : {false, true}) {
      SCOPED_TRACE(how + std::string(full ? ", queue full" : ""));
      StartIdler();
      WaitWithWorkBehind(how);
      ASSERT_EQ(child_->Ask("launch-after 1000"), "0");
      if (full) {
        ASSERT_EQ(child_->Ask("full-channel"), "ok");
      }
      backend_->SendToken(1, 2, 0);
      ASSERT_TRUE(backend_->WaitPhase(Phase::kDraining));
      usleep(50'000);
      ASSERT_EQ(child_->Ask("host-is-ready"), "ok");
      EXPECT_TRUE(backend_->WaitState([](const State& s) {
        return (s.phase == Phase::kIdle || s.phase == Phase::kWaiting) && s.rev == 2;
      }));
      EXPECT_EQ(child_->Ask("waits"), "0");
      child_.reset();
    }
  }
}

// The driver's queue for the GPU is full: it takes no mark behind the wait before that is over.
TEST_F(HostWaits, AFullQueueBehindAHostFunctionKeepsTheTokenFromNobody) {
  StartIdler();
  WaitWithWorkBehind("function");
  ASSERT_EQ(child_->Ask("full-channel"), "ok");
  Drain();  // the host is not ready
  ASSERT_EQ(child_->Ask("host-is-ready"), "ok");
  ASSERT_TRUE(backend_->WaitPhase(Phase::kWaiting));
  EXPECT_NE(child_->Ask("waits"), "0") << "went on without the token";
  backend_->SendToken(2, 1, 60'000 * kMs);
  for (int i = 0; i < 1000 && child_->Ask("waits") != "0"; ++i) usleep(1000);
  EXPECT_EQ(child_->Ask("waits"), "0");
}

// The client thread hangs in the driver: the exit does not.
TEST_F(HostWaits, AMarkThatTheDriverDoesNotTakeDoesNotHoldUpTheExit) {
  StartIdler();
  WaitWithWorkBehind("function");
  ASSERT_EQ(child_->Ask("launch-after 1000"), "0");
  ASSERT_EQ(child_->Ask("full-channel"), "ok");
  backend_->SendToken(1, 2, 0);
  usleep(50'000);
  EXPECT_EQ(child_->Ask("exit"), "exiting");
}

TEST_F(HostWaits, AHostFunctionWithNothingBehindItNeedsNoToken) {
  StartIdler();
  ASSERT_EQ(child_->Ask("stream").substr(0, 2), "0 ");
  ASSERT_EQ(child_->Ask("stream-launch 1000"), "0");
  ASSERT_EQ(child_->Ask("wait-for-host function"), "0");
  Drain();
  ASSERT_EQ(child_->Ask("host-is-ready"), "ok");
  for (int i = 0; i < 1000 && child_->Ask("waits") != "0"; ++i) usleep(1000);
  EXPECT_EQ(child_->Ask("waits"), "0");
}

TEST_F(HostWaits, WorkInFrontOfAWaitIsStillWaitedFor) {
  StartIdler();
  ASSERT_EQ(child_->Ask("stream").substr(0, 2), "0 ");
  ASSERT_EQ(child_->Ask("stream-launch 300000000"), "0");
  ASSERT_EQ(child_->Ask("wait-for-host function"), "0");
  ASSERT_EQ(child_->Ask("stream-launch 1000"), "0");
  EXPECT_GE(Drain(), static_cast<int64_t>(200 * kMs));
}

TEST_F(HostWaits, AnotherThreadsWorkInFrontOfAWaitHoldsTheTokenNoLonger) {
  StartIdler();
  ASSERT_EQ(child_->Ask("stream").substr(0, 2), "0 ");
  for (int i = 0; i < 3; ++i) ASSERT_EQ(child_->Ask("stream-launch 1000"), "0");
  // Known and short, so that no mark is due.
  ASSERT_EQ(child_->Ask("burst 1000 3 stream"), "ok");
  while (child_->Ask("returned") != "3") {
  }
  ASSERT_EQ(child_->Ask("wait-for-host function"), "0");
  ASSERT_EQ(child_->Ask("stream-launch 1000"), "0");
  Drain();  // the host is not ready
}

// Kernels run while the token is held, and at no other time, whatever they wait for.
TEST_F(HostWaits, InRandomInterleavingsNothingRunsWithoutTheToken) {
  const char* many = getenv("BATON_TEST_INTERLEAVINGS");
  const int runs = many == nullptr ? 20 : std::max(1, atoi(many));
  for (int run = 1; run <= runs; ++run) {
    SCOPED_TRACE("seed " + std::to_string(run));
    StartBackend();
    StartChild();
    ASSERT_EQ(child_->Ask("init"), "0");
    ASSERT_EQ(child_->Ask("shuffle " + std::to_string(run) + " 3 20"), "ok");
    std::vector<std::pair<int64_t, int64_t>> held;
    uint64_t epoch = 0;
    bool waiting = false;
    const auto next = [&] {
      const auto state = backend_->WaitState([&](const State& s) {
        return (s.phase == Phase::kIdle || s.phase == Phase::kWaiting) && s.epoch == epoch;
      });
      if (state) waiting = state->phase == Phase::kWaiting;
      return state.has_value();
    };
    while (child_->Ask("returned") != "1") {
      // Heartbeats come too: one that says the same again does no harm.
      if (!waiting) {
        ASSERT_TRUE(next());
        continue;
      }
      const int64_t from = Nanos(MonotonicNow());
      ++epoch;
      backend_->SendToken(epoch, 1, (1 + epoch % 4) * kMs);
      ASSERT_TRUE(next());
      held.emplace_back(from, Nanos(MonotonicNow()));
    }
    std::istringstream kernels(child_->Ask("kernels"));
    int64_t begin = 0, end = 0;
    int count = 0;
    while (kernels >> begin >> end) {
      ++count;
      const bool inside = std::any_of(held.begin(), held.end(), [&](const auto& h) {
        return h.first <= begin && (end <= h.second);
      });
      // What runs at the end of the shuffle may be in a hold that goes on.
      if (inside || (!held.empty() && begin >= held.back().first)) continue;
      ADD_FAILURE() << "kernel " << count << " ran from " << begin << " to " << end;
      for (const auto& [from, to] : held) {
        if (to < begin - 5'000'000 || from > end + 5'000'000) continue;
        ADD_FAILURE() << "held from " << from - begin << " to " << to - begin
                      << " ns after it began";
      }
    }
    EXPECT_GT(count, 50);
    child_.reset();
  }
}

double MedianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

// Captures that do not end and waits that the host does not end keep nobody waiting: the token is
// returned while all of them are there, and about as soon as without them.
TEST_F(HostWaits, InRandomInterleavingsNobodyWaitsForACaptureOrForTheHost) {
  const char* many = getenv("BATON_TEST_INTERLEAVINGS");
  const int runs = many == nullptr ? 3 : std::max(1, atoi(many));
  std::vector<double> usual, held_up;
  int captures = 0, waits = 0;
  for (int run = 1; run <= runs; ++run) {
    for (const bool for_good : {false, true}) {
      SCOPED_TRACE("seed " + std::to_string(run) + (for_good ? ", for good" : ""));
      StartIdler();
      ASSERT_EQ(
          child_->Ask("interleave " + std::to_string(run) + " 4 24 " + (for_good ? "1" : "0")),
          "ok");
      while (child_->Ask("returned") != "1") {
      }
      // So that there is something to wait for.
      ASSERT_EQ(child_->Ask("stream").substr(0, 2), "0 ");
      ASSERT_EQ(child_->Ask("stream-launch 5000000"), "0");
      (for_good ? held_up : usual).push_back(static_cast<double>(Drain()) / 1e6);
      if (for_good) waits += std::stoi(child_->Ask("waits"));
      captures += std::stoi(child_->Ask("let-go"));
      backend_->SetAutoQuota(60'000 * kMs);
      for (int i = 0; i < 10'000 && child_->Ask("waits") != "0"; ++i) usleep(1000);
      EXPECT_EQ(child_->Ask("waits"), "0");
      child_.reset();
    }
  }
  EXPECT_GT(captures, runs);
  EXPECT_GT(waits, runs);
  std::printf(
      "drains of %d interleavings, ms: usually median %.2f, longest %.2f; with %d captures "
      "and %d waits that do not end %.2f, %.2f\n",
      runs, MedianOf(usual), *std::max_element(usual.begin(), usual.end()), captures, waits,
      MedianOf(held_up), *std::max_element(held_up.begin(), held_up.end()));
  EXPECT_LE(MedianOf(held_up), 2 * MedianOf(usual));
}

}  // namespace
}  // namespace baton::hook
