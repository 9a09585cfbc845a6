// Small sets of worlds, with fresh seeds each time; baton-world runs large ones.
#include "world/world.h"

#include <gtest/gtest.h>

#include <random>

namespace baton::world {
namespace {

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

void RunFresh(uint32_t faults, int count) {
  std::random_device device;
  for (int i = 0; i < count; ++i) {
    WorldOptions options;
    options.seed = device();
    options.length = kLength;
    options.calm = kLength / 2;
    options.faults = faults;
    options.pods = kPods;
    const Verdict v = world::Run(options);
    std::printf("seed %llu: %llu grants, GPU busy %.1f %%\n",
                static_cast<unsigned long long>(options.seed),
                static_cast<unsigned long long>(v.grants), 100 * v.busy);
    EXPECT_TRUE(v.ok) << v.violation << "\n  again: baton-world --length "
                      << Nanos(kLength) / 1'000'000'000 << "s --pods " << kPods << " --faults "
                      << FormatFaults(faults) << " --seed " << options.seed;
    EXPECT_GT(v.grants, 0u);
  }
}

TEST(World, NothingIsViolatedUnderAllFaultsAtOnce) { RunFresh(kAllFaults, kWorlds); }

TEST(World, WithoutFaultsEverybodyStaysWithinItsBound) { RunFresh(0, kWorlds); }

TEST(World, TheSameSeedGivesTheSameTrace) {
  WorldOptions options;
  options.seed = 42;
  options.pods = kPods;
  options.length = kLength;
  options.calm = kLength / 2;
  const Verdict first = world::Run(options);
  const Verdict second = world::Run(options);
  EXPECT_EQ(first.trace_hash, second.trace_hash);
  EXPECT_EQ(first.events, second.events);
  options.seed = 43;
  EXPECT_NE(first.trace_hash, world::Run(options).trace_hash);
}

}  // namespace
}  // namespace baton::world
