// Keeps a daemon running: one process starts it as its child, and again when it crashed or was
// killed, at once. A kubelet waits 10 s after the second time, and longer each time
// after that, while nobody on the node grants a token.
#ifndef BATON_NODE_SUPERVISE_H_
#define BATON_NODE_SUPERVISE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "base/log_format.h"
#include "base/time.h"

namespace baton::node {

// Whether a daemon that ended is started again. Pure.
class RestartRule {
 public:
  // A daemon that ended within this time did so early.
  static constexpr Duration kEarly = std::chrono::seconds(1);
  // So many early ends in turn are tried again. Then it is the orchestrator's to say so and to
  // wait.
  static constexpr uint32_t kEarlyMax = 10;

  // `status` as waitpid(2) gives it, after the daemon `lived` so long. How long to wait before it
  // is started again: not at all, or 10 ms after the first early end and twice as long after each
  // more, up to 1 s. Nothing: it is not started again. That is where it exited by itself, because
  // it was told to or could not serve, and after kEarlyMax.
  std::optional<Duration> AfterEnd(int status, Duration lived);

 private:
  uint32_t early_ = 0;  // in turn
};

// Calls `run` in a child process, again and again by RestartRule, and returns the last one's exit
// status (128 + signal where a signal ended it). In the child it returns what `run` does. `name` is
// the daemon's, for what is written to standard error in `format`.
//
// SIGTERM, SIGINT and SIGHUP are passed on; after the first two nothing is started again. If the
// parent dies, the kernel kills the child. In ps and to pkill the parent is "baton-keeper", so that
// who means the daemon by its name finds the daemon alone; its arguments in `argv`, as main() has
// them, are written over for that. To be called by a process without threads.
int Supervise(const std::string& name, std::span<char* const> argv, const std::function<int()>& run,
              LogFormat format = LogFormat::kText);

}  // namespace baton::node

#endif  // BATON_NODE_SUPERVISE_H_
