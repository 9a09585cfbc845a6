// What `baton advise` says beside its table, and `baton advise --apply`, which sets what is
// advised.
#ifndef BATON_CLI_ADVICE_H_
#define BATON_CLI_ADVICE_H_

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cli/command.h"

namespace baton::cli {

// Of batond's answer: that all fits, or of how many pods too little is known. Empty: nothing is to
// be said beside the rows.
std::string AdviceSummary(const nlohmann::json& answer);

struct ApplyOptions {
  bool yes = false;   // nobody is asked
  bool json = false;  // print the answer, each row with "applied", and "error" where it is not
};

// Asks batond `question`, of the command "advise", and sets what it advises as `baton set` does:
// pod by pod, all fields of one at once. Says first what of which pod changes, and what is left and
// why: what cannot change in place, and pods that are not the caller's. Returns the exit status:
// kFailed where the user said no, or batond refused a change.
int ApplyAdvice(const nlohmann::json& question, const ApplyOptions& options,
                const Invocation& invocation);

}  // namespace baton::cli

#endif  // BATON_CLI_ADVICE_H_
