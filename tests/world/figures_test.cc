// What worlds are measured with: the histogram and the fluid GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/random.h"
#include "world/compare.h"
#include "world/fluid.h"
#include "world/histogram.h"

namespace baton::world {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(Histogram, QuantilesAreExactToThreePercent) {
  Random random(1);
  Histogram histogram;
  std::vector<Duration> samples;
  for (int i = 0; i < 10'000; ++i) {
    samples.emplace_back(random.Spread(1, 10'000'000'000));
    histogram.Add(samples.back());
  }
  std::sort(samples.begin(), samples.end());
  EXPECT_EQ(histogram.count(), samples.size());
  EXPECT_EQ(histogram.max(), samples.back());
  for (const double q : {0.01, 0.5, 0.9, 0.99, 1.0}) {
    const auto exact =
        static_cast<double>(Nanos(samples[static_cast<size_t>(q * 10'000 + 0.5) - 1]));
    const auto told = static_cast<double>(Nanos(histogram.Quantile(q)));
    EXPECT_NEAR(told, exact, 0.032 * exact + 1) << q;
  }
}

TEST(Histogram, AddsUp) {
  Histogram a, b, empty;
  EXPECT_EQ(empty.Quantile(0.5), Duration(0));
  a.Add(milliseconds(1));
  b.Add(milliseconds(100));
  b.Add(milliseconds(100));
  a.Add(b);
  EXPECT_EQ(a.count(), 3u);
  EXPECT_EQ(a.max(), milliseconds(100));
  EXPECT_GT(a.Quantile(0.5), milliseconds(96));
  EXPECT_LT(a.Quantile(0.3), milliseconds(2));
}

PodPlan Pod(uint32_t id, uint32_t request, uint32_t limit = policy::kMillion) {
  PodPlan pod;
  pod.id = id;
  pod.spec.request = policy::Share(request);
  pod.spec.limit = policy::Share(limit);
  pod.spec = policy::Validated(pod.spec).value();
  return pod;
}

double FluidShare(const Plan& plan, size_t pod) {
  return static_cast<double>(Nanos(FluidService(plan, 0)[pod])) /
         static_cast<double>(Nanos(plan.length));
}

TEST(Fluid, EndlessPodsGetTheirEntitlement) {
  Plan plan;
  plan.length = seconds(10);
  plan.pods = {Pod(1, 600'000), Pod(2, 300'000), Pod(3, 100'000, 100'000)};
  EXPECT_NEAR(FluidShare(plan, 0), 0.6, 1e-6);
  EXPECT_NEAR(FluidShare(plan, 1), 0.3, 1e-6);
  EXPECT_NEAR(FluidShare(plan, 2), 0.1, 1e-6);
  plan.pods.erase(plan.pods.begin());
  EXPECT_NEAR(FluidShare(plan, 0), 0.9, 1e-6) << "what a limit leaves goes to the other";
}

// 5 ms every 50 ms at 20 % of the GPU take 25 ms each: all of it is served, and the other has the
// rest.
TEST(Fluid, ABurstIsServedAtItsRateAndThenThePodIsAway) {
  Plan plan;
  plan.length = seconds(10);
  plan.pods = {Pod(1, 200'000, 200'000), Pod(2, 800'000)};
  plan.pods[0].burst = milliseconds(5);
  plan.pods[0].pause = milliseconds(50);
  plan.pods[0].periodic = true;
  EXPECT_NEAR(FluidShare(plan, 0), 0.1, 1e-3);
  EXPECT_NEAR(FluidShare(plan, 1), 0.9, 1e-3);
  // Counted from the end of a burst it comes every 75 ms.
  plan.pods[0].periodic = false;
  EXPECT_NEAR(FluidShare(plan, 0), 5. / 75, 1e-3);
  // Asking for more than its limit gives, it always works.
  plan.pods[0].periodic = true;
  plan.pods[0].burst = milliseconds(20);
  EXPECT_NEAR(FluidShare(plan, 0), 0.2, 1e-3);
}

TEST(Fluid, WhoIsNotThereGetsNothing) {
  Plan plan;
  plan.length = seconds(10);
  plan.gpus = 2;
  plan.pods = {Pod(1, 500'000), Pod(2, 500'000), Pod(3, 100'000)};
  plan.pods[1].arrives = seconds(2);
  plan.pods[1].leaves = seconds(6);
  plan.pods[2].gpus = {1};
  EXPECT_NEAR(FluidShare(plan, 0), 0.8, 1e-6);
  EXPECT_NEAR(FluidShare(plan, 1), 0.2, 1e-6);
  EXPECT_EQ(FluidShare(plan, 2), 0);
}

// A window forgets what a sleeper had before it, and lets it have the GPU for seconds.
TEST(Compare, TheWindowLetsPodsGoFurtherFromTheirDue) {
  const Comparison ours = Compare(1, Rule::kEarliestFinish, seconds(40));
  const Comparison window = Compare(1, Rule::kWindow, seconds(40));
  EXPECT_EQ(ours.violation, "");
  EXPECT_EQ(window.violation, "");
  EXPECT_LT(ours.lag_high, 2);
  EXPECT_GT(ours.lag_low, -2);
  EXPECT_GT(window.lag_high - window.lag_low, 10);
  EXPECT_GT(ours.jain_min, 0.99);
  EXPECT_GT(ours.waits.count(), 150u);
  EXPECT_GT(ours.handoffs, 10);
}

TEST(Compare, SumsUpWorlds) {
  Comparison sum = Compare(1, Rule::kStartTime, seconds(15));
  const Comparison one = sum;
  const Comparison two = Compare(2, Rule::kStartTime, seconds(15));
  sum.Add(two);
  EXPECT_EQ(sum.worlds, 2u);
  EXPECT_EQ(sum.waits.count(), one.waits.count() + two.waits.count());
  EXPECT_EQ(sum.lag_high, std::max(one.lag_high, two.lag_high));
  const std::string row = ComparisonRow(Rule::kStartTime, sum);
  const std::string head = ComparisonHead();
  EXPECT_EQ(row.find("| start-time | "), 0u);
  EXPECT_EQ(std::count(row.begin(), row.end(), '|') * 2, std::count(head.begin(), head.end(), '|'));
}

}  // namespace
}  // namespace baton::world
