#include "k8s/cluster/cluster_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "devmgr/modes/modes.h"
#include "k8s/types/gpu_node.h"
#include "spec/modes.h"

namespace baton::k8s {

devmgr::PodRequest RequestAt(devmgr::PodRequest request, const devmgr::Placement& placement) {
  std::vector<devmgr::ContainerRequest> containers;
  for (const devmgr::Vgpu& vgpu : placement.vgpus) {
    while (containers.size() <= vgpu.container) {
      const size_t at = containers.size();
      const bool named = at < request.containers.size();
      containers.push_back({named ? request.containers[at].name : std::to_string(at), {}});
    }
    auto& groups = containers[vgpu.container].vgpus;
    while (groups.size() <= vgpu.group)
      groups.push_back({.share = policy::kWhole, .memory_mib = 0, .memory_part = {}, .count = 0});
    devmgr::VgpuRequest& group = groups[vgpu.group];
    group.share = vgpu.fit.share;
    group.memory_mib = vgpu.fit.memory_mib;
    ++group.count;
  }
  request.containers = std::move(containers);
  // What the pod wishes for was a matter of the decision.
  request.mode.clear();
  request.off_nodes.reset();
  return request;
}

bool SameOfHost(const devmgr::PodRequest& a, const devmgr::PodRequest& b) {
  return a.cpu_milli == b.cpu_milli && a.memory_mib == b.memory_mib && a.resources == b.resources;
}

bool HasParts(const devmgr::Placement& placement) {
  return std::any_of(placement.vgpus.begin(), placement.vgpus.end(),
                     [](const devmgr::Vgpu& vgpu) { return !spec::ByToken(vgpu.mode); });
}

bool SameParts(const devmgr::Placement& a, const devmgr::Placement& b) {
  return SamePlace(a, b) && std::equal(a.vgpus.begin(), a.vgpus.end(), b.vgpus.begin(),
                                       [](const devmgr::Vgpu& x, const devmgr::Vgpu& y) {
                                         return x.fit.slot == y.fit.slot &&
                                                x.fit.share == y.fit.share &&
                                                x.fit.memory_mib == y.fit.memory_mib;
                                       });
}

bool SamePlace(const devmgr::Placement& a, const devmgr::Placement& b) {
  return a.node == b.node &&
         std::equal(a.vgpus.begin(), a.vgpus.end(), b.vgpus.begin(), b.vgpus.end(),
                    [](const devmgr::Vgpu& x, const devmgr::Vgpu& y) {
                      return x.container == y.container && x.group == y.group && x.card == y.card &&
                             x.mode == y.mode;
                    });
}

namespace {

// Of what a node does not count it has enough.
constexpr uint64_t kUncounted = uint64_t{1} << 62;

bool AsksForWhole(const Json& pod) {
  for (const char* list : {"spec/containers", "spec/initContainers"}) {
    const Json* containers = Find(pod, list);
    if (containers == nullptr || !containers->is_array()) continue;
    for (const Json& container : *containers) {
      const Json* limits = Find(container, "resources/limits");
      if (limits != nullptr && limits->is_object() &&
          limits->contains(std::string(kWholeResource))) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace

SeenPod SeePod(const Json& pod, const Result<GpuPod>& gpu) {
  SeenPod seen;
  seen.key = NameOf(pod).Text();
  seen.node = TextAt(pod, "spec/nodeName");
  seen.takes_room = TakesRoom(pod);
  seen.whole = AsksForWhole(pod);
  if (gpu) seen.request = gpu->request;
  if (!gpu || !gpu->asks()) {
    const NodeResources resources = ResourcesOf(pod);
    seen.request.cpu_milli = static_cast<uint32_t>(
        std::min<uint64_t>(resources.cpu_milli, std::numeric_limits<uint32_t>::max()));
    seen.request.memory_mib = resources.memory_mib;
  }
  seen.request.name = seen.key;
  seen.request.node_labels.clear();  // PodNeeds has them
  seen.request.resources = OtherResources(pod);
  if (auto placement = ReadPlacement(pod)) {
    seen.placement = *std::move(placement);
    // The node that counts is the one that it is on.
    if (seen.placement && seen.placement->node != seen.node) seen.placement.reset();
  }
  return seen;
}

ClusterView::ClusterView(uint32_t memory_unit_mib, const devmgr::PlacementPolicy& policy,
                         devmgr::Modes modes)
    : memory_unit_mib_(memory_unit_mib),
      cluster_(modes, policy),
      foreign_([this](const std::string& node) { Touch(node); }) {}

void ClusterView::SetNode(const Json& node) {
  NodeFacts facts = ReadFacts(node);
  if (facts.name.empty()) return;
  NodeEntry& entry = nodes_[facts.name];
  if (!entry.known) entry.facts = {};
  entry.known = true;
  entry.counts_share = facts.mounts_hook;
  SetFacts(entry, std::move(facts));
  entry.node = ReadNode(node);
  entry.node.name = entry.facts.name;
  entry.node.cards.clear();
  entry.guessed = GuessedCards(node, memory_unit_mib_);
  entry.resources = OtherAllocatable(node);
  Touch(entry.facts.name);
}

void ClusterView::SetFacts(NodeEntry& entry, NodeFacts facts) {
  facts.mounts_hook = entry.counts_share && entry.mounts_hook;
  if (entry.facts == facts) return;
  off_.clear();
  // These stand in the facts alone: who waits may be allowed there now.
  changed_ = true;
  entry.facts = std::move(facts);
}

void ClusterView::RemoveNode(const std::string& name) {
  const auto it = nodes_.find(name);
  if (it == nodes_.end()) return;
  it->second.known = false;
  off_.clear();
  Touch(name);
}

std::string ClusterView::SetGpuNode(const Json& gpu_node) {
  const std::string name = TextAt(gpu_node, "metadata/name");
  if (name.empty()) return "a GpuNode without a name";
  NodeEntry& entry = nodes_[name];
  Touch(name);
  entry.mounts_hook = MountsHook(gpu_node);
  if (entry.known) SetFacts(entry, entry.facts);
  // Its agent has told its key, and nothing of its GPUs yet.
  if (Find(gpu_node, "status/cards") == nullptr) {
    entry.cards.reset();
    return "";
  }
  auto cards = CardsOf(gpu_node);
  if (!cards) {
    entry.cards.reset();
    return "GpuNode " + name + ": " + cards.error().message;
  }
  entry.cards = *std::move(cards);
  return "";
}

void ClusterView::RemoveGpuNode(const std::string& name) {
  const auto it = nodes_.find(name);
  if (it == nodes_.end()) return;
  it->second.cards.reset();
  it->second.mounts_hook = false;
  if (it->second.known) SetFacts(it->second, it->second.facts);
  Touch(name);
}

void ClusterView::RemovePod(const std::string& key) {
  const auto it = here_.find(key);
  if (it == here_.end()) return;
  nodes_[it->second.node].pods.erase(key);
  Touch(it->second.node);
  if (cluster_.Delete(key)) changed_ = true;
  troubles_.erase(key);
  teams_.erase(key);
  here_.erase(it);
}

void ClusterView::SetPod(const SeenPod& pod) {
  if (pod.node.empty() || !pod.takes_room) {
    RemovePod(pod.key);
    return;
  }
  const auto known = here_.find(pod.key);
  const bool same = known != here_.end() && known->second.node == pod.node &&
                    known->second.whole == pod.whole &&
                    known->second.placement.has_value() == pod.placement.has_value() &&
                    (!pod.placement || SamePlace(*pod.placement, *known->second.placement));
  if (same) {
    // Shares that have changed meanwhile were booked by who decided that, or are by BookAsSeen().
    known->second.placement = pod.placement;
    if (!IsBooked(pod.key) && !(known->second.request == pod.request)) Touch(pod.node);
    // What SetTeam() has said stands until the pod says something else than before.
    if (known->second.request.team != pod.request.team) SetTeam(pod.key, pod.request.team);
    known->second.request = pod.request;
  } else {
    if (known != here_.end()) RemovePod(pod.key);
    const devmgr::PlacedPod* assumed = cluster_.Find(pod.key);
    if (assumed != nullptr && !(pod.placement && SamePlace(*pod.placement, assumed->placement))) {
      Release(pod.key);
    }
    here_[pod.key] = pod;
    nodes_[pod.node].pods.insert(pod.key);
    if (!IsBooked(pod.key)) Touch(pod.node);
  }
  // What it takes of its node beside GPUs counts as it says, at once: it may be resized there.
  const devmgr::PlacedPod* booked = cluster_.Find(pod.key);
  if (booked == nullptr || SameOfHost(booked->request, pod.request)) return;
  devmgr::PlacedPod resized = *booked;
  resized.request.cpu_milli = pod.request.cpu_milli;
  resized.request.memory_mib = pod.request.memory_mib;
  resized.request.resources = pod.request.resources;
  changed_ = true;
  // Of a GPU that is no more there it may not be booked again.
  if (!cluster_.Delete(pod.key) || !cluster_.Adopt(resized.request, resized.placement)) {
    Touch(pod.node);
  }
}

void ClusterView::BookAsSeen() {
  // All of them first: one may grow by what another gives up.
  for (const auto& [key, pod] : here_) {
    const devmgr::PlacedPod* booked = cluster_.Find(key);
    if (booked == nullptr || !pod.placement || booked->placement == *pod.placement) continue;
    if (cluster_.Delete(key)) changed_ = true;
    Touch(pod.node);
  }
}

void ClusterView::SetTeam(const std::string& key, const std::string& team) {
  if (here_.contains(key)) teams_[key] = team;
  const devmgr::PlacedPod* booked = cluster_.Find(key);
  if (booked == nullptr || booked->request.team == team) return;
  devmgr::PlacedPod pod = *booked;
  pod.request.team = team;
  changed_ = true;
  // Of a GPU that is no more there it may not be booked again.
  if (!cluster_.Delete(key) || !cluster_.Adopt(pod.request, pod.placement)) {
    Touch(pod.placement.node);
  }
}

Result<void> ClusterView::Assume(const devmgr::PodRequest& request,
                                 const devmgr::Placement& placement) {
  // Others may be booked still on GPUs of which their node tells no more.
  if (const auto it = nodes_.find(placement.node); it != nodes_.end()) {
    const NodeEntry& entry = it->second;
    const std::vector<devmgr::Card>& cards = entry.cards ? *entry.cards : entry.guessed;
    for (const devmgr::Vgpu& vgpu : placement.vgpus) {
      if (std::any_of(cards.begin(), cards.end(),
                      [&](const devmgr::Card& card) { return card.uuid == vgpu.card; })) {
        continue;
      }
      return Fail(ErrorCode::kNotFound, placement.node + " has no GPU " + vgpu.card + " now");
    }
  }
  return cluster_.Commit(RequestAt(request, placement), placement);
}

void ClusterView::Release(const std::string& key) {
  if (cluster_.Delete(key)) changed_ = true;
  // Whoever could not be booked there may be now.
  for (const auto& [other, why] : troubles_) Touch(here_.at(other).node);
}

// Books what is bound there and is not booked yet. Says what must be kept away from those that it
// could not book.
void ClusterView::AdoptAll(NodeEntry& entry, std::set<std::string>* blocked) {
  for (const std::string& key : entry.pods) {
    const SeenPod& pod = here_.at(key);
    if (IsBooked(key)) continue;
    if (pod.placement) {
      devmgr::PodRequest request = RequestAt(pod.request, *pod.placement);
      if (const auto team = teams_.find(key); team != teams_.end()) request.team = team->second;
      if (const auto done = cluster_.Adopt(request, *pod.placement); done) {
        troubles_.erase(key);
        changed_ = true;
        continue;
      } else {
        troubles_[key] = done.error().message;
      }
      for (const devmgr::Vgpu& vgpu : pod.placement->vgpus) blocked->insert(vgpu.card);
    } else if (pod.whole) {
      entry.closed = key + " uses GPUs of this node that Baton did not assign";
      troubles_[key] = entry.closed;
    }
  }
}

// The node as pods may use it: less what those take that are not booked.
devmgr::Node ClusterView::Wanted(const std::string& name, const NodeEntry& entry,
                                 const std::set<std::string>& blocked) const {
  devmgr::Node node = entry.node;
  node.name = name;
  node.cordoned |= !entry.known || !entry.closed.empty();
  node.cards = entry.cards ? *entry.cards : entry.guessed;
  node.resources = entry.resources;
  for (const std::string& port : ports_) node.resources[port] = 1;
  // The kubelet counts a resource once a device plugin has told it of one: before, it is absent and
  // no pod is refused for it. After that it stays, at 0 while no plugin answers, and then a kubelet
  // refuses every pod.
  for (const std::string_view resource : {kShareResource, kMemoryResource}) {
    node.resources.try_emplace(std::string(resource), kUncounted);
  }
  const ForeignPods::Usage& foreign = foreign_.On(name);
  uint64_t cpu_milli = foreign.cpu_milli;
  uint64_t memory_mib = foreign.memory_mib;
  for (const auto& [resource, amount] : foreign.resources) {
    const auto there = node.resources.find(resource);
    if (there != node.resources.end()) there->second -= std::min(there->second, amount);
  }
  for (const std::string& key : entry.pods) {
    if (IsBooked(key)) continue;
    const devmgr::PodRequest& request = here_.at(key).request;
    cpu_milli += request.cpu_milli;
    memory_mib += request.memory_mib;
    for (const auto& [resource, amount] : request.resources) {
      const auto there = node.resources.find(resource);
      if (there != node.resources.end()) there->second -= std::min(there->second, amount);
    }
  }
  // 0 would be not to look at it.
  const auto rest = [](auto all, uint64_t used) {
    if (all == 0) return all;
    return static_cast<decltype(all)>(used < all ? all - used : 1);
  };
  node.cpu_milli = rest(node.cpu_milli, cpu_milli);
  node.memory_mib = rest(node.memory_mib, memory_mib);
  for (devmgr::Card& card : node.cards) card.cordoned |= blocked.contains(card.uuid);
  return node;
}

bool ClusterView::Set(const devmgr::Node& node, NodeEntry& entry) {
  if (entry.booked && *entry.booked == node) return true;
  if (const auto done = cluster_.SetNode(node); !done) {
    entry.closed = done.error().message;
    return false;
  }
  entry.booked = node;
  changed_ = true;
  return true;
}

void ClusterView::FlushNode(const std::string& name, NodeEntry& entry) {
  entry.closed.clear();
  std::set<std::string> blocked;
  // Pods on GPUs that were guessed before the node told of its GPUs: it is not known which of
  // them they are.
  const std::vector<const devmgr::PlacedPod*> placed = cluster_.PodsOn(name);
  for (const devmgr::PlacedPod* pod : entry.cards ? placed : decltype(placed)()) {
    for (const devmgr::Vgpu& vgpu : pod->placement.vgpus) {
      if (!vgpu.card.starts_with(name + "/")) continue;
      entry.closed =
          pod->request.name +
          " is on a GPU that was guessed before the node reported its GPUs; delete the pod";
    }
  }
  // GPUs must be there before pods can be booked on them.
  const bool waits = std::any_of(entry.pods.begin(), entry.pods.end(), [&](const std::string& key) {
    return !IsBooked(key) && (here_.at(key).whole || here_.at(key).placement);
  });
  if (waits) {
    if (!entry.booked || !entry.known) Set(Wanted(name, entry, blocked), entry);
    AdoptAll(entry, &blocked);
  }
  if (!Set(Wanted(name, entry, blocked), entry) && entry.booked && !entry.booked->cordoned) {
    // As it was, but nothing comes any more.
    devmgr::Node closed = *entry.booked;
    closed.cordoned = true;
    const std::string why = entry.closed;
    Set(closed, entry);
    entry.closed = why;
  }
  if (waits) {
    // On GPUs that are new.
    const auto before = troubles_.size();
    std::set<std::string> still;
    AdoptAll(entry, &still);
    if (troubles_.size() < before) Set(Wanted(name, entry, still), entry);
  }
  if (!entry.known && entry.pods.empty() && cluster_.PodsOn(name).empty()) {
    if (cluster_.RemoveNode(name)) changed_ = true;
    entry.booked.reset();
  }
}

bool ClusterView::Flush() {
  for (const std::string& name : dirty_) {
    const auto it = nodes_.find(name);
    if (it == nodes_.end()) continue;
    FlushNode(name, it->second);
    const NodeEntry& entry = it->second;
    if (!entry.known && !entry.cards && entry.pods.empty() && !entry.booked) nodes_.erase(it);
  }
  dirty_.clear();
  return std::exchange(changed_, false);
}

void ClusterView::Expect(const devmgr::PodRequest& request) {
  for (const auto& [resource, amount] : request.resources) {
    if (!IsPort(resource) || !ports_.insert(resource).second) continue;
    for (const auto& [name, entry] : nodes_) Touch(name);
  }
}

std::shared_ptr<const std::vector<devmgr::ExcludedNode>> ClusterView::OffNodes(
    const PodNeeds& needs) {
  const auto known = off_.find(needs);
  if (known != off_.end()) return known->second;
  if (off_.size() >= kOffMax) off_.clear();
  auto off = std::make_shared<std::vector<devmgr::ExcludedNode>>();
  for (const auto& [name, entry] : nodes_) {
    if (!entry.known) continue;
    if (const auto why = MismatchOf(needs, entry.facts)) off->push_back({name, why->kind});
  }
  if (off->empty()) off.reset();
  return off_[needs] = std::move(off);
}

std::string ClusterView::WhyOff(const PodNeeds& needs, const std::string& node) const {
  const auto it = nodes_.find(node);
  if (it == nodes_.end() || !it->second.known) return "no such node";
  return WhyNot(needs, it->second.facts);
}

std::string ClusterView::WhyKubelet(const devmgr::PodRequest& request,
                                    const std::string& node) const {
  const auto it = nodes_.find(node);
  if (it == nodes_.end()) return "";
  const NodeEntry& entry = it->second;
  const auto of = [](const devmgr::PodRequest& pod, const std::string& resource) -> uint64_t {
    const auto found = pod.resources.find(resource);
    return found == pod.resources.end() ? 0 : found->second;
  };
  for (const std::string_view name : {kShareResource, kMemoryResource}) {
    const std::string resource(name);
    const auto all = entry.resources.find(resource);
    const uint64_t wanted = of(request, resource);
    if (all == entry.resources.end() || wanted == 0) continue;
    uint64_t sum = wanted;
    for (const devmgr::PlacedPod* pod : cluster_.PodsOn(node)) sum += of(pod->request, resource);
    for (const std::string& key : entry.pods) {
      if (!IsBooked(key)) sum += of(here_.at(key).request, resource);
    }
    if (sum <= all->second) continue;
    return all->second == 0
               ? fmt::format(
                     "the kubelet has no {}: no GPU there is healthy, or Baton's agent or "
                     "batond on the node does not answer",
                     resource)
               : fmt::format(
                     "the kubelet counts {} of {} {}: limits do not shrink with a running "
                     "pod",
                     sum, all->second, resource);
  }
  return "";
}

std::string ClusterView::WhyClosed(const std::string& node) const {
  const auto it = nodes_.find(node);
  return it != nodes_.end() ? it->second.closed : "";
}

bool ClusterView::HasNode(const std::string& name) const {
  const auto it = nodes_.find(name);
  return it != nodes_.end() && it->second.known;
}

}  // namespace baton::k8s
