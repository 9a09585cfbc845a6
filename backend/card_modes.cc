#include "backend/card_modes.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "devmgr/modes/modes.h"
#include "devmgr/modes/time_slice.h"
#include "spec/modes.h"

namespace baton::backend {
namespace {

using devmgr::Card;
using devmgr::CardUse;
using devmgr::Fit;
using devmgr::InPercent;
using devmgr::SharingMode;
using devmgr::VgpuWant;

// A mode of devmgr/modes, as it is but for what requests count.
class Counted : public SharingMode {
 public:
  Counted(const SharingMode& mode, policy::Share overcommit)
      : mode_(mode), overcommit_(overcommit) {}
  std::string_view name() const final { return mode_.name(); }
  bool Serves(const Card& card) const final { return mode_.Serves(card); }
  uint64_t Without(const Card& card, uint64_t layout, uint32_t slot) const final {
    return mode_.Without(card, layout, slot);
  }
  devmgr::Environment EnvironmentOf(const Card& card, const Fit& fit,
                                    const std::string& device) const final {
    return mode_.EnvironmentOf(card, fit, device);
  }

 protected:
  const SharingMode& mode_;
  const policy::Share overcommit_;
};

// Hands the GPU to one pod after the other.
class ByTurns final : public Counted {
 public:
  using Counted::Counted;
  std::optional<Fit> TryFit(const Card& card, const CardUse& use,
                            const VgpuWant& want) const override {
    return mode_.TryFit(card, use, want);
  }
  std::string WhyNot(const Card& card, const CardUse& use, const VgpuWant& want) const override {
    const policy::Share free = policy::kWhole - use.share;
    if (overcommit_ == policy::kWhole || !Serves(card) || want.share <= free) {
      return mode_.WhyNot(card, use, want);
    }
    return fmt::format("of {} {} are free, {} wanted", InPercent(overcommit_),
                       InPercent(policy::Times(free, overcommit_)),
                       InPercent(policy::Times(want.share, overcommit_)));
  }
};

// Divides the GPU itself: a part is as large as it is.
class Divided final : public Counted {
 public:
  using Counted::Counted;
  std::optional<Fit> TryFit(const Card& card, const CardUse& use,
                            const VgpuWant& want) const override {
    return mode_.TryFit(card, use, Whole(want));
  }
  std::optional<Fit> FitAt(const Card& card, const CardUse& use, const VgpuWant& want,
                           uint32_t slot) const override {
    return mode_.FitAt(card, use, Whole(want), slot);
  }
  std::string WhyNot(const Card& card, const CardUse& use, const VgpuWant& want) const override {
    return mode_.WhyNot(card, use, Whole(want));
  }

 private:
  VgpuWant Whole(VgpuWant want) const {
    want.share = std::min(policy::Times(want.share, overcommit_), policy::kWhole);
    return want;
  }
};

}  // namespace

CardModes::CardModes(devmgr::MigTemplates templates, policy::Share overcommit)
    : overcommit_(overcommit),
      templates_(std::move(templates)),
      modes_(devmgr::MakeModes(templates_)) {
  for (const auto& mode : modes_) {
    const bool by_turns = spec::FindMode(mode->name())->by_token;
    if (by_turns) {
      counted_.push_back(std::make_unique<ByTurns>(*mode, overcommit));
    } else {
      counted_.push_back(std::make_unique<Divided>(*mode, overcommit));
    }
    all_.push_back(counted_.back().get());
  }
}

const SharingMode* CardModes::Find(std::string_view name) const {
  for (const SharingMode* mode : all_) {
    if (mode->name() == name) return mode;
  }
  return nullptr;
}

policy::Share CardModes::Counted(policy::Share share) const {
  if (share == policy::Share(0)) return share;
  const policy::ShareSum counted = policy::Over(share, overcommit_);
  return policy::Share(
      std::clamp<policy::ShareSum>(counted, policy::kShareMin, policy::kWhole + policy::Share(1))
          .millionths());
}

policy::Share CardModes::Meant(policy::Share counted) const {
  return policy::Times(counted, overcommit_);
}

}  // namespace baton::backend
