// What a GPU and its pods did lately, for people to look at.
// Not thread safe.
#ifndef BATON_BACKEND_SERIES_H_
#define BATON_BACKEND_SERIES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "wire/messages.h"

namespace baton::backend {

// Shares over the last seconds, from samples of cumulative held and waited time.
class Series {
 public:
  struct Shares {
    double held = 0;  // of the time, 0 to 1
    double waited = 0;
  };
  void Add(Instant now, uint64_t held_ns, uint64_t waited_ns);
  // Over the last `window`, or since the first sample where that is shorter.
  Shares Over(Duration window, Instant now, uint64_t held_ns, uint64_t waited_ns) const;
  static constexpr Duration kEvery = std::chrono::milliseconds(500);

 private:
  struct Sample {
    Instant at{};
    uint64_t held_ns = 0;
    uint64_t waited_ns = 0;
  };
  std::array<Sample, 128> samples_;
  size_t count_ = 0;
};

// A token, from the wait for it to its return; kNever: not yet.
struct Hold {
  // A client of the pod says where it is. One that drains may be let on: the token is extended
  // while nobody else is to have it.
  void OnPhase(wire::Phase phase, Instant now);
  // Since when it drains, as people should see it: not at all while nobody waits for its end.
  Instant Drains(bool awaited) const;

  PodId pod;
  Instant waits_since{};
  Instant granted_at{};
  Instant drains_since = kNever;
  Instant returned_at = kNever;
};
// The last holds, for people to look at.
class Timeline {
 public:
  void Add(const Hold& hold);
  // Those that ended at `since` or later, in that order.
  std::vector<Hold> Since(Instant since) const;

 private:
  static constexpr size_t kKept = 2048;
  std::vector<Hold> holds_;  // a ring
  size_t made_ = 0;
};
}  // namespace baton::backend

#endif  // BATON_BACKEND_SERIES_H_
