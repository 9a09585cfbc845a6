// What the environment says of this process: the BATON_ variables.
#ifndef BATON_HOOK_SETTINGS_H_
#define BATON_HOOK_SETTINGS_H_

#include <sys/un.h>

#include "base/time.h"
#include "wire/messages.h"

namespace baton::hook {

struct Settings {
  char socket_path[sizeof(sockaddr_un::sun_path)] = {};
  wire::Text<64> ticket;
  wire::AwayMode away = wire::AwayMode::kWait;
  // A process whose ticket is refused for so long is told so: its pod may be made a bit later, or
  // made again where the daemon has lost it.
  Duration ticket_wait = std::chrono::seconds(60);
};
// False: the process is not managed.
bool ReadSettings(Settings& settings);

}  // namespace baton::hook

#endif  // BATON_HOOK_SETTINGS_H_
