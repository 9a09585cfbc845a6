#include "world/rule.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "policy/fair_queue.h"

namespace baton::world {
namespace {

using policy::FairQueue;
using policy::FairQueueOptions;
using policy::kMillion;
using policy::kShareMin;
using policy::kWhole;
using policy::Priority;
using policy::Share;
using policy::ShareSpec;
using policy::Slot;
using policy::Standing;
using policy::Validated;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(Rule, NamesAreReadAsTheyAreWritten) {
  for (const Rule rule : kRules) EXPECT_EQ(ParseRule(FormatRule(rule)).value(), rule);
  EXPECT_EQ(ParseRule("earliest-finish").value(), Rule::kEarliestFinish);
  EXPECT_EQ(ParseRule("largest-lag").value(), Rule::kLargestLag);
  EXPECT_EQ(ParseRule("start-time").value(), Rule::kStartTime);
  EXPECT_EQ(ParseRule("window").value(), Rule::kWindow);
  const auto bad = ParseRule("fifo");
  ASSERT_FALSE(bad);
  EXPECT_NE(bad.error().message.find("earliest-finish, largest-lag, start-time, window"),
            std::string::npos);
}

TEST(Rule, EachRuleGoesByWhatItsNameSays) {
  const Standing base{.id = PodId{1}, .fluid = Share(1), .fluid_sum = Share(3)};
  const auto with = [&](auto change) {
    Standing s = base;
    s.id = PodId{2};
    change(s);
    return s;
  };
  const auto first = [](Rule rule, const Standing& a, const Standing& b) {
    RuleOrder order(rule);
    // A window in which only a third pod has held: who is entitled to more lacks more of it.
    order.Charged(PodId{3}, Duration(3));
    EXPECT_NE(order.GoesBefore(a, b), order.GoesBefore(b, a));
    return order.GoesBefore(a, b);
  };
  const Standing lag = with([](Standing& s) { s.lag_ns = 1; });
  const Standing early = with([](Standing& s) { s.eligible = -1; });
  const Standing soon = with([](Standing& s) { s.finish = -1; });
  const Standing unused = with([](Standing& s) { s.fluid = Share(2); });
  const Standing owed = with([](Standing& s) { s.owed = true; });
  for (const Rule rule : kRules) {
    EXPECT_EQ(first(rule, lag, base), rule == Rule::kLargestLag);
    EXPECT_EQ(first(rule, early, base), rule == Rule::kStartTime || rule == Rule::kEarliestFinish);
    EXPECT_FALSE(first(rule, soon, base) && rule != Rule::kEarliestFinish);
    EXPECT_EQ(first(rule, unused, base), rule == Rule::kWindow);
    EXPECT_EQ(first(rule, owed, base), rule == Rule::kEarliestFinish);
  }
  const auto both_owed = [](Standing s) {
    s.owed = true;
    return s;
  };
  EXPECT_TRUE(first(Rule::kEarliestFinish, both_owed(soon), both_owed(base)));
  EXPECT_FALSE(first(Rule::kEarliestFinish, both_owed(early), both_owed(base)));
}

// A queue of pods that always wait, holding for as long as they are predicted to.
class Busy {
 public:
  explicit Busy(Rule rule) : queue({.order = OrderOf(rule)}) {}
  Slot Add(uint32_t percent, Duration burst, bool active = true) {
    const auto spec = Validated({.request = kWhole * percent / 100, .limit = kWhole});
    const Slot slot = queue.Add(PodId{++pods_}, spec.value(), now);
    bursts_.resize(std::max<size_t>(bursts_.size(), slot + 1));
    held.resize(bursts_.size());
    bursts_[slot] = burst;
    held[slot] = Duration(0);
    if (active) Wake(slot);
    return slot;
  }
  void Wake(Slot slot) {
    queue.SetActive(slot, true);
    queue.SetWaiting(slot, true, bursts_[slot]);
  }
  Slot Serve() {
    const Slot slot = queue.Pick(now).value();
    now += bursts_[slot];
    held[slot] += bursts_[slot];
    queue.Charge(slot, bursts_[slot], now);
    return slot;
  }
  void RunUntil(Duration end) {
    while (now < Instant(end)) Serve();
  }

  FairQueue queue;
  Instant now{};
  std::vector<Duration> held;

