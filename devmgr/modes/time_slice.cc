#include "devmgr/modes/time_slice.h"

#include <limits>

namespace baton::devmgr {

std::optional<Fit> FitPortion(const Card& card, const CardUse& use, const VgpuWant& want,
                              policy::Share grain) {
  if (want.share > policy::kWhole) return std::nullopt;
  const policy::Share share = policy::RoundedUp(want.share, grain);
  if (share > policy::kWhole - use.share) return std::nullopt;
  if (want.memory_mib > FreeMib(card, use)) return std::nullopt;
  if (use.vgpus == std::numeric_limits<uint16_t>::max()) return std::nullopt;
  return Fit{share, want.memory_mib, 0, 0};
}

std::string WhyNotPortion(const Card& card, const CardUse& use, const VgpuWant& want,
                          policy::Share grain) {
  std::string why;
  const auto add = [&](const std::string& clause) { why += (why.empty() ? "" : "; ") + clause; };
  const policy::Share share = policy::RoundedUp(want.share, grain);
  if (share > policy::kWhole - use.share) {
    add(InPercent(policy::kWhole - use.share) + " of it are free, " + InPercent(share) + " wanted");
  }
  const uint32_t free_mib = FreeMib(card, use);
  if (want.memory_mib > card.memory_mib) {
    add("it has " + std::to_string(card.memory_mib) + " MiB, " + std::to_string(want.memory_mib) +
        " wanted");
  } else if (want.memory_mib > free_mib) {
    add("of " + std::to_string(card.memory_mib) + " MiB " + std::to_string(free_mib) +
        " are free, " + std::to_string(want.memory_mib) + " wanted");
    if (card.taken_mib != 0) {
      why += " (" + std::to_string(card.taken_mib) + " are in use without a reservation)";
    }
    if (card.reserve_mib != 0) {
      why += " (" + std::to_string(card.reserve_mib) + " are kept for contexts)";
    }
  }
  return why.empty() ? "it has as many virtual GPUs as can be counted" : why;
}

std::string WhyNotWhole(const Card& card) {
  if (!card.environment.empty()) {
    return "it is of vendor " + card.vendor + ", so a pod can have it in mode exclusive only";
  }
  if (card.vendor != kNvidia) return "it is not an NVIDIA GPU";
  if (card.mig_enabled) return "MIG is on, so only instances of it can be used";
  return "";
}

std::string InPercent(policy::Share share) { return policy::PercentText(share) + " %"; }

bool TimeSlice::Serves(const Card& card) const {
  return card.vendor == "nvidia" && !card.mig_enabled;
}

std::optional<Fit> TimeSlice::TryFit(const Card& card, const CardUse& use,
                                     const VgpuWant& want) const {
  return FitPortion(card, use, want, policy::Share(1));
}

std::string TimeSlice::WhyNot(const Card& card, const CardUse& use, const VgpuWant& want) const {
  std::string why = WhyNotWhole(card);
  return why.empty() ? WhyNotPortion(card, use, want, policy::Share(1)) : why;
}

Environment TimeSlice::EnvironmentOf(const Card& card, const Fit&, const std::string&) const {
  return {{"CUDA_VISIBLE_DEVICES", card.uuid}};
}

}  // namespace baton::devmgr
