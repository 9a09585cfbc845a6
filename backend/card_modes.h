// How GPUs are divided here: the modes of devmgr/modes, counted in parts of what a GPU may be
// requested to. With an overcommit of 2 a request of 50 % takes 25 % of a GPU that pods use by
// turns; what the hardware or MPS divides has nothing to lend.
//
// Thread safe: never changes.
#ifndef BATON_BACKEND_CARD_MODES_H_
#define BATON_BACKEND_CARD_MODES_H_

#include <memory>
#include <string_view>
#include <vector>

#include "devmgr/modes/mig_templates.h"
#include "devmgr/modes/sharing_mode.h"

namespace baton::backend {

class CardModes {
 public:
  // `overcommit`: millionths of a GPU that requests may add up to.
  CardModes(devmgr::MigTemplates templates, policy::Share overcommit);

  // Null: there is no such mode.
  const devmgr::SharingMode* Find(std::string_view name) const;
  const std::vector<const devmgr::SharingMode*>& all() const { return all_; }

  policy::Share overcommit() const { return overcommit_; }
  // What a request counts, and back.
  policy::Share Counted(policy::Share share) const;
  policy::Share Meant(policy::Share counted) const;

 private:
  const policy::Share overcommit_;
  const devmgr::MigTemplates templates_;
  const std::vector<std::unique_ptr<const devmgr::SharingMode>> modes_;
  std::vector<std::unique_ptr<const devmgr::SharingMode>>
      counted_;  // the same, with the overcommit
  std::vector<const devmgr::SharingMode*> all_;
};

}  // namespace baton::backend

#endif  // BATON_BACKEND_CARD_MODES_H_
