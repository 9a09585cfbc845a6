// baton bench: what the token costs here, against the daemon that runs here; and whether that has
// changed.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/parse.h"
#include "cli/bench_compare.h"
#include "cli/bench_run.h"
#include "cli/command.h"
#include "cli/contention.h"
#include "cli/measure.h"
#include "cli/text_table.h"
#include "wire/control_client.h"

namespace baton::cli {
namespace {

using nlohmann::json;

constexpr size_t kPodsMax = 256;  // as many tickets there are
constexpr size_t kGpusMax = 64;

// What each benchmark can do with what it found.
struct Kept {
  bool json = false;
  std::string save;
  std::string name;
};

struct TokenOptions : Kept {
  size_t count = 20'000;
};

struct ContentionOptions : Kept {
  size_t pods = 16;
  size_t gpus = 1;
  std::string hold = "200us";
  std::string length = "10s";
};

struct CompareOptions {
  std::string before;
  std::string after;
  bool json = false;
  double fail_above = -1;  // percent; negative: never
};

// A client of a fresh throw-away pod on a virtual GPU.
Result<Tenant> NewTenant(const std::string& socket_dir, size_t gpu = 0) {
  json request = {{"command", "bench_ticket"}};
  if (gpu > 0) request["gpu"] = gpu;
  const Result<json> pod = wire::Ask(socket_dir, request);
  if (!pod) return tl::unexpected(pod.error());
  // As the hook finds it: where the operator's socket has a folder of its own, tenants' is
  // elsewhere.
  const char* path = std::getenv("BATON_SOCKET");
  const bool told = path != nullptr && *path != 0;
  Result<std::unique_ptr<Transport>> transport =
      ConnectTenant(told ? path : wire::TenantSocket(socket_dir));
  if (!transport) return tl::unexpected(transport.error());
  return Tenant::Attach(std::move(*transport), pod->at("ticket"), pod->at("gpus").at(0));
}

// On a terminal, in one line that the next one overwrites.
void ShowProgress(double part) {
  if (isatty(STDERR_FILENO) == 0) return;
  std::fprintf(stderr, part < 1 ? "\r%3.0f %%" : "\r      \r", 100 * part);
  std::fflush(stderr);
}

// `more`: what the JSON has besides.
int Deliver(const BenchRun& run, const Kept& kept, const json& more = json::object()) {
  json report = ToJson(run);
  if (!kept.name.empty()) report["name"] = kept.name;
  report.update(more);
  if (!kept.save.empty()) {
    if (const Result<void> saved = AppendRun(kept.save, report); !saved) {
      return Complain(saved.error());
    }
  }
  std::fputs(kept.json ? (report.dump() + "\n").c_str() : ToText(run).c_str(), stdout);
  return 0;
}

json ToJson(const Quantiles& q) {
  return {{"p50_us", q.p50}, {"p90_us", q.p90}, {"p99_us", q.p99}};
}

int BenchToken(const TokenOptions& options, const Invocation& invocation) {
  const Result<std::unique_ptr<UnixEcho>> echo = UnixEcho::Start();
  if (!echo) return Complain(echo.error());
  Result<Tenant> first = NewTenant(invocation.socket_dir);
  if (!first) return Complain(first.error());
  Result<Tenant> second = NewTenant(invocation.socket_dir);
  if (!second) return Complain(second.error());

  Result<Compared> trips = CompareRoundTrips(*first, **echo, options.count);
  if (!trips) return Complain(trips.error());
  Result<Compared> hand_offs = CompareHandOffs(*first, *second, **echo, options.count);
  if (!hand_offs) return Complain(hand_offs.error());

  // As the first versions of this command had them.
  const Quantiles trip = Summarize(trips->token), hand_off = Summarize(hand_offs->token);
  const Quantiles trip_echo = Summarize(trips->echo), hand_off_echo = Summarize(hand_offs->echo);
  const json of_before = {
      {"count", options.count},
      {"round_trip", ToJson(trip)},
      {"round_trip_echo", ToJson(trip_echo)},
      {"round_trip_ratio_p50", trip.p50 / trip_echo.p50},
      {"hand_off", ToJson(hand_off)},
      {"hand_off_echo", ToJson(hand_off_echo)},
      {"hand_off_ratio_p50", hand_off.p50 / hand_off_echo.p50},
  };
  BenchRun run{"token", {{"count", options.count}}, {}, {}};
  run.figures.push_back({"round_trip", "token round trip", std::move(trips->token), "raw unix echo",
                         std::move(trips->echo)});
  run.figures.push_back({"hand_off", "token hand-off", std::move(hand_offs->token), "raw unix echo",
                         std::move(hand_offs->echo)});
  return Deliver(run, options, of_before);
}

int BenchContention(const ContentionOptions& options, const Invocation& invocation) {
  const Result<Duration> hold = ParseDuration(options.hold);
  if (!hold) return Complain(hold.error());
  const Result<Duration> length = ParseDuration(options.length);
  if (!length) return Complain(length.error());
  if (*length < std::chrono::milliseconds(100) || *length > std::chrono::hours(24)) {
    return Complain({ErrorCode::kInvalid, "--length must be 100ms to 24h"});
  }
  if (*hold > std::chrono::seconds(1)) {
    return Complain({ErrorCode::kInvalid, "--hold must be 1s or less"});
  }
  if (options.pods < options.gpus) {
    return Complain({ErrorCode::kInvalid, fmt::format("{} GPUs need as many pods; there are {}",
                                                      options.gpus, options.pods)});
  }
  const Result<std::unique_ptr<UnixEcho>> echo = UnixEcho::Start();
  if (!echo) return Complain(echo.error());
  std::vector<Contender> contenders;
  for (size_t i = 0; i < options.pods; ++i) {
    const size_t gpu = i % options.gpus;
    Result<Tenant> tenant = NewTenant(invocation.socket_dir, gpu);
    if (!tenant) return Complain(tenant.error());
    contenders.push_back({std::move(*tenant), gpu});
  }
  Result<Contention> found = Contend(
      contenders, {.gpus = options.gpus, .hold = *hold, .length = *length}, **echo, ShowProgress);
  if (!found) return Complain(found.error());

  BenchRun run{"contention",
               {{"pods", options.pods},
                {"gpus", options.gpus},
                {"hold_us", static_cast<double>(Nanos(*hold)) / 1e3},
                {"length_s", static_cast<double>(Nanos(*length)) / 1e9}},
               {},
               {}};
  const double seconds = static_cast<double>(Nanos(found->length)) / 1e9;
  run.figures.push_back({"wait", "wait for the token", std::move(found->waits), "", {}});
  if (!found->hand_offs.empty()) {
    run.figures.push_back({"hand_off", "token hand-off", std::move(found->hand_offs),
                           "raw unix echo", std::move(found->echoes)});
  }
  run.values.push_back({"grants", "grants", static_cast<double>(found->grants) / seconds, "1/s"});
  run.values.push_back(
      {"share_error", "largest error of a pod's share", found->largest_error, "points"});
  if (found->daemon_processor) {
    run.values.push_back({"daemon_processor", "processor time of the daemon",
                          *found->daemon_processor, "processors"});
  }
  run.values.push_back(
      {"own_processor", "processor time of this program", found->own_processor, "processors"});
  return Deliver(run, options);
}

json ToJson(const Comparison& c) {
  // An unknown bound has no number in JSON.
  const auto bound = [](double value) {
    return std::isfinite(value) ? json(value) : json(nullptr);
  };
  return {{"name", c.name},        {"unit", c.unit},
          {"before", c.before},    {"after", c.after},
          {"ratio", c.ratio},      {"low", bound(c.low)},
          {"high", bound(c.high)}, {"of", c.by_runs ? "runs" : "parts"},
          {"worse", c.worse()},    {"better", c.differs() && !c.worse()}};
}

std::string VerdictOn(const Comparison& c) {
  if (!std::isfinite(c.high)) return "one value each: nothing to tell it from chance";
  if (!c.differs()) return "no difference shown";
  return c.worse() ? "worse" : "better";
}

std::string Percent(double ratio) {
  return std::isfinite(ratio) ? fmt::format("{:+.1f}", 100 * (ratio - 1)) : "?";
}

int BenchCompare(const CompareOptions& options) {
  const Result<std::vector<json>> before = ReadRuns(options.before);
  if (!before) return Complain(before.error());
  const Result<std::vector<json>> after = ReadRuns(options.after);
  if (!after) return Complain(after.error());
  const Result<std::vector<Comparison>> all = Compare(*before, *after);
  if (!all) return Complain(all.error());

  bool fails = false;
  bool by_runs = true;
  json rows = json::array();
  TextTable table{{{"FIGURE", true},
                   {"BEFORE"},
                   {"AFTER"},
                   {"UNIT", true},
                   {"CHANGE %"},
                   {"95 % FROM"},
                   {"TO"},
                   {"", true}},
                  {}};
  for (const Comparison& c : *all) {
    const double least = c.more_is_better ? 1 / c.high : c.low;  // so much worse for certain
    fails |= options.fail_above >= 0 && 100 * (least - 1) > options.fail_above;
    by_runs &= c.by_runs;
    rows.push_back(ToJson(c));
    table.rows.push_back({c.name, Fixed(c.before, 2), Fixed(c.after, 2), c.unit, Percent(c.ratio),
                          c.low > 0 ? Percent(c.low) : "?", Percent(c.high), VerdictOn(c)});
  }
  if (options.json) {
    std::puts(json{{"before_runs", before->size()}, {"after_runs", after->size()}, {"rows", rows}}
                  .dump()
                  .c_str());
  } else {
    for (const std::string& line : table.Lines()) std::puts(line.c_str());
    if (!by_runs) {
      std::puts(
          "\nWith fewer than three runs in a file, the bounds are of what differs within a run. "
          "Runs differ\nby more: save five before and five after, in turns.");
    }
  }
  return fails ? kFailed : 0;
}

// A line for each run: what is worst comes first.
int BenchCluster(const std::string& file, bool as_json) {
  const Result<std::vector<json>> runs = ReadRuns(file);
  if (!runs) return Complain(runs.error());
  struct Row {
    std::string name, figure;
    double p50 = 0, p90 = 0, p99 = 0, of_raw = 0;
  };
  std::vector<Row> rows;
  try {
    for (const json& run : *runs) {
      const std::string subject = run.at("subject");
      for (const json& f : run.at("figures")) {
        rows.push_back({run.at("name"), subject + " " + f.at("name").get<std::string>(),
                        f.at("p50_us"), f.at("p90_us"), f.at("p99_us"), f.value("ratio_p50", 0.0)});
      }
    }
  } catch (const json::exception&) {
    return Complain(
        {ErrorCode::kInvalid,
         file + " has a line that is not a run of 'baton bench'; make them with --json"});
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return a.figure != b.figure ? a.figure < b.figure : a.p50 > b.p50;
  });
  if (as_json) {
    json all = json::array();
    for (const Row& r : rows) {
      all.push_back({{"name", r.name},
                     {"figure", r.figure},
                     {"p50_us", r.p50},
                     {"p90_us", r.p90},
                     {"p99_us", r.p99},
                     {"ratio_p50", r.of_raw > 0 ? json(r.of_raw) : json(nullptr)}});
    }
    std::puts(json{{"rows", all}}.dump().c_str());
    return 0;
  }
  TextTable table{{{"FIGURE, us", true}, {"RUN", true}, {"P50"}, {"P90"}, {"P99"}, {"OF RAW"}}, {}};
  for (const Row& r : rows) {
    table.rows.push_back({r.figure, r.name, Fixed(r.p50), Fixed(r.p90), Fixed(r.p99),
                          r.of_raw > 0 ? Fixed(r.of_raw, 2) + " x" : ""});
  }
  for (const std::string& line : table.Lines()) std::puts(line.c_str());
  return 0;
}

void AddKept(CLI::App& command, Kept& kept) {
  command.add_flag("--json", kept.json, "One JSON object");
  command.add_option("--save", kept.save, "Add the run to this file, for 'baton bench compare'")
      ->type_name("FILE");
  command.add_option("--name", kept.name, "What the run is called; default: the host's name")
      ->type_name("NAME");
}

void AddToken(CLI::App& bench, Invocation& invocation) {
  CLI::App* token = bench.add_subcommand("token", "The token's round trip and hand-off");
  auto options = std::make_shared<TokenOptions>();
  token->add_option("--count", options->count, "Samples of each kind")
      ->type_name("N")
      ->check(CLI::Range(100, 10'000'000).description(""))
      ->capture_default_str();
  AddKept(*token, *options);
  AddSocketDir(*token, invocation);
  token->footer(R"(Examples:
  baton bench token
  baton bench token --count 100000 --json
  baton bench token --save before.jsonl
  baton bench token --socket-dir /run/baton-frontend      through the node's relay

It runs against the daemon as it stands, on a virtual GPU that no device backs: pods are not
disturbed. Round trip: a client asks for the token until it has it. Hand-off: the holder gives the
token back until the pod that waits has it. The raw echo is the floor: two processes and a unix
socket.)");
  token->callback([options, &invocation] {
    invocation.action = [=, &invocation] { return BenchToken(*options, invocation); };
  });
}

void AddContention(CLI::App& bench, Invocation& invocation) {
  CLI::App* contention =
      bench.add_subcommand("contention", "Many pods that want the token of a few GPUs");
  auto options = std::make_shared<ContentionOptions>();
  contention->add_option("--pods", options->pods, "Pods that ask for the token again and again")
      ->type_name("N")
      ->check(CLI::Range(size_t{1}, kPodsMax).description(""))
      ->capture_default_str();
  contention
      ->add_option("--gpus", options->gpus, "Virtual GPUs, among which the pods are dealt out")
      ->type_name("M")
      ->check(CLI::Range(size_t{1}, kGpusMax).description(""))
      ->capture_default_str();
  contention->add_option("--hold", options->hold, "How long a pod holds the token")
      ->type_name("DURATION")
      ->capture_default_str();
  contention->add_option("--length", options->length, "How long it is measured")
      ->type_name("DURATION")
      ->capture_default_str();
  AddKept(*contention, *options);
  AddSocketDir(*contention, invocation);
  contention->footer(R"(Examples:
  baton bench contention
  baton bench contention --pods 128 --gpus 8 --hold 1ms
  baton bench contention --pods 64 --gpus 16 --hold 0s --save after.jsonl

It runs against the daemon as it stands, on virtual GPUs that no device backs. The daemon's
processors are shared with your pods meanwhile: on a busy node, begin with few pods. All pods have
the same share, so each should get the same number of grants: the largest error says how far that is
from so. Hand-off: from a return, while others wait, until the next one has the token.)");
  contention->callback([options, &invocation] {
    invocation.action = [=, &invocation] { return BenchContention(*options, invocation); };
  });
}

void AddCompare(CLI::App& bench, Invocation& invocation) {
  CLI::App* compare =
      bench.add_subcommand("compare", "What has changed between two files of saved runs");
  auto options = std::make_shared<CompareOptions>();
  compare->add_option("before", options->before, "Runs that --save has kept; '-': standard input")
      ->type_name("BEFORE")
      ->required();
  compare->add_option("after", options->after, "The same, after the change")
      ->type_name("AFTER")
      ->required();
  compare->add_flag("--json", options->json, "One JSON object");
  compare
      ->add_option("--fail-above", options->fail_above,
                   "End with 1 where a figure is worse by more than this, with 95 % confidence")
      ->type_name("PERCENT")
      ->check(CLI::Range(0.0, 1e6).description(""))
      ->check(RefuseNan);
  compare->footer(R"(Examples:
  for i in 1 2 3 4 5; do baton bench token --save before.jsonl > /dev/null; done
  baton bench compare before.jsonl after.jsonl
  baton bench compare before.jsonl after.jsonl --fail-above 10

Each figure has its change in percent and the bounds between which it lies with 95 % confidence. If
both files have three runs or more, the bounds are of what runs differ by; else of what the twenty
parts of a run do, which is less. "of raw" is the ratio to the raw medium of the same run: what makes
the whole machine slower leaves it as it is. Both files need runs with the same --pods, --gpus and
--hold.)");
  compare->callback(
      [options, &invocation] { invocation.action = [=] { return BenchCompare(*options); }; });
}

void AddCluster(CLI::App& bench, Invocation& invocation) {
  CLI::App* cluster = bench.add_subcommand("cluster", "Runs of many nodes, side by side");
  auto file = std::make_shared<std::string>();
  auto as_json = std::make_shared<bool>(false);
  cluster
      ->add_option("runs", *file,
                   "Runs that --json or --save wrote, a line each; '-': standard input")
      ->type_name("RUNS")
      ->required();
  cluster->add_flag("--json", *as_json, "One JSON object");
  cluster->footer(R"(Examples:
  for pod in $(kubectl get pods -n baton-system -l app.kubernetes.io/component=node -o name); do
    kubectl exec -n baton-system $pod -c batond -- baton bench token --json --name $pod
  done | baton bench cluster -

For each figure the nodes, the slowest first. Where a central batond grants the tokens, each node
measures through its relay, and so the network too.)");
  cluster->callback([file, as_json, &invocation] {
    invocation.action = [=] { return BenchCluster(*file, *as_json); };
  });
}

}  // namespace

void AddBench(CLI::App& baton, Invocation& invocation) {
  CLI::App* command = baton.add_subcommand("bench", "Measure Baton's own cost on this machine");
  command->footer(
      "Examples:\n  baton bench token\n  baton bench contention --pods 64 --gpus 8\n"
      "  baton bench compare before.jsonl after.jsonl");
  AddToken(*command, invocation);
  AddContention(*command, invocation);
  AddCluster(*command, invocation);
  AddCompare(*command, invocation);
}

}  // namespace baton::cli
