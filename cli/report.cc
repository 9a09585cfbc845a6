// baton report, standing, advise: what the books say.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

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
              "'" + text + "' is no format; choose table, csv, json or parsable");
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

// ---------------------------------------------------------------------------------------- report

struct ReportOptions {
  std::string by = "team";
  std::string from, to, last;
  std::string format = "table";
};

void AddRow(TextTable& table, const json& row, const std::string& key, const std::string& team,
            bool teams, bool priced, Format format) {
  std::vector<std::string> cells{Printable(key)};
  if (teams) cells.push_back(Printable(team));
  auto number = [&](const char* name, int decimals) {
    cells.push_back(row.contains(name) ? Number(row.at(name).get<double>(), format, decimals) : "");
  };
  number("held_hours", 3);
  number("busy_hours", 3);
  if (!row.contains("efficiency")) {
    cells.emplace_back();
  } else if (format == Format::kTable) {
    cells.push_back(Fixed(row.at("efficiency").get<double>() * 100) + "%");
  } else {
    number("efficiency", 6);
  }
  number("waited_hours", 3);
  number("memory_gib_hours", 2);
  cells.push_back(row.contains("launches") ? std::to_string(row.at("launches").get<int64_t>())
                                           : "");
  if (priced) number("cost", 2);
  number("capacity_hours", 3);
  number("idle_hours", 3);
  number("unattributed_hours", 3);
  table.rows.push_back(std::move(cells));
}

int Report(const ReportOptions& options, const Invocation& invocation) {
  const Result<Format> format = ParseFormat(options.format);
  if (!format) return Complain(format.error());
  Result<json> answer = wire::Ask(invocation.socket_dir,
                                  {{"command", "report"},
                                   {"by", options.by},
                                   {"from", options.from},
                                   {"to", options.to},
                                   {"last", options.last}},
                                  kAnswerPatience);
  if (!answer) return Complain(answer.error());
  if (*format == Format::kJson) {
    answer->erase("ok");
    std::puts(answer->dump().c_str());
    return 0;
  }
  const std::string by = answer->at("by");
  const bool teams = by == "user" || by == "pod";
  const bool priced = answer->contains("currency");
  TextTable table;
  const bool people = *format == Format::kTable;
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
  for (const json& row : answer->at("rows")) {
    std::string key = row.at("key");
    if (key.empty()) key = "(none)";
    AddRow(table, row, key, row.value("team", ""), teams, priced, *format);
  }
  // Of the whole: what nobody used, and the sum, which is all there was.
  auto extra = [&](const char* key, const char* hours, const char* cost) {
    json row{{"held_hours", answer->at(hours)}};
    if (priced) row["cost"] = answer->at(cost);
    AddRow(table, row, key, "", teams, priced, *format);
  };
  extra("idle", "idle_hours", "idle_cost");
  extra("unattributed", "unattributed_hours", "unattributed_cost");
  json all{{"held_hours", answer->at("capacity_hours")}};
  if (priced) {
    all["cost"] = answer->at("cost").get<double>() + answer->at("idle_cost").get<double>() +
                  answer->at("unattributed_cost").get<double>();
  }
  AddRow(table, all, "capacity", "", teams, priced, *format);
  if (people) {
    std::printf("From %s to %s, in GPU-hours%s\n\n", answer->value("from", "").c_str(),
                answer->value("to", "").c_str(),
                priced ? (", cost in " + Printable(answer->value("currency", ""))).c_str() : "");
    // Columns of which only the whole has figures say nothing.
    const bool own = answer->at("rows").empty() || answer->at("rows")[0].contains("idle_hours");
    if (!own) {
      table.columns.resize(table.columns.size() - 3);
      for (auto& row : table.rows) row.resize(row.size() - 3);
    }
  }
  Print(table, *format);
  return 0;
}

// -------------------------------------------------------------------------------------- standing

int Standing(const std::string& format_name, const Invocation& invocation) {
  const Result<Format> format = ParseFormat(format_name);
  if (!format) return Complain(format.error());
  Result<json> answer =
      wire::Ask(invocation.socket_dir, {{"command", "standing"}}, kAnswerPatience);
  if (!answer) return Complain(answer.error());
  if (*format == Format::kJson) {
    answer->erase("ok");
    std::puts(answer->dump().c_str());
    return 0;
  }
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
  for (const json& row : answer->at("rows")) {
    const std::string team = row.at("team");
    const auto depth = static_cast<size_t>(std::count(team.begin(), team.end(), '/'));
    const std::string indent = *format == Format::kTable ? std::string(2 * depth, ' ') : "";
    const json& level = row.at("level_fs");
    const auto rank = row.at("rank").get<uint32_t>();
    table.rows.push_back({indent + Printable(team.empty() ? "(all)" : team),
                          Printable(row.at("user").get<std::string>()),
                          std::to_string(row.at("raw_shares").get<uint64_t>()),
                          Fixed(row.at("normalized_shares").get<double>(), 6),
                          Number(row.at("raw_usage_hours").get<double>(), *format, 3),
                          Fixed(row.at("normalized_usage").get<double>(), 6),
                          Fixed(row.at("effective_usage").get<double>(), 6),
                          Fixed(row.at("factor").get<double>(), 6),
                          level.is_null() ? "inf" : Fixed(level.get<double>(), 6),
                          rank == 0 ? "" : std::to_string(rank)});
  }
  Print(table, *format);
  return 0;
}

