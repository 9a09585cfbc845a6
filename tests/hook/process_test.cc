// The whole of libbaton.so: how it attaches, gates launches, and leaves its host alone.
#include "tests/hook/process_fixture.h"

namespace baton::hook {
namespace {

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

TEST_F(HookProcess, WhoseTicketIsRefusedIsToldByAnErrorAndOneSentence) {
  StartBackend();
  backend_->RefuseTickets();
  StartChild({{"BATON_TICKET_WAIT", "1"}});
  ASSERT_EQ(child_->Ask("init"), "0");
  EXPECT_EQ(child_->Ask("launch 1000"), "800");  // CUDA_ERROR_NOT_PERMITTED
  EXPECT_EQ(child_->Ask("launch 1000"), "800");  // at once
  EXPECT_EQ(child_->Ask("alloc 1000"), "800 0");
  const std::string errors = child_->Errors();
  const char* said = "launches and allocations now fail with CUDA_ERROR_NOT_PERMITTED";
  EXPECT_NE(errors.find(said), std::string::npos) << errors;
  EXPECT_EQ(errors.find(said), errors.rfind(said)) << errors;
}

// It is heard each time, and then refused: a minute of that from many processes is no load.
TEST_F(HookProcess, WhoseTicketIsRefusedAsksEverMoreSeldom) {
  StartBackend();
  backend_->RefuseTickets();
  StartChild();
  ASSERT_EQ(child_->Ask("init"), "0");
  child_->Send("launch 1000");
  ASSERT_TRUE(backend_->WaitHellos(8));  // 5, 10, 20 ... 200 ms apart
  const int before = backend_->hellos();
  usleep(1'000'000);
  EXPECT_LE(backend_->hellos() - before, 12);  // 100 to 200 ms apart
}

TEST_F(HookProcess, WhoseTicketIsRefusedWhileItWaitsIsToldToo) {
  StartBackend();
  StartChild({{"BATON_TICKET_WAIT", "1"}});
  ASSERT_EQ(child_->Ask("init"), "0");
  child_->Send("launch 1000");
  ASSERT_TRUE(backend_->WaitPhase(Phase::kWaiting));
  backend_->RefuseTickets();
  backend_->SendError(wire::ErrorKind::kUnknownPod, "the pod was deleted");
  backend_->Drop();
  EXPECT_EQ(child_->Read(), "800");  // CUDA_ERROR_NOT_PERMITTED
}

// The program's own handler runs while a launch waits, and a signal without one ends it.
TEST_F(HookProcess, AWaitHearsSignals) {
  for (const int signal : {SIGINT, SIGTERM}) {
    StartBackend();
    StartChild();
    ASSERT_EQ(child_->Ask("init"), "0");
    ASSERT_EQ(child_->Ask("say-signals"), "ok");
    child_->Send("launch 1000");
    ASSERT_TRUE(backend_->WaitPhase(Phase::kWaiting));
    kill(child_->pid(), SIGUSR1);
    EXPECT_EQ(child_->Read(), "signal");
    kill(child_->pid(), signal);
    ASSERT_TRUE(backend_->WaitGone());
    child_.reset();
  }
}

// The thread that waits for the token reads it from the socket itself. Whatever its program does
// with it meanwhile, the others get theirs.
TEST_F(HookProcess, ATokenComesThoughTheThreadThatListensForItIsHeldUp) {
  StartBackend();
  StartChild();
  ASSERT_EQ(child_->Ask("init"), "0");
  ASSERT_EQ(child_->Ask("launch-held-up 1000"), "ok");
  ASSERT_TRUE(backend_->WaitPhase(Phase::kWaiting));
  ASSERT_EQ(child_->Ask("hold-up"), "ok");
  backend_->SendToken(1, 1, 60'000 * kMs);
  EXPECT_TRUE(backend_->WaitPhase(Phase::kHolding));
  EXPECT_EQ(child_->Ask("launch 1000"), "0");
  EXPECT_EQ(child_->Ask("returned"), "0");
  Drain();
  EXPECT_EQ(child_->Ask("host-is-ready"), "ok");
  ASSERT_TRUE(backend_->WaitPhase(Phase::kWaiting));
  backend_->SendToken(2, 1, 60'000 * kMs);
  ASSERT_TRUE(backend_->WaitState([](const State& s) { return s.launches == 2; }));
}

TEST_F(HookProcess, WhoListensForItsTokenGetsItOnTheNextConnectionToo) {
  StartBackend();
  StartChild();
  ASSERT_EQ(child_->Ask("init"), "0");
  child_->Send("launch 1000");
  ASSERT_TRUE(backend_->WaitPhase(Phase::kWaiting));
  backend_->Drop();
  ASSERT_TRUE(backend_->WaitHellos(2));
  ASSERT_TRUE(backend_->WaitPhase(Phase::kWaiting));
  EXPECT_TRUE(child_->Silent(20));
  backend_->SendToken(1, 1, 60'000 * kMs);
  EXPECT_EQ(child_->Read(), "0");
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
  EXPECT_EQ(child_->Ask("find libcuda.so.1 cuGraphUpload"), "none");
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
  // By a name that is older than its own.
  EXPECT_EQ(child_->Ask("ask cuGraphInstantiate 12000 0"),
            "libbaton.so:cuGraphInstantiateWithFlags 0 0");
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

// Their own dependencies come first to them, the driver among them.
TEST_F(HookProcess, LibrariesOpenedWithDeepBindWaitForTheTokenIfTheyReachCuda) {
  StartBackend();
  StartChild();
  ASSERT_EQ(child_->Ask("init"), "0");
  EXPECT_EQ(child_->Ask("plugin libbaton_plugin_plain.so"), "library");  // as it asked for
  child_->Send("plugin libbaton_plugin_outer.so");
  EXPECT_TRUE(child_->Silent(50));
  ASSERT_TRUE(backend_->WaitPhase(Phase::kWaiting));
  backend_->SendToken(1, 1, 60'000 * kMs);
  EXPECT_EQ(child_->Read(), "0");
  EXPECT_EQ(Count(), 1u);
}

}  // namespace
}  // namespace baton::hook
