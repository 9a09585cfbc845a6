// An accelerator of another vendor, made up: a row of sixteen tiles, of which a pod has some that
// lie side by side. All that Baton needs to know of it is in this file.
#ifndef BATON_TESTS_DEVMGR_ACME_MODE_H_
#define BATON_TESTS_DEVMGR_ACME_MODE_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "devmgr/modes/sharing_mode.h"

namespace baton::devmgr {

class AcmeTiles final : public SharingMode {
 public:
  static constexpr uint32_t kTiles = 16;

  std::string_view name() const override { return "tiles"; }
  bool Serves(const Card& card) const override { return card.vendor == "acme"; }

  // The lowest run of free tiles that is long enough. layout: a bit for each tile that is taken;
  // slot: the first of them, and how many.
  std::optional<Fit> TryFit(const Card& card, const CardUse& use,
                            const VgpuWant& want) const override {
    const uint32_t tiles = Needed(card, want);
    for (uint32_t first = 0; first + tiles <= kTiles; ++first) {
      if (const auto fit = Take(card, use, first, tiles)) return fit;
    }
    return std::nullopt;
  }
  std::optional<Fit> FitAt(const Card& card, const CardUse& use, const VgpuWant& want,
                           uint32_t slot) const override {
    const uint32_t first = slot & 0xff, tiles = slot >> 8;
    if (tiles < Needed(card, want) || first + tiles > kTiles) return std::nullopt;
    return Take(card, use, first, tiles);
  }
  uint64_t Without(const Card&, uint64_t layout, uint32_t slot) const override {
    return layout & ~Mask(slot & 0xff, slot >> 8);
  }
  std::string WhyNot(const Card& card, const CardUse& use, const VgpuWant& want) const override {
    if (!Serves(card)) return "it has no tiles";
    const uint32_t tiles = Needed(card, want);
    if (tiles > kTiles) return "it has 16 tiles, " + std::to_string(tiles) + " wanted";
    uint32_t run = 0, longest = 0;
    for (uint32_t t = 0; t < kTiles; ++t) {
      run = use.layout >> t & 1 ? 0 : run + 1;
      longest = std::max(longest, run);
    }
    return "at most " + std::to_string(longest) + " tiles are free side by side, " +
           std::to_string(tiles) + " wanted";
  }
  Environment EnvironmentOf(const Card& card, const Fit& fit, const std::string&) const override {
    return {{"ACME_CARD", card.uuid},
            {"ACME_TILES", std::to_string(fit.slot & 0xff) + "+" + std::to_string(fit.slot >> 8)}};
  }

 private:
  static uint64_t Mask(uint32_t first, uint32_t tiles) {
    return ((uint64_t{1} << tiles) - 1) << first;
  }
  static uint32_t Needed(const Card& card, const VgpuWant& want) {
    const uint32_t memory = std::max(card.memory_mib / kTiles, 1u);
    const policy::Share share = policy::kWhole / kTiles;
    return std::max({1u, policy::RoundedUp(want.share, share) / share,
                     (want.memory_mib + memory - 1) / memory});
  }
  static std::optional<Fit> Take(const Card& card, const CardUse& use, uint32_t first,
                                 uint32_t tiles) {
    if (tiles > kTiles || use.layout & Mask(first, tiles)) return std::nullopt;
    return Fit{policy::kWhole / kTiles * tiles, tiles * (card.memory_mib / kTiles),
               use.layout | Mask(first, tiles), first | tiles << 8};
  }
};

}  // namespace baton::devmgr

#endif  // BATON_TESTS_DEVMGR_ACME_MODE_H_
