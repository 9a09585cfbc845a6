// baton report, standing, advise, whatif, log: what the books say.
#include <pwd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/parse.h"
#include "base/utf8.h"
#include "cli/advice.h"
#include "cli/command.h"
#include "cli/focus.h"
#include "cli/reading.h"
#include "cli/text_table.h"

namespace baton::cli {
namespace {

using nlohmann::json;

// How the answer is printed.
enum class Format { kTable, kCsv, kJson, kJsonLines, kParsable };

Result<Format> ParseFormat(const std::string& text, bool focus) {
  if (text == "table") return Format::kTable;
  if (text == "csv") return Format::kCsv;
  if (text == "json") return Format::kJson;
  if (text == "jsonl") return Format::kJsonLines;
  if (text == "parsable") return Format::kParsable;
  return Fail(ErrorCode::kInvalid, "unknown format '" + text + "'; choose table, csv, json, jsonl" +
                                       (focus ? ", parsable or focus" : " or parsable"));
}

// Each row as a line of its own, with what the answer says of all of them.
int PrintLines(const json& answer) {
  json of_all = json::object();
  for (const auto& [name, value] : answer.items()) {
    if (value.is_string()) of_all[name] = value;
  }
  for (const json& row : answer.at("rows")) {
    json line = of_all;
    line.update(row);
    std::puts(line.dump().c_str());
  }
  return 0;
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

// A figure of a row: its field in the answer, its heading for people and for programs (a contract),
// and how many decimals people see at least; what is no number of hours or money has a kind.
struct Figure {
  enum class Kind { kDecimal, kPart, kCount };
  const char* field;
  const char* heading;
  const char* column;
  int decimals = 3;
  Kind kind = Kind::kDecimal;
};
constexpr Figure kUseFigures[] = {{"held_hours", "HELD", "held_gpu_hours"},
                                  {"busy_hours", "BUSY", "busy_gpu_hours"},
                                  {"efficiency", "EFF", "efficiency", 6, Figure::Kind::kPart},
                                  {"waited_hours", "WAITED", "waited_hours"},
                                  {"memory_gib_hours", "GiB*h", "memory_gib_hours", 2},
                                  {"launches", "LAUNCHES", "launches", 0, Figure::Kind::kCount}};
constexpr Figure kCost{"cost", "COST", "cost", 2};
constexpr Figure kCapacityFigures[] = {
    {"capacity_hours", "CAPACITY", "capacity_gpu_hours"},
    {"idle_hours", "IDLE", "idle_gpu_hours"},
    {"unattributed_hours", "UNATTRIB", "unattributed_gpu_hours"}};
constexpr Figure kEnergyFigures[] = {{"energy_kwh", "kWh", "energy_kwh"},
                                     {"energy_cost", "E.COST", "energy_cost", 2},
                                     {"carbon_kg", "CO2 kg", "carbon_kg"}};
constexpr Figure kBudgetFigures[] = {{"budget_hours", "BUDGET", "budget_gpu_hours"},
                                     {"budget_held_hours", "OF IT", "budget_held_gpu_hours"}};

// Rows as they were answered, each with what stands left of its figures.
struct UseRow {
  std::vector<std::string> keys;
  json figures;
};

// Adds a column for the figure. For people it has as many decimals as show its smallest value.
void AddFigure(TextTable& table, const std::vector<UseRow>& rows, const Figure& figure,
               Format format) {
  const bool people = format == Format::kTable;
  table.columns.push_back({people ? figure.heading : figure.column});
  int decimals = figure.decimals;
  for (const UseRow& row : rows) {
    if (figure.kind != Figure::Kind::kDecimal || !row.figures.contains(figure.field)) continue;
    decimals =
        std::max(decimals, DecimalsFor(row.figures.at(figure.field).get<double>(), decimals));
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    std::string& cell = table.rows[i].emplace_back();
    if (!rows[i].figures.contains(figure.field)) continue;
    const json& value = rows[i].figures.at(figure.field);
    if (figure.kind == Figure::Kind::kCount) {
      cell = std::to_string(value.get<int64_t>());
    } else if (figure.kind == Figure::Kind::kPart && people &&
               rows[i].figures.value("allocated", false) &&
               !rows[i].figures.value("measured", false)) {
      cell = "-";  // nobody measured it
    } else if (figure.kind == Figure::Kind::kPart && people) {
      cell = Fixed(value.get<double>() * 100) + "%";
    } else {
      cell = Number(value.get<double>(), format, decimals);
    }
  }
}

std::vector<std::string> Split(const std::string& text, char at) {
  std::vector<std::string> parts{""};
  for (const char c : text) {
    if (c == at) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

std::string Capitals(std::string text) {
  for (char& c : text) c = static_cast<char>(toupper(c));
  return text;
}

int PrintUse(const json& answer, Format format) {
  const std::vector<std::string> by = Split(answer.at("by"), ',');
  const auto is_by = [&](const char* key) {
    return std::find(by.begin(), by.end(), key) != by.end();
  };
  const bool teams = (is_by("user") || is_by("pod")) && !is_by("team");
  const bool priced = answer.contains("currency") && answer.contains("cost");
  const bool people = format == Format::kTable;
  std::vector<UseRow> rows;
  for (const json& row : answer.at("rows")) {
    std::vector<std::string> keys{row.at("key").get<std::string>()};
    if (by.size() > 1) keys = row.at("keys").get<std::vector<std::string>>();
    if (keys.size() != by.size()) {
      return Complain({ErrorCode::kInternal,
                       "unexpected answer: a row's keys are not those asked "
                       "for; do 'baton --version' and batond's agree?"});
    }
    for (size_t i = 0; i < keys.size(); ++i) {
      // For people as the page calls them; the word for programs stays.
      if (!keys[i].empty()) continue;
      keys[i] = !people ? "(none)" : by[i] == "total" ? "(all)" : "(no " + by[i] + ")";
    }
    if (teams) keys.push_back(row.value("team", ""));
    rows.push_back({std::move(keys), row});
  }
  const size_t own = rows.size();
  // Of the whole: what others held and what nobody used, and the sum, which is all there was.
  double cost = priced ? answer.at("cost").get<double>() : 0;
  json all{{"held_hours", answer.at("capacity_hours")}};
  for (const Figure& figure : kEnergyFigures) {
    if (answer.contains(figure.field)) all[figure.field] = answer.at(figure.field);
  }
  const auto extra = [&](const std::string& name) {
    json figures{{"held_hours", answer.at(name + "_hours")}};
    if (priced) {
      figures["cost"] = answer.at(name + "_cost");
      cost += figures["cost"].get<double>();
    }
    for (const Figure& figure : kEnergyFigures) {
      const auto energy = answer.find(name + "_" + figure.field);
      if (energy == answer.end()) continue;
      figures[figure.field] = *energy;
      all[figure.field] = all.at(figure.field).get<double>() + energy->get<double>();
    }
    rows.push_back({{name}, std::move(figures)});
  };
  if (answer.contains("others_hours")) extra("others");
  extra("idle");
  extra("unattributed");
  if (priced) all["cost"] = cost;
  rows.push_back({{"capacity"}, std::move(all)});

  TextTable table;
  for (const std::string& key : by) {
    table.columns.push_back({people ? Capitals(key) : by.size() == 1 ? "key" : key, true});
  }
  if (teams) table.columns.push_back({people ? "TEAM" : "team", true});
  for (const UseRow& row : rows) {
    std::vector<std::string>& cells = table.rows.emplace_back();
    for (const std::string& key : row.keys) cells.push_back(ToPrintable(key));
    cells.resize(table.columns.size());
  }
  const auto some_have = [&](const Figure& figure) {
    return std::any_of(rows.begin(), rows.begin() + static_cast<ptrdiff_t>(own),
                       [&](const UseRow& row) { return row.figures.contains(figure.field); });
  };
  for (const Figure& figure : kUseFigures) AddFigure(table, rows, figure, format);
  if (priced) AddFigure(table, rows, kCost, format);
  // Columns of which only the whole has figures say nothing to people.
  for (const Figure& figure : kCapacityFigures) {
    if (!people || own == 0 || some_have(figure)) AddFigure(table, rows, figure, format);
  }
  for (const Figure& figure : kBudgetFigures) {
    if (some_have(figure)) AddFigure(table, rows, figure, format);
  }
  for (const Figure& figure : kEnergyFigures) {
    if (answer.contains(figure.field)) AddFigure(table, rows, figure, format);
  }
  if (people) {
    std::printf("From %s to %s, in GPU-hours%s\n\n", answer.value("from", "").c_str(),
                answer.value("to", "").c_str(),
                answer.contains("currency")
                    ? (", cost in " + ToPrintable(answer.value("currency", ""))).c_str()
                    : "");
  }
  Print(table, format);
  return 0;
}

// "Now", "+12.0h", "+2.5d".
std::string AheadText(double seconds) {
  if (seconds == 0) return "Now";
  return seconds >= 2 * 86400 ? "+" + Fixed(seconds / 86400) + "d"
                              : "+" + Fixed(seconds / 3600) + "h";
}

// For people what each team has at five moments; for programs all that was reckoned.
int PrintForecast(const json& forecast, Format format) {
  const bool people = format == Format::kTable;
  TextTable table{{{"Team", true}}, {}};
  const json& points = forecast.at("points");
  const json& teams = forecast.at("teams");
  if (!people) {
    table.columns.insert(table.columns.end(), {{"Seconds"}, {"GPUs"}, {"NormUsage"}});
    for (const json& point : points) {
      for (size_t t = 0; t < teams.size(); ++t) {
        table.rows.push_back({ToPrintable(teams[t].get<std::string>()),
                              Fixed(point.at("at_s").get<double>(), 0),
                              Fixed(point.at("gpus")[t].get<double>(), 6),
                              Fixed(point.at("usage")[t].get<double>(), 6)});
      }
    }
    Print(table, format);
    return 0;
  }
  for (const json& team : teams) table.rows.push_back({ToPrintable(team.get<std::string>())});
  for (size_t n = 0; n < 5; ++n) {
    const json& point = points.at(n * (points.size() - 1) / 4);
    table.columns.push_back({AheadText(point.at("at_s").get<double>())});
    for (size_t t = 0; t < teams.size(); ++t) {
      table.rows[t].push_back(Fixed(point.at("gpus")[t].get<double>(), 2));
    }
  }
  std::puts("GPUs of each team, if all pods that are there always have work:\n");
  Print(table, format);
  return 0;
}

int PrintStanding(const json& answer, Format format) {
  if (answer.contains("forecast")) return PrintForecast(answer.at("forecast"), format);
  TextTable table{{{"Team", true},
                   {"User", true},
                   {"RawShares"},
                   {"NormShares"},
                   {"RawUsage"},
                   {"NormUsage"},
                   {"EffectvUsage"},
                   {"FairShare"},
                   {"LevelFS"},
                   {"Rank"},
                   {"Uncounted"}},
                  {}};
  int decimals = 3;
  for (const json& row : answer.at("rows")) {
    for (const double hours :
         {row.at("raw_usage_hours").get<double>(), row.value("uncounted_hours", 0.0)}) {
      decimals = std::max(decimals, DecimalsFor(hours, 3));
    }
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
                          rank == 0 ? "" : std::to_string(rank),
                          Number(row.value("uncounted_hours", 0.0), format, decimals)});
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
  const std::string summary = format == Format::kTable ? AdviceSummary(answer) : "";
  if (!table.rows.empty() || format != Format::kTable) Print(table, format);
  if (!table.rows.empty() && !summary.empty()) std::puts("");
  if (!summary.empty()) std::puts(summary.c_str());
  return 0;
}

int PrintWhatIf(const json& answer, Format format) {
  const bool people = format == Format::kTable;
  TextTable table{{{"POD", true},
                   {"TEAM", true},
                   {"GPU", true},
                   {"REQUEST"},
                   {"LIMIT"},
                   {"ALONE"},
                   {"HAD"},
                   {"WOULD GET"},
                   {"WOULD WAIT"}},
                  {}};
  bool unknown = false;
  for (const json& row : answer.at("rows")) {
    const auto text = [&](const char* key) { return ToPrintable(row.at(key).get<std::string>()); };
    const auto percent = [&](const char* key) {
      const double value = row.at(key).get<double>();
      return people ? Fixed(value) + "%" : Fixed(value, 6);
    };
    const std::string space = text("namespace");
    const bool known = row.at("known").get<bool>();
    unknown = unknown || !known;
    table.rows.push_back({space.empty() ? text("pod") : space + "/" + text("pod"), text("team"),
                          people ? text("gpu").substr(0, 12) : text("gpu"),
                          known ? percent("request") : "-", percent("limit"), percent("alone"),
                          percent("had"), percent("would_get"), percent("would_wait")});
  }
  if (table.rows.empty() && people) {
    std::puts("No pod used a GPU by the token in this time.");
    return 0;
  }
  Print(table, format);
  if (people && unknown) {
    std::puts(
        "\n-: not known any more, so it has what others leave; --shares says what it asks for.");
  }
  return 0;
}

// "uid 1000" by name, where this machine knows it.
std::string WhoText(const std::string& who) {
  uint32_t uid = 0;
  const char* end = who.data() + who.size();
  if (!who.starts_with("uid ") || std::from_chars(who.data() + 4, end, uid).ptr != end) {
    return ToPrintable(who);
  }
  const passwd* user = getpwuid(uid);
  return ToPrintable(user != nullptr ? user->pw_name : who);
}

int PrintLog(const json& answer, Format format) {
  TextTable table{{{"TIME", true},
                   {"NODE", true},
                   {"WHO", true},
                   {"WHAT", true},
                   {"OBJECT", true},
                   {"CHANGE", true}},
                  {}};
  for (const json& row : answer.at("rows")) {
    auto cell = [&](const char* key) { return ToPrintable(row.at(key).get<std::string>()); };
    table.rows.push_back(
        {cell("at"), cell("node"), WhoText(row.at("who").get<std::string>()), cell("action"),
         cell("kind") + (cell("object").empty() ? "" : " " + cell("object")), cell("change")});
  }
  if (table.rows.empty() && format == Format::kTable) {
    std::printf("Nothing was changed from %s to %s.\n",
                answer.at("from").get<std::string>().c_str(),
                answer.at("to").get<std::string>().c_str());
    return 0;
  }
  Print(table, format);
  if (answer.value("more", false) && format == Format::kTable) {
    std::puts("These are the newest ones; --from and --to show others.");
  }
  return 0;
}

// A text field of the question, and the flag for it.
struct Flag {
  const char* field;  // the flag is --field, with "-" for "_"
  const char* initially;
  const char* type;
  const char* help;
  bool only_given = false;  // not sent when empty: a batond of an earlier version does not know it
};

// A report of batond (backend/reports.h) as a command.
struct ReportCommand {
  const char* name;
  const char* summary;
  std::vector<Flag> flags;
  const char* footer;
  int (*print)(const json& answer, Format format);  // but as JSON; the exit status
  bool focus = false;                               // has --format focus too
  bool applies = false;                             // has --apply and --yes
};

const Flag kFrom{"from", "", "TIME", "Such as 2026-11-01 or 2026-11-01T09:30, UTC"};
const Flag kTo{"to", "", "TIME", "End of the window, exclusive"};

const ReportCommand kReport{
    "report",
    "Who used what: GPU-hours, cost, idle time",
    {{"by", "team", "WHAT",
      "team, user, namespace, pod, gpu, node, model, day, month, price or total; several with "
      "commas"},
     {"last", "", "TIME", "Length of the window up to now; default: 30d"},
     {"from", "", "TIME",
      "Such as 2026-11-01 or 2026-11-01T09:30; UTC unless --time-zone is given"},
     kTo,
     {"time_zone", "", "ZONE",
      "In which days and months begin, such as Europe/Berlin; default: UTC", true},
     {"team", "", "PATH", "Only this team and the teams below it", true},
     {"user", "", "NAME", "Only this user", true},
     {"namespace", "", "NAME", "Only this namespace", true},
     {"pod", "", "NAME", "Only pods of this name, or NAMESPACE/NAME", true}},
    R"(Examples:
  baton report --last 7d
  baton report --by user --from 2026-11-01 --to 2026-12-01
  baton report --by day --from 2026-11-01 --to 2026-12-01 --format csv > november.csv
  baton report --team research --by day,user --last 7d
  baton report --format focus --from 2026-11-01 --to 2026-12-01 > focus.csv
  baton report --by day,pod --from 2026-11-01 --to 2026-11-02 --format jsonl >> gpu-hours.jsonl
  baton report --by month,team --from 2026-01-01 --time-zone Europe/Berlin

held: the pod had the GPU; busy: the GPU worked meanwhile; EFF: busy of held, "-" where nobody
measured it. By MIG, by MPS, without the hook or on another vendor's GPU a part of a GPU counts as
that part of its time, used or not. What all held, idle (nobody wanted the GPU) and unattributed
(hand-offs, work without a token, time lost to crashes) add up to the capacity: the time in which the
GPUs were there. Prices: [ledger.prices].)",
    PrintUse,
    true};

const ReportCommand kStanding{
    "standing",
    "What each team and user is due, by weights and history",
    {{"forecast", "", "TIME", "How shares of teams develop from now on, for so long", true}},
    R"(Examples:
  baton standing
  baton standing --format csv
  baton standing --forecast 14d        what teams will have, as history evens out

RawUsage: GPU-hours held, older use counting less, without those that are Uncounted: no other team
wanted them ([teams] uncontended_use). FairShare: 1 for who used nothing, 0.5 for who
used its due, towards 0 for who used more. LevelFS: due over use among siblings; Rank: by that,
down the tree, the first is served first. docs/teams.md has the formulas.)",
    PrintStanding};

const ReportCommand kAdvise{"advise",
                            "Pods whose request, limit or memory cap is far from their use",
                            {{"last", "7d", "TIME", "Length of the window up to now"}},
                            R"(Examples:
  baton advise
  baton advise --last 24h --format json
  baton advise --apply                                 ask, then set what is advised
  baton advise --last 24h --apply --yes                set it without asking

WHAT "part": the pod has a whole GPU, and would do with this part of one. --apply sets requests,
limits and memory caps as 'baton set' does, of pods that you may change; 'baton log' has it.)",
                            PrintAdvice,
                            /*focus=*/false,
                            /*applies=*/true};

const ReportCommand kWhatIf{
    "whatif",
    "What pods would have got with these, or other, requests and limits",
    {{"last", "", "TIME", "Length of the window up to now; default: 24h"},
     kFrom,
     kTo,
     {"shares", "", "POD=REQUEST[:LIMIT],...",
      "Instead of what these pods ask for, in percent; default: all as they are"}},
    R"(Examples:
  baton whatif --last 1h
  baton whatif --last 7d --shares train=60,web=10:40
  baton whatif --from 2026-11-01T09:00 --to 2026-11-01T17:00 --format csv

By the books, and in mode "observe" too, where nobody is held back. All in percent of the time from
the pod's first use in the window to its last. ALONE: what it would have used without the others, by
how much of the time it had work; HAD: what it had. WOULD GET: what an ideal GPU gives it beside the
others, in each bucket of 10 s (windows of up to an hour), a minute (a day) or an hour. WOULD WAIT:
the part of the time in which it would have work and no turn.)",
    PrintWhatIf};

