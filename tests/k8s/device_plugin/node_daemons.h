// The daemons that an agent of node n1 works with, as configured in a test's folder.
#ifndef BATON_TESTS_K8S_DEVICE_PLUGIN_NODE_DAEMONS_H_
#define BATON_TESTS_K8S_DEVICE_PLUGIN_NODE_DAEMONS_H_

#include <string>

#include "tests/temp_folder.h"

namespace baton::k8s {

// batond.toml: sockets in run/, GPU-a and GPU-b of 80 GiB, relays at `central`.
inline void ConfigureBatond(const TempFolder& folder, const std::string& central) {
  folder.Write("batond.toml", "[server]\nlocal_gpus = \"yes\"\nsocket_dir = \"" + (folder / "run") +
                                  "\"\nstate_dir = \"" + (folder / "state") + "\"\nlock_dir = \"" +
                                  (folder / "lock") +
                                  "\"\n[http]\nlisten = \"\"\n[zmq]\nlisten = \"" + central +
                                  "\"\n[[gpu]]\nuuid = \"GPU-a\"\nmemory = \"80GiB\"\n"
                                  "[[gpu]]\nuuid = \"GPU-b\"\nmemory = \"80GiB\"\n");
}

// node.toml: a relay of n1 with sockets in node/ and GPU-n of 80 GiB.
inline void ConfigureRelay(const TempFolder& folder, const std::string& central) {
  folder.Write("node.toml", "[server]\nlock_dir = \"" + (folder / "node-lock") +
                                "\"\n[node]\nname = \"n1\"\nsocket_dir = \"" + (folder / "node") +
                                "\"\n[zmq]\nconnect = \"" + central +
                                "\"\n[[gpu]]\nuuid = \"GPU-n\"\nmemory = \"80GiB\"\n");
}

}  // namespace baton::k8s

#endif  // BATON_TESTS_K8S_DEVICE_PLUGIN_NODE_DAEMONS_H_
