// baton report, standing, advise: what the books say.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/parse.h"
#include "base/utf8.h"
#include "cli/command.h"
#include "cli/text_table.h"
#include "wire/control_client.h"

namespace baton::cli {
namespace {

using nlohmann::json;

// How the answer is printed.
enum class Format { kTable, kCsv, kJson, kParsable };

Result<Format> ParseFormat(const std::string& text) {
  if (text == "table") return Format::kTable;
  if (text == "csv") return Format::kCsv;
  if (text == "json") return Format::kJson;
  if (text == "parsable") return Format::kParsable;
  return Fail(ErrorCode::kInvalid,
              "unknown format '" + text + "'; choose table, csv, json or parsable");
}

void Print(const TextTable& table, Format format) {
  if (format == Format::kCsv) {
    std::fputs(table.Csv().c_str(), stdout);
  } else if (format == Format::kParsable) {
    std::fputs(table.Parsable().c_str(), stdout);
  } else {
    for (const std::string& line : table.Lines()) std::puts(line.c_str());
  }
}

// Numbers for programs are as exact as they are, for people as short as they can be.
std::string Number(double value, Format format, int decimals) {
  return Fixed(value, format == Format::kTable ? decimals : 9);
}

// The rows of a table, and how many decimals each of its columns has: for people as many as show
// its smallest figure.
class UseTable {
 public:
  UseTable(TextTable& table, bool teams, bool priced, Format format)
      : table_(table), teams_(teams), priced_(priced), format_(format) {}

  void Add(json row, std::string key, std::string team) {
    for (auto& [name, decimals] : decimals_) {
      if (row.contains(name)) {
        decimals = std::max(decimals, DecimalsFor(row.at(name).get<double>(), decimals));
      }
    }
    rows_.push_back({std::move(row), std::move(key), std::move(team)});
  }
  void Finish() {
    for (const Row& row : rows_) table_.rows.push_back(Cells(row));
  }

 private:
  struct Row {
    json figures;
    std::string key;
    std::string team;
  };

  std::vector<std::string> Cells(const Row& of) const {
    const json& row = of.figures;
    std::vector<std::string> cells{ToPrintable(of.key)};
    if (teams_) cells.push_back(ToPrintable(of.team));
    auto number = [&](const char* name) {
      cells.push_back(row.contains(name)
                          ? Number(row.at(name).get<double>(), format_, decimals_.at(name))
                          : "");
    };
    number("held_hours");
    number("busy_hours");
    if (!row.contains("efficiency")) {
      cells.emplace_back();
    } else {
      const double efficiency = row.at("efficiency");
      cells.push_back(format_ == Format::kTable ? Fixed(efficiency * 100) + "%"
                                                : Number(efficiency, format_, 6));
    }
    number("waited_hours");
    number("memory_gib_hours");
    cells.push_back(row.contains("launches") ? std::to_string(row.at("launches").get<int64_t>())
                                             : "");
    if (priced_) number("cost");
    number("capacity_hours");
    number("idle_hours");
    number("unattributed_hours");
    return cells;
  }

