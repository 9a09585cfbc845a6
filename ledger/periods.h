// Days and months of a time zone, cut out of what the ledger has. Pure. Thread safe.
#ifndef BATON_LEDGER_PERIODS_H_
#define BATON_LEDGER_PERIODS_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "ledger/buckets.h"
#include "ledger/ledger.h"

namespace baton::ledger {

enum class PeriodLength { kDay, kMonth };

// A day or a month of the zone as far as it lies in a window, and the buckets that it is answered
// by.
struct Period {
  std::string name;  // "2026-11-21", "2026-11"; of a whole window ""
  Window window;
  std::vector<Piece> pieces;
};

// The window as CutWindow() cuts it. Where the zone is not UTC, both edges are first moved to the
// nearest edge of the finest bucket that is left there, not outwards: so days, months and years of
// the zone add up also where only whole days (UTC) are left.
WindowCut CutWindowIn(const TimeZone& zone, Window window, const std::array<int64_t, 4>& floors);

// The periods of a window that CutWindowIn() answered, by time, without gaps or overlaps. The edge
// between two of them is the nearest edge of the finest bucket that is left there: of zones whose
// offset is in whole hours it is exact for as long as hours are kept. Periods of which the buckets
// have nothing are left out.
std::vector<Period> PeriodsOf(const TimeZone& zone, PeriodLength length, Window window,
                              const std::array<int64_t, 4>& floors);

// The parts of a window that CutWindowIn() answered between `changes`, which are whole minutes, by
// time. Changes at or outside the window's edges, once moved, cut nothing.
std::vector<Span> SpansOf(Window window, const std::vector<WallTime>& changes,
                          const std::array<int64_t, 4>& floors);

}  // namespace baton::ledger

#endif  // BATON_LEDGER_PERIODS_H_
