// The whole of libbaton.so: memory, its cap, and what is charged and credited.
#include <chrono>
#include <thread>

#include "tests/hook/process_fixture.h"

namespace baton::hook {
namespace {

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

TEST_F(HookProcess, TheFirstGenerationOfCallsIsCappedAndGatedToo) {
  StartBackend();
  backend_->SetMemoryCap(1000);
  StartChild();
  ASSERT_EQ(child_->Ask("init"), "0");
  const std::string first = child_->Ask("alloc-v1 700");
  ASSERT_EQ(first.substr(0, 2), "0 ");
  EXPECT_EQ(child_->Ask("alloc-v1 301").substr(0, 2), "2 ");
  EXPECT_EQ(child_->Ask("meminfo-v1"), "300 1000");
  EXPECT_EQ(child_->Ask("free-v1 " + first.substr(2)), "0");
  EXPECT_EQ(child_->Ask("meminfo-v1"), "1000 1000");
  child_->Send("set-v1 1000");
  ASSERT_TRUE(backend_->WaitPhase(Phase::kWaiting));
  EXPECT_TRUE(child_->Silent(20));
  EXPECT_EQ(backend_->memory_total(), 0u);
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

TEST_F(HookProcess, WhatIsLeftIsWhatOtherProcessesOfThePodLeave) {
  StartBackend();
  backend_->SetMemoryCap(1000);
  backend_->SetMemoryOfOthers(300);
  StartChild();
  ASSERT_EQ(child_->Ask("init"), "0");
  EXPECT_EQ(child_->Ask("meminfo"), "700 1000");
  ASSERT_EQ(child_->Ask("alloc 200").substr(0, 2), "0 ");
  backend_->SetMemoryOfOthers(0);  // they have ended
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(child_->Ask("meminfo"), "800 1000");
  // Nobody is refused anything in a pod that has more than its cap.
  backend_->SetMemoryOfOthers(900);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(child_->Ask("meminfo"), "0 1000");
  EXPECT_EQ(backend_->memory_refusals(), 0);
  EXPECT_EQ(backend_->memory_total(), 200u);
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

TEST_F(HookProcess, WhatTheDriverTakesBackWhileTheProgramWaitsIsCreditedAtOnce) {
  StartBackend();
  backend_->SetMemoryCap(1000);
  StartChild();
  ASSERT_EQ(child_->Ask("init"), "0");
  for (const char* wait : {"stream", "event", "context", "v2"}) {
    const std::string first = child_->Ask("alloc-async 700");
    ASSERT_EQ(child_->Ask("free-async " + first.substr(2)), "0");
    EXPECT_EQ(backend_->memory_total(), 700u) << wait;  // the pool has it
    ASSERT_EQ(child_->Ask(std::string("sync ") + wait), "0");
    // The process does nothing any more, and another one of the pod can have it.
    EXPECT_TRUE(Becomes(0)) << wait << ": " << backend_->memory_total();
  }
}

TEST_F(HookProcess, MemoryThatMovesIsFreedAfterACaptureIfOneIsUnderWay) {
  constexpr uint64_t kBlock = 2 << 20;
  StartBackend();
  backend_->SetIdle(60'000 * kMs);
  StartChild({{"BATON_SWAP", "1"}});
  ASSERT_EQ(child_->Ask("init"), "0");
  ASSERT_EQ(child_->Ask("stream").substr(0, 2), "0 ");
  const std::string first = child_->Ask("alloc 2000000").substr(2);
  const std::string second = child_->Ask("alloc 2000000").substr(2);
  const std::string third = child_->Ask("alloc 2000000").substr(2);
  ASSERT_EQ(backend_->memory_total(), 3 * kBlock);
  backend_->SetAutoQuota(60'000 * kMs);
  ASSERT_EQ(child_->Ask("launch 50000000"), "0");
  ASSERT_EQ(child_->Ask("capture"), "0");
  EXPECT_EQ(child_->Ask("free " + first), "0");
  EXPECT_EQ(child_->Ask("free " + first), "1");  // it is free
  EXPECT_EQ(child_->Ask("free " + second), "0");
  EXPECT_EQ(child_->Ask("end-capture"), "0");
  EXPECT_EQ(backend_->memory_total(), 3 * kBlock);
  EXPECT_EQ(child_->Ask("free " + third), "0");  // waits for the kernel, and the others go too
  EXPECT_TRUE(Becomes(0)) << backend_->memory_total();
  EXPECT_EQ(child_->Ask("mistakes"), "0");
}

TEST_F(HookProcess, MemoryThatMovesAndWasFreedInACaptureIsGivenBackWithoutMoreCalls) {
  StartBackend();
  backend_->SetAutoQuota(60'000 * kMs);
  StartChild({{"BATON_SWAP", "1"}});
  ASSERT_EQ(child_->Ask("init"), "0");
  ASSERT_EQ(child_->Ask("stream").substr(0, 2), "0 ");
  const std::string first = child_->Ask("alloc 2000000").substr(2);
  ASSERT_EQ(child_->Ask("launch 1000000"), "0");
  ASSERT_EQ(child_->Ask("capture"), "0");
  ASSERT_EQ(child_->Ask("free " + first), "0");
  ASSERT_EQ(child_->Ask("end-capture"), "0");
  EXPECT_TRUE(Becomes(0)) << backend_->memory_total();
  EXPECT_EQ(child_->Ask("mistakes"), "0");
}

TEST_F(HookProcess, StacksAreChargedForAllThreadsThatTheDeviceCanHave) {
  StartBackend();
  backend_->SetMemoryCap(1000);
  StartChild();
  ASSERT_EQ(child_->Ask("init"), "0");
  const std::string stack = "limit stack ";
  // Of a device with 2 multiprocessors of 5 threads, whose contexts have 1000 bytes for each.
  EXPECT_EQ(child_->Ask(stack + "1090"), "0");
  EXPECT_EQ(child_->Ask("meminfo"), "100 1000");
  EXPECT_EQ(child_->Ask(stack + "1101"), "2");
  EXPECT_EQ(child_->Ask("meminfo"), "100 1000");
  const std::string heap = "limit heap ";
  EXPECT_EQ(child_->Ask(heap + "1100"), "0");
  EXPECT_EQ(child_->Ask("meminfo"), "0 1000");
  EXPECT_EQ(child_->Ask(stack + "1000"), "0");
  EXPECT_EQ(child_->Ask("meminfo"), "900 1000");
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
