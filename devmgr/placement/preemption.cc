#include "devmgr/placement/preemption.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <tuple>

namespace baton::devmgr {
namespace {

// What it is to lose these pods: the less the better.
struct Burden {
  size_t count = 0;
  std::vector<int32_t> priorities;  // the highest first
  policy::ShareSum share;
  std::string node;
  std::vector<std::string> pods;

  friend bool operator<(const Burden& a, const Burden& b) {
    return std::tie(a.count, a.priorities, a.share, a.node, a.pods) <
           std::tie(b.count, b.priorities, b.share, b.node, b.pods);
  }
};

policy::ShareSum ShareOf(const PlacedPod& pod) {
  policy::ShareSum share;
  for (const Vgpu& vgpu : pod.placement.vgpus) share += vgpu.fit.share;
  return share;
}

Burden BurdenOf(const std::string& node, std::span<const PlacedPod* const> pods) {
  Burden burden;
  burden.count = pods.size();
  burden.node = node;
  for (const PlacedPod* pod : pods) {
    burden.priorities.push_back(pod->request.priority);
    burden.share += ShareOf(*pod);
    burden.pods.push_back(pod->request.name);
  }
  std::sort(burden.priorities.rbegin(), burden.priorities.rend());
  std::sort(burden.pods.begin(), burden.pods.end());
  return burden;
}

// A node that may be made to do.
struct Target {
  const Node* node;
  std::vector<const PlacedPod*> may_go;  // the least valuable first
  Burden bound;                          // no set of them that is enough is less
};

bool LessValuable(const PlacedPod* a, const PlacedPod* b) {
  return std::tuple(a->request.priority, ShareOf(*a), std::string_view(a->request.name)) <
         std::tuple(b->request.priority, ShareOf(*b), std::string_view(b->request.name));
}

class Displacer {
 public:
  Displacer(const Cluster& cluster, Modes modes, const PodRequest& request, const PodTest& may_go,
            const DisplacementOptions& options)
      : cluster_(cluster),
        modes_(modes),
        request_(request),
        may_go_(may_go),
        options_(options),
        shortage_(cluster, modes, request),
        affinity_(NodesWithAffinity(cluster, request.affinity)),
        decisions_(options.decisions),
        // A set that the sums rule out costs a hundredth of one that must be tried.
        sums_(uint64_t{options.decisions} * 100) {}

  Result<Displacement> Run() {
    std::vector<Target> targets;
    for (const Node* node : cluster_.Nodes()) {
      if (options_.avoided != nullptr && options_.avoided->contains(node->name)) continue;
      if (auto target = TargetOn(*node)) targets.push_back(*std::move(target));
    }
    std::sort(targets.begin(), targets.end(),
              [](const Target& a, const Target& b) { return a.bound < b.bound; });
    for (const Target& target : targets) {
      if (best_ && *best_ < target.bound) break;
      if (decisions_ == 0) {
        exact_ = false;
        break;
      }
      Try(target);
    }
    if (!best_) {
      return Fail(
          ErrorCode::kExhausted,
          fmt::format("{}: of {} nodes {} it fits even without the pods that may go", request_.name,
                      cluster_.Nodes().size(),
                      exact_ ? "there is none on which" : "none was found in time on which"));
    }
    return Displacement{best_->node, best_->pods, best_placement_, exact_};
  }