  TextTable& table_;
  const bool teams_, priced_;
  const Format format_;
  std::vector<Row> rows_;
  std::map<std::string, int> decimals_{
      {"held_hours", 3}, {"busy_hours", 3},     {"waited_hours", 3}, {"memory_gib_hours", 2},
      {"cost", 2},       {"capacity_hours", 3}, {"idle_hours", 3},   {"unattributed_hours", 3}};
};

int PrintUse(const json& answer, Format format) {
  const std::string by = answer.at("by");
  const bool teams = by == "user" || by == "pod";
  const bool priced = answer.contains("currency");
  TextTable table;
  const bool people = format == Format::kTable;
  auto column = [&](const char* short_name, const char* name, bool left = false) {
    table.columns.push_back({people ? short_name : name, left});
  };
  std::string heading = by;
  for (char& c : heading) c = static_cast<char>(toupper(c));
  column(heading.c_str(), "key", true);
  if (teams) column("TEAM", "team", true);
  column("HELD", "held_gpu_hours");
  column("BUSY", "busy_gpu_hours");
  column("EFF", "efficiency");
  column("WAITED", "waited_hours");
  column("GiB*h", "memory_gib_hours");
  column("LAUNCHES", "launches");
  if (priced) column("COST", "cost");
  column("CAPACITY", "capacity_gpu_hours");
  column("IDLE", "idle_gpu_hours");
  column("UNATTRIB", "unattributed_gpu_hours");
  UseTable rows(table, teams, priced, format);
  for (const json& row : answer.at("rows")) {
    std::string key = row.at("key");
    if (key.empty()) key = "(none)";
    rows.Add(row, key, row.value("team", ""));
  }
  // Of the whole: what nobody used, and the sum, which is all there was.
  auto extra = [&](const char* key, const char* hours, const char* cost) {
    json row{{"held_hours", answer.at(hours)}};
    if (priced) row["cost"] = answer.at(cost);
    rows.Add(std::move(row), key, "");
  };
  extra("idle", "idle_hours", "idle_cost");
  extra("unattributed", "unattributed_hours", "unattributed_cost");
  json all{{"held_hours", answer.at("capacity_hours")}};
  if (priced) {
    all["cost"] = answer.at("cost").get<double>() + answer.at("idle_cost").get<double>() +
                  answer.at("unattributed_cost").get<double>();
  }
  rows.Add(std::move(all), "capacity", "");
  rows.Finish();
  if (people) {
    std::printf("From %s to %s, in GPU-hours%s\n\n", answer.value("from", "").c_str(),
                answer.value("to", "").c_str(),
                priced ? (", cost in " + ToPrintable(answer.value("currency", ""))).c_str() : "");
    // Columns of which only the whole has figures say nothing.
    const bool own = answer.at("rows").empty() || answer.at("rows")[0].contains("idle_hours");
    if (!own) {
      table.columns.resize(table.columns.size() - 3);
      for (auto& row : table.rows) row.resize(row.size() - 3);
    }
  }
  Print(table, format);
  return 0;
}

int PrintStanding(const json& answer, Format format) {
  TextTable table{{{"Team", true},
                   {"User", true},
                   {"RawShares"},
                   {"NormShares"},
                   {"RawUsage"},
                   {"NormUsage"},
                   {"EffectvUsage"},
                   {"FairShare"},
                   {"LevelFS"},
                   {"Rank"}},
                  {}};
  int decimals = 3;
  for (const json& row : answer.at("rows")) {
    decimals = std::max(decimals, DecimalsFor(row.at("raw_usage_hours").get<double>(), 3));
  }
  for (const json& row : answer.at("rows")) {
    const std::string team = row.at("team");
    const auto depth = static_cast<size_t>(std::count(team.begin(), team.end(), '/'));
    const std::string indent = format == Format::kTable ? std::string(2 * depth, ' ') : "";
    const json& level = row.at("level_fs");
    const auto rank = row.at("rank").get<uint32_t>();
    table.rows.push_back({indent + ToPrintable(team.empty() ? "(all)" : team),
                          ToPrintable(row.at("user").get<std::string>()),
                          std::to_string(row.at("raw_shares").get<uint64_t>()),
                          Fixed(row.at("normalized_shares").get<double>(), 6),
                          Number(row.at("raw_usage_hours").get<double>(), format, decimals),
                          Fixed(row.at("normalized_usage").get<double>(), 6),
                          Fixed(row.at("effective_usage").get<double>(), 6),
                          Fixed(row.at("factor").get<double>(), 6),
                          level.is_null() ? "inf" : Fixed(level.get<double>(), 6),
                          rank == 0 ? "" : std::to_string(rank)});
  }
  Print(table, format);
  return 0;
}

int PrintAdvice(const json& answer, Format format) {
  TextTable table{{{"POD", true},
                   {"GPU", true},
                   {"WHAT", true},
                   {"NOW"},
                   {"USED p99"},
                   {"SET TO"},
                   {"FREES"},
                   {"WHY", true}},
                  {}};
  for (const json& row : answer.at("rows")) {
    auto cell = [&](const char* key) { return ToPrintable(row.at(key).get<std::string>()); };
    table.rows.push_back({cell("pod"), cell("gpu").substr(0, 12), cell("what"), cell("now"),
                          cell("used"), cell("set_to"), cell("frees"), cell("why")});
  }
  if (table.rows.empty() && format == Format::kTable) {
    std::puts("All requests and memory caps fit the use.");
    return 0;
  }
  Print(table, format);
  return 0;
}

// A text field of the question, and the flag for it.
struct Flag {
  const char* field;  // the flag is --field
  const char* initially;
  const char* type;
  const char* help;
};

// A report of batond (backend/reports.h) as a command.
struct ReportCommand {
  const char* name;
  const char* summary;
  std::vector<Flag> flags;
  const char* footer;
  int (*print)(const json& answer, Format format);  // but as JSON; the exit status
};

const ReportCommand kReport{
    "report",
    "Who used what: GPU-hours, cost, idle time",
    {{"by", "team", "WHAT", "team, user, namespace, pod, gpu, node, day or total"},
     {"last", "", "TIME", "Length of the window up to now; default: 30d"},
     {"from", "", "TIME", "UTC, such as 2026-11-01 or 2026-11-01T09:30"},
     {"to", "", "TIME", "End of the window, exclusive"}},
    R"(Examples:
  baton report --last 7d
  baton report --by user --from 2026-11-01 --to 2026-12-01
  baton report --by day --last 90d --format csv > november.csv

held: the pod had the GPU; busy: the GPU worked meanwhile; EFF: busy of held. What all held, idle
(nobody wanted the GPU) and unattributed (hand-offs, work without a token, time lost to crashes)
add up to the capacity: the time in which the GPUs were there. Prices: [ledger.prices].)",
    PrintUse};

const ReportCommand kStanding{"standing",
                              "What each team and user is due, by weights and history",
                              {},
                              R"(Examples:
  baton standing
  baton standing --format csv

RawUsage: GPU-hours held, older use counting less. FairShare: 1 for who used nothing, 0.5 for who
used its due, towards 0 for who used more. LevelFS: due over use among siblings; Rank: by that,
down the tree, the first is served first. docs/teams.md has the formulas.)",
                              PrintStanding};

