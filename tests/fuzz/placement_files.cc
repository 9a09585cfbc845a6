// MIG templates and traces, as baton-place reads them.
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

}  // namespace
}  // namespace baton::fuzz
