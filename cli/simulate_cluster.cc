#include "cli/simulate_cluster.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/file.h"
#include "base/utf8.h"
#include "capacity/play.h"
#include "capacity/questions.h"
#include "capacity/scenario_files.h"
#include "cli/reading.h"
#include "cli/text_table.h"
#include "cli/timeline.h"

namespace baton::cli {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr size_t kScenarioFileMax = 256u << 20;  // bytes

struct ClusterFlags {
  std::string file;
  std::map<std::string, std::string> window{{"last", ""}, {"from", ""}, {"to", ""}};
  capacity::Questions questions;
  std::string save, svg;
  bool json = false;
};

// A scenario, and where it is from.
struct Given {
  capacity::Scenario scenario;
  std::string title;  // for people: from when to when, or the file
  std::string from, to;
  uint64_t left_out = 0;
};

Result<Given> FromFile(std::string path) {
  struct stat about {};
  if (stat(path.c_str(), &about) == 0 && S_ISDIR(about.st_mode)) {
    path += "/" + std::string(capacity::kClusterFile);
  }
  const auto text = ReadFile(path, kScenarioFileMax);
  if (!text) return tl::unexpected(text.error());
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : path.substr(0, slash + 1);
  auto scenario = capacity::ReadScenario(*text, path, [&](const std::string& file) {
    return ReadFile(file.starts_with('/') ? file : folder + file, kScenarioFileMax);
  });
  if (!scenario) return tl::unexpected(scenario.error());
  return Given{std::move(*scenario), path, "", "", 0};
}

Result<Given> FromBooks(const ClusterFlags& flags, const Invocation& invocation) {
  json question{{"command", "workload"}};
  for (const auto& [field, value] : flags.window) question[field] = value;
  const auto answer = Read(invocation, question, kAnswerPatience);
  if (!answer) {
    Error error = answer.error();
    if (error.code == ErrorCode::kUnavailable) {
      error.message += "; without a daemon name a cluster's file: 'baton simulate cluster --help'";
    }
    return tl::unexpected(error);
  }
  const std::map<std::string, std::string, std::less<>> files{
      {std::string(capacity::kTeamsFile), answer->at("teams")},
      {std::string(capacity::kPodsFile), answer->at("pods")}};
  const std::string cluster = answer->at("cluster");
  auto scenario = capacity::ReadScenario(
      cluster, "batond's answer", [&](const std::string& file) -> Result<std::string> {
        const auto found = files.find(file);
        if (found != files.end()) return found->second;
        return Fail(ErrorCode::kInternal, "batond's answer has no " + file);
      });
  if (!scenario) return tl::unexpected(scenario.error());
  const std::string from = answer->at("from"), to = answer->at("to");
  return Given{std::move(*scenario), from + " to " + to, from, to,
               answer->value("left_out", uint64_t{0})};
}

Result<void> Save(const capacity::Scenario& scenario, const std::string& folder) {
  if (mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST) {
    return Fail(ErrorCode::kDenied, "--save: " + folder + ": " + strerror(errno));
  }
  const capacity::ScenarioFiles files = capacity::WriteScenario(scenario);
  for (const auto& [name, text] : {std::pair{capacity::kClusterFile, &files.cluster},
                                   {capacity::kTeamsFile, &files.teams},
                                   {capacity::kPodsFile, &files.pods}}) {
    const std::string path = folder + "/" + std::string(name);
    std::ofstream file(path);
    file << *text << std::flush;
    if (!file) return Fail(ErrorCode::kDenied, "--save: " + path + " cannot be written");
  }
  return {};
}

double InSeconds(Duration d) { return static_cast<double>(Nanos(d)) / 1e9; }

double PartOf(double hours, double all) { return all > 0 ? 100 * hours / all : 0; }

// GPU-hours that each team held by the books; nothing: nobody recorded that.
std::optional<std::map<std::string, double>> Recorded(const capacity::Scenario& scenario) {
  std::map<std::string, double> hours;
  for (const capacity::PodPlan& pod : scenario.pods) {
    if (!pod.had_hours) return std::nullopt;
    hours[teams::NormalPath(pod.request.team)] += *pod.had_hours;
  }
  return hours;
}

const capacity::TeamFigures* TeamOf(const capacity::Outcome& outcome, const std::string& team) {
  const auto at = std::find_if(outcome.teams.begin(), outcome.teams.end(),
                               [&](const auto& row) { return row.team == team; });
  return at == outcome.teams.end() ? nullptr : &*at;
}

// "12.5h", "35m", "20s"; "-": nobody came.
std::string WaitText(const capacity::TeamFigures& team, double q) {
  if (team.waits.empty()) return "-";
  const double s = InSeconds(capacity::WaitQuantile(team.waits, q));
  return s >= 2 * 3600 ? Fixed(s / 3600) + "h"
         : s >= 120    ? Fixed(s / 60, 0) + "m"
                       : Fixed(s, 0) + "s";
}

// A row of all teams together.
capacity::TeamFigures Together(const capacity::Outcome& outcome) {
  capacity::TeamFigures all;
  all.team = "(all)";
  for (const capacity::TeamFigures& team : outcome.teams) {
    all.pods += team.pods;
    all.unplaced += team.unplaced;
    all.asked_hours += team.asked_hours;
    all.got_hours += team.got_hours;
    all.waits.insert(all.waits.end(), team.waits.begin(), team.waits.end());
  }
  std::sort(all.waits.begin(), all.waits.end());
  return all;
}

// `was`: as it is; null where nothing was asked.
void PrintTeams(const capacity::Outcome& is, const capacity::Outcome* was,
                const std::optional<std::map<std::string, double>>& recorded) {
  TextTable table{{{"TEAM", true}, {"PODS"}, {"ASKED"}}, {}};
  if (recorded) table.columns.push_back({"RECORDED"});
  for (const char* heading : {"GOT", "SHARE", "WAIT p50", "p99", "NO PLACE"}) {
    if (was != nullptr) table.columns.push_back({"AS IT IS"});
    table.columns.push_back({heading});
  }
  const auto add = [&](const capacity::TeamFigures& team, const capacity::TeamFigures& before,
                       double had) {
    std::vector<std::string> cells{ToPrintable(team.team), std::to_string(team.pods),
                                   Fixed(team.asked_hours)};
    if (recorded)
      cells.push_back(Fixed(PartOf(had, (was != nullptr ? *was : is).capacity_hours)) + "%");
    const auto both = [&](const auto& text) {
      if (was != nullptr) cells.push_back(text(before, *was));
      cells.push_back(text(team, is));
    };
    using Team = capacity::TeamFigures;
    both([](const Team& t, const capacity::Outcome&) { return Fixed(t.got_hours); });
    both([](const Team& t, const capacity::Outcome& of) {
      return Fixed(PartOf(t.got_hours, of.capacity_hours)) + "%";
    });
    both([](const Team& t, const capacity::Outcome&) { return WaitText(t, 0.5); });
    both([](const Team& t, const capacity::Outcome&) { return WaitText(t, 0.99); });
    both([](const Team& t, const capacity::Outcome&) { return std::to_string(t.unplaced); });
    table.rows.push_back(std::move(cells));
  };
  double all_had = 0;
  const capacity::TeamFigures none;
  for (const capacity::TeamFigures& team : is.teams) {
    const auto had =
        recorded ? recorded->find(team.team) : std::map<std::string, double>::const_iterator{};
    const double hours = recorded && had != recorded->end() ? had->second : 0;
    all_had += hours;
    const capacity::TeamFigures* before = was != nullptr ? TeamOf(*was, team.team) : nullptr;
    add(team, before != nullptr ? *before : none, hours);
  }
  add(Together(is), was != nullptr ? Together(*was) : none, all_had);
  for (const std::string& line : table.Lines()) std::puts(line.c_str());
}

void PrintGpus(const capacity::Outcome& is, const capacity::Outcome* was) {
  TextTable table{{{"NODE", true}, {"GPU", true}}, {}};
  if (was != nullptr) table.columns.push_back({"AS IT IS"});
  table.columns.push_back({"BUSY"});
  std::map<std::string, double> before;
  const double hours = static_cast<double>(Nanos(is.length)) / 3600e9;
  if (was != nullptr) {
    for (const capacity::GpuFigures& gpu : was->gpus) before[gpu.uuid] = gpu.used_hours;
  }
  for (const capacity::GpuFigures& gpu : is.gpus) {
    std::vector<std::string> cells{ToPrintable(gpu.node), ToPrintable(gpu.uuid)};
    if (was != nullptr) {
      const auto at = before.find(gpu.uuid);
      cells.push_back(at == before.end() ? "-" : Fixed(PartOf(at->second, hours)) + "%");
    }
    cells.push_back(Fixed(PartOf(gpu.used_hours, hours)) + "%");
    table.rows.push_back(std::move(cells));
  }
  for (const std::string& line : table.Lines()) std::puts(line.c_str());
}

ordered_json OutcomeJson(const capacity::Outcome& outcome) {
  ordered_json teams = ordered_json::array(), gpus = ordered_json::array(),
               pods = ordered_json::array();
  for (const capacity::TeamFigures& team : outcome.teams) {
    teams.push_back({{"team", team.team},
                     {"pods", team.pods},
                     {"no_place", team.unplaced},
                     {"asked_hours", team.asked_hours},
                     {"got_hours", team.got_hours},
                     {"share", PartOf(team.got_hours, outcome.capacity_hours)},
                     {"wait_p50_s", InSeconds(capacity::WaitQuantile(team.waits, 0.5))},
                     {"wait_p99_s", InSeconds(capacity::WaitQuantile(team.waits, 0.99))},
                     {"wait_max_s", team.waits.empty() ? 0 : InSeconds(team.waits.back())},
                     {"gpus", team.series}});
  }
  const double hours = InSeconds(outcome.length) / 3600;
  for (const capacity::GpuFigures& gpu : outcome.gpus) {
    gpus.push_back(
        {{"node", gpu.node}, {"uuid", gpu.uuid}, {"busy", PartOf(gpu.used_hours, hours)}});
  }
  for (const capacity::PodFigures& pod : outcome.pods) {
    ordered_json row{{"pod", pod.name},
                     {"team", pod.team},
                     {"asked_hours", pod.asked_hours},
                     {"got_hours", pod.got_hours},
                     {"placed", pod.placed},
                     {"preempted", pod.preempted}};
    if (pod.waited) row["waited_s"] = InSeconds(*pod.waited);
    if (pod.ended) row["ended_s"] = InSeconds(*pod.ended);
    if (!pod.placed && !pod.refused.empty()) row["why"] = pod.refused;
    pods.push_back(std::move(row));
  }
  return {{"capacity_hours", outcome.capacity_hours},
          {"teams", teams},
          {"gpus", gpus},
          {"step_s", InSeconds(outcome.step)},
          {"waiting", outcome.waiting},
          {"pods", pods}};
}

Result<void> Draw(const Given& given, const capacity::Outcome& outcome, const std::string& path) {
  Timeline picture;
  picture.title = given.title;
  picture.lanes_title = "When pods waited for a place";
  picture.shares_title = "Share of all GPUs";
  picture.to = outcome.length;
  picture.step = outcome.step;
  std::map<std::string, size_t> lane;
  const double gpus = static_cast<double>(std::max<size_t>(1, outcome.gpus.size()));
  for (const capacity::TeamFigures& team : outcome.teams) {
    lane[team.team] = picture.pods.size();
    Timeline::Pod row{
        team.team, fmt::format("{:.0f} %", PartOf(team.got_hours, outcome.capacity_hours)), {}};
    for (const double used : team.series) row.shares.push_back(used / gpus);
    picture.pods.push_back(std::move(row));
  }
  for (size_t i = 0; i < outcome.pods.size(); ++i) {
    const capacity::PodFigures& pod = outcome.pods[i];
    if (!pod.waited || *pod.waited == Duration(0)) continue;
    const Duration came = given.scenario.pods[i].came;
    picture.holds.push_back({lane.at(pod.team), came, came + *pod.waited});
  }
  std::ofstream file(path);
  file << DrawTimeline(picture) << std::flush;
  if (!file) return Fail(ErrorCode::kDenied, path + " cannot be written");
  return {};
}

void Print(const Given& given, const capacity::Outcome& is, const capacity::Outcome* was) {
  std::printf("%s: %zu pods, %zu GPUs, %s GPU-hours\n\n", ToPrintable(given.title).c_str(),
              is.pods.size(), is.gpus.size(), Fixed(is.capacity_hours).c_str());
  PrintTeams(is, was, Recorded(given.scenario));
  std::puts("");
  PrintGpus(is, was);
  if (given.left_out > 0) {
    std::printf(
        "\nLeft out: %llu pods that have parts of GPUs by MIG, MPS or another vendor's driver, and "
        "those GPUs.\n",
        static_cast<unsigned long long>(given.left_out));
  }
}

int ActOnCluster(const ClusterFlags& flags, const Invocation& invocation) {
  auto given = flags.file.empty() ? FromBooks(flags, invocation) : FromFile(flags.file);
  if (!given) return Complain(given.error());
  if (!flags.save.empty()) {
    if (auto saved = Save(given->scenario, flags.save); !saved) return Complain(saved.error());
  }
  auto is = capacity::Play(given->scenario);
  if (!is) return Complain(is.error());
  std::optional<capacity::Outcome> was;
  if (flags.questions.any()) {
    if (auto asked = capacity::Apply(flags.questions, given->scenario); !asked) {
      return Complain(asked.error());
    }
    was = std::move(*is);
    is = capacity::Play(given->scenario);
    if (!is) return Complain(is.error());
  }
  if (flags.json) {
    ordered_json all;
    if (!given->from.empty()) {
      all["from"] = given->from;
      all["to"] = given->to;
    }
    all["length_s"] = InSeconds(is->length);
    all["left_out"] = given->left_out;
    if (const auto recorded = Recorded(given->scenario)) all["recorded_hours"] = *recorded;
    all["as_it_is"] = OutcomeJson(was ? *was : *is);
    if (was) all["what_if"] = OutcomeJson(*is);
    std::puts(all.dump(-1, ' ', false, json::error_handler_t::replace).c_str());
  } else {
    Print(*given, *is, was ? &*was : nullptr);
  }
  if (!flags.svg.empty()) {
    if (auto drawn = Draw(*given, *is, flags.svg); !drawn) return Complain(drawn.error());
  }
  return 0;
}

}  // namespace

