#include "ledger/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/parse.h"

namespace baton::ledger {
namespace {

using nlohmann::json;

constexpr std::array<std::pair<std::string_view, By>, 10> kBys{{{"team", By::kTeam},
                                                                {"user", By::kUser},
                                                                {"namespace", By::kNamespace},
                                                                {"pod", By::kPod},
                                                                {"gpu", By::kGpu},
                                                                {"node", By::kNode},
                                                                {"day", By::kDay},
                                                                {"total", By::kTotal},
                                                                {"month", By::kMonth},
                                                                {"model", By::kModel}}};

double Hours(Int128 ns) { return static_cast<double>(ns) / 3600e9; }
// For JSON, whose readers know 64 bits. Nobody launches more.
int64_t Count(Int128 number) {
  return static_cast<int64_t>(std::min<Int128>(number, std::numeric_limits<int64_t>::max()));
}

std::optional<double> PriceOf(const Prices& prices, const std::string& model) {
  auto it = prices.find(model);
  if (it == prices.end()) it = prices.find("");
  if (it == prices.end()) return std::nullopt;
  return it->second;
}

void Add(Sums& to, const Sums& more) {
  to.held_ns += more.held_ns;
  to.busy_ns += more.busy_ns;
  to.waited_ns += more.waited_ns;
  to.unmanaged_ns += more.unmanaged_ns;
  to.memory_mib_ms += more.memory_mib_ms;
  to.launches += more.launches;
  to.grants += more.grants;
  to.revocations += more.revocations;
}

// A row of the report, over the models of GPU that are in it.
struct Sum {
  Sums use;
  Int128 others_ns = 0;  // held by those who are not asked for
  Int128 present_ns = 0;
  Int128 idle_ns = 0;
  bool priced = false;
  double cost = 0;
  double others_cost = 0;
  double idle_cost = 0;
  double capacity_cost = 0;

  void AddUse(const UseRow& row, const Prices& prices) {
    Add(use, row.use);
    if (const auto price = PriceOf(prices, row.model)) {
      priced = true;
      cost += *price * Hours(row.use.held_ns);
    }
  }
  void AddCapacity(const CapacityRow& row, const Prices& prices) {
    present_ns += row.present_ns;
    idle_ns += row.idle_ns;
    if (const auto price = PriceOf(prices, row.model)) {
      priced = true;
      idle_cost += *price * Hours(row.idle_ns);
      capacity_cost += *price * Hours(row.present_ns);
    }
  }
  void AddOthers(const std::string& model, Int128 held_ns, const Prices& prices) {
    others_ns += held_ns;
    if (const auto price = PriceOf(prices, model)) {
      priced = true;
      others_cost += *price * Hours(held_ns);
    }
  }
  Int128 held() const { return use.held_ns + others_ns; }
  // A hold is booked when it is charged, which may be a moment into the next bucket.
  Int128 idle() const { return std::max<Int128>(0, std::min(idle_ns, present_ns - held())); }
  Int128 unattributed() const { return std::max<Int128>(0, present_ns - held() - idle()); }

