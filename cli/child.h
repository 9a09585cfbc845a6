// Runs a program as `baton run` does: the program is the caller's child, gets its signals, and its
// end becomes the caller's.
#ifndef BATON_CLI_CHILD_H_
#define BATON_CLI_CHILD_H_

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace baton::cli {

// Starts `command` (at least its name) with the caller's environment and `environment` set on top,
// passes signals on until it ends, and returns its exit status, or 128 + the signal that killed it.
// ErrorCode::kNotFound: no such program; kDenied: it cannot be executed.
//
// INT, TERM, HUP, QUIT, USR1, USR2 and WINCH that somebody sent to this process alone go on to the
// child; what the terminal sent, the whole foreground group has got already. When the child is
// stopped from the terminal (^Z) this process stops too, so that the shell sees it; CONT resumes
// both. Call it from a process of one thread: it changes the signal mask, and puts it back.
Result<int> RunChild(const std::vector<std::string>& command,
                     const std::vector<std::pair<std::string, std::string>>& environment);

}  // namespace baton::cli

#endif  // BATON_CLI_CHILD_H_
