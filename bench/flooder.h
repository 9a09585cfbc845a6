// An adversary of batond's: a tenant that sends as much as it can.
#ifndef BATON_BENCH_FLOODER_H_
#define BATON_BENCH_FLOODER_H_

#include <string>
#include <string_view>

#include "base/result.h"

namespace baton::bench {

enum class Flood {
  kNone,      // does nothing
  kSpin,      // sends nothing and uses its processor: what the others are compared with
  kAttaches,  // Attach, again and again; each is answered
  kStates,    // State, which is not answered
  kConnects,  // connects, says Hello, and closes
};

// "none", "spin", "attaches", "states", "connects".
Result<Flood> ParseFlood(std::string_view name);

// Floods from this process until it is killed, by `connections` connections (not kConnects, not
// kSpin); `uuid`: a GPU of its pod. Finds the socket and its ticket where a hook does. Returns only
// when it cannot begin.
Result<void> RunFlood(Flood flood, int connections, const std::string& uuid);

}  // namespace baton::bench

#endif  // BATON_BENCH_FLOODER_H_
