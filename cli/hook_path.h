// Where libbaton.so is.
#ifndef BATON_CLI_HOOK_PATH_H_
#define BATON_CLI_HOOK_PATH_H_

#include <string>

#include "base/result.h"

namespace baton::cli {

// $BATON_HOOK, else libbaton.so in the library folder beside this program's own. An error when
// there is none, or when its path has a space or a colon, which LD_PRELOAD would split at.
Result<std::string> FindHook();

}  // namespace baton::cli

#endif  // BATON_CLI_HOOK_PATH_H_
