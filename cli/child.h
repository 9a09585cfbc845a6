// Runs a program as `baton run` does: the program is the caller's child, gets its signals, and its
// end becomes the caller's.
#ifndef BATON_CLI_CHILD_H_
#define BATON_CLI_CHILD_H_

#include <signal.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "cli/caller.h"

namespace baton::cli {

// While it lives, signals wait instead of ending this process, so that what must be undone at the
// end is undone. Those that wait when it goes act then. One thread only.
class HeldSignals {
 public:
  HeldSignals();
  ~HeldSignals();
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;
  // One that asks this process to end waits: INT, TERM, HUP or QUIT.
  bool Ending() const;
  const sigset_t& held() const { return held_; }
  const sigset_t& before() const { return before_; }

 private:
  sigset_t held_, before_;
};

// Starts `command` (at least its name) with the caller's environment and `environment` set on top,
// as `account` where one is given (only root may), passes signals on until it ends, and returns its
// exit status, or 128 + the signal that killed it. ErrorCode::kNotFound: no such program; kDenied:
// it cannot be executed.
//
// INT, TERM, HUP, QUIT, USR1, USR2 and WINCH that somebody sent to this process alone go on to the
// child; what the terminal sent, the whole foreground group has got already. When the child is
// stopped from the terminal (^Z) this process stops too, so that the shell sees it; CONT resumes
// both. Call it from a process of one thread.
//
// `meanwhile`, where given, is called every so often while the child runs.
struct Meanwhile {
  Duration every;
  std::function<void()> act;
};
Result<int> RunChild(const HeldSignals& signals, const std::vector<std::string>& command,
                     const std::vector<std::pair<std::string, std::string>>& environment,
                     const std::optional<Account>& account = std::nullopt,
                     const std::optional<Meanwhile>& meanwhile = std::nullopt);

}  // namespace baton::cli

#endif  // BATON_CLI_CHILD_H_
