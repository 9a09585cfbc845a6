// All modes together, for those who place pods.
#ifndef BATON_DEVMGR_MODES_MODES_H_
#define BATON_DEVMGR_MODES_MODES_H_

#include <memory>
#include <span>
#include <vector>

#include "devmgr/modes/mig_templates.h"
#include "devmgr/modes/sharing_mode.h"

namespace baton::devmgr {

// One of each of spec::kModes, in that order. `templates` must outlive them.
std::vector<std::unique_ptr<const SharingMode>> MakeModes(const MigTemplates& templates);
// All modes, as their user keeps them. Thread safe.
class ModeSet {
 public:
  // Null: as built in.
  explicit ModeSet(std::shared_ptr<const MigTemplates> templates = nullptr);
  operator std::span<const SharingMode* const>() const { return all_; }

 private:
  std::shared_ptr<const MigTemplates> templates_;
  std::vector<std::unique_ptr<const SharingMode>> modes_;
  std::vector<const SharingMode*> all_;
};

// Those whose pods launch under tokens: no part of a GPU has to be made for them. They live for
// ever; thread safe.
const std::vector<const SharingMode*>& TokenModes();

}  // namespace baton::devmgr

#endif  // BATON_DEVMGR_MODES_MODES_H_
