// baton simulate cluster: what a cluster's teams would get, and how long pods would wait.
#ifndef BATON_CLI_SIMULATE_CLUSTER_H_
#define BATON_CLI_SIMULATE_CLUSTER_H_

#include "cli/command.h"

namespace baton::cli {

// Declares it below `simulate`.
void AddSimulateCluster(CLI::App& simulate, Invocation& invocation);

}  // namespace baton::cli

#endif  // BATON_CLI_SIMULATE_CLUSTER_H_
