// What clients may say about memory that moves, true or not.
#include "tests/backend/batond_fixture.h"

namespace baton::backend {
namespace {

constexpr uint64_t kMiB = 1 << 20;

class BatondSwap : public Batond {
 protected:
  std::string SwapPod(const std::string& name, uint64_t request_mib = 0) {
    return Pod(name, 10,
               {{"swap", true},
                {"memory", 2048 * kMiB},
                {"memory_request", request_mib == 0 ? json() : json(request_mib * kMiB)}});
  }
  // Charges so much, all of which can move.
  static std::optional<wire::MemoryReply> Take(ScriptedClient& client, uint64_t mib,
                                               uint64_t movable_mib) {
    static uint64_t request = 0;
    wire::Memory memory;
    memory.request = ++request;
    memory.total = mib * kMiB;
    memory.movable = movable_mib * kMiB;
    client.Send(memory);
    return client.Await<wire::MemoryReply>();
  }
  static void Say(ScriptedClient& client, Phase phase, uint64_t in_mib, uint64_t wanted_mib) {
    client.state.movable_in = in_mib * kMiB;
    client.state.memory_wanted = wanted_mib * kMiB;
    client.Report(phase);
  }
  // What the client was asked to keep so far, in MiB; nothing where it was not asked.
  static std::optional<uint64_t> Keeps(ScriptedClient& client) {
    // A question whose answer comes after whatever was sent before.
    std::optional<uint64_t> keep;
    wire::Memory memory;
    memory.request = UINT64_MAX;
    memory.total = 1024 * kMiB;
    memory.movable = 1024 * kMiB;
    client.Send(memory);
    for (;;) {
      const auto bytes = client.Receive(ScriptedClient::kPatienceMs);
      wire::Frame frame;
      if (frame.Parse(bytes.data(), bytes.size()) != wire::DecodeStatus::kOk) return std::nullopt;
      wire::MakeRoom room;
      wire::MemoryReply reply;
      if (frame.Read(room)) keep = room.keep / kMiB;
      if (frame.Read(reply)) return keep;
    }
  }
  // The same after a moment in which it could have been asked.
  static std::optional<uint64_t> Settled(ScriptedClient& client) {
    poll(nullptr, 0, 100);
    return Keeps(client);
  }
  // The same once it was asked.
  static std::optional<uint64_t> AwaitKeeps(ScriptedClient& client) {
    std::optional<uint64_t> keep;
    for (int i = 0; i < 500 && !(keep = Keeps(client)); ++i) poll(nullptr, 0, 10);
    return keep;
  }
};

TEST_F(BatondSwap, RoomIsMadeOnceForWhoHoldsTheTokenAndAgainNotBeforeASecond) {
  ScriptedClient liar(Socket(), 1), victim(Socket(), 2);
  ASSERT_TRUE(liar.Join(SwapPod("liar"), "GPU-a"));
  ASSERT_TRUE(victim.Join(SwapPod("victim"), "GPU-a"));
  ASSERT_TRUE(Take(victim, 1024, 1024)->granted);
  Say(victim, Phase::kIdle, 1024, 0);
  ASSERT_TRUE(Take(liar, 256, 256)->granted);
  // Without the token nobody moves for it.
  Say(liar, Phase::kIdle, 0, 256);
  EXPECT_EQ(Settled(victim), std::nullopt);
  ASSERT_TRUE(liar.AskUntilGranted());
  Say(liar, Phase::kHolding, 0, 256);
  EXPECT_EQ(AwaitKeeps(victim), 768u) << "as much as is lacking, and no more";
  Say(victim, Phase::kIdle, 768, 0);
  const Instant asked = MonotonicNow();
  std::optional<uint64_t> again;
  for (int i = 0; i < 300 && !again; ++i) {
    // More than it has, too.
    Say(liar, Phase::kHolding, 0, 100'000);
    poll(nullptr, 0, 10);
    again = Keeps(victim);
  }
  EXPECT_EQ(again, 512u);
  EXPECT_GE(MonotonicNow() - asked, std::chrono::milliseconds(900));
}

// A program that allocates piece by piece would get one piece per turn otherwise, and all of them
// would stand still while a turn lasts.
TEST_F(BatondSwap, WhoLacksRoomAgainInItsTurnComesBeforeWhoWaits) {
  ScriptedClient grows(Socket(), 1), waits(Socket(), 2);
  ASSERT_TRUE(grows.Join(SwapPod("grows"), "GPU-a"));
  ASSERT_TRUE(waits.Join(SwapPod("waits"), "GPU-a"));
  ASSERT_TRUE(Take(waits, 1024, 1024)->granted);
  ASSERT_TRUE(Take(grows, 512, 512)->granted);
  Say(waits, Phase::kIdle, 1024, 0);
  ASSERT_TRUE(grows.AskUntilGranted());
  Say(grows, Phase::kHolding, 256, 256);
  EXPECT_EQ(AwaitKeeps(waits), 768u);
  Say(waits, Phase::kIdle, 768, 0);
  // Until it says again what it lacks, there is no reason to move more. That moving takes so long
  // makes its turn longer than a second.
  EXPECT_EQ(Settled(waits), std::nullopt);
  poll(nullptr, 0, 50);
  Say(grows, Phase::kHolding, 512, 0);
  const Instant began = MonotonicNow();
  // The other one needs its room, and has waited for it before the next piece comes.
  Say(waits, Phase::kWaiting, 768, 256);
  poll(nullptr, 0, 30);
  ASSERT_TRUE(Take(grows, 768, 768)->granted);
  Say(grows, Phase::kHolding, 512, 256);
  EXPECT_EQ(AwaitKeeps(waits), 512u);
  EXPECT_LT(MonotonicNow() - began, std::chrono::milliseconds(1400)) << "after its turn";
}

// Who prepares its next batch on the processors for a moment would have all of it moved, twice.
TEST_F(BatondSwap, APauseInItsTurnCostsAPodItsRoomOnlyIfItIsLongerThanMovingTook) {
  ScriptedClient pauses(Socket(), 1), waits(Socket(), 2);
  ASSERT_TRUE(pauses.Join(SwapPod("pauses"), "GPU-a"));
  ASSERT_TRUE(waits.Join(SwapPod("waits"), "GPU-a"));
  ASSERT_TRUE(Take(waits, 1024, 1024)->granted);
  ASSERT_TRUE(Take(pauses, 1024, 1024)->granted);
  Say(waits, Phase::kIdle, 1024, 0);
  ASSERT_TRUE(pauses.AskUntilGranted());
  Say(pauses, Phase::kHolding, 512, 512);
  EXPECT_EQ(AwaitKeeps(waits), 512u);
  poll(nullptr, 0, 500);
  Say(waits, Phase::kIdle, 512, 0);
  Say(pauses, Phase::kHolding, 1024, 0);
  const Instant idle = MonotonicNow();
  ASSERT_TRUE(waits.Ask());
  ASSERT_TRUE(Eventually([&] {
    pauses.HasGrantNow();  // its token may have been prolonged
    Say(pauses, Phase::kIdle, 1024, 0);
    return waits.HasGrantNow();
  }));
  std::optional<uint64_t> keep;
  while (!keep && MonotonicNow() - idle < std::chrono::seconds(10)) {
    Say(waits, Phase::kHolding, 512, 512);
    poll(nullptr, 0, 10);
    keep = Keeps(pauses);
  }
  EXPECT_EQ(keep, 512u);
  EXPECT_GE(MonotonicNow() - idle, std::chrono::milliseconds(490));
  EXPECT_LT(MonotonicNow() - idle, std::chrono::milliseconds(4000)) << "its turn is ten times that";
}

TEST_F(BatondSwap, ThePodThatHoldsTheTokenAndAPodsRequestAreNotMoved) {
  ScriptedClient asker(Socket(), 1), victim(Socket(), 2);
  ASSERT_TRUE(asker.Join(SwapPod("asker"), "GPU-a"));
  ASSERT_TRUE(victim.Join(SwapPod("victim", 900), "GPU-a"));
  ASSERT_TRUE(Take(victim, 1024, 1024)->granted);
  ASSERT_TRUE(Take(asker, 256, 256)->granted);
  Say(victim, Phase::kIdle, 1024, 0);
  ASSERT_TRUE(asker.Ask() && asker.AwaitGrant());
  Say(asker, Phase::kHolding, 0, 256);
  EXPECT_EQ(Settled(victim), std::nullopt) << "60 MiB would be too little";
  Say(asker, Phase::kHolding, 210, 46);
  EXPECT_EQ(AwaitKeeps(victim), 978u);
}

TEST_F(BatondSwap, ThePinnedMemoryOfANodeStaysWithinItsBudget) {
  ASSERT_EQ(daemon_.Stop(), 0);
  Configure("[memory]\nswap_budget_mib = 300\n");
  ASSERT_TRUE(daemon_.Start()) << daemon_.Log();
  ScriptedClient a(Socket(), 1), b(Socket(), 2);
  ASSERT_TRUE(a.Join(SwapPod("a", 100), "GPU-a"));
  ASSERT_TRUE(b.Join(SwapPod("b"), "GPU-a"));
  EXPECT_TRUE(Take(a, 300, 300)->granted) << "200 MiB of it may move";
  const auto refused = Take(b, 101, 101);
  EXPECT_FALSE(refused->granted);
  EXPECT_TRUE(refused->host_full);
  EXPECT_TRUE(Take(b, 100, 100)->granted);
  EXPECT_TRUE(Take(b, 500, 100)->granted) << "what stays on the GPU needs none";
  EXPECT_FALSE(Take(a, 301, 301)->granted);
}

TEST_F(BatondSwap, APodWithoutWorkForLongIsSwappedOutUntilItWorksAgain) {
  ASSERT_EQ(daemon_.Stop(), 0);
  Configure("[memory]\nidle_release = \"400ms\"\nswap_budget_mib = 600\n");
  ASSERT_TRUE(daemon_.Start()) << daemon_.Log();
  ScriptedClient notebook(Socket(), 1), busy(Socket(), 2);
  ASSERT_TRUE(notebook.Join(SwapPod("notebook", 100), "GPU-a"));
  ASSERT_TRUE(busy.Join(SwapPod("busy"), "GPU-a"));
  // Its request moves too, so that counts against the budget.
  EXPECT_FALSE(Take(notebook, 601, 601)->granted);
  ASSERT_TRUE(Take(notebook, 512, 512)->granted);
  ASSERT_TRUE(Take(busy, 64, 64)->granted);
  Say(notebook, Phase::kIdle, 512, 0);
  const Instant idle = MonotonicNow();
  std::optional<wire::MakeRoom> ask;
  while (!ask && MonotonicNow() - idle < std::chrono::seconds(10)) {
    Say(busy, Phase::kWaiting, 64, 0);  // has work, and waits for ever
    const auto bytes = notebook.Receive(10);
    wire::Frame frame;
    wire::MakeRoom room;
    if (frame.Parse(bytes.data(), bytes.size()) == wire::DecodeStatus::kOk && frame.Read(room)) {
      ask = room;
    }
  }
  ASSERT_TRUE(ask);
  EXPECT_EQ(ask->keep, 0u);
  EXPECT_GE(MonotonicNow() - idle, std::chrono::milliseconds(390));
  EXPECT_FALSE(PodStatus("notebook").at("memory_released")) << "it is still there";
  Say(notebook, Phase::kIdle, 0, 0);
  EXPECT_TRUE(Eventually([&] { return PodStatus("notebook").at("memory_released") == true; }));
  EXPECT_EQ(PodStatus("notebook").at("memory_swapped"), 512 * kMiB);
  EXPECT_NE(Batond::Say({{"command", "explain"}, {"pod", "notebook"}}).dump().find("idle_release"),
            std::string::npos);
  EXPECT_NE(Status().at("events").dump().find("pod notebook has had no work for"),
            std::string::npos);
  EXPECT_FALSE(PodStatus("busy").at("memory_released"));

  // What it has not moved by then it keeps.
  Say(notebook, Phase::kWaiting, 0, 0);
  EXPECT_TRUE(Eventually([&] { return PodStatus("notebook").at("memory_released") == false; }));
  EXPECT_NE(Status().at("events").dump().find("pod notebook works again"), std::string::npos);
}

TEST_F(BatondSwap, AReleaseThatIsUnderWayEndsWhenThePodWorks) {
  ASSERT_EQ(daemon_.Stop(), 0);
  Configure("[memory]\nidle_release = \"100ms\"\n");
  ASSERT_TRUE(daemon_.Start()) << daemon_.Log();
  ScriptedClient notebook(Socket(), 1);
  ASSERT_TRUE(notebook.Join(SwapPod("notebook"), "GPU-a"));
  ASSERT_TRUE(Take(notebook, 512, 512)->granted);
  Say(notebook, Phase::kIdle, 512, 0);
  ASSERT_EQ(notebook.Await<wire::MakeRoom>()->keep, 0u);
  Say(notebook, Phase::kWaiting, 300, 0);
  std::optional<wire::MakeRoom> last;
  do {
    last = notebook.Await<wire::MakeRoom>();
  } while (last && last->keep == 0);
  ASSERT_TRUE(last);
  EXPECT_EQ(last->keep, UINT64_MAX);
}

TEST_F(BatondSwap, WhatSwapDoesNotGoWithIsRefusedWithASentence) {
  const auto refusal = [&](json more) {
    more.update({{"command", "create_pod"}, {"name", "p"}, {"request", 10}});
    return Batond::Say(more).value("error", "");
  };
  EXPECT_NE(refusal({{"memory_request", 100}}).find("a memory request needs swap"),
            std::string::npos);
  EXPECT_NE(refusal({{"swap", true}, {"count", 2}}).find("one GPU"), std::string::npos);
  EXPECT_NE(refusal({{"swap", true}, {"gang", "g"}}).find("in no gang"), std::string::npos);
  EXPECT_NE(refusal({{"swap", true}, {"mode", "exclusive"}}).find("needs mode time-slice"),
            std::string::npos);
  EXPECT_NE(refusal({{"swap", true}, {"memory", "50%"}}).find("in bytes"), std::string::npos);
  EXPECT_NE(refusal({{"swap", true}, {"memory", 100}, {"memory_request", 200}}).find("above"),
            std::string::npos);
}

}  // namespace
}  // namespace baton::backend
