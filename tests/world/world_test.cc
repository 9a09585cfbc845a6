// Small sets of worlds, with fresh seeds each time; baton-world runs large ones.
#include <gtest/gtest.h>

#include <random>
#include <regex>
#include <sstream>
#include <string>

#include "world/engine.h"
#include "world/plan.h"
#include "world/shrink.h"

namespace baton::world {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Unoptimised and under sanitizers a world takes twenty times as long.
#ifdef NDEBUG
constexpr int kWorlds = 25;
constexpr uint32_t kPods = 0;  // as the seed will have it
constexpr Duration kLength = seconds(60);
#else
constexpr int kWorlds = 3;
constexpr uint32_t kPods = 6;
constexpr Duration kLength = seconds(12);
#endif

DrawOptions Drawn(uint64_t seed, uint32_t faults) {
  DrawOptions options;
  options.seed = seed;
  options.length = kLength;
  options.faults = faults;
  options.pods = kPods;
  return options;
}

void RunFresh(uint32_t faults, int count) {
  std::random_device device;
  for (int i = 0; i < count; ++i) {
    const uint64_t seed = device();
    const Verdict v = world::Run(Draw(Drawn(seed, faults)), {});
    std::printf("seed %llu: %llu grants, GPU busy %.1f %%\n", static_cast<unsigned long long>(seed),
                static_cast<unsigned long long>(v.grants), 100 * v.busy);
    EXPECT_TRUE(v.ok) << v.check << ": " << v.violation << "\n  again: baton-world --length "
                      << Nanos(kLength) << "ns --pods " << kPods << " --faults "
                      << FormatFaults(faults) << " --seed " << seed;
    EXPECT_GT(v.grants, 0u);
  }
}

TEST(World, NothingIsViolatedUnderAllFaultsAtOnce) { RunFresh(kAllFaults, kWorlds); }

TEST(World, WithoutFaultsEverybodyStaysWithinItsBound) { RunFresh(0, kWorlds); }

// Worlds in which a pod was charged less than its processes used: a Token was on its way to one of
// them, or one of them had drained for a while when the daemon ended, while another held.
TEST(World, SeveralProcessesOfAPodAreChargedForAllThatTheyUsed) {
  for (const uint64_t seed : {5000018, 1820007482}) {
    DrawOptions options;
    options.seed = seed;
    options.length = seconds(10);
    options.faults = kAllFaults;
    options.relay = seed == 5000018;
    const Verdict v = world::Run(Draw(options), {});
    EXPECT_TRUE(v.ok) << seed << ": " << v.check << ": " << v.violation;
  }
}

void RunHostile(uint32_t faults, bool relay) {
  std::random_device device;
  for (int i = 0; i < kWorlds; ++i) {
    DrawOptions options = Drawn(device(), faults);
    options.hostile = true;
    options.relay = relay;
    const Verdict v = world::Run(Draw(options), {});
    EXPECT_TRUE(v.ok) << v.check << ": " << v.violation << "\n  again: baton-world --hostile"
                      << (relay ? " --relay" : "") << " --length " << Nanos(kLength)
                      << "ns --faults " << FormatFaults(faults) << " --seed " << options.seed;
    EXPECT_GT(v.grants, 0u);
  }
}

TEST(World, HostilePodsTakeNothingFromOthers) { RunHostile(0, false); }
TEST(World, HostilePodsTakeNothingFromOthersBehindARelay) { RunHostile(0, true); }
TEST(World, HostilePodsAndFaultsViolateNothing) { RunHostile(kAllFaults, false); }
TEST(World, HostilePodsAndFaultsViolateNothingBehindARelay) { RunHostile(kAllFaults, true); }

// A relay that ends takes with it what it had measured.
TEST(World, OverRestartsOfTheRelayOrTheDaemonNobodyIsChargedForWhatItDidNotHave) {
  for (const uint32_t faults : {kRelays, kRestarts}) {
    for (uint64_t seed = 1; seed <= kWorlds; ++seed) {
      DrawOptions options = Drawn(seed, faults);
      options.relay = true;
      const Verdict v = world::Run(Draw(options), {});
      EXPECT_TRUE(v.ok) << v.check << ": " << v.violation
                        << "\n  again: baton-world --relay --length " << Nanos(kLength)
                        << "ns --pods " << kPods << " --faults " << FormatFaults(faults)
                        << " --seed " << seed;
    }
  }
}

TEST(World, TheSameSeedGivesTheSameTrace) {
  const Plan plan = Draw(Drawn(42, kAllFaults));
  const Verdict first = world::Run(plan, {});
  const Verdict second = world::Run(plan, {});
  EXPECT_EQ(first.trace_hash, second.trace_hash);
  EXPECT_EQ(first.events, second.events);
  EXPECT_NE(first.trace_hash, world::Run(Draw(Drawn(43, kAllFaults)), {}).trace_hash);
}

TEST(Plan, ReadsBackAsItWasWritten) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    DrawOptions options = Drawn(seed, seed % 3 == 0 ? 0u : uint32_t{kAllFaults});
    options.hostile = seed % 4 == 0;
    options.relay = seed % 8 == 0;
    Plan plan = Draw(options);
    plan.pods[0].gang = static_cast<uint32_t>(seed);
    plan.pods[0].threads = 1 + seed % 2;
    plan.pods[0].in_turn = seed % 2 == 0;
    plan.pods[0].uneven = seed % 3 == 0;
    plan.pods[0].collective_kernel = std::chrono::microseconds(seed);
    if (!plan.faults.empty()) plan.faults[0].one_in = 100;
    ASSERT_TRUE(CheckPlan(plan));
    const Result<Plan> read = ReadPlan(WritePlan(plan), "file");
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(WritePlan(*read), WritePlan(plan));
    EXPECT_EQ(Describe(*read), Describe(plan));
    ASSERT_EQ(read->faults.size(), plan.faults.size());
    for (size_t i = 0; i < plan.faults.size(); ++i) {
      EXPECT_EQ(read->faults[i].pod, plan.faults[i].pod) << "only where it hits one";
      EXPECT_EQ(read->faults[i].process, plan.faults[i].process) << "only where it hits one";
    }
  }
}

