#include "node/rate.h"

#include <gtest/gtest.h>

#include <vector>

#include "node/admission.h"

namespace baton::node {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(Rates, AllConnectionsOfAPodAreReadAtOneRate) {
  Rates rates(1'000, 50);
  const Instant start{seconds(1000)};
  const auto one = rates.Of("pod", start), two = rates.Of("pod", start);
  const auto other = rates.Of("other", start);
  int read = 0;
  for (int ms = 0; ms < 1000; ++ms) {
    const Instant now = start + milliseconds(ms);
    for (const auto& rate : {one, two, one, two}) {
      if (!rate->May(now)) continue;
      rate->Spend(1);
      ++read;
    }
    ASSERT_TRUE(other->May(now));
    other->Spend(1);
  }
  EXPECT_GE(read, 1'000);
  EXPECT_LE(read, 1'050);
}

TEST(Rates, WhoHasSpentTooMuchPaysLater) {
  Rate rate(100, 10, Instant{seconds(1)});
  EXPECT_TRUE(rate.May(Instant{seconds(1)}));
  rate.Spend(60);
  EXPECT_FALSE(rate.May(Instant{seconds(1)} + milliseconds(499)));
  EXPECT_TRUE(rate.May(Instant{seconds(1)} + milliseconds(501)));
  EXPECT_FALSE(rate.Full(Instant{seconds(1)} + milliseconds(590)));
  EXPECT_TRUE(rate.Full(Instant{seconds(1000)}));
}

// To leave and come back is no way to a new burst.
TEST(Rates, WhoComesBackHasWhatItHadLeft) {
  Rates rates(10, 1);
  const Instant now{seconds(1000)};
  rates.Of("pod", now)->Spend(1);
  for (int i = 0; i < 1000; ++i) rates.Of("name " + std::to_string(i), now);
  EXPECT_LT(rates.size(), 200u);
  EXPECT_FALSE(rates.Of("pod", now)->May(now));
  EXPECT_TRUE(rates.Of("pod", now)->May(now + seconds(1)));
}

TEST(Admission, WhoConnectsTooOftenIsRefusedAndOthersAreNot) {
  TenantLimits limits;
  limits.connects_per_second = 10;
  Admission admission(limits);
  Peer flooder, other;
  flooder.kubernetes_pod = "flooder";
  other.kubernetes_pod = "other";
  const Instant start{seconds(1000)};
  int admitted = 0, warnings = 0;
  for (int ms = 0; ms < 10'000; ++ms) {
    const Instant now = start + milliseconds(ms);
    const auto refusal = admission.Refuse(flooder, 0, now);
    admitted += !refusal;
    if (refusal) {
      EXPECT_TRUE(refusal->flood);
      warnings += !refusal->warning.empty();
    }
    if (ms % 1000 == 0) {
      EXPECT_FALSE(admission.Refuse(other, 0, now));
    }
  }
  EXPECT_NEAR(admitted, 200, 2);
  EXPECT_EQ(warnings, 1);
  EXPECT_NE(admission.Trouble(start + seconds(10)).find("flooder connects too often"),
            std::string::npos);
}

TEST(Throttle, TurnsAreTakenAsTheRateComesBack) {
  boost::asio::io_context io;
  Throttle throttle(io);
  const auto rate = std::make_shared<Rate>(1'000, 1, MonotonicNow());
  rate->Spend(1);
  std::vector<int> turns(3);
  for (int who = 0; who < 3; ++who) {
    throttle.Add(rate, [&, who] {
      rate->Spend(1);
      return ++turns[who] < 20;
    });
  }
  const Instant from = MonotonicNow();
  io.run();  // until nobody waits any more
  EXPECT_EQ(turns, (std::vector<int>{20, 20, 20}));
  EXPECT_GE(MonotonicNow() - from, milliseconds(59));
}

}  // namespace
}  // namespace baton::node
