#include "devmgr/modes/exclusive.h"

#include "devmgr/modes/time_slice.h"

namespace baton::devmgr {

bool Exclusive::Serves(const Card& card) const {
  return card.vendor == kNvidia ? !card.mig_enabled : !card.environment.empty();
}

std::optional<Fit> Exclusive::TryFit(const Card& card, const CardUse& use,
                                     const VgpuWant& want) const {
  if (use.vgpus != 0 || use.share != policy::Share(0) || use.memory_mib != 0) return std::nullopt;
  if (card.taken_mib != 0) return std::nullopt;
  if (want.share > policy::kWhole || want.memory_mib > card.memory_mib) return std::nullopt;
  return Fit{policy::kWhole, card.memory_mib, 0, 0};
}

std::string Exclusive::WhyNot(const Card& card, const CardUse& use, const VgpuWant& want) const {
  if (!Serves(card)) return WhyNotWhole(card);
  if (use.vgpus != 0) {
    return use.vgpus == 1 ? "a virtual GPU is on it already"
                          : std::to_string(use.vgpus) + " virtual GPUs are on it already";
  }
  if (card.taken_mib != 0) {
    return std::to_string(card.taken_mib) + " MiB of it are in use without a reservation";
  }
  return WhyNotPortion(card, {}, want, policy::Share(1));
}

Environment Exclusive::EnvironmentOf(const Card& card, const Fit&, const std::string&) const {
  if (card.vendor != kNvidia) return {card.environment.begin(), card.environment.end()};
  return {{"CUDA_VISIBLE_DEVICES", card.uuid}};
}

}  // namespace baton::devmgr
