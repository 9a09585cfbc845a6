// Time zones, with their daylight-saving time, by the tz database of the machine
// (/usr/share/zoneinfo) and Howard Hinnant's date library, which reads it.
//
// Thread safe. The first FindTimeZone() of a zone other than UTC reads files: not for the event
// loop.
#ifndef BATON_LEDGER_TIME_ZONE_H_
#define BATON_LEDGER_TIME_ZONE_H_

#include <chrono>
#include <string>

#include "ledger/ledger.h"

namespace baton::ledger {

// Hours on a wall in the zone.
using LocalSeconds = std::chrono::local_seconds;

// UTC for "" and "UTC"; else a name of the tz database such as "Europe/Berlin". kInvalid: there is
// none of that name. kUnavailable: this machine has no tz database.
Result<TimeZone> FindTimeZone(const std::string& name);

// What a wall clock there shows.
LocalSeconds LocalTime(const TimeZone& zone, WallTime at);
// When a wall clock there shows `local`: of two such moments (clocks go back) the first one; where
// there is none (clocks go forward), the moment of the change.
WallTime AtLocalTime(const TimeZone& zone, LocalSeconds local);

// "2026-11-21T14:30:05Z", or with the zone's offset at that time: "2026-11-21T15:30:05+01:00".
std::string FormatTime(WallTime at, const TimeZone& zone = {});

}  // namespace baton::ledger

#endif  // BATON_LEDGER_TIME_ZONE_H_
