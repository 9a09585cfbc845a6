#include "devmgr/placement/defrag.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <deque>
#include <map>
#include <tuple>
#include <utility>

namespace baton::devmgr {
namespace {

constexpr size_t kCardSetsMax = 70;  // four of eight

// GPUs that a pod is held to; none: no more than it says itself.
using Uuids = std::vector<std::string>;

class Defragmenter {
 public:
  Defragmenter(const Cluster& cluster, Modes modes, const PodRequest& request,
               const DefragOptions& options)
      : cluster_(cluster),
        modes_(modes),
        options_(options),
        moves_(std::min(options.moves, DefragOptions::kMovesMax)),
        limit_(options.steps),
        copy_(modes, cluster.policy()) {
    items_.push_back({request, {}, {}});
  }

  Result<DefragPlan> Run(const MoveRequest& moved) {
    const PodRequest& request = items_[0].request;
    const auto now = cluster_.Decide(request);
    if (now) return DefragPlan{{}, *now, true, 0};
    if (now.error().code != ErrorCode::kExhausted) return tl::unexpected(now.error());
    const bool all = CopyNodes();
    for (const auto& [name, pod] : copy_.pods()) {
      copy_.Learn(pod.request);
      // Those that it is to be beside may be on nodes that were left out.
      const bool knows = all || (pod.request.affinity.empty() && request.affinity.empty());
      if (!knows) continue;
      if (auto its = moved(pod)) movable_.emplace(name, *std::move(its));
    }
    nodes_ = copy_.Nodes();
    bool exact = true;
    for (uint32_t moves = 1; moves <= moves_; ++moves) {
      for (const bool wide : {false, true}) {
        wide_ = wide;
        // All places are a great many: half of what is left is for looking further.
        stop_ = wide ? steps_ + (limit_ - steps_) / 2 : limit_;
        if (Solve(0, moves)) {
          plan_.exact = exact && all;
          plan_.steps = steps_;
          return std::move(plan_);
        }
        if (broken_ || steps_ >= limit_) break;
      }
      exact = exact && !broken_ && steps_ < stop_;
      if (broken_ || steps_ >= limit_) break;
    }
    if (exact) {
      return Fail(ErrorCode::kExhausted,
                  fmt::format("no {} moves of pods that may be moved{} make room for {}", moves_,
                              all ? "" : " on the nodes looked at", request.name));
    }
    return Fail(ErrorCode::kExhausted,
                fmt::format("no moves were found that make room for {}; the search was given up "
                            "after {} looks at a node",
                            request.name, steps_));
  }

 private:
  // The pending pod, and those that were driven out.
  struct Item {
    PodRequest request;  // where it is put
    PlacedPod from;
    Placement to;
  };

  // False: some were left out.
  bool CopyNodes() {
    std::vector<std::pair<policy::ShareSum, const Node*>> nodes;  // with what is free of their GPUs
    for (const Node* node : cluster_.Nodes()) {
      if (options_.off.contains(node->name)) continue;
      nodes.emplace_back(cluster_.FreeOn(node->name).share, node);
    }
    if (nodes.size() > options_.nodes) {
      std::stable_sort(nodes.begin(), nodes.end(),
                       [](const auto& a, const auto& b) { return a.first > b.first; });
      nodes.resize(options_.nodes);
    }
    for (const auto& [free, node] : nodes) CopyNode(*node, cluster_.PodsOn(node->name), &copy_);
    return nodes.size() == cluster_.Nodes().size();
  }

  bool Spend(uint64_t steps) {
    steps_ += steps;
    return !broken_ && steps_ < stop_;
  }

  void Put(const PodRequest& request, const Placement& placement) {
    if (!copy_.Commit(request, placement)) broken_ = true;
  }

