// Pods on two GPUs whose kernels wait for each other, as NCCL's do: a pod that has one of its GPUs
// only makes no progress there and lets nobody else have it, so two such pods can end all work.
//
// Nothing here waits without a bound: a pod that stands still for kStill is told at once, with the
// time at which it did, and baton-burn itself gives up after 20 s.
#include <signal.h>

#include <algorithm>
#include <array>

#include "tests/end_to_end/fixture.h"

namespace baton::bench {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr double kGangPoints = 3.0;  // percentage points
// No pod here waits this long for its turn: it has 10 % at least, and turns last 40 ms.
constexpr Duration kStill = seconds(3);

struct Shape {
  Transport transport;
  const char* processes;  // for the ranks of a gang: "1" has both GPUs, of "2" each has one
};

class Gangs : public EndToEnd, public ::testing::WithParamInterface<Shape> {
 protected:
  void StartTwoGpus() { StartCluster({.transport = GetParam().transport, .gpus = 2}); }

  // A pod with both GPUs, whose kernels wait for each other after every ten.
  PodOptions Gang(const std::string& name, const std::string& request, int seed) {
    PodOptions pod = Burn(name, request, "100",
                          {"--devices", "0,1", "--processes", GetParam().processes, "--collective",
                           "10", "--spread", "0.3", "--seed", std::to_string(seed)});
    pod.run_flags = {"--gpu", device(0, 1).uuid};
    return pod;
  }
  PodOptions Single(const std::string& name, const std::string& request, int gpu) const {
    PodOptions pod = Burn(name, request, "100", {"--spread", "0.3"});
    pod.gpu = gpu;
    return pod;
  }

  static bool IsOn(const Pod& pod, int gpu) {
    return pod.options().gpu == gpu || !pod.options().run_flags.empty();
  }

  // Lets the pods run for `window`. Fails, early, when one of them stands still on a GPU of its.
  void Run(const std::vector<const Pod*>& pods, Duration window) {
    struct Place {
      const Pod* pod;
      int gpu;
      Instant seen;
    };
    const Instant start = MonotonicNow();
    std::vector<Place> places;
    std::array<uint64_t, 2> next = {Count(device(0, 0)), Count(device(0, 1))};
    for (const Pod* pod : pods) {
      for (int gpu : {0, 1}) {
        if (IsOn(*pod, gpu)) places.push_back({pod, gpu, start});
      }
    }
    while (MonotonicNow() - start < window) {
      PassTime(milliseconds(100));
      const std::array<uint64_t, 2> first = next;
      next = {Count(device(0, 0)), Count(device(0, 1))};
      std::string still;
      Instant since = kNever;
      for (Place& place : places) {
        const auto gpu = static_cast<size_t>(place.gpu);
        const auto records = RecordsOf(*place.pod, device(0, place.gpu), first[gpu]);
        if (!records.empty()) place.seen = InstantFromNanos(records.back().end_ns);
        if (MonotonicNow() - place.seen < kStill) continue;
        still += " " + place.pod->name() + " on GPU " + std::to_string(place.gpu) + ";";
        since = std::min(since, place.seen);
      }
      if (still.empty()) continue;
      FAIL() << "after " << static_cast<double>(Nanos(since - start)) / 1e9
             << " s these stand still:" << still << " status: " << Must(cluster().Status()).dump();
    }
  }

  // The pods' ends are good, and no kernel of theirs met another's.
  void ExpectGoodEnds(const std::vector<Pod*>& pods) {
    StopPods();
    for (Pod* pod : pods) {
      EXPECT_EQ(pod->Wait(Duration::zero()), 0) << pod->name() << ": " << pod->Report();
    }
    for (int gpu : {0, 1}) EXPECT_EQ(Overlaps(device(0, gpu)), 0u) << "on GPU " << gpu;
  }