  void PutUse(json& to) const {
    to["held_hours"] = Hours(use.held_ns);
    to["busy_hours"] = Hours(use.busy_ns);
    to["waited_hours"] = Hours(use.waited_ns);
    to["unmanaged_hours"] = Hours(use.unmanaged_ns);
    to["memory_gib_hours"] = static_cast<double>(use.memory_mib_ms) / 1024 / 3600e3;
    to["efficiency"] =
        use.held_ns <= 0
            ? 0.0
            : std::clamp(static_cast<double>(use.busy_ns) / static_cast<double>(use.held_ns), 0.0,
                         1.0);
    to["launches"] = Count(use.launches);
    to["grants"] = Count(use.grants);
    if (priced) to["cost"] = cost;
  }
  void PutCapacity(json& to) const {
    to["capacity_hours"] = Hours(std::max(present_ns, held()));
    to["idle_hours"] = Hours(idle());
    to["unattributed_hours"] = Hours(unattributed());
  }
};

}  // namespace

Result<By> ParseBy(std::string_view text) {
  std::string all;
  for (const auto& [name, by] : kBys) {
    if (name == text) return by;
    all += (all.empty() ? "" : ", ") + std::string(name);
  }
  return Fail(ErrorCode::kInvalid, fmt::format("nothing is reported by '{}'; choose one of {}",
                                               text.substr(0, 64), all));
}

Result<std::vector<By>> ParseBys(std::string_view text) {
  std::vector<By> bys;
  while (true) {
    const size_t comma = text.find(',');
    const Result<By> by = ParseBy(text.substr(0, comma));
    if (!by) return tl::unexpected(by.error());
    bys.push_back(*by);
    if (comma == std::string_view::npos) return bys;
    text.remove_prefix(comma + 1);
  }
}

std::string BysName(const std::vector<By>& bys) {
  std::string name;
  for (const By by : bys) name += (name.empty() ? "" : ",") + std::string(ByName(by));
  return name;
}

const char* ByName(By by) {
  for (const auto& [name, value] : kBys) {
    if (value == by) return name.data();
  }
  return "";
}

Result<WallTime> ParseTime(std::string_view text, const TimeZone& zone) {
  std::string_view rest = text;
  const bool utc = !rest.empty() && rest.back() == 'Z';
  if (utc) rest.remove_suffix(1);
  std::array<int, 6> parts{0, 1, 1, 0, 0, 0};
  constexpr std::array<size_t, 6> kDigits{4, 2, 2, 2, 2, 2};
  constexpr std::string_view kBefore = "?--T::";
  size_t count = 0;
  for (; count < parts.size() && !rest.empty(); ++count) {
    if (count > 0) {
      if (rest.front() != kBefore[count]) break;
      rest.remove_prefix(1);
    }
    const std::string_view digits = rest.substr(0, kDigits[count]);
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), parts[count]);
    if (error != std::errc() || digits.size() != kDigits[count] ||
        end != digits.data() + digits.size() || parts[count] < 0) {
      count = 0;
      break;
    }
    rest.remove_prefix(kDigits[count]);
  }
  const std::chrono::year_month_day day{std::chrono::year(parts[0]),
                                        std::chrono::month(static_cast<unsigned>(parts[1])),
                                        std::chrono::day(static_cast<unsigned>(parts[2]))};
  const bool good = rest.empty() && count >= 3 && count != 4 && day.ok() && parts[0] >= 1970 &&
                    parts[3] < 24 && parts[4] < 60 && parts[5] < 60;
  if (!good) {
    return Fail(ErrorCode::kInvalid,
                fmt::format("'{}' is no time; write 2026-11-21 or 2026-11-21T14:30 ({})",
                            text.substr(0, 64), zone.name));
  }
  return AtLocalTime(utc ? TimeZone{} : zone,
                     std::chrono::local_days(day) + std::chrono::hours(parts[3]) +
                         std::chrono::minutes(parts[4]) + std::chrono::seconds(parts[5]));
}

Result<Window> ParseWindow(const std::string& from, const std::string& to, const std::string& last,
                           WallTime now, const TimeZone& zone) {
  Window window{now, now};
  if (!last.empty() && (!from.empty() || !to.empty())) {
    return Fail(ErrorCode::kInvalid, "give either --last or --from and --to");
  }
  if (!to.empty() && from.empty()) return Fail(ErrorCode::kInvalid, "--to needs --from beside it");
  if (from.empty()) {
    auto length = ParseDuration(last.empty() ? "30d" : last);
    if (!length) return tl::unexpected(length.error());
    window.from = now - std::chrono::ceil<std::chrono::milliseconds>(*length);
  } else {
    auto begin = ParseTime(from, zone);
    if (!begin) return tl::unexpected(begin.error());
    window.from = *begin;
    if (!to.empty()) {
      auto end = ParseTime(to, zone);
      if (!end) return tl::unexpected(end.error());
      window.to = *end;
    }
  }
  if (window.from >= window.to) {
    return Fail(ErrorCode::kInvalid,
                fmt::format("the window from {} to {} is empty", FormatTime(window.from, zone),
                            FormatTime(window.to, zone)));
  }
  return window;
}

