// All modes together, for those who place pods.
#ifndef BATON_DEVMGR_MODES_MODES_H_
#define BATON_DEVMGR_MODES_MODES_H_

#include <memory>
#include <vector>

#include "devmgr/modes/mig_templates.h"
#include "devmgr/modes/sharing_mode.h"

namespace baton::devmgr {

// One of each of spec::kModes, in that order. `templates` must outlive them.
std::vector<std::unique_ptr<const SharingMode>> MakeModes(const MigTemplates& templates);
// Those whose pods launch under tokens: no part of a GPU has to be made for them. They live for
// ever; thread safe.
const std::vector<const SharingMode*>& TokenModes();

}  // namespace baton::devmgr

#endif  // BATON_DEVMGR_MODES_MODES_H_
