// The whole of libbaton.so: streams, captures and contexts, and when their work has ended.
#include "tests/hook/process_fixture.h"

namespace baton::hook {
namespace {

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
  ASSERT_EQ(child_->Ask("query-errors 5 907"), "ok");
  child_->Send("launch 300000000");
  ASSERT_TRUE(backend_->WaitPhase(Phase::kWaiting));
  backend_->SendToken(1, 1, 60'000 * kMs);
  ASSERT_EQ(child_->Read(), "0");
  const auto idle = backend_->WaitPhase(Phase::kIdle);
  ASSERT_TRUE(idle);
  EXPECT_GE(idle->held_ns, 300 * kMs);
}

// After such an error, of the memory or of a link, the program lives on, and its work does not.
// What an event answers that was recorded in a capture is no end at first: see above.
TEST_F(HookProcess, WorkThatNeverEndsKeepsTheTokenFromNobody) {
  for (const char* code : {"214", "226", "700", "911", "907"}) {
    SCOPED_TRACE(code);
    StartIdler();
    ASSERT_EQ(child_->Ask("launch 300000000000"), "0");
    ASSERT_EQ(child_->Ask(std::string("query-errors 1000000 ") + code), "ok");
    EXPECT_LT(Drain(), static_cast<int64_t>(2'000 * kMs));
    child_.reset();
  }
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

// An event costs a program about a microsecond of the driver's time.
TEST_F(HookProcess, FewLaunchesPayForAnEvent) {
#ifdef BATON_SANITIZED
  // What measures a short kernel takes several times as long as the kernel: it counts as longer.
  constexpr double kOfShortLaunches = 0.05;
#else
  constexpr double kOfShortLaunches = 0.03;
#endif
  StartHolder(600'000 * kMs, "burst 20000 1");
  for (const int ns : {1, 1'000, 9'000, 20'000, 100'000}) {
    const int launches = ns < 10'000 ? 10'000 : 1'000;
    const std::string round = "round " + std::to_string(ns) + " " + std::to_string(launches) + " 1";
    double least = 1;  // a machine that stands still is taken for a long kernel
    for (int i = 0; i < 4; ++i) {
      const int before = std::stoi(child_->Ask("records"));
      child_->Ask(round);
      const double events = std::stoi(child_->Ask("records")) - before;
      least = std::min(least, events / launches);
    }
    // Of short ones so many; of others 0.5 % of their time.
    EXPECT_LE(least, ns < 10'000 ? kOfShortLaunches : 0.005 * ns / 1000) << ns;
    EXPECT_GT(least, 0) << ns;
  }
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

// What a graph's kernels launch on the device, and how often its loops go round, the host does not
// know. The driver says that it is over when all of it is.
TEST_F(HookProcess, AGraphIsDrainedWithWhatItLaunchesOnTheDevice) {
  StartBackend();
  backend_->SetIdle(60'000 * kMs);
  StartChild();
  ASSERT_EQ(child_->Ask("init"), "0");
  ASSERT_EQ(child_->Ask("stream").substr(0, 2), "0 ");
  child_->Send("graph 1000 1000");
  ASSERT_TRUE(backend_->WaitPhase(Phase::kWaiting));
  EXPECT_TRUE(child_->Silent(50)) << "went without the token";
  backend_->SendToken(1, 1, 60'000 * kMs);
  ASSERT_EQ(child_->Read(), "0");
  // Short ones, until it is known how long they take; then one whose work on the device is long.
  for (int i = 0; i < 10; ++i) ASSERT_EQ(child_->Ask("graph 1000 1000"), "0");
  ASSERT_EQ(child_->Ask("graph 1000 300000000"), "0");
  EXPECT_GE(Drain(), static_cast<int64_t>(200 * kMs));
}

}  // namespace
}  // namespace baton::hook
