#include "ledger/periods.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ledger/time_zone.h"

namespace baton::ledger {
namespace {

using std::chrono::days;
using std::chrono::local_days;
using std::chrono::months;
using std::chrono::year_month_day;

WallTime Nearest(WallTime at, const std::array<int64_t, 4>& floors) {
  const int64_t step_ms = kLevels[FinestLevelAt(Millis(at) / 1000, floors)].seconds * 1000;
  // Days of all zones begin at these; and of a window to the present nothing is cut off.
  if (step_ms == kLevels[0].seconds * 1000) return at;
  const int64_t down = Floor(Millis(at), step_ms);
  return WallTime(
      std::chrono::milliseconds(2 * (Millis(at) - down) < step_ms ? down : down + step_ms));
}

// The first day of the period after that of `day`.
local_days Next(local_days day, PeriodLength length) {
  if (length == PeriodLength::kDay) return day + days(1);
  const year_month_day date(day);
  return local_days((date.year() / date.month() + months(1)) / 1);
}

std::string NameOf(local_days day, PeriodLength length) {
  const year_month_day date(day);
  std::string name = fmt::format("{:04}-{:02}", static_cast<int>(date.year()),
                                 static_cast<unsigned>(date.month()));
  if (length == PeriodLength::kDay) {
    name += fmt::format("-{:02}", static_cast<unsigned>(date.day()));
  }
  return name;
}

}  // namespace

WindowCut CutWindowIn(const TimeZone& zone, Window window, const std::array<int64_t, 4>& floors) {
  if (zone.zone != nullptr) {
    window = {Nearest(window.from, floors), Nearest(window.to, floors)};
  }
  return CutWindow(window, floors);
}

std::vector<Period> PeriodsOf(const TimeZone& zone, PeriodLength length, Window window,
                              const std::array<int64_t, 4>& floors) {
  std::vector<Period> periods;
  WallTime from = window.from;
  // An edge that is rounded down makes the period before it end early: begin one day sooner.
  local_days day =
      std::chrono::floor<days>(LocalTime(zone, std::max(from, WallTime(days(1))) - days(1)));
  while (from < window.to) {
    const local_days next = Next(day, length);
    const WallTime to = std::min(Nearest(AtLocalTime(zone, next), floors), window.to);
    if (to > from) {
      periods.push_back({NameOf(day, length), {from, to}, CutWindow({from, to}, floors).pieces});
      from = to;
    }
    day = next;
  }
  return periods;
}

std::vector<Span> SpansOf(Window window, const std::vector<WallTime>& changes,
                          const std::array<int64_t, 4>& floors) {
  std::vector<Span> spans{{window.from, window}};
  for (const WallTime change : changes) {
    const WallTime at = Nearest(change, floors);
    if (at >= window.to) break;
    if (at <= spans.back().window.from) {
      // Nothing is left of what was before it.
      spans.back().since = std::max(spans.back().since, change);
      continue;
    }
    spans.back().window.to = at;
    spans.push_back({change, {at, window.to}});
  }
  return spans;
}

}  // namespace baton::ledger
