// What people ask the books, and the answers as JSON: the same for the control socket, the HTTP API
// and the commands.
//
// Pure and thread safe.
#ifndef BATON_LEDGER_REPORT_H_
#define BATON_LEDGER_REPORT_H_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "ledger/ledger.h"
#include "ledger/prices.h"
#include "ledger/time_zone.h"

namespace baton::ledger {

// "team", "user", "namespace", "pod", "gpu", "node", "day", "total", "month", "model" or "price".
Result<By> ParseBy(std::string_view text);
const char* ByName(By by);
// One or several, as "day,team".
Result<std::vector<By>> ParseBys(std::string_view text);
std::string BysName(const std::vector<By>& by);

// "2026-11-21", "2026-11-21T14:30", "2026-11-21T14:30:05", in the zone, or in UTC with a final "Z".
Result<WallTime> ParseTime(std::string_view text, const TimeZone& zone = {});

// From texts as users write them, empty where they did not: either `last` (a duration) or `from`
// and `to` (`to` alone needs `from`; `from` alone means until now). Nothing: the last 30 days.
Result<Window> ParseWindow(const std::string& from, const std::string& to, const std::string& last,
                           WallTime now, const TimeZone& zone = {});

// {from, to (RFC 3339), from_ms, to_ms, by, time_zone?, currency?, rows: [{key, keys?, team?,
// from?, to?, held_hours, busy_hours, waited_hours, unmanaged_hours, memory_gib_hours, efficiency,
// launches, grants, cost?, price?, capacity_hours?, idle_hours?, unattributed_hours?, energy?,
// idle_energy?}], held_hours, others_hours?, idle_hours, unattributed_hours, capacity_hours, cost?,
// others_cost?, idle_cost?, unattributed_cost?, energy?, others_energy?, idle_energy?}
//
// Hours are of one GPU. capacity = held + others + idle + unattributed, in all and, where each row
// has a capacity of its own (Question::own_capacity()), in each row. `others` is there where the
// question asks for the use of some only. Efficiency is busy / held, 0 to 1 (0 where nothing was
// held). Unattributed is what is left: hand-offs, work without a token, time that crashes and
// restarts took. `keys` are there where the report is by several, from and to of a row where it is
// by day, month or price.
//
// Costs are there when a price is. All use has the price that was in force at its time; for that
// Question::changes must be PriceChanges(prices). `price`, of a GPU-hour, is there by model and by
// price where all of the row has the same one. A row's key by price is that price as a number, ""
// where there is none.
//
// `energy` stands for energy_kwh, and with the factors energy_cost and carbon_kg; all are there
// where some GPU's energy was measured in the window. What no pod took is idle: energy + others +
// idle = what the GPUs took, in all and in each row that has idle_energy. It is no part of `cost`.
nlohmann::json ReportJson(const Uses& uses, const Question& question, const Prices& prices,
                          const std::string& currency, const EnergyFactors& factors = {});

}  // namespace baton::ledger

#endif  // BATON_LEDGER_REPORT_H_