  // Finds places for the items from `index` on, with at most so many more driven out.
  bool Solve(size_t index, uint32_t left) {
    if (index == items_.size()) return Realise();
    if (index > 0) {
      // Each that has no place now will have none until somebody goes for it.
      uint32_t homeless = 0;
      for (size_t i = index + 1; i < items_.size(); ++i) {
        if (!Spend(nodes_.size())) return false;
        if (items_[i].request.affinity.empty() && !copy_.Decide(items_[i].request)) ++homeless;
        if (homeless > left) return false;
      }
      if (!Spend(nodes_.size())) return false;
      const auto anywhere = copy_.Decide(items_[index].request);
      if (anywhere && Go(index, left, *anywhere)) return true;
      if (anywhere && wide_ && TryAllPlaces(index, left, *anywhere)) return true;
      if (broken_) return false;
    }
    return left > 0 && DriveOut(index, left);
  }

  // With this item there, the next ones.
  bool Go(size_t index, uint32_t left, const Placement& to) {
    items_[index].to = to;
    Put(items_[index].request, to);
    if (!broken_ && Solve(index + 1, left)) return true;
    copy_.Delete(items_[index].request.name);
    return false;
  }

  bool TryAllPlaces(size_t index, uint32_t left, const Placement& tried) {
    Shortage shortage(copy_, modes_, items_[index].request);
    for (const Node* node : nodes_) {
      if (!Spend(1)) return false;
      if (!shortage.Look(*node, {}) || !shortage.EnoughIfAllGo()) continue;
      for (const Uuids& uuids : CardSets(*node, shortage.cards(), items_[index].request)) {
        if (!Spend(1)) return false;
        const auto there = copy_.DecideOn(node->name, HeldTo(items_[index].request, uuids));
        if (there && *there != tried && Go(index, left, *there)) return true;
      }
    }
    return false;
  }

  bool DriveOut(size_t index, uint32_t left) {
    struct Target {
      uint32_t fewest;
      const Node* node;
    };
    std::vector<Target> targets;
    Shortage shortage(copy_, modes_, items_[index].request);
    for (const Node* node : nodes_) {
      if (!Spend(1)) return false;
      const std::vector<PlacedPod> pods = Movable(*node);
      if (pods.empty()) continue;
      const std::vector<const PlacedPod*> pointers = PointersTo(pods);
      if (!shortage.Look(*node, pointers)) continue;
      const uint32_t fewest = std::max(shortage.Fewest(), 1u);
      if (fewest <= left) targets.push_back({fewest, node});
    }
    std::sort(targets.begin(), targets.end(), [](const Target& a, const Target& b) {
      return std::tie(a.fewest, a.node->name) < std::tie(b.fewest, b.node->name);
    });
    for (const Target& target : targets) {
      if (DriveOutOf(*target.node, target.fewest, index, left)) return true;
      if (broken_ || steps_ >= stop_) return false;
    }
    return false;
  }

  // What is being tried on one node.
  struct Attempt {
    const Node* node;
    size_t index;
    uint32_t left;
    PodRequest held;  // the item, held to some GPUs
    const Shortage* shortage;
    std::vector<PlacedPod> pods;  // that can be driven out
    std::vector<size_t> useful;   // of them: those in the way
    std::vector<size_t> chosen;
    std::vector<std::vector<size_t>> enough;  // those sets were
  };

