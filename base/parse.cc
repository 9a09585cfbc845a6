#include "base/parse.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace baton {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

// Splits "1.5GiB" into 1.5 and "GiB". False when it does not start with a finite number >= 0.
bool SplitNumber(std::string_view text, double* number, std::string_view* unit) {
  const char* end = text.data() + text.size();
  auto [rest, error] = std::from_chars(text.data(), end, *number, std::chars_format::fixed);
  if (error != std::errc() || !std::isfinite(*number) || std::signbit(*number)) return false;
  *unit = std::string_view(rest, static_cast<size_t>(end - rest));
  while (!unit->empty() && unit->front() == ' ') unit->remove_prefix(1);
  return true;
}

std::string Quoted(std::string_view text) {
  return "'" + std::string(text.substr(0, 64)) + (text.size() > 64 ? "...'" : "'");
}

std::string FormatScaled(double value, std::string_view unit) {
  std::array<char, 64> buffer;
  // What has no four digits without an exponent is whole.
  const char* const format = std::abs(value) < 9999.5 ? "%.4g%.*s" : "%.0f%.*s";
  std::snprintf(buffer.data(), buffer.size(), format, value, static_cast<int>(unit.size()),
                unit.data());
  return buffer.data();
}

}  // namespace

Result<Duration> ParseDuration(std::string_view text) {
  static constexpr std::array<Unit, 8> kUnits{{{"ns", 1},
                                               {"us", 1e3},
                                               {"ms", 1e6},
                                               {"s", 1e9},
                                               {"m", 60e9},
                                               {"h", 3600e9},
                                               {"d", 24 * 3600e9},
                                               {"w", 7 * 24 * 3600e9}}};
  double number = 0;
  std::string_view name;
  if (SplitNumber(text, &number, &name)) {
    if (name.empty() && number == 0) return Duration(0);
    for (const Unit& unit : kUnits) {
      if (unit.name != name) continue;
      if (number * unit.factor > 36e16) break;
      return Duration(std::llround(number * unit.factor));
    }
  }
  return Fail(ErrorCode::kInvalid, Quoted(text) +
                                       " is not a duration; write a number and a unit, "
                                       "such as 20ms, 1.5s, 10m or 7d");
}

Result<uint64_t> ParseBytes(std::string_view text) {
  static constexpr double kKi = 1024;
  static constexpr std::array<Unit, 18> kUnits{{{"", 1},
                                                {"B", 1},
                                                {"KiB", kKi},
                                                {"MiB", kKi * kKi},
                                                {"GiB", kKi * kKi * kKi},
                                                {"TiB", kKi * kKi * kKi * kKi},
                                                {"Ki", kKi},
                                                {"Mi", kKi * kKi},
                                                {"Gi", kKi * kKi * kKi},
                                                {"Ti", kKi * kKi * kKi * kKi},
                                                {"kB", 1e3},
                                                {"MB", 1e6},
                                                {"GB", 1e9},
                                                {"TB", 1e12},
                                                {"k", 1e3},
                                                {"M", 1e6},
                                                {"G", 1e9},
                                                {"T", 1e12}}};
  double number = 0;
  std::string_view name;
  if (SplitNumber(text, &number, &name)) {
    for (const Unit& unit : kUnits) {
      if (unit.name != name) continue;
      if (number * unit.factor > 0x1p60) break;
      return static_cast<uint64_t>(number * unit.factor);
    }
  }
  return Fail(ErrorCode::kInvalid, Quoted(text) +
                                       " is not an amount of memory; write a number and "
                                       "a unit, such as 4GiB, 512MiB or 1.5GB");
}

std::string FormatDuration(Duration d) {
  static constexpr std::array<Unit, 4> kUnits{{{"s", 1e9}, {"ms", 1e6}, {"us", 1e3}, {"ns", 1}}};
  for (const Unit& unit : kUnits) {
    if (std::abs(static_cast<double>(d.count())) >= unit.factor) {
      return FormatScaled(static_cast<double>(d.count()) / unit.factor, unit.name);
    }
  }
  return "0s";
}

std::string FormatBytes(uint64_t bytes) {
  static constexpr std::array<Unit, 4> kUnits{
      {{"TiB", 0x1p40}, {"GiB", 0x1p30}, {"MiB", 0x1p20}, {"KiB", 0x1p10}}};
  for (const Unit& unit : kUnits) {
    if (static_cast<double>(bytes) >= unit.factor) {
      return FormatScaled(static_cast<double>(bytes) / unit.factor, unit.name);
    }
  }
  return std::to_string(bytes) + "B";
}

std::string FormatHours(double hours, double beside) {
  constexpr int kDecimalsMax = 9;
  const auto text = [](double value, int decimals) {
    std::array<char, 400> buffer;  // the largest double has 309 digits
    std::snprintf(buffer.data(), buffer.size(), "%.*f", decimals, value);
    return std::string(buffer.data());
  };
  for (int decimals = 1;; ++decimals) {
    std::string printed = text(hours, decimals);
    const bool digits = hours == 0 || std::abs(hours) * std::pow(10, decimals) >= 99.5;
    const bool apart = hours == beside || printed != text(beside, decimals);
    if ((digits && apart) || decimals == kDecimalsMax) return printed;
  }
}

int DecimalsFor(double value, int least) {
  constexpr int kDecimalsMax = 6;
  int decimals = least;
  // What would be printed as zero at six decimals is the rest of a division.
  const double size = std::abs(value);
  if (size < 0.5 * std::pow(10, -kDecimalsMax)) return least;
  while (decimals < kDecimalsMax && size * std::pow(10, decimals) < 9.5) ++decimals;
  return decimals;
}

}  // namespace baton
