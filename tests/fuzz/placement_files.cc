// MIG templates and traces, as baton-place reads them, and clusters of what-if questions.
#include <utility>

#include "capacity/scenario_files.h"
#include "devmgr/modes/mig_templates.h"
#include "devmgr/placement/replay.h"
#include "tests/fuzz/target.h"

namespace baton::fuzz {
namespace {

FUZZ_TARGET(mig_templates) {
  if (const auto models = devmgr::MigTemplates::BuiltIn().With(input, "mig.toml")) {
    for (const devmgr::MigModel& model : models->models()) {
      for (const std::string& name : model.names) BATON_CHECK(models->Find(name) != nullptr);
    }
  }
}

FUZZ_TARGET(trace) {
  (void)devmgr::ReadTraceNodes(input);
  (void)devmgr::ReadTracePods(input);
}

FUZZ_TARGET(capacity_pods) {
  capacity::Scenario scenario;
  auto pods = capacity::ReadPods(input);
  if (!pods) return;
  scenario.pods = std::move(*pods);
  (void)capacity::WriteScenario(scenario);
}

FUZZ_TARGET(capacity_cluster) {
  (void)capacity::ReadScenario(input, "cluster.toml", [](const std::string&) {
    return std::string("name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,0,0,1,500\n");
  });
}

}  // namespace
}  // namespace baton::fuzz
