// The floor of a hand-off: what it costs between two processes when nobody decides anything and
// nothing is sent. The next holder sleeps on a word of memory that both share; the holder looks at
// the clock without a pause for the last of its time, writes the word and wakes the other.
#ifndef BATON_CLI_HANDOFF_FLOOR_H_
#define BATON_CLI_HANDOFF_FLOOR_H_

#include <sys/types.h>

#include <memory>

#include "base/result.h"
#include "base/time.h"

namespace baton::cli {

class HandOffFloor {
 public:
  // Starts both processes, which end with this object. Make it while the process has one thread.
  static Result<std::unique_ptr<HandOffFloor>> Start();
  ~HandOffFloor();
  HandOffFloor(const HandOffFloor&) = delete;
  HandOffFloor& operator=(const HandOffFloor&) = delete;

  // One hand-off: from the end of the holder's time until the other process runs.
  Result<Duration> HandOff();

 private:
  HandOffFloor(int fd, pid_t holder, pid_t next) : fd_(fd), holder_(holder), next_(next) {}
  int fd_;  // to the holder: a byte asks for a hand-off, the answer is what it took
  pid_t holder_;
  pid_t next_;
};

}  // namespace baton::cli

#endif  // BATON_CLI_HANDOFF_FLOOR_H_
