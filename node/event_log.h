// What happened lately, for people: the last hundred lines, also written to the log.
// Not thread safe.
#ifndef BATON_NODE_EVENT_LOG_H_
#define BATON_NODE_EVENT_LOG_H_

#include <cstdint>
#include <deque>
#include <string>

namespace baton::node {

// Applies server.log_level to the log, which goes to stderr.
void SetLogLevel(const std::string& level);

class EventLog {
 public:
  enum class Level : uint8_t { kDebug, kInfo, kWarning };
  struct Event {
    int64_t unix_ms = 0;
    const char* kind = "";  // one word: "pod", "client", "gpu", "node", "token", "daemon"
    std::string text;
  };
  static constexpr size_t kEventsMax = 100;

  // Keeps the event and logs it. kDebug events are logged only.
  void Add(Level level, const char* kind, std::string text);
  const std::deque<Event>& events() const { return events_; }

 private:
  std::deque<Event> events_;
};

}  // namespace baton::node

#endif  // BATON_NODE_EVENT_LOG_H_
