// Who called: behind sudo, the user who wrote it.
#ifndef BATON_CLI_CALLER_H_
#define BATON_CLI_CALLER_H_

#include <sys/types.h>

#include <optional>
#include <string>

namespace baton::cli {

struct Account {
  uid_t uid = 0;
  gid_t gid = 0;
  std::string name;  // the number, where the machine has no name for it
  std::string home;  // empty: unknown
};

// The account of this process. Not thread safe.
Account OwnAccount();
// The account of whoever called sudo, where this process is root by it. Empty: it is not, or root
// called it. Not thread safe.
std::optional<Account> SudoCaller();

}  // namespace baton::cli

#endif  // BATON_CLI_CALLER_H_