 private:
  std::optional<Target> TargetOn(const Node& node) {
    Target target{&node, {}, {}};
    std::vector<const PlacedPod*>& pods = target.may_go;
    for (const PlacedPod* pod : cluster_.PodsOn(node.name)) {
      if (options_.spared != nullptr && options_.spared->contains(pod->request.name)) continue;
      // Without one of its gang it could not begin.
      if (!request_.gang.empty() && pod->request.gang == request_.gang) continue;
      if (may_go_(*pod)) pods.push_back(pod);
    }
    if (pods.empty()) return std::nullopt;
    std::sort(pods.begin(), pods.end(), LessValuable);
    if (!shortage_.Look(node, pods)) return std::nullopt;
    const uint32_t fewest = shortage_.Fewest();
    if (fewest == Shortage::kNever) return std::nullopt;
    Burden& bound = target.bound;
    bound.node = node.name;
    // It fits nowhere, so one must go in any case.
    bound.count = std::max<size_t>(fewest, 1);
    if (bound.count == 1) {
      for (size_t i = 0; i < pods.size(); ++i) {
        if (!shortage_.Enough(std::span(&i, 1))) continue;
        bound.priorities = {pods[i]->request.priority};
        bound.share = ShareOf(*pods[i]);
        return target;
      }
      bound.count = 2;
    }
    if (bound.count > pods.size()) return std::nullopt;
    // The highest: with those of no higher priority gone there must be enough. The others: as low
    // as there are.
    std::vector<size_t> gone;
    int32_t highest = 0;
    for (size_t i = 0; i < pods.size(); ++i) {
      gone.push_back(i);
      highest = pods[i]->request.priority;
      const bool last = i + 1 == pods.size() || pods[i + 1]->request.priority > highest;
      if (last && gone.size() >= bound.count && shortage_.Enough(gone)) break;
    }
    bound.priorities.push_back(highest);
    for (size_t i = bound.count - 1; i-- > 0;) {
      bound.priorities.push_back(pods[i]->request.priority);
    }
    std::vector<policy::ShareSum> shares;
    shares.reserve(pods.size());
    for (const PlacedPod* pod : pods) shares.push_back(ShareOf(*pod));
    std::sort(shares.begin(), shares.end());
    for (size_t i = 0; i < bound.count; ++i) bound.share += shares[i];
    return target;
  }

  void Try(const Target& target) {
    target_ = &target;
    Cluster copy(modes_, cluster_.policy());
    copy_ = &copy;
    const std::vector<const PlacedPod*> pods = cluster_.PodsOn(target.node->name);
    if (!CopyNode(*target.node, pods, copy_)) return;
    elsewhere_ = std::any_of(affinity_.begin(), affinity_.end(),
                             [&](const std::string& node) { return node != target.node->name; });
    const size_t n = target.may_go.size();

    // All gone, then back with those that need not have gone.
    std::vector<bool> out(n, true);
    for (const PlacedPod* pod : target.may_go) copy.Delete(pod->request.name);
    if (!EnoughWith(target.may_go)) return;
    std::optional<Placement> placement = Place();
    std::vector<const PlacedPod*> gone = target.may_go;
    const auto needed = [&](const PlacedPod* pod) {
      return !request_.affinity.empty() && pod->request.affinity == request_.affinity;
    };
    const bool company = std::any_of(gone.begin(), gone.end(), needed);
    if (!placement) {
      // More room is not all that counts where it needs company.
      if (!company) return;
      for (size_t i = 0; i < n; ++i) {
        const PlacedPod* pod = target.may_go[i];
        if (needed(pod)) out[i] = !copy.Commit(pod->request, pod->placement).has_value();
      }
      std::erase_if(gone, needed);
      if (!gone.empty() && EnoughWith(gone)) placement = Place();
    }
    for (size_t i = n; placement && i-- > 0;) {
      if (!out[i]) continue;
      const PlacedPod* pod = target.may_go[i];
      std::vector<const PlacedPod*> fewer = gone;
      std::erase(fewer, pod);
      if (fewer.empty() || !EnoughWith(fewer)) continue;
      if (!copy.Commit(pod->request, pod->placement)) continue;
      if (auto still = Place()) {
        placement = std::move(still);
        gone = std::move(fewer);
        out[i] = false;
      } else {
        copy.Delete(pod->request.name);
      }
    }
    if (placement) Offer(gone, *placement);
    for (size_t i = 0; i < n; ++i) {
      if (!out[i]) continue;
      if (!copy.Commit(target.may_go[i]->request, target.may_go[i]->placement)) {
        exact_ = false;
        return;
      }
    }

    // All smaller sets, and those of that size.
    shortage_.Look(*target.node, target.may_go);
    const size_t most = placement ? gone.size() : n;
    for (size_t k = target.bound.count; k <= std::min(most, best_ ? best_->count : n); ++k) {
      chosen_.clear();
      found_ = false;
      if (!Choose(0, k)) {
        exact_ = false;
        return;
      }
      if (found_) return;
    }
  }

