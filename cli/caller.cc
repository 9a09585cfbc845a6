#include "cli/caller.h"

#include <pwd.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>

namespace baton::cli {
namespace {

Account AccountOf(uid_t uid, gid_t gid) {
  Account account{.uid = uid, .gid = gid, .name = std::to_string(uid), .home = {}};
  if (const passwd* entry = getpwuid(uid); entry != nullptr) {
    account.gid = entry->pw_gid;
    account.name = entry->pw_name;
    account.home = entry->pw_dir;
  }
  return account;
}

// Of the environment; 0 where it is none.
uint32_t Number(const char* variable) {
  const char* text = std::getenv(variable);
  uint32_t number = 0;
  if (text == nullptr) return 0;
  const char* const end = text + std::strlen(text);
  const auto [at, error] = std::from_chars(text, end, number);
  return error == std::errc() && at == end ? number : 0;
}

}  // namespace

Account OwnAccount() { return AccountOf(getuid(), getgid()); }

std::optional<Account> SudoCaller() {
  const uint32_t uid = Number("SUDO_UID");
  if (geteuid() != 0 || uid == 0) return std::nullopt;
  return AccountOf(uid, Number("SUDO_GID"));
}

}  // namespace baton::cli
