// How time is cut into buckets, when it is booked and when it is asked for. Pure. Thread safe.
//
// A bucket is named by its beginning, in seconds since 1970 (UTC), a multiple of its level's
// length; each level's length divides the next one's, so the bucket of a level lies wholly in one
// of the level above.
#ifndef BATON_LEDGER_BUCKETS_H_
#define BATON_LEDGER_BUCKETS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ledger/ledger.h"

namespace baton::ledger {

struct Level {
  const char* name;  // of its tables: use_NAME, gpu_NAME
  int64_t seconds;   // length of a bucket
  // Buckets are dropped in stretches of this length, a multiple of the next level's bucket: where
  // one has lost its finer buckets, it has lost all of them.
  int64_t trim_seconds;
};
inline constexpr std::array<Level, 4> kLevels = {{
    {"fine", 10, 600},
    {"minutes", 60, 3600},
    {"hours", 3600, 86400},
    {"days", 86400, 86400},
}};

// The level at which a window of such a length is looked at step by step, as long as its buckets
// are kept.
size_t LevelFor(Window window);

// The largest multiple of `step` that is not above `t`; t >= 0.
constexpr int64_t Floor(int64_t t, int64_t step) { return t / step * step; }
constexpr int64_t Ceil(int64_t t, int64_t step) { return Floor(t + step - 1, step); }
int64_t Millis(WallTime t);

// A stretch of the time that a batch is about; milliseconds since 1970.
struct Part {
  int64_t from_ms;
  int64_t to_ms;
  // Where it is booked: the bucket in which it ends.
  int64_t BucketAt(const Level& level) const { return Floor((to_ms - 1) / 1000, level.seconds); }
};

// A GPU is taken to have been there between two batches that are no further apart: an hour, which
// LedgerOptions::every may be, and a minute, as no batch is made on the dot.
inline constexpr int64_t kPresenceGapMax_ms = 3'660'000;

// [from, to) in parts of which none crosses the border of a bucket: buckets of 10 s up to an hour,
// minutes up to a day, hours up to 60 days, days up to 400 days, else one part, so that what was
// not heard of for long costs no million rows; coarser where `samples` are so many that it would.
// Where to is not after from (a clock that stepped back) there is one part that ends at `to`. On
// every level all the parts are booked, so that the levels always agree.
std::vector<Part> CutGap(int64_t from_ms, int64_t to_ms, size_t samples);

// Consecutive parts that are booked in the same bucket of a level: numbers [first, last).
struct Run {
  int64_t bucket;
  size_t first;
  size_t last;
};
std::vector<Run> RunsOf(const std::vector<Part>& parts, const Level& level);

// What of `total` falls into the first `elapsed` of `whole`, cut to a whole number: the differences
// of what it gives for growing `elapsed` add up to exactly the total, whatever its sign.
// Proportions are rounded alike on every level, so levels agree.
constexpr int64_t Before(int64_t total, int64_t elapsed, int64_t whole) {
  __extension__ using Wide = __int128;
  return elapsed == whole ? total : static_cast<int64_t>(Wide{total} * elapsed / whole);
}

// Whole buckets of one level: [from, to), in seconds.
struct Piece {
  size_t level;
  int64_t from;
  int64_t to;
  bool taken_off = false;  // from the others' sum (FewestBuckets())
};
struct WindowCut {
  Window window;              // that of the pieces
  std::vector<Piece> pieces;  // by time, without gaps or overlaps
};
// The finest level that has buckets at that second; floors as below.
size_t FinestLevelAt(int64_t second, const std::array<int64_t, 4>& floors);

// The window from the coarsest buckets that lie wholly in it and the finer ones towards its edges.
// floors[level]: buckets before that second are dropped; must be a multiple of trim_seconds and not
// above the floor of a finer level. Edges within a bucket of the finest level left there move
// outwards to its ends. window.from <= window.to.
WindowCut CutWindow(Window window, const std::array<int64_t, 4>& floors);

// What CutWindow() answered, from fewer buckets: towards an edge that is nearer to the end of a
// coarser bucket than to its beginning, the whole of that, and the finer ones beyond the edge taken
// off again. By level, then time.
std::vector<Piece> FewestBuckets(const std::vector<Piece>& pieces,
                                 const std::array<int64_t, 4>& floors);

}  // namespace baton::ledger

#endif  // BATON_LEDGER_BUCKETS_H_
