#include "cli/bench_compare.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <numeric>
#include <random>

#include "cli/bench_run.h"
#include "tests/cli/harness.h"
#include "tests/temp_folder.h"

namespace baton::cli {
namespace {

using nlohmann::json;
using std::chrono::microseconds;

// A run whose samples lie around `us`, by a factor of e^(± spread) each; `run_spread`: the whole
// run besides.
json RunAround(double us, double spread, double run_spread, std::mt19937& random,
               int count = 2000) {
  std::normal_distribution<double> sample(0, spread), whole(0, run_spread);
  const double of_run = us * std::exp(run_spread > 0 ? whole(random) : 0);
  BenchFigure figure{"hand_off", "token hand-off", {}, "raw unix echo", {}};
  for (int i = 0; i < count; ++i) {
    figure.samples.emplace_back(static_cast<int64_t>(1e3 * of_run * std::exp(sample(random))));
    figure.beside.emplace_back(static_cast<int64_t>(1e3 * of_run / 2 * std::exp(sample(random))));
  }
  return ToJson(BenchRun{"token", json::object(), {figure}, {}});
}

const Comparison& Find(const std::vector<Comparison>& all, const std::string& name) {
  for (const Comparison& c : all) {
    if (c.name == name) return c;
  }
  ADD_FAILURE() << "no " << name;
  return all.front();
}

TEST(BenchCompare, AChangeIsFoundAndLiesWithinItsBounds) {
  std::mt19937 random(1);
  const auto all = Compare({RunAround(100, 0.1, 0, random)}, {RunAround(112, 0.1, 0, random)});
  ASSERT_TRUE(all) << all.error().message;
  const Comparison& c = Find(*all, "token hand_off p50");
  EXPECT_NEAR(c.before, 100, 1);
  EXPECT_NEAR(c.after, 112, 1);
  EXPECT_TRUE(c.worse());
  EXPECT_LT(c.low, 1.12);
  EXPECT_GT(c.high, 1.12);
  EXPECT_LT(c.high - c.low, 0.05);
  EXPECT_FALSE(c.by_runs);
  // The raw medium became slower by as much.
  EXPECT_FALSE(Find(*all, "token hand_off of raw").differs());
}

TEST(BenchCompare, WithThreeRunsTheBoundsAreOfWhatRunsDifferBy) {
  std::mt19937 random(2);
  const auto some = [&](int runs) {
    std::vector<json> all;
    all.reserve(static_cast<size_t>(runs));
    for (int i = 0; i < runs; ++i) all.push_back(RunAround(100, 0.02, 0.2, random));
    return all;
  };
  const auto two = Compare(some(2), some(3));
  const auto three = Compare(some(3), some(3));
  ASSERT_TRUE(two && three);
  EXPECT_FALSE(Find(*two, "token hand_off p50").by_runs);
  const Comparison& c = Find(*three, "token hand_off p50");
  EXPECT_TRUE(c.by_runs);
  EXPECT_GT(c.high / c.low, 1.2);  // a fifth from run to run, which no part of one tells
}

// The bounds are worth what they claim: where nothing has changed, one time in twenty they say
// that something has.
TEST(BenchCompare, WhereNothingChangedItSaysSoNineteenTimesInTwenty) {
  std::mt19937 random(3);
  int wrong_by_parts = 0, wrong_by_runs = 0;
  constexpr int kTimes = 400;
  for (int i = 0; i < kTimes; ++i) {
    const auto parts =
        Compare({RunAround(50, 0.3, 0, random, 400)}, {RunAround(50, 0.3, 0, random, 400)});
    ASSERT_TRUE(parts);
    wrong_by_parts += Find(*parts, "token hand_off p50").differs();
    std::vector<json> runs;
    runs.reserve(8);
    for (int r = 0; r < 8; ++r) runs.push_back(RunAround(50, 0.01, 0.1, random, 20));
    const auto by_runs = Compare({runs.begin(), runs.begin() + 4}, {runs.begin() + 4, runs.end()});
    ASSERT_TRUE(by_runs);
    wrong_by_runs += Find(*by_runs, "token hand_off p50").differs();
  }
  // 20 are expected; 5 standard deviations of a binomial on either side.
  EXPECT_GT(wrong_by_parts, 1);
  EXPECT_LT(wrong_by_parts, 42);
  EXPECT_GT(wrong_by_runs, 1);
  EXPECT_LT(wrong_by_runs, 42);
}

TEST(BenchCompare, OfGrantsASecondMoreIsBetter) {
  const auto run = [](double grants) {
    return ToJson(
        BenchRun{"contention", json::object(), {}, {{"grants", "grants", grants, "1/s"}}});
  };
  const auto all = Compare({run(1000), run(1010), run(990)}, {run(1500), run(1510), run(1490)});
  ASSERT_TRUE(all);
  EXPECT_TRUE(all->front().differs());
  EXPECT_FALSE(all->front().worse());
  EXPECT_TRUE(Compare({run(1500), run(1510), run(1490)}, {run(1000), run(1010), run(990)})
                  ->front()
                  .worse());
}

TEST(BenchCompare, WhatIsNoRunOrHasNothingInCommonIsRefused) {
  EXPECT_FALSE(Compare({json::object()}, {json::object()}));
  std::mt19937 random(4);
  json other = RunAround(1, 0.1, 0, random);
  other["subject"] = "something";
  const auto all = Compare({RunAround(1, 0.1, 0, random)}, {other});
  ASSERT_FALSE(all);
  EXPECT_EQ(all.error().message, "the two files have no figure in common");
}

TEST(BenchCompare, RunsWithOtherSettingsAreNotCompared) {
  const auto run = [](int pods, double length_s) {
    return ToJson(BenchRun{"contention",
                           {{"pods", pods}, {"gpus", 1}, {"hold_us", 200}, {"length_s", length_s}},
                           {},
                           {{"grants", "grants", 1000, "1/s"}}});
  };
  const auto all = Compare({run(16, 10)}, {run(4, 10)});
  ASSERT_FALSE(all);
  EXPECT_NE(all.error().message.find("differ in pods (16 and 4)"), std::string::npos)
      << all.error().message;
  EXPECT_FALSE(Compare({run(4, 10)}, {run(4, 10), run(5, 10)}));
  EXPECT_TRUE(Compare({run(4, 10)}, {run(4, 3)}));  // a shorter run of the same
}

TEST(BenchCompare, TheCommandSaysWhatBecameWorseAndFailsIfAsked) {
  const TempFolder folder;
  std::mt19937 random(5);
  const std::string before = folder / "before.jsonl", after = folder / "after.jsonl";
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(AppendRun(before, RunAround(100, 0.05, 0.01, random)));
    ASSERT_TRUE(AppendRun(after, RunAround(130, 0.05, 0.01, random)));
  }
  const Outcome table = RunBaton({"bench", "compare", before, after});
  EXPECT_EQ(table.status, 0) << table.err;
  EXPECT_NE(table.out.find("worse"), std::string::npos) << table.out;
  EXPECT_NE(table.out.find("no difference shown"), std::string::npos) << table.out;  // of raw
  EXPECT_EQ(RunBaton({"bench", "compare", before, after, "--fail-above", "10"}).status, 1);
  EXPECT_EQ(RunBaton({"bench", "compare", before, after, "--fail-above", "40"}).status, 0);
  EXPECT_EQ(RunBaton({"bench", "compare", after, before, "--fail-above", "10"}).status, 0);
  const Outcome as_json = RunBaton({"bench", "compare", before, after, "--json"});
  EXPECT_EQ(json::parse(as_json.out).at("rows").at(0).at("worse"), true) << as_json.out;

