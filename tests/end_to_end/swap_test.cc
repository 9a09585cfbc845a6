// Pods that have more memory together than their GPU: it moves to the host and back.
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <list>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "sim/device.h"
#include "tests/end_to_end/fixture.h"

namespace baton::bench {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint64_t kCardMiB = 1024;

class Swap : public EndToEnd {
 protected:
  // A pod of `mib` that moves, of which 64 MiB are always there for it.
  PodOptions Swapping(const std::string& name, int seed, uint64_t mib, int rounds,
                      const std::string& request = "10") const {
    PodOptions options;
    options.name = name;
    options.request = request;
    options.run_flags = {"--swap", "--memory-request", "64MiB", "--memory",
                         std::to_string(mib) + "MiB"};
    options.command = {MEMORY, "rounds", std::to_string(seed), std::to_string((mib - 4) << 20),
                       std::to_string(rounds)};
    return options;
  }
  uint64_t OnDevice() {
    uint64_t bytes = 0;
    for (const auto& process : Must(sim::Device::Open(device().path))->Processes()) {
      bytes += process.memory;
    }
    return bytes;
  }
};

// Bytes that the host has left, whoever uses the rest.
uint64_t FreeOnHost() {
  std::ifstream lines("/proc/meminfo");
  for (std::string name; lines >> name;) {
    uint64_t kib = 0;
    if (name == "MemAvailable:" && lines >> kib) return kib << 10;
  }
  return 0;
}

int Rounds(int usual) {
  const char* rounds = getenv("BATON_TEST_ROUNDS");
  return rounds == nullptr ? usual : std::max(1, atoi(rounds));
}

// BATON_TEST_ROUNDS: of each pod.
TEST_F(Swap, ThreePodsOfThreeFifthsOfAGpuEachRunSideBySide) {
  StartCluster({.transport = Transport::kUnix,
                .memory_bytes = kCardMiB << 20,
                .tables = "[memory]\nswap_fraction = 0.5\n"});
  const int rounds = Rounds(4);
  std::vector<Pod> pods;
  for (int i = 1; i <= 3; ++i) {
    pods.push_back(
        Must(cluster().Run(Swapping("swap-" + std::to_string(i), i, kCardMiB * 6 / 10, rounds))));
  }
  uint64_t most = 0, swapped = 0;
  std::map<std::string, int64_t> held;
  const Instant from = MonotonicNow();
  for (Pod& pod : pods) {
    std::optional<ExitStatus> ended;
    for (int i = 0; i < 600 + rounds * 100 && !ended; ++i) {
      ended = pod.Wait(milliseconds(50));
      most = std::max(most, OnDevice());
      const nlohmann::json status = Must(cluster().Status());
      for (const nlohmann::json& row : status.at("pods")) {
        held[row.at("name")] = row.at("held_ns");
        swapped = std::max(swapped, row.at("memory_swapped").get<uint64_t>());
      }
    }
    ASSERT_EQ(ended, 0) << pod.name() << ": " << pod.Stderr();
    const nlohmann::json report = pod.Report();
    EXPECT_EQ(report.at("rounds"), rounds);
    Figure(pod.name() + "_slowest_round", report.at("slowest_ns").get<double>() / 1e6, "ms");
  }
  // Their tokens never were two pods', and what moved was in them, or beside them.
  int64_t all = 0;
  for (const auto& [name, ns] : held) all += ns;
  EXPECT_LE(all, Nanos(MonotonicNow() - from));
  EXPECT_EQ(held.size(), 3u);
  EXPECT_GE(swapped, (kCardMiB << 20) / 5) << "nothing had to move";
  EXPECT_LE(most, kCardMiB << 20);
  EXPECT_EQ(Overlaps(device()), 0u);
}

// Out and in again take little more than the copies.
TEST_F(Swap, MovingTakesAsLongAsItsBytes) {
  constexpr double kBytesPerSecond = 150e6;  // slow, so that this machine's own copies do not count
  StartCluster({.transport = Transport::kUnix,
                .memory_bytes = 384 << 20,
                .host_bytes_per_s = static_cast<uint64_t>(kBytesPerSecond),
                .tables = "[memory]\nswap_fraction = 1\n"});
  // Of each way the median of the moves, as times the copies.
  const auto measure = [&] {
    std::vector<Pod> pods;
    for (int i = 1; i <= 2; ++i) {
      PodOptions options = Swapping("moves-" + std::to_string(i), i, 220, 2);
      options.environment = {{"BATON_LOG", "1"}};
      pods.push_back(Must(cluster().Run(options)));
    }
    std::map<std::string, double> bytes_of;
    std::map<std::string, std::vector<double>> factors_of;
    for (Pod& pod : pods) {
      EXPECT_EQ(pod.Wait(seconds(60)), 0) << pod.Stderr();
      std::istringstream lines(pod.Stderr());
      for (std::string line; std::getline(lines, line);) {
        unsigned long long mib = 0, us = 0;
        char way[4] = {};
        if (sscanf(line.c_str(), "baton: moved %llu MiB %3s in %llu us", &mib, way, &us) != 3) {
          continue;
        }
        const double bytes = static_cast<double>(mib) * 1048576;
        const double factor = static_cast<double>(us) * 1e-6 / (bytes / kBytesPerSecond);
        // What is new comes in without a copy.
        if (factor < 0.5) continue;
        bytes_of[way] += bytes;
        factors_of[way].push_back(factor);
      }
    }
    std::map<std::string, double> medians;
    for (const char* way : {"out", "in"}) {
      EXPECT_GE(bytes_of[way], 50e6) << way;
      std::vector<double>& factors = factors_of[way];
      std::sort(factors.begin(), factors.end());
      medians[way] = factors.empty() ? 0 : factors[factors.size() / 2];
      Figure(std::string("moving_") + way, medians[way], "times the copies");
    }
    return medians;
  };
  Windows(measure, [](const std::map<std::string, double>& medians) {
    for (const auto& [way, factor] : medians) EXPECT_LE(factor, 1.3) << way;
  });
}

TEST_F(Swap, APodThatHasNotLaunchedForLongIsSwappedOutEntirelyUntilItLaunches) {
  StartCluster({.transport = Transport::kCentral,
                .memory_bytes = 384 << 20,
                .tables = "[memory]\nidle_release = \"500ms\"\nswap_fraction = 0.5\n"});
  const std::string go = cluster().File("go");
  PodOptions options = Swapping("notebook", 1, 140, 3);
  options.command.insert(options.command.end(), {"2", go});
  Pod pod = Must(cluster().Run(options));
  const auto row = [&]() -> nlohmann::json {
    const nlohmann::json status = Must(cluster().Status());
    for (const nlohmann::json& pod : status.at("pods")) {
      if (pod.at("name") == "notebook") return pod;
    }
    return nlohmann::json::object();
  };
  ASSERT_TRUE(WaitUntil([&] { return row().value("memory_released", false); }, seconds(30)))
      << row() << pod.Stderr();
  // Its request too: nothing of it is on the GPU.
  EXPECT_EQ(row().at("memory_swapped"), row().at("memory_used"));
  EXPECT_EQ(OnDevice(), 0u);
  std::string said;
  Must(cluster().Baton(0, {"top", "--once"}, &said));
  EXPECT_NE(said.find("swapped out"), std::string::npos) << said;
  // Another has the room meanwhile, and makes it again.
  Pod other = Must(cluster().Run(Swapping("other", 2, 250, 1'000'000)));
  EXPECT_TRUE(WaitUntil([&] { return OnDevice() >= uint64_t{240} << 20; }, seconds(20)));
  std::ofstream(go) << "";
  EXPECT_EQ(pod.Wait(seconds(30)), 0) << pod.Stderr();
  EXPECT_EQ(pod.Report().at("rounds"), 3);
  EXPECT_FALSE(other.Wait(Duration(0))) << other.Stderr();
  other.Stop();
  EXPECT_EQ(Overlaps(device()), 0u);
}

// BATON_TEST_KILLS: so many.
TEST_F(Swap, OthersGoOnWhenPodsAreKilledAtAnyMoment) {
  // Three pods need no more than 3 * (614 - 64) MiB of the host: what a killed one leaves behind in
  // the accounts is missing to the next.
  StartCluster({.transport = Transport::kCentral,
                .memory_bytes = kCardMiB << 20,
                .tables = "[memory]\nswap_fraction = 0.5\nswap_budget_mib = 1660\n"
                          "[ledger]\nevery = \"200ms\"\n"});
  const char* many = getenv("BATON_TEST_KILLS");
  const int kills = many == nullptr ? 20 : atoi(many);
  constexpr int kForEver = 1'000'000;
  std::mt19937 random(17);
  std::list<Pod> pods;
  int started = 0;
  const Instant begun = MonotonicNow();
  const auto start = [&] {
    const int n = ++started;
    // Sizes differ, and with them who has to move.
    const uint64_t mib = kCardMiB * (40 + random() % 21) / 100;
    return Must(cluster().Run(Swapping("swap-" + std::to_string(n), n, mib, kForEver)));
  };
  const auto rows = [&] { return Must(cluster().Status()).at("pods"); };
  std::map<std::string, int64_t> held_before;  // of those that were killed, at least
  const uint64_t free_before = FreeOnHost();
  for (int i = 0; i < 3; ++i) pods.push_back(start());
  PassTime(milliseconds(500));
  for (int n = 0; n < kills; ++n) {
    PassTime(milliseconds(random() % 400));
    const auto victim = std::next(pods.begin(), static_cast<long>(random() % pods.size()));
    // The newest may be no more than `baton run` yet, which makes the pod and starts its program.
    ASSERT_TRUE(WaitUntil([&] { return !victim->Pids().empty(); }, seconds(20)));
    for (const nlohmann::json& row : rows()) {
      if (row.at("name") == victim->name()) held_before[victim->name()] = row.at("held_ns");
    }
    for (const pid_t pid : victim->Pids()) kill(pid, SIGKILL);
    ASSERT_TRUE(victim->Wait(seconds(10)));
    pods.erase(victim);
    for (Pod& other : pods) {
      const auto ended = other.Wait(Duration(0));
      ASSERT_FALSE(ended) << other.name() << " ended with " << *ended << ": " << other.Stderr();
    }
    EXPECT_LE(OnDevice(), kCardMiB << 20);
    pods.push_back(start());
  }
  // The newest may be no more than `baton run` yet.
  ASSERT_TRUE(WaitUntil([&] { return rows().size() == pods.size(); }, seconds(20))) << rows();
  // Each of those that are left has the token again. (A kernel may be far: first they fill memory.)
  std::map<std::string, int64_t> held_then;
  for (const nlohmann::json& row : rows()) held_then[row.at("name")] = row.at("held_ns");
  const auto go_on = [&] {
    const nlohmann::json now = rows();
    return std::all_of(now.begin(), now.end(), [&](const nlohmann::json& row) {
      return row.at("held_ns") > held_then[row.at("name")];
    });
  };
  EXPECT_TRUE(WaitUntil(go_on, seconds(60))) << rows();
  EXPECT_EQ(Overlaps(device()), 0u);
  EXPECT_EQ(rows().size(), pods.size());
  // No account of theirs is lost, and all together are no more than the time that there was.
  std::map<std::string, double> held;
  const auto booked = [&] {
    std::string out;
    Must(cluster().Baton(0,
                         {"report", "--by", "pod", "--last", "1h", "--format", "json",
                          "--socket-dir", cluster().File("batond0")},
                         &out));
    const nlohmann::json report = nlohmann::json::parse(out);
    for (const nlohmann::json& row : report.at("rows")) {
      held[row.at("key")] = row.at("held_hours").get<double>() * 3600e9;
    }
    return std::all_of(held_before.begin(), held_before.end(), [&](const auto& dead) {
      return held[dead.first] + 1e6 >= static_cast<double>(dead.second);
    });
  };
  EXPECT_TRUE(WaitUntil(booked, seconds(15)));
  double all = 0;
  for (const auto& [name, ns] : held) all += ns;
  const auto time = static_cast<double>(Nanos(MonotonicNow() - begun));
  EXPECT_LE(all, time);
  Figure("pods_in_the_ledger", static_cast<double>(held.size()), "pods");
  Figure("held", all / time * 100, "%");
  for (Pod& pod : pods) pod.Stop();
  EXPECT_EQ(OnDevice(), 0u);
  EXPECT_TRUE(WaitUntil([&] { return rows().empty(); }, seconds(5))) << rows();
  // What other work on the machine took or gave back meanwhile is in it too.
  Figure("host_memory_lost",
         (static_cast<double>(free_before) - static_cast<double>(FreeOnHost())) / (1 << 20), "MiB");
}

}  // namespace
}  // namespace baton::bench
