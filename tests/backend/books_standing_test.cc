// What the standing of teams counts of what their pods used.
#include "tests/backend/kept_books.h"

namespace baton::backend {
namespace {

TEST_F(KeptBooks, UseThatNoOtherTeamWantedIsHeldAgainstATeamAsFarAsIsConfigured) {
  FillLedger("night", 20, 20);
  const std::string teams = Teams("[[team]]\nname = \"night\"\n[[team]]\nname = \"day\"\n");
  Configure(teams);
  Start();
  const auto stands = [&](double raw, double uncounted) {
    return Eventually([&] {
      const json row = StandingOf("night");
      return std::abs(row.value("raw_usage_hours", -1.0) / 18.3 - raw) < 0.1 &&
             std::abs(row.value("uncounted_hours", -1.0) / 18.3 - uncounted) < 0.1;
    });
  };
  EXPECT_TRUE(stands(0, 1)) << StandingOf("night");
  EXPECT_EQ(StandingOf("night").at("level_fs"), json()) << "as who used nothing";
  EXPECT_EQ(StandingOf("night").at("factor"), 1.0);
  const json explained = Say({{"command", "explain"}, {"team", "night"}});
  EXPECT_NE(explained.dump().find("100% is not held against them"), std::string::npos) << explained;
  Configure(teams + "uncontended_use = 0.5\n");
  Restart();
  EXPECT_TRUE(stands(0.5, 0.5)) << StandingOf("night");
  Configure(teams + "uncontended_use = 1\n");
  Restart();
  EXPECT_TRUE(stands(1, 0)) << StandingOf("night");
}

// By what the token scheduler saw: alone, and beside a pod of another team, or of none.
TEST_F(KeptBooks, WhoWaitsMakesTheUseOfOtherTeamsCount) {
  Configure();
  Start();
  const std::string alone = Pod("alone", {{"team", "a"}}), other = Pod("other", {{"team", "b"}});
  Use("alone", alone);
  const int64_t held = Held("alone");
  const auto nanos = [&](const char* key) {
    return std::llround(StandingOf("a").value(key, -1.0) * 3600e9);
  };
  ASSERT_TRUE(IsBooked("team", "a", held));
  EXPECT_NEAR(nanos("uncounted_hours"), held, 0.01 * held) << StandingOf("a");
  EXPECT_EQ(nanos("raw_usage_hours"), 0);
  const auto uncounted = nanos("uncounted_hours");
  ScriptedClient holder(folder_ / "run/baton.sock", 71), waiter(folder_ / "run/baton.sock", 72);
  ASSERT_TRUE(holder.Join(alone, "GPU-a") && waiter.Join(other, "GPU-a"));
  ASSERT_TRUE(holder.AskUntilGranted() && holder.Report(wire::Phase::kHolding) && waiter.Ask());
  ASSERT_TRUE(Eventually([&] { return PodStatus("other").value("phase", "") == "waiting"; }));
  usleep(100'000);
  ASSERT_TRUE(Eventually([&] {
    holder.HasGrantNow();
    return holder.GiveBack() && waiter.HasGrantNow();
  }));
  const int64_t more = Held("alone") - held;
  ASSERT_GT(more, 90'000'000);
  ASSERT_TRUE(IsBooked("team", "a", held + more));
  EXPECT_GT(nanos("raw_usage_hours"), 0.7 * static_cast<double>(more)) << StandingOf("a");
  EXPECT_GE(nanos("uncounted_hours"), 0.99 * static_cast<double>(uncounted));
}

}  // namespace
}  // namespace baton::backend
