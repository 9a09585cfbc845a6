// `baton advise` by a real daemon's books.
#include "tests/backend/kept_books.h"

namespace baton::backend {
namespace {

TEST_F(KeptBooks, AdviceOnRequestsIsForPodsThatMayHaveOne) {
  Configure();
  FillLedger("research", 20);  // two thirds of 30 hours, by a pod named "former"
  Start();
  ASSERT_TRUE(Make("former").value("ok", false));
  const auto rows = [&] { return Say({{"command", "advise"}}).at("rows").size(); };
  EXPECT_EQ(rows(), 1u) << "it needs more than 10 %";
  ASSERT_TRUE(Say({{"command", "set_pod"}, {"name", "former"}, {"priority", "idle"}}).at("ok"));
  EXPECT_EQ(rows(), 0u) << "it lives by what others leave, as it asked to";
}

TEST_F(KeptBooks, NothingIsAdvisedOnPodsThatHaveBeenSeenForTooShort) {
  Configure();
  FillLedger("research", 20);  // 29 hours long, by a pod named "former"
  Start();
  json advice = Say({{"command", "advise"}});
  EXPECT_EQ(advice.at("pods"), 0) << "former is not there";
  EXPECT_EQ(advice.at("unseen"), json::array());
  Use("new", Pod("new", {{"request", 50}}));
  ASSERT_TRUE(Make("idle").value("ok", false));
  ASSERT_TRUE(IsBooked("pod", "new", Held("new")));
  advice = Say({{"command", "advise"}});
  EXPECT_EQ(advice.at("pods"), 2);
  EXPECT_EQ(advice.at("unseen"), json({"idle", "new"}));
  EXPECT_EQ(advice.at("needed_s"), 20 * 3600);
  EXPECT_EQ(advice.at("rows"), json::array());
  EXPECT_EQ(Say({{"command", "advise"}, {"last", "24h"}}).at("needed_s"), 20 * 60);
  EXPECT_EQ(Say({{"command", "advise"}, {"last", "1h"}}).at("needed_s"), 200);
  ASSERT_TRUE(Make("former").value("ok", false));
  advice = Say({{"command", "advise"}});
  EXPECT_EQ(advice.at("pods"), 3);
  EXPECT_EQ(advice.at("unseen"), json({"idle", "new"}));
  EXPECT_EQ(advice.at("rows").size(), 1u);
}

// What a row says is what set_pod takes, and stands in the log afterwards.
TEST_F(KeptBooks, WhatIsAdvisedCanBeSetAsItIs) {
  Configure();
  FillLedger("research", 20);
  Start();
  ASSERT_TRUE(Make("former").value("ok", false));
  const json row = Say({{"command", "advise"}}).at("rows").at(0);
  EXPECT_EQ(row.at("what"), "request");
  json set = row.at("set");
  set.update({{"command", "set_pod"}, {"name", "former"}});
  ASSERT_TRUE(Say(set).at("ok"));
  EXPECT_EQ(Say({{"command", "advise"}}).at("rows"), json::array());
  EXPECT_TRUE(Eventually([&] {
    const json log = Say({{"command", "log"}, {"pod", "former"}});
    const json& rows = log.at("rows");
    return !rows.empty() && rows[0].at("action") == "set" &&
           rows[0].at("is").at("request") == row.at("set").at("request");
  }));
}

// A request is of the pod, on all of its GPUs: what one of them needs, it needs.
TEST_F(KeptBooks, APodOfTwoGpusIsAdvisedByTheOneThatItUsesMore) {
  Configure();
  FillLedger("research", 20, 0, 2);
  Start();
  ASSERT_TRUE(Make("former", {{"request", 80}, {"gpus", {"GPU-a", "GPU-b"}}}).value("ok", false));
  EXPECT_EQ(Say({{"command", "advise"}}).at("rows"), json::array()) << "it used two thirds of one";
  ASSERT_TRUE(Say({{"command", "set_pod"}, {"name", "former"}, {"request", 40}}).at("ok"));
  const json rows = Say({{"command", "advise"}}).at("rows");
  ASSERT_EQ(rows.size(), 1u) << "once, though it has two GPUs";
  EXPECT_EQ(rows[0].at("gpu"), "GPU-x");
}

// By the books alone: the daemon is new, and so is the pod.
TEST_F(KeptBooks, ANewPodOfAKnownNameGoesWhereItsUseFits) {
  Configure();
  FillLedger("research", 29);  // nearly all of the time, by a pod named "former"
  Start();
  ASSERT_TRUE(Make("former", {{"gpus", {"GPU-a"}}, {"request", 30}}).value("ok", false));
  ASSERT_TRUE(Make("other", {{"gpus", {"GPU-b"}}, {"request", 30}}).value("ok", false));
  const auto explain = [&] {
    return Say({{"command", "explain_placement"}, {"name", "former-2"}, {"request", 30}});
  };
  ASSERT_TRUE(Eventually([&] { return explain().contains("use"); })) << daemon_.Log();
  const json said = explain();
  EXPECT_EQ(said.at("where").at("gpus").at(0).at("uuid"), "GPU-b") << said.dump();
  EXPECT_NE(said.at("use").get<std::string>().find("GPU-a, which the rule takes"),
            std::string::npos)
      << said.dump();
  const json status = Say({{"command", "status"}});
  EXPECT_GT(status.at("gpus").at(0).at("use_beyond_requests"), 60);
  EXPECT_FALSE(status.at("gpus").at(1).contains("use_beyond_requests"));
}

}  // namespace
}  // namespace baton::backend