const ReportCommand kAdvise{"advise",
                            "Pods whose request or memory cap is far from their use",
                            {{"last", "7d", "TIME", "Length of the window up to now"}},
                            R"(Examples:
  baton advise
  baton advise --last 24h --format json)",
                            PrintAdvice};

int Ask(const ReportCommand& report, const std::map<std::string, std::string>& fields,
        const std::string& format_name, const Invocation& invocation) {
  const Result<Format> format = ParseFormat(format_name);
  if (!format) return Complain(format.error());
  json question = fields;
  question["command"] = report.name;
  Result<json> answer = wire::Ask(invocation.socket_dir, question, kAnswerPatience);
  if (!answer) return Complain(answer.error());
  if (*format != Format::kJson) return report.print(*answer, *format);
  answer->erase("ok");
  std::puts(answer->dump().c_str());
  return 0;
}

void Add(CLI::App& baton, Invocation& invocation, const ReportCommand& report) {
  struct Given {
    std::map<std::string, std::string> fields;
    std::string format = "table";
  };
  CLI::App* command = baton.add_subcommand(report.name, report.summary);
  auto given = std::make_shared<Given>();
  for (const Flag& flag : report.flags) {
    std::string& field = given->fields[flag.field] = flag.initially;
    CLI::Option* option = command->add_option(std::string("--") + flag.field, field, flag.help);
    option->type_name(flag.type);
    if (!field.empty()) option->capture_default_str();
  }
  command
      ->add_option(
          "--format", given->format,
          "table, csv, json or parsable (cells between \"|\"); csv and parsable keep their "
          "columns from version to version")
      ->type_name("FORMAT")
      ->capture_default_str();
  AddSocketDir(*command, invocation);
  command->footer(report.footer);
  command->callback([given, &report, &invocation] {
    invocation.action = [given, &report, &invocation] {
      return Ask(report, given->fields, given->format, invocation);
    };
  });
}

}  // namespace

void AddReports(CLI::App& baton, Invocation& invocation) {
  for (const ReportCommand* report : {&kReport, &kStanding, &kAdvise}) {
    Add(baton, invocation, *report);
  }
}

}  // namespace baton::cli