// ---------------------------------------------------------------------------------------- advise

int Advise(const std::string& last, const std::string& format_name, const Invocation& invocation) {
  const Result<Format> format = ParseFormat(format_name);
  if (!format) return Complain(format.error());
  Result<json> answer =
      wire::Ask(invocation.socket_dir, {{"command", "advise"}, {"last", last}}, kAnswerPatience);
  if (!answer) return Complain(answer.error());
  if (*format == Format::kJson) {
    answer->erase("ok");
    std::puts(answer->dump().c_str());
    return 0;
  }
  TextTable table{{{"POD", true},
                   {"GPU", true},
                   {"WHAT", true},
                   {"NOW"},
                   {"USED p99"},
                   {"SET TO"},
                   {"FREES"},
                   {"WHY", true}},
                  {}};
  for (const json& row : answer->at("rows")) {
    auto cell = [&](const char* key) { return Printable(row.at(key).get<std::string>()); };
    table.rows.push_back({cell("pod"), cell("gpu").substr(0, 12), cell("what"), cell("now"),
                          cell("used"), cell("set_to"), cell("frees"), cell("why")});
  }
  if (table.rows.empty() && *format == Format::kTable) {
    std::puts("Every pod's request and memory cap are near what it used.");
    return 0;
  }
  Print(table, *format);
  return 0;
}

void AddFormat(CLI::App& command, std::string& format) {
  command
      .add_option("--format", format,
                  "table, csv, json or parsable (cells between \"|\"); csv and parsable keep their "
                  "columns from version to version")
      ->type_name("FORMAT")
      ->capture_default_str();
}

}  // namespace

void AddReport(CLI::App& baton, Invocation& invocation) {
  CLI::App* command = baton.add_subcommand("report", "Who used what: GPU-hours, cost, idle time");
  auto options = std::make_shared<ReportOptions>();
  command->add_option("--by", options->by, "team, user, namespace, pod, gpu, node, day or total")
      ->type_name("WHAT")
      ->capture_default_str();
  command->add_option("--last", options->last, "Until now, for this long; 30d without any of these")
      ->type_name("TIME");
  command->add_option("--from", options->from, "UTC, such as 2026-11-01 or 2026-11-01T09:30")
      ->type_name("TIME");
  command->add_option("--to", options->to, "Up to here, this moment not included")
      ->type_name("TIME");
  AddFormat(*command, options->format);
  AddSocketDir(*command, invocation);
  command->footer(R"(Examples:
  baton report --last 7d
  baton report --by user --from 2026-11-01 --to 2026-12-01
  baton report --by day --last 90d --format csv > november.csv

held: the pod had the GPU; busy: the GPU worked meanwhile; EFF: busy of held. What all held, idle
(nobody wanted the GPU) and unattributed (hand-offs, work without a token, time lost to crashes)
add up to the capacity: the time in which the GPUs were there. Prices: [ledger.prices].)");
  command->callback([options, &invocation] {
    invocation.action = [options, &invocation] { return Report(*options, invocation); };
  });
}

void AddStanding(CLI::App& baton, Invocation& invocation) {
  CLI::App* command =
      baton.add_subcommand("standing", "What every team and user is owed, by weights and history");
  auto format = std::make_shared<std::string>("table");
  AddFormat(*command, *format);
  AddSocketDir(*command, invocation);
  command->footer(R"(Examples:
  baton standing
  baton standing --format csv

RawUsage: GPU-hours held, older use counting less. FairShare: 1 for who used nothing, 0.5 for who
used its due, towards 0 for who used more. LevelFS: due over use among siblings; Rank: by that,
down the tree, the first is served first. docs/teams.md has the formulas.)");
  command->callback([format, &invocation] {
    invocation.action = [format, &invocation] { return Standing(*format, invocation); };
  });
}

void AddAdvise(CLI::App& baton, Invocation& invocation) {
  CLI::App* command =
      baton.add_subcommand("advise", "Pods whose request or memory cap is far from what they use");
  auto last = std::make_shared<std::string>("7d");
  auto format = std::make_shared<std::string>("table");
  command->add_option("--last", *last, "What is looked at")
      ->type_name("TIME")
      ->capture_default_str();
  AddFormat(*command, *format);
  AddSocketDir(*command, invocation);
  command->footer(R"(Examples:
  baton advise
  baton advise --last 24h --format json)");
  command->callback([last, format, &invocation] {
    invocation.action = [last, format, &invocation] { return Advise(*last, *format, invocation); };
  });
}

}  // namespace baton::cli
