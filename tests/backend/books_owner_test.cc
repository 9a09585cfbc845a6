// batond's books of pods that change their team, user or namespace: what they used before stays
// with the former one, however seldom batches are made.
#include "tests/backend/kept_books.h"

namespace baton::backend {
namespace {

// A batch at the beginning, and then for an hour none.
constexpr const char* kSeldom = "every = \"1h\"";

TEST_F(KeptBooks, WhatAPodUsedBeforeItsTeamChangedStaysWithTheFormerTeam) {
  Configure("", kSeldom);
  Start();
  ASSERT_TRUE(KnowsTheGpus());
  const std::string ticket = Pod("a", {{"team", "red"}}), beside = Pod("b", {{"team", "red"}});
  Use("a", ticket);
  Use("b", beside);
  const int64_t red = Held("a"), of_b = Held("b");
  ASSERT_GT(red, 0);
  ASSERT_TRUE(Say({{"command", "set_pod"}, {"name", "a"}, {"team", "blue"}}).value("ok", false));
  EXPECT_TRUE(IsBooked("team", "red", red + of_b)) << Report("team");
  EXPECT_EQ(Booked("team", "blue"), -1) << Report("team");
  Use("a", ticket);
  const int64_t all = Held("a");
  Restart();
  EXPECT_TRUE(IsBooked("team", "blue", all - red)) << Report("team");
  EXPECT_EQ(Booked("team", "red"), red + of_b);
  // And the GPUs are there all the while.
  const json report = Report("gpu");
  EXPECT_NEAR(report.at("capacity_hours").get<double>(),
              report.at("held_hours").get<double>() + report.at("idle_hours").get<double>() +
                  report.at("unattributed_hours").get<double>(),
              1e-9);
  for (const json& row : report.at("rows")) EXPECT_GT(row.at("capacity_hours"), 0.0) << row;
}

// Who moves a pod again and again makes no more than a batch in a second.
TEST_F(KeptBooks, ManyChangesOfATeamMakeFewBatches) {
  Configure("", kSeldom);
  Start();
  ASSERT_TRUE(KnowsTheGpus());
  const std::string ticket = Pod("a", {{"team", "team-0"}});
  const Instant before = MonotonicNow();
  for (int i = 1; i <= 50; ++i) {
    Use("a", ticket);
    ASSERT_TRUE(Say({{"command", "set_pod"}, {"name", "a"}, {"team", "team-" + std::to_string(i)}})
                    .value("ok", false));
  }
  const auto seconds = static_cast<size_t>((MonotonicNow() - before) / std::chrono::seconds(1));
  const int64_t held = Held("a");
  Restart();
  EXPECT_TRUE(Eventually([&] {
    return std::llround(Report("team").at("held_hours").get<double>() * 3600e9) == held;
  })) << Report("team");
  EXPECT_LE(Report("team").at("rows").size(), seconds + 2);
}

TEST_F(KeptBooks, WhatAPodOfTheFileUsedBeforeItsUserChangedStaysWithTheFormerUser) {
  const auto configure = [&](const std::string& user) {
    Configure("[[pod]]\nname = \"b\"\nticket = \"0123456789abcdef\"\ngpus = [\"GPU-a\"]\n" +
                  ("request = 20\nuser = \"" + user + "\"\n"),
              kSeldom);
  };
  configure("ann");
  Start();
  ASSERT_TRUE(KnowsTheGpus());
  Use("b", "0123456789abcdef");
  const int64_t held = Held("b");
  configure("bob");
  Reload();
  EXPECT_TRUE(IsBooked("user", "ann", held)) << Report("user");
  EXPECT_EQ(Booked("user", "bob"), -1) << Report("user");
}

}  // namespace
}  // namespace baton::backend
