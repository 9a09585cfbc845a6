// What the programs batond and baton-frontend share: command line, configuration, logging.
#ifndef BATON_NODE_DAEMON_MAIN_H_
#define BATON_NODE_DAEMON_MAIN_H_

#include <functional>
#include <string>

#include "config/options.h"

namespace CLI {
class App;
}

namespace baton::node {

// How it was called, beside the configuration.
struct DaemonCall {
  std::string config;    // the file's path, empty when there is none
  bool standby = false;  // wait for a daemon that has what this one needs (node/standby.h)
};

struct DaemonProgram {
  std::string name;
  std::string about;
  std::string examples;
  // Options beyond the common ones, and what they change; may be empty.
  std::function<void(CLI::App&)> add_options;
  std::function<void(config::Options&)> adjust;
  // What else would keep serve() from starting: what is in the file and, for this `machine`, in the
  // files, folders and ports that it names. Takes nothing; may be empty.
  std::function<std::vector<Error>(const config::Options&, bool machine)> check;
  // Runs until it is told to stop.
  std::function<Result<void>(config::Options, const DaemonCall&)> serve;
};

// The exit status: 0, 1 when it could not serve, 2 when the command line or the configuration is
// wrong; what was wrong is on stderr. With --supervise the daemon is a child (node/supervise.h).
int DaemonMain(const DaemonProgram& program, int argc, char** argv);

}  // namespace baton::node

#endif  // BATON_NODE_DAEMON_MAIN_H_