json ReportJson(const Uses& uses, const Question& question, const Prices& prices,
                const std::string& currency) {
  using Key = std::pair<std::vector<std::string>, std::string>;  // keys, team
  const std::vector<By>& by = question.by;
  const auto is_by = [&](By key) { return std::find(by.begin(), by.end(), key) != by.end(); };
  std::map<Key, Sum> rows;
  std::map<Key, std::string> models;
  Sum all;
  for (const UseRow& row : uses.rows) {
    rows[{row.keys, row.team}].AddUse(row, prices);
    models[{row.keys, row.team}] = row.model;
    all.AddUse(row, prices);
  }
  const bool own_capacity = question.own_capacity();
  for (const CapacityRow& row : uses.capacity) {
    if (own_capacity) {
      rows[{row.keys, ""}].AddCapacity(row, prices);
      models[{row.keys, ""}] = row.model;
    }
    all.AddCapacity(row, prices);
  }
  for (const auto& [model, held_ns] : uses.others_held_ns) all.AddOthers(model, held_ns, prices);
  const auto time = [&](WallTime at) { return FormatTime(at, question.zone); };
  json answer{{"from", time(uses.window.from)},
              {"to", time(uses.window.to)},
              {"from_ms", uses.window.from.time_since_epoch().count()},
              {"to_ms", uses.window.to.time_since_epoch().count()},
              {"by", BysName(by)},
              {"unit", "GPU-hours"},
              {"rows", json::array()}};
  if (question.zone.zone != nullptr) answer["time_zone"] = question.zone.name;
  const bool teams = (is_by(By::kUser) || is_by(By::kPod)) && !is_by(By::kTeam);
  for (const auto& [key, sum] : rows) {
    json row{{"key", ""}};
    std::string joined;
    for (const std::string& part : key.first) joined += (joined.empty() ? "" : ", ") + part;
    row["key"] = by.size() == 1 ? key.first.front() : joined;
    if (by.size() > 1) row["keys"] = key.first;
    if (teams) row["team"] = key.second;
    for (size_t i = 0; i < by.size(); ++i) {
      const auto period = uses.periods.find(key.first[i]);
      if ((by[i] != By::kDay && by[i] != By::kMonth) || period == uses.periods.end()) continue;
      row["from"] = time(period->second.from);
      row["to"] = time(period->second.to);
    }
    sum.PutUse(row);
    if (own_capacity) sum.PutCapacity(row);
    if (is_by(By::kModel)) {
      if (const auto price = PriceOf(prices, models[key])) row["price"] = *price;
    }
    answer["rows"].push_back(std::move(row));
  }
  answer["held_hours"] = Hours(all.use.held_ns);
  if (question.filtered()) answer["others_hours"] = Hours(all.others_ns);
  all.PutCapacity(answer);
  if (all.priced) {
    answer["currency"] = currency;
    answer["cost"] = all.cost;
    if (question.filtered()) answer["others_cost"] = all.others_cost;
    // Where idle hours were cut, their price is too.
    const double idle_cost = all.idle_ns > 0 ? all.idle_cost * static_cast<double>(all.idle()) /
                                                   static_cast<double>(all.idle_ns)
                                             : 0;
    answer["idle_cost"] = idle_cost;
    answer["unattributed_cost"] =
        std::max(0.0, all.capacity_cost - all.cost - all.others_cost - idle_cost);
  }
  return answer;
}

}  // namespace baton::ledger
