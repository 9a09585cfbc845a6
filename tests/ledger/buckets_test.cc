// How time is cut: pure, so it is tried at random in great numbers.
#include "ledger/buckets.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>

#include "ledger/merge.h"
#include "tests/ledger/books.h"

namespace baton::ledger {
namespace {

constexpr int64_t kBegin_ms = kMonday_s * 1000;

TEST(Gap, IsCutAtBucketsOfTenSecondsUpToAnHourAndCoarserBeyond) {
  EXPECT_EQ(CutGap(kBegin_ms + 5'000, kBegin_ms + 27'500, 1).size(), 3u);
  EXPECT_EQ(CutGap(kBegin_ms, kBegin_ms + 3'600'000, 1).size(), 360u);
  EXPECT_EQ(CutGap(kBegin_ms, kBegin_ms + 2 * 3'600'000, 1).size(), 120u);
  EXPECT_EQ(CutGap(kBegin_ms, kBegin_ms + 48 * 3'600'000, 1).size(), 48u);
  EXPECT_EQ(CutGap(kBegin_ms, kBegin_ms + 100 * int64_t{86'400'000}, 1).size(), 100u);
  EXPECT_EQ(CutGap(0, kBegin_ms, 1).size(), 1u);
}

TEST(Gap, OfManyPodsIsCutCoarserSoThatItsRowsAreNeverManyMillions) {
  EXPECT_EQ(CutGap(kBegin_ms, kBegin_ms + 10'000, 1'000'000).size(), 1u);
  EXPECT_LE(CutGap(kBegin_ms, kBegin_ms + 3'600'000, 100'000).size(), 20u);
}

TEST(Gap, OfAClockThatSteppedBackIsTheBucketOfItsEnd) {
  const std::vector<Part> parts = CutGap(kBegin_ms + 50'000, kBegin_ms + 10'000, 1);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].BucketAt(kLevels[0]), kMonday_s);
}

RC_GTEST_PROP(Gap, PartsCoverItOnceAndCrossNoBucketOfTheirLevel, ()) {
  const auto from = kBegin_ms + *rc::gen::inRange<int64_t>(0, 100'000'000);
  const auto gap = *rc::gen::inRange<int64_t>(1, int64_t{1} << *rc::gen::inRange(5, 38));
  const std::vector<Part> parts = CutGap(from, from + gap, *rc::gen::inRange<size_t>(0, 100'000));
  RC_ASSERT(parts.front().from_ms == from);
  RC_ASSERT(parts.back().to_ms == from + gap);
  for (size_t i = 1; i < parts.size(); ++i) RC_ASSERT(parts[i].from_ms == parts[i - 1].to_ms);
  // What is whole on a level stays whole above it.
  bool crossed = true;
  for (const Level& level : kLevels) {
    bool crosses = false;
    for (const Part& part : parts) {
      crosses = crosses || part.BucketAt(level) != Floor(part.from_ms / 1000, level.seconds);
    }
    RC_ASSERT(crossed || !crosses);
    crossed = crosses;
    size_t covered = 0;
    for (const Run& run : RunsOf(parts, level)) {
      RC_ASSERT(run.first == covered && run.last > run.first);
      covered = run.last;
    }
    RC_ASSERT(covered == parts.size());
  }
}

RC_GTEST_PROP(Gap, PortionsOfATotalAddUpToIt, ()) {
  const auto total = *rc::gen::inRange<int64_t>(-(int64_t{1} << 60), int64_t{1} << 60);
  const auto whole = *rc::gen::inRange<int64_t>(1, int64_t{1} << 43);
  RC_ASSERT(Before(total, 0, whole) == 0);
  RC_ASSERT(Before(total, whole, whole) == total);
  const auto a = *rc::gen::inRange<int64_t>(0, whole);
  const auto b = *rc::gen::inRange<int64_t>(a, whole);
  const int64_t portion = Before(total, b, whole) - Before(total, a, whole);
  RC_ASSERT((total >= 0 ? portion >= 0 : portion <= 0));
}

// Floors as Trim() sets them: each a multiple of its stretch, finer ones later.
std::array<int64_t, 4> AnyFloors(int64_t end) {
  std::array<int64_t, 4> floors{};
  for (size_t i = kLevels.size(); i-- > 0;) {
    const int64_t below = i + 1 < kLevels.size() ? floors[i + 1] : 0;
    const auto near = *rc::gen::inRange<int64_t>(0, end - below + 1);
    const std::vector<int64_t> any = {below, below + near, end - 3600, kMonday_s};
    const int64_t at = any[*rc::gen::inRange<size_t>(0, any.size())];
    floors[i] = std::max(below, Floor(at, kLevels[i].trim_seconds));
  }
  return floors;
}

RC_GTEST_PROP(AWindow, IsAnsweredByWholeBucketsThatAreLeftWithoutGapsOrOverlaps, ()) {
  const int64_t end = kMonday_s + 4 * 86400;
  const std::array<int64_t, 4> floors =
      *rc::gen::arbitrary<bool>() ? AnyFloors(end) : std::array<int64_t, 4>{};
  const auto from = *rc::gen::inRange<int64_t>(kMonday_s * 1000, end * 1000);
  const auto to = *rc::gen::inRange<int64_t>(from, end * 1000);
  const Window window{WallTime(std::chrono::milliseconds(from)),
                      WallTime(std::chrono::milliseconds(to))};
  const WindowCut cut = CutWindow(window, floors);
  if (from == to) {
    RC_ASSERT(cut.pieces.empty());
    return;
  }
  if (cut.pieces.empty()) {
    // All of it is dropped.
    RC_ASSERT(to <= floors[3] * 1000);
    return;
  }
  RC_ASSERT(Millis(cut.window.from) == cut.pieces.front().from * 1000);
  RC_ASSERT(Millis(cut.window.to) == cut.pieces.back().to * 1000);
  for (size_t i = 0; i < cut.pieces.size(); ++i) {
    const Piece& piece = cut.pieces[i];
    RC_ASSERT(piece.from < piece.to);
    RC_ASSERT(piece.from % kLevels[piece.level].seconds == 0);
    RC_ASSERT(piece.to % kLevels[piece.level].seconds == 0);
    RC_ASSERT(piece.from >= floors[piece.level]);
    if (i > 0) RC_ASSERT(piece.from == cut.pieces[i - 1].to);
  }
  // Outwards, and by no more than the finest bucket that is left there.
  const auto finest = [&](int64_t second) {
    size_t level = 0;
    while (level < 3 && Floor(second, kLevels[level].seconds) < floors[level]) ++level;
    return kLevels[level].seconds * 1000;
  };
  RC_ASSERT(Millis(cut.window.to) >= to);
  RC_ASSERT(Millis(cut.window.to) - to < finest((to - 1) / 1000));
  if (from >= floors[3] * 1000) {
    RC_ASSERT(Millis(cut.window.from) <= from);
    RC_ASSERT(from - Millis(cut.window.from) < finest(from / 1000));
  } else {
    RC_ASSERT(cut.pieces.front().from == floors[3]);
  }
}

// Each second of the window counts once and none beside it, from buckets that are left, and never
// from more of them.
RC_GTEST_PROP(AWindow, IsTheSameFromTheFewestBuckets, ()) {
  const int64_t end = kMonday_s + 4 * 86400;
  const std::array<int64_t, 4> floors =
      *rc::gen::arbitrary<bool>() ? AnyFloors(end) : std::array<int64_t, 4>{};
  const auto from = *rc::gen::inRange<int64_t>(kMonday_s, end);
  const auto length =
      *rc::gen::inRange<int64_t>(0, *rc::gen::element<int64_t>(120, 7200, 2 * 86400, 4 * 86400));
  const std::vector<Piece> plain =
      CutWindow({WallTime(std::chrono::seconds(from)),
                 WallTime(std::chrono::seconds(std::min(end, from + length)))},
                floors)
          .pieces;
  const std::vector<Piece> fewest = FewestBuckets(plain, floors);
  const auto buckets = [](const std::vector<Piece>& pieces) {
    int64_t sum = 0;
    for (const Piece& piece : pieces) sum += (piece.to - piece.from) / kLevels[piece.level].seconds;
    return sum;
  };
  RC_ASSERT(buckets(fewest) <= buckets(plain));
  std::map<int64_t, int> changes;  // of how often a second counts
  for (const Piece& piece : fewest) {
    RC_ASSERT(piece.from < piece.to);
    RC_ASSERT(piece.from % kLevels[piece.level].seconds == 0);
    RC_ASSERT(piece.to % kLevels[piece.level].seconds == 0);
    RC_ASSERT(piece.from >= floors[piece.level]);
    changes[piece.from] += piece.taken_off ? -1 : 1;
    changes[piece.to] -= piece.taken_off ? -1 : 1;
  }
  std::erase_if(changes, [](const auto& change) { return change.second == 0; });
  if (plain.empty()) {
    RC_ASSERT(changes.empty());
    return;
  }
  RC_ASSERT(changes == (std::map<int64_t, int>{{plain.front().from, 1}, {plain.back().to, -1}}));
}

TEST(AWindow, OfMonthsIsAnsweredByDaysButForItsEdges) {
  const WindowCut cut = CutWindow({AtMs(12'345), At(80 * 86400 + 3 * 3600 + 125)}, {});
  size_t buckets = 0;
  for (const Piece& piece : cut.pieces) {
    buckets += static_cast<size_t>((piece.to - piece.from) / kLevels[piece.level].seconds);
  }
  EXPECT_EQ(cut.pieces.size(), 7u);
  EXPECT_LT(buckets, 80u + 2 * (6 + 60 + 24));
}

TEST(Merge, KeepsWhatOnlyTheOlderBatchSaid) {
  const std::string source = NewSource();
  Batch older = MakeBatch(source, 1, At(10));
  AddSample(older, 1, "GPU-a", 500).memory_peak_mib = 9;
  AddSample(older, 2, "GPU-a", 700);
  AddSample(older, 1, "GPU-b", 900);
  AddGpu(older, "GPU-a", std::chrono::seconds(3));
  Batch newer = MakeBatch(source, 2, At(20));
  AddSample(newer, 1, "GPU-a", 600).memory_peak_mib = 4;
  AddGpu(newer, "GPU-a", std::chrono::seconds(4));
  AddGpu(newer, "GPU-b", std::chrono::seconds(5));
  MergeInto(std::move(older), newer);
  ASSERT_EQ(newer.samples.size(), 3u);
  EXPECT_EQ(newer.samples[0].total.held_ns, 600);
  EXPECT_EQ(newer.samples[0].memory_peak_mib, 9);
  EXPECT_EQ(newer.samples[1].total.held_ns, 700);
  EXPECT_EQ(newer.samples[2].gpu, "GPU-b");
  EXPECT_EQ(newer.gpus[0].idle, std::chrono::seconds(7));
  EXPECT_EQ(newer.gpus[1].idle, std::chrono::seconds(5));
  EXPECT_EQ(newer.seq, 2u);
}

}  // namespace
}  // namespace baton::ledger
