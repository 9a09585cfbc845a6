// What the ledger keeps of old use between two questions for the standing.
#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"
#include "ledger/ledger.h"
#include "tests/ledger/books.h"
#include "tests/scale.h"

namespace baton::ledger {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

constexpr int64_t kDay_s = 86400;

// Whatever is booked when: late, by clocks that jump ahead and back, after nothing was for weeks,
// beside what retention lets go; asked at any time, also by a clock that stepped back.
TEST_P(LedgerTest, KeptUseIsWhatAllOfItAddsUpTo) {
  const Retention retention{
      .fine = hours(2), .minutes = hours(24), .hours = hours(24 * 10), .days = hours(24 * 25)};
  Random random(2611);
  const auto below = [&](uint64_t n) { return static_cast<int64_t>(random.Next() % n); };
  const auto keeps = Open(retention);
  const auto writer = Open(retention);  // another process
  struct Source {
    std::string name = NewSource();
    uint64_t seq = 1;
    int64_t held_s[3] = {}, uncontended_s[3] = {};
  };
  std::vector<Source> sources(3);
  int64_t now = 100 * kDay_s;
  for (const Source& source : sources) Begin(*writer, source.name, At(now), {"GPU-a", "GPU-b"});
  const auto book = [&](Ledger& ledger, Source& source, int64_t at) {
    Batch batch = MakeBatch(source.name, ++source.seq, At(at));
    for (int pod = 0; pod < 3; ++pod) {
      const int64_t more = below(100);
      source.held_s[pod] += more;
      source.uncontended_s[pod] += below(3) == 0 ? 0 : below(static_cast<uint64_t>(more) + 1);
      AddSample(batch, static_cast<uint64_t>(pod) + 1, pod == 0 ? "GPU-a" : "GPU-b",
                source.held_s[pod] * kSecond,
                {"p", "", pod == 1 ? "research" : "ops", "user-" + std::to_string(pod)})
          .total.uncontended_ns = source.uncontended_s[pod] * kSecond;
    }
    for (const char* gpu : {"GPU-a", "GPU-b"}) AddGpu(batch, gpu);
    Apply(ledger, batch);
  };
  for (int step = 0; step < (kSanitized ? (IsPostgres() ? 40 : 80) : 250); ++step) {
    const int64_t pauses[] = {10, 600, 3600, 5 * 3600, kDay_s, 12 * kDay_s};
    now += pauses[below(below(8) == 0 ? 6 : 4)] + below(100);
    Source& source = sources[static_cast<size_t>(below(3))];
    switch (below(12)) {
      case 0:
        book(*writer, source, now - below(10 * kDay_s));
        break;  // late, or a clock behind
      case 1:
        book(*writer, source, now + 30 * kDay_s);
        break;  // a clock ahead
      case 2:
        (void)writer->Trim(At(now));
        break;
      case 3:
        break;
      default:
        book(below(2) == 0 ? *writer : *keeps, source, now);
        break;
    }
    // By the right clock, one that stepped back, and the one that is ahead.
    const int64_t wrong[] = {now - below(kDay_s), now + 30 * kDay_s};
    const int64_t asked = below(5) == 0 ? wrong[below(2)] : now;
    const Duration half_life = hours(below(20) == 0 ? 24 : 7 * 24);
    const auto kept = keeps->Decayed(At(asked), half_life);
    const auto all = Open(retention)->Decayed(At(asked), half_life);
    ASSERT_TRUE(kept && all);
    ASSERT_EQ(kept->size(), all->size()) << "step " << step;
    for (size_t i = 0; i < all->size(); ++i) {
      const auto near = [](double a, double b) {
        return std::abs(a - b) <= 1e-9 * std::abs(b) + 1;
      };
      ASSERT_EQ((*kept)[i].team, (*all)[i].team);
      ASSERT_EQ((*kept)[i].user, (*all)[i].user);
      ASSERT_PRED2(near, (*kept)[i].held_ns, (*all)[i].held_ns) << "step " << step;
      ASSERT_PRED2(near, (*kept)[i].decayed_ns, (*all)[i].decayed_ns) << "step " << step;
      ASSERT_PRED2(near, (*kept)[i].uncontended_ns, (*all)[i].uncontended_ns) << "step " << step;
    }
  }
}

// Use that was booked by a clock that was ahead is moved away, and somebody else books there.
TEST_P(LedgerTest, NothingIsKeptOfUseThatWasTakenBack) {
  const auto ledger = Open();
  const std::string ahead = NewSource(), other = NewSource();
  constexpr int64_t kLater = 40 * kDay_s;
  const auto book = [&](const std::string& source, uint64_t seq, int64_t at, int64_t held_s) {
    Batch batch = MakeBatch(source, seq, At(at));
    AddSample(batch, 1, "GPU-a", held_s * kSecond);
    AddGpu(batch, "GPU-a");
    Apply(*ledger, batch);
  };
  for (const std::string& source : {ahead, other}) Begin(*ledger, source, At(0));
  book(ahead, 2, 10, 5);
  book(ahead, 3, kLater, 1000);
  EXPECT_EQ(ledger->Decayed(At(kLater), hours(24))->size(), 1u);
  book(ahead, 4, 60, 2000);
  book(other, 2, kLater, 700);
  const auto kept = ledger->Decayed(At(kLater), hours(24)).value().at(0);
  const auto all = Open()->Decayed(At(kLater), hours(24)).value().at(0);
  EXPECT_NEAR(kept.held_ns, 2700.0 * kSecond, 1);
  EXPECT_NEAR(kept.decayed_ns, all.decayed_ns, 1e-9 * all.decayed_ns);
}

// Other books in the place of the old ones: nothing of those is kept.
TEST_P(LedgerTest, NothingIsKeptOfBooksThatAreGone) {
  if (IsPostgres()) return;  // a file's matter
  const std::string source = NewSource();
  const auto book = [&](Ledger& ledger, int64_t held_ns) {
    Begin(ledger, source, At(0));
    Batch batch = MakeBatch(source, 2, At(20 * 3600));
    AddSample(batch, 1, "GPU-a", held_ns);
    Apply(ledger, batch);
  };
  const auto ledger = Open();
  book(*ledger, 1000 * kSecond);
  const auto held = [&] { return ledger->Decayed(At(41 * 3600), hours(24)).value().at(0).held_ns; };
  EXPECT_DOUBLE_EQ(held(), 1000 * kSecond);
  const std::string path = database().substr(std::string("sqlite:").size());
  for (const char* end : {"", "-wal", "-shm"}) unlink((path + end).c_str());
  book(*Open(), 7 * kSecond);
  EXPECT_DOUBLE_EQ(held(), 7 * kSecond);
}

}  // namespace
}  // namespace baton::ledger