const ReportCommand kLog{
    "log",
    "Who changed what: shares, GPUs, weights, budgets, prices",
    {{"last", "", "TIME", "Length of the window up to now; default: 7d"},
     kFrom,
     kTo,
     {"pod", "", "NAME", "Only of this pod: its name (in any namespace), or NAMESPACE/NAME"},
     {"gpu", "", "UUID", "Only of this GPU"},
     {"team", "", "PATH", "Only of this team and those below it"},
     {"who", "", "NAME",
      "Only by this user, \"root\", \"uid 1000\", \"node N\" or \"configuration\""}},
    R"(Examples:
  baton log
  baton log --pod train --last 30d
  baton log --team research/vision --format json

The newest first. WHO is the user of user.sock; at the operator's socket, whoever logged in, also
through sudo. "configuration": batond.toml and the file of teams, by what they said before.)",
    PrintLog};

json QuestionOf(const ReportCommand& report, const std::map<std::string, std::string>& fields) {
  json question{{"command", report.name}};
  for (const Flag& flag : report.flags) {
    const std::string& value = fields.at(flag.field);
    if (!flag.only_given || !value.empty()) question[flag.field] = value;
  }
  return question;
}

constexpr int kFocusTries = 4;

// The report as charges. What nobody held is asked for beside it, and left out where the report is
// of some only.
int AskFocus(const ReportCommand& report, const std::map<std::string, std::string>& fields,
             const Invocation& invocation) {
  if (fields.at("by") != "team") {
    return Complain({ErrorCode::kInvalid, "--format focus has rows of its own; leave out --by"});
  }
  if (!fields.at("time_zone").empty()) {
    return Complain({ErrorCode::kInvalid, "--format focus is in UTC; leave out --time-zone"});
  }
  json question = QuestionOf(report, fields);
  question["by"] = kFocusUseBy;
  json use, idle;
  for (int tried = 0;; ++tried) {
    Result<json> answer = Read(invocation, question, kAnswerPatience);
    if (!answer) return Complain(answer.error());
    use = std::move(*answer);
    if (use.contains("others_hours") || use.at("from") == use.at("to")) break;
    // The same window, though now is later.
    answer = Read(invocation,
                  {{"command", report.name},
                   {"by", kFocusIdleBy},
                   {"from", use.at("from")},
                   {"to", use.at("to")}},
                  kAnswerPatience);
    if (!answer) return Complain(answer.error());
    idle = std::move(*answer);
    // What was recorded in between is in the second answer alone, and they would not add up.
    if (use.value("held_hours", 0.0) == idle.value("held_hours", 0.0)) break;
    if (tried + 1 == kFocusTries) {
      return Complain({ErrorCode::kUnavailable,
                       "the ledger recorded something while the charges were read; ask again"});
    }
  }
  const Result<TextTable> table = FocusTable(use, idle);
  if (!table) return Complain(table.error());
  std::fputs(table->Csv().c_str(), stdout);
  return 0;
}