  bool DriveOutOf(const Node& node, uint32_t fewest, size_t index, uint32_t left) {
    Attempt attempt{&node, index, left, {}, nullptr, Movable(node), {}, {}, {}};
    const std::vector<const PlacedPod*> pointers = PointersTo(attempt.pods);
    const PodRequest request = items_[index].request;
    Shortage shortage(copy_, modes_, request);
    if (!shortage.Look(node, pointers)) return false;
    attempt.shortage = &shortage;
    const Cluster::Capacity host = copy_.FreeOn(node.name);
    const bool short_of_host = (node.cpu_milli > 0 && host.cpu_milli < request.cpu_milli) ||
                               (node.memory_mib > 0 && host.memory_mib < request.memory_mib);
    for (const Uuids& uuids : CardSets(node, shortage.cards(), request)) {
      attempt.held = HeldTo(request, uuids);
      attempt.useful.clear();
      attempt.enough.clear();
      for (size_t p = 0; p < attempt.pods.size(); ++p) {
        const auto& vgpus = attempt.pods[p].placement.vgpus;
        const bool in_the_way = std::any_of(vgpus.begin(), vgpus.end(), [&](const Vgpu& vgpu) {
          return std::find(uuids.begin(), uuids.end(), vgpu.card) != uuids.end();
        });
        if (uuids.empty() || short_of_host || in_the_way) attempt.useful.push_back(p);
      }
      for (uint32_t n = fewest; n <= std::min<size_t>(left, attempt.useful.size()); ++n) {
        if (Choose(attempt, 0, n)) return true;
        if (broken_ || steps_ >= stop_) return false;
      }
    }
    return false;
  }

  // All sets of `n` more, from the useful one `from` on.
  bool Choose(Attempt& attempt, size_t from, uint32_t n) {
    if (n == 0) return TryWithout(attempt);
    for (size_t i = from; i + n <= attempt.useful.size(); ++i) {
      attempt.chosen.push_back(attempt.useful[i]);
      const bool found = Choose(attempt, i + 1, n - 1);
      attempt.chosen.pop_back();
      if (found) return true;
      if (broken_ || steps_ >= stop_) return false;
    }
    return false;
  }

  bool TryWithout(Attempt& attempt) {
    if (!attempt.shortage->Enough(attempt.chosen)) return false;
    // Where fewer are enough, the others need not go.
    for (const std::vector<size_t>& fewer : attempt.enough) {
      if (std::includes(attempt.chosen.begin(), attempt.chosen.end(), fewer.begin(), fewer.end())) {
        return false;
      }
    }
    if (!Spend(1)) return false;
    for (const size_t p : attempt.chosen) copy_.Delete(attempt.pods[p].request.name);
    bool found = false;
    if (const auto there = copy_.DecideOn(attempt.node->name, attempt.held)) {
      attempt.enough.push_back(attempt.chosen);
      for (const size_t p : attempt.chosen) {
        const PlacedPod& pod = attempt.pods[p];
        items_.push_back({movable_.at(pod.request.name), pod, {}});
      }
      const auto driven = static_cast<uint32_t>(attempt.chosen.size());
      found = Go(attempt.index, attempt.left - driven, *there);
      for (uint32_t n = 0; n < driven; ++n) items_.pop_back();
    }
    if (found || broken_) return found;
    for (size_t i = attempt.chosen.size(); i-- > 0;) {
      const PlacedPod& pod = attempt.pods[attempt.chosen[i]];
      Put(pod.request, pod.placement);
    }
    return false;
  }

  // All items have a place. Whether they can get there one after the other.
  bool Realise() {
    for (const Item& item : items_) copy_.Delete(item.request.name);
    for (size_t i = items_.size(); i-- > 1;) Put(items_[i].from.request, items_[i].from.placement);
    if (broken_) return false;
    plan_.moves.clear();
    std::vector<size_t> left;
    // Who was driven out last had nobody to wait for.
    for (size_t i = items_.size(); i-- > 1;) left.push_back(i);
    for (size_t before = left.size() + 1; !left.empty() && left.size() < before;) {
      before = left.size();
      std::erase_if(left, [&](size_t i) { return Advance(items_[i]); });
    }
    if (left.empty()) {
      // Anywhere on that node: its place is free, and another may be as good.
      Spend(1);
      if (auto last = copy_.DecideOn(items_[0].to.node, items_[0].request)) {
        plan_.placement = *std::move(last);
        return true;
      }
    }
    for (size_t i = items_.size(); i-- > 1;) copy_.Delete(items_[i].request.name);
    for (const Item& item : items_) Put(item.request, item.to);
    return false;
  }

