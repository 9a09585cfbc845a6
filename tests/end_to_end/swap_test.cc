// Pods that have more memory together than their GPU: it moves to the host and back.
#include <signal.h>

#include <cstdlib>
#include <random>

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
    options.command = {SWAPPING, std::to_string(seed), std::to_string((mib - 4) << 20),
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
  uint64_t most = 0;
  for (Pod& pod : pods) {
    std::optional<ExitStatus> ended;
    for (int i = 0; i < 600 + rounds * 100 && !ended; ++i) {
      ended = pod.Wait(milliseconds(100));
      most = std::max(most, OnDevice());
    }
    ASSERT_EQ(ended, 0) << pod.name() << ": " << pod.Stderr();
    EXPECT_EQ(pod.Report().at("rounds"), rounds);
  }
  EXPECT_LE(most, kCardMiB << 20);
  EXPECT_EQ(Overlaps(device()), 0u);
}

}  // namespace
}  // namespace baton::bench
