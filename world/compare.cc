#include "world/compare.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/parse.h"
#include "base/random.h"
#include "world/fluid.h"
#include "world/plan.h"

namespace baton::world {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint32_t kBusyMax = 11;

PodPlan Pod(Plan& plan, policy::Share request) {
  PodPlan pod;
  pod.id = static_cast<uint32_t>(plan.pods.size() + 1);
  pod.spec.request = request;
  pod.spec = policy::Validated(pod.spec).value();
  return pod;
}

// Pods that always have work and share `left` of the GPU among them, none less than 1 %.
void AddBusy(Plan& plan, Random& random, uint32_t least, policy::Share left) {
  const auto n = static_cast<uint32_t>(random.Between(least, kBusyMax));
  for (uint32_t i = 0; i < n; ++i) {
    const policy::Share least_each = policy::kWhole / 100;
    const policy::Share spare = left - least_each * (n - i);
    const policy::Share request =
        i + 1 == n ? left : least_each + policy::Share(random.Between(0, spare.millionths()));
    PodPlan pod = Pod(plan, request);
    pod.kernel = Duration(random.Spread(100'000, 5'000'000));
    plan.pods.push_back(pod);
    left -= request;
  }
}

Plan Empty(uint64_t seed, Duration length) {
  Plan plan;
  plan.seed = seed;
  plan.length = plan.calm_from = length;
  return plan;
}

Verdict RunUnder(Rule rule, const Plan& plan, Comparison& c) {
  RunOptions options;
  options.scheduler.fairness.order = OrderOf(rule);
  options.bounds = false;
  options.measure = true;
  Verdict v = Run(plan, options);
  c.lag_low = std::min(c.lag_low, v.lag_low);
  c.lag_high = std::max(c.lag_high, v.lag_high);
  if (!v.ok && c.violation.empty()) c.violation = v.check + ": " + v.violation;
  return v;
}

// Jain, Chiu, Hawe: "A Quantitative Measure of Fairness and Discrimination", 1984: 1 where all get
// the same part of their target, 1 / n where one gets everything.
double Jain(const Plan& plan, const Verdict& v) {
  const std::vector<Duration> targets = FluidService(plan, 0);
  double sum = 0;
  double squares = 0;
  for (size_t i = 0; i < targets.size(); ++i) {
    const double part =
        static_cast<double>(Nanos(v.pods[i].held)) / static_cast<double>(Nanos(targets[i]));
    sum += part;
    squares += part * part;
  }
  return sum * sum / (static_cast<double>(targets.size()) * squares);
}

}  // namespace

void Comparison::Add(const Comparison& other) {
  lag_low = std::min(lag_low, other.lag_low);
  lag_high = std::max(lag_high, other.lag_high);
  worst_share_points = std::max(worst_share_points, other.worst_share_points);
  waits.Add(other.waits);
  jain_min = std::min(jain_min, other.jain_min);
  worlds += other.worlds;
  handoffs += other.handoffs;
  if (violation.empty()) violation = other.violation;
}

Comparison Compare(uint64_t seed, Rule rule, Duration length) {
  Comparison c;
  c.worlds = 1;
  Random random(seed);

  Plan busy = Empty(seed, length);
  AddBusy(busy, random, 2, policy::kWhole);
  const Verdict steady = RunUnder(rule, busy, c);
  c.worst_share_points = steady.worst_share_points;
  c.jain_min = Jain(busy, steady);
  c.handoffs = static_cast<double>(steady.grants) * 1e9 / static_cast<double>(Nanos(busy.length));

  Plan interactive = Empty(seed, length);
  PodPlan chat = Pod(interactive, policy::kWhole / 10);
  chat.kernel = microseconds(500);
  chat.burst = milliseconds(5);
  chat.pause = milliseconds(200);
  chat.periodic = true;
  interactive.pods.push_back(chat);
  AddBusy(interactive, random, 1, policy::kWhole - chat.spec.request);
  c.waits = RunUnder(rule, interactive, c).pods[0].waits;

  Plan sleeper = Empty(seed, length);
  PodPlan sleeps = Pod(sleeper, policy::kWhole * 3 / 10);
  sleeps.burst = seconds(3);  // ten seconds' worth of its request
  sleeps.pause = seconds(15);
  sleeper.pods.push_back(sleeps);
  AddBusy(sleeper, random, 1, policy::kWhole - sleeps.spec.request);
  RunUnder(rule, sleeper, c);
  return c;
}

std::string ComparisonHead() {
  return "| rule | lag, in L | worst share error over 10 s | interactive: wait p50 | p99 | "
         "Jain's index, worst | hand-offs/s |\n"
         "| --- | --- | --- | --- | --- | --- | --- |\n";
}

std::string ComparisonRow(Rule rule, const Comparison& c) {
  char text[256];
  std::snprintf(text, sizeof text, "| %s | %.2f to %.2f | %.2f points | %s | %s | %.5f | %.1f |\n",
                std::string(FormatRule(rule)).c_str(), c.lag_low, c.lag_high, c.worst_share_points,
                FormatDuration(c.waits.Quantile(0.5)).c_str(),
                FormatDuration(c.waits.Quantile(0.99)).c_str(), c.jain_min,
                c.handoffs / static_cast<double>(std::max<uint64_t>(1, c.worlds)));
  return text;
}

}  // namespace baton::world
