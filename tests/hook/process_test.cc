// The whole of libbaton.so in a process of its own, between a driver and a backend that the test
// controls.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <memory>

#include "base/time.h"
#include "tests/hook/child.h"
#include "tests/hook/fake_backend.h"

namespace baton::hook {
namespace {

using wire::Phase;
using wire::State;

constexpr uint64_t kMs = 1'000'000;
constexpr char kCardTotal[] = "17179869184";  // bytes, as the driver says

std::string SocketPath() {
  static int number = 0;
  return "/tmp/baton-hook-test-" + std::to_string(getpid()) + "-" + std::to_string(++number);
}

class HookProcess : public testing::Test {
 protected:
  void StartBackend() {
    backend_.reset();  // it unlinks the socket
    backend_ = std::make_unique<FakeBackend>(socket_);
  }
  void StartChild(std::map<std::string, std::string> more = {}) {
    more.try_emplace("BATON_SOCKET", socket_);
    more.try_emplace("BATON_TICKET", "ticket");
    child_ = std::make_unique<Child>(more);
  }
  // A child that has been granted epoch 1 for `quota` and loops over kernels of 100 us.
  void StartHolder(uint64_t quota_ns, const std::string& loop = "loop 100000 1") {
    StartBackend();
    backend_->SetIdle(60'000 * kMs);  // a busy machine is not to look like an idle program
    StartChild();
    ASSERT_EQ(child_->Ask("init"), "0");
    ASSERT_EQ(child_->Ask(loop), "ok");
    ASSERT_TRUE(backend_->WaitPhase(Phase::kWaiting));
    backend_->SendToken(1, 1, quota_ns);
    ASSERT_TRUE(backend_->WaitPhase(Phase::kHolding));
  }
  // A child that holds epoch 1 for long, and is left alone.
  void StartIdler() {
    StartBackend();
    backend_->SetIdle(60'000 * kMs);
    StartChild();
    ASSERT_EQ(child_->Ask("init"), "0");
    child_->Send("launch 1000");
    ASSERT_TRUE(backend_->WaitPhase(Phase::kWaiting));
    backend_->SendToken(1, 1, 60'000 * kMs);
    ASSERT_EQ(child_->Read(), "0");
  }
  // How long a drain takes from now on.
  int64_t Drain() {
    const Instant begin = MonotonicNow();
    backend_->SendToken(1, 2, 0);
    const bool drained =
        backend_
            ->WaitState([](const State& s) {
              return (s.phase == Phase::kIdle || s.phase == Phase::kWaiting) && s.rev == 2;
            })
            .has_value();
    EXPECT_TRUE(drained);
    return Nanos(MonotonicNow() - begin);
  }
  uint64_t Count() { return std::stoull(child_->Ask("count")); }

  const std::string socket_ = SocketPath();
  std::unique_ptr<FakeBackend> backend_;
  std::unique_ptr<Child> child_;
};

TEST_F(HookProcess, SaysWhoItIsWhenCudaIsInitialised) {
  StartBackend();
  StartChild();
  EXPECT_EQ(child_->Ask("init"), "0");
  ASSERT_TRUE(backend_->WaitHellos(1));
  EXPECT_EQ(backend_->hello().ticket.view(), "ticket");
  EXPECT_NE(backend_->hello().incarnation, 0u);
  EXPECT_NE(backend_->hello().command.view().find("probe"), std::string_view::npos);
}

TEST_F(HookProcess, ALaunchWaitsForTheToken) {
  StartBackend();
  StartChild();
  ASSERT_EQ(child_->Ask("init"), "0");
  child_->Send("launch 1000");
  const auto waiting = backend_->WaitPhase(Phase::kWaiting);
  ASSERT_TRUE(waiting);
  EXPECT_EQ(waiting->epoch, 0u);
  EXPECT_EQ(backend_->uuid(), "GPU-ab000000-0000-0000-0000-000000000000");
  EXPECT_TRUE(child_->Silent(50));
  backend_->SendToken(7, 1, 60'000 * kMs);
  EXPECT_EQ(child_->Read(), "0");
  const auto holding = backend_->WaitPhase(Phase::kHolding);
  ASSERT_TRUE(holding);
  EXPECT_EQ(holding->epoch, 7u);
  EXPECT_EQ(holding->rev, 1u);
}

TEST_F(HookProcess, ReturnsTheTokenWhenItsWorkRunsOut) {
  StartBackend();
  StartChild();
  ASSERT_EQ(child_->Ask("init"), "0");
  child_->Send("launch 1000000");
  ASSERT_TRUE(backend_->WaitPhase(Phase::kWaiting));
  backend_->SendToken(1, 1, 60'000 * kMs);
  const auto idle = backend_->WaitPhase(Phase::kIdle);
  ASSERT_TRUE(idle);
  EXPECT_EQ(idle->epoch, 1u);
  EXPECT_EQ(idle->launches, 1u);
  EXPECT_GE(idle->held_ns, 1 * kMs);
  EXPECT_LT(idle->held_ns, 10'000 * kMs);
  EXPECT_GE(idle->busy_ns, 1 * kMs);
}

TEST_F(HookProcess, TheEndOfAQuotaDrainsAndNothingPassesUntilTheNext) {
  StartHolder(100 * kMs);
  ASSERT_TRUE(backend_->WaitPhase(Phase::kDraining));
  const auto waiting = backend_->WaitPhase(Phase::kWaiting);
  ASSERT_TRUE(waiting);
  EXPECT_EQ(waiting->epoch, 1u);
  const uint64_t passed = Count();
  EXPECT_EQ(passed, waiting->launches);
  EXPECT_TRUE(child_->Silent(50));
  EXPECT_EQ(Count(), passed);
  backend_->SendToken(2, 1, 100 * kMs);
  ASSERT_TRUE(backend_->WaitState(
      [&](const State& s) { return s.phase == Phase::kWaiting && s.epoch == 2; }));
  EXPECT_GT(Count(), passed);
}

TEST_F(HookProcess, ARevocationClosesAtOnce) {
  StartHolder(60'000 * kMs);
  backend_->SendToken(1, 2, 0);
  ASSERT_TRUE(backend_->WaitPhase(Phase::kDraining));
  const auto waiting = backend_->WaitPhase(Phase::kWaiting);
  ASSERT_TRUE(waiting);
  EXPECT_EQ(waiting->rev, 2u);
}

TEST_F(HookProcess, AnExtensionGoesOnWithoutAWait) {
  StartHolder(100 * kMs);
  backend_->SendToken(1, 2, 60'000 * kMs);
  ASSERT_TRUE(
      backend_->WaitState([](const State& s) { return s.phase == Phase::kHolding && s.rev == 2; }));
}

TEST_F(HookProcess, TheBacklogIsBounded) {
  StartHolder(60'000 * kMs, "loop 1000000 1");
  // The first kernels are of unknown length.
  ASSERT_TRUE(backend_->WaitState([](const State& s) { return s.launches >= 20; }));
  child_->Ask("most-queued");
  ASSERT_TRUE(backend_->WaitState([](const State& s) { return s.launches >= 120; }));
  // Kernels of 1 ms, 2 ms of backlog besides the one that runs, and the one just launched. The
  // driver itself looks at every launch, so it does not matter when the machine lets which thread
  // run: a thread that comes late finds less.
  const uint64_t most = std::stoull(child_->Ask("most-queued"));
  EXPECT_GE(most, 1 * kMs);
  EXPECT_LE(most, 5 * kMs);
  // What the hook says is a prediction, which a thread held up between two calls makes too long
  // for a while.
  EXPECT_TRUE(backend_->WaitState(
      [](const State& s) { return s.backlog_ns > 0 && s.backlog_ns <= 5 * kMs; }));
}

TEST_F(HookProcess, ThreadsAndStreamsAllStopWhenTheGateCloses) {
  for (const char* loop : {"loop 20000 4 stream", "loop 20000 4 ptds", "loop 20000 4"}) {
    StartBackend();
    backend_->SetAutoQuota(5 * kMs);
    backend_->SetIdle(60'000 * kMs);  // a busy machine is not to look like an idle program
    StartChild();
    ASSERT_EQ(child_->Ask("init"), "0");
    ASSERT_EQ(child_->Ask(loop), "ok");
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(backend_->WaitPhase(Phase::kWaiting)) << loop;
    backend_->SetAutoQuota({});
    // The token that was granted last runs out; then nothing moves any more. States from before
    // may still be among those that were not taken yet.
    const uint64_t last = backend_->granted();
    const auto waiting = backend_->WaitState(
        [&](const State& s) { return s.phase == Phase::kWaiting && s.epoch == last; });
    ASSERT_TRUE(waiting) << loop;
    EXPECT_EQ(Count(), waiting->launches) << loop;
    EXPECT_TRUE(child_->Silent(20));
    EXPECT_EQ(Count(), waiting->launches) << loop;
    child_.reset();
  }
}

TEST_F(HookProcess, DisabledItDoesNothing) {
  StartBackend();
  StartChild({{"BATON_DISABLE", "1"}});
  ASSERT_EQ(child_->Ask("init"), "0");
  EXPECT_EQ(child_->Ask("launch 1000"), "0");
  EXPECT_EQ(child_->Ask("find libcuda.so.1 cuLaunchKernel"), "libcuda.so.1:cuLaunchKernel");
  EXPECT_EQ(child_->Ask("records"), "0");
  EXPECT_EQ(backend_->hellos(), 0);
}

TEST_F(HookProcess, WithoutATicketItDoesNothing) {
  StartBackend();
  StartChild({{"BATON_TICKET", ""}});
  ASSERT_EQ(child_->Ask("init"), "0");
  EXPECT_EQ(child_->Ask("launch 1000"), "0");
  EXPECT_EQ(backend_->hellos(), 0);
  EXPECT_EQ(child_->Errors(), "");
}

TEST_F(HookProcess, WithoutASocketLaunchesWaitAndOneLineSaysSo) {
  StartChild();
  ASSERT_EQ(child_->Ask("init"), "0");
  child_->Send("launch 1000");
  EXPECT_TRUE(child_->Silent(300));
  const std::string errors = child_->Errors();
  EXPECT_NE(errors.find(socket_), std::string::npos) << errors;
  EXPECT_EQ(std::count(errors.begin(), errors.end(), '\n'), 1) << errors;
  StartBackend();
  ASSERT_TRUE(backend_->WaitPhase(Phase::kWaiting));
  backend_->SendToken(1, 1, 60'000 * kMs);
  EXPECT_EQ(child_->Read(), "0");
}

TEST_F(HookProcess, InOpenModeAMissingBackendIsRecordedAsUnmanagedTime) {
  StartChild({{"BATON_AWAY", "open"}});
  ASSERT_EQ(child_->Ask("init"), "0");
  EXPECT_EQ(child_->Ask("launch 1000"), "0");  // after the grace period
  StartBackend();
  const auto draining = backend_->WaitPhase(Phase::kDraining);
  ASSERT_TRUE(draining);
  EXPECT_GT(draining->unmanaged_ns, 0u);
  EXPECT_EQ(backend_->hello().away, wire::AwayMode::kOpen);
  ASSERT_TRUE(backend_->WaitPhase(Phase::kIdle));
}

TEST_F(HookProcess, ComesBackAsItIsAfterALostConnection) {
  StartHolder(60'000 * kMs);
  const uint64_t incarnation = backend_->hello().incarnation;
  const auto before = backend_->WaitPhase(Phase::kHolding);
  ASSERT_TRUE(before);
  backend_->Drop();
  ASSERT_TRUE(backend_->WaitHellos(2));
  EXPECT_EQ(backend_->hello().incarnation, incarnation);
  const auto after = backend_->WaitState([&](const State& s) { return s.seq > before->seq; });
  ASSERT_TRUE(after);
  EXPECT_EQ(after->phase, Phase::kHolding);
  EXPECT_EQ(after->epoch, 1u);
}

TEST_F(HookProcess, ABrokenFrameEndsTheConnectionOnly) {
  StartHolder(60'000 * kMs);
  backend_->SendRaw("\xc1 nonsense");
  ASSERT_TRUE(backend_->WaitHellos(2));
  const uint64_t passed = Count();
  ASSERT_TRUE(backend_->WaitState([&](const State& s) { return s.launches > passed; }));
}

TEST_F(HookProcess, ARefusalIsSaidOnceAndTriedAgain) {
  StartBackend();
  StartChild();
  ASSERT_EQ(child_->Ask("init"), "0");
  ASSERT_TRUE(backend_->WaitHellos(1));
  backend_->SendError(wire::ErrorKind::kUnknownPod, "this ticket names no pod");
  backend_->Drop();
  ASSERT_TRUE(backend_->WaitHellos(2));
  EXPECT_NE(child_->Errors().find("this ticket names no pod"), std::string::npos);
}

TEST_F(HookProcess, DlsymGivesTheWrapperAndLeavesEverythingElseAlone) {
  StartBackend();
  StartChild();
  EXPECT_EQ(child_->Ask("find libcuda.so.1 cuLaunchKernel"), "libbaton.so:cuLaunchKernel");
  EXPECT_EQ(child_->Ask("find libcuda.so.1 cuLaunchKernel_ptsz"),
            "libbaton.so:cuLaunchKernel_ptsz");
  EXPECT_EQ(child_->Ask("find libcuda.so.1 cuDeviceGet"), "libcuda.so.1:cuDeviceGet");
  EXPECT_EQ(child_->Ask("find default cuLaunchKernel"), "libbaton.so:cuLaunchKernel");
  // A spelling that this driver lacks is not invented.
  EXPECT_EQ(child_->Ask("find libcuda.so.1 cuGraphLaunch"), "none");
  EXPECT_EQ(child_->Ask("find libc.so.6 strlen").substr(0, 10), "libc.so.6:");
}

TEST_F(HookProcess, RtldNextStillMeansTheCallersNext) {
  StartBackend();
  StartChild();
  // The probe comes first, so its next is the preloaded hook, and for what the hook lacks libc.
  EXPECT_EQ(child_->Ask("find next cuLaunchKernel"), "libbaton.so:cuLaunchKernel");
  EXPECT_EQ(child_->Ask("find next getenv"), "libc.so.6:getenv");
}

TEST_F(HookProcess, GetProcAddressIsAnsweredWithTheSpellingThatTheDriverChose) {
  StartBackend();
  StartChild();
  EXPECT_EQ(child_->Ask("ask cuLaunchKernel 12000 0"), "libbaton.so:cuLaunchKernel 0 0");
  EXPECT_EQ(child_->Ask("ask cuLaunchKernel 12000 2"), "libbaton.so:cuLaunchKernel_ptsz 0 0");
  EXPECT_EQ(child_->Ask("ask cuMemAlloc 12000 0"), "libbaton.so:cuMemAlloc_v2 0 0");
  EXPECT_EQ(child_->Ask("ask cuDeviceGet 12000 0"), "libcuda.so.1:cuDeviceGet 0 0");
  EXPECT_EQ(child_->Ask("ask cuGetProcAddress 12000 0"), "libbaton.so:cuGetProcAddress_v2 0 0");
  EXPECT_EQ(child_->Ask("ask cuNoSuchThing 12000 0"), "none 500 1");
}

TEST_F(HookProcess, AFunctionOfALaterVersionIsLeftAlone) {
  StartBackend();
  StartChild();
  EXPECT_EQ(child_->Ask("ask cuMemAllocPitch 12000 0"), "libbaton.so:cuMemAllocPitch_v2 0 0");
  EXPECT_EQ(child_->Errors(), "");
  EXPECT_EQ(child_->Ask("ask cuMemAllocPitch 14000 0").substr(0, 13), "libcuda.so.1:");
  EXPECT_NE(child_->Errors().find("newer cuMemAllocPitch"), std::string::npos);
}

TEST_F(HookProcess, ACapturedLaunchNeedsNoTokenAndGetsNoEvent) {
  for (const char* capture : {"capture", "capture-v1"}) {
    StartBackend();
    StartChild();
    ASSERT_EQ(child_->Ask("init"), "0");
    ASSERT_EQ(child_->Ask("stream").substr(0, 2), "0 ");
    ASSERT_EQ(child_->Ask(capture), "0");
    EXPECT_EQ(child_->Ask("stream-launch 1000"), "0") << capture;
    EXPECT_EQ(child_->Ask("records"), "0");
    ASSERT_EQ(child_->Ask("end-capture"), "0");
    child_->Send("stream-launch 1000");
    ASSERT_TRUE(backend_->WaitPhase(Phase::kWaiting));
    EXPECT_TRUE(child_->Silent(20));
    child_.reset();
  }
}

TEST_F(HookProcess, ACaptureIsOverHoweverItEnds) {
  StartIdler();
  // While there is a capture every launch is marked.
  const auto marked = [&] {
    for (int i = 0; i < 20; ++i) child_->Ask("launch 1000");
    const int before = std::stoi(child_->Ask("records"));
    for (int i = 0; i < 20; ++i) child_->Ask("launch 1000");
    return std::stoi(child_->Ask("records")) - before >= 20;
  };
  EXPECT_FALSE(marked());
  for (const char* capture : {"capture", "capture-v1"}) {
    ASSERT_EQ(child_->Ask("stream").substr(0, 2), "0 ");
    ASSERT_EQ(child_->Ask(capture), "0");
    EXPECT_TRUE(marked()) << capture;
    EXPECT_NE(child_->Ask(capture), "0");
    EXPECT_TRUE(marked()) << capture;
    ASSERT_EQ(child_->Ask("end-capture"), "0");
    EXPECT_FALSE(marked()) << capture;
    EXPECT_NE(child_->Ask("end-capture"), "0");
    EXPECT_FALSE(marked()) << capture;
    ASSERT_EQ(child_->Ask(capture), "0");
    ASSERT_EQ(child_->Ask("stream-destroy"), "0");
    EXPECT_FALSE(marked()) << capture;
    const std::string context = child_->Ask("context").substr(2);
    ASSERT_EQ(child_->Ask("stream").substr(0, 2), "0 ");
    ASSERT_EQ(child_->Ask(capture), "0");
    ASSERT_EQ(child_->Ask("context-destroy " + context), "0");
    ASSERT_EQ(child_->Ask("device 0"), "ok");
    EXPECT_FALSE(marked()) << capture;
  }
  EXPECT_EQ(child_->Ask("mistakes"), "0");
}

TEST_F(HookProcess, DuringACaptureEveryLaunchAsksWhetherItIsCaptured) {
  StartBackend();
  StartChild();
  ASSERT_EQ(child_->Ask("init"), "0");
  ASSERT_EQ(child_->Ask("stream").substr(0, 2), "0 ");
  ASSERT_EQ(child_->Ask("capture"), "0");
  ASSERT_EQ(child_->Ask("stream").substr(0, 2), "0 ");  // another one, not captured yet
  child_->Send("stream-launch 200000000");
  ASSERT_TRUE(backend_->WaitPhase(Phase::kWaiting));
  backend_->SendToken(1, 1, 60'000 * kMs);
  ASSERT_EQ(child_->Read(), "0");
  ASSERT_EQ(child_->Ask("capture"), "0");
  ASSERT_EQ(child_->Ask("stream-launch 200000000"), "0");
  const auto idle = backend_->WaitPhase(Phase::kIdle);
  ASSERT_TRUE(idle);
  EXPECT_EQ(idle->launches, 1u);
}

TEST_F(HookProcess, ACaptureThatBeginsWhileAnotherThreadIsPacedIsLeftAlone) {
  StartHolder(60'000 * kMs, "loop 20000000 1");
  const auto paced = backend_->WaitState([](const State& s) { return s.launches >= 3; });
  ASSERT_TRUE(paced);
  ASSERT_EQ(child_->Ask("stream").substr(0, 2), "0 ");
  ASSERT_EQ(child_->Ask("capture"), "0");
  ASSERT_TRUE(
      backend_->WaitState([&](const State& s) { return s.launches >= paced->launches + 2; }));
  EXPECT_EQ(child_->Ask("end-capture"), "0");
}

TEST_F(HookProcess, AQueryThatFailsIsNotTakenForTheEndOfTheWork) {
  StartBackend();
  StartChild();
  ASSERT_EQ(child_->Ask("init"), "0");
  ASSERT_EQ(child_->Ask("query-errors 5"), "ok");
  child_->Send("launch 300000000");
  ASSERT_TRUE(backend_->WaitPhase(Phase::kWaiting));
  backend_->SendToken(1, 1, 60'000 * kMs);
  ASSERT_EQ(child_->Read(), "0");
  const auto idle = backend_->WaitPhase(Phase::kIdle);
  ASSERT_TRUE(idle);
  EXPECT_GE(idle->held_ns, 300 * kMs);
}

TEST_F(HookProcess, WorkWhoseMarkFailedIsStillWaitedFor) {
  StartBackend();
  StartChild();
  ASSERT_EQ(child_->Ask("init"), "0");
  ASSERT_EQ(child_->Ask("record-errors 2"), "ok");  // of its start and of its end
  child_->Send("launch 300000000");
  ASSERT_TRUE(backend_->WaitPhase(Phase::kWaiting));
  backend_->SendToken(1, 1, 60'000 * kMs);
  ASSERT_EQ(child_->Read(), "0");
  const auto idle = backend_->WaitPhase(Phase::kIdle);
  ASSERT_TRUE(idle);
  EXPECT_GE(idle->held_ns, 300 * kMs);
}

TEST_F(HookProcess, ADrainEndsDuringACapture) {
  StartBackend();
  StartChild();
  ASSERT_EQ(child_->Ask("init"), "0");
  ASSERT_EQ(child_->Ask("stream").substr(0, 2), "0 ");
  child_->Send("launch 1000");
  ASSERT_TRUE(backend_->WaitPhase(Phase::kWaiting));
  backend_->SendToken(1, 1, 60'000 * kMs);
  ASSERT_EQ(child_->Read(), "0");
  ASSERT_TRUE(backend_->WaitPhase(Phase::kIdle));
  child_->Send("launch 300000000");
  ASSERT_TRUE(backend_->WaitPhase(Phase::kWaiting));
  backend_->SendToken(2, 1, 60'000 * kMs);
  ASSERT_EQ(child_->Read(), "0");
  // Known and short, so that no mark is due: the capture finds them without one.
  for (int i = 0; i < 3; ++i) ASSERT_EQ(child_->Ask("launch 1000"), "0");
  ASSERT_EQ(child_->Ask("capture"), "0");
  const auto idle = backend_->WaitPhase(Phase::kIdle);
  ASSERT_TRUE(idle);
  EXPECT_EQ(idle->launches, 5u);
  EXPECT_EQ(child_->Ask("end-capture"), "0");
}

TEST_F(HookProcess, ACaptureHoldsUpNoDrainWhicheverThreadLaunchedWhereverBefore) {
  for (const char* kind : {"", " stream", " ptds"}) {
    StartBackend();
    StartChild();
    ASSERT_EQ(child_->Ask("init"), "0");
    ASSERT_EQ(child_->Ask("stream").substr(0, 2), "0 ");
    child_->Send("launch 1000");
    ASSERT_TRUE(backend_->WaitPhase(Phase::kWaiting));
    backend_->SendToken(1, 1, 60'000 * kMs);
    ASSERT_EQ(child_->Read(), "0");
    ASSERT_TRUE(backend_->WaitPhase(Phase::kIdle));
    child_->Send("launch 300000000");
    ASSERT_TRUE(backend_->WaitPhase(Phase::kWaiting));
    backend_->SendToken(2, 1, 60'000 * kMs);
    ASSERT_EQ(child_->Read(), "0");
    // Known and short, so that no mark is due, and of a thread that launches no more.
    ASSERT_EQ(child_->Ask(std::string("burst 1000 3") + kind), "ok");
    while (child_->Ask("returned") != "3") {
    }
    ASSERT_EQ(child_->Ask("capture"), "0");
    EXPECT_TRUE(backend_->WaitPhase(Phase::kIdle)) << kind;
    EXPECT_EQ(child_->Ask("end-capture"), "0") << kind;
    child_.reset();
  }
}

// What nobody marks, nobody may wait for.
TEST_F(HookProcess, ManyStreamsAreAsQuickAsOneAndSoIsWhatComesAfterThem) {
  StartHolder(600'000 * kMs, "burst 20000 1");
  const auto takes = [&](int streams) {
    return std::stoll(child_->Ask("round 20000 3000 " + std::to_string(streams)));
  };
  const int64_t one = takes(1);
  EXPECT_LT(takes(40), 2 * one);
  EXPECT_LT(takes(1), 2 * one);
}

TEST_F(HookProcess, WhatAThreadLeftUnmarkedHoldsNobodyUp) {
  StartHolder(600'000 * kMs, "burst 20000 1");
  // Each thread less than a mark is due for; all together more than the bound.
  for (int i = 0; i < 60; ++i) ASSERT_EQ(child_->Ask("burst 20000 10"), "ok");
  ASSERT_TRUE(backend_->WaitState([](const State& s) { return s.launches >= 601; }));
  const int64_t first = std::stoll(child_->Ask("round 20000 3000 1"));
  backend_->SendToken(1, 2, 0);  // the drain covers them
  ASSERT_TRUE(backend_->WaitState([](const State& s) { return s.phase == Phase::kIdle; }));
  backend_->SetAutoQuota(600'000 * kMs);
  const int64_t second = std::stoll(child_->Ask("round 20000 3000 1"));
  EXPECT_LT(first, 2 * second);
}

TEST_F(HookProcess, AProcessThatTakesLongToExitReturnsTheTokenFirst) {
  StartBackend();
  StartChild();
  ASSERT_EQ(child_->Ask("init"), "0");
  child_->Send("launch 1000");
  ASSERT_TRUE(backend_->WaitPhase(Phase::kWaiting));
  backend_->SendToken(1, 1, 60'000 * kMs);
  ASSERT_EQ(child_->Read(), "0");
  ASSERT_EQ(child_->Ask("exit"), "exiting");
  ASSERT_TRUE(backend_->WaitPhase(Phase::kIdle));
}

TEST_F(HookProcess, TheHooksThreadTakesPartInAChangeOfUser) {
  StartBackend();
  StartChild();
  ASSERT_EQ(child_->Ask("init"), "0");
  EXPECT_EQ(child_->Ask("setuid"), "0");
}

TEST_F(HookProcess, WorkOfADestroyedStreamIsStillWaitedFor) {
  StartBackend();
  StartChild();
  ASSERT_EQ(child_->Ask("init"), "0");
  ASSERT_EQ(child_->Ask("stream").substr(0, 2), "0 ");
  child_->Send("stream-launch 300000000");
  ASSERT_TRUE(backend_->WaitPhase(Phase::kWaiting));
  backend_->SendToken(1, 1, 60'000 * kMs);
  ASSERT_EQ(child_->Read(), "0");
  ASSERT_EQ(child_->Ask("stream-destroy"), "0");
  const auto idle = backend_->WaitPhase(Phase::kIdle);
  ASSERT_TRUE(idle);
  EXPECT_GE(idle->held_ns, 300 * kMs);
}

TEST_F(HookProcess, AStreamThatGetsTheHandleOfADestroyedOneIsAnother) {
  StartIdler();
  const std::string first = child_->Ask("stream");
  // Until it is known how long they take.
  for (int i = 0; i < 4; ++i) ASSERT_EQ(child_->Ask("stream-launch 1000"), "0");
  ASSERT_EQ(child_->Ask("hold-destroys 1"), "ok");
  ASSERT_EQ(child_->Ask("stream-destroy-later"), "ok");
  std::string second = child_->Ask("stream");
  for (int i = 0; i < 100'000 && second != first; ++i) second = child_->Ask("stream");
  ASSERT_EQ(second, first);
  // Thought to be short, so no mark is due.
  ASSERT_EQ(child_->Ask("stretch 300000000"), "ok");
  ASSERT_EQ(child_->Ask("stream-launch 1000"), "0");
  ASSERT_EQ(child_->Ask("hold-destroys 0"), "ok");
  ASSERT_EQ(child_->Ask("stop"), "ok");
  EXPECT_GE(Drain(), static_cast<int64_t>(200 * kMs));
  EXPECT_EQ(child_->Ask("mistakes"), "0");
}

TEST_F(HookProcess, AContextThatGetsTheHandleOfADestroyedOneIsAnother) {
  StartIdler();
  const std::string context = child_->Ask("context").substr(2);
  for (int i = 0; i < 4; ++i) ASSERT_EQ(child_->Ask("launch 1000"), "0");
  ASSERT_EQ(child_->Ask("hold-destroys 1"), "ok");
  ASSERT_EQ(child_->Ask("context-destroy-later " + context), "ok");
  ASSERT_EQ(child_->Ask("stretch 300000000"), "ok");
  ASSERT_EQ(child_->Ask("context-launch-later " + context + " 1000"), "ok");
  usleep(50'000);  // it may launch, or wait until the handle is known to be its own
  ASSERT_EQ(child_->Ask("hold-destroys 0"), "ok");
  ASSERT_EQ(child_->Ask("stop"), "ok");
  EXPECT_GE(Drain(), static_cast<int64_t>(200 * kMs));
  EXPECT_EQ(child_->Ask("mistakes"), "0");
}

TEST_F(HookProcess, TheEventsOfAGreenContextGoWithIt) {
  StartIdler();
  const std::string green = child_->Ask("green").substr(2);
  ASSERT_EQ(child_->Ask("launch 1000"), "0");
  ASSERT_EQ(child_->Ask("device 0"), "ok");
  ASSERT_EQ(child_->Ask("green-destroy " + green), "0");
  ASSERT_EQ(child_->Ask("launch 1000"), "0");
  Drain();
  EXPECT_EQ(child_->Ask("mistakes"), "0");
}

TEST_F(HookProcess, AnOldProgramsChangeOfContextIsSeen) {
  for (const bool pop : {false, true}) {
    StartIdler();
    if (pop) {
      ASSERT_EQ(child_->Ask("device 1"), "ok");
      ASSERT_EQ(child_->Ask("context").substr(0, 2), "0 ");
    }
    for (int i = 0; i < 10; ++i) ASSERT_EQ(child_->Ask("launch 1000"), "0");
    ASSERT_EQ(child_->Ask(pop ? "pop-v1" : "context-v1 1").substr(0, 1), "0");
    // The other GPU's gate is closed.
    child_->Send("launch 1000");
    EXPECT_TRUE(backend_->WaitState(
        [](const State& s) { return s.phase == Phase::kWaiting && s.gpu == 1; }));
    EXPECT_TRUE(child_->Silent(20));
    child_.reset();
  }
}

TEST_F(HookProcess, ADrainThatWaitsForAParkedLaunchReopensTheGate) {
  StartBackend();
  StartChild();
  ASSERT_EQ(child_->Ask("init"), "0");
  // A kernel of no end, and a second launch that would come once the gate is open again.
  child_->Send("burst 0 1");
  ASSERT_TRUE(backend_->WaitPhase(Phase::kWaiting));
  backend_->SendToken(1, 1, 100 * kMs);
  ASSERT_EQ(child_->Read(), "ok");
  ASSERT_TRUE(backend_->WaitPhase(Phase::kDraining));
  ASSERT_EQ(child_->Ask("burst 1000 1"), "ok");
  const auto again = backend_->WaitPhase(Phase::kHolding);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->epoch, 1u);
  // A thread that wakes too late for the first opening passes in a later one.
  ASSERT_TRUE(backend_->WaitState([](const State& s) { return s.launches == 2; }));
  ASSERT_EQ(child_->Ask("release"), "ok");
  ASSERT_TRUE(backend_->WaitState([](const State& s) {
    return (s.phase == Phase::kIdle || s.phase == Phase::kWaiting) && s.launches == 2;
  }));
}

TEST_F(HookProcess, AForkedChildDoesNotHoldTheLifeline) {
  StartHolder(60'000 * kMs);
  const std::string pid = child_->Ask("fork");
  ASSERT_NE(pid, "");
  const auto forked = static_cast<pid_t>(std::stol(pid));
  child_->Kill();
  EXPECT_TRUE(backend_->WaitGone());
  EXPECT_EQ(kill(forked, 0), 0) << "the forked child ended by itself";
  kill(forked, SIGKILL);
}

TEST_F(HookProcess, AForkedChildAttachesByItself) {
  StartBackend();
  backend_->SetAutoQuota(50 * kMs);
  StartChild();
  ASSERT_EQ(child_->Ask("init"), "0");
  ASSERT_TRUE(backend_->WaitHellos(1));
  EXPECT_EQ(child_->Ask("fork-launch"), "0");
  EXPECT_EQ(backend_->incarnations(), 2u);
}

TEST_F(HookProcess, EveryGpuHasAGateOfItsOwn) {
  StartBackend();
  StartChild();
  ASSERT_EQ(child_->Ask("init"), "0");
  ASSERT_EQ(child_->Ask("device 1"), "ok");
  child_->Send("launch 1000");
  const auto first = backend_->WaitPhase(Phase::kWaiting);
  ASSERT_TRUE(first);
  EXPECT_EQ(backend_->uuid(), "GPU-ab000000-0000-0000-0000-000000000001");
  backend_->SendToken(1, 1, 60'000 * kMs, false);
  ASSERT_EQ(child_->Read(), "0");
  ASSERT_EQ(child_->Ask("device 0"), "ok");
  child_->Send("launch 1000");
  const auto second = backend_->WaitPhase(Phase::kWaiting);
  ASSERT_TRUE(second);
  EXPECT_NE(second->gpu, first->gpu);
  EXPECT_EQ(backend_->uuid(), "GPU-ab000000-0000-0000-0000-000000000000");
  EXPECT_TRUE(child_->Silent(20));
}

TEST_F(HookProcess, AGpuThatIsRefusedDoesNotKeepTheProcessAway) {
  StartHolder(60'000 * kMs);
  backend_->SendError(wire::ErrorKind::kUnknownGpu, "this GPU is not the pod's");
  backend_->Drop();
  ASSERT_TRUE(backend_->WaitHellos(2));
  const uint64_t passed = Count();
  ASSERT_TRUE(backend_->WaitState([&](const State& s) { return s.launches > passed; }));
}

TEST_F(HookProcess, MemoryAboveTheCapIsRefusedWithoutAskingTheDriver) {
  StartBackend();
  backend_->SetMemoryCap(1000);
  StartChild();
  ASSERT_EQ(child_->Ask("init"), "0");
  const std::string first = child_->Ask("alloc 700");
  ASSERT_EQ(first.substr(0, 2), "0 ");
  EXPECT_EQ(child_->Ask("alloc 301").substr(0, 2), "2 ");
  EXPECT_EQ(child_->Ask("allocations"), "1");
  EXPECT_EQ(child_->Ask("meminfo"), "300 1000");
  EXPECT_EQ(child_->Ask("free " + first.substr(2)), "0");
  EXPECT_EQ(child_->Ask("alloc 1000").substr(0, 2), "0 ");
  EXPECT_EQ(backend_->memory_total(), 1000u);
}

TEST_F(HookProcess, TheFirstMemoryQueryWaitsForTheCap) {
  for (const auto& [query, answer] :
       {std::pair("meminfo", "1000 1000"), std::pair("total", "1000")}) {
    StartChild();
    if (query == std::string("meminfo")) {
      ASSERT_EQ(child_->Ask("init"), "0");
    }
    child_->Send(query);
    EXPECT_TRUE(child_->Silent(50)) << query;
    // Where the hook looks it appears with its cap set.
    FakeBackend late(socket_ + "-late");
    late.SetMemoryCap(1000);
    ASSERT_EQ(rename((socket_ + "-late").c_str(), socket_.c_str()), 0);
    EXPECT_EQ(child_->Read(), answer) << query;
    child_.reset();
    unlink(socket_.c_str());
  }
}

TEST_F(HookProcess, TheCapStaysKnownWhileTheBackendIsAway) {
  StartBackend();
  backend_->SetMemoryCap(1000);
  StartChild();
  ASSERT_EQ(child_->Ask("init"), "0");
  ASSERT_EQ(child_->Ask("alloc 300").substr(0, 2), "0 ");
  backend_.reset();
  while (child_->Errors().find("is away") == std::string::npos) {
    ASSERT_EQ(child_->Ask("total"), "1000");
  }
  EXPECT_EQ(child_->Ask("meminfo"), "700 1000");
  EXPECT_EQ(child_->Ask("total"), "1000");
}

TEST_F(HookProcess, InOpenModeAMemoryQueryDoesNotWaitForABackendForEver) {
  StartChild({{"BATON_AWAY", "open"}});
  EXPECT_EQ(child_->Ask("total"), kCardTotal);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(child_->Ask("total"), kCardTotal);
}

TEST_F(HookProcess, AGpuThatIsNotThePodsIsShownAsItIs) {
  StartBackend();
  backend_->RefuseGpus();
  StartChild();
  EXPECT_EQ(child_->Ask("total"), kCardTotal);
}

TEST_F(HookProcess, WhatAPoolKeepsUnusedStandsInNobodysWay) {
  StartBackend();
  backend_->SetMemoryCap(1000);
  StartChild();
  ASSERT_EQ(child_->Ask("init"), "0");
  const std::string first = child_->Ask("alloc-async 700");
  ASSERT_EQ(first.substr(0, 2), "0 ");
  EXPECT_EQ(child_->Ask("meminfo"), "300 1000");
  EXPECT_EQ(child_->Ask("free-async " + first.substr(2)), "0");
  EXPECT_EQ(child_->Ask("meminfo"), "300 1000");  // the pool keeps it
  EXPECT_EQ(child_->Ask("alloc 600").substr(0, 2), "0 ");
  EXPECT_EQ(child_->Ask("meminfo"), "400 1000");
}

TEST_F(HookProcess, AProgramThatTrimsOrDestroysItsPoolIsCredited) {
  StartBackend();
  backend_->SetMemoryCap(1000);
  StartChild();
  ASSERT_EQ(child_->Ask("init"), "0");
  const std::string first = child_->Ask("alloc-async 400");
  const std::string second = child_->Ask("alloc-async 200");
  EXPECT_EQ(child_->Ask("free-async " + first.substr(2)), "0");
  EXPECT_EQ(child_->Ask("meminfo"), "400 1000");
  EXPECT_EQ(child_->Ask("trim-pool"), "0");
  EXPECT_EQ(child_->Ask("meminfo"), "800 1000");
  EXPECT_EQ(child_->Ask("destroy-pool"), "0");
  EXPECT_EQ(child_->Ask("meminfo"), "800 1000");
  EXPECT_EQ(child_->Ask("free-async " + second.substr(2)), "0");
  EXPECT_EQ(child_->Ask("meminfo"), "1000 1000");
}

TEST_F(HookProcess, StreamOrderedMemoryIsChargedWhereItIs) {
  StartBackend();
  backend_->SetMemoryCap(1000);
  StartChild();
  ASSERT_EQ(child_->Ask("init"), "0");
  ASSERT_EQ(child_->Ask("device 1"), "ok");
  ASSERT_EQ(child_->Ask("stream").substr(0, 2), "0 ");
  ASSERT_EQ(child_->Ask("device 0"), "ok");
  ASSERT_EQ(child_->Ask("stream-alloc-async 400").substr(0, 2), "0 ");
  EXPECT_EQ(child_->Ask("meminfo"), "1000 1000");
  ASSERT_EQ(child_->Ask("device 1"), "ok");
  EXPECT_EQ(child_->Ask("meminfo"), "600 1000");
  // From a pool of the other device, and from one in host memory.
  ASSERT_EQ(child_->Ask("pool-alloc-async 300 1").substr(0, 2), "0 ");
  ASSERT_EQ(child_->Ask("pool-alloc-async 5000 2").substr(0, 2), "0 ");
  EXPECT_EQ(child_->Ask("meminfo"), "600 1000");
  ASSERT_EQ(child_->Ask("device 0"), "ok");
  EXPECT_EQ(child_->Ask("meminfo"), "700 1000");
}

TEST_F(HookProcess, WhatAPoolHasToSpareGoesToOneOfTwoRacingAllocations) {
  StartBackend();
  backend_->SetMemoryCap(600);
  StartChild();
  ASSERT_EQ(child_->Ask("init"), "0");
  const std::string first = child_->Ask("alloc-async 400");
  ASSERT_EQ(child_->Ask("free-async " + first.substr(2)), "0");
  EXPECT_EQ(child_->Ask("race-async 4 400"), "1");
  EXPECT_EQ(child_->Ask("meminfo"), "200 600");
}

TEST_F(HookProcess, WhatWasFreedInStreamOrderIsCreditedWhenTheStreamGotThere) {
  StartBackend();
  backend_->SetMemoryCap(1000);
  StartChild();
  ASSERT_EQ(child_->Ask("init"), "0");
  const std::string first = child_->Ask("alloc-async 400");
  ASSERT_EQ(child_->Ask("defer-frees 1"), "ok");
  ASSERT_EQ(child_->Ask("free-async " + first.substr(2)), "0");
  EXPECT_EQ(child_->Ask("meminfo"), "600 1000");
  ASSERT_EQ(child_->Ask("defer-frees 0"), "ok");
  EXPECT_EQ(child_->Ask("meminfo"), "1000 1000");
}

TEST_F(HookProcess, MemoryByHandleIsChargedUntilItIsReleasedAndUnmapped) {
  StartBackend();
  backend_->SetMemoryCap(1000);
  StartChild();
  ASSERT_EQ(child_->Ask("init"), "0");
  const std::string first = child_->Ask("create 300");
  const std::string second = child_->Ask("create 200");
  ASSERT_EQ(first.substr(0, 2), "0 ");
  ASSERT_EQ(second.substr(0, 2), "0 ");
  EXPECT_EQ(child_->Ask("map 4096 300 " + first.substr(2)), "0");
  EXPECT_EQ(child_->Ask("map 4396 200 " + second.substr(2)), "0");
  EXPECT_EQ(child_->Ask("release-handle " + first.substr(2)), "0");
  EXPECT_EQ(child_->Ask("meminfo"), "500 1000");  // it is still mapped
  EXPECT_EQ(child_->Ask("unmap 4096 500"), "0");
  EXPECT_EQ(child_->Ask("meminfo"), "800 1000");
  EXPECT_EQ(child_->Ask("release-handle " + second.substr(2)), "0");
  EXPECT_EQ(child_->Ask("meminfo"), "1000 1000");
}

TEST_F(HookProcess, TheMemoryOfAContextIsCreditedWhenItIsGone) {
  StartBackend();
  backend_->SetMemoryCap(1000);
  StartChild();
  ASSERT_EQ(child_->Ask("init"), "0");
  ASSERT_EQ(child_->Ask("alloc 200").substr(0, 2), "0 ");
  for (int i = 0; i < 5; ++i) {
    const std::string context = child_->Ask("context");
    ASSERT_EQ(child_->Ask("alloc 400").substr(0, 2), "0 ") << i;
    ASSERT_EQ(child_->Ask("context-destroy " + context.substr(2)), "0");
    EXPECT_EQ(child_->Ask("meminfo"), "800 1000");
  }
  const std::string old = child_->Ask("context-v1 0");
  ASSERT_EQ(child_->Ask("alloc 400").substr(0, 2), "0 ");
  ASSERT_EQ(child_->Ask("detach " + old.substr(2)), "0");
  EXPECT_EQ(child_->Ask("meminfo"), "800 1000");
  // The last user's release is the end of the primary one.
  ASSERT_EQ(child_->Ask("device 0"), "ok");
  EXPECT_EQ(child_->Ask("primary-release"), "0");
  EXPECT_EQ(child_->Ask("meminfo"), "800 1000");
  EXPECT_EQ(child_->Ask("primary-release"), "0");
  ASSERT_EQ(child_->Ask("device 0"), "ok");
  EXPECT_EQ(child_->Ask("meminfo"), "1000 1000");
  ASSERT_EQ(child_->Ask("alloc 1000").substr(0, 2), "0 ");
  EXPECT_EQ(child_->Ask("primary-reset"), "0");
  ASSERT_EQ(child_->Ask("device 0"), "ok");
  EXPECT_EQ(child_->Ask("meminfo"), "1000 1000");
  EXPECT_EQ(child_->Ask("mistakes"), "0");
}

TEST_F(HookProcess, ABatchWithACopyBetweenDevicesWaitsAndAnyOtherIsCounted) {
  StartBackend();
  StartChild();
  ASSERT_EQ(child_->Ask("init"), "0");
  ASSERT_EQ(child_->Ask("stream").substr(0, 2), "0 ");
  const std::string a = child_->Ask("alloc 1000").substr(2);
  const std::string b = child_->Ask("alloc 1000").substr(2);
  EXPECT_EQ(child_->Ask("copy-batch " + a + " 5 1000"), "0");
  EXPECT_EQ(child_->Ask("prefetch 20000"), "0");
  EXPECT_EQ(child_->Ask("copy-to-array 300000"), "0");
  child_->Send("copy-batch " + a + " " + b + " 1000");
  const auto waiting = backend_->WaitPhase(Phase::kWaiting);
  ASSERT_TRUE(waiting);
  EXPECT_EQ(waiting->copies_bytes, 321'001u);
  EXPECT_TRUE(child_->Silent(20));
  backend_->SendToken(1, 1, 60'000 * kMs);
  EXPECT_EQ(child_->Read(), "0");
}

TEST_F(HookProcess, TwoRacingAllocationsCannotBothPass) {
  StartBackend();
  backend_->SetMemoryCap(1000);
  StartChild();
  ASSERT_EQ(child_->Ask("init"), "0");
  EXPECT_EQ(child_->Ask("race 8 400"), "2");
  EXPECT_EQ(child_->Ask("allocations"), "2");
}

TEST_F(HookProcess, AFreeOfSomethingUnknownGoesToTheDriver) {
  StartBackend();
  StartChild();
  ASSERT_EQ(child_->Ask("init"), "0");
  EXPECT_EQ(child_->Ask("free 12345"), std::to_string(1));
}

}  // namespace
}  // namespace baton::hook
