// What would keep a batond from starting, or from doing what its configuration says, as far as that
// is seen without taking anything (node/start_check.h).
// Thread safe: no state.
#ifndef BATON_BACKEND_START_CHECK_H_
#define BATON_BACKEND_START_CHECK_H_

#include <vector>

#include "config/options.h"

namespace baton::backend {

// `machine`: not only the file itself, but also what it names on this machine: folders, keys,
// certificates, the file of teams, GPUs, and ports, unless a batond with these folders runs.
std::vector<Error> CheckStart(const config::Options& options, bool machine);

}  // namespace baton::backend

#endif  // BATON_BACKEND_START_CHECK_H_
