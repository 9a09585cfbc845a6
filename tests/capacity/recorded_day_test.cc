// A day that was played by the real queue, placement and token schedulers, and is then asked about
// from its ledger: with nothing changed it is that day again.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "backend/workload.h"
#include "capacity/questions.h"
#include "capacity/scenario_files.h"
#include "tests/capacity/day.h"
#include "tests/temp_folder.h"

namespace baton::capacity {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr Duration kLength = hours(24);
// 2026-11-16T00:00:00Z.
const ledger::WallTime kBegin{seconds(1'794'787'200)};

// Batch jobs that always have work, and others that pause; more of them than four GPUs hold.
std::vector<DayPod> Drawn(uint64_t seed, int count) {
  Random random(seed);
  std::vector<DayPod> pods;
  for (int n = 0; n < count; ++n) {
    DayPod pod;
    pod.name = fmt::format("p{:03}", n);
    const char* teams[] = {"research", "research", "ops", "vision"};
    pod.team = teams[random.Between(0, 3)];
    pod.request = static_cast<double>(random.Between(1, 6)) * 10;
    pod.came = seconds(random.Between(0, 23 * 3600));
    pod.burst = hours(1'000);
    pod.work = minutes(random.Between(10, 90));
    if (random.OneIn(2)) {
      pod.burst = seconds(random.Between(2, 20));
      pod.pause = seconds(random.Between(2, 30));
    }
    pods.push_back(std::move(pod));
  }
  return pods;
}

TEST(RecordedDay, AskedAboutWithNothingChangedItIsThatDay) {
  const char* scale = std::getenv("BATON_TEST_SCALE");
  const uint64_t seeds = 2 * (scale != nullptr ? std::max(1, std::atoi(scale)) : 1);
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    TempFolder folder;
    std::string trouble;
    ledger::LedgerOptions options;
    options.database = "sqlite:" + folder.path() + "/ledger.sqlite";
    auto ledger = ledger::Ledger::Open(options, &trouble);
    ASSERT_TRUE(ledger) << ledger.error().message;
    teams::Teams teams;
    teams.half_life = hours(12);
    teams.teams = {TeamOf("ops", 1), TeamOf("research", 2), TeamOf("vision", 1)};
    Day day({NodeOf("n1", 2), NodeOf("n2", 1), NodeOf("n3", 1)}, teams,
            Drawn(seed, seed % 2 == 0 ? 110 : 150), **ledger, kBegin);
    day.Run(kLength);

    backend::WorkloadView view;
    view.teams = teams;
    view.here = "node";
    view.present = day.present();
    const ledger::Window window{kBegin, kBegin + hours(24)};
    auto workload = backend::WorkloadOf(**ledger, window, view);
    ASSERT_TRUE(workload) << workload.error().message;
    EXPECT_EQ(workload->left_out, 0u);
    // As it goes to `baton`: by files.
    const ScenarioFiles files = WriteScenario(workload->scenario);
    const auto scenario = ReadScenario(files.cluster, "cluster.toml",
                                       [&](const std::string& file) -> Result<std::string> {
                                         return file == kTeamsFile ? files.teams : files.pods;
                                       });
    ASSERT_TRUE(scenario) << scenario.error().message;
    const Outcome outcome = Played(*scenario);

    const double capacity_h = 4 * 24;
    ASSERT_NEAR(outcome.capacity_hours, capacity_h, 1e-9);
    double all = 0;
    for (const auto& [team, held] : day.held_by_team) {
      const double was = 100 * static_cast<double>(Nanos(held)) / 3600e9 / capacity_h;
      all += was;
      std::printf("seed %d, %-8s  it was %5.2f %%, what-if %5.2f %%\n", static_cast<int>(seed),
                  team.c_str(), was, ShareIn(outcome, team));
      EXPECT_NEAR(ShareIn(outcome, team), was, 2) << team;
    }
    EXPECT_GT(all, 70) << "a day on which it matters who gets what";
    std::vector<Duration> waits;
    for (const DayPod& pod : day.pods()) {
      // Of who never had a place the books know nothing.
      if (pod.placed >= Duration(0)) waits.push_back(pod.placed - pod.came);
    }
    std::sort(waits.begin(), waits.end());
    std::vector<Duration> would;
    for (const TeamFigures& team : outcome.teams) {
      would.insert(would.end(), team.waits.begin(), team.waits.end());
    }
    std::sort(would.begin(), would.end());
    for (const double q : {0.5, 0.99}) {
      std::printf("seed %d, wait p%.0f: it was %.0f min, what-if %.0f min\n",
                  static_cast<int>(seed), 100 * q,
                  static_cast<double>(Nanos(WaitQuantile(waits, q))) / 60e9,
                  static_cast<double>(Nanos(WaitQuantile(would, q))) / 60e9);
    }
  }
}

}  // namespace
}  // namespace baton::capacity
