// baton-cluster-world: runs seeded worlds of a cluster around the binder's decisions, and says what
// held.
#include <CLI/CLI.hpp>
#include <cinttypes>
#include <cstdio>

#include "base/parse.h"
#include "tests/k8s/worlds/run.h"

namespace baton::k8s::testing {
namespace {

struct Flags {
  uint64_t seed = 1;
  uint64_t count = 1;
  std::string deeds;
  std::string minimise = "30s";
  bool story = false;
};

void Tell(const Verdict& verdict) {
  for (const std::string& line : verdict.story) std::printf("  %s\n", line.c_str());
}

int Main(int argc, char** argv) {
  CLI::App app{"Runs the Kubernetes binder's decisions in seeded worlds that try to break them."};
  app.footer(
      "Examples:\n"
      "  baton-cluster-world --seed 7                  one world\n"
      "  baton-cluster-world --seed 1 --count 1000     a thousand of them\n"
      "  baton-cluster-world --seed 7 --deeds 0-3,9    with these of its deeds, as a failing one "
      "was made smaller\n\n"
      "Exit status: 0 when everything held, 1 when not, 2 when the command line is wrong.");
  Flags flags;
  app.add_option("--seed", flags.seed, "the first world's seed");
  app.add_option("--count", flags.count, "how many worlds, of consecutive seeds")
      ->check(CLI::PositiveNumber);
  app.add_option("--deeds", flags.deeds, "which of its deeds are done; default: all")
      ->excludes("--count");
  app.add_option("--minimise", flags.minimise,
                 "real time to look for the smallest world like each that fails; 0: none");
  app.add_flag("--story", flags.story, "say what each deed is");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  const auto budget = ParseDuration(flags.minimise);
  if (!budget) {
    std::fprintf(stderr, "baton-cluster-world: --minimise: %s\n", budget.error().message.c_str());
    return 2;
  }
  const auto deeds = ParseDeeds(flags.deeds);
  if (!flags.deeds.empty() && !deeds) {
    std::fprintf(stderr, "baton-cluster-world: --deeds: %s\n", deeds.error().message.c_str());
    return 2;
  }
  uint64_t violated = 0, writes = 0, bound = 0, displaced = 0, rounds = 0;
  for (uint64_t i = 0; i < flags.count; ++i) {
    Plan plan = Plan::Of(flags.seed + i);
    if (!flags.deeds.empty()) plan.deeds = *deeds;
    const Verdict verdict = RunWorld(plan);
    writes += verdict.writes;
    bound += verdict.bound;
    displaced += verdict.displaced;
    rounds += verdict.rounds;
    if (flags.story) Tell(verdict);
    if (verdict.ok()) continue;
    ++violated;
    std::printf("seed %" PRIu64 ": %s: %s\n", plan.seed, verdict.broken.law.c_str(),
                verdict.broken.text.c_str());
    if (*budget > Duration(0)) {
      const Shrunk small = Shrink(plan, verdict, *budget);
      std::printf("  smallest world found that fails so, after %u runs: %s\n", small.runs,
                  small.verdict.broken.text.c_str());
      Tell(small.verdict);
      std::printf("  again: baton-cluster-world --seed %" PRIu64 " --deeds %s\n", plan.seed,
                  DeedsText(small.plan.deeds).c_str());
    }
    std::fflush(stdout);
  }
  std::printf("%" PRIu64 " worlds, %" PRIu64 " violated; %" PRIu64 " writes, %" PRIu64
              " pods bound, %" PRIu64 " displaced, %" PRIu64 " rounds\n",
              flags.count, violated, writes, bound, displaced, rounds);
  return violated == 0 ? 0 : 1;
}

}  // namespace
}  // namespace baton::k8s::testing

int main(int argc, char** argv) { return baton::k8s::testing::Main(argc, argv); }
