#include "node/event_log.h"

#include <spdlog/spdlog.h>

#include <chrono>

#include "base/utf8.h"

namespace baton::node {

void SetLogLevel(const std::string& level) {
  spdlog::set_level(spdlog::level::from_str(level == "warn" ? "warning" : level));
}

// Some of it was said by tenants; logs and events end up on terminals.
void EventLog::Add(Level level, const char* kind, std::string text) {
  text = ToPrintable(text);
  switch (level) {
    case Level::kDebug:
      spdlog::debug("{}: {}", kind, text);
      return;
    case Level::kInfo:
      spdlog::info("{}: {}", kind, text);
      break;
    case Level::kWarning:
      spdlog::warn("{}: {}", kind, text);
      break;
  }
  const auto wall = std::chrono::system_clock::now().time_since_epoch();
  events_.push_back(
      {std::chrono::duration_cast<std::chrono::milliseconds>(wall).count(), kind, std::move(text)});
  if (events_.size() > kEventsMax) events_.pop_front();
}

}  // namespace baton::node
