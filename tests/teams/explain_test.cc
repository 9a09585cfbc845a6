#include "teams/explain.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

namespace baton::teams {
namespace {

ExplainPod ExplainedPod(const char* name, const char* team, double request, double limit = 100,
                        bool active = true) {
  const auto spec = policy::Validated(
      {.request = policy::ShareOf(request / 100), .limit = policy::ShareOf(limit / 100)});
  return {name, team, spec.value(), active};
}

std::string Joined(const std::vector<std::string>& sentences) {
  std::string text;
  for (const std::string& s : sentences) text += (text.empty() ? "" : " ") + s;
  return text;
}

Teams ResearchAndOps() {
  return ParseTeams(R"(
    [[team]]
    name = "research/vision"
    weight = 3
    budget = 500
    [[team]]
    name = "research/text"
    weight = 1
    limit = 4)",
                    "teams.toml")
      .value();
}

TEST(Explain, SaysWhyAPodGetsWhatItGets) {
  const Teams teams = ResearchAndOps();
  // vision weighs 3 of 8: half of it all goes to ops, and 3/4 of the other half to vision.
  const ExplainGpu gpu{"GPU-0",
                       {ExplainedPod("vision", "research/vision", 30, 50),
                        ExplainedPod("text", "research/text", 25), ExplainedPod("web", "ops", 20)},
                       &teams};
  const std::vector<Use> uses{
      {"research/vision", "user-a", 41}, {"research/text", "user-a", 9}, {"ops", "user-b", 50}};
  Budgets budgets;
  budgets.Update(teams, [](const Team&) -> Result<double> { return 512.3; });
  // e: 37.5 % + (37.5 - 41) = 34, 12.5 + 3.5 = 16, 50.
  EXPECT_EQ(
      Joined(ExplainShare(gpu, 0, uses, 0.12, &budgets)),
      "vision asks for 30% of GPU-0 and gets at least that. Of the 25% that requests leave over it "
      "gets 8.5%, so 38.5% in all. Of the teams with pods here research/vision weighs 37.5% and "
      "has 41% of what they used (older use counts half every 7 days), more than its due. Of the "
      "teams with work it is due 34% of what is left over, 8.5% of the GPU. It is limited to 50%. "
      "It waited 12% of the last minute. Team research/vision held 512.3 of its budget of 500 "
      "GPU-hours in 30 days: its pods lose high priority.");
}

TEST(Explain, SaysWhereLimitsAndIdlenessMatter) {
  Teams teams = ResearchAndOps();
  teams.history = 0;
  const ExplainGpu gpu{
      "GPU-0",
      {ExplainedPod("vision", "research/vision", 30, 32),
       ExplainedPod("vision2", "research/vision", 10, 10),
       ExplainedPod("text", "research/text", 25, 100, false), ExplainedPod("web", "ops", 20)},
      &teams};
  EXPECT_EQ(Joined(ExplainShare(gpu, 0, {}, std::nullopt, nullptr)),
            "vision asks for 30% of GPU-0 and gets at least that. Of the 40% that requests leave "
            "over it gets 2%, so 32% in all. Of the teams with pods here research/vision weighs "
            "37.5%; what they used does not count (history = 0). Of the teams with work it is due "
            "42.9% of what is left over, 17.1% of the GPU, and gets 2%: its pods' limits take no "
            "more. vision shares that with another pod of its team, by request. It is limited to "
            "32%, which is what it gets.");
  EXPECT_EQ(Joined(ExplainShare(gpu, 2, {}, std::nullopt, nullptr)),
            "text has no work on GPU-0 now; this is what it gets when it has. text asks for 25% of "
            "GPU-0 and gets at least that. Of the 15% that requests leave over it gets 2.6%, so "
            "27.6% in all. Of the teams with pods here research/text weighs 12.5%; what they used "
            "does not count (history = 0). Of the teams with work it is due 12.5% of what is left "
            "over, 1.9% of the GPU, and gets 2.6%: other teams cannot take all of theirs.");
}

TEST(Explain, SaysWhenAPodOfIdlePriorityRuns) {
  ExplainPod idle = ExplainedPod("night", "", 10, 50);
  idle.spec.request = {};
  idle.spec.priority = policy::Priority::kIdle;
  idle.paused = true;
  const ExplainGpu day{"GPU-0", {idle, ExplainedPod("web", "", 20)}, nullptr};
  EXPECT_EQ(
      Joined(ExplainShare(day, 0, {}, 0.5, nullptr)),
      "night is of idle priority: it has GPU-0 while no pod with a request has work there, and "
      "gives way at once. 1 such pod has work now, so it is paused. It is limited to 50%. It "
      "waited 50% of the last minute.");
  EXPECT_EQ(Joined(ExplainShare(day, 1, {}, std::nullopt, nullptr)),
            "web asks for 20% of GPU-0 and gets at least that. Of the 80% that requests leave over "
            "it gets 80%, so 100% in all.");
  idle.paused = false;
  const ExplainGpu leaves{"GPU-0", {idle, ExplainedPod("web", "", 20, 20)}, nullptr};
  EXPECT_NE(Joined(ExplainShare(leaves, 0, {}, std::nullopt, nullptr))
                .find("1 such pod has work now: it has what their limits leave."),
            std::string::npos);
  const ExplainGpu night{"GPU-0", {idle, ExplainedPod("web", "", 20, 100, false), idle}, nullptr};
  EXPECT_NE(Joined(ExplainShare(night, 0, {}, std::nullopt, nullptr))
                .find("shares the GPU equally with 1 other of idle priority"),
            std::string::npos);
}

TEST(Explain, SaysWhatOvercommitDoes) {
  const ExplainGpu gpu{"GPU-0", {ExplainedPod("a", "", 80), ExplainedPod("b", "", 60)}, nullptr};
  EXPECT_EQ(Joined(ExplainShare(gpu, 0, {}, std::nullopt, nullptr)),
            "a asks for 80% of GPU-0, but the pods that have work ask for 140% together, so each "
            "gets its part of that: a gets 57.1%.");
  const ExplainGpu full{"GPU-0", {ExplainedPod("a", "", 40), ExplainedPod("b", "", 60)}, nullptr};
  EXPECT_EQ(Joined(ExplainShare(full, 0, {}, 0, nullptr)),
            "a asks for 40% of GPU-0 and gets at least that. Requests leave nothing over. It "
            "waited 0% of the last minute.");
}

TEST(Explain, SaysWhereATeamStands) {
  const Teams teams = ResearchAndOps();
  const std::vector<Use> uses{
      {"research/vision", "user-a", 41}, {"research/text", "user-a", 9}, {"ops", "user-b", 50}};
  const std::vector<LimitPod> pods{{"a", "research/text", policy::ShareSum(1'500'000)},
                                   {"b", "ops", policy::ShareSum(9)}};
  EXPECT_EQ(Joined(ExplainTeam(teams, "research/text", uses, pods, nullptr)),
            "Team research/text weighs 1 of 4 beside its siblings: 12.5% of the whole. It and the "
            "teams below it have 9% of all use (older use counts half every 7 days), less than its "
            "due; its fair-share factor, for which its siblings' use counts too, is 0.344 (0.5 is "
            "just its due), LevelFS 1.39. Requests are never touched; of what they leave over a "
            "team gets the more the less it used. Pods of team research/text request 1.5 of at "
            "most 4 GPUs.");
  const std::vector<Use> nights{{"research/text", "user-a", 10, 30}, {"ops", "user-b", 60}};
  EXPECT_NE(Joined(ExplainTeam(teams, "research", nights, {}, nullptr))
                .find("LevelFS 5. Of what they used 75% is not held against them, for no other "
                      "team wanted it. Requests"),
            std::string::npos)
      << Joined(ExplainTeam(teams, "research", nights, {}, nullptr));
  EXPECT_EQ(Joined(ExplainTeam(teams, "new", {}, {}, nullptr)),
            "Team new weighs 1 of 2 beside its siblings: 50% of the whole. Nobody has used "
            "anything that still counts. Requests are never touched; of what they leave over a "
            "team gets the more the less it used.");
}

RC_GTEST_PROP(ExplainLaw, ThePartsAreThoseOfFluidShares, ()) {
  static const std::vector<std::string> kPaths{"a", "a/b", "c", "", "a/d"};
  Teams teams;
  teams.history = *rc::gen::elementOf(std::vector<uint32_t>{0, policy::kMillion, 9'000'000});
  ExplainGpu gpu{"GPU-0", {}, *rc::gen::arbitrary<bool>() ? &teams : nullptr};
  std::vector<Use> uses;
  const int n = *rc::gen::inRange(1, 9);
  for (int i = 0; i < n; ++i) {
    const double request = *rc::gen::inRange(1, 40);
    const double limit = *rc::gen::inRange(static_cast<int>(request), 101);
    gpu.pods.push_back(ExplainedPod("p", "", request, limit, *rc::gen::arbitrary<bool>()));
    gpu.pods.back().team = *rc::gen::elementOf(kPaths);
    uses.push_back({*rc::gen::elementOf(kPaths), "user-a", 1.0 * *rc::gen::inRange(0, 9)});
  }
  const auto pod = static_cast<size_t>(*rc::gen::inRange(0, n));
  gpu.pods[pod].active = true;
  const ShareParts parts = PartsOf(gpu, pod, uses);
  // The policy's own, from scratch.
  TeamIndex index;
  std::vector<std::string> present;
  std::vector<policy::Entitlement> shares;
  size_t at = 0;
  for (size_t i = 0; i < gpu.pods.size(); ++i) {
    const ExplainPod& p = gpu.pods[i];
    present.push_back(p.team);
    if (i == pod) at = shares.size();
    if (p.active) {
      shares.push_back({p.spec.request, p.spec.limit, p.spec.slack_weight, index.Of(p.team)});
    }
  }
  std::vector<uint32_t> weights;
  if (gpu.teams != nullptr) weights = index.Weights(SlackWeights(teams, uses, present));
  policy::FluidShares(shares, weights);
  RC_ASSERT(parts.fluid == policy::Ratio(shares[at].fluid));
  RC_ASSERT(std::abs(parts.requested + parts.slack - parts.fluid) < 1e-12);
  RC_ASSERT(parts.slack >= 0 && parts.fluid <= parts.limit);
  RC_ASSERT(parts.slack <= parts.team_slack + 1e-12);
  RC_ASSERT(parts.team_slack <= parts.left_over + 1e-12);
  // What a team is due it gets, unless limits say otherwise.
  double room = 0;
  bool all_unlimited = true;
  for (const policy::Entitlement& s : shares) {
    if (gpu.teams != nullptr && s.team != shares[at].team) {
      all_unlimited &= s.limit == policy::kWhole;
      continue;
    }
    room += s.limit > s.fluid ? policy::Ratio(s.limit - s.fluid) : 0;
  }
  if (parts.left_over > 0 && parts.team_slack < parts.team_due - 2e-5) RC_ASSERT(room < 2e-5);
  if (all_unlimited && parts.team_due > 0) RC_ASSERT(parts.team_slack <= parts.team_due + 2e-5);
  // The sentences have the same figures, to a tenth of a percent.
  const std::string text = Joined(ExplainShare(gpu, pod, uses, std::nullopt, nullptr));
  RC_ASSERT((text.find(" in all.") != std::string::npos) == (parts.left_over > 0));
  if (parts.left_over > 0) {
    const double said = std::strtod(text.c_str() + text.find(", so ") + 5, nullptr);
    RC_ASSERT(std::abs(said - 100 * parts.fluid) <= 0.0501);
  }
}

}  // namespace
}  // namespace baton::teams
