#include "tests/k8s/worlds/laws.h"

#include <fmt/format.h>

#include <algorithm>

#include "k8s/types/gpu_node.h"
#include "k8s/types/gpu_pod.h"
#include "tests/k8s/binder/objects.h"

namespace baton::k8s::testing {
namespace {

bool Is(const Json& object, const char* pointer) { return Find(object, pointer) != nullptr; }

bool HasEnded(const Json& pod) {
  const std::string phase = TextAt(pod, "status/phase");
  return phase == "Succeeded" || phase == "Failed";
}

bool HasEndedShare(const Json& share) {
  return HasEnded(share) || Is(share, "metadata/deletionTimestamp");
}

// The GPUs that it must be on once `gone` have gone, for its word of affinity; none: any.
std::set<std::string> Near(const Wish& wish, const Pods& all, const Pods& gone = {}) {
  Pods stay;
  for (const devmgr::PlacedPod* pod : all) {
    if (std::find(gone.begin(), gone.end(), pod) == gone.end()) stay.push_back(pod);
  }
  return CardsWithWord(wish.request.affinity, stay);
}

}  // namespace

Laws::Laws(World& world, LawOptions options) : world_(world), options_(options) { Restarted(); }

Pods Laws::All() const {
  Pods pods;
  for (const auto& [name, pod] : world_.leader().core().cluster().pods()) pods.push_back(&pod);
  return pods;
}

Pods Laws::On(const Pods& pods, const std::string& node, const Pods& without) {
  Pods on;
  for (const devmgr::PlacedPod* pod : pods) {
    const bool left_out = std::find(without.begin(), without.end(), pod) != without.end();
    if (pod->placement.node == node && !left_out) on.push_back(pod);
  }
  return on;
}

std::vector<NodeSeen> Laws::ToldNodes() const {
  std::vector<NodeSeen> nodes;
  const auto& gpu_nodes = world_.leader().Told(Watched::kGpuNode);
  for (const auto& [name, node] : world_.leader().Told(Watched::kNode)) {
    const auto gpus = gpu_nodes.find(name);
    nodes.push_back(SeeNode(node, gpus == gpu_nodes.end() ? nullptr : &gpus->second));
  }
  return nodes;
}

std::vector<NodeSeen> Laws::Nodes() {
  std::vector<NodeSeen> nodes;
  for (const Json& node : world_.All(resources::kNodes)) {
    const auto gpus = world_.Get(resources::kGpuNodes, TextAt(node, "metadata/name"));
    nodes.push_back(SeeNode(node, gpus ? &*gpus : nullptr));
  }
  return nodes;
}

// Priorities are those of the classes that the core was told.
std::optional<Wish> Laws::ToldWish(const std::string& key) const {
  const size_t slash = key.find('/');
  const ObjectName name{key.substr(0, slash), key.substr(slash + 1)};
  const auto& shares = world_.leader().Told(Watched::kSharePod);
  const auto& pods = world_.leader().Told(Watched::kPod);
  if (const auto share = shares.find(name);
      share != shares.end() && !Is(share->second, "metadata/deletionTimestamp")) {
    auto wish = WishOf(share->second);
    if (!wish) return wish;
    const auto& classes = world_.leader().Told(Watched::kPriorityClass);
    const auto found =
        classes.find({"", TextAt(share->second, "spec/template/spec/priorityClassName")});
    if (found != classes.end()) {
      wish->priority = found->second["value"].get<int32_t>();
      wish->displaces = TextAt(found->second, "preemptionPolicy") != "Never";
    }
    // One that is there keeps its limits; that of a SharePod before is none of its own.
    if (const auto child = pods.find(name); child != pods.end()) {
      const std::string owner = TextAt(child->second, "metadata/ownerReferences/0/uid");
      if (owner != UidOf(share->second)) return std::nullopt;
      if (const auto is = WishOf(child->second)) {
        wish->shares = is->shares;
        wish->memory = is->memory;
      }
    }
    return wish;
  }
  const auto pod = pods.find(name);
  if (pod == pods.end()) return std::nullopt;
  return WishOf(pod->second);
}

bool Laws::HasLastingPlace(const ObjectName& name) const {
  const auto& pods = world_.leader().Told(Watched::kPod);
  if (const auto pod = pods.find(name); pod != pods.end()) {
    if (Is(pod->second, "metadata/deletionTimestamp")) return false;
    // It is on its node, or was: what there is of GPUs there may not be known.
    if (!TextAt(pod->second, "spec/nodeName").empty() &&
        TextAt(pod->second, "status/reason").empty()) {
      return true;
    }
  }
  return world_.core().cluster().Find(name.Text()) != nullptr;
}

std::string Laws::UidOfTold(const std::string& key) const {
  const size_t slash = key.find('/');
  const ObjectName name{key.substr(0, slash), key.substr(slash + 1)};
  for (const Watched kind : {Watched::kSharePod, Watched::kPod}) {
    const auto& told = world_.leader().Told(kind);
    if (const auto found = told.find(name); found != told.end()) return UidOf(found->second);
  }
  return "";
}

void Laws::AfterStep(const Effects& effects) {
  if (!broken_.law.empty()) return;
  for (const auto& [name, team] : world_.leader().Told(Watched::kTeam)) {
    Json& known = teams_told_[name.name];
    if (known == team) continue;
    known = team;
    teams_.Set(team);
  }
  for (auto known = teams_told_.begin(); known != teams_told_.end();) {
    if (world_.leader().Told(Watched::kTeam).contains({"", known->first})) {
      ++known;
      continue;
    }
    teams_.Remove(known->second);
    known = teams_told_.erase(known);
  }
  teams_.Settle();
  CheckBooks();
  std::set<std::string> placed;  // now, by a decision
  const auto& told = world_.leader().Told(Watched::kPod);
  for (const devmgr::PlacedPod* pod : All()) {
    const std::string& key = pod->request.name;
    const auto was = before_.find(key);
    if (was != before_.end() && was->second.node == pod->placement.node) continue;
    const size_t slash = key.find('/');
    const auto seen = told.find({key.substr(0, slash), key.substr(slash + 1)});
    if (seen != told.end() && !TextAt(seen->second, "spec/nodeName").empty()) continue;
    // The answer to a write may tell before the watch does.
    const auto is = world_.Get(resources::kPods, key.substr(slash + 1));
    if (is && !TextAt(*is, "spec/nodeName").empty()) continue;
    placed.insert(key);
  }
  const std::set<std::string> restored = Restored(placed);
  CheckPlaces(placed, restored);
  CheckGangs(placed);
  CheckCeilings(placed, restored);
  if (placed != restored) held_.clear();
  CheckPreemptions(effects, placed);
  CheckDeletions(effects);
  before_.clear();
  for (const devmgr::PlacedPod* pod : All()) before_[pod->request.name] = pod->placement;
}

std::set<std::string> Laws::Restored(const std::set<std::string>& placed) {
  std::set<std::string> restored;
  const auto& shares = world_.leader().Told(Watched::kSharePod);
  for (const std::string& key : placed) {
    const auto share = shares.find({key.substr(0, key.find('/')), key.substr(key.find('/') + 1)});
    if (share == shares.end() || !decided_.insert(UidOf(share->second)).second) continue;
    const auto before = ParsePlacement(TextAt(share->second, "status/placement"));
    const devmgr::Placement& now = world_.core().cluster().Find(key)->placement;
    if (before && before->node == now.node) restored.insert(key);
  }
  return restored;
}

void Laws::CheckPlaces(const std::set<std::string>& placed, const std::set<std::string>& restored) {
  for (const std::string& key : placed) {
    const devmgr::PlacedPod& pod = *world_.core().cluster().Find(key);
    auto wish = ToldWish(key);
    if (!wish) continue;
    const auto nodes = ToldNodes();
    const auto node = std::find_if(nodes.begin(), nodes.end(),
                                   [&](const NodeSeen& n) { return n.name == pod.placement.node; });
    if (node == nodes.end()) {
      Break("place", key + " is put on " + pod.placement.node + ", which is not there");
      continue;
    }
    // What was decided before a restart goes on, whatever was closed since.
    NodeSeen seen = *node;
    if (restored.contains(key)) {
      seen.closed.clear();
      for (devmgr::Card& card : seen.cards) {
        card.cordoned = false;
        card.health = devmgr::Health::kHealthy;
      }
      seen.shares.reset();
      seen.memory.reset();
    }
    const std::string wrong = WrongPlace(*wish, pod.placement, seen, On(All(), node->name, {&pod}));
    if (!wrong.empty()) Break("place", key, " is put on ", node->name, ": ", wrong);
  }
}

void Laws::CheckBooks() {
  const devmgr::Cluster& cluster = world_.core().cluster();
  struct Use {
    uint64_t share = 0;
    uint64_t memory_mib = 0;
    uint64_t vgpus = 0;
  };
  std::map<std::string, Use> uses;
  for (const auto& [key, pod] : cluster.pods()) {
    if (key != pod.request.name) Break("books", key + " is booked as " + pod.request.name);
    for (const devmgr::Vgpu& vgpu : pod.placement.vgpus) {
      Use& use = uses[vgpu.card];
      use.share += vgpu.fit.share.millionths();
      use.memory_mib += vgpu.fit.memory_mib;
      ++use.vgpus;
    }
  }
  for (const devmgr::Node* node : cluster.Nodes()) {
    for (const devmgr::Card& card : node->cards) {
      const devmgr::CardUse* use = cluster.UseOf(card.uuid);
      const Use& sum = uses[card.uuid];
      if (use->share.millionths() != sum.share || use->memory_mib != sum.memory_mib ||
          use->vgpus != sum.vgpus) {
        Break("books", card.uuid + " is booked otherwise than its pods add up to");
      }
      if (sum.share > 1'000'000 || sum.memory_mib > card.memory_mib) {
        Break("overbooked",
              fmt::format("{}: {} of a million, {} MiB", card.uuid, sum.share, sum.memory_mib));
      }
    }
  }
}

void Laws::CheckGangs(const std::set<std::string>& placed) {
  std::set<std::string> gangs;
  for (const std::string& key : placed) {
    const auto wish = ToldWish(key);
    if (!wish || wish->gang.empty()) continue;
    const ObjectName name{key.substr(0, key.find('/')), key.substr(key.find('/') + 1)};
    const auto& shares = world_.leader().Told(Watched::kSharePod);
    const auto share = shares.find(name);
    // What was decided before goes on.
    if (share != shares.end() && Is(share->second, "status/placement")) continue;
    gangs.insert(wish->gang);
  }
  for (const std::string& gang : gangs) {
    size_t members = 0;
    uint32_t size = 0;
    const auto look = [&](const ObjectName& name, const Json& object, bool ended) {
      const auto wish = WishOf(object);
      if (!wish || wish->gang != gang) return;
      if (Is(object, "metadata/deletionTimestamp")) return;
      ++members;
      size = std::max(size, wish->gang_size);
      // That it is gone, an answer may have told before the watch does.
      const bool there =
          world_.Get(resources::kSharePods, name.name) || world_.Get(resources::kPods, name.name);
      if (ended || HasLastingPlace(name) || !there) return;
      Break("gang", "of gang " + gang + " some are placed, and not " + name.Text());
    };
    for (const auto& [name, share] : world_.leader().Told(Watched::kSharePod)) {
      const std::string phase = TextAt(share, "status/phase");
      look(name, share, phase == "Succeeded" || phase == "Failed");
    }
    for (const auto& [name, pod] : world_.leader().Told(Watched::kPod)) {
      // One whose SharePod has not been told yet stands for it; of one that is gone, none is left.
      const std::string owner = TextAt(pod, "metadata/ownerReferences/0/uid");
      if (world_.leader().EverToldShare(owner)) continue;
      if (!world_.leader().Told(Watched::kSharePod).contains(name)) look(name, pod, HasEnded(pod));
    }
    if (members < size) {
      Break("gang", fmt::format("gang {} is placed with {} of {} pods", gang, members, size));
    }
  }
}

void Laws::CheckPreemptions(const Effects& effects, const std::set<std::string>& placed) {
  const Pods all = All();
  const Guarantees guarantees(teams_.quotas().all(), all);
  // What is kept for one is given to nobody of no higher priority.
  if (options_.calm) {
    for (auto& [holder, kept] : preempting_) {
      const devmgr::Cluster& cluster = world_.core().cluster();
      // Whoever comes back comes as another pod.
      std::erase_if(kept.victims, [&](const std::string& key) {
        return cluster.Find(key) == nullptr || placed.contains(key);
      });
      const auto wish = ToldWish(holder);
      if (kept.victims.empty() || !wish || cluster.Find(holder) != nullptr) continue;
      if (UidOfTold(holder) != kept.uid) continue;
      for (const std::string& key : placed) {
        const devmgr::PlacedPod& pod = *cluster.Find(key);
        if (pod.placement.node != kept.node || pod.request.priority > wish->priority) continue;
        Break("kept", key, " gets room on ", kept.node, " that others make way for ", holder);
      }
    }
  }
  // Over: it has its place, or does not wait any more.
  std::erase_if(preempting_, [&](const auto& one) {
    return world_.core().cluster().Find(one.first) != nullptr || !ToldWish(one.first);
  });
  std::map<std::string, Pods> victims;  // by node
  for (const Write& write : effects.writes) {
    if (write.kind != WriteKind::kEvict) continue;
    const devmgr::PlacedPod* pod = world_.core().cluster().Find(write.name.Text());
    if (pod != nullptr) victims[pod->placement.node].push_back(pod);
  }
  for (const Note& note : effects.notes) {
    const std::string key = NameOf(note.about).Text();
    // "node NAME is kept until ..."
    if (note.reason == "KeepingNode") kept_[key] = note.text.substr(5, note.text.find(" is ") - 5);
    if (note.reason != "Preempting") continue;
    const size_t on = note.text.rfind(" on node ");
    const std::string node = note.text.substr(on + 9);
    const bool reclaims = note.text.find("borrowed") != std::string::npos;
    const size_t count = std::stoul(note.text.substr(9));
    const auto wish = ToldWish(key);
    if (!wish) continue;
    const Pods& gone = victims[node];
    preempting_[key] = {node, reclaims, UidOf(note.about), {}};
    for (const devmgr::PlacedPod* pod : gone) preempting_[key].victims.push_back(pod->request.name);
    if (gone.size() != count) continue;  // the others are told to go later
    const Sum more = SumOf(wish->request);
    for (const devmgr::PlacedPod* pod : gone) {
      const std::string& victim = pod->request.name;
      if (reclaims && !guarantees.Reclaimable(*pod, wish->team, more)) {
        Break("reclaim", victim, " has to go for ", key, ", and has not borrowed from it");
      } else if (!reclaims && pod->request.priority >= wish->priority) {
        Break("priority", victim, " has to go for ", key, " of no higher priority");
      } else if (!reclaims && (guarantees.Protected(victim, wish->team) ||
                               (guarantees.Covered(victim) &&
                                !guarantees.EntitledWithout(wish->team, more, gone)))) {
        Break("priority", victim, ", which is guaranteed its room, has to go for ", key);
      }
    }
    // Of a gang all others have their place.
    const auto& shares = world_.leader().Told(Watched::kSharePod);
    const bool alone =
        wish->gang.empty() || std::all_of(shares.begin(), shares.end(), [&](const auto& share) {
          const std::string other = share.first.Text();
          if (other == key || HasEndedShare(share.second)) return true;
          const auto is = WishOf(share.second);
          return !is || is->gang != wish->gang || HasLastingPlace(share.first);
        });
    if (!wish->displaces || !alone) {
      Break("preempts", key + " may displace nobody, and does");
    }
    const auto nodes = ToldNodes();
    const Sum most = MostOf(wish->request, nodes);
    const auto enough = [&](const Pods& without, const NodeSeen& there, const Sum& sum,
                            Takes takes = Takes::kAtMost) {
      // What a guarantee covers goes only for one that is guaranteed its room then.
      const bool covered = !reclaims && std::any_of(without.begin(), without.end(), [&](auto* pod) {
        return guarantees.Covered(pod->request.name);
      });
      return Fits(*wish, there, On(all, there.name, without), Near(*wish, all, without), takes) &&
             guarantees.Broken(wish->team, sum, without).empty() &&
             (!covered || guarantees.EntitledWithout(wish->team, sum, without));
    };
    for (const NodeSeen& there : nodes) {
      if (there.name == node) {
        // Whoever is above it may have grown into the room since, in the same step.
        const Pods on = On(all, node);
        const bool taken = std::any_of(on.begin(), on.end(), [&](const devmgr::PlacedPod* pod) {
          const auto was = before_.find(pod->request.name);
          return pod->request.priority > wish->priority && was != before_.end() &&
                 was->second != pod->placement;
        });
        if (!taken && !enough(gone, there, more, Takes::kAtLeast)) {
          Break("in-vain", fmt::format("{} pods have to go from {} for {}, which does not fit then",
                                       count, node, key));
        }
        for (size_t v = 0; v < gone.size(); ++v) {
          Pods fewer = gone;
          fewer.erase(fewer.begin() + static_cast<ptrdiff_t>(v));
          if (enough(fewer, there, most)) {
            Break("needless", fmt::format("{} has to go for {}, which fits without that",
                                          gone[v]->request.name, key));
          }
        }
      }
      const bool kept = std::any_of(preempting_.begin(), preempting_.end(), [&](const auto& one) {
        return one.first != key && one.second.node == there.name;
      });
      if (!kept && !IsKeptForMoves(there.name, key) && !options_.keeps && !wish->volumes &&
          enough({}, there, most)) {
        Break("needless", fmt::format("pods have to go for {}, which fits on {}", key, there.name));
      }
    }
  }
}

// No pod goes because its SharePod has not been seen yet.
void Laws::CheckDeletions(const Effects& effects) {
  for (const Write& write : effects.writes) {
    if (write.kind != WriteKind::kDeletePod) continue;
    const auto pod = world_.Get(resources::kPods, write.name.name);
    const auto share = world_.Get(resources::kSharePods, write.name.name);
    if (!pod || UidOf(*pod) != write.uid || !share) continue;
    if (TextAt(*pod, "metadata/ownerReferences/0/uid") != UidOf(*share)) continue;
    const auto& told = world_.leader().Told(Watched::kSharePod);
    if (!told.contains(write.name) && !Is(*share, "metadata/deletionTimestamp")) {
      Break("orphan", write.name.Text() + " is deleted, and its SharePod is there");
    }
  }
}

std::vector<Laws::Waiter> Laws::Waiters() {
  std::vector<Waiter> waiters;
  for (const Json& share : world_.All(resources::kSharePods)) {
    const std::string phase = TextAt(share, "status/phase");
    if (phase == "Succeeded" || phase == "Failed" || Is(share, "metadata/deletionTimestamp")) {
      continue;
    }
    const std::string name = NameOf(share).name;
    if (world_.IsBound(name)) continue;
    auto wish = ToldWish(NameOf(share).Text());
    if (wish && !wish->volumes)
      waiters.push_back({*std::move(wish), ReasonOf(share, "Placed"), true});
  }
  for (const Json& pod : world_.All(resources::kPods)) {
    if (Is(pod, "metadata/ownerReferences") || !TextAt(pod, "spec/nodeName").empty()) continue;
    if (HasEnded(pod) || Is(pod, "metadata/deletionTimestamp")) continue;
    if (const Json* gates = Find(pod, "spec/schedulingGates"); gates && !gates->empty()) continue;
    auto wish = WishOf(pod);
    if (wish) waiters.push_back({*std::move(wish), ReasonOf(pod, "PodScheduled"), false});
  }
  return waiters;
}

void Laws::CheckBooked() {
  std::map<std::string, devmgr::Placement> bound;
  for (const Json& pod : world_.All(resources::kPods)) {
    if (!TakesRoom(pod)) continue;
    const auto placement = ReadPlacement(pod);
    if (placement && *placement) bound[NameOf(pod).Text()] = **placement;
  }
  for (const devmgr::PlacedPod* pod : All()) {
    const auto is = bound.find(pod->request.name);
    if (is == bound.end()) {
      Break("books", pod->request.name + " is booked, and not bound");
    } else if (!(is->second == pod->placement)) {
      Break("books", pod->request.name + " is booked otherwise than its annotation says");
    }
  }
  for (const auto& [key, placement] : bound) {
    if (world_.core().cluster().Find(key) == nullptr) {
      Break("books", key + " is bound, and not booked");
    }
  }
  if (world_.core().counts().unbooked != 0) Break("books", "some pods could not be booked");
}

void Laws::CheckPhases() {
  for (const Json& share : world_.All(resources::kSharePods)) {
    const std::string name = NameOf(share).name;
    const std::string phase = TextAt(share, "status/phase");
    const auto pod = world_.Get(resources::kPods, name);
    if (phase == "Pending") {
      if (pod && world_.IsBound(name) && !HasEnded(*pod)) {
        Break("phase", name + " is Pending, and its pod is on a node");
      }
    } else if (phase == "Bound" || phase == "Running") {
      if (!pod || TextAt(*pod, "spec/nodeName") != TextAt(share, "status/node")) {
        Break("phase", name + " says that it is on a node, and is not");
      }
    } else if (phase == "Succeeded" || phase == "Failed") {
      if (!world_.Completed(UidOf(share)) ||
          TextAt(share, "spec/template/spec/restartPolicy", "Always") == "Always") {
        Break("phase", name, " is ", phase, ", and its pod did not end by itself");
      }
    } else {
      Break("phase", name, " has the phase '", phase, "'");
    }
  }
}

// Those in force agree, and one that is not would not agree with them.
void Laws::CheckWaiter(const Waiter& waiter, const std::vector<NodeSeen>& nodes) {
  const Wish& wish = waiter.wish;
  const Pods all = All();
  const Guarantees guarantees(teams_.quotas().all(), all);
  const Sum most = MostOf(wish.request, nodes);
  if (!wish.gang.empty()) {
    size_t members = 0;
    for (const Resource* kind : {&resources::kSharePods, &resources::kPods}) {
      for (const Json& object : world_.All(*kind)) {
        if (Is(object, "metadata/ownerReferences")) continue;
        if (Is(object, "metadata/deletionTimestamp")) continue;
        const auto other = WishOf(object);
        members += other && other->gang == wish.gang;
      }
    }
    const bool few = members < wish.gang_size;
    // A pod says what autoscalers go by, whatever the reason.
    if (waiter.share && few != (waiter.reason == "WaitingForGang")) {
      Break("reason", fmt::format("{} says '{}', and {} of {} of its gang exist", wish.key,
                                  waiter.reason, members, wish.gang_size));
    }
    return;
  }
  if (waiter.reason == "VolumeUnbound" || waiter.reason == "Invalid") return;
  const bool full = !guarantees.Broken(wish.team, most).empty();
  if (waiter.reason != "Unschedulable" && waiter.reason != "TeamCeiling" &&
      waiter.reason != "NoSuchCard") {
    Break("reason", wish.key + " waits, and says '" + waiter.reason + "'");
  }
  for (const NodeSeen& node : nodes) {
    const Pods there = On(all, node.name);
    if (!full && Fits(wish, node, there, Near(wish, all))) {
      Break("waits", wish.key + " waits, and fits on " + node.name);
    }
    if (!wish.displaces) continue;
    Pods lower, uncovered, borrowed;
    for (const devmgr::PlacedPod* pod : there) {
      if (pod->request.priority < wish.priority &&
          !guarantees.Protected(pod->request.name, wish.team)) {
        lower.push_back(pod);
        if (!guarantees.Covered(pod->request.name)) uncovered.push_back(pod);
      }
      // What it takes must be guaranteed: beyond that it would have to go again.
      if (guarantees.Reclaimable(*pod, wish.team, most)) borrowed.push_back(pod);
    }
    const auto would_fit = [&](const Pods& gone) {
      return !gone.empty() && Fits(wish, node, On(all, node.name, gone), Near(wish, all, gone)) &&
             guarantees.Broken(wish.team, most, gone).empty();
    };
    const bool guaranteed = guarantees.EntitledWithout(wish.team, most, lower);
    if (would_fit(guaranteed ? lower : uncovered)) {
      Break("preempt", wish.key + " waits, and pods of lower priority are on " + node.name);
    }
    if (would_fit(borrowed)) {
      Break("guarantee", wish.key + " waits for what " + wish.team +
                             " is guaranteed, and pods that borrow it are on " + node.name);
    }
  }
}

void Laws::AtRest() {
  if (!broken_.law.empty()) return;
  if (!world_.wrong().empty()) return Break("api", world_.wrong());
  if (const std::string wrong = world_.Wrong(); !wrong.empty()) return Break("api", wrong);
  CheckBooked();
  CheckPhases();
  CheckTeams();
  if (options_.keeps) return;
  const std::vector<NodeSeen> nodes = Nodes();
  for (const Waiter& waiter : Waiters()) CheckWaiter(waiter, nodes);
}

void Laws::AtTheEnd() {
  if (!broken_.law.empty()) return;
  if (!world_.wrong().empty()) return Break("api", world_.wrong());
  const Guarantees guarantees(teams_.quotas().all(), {});
  const std::vector<NodeSeen> nodes = Nodes();
  std::map<std::string, std::vector<Wish>> gangs;
  for (const Waiter& waiter : Waiters()) {
    const Wish& wish = waiter.wish;
    if (waiter.reason == "VolumeUnbound") continue;
    if (!wish.gang.empty()) {
      gangs[wish.gang].push_back(wish);
      continue;
    }
    if (!guarantees.Broken(wish.team, MostOf(wish.request, nodes)).empty()) continue;
    for (const NodeSeen& node : nodes) {
      if (Fits(wish, node, {}, {})) {
        Break("starves", wish.key + " waits, and fits on " + node.name + ", which is empty");
      }
    }
  }
  // A gang of pods of one GPU each, where there are so many GPUs that each of them would do.
  for (const auto& [gang, members] : gangs) {
    std::map<std::string, Sum> sums;
    size_t gpus = 0;
    for (const NodeSeen& node : nodes) {
      for (const devmgr::Card& card : node.cards) {
        NodeSeen only = node;
        only.cards = {card};
        gpus += std::all_of(members.begin(), members.end(), [&](const Wish& wish) {
          return wish.request.containers.size() == 1 && Fits(wish, only, {}, {});
        });
      }
    }
    for (const Wish& wish : members) sums[wish.team] += SumOf(wish.request);
    size_t there = 0;
    for (const Json& share : world_.All(resources::kSharePods)) {
      const auto wish = WishOf(share);
      there += wish && wish->gang == gang;
    }
    for (const Json& pod : world_.All(resources::kPods)) {
      const auto wish = WishOf(pod);
      there += wish && wish->gang == gang && !Is(pod, "metadata/ownerReferences");
    }
    if (there != members.size()) continue;
    Sum all;
    for (const auto& [team, sum] : sums) all += sum;
    const bool full = std::any_of(sums.begin(), sums.end(), [&](const auto& sum) {
      return !guarantees.Broken(sum.first, all).empty();
    });
    if (members.size() >= members.front().gang_size && gpus >= members.size() && !full) {
      Break("starves", "gang " + gang + " waits, and there are " + std::to_string(gpus) +
                           " empty GPUs for it");
    }
  }
}

}  // namespace baton::k8s::testing