  // Moves it now, if its place is free.
  bool Advance(const Item& item) {
    if (broken_) return false;
    PodRequest held = item.request;
    held.uuids.clear();
    for (const Vgpu& vgpu : item.to.vgpus) held.uuids.push_back(vgpu.card);
    if (!item.to.vgpus.empty()) held.mode = item.to.vgpus.front().mode;
    Spend(1);
    copy_.Delete(item.request.name);
    const auto there = copy_.DecideOn(item.to.node, held);
    if (there) {
      Put(item.request, *there);
      plan_.moves.push_back({item.request.name, item.from.placement, *there});
    } else {
      Put(item.from.request, item.from.placement);
    }
    return there.has_value();
  }

  // Copies: those in the map do not outlast a change.
  std::vector<PlacedPod> Movable(const Node& node) const {
    std::vector<PlacedPod> pods;
    for (const PlacedPod* pod : copy_.PodsOn(node.name)) {
      if (!movable_.contains(pod->request.name)) continue;
      const bool item = std::any_of(items_.begin(), items_.end(), [&](const Item& other) {
        return other.request.name == pod->request.name;
      });
      if (!item) pods.push_back(*pod);
    }
    return pods;
  }

  static std::vector<const PlacedPod*> PointersTo(const std::vector<PlacedPod>& pods) {
    std::vector<const PlacedPod*> pointers;
    pointers.reserve(pods.size());
    for (const PlacedPod& pod : pods) pointers.push_back(&pod);
    return pointers;
  }

  static PodRequest HeldTo(const PodRequest& request, const Uuids& uuids) {
    PodRequest held = request;
    if (!uuids.empty()) held.uuids = uuids;
    return held;
  }

  // Which GPUs of the node the pod may be held to.
  std::vector<Uuids> CardSets(const Node& node, uint16_t allowed, const PodRequest& request) const {
    uint32_t vgpus = 0;
    uint32_t cards = 0;  // that it takes at least
    for (const ContainerRequest& container : request.containers) {
      uint32_t here = 0;
      for (const VgpuRequest& vgpu : container.vgpus) here += vgpu.count;
      vgpus += here;
      cards = std::max(cards, here);
    }
    std::vector<Uuids> sets;
    if (vgpus != 1) sets.push_back({});
    if (vgpus == 0 || (vgpus > 1 && !wide_)) return sets;
    std::vector<Uuids> held;
    for (uint32_t mask = 1; mask < 1u << node.cards.size() && held.size() <= kCardSetsMax; ++mask) {
      if (static_cast<uint32_t>(std::popcount(mask)) != cards) continue;
      if ((mask & ~uint32_t{allowed}) != 0) continue;
      Uuids uuids;
      for (size_t c = 0; c < node.cards.size(); ++c) {
        if ((mask >> c & 1) != 0) uuids.push_back(node.cards[c].uuid);
      }
      held.push_back(std::move(uuids));
    }
    if (held.size() <= kCardSetsMax) sets.insert(sets.end(), held.begin(), held.end());
    return sets;
  }

  const Cluster& cluster_;
  const Modes modes_;
  const DefragOptions& options_;
  const uint32_t moves_;
  const uint64_t limit_;
  uint64_t stop_ = 0;
  uint64_t steps_ = 0;
  bool wide_ = false;
  bool broken_ = false;  // a pod could not be booked again on the copy
  Cluster copy_;
  std::map<std::string, PodRequest, std::less<>> movable_;  // by name
  std::vector<const Node*> nodes_;
  std::deque<Item> items_;  // references stay good while it grows
  DefragPlan plan_;
};

}  // namespace

Result<DefragPlan> Defrag(const Cluster& cluster, Modes modes, const PodRequest& request,
                          const MoveRequest& moved, const DefragOptions& options) {
  return Defragmenter(cluster, modes, request, options).Run(moved);
}

}  // namespace baton::devmgr
