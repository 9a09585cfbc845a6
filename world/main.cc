// baton-world: runs seeded worlds and says what held.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>

#include "base/parse.h"
#include "world/world.h"

namespace baton::world {
namespace {

int Main(int argc, char** argv) {
  CLI::App app{"Runs Baton's decisions in a deterministic world that tries to break them."};
  app.footer(
      "Examples:\n"
      "  baton-world --seed 7                      one world of five minutes\n"
      "  baton-world --seed 1 --count 1000         a thousand of them\n"
      "  baton-world --seed 7 --faults none        without faults: the fairness bounds\n"
      "  baton-world --seed 7 --faults kills,cuts --length 60s --pods 8");
  uint64_t seed = 1;
  uint64_t count = 1;
  uint32_t pods = 0;
  std::string length = "5m";
  std::string faults = "all";
  app.add_option("--seed", seed, "the first world's seed");
  app.add_option("--count", count, "how many worlds, of consecutive seeds")
      ->check(CLI::PositiveNumber);
  app.add_option("--pods", pods, "pods in it; 0: drawn from the seed")->check(CLI::Range(0, 512));
  app.add_option("--length", length, "virtual time, at least 10s");
  app.add_option("--faults", faults, "all, none, or a list: " + FormatFaults(kAllFaults));
  CLI11_PARSE(app, argc, argv);

  const auto parsed_length = ParseDuration(length);
  const auto parsed_faults = ParseFaults(faults);
  if (!parsed_length || !parsed_faults || *parsed_length < std::chrono::seconds(10)) {
    const std::string error = !parsed_length   ? parsed_length.error().message
                              : !parsed_faults ? parsed_faults.error().message
                                               : "a world needs at least 10s";
    std::fprintf(stderr, "baton-world: %s\n", error.c_str());
    return 2;
  }
  const auto started = std::chrono::steady_clock::now();
  Verdict worst;
  uint64_t failed = 0;
  for (uint64_t i = 0; i < count; ++i) {
    WorldOptions options;
    options.seed = seed + i;
    options.pods = pods;
    options.length = *parsed_length;
    options.calm = std::min(options.calm, options.length / 2);
    options.faults = *parsed_faults;
    const Verdict v = Run(options);
    if (count == 1) {
      std::printf("events %llu, grants %llu, GPU busy %.1f %%, trace %016llx\n",
                  static_cast<unsigned long long>(v.events),
                  static_cast<unsigned long long>(v.grants), 100 * v.busy,
                  static_cast<unsigned long long>(v.trace_hash));
    }
    worst.events += v.events;
    worst.worst_lag = std::max(worst.worst_lag, v.worst_lag);
    worst.worst_wait = std::max(worst.worst_wait, v.worst_wait);
    if (!v.ok) {
      ++failed;
      std::printf(
          "seed %llu: %s\n  again: baton-world --seed %llu --pods %u --length %s --faults %s\n",
          static_cast<unsigned long long>(options.seed), v.violation.c_str(),
          static_cast<unsigned long long>(options.seed), pods, length.c_str(), faults.c_str());
    }
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  std::printf(
      "%llu worlds, %llu violated; worst |lag| %.3f L, worst wait %s; %.1f million events in %.1f "
      "s\n",
      static_cast<unsigned long long>(count), static_cast<unsigned long long>(failed),
      worst.worst_lag, FormatDuration(worst.worst_wait).c_str(),
      static_cast<double>(worst.events) / 1e6, seconds);
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace baton::world

int main(int argc, char** argv) { return baton::world::Main(argc, argv); }
