#include "k8s/api/timestamp.h"

#include <fmt/format.h>
#include <time.h>

namespace baton::k8s {
namespace {

std::string UpToSeconds(int64_t seconds) {
  const time_t time = seconds;
  tm parts{};
  gmtime_r(&time, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

}  // namespace

std::string Timestamp(std::chrono::system_clock::time_point time) {
  using std::chrono::floor;
  return UpToSeconds(floor<std::chrono::seconds>(time).time_since_epoch().count()) + "Z";
}

std::string MicroTimestamp(std::chrono::system_clock::time_point time) {
  using std::chrono::floor;
  const int64_t micros = floor<std::chrono::microseconds>(time).time_since_epoch().count();
  const int64_t seconds = floor<std::chrono::seconds>(time).time_since_epoch().count();
  return fmt::format("{}.{:06}Z", UpToSeconds(seconds), micros - seconds * 1'000'000);
}

std::optional<int64_t> SecondsIn(std::string_view timestamp) {
  tm parts{};
  const std::string text(timestamp);
  const char* end = strptime(text.c_str(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  if (end == nullptr || *end != '\0') return std::nullopt;
  return timegm(&parts);
}

}  // namespace baton::k8s