  // Tries all sets of `k` more from `from` on. False: given up.
  bool Choose(size_t from, size_t k) {
    const std::vector<const PlacedPod*>& pods = target_->may_go;
    if (k == 0) {
      if (sums_ == 0) return false;
      --sums_;
      if (!shortage_.Enough(chosen_)) return true;
      std::vector<const PlacedPod*> gone;
      for (const size_t i : chosen_) gone.push_back(pods[i]);
      if (!EnoughWith(gone)) return true;
      if (best_ && !(BurdenOf(target_->node->name, gone) < *best_)) {
        // Whether it would do does not matter any more; of its size there is one already, or
        // elsewhere.
        return true;
      }
      if (decisions_ == 0) return false;
      for (const PlacedPod* pod : gone) copy_->Delete(pod->request.name);
      if (const auto placement = Place()) {
        Offer(gone, *placement);
        found_ = true;
      }
      bool whole = true;
      for (size_t i = gone.size(); i-- > 0;) {
        whole &= copy_->Commit(gone[i]->request, gone[i]->placement).has_value();
      }
      return whole;
    }
    for (size_t i = from; i + k <= pods.size(); ++i) {
      // The last is the one of highest priority.
      if (best_ && best_->count == chosen_.size() + k &&
          pods[i]->request.priority > best_->priorities.front()) {
        return true;
      }
      chosen_.push_back(i);
      const bool goes_on = Choose(i + 1, k - 1);
      chosen_.pop_back();
      if (!goes_on) return false;
    }
    return true;
  }

  bool EnoughWith(std::span<const PlacedPod* const> gone) const {
    return !options_.enough || options_.enough(gone);
  }

  // Where the pod goes on the copy as it is now.
  std::optional<Placement> Place() {
    if (decisions_ > 0) --decisions_;
    if (elsewhere_ && NodesWithAffinity(*copy_, request_.affinity).empty()) return std::nullopt;
    auto placement = copy_->DecideOn(target_->node->name, request_);
    if (!placement) return std::nullopt;
    return *std::move(placement);
  }

  void Offer(std::span<const PlacedPod* const> gone, const Placement& placement) {
    Burden burden = BurdenOf(target_->node->name, gone);
    if (best_ && !(burden < *best_)) return;
    best_ = std::move(burden);
    best_placement_ = placement;
  }

  const Cluster& cluster_;
  const Modes modes_;
  const PodRequest& request_;
  const PodTest& may_go_;
  const DisplacementOptions& options_;
  Shortage shortage_;
  const Names affinity_;
  uint32_t decisions_;
  uint64_t sums_;
  bool exact_ = true;
  std::optional<Burden> best_;
  Placement best_placement_;
  // Of the node that is being tried.
  const Target* target_ = nullptr;
  Cluster* copy_ = nullptr;
  bool elsewhere_ = false;  // pods of its affinity are on other nodes too
  std::vector<size_t> chosen_;
  bool found_ = false;
};

}  // namespace

Result<Displacement> LeastDisturbance(const Cluster& cluster, Modes modes,
                                      const PodRequest& request, const PodTest& may_go,
                                      const DisplacementOptions& options) {
  return Displacer(cluster, modes, request, may_go, options).Run();
}

Result<Displacement> Preempt(const Cluster& cluster, Modes modes, const PodRequest& request,
                             const DisplacementOptions& options) {
  static const Names kNone;
  const auto now =
      DecideOff(cluster, request, options.avoided != nullptr ? *options.avoided : kNone);
  if (now) {
    return Fail(ErrorCode::kNotFound,
                request.name + " fits on node " + now->node + " as it is; nobody has to go");
  }
  if (now.error().code != ErrorCode::kExhausted) return tl::unexpected(now.error());
  return LeastDisturbance(
      cluster, modes, request,
      [&](const PlacedPod& pod) { return pod.request.priority < request.priority; }, options);
}

}  // namespace baton::devmgr
