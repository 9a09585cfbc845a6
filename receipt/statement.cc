#include "receipt/statement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/parse.h"

namespace baton::receipt {
namespace {

using nlohmann::json;

constexpr std::pair<const char*, const char*> kReasons[] = {
    {"no_work_hours", "it had no work: it neither held nor waited"},
    {"outage_hours", "outage: the GPU or batond was not there"},
    {"overcommit_hours", "overcommit: pods with work requested more than the GPU"},
    {"limit_hours", "its limit, which is its request"},
    {"high_priority_hours", "pods of high priority went first"},
    {"unattributed_hours",
     "nobody held the GPU: hand-offs, batond away, programs without the token"},
    {"others_hours", "it waited its turn while other pods held the GPU"},
    {"unknown_hours", "not known"}};

double NumberIn(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

std::string WordIn(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// In units of the last decimal.
int64_t Units(double value, int decimals) { return std::llround(value * std::pow(10, decimals)); }

std::string UnitsText(int64_t units, int decimals) {
  std::string text = fmt::format("{:0{}}", std::abs(units), decimals + 1);
  if (decimals > 0) text.insert(text.size() - static_cast<size_t>(decimals), ".");
  return units < 0 ? "-" + text : text;
}

int HoursDecimals(const json& total) {
  return std::max(DecimalsFor(NumberIn(total, "guaranteed_hours"), 3),
                  DecimalsFor(NumberIn(total, "held_hours"), 3));
}

struct Column {
  const char* field;
  const char* heading;
  int decimals;
};
constexpr Column kColumns[] = {{"guaranteed_hours", "Guaranteed", 3},
                               {"got_hours", "Got of it", 3},
                               {"held_hours", "Held", 3},
                               {"busy_hours", "Busy", 3},
                               {"waited_hours", "Waited", 3},
                               {"memory_gib_hours", "GiB*h", 2},
                               {"energy_kwh", "kWh", 2},
                               {"carbon_kg", "kg CO2e", 2},
                               {"energy_cost", "Energy cost", 2},
                               {"cost", "Cost", 2}};

// A cap as the pod asked for it: "25%", or bytes.
std::string MemoryText(const std::string& memory) {
  const auto bytes = ParseBytes(memory);
  if (memory.empty() || (bytes && *bytes == 0)) return "none";
  return bytes ? FormatBytes(*bytes) : memory;
}

std::string PercentText(double percent) { return fmt::format("{:.10g} %", percent); }

}  // namespace

std::vector<std::string> Rounded(const std::vector<double>& values, double total, int decimals) {
  std::vector<std::string> texts;
  double sum = 0;
  int64_t before = 0;
  for (const double value : values) {
    sum += value;
    // The last bit of a sum may be on the other side of a half.
    const bool last = texts.size() + 1 == values.size();
    const int64_t now = Units(last ? total : sum, decimals);
    texts.push_back(UnitsText(now - before, decimals));
    before = now;
  }
  return texts;
}

std::vector<StatementRow> StatementOf(const json& total) {
  constexpr double kNsOfHour = 3600e9;
  using Kind = StatementRow::Kind;
  const int decimals = HoursDecimals(total);
  std::vector<StatementRow> rows;
  double rest = NumberIn(total, "guaranteed_hours");
  int64_t units = Units(rest, decimals);
  rows.push_back({Kind::kFirst, "Guaranteed: the request, for as long as the pod was there",
                  UnitsText(units, decimals)});
  const json less = total.value("less", json::object());
  for (const auto& [field, label] : kReasons) {
    rest -= NumberIn(less, field);
    rest = std::round(rest * kNsOfHour) / kNsOfHour;  // whole nanoseconds again, as all figures are
    const int64_t now = Units(rest, decimals);
    if (now != units) rows.push_back({Kind::kLess, label, UnitsText(units - now, decimals)});
    units = now;
  }
  rows.push_back({Kind::kSum, "Got of that", UnitsText(units, decimals)});
  const int64_t held = Units(NumberIn(total, "held_hours"), decimals);
  if (held != units) {
    rows.push_back({Kind::kMore, "beyond the guarantee: time that others left over",
                    UnitsText(held - units, decimals)});
  }
  rows.push_back({Kind::kSum, "Held, which is charged", UnitsText(held, decimals)});
  return rows;
}

std::vector<LineColumn> LineColumns(const json& receipt) {
  const json& total = receipt.at("total");
  const json& lines = receipt.at("lines");
  std::vector<LineColumn> columns;
  for (const Column& column : kColumns) {
    if (!total.contains(column.field)) continue;
    const bool hours = column.decimals == 3;
    const int decimals =
        hours ? HoursDecimals(total) : DecimalsFor(NumberIn(total, column.field), column.decimals);
    std::vector<double> values;
    for (const json& line : lines) values.push_back(NumberIn(line, column.field));
    columns.push_back({column.heading, Rounded(values, NumberIn(total, column.field), decimals),
                       UnitsText(Units(NumberIn(total, column.field), decimals), decimals)});
  }
  return columns;
}

std::string NameOfLine(const json& receipt, const json& line) {
  std::string name = WordIn(line, "key");
  const std::string team = WordIn(line, "team");
  if (WordIn(receipt, "by") == "pod" && team != WordIn(receipt, "name")) {
    name += team.empty() ? " (no team)" : " (" + team + ")";
  }
  return name;
}

std::vector<std::vector<std::string>> AskedTable(const json& receipt) {
  std::vector<std::vector<std::string>> table{
      {"Pod", "From", "To", "Request", "Limit", "Memory cap", "Priority", "GPUs", "By"}};
  for (const json& asked : receipt.at("asked")) {
    std::string gpus;
    for (const json& gpu : asked.at("gpus")) {
      gpus += (gpus.empty() ? "" : ", ") + gpu.get<std::string>().substr(0, 12);
    }
    const auto time = [&](const char* key, const char* otherwise) {
      std::string text = WordIn(asked, key);
      if (text.empty()) return std::string(otherwise);
      std::replace(text.begin(), text.end(), 'T', ' ');
      return text;
    };
    const std::string who = WordIn(asked, "who");
    const double request = NumberIn(asked, "request");
    table.push_back({WordIn(asked, "pod"), time("from", "before the log"), time("to", "-"),
                     request > 0 ? PercentText(request) : "none",
                     PercentText(NumberIn(asked, "limit")), MemoryText(WordIn(asked, "memory")),
                     WordIn(asked, "priority"), gpus, who.empty() ? "-" : who});
  }
  return table;
}

std::string StepText(const json& receipt) {
  switch (receipt.value("step_s", int64_t{0})) {
    case 10:
      return "10 seconds";
    case 60:
      return "a minute";
    case 3600:
      return "an hour";
    default:
      return "a day";
  }
}

}  // namespace baton::receipt
