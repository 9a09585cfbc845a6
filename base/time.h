// Strong types for time. A core never reads a clock: it takes `now` as an argument. Only the
// edges (an event loop, the hook's client thread) call MonotonicNow().
//
// Header only and free of the C++ runtime library, so the hook may use it.
#ifndef BATON_BASE_TIME_H_
#define BATON_BASE_TIME_H_

#include <time.h>

#include <chrono>
#include <cstdint>

namespace baton {

// A length of time in integer nanoseconds; ±292 years.
using Duration = std::chrono::nanoseconds;

// The node's monotonic clock (CLOCK_MONOTONIC). Comparable between processes of one machine only.
struct MonotonicClock {
  using duration = Duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<MonotonicClock>;
  static constexpr bool is_steady = true;
};

// A point on the node's monotonic clock.
using Instant = MonotonicClock::time_point;

// A point that no clock reaches: "no timer".
inline constexpr Instant kNever = Instant::max();

inline Instant MonotonicNow() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return Instant(Duration(t.tv_sec * INT64_C(1'000'000'000) + t.tv_nsec));
}

constexpr int64_t Nanos(Duration d) { return d.count(); }
constexpr int64_t Nanos(Instant t) { return t.time_since_epoch().count(); }
// Times as they come from outside; beyond 36 years they are taken for that, so that sums stay in
// range.
constexpr Duration DurationFromNanos(uint64_t ns) {
  constexpr uint64_t kMax = uint64_t{1} << 60;
  return Duration(static_cast<int64_t>(ns < kMax ? ns : kMax));
}
constexpr Instant InstantFromNanos(int64_t ns) { return Instant(Duration(ns)); }

}  // namespace baton

#endif  // BATON_BASE_TIME_H_
