// baton-world: runs seeded worlds and says what held.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <sstream>
#include <thread>

#include "base/parse.h"
#include "base/standard_files.h"
#include "world/compare.h"
#include "world/engine.h"
#include "world/plan.h"
#include "world/rule.h"
#include "world/shrink.h"

namespace baton::world {
namespace {

struct Flags {
  uint64_t seed = 1;
  uint64_t count = 1;
  uint32_t pods = 0;
  double hours = 0;
  bool compare = false;
  std::string length = "5m";
  std::string faults = "all";
  bool hostile = false;
  bool latencies = false;
  bool relay = false;
  std::string rule = "earliest-finish";
  std::string plan;
  std::string minimise = "30s";
  uint32_t jobs = std::max(1u, std::thread::hardware_concurrency());
};

int Complain(const std::string& what) {
  std::fprintf(stderr, "baton-world: %s\n", what.c_str());
  return 2;
}

// What all worlds of a run have shown.
struct Total {
  uint64_t worlds = 0;
  uint64_t violated = 0;
  uint64_t events = 0;
  double worst_lag = 0;
  double worst_share = 0;
  Duration worst_wait{0};
  uint64_t hash = 0;

  void Add(const Verdict& v) {
    ++worlds;
    violated += v.ok ? 0 : 1;
    events += v.events;
    worst_lag = std::max(worst_lag, v.worst_lag);
    worst_share = std::max(worst_share, v.worst_share);
    worst_wait = std::max(worst_wait, v.worst_wait);
    hash = (hash ^ v.trace_hash) * 0x100000001b3u;
  }
};

// Runs `count` worlds on `jobs` threads and hands what comes of them on in order.
template <class World, class Each>
void RunAll(uint64_t count, uint32_t jobs, World world, Each each) {
  std::atomic<uint64_t> next{0};
  std::mutex mutex;
  std::map<uint64_t, decltype(world(0))> done;  // guarded by mutex, like `reported`
  uint64_t reported = 0;
  const auto work = [&] {
    for (uint64_t i = next++; i < count; i = next++) {
      auto result = world(i);
      const std::lock_guard lock(mutex);
      done.emplace(i, std::move(result));
      for (auto first = done.begin(); first != done.end() && first->first == reported;
           first = done.erase(first)) {
        each(reported++, first->second);
      }
    }
  };
  std::vector<std::thread> threads;
  for (uint32_t n = 1; n < std::min<uint64_t>(jobs, count); ++n) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
}

// Where its output is watched.
class Progress {
 public:
  explicit Progress(uint64_t count) : count_(count), shown_(count > 1 && isatty(STDERR_FILENO)) {}
  void Show(const Total& total) const {
    if (!shown_) return;
    std::fprintf(stderr, "\r%" PRIu64 " of %" PRIu64 " worlds, %" PRIu64 " violated ", total.worlds,
                 count_, total.violated);
  }
  void Clear() const {
    if (shown_) std::fputs("\r\x1b[K", stderr);
  }

