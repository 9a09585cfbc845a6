// bench_ledger: what the books cost, to write and to ask. Prints one JSON object.
#include "ledger/ledger.h"

#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/time.h"
#include "ledger/time_zone.h"

namespace baton::ledger {
namespace {

using nlohmann::json;
using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr int64_t kMinute_ns = 60'000'000'000;
constexpr const char* kBys[] = {"team", "user", "namespace", "pod", "gpu", "node", "day", "total"};

struct Settings {
  std::string database;
  int days = 90;
  int teams = 200;
  int gpus = 16;
  int64_t pod_minutes = 1'000'000;
  int pods = 10'000;
  int batches = 30;
  int repeat = 5;
  int at_once = 0;  // pods; 0: as many as pod_minutes need, of minutes to hours
  int in_all = 20'000;
  bool for_ever = false;
  bool filled = false;
};

[[noreturn]] void Die(const Error& error) {
  std::fprintf(stderr, "bench_ledger: %s\n", error.message.c_str());
  std::exit(1);
}
template <class T>
T Take(Result<T> result) {
  if (!result) Die(result.error());
  return std::move(*result);
}

// Of this process, both of its threads.
double Cpu_s() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto of = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return of(usage.ru_utime) + of(usage.ru_stime);
}
double Now_ms() { return static_cast<double>(Nanos(MonotonicNow())) / 1e6; }

// Wall-clock milliseconds: the median and the worst of some calls.
json Time(int repeat, const std::function<void()>& call) {
  std::vector<double> times;
  for (int i = 0; i < repeat; ++i) {
    const double begin = Now_ms();
    call();
    times.push_back(Now_ms() - begin);
  }
  std::sort(times.begin(), times.end());
  return {{"median_ms", times[times.size() / 2]}, {"max_ms", times.back()}};
}

Owner OwnerOf(const Settings& settings, uint64_t pod) {
  const uint64_t team = pod % static_cast<uint64_t>(settings.teams);
  return {"pod-" + std::to_string(pod), "ns-" + std::to_string(team % 20),
          "division-" + std::to_string(team % 10) + "/team-" + std::to_string(team),
          "user-" + std::to_string(team * 5 + pod / 7 % 5)};
}
std::string Gpu(int gpu) { return "GPU-bench-" + std::to_string(gpu); }

// A GPU takes this many watts in the mean, a pod 200 to 600 while it holds.
constexpr int64_t kWatts = 400;

Batch EmptyBatch(const Settings& settings, const std::string& source, uint64_t seq, WallTime to,
                 Duration idle) {
  Batch batch;
  batch.source = source;
  batch.node = "node";
  batch.seq = seq;
  batch.to = to;
  for (int gpu = 0; gpu < settings.gpus; ++gpu) {
    batch.gpus.push_back({Gpu(gpu), gpu % 4 == 0 ? "model-a" : "model-b", uint64_t{80} << 30, idle,
                          kWatts * (to.time_since_epoch().count() / 1'000)});
  }
  return batch;
}

void Grow(Counters& total, Random& random, Duration time) {
  const int64_t held = random.Between(0, Nanos(time));
  total.held_ns += held;
  total.busy_ns += held / 2;
  total.waited_ns += Nanos(time) / 10;
  total.memory_mib_ms += 8000 * Nanos(time) / 1'000'000;
  total.launches += random.Between(1, 100'000);
  total.grants += random.Between(1, 500);
  total.energy_j += held / 1'000'000 * random.Between(200, 600) / 1'000;
  total.uncontended_ns += held / random.Between(1, 4);
}

// Where pods are many, what is older than that is booked for more than a day at once, which the
// ledger records by the hour: it does not keep minutes of it.
constexpr int64_t kMinutesKept = 13 * 24 * 60;
constexpr int64_t kLongStep = 25 * 60;

// One million pod-minutes over 90 days: pods of minutes to hours, booked every minute, and trimmed
// as in life. Or always as many pods at once.
void Fill(Ledger& ledger, const Settings& settings, WallTime begin, json& out) {
  const std::string source(32, 'a');
  Random random(1);
  struct Running {
    Sample sample;
    int64_t left;
  };
  std::map<uint64_t, Running> running;
  const int64_t all_minutes = settings.days * 24 * 60;
  uint64_t next_pod = 1;
  int64_t booked = 0;
  uint64_t seq = 1;
  Take(ledger.Apply(EmptyBatch(settings, source, seq, begin, Duration{0})));
  const double start = Now_ms();
  const double cpu = Cpu_s();
  const bool many = settings.at_once > 0;
  const int64_t life = many ? all_minutes * settings.at_once / settings.in_all : 0;
  int said = 0;  // twentieths
  for (int64_t minute = 0, step = 1; minute < all_minutes; minute += step) {
    step = many && minute + kLongStep <= all_minutes - kMinutesKept ? kLongStep : 1;
    if (many && minute * 20 / all_minutes > said) {
      said = static_cast<int>(minute * 20 / all_minutes);
      std::fprintf(stderr, "  %d %%, %.0f s\n", 5 * said, (Now_ms() - start) / 1e3);
    }
    // As many as are needed for the million at the end.
    while (many ? running.size() < static_cast<size_t>(settings.at_once)
                : booked + static_cast<int64_t>(running.size()) <
                      settings.pod_minutes * (minute + 1) / all_minutes) {
      const uint64_t pod = next_pod++;
      Sample sample;
      sample.pod = pod;
      sample.gpu = Gpu(static_cast<int>(random.Between(0, settings.gpus - 1)));
      sample.owner = OwnerOf(settings, pod);
      running[pod] = {sample,
                      many ? random.Between(life / 2, life * 3 / 2) : random.Spread(5, 8 * 60)};
    }
    if (running.empty()) continue;
    Batch batch =
        EmptyBatch(settings, source, ++seq, begin + minutes(minute + step), seconds(20) * step);
    for (auto it = running.begin(); it != running.end();) {
      Grow(it->second.sample.total, random, Duration(step * kMinute_ns));
      it->second.sample.memory_peak_mib = random.Between(1000, 80'000);
      batch.samples.push_back(it->second.sample);
      booked += step;
      it = (it->second.left -= step) <= 0 ? running.erase(it) : std::next(it);
    }
    Take(ledger.Apply(batch));
    if (const auto trimmed = ledger.Trim(batch.to); !trimmed) Die(trimmed.error());
  }
  out["fill"] = {{"pod_minutes", booked},   {"pods", next_pod - 1},
                 {"teams", settings.teams}, {"days", settings.days},
                 {"batches", seq},          {"wall_s", (Now_ms() - start) / 1e3},
                 {"cpu_s", Cpu_s() - cpu}};
}

void AskEverything(Ledger& ledger, const Settings& settings, WallTime begin, json& out) {
  const WallTime end = begin + hours(24) * settings.days;
  const std::map<std::string, Window> windows = {
      {"all", {begin, end}},
      {"ragged", {begin + seconds(12'345), end - seconds(54'321)}},
      {"month", {end - hours(24 * 30) - seconds(7'777), end - seconds(1'111)}},
      {"day", {end - hours(24) - seconds(3'333), end - seconds(3'333)}},
  };
  double worst = 0;
  for (const auto& [name, window] : windows) {
    for (size_t by = 0; by < std::size(kBys); ++by) {
      size_t rows = 0;
      json time = Time(settings.repeat, [&, window = window] {
        rows = Take(ledger.Query(window, static_cast<By>(by))).rows.size();
      });
      time["rows"] = rows;
      worst = std::max(worst, time["max_ms"].get<double>());
      out["report"][name][kBys[by]] = std::move(time);
    }
  }
  out["report_worst_ms"] = worst;
  // Days of a time zone are no days of the ledger: they are added up by the hour.
  Question by_day_there;
  by_day_there.window = {begin, end};
  by_day_there.by = {By::kDay};
  by_day_there.zone = Take(FindTimeZone("Asia/Tokyo"));
  out["report_days_of_a_time_zone"] =
      Time(settings.repeat, [&] { Take(ledger.Query(by_day_there)); });
  out["standing"] = Time(settings.repeat, [&] { Take(ledger.Decayed(end, hours(24 * 7))); });
  out["budget"] = Time(settings.repeat, [&] {
    Take(ledger.HeldBy("division-3", {end - hours(24 * 30) - seconds(7'777), end}));
  });
  out["advice_week"] = Time(settings.repeat, [&] {
    Take(ledger.Profiles({end - hours(24 * 7), end}));
  });
}

// All of the pods moved in each batch, ten seconds apart: the worst that a cluster of this size
// does.
void Load(Ledger& ledger, const Settings& settings, WallTime begin, json& out) {
  const std::string source(32, 'b');
  Random random(2);
  std::vector<Sample> samples;
  for (int i = 0; i < settings.pods; ++i) {
    Sample sample;
    sample.pod = static_cast<uint64_t>(i) + 1;
    sample.gpu = Gpu(i % settings.gpus);
    sample.owner = OwnerOf(settings, sample.pod);
    samples.push_back(sample);
  }
  std::vector<double> cpu_ms;
  std::vector<double> wall_ms;
  for (int n = 0; n < settings.batches + 3; ++n) {
    // As in life, not at the buckets' borders.
    Batch batch =
        EmptyBatch(settings, source, static_cast<uint64_t>(n) + 1,
                   begin + seconds(10 * n) + std::chrono::milliseconds(4'321), seconds(1));
    for (Sample& sample : samples) {
      Grow(sample.total, random, seconds(10));
      sample.memory_peak_mib = 8000;
    }
    batch.samples = samples;
    const double cpu = Cpu_s();
    const double wall = Now_ms();
    Take(ledger.Apply(batch));
    if (n < 3) continue;  // the first ones make the pods' accounts
    cpu_ms.push_back((Cpu_s() - cpu) * 1e3);
    wall_ms.push_back(Now_ms() - wall);
  }
  double sum = 0;
  for (const double ms : cpu_ms) sum += ms;
  const double mean = sum / static_cast<double>(cpu_ms.size());
  std::sort(cpu_ms.begin(), cpu_ms.end());
  std::sort(wall_ms.begin(), wall_ms.end());
  out["load"] = {{"pods", settings.pods},
                 {"batches", settings.batches},
                 {"batch_cpu_mean_ms", mean},
                 {"batch_cpu_max_ms", cpu_ms.back()},
                 {"batch_wall_median_ms", wall_ms[wall_ms.size() / 2]},
                 {"batch_wall_max_ms", wall_ms.back()},
                 {"part_of_a_core", mean / 10'000}};
}

constexpr const char* kExamples = R"(Examples:
  bench_ledger
  bench_ledger --database "postgresql://user@/bench?host=/run/postgresql"
  bench_ledger --pod-minutes 100000 --pods 1000
  bench_ledger --at-once 2000 --in-all 20000 --days 365 --gpus 1000 --pods 2000
                                          a year of 1 000 GPUs

"report", "standing", "budget" and "advice_week" are asked of a ledger that holds the pod-minutes;
"load" is the time that booking one batch takes in which all of the pods have moved. With PostgreSQL
the CPU time is that of this program alone.)";

int Main(int argc, char** argv) {
  CLI::App app("Measures what the ledger costs, to write and to ask.");
  Settings settings;
  app.add_option("--database", settings.database,
                 "sqlite:PATH or a PostgreSQL URI; without it a file in a temporary folder. "
                 "Must be empty");
  app.add_option("--pod-minutes", settings.pod_minutes, "How much use is booked first")
      ->check(CLI::Range(int64_t{1000}, int64_t{100'000'000}))
      ->capture_default_str();
  app.add_option("--at-once", settings.at_once,
                 "Instead of that, so many pods are always there, booked by the minute in the "
                 "last 15 days")
      ->check(CLI::Range(1, 100'000));
  app.add_option("--in-all", settings.in_all, "... of so many in all")
      ->check(CLI::Range(1, 10'000'000))
      ->capture_default_str();
  app.add_option("--days", settings.days, "... over how many days")
      ->check(CLI::Range(8, 3650))
      ->capture_default_str();
  app.add_option("--teams", settings.teams, "... by how many teams")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  app.add_option("--gpus", settings.gpus, "... on how many GPUs")
      ->check(CLI::Range(1, 10'000))
      ->capture_default_str();
  app.add_option("--pods", settings.pods, "Pods that move in each batch of the load")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--batches", settings.batches, "How many such batches")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  app.add_flag("--for-ever", settings.for_ever,
               "Keep the buckets of all levels, not as long as batond does by default");
  app.add_flag("--filled", settings.filled,
               "Only ask: --database has what a run with the same flags has booked");
  app.add_option("--repeat", settings.repeat, "How often each question is asked")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.footer(kExamples);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "bench_ledger: %s\n", error.what());
    return 2;
  }
  std::string folder;
  if (settings.database.empty()) {
    char path[] = "/tmp/baton-bench-ledger-XXXXXX";
    if (mkdtemp(path) == nullptr) Die({ErrorCode::kInternal, "no temporary folder in /tmp"});
    folder = path;
    settings.database = "sqlite:" + folder + "/ledger";
  }
  LedgerOptions options;
  options.database = settings.database;
  if (settings.for_ever) options.retention = {hours(0), hours(0), hours(0), hours(0)};
  json out;
  {
    const auto ledger = Take(Ledger::Open(options, nullptr));
    const WallTime begin = std::chrono::sys_days(std::chrono::year(2026) / 6 / 1);
    if (!settings.filled) {
      std::fprintf(stderr, "booking %lld pod-minutes ...\n",
                   static_cast<long long>(settings.pod_minutes));
      Fill(*ledger, settings, begin, out);
    }
    out["size_bytes"] = Take(ledger->SizeBytes());
    std::fprintf(stderr, "asking ...\n");
    AskEverything(*ledger, settings, begin, out);
    if (!settings.filled) {
      std::fprintf(stderr, "booking batches of %d pods ...\n", settings.pods);
      Load(*ledger, settings, begin + hours(24) * settings.days, out);
      out["size_bytes_at_the_end"] = Take(ledger->SizeBytes());
    }
  }
  if (!folder.empty()) std::filesystem::remove_all(folder);
  std::puts(out.dump(2).c_str());
  return 0;
}

}  // namespace
}  // namespace baton::ledger

int main(int argc, char** argv) { return baton::ledger::Main(argc, argv); }
