// A whole GPU for one pod, and nothing else on it.
#ifndef BATON_DEVMGR_MODES_EXCLUSIVE_H_
#define BATON_DEVMGR_MODES_EXCLUSIVE_H_

#include <optional>
#include <string>

#include "devmgr/modes/sharing_mode.h"

namespace baton::devmgr {

class Exclusive final : public SharingMode {
 public:
  std::string_view name() const override { return "exclusive"; }
  // NVIDIA's GPUs on which MIG is off, and those of other vendors of which is known how programs
  // find them.
  bool Serves(const Card& card) const override;
  // All of the GPU, however little is wanted.
  std::optional<Fit> TryFit(const Card& card, const CardUse& use,
                            const VgpuWant& want) const override;
  uint64_t Without(const Card&, uint64_t, uint32_t) const override { return 0; }
  std::string WhyNot(const Card& card, const CardUse& use, const VgpuWant& want) const override;
  Environment EnvironmentOf(const Card& card, const Fit& fit,
                            const std::string& device) const override;
};

}  // namespace baton::devmgr

#endif  // BATON_DEVMGR_MODES_EXCLUSIVE_H_
