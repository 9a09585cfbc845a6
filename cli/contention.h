// Many pods that all want the token of a few virtual GPUs, from one process: how many grants a
// second the daemon makes, how long each wait and hand-off takes, and whether all get the same.
#ifndef BATON_CLI_CONTENTION_H_
#define BATON_CLI_CONTENTION_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "cli/measure.h"
#include "cli/tenant_link.h"

namespace baton::cli {

// No more often a daemon reads of a pod (node/admission.h): three frames each stay below that.
inline constexpr Duration kAskEvery = std::chrono::microseconds(400);

// Of a virtual GPU for measuring, each of a pod of its own.
struct Contender {
  Tenant tenant;
  size_t gpu = 0;
};

// How their frames come in.
class Arrivals {
 public:
  // Whether to go on; `contender`: its number; `gone`: its daemon is.
  using Hear = std::function<bool(size_t contender, bool gone)>;
  virtual ~Arrivals() = default;
  // Waits for frames until `until`, and tells of each contender that has some, or whose daemon is
  // gone. False as soon as `hear` says so.
  virtual bool Await(Instant until, const Hear& hear) = 0;
};

struct ContentionPlan {
  size_t gpus = 1;
  Duration hold{0};                // each contender holds the token so long,
  Duration ask_every = kAskEvery;  // and asks again so long after it has asked last at the earliest
  // It says that it has the token once it has; else its return says so.
  bool confirms = true;
  Duration length{0};            // after a warm-up of a tenth of it
  Arrivals* arrivals = nullptr;  // null: by the contenders' descriptors
  pid_t daemon = 0;              // 0: whoever is at the other end of the first one's descriptor
};

struct Contention {
  std::vector<Duration> waits;      // from asking for the token until it is there
  std::vector<Duration> hand_offs;  // from a return, while others wait, until the next one has it
  std::vector<Duration> echoes;     // the raw medium's, meanwhile
  uint64_t grants = 0;
  Duration length{0};
  double largest_error = 0;  // of a pod's part of its GPU's grants, in percentage points
  double own_processor = 0;  // used by this process, in processors
  std::optional<double> daemon_processor;  // where its process can be seen
};

// The contenders ask for the token, hold it, and ask again. `progress` is told how much of the time
// has passed, 0 to 1. Fails with kUnavailable where the daemon goes away, or grants nothing for
// five seconds.
Result<Contention> Contend(std::vector<Contender>& contenders, const ContentionPlan& plan,
                           Echo& echo, const std::function<void(double)>& progress);

}  // namespace baton::cli

#endif  // BATON_CLI_CONTENTION_H_
