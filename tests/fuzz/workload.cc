// What `baton simulate` is asked about.
#include "cli/workload.h"

#include "tests/fuzz/target.h"

namespace baton::fuzz {
namespace {

FUZZ_TARGET(workload) {
  const auto workload = cli::ParseWorkload(std::string(input), "workload.toml");
  if (!workload) return;
  world::Plan plan = workload->plan;
  plan.length = std::chrono::seconds(60);
  const auto checked = world::CheckPlan(plan);
  BATON_CHECK(checked);
}

}  // namespace
}  // namespace baton::fuzz
