// What `baton simulate` is asked about: a TOML file of pods and their work, and batond's options.
#ifndef BATON_CLI_WORKLOAD_H_
#define BATON_CLI_WORKLOAD_H_

#include <string>

#include "base/result.h"
#include "scheduler/token_scheduler.h"
#include "world/plan.h"

namespace baton::cli {

struct Workload {
  world::Plan plan;  // one GPU, no faults; its length is not set yet
  scheduler::SchedulerOptions scheduler;
  Duration idle{0};  // after which a hook gives its token back
};

// Reads [[pod]] tables, and [scheduler] and [hook] as in batond's configuration. Errors name file
// and line. kExhausted: the requests of pods that are there at the same time are more than the GPU.
Result<Workload> ParseWorkload(const std::string& text, const std::string& name);

}  // namespace baton::cli

#endif  // BATON_CLI_WORKLOAD_H_
