// Tokens that were sent ahead, as their node sees them begin and end.
#include "scheduler/handover.h"

#include <gtest/gtest.h>

namespace baton::scheduler {
namespace {

using std::chrono::milliseconds;
using wire::Phase;

// Client 1 holds token 5, and client 2 was passed token 6 ahead.
class HandedOver : public ::testing::Test {
 protected:
  HandedOver() { Pass(2, Ahead()); }
  static wire::Token Ahead() {
    wire::Token token;
    token.epoch = 6;
    token.rev = 1;
    token.quota_ns = 5'000'000;
    token.after_client = 1;
    token.after_epoch = 5;
    token.after_rev = 1;
    return token;
  }
  static wire::Token Word(uint64_t epoch, uint64_t rev, uint64_t quota_ns) {
    wire::Token token;
    token.epoch = epoch;
    token.rev = rev;
    token.quota_ns = quota_ns;
    return token;
  }
  static wire::State Drained(uint64_t epoch, uint64_t rev) {
    wire::State state;
    state.phase = Phase::kWaiting;
    state.epoch = epoch;
    state.rev = rev;
    return state;
  }
  void Pass(uint64_t client, const wire::Token& token) { handover_.Passed(now_, client, token); }

  Instant now_{std::chrono::seconds(3)};
  Handover handover_;
};

TEST_F(HandedOver, ItBeginsWhenExactlyTheHoldersTokenHasDrained) {
  EXPECT_FALSE(handover_.AwaitsEnd(1, Drained(4, 9)));
  EXPECT_FALSE(handover_.AwaitsEnd(3, Drained(5, 1)));
  ASSERT_TRUE(handover_.AwaitsEnd(1, Drained(5, 2)));
  const auto next = handover_.Take(1, Drained(5, 2));
  ASSERT_EQ(next.size(), 1u);
  EXPECT_EQ(next[0].client, 2u);
  EXPECT_EQ(next[0].Passed().size(), 1u);
  EXPECT_FALSE(handover_.AwaitsEnd(1, Drained(5, 2)));
}

TEST_F(HandedOver, WhoIsToldToCloseMayHaveBegunBefore) {
  Pass(2, Word(6, 2, 0));
  handover_.Heard(now_, 2, Drained(6, 2), 6, {});
  ASSERT_TRUE(handover_.AwaitsEnd(1, Drained(5, 2)));
  const auto passed = handover_.Take(1, Drained(5, 2)).at(0).Passed();
  ASSERT_EQ(passed.size(), 2u);
  EXPECT_EQ(passed[1].rev, 2u);
  EXPECT_EQ(passed[1].quota_ns, 0u);
}

TEST_F(HandedOver, WhoHasClosedBeforeItBeganWaitsNoMore) {
  handover_.Heard(now_, 2, Drained(6, 2), 0, {});
  EXPECT_TRUE(handover_.AwaitsEnd(1, Drained(5, 1))) << "it was not told yet";
  Pass(2, Word(6, 2, 0));
  handover_.Heard(now_, 2, Drained(6, 1), 0, {});
  EXPECT_TRUE(handover_.AwaitsEnd(1, Drained(5, 1)));
  handover_.Heard(now_, 2, Drained(6, 2), 0, {});
  EXPECT_FALSE(handover_.AwaitsEnd(1, Drained(5, 2)));
}

// Its pod's second client got its own later, and began when the first one had drained.
TEST_F(HandedOver, APodHoldsItFromItsFirstClientsBeginning) {
  Pass(3, Ahead());
  const Instant began = now_ + milliseconds(1);
  EXPECT_EQ(handover_.Heard(now_ + milliseconds(15), 2, Drained(6, 1), 6, began)->held,
            milliseconds(14));
  const Instant later = now_ + milliseconds(50);
  EXPECT_EQ(handover_.Heard(now_ + milliseconds(66), 3, Drained(6, 1), 6, later)->held,
            milliseconds(65));
  EXPECT_EQ(handover_.Heard(now_ + milliseconds(99), 3, Drained(6, 1), 6, later)->held,
            milliseconds(65))
      << "it says so again";
}

TEST_F(HandedOver, AWordThatOpensTheHoldersGateAgainMakesItVoid) {
  Pass(1, Word(5, 2, 0));
  EXPECT_TRUE(handover_.AwaitsEnd(1, Drained(5, 2)));
  Pass(1, Word(5, 3, 5'000'000));
  EXPECT_FALSE(handover_.AwaitsEnd(1, Drained(5, 3)));
}

TEST_F(HandedOver, ItBeganByItsMemoryButNotBeforeItWasPassedNorAfterTheHolderSaidSo) {
  const Handover::Next next{2, Ahead(), now_};
  const Instant said = now_ + milliseconds(5);
  EXPECT_EQ(BeganAt(next, 6, now_ + milliseconds(2), said), now_ + milliseconds(2));
  EXPECT_EQ(BeganAt(next, 6, now_ - milliseconds(2), said), now_);
  EXPECT_EQ(BeganAt(next, 6, now_ + milliseconds(9), said), said);
  EXPECT_EQ(BeganAt(next, 4, now_ - milliseconds(9), said), said);
}

}  // namespace
}  // namespace baton::scheduler