void AddSimulateCluster(CLI::App& simulate, Invocation& invocation) {
  CLI::App* command = simulate.add_subcommand(
      "cluster", "Show what a cluster's teams would get, by the books or by a file");
  auto flags = std::make_shared<ClusterFlags>();
  capacity::Questions& questions = flags->questions;
  CLI::Option* file =
      command
          ->add_option("FILE", flags->file,
                       "TOML file of a cluster, or a folder of --save; default: batond's books")
          ->type_name("");
  command->add_option("--last", flags->window["last"], "Length of the window; default: 24h")
      ->type_name("TIME")
      ->excludes(file);
  command->add_option("--from", flags->window["from"], "Such as 2026-11-01T09:00, UTC")
      ->type_name("TIME")
      ->excludes(file);
  command->add_option("--to", flags->window["to"], "End of the window, exclusive")
      ->type_name("TIME")
      ->excludes(file);
  const auto several = [&](const char* name, std::vector<std::string>& texts, const char* type,
                           const char* help) {
    command->add_option(name, texts, help)
        ->type_name(type)
        ->delimiter(',')
        ->expected(1)
        ->take_all();
  };
  several("--weight", questions.weights, "TEAM=N|P%",
          "Its weight; or so much among the teams beside it");
  several("--guarantee", questions.guarantees, "TEAM=N|P%",
          "GPUs that it and all below it can take back from others; or a part of all");
  several("--limit", questions.limits, "TEAM=N|P%",
          "GPUs that requests of it and all below it may add up to; or a part of all");
  several("--shares", questions.shares, "POD=REQUEST[:LIMIT]",
          "Instead of what it asks for, in percent");
  command->add_flag("--advised", questions.advised, "Requests are as 'baton advise' says");
  command
      ->add_option("--add-gpus", questions.add_gpus,
                   "One more node with so many GPUs; above 16 several")
      ->type_name("N")
      ->check(CLI::Range(1, 10'000).description(""));
  command->add_option("--add-nodes", questions.add_nodes, "So many more nodes of the usual kind")
      ->type_name("N")
      ->check(CLI::Range(1, 1'000).description(""));
  command->add_flag("--json", flags->json, "Print JSON instead of tables");
  command->add_option("--svg", flags->svg, "Also draw shares of teams over time, and who waited")
      ->type_name("FILE");
  command
      ->add_option(
          "--save", flags->save,
          "Also write cluster, teams and pods to a folder, as files to change and ask again")
      ->type_name("DIR");
  AddReading(*command, invocation);
  command->footer(R"(Examples:
  baton simulate cluster --last 7d                     as it is: does it agree with the books?
  baton simulate cluster --last 7d --weight vision=30%
  baton simulate cluster --last 7d --add-gpus 2        would that end the wait?
  baton simulate cluster --last 30d --advised --json | jq .what_if.teams
  baton simulate cluster --last 30d --save november    to change by hand, then
  baton simulate cluster november --guarantee ops=4

The pods of the window come again and do what they did, through the same queue, quotas, placement
and shares. GPU-hours: ASKED is what a team's pods would have used without others; GOT what they
get, SHARE that of all GPUs, RECORDED what it was. WAIT is from when a pod was asked for until it
had a place; NO PLACE counts those that had none by the end. 'baton whatif' asks about shares on
each GPU alone, with pods where they are. docs/capacity.md has the files and what is assumed.)");
  command->callback([flags, &invocation] {
    invocation.action = [flags, &invocation] { return ActOnCluster(*flags, invocation); };
  });
}

}  // namespace baton::cli
