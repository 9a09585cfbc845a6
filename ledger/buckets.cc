#include "ledger/buckets.h"

#include <algorithm>
#include <tuple>

namespace baton::ledger {
namespace {

constexpr int64_t kRowsMax = 2'000'000;  // of a level, by one batch
// How far apart two batches may be for parts of a level's length.
constexpr std::array<int64_t, 4> kGapMax_ms = {3'600'000, 24 * 3'600'000LL, 60 * 86'400'000LL,
                                               400 * 86'400'000LL};

// A way to add up [from, to): pieces, and of how many buckets.
struct Way {
  std::vector<Piece> pieces;
  int64_t buckets = 0;

  void Add(size_t level, int64_t from, int64_t to, bool taken_off = false) {
    if (from == to) return;
    pieces.push_back({level, from, to, taken_off});
    buckets += (to - from) / kLevels[level].seconds;
  }
};

// from and to are edges of buckets of the level.
Way ShortestWay(size_t level, int64_t from, int64_t to, const std::array<int64_t, 4>& floors) {
  Way by_level;
  by_level.Add(level, from, to);
  if (level + 1 == kLevels.size() || from == to) return by_level;
  // The edges of the next level that are nearest, in the middle the inner ones. What lies between
  // is of a bucket of that level which this one has the whole of.
  const int64_t next = kLevels[level + 1].seconds;
  const int64_t near_from = Floor(from + next / 2, next);
  const int64_t near_to = Ceil(to - next / 2, next);
  Way coarser = ShortestWay(level + 1, near_from, near_to, floors);
  const auto add_edge = [&](int64_t at, int64_t near, bool begins) {
    coarser.Add(level, std::min(at, near), std::max(at, near), (near < at) == begins);
  };
  add_edge(from, near_from, true);
  add_edge(to, near_to, false);
  return from >= floors[level] && by_level.buckets <= coarser.buckets ? by_level : coarser;
}

}  // namespace

size_t LevelFor(Window window) {
  const auto length = window.to - window.from;
  return length <= std::chrono::hours(1) ? 0 : length <= std::chrono::hours(24) ? 1 : 2;
}

int64_t Millis(WallTime t) { return t.time_since_epoch().count(); }

std::vector<Part> CutGap(int64_t from_ms, int64_t to_ms, size_t samples) {
  if (to_ms <= from_ms) return {{to_ms - 1, to_ms}};
  const int64_t gap_ms = to_ms - from_ms;
  std::vector<Part> parts;
  for (size_t level = 0; level < kLevels.size(); ++level) {
    const int64_t step = kLevels[level].seconds * 1000;
    const int64_t rows = (gap_ms / step + 2) * static_cast<int64_t>(samples);
    if (gap_ms > kGapMax_ms[level] || (rows > kRowsMax && gap_ms > step)) continue;
    for (int64_t at = from_ms; at < to_ms;) {
      const int64_t end = std::min(Floor(at, step) + step, to_ms);
      parts.push_back({at, end});
      at = end;
    }
    return parts;
  }
  return {{from_ms, to_ms}};
}

std::vector<Run> RunsOf(const std::vector<Part>& parts, const Level& level) {
  std::vector<Run> runs;
  for (size_t i = 0; i < parts.size(); ++i) {
    const int64_t bucket = parts[i].BucketAt(level);
    if (runs.empty() || runs.back().bucket != bucket) runs.push_back({bucket, i, i});
    runs.back().last = i + 1;
  }
  return runs;
}

size_t FinestLevelAt(int64_t second, const std::array<int64_t, 4>& floors) {
  size_t level = 0;
  while (level + 1 < kLevels.size() && Floor(second, kLevels[level].seconds) < floors[level]) {
    ++level;
  }
  return level;
}

WindowCut CutWindow(Window window, const std::array<int64_t, 4>& floors) {
  constexpr size_t kDays = kLevels.size() - 1;
  const auto finest = [&](int64_t second) { return FinestLevelAt(second, floors); };
  const auto at = [](int64_t second) { return WallTime(std::chrono::seconds(second)); };
  const int64_t first = std::max(Millis(window.from) / 1000, floors[kDays]);
  const int64_t last = (Millis(window.to) - 1) / 1000;
  if (window.to <= window.from || last < first) return {window, {}};

  const int64_t from = Floor(first, kLevels[finest(first)].seconds);
  const int64_t to = Floor(last, kLevels[finest(last)].seconds) + kLevels[finest(last)].seconds;
  WindowCut cut{{at(from), at(to)}, {}};
  // From both edges towards the middle: up the levels as long as a bucket does not fit, and down.
  std::vector<Piece> right;
  int64_t left = from;
  int64_t end = to;
  for (size_t level = 0; level < kDays && left < end; ++level) {
    const int64_t next = kLevels[level + 1].seconds;
    const int64_t up = Ceil(left, next);
    const int64_t down = Floor(end, next);
    if (up > down) {  // within one bucket of the next level
      cut.pieces.push_back({level, left, end});
      left = end;
      break;
    }
    if (left < up) cut.pieces.push_back({level, left, up});
    if (down < end) right.push_back({level, down, end});
    left = up;
    end = down;
  }
  if (left < end) cut.pieces.push_back({kDays, left, end});
  cut.pieces.insert(cut.pieces.end(), right.rbegin(), right.rend());
  return cut;
}

std::vector<Piece> FewestBuckets(const std::vector<Piece>& pieces,
                                 const std::array<int64_t, 4>& floors) {
  if (pieces.empty()) return {};
  Way way = ShortestWay(0, pieces.front().from, pieces.back().to, floors);
  std::sort(way.pieces.begin(), way.pieces.end(), [](const Piece& a, const Piece& b) {
    return std::tie(a.level, a.from, a.taken_off) < std::tie(b.level, b.from, b.taken_off);
  });
  return way.pieces;
}

}  // namespace baton::ledger
