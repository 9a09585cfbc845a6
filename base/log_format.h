// Free of spdlog, for configurations. Thread safe.
#ifndef BATON_BASE_LOG_FORMAT_H_
#define BATON_BASE_LOG_FORMAT_H_

#include <cstdint>
#include <string_view>

namespace baton {

// How a program writes its log.
enum class LogFormat : uint8_t {
  kText,  // "2026-11-24T21:58:50.123+01:00 info MESSAGE"
  kJson,  // {"time":"2026-11-24T21:58:50.123+01:00","level":"info","message":"MESSAGE"}
};
// "text" or "json"; anything else is text.
inline LogFormat ParseLogFormat(std::string_view name) {
  return name == "json" ? LogFormat::kJson : LogFormat::kText;
}

}  // namespace baton

#endif  // BATON_BASE_LOG_FORMAT_H_
