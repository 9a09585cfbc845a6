#include "devmgr/modes/mps_mode.h"

#include "devmgr/modes/time_slice.h"

namespace baton::devmgr {

bool MpsMode::Serves(const Card& card) const {
  return card.vendor == "nvidia" && !card.mig_enabled;
}

std::optional<Fit> MpsMode::TryFit(const Card& card, const CardUse& use,
                                   const VgpuWant& want) const {
  if (use.vgpus >= kVgpusMax) return std::nullopt;
  return FitPortion(card, use, want, kGrain);
}

std::string MpsMode::WhyNot(const Card& card, const CardUse& use, const VgpuWant& want) const {
  std::string why = WhyNotWhole(card);
  if (!why.empty()) return why;
  if (use.vgpus >= kVgpusMax) {
    return "an MPS server has at most " + std::to_string(kVgpusMax) + " clients on a GPU";
  }
  return WhyNotPortion(card, use, want, kGrain);
}

// CUDA_VISIBLE_DEVICES must be the uuid, not a number: the daemon has it set too, and numbers count
// among what is visible to it (NVIDIA's guide to MPS, "CUDA_VISIBLE_DEVICES"). What a client asks
// for can only narrow what the daemon allows.
Environment MpsMode::EnvironmentOf(const Card& card, const Fit& fit,
                                   const std::string& device) const {
  Environment result = {{"CUDA_VISIBLE_DEVICES", card.uuid}};
  if (!device.empty()) result.emplace_back("CUDA_MPS_PIPE_DIRECTORY", device);
  result.emplace_back("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", std::to_string(fit.share / kGrain));
  if (fit.memory_mib != 0) {
    result.emplace_back("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
                        card.uuid + "=" + std::to_string(fit.memory_mib) + "M");
  }
  return result;
}

}  // namespace baton::devmgr
