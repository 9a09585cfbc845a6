#include "backend/vgpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "devmgr/modes/time_slice.h"
#include "devmgr/placement/model_name.h"
#include "devmgr/placement/what_if.h"

namespace baton::backend {
namespace {

using devmgr::Card;
using devmgr::InPercent;
using devmgr::NodeRefusal;
using devmgr::Placement;
using devmgr::PodRequest;
using devmgr::SharingMode;

// GPUs whose reasons are told in a refusal itself.
constexpr size_t kReasonsMax = 3;
// Bytes of who is on one of them, about.
constexpr size_t kSharesMax = 150;

bool IsIn(const std::vector<std::string>& list, std::string_view text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

bool IsOtherVendors(const Cards& cards, const std::string& uuid) {
  const Card* card = cards.Find(uuid);
  return card != nullptr && card->vendor != devmgr::kNvidia;
}

// Where the pod says so itself (Pod::slots); whether it has room there is not looked at.
Result<Placement> AtSlots(const Pod& pod, const Result<std::string>& ground) {
  if (pod.wishes.mode != spec::kMig || pod.slots.size() != pod.wishes.gpus.size()) {
    return Fail(ErrorCode::kInvalid, "slots are of mode mig, one for each of the GPUs in gpus");
  }
  if (!ground) return tl::unexpected(ground.error());
  Placement placement{*ground, {}};
  for (size_t i = 0; i < pod.slots.size(); ++i) {
    devmgr::Fit fit;
    fit.slot = pod.slots[i];
    placement.vgpus.push_back({0, 0, pod.wishes.gpus[i], pod.wishes.mode, fit, ""});
  }
  return placement;
}

}  // namespace

Vgpus::Vgpus(const devmgr::PlacementPolicy& policy, policy::Share overcommit,
             devmgr::MigTemplates templates, std::string here)
    : modes_(std::make_shared<const CardModes>(std::move(templates), overcommit)),
      cluster_(std::make_unique<devmgr::Cluster>(modes_->all(), policy)),
      cards_(*cluster_, std::move(here)),
      expected_use_(std::make_unique<ExpectedUse>(*cluster_)) {}

Vgpus::~Vgpus() = default;

std::vector<std::string> Vgpus::PodsOn(std::string_view uuid) const {
  std::vector<std::string> names;
  const std::string* node = cards_.NodeOf(uuid);
  if (node == nullptr) return names;
  for (const devmgr::PlacedPod* pod : cluster_->PodsOn(cards_.NameOf(*node))) {
    const auto& vgpus = pod->placement.vgpus;
    if (std::any_of(vgpus.begin(), vgpus.end(), [&](const auto& v) { return v.card == uuid; })) {
      names.push_back(pod->request.name);
    }
  }
  return names;
}

Result<PodRequest> Vgpus::RequestOf(const Pod& pod, uint32_t count) const {
  const auto invalid = [&](const std::string& why) { return Fail(ErrorCode::kInvalid, why); };
  if (count == 0 || count > devmgr::VgpuRequest::kCardsMax) {
    return invalid(fmt::format("a pod has 1 to {} GPUs", devmgr::VgpuRequest::kCardsMax));
  }
  if (pod.wishes.mode == spec::kMps && count > 1) {
    return invalid(
        "in mode mps a pod has one GPU: each GPU has its own control daemon, and a process can "
        "use only one");
  }
  if (auto ok = spec::CheckShare(pod.share, pod.wishes.mode, pod.Together(count)); !ok) {
    return tl::unexpected(ok.error());
  }
  const policy::Share reserved = modes_->Counted(pod.share.request);
  if (reserved > policy::kWhole) {
    return Fail(ErrorCode::kExhausted,
                fmt::format("{} of a GPU is requested, and scheduler.overcommit allows {}",
                            InPercent(pod.share.request), InPercent(modes_->overcommit())));
  }
  PodRequest request;
  request.name = pod.name;
  request.team = pod.team;
  request.idle = pod.share.priority == policy::Priority::kIdle;
  request.priority = pod.share.priority == policy::Priority::kHigh ? 1 : 0;
  request.mode = pod.wishes.mode;
  request.models = pod.wishes.models;
  request.not_models = pod.wishes.not_models;
  request.uuids = pod.wishes.gpus;
  if (request.uuids.empty() && request.models.empty()) {
    // Most programs know CUDA alone, so nobody comes to another vendor's GPU by chance.
    for (const std::string& node : cards_.Nodes()) {
      for (const Card& card : cards_.Of(node)) {
        if (card.vendor != devmgr::kNvidia) request.not_uuids.push_back(card.uuid);
      }
    }
  }
  for (const std::string& gpu : pod.wishes.not_gpus) request.not_uuids.push_back(gpu);
  if (const auto rule = devmgr::ParseRule(pod.wishes.node_policy)) request.node_rule = *rule;
  if (const auto rule = devmgr::ParseRule(pod.wishes.gpu_policy)) request.card_rule = *rule;
  request.affinity = pod.wishes.affinity;
  request.anti_affinity = pod.wishes.anti_affinity;
  request.exclusion = pod.wishes.exclusion;
  request.gang = pod.gang;
  devmgr::VgpuRequest vgpu;
  vgpu.share = reserved;
  vgpu.count = count;
  if (pod.swap) {
    vgpu.memory_mib = MibOf(pod.memory_request);  // what is above it has no place of its own
  } else if (pod.memory_cap != 0) {
    vgpu.memory_mib = MibOf(pod.memory_cap);
  } else {
    vgpu.memory_part = pod.memory_part;
  }
  request.containers = {{"pod", {vgpu}}};
  request.expected_use = expected_use_->Of(pod);
  if (auto valid = devmgr::Validate(request); !valid) return tl::unexpected(valid.error());
  return request;
}

std::vector<std::string> Vgpus::ModesFor(const Pod& pod) const {
  if (!pod.wishes.mode.empty()) return {pod.wishes.mode};
  std::vector<std::string> modes = {std::string(spec::kTimeSlice)};
  if (pod.share.by_token_only()) return modes;
  const auto& here = cards_.Of("");
  if (std::any_of(here.begin(), here.end(), [](const Card& card) { return card.mig_enabled; })) {
    modes.emplace_back(spec::kMig);
  }
  return modes;
}

Result<std::string> Vgpus::Ground(const std::string& node, const std::string& mode) const {
  // Instances and MPS's daemons are made by the batond that is on the node itself.
  const bool only_here = mode == spec::kMig || mode == spec::kMps;
  if (only_here && ((node != "*" && !node.empty()) || cards_.Of("").empty())) {
    return Fail(
        ErrorCode::kNotFound,
        fmt::format("mode {} needs a batond on the node itself, not a baton-frontend", mode));
  }
  if (only_here) return cards_.here();
  if (node == "*") return node;
  return cards_.NameOf(node);
}

std::vector<std::string> Vgpus::Named(const Pod& pod) const {
  if (!pod.wishes.gpus.empty()) return pod.wishes.gpus;
  std::vector<std::string> others;
  for (const std::string& node : cards_.Nodes()) {
    for (const Card& card : cards_.Of(node)) {
      const auto& models = pod.wishes.models;
      if (std::none_of(models.begin(), models.end(), [&](const std::string& model) {
            return devmgr::MeansModel(model, card.model);
          })) {
        continue;
      }
      if (card.vendor == devmgr::kNvidia) return {};
      others.push_back(card.uuid);
    }
  }
  return others;
}

Result<void> Vgpus::CheckVendors(const Pod& pod, const std::vector<std::string>& uuids) const {
  const auto other = std::find_if(uuids.begin(), uuids.end(), [this](const std::string& uuid) {
    return IsOtherVendors(cards_, uuid);
  });
  if (other == uuids.end()) return {};
  const std::string what = fmt::format("{} is of vendor {}", *other, cards_.Find(*other)->vendor);
  const auto invalid = [&](const char* why) { return Fail(ErrorCode::kInvalid, what + why); };
  if (!std::all_of(uuids.begin(), uuids.end(),
                   [this](const std::string& uuid) { return IsOtherVendors(cards_, uuid); })) {
    return invalid(" and others are NVIDIA's; a pod has either, so make one pod for each");
  }
  if (pod.wishes.mode != spec::kExclusive) {
    return invalid(", and a pod can have it as a whole only; ask for mode exclusive");
  }
  if (!pod.gang.empty()) {
    return invalid(", which has no tokens that could come with those of a gang; leave gang out");
  }
  if (pod.share.limit < policy::kWhole || pod.memory_cap != 0 ||
      pod.memory_part != policy::Share(0)) {
    return invalid(
        ", on which Baton can keep neither a limit nor a memory cap; leave them out, for the pod "
        "has all of it");
  }
  return {};
}

Result<Placement> Vgpus::Decide(PodRequest& request, const Pod& pod, const std::string& node,
                                devmgr::UseChoice* use) const {
  if (auto able = CheckVendors(pod, Named(pod)); !able) return tl::unexpected(able.error());
  size_t most = 0;
  for (const std::string& name : cards_.Nodes()) {
    if (node == "*" || name == node) most = std::max(most, cards_.Of(name).size());
  }
  const uint32_t count = request.containers[0].vgpus[0].count;
  if (most == 0) {
    return Fail(ErrorCode::kNotFound,
                "there is no GPU here; check the driver, or list GPUs as [[gpu]] in the "
                "configuration");
  }
  if (most < count) {
    return Fail(ErrorCode::kNotFound,
                fmt::format("{} GPUs are requested, {} has {}", count,
                            node == "*" ? "the largest node" : "this node", most));
  }
  std::optional<Error> error;
  for (const std::string& mode : ModesFor(pod)) {
    request.mode = mode;
    const auto ground = Ground(node, mode);
    if (!ground) {
      if (!error) error = ground.error();
      continue;
    }
    auto placed =
        *ground == "*" ? cluster_->Decide(request, use) : cluster_->DecideOn(*ground, request, use);
    if (placed) {
      std::vector<std::string> uuids;
      for (const devmgr::Vgpu& vgpu : placed->vgpus) uuids.push_back(vgpu.card);
      if (auto able = CheckVendors(pod, uuids); !able) return tl::unexpected(able.error());
      for (const devmgr::Vgpu& vgpu : placed->vgpus) {
        if (pod.memory_part != policy::Share(0) &&
            cards_.Find(vgpu.card)->memory_mib == kUnknownMemoryMib) {
          return Fail(ErrorCode::kInvalid,
                      fmt::format("the memory of {} is not known here; give the cap in bytes, "
                                  "or its memory in [[gpu]]",
                                  vgpu.card));
        }
      }
      // Users count their own GPUs in the order in which they named them.
      const auto& named = pod.wishes.gpus;
      if (named.size() == placed->vgpus.size()) {
        std::sort(placed->vgpus.begin(), placed->vgpus.end(), [&](const auto& a, const auto& b) {
          return std::find(named.begin(), named.end(), a.card) <
                 std::find(named.begin(), named.end(), b.card);
        });
      }
      return placed;
    }
    // That there is no room now says more than that there is no such GPU.
    if (!error ||
        (error->code == ErrorCode::kNotFound && placed.error().code == ErrorCode::kExhausted)) {
      error = placed.error();
    }
  }
  return tl::unexpected(*error);
}

std::vector<NodeRefusal> Vgpus::WhyNot(PodRequest request, const Pod& pod,
                                       const std::string& node) const {
  std::vector<NodeRefusal> all;
  bool first = true;
  for (const std::string& mode : ModesFor(pod)) {
    request.mode = mode;
    std::vector<NodeRefusal> refusals = cluster_->Explain(request);
    if (first) {
      all = std::move(refusals);
      first = false;
      continue;
    }
    // A node that can take it in one of the modes does not refuse it.
    std::vector<NodeRefusal> both;
    for (NodeRefusal& refusal : all) {
      const auto other = std::find_if(refusals.begin(), refusals.end(),
                                      [&](const auto& r) { return r.node == refusal.node; });
      if (other == refusals.end()) continue;
      for (size_t c = 0; c < refusal.cards.size() && c < other->cards.size(); ++c) {
        const Card* card = cards_.Find(refusal.cards[c].uuid);
        if (card != nullptr && card->mig_enabled) refusal.cards[c] = other->cards[c];
      }
      both.push_back(std::move(refusal));
    }
    all = std::move(both);
  }
  if (node != "*") {
    std::erase_if(all,
                  [&](const NodeRefusal& refusal) { return refusal.node != cards_.NameOf(node); });
  }
  for (NodeRefusal& refusal : all) {
    for (devmgr::CardRefusal& card : refusal.cards) {
      if (IsIn(pod.wishes.not_gpus, card.uuid)) {
        card.why = "the pod does not want it";
      } else if (IsIn(request.not_uuids, card.uuid)) {
        card.why = fmt::format(
            "it is of vendor {}: only pods that name it or its model, and mode exclusive, come "
            "there",
            cards_.Find(card.uuid)->vendor);
      }
      const std::string* held_for = cards_.HeldFor(card.uuid);
      if (held_for != nullptr && card.why == "cordoned") {
        card.why =
            fmt::format("pod {} is on it, and its room could not be reserved again", *held_for);
      }
    }
  }
  return all;
}

void Vgpus::Adopt(const Placement& placement, Pod& pod) const {
  pod.gpus.clear();
  pod.vgpus.clear();
  pod.allocated = pod.without_hook || (!placement.vgpus.empty() &&
                                       IsOtherVendors(cards_, placement.vgpus.front().card));
  for (const devmgr::Vgpu& vgpu : placement.vgpus) {
    pod.gpus.push_back(vgpu.card);
    pod.mode = vgpu.mode;
    pod.vgpus.push_back({vgpu.fit, "", 0, {}});
  }
}

Result<void> Vgpus::Place(Pod& pod, uint32_t count, const std::string& node) {
  auto request = RequestOf(pod, count);
  if (!request) return tl::unexpected(request.error());
  auto placement =
      pod.slots.empty() ? Decide(*request, pod, node) : AtSlots(pod, Ground(node, pod.wishes.mode));
  if (!placement) {
    const Error& error = placement.error();
    if (error.code != ErrorCode::kExhausted) return tl::unexpected(error);
    // Of many nodes it is not worked out here: a create is not to hold up tokens.
    std::vector<NodeRefusal> refusals;
    if (node != "*" || cards_.Nodes().size() <= kReasonsMax) refusals = WhyNot(*request, pod, node);
    // ", with a 60 %, b 10 %"; empty: nobody.
    const auto shares_on = [this](const std::string& uuid) {
      std::string shares;
      for (const std::string& name : PodsOn(uuid)) {
        if (shares.size() > kSharesMax) return shares + ", ...";
        const policy::Share reserved = cluster_->Find(name)->request.containers[0].vgpus[0].share;
        shares += fmt::format("{}{} {}", shares.empty() ? ", with " : ", ", name,
                              InPercent(modes_->Meant(reserved)));
      }
      return shares;
    };
    std::string why;
    size_t cards = 0;
    for (const NodeRefusal& refusal : refusals) {
      for (const devmgr::CardRefusal& card : refusal.cards) {
        if (!pod.wishes.gpus.empty() && !IsIn(pod.wishes.gpus, card.uuid)) continue;
        if (++cards > kReasonsMax) continue;
        why += fmt::format("{}{}: {}{}", why.empty() ? "" : "; ", card.uuid,
                           card.why.empty() ? "has room, but one GPU is not enough" : card.why,
                           card.why.empty() ? "" : shares_on(card.uuid));
      }
    }
    if (cards == 0 || cards > kReasonsMax) why = error.message;
    return Fail(ErrorCode::kExhausted,
                fmt::format("no room for {} ({}); request less, remove a pod, or see "
                            "'baton explain placement'",
                            pod.name, why));
  }
  if (auto reserved = cluster_->Commit(*request, *placement); !reserved) return reserved;
  cluster_->Learn(*request);
  Adopt(cluster_->Find(pod.name)->placement, pod);
  return {};
}

Result<Placement> Vgpus::PlacementOf(const Pod& pod) const {
  Placement placement;
  for (size_t i = 0; i < pod.gpus.size(); ++i) {
    const std::string* on = cards_.NodeOf(pod.gpus[i]);
    if (on == nullptr) {
      return Fail(ErrorCode::kNotFound, fmt::format("{} is missing", pod.gpus[i]));
    }
    const std::string node = cards_.NameOf(*on);
    if (!placement.node.empty() && placement.node != node) {
      return Fail(ErrorCode::kInvalid, "its GPUs are on different nodes");
    }
    placement.node = node;
    placement.vgpus.push_back({0, 0, pod.gpus[i], pod.mode, pod.vgpus[i].fit, pod.vgpus[i].device});
  }
  return placement;
}

bool Vgpus::Reserve(Pod& pod) {
  pod.allocated = pod.without_hook ||
                  std::any_of(pod.gpus.begin(), pod.gpus.end(), [this](const std::string& uuid) {
                    return IsOtherVendors(cards_, uuid);
                  });
  if (pod.throw_away || cluster_->Find(pod.name) != nullptr) return true;
  const auto reserve = [&]() -> Result<void> {
    auto request = RequestOf(pod, static_cast<uint32_t>(pod.gpus.size()));
    if (!request) return tl::unexpected(request.error());
    request->mode = pod.mode;
    const auto placement = PlacementOf(pod);
    if (!placement) return tl::unexpected(placement.error());
    auto reserved = cluster_->Commit(*request, *placement);
    if (reserved) cluster_->Learn(*request);
    return reserved;
  };
  const auto reserved = reserve();
  if (reserved) {
    const auto& vgpus = cluster_->Find(pod.name)->placement.vgpus;
    for (size_t i = 0; i < vgpus.size(); ++i) pod.vgpus[i].fit = vgpus[i].fit;
  }
  SetUnreserved(pod, reserved ? "" : reserved.error().message);
  return reserved.has_value();
}

void Vgpus::SetUnreserved(const Pod& pod, const std::string& why) {
  if (!why.empty()) {
    if (unreserved_.insert_or_assign(pod.id, why).second) cards_.Hold(pod);
  } else if (unreserved_.erase(pod.id) != 0) {
    cards_.Release(pod);
  }
}

void Vgpus::ReserveAgain(const std::function<Pod*(PodId)>& find) {
  std::vector<PodId> ids;
  for (const auto& [id, why] : unreserved_) ids.push_back(id);
  for (const PodId id : ids) {
    if (Pod* pod = find(id)) Reserve(*pod);
  }
}

void Vgpus::Remove(const Pod& pod) {
  if (pod.throw_away) return;
  if (unreserved_.count(pod.id) != 0) return SetUnreserved(pod, "");
  static_cast<void>(cluster_->Delete(pod.name));
}

// What was there has room again; unless the GPU is not what it was, and then it is unreserved.
void Vgpus::Restore(Pod& pod, const devmgr::PlacedPod& before) {
  if (!cluster_->Commit(before.request, before.placement)) Reserve(pod);
}

// The cluster lets a pod keep its room, though memory be taken that nobody reserved. What it wants
// beyond that must be free.
Result<void> Vgpus::CheckGrowth(const devmgr::PlacedPod& placed, const PodRequest& request) const {
  const devmgr::VgpuRequest& wanted = request.containers[0].vgpus[0];
  for (const devmgr::Vgpu& vgpu : placed.placement.vgpus) {
    const Card& card = *cards_.Find(vgpu.card);
    const uint64_t mib = wanted.memory_mib != 0
                             ? wanted.memory_mib
                             : policy::PartOf(SharedMib(card), wanted.memory_part);
    const uint32_t free = devmgr::FreeMib(card, *cards_.UseOf(vgpu.card));
    if (mib <= vgpu.fit.memory_mib || mib <= uint64_t{vgpu.fit.memory_mib} + free) continue;
    if (card.taken_mib == 0 && card.reserve_mib == 0) continue;
    return Fail(ErrorCode::kExhausted,
                fmt::format("pod {}: {} has {} MiB free, {} MiB are in use without a reservation, "
                            "and {} MiB are kept for contexts",
                            request.name, vgpu.card, free, card.taken_mib, card.reserve_mib));
  }
  return {};
}

Result<void> Vgpus::Resize(Pod& pod, const policy::ShareSpec& share, uint64_t memory_cap,
                           policy::Share memory_part, uint64_t memory_request) {
  const auto take = [&](Pod& to) {
    to.share = share;
    to.memory_cap = memory_cap;
    to.memory_part = memory_part;
    to.memory_request = memory_request;
  };
  Pod changed = pod;
  take(changed);
  if (auto able = CheckVendors(changed, changed.gpus); !able) return able;
  const devmgr::PlacedPod* placed = cluster_->Find(pod.name);
  if (pod.throw_away || placed == nullptr) {
    take(pod);
    return {};
  }
  auto request = RequestOf(changed, static_cast<uint32_t>(pod.gpus.size()));
  if (!request) return tl::unexpected(request.error());
  request->mode = pod.mode;
  const devmgr::PlacedPod before = *placed;
  const auto refuse = [](const Error& error) {
    return Fail(error.code, error.message + "; request less, or move it: 'baton vgpu move'");
  };
  if (auto room = CheckGrowth(before, *request); !room) return refuse(room.error());
  BATON_CHECK(cluster_->Delete(pod.name).has_value());
  if (auto reserved = cluster_->Commit(*request, before.placement); !reserved) {
    Restore(pod, before);
    return refuse(reserved.error());
  }
  take(pod);
  const auto& vgpus = cluster_->Find(pod.name)->placement.vgpus;
  for (size_t i = 0; i < vgpus.size(); ++i) pod.vgpus[i].fit = vgpus[i].fit;
  return {};
}

Result<void> Vgpus::Move(Pod& pod, const std::vector<std::string>& gpus) {
  Pod moved = pod;
  moved.wishes.gpus = gpus;
  // As it is divided now, unless it may be otherwise.
  const devmgr::PlacedPod* placed = cluster_->Find(pod.name);
  std::optional<devmgr::PlacedPod> before;
  if (placed != nullptr) {
    before = *placed;
    BATON_CHECK(cluster_->Delete(pod.name).has_value());
  }
  if (auto there = Place(moved, static_cast<uint32_t>(gpus.size()), "*"); !there) {
    if (before) Restore(pod, *before);
    return there;
  }
  if (!before) Remove(pod);  // of those that are unreserved
  for (size_t i = 0; i < moved.vgpus.size() && i < pod.vgpus.size(); ++i) {
    PodVgpu& vgpu = moved.vgpus[i];
    vgpu.before = pod.vgpus[i].before;
    vgpu.memory_peak = pod.vgpus[i].memory_peak;
    if (!IsIn(vgpu.before, pod.gpus[i])) vgpu.before.push_back(pod.gpus[i]);
  }
  // It is each time one virtual GPU's: where it is now.
  for (PodVgpu& vgpu : moved.vgpus) {
    std::erase_if(vgpu.before, [&](const std::string& gpu) { return moved.Has(gpu); });
  }
  pod = std::move(moved);
  return {};
}

std::string Vgpus::WhyUnreserved(PodId pod) const {
  const auto it = unreserved_.find(pod);
  return it == unreserved_.end() ? "" : it->second;
}

devmgr::Environment Vgpus::EnvironmentOf(const Pod& pod) const {
  devmgr::Environment environment;
  if (pod.swap) environment.emplace_back("BATON_SWAP", "1");
  const SharingMode* mode = modes_->Find(pod.mode);
  for (size_t i = 0; i < pod.gpus.size() && mode != nullptr; ++i) {
    Card unknown;
    unknown.uuid = pod.gpus[i];
    const Card* card = cards_.Find(pod.gpus[i]);
    for (auto& [key, value] : mode->EnvironmentOf(card != nullptr ? *card : unknown,
                                                  pod.vgpus[i].fit, pod.vgpus[i].device)) {
      const auto same = std::find_if(environment.begin(), environment.end(),
                                     [&key = key](const auto& pair) { return pair.first == key; });
      if (same == environment.end()) {
        environment.emplace_back(key, value);
      } else {
        same->second += "," + value;
      }
    }
  }
  return environment;
}

devmgr::DeviceDriver::Vgpu Vgpus::ForDriver(const Pod& pod, size_t index) const {
  return {fmt::format("{} {}", pod.name, index), pod.gpus[index], pod.vgpus[index].fit,
          pod.vgpus[index].device};
}

uint64_t Vgpus::HowManyFit(const spec::PodRequest& asked, const std::string& node) const {
  Pod pod;
  static_cast<spec::PodRequest&>(pod) = asked;
  pod.name = "a pod";
  auto request = RequestOf(pod, 1);
  if (!request) return 0;
  uint64_t pods = 0;
  // No GPU is of two of these modes.
  for (const std::string& mode : ModesFor(pod)) {
    const auto ground = Ground(node, mode);
    if (!ground) continue;
    request->mode = mode;
    pods += cluster_->HowManyFit(*request, *ground);
  }
  return pods;
}

Result<Vgpus::Explanation> Vgpus::Explain(const Pod& pod, uint32_t count,
                                          const std::string& node) const {
  auto request = RequestOf(pod, count);
  if (!request) return tl::unexpected(request.error());
  Explanation explanation;
  devmgr::UseChoice use;
  const auto where = Decide(*request, pod, node, &use);
  if (where) {
    explanation.where = *where;
    explanation.use = expected_use_->Explain(*request, *where, use);
  } else if (where.error().code == ErrorCode::kInvalid ||
             where.error().code == ErrorCode::kExists) {
    return tl::unexpected(where.error());
  } else {
    explanation.error = where.error().message;
  }
  explanation.nodes = WhyNot(*request, pod, node);
  return explanation;
}

std::optional<size_t> Vgpus::RoomAfter(const Pod& pod, uint32_t count, const std::string& node,
                                       const std::vector<std::string>& ending) const {
  auto request = RequestOf(pod, count);
  if (!request) return std::nullopt;
  if (Decide(*request, pod, node)) return 0;
  std::optional<size_t> fewest;
  for (const std::string& name : cards_.Nodes()) {
    if (node != "*" && name != node) continue;
    const devmgr::Node* there = cluster_->FindNode(cards_.NameOf(name));
    const std::vector<const devmgr::PlacedPod*> pods = cluster_->PodsOn(there->name);
    if (std::none_of(pods.begin(), pods.end(),
                     [&](const auto* one) { return IsIn(ending, one->request.name); })) {
      continue;
    }
    devmgr::Cluster copy(modes_->all(), cluster_->policy());
    if (!devmgr::CopyNode(*there, pods, &copy)) continue;
    for (size_t i = 0; i < ending.size() && (!fewest || i + 1 < *fewest); ++i) {
      if (!copy.Delete(ending[i])) continue;
      for (const std::string& mode : ModesFor(pod)) {
        request->mode = mode;
        if (Ground(node, mode) && copy.Decide(*request)) fewest = i + 1;
      }
    }
  }
  return fewest;
}

Result<Vgpus::Defragmentation> Vgpus::Defrag(const Pod& pod, uint32_t count,
                                             const std::string& node, uint32_t moves) const {
  auto request = RequestOf(pod, count);
  if (!request) return tl::unexpected(request.error());
  // Checks what the search does not.
  auto where = Decide(*request, pod, node);
  if (!where && where.error().code != ErrorCode::kExhausted) return tl::unexpected(where.error());
  // Only what is copied is copied here; the rest, which takes ten times as long, elsewhere.
  struct Copied {
    devmgr::Node node;
    std::vector<devmgr::PlacedPod> pods;
  };
  struct Work {
    std::shared_ptr<const CardModes> modes;
    devmgr::PlacementPolicy policy;
    std::vector<Copied> nodes;
    std::vector<PodRequest> requests;
    uint32_t moves;
  };
  auto work = std::make_shared<Work>(Work{modes_, cluster_->policy(), {}, {}, moves});
  for (const std::string& name : cards_.Nodes()) {
    if (node != "*" && name != node) continue;
    Copied& copied = work->nodes.emplace_back();
    copied.node = *cluster_->FindNode(cards_.NameOf(name));
    for (const devmgr::PlacedPod* placed : cluster_->PodsOn(copied.node.name)) {
      copied.pods.push_back(*placed);
    }
  }
  for (const std::string& mode : ModesFor(pod)) {
    if (!Ground(node, mode)) continue;
    request->mode = mode;
    work->requests.push_back(*request);
  }
  return [work]() -> Result<devmgr::DefragPlan> {
    devmgr::Cluster copy(work->modes->all(), work->policy);
    for (const Copied& copied : work->nodes) {
      std::vector<const devmgr::PlacedPod*> pods;
      for (const devmgr::PlacedPod& pod : copied.pods) pods.push_back(&pod);
      static_cast<void>(devmgr::CopyNode(copied.node, pods, &copy));
    }
    std::optional<Error> error;
    for (const PodRequest& request : work->requests) {
      devmgr::DefragOptions options;
      options.moves = work->moves;
      // Whoever named its GPUs stays on them.
      auto plan = devmgr::Defrag(
          copy, work->modes->all(), request,
          [](const devmgr::PlacedPod& pod) {
            return pod.request.uuids.empty() ? std::optional(pod.request) : std::nullopt;
          },
          options);
      if (plan) return plan;
      if (!error || plan.error().code == ErrorCode::kExhausted) error = plan.error();
    }
    return tl::unexpected(error ? *error
                                : Error{ErrorCode::kNotFound, "there is no GPU for it here"});
  };
}

}  // namespace baton::backend
