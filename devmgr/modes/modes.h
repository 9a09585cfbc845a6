// All modes together, for those who place pods: the daemon takes all, Kubernetes those that are
// offered there.
#ifndef BATON_DEVMGR_MODES_MODES_H_
#define BATON_DEVMGR_MODES_MODES_H_

#include <memory>
#include <vector>

#include "devmgr/modes/mig_templates.h"
#include "devmgr/modes/sharing_mode.h"

namespace baton::devmgr {

// One of each of spec::kModes, in that order. `templates` must outlive them.
std::vector<std::unique_ptr<const SharingMode>> MakeModes(const MigTemplates& templates);
// Those that are offered on Kubernetes. They live for ever; thread safe.
const std::vector<const SharingMode*>& KubernetesModes();

}  // namespace baton::devmgr

#endif  // BATON_DEVMGR_MODES_MODES_H_
