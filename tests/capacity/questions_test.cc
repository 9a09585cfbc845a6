#include "capacity/questions.h"

#include <gtest/gtest.h>

#include "tests/capacity/clusters.h"

namespace baton::capacity {
namespace {

using std::chrono::hours;

Scenario Some() {
  Scenario s;
  s.length = hours(10);
  s.nodes = {NodeOf("n1", 4), NodeOf("n2", 4), NodeOf("odd", 2)};
  s.teams.history = 0;
  s.teams.teams = {TeamOf("research", 3)};
  s.pods = {PodOf("vision/train", "research", 10, Duration(0), hours(99)),
            PodOf("web", "ops", 20, Duration(0), hours(99)),
            PodOf("vision/train#2", "research", 10, Duration(0), hours(99))};
  return s;
}

TEST(Questions, AWeightInPercentIsItsPartAmongTheTeamsBeside) {
  for (const char* text : {"research=30%", "research=75%", "research=99.5%"}) {
    Scenario s = Some();
    ASSERT_TRUE(Apply({.weights = {text}}, s));
    const double research = s.teams.WeightOf("research"), ops = s.teams.WeightOf("ops");
    EXPECT_NEAR(100 * research / (research + ops), std::stod(std::string(text).substr(9)), 0.05);
  }
  Scenario s = Some();
  ASSERT_TRUE(Apply({.weights = {"ops=5", "research=2"}}, s));
  EXPECT_EQ(s.teams.WeightOf("ops"), 5u);
  EXPECT_EQ(s.teams.WeightOf("research"), 2u);
}

// Of one whole, whatever their order and however far apart weights are.
TEST(Questions, SeveralPercentagesAreOfOneWhole) {
  for (const bool swapped : {false, true}) {
    Scenario s = Some();
    s.teams.teams = {TeamOf("a", 2), TeamOf("b", 7), TeamOf("c", 3), TeamOf("research", 300'000)};
    s.pods.push_back(PodOf("x", "c", 10, Duration(0), hours(1)));
    s.pods.push_back(PodOf("y", "a", 10, Duration(0), hours(1)));
    s.pods.push_back(PodOf("z", "b", 10, Duration(0), hours(1)));
    const std::vector<std::string> asked = {"a=30%", "b=20%"};
    ASSERT_TRUE(Apply({.weights = swapped ? std::vector(asked.rbegin(), asked.rend()) : asked}, s));
    double all = 0;
    for (const char* team : {"a", "b", "c", "research", "ops"}) all += s.teams.WeightOf(team);
    EXPECT_NEAR(s.teams.WeightOf("a") / all, 0.3, 1e-4);
    EXPECT_NEAR(s.teams.WeightOf("b") / all, 0.2, 1e-4);
  }
  Scenario s = Some();
  EXPECT_FALSE(Apply({.weights = {"ops=60%", "research=60%"}}, s));
}

// The closed form: what requests leave, 70 %, goes by weight, so 30 % of it and its request.
TEST(Questions, AWeightMovesTheShareAsTheClosedFormSays) {
  Scenario s = Some();
  s.nodes = {NodeOf("n", 1)};
  s.pods.pop_back();
  EXPECT_NEAR(ShareIn(Played(s), "research"), 10 + 70 * 0.75, 0.01);
  ASSERT_TRUE(Apply({.weights = {"research=30%"}}, s));
  EXPECT_NEAR(ShareIn(Played(s), "research"), 10 + 70 * 0.3, 0.1);
}

TEST(Questions, GuaranteesAndLimitsAreGpusOrPartsOfAllOfThem) {
  Scenario s = Some();
  ASSERT_TRUE(Apply({.guarantees = {"research=30%"}, .limits = {"ops=2.5"}, .add_gpus = 10}, s));
  ASSERT_EQ(s.guarantees.size(), 1u);
  EXPECT_DOUBLE_EQ(s.guarantees[0].second, 6) << "of 20, the added ones among them";
  EXPECT_EQ(s.teams.Find("ops")->limit, policy::SharesOf(2.5));
  ASSERT_TRUE(Apply({.guarantees = {"research=1"}}, s));
  EXPECT_EQ(s.guarantees.size(), 1u) << "the last one holds";
}

TEST(Questions, SharesAreOfAllPodsOfThatName) {
  Scenario s = Some();
  ASSERT_TRUE(Apply({.shares = {"train=40:50"}}, s));
  EXPECT_EQ(policy::Percent(s.pods[0].share.request), 40);
  EXPECT_EQ(policy::Percent(s.pods[2].share.limit), 50);
  EXPECT_EQ(s.pods[2].request.containers[0].vgpus[0].share, policy::ShareOf(0.4));
  EXPECT_EQ(policy::Percent(s.pods[1].share.request), 20);
  ASSERT_TRUE(Apply({.shares = {"vision/train=5"}}, s));
  EXPECT_EQ(policy::Percent(s.pods[2].share.request), 5);
}

TEST(Questions, AdvisedRequestsAreTaken) {
  Scenario s = Some();
  EXPECT_EQ(Apply({.advised = true}, s).error().code, ErrorCode::kNotFound);
  s.pods[1].advised = policy::ShareOf(0.05);
  ASSERT_TRUE(Apply({.advised = true}, s));
  EXPECT_EQ(policy::Percent(s.pods[1].share.request), 5);
  EXPECT_EQ(policy::Percent(s.pods[0].share.request), 10);
}

TEST(Questions, NodesAreAddedAsTheUsualOne) {
  Scenario s = Some();
  ASSERT_TRUE(Apply({.add_gpus = 20, .add_nodes = 2}, s));
  ASSERT_EQ(s.nodes.size(), 3 + 2 + 2u) << "a node has at most 16 GPUs";
  EXPECT_EQ(s.nodes[3].cards.size(), 4u);
  EXPECT_EQ(s.nodes[5].cards.size(), 16u);
  EXPECT_EQ(s.nodes[6].cards.size(), 4u);
  EXPECT_TRUE(Play(s)) << "names and uuids are their own";
}

TEST(Questions, SayWhatIsWrong) {
  const auto error = [](const Questions& questions) {
    Scenario s = Some();
    const auto applied = Apply(questions, s);
    return applied ? "" : applied.error().message;
  };
  EXPECT_EQ(error({.weights = {"reserch=3"}}),
            "--weight: there is no team reserch; did you mean research?");
  EXPECT_EQ(error({.limits = {"qqqqqqqq=3"}}),
            "--limit: there is no team qqqqqqqq; there are ops, research");
  EXPECT_EQ(error({.weights = {"research"}}),
            "--weight: 'research' is not TEAM=WEIGHT or TEAM=PERCENT%");
  EXPECT_NE(error({.weights = {"research=0.5"}}), "");
  EXPECT_NE(error({.weights = {"research=100%"}}), "");
  EXPECT_NE(error({.guarantees = {"research=-1"}}), "");
  EXPECT_EQ(error({.shares = {"weg=3"}}),
            "--shares: no pod weg was there in this time; did you mean web?");
  EXPECT_NE(error({.shares = {"web=30:20"}}), "");
  EXPECT_NE(error({.shares = {"web=x"}}), "");
}

}  // namespace
}  // namespace baton::capacity
