// What people ask the books, and the answers as JSON: the same for the control socket, the HTTP API
// and the commands.
//
// Pure and thread safe.
#ifndef BATON_LEDGER_REPORT_H_
#define BATON_LEDGER_REPORT_H_

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "ledger/ledger.h"

namespace baton::ledger {

// "team", "user", "namespace", "pod", "gpu", "node", "day" or "total".
Result<By> ParseBy(std::string_view text);
const char* ByName(By by);

// "2026-11-21", "2026-11-21T14:30", "2026-11-21T14:30:05", with or without a final "Z"; UTC.
Result<WallTime> ParseTime(std::string_view text);
// "2026-11-21T14:30:05Z".
std::string FormatTime(WallTime at);

// From texts as users write them, empty where they did not: either `last` (a duration) or `from`
// and `to` (`to` alone needs `from`; `from` alone means until now). Nothing: the last 30 days.
Result<Window> ParseWindow(const std::string& from, const std::string& to, const std::string& last,
                           WallTime now);

// Price of a GPU-hour by model; "" stands for all models that are not named.
using Prices = std::map<std::string, double>;

// {from, to (RFC 3339), from_ms, to_ms, by, currency?, rows: [{key, team?, held_hours, busy_hours,
// waited_hours, unmanaged_hours, memory_gib_hours, efficiency, launches, grants, cost?,
// capacity_hours?, idle_hours?, unattributed_hours?}], held_hours, idle_hours, unattributed_hours,
// capacity_hours, cost?, idle_cost?, unattributed_cost?}
//
// Hours are of one GPU. capacity = held + idle + unattributed, in all and, where `by` is gpu, node
// or day, in each row. Efficiency is busy / held, 0 to 1 (0 where nothing was held). Unattributed
// is what is left: hand-offs, work without a token, time that crashes and restarts took. Costs are
// there when a price is.
nlohmann::json ReportJson(const Uses& uses, By by, const Prices& prices,
                          const std::string& currency);

}  // namespace baton::ledger

#endif  // BATON_LEDGER_REPORT_H_