TEST(Plan, OneThatWasWrittenBeforeItHadAllOfItsFieldsIsRead) {
  const Plan plan = Draw(Drawn(3, kAllFaults));
  std::istringstream written(WritePlan(plan));
  std::string old;
  for (std::string line; std::getline(written, line);) {
    const bool later = std::regex_search(
        line, std::regex("\"(collective_kernel_ns|threads|in_turn|uneven|gang|one_in)\""));
    if (!later) old += line + '\n';
  }
  const Result<Plan> read = ReadPlan(old, "file");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(WritePlan(*read), WritePlan(plan));
}

TEST(Plan, OneThatCannotBeRunIsRefused) {
  const auto error = [](const std::string& text) { return ReadPlan(text, "file").error().message; };
  EXPECT_EQ(error("").find("file is no plan"), 0u);
  EXPECT_EQ(error("{}").find("file is no plan"), 0u);
  Plan plan = Draw(Drawn(1, kAllFaults));
  plan.length = milliseconds(1);
  EXPECT_EQ(error(WritePlan(plan)), "file: a world needs at least 1s");
  plan.length = kLength;
  plan.pods[0].pause = std::chrono::hours(20'000);
  EXPECT_NE(error(WritePlan(plan)).find("times are 0 to 10000 h"), std::string::npos);
  plan.pods[0].pause = Duration(0);
  plan.pods[0].gpus = {plan.gpus};
  EXPECT_NE(error(WritePlan(plan)).find("there is no GPU"), std::string::npos);
  plan.pods[0].gpus = plan.pods[1].gpus;
  plan.pods[0].gang = plan.pods[1].gang = 1;
  EXPECT_NE(error(WritePlan(plan)).find("another pod of its gang is on GPU"), std::string::npos);
  plan.pods[0].gang = 0;
  plan.pods[0].threads = 2;
  plan.pods[0].in_turn = true;
  EXPECT_NE(error(WritePlan(plan)).find("one thread launches in turn"), std::string::npos);
}

PodPlan Endless(uint32_t id, uint32_t request) {
  PodPlan pod;
  pod.id = id;
  pod.spec.request = policy::Share(request);
  pod.spec = policy::Validated(pod.spec).value();
  return pod;
}

// Two gangs that want the same two GPUs, and a single pod on each: without one decision for both
// GPUs they would stop for ever within a second.
TEST(World, GangsAndSinglesShareTwoGpus) {
  Plan plan;
  plan.gpus = 2;
  plan.length = kLength;
  plan.calm_from = kLength / 2;
  for (uint32_t id = 1; id <= 4; ++id) {
    plan.pods.push_back(Endless(id, 250'000));
    if (id <= 2) {
      plan.pods.back().gpus = {0, 1};
      plan.pods.back().collective = 10;
    } else {
      plan.pods.back().gpus = {id - 3};
    }
  }
  const Verdict v = world::Run(plan, {});
  EXPECT_TRUE(v.ok) << v.violation;
  ASSERT_EQ(v.pods.size(), 6u);
  for (const PodFigures& pod : v.pods) {
    const double share = static_cast<double>(Nanos(pod.held)) / static_cast<double>(Nanos(kLength));
    EXPECT_NEAR(share, 1. / 3, 0.05) << "pod " << pod.pod << " on GPU " << pod.gpu;
    EXPECT_GT(pod.used, pod.held / 2);
  }
}

// A rank whose peers wake up late runs far ahead of them. They catch up in a few windows, or the
// gang would hold its GPUs far beyond its limit.
TEST(World, AGangWhosePeersAreFarBehindKeepsToItsLimit) {
  Plan plan;
  plan.seed = 200763930;
  plan.gpus = 3;
  plan.late = true;
  plan.length = seconds(1);
  PodPlan large = Endless(1, 813079);
  large.spec.slack_weight = 135732;
  large.gpus = {0, 1, 2};
  large.kernel = Duration(65861);
  PodPlan gang = Endless(2, 99467);
  gang.spec.limit = policy::Share(99467u);
  gang.gpus = {0, 1, 2};
  gang.kernel = Duration(19576);
  gang.collective = 16;
  PodPlan small = Endless(3, 30606);
  small.gpus = {2};
  small.kernel = Duration(544608);
  PodPlan high = Endless(4, 24532);
  high.spec.limit = policy::Share(24532u);
  high.spec.priority = policy::Priority::kHigh;
  high.gpus = {2};
  high.kernel = Duration(70523);
  high.burst = Duration(2790302);
  high.pause = Duration(9401698);
  high.periodic = true;
  plan.pods = {large, gang, small, high};
  const Verdict verdict = world::Run(plan, {});
  EXPECT_TRUE(verdict.ok) << verdict.check << ": " << verdict.violation;
}

TEST(World, PausesMayBeLong) {
  Plan plan;
  plan.length = plan.calm_from = std::chrono::hours(10);
  plan.pods.push_back(Endless(1, 500'000));
  plan.pods[0].burst = seconds(1);
  plan.pods[0].pause = std::chrono::minutes(30);
  plan.pods[0].jitter = 90;
  const Verdict v = world::Run(plan, {});
  EXPECT_TRUE(v.ok) << v.violation;
  const auto bursts = static_cast<double>(Nanos(v.pods[0].used)) / 1e9;
  EXPECT_NEAR(bursts, 20, 8) << "every half an hour on average";
}

// A service of 10 % beside two pods that always have work, with kernels of `kernel`. It works for
// `burst`, of which its request pays for one in 10, and pauses.
Plan Served(Duration latency, Duration kernel = milliseconds(1)) {
  Plan plan;
  plan.length = plan.calm_from = kLength;
  plan.pods = {Endless(1, 450'000), Endless(2, 450'000), Endless(3, 100'000)};
  for (PodPlan& pod : plan.pods) pod.kernel = kernel;
  PodPlan& service = plan.pods[2];
  service.kernel = service.burst = milliseconds(1);
  service.pause = milliseconds(25);
  service.jitter = 50;
  service.spec.latency = latency;
  return plan;
}

double ShareOfTime(const PodFigures& pod) {
  return static_cast<double>(Nanos(pod.held)) / static_cast<double>(Nanos(kLength));
}

TEST(World, APodWithinItsRequestIsServedInTimeAndNobodysShareMoves) {
  for (const bool late : {false, true}) {
    Plan with = Served(milliseconds(10)), without = Served(Duration(0));
    with.late = without.late = late;
    const Verdict v = world::Run(with, {}), before = world::Run(without, {});
    ASSERT_TRUE(v.ok && before.ok) << v.violation << before.violation;
    const scheduler::LatencyMet& met = v.pods[2].met;
    std::printf("%llu waits, %llu late, %llu of them ahead; p99 %.2f ms, without %.2f ms\n",
                static_cast<unsigned long long>(met.waits),
                static_cast<unsigned long long>(met.late),
                static_cast<unsigned long long>(met.ahead),
                static_cast<double>(Nanos(v.pods[2].waits.Quantile(0.99))) / 1e6,
                static_cast<double>(Nanos(before.pods[2].waits.Quantile(0.99))) / 1e6);
    EXPECT_GT(met.waits, kLength / milliseconds(50));
    EXPECT_LE(met.late, met.waits / 100);
    EXPECT_LE(met.ahead, met.late);
    for (size_t i = 0; i < v.pods.size(); ++i) {
      EXPECT_NEAR(100 * ShareOfTime(v.pods[i]), 100 * ShareOfTime(before.pods[i]), 1)
          << "pod " << i;
    }
    EXPECT_GT(v.busy, before.busy - 0.02) << "hand-offs cost as little";
  }
}

// It asks for more than its request pays for: the latency gets it no more, and its late waits are
// told apart.
TEST(World, ALatencyIsNoWayToMoreThanTheRequest) {
  Plan with = Served(milliseconds(2)), without = Served(Duration(0));
  for (Plan* plan : {&with, &without}) plan->pods[2].pause = milliseconds(1);
  const Verdict v = world::Run(with, {}), before = world::Run(without, {});
  ASSERT_TRUE(v.ok && before.ok) << v.violation << before.violation;
  const double second = 1e9 / static_cast<double>(Nanos(kLength));
  for (size_t i = 0; i < v.pods.size(); ++i) {
    EXPECT_NEAR(ShareOfTime(v.pods[i]), ShareOfTime(before.pods[i]), 0.01 + 0.2 * second);
  }
  EXPECT_GT(v.pods[2].met.ahead, v.pods[2].met.waits / 2);
  EXPECT_GE(v.pods[2].met.late, v.pods[2].met.ahead);
}

TEST(World, ALatencyShorterThanAKernelOfTheOthersIsMissed) {
  const Verdict v = world::Run(Served(milliseconds(10), milliseconds(40)), {});
  ASSERT_TRUE(v.ok) << v.violation;
  EXPECT_GT(v.pods[2].met.late - v.pods[2].met.ahead, v.pods[2].met.waits / 4);
}

TEST(World, LatenciesBreakNoLaw) {
  std::random_device device;
  for (int i = 0; i < kWorlds / 2 + 1; ++i) {
    DrawOptions options = Drawn(device(), i % 2 == 0 ? 0u : uint32_t{kAllFaults});
    options.latencies = true;
    const Verdict v = world::Run(Draw(options), {});
    EXPECT_TRUE(v.ok) << v.check << ": " << v.violation << "\n  again: baton-world --latencies "
                      << "--length " << Nanos(kLength) << "ns --pods " << kPods << " --faults "
                      << FormatFaults(options.faults) << " --seed " << options.seed;
  }
}

// The bound on the lag set where nothing can keep it: two pods that take turns are enough to break
// it, and no fault is needed.
TEST(Shrink, FindsTheFewestPodsAndFaultsThatFail) {
  Plan plan;
  plan.length = seconds(20);
  plan.calm_from = seconds(10);
  for (uint32_t id = 1; id <= 12; ++id) {
    plan.pods.push_back(Endless(id, 80'000));
    if (id % 2 == 0) plan.pods.back().pause = plan.pods.back().burst = milliseconds(30);
    plan.pods.back().processes = 1 + id % 3;
  }
  RunOptions absurd;
  absurd.lag_bound = 0.01;
  const Verdict failed = world::Run(plan, absurd);
  ASSERT_FALSE(failed.ok);
  ASSERT_EQ(failed.check, "lag");

  const Shrunk small = Shrink(plan, failed, absurd, std::chrono::minutes(4));
  EXPECT_FALSE(small.verdict.ok);
  EXPECT_EQ(small.verdict.check, "lag");
  EXPECT_LE(small.plan.pods.size(), 2u) << Describe(small.plan);
  for (const PodPlan& pod : small.plan.pods) EXPECT_EQ(pod.processes, 1u);
  EXPECT_LT(small.plan.length, seconds(5));
  EXPECT_EQ(world::Run(small.plan, absurd).violation, small.verdict.violation) << "replays";
}

// A daemon that neither reports nor kills a holder that hangs: who waits is not served. Of many
// faults the one that matters remains.
TEST(Shrink, KeepsTheFaultThatMatters) {
  Plan plan;
  plan.length = seconds(120);
  plan.calm_from = seconds(20);
  for (uint32_t id = 1; id <= 6; ++id) plan.pods.push_back(Endless(id, 150'000));
  for (int i = 0; i < 10; ++i) {
    plan.faults.push_back({.kind = kStops,
                           .at = seconds(2 + i),
                           .pod = static_cast<uint32_t>(i % 6 + 1),
                           .length = milliseconds(5),
                           .spec = {}});
    plan.faults.push_back({.kind = kKills, .at = seconds(2 + i), .pod = 2, .spec = {}});
  }
  // It goes on stopped after the world is calm.
  plan.faults.push_back(
      {.kind = kStops, .at = seconds(15), .pod = 3, .length = seconds(100), .spec = {}});
  RunOptions options;
  options.kill_hung = false;
  const Verdict failed = world::Run(plan, options);
  ASSERT_EQ(failed.check, "liveness") << failed.violation;

  const Shrunk small = Shrink(plan, failed, options, std::chrono::minutes(4));
  EXPECT_EQ(small.verdict.check, "liveness");
  ASSERT_EQ(small.plan.faults.size(), 1u) << Describe(small.plan);
  EXPECT_EQ(small.plan.faults[0].kind, kStops);
  EXPECT_EQ(small.plan.faults[0].pod, 3u);
  EXPECT_EQ(small.plan.pods.size(), 2u) << Describe(small.plan);
}

}  // namespace
}  // namespace baton::world