int Ask(const ReportCommand& report, const std::map<std::string, std::string>& fields,
        const std::string& format_name, const Invocation& invocation) {
  if (report.focus && format_name == "focus") return AskFocus(report, fields, invocation);
  const Result<Format> format = ParseFormat(format_name, report.focus);
  if (!format) return Complain(format.error());
  const json question = QuestionOf(report, fields);
  Result<json> answer = Read(invocation, question, kAnswerPatience);
  if (!answer) return Complain(answer.error());
  answer->erase("ok");
  if (*format == Format::kJsonLines) return PrintLines(*answer);
  if (*format != Format::kJson) return report.print(*answer, *format);
  std::puts(answer->dump().c_str());
  return 0;
}

void Add(CLI::App& baton, Invocation& invocation, const ReportCommand& report) {
  struct Given {
    std::map<std::string, std::string> fields;
    std::string format = "table";
    bool apply = false;
    ApplyOptions how;
  };
  CLI::App* command = baton.add_subcommand(report.name, report.summary);
  auto given = std::make_shared<Given>();
  for (const Flag& flag : report.flags) {
    std::string& field = given->fields[flag.field] = flag.initially;
    std::string name = std::string("--") + flag.field;
    std::replace(name.begin(), name.end(), '_', '-');
    CLI::Option* option = command->add_option(name, field, flag.help);
    option->type_name(flag.type);
    if (!field.empty()) option->capture_default_str();
  }
  CLI::Option* format =
      command
          ->add_option(
              "--format", given->format,
              std::string(
                  "table, csv, json, jsonl (a line for each row) or parsable (cells between "
                  "\"|\"); csv and parsable keep their columns from version to version") +
                  (report.focus ? "; focus: charges for cost tools (FOCUS 1.0)" : ""))
          ->type_name("FORMAT")
          ->capture_default_str();
  command
      ->add_flag_callback(
          "--json", [given] { given->format = "json"; }, "The same as --format json")
      ->excludes(format);
  if (report.applies) {
    command->add_flag("--apply", given->apply,
                      "Set what is advised, after a question or with --yes");
    command->add_flag("--yes", given->how.yes, "With --apply: ask nobody")->needs("--apply");
  }
  AddReading(*command, invocation);
  command->footer(report.footer);
  command->callback([given, &report, &invocation] {
    invocation.action = [given, &report, &invocation] {
      if (given->apply) {
        if (!invocation.remote.url.empty()) {
          return Complain({ErrorCode::kInvalid,
                           "--apply changes pods, which a page's address does not allow: leave out "
                           "--url, and unset BATON_URL"});
        }
        given->how.json = given->format == "json";
        if (!given->how.json && given->format != "table") {
          return Complain({ErrorCode::kInvalid, "with --apply the format is table or json"});
        }
        return ApplyAdvice(QuestionOf(report, given->fields), given->how, invocation);
      }
      return Ask(report, given->fields, given->format, invocation);
    };
  });
}

}  // namespace

void AddReports(CLI::App& baton, Invocation& invocation) {
  for (const ReportCommand* report : {&kReport, &kStanding, &kAdvise, &kWhatIf, &kLog}) {
    Add(baton, invocation, *report);
  }
}

}  // namespace baton::cli