  // The part of the pod's time on the GPU in which its kernels waited for those on the other.
  double WaitedPercent(const Pod& pod, int gpu) {
    double waited = 0, all = 0;
    for (const sim::KernelRecord& record : RecordsOf(pod, device(0, gpu))) {
      const auto busy = static_cast<double>(record.busy_ns);
      all += busy;
      if (record.name == "baton_spin_wait") waited += busy;
    }
    return all > 0 ? 100 * waited / all : 0;
  }
};

class GangFaults : public Gangs {};

// Jobs whose ranks are pods of their own.
class Jobs : public Gangs {
 protected:
  struct Place {
    int node, gpu;
  };
  // Two pods, one on each GPU, whose kernels wait for each other as those of Gang() do.
  std::vector<Pod*> StartJob(const std::string& name, int seed, const std::array<Place, 2>& on) {
    const std::string file = cluster().folder() + "/meet-" + name;
    std::vector<PodOptions> ranks;
    for (size_t rank : {0, 1}) {
      PodOptions pod = Burn(name + "-" + std::to_string(rank), "50", "100",
                            {"--collective", "10", "--spread", "0.3", "--meet", file, "--rank",
                             std::to_string(rank), "--ranks", "2", "--seed", std::to_string(seed)});
      pod.node = on[rank].node;
      pod.gpu = on[rank].gpu;
      pod.run_flags = {"--gang", name, "--gang-size", "2"};
      ranks.push_back(pod);
    }
    return StartTogether(ranks);
  }
  // Collectives that the pod's rank on the device has come through in the window.
  double CollectivesIn(const std::pair<Instant, Instant>& window, const Pod& pod,
                       const Device& on) {
    const auto records = RecordsOf(pod, on);
    return static_cast<double>(
        std::count_if(records.begin(), records.end(), [&](const sim::KernelRecord& record) {
          return record.name == "baton_spin_wait" && record.end_ns >= Nanos(window.first) &&
                 record.end_ns < Nanos(window.second);
        }));
  }
  std::pair<Instant, Instant> Pass(Duration window) {
    PassTime(milliseconds(500));
    const Instant from = MonotonicNow();
    PassTime(window);
    return {from, MonotonicNow()};
  }
};

TEST_P(Gangs, NobodyStandsStillAndEachPodGetsItsShare) {
  StartTwoGpus();
  Pod& a = Start(Gang("a", "30", 1));
  Pod& b = Start(Gang("b", "30", 2));
  Pod& c = Start(Single("c", "40", 0));
  Pod& d = Start(Single("d", "40", 1));
  ASSERT_NO_FATAL_FAILURE(Run({&a, &b, &c, &d}, seconds(1)));
  Windows(
      [&] {
        const Instant from = MonotonicNow();
        Run({&a, &b, &c, &d}, seconds(5) * Scale());
        return std::pair(from, MonotonicNow());
      },
      [&](const auto& window) {
        for (int gpu : {0, 1}) {
          const Device& on = device(0, gpu);
          const auto shares = SharesIn(window.first, window.second, on);
          const double busy = BusyIn(window.first, window.second, on);
          const double excused = Excused(100 - busy);
          for (const Pod* pod : {&a, &b, gpu == 0 ? &c : &d}) {
            const std::string name = pod->name() + "_gpu" + std::to_string(gpu);
            Figure("share_" + name, shares.at(pod->name()), "%");
            EXPECT_GE(shares.at(pod->name()),
                      std::stod(pod->options().request) - kGangPoints - excused)
                << name;
          }
          Figure("busy_gpu" + std::to_string(gpu), busy, "%");
        }
      });
  ASSERT_FALSE(HasFatalFailure());
  ExpectGoodEnds({&a, &b, &c, &d});
  for (const Pod* gang : {&a, &b}) {
    const nlohmann::json report = gang->Report();
    Figure("collectives_" + gang->name(), report.at("collectives"), "");
    for (int gpu : {0, 1}) {
      Figure("waited_" + gang->name() + "_gpu" + std::to_string(gpu), WaitedPercent(*gang, gpu),
             "% of its time");
    }
    // 30 % of five seconds are 1500 kernels, so 150 collectives, when nothing waits.
    EXPECT_GE(report.at("collectives"), 75 * Scale()) << report;
  }
}

TEST_P(GangFaults, AGangProcessThatIsKilledHoldsNobodyUp) {
  StartTwoGpus();
  Pod& b = Start(Gang("b", "20", 2));
  Pod& c = Start(Single("c", "10", 0));
  Pod& d = Start(Single("d", "10", 1));
  std::vector<double> gaps_ms;
  // Some kills meet nobody who holds.
  for (int attempt = 0; attempt < 6 || (gaps_ms.size() < 2 && attempt < 20); ++attempt) {
    const int gpu = attempt % 2;
    Pod& victim = Start(Gang("victim" + std::to_string(attempt), "60", 10 + attempt));
    ASSERT_NO_FATAL_FAILURE(Run({&victim}, milliseconds(300 + 17 * attempt)));
    const std::array<uint64_t, 2> first = {Count(device(0, 0)), Count(device(0, 1))};
    const auto of_rank = RecordsOf(victim, device(0, gpu));
    ASSERT_FALSE(of_rank.empty());
    const Instant killed_at = MonotonicNow();
    // One rank only, where the gang has two processes: what is left of it must end too.
    ASSERT_EQ(kill(static_cast<pid_t>(of_rank.back().pid), SIGKILL), 0);
    ASSERT_TRUE(victim.Wait(seconds(5))) << "what is left of the gang does not end";
    for (int each : {0, 1}) {
      for (const Pod* pod : {&b, each == 0 ? &c : &d}) {
        ASSERT_TRUE(MakesProgress(*pod, device(0, each), kStill))
            << pod->name() << " stands still on GPU " << each << " after kill " << attempt;
      }
      // Of a victim that held: from its last kernel's end to the next pod's start.
      const auto i = static_cast<size_t>(each);
      const auto last = RecordsOf(victim, device(0, each), first[i]);
      if (last.empty() || last.back().end_ns <= Nanos(killed_at)) continue;
      const auto all = Must(sim::ReadRecords(device(0, each).path, first[i]));
      int64_t next = INT64_MAX;
      for (const sim::KernelRecord& record : all) {
        if (record.start_ns >= last.back().end_ns) next = std::min(next, record.start_ns);
      }
      gaps_ms.push_back(static_cast<double>(next - last.back().end_ns) / 1e6);
    }
  }
  ASSERT_GE(gaps_ms.size(), 2u) << "too few kills met a holder";
  std::sort(gaps_ms.begin(), gaps_ms.end());
  Figure("gang_kill_gap_p50", gaps_ms[gaps_ms.size() / 2], "ms");
  Figure("gang_kill_gap_max", gaps_ms.back(), "ms");
  EXPECT_LE(gaps_ms.back(), 500.0);
  ASSERT_NO_FATAL_FAILURE(Run({&b, &c, &d}, seconds(1)));
  ExpectGoodEnds({&b, &c, &d});
}

TEST_P(GangFaults, BatondMayBeRestartedWhileAGangHolds) {
  StartTwoGpus();
  // Between them they always hold.
  Pod& a = Start(Gang("a", "45", 1));
  Pod& b = Start(Gang("b", "45", 2));
  Pod& c = Start(Single("c", "10", 0));
  for (const int signal : {SIGKILL, SIGTERM, SIGKILL, SIGTERM}) {
    ASSERT_NO_FATAL_FAILURE(Run({&a, &b, &c}, milliseconds(700)));
    cluster().batond().Signal(signal);
    ASSERT_TRUE(cluster().batond().Wait(seconds(5)));
    Must(cluster().StartBatond());
  }
  ASSERT_NO_FATAL_FAILURE(Run({&a, &b, &c}, seconds(2)));
  for (const Pod* pod : {&a, &b, &c}) {
    for (int gpu : {0, 1}) {
      if (!IsOn(*pod, gpu)) continue;
      ASSERT_TRUE(MakesProgress(*pod, device(0, gpu), kStill))
          << pod->name() << " stands still on GPU " << gpu << ": "
          << Must(cluster().Status()).dump();
    }
  }
  ExpectGoodEnds({&a, &b, &c});
}

// As quick as pods that have both GPUs, whose tokens came together already.
TEST_P(Jobs, OfTwoPodsAreAsQuickAsPodsWithTwoGpus) {
  StartTwoGpus();
  const Duration window = seconds(3) * Scale();
  int round = 0;
  Windows(
      [&] {
        const std::string n = std::to_string(++round);
        const Pod& a = Start(Gang("a" + n, "50", 1));
        const Pod& b = Start(Gang("b" + n, "50", 2));
        auto passed = Pass(window);
        const double of_pods =
            CollectivesIn(passed, a, device(0, 0)) / 2 + CollectivesIn(passed, b, device(0, 0)) / 2;
        StopPods();
        const auto job = StartJob("job" + n, 1, {{{0, 0}, {0, 1}}});
        const auto other = StartJob("other" + n, 2, {{{0, 0}, {0, 1}}});
        passed = Pass(window);
        std::array<double, 3> found = {of_pods, CollectivesIn(passed, *job[0], device(0, 0)),
                                       CollectivesIn(passed, *other[0], device(0, 0))};
        StopPods();
        return found;
      },
      [&](const std::array<double, 3>& found) {
        Figure("collectives_of_pods_with_two_gpus", found[0], "");
        for (const double of_job : {found[1], found[2]}) {
          Figure("collectives_of_a_job", of_job, "");
          EXPECT_GE(of_job, 0.9 * found[0]);
        }
      });
  for (int gpu : {0, 1}) EXPECT_EQ(Overlaps(device(0, gpu)), 0u) << "on GPU " << gpu;
}

class JobsAcrossNodes : public Jobs {};

TEST_P(JobsAcrossNodes, GoOn) {
  StartCluster({.transport = GetParam().transport, .nodes = 2});
  const auto job = StartJob("job", 1, {{{0, 0}, {1, 0}}});
  const auto other = StartJob("other", 2, {{{0, 0}, {1, 0}}});
  const auto passed = Pass(seconds(2));
  for (const auto& ranks : {job, other}) {
    const double found = CollectivesIn(passed, *ranks[0], device(0, 0));
    Figure("collectives_of_" + ranks[0]->name(), found, "");
    // 50 % of two seconds are 1000 kernels, so 100 collectives, when nothing waits.
    EXPECT_GE(found, 40);
  }
  StopPods();
  for (int node : {0, 1}) EXPECT_EQ(Overlaps(device(node, 0)), 0u) << "on node " << node;
}

constexpr Shape kShapes[] = {
    {Transport::kUnix, "1"},
    {Transport::kCentral, "2"},
    {Transport::kUnix, "2"},
    {Transport::kCentral, "1"},
};

std::string NameOf(const ::testing::TestParamInfo<Shape>& shape) {
  return std::string(shape.param.transport == Transport::kUnix ? "Unix" : "Central") +
         (*shape.param.processes == '1' ? "OneProcess" : "AProcessForEachGpu");
}

INSTANTIATE_TEST_SUITE_P(Shapes, Gangs, ::testing::ValuesIn(kShapes), NameOf);
// Each transport and each layout once.
INSTANTIATE_TEST_SUITE_P(Shapes, GangFaults, ::testing::ValuesIn(kShapes, kShapes + 2), NameOf);

INSTANTIATE_TEST_SUITE_P(Shapes, Jobs, ::testing::Values(kShapes[0], kShapes[3]), NameOf);
INSTANTIATE_TEST_SUITE_P(Shapes, JobsAcrossNodes, ::testing::Values(kShapes[3]), NameOf);

}  // namespace
}  // namespace baton::bench
