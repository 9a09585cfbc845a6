#include "ledger/time_zone.h"

#include <date/tz.h>
#include <fmt/format.h>

#include <exception>

#include "base/utf8.h"

namespace baton::ledger {
namespace {

constexpr size_t kZoneNameMax = 64;  // bytes; the tz database's longest has 32

date::sys_seconds Seconds(WallTime at) { return std::chrono::floor<std::chrono::seconds>(at); }

std::chrono::seconds OffsetAt(const TimeZone& zone, WallTime at) {
  return zone.zone == nullptr ? std::chrono::seconds(0) : zone.zone->get_info(Seconds(at)).offset;
}

}  // namespace

Result<TimeZone> FindTimeZone(const std::string& name) {
  if (name.empty() || name == "UTC") return TimeZone{};
  const std::string shown = ToPrintable(name.substr(0, kZoneNameMax));
  try {
    date::get_tzdb();
  } catch (const std::exception& e) {
    return Fail(ErrorCode::kUnavailable,
                fmt::format("this machine has no time zones ({}); install tzdata, or use UTC",
                            ToPrintable(e.what())));
  }
  try {
    // Looked up in the list of zones: a name is never a path.
    return TimeZone{name, date::locate_zone(name)};
  } catch (const std::exception&) {
    return Fail(ErrorCode::kInvalid,
                fmt::format("there is no time zone '{}'; write one of the tz database, such as "
                            "Europe/Berlin, or UTC",
                            shown));
  }
}

LocalSeconds LocalTime(const TimeZone& zone, WallTime at) {
  return LocalSeconds(Seconds(at).time_since_epoch() + OffsetAt(zone, at));
}

WallTime AtLocalTime(const TimeZone& zone, LocalSeconds local) {
  const auto since = local.time_since_epoch();
  if (zone.zone == nullptr) return WallTime(since);
  return zone.zone->to_sys(date::local_seconds(since), date::choose::earliest);
}

std::string FormatTime(WallTime at, const TimeZone& zone) {
  std::string suffix = "Z";
  if (zone.zone != nullptr) {
    const auto offset = OffsetAt(zone, at);
    const auto minutes = std::chrono::round<std::chrono::minutes>(std::chrono::abs(offset)).count();
    suffix =
        fmt::format("{}{:02}:{:02}", offset.count() < 0 ? '-' : '+', minutes / 60, minutes % 60);
  }
  return FormatWrittenTime(LocalTime(zone, at)) + suffix;
}

}  // namespace baton::ledger
