#include "hook/settings.h"

#include <stdlib.h>
#include <string.h>

#include "hook/libc.h"
#include "hook/log.h"
#include "hook/mover.h"

namespace baton::hook {

bool ReadSettings(Settings& settings) {
  const char* disable = getenv("BATON_DISABLE");
  const char* ticket = getenv("BATON_TICKET");
  if (disable != nullptr && strcmp(disable, "1") == 0) return false;
  if (ticket == nullptr || ticket[0] == 0) return false;
  if (!FindLibc()) {
    Say("this program's C library is not glibc, which the hook needs; it runs without Baton");
    return false;
  }
  const char* verbose = getenv("BATON_LOG");
  g_verbose.store(verbose != nullptr && strcmp(verbose, "1") == 0);
  const char* away = getenv("BATON_AWAY");
  if (away != nullptr && strcmp(away, "open") == 0) {
    settings.away = wire::AwayMode::kOpen;
  } else if (away != nullptr && away[0] != 0 && strcmp(away, "wait") != 0) {
    Say("BATON_AWAY is '%s', which is neither 'wait' nor 'open'; taken as 'wait'", away);
  }
  const char* swap = getenv("BATON_SWAP");
  if (swap != nullptr && strcmp(swap, "1") == 0) SetSwaps();
  settings.ticket_wait = EnvironmentSeconds("BATON_TICKET_WAIT", settings.ticket_wait);
  const char* path = getenv("BATON_SOCKET");
  if (path == nullptr || path[0] == 0) path = "/run/baton/baton.sock";
  if (strlen(path) >= sizeof(settings.socket_path)) {
    Say("BATON_SOCKET is longer than %zu bytes; launches wait", sizeof(settings.socket_path) - 1);
    path = "";
  }
  strncpy(settings.socket_path, path, sizeof(settings.socket_path) - 1);
  settings.ticket = std::string_view(ticket);
  return true;
}

}  // namespace baton::hook