 private:
  const uint64_t count_;
  const bool shown_;
};

// The smallest world like it, for people and as a file.
void Minimise(const Plan& plan, const Verdict& verdict, const RunOptions& options, Duration budget,
              const std::string& rule) {
  const Shrunk small = Shrink(plan, verdict, options, budget);
  std::printf("  smallest world found that fails so, after %u runs:\n  %s\n", small.runs,
              small.verdict.violation.c_str());
  std::istringstream lines(Describe(small.plan));
  for (std::string line; std::getline(lines, line);) std::printf("    %s\n", line.c_str());
  const char* folder = std::getenv("TMPDIR");
  const std::string path = std::string(folder != nullptr && *folder != '\0' ? folder : "/tmp") +
                           "/baton-world-" + std::to_string(plan.seed) + ".json";
  std::ofstream file(path);
  file << WritePlan(small.plan) << std::flush;
  if (file) {
    std::printf("  again: baton-world --plan %s --rule %s\n", path.c_str(), rule.c_str());
  } else {
    std::printf("  %s cannot be written; set TMPDIR to keep the world\n", path.c_str());
  }
}

// The same seeds under every rule, as a Markdown table.
int CompareRules(const Flags& flags, Duration length) {
  constexpr uint64_t kCount = kRules.size();
  Comparison sums[kCount];
  const Progress progress(flags.count * kCount);
  Total total;
  RunAll(
      flags.count * kCount, flags.jobs,
      [&](uint64_t i) { return Compare(flags.seed + i / kCount, kRules[i % kCount], length); },
      [&](uint64_t i, const Comparison& c) {
        sums[i % kCount].Add(c);
        ++total.worlds;
        total.violated += c.violation.empty() ? 0 : 1;
        progress.Show(total);
      });
  progress.Clear();
  std::fputs(ComparisonHead().c_str(), stdout);
  for (uint64_t i = 0; i < kCount; ++i) {
    std::fputs(ComparisonRow(kRules[i], sums[i]).c_str(), stdout);
  }
  for (const Comparison& c : sums) {
    if (!c.violation.empty()) std::fprintf(stderr, "baton-world: %s\n", c.violation.c_str());
  }
  return total.violated == 0 ? 0 : 1;
}

int Main(int argc, char** argv) {
  CLI::App app{"Runs Baton's decisions in a deterministic world that tries to break them."};
  app.footer(
      "Examples:\n"
      "  baton-world --seed 7                      one world of five minutes\n"
      "  baton-world --seed 1 --count 1000         a thousand of them\n"
      "  baton-world --seed 7 --faults none        without faults: the fairness bounds\n"
      "  baton-world --seed 7 --faults kills,cuts --length 60s --pods 8\n"
      "  baton-world --plan world.json             a world from a file\n"
      "  baton-world --compare --count 1000        every rule in the same worlds, as a table\n\n"
      "Exit status: 0 when everything held, 1 when not, 2 when the command line is wrong.");
  Flags flags;
  app.add_option("--seed", flags.seed, "the first world's seed");
  app.add_option("--count", flags.count, "how many worlds, of consecutive seeds")
      ->check(CLI::PositiveNumber);
  app.add_option("--pods", flags.pods, "pods in it, 2 to 512; 0: drawn from the seed");
  app.add_option("--length", flags.length,
                 "virtual time, at least 1s; default: 5m, with --compare 1m");
  app.add_option("--hours", flags.hours, "the same in hours")
      ->check(CLI::Range(0.001, 10'000.0))
      ->excludes("--length");
  app.add_option("--faults", flags.faults,
                 "all, none, or a list: " + FormatFaults(kAllFaults) +
                     "; and relays, which all does not stand for");
  app.add_flag("--hostile", flags.hostile,
               "pods that send whatever may gain them time, beside pods that always have work");
  app.add_flag("--latencies", flags.latencies, "one pod of three with a request has a latency")
      ->excludes("--hostile");
  app.add_flag("--relay", flags.relay,
               "processes are connected to a relay, and that to the daemon");
  app.add_option("--rule", flags.rule,
                 "earliest-finish, largest-lag, start-time or window; the bounds are the first's");
  app.add_option("--plan", flags.plan, "run the world of this file, as a failing one left it")
      ->type_name("FILE")
      ->excludes("--seed")
      ->excludes("--count");
  app.add_flag(
         "--compare", flags.compare,
         "print a table of all rules over worlds made for it; of the options --seed, --count, "
         "--length or --hours, and --jobs count")
      ->excludes("--plan")
      ->excludes("--faults");
  app.add_option("--minimise", flags.minimise,
                 "real time to look for the smallest world like the first one that fails; default: "
                 "30s, 0: none");
  app.add_option("--jobs", flags.jobs, "worlds at a time; default: as many as there are cores")
      ->check(CLI::Range(1, 256));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }

  DrawOptions draw;
  draw.pods = flags.pods;
  if (draw.pods == 1 || draw.pods > kPodsMax) return Complain("--pods is 2 to 512, or 0");
  const auto length = ParseDuration(flags.length);
  if (!length) return Complain("--length: " + length.error().message);
  draw.length = flags.hours > 0 ? Duration(static_cast<int64_t>(flags.hours * 3600e9)) : *length;
  if (draw.length < kLengthMin) return Complain("a world needs at least 1s");
  if (flags.compare) {
    const bool said = app.count("--length") + app.count("--hours") > 0;
    return CompareRules(flags, said ? draw.length : std::chrono::minutes(1));
  }
  const auto faults = ParseFaults(flags.faults);
  if (!faults) return Complain("--faults: " + faults.error().message);
  draw.faults = *faults;
  draw.hostile = flags.hostile;
  draw.latencies = flags.latencies;
  draw.relay = flags.relay;
  const auto budget = ParseDuration(flags.minimise);
  if (!budget) return Complain("--minimise: " + budget.error().message);
  std::optional<Plan> given;
  if (!flags.plan.empty()) {
    std::ifstream file(flags.plan);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    if (!file) return Complain(flags.plan + " cannot be read");
    auto plan = ReadPlan(text, flags.plan);
    if (!plan) return Complain(plan.error().message);
    given = std::move(*plan);
  }

  RunOptions options;
  const auto rule = ParseRule(flags.rule);
  if (!rule) return Complain("--rule: " + rule.error().message);
  options.scheduler.fairness.order = OrderOf(*rule);
  // Of another rule what holds for every rule.
  options.bounds = *rule == Rule::kEarliestFinish;
  const auto plan_of = [&](uint64_t i) {
    if (given) return *given;
    DrawOptions mine = draw;
    mine.seed = flags.seed + i;
    return Draw(mine);
  };
  const auto started = std::chrono::steady_clock::now();
  const Progress progress(flags.count);
  Total total;
  RunAll(
      flags.count, flags.jobs, [&](uint64_t i) { return Run(plan_of(i), options); },
      [&](uint64_t i, const Verdict& v) {
        total.Add(v);
        if (!v.ok) {
          progress.Clear();
          std::printf("seed %" PRIu64 ": %s: %s\n", given ? given->seed : flags.seed + i,
                      v.check.c_str(), v.violation.c_str());
          if (!given) {
            std::printf("  again: baton-world --seed %" PRIu64 " --pods %u --length %" PRId64
                        "ns --faults %s --rule %s%s%s\n",
                        flags.seed + i, flags.pods, Nanos(draw.length), flags.faults.c_str(),
                        flags.rule.c_str(),
                        flags.hostile     ? " --hostile"
                        : flags.latencies ? " --latencies"
                                          : "",
                        flags.relay ? " --relay" : "");
          }
          if (total.violated == 1 && *budget > Duration(0)) {
            Minimise(plan_of(i), v, options, *budget, flags.rule);
          }
          std::fflush(stdout);
        } else if (flags.count == 1) {
          std::printf("events %" PRIu64 ", grants %" PRIu64 ", GPU busy %.1f %%\n", v.events,
                      v.grants, 100 * v.busy);
        }
        progress.Show(total);
      });
  progress.Clear();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  std::printf("%" PRIu64 " worlds, %" PRIu64
              " violated; worst |lag| %.3f L, worst share error "
              "over 10 s %.3f * 2 L, worst wait %s; trace %016" PRIx64 "\n",
              total.worlds, total.violated, total.worst_lag, total.worst_share,
              FormatDuration(total.worst_wait).c_str(), total.hash);
  std::fprintf(stderr, "%.1f million events in %.1f s\n", static_cast<double>(total.events) / 1e6,
               seconds);
  return total.violated == 0 ? 0 : 1;
}

}  // namespace
}  // namespace baton::world

int main(int argc, char** argv) {
  baton::OpenStandardFiles();
  return baton::AfterOutput("baton-world", baton::world::Main(argc, argv));
}
