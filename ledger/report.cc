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

constexpr std::array<std::pair<std::string_view, By>, 8> kBys{{{"team", By::kTeam},
                                                               {"user", By::kUser},
                                                               {"namespace", By::kNamespace},
                                                               {"pod", By::kPod},
                                                               {"gpu", By::kGpu},
                                                               {"node", By::kNode},
                                                               {"day", By::kDay},
                                                               {"total", By::kTotal}}};

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
  Int128 present_ns = 0;
  Int128 idle_ns = 0;
  bool priced = false;
  double cost = 0;
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
  // A hold is booked when it is charged, which may be a moment into the next bucket.
  Int128 idle() const { return std::max<Int128>(0, std::min(idle_ns, present_ns - use.held_ns)); }
  Int128 unattributed() const { return std::max<Int128>(0, present_ns - use.held_ns - idle()); }

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
    to["capacity_hours"] = Hours(std::max(present_ns, use.held_ns));
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

const char* ByName(By by) {
  for (const auto& [name, value] : kBys) {
    if (value == by) return name.data();
  }
  return "";
}

Result<WallTime> ParseTime(std::string_view text) {
  std::string_view rest = text;
  if (!rest.empty() && rest.back() == 'Z') rest.remove_suffix(1);
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
                fmt::format("'{}' is no time; write 2026-11-21 or 2026-11-21T14:30 (UTC)",
                            text.substr(0, 64)));
  }
  return std::chrono::sys_days(day) + std::chrono::hours(parts[3]) +
         std::chrono::minutes(parts[4]) + std::chrono::seconds(parts[5]);
}

std::string FormatTime(WallTime at) {
  const auto day = std::chrono::floor<std::chrono::days>(at);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss time(std::chrono::floor<std::chrono::seconds>(at - day));
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                     time.hours().count(), time.minutes().count(), time.seconds().count());
}

Result<Window> ParseWindow(const std::string& from, const std::string& to, const std::string& last,
                           WallTime now) {
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
    auto begin = ParseTime(from);
    if (!begin) return tl::unexpected(begin.error());
    window.from = *begin;
    if (!to.empty()) {
      auto end = ParseTime(to);
      if (!end) return tl::unexpected(end.error());
      window.to = *end;
    }
  }
  if (window.from >= window.to) {
    return Fail(ErrorCode::kInvalid, fmt::format("the window from {} to {} is empty",
                                                 FormatTime(window.from), FormatTime(window.to)));
  }
  return window;
}

json ReportJson(const Uses& uses, By by, const Prices& prices, const std::string& currency) {
  using Key = std::pair<std::string, std::string>;  // key, team
  std::map<Key, Sum> rows;
  Sum all;
  for (const UseRow& row : uses.rows) {
    rows[{row.key, row.team}].AddUse(row, prices);
    all.AddUse(row, prices);
  }
  const bool own_capacity = by == By::kGpu || by == By::kNode || by == By::kDay;
  for (const CapacityRow& row : uses.capacity) {
    if (own_capacity) rows[{row.key, ""}].AddCapacity(row, prices);
    all.AddCapacity(row, prices);
  }
  json answer{{"from", FormatTime(uses.window.from)},
              {"to", FormatTime(uses.window.to)},
              {"from_ms", uses.window.from.time_since_epoch().count()},
              {"to_ms", uses.window.to.time_since_epoch().count()},
              {"by", ByName(by)},
              {"unit", "GPU-hours"},
              {"rows", json::array()}};
  for (const auto& [key, sum] : rows) {
    json row{{"key", key.first}};
    if (by == By::kUser || by == By::kPod) row["team"] = key.second;
    sum.PutUse(row);
    if (own_capacity) sum.PutCapacity(row);
    answer["rows"].push_back(std::move(row));
  }
  answer["held_hours"] = Hours(all.use.held_ns);
  all.PutCapacity(answer);
  if (all.priced) {
    answer["currency"] = currency;
    answer["cost"] = all.cost;
    // Where idle hours were cut, their price is too.
    const double idle_cost = all.idle_ns > 0 ? all.idle_cost * static_cast<double>(all.idle()) /
                                                   static_cast<double>(all.idle_ns)
                                             : 0;
    answer["idle_cost"] = idle_cost;
    answer["unattributed_cost"] = std::max(0.0, all.capacity_cost - all.cost - idle_cost);
  }
  return answer;
}

}  // namespace baton::ledger