  const Outcome nodes = RunBaton({"bench", "cluster", before});
  EXPECT_EQ(nodes.status, 0) << nodes.err;
  EXPECT_NE(nodes.out.find("token hand_off"), std::string::npos) << nodes.out;

  std::ofstream(folder / "nonsense") << "nonsense\n";
  const Outcome refused = RunBaton({"bench", "compare", before, folder / "nonsense"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_NE(refused.err.find("line 1 is not a run of 'baton bench'"), std::string::npos)
      << refused.err;
  std::ofstream(folder / "other") << "\n{\"a\": 1}\n";
  const Outcome other = RunBaton({"bench", "compare", before, folder / "other"});
  EXPECT_NE(other.err.find("other: line 2 is not a run"), std::string::npos) << other.err;
  EXPECT_EQ(RunBaton({"bench", "compare", before, folder / "absent"}).status, 1);
  EXPECT_EQ(RunBaton({"bench", "cluster", folder / "nonsense"}).status, 2);
}

TEST(BenchRun, EverySampleStandsInTheHistogramOnce) {
  std::mt19937 random(6);
  std::lognormal_distribution<double> spread(3, 2);
  std::vector<Duration> samples, beside;
  for (int i = 0; i < 5000; ++i) samples.emplace_back(static_cast<int64_t>(1e3 * spread(random)));
  for (int i = 0; i < 300; ++i) beside.emplace_back(microseconds(1));
  samples.emplace_back(0);
  const std::vector<HistogramBar> bars = Histogram(samples, beside);
  ASSERT_FALSE(bars.empty());
  EXPECT_LE(bars.size(), 16u);
  uint64_t count = 0, beside_count = 0;
  for (size_t i = 0; i < bars.size(); ++i) {
    count += bars[i].count;
    beside_count += bars[i].beside;
    EXPECT_DOUBLE_EQ(bars[i].from, i > 0 ? bars[i - 1].to : bars[i].from);
  }
  EXPECT_EQ(count, samples.size());
  EXPECT_EQ(beside_count, beside.size());
  EXPECT_TRUE(Histogram({}, {}).empty());
  EXPECT_EQ(Histogram({microseconds(7)}, {}).size(), 1u);
}

}  // namespace
}  // namespace baton::cli
