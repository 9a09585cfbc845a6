// A shell beside a running cluster, to try Baton's commands in: a daemon, its page and pods that
// stay, until the shell ends.
#ifndef BATON_BENCH_SANDBOX_H_
#define BATON_BENCH_SANDBOX_H_

#include <string>
#include <vector>

#include "base/result.h"
#include "bench/cluster.h"

namespace baton::bench {

// Starts three pods on the cluster's first GPU, and then Bash with this program's standard
// input: interactive on a terminal, else it runs what it reads. In it `baton` and the other
// programs are found, talk to the cluster's first node and see its simulated GPUs; `sudo` does
// nothing. `http`: where the page is; empty: nowhere. Returns the shell's exit status.
Result<int> RunSandbox(Cluster& cluster, const std::string& http);

}  // namespace baton::bench

#endif  // BATON_BENCH_SANDBOX_H_
