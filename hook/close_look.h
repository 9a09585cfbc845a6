// Looking at something without a pause around the instant at which it is expected. A thread that
// sleeps instead wakes up late, by tens of microseconds on another processor.
//
// Not where it does harm. On one processor, or where others want all of them, a thread that looks
// keeps off those for whom it waits, and has used up its slice when it is its turn: one that sleeps
// until the instant comes sooner to run.
#ifndef BATON_HOOK_CLOSE_LOOK_H_
#define BATON_HOOK_CLOSE_LOOK_H_

#include <atomic>

#include "hook/spin_budget.h"

namespace baton::hook {

// Whether this thread may run on several processors.
bool SeveralProcessors();

// Until when something that went wrong is not tried again: ever longer if it goes on going wrong.
// Thread safe; of several that add at once some may count as one.
class Pause {
 public:
  static constexpr Duration kMin = std::chrono::milliseconds(20);
  static constexpr Duration kMax = std::chrono::seconds(1);

  Instant end() const { return InstantFromNanos(end_.load(std::memory_order_relaxed)); }
  // It went wrong. Soon after the last pause: this one is twice as long.
  void Add(Instant now) {
    const Duration last(length_.load(std::memory_order_relaxed));
    const Duration length = now > end() + last ? kMin : last * 2 < kMax ? last * 2 : kMax;
    length_.store(length.count(), std::memory_order_relaxed);
    end_.store(Nanos(now + length), std::memory_order_relaxed);
  }

 private:
  std::atomic<int64_t> end_{0};
  std::atomic<int64_t> length_{0};
};

// How much of the time of late a process's threads were kept from a processor when they were to
// run: a bucket that leaks half a percent of the time that passes. A machine that is quiet but for
// a moment now and then does not fill it, however often it was full before. Thread safe; of several
// that add at once some may count as one.
class Lateness {
 public:
  static constexpr Duration kHigh = std::chrono::milliseconds(4);  // a tick of a clock
  static constexpr Duration kMost = std::chrono::milliseconds(8);
  static constexpr int kLeak = 200;

  void Add(Instant now, Duration late) {
    Duration level = Level(now) + (late < kMost ? late : kMost);
    if (level > kMost) level = kMost;
    empty_.store(Nanos(now + level * kLeak), std::memory_order_relaxed);
  }
  // Whether it is more than half a percent of the time.
  bool High(Instant now) const { return Level(now) > kHigh; }

 private:
  Duration Level(Instant now) const {
    const Duration left = InstantFromNanos(empty_.load(std::memory_order_relaxed)) - now;
    return left > Duration(0) ? left / kLeak : Duration(0);
  }

  std::atomic<int64_t> empty_{0};
};

// One thread uses it at a time.
class CloseLook {
 public:
  // From `before` before the instant until so long after it, and for no more in one go.
  static constexpr Duration kAfter = std::chrono::microseconds(50);
  static constexpr Duration kMost = std::chrono::microseconds(200);

  explicit CloseLook(Duration before) : before_(before) {}

  // When to begin, for something that is expected then; kNever: it is not to be looked at closely.
  Instant Begins(Instant expected) const {
    return Paused(expected - before_) ? kNever : expected - before_;
  }
  // Calls `look` again and again, until it is false, while the instant is near and the budget
  // lasts. `expected` says when it is expected, as far as is known now. False: `look` was false.
  template <class Expected, class Look>
  bool Around(Expected expected, Look look) {
    const Instant from = MonotonicNow();
    const Duration left = budget_.Left(from);
    const Duration most = left < kMost ? left : kMost;
    Instant now = from;
    const auto near = [&] {
      const Instant at = expected();
      return now >= at - before_ && now < at + kAfter && now - from < most;
    };
    if (Paused(now) || !near() || !SeveralProcessors()) return true;
    bool goes_on = true;
    while (near() && (goes_on = look())) {
      const Instant before = now;
      now = MonotonicNow();
      RanLate(before, now);
    }
    now = MonotonicNow();
    budget_.Spend(now, now - from);
    if (goes_on && now >= expected() + kAfter) in_vain_.Add(now);
    return goes_on;
  }

  // A thread of this process was to run at `due`, and ran `now`. Late: somebody else had the
  // processor meanwhile.
  static void RanLate(Instant due, Instant now) {
    if (now - due > kLate) lateness_.Add(now, now - due);
  }
  // Whether that happens so often that no thread of this process is to look closely.
  static bool Late(Instant now) { return lateness_.High(now); }

 private:
  static constexpr Duration kLate = std::chrono::microseconds(500);

  bool Paused(Instant at) const { return at < in_vain_.end() || Late(at); }

  static inline Lateness lateness_;
  Pause in_vain_;
  SpinBudget budget_;
  const Duration before_;
};

}  // namespace baton::hook

#endif  // BATON_HOOK_CLOSE_LOOK_H_
