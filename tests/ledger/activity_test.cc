// What the ledger says of the activity of each pod, which `baton whatif` and `baton advise` go by.
#include <map>

#include "ledger/ledger.h"
#include "tests/ledger/books.h"

namespace baton::ledger {
namespace {

// One by MIG or MPS holds its part all the time, also where NVML tells how much of it is used.
TEST_P(LedgerTest, OnlyWhatHeldByTokensOrExecutedWithoutIsMeasuredActivity) {
  const auto ledger = Open();
  const std::string source = NewSource();
  Begin(*ledger, source, At(0));
  Batch batch = MakeBatch(source, 2, At(100));
  const auto add = [&](uint64_t pod, int64_t held, int64_t busy, int64_t grants, int64_t launches) {
    Sample& sample =
        AddSample(batch, pod, "GPU-a", held * kSecond, {"pod" + std::to_string(pod), "", "", ""});
    sample.total.busy_ns = busy * kSecond;
    sample.total.grants = grants;
    sample.total.launches = launches;
  };
  add(1, 30, 20, 5, 50);  // by turns
  add(2, 0, 20, 0, 50);   // where no tokens are given out
  add(3, 0, 20, 0, 0);    // the same, with a kernel from before
  add(4, 50, 0, 0, 0);    // a part
  add(5, 50, 25, 0, 0);   // a part, of which NVML tells
  Apply(*ledger, batch);
  const auto activities = ledger->Activities({At(0), At(100)});
  ASSERT_TRUE(activities) << activities.error().message;
  std::map<std::string, bool> measured;
  for (const Activity& activity : *activities) measured[activity.owner.pod] = activity.measured;
  EXPECT_EQ(measured,
            (std::map<std::string, bool>{
                {"pod1", true}, {"pod2", true}, {"pod3", true}, {"pod4", false}, {"pod5", false}}));
}

}  // namespace
}  // namespace baton::ledger
