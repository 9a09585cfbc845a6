#include "devmgr/modes/modes.h"

#include <utility>

#include "base/check.h"
#include "devmgr/modes/exclusive.h"
#include "devmgr/modes/mig_mode.h"
#include "devmgr/modes/mps_mode.h"
#include "devmgr/modes/time_slice.h"
#include "spec/modes.h"

namespace baton::devmgr {

std::vector<std::unique_ptr<const SharingMode>> MakeModes(const MigTemplates& templates) {
  std::vector<std::unique_ptr<const SharingMode>> modes;
  modes.push_back(std::make_unique<TimeSlice>());
  modes.push_back(std::make_unique<MigMode>(templates));
  modes.push_back(std::make_unique<MpsMode>());
  modes.push_back(std::make_unique<Exclusive>());
  BATON_CHECK(modes.size() == spec::kModes.size());
  for (size_t m = 0; m < modes.size(); ++m) BATON_CHECK(modes[m]->name() == spec::kModes[m].name);
  return modes;
}

ModeSet::ModeSet(std::shared_ptr<const MigTemplates> templates)
    : templates_(std::move(templates)),
      modes_(MakeModes(templates_ ? *templates_ : MigTemplates::BuiltIn())) {
  for (const auto& mode : modes_) all_.push_back(mode.get());
}

const std::vector<const SharingMode*>& TokenModes() {
  static const auto all = MakeModes(MigTemplates::BuiltIn());
  static const auto by_token = [] {
    std::vector<const SharingMode*> modes;
    for (size_t m = 0; m < all.size(); ++m) {
      if (spec::kModes[m].by_token) modes.push_back(all[m].get());
    }
    return modes;
  }();
  return by_token;
}

}  // namespace baton::devmgr
