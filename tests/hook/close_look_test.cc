#include "hook/close_look.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

namespace baton::hook {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kBefore = microseconds(60);

TEST(Pause, GrowsWhileItGoesOnGoingWrong) {
  Pause pause;
  Instant now{hours(1)};
  EXPECT_LT(pause.end(), now);
  Duration sum{0};
  for (int i = 0; i < 20; ++i) {
    pause.Add(now);
    EXPECT_GE(pause.end() - now, Pause::kMin);
    EXPECT_LE(pause.end() - now, Pause::kMax);
    sum += pause.end() - now;
    now = pause.end() + microseconds(1);  // tried again at once, and wrong again
  }
  EXPECT_EQ(pause.end() - (now - Pause::kMax), microseconds(-1) + Pause::kMax);
  EXPECT_GT(sum, 13 * Pause::kMax);
  now += 3 * Pause::kMax;
  pause.Add(now);
  EXPECT_EQ(pause.end() - now, Pause::kMin) << "it had gone well for long";
}

TEST(Pause, OfThingsThatRarelyGoWrongIsShort) {
  Pause pause;
  Instant now{hours(1)};
  for (int i = 0; i < 20; ++i, now += 3 * Pause::kMin) {
    pause.Add(now);
    EXPECT_EQ(pause.end() - now, Pause::kMin);
  }
}

TEST(Lateness, IsHighWhereThreadsAreOftenLate) {
  Lateness lateness;
  Instant now{hours(1)};
  EXPECT_FALSE(lateness.High(now));
  lateness.Add(now, milliseconds(3));
  EXPECT_FALSE(lateness.High(now)) << "once";
  // 2 % of the time, which others take in moments of 1 ms.
  for (int i = 0; i < 40; ++i, now += milliseconds(50)) lateness.Add(now, milliseconds(1));
  EXPECT_TRUE(lateness.High(now)) << "2 %";
  for (int i = 0; i < 1000; ++i, now += milliseconds(50)) {
    lateness.Add(now, milliseconds(1));
    EXPECT_TRUE(lateness.High(now));
  }
}

TEST(Lateness, OfAMomentNowAndThenDoesNotLastBecauseItWasHighOnce) {
  Lateness lateness;
  Instant now{hours(1)};
  for (int i = 0; i < 100; ++i, now += milliseconds(10)) lateness.Add(now, milliseconds(4));
  EXPECT_TRUE(lateness.High(now));
  now += (Lateness::kMost - Lateness::kHigh) * Lateness::kLeak;
  EXPECT_FALSE(lateness.High(now));
  // 0.3 %.
  now += seconds(1);
  for (int i = 0; i < 1000; ++i, now += seconds(1)) {
    lateness.Add(now, milliseconds(3));
    EXPECT_FALSE(lateness.High(now)) << i;
  }
}

TEST(Lateness, OfAStoppedProcessCountsOnce) {
  Lateness lateness;
  const Instant now{hours(1)};
  lateness.Add(now, hours(1));
  EXPECT_TRUE(lateness.High(now));
  EXPECT_FALSE(lateness.High(now + (Lateness::kMost - Lateness::kHigh) * Lateness::kLeak));
}

TEST(CloseLook, LooksAtNothingThatIsFar) {
  CloseLook close_look(kBefore);
  int looks = 0;
  for (const Duration away : {milliseconds(5), milliseconds(-5)}) {
    const Instant expected = MonotonicNow() + away;
    EXPECT_TRUE(close_look.Around([&] { return expected; }, [&] { return ++looks > 0; }));
  }
  EXPECT_EQ(looks, 0);
}

// Looking would keep off whoever is waited for.
TEST(CloseLook, IsNotForOneProcessor) {
  int looks = 0;
  std::thread([&looks] {
    cpu_set_t mine, one;
    ASSERT_EQ(sched_getaffinity(0, sizeof mine, &mine), 0);
    int first = 0;
    while (!CPU_ISSET(first, &mine)) ++first;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_FALSE(SeveralProcessors());
    CloseLook close_look(kBefore);
    for (int tries = 0; tries < 20; ++tries) {
      const Instant expected = MonotonicNow() + microseconds(20);
      EXPECT_TRUE(close_look.Around([&] { return expected; }, [&] { return ++looks > 0; }));
    }
  }).join();
  EXPECT_EQ(looks, 0);
}

// Beside other programs a look may not be tried, or come late.
constexpr int kTries = 200;

TEST(CloseLook, EndsWithWhatItLooksFor) {
  if (!SeveralProcessors()) GTEST_SKIP() << "on one processor nobody looks closely";
  for (int tries = 0; tries < kTries; ++tries) {
    CloseLook close_look(kBefore);
    int looks = 0;
    const Instant expected = MonotonicNow() + microseconds(10);
    const bool goes_on = close_look.Around([&] { return expected; }, [&] { return ++looks < 3; });
    EXPECT_EQ(goes_on, looks < 3);
    if (goes_on) continue;
    EXPECT_EQ(close_look.Begins(expected + hours(1)), expected + hours(1) - kBefore);
    return;
  }
  FAIL() << "it never looked thrice";
}

TEST(CloseLook, AfterOneInVainTheNextIsNotTried) {
  if (!SeveralProcessors()) GTEST_SKIP() << "on one processor nobody looks closely";
  for (int tries = 0; tries < kTries; ++tries) {
    CloseLook close_look(kBefore);
    int looks = 0;
    const Instant expected = MonotonicNow() - CloseLook::kAfter + microseconds(30);
    EXPECT_TRUE(close_look.Around([&] { return expected; }, [&] { return ++looks > 0; }));
    if (looks == 0 || MonotonicNow() < expected + CloseLook::kAfter) continue;
    looks = 0;
    const Instant next = MonotonicNow();
    EXPECT_EQ(close_look.Begins(next), kNever);
    EXPECT_TRUE(close_look.Around([&] { return next; }, [&] { return ++looks > 0; }));
    EXPECT_EQ(looks, 0);
    return;
  }
  FAIL() << "it never looked to the end";
}

}  // namespace
}  // namespace baton::hook
