// The token: pods share the GPU by turns, each with a share of its time and, where it asked for
// one, a cap on its memory.
#ifndef BATON_DEVMGR_MODES_TIME_SLICE_H_
#define BATON_DEVMGR_MODES_TIME_SLICE_H_

#include <optional>
#include <string>

#include "devmgr/modes/sharing_mode.h"

namespace baton::devmgr {

class TimeSlice final : public SharingMode {
 public:
  std::string_view name() const override { return "time-slice"; }
  // NVIDIA's GPUs on which MIG is off: the hook gates CUDA launches.
  bool Serves(const Card& card) const override;
  std::optional<Fit> TryFit(const Card& card, const CardUse& use,
                            const VgpuWant& want) const override;
  uint64_t Without(const Card&, uint64_t, uint32_t) const override { return 0; }
  std::string WhyNot(const Card& card, const CardUse& use, const VgpuWant& want) const override;
  Environment EnvironmentOf(const Card& card, const Fit& fit,
                            const std::string& device) const override;
};

// For modes that divide a GPU into shares and memory of any size: what `want` takes when shares
// are multiples of `grain` millionths (rounded up), or nothing where that is not left.
std::optional<Fit> FitPortion(const Card& card, const CardUse& use, const VgpuWant& want,
                              policy::Share grain);
std::string WhyNotPortion(const Card& card, const CardUse& use, const VgpuWant& want,
                          policy::Share grain);
// Why none of NVIDIA's modes but MIG can use the GPU; empty: they can.
std::string WhyNotWhole(const Card& card);
// "14.3 %", with as many decimals as it takes.
std::string InPercent(policy::Share share);

}  // namespace baton::devmgr

#endif  // BATON_DEVMGR_MODES_TIME_SLICE_H_
