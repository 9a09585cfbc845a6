#include "devmgr/placement/what_if.h"

#include <algorithm>

#include "devmgr/placement/cluster_state.h"
#include "devmgr/placement/model_name.h"
#include "devmgr/placement/replay.h"
#include "spec/modes.h"

namespace baton::devmgr {

Result<Placement> DecideOff(const Cluster& cluster, const PodRequest& request, const Names& nodes) {
  auto anywhere = cluster.Decide(request);
  if (!anywhere || !nodes.contains(anywhere->node)) return anywhere;
  if (DemandOf(request) == policy::Share(0)) {
    // It asks for no GPU, so it cannot be kept off by its GPUs.
    for (const Node* node : cluster.Nodes()) {
      if (nodes.contains(node->name)) continue;
      if (auto there = cluster.DecideOn(node->name, request)) return there;
    }
    return Fail(ErrorCode::kExhausted,
                request.name + " fits only on nodes that are kept for others");
  }
  PodRequest off = request;
  for (const std::string& name : nodes) {
    const Node* node = cluster.FindNode(name);
    if (node == nullptr) continue;
    for (const Card& card : node->cards) off.not_uuids.push_back(card.uuid);
  }
  return cluster.Decide(off);
}

bool CopyNode(const Node& node, std::span<const PlacedPod* const> pods, Cluster* copy) {
  if (!copy->SetNode(node)) return false;
  // Which part of a GPU there is may depend on who came first, so in as many rounds as it takes.
  std::vector<const PlacedPod*> left(pods.begin(), pods.end());
  for (size_t before = left.size() + 1; !left.empty() && left.size() < before;) {
    before = left.size();
    std::erase_if(left, [&](const PlacedPod* pod) {
      return copy->Commit(pod->request, pod->placement).has_value();
    });
  }
  if (left.empty()) return true;
  for (const PlacedPod* pod : pods) copy->Delete(pod->request.name);
  copy->RemoveNode(node.name);
  return false;
}

Names NodesWithAffinity(const Cluster& cluster, const std::string& affinity) {
  Names nodes;
  if (affinity.empty()) return nodes;
  for (const auto& [name, pod] : cluster.pods()) {
    if (pod.request.affinity == affinity && !pod.placement.vgpus.empty()) {
      nodes.insert(pod.placement.node);
    }
  }
  return nodes;
}

Shortage::Shortage(const Cluster& cluster, Modes modes, const PodRequest& request)
    : cluster_(cluster), modes_(modes), request_(request) {
  for (const Want& want : WantsOf(request)) {
    share_ += want.share.millionths();
    if (!groups_.empty() && groups_.back().want.container == want.container &&
        groups_.back().want.group == want.group) {
      ++groups_.back().count;
    } else {
      groups_.push_back({want, 1});
    }
  }
}

bool Shortage::MeansCard(const Card& card) {
  const auto has = [](const std::vector<std::string>& all, const std::string& one) {
    return std::find(all.begin(), all.end(), one) != all.end();
  };
  if (!request_.uuids.empty() && !has(request_.uuids, card.uuid)) return false;
  if (has(request_.not_uuids, card.uuid)) return false;
  if (std::none_of(modes_.begin(), modes_.end(), [&](const SharingMode* mode) {
        return spec::Accepts(request_.mode, mode->name()) && mode->Serves(card);
      })) {
    return false;
  }
  if (request_.models.empty() && request_.not_models.empty()) return true;
  const auto known = std::find_if(models_.begin(), models_.end(),
                                  [&](const auto& model) { return model.first == card.model; });
  if (known != models_.end()) return known->second;
  const auto means = [&](const std::string& text) { return MeansModel(text, card.model); };
  const bool wanted = (request_.models.empty() ||
                       std::any_of(request_.models.begin(), request_.models.end(), means)) &&
                      std::none_of(request_.not_models.begin(), request_.not_models.end(), means);
  models_.emplace_back(card.model, wanted);
  return wanted;
}

bool Shortage::Look(const Node& node, std::span<const PlacedPod* const> may_go) {
  node_ = &node;
  may_go_ = may_go;
  allowed_ = 0;
  room_ = {};
  parts_.clear();
  if (node.cordoned || IsOff(request_, node.name)) return false;
  for (const auto& [key, value] : request_.node_labels) {
    const auto label = node.labels.find(key);
    if (label == node.labels.end() || label->second != value) return false;
  }
  const Cluster::Capacity host = cluster_.FreeOn(node.name);
  room_.cpu_milli = node.cpu_milli > 0 ? host.cpu_milli : UINT64_MAX;
  room_.host_mib = node.memory_mib > 0 ? host.memory_mib : UINT64_MAX;
  for (size_t c = 0; c < node.cards.size(); ++c) {
    const Card& card = node.cards[c];
    if (!card.usable() || !MeansCard(card)) continue;
    const CardUse& use = *cluster_.UseOf(card.uuid);
    allowed_ |= static_cast<uint16_t>(1u << c);
    room_.share[c] = (policy::kWhole - use.share).millionths();
    room_.memory_mib[c] = FreeMib(card, use);
  }
  if (allowed_ == 0 && !groups_.empty()) return false;
  for (const PlacedPod* pod : may_go) {
    std::vector<Part>& parts = parts_.emplace_back();
    for (const Vgpu& vgpu : pod->placement.vgpus) {
      size_t c = 0;
      while (c < node.cards.size() && node.cards[c].uuid != vgpu.card) ++c;
      if (c < node.cards.size() && (allowed_ >> c & 1) != 0) {
        parts.push_back({c, vgpu.fit.share.millionths(), vgpu.fit.memory_mib});
      }
    }
  }
  return true;
}

void Shortage::Free(size_t pod, Room& room) const {
  for (const Part& part : parts_[pod]) {
    room.share[part.card] += part.share;
    room.memory_mib[part.card] += part.memory_mib;
  }
  const PodRequest& request = may_go_[pod]->request;
  if (room.cpu_milli != UINT64_MAX) room.cpu_milli += request.cpu_milli;
  if (room.host_mib != UINT64_MAX) room.host_mib += request.memory_mib;
}

bool Shortage::Enough(const Room& room) const {
  if (room.cpu_milli < request_.cpu_milli || room.host_mib < request_.memory_mib) return false;
  uint64_t share = 0;
  for (const uint64_t free : room.share) share += free;
  if (share < share_) return false;
  return std::all_of(groups_.begin(), groups_.end(), [&](const Group& group) {
    uint32_t cards = 0;
    for (size_t c = 0; c < node_->cards.size(); ++c) {
      if ((allowed_ >> c & 1) == 0) continue;
      const VgpuWant want = group.want.On(node_->cards[c]);
      cards += room.share[c] >= want.share.millionths() && room.memory_mib[c] >= want.memory_mib;
    }
    return cards >= group.count;
  });
}

bool Shortage::Enough(std::span<const size_t> gone) const {
  Room room = room_;
  for (const size_t pod : gone) Free(pod, room);
  return Enough(room);
}

bool Shortage::EnoughIfAllGo() const {
  Room room = room_;
  for (size_t pod = 0; pod < parts_.size(); ++pod) Free(pod, room);
  return Enough(room);
}

uint32_t Shortage::Fewest() const {
  if (!EnoughIfAllGo()) return kNever;
  // How many of `amounts`, the greatest first, it takes to make up for what is missing.
  const auto count = [](std::vector<uint64_t>& amounts, uint64_t free, uint64_t wanted) {
    std::sort(amounts.rbegin(), amounts.rend());
    uint32_t n = 0;
    for (; free < wanted && n < amounts.size(); ++n) free += amounts[n];
    return free < wanted ? kNever : n;
  };
  std::vector<uint64_t> shares;
  std::vector<uint64_t> memory;
  uint32_t fewest = 0;
  uint64_t widest = 1;  // parts of one pod
  for (const std::vector<Part>& parts : parts_) widest = std::max(widest, parts.size());
  for (const Group& group : groups_) {
    std::vector<uint32_t> by_card;
    for (size_t c = 0; c < node_->cards.size(); ++c) {
      if ((allowed_ >> c & 1) == 0) continue;
      shares.clear();
      memory.clear();
      for (const std::vector<Part>& parts : parts_) {
        uint64_t share = 0;
        uint64_t mib = 0;
        for (const Part& part : parts) {
          share += part.card == c ? part.share : 0;
          mib += part.card == c ? part.memory_mib : 0;
        }
        if (share > 0) shares.push_back(share);
        if (mib > 0) memory.push_back(mib);
      }
      const VgpuWant want = group.want.On(node_->cards[c]);
      by_card.push_back(std::max(count(shares, room_.share[c], want.share.millionths()),
                                 count(memory, room_.memory_mib[c], want.memory_mib)));
    }
    // Each on a GPU of its own: the worst of the best, and all of them together.
    std::sort(by_card.begin(), by_card.end());
    if (by_card.size() < group.count) return kNever;
    uint64_t sum = 0;
    for (uint32_t c = 0; c < group.count; ++c) {
      if (by_card[c] == kNever) return kNever;
      sum += by_card[c];
    }
    const auto together = static_cast<uint32_t>((sum + widest - 1) / widest);
    fewest = std::max({fewest, by_card[group.count - 1], together});
  }
  const auto host = [&](uint64_t free, uint64_t wanted, auto amount_of) {
    if (free >= wanted) return 0u;
    shares.clear();
    for (const PlacedPod* pod : may_go_) shares.push_back(amount_of(*pod));
    return count(shares, free, wanted);
  };
  fewest = std::max(fewest, host(room_.cpu_milli, request_.cpu_milli, [](const PlacedPod& pod) {
                      return uint64_t{pod.request.cpu_milli};
                    }));
  return std::max(fewest, host(room_.host_mib, request_.memory_mib,
                               [](const PlacedPod& pod) { return pod.request.memory_mib; }));
}

}  // namespace baton::devmgr
