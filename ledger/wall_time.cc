#include "ledger/wall_time.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

namespace baton::ledger {

Result<WrittenTime> ParseWrittenTime(std::string_view text, std::string_view zone) {
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
                            text.substr(0, 64), zone));
  }
  return WrittenTime{std::chrono::local_days(day) + std::chrono::hours(parts[3]) +
                         std::chrono::minutes(parts[4]) + std::chrono::seconds(parts[5]),
                     utc};
}

std::string FormatWrittenTime(std::chrono::local_seconds local) {
  const auto day = std::chrono::floor<std::chrono::days>(local);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss time(local - day);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                     time.hours().count(), time.minutes().count(), time.seconds().count());
}

}  // namespace baton::ledger
