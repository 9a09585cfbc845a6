#include "devmgr/modes/mig_mode.h"

#include <algorithm>
#include <bit>

namespace baton::devmgr {
namespace {

// layout: bits 0 to 7 the first slices that are taken, 8 to 31 the group's id, 32 to 39 where in
// MigModel::groups it was when the layout was made (a shortcut, checked).
constexpr int kIdShift = 8;
constexpr int kHintShift = 32;

uint32_t IdIn(uint64_t layout) { return static_cast<uint32_t>(layout >> kIdShift) & 0xffffff; }

uint64_t LayoutOf(const MigModel& model, const MigGroup& group, uint32_t taken) {
  const auto hint = static_cast<uint64_t>(&group - model.groups.data()) & 0xff;
  return hint << kHintShift | uint64_t{group.id} << kIdShift | taken;
}

const MigGroup* GroupIn(const MigModel& model, uint64_t layout) {
  const uint32_t id = IdIn(layout);
  const size_t hint = layout >> kHintShift & 0xff;
  if (hint < model.groups.size() && model.groups[hint].id == id) return &model.groups[hint];
  return model.FindGroup(id);
}

uint8_t MaskOf(const MigInstance& instance) {
  if (instance.start > 7) return 0;
  return static_cast<uint8_t>(((1u << std::min(instance.slices, 8u)) - 1) << instance.start);
}

// Memory slices that instances on the GPU occupy, except the one of `own`.
uint8_t Occupied(const Card& card, const MigGroup::Part* own = nullptr) {
  uint8_t mask = 0;
  for (const MigInstance& instance : card.instances) {
    const uint8_t its = MaskOf(instance);
    if (own != nullptr && instance.start == own->start && its == own->mask) continue;
    mask |= its;
  }
  return mask;
}

bool Holds(const MigProfile& profile, const Card& card, const CardUse& use, const VgpuWant& want) {
  return profile.share >= want.share && profile.memory_mib >= want.memory_mib &&
         profile.share <= policy::kWhole - use.share &&
         profile.memory_mib <= card.memory_mib - use.memory_mib;
}

// A bit for each profile that is big enough for `want` and not too big for what is left.
uint32_t Holding(const MigModel& model, const Card& card, const CardUse& use,
                 const VgpuWant& want) {
  uint32_t profiles = 0;
  for (size_t p = 0; p < model.profiles.size(); ++p) {
    if (Holds(model.profiles[p], card, use, want)) profiles |= 1u << p;
  }
  return profiles;
}

Fit FitOf(const MigModel& model, const MigGroup& group, const MigGroup::Part& part,
          uint32_t taken) {
  const MigProfile& profile = model.profiles[part.profile];
  return {profile.share, profile.memory_mib, LayoutOf(model, group, taken | 1u << part.start),
          group.id << kIdShift | part.start};
}

std::optional<Fit> FitIn(const MigModel& model, const MigGroup& group, uint32_t taken,
                         uint32_t holding, uint8_t occupied) {
  for (const MigGroup::Part& part : group.parts) {
    if (holding >> part.profile & 1 && !(taken >> part.start & 1) && !(part.mask & occupied)) {
      return FitOf(model, group, part, taken);
    }
  }
  return std::nullopt;
}

// The compute slices that make up `share`, rounded up.
uint32_t ComputeOf(const MigModel& model, policy::Share share) {
  return policy::RoundedUp(share * model.compute, policy::kWhole) / policy::kWhole;
}

// "4g.30gb": what was asked for, in MIG's own terms.
std::string Wanted(const MigModel& model, const VgpuWant& want) {
  std::string text = std::to_string(std::max(ComputeOf(model, want.share), 1u)) + "g";
  if (want.memory_mib != 0) text += "." + std::to_string((want.memory_mib + 1023) / 1024) + "gb";
  return text;
}

std::string Slices(uint32_t mask) {
  const int first = std::countr_zero(mask);
  const int last = 31 - std::countl_zero(mask);
  return first == last ? "slice " + std::to_string(first)
                       : "slices " + std::to_string(first) + " to " + std::to_string(last);
}

}  // namespace

bool MigMode::Serves(const Card& card) const {
  return card.mig_enabled && card.vendor == "nvidia" && templates_->Find(card.model) != nullptr;
}

std::optional<Fit> MigMode::TryFit(const Card& card, const CardUse& use,
                                   const VgpuWant& want) const {
  const MigModel* model = templates_->Find(card.model);
  if (model == nullptr) return std::nullopt;
  const uint32_t holding = Holding(*model, card, use, want);
  if (holding == 0) return std::nullopt;
  if (use.layout != 0) {
    const MigGroup* group = GroupIn(*model, use.layout);
    if (group == nullptr || !(group->profiles & holding)) return std::nullopt;
    return FitIn(*model, *group, use.layout & 0xff, holding, Occupied(card));
  }
  const uint8_t occupied = Occupied(card);
  if (occupied == 0) {
    uint8_t group = MigModel::kNoGroup;
    for (uint32_t left = holding; left != 0; left &= left - 1) {
      group = std::min(group, model->first[static_cast<size_t>(std::countr_zero(left))]);
    }
    if (group == MigModel::kNoGroup) return std::nullopt;
    return FitIn(*model, model->groups[group], 0, holding, 0);
  }
  for (const MigGroup& group : model->groups) {
    if (!group.offered || !(group.profiles & holding)) continue;
    if (const auto fit = FitIn(*model, group, 0, holding, occupied)) return fit;
  }
  return std::nullopt;
}

std::optional<Fit> MigMode::FitAt(const Card& card, const CardUse& use, const VgpuWant& want,
                                  uint32_t slot) const {
  const MigModel* model = templates_->Find(card.model);
  const MigGroup* group = model != nullptr ? model->FindGroup(slot >> kIdShift) : nullptr;
  if (group == nullptr || (use.layout != 0 && IdIn(use.layout) != group->id)) return std::nullopt;
  const uint32_t taken = use.layout & 0xff;
  for (const MigGroup::Part& part : group->parts) {
    if (part.start != StartOf(slot)) continue;
    if (taken >> part.start & 1 || part.mask & Occupied(card, &part)) return std::nullopt;
    if (!Holds(model->profiles[part.profile], card, use, want)) return std::nullopt;
    return FitOf(*model, *group, part, taken);
  }
  return std::nullopt;
}

uint64_t MigMode::Without(const Card&, uint64_t layout, uint32_t slot) const {
  layout &= ~(uint64_t{1} << StartOf(slot));
  return (layout & 0xff) == 0 ? 0 : layout;
}

std::optional<MigMode::Part> MigMode::PartOf(const Card& card, uint32_t slot) const {
  const MigModel* model = templates_->Find(card.model);
  const MigGroup* group = model != nullptr ? model->FindGroup(slot >> kIdShift) : nullptr;
  if (group == nullptr) return std::nullopt;
  for (const MigGroup::Part& part : group->parts) {
    const MigProfile& profile = model->profiles[part.profile];
    if (part.start == StartOf(slot)) return Part{profile.name, part.start, profile.slices};
  }
  return std::nullopt;
}

std::string MigMode::WhyNot(const Card& card, const CardUse& use, const VgpuWant& want) const {
  if (card.vendor != "nvidia") return "it is not an NVIDIA GPU";
  if (!card.mig_enabled) return card.mig_capable ? "MIG is off" : "it cannot do MIG";
  const MigModel* model = templates_->Find(card.model);
  if (model == nullptr) return templates_->WhyUnknown(card.model);

  const std::string wanted = Wanted(*model, want);
  // On a GPU with nothing on it.
  uint32_t holding = 0;
  for (size_t p = 0; p < model->profiles.size(); ++p) {
    if (model->first[p] != MigModel::kNoGroup && Holds(model->profiles[p], card, {}, want)) {
      holding |= 1u << p;
    }
  }
  if (holding == 0) {
    return model->Nearest(wanted, ComputeOf(*model, want.share), want.memory_mib);
  }
  const std::string needs = model->profiles[static_cast<size_t>(std::countr_zero(holding))].name;
  const uint8_t occupied = Occupied(card);
  if (use.layout == 0) {
    for (const MigInstance& instance : card.instances) {
      if (MaskOf(instance) == 0) continue;
      return "no room for " + needs + " beside somebody else's " + instance.profile + " at " +
             Slices(MaskOf(instance));
    }
    return "no group of its template has room for " + needs;
  }
  const MigGroup* group = GroupIn(*model, use.layout);
  if (group == nullptr) {
    return "it is divided by a MIG template that is not there any more; it can be used again when "
           "it is empty";
  }
  const std::string divided = "it is divided into " + model->Describe(*group);
  std::string free;
  bool hindered = false;
  bool fits = false;
  for (size_t i = 0; i < group->parts.size(); ++i) {
    const MigGroup::Part& part = group->parts[i];
    if (use.layout >> part.start & 1) continue;
    const MigProfile& profile = model->profiles[part.profile];
    const bool holds = Holds(profile, card, {}, want);
    if (part.mask & occupied) {
      hindered |= holds;
      continue;
    }
    fits |= holds;
    if (free.find(profile.name) == std::string::npos) free += ", " + profile.name;
  }
  if (fits) return divided + ", and has no memory left for " + needs;
  free = free.empty() ? "nothing" : free.substr(2);
  if (hindered) {
    return divided + ", of which " + free +
           " is free; an instance that is not in use by any pod "
           "here is in the way of " +
           needs;
  }
  return divided + " until it is empty, of which " + free + " is free; " + needs +
         " or bigger is needed";
}

Environment MigMode::EnvironmentOf(const Card&, const Fit&, const std::string& device) const {
  return {{"CUDA_VISIBLE_DEVICES", device}};
}

}  // namespace baton::devmgr
