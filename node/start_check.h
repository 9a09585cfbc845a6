// What would keep a daemon from starting on this machine, as far as that is seen without taking
// anything: no lock, no folder, and no port for longer than a moment. For --check-config.
// Thread safe: no state.
#ifndef BATON_NODE_START_CHECK_H_
#define BATON_NODE_START_CHECK_H_

#include <string>
#include <vector>

#include "base/result.h"
#include "config/options.h"

namespace baton::node {

// Collects what is wrong; each sentence begins with the key of the configuration.
class Complaints {
 public:
  void Add(const std::string& key, const Result<void>& checked) {
    if (!checked) errors_.push_back({checked.error().code, key + ": " + checked.error().message});
  }
  std::vector<Error> Take() { return std::move(errors_); }

 private:
  std::vector<Error> errors_;
};

// Whether the folder is there, or can be made, and this process may make files in it.
Result<void> CheckFolder(const std::string& path);
// Whether some process holds a lock (flock) on the file, as /proc/locks has it: to try would take
// it from a daemon that starts just now.
bool IsLocked(const std::string& path);
// Whether a unix socket may have this path.
Result<void> CheckSocketPath(const std::string& path);
// Whether a daemon answers on this control socket.
bool IsServed(const std::string& control_socket);
// Whether ZeroMQ takes the address, and a listener finds it free. Not looked at: who answers there.
Result<void> CheckListen(const std::string& endpoint);
Result<void> CheckConnect(const std::string& endpoint);
// Sockets in `socket_dir` and the control folder.
void CheckSockets(const config::Options& options, const std::string& socket_dir,
                  Complaints& complaints);

// All of baton-frontend's. `machine`: not only the file itself, but what it names on this machine.
std::vector<Error> CheckFrontend(const config::Options& options, bool machine);

}  // namespace baton::node

#endif  // BATON_NODE_START_CHECK_H_
