#include "ledger/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/parse.h"

namespace baton::ledger {
namespace {

using nlohmann::json;

constexpr std::array<std::pair<std::string_view, By>, 11> kBys{{{"team", By::kTeam},
                                                                {"user", By::kUser},
                                                                {"namespace", By::kNamespace},
                                                                {"pod", By::kPod},
                                                                {"gpu", By::kGpu},
                                                                {"node", By::kNode},
                                                                {"day", By::kDay},
                                                                {"total", By::kTotal},
                                                                {"month", By::kMonth},
                                                                {"model", By::kModel},
                                                                {"price", By::kPrice}}};

double Hours(Int128 ns) { return static_cast<double>(ns) / 3600e9; }
double KilowattHours(Int128 joules) { return static_cast<double>(joules) / 3.6e6; }
// For JSON, whose readers know 64 bits. Nobody launches more.
int64_t Count(Int128 number) {
  return static_cast<int64_t>(std::min<Int128>(number, std::numeric_limits<int64_t>::max()));
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
  to.energy_j += more.energy_j;
  to.uncontended_ns += more.uncontended_ns;
}

void PutEnergy(json& to, const std::string& whose, Int128 joules, const EnergyFactors& factors) {
  const double kwh = KilowattHours(joules);
  to[whose + "energy_kwh"] = kwh;
  if (factors.price) to[whose + "energy_cost"] = kwh * *factors.price;
  if (factors.carbon_g) to[whose + "carbon_kg"] = kwh * *factors.carbon_g / 1000;
}

// A row of the report, over the models of GPU that are in it.
struct Sum {
  Sums use;
  Int128 others_ns = 0;  // held by those who are not asked for
  Int128 present_ns = 0;
  Int128 idle_ns = 0;
  Int128 others_energy_j = 0;
  Int128 gpus_energy_j = 0;
  bool priced = false;
  double cost = 0;
  double others_cost = 0;
  double idle_cost = 0;
  double capacity_cost = 0;
  // Of all that was added, where that is one.
  std::optional<double> price;
  bool first = true;
  std::optional<Window> span;  // of all that was added

  void AddUse(const UseRow& row, std::optional<double> at) {
    Add(use, row.use);
    AddPrice(at);
    if (at) cost += *at * Hours(row.use.held_ns);
  }
  void AddCapacity(const CapacityRow& row, std::optional<double> at) {
    present_ns += row.present_ns;
    idle_ns += row.idle_ns;
    gpus_energy_j += row.energy_j;
    AddPrice(at);
    if (!at) return;
    idle_cost += *at * Hours(row.idle_ns);
    capacity_cost += *at * Hours(row.present_ns);
  }
  void AddOthers(const OthersRow& row, std::optional<double> at) {
    others_ns += row.held_ns;
    others_energy_j += row.energy_j;
    AddPrice(at);
    if (at) others_cost += *at * Hours(row.held_ns);
  }
  void AddPrice(std::optional<double> at) {
    priced = priced || at.has_value();
    if (first) price = at;
    if (price != at) price = std::nullopt;
    first = false;
  }
  void AddSpan(Window window) {
    if (!span) span = window;
    span = Window{std::min(span->from, window.from), std::max(span->to, window.to)};
  }
  Int128 held() const { return use.held_ns + others_ns; }
  // A hold is booked when it is charged, which may be a moment into the next bucket.
  Int128 idle() const { return std::max<Int128>(0, std::min(idle_ns, present_ns - held())); }
  Int128 unattributed() const { return std::max<Int128>(0, present_ns - held() - idle()); }

  // Pods are told their part some moments after the counter was read.
  Int128 idle_energy_j() const {
    return std::max<Int128>(0, gpus_energy_j - use.energy_j - others_energy_j);
  }

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
    // Without a token: an instance by MIG, a part by MPS, another vendor's GPU. What these executed
    // is measured where NVML tells it; then it is a nanosecond or more.
    const bool allocated = use.held_ns > 0 && use.grants <= 0 && use.launches <= 0;
    if (allocated) to["allocated"] = true;
    if (allocated && use.busy_ns > 0) to["measured"] = true;
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
  const Result<WrittenTime> written = ParseWrittenTime(text, zone.name);
  if (!written) return tl::unexpected(written.error());
  return AtLocalTime(written->utc ? TimeZone{} : zone, written->local);
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
                const std::string& currency, const EnergyFactors& factors) {
  using Key = std::pair<std::vector<std::string>, std::string>;  // keys, team
  const std::vector<By>& by = question.by;
  const auto is_by = [&](By key) { return std::find(by.begin(), by.end(), key) != by.end(); };
  const auto price_of = [&](const auto& row) {
    return PriceAt(prices, row.model,
                   row.span < uses.spans.size() ? uses.spans[row.span].since : uses.window.from);
  };
  std::map<Key, Sum> rows;
  const auto row_of = [&](std::vector<std::string> keys, const std::string& team, size_t span,
                          std::optional<double> price) -> Sum& {
    Window window = span < uses.spans.size() ? uses.spans[span].window : uses.window;
    for (size_t i = 0; i < by.size(); ++i) {
      if (by[i] == By::kPrice && price) keys[i] = fmt::format("{}", *price);
      const auto period = uses.periods.find(keys[i]);
      if ((by[i] != By::kDay && by[i] != By::kMonth) || period == uses.periods.end()) continue;
      window = {std::max(window.from, period->second.from), std::min(window.to, period->second.to)};
    }
    Sum& row = rows[{std::move(keys), team}];
    row.AddSpan(window);
    return row;
  };
  Sum all;
  for (const UseRow& row : uses.rows) {
    const auto price = price_of(row);
    row_of(row.keys, row.team, row.span, price).AddUse(row, price);
    all.AddUse(row, price);
  }
  const bool own_capacity = question.own_capacity();
  for (const CapacityRow& row : uses.capacity) {
    const auto price = price_of(row);
    if (own_capacity) row_of(row.keys, "", row.span, price).AddCapacity(row, price);
    all.AddCapacity(row, price);
  }
  for (const OthersRow& row : uses.others) all.AddOthers(row, price_of(row));
  const bool measured = all.gpus_energy_j > 0 || all.use.energy_j + all.others_energy_j > 0;
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
    if (is_by(By::kPrice)) {
      row["from"] = time(sum.span->from);
      row["to"] = time(sum.span->to);
    }
    for (size_t i = 0; i < by.size() && !is_by(By::kPrice); ++i) {
      const auto period = uses.periods.find(key.first[i]);
      if ((by[i] != By::kDay && by[i] != By::kMonth) || period == uses.periods.end()) continue;
      row["from"] = time(period->second.from);
      row["to"] = time(period->second.to);
    }
    sum.PutUse(row);
    if (own_capacity) sum.PutCapacity(row);
    if (measured) PutEnergy(row, "", sum.use.energy_j, factors);
    if (measured && own_capacity) PutEnergy(row, "idle_", sum.idle_energy_j(), factors);
    if ((is_by(By::kModel) || is_by(By::kPrice)) && sum.price) row["price"] = *sum.price;
    answer["rows"].push_back(std::move(row));
  }
  answer["held_hours"] = Hours(all.use.held_ns);
  if (question.filtered()) answer["others_hours"] = Hours(all.others_ns);
  all.PutCapacity(answer);
  if (measured) {
    PutEnergy(answer, "", all.use.energy_j, factors);
    if (question.filtered()) PutEnergy(answer, "others_", all.others_energy_j, factors);
    PutEnergy(answer, "idle_", all.idle_energy_j(), factors);
    if (factors.price) answer["currency"] = currency;
  }
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
