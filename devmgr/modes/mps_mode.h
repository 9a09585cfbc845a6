// NVIDIA's Multi-Process Service: pods run on the GPU at the same time, each on a percentage of
// its multiprocessors and with a limit on its memory. One fault domain: a fault of one may end all
// of them.
#ifndef BATON_DEVMGR_MODES_MPS_MODE_H_
#define BATON_DEVMGR_MODES_MPS_MODE_H_

#include <optional>
#include <string>

#include "devmgr/modes/sharing_mode.h"

namespace baton::devmgr {

class MpsMode final : public SharingMode {
 public:
  // Shares are whole percents, as CUDA_MPS_ACTIVE_THREAD_PERCENTAGE is.
  static constexpr policy::Share kGrain{10'000};
  // Clients of one server and GPU; newer drivers allow 60. Each virtual GPU has one or more.
  static constexpr uint16_t kVgpusMax = 48;

  std::string_view name() const override { return "mps"; }
  // NVIDIA's GPUs on which MIG is off.
  bool Serves(const Card& card) const override;
  std::optional<Fit> TryFit(const Card& card, const CardUse& use,
                            const VgpuWant& want) const override;
  uint64_t Without(const Card&, uint64_t, uint32_t) const override { return 0; }
  std::string WhyNot(const Card& card, const CardUse& use, const VgpuWant& want) const override;
  // `device`: the control daemon's pipe directory.
  Environment EnvironmentOf(const Card& card, const Fit& fit,
                            const std::string& device) const override;
};

}  // namespace baton::devmgr

#endif  // BATON_DEVMGR_MODES_MPS_MODE_H_