 private:
  std::vector<Duration> bursts_;
  uint64_t pods_ = 0;
};

TEST(Rule, EveryRuleGivesSaturatingPodsTheirSharesInTheLongRun) {
  for (const Rule rule : kRules) {
    SCOPED_TRACE(FormatRule(rule));
    Busy gpu(rule);
    const Slot a = gpu.Add(60, milliseconds(20));
    const Slot b = gpu.Add(30, milliseconds(10));
    const Slot c = gpu.Add(10, milliseconds(30));
    gpu.RunUntil(seconds(60));
    EXPECT_NEAR(static_cast<double>(Nanos(gpu.held[a])) / 60e9, 0.60, 0.002);
    EXPECT_NEAR(static_cast<double>(Nanos(gpu.held[b])) / 60e9, 0.30, 0.002);
    EXPECT_NEAR(static_cast<double>(Nanos(gpu.held[c])) / 60e9, 0.10, 0.002);
  }
}

TEST(Rule, AWindowLetsAReturningSleeperOwnTheGpuForSecondsAndTheOthersDoNot) {
  for (const Rule rule : kRules) {
    SCOPED_TRACE(FormatRule(rule));
    Busy gpu(rule);
    const Slot busy = gpu.Add(50, milliseconds(20));
    const Slot sleeper = gpu.Add(50, milliseconds(20), false);
    gpu.RunUntil(seconds(20));
    gpu.Wake(sleeper);
    const Duration before = gpu.held[busy];
    gpu.RunUntil(milliseconds(24'900));
    const Duration had = gpu.held[busy] - before;
    // Half of 10 s is what the window says it lacks; half of 250 ms is the credit.
    if (rule == Rule::kWindow) {
      EXPECT_EQ(had, Duration(0));
    } else {
      EXPECT_GE(had, milliseconds(2450 - 125 - 20));
    }
  }
}

TEST(Rule, AWindowForgetsWhatWasHeldBeforeIt) {
  Busy gpu(Rule::kWindow);
  gpu.Add(50, milliseconds(20));
  gpu.RunUntil(seconds(100));
  const Slot b = gpu.Add(50, milliseconds(20));
  gpu.RunUntil(milliseconds(104'980));
  EXPECT_EQ(gpu.held[b], milliseconds(4980)) << "until it has half of the last 10 s";
}

TEST(Rule, AWindowIsEmptyForAPodThatTakesTheSlotOfOneRemoved) {
  Busy gpu(Rule::kWindow);
  const Slot gone = gpu.Add(50, milliseconds(20));
  gpu.RunUntil(seconds(100));
  const Slot b = gpu.Add(50, milliseconds(20));
  gpu.RunUntil(seconds(105));
  gpu.queue.Remove(gone);
  const Slot c = gpu.Add(50, milliseconds(20));
  ASSERT_EQ(c, gone);
  gpu.RunUntil(seconds(114));
  // It goes until it has half of the window; what leaves the window meanwhile was not its own.
  EXPECT_NEAR(static_cast<double>(Nanos(gpu.held[c])) / 1e9, 5, 0.03);
  EXPECT_NEAR(static_cast<double>(Nanos(gpu.held[b])) / 1e9, 9, 0.05);
}

TEST(Rule, WhoMayCutAHolderShortFollowsTheRule) {
  for (const Rule rule : kRules) {
    SCOPED_TRACE(FormatRule(rule));
    Busy gpu(rule);
    const Slot small = gpu.Add(10, milliseconds(20));
    const Slot large = gpu.Add(80, milliseconds(20));
    const Slot ahead = gpu.Add(10, milliseconds(20));
    gpu.queue.Charge(ahead, milliseconds(100), gpu.now);
    // Owed 10 ms and 80 ms of it, alike relative to their shares; their holds are as long.
    EXPECT_EQ(gpu.queue.FinishesBefore(large, small), rule != Rule::kStartTime);
    EXPECT_EQ(gpu.queue.FinishesBefore(small, large), rule == Rule::kStartTime);  // the lower id
    EXPECT_TRUE(gpu.queue.FinishesBefore(small, ahead));
    EXPECT_FALSE(gpu.queue.FinishesBefore(ahead, small));
    gpu.queue.Charge(small, milliseconds(30), gpu.now);
    EXPECT_FALSE(gpu.queue.FinishesBefore(small, ahead)) << "it is not owed anything itself";
  }
}

TEST(Rule, AWindowLetsNobodyCutAHolderForWhatItIsOwedOutsideOfIt) {
  for (const Rule rule : kRules) {
    SCOPED_TRACE(FormatRule(rule));
    Busy gpu(rule);
    const Slot a = gpu.Add(30, milliseconds(20));
    const Slot b = gpu.Add(30, milliseconds(20));
    gpu.queue.Charge(a, seconds(4), gpu.now);
    gpu.queue.Charge(b, seconds(6), gpu.now);
    gpu.Add(30, milliseconds(20));
    // It is owed a second, and has had more than its third of the window: 4 s of 10.
    EXPECT_GE(gpu.queue.Lag(a), milliseconds(900));
    EXPECT_EQ(gpu.queue.FinishesBefore(a, b), rule != Rule::kWindow);
  }
}

// Everything that can happen to a queue, drawn at random: what a test needs to compare two queues.
RC_GTEST_PROP(RuleLaw, TheHeapsOfTheDefaultPickWhatAScanOfAllPodsPicks, ()) {
  FairQueue heaps{FairQueueOptions{}};
  FairQueue scan{{.order = []() -> std::unique_ptr<policy::PickOrder> {
    return std::make_unique<RuleOrder>(Rule::kEarliestFinish);
  }}};
  const auto both = [&](auto&& act) {
    act(heaps);
    act(scan);
  };
  Instant now{};
  uint64_t ids = 0;
  std::vector<Slot> slots;
  const auto any_spec = [] {
    const auto request = *rc::gen::inRange<uint32_t>(kShareMin.millionths(), kMillion / 4);
    const auto limit = *rc::gen::element(request, *rc::gen::inRange<uint32_t>(request, kMillion),
                                         kMillion, kMillion);
    const auto priority =
        *rc::gen::element(Priority::kNormal, Priority::kNormal, Priority::kNormal, Priority::kHigh);
    return *Validated({.request = Share(request), .limit = Share(limit), .priority = priority});
  };
  const auto any_length = [] {  // of all orders of magnitude
    return Duration(*rc::gen::inRange<int64_t>(1, 10) << *rc::gen::inRange(13, 28));
  };
  const auto add = [&] {
    const ShareSpec spec = any_spec();
    ++ids;
    Slot slot = 0;
    both([&](FairQueue& queue) { slot = queue.Add(PodId{ids}, spec, now); });
    slots.push_back(slot);
  };
  for (int i = *rc::gen::inRange(2, 12); i > 0; --i) add();
  Slot last = slots[0];  // to hold
  for (int step = 0; step < 200; ++step) {
    const auto index = *rc::gen::inRange<size_t>(0, slots.size());
    const Slot slot = slots[index];
    const bool active = heaps.fluid().active(slot);
    switch (*rc::gen::inRange(0, 10)) {
      case 0:
        both([&](FairQueue& queue) { queue.SetActive(slot, false); });
        break;
      case 1: {
        const ShareSpec spec = any_spec();
        both([&](FairQueue& queue) { queue.Update(slot, spec, now); });
        break;
      }
      case 2:
        if (active) {
          const bool asks = *rc::gen::arbitrary<bool>();
          both([&](FairQueue& queue) {
            if (!asks) queue.SetWaiting(slot, false, Duration(1));
            queue.CapLag(slot, queue.fluid().Credit(slot));
          });
        }
        break;
      case 3: {
        const Duration held = any_length();
        if (active) both([&](FairQueue& queue) { queue.Charge(slot, held, now); });
        break;
      }
      case 4:
        if (heaps.fluid().active(last)) {  // an estimate was too much
          both([&](FairQueue& queue) { queue.Charge(last, -Duration(1'000'000), now); });
        }
        break;
      case 5:
        if (slots.size() > 1 && *rc::gen::inRange(0, 4) == 0) {
          both([&](FairQueue& queue) { queue.Remove(slot); });
          slots.erase(slots.begin() + static_cast<ptrdiff_t>(index));
          add();
          last = slots[0];
        }
        break;
      default: {
        const Duration burst = any_length();
        both([&](FairQueue& queue) {
          queue.SetActive(slot, true);
          queue.SetWaiting(slot, true, burst);
        });
      }
    }
    const auto picked = heaps.Pick(now);
    RC_ASSERT(picked == scan.Pick(now));
    RC_ASSERT(heaps.NextRefill() == scan.NextRefill());
    const Duration held = any_length();
    now += held;
    if (!picked) continue;
    last = *picked;
    both([&](FairQueue& queue) { queue.Charge(last, held, now); });
  }
}

}  // namespace
}  // namespace baton::world
