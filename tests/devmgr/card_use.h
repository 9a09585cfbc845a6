// The vGPU map's part in tests of modes: what is booked on a GPU, and given back.
#ifndef BATON_TESTS_DEVMGR_CARD_USE_H_
#define BATON_TESTS_DEVMGR_CARD_USE_H_

#include "devmgr/modes/sharing_mode.h"

namespace baton::devmgr {

inline void Add(CardUse& use, const Fit& fit) {
  use.share += fit.share;
  use.memory_mib += fit.memory_mib;
  use.layout = fit.layout;
  ++use.vgpus;
}

inline void Remove(const SharingMode& mode, const Card& card, CardUse& use, const Fit& fit) {
  use.share -= fit.share;
  use.memory_mib -= fit.memory_mib;
  use.layout = mode.Without(card, use.layout, fit.slot);
  --use.vgpus;
}

}  // namespace baton::devmgr

#endif  // BATON_TESTS_DEVMGR_CARD_USE_H_
