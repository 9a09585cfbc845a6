// Many pods that all want the token of a few virtual GPUs, from one process: how many grants a
// second the daemon makes, how long each wait and hand-off takes, and whether all get the same.
#ifndef BATON_CLI_CONTENTION_H_
#define BATON_CLI_CONTENTION_H_

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

// Of a virtual GPU for measuring, each of a pod of its own.
struct Contender {
  Tenant tenant;
  size_t gpu = 0;
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

// No more often a daemon reads of a pod (node/admission.h): three frames each stay below that.
inline constexpr Duration kAskEvery = std::chrono::microseconds(400);

// Each contender asks, holds the token for `hold`, and asks again, `ask_every` after it has asked
// last at the earliest, until `length` has passed after a warm-up of a tenth of it. `progress` is
// told how much of the time has passed, 0 to 1. Fails with kUnavailable where the daemon goes away,
// or grants nothing for five seconds.
Result<Contention> Contend(std::vector<Contender>& contenders, size_t gpus, Duration hold,
                           Duration length, Echo& echo, const std::function<void(double)>& progress,
                           Duration ask_every = kAskEvery);

}  // namespace baton::cli

#endif  // BATON_CLI_CONTENTION_H_
