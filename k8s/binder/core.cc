#include "k8s/binder/core.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <deque>
#include <limits>
#include <map>
#include <set>
#include <utility>
#include <variant>

#include "base/utf8.h"
#include "k8s/api/timestamp.h"
#include "k8s/binder/cluster_view.h"
#include "k8s/types/share_pod.h"

namespace baton::k8s {
namespace {

using devmgr::Placement;
using devmgr::PodRequest;

constexpr size_t kMessageMax = 1'000;
constexpr size_t kTombstonesMax = 20'000;
constexpr Duration kDeleteAgain = std::chrono::seconds(30);
constexpr Instant kAlways = Instant::min();

bool Flag(const Json& object, std::string_view pointer) {
  const Json* found = Find(object, pointer);
  return found != nullptr && found->is_boolean() && found->get<bool>();
}

int64_t IntegerAt(const Json& object, std::string_view pointer, int64_t missing = 0) {
  const Json* found = Find(object, pointer);
  return found != nullptr && found->is_number_integer() ? found->get<int64_t>() : missing;
}

// Resource versions are told apart only; where both are numbers, as they are with etcd, the greater
// is the newer, which tells a watch's event from the answer to a later write.
bool IsOlder(const std::string& a, const std::string& b) {
  const auto number = [](const std::string& text, uint64_t* value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
    return error == std::errc() && end == text.data() + text.size();
  };
  uint64_t left = 0;
  uint64_t right = 0;
  return number(a, &left) && number(b, &right) && left < right;
}

// "2026-11-21T21:55:42Z" as 20261121215542: in the order in which things came.
uint64_t SinceOf(const Json& object) {
  uint64_t since = 0;
  size_t digits = 0;
  for (const char c : TextAt(object, "metadata/creationTimestamp")) {
    if (c < '0' || c > '9' || digits == 14) continue;
    since = since * 10 + static_cast<uint64_t>(c - '0');
    ++digits;
  }
  return since;
}

// What an Event needs to know of what it is about.
Json About(const Json& object, const char* kind, const std::string& version) {
  return {{"apiVersion", version},
          {"kind", kind},
          {"metadata",
           {{"name", TextAt(object, "metadata/name")},
            {"namespace", TextAt(object, "metadata/namespace")},
            {"uid", UidOf(object)},
            {"resourceVersion", ResourceVersionOf(object)}}}};
}

std::string Rfc3339(int64_t unix_s) {
  return Timestamp(std::chrono::system_clock::time_point(std::chrono::seconds(unix_s)));
}

std::string Cut(std::string text) {
  text = ToUtf8(text);
  if (text.size() <= kMessageMax) return text;
  size_t at = kMessageMax;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) --at;
  text.resize(at);
  return text + " ...";
}

// A pod, as far as the binder looks at it.
struct Pod {
  Json object;  // null where it is none of Baton's
  std::string uid;
  std::string version;
  std::string node;
  std::string owner;  // uid of its SharePod
  std::string phase;
  bool takes_room = false;
  bool deleting = false;
  bool ours = false;   // to be bound by us
  bool gated = false;  // not to be bound yet
  bool ready = false;
  bool whole = false;  // asks for whole cards
  GpuPod gpu;
  std::string wrong;  // why `gpu` or `needs` cannot be read
  PodNeeds needs;
  PodRequest request;
  std::optional<Placement> placement;

  bool finished() const { return phase == "Succeeded" || phase == "Failed"; }
};

struct Share {
  Json object;
  std::string uid;
  std::string version;
  int64_t generation = 0;
  bool deleting = false;
  bool was_bound = false;  // its status says so
  std::string phase;
  std::optional<Placement> placement;  // of its status
  std::optional<Json> child;           // as it would be made now
  std::string wrong;
  GpuPod gpu;
  PodNeeds needs;
  PodRequest request;
  std::map<std::string, uint64_t> resources;  // that a child would take which is made now

  bool finished() const { return phase == "Succeeded" || phase == "Failed"; }
};

// Why something waits.
struct Why {
  std::string kind;  // CamelCase
  std::string text;
  friend bool operator==(const Why&, const Why&) = default;
};

struct Entry {
  ObjectName name;
  std::string key;
  std::optional<Share> share;
  std::optional<Pod> pod;
  uint64_t on_its_way = 0;  // id of the write
  Write write;              // without its body
  Placement bind_to;        // of a Binding that is on its way
  Instant retry_at = kAlways;
  uint32_t failures = 0;
  bool stale = false;       // waits for a newer version
  std::string bind_uid;     // a Binding was sent for it and was not refused
  std::string deleted_uid;  // it was deleted
  std::string evict_uid;    // it has to go
  std::string evict_for;    // for this one
  std::string marked_uid;   // its condition says so
  bool waits = false;       // in waiting_
  bool learned = false;
  uint32_t passed_over = 0;
  Why why;    // now
  Why shown;  // what its condition says
  Instant shown_at = kAlways;
  Why refusal;  // the API server does not take its child or Binding: its words
  uint32_t refusals = 0;
  Instant refused_until = kAlways;  // then it is tried again
  std::string resize;               // why it could not be resized
  std::string gang;                 // "namespace/word"
};

struct Told {
  Watched kind;
  bool gone;
  Json object;
};

// A pod for which others were sent away.
struct Displacing {
  std::string node;
  std::map<std::string, std::string> victims;  // uids by key
};

// What a round said of one that waits.
struct Refused {
  Why why;
  PodNeeds needs;
};

std::string_view PhaseOf(const Pod& pod) {
  if (pod.finished()) return pod.phase == "Failed" ? "Failed" : "Succeeded";
  return pod.phase == "Running" ? "Running" : "Bound";
}

bool OneSays(const Json& object, std::string_view type) {
  const Json* list = Find(object, "status/conditions");
  if (list == nullptr || !list->is_array()) return false;
  for (const Json& condition : *list) {
    if (TextAt(condition, "type") == type) return TextAt(condition, "status") == "True";
  }
  return false;
}

// The uid of the SharePod that controls it.
std::string OwnerOf(const Json& pod) {
  const Json* owners = Find(pod, "metadata/ownerReferences");
  if (owners == nullptr || !owners->is_array()) return "";
  for (const Json& owner : *owners) {
    if (!Flag(owner, "controller") || TextAt(owner, "kind") != resources::kSharePods.kind) continue;
    if (TextAt(owner, "apiVersion").starts_with(resources::kSharePods.group + "/")) {
      return TextAt(owner, "uid");
    }
  }
  return "";
}

// What a group of virtual GPUs is to have on its card.
struct Part {
  policy::Share share;
  uint32_t memory_mib;
};
std::optional<Part> WantedAt(const PodRequest& request, const devmgr::Vgpu& vgpu,
                             const devmgr::Cluster& cluster) {
  if (vgpu.container >= request.containers.size()) return std::nullopt;
  const auto& groups = request.containers[vgpu.container].vgpus;
  if (vgpu.group >= groups.size()) return std::nullopt;
  if (vgpu.mode != "time-slice") return Part{vgpu.fit.share, vgpu.fit.memory_mib};
  const devmgr::VgpuRequest& group = groups[vgpu.group];
  if (group.memory_part == 0) return Part{group.share, group.memory_mib};
  const devmgr::Card* card = cluster.FindCard(vgpu.card);
  if (card == nullptr) return std::nullopt;
  const uint64_t mib = uint64_t{card->memory_mib} * group.memory_part / policy::kWhole;
  return Part{group.share, static_cast<uint32_t>(std::max<uint64_t>(mib, 1))};
}

bool IsAsAsked(const PodRequest& request, const Placement& placement,
               const devmgr::Cluster& cluster) {
  size_t asked = 0;
  for (const auto& container : request.containers) {
    for (const auto& group : container.vgpus) asked += group.count;
  }
  if (asked != placement.vgpus.size()) return false;
  return std::all_of(placement.vgpus.begin(), placement.vgpus.end(), [&](const auto& vgpu) {
    const auto part = WantedAt(request, vgpu, cluster);
    return part && part->share == vgpu.fit.share && part->memory_mib == vgpu.fit.memory_mib;
  });
}

}  // namespace

class Core::Impl {
 public:
  explicit Impl(CoreOptions given)
      : options(std::move(given)), view(options.memory_unit_mib, options.policy) {}

  // ------------------------------------------------------------------------------ what is told

  Entry& At(const ObjectName& name) {
    const std::string key = name.Text();
    Entry& entry = entries[key];
    if (entry.key.empty()) {
      entry.key = key;
      entry.name = name;
    }
    return entry;
  }

  void Touch(const std::string& key) { touched.insert(key); }

  void Hear(Told& told) {
    switch (told.kind) {
      case Watched::kNode:
        if (told.gone) {
          view.RemoveNode(TextAt(told.object, "metadata/name"));
          TouchAssumedOn(TextAt(told.object, "metadata/name"));
        } else {
          view.SetNode(told.object);
        }
        break;
      case Watched::kGpuNode:
        if (told.gone) {
          view.RemoveGpuNode(TextAt(told.object, "metadata/name"));
        } else if (std::string trouble = view.SetGpuNode(told.object); !trouble.empty()) {
          troubles.push_back(std::move(trouble));
        }
        break;
      case Watched::kPod:
        told.gone ? PodGone(told.object) : PodChanged(std::move(told.object));
        break;
      case Watched::kSharePod:
        told.gone ? ShareGone(told.object) : ShareChanged(std::move(told.object));
        break;
      case Watched::kPriorityClass:
        HearClass(told);
        break;
      case Watched::kClaim:
      case Watched::kVolume:
        HearVolume(told);
        break;
    }
  }

  void HearClass(const Told& told) {
    const std::string name = TextAt(told.object, "metadata/name");
    const auto value = static_cast<int32_t>(
        std::clamp<int64_t>(IntegerAt(told.object, "value"), INT32_MIN, INT32_MAX));
    classes.erase(name);
    if (default_class == name) default_class.clear();
    if (!told.gone) {
      classes[name] = value;
      if (Flag(told.object, "globalDefault")) default_class = name;
    }
    for (auto& [key, entry] : entries) {
      if (!entry.share) continue;
      SetPriority(*entry.share);
      Touch(key);
    }
  }

  void HearVolume(const Told& told) {
    if (told.kind == Watched::kClaim) {
      const std::string key = NameOf(told.object).Text();
      claims.erase(key);
      if (!told.gone) {
        claims[key] = TextAt(told.object, "status/phase") == "Bound"
                          ? TextAt(told.object, "spec/volumeName")
                          : "";
      }
    } else {
      const std::string name = TextAt(told.object, "metadata/name");
      volumes.erase(name);
      if (!told.gone) volumes[name] = VolumeTerms(told.object);
    }
    for (const std::string& key : claimants) Touch(key);
  }

  void TouchAssumedOn(const std::string& node) {
    for (const devmgr::PlacedPod* pod : view.cluster().PodsOn(node)) Touch(pod->request.name);
  }

  bool IsBuried(const std::string& uid) const { return tombstones.contains(uid); }
  void Bury(const std::string& uid) {
    if (uid.empty() || !tombstones.insert(uid).second) return;
    buried.push_back(uid);
    if (buried.size() <= kTombstonesMax) return;
    tombstones.erase(buried.front());
    buried.pop_front();
  }

  void PodChanged(Json object) {
    const std::string uid = UidOf(object);
    if (uid.empty() || IsBuried(uid)) return;
    Entry& entry = At(NameOf(object));
    const std::string version = ResourceVersionOf(object);
    std::string node = TextAt(object, "spec/nodeName");
    if (entry.pod) {
      if (IsOlder(version, entry.pod->version)) return;
      // A pod never leaves its node: this is from before its Binding.
      if (entry.pod->uid == uid && node.empty() && !entry.pod->node.empty()) return;
      if (entry.pod->uid != uid) {
        Bury(entry.pod->uid);
        view.RemovePod(entry.key);
      }
    }
    Pod pod = ReadPod(std::move(object));
    if (pod.deleting) entry.retry_at = kAlways;
    // Another wish, another answer.
    round_wanted |= pod.ours && (!entry.pod || !(entry.pod->request == pod.request));
    entry.pod = std::move(pod);
    if (entry.pod->gpu.asks() && !entry.pod->node.empty()) Learn(entry, entry.pod->request);
    Register(entry);
    Join(entry);
    Fresh(entry);
    Touch(entry.key);
  }

  Pod ReadPod(Json object) {
    Pod pod;
    pod.uid = UidOf(object);
    pod.version = ResourceVersionOf(object);
    pod.owner = OwnerOf(object);
    pod.phase = TextAt(object, "status/phase");
    pod.deleting = Find(object, "metadata/deletionTimestamp") != nullptr;
    pod.ready = OneSays(object, "Ready");
    const Json* gates = Find(object, "spec/schedulingGates");
    pod.gated = gates != nullptr && gates->is_array() && !gates->empty();
    auto gpu = ReadGpuPod(object, options.memory_unit_mib);
    SeenPod seen = SeePod(object, gpu);
    pod.node = std::move(seen.node);
    pod.takes_room = seen.takes_room;
    pod.whole = seen.whole;
    pod.request = std::move(seen.request);
    pod.placement = std::move(seen.placement);
    if (gpu) {
      pod.gpu = *std::move(gpu);
    } else {
      pod.wrong = gpu.error().message;
    }
    if (!pod.node.empty() && !ReadPlacement(object)) {
      troubles.push_back("pod " + NameOf(object).Text() +
                         ": its annotation of cards is damaged; delete it");
    }
    const bool scheduler = TextAt(object, "spec/schedulerName") == options.scheduler;
    pod.ours = pod.node.empty() && scheduler;
    if (pod.ours && pod.wrong.empty()) {
      if (auto needs = ReadNeeds(object)) {
        pod.needs = *std::move(needs);
      } else {
        pod.wrong = needs.error().message;
      }
    }
    const bool batons =
        scheduler || !pod.owner.empty() || pod.gpu.asks() || pod.placement || !pod.wrong.empty();
    if (batons) {
      Json* metadata = &object["metadata"];
      if (metadata->is_object()) metadata->erase("managedFields");
      pod.object = std::move(object);
    }
    return pod;
  }

  // Tells the view of the entry's pod.
  void Register(const Entry& entry) {
    const Pod& pod = *entry.pod;
    view.SetPod({entry.key, pod.node, pod.takes_room, pod.whole, pod.placement, pod.request});
  }

  void PodGone(const Json& object) {
    const std::string uid = UidOf(object);
    Bury(uid);
    const auto it = entries.find(NameOf(object).Text());
    if (it == entries.end() || !it->second.pod || it->second.pod->uid != uid) return;
    Entry& entry = it->second;
    view.RemovePod(entry.key);
    entry.pod.reset();
    if (entry.bind_uid == uid) entry.bind_uid.clear();
    entry.deleted_uid.clear();
    entry.evict_uid.clear();
    entry.resize.clear();
    entry.passed_over = 0;
    entry.retry_at = kAlways;
    Join(entry);
    Touch(entry.key);
  }

  void ShareChanged(Json object) {
    const std::string uid = UidOf(object);
    if (uid.empty() || IsBuried(uid)) return;
    Entry& entry = At(NameOf(object));
    if (entry.share) {
      if (IsOlder(ResourceVersionOf(object), entry.share->version)) return;
      if (entry.share->uid != uid) {
        Bury(entry.share->uid);
        ForgetShare(entry);
      }
    }
    Share share;
    share.uid = uid;
    share.version = ResourceVersionOf(object);
    share.generation = IntegerAt(object, "metadata/generation");
    share.deleting = Find(object, "metadata/deletionTimestamp") != nullptr;
    share.was_bound = OneSays(object, "Bound");
    share.phase = TextAt(object, "status/phase");
    const std::string text = TextAt(object, "status/placement");
    if (!text.empty()) {
      if (auto placement = ParsePlacement(text)) {
        share.placement = *std::move(placement);
      } else {
        troubles.push_back("SharePod " + entry.key +
                           ": status.placement: " + placement.error().message);
      }
    }
    const bool known =
        entry.share && share.generation > 0 && entry.share->generation == share.generation;
    if (known) {
      share.child = std::move(entry.share->child);
      share.wrong = std::move(entry.share->wrong);
      share.gpu = std::move(entry.share->gpu);
      share.needs = std::move(entry.share->needs);
      share.request = std::move(entry.share->request);
      share.resources = std::move(entry.share->resources);
    } else {
      ReadChild(entry, object, share);
      round_wanted = true;
      Accepted(entry);
    }
    if (Json& metadata = object["metadata"]; metadata.is_object()) metadata.erase("managedFields");
    share.object = std::move(object);
    SetPriority(share);
    entry.share = std::move(share);
    Join(entry);
    Fresh(entry);
    Touch(entry.key);
  }

  void ReadChild(const Entry& entry, const Json& object, Share& share) const {
    auto child = ChildPod(object, options.memory_unit_mib);
    if (!child) {
      share.wrong = child.error().message;
      return;
    }
    if (auto injected = Inject(*child, options.inject); !injected) {
      share.wrong = "spec.template: " + injected.error().message;
      return;
    }
    auto gpu = ReadGpuPod(*child, options.memory_unit_mib);
    if (!gpu) {
      share.wrong = gpu.error().message;
      return;
    }
    auto needs = ReadNeeds(*child);
    if (!needs) {
      share.wrong = "spec.template." + needs.error().message;
      return;
    }
    share.gpu = *std::move(gpu);
    share.needs = *std::move(needs);
    share.request = share.gpu.request;
    share.request.name = entry.key;
    share.request.node_labels.clear();
    share.resources = OtherResources(*child);
    share.request.resources = share.resources;
    // It is bound to that node as to any other.
    if (Json& spec = (*child)["spec"]; spec.is_object()) spec.erase("nodeName");
    share.child = *std::move(child);
  }

  void SetPriority(Share& share) const {
    if (!share.child) return;
    const Json& child = *share.child;
    const std::string name = TextAt(child, "spec/priorityClassName", default_class);
    const auto found = classes.find(name);
    const int64_t value =
        IntegerAt(child, "spec/priority", found != classes.end() ? found->second : 0);
    share.request.priority = RankOf(value, share.gpu.priority);
  }

  void ForgetShare(Entry& entry) {
    entry.share.reset();
    entry.failures = 0;
    entry.retry_at = kAlways;
    entry.passed_over = 0;
    entry.why = entry.shown = Why();
    Accepted(entry);
  }

  void ShareGone(const Json& object) {
    const std::string uid = UidOf(object);
    Bury(uid);
    const auto it = entries.find(NameOf(object).Text());
    if (it == entries.end() || !it->second.share || it->second.share->uid != uid) return;
    ForgetShare(it->second);
    Join(it->second);
    Touch(it->first);
  }

  // A newer version is there.
  static void Fresh(Entry& entry) {
    if (!entry.stale) return;
    entry.stale = false;
    entry.retry_at = kAlways;
  }

  // Keeps account of who is in which gang.
  void Join(Entry& entry) {
    std::string gang;
    const std::string& space = entry.name.name_space;
    // Those that have ended were there.
    if (entry.share && !entry.share->deleting) {
      if (!entry.share->gpu.gang.empty()) gang = space + "/" + entry.share->gpu.gang;
    } else if (entry.pod && !entry.pod->deleting) {
      if (!entry.pod->gpu.gang.empty()) gang = space + "/" + entry.pod->gpu.gang;
    }
    if (gang == entry.gang) return;
    if (!entry.gang.empty()) {
      auto& members = gangs[entry.gang];
      members.erase(entry.key);
      for (const std::string& member : members) Touch(member);
      if (members.empty()) gangs.erase(entry.gang);
    }
    entry.gang = std::move(gang);
    if (entry.gang.empty()) return;
    auto& members = gangs[entry.gang];
    for (const std::string& member : members) Touch(member);
    members.insert(entry.key);
    round_wanted = true;
  }

  // ------------------------------------------------------------------------------------ results

  void Finish(WriteResult& result) {
    const auto it = ways.find(result.id);
    if (it == ways.end()) return;
    const auto found = entries.find(it->second);
    ways.erase(it);
    if (found == entries.end() || found->second.on_its_way != result.id) return;
    Entry& entry = found->second;
    entry.on_its_way = 0;
    Touch(entry.key);
    if (result.done) {
      entry.failures = 0;
      entry.retry_at = kAlways;
      Succeeded(entry, result);
    } else {
      Failed(entry, result.error);
    }
  }

  void Succeeded(Entry& entry, WriteResult& result) {
    switch (entry.write.kind) {
      case WriteKind::kStatus:
        ShareChanged(std::move(result.object));
        break;
      case WriteKind::kCreateChild:
        Accepted(entry);
        PodChanged(std::move(result.object));
        break;
      case WriteKind::kMarkVictim:
        entry.marked_uid = entry.write.uid;
        PodChanged(std::move(result.object));
        break;
      case WriteKind::kPatchPod:
      case WriteKind::kPodCondition:
        PodChanged(std::move(result.object));
        break;
      case WriteKind::kBind:
        Accepted(entry);
        Bound(entry);
        break;
      case WriteKind::kDeletePod:
        entry.deleted_uid = entry.write.uid;
        entry.retry_at = now.at + kDeleteAgain;
        break;
    }
  }

  // As the watch will show it.
  void Bound(Entry& entry) {
    entry.bind_uid.clear();
    ++totals.bound;
    if (!entry.pod || entry.pod->uid != entry.write.uid || !entry.pod->node.empty()) return;
    Pod& pod = *entry.pod;
    const Placement& to = entry.bind_to;
    pod.node = to.node;
    pod.ours = false;
    pod.object["spec"]["nodeName"] = to.node;
    if (pod.gpu.asks()) {
      pod.placement = to;
      Json& annotations = pod.object["metadata"]["annotations"];
      if (!annotations.is_object()) annotations = Json::object();
      for (auto& [key, value] : PlacementAnnotations(pod.gpu, to)) annotations[key] = value;
    }
    Register(entry);
    Tell(entry, false, "Scheduled", "Binding",
         fmt::format("bound to node {}{}", to.node, CardsText(to)));
  }

  void Failed(Entry& entry, const ApiError& error) {
    // Nobody knows whether it was carried out, or it may be the next time.
    const bool open = error.status == 0 || error.status == 401 || error.status == 408 ||
                      error.status == 429 || error.status >= 500;
    const bool conflict = error.conflict();
    conflict ? ++totals.conflicts : ++totals.failures;
    switch (entry.write.kind) {
      case WriteKind::kStatus:
        if (conflict) {
          // Somebody has changed it: what was decided is decided again with what it says now.
          if (IsAssumed(entry) && entry.bind_uid.empty() && !StandsInStatus(entry)) {
            view.Release(entry.key);
          }
          WaitForNewer(entry);
          return;
        }
        break;
      case WriteKind::kCreateChild:
        if (error.exists()) {
          WaitForNewer(entry);
          return;
        }
        if (open || conflict) break;  // of two that count in one quota, one meets the other
        Refuse(entry, "ChildRefused", error);
        return;
      case WriteKind::kBind:
        if (open) break;
        if (conflict || error.exists()) {
          // It is bound already, perhaps by us, or another has its name: the watch will tell.
          WaitForNewer(entry);
          return;
        }
        entry.bind_uid.clear();
        if (error.not_found()) {
          WaitForNewer(entry);
          return;
        }
        Refuse(entry, "BindingRefused", error);
        return;
      case WriteKind::kMarkVictim:
        // It goes all the same.
        if (!open) entry.marked_uid = entry.write.uid;
        [[fallthrough]];
      case WriteKind::kPatchPod:
      case WriteKind::kPodCondition:
      case WriteKind::kDeletePod:
        if (conflict || error.not_found()) {
          WaitForNewer(entry);
          return;
        }
        break;
    }
    if (error.not_found()) {
      WaitForNewer(entry);
      return;
    }
    entry.retry_at = now.at + std::max(Backoff(entry.failures++),
                                       std::min(error.retry_after, options.retry_max));
    if (!open) troubles.push_back(entry.key + ": " + error.message);
  }

  Duration Backoff(uint32_t failures) const {
    const uint32_t shift = std::min<uint32_t>(failures, 16);
    return std::min(options.retry_max, options.retry_min * (int64_t{1} << shift));
  }

  // The API server does not want it as it is: a quota, a policy, a field. Others may have its room
  // until it is tried again, and it says so until then and while it is tried.
  void Refuse(Entry& entry, const char* kind, const ApiError& error) {
    view.Release(entry.key);
    entry.refusal = {kind, error.message};
    entry.refused_until = now.at + Backoff(entry.refusals++);
    troubles.push_back(entry.key + ": " + error.message);
  }
  static void Accepted(Entry& entry) {
    entry.refusal = Why();
    entry.refusals = 0;
    entry.refused_until = kAlways;
  }
  // True: not yet.
  bool IsRefused(Entry& entry) {
    if (entry.refusal.kind.empty()) return false;
    entry.why = entry.refusal;
    if (now.at >= entry.refused_until) return false;
    timers.emplace(entry.refused_until, entry.key);
    return true;
  }

  // The cache is behind; if nothing comes, it is tried again.
  void WaitForNewer(Entry& entry) {
    entry.stale = true;
    entry.retry_at = now.at + Backoff(entry.failures++);
  }

  // --------------------------------------------------------------------------------- what to do

  // Booked by a decision, and not seen on a node yet.
  bool IsAssumed(const Entry& entry) const {
    return view.IsBooked(entry.key) && !view.IsBound(entry.key);
  }
  const Placement& PlaceOf(const Entry& entry) const {
    return view.cluster().Find(entry.key)->placement;
  }
  bool StandsInStatus(const Entry& entry) const {
    return entry.share && entry.share->placement && *entry.share->placement == PlaceOf(entry);
  }

  // Whether there is still somebody for whom what was decided counts.
  bool Holds(const Entry& entry) const {
    if (entry.on_its_way != 0 || IsWanted(entry)) return true;
    return !entry.bind_uid.empty() && entry.pod && entry.pod->uid == entry.bind_uid &&
           !entry.pod->finished();
  }
  bool IsWanted(const Entry& entry) const {
    const Pod* pod = entry.pod ? &*entry.pod : nullptr;
    if (entry.share && !entry.share->deleting) {
      if (entry.share->finished() || !entry.share->wrong.empty()) return false;
      return pod == nullptr ||
             (pod->owner == entry.share->uid && !pod->deleting && !pod->finished());
    }
    return pod != nullptr && pod->owner.empty() && pod->ours && pod->takes_room && !pod->deleting &&
           !pod->gated && pod->wrong.empty();
  }

  void Send(Entry& entry, WriteKind kind, std::string uid, Json body) {
    Write write;
    write.id = ++last_id;
    write.kind = kind;
    write.name = entry.name;
    write.uid = std::move(uid);
    entry.write = write;
    entry.on_its_way = write.id;
    ways.emplace(write.id, entry.key);
    write.body = std::move(body);
    effects.writes.push_back(std::move(write));
  }

  void Tell(const Entry& entry, bool warning, std::string reason, std::string action,
            const std::string& text) {
    if (entry.pod && !entry.pod->object.is_null()) {
      effects.notes.push_back(
          {About(entry.pod->object, "Pod", "v1"), warning, reason, action, Cut(text)});
    }
    if (entry.share) {
      effects.notes.push_back(
          {About(entry.share->object, "SharePod", resources::kSharePods.ApiVersion()), warning,
           std::move(reason), std::move(action), Cut(text)});
    }
  }

  void Settle(Entry& entry) {
    if (IsAssumed(entry) && !Holds(entry)) view.Release(entry.key);
    if (entry.on_its_way != 0) {
      if (!IsWanted(entry)) SetWaits(entry, false);
      return;
    }
    waited = entry.waits;
    SetWaits(entry, false);
    claimants.erase(entry.key);
    resizers.erase(entry.key);
    if (now.at < entry.retry_at) {
      timers.emplace(entry.retry_at, entry.key);
      return;
    }
    Pod* pod = entry.pod ? &*entry.pod : nullptr;
    Share* share = entry.share && !entry.share->deleting ? &*entry.share : nullptr;
    if (pod != nullptr && !pod->deleting) {
      const bool orphan = !pod->owner.empty() && (share == nullptr || share->uid != pod->owner);
      if (orphan || (!entry.evict_uid.empty() && entry.evict_uid == pod->uid)) {
        if (!orphan && entry.marked_uid != pod->uid) {
          MarkVictim(entry, *pod);
          return;
        }
        if (entry.deleted_uid != pod->uid && !orphan) {
          ++totals.displaced;
          Tell(entry, true, "Preempted", "Preempting",
               fmt::format("deleted to make room for {}, which has a higher priority",
                           entry.evict_for));
        }
        Send(entry, WriteKind::kDeletePod, pod->uid, Json());
        return;
      }
    }
    if (share != nullptr) {
      SettleShare(entry, *share, pod);
    } else if (pod != nullptr && pod->owner.empty() && !entry.share) {
      SettlePod(entry, *pod);
    } else if (pod == nullptr && !entry.share) {
      entries.erase(entry.key);
    }
  }

  // As kube-scheduler does, so that controllers (podFailurePolicy of Jobs) know why it ends. Where
  // it need not go after all, Kubernetes takes the condition back after two minutes.
  void MarkVictim(Entry& entry, const Pod& pod) {
    Json condition{{"type", "DisruptionTarget"},
                   {"status", "True"},
                   {"reason", "PreemptionByScheduler"},
                   {"message", Cut(options.scheduler + ": preempting to accommodate " +
                                   entry.evict_for + ", which has a higher priority")},
                   {"lastTransitionTime", Rfc3339(now.unix_s)}};
    Json body{{"metadata", {{"uid", pod.uid}}},
              {"status", {{"conditions", Json::array({std::move(condition)})}}}};
    Send(entry, WriteKind::kMarkVictim, pod.uid, std::move(body));
  }

  void SettlePod(Entry& entry, Pod& pod) {
    if (!pod.node.empty()) {
      if (pod.takes_room && !pod.deleting && pod.wrong.empty() && pod.gpu.asks()) {
        SettleBound(entry, pod, pod.gpu, std::nullopt);
      }
      return;
    }
    if (!pod.ours || pod.deleting || pod.gated || !pod.takes_room) return;
    if (IsAssumed(entry) && entry.bind_uid.empty() && !view.HasNode(PlaceOf(entry).node)) {
      view.Release(entry.key);
    }
    if (IsAssumed(entry)) {
      Bind(entry, pod, pod.gpu);
      return;
    }
    if (!pod.wrong.empty()) {
      entry.why = {"Invalid", pod.wrong};
    } else if (!IsRefused(entry)) {
      Await(entry, pod.needs, pod.request, pod.gpu);
    }
    Show(entry);
    ShowOnPod(entry, pod);
  }

  void Bind(Entry& entry, const Pod& pod, const GpuPod& gpu) {
    entry.bind_to = PlaceOf(entry);
    Json annotations = Json::object();
    if (gpu.asks()) {
      for (auto& [key, value] : PlacementAnnotations(gpu, entry.bind_to)) annotations[key] = value;
    }
    Json body{{"apiVersion", "v1"},
              {"kind", "Binding"},
              {"metadata",
               {{"name", entry.name.name},
                {"namespace", entry.name.name_space},
                {"uid", pod.uid},
                {"annotations", std::move(annotations)}}},
              {"target", {{"apiVersion", "v1"}, {"kind", "Node"}, {"name", entry.bind_to.node}}}};
    entry.bind_uid = pod.uid;
    Send(entry, WriteKind::kBind, pod.uid, std::move(body));
  }

  // It has no place: it takes part in the next round, if nothing is against that.
  void Await(Entry& entry, const PodNeeds& needs, const PodRequest& request, const GpuPod& gpu) {
    if (!needs.claims.empty()) {
      claimants.insert(entry.key);
      if (auto found = WithVolumes(entry, needs); !found) {
        entry.why = {"VolumeUnbound", found.error().message};
        return;
      }
    }
    if (!entry.gang.empty() && gpu.gang_size > 0) {
      const size_t there = gangs[entry.gang].size();
      if (there < gpu.gang_size) {
        entry.why = {"WaitingForGang", fmt::format("{} of the {} pods of gang '{}' are there",
                                                   there, gpu.gang_size, gpu.gang)};
      }
    }
    view.Expect(request);
    if (gpu.asks()) Learn(entry, request);
    SetWaits(entry, true);
  }

  // It is one of the usual pods, by which places are chosen.
  void Learn(Entry& entry, const PodRequest& request) {
    if (std::exchange(entry.learned, true)) return;
    view.cluster().Learn(request);
  }

  // The needs with what the volumes say.
  Result<PodNeeds> WithVolumes(const Entry& entry, const PodNeeds& needs) const {
    PodNeeds with = needs;
    with.claims.clear();
    for (const std::string& claim : needs.claims) {
      const auto found = claims.find(ObjectName{entry.name.name_space, claim}.Text());
      if (found == claims.end()) {
        return Fail(ErrorCode::kNotFound, "there is no PersistentVolumeClaim " + claim);
      }
      const auto volume = volumes.find(found->second);
      if (found->second.empty() || volume == volumes.end()) {
        return Fail(ErrorCode::kUnavailable,
                    fmt::format("PersistentVolumeClaim {} is not bound. Baton binds no volumes: "
                                "where its storage class waits for the first consumer, use one "
                                "with volumeBindingMode Immediate, or kube-scheduler with "
                                "baton-k8s extender",
                                claim));
      }
      if (!volume->second.empty()) with.terms.push_back(volume->second);
    }
    return with;
  }

  void SetWaits(Entry& entry, bool waits) {
    if (waits == entry.waits) return;
    entry.waits = waits;
    if (!waits) {
      waiting.erase(entry.key);
      return;
    }
    waiting.insert(entry.key);
    round_wanted |= !waited;
  }

  // Takes over the reason into what is shown, where it is time.
  void Show(Entry& entry) {
    if (entry.why.kind.empty()) return;
    const bool kind = entry.why.kind != entry.shown.kind;
    if (!kind && entry.why.text == entry.shown.text) return;
    if (!kind && now.at < entry.shown_at + options.say_again) {
      timers.emplace(entry.shown_at + options.say_again, entry.key);
      return;
    }
    entry.shown = entry.why;
    entry.shown_at = now.at;
    if (!kind) return;
    if (entry.shown == entry.refusal) {
      Tell(entry, true, entry.shown.kind, "Binding", entry.shown.text);
    } else {
      Tell(entry, true, "FailedScheduling", "Scheduling", entry.shown.text);
    }
  }

  // PodScheduled=False, as kube-scheduler writes it.
  void ShowOnPod(Entry& entry, const Pod& pod) {
    if (entry.shown.kind.empty()) return;
    const std::string message = Cut(entry.shown.kind + ": " + entry.shown.text);
    if (const Json* list = Find(pod.object, "status/conditions"); list && list->is_array()) {
      for (const Json& condition : *list) {
        if (TextAt(condition, "type") == "PodScheduled" &&
            TextAt(condition, "message") == message) {
          return;
        }
      }
    }
    Json condition{{"type", "PodScheduled"},
                   {"status", "False"},
                   {"reason", "Unschedulable"},
                   {"message", message},
                   {"lastTransitionTime", Rfc3339(now.unix_s)}};
    Json body{{"metadata", {{"uid", pod.uid}}},
              {"status", {{"conditions", Json::array({std::move(condition)})}}}};
    Send(entry, WriteKind::kPodCondition, pod.uid, std::move(body));
  }

  void SettleShare(Entry& entry, Share& share, Pod* pod) {
    Pod* child = pod != nullptr && pod->owner == share.uid ? pod : nullptr;
    const bool lives = child != nullptr && !child->finished() && !child->deleting;
    // A child that is there keeps its limits, whatever the SharePod says since.
    const auto& resources = child != nullptr ? child->request.resources : share.resources;
    if (share.request.resources != resources) share.request.resources = resources;
    bool waits = false;
    if (pod != nullptr && child == nullptr) {
      entry.why = {"NameTaken",
                   pod->deleting
                       ? fmt::format("the pod {} of before has not ended yet", entry.key)
                       : fmt::format("there is a pod {} that is not of this SharePod; delete it "
                                     "or give the SharePod another name",
                                     entry.key)};
    } else if (child != nullptr && (!lives || !child->node.empty())) {
      // Nothing to decide.
    } else if (child == nullptr && share.finished()) {
      return;
    } else if (!share.wrong.empty()) {
      entry.why = {"Invalid", share.wrong};
    } else {
      if (!IsAssumed(entry) && share.placement && !(child == nullptr && share.was_bound) &&
          entry.refusal.kind.empty()) {
        // What was decided before a restart goes on, where there is room still.
        PodRequest request = share.request;
        if (IsAsAsked(request, *share.placement, view.cluster()) &&
            view.HasNode(share.placement->node)) {
          (void)view.Assume(request, *share.placement);
        }
      }
      if (IsAssumed(entry) && entry.bind_uid.empty() &&
          (!IsAsAsked(share.request, PlaceOf(entry), view.cluster()) ||
           !view.HasNode(PlaceOf(entry).node))) {
        view.Release(entry.key);
      }
      if (!IsAssumed(entry)) {
        if (!IsRefused(entry)) Await(entry, share.needs, share.request, share.gpu);
        waits = true;
      }
    }
    const bool assumed = IsAssumed(entry);
    // It is tried again; until that has ended nothing has changed for those who look.
    const bool again = assumed && !entry.refusal.kind.empty();
    if ((!assumed || again) && (child == nullptr || child->node.empty())) Show(entry);
    if ((assumed && !again) || (child != nullptr && !child->node.empty())) {
      entry.why = entry.shown = Why();
    }
    // Of one that has just come there is nothing to say yet.
    if (waits && entry.shown.kind.empty() && !share.placement && !share.was_bound) return;
    if (lives && !child->node.empty()) {
      if (!share.wrong.empty()) {
        entry.resize = share.wrong;
      } else if (SettleBound(entry, *child, share.gpu, share.object)) {
        return;
      }
    }
    Json status = StatusOf(entry, share, child);
    const Json* before = Find(share.object, "status");
    if (before == nullptr || *before != status) {
      Json body = share.object;
      body["status"] = std::move(status);
      Send(entry, WriteKind::kStatus, share.uid, std::move(body));
      return;
    }
    if (!assumed) return;
    if (!share.wrong.empty()) {
      // Its Binding may have been carried out before it became wrong: now that is made certain.
      if (child != nullptr) Bind(entry, *child, child->gpu);
    } else if (child == nullptr) {
      Send(entry, WriteKind::kCreateChild, "", *share.child);
    } else if (auto changes = ChildChanges(share.object, child->object)) {
      Patch(entry, *child, *std::move(changes));
    } else {
      Bind(entry, *child, share.gpu);
    }
  }

  void Patch(Entry& entry, const Pod& pod, Json patch) {
    patch["metadata"]["uid"] = pod.uid;
    Send(entry, WriteKind::kPatchPod, pod.uid, std::move(patch));
  }

  // A pod that is on its node gets what it asks for now, if there is room. What it grows by is
  // booked before its annotations say so, what it shrinks by is free after they do. True: something
  // was sent.
  bool SettleBound(Entry& entry, const Pod& pod, const GpuPod& wanted,
                   const std::optional<std::reference_wrapper<const Json>>& share) {
    entry.resize.clear();
    if (!view.IsBooked(entry.key)) return false;
    auto resized = Resized(wanted.request, PlaceOf(entry));
    if (resized) {
      Placement most = *resized;
      for (size_t i = 0; i < most.vgpus.size(); ++i) {
        devmgr::Fit& fit = most.vgpus[i].fit;
        const devmgr::Fit& now_fit = PlaceOf(entry).vgpus[i].fit;
        fit.share = std::max(fit.share, now_fit.share);
        fit.memory_mib = std::max(fit.memory_mib, now_fit.memory_mib);
      }
      if (auto grown = Resize(entry, most); !grown) resized = tl::unexpected(grown.error());
    }
    if (!resized) {
      entry.resize = resized.error().message;
      resizers.insert(entry.key);
      if (!share) Tell(entry, true, "ResizeRefused", "Resizing", entry.resize);
      return false;
    }
    std::optional<Json> patch;
    if (share) patch = ChildChanges(*share, pod.object);
    if (!pod.placement || !(*pod.placement == *resized)) {
      if (!patch) patch = Json::object();
      for (auto& [key, value] : PlacementAnnotations(wanted, *resized)) {
        (*patch)["metadata"]["annotations"][key] = value;
      }
    }
    if (patch) {
      Patch(entry, pod, *std::move(patch));
      return true;
    }
    if (!(PlaceOf(entry) == *resized)) {
      (void)Resize(entry, *resized);
      round_wanted = true;
      Tell(entry, false, "Resized", "Resizing", "its share or memory has changed in place");
    }
    return false;
  }

  // The same place with the shares that are wanted now.
  Result<Placement> Resized(const PodRequest& wanted, Placement placement) const {
    size_t asked = 0;
    for (const auto& container : wanted.containers) {
      for (const auto& group : container.vgpus) asked += group.count;
    }
    bool same = asked == placement.vgpus.size();
    for (devmgr::Vgpu& vgpu : placement.vgpus) {
      const auto part = WantedAt(wanted, vgpu, view.cluster());
      same &= part.has_value();
      if (!part) continue;
      vgpu.fit.share = part->share;
      vgpu.fit.memory_mib = part->memory_mib;
    }
    if (!same) return Fail(ErrorCode::kInvalid, "how many cards its containers have cannot change");
    return placement;
  }

  // To those shares, where it is: all of its containers or none.
  Result<void> Resize(const Entry& entry, const Placement& to) {
    const Placement before = PlaceOf(entry);
    const auto set = [&](size_t i, const devmgr::Fit& fit) {
      const devmgr::Vgpu& vgpu = to.vgpus[i];
      return view.cluster().Resize(entry.key, vgpu.container, vgpu.group, fit.share,
                                   fit.memory_mib);
    };
    for (size_t i = 0; i < to.vgpus.size(); ++i) {
      const devmgr::Fit& there = PlaceOf(entry).vgpus[i].fit;
      const devmgr::Fit& fit = to.vgpus[i].fit;
      if (there.share == fit.share && there.memory_mib == fit.memory_mib) continue;
      if (auto done = set(i, fit); !done) {
        while (i-- > 0) (void)set(i, before.vgpus[i].fit);
        return done;
      }
    }
    // What others lack is different now.
    if (!(PlaceOf(entry) == before)) {
      round_wanted = true;
      for (const std::string& key : resizers) Touch(key);
    }
    return {};
  }

  // ------------------------------------------------------------------------------------- status

  std::string CardsText(const Placement& placement) const {
    std::string text;
    const devmgr::Node* node = view.cluster().FindNode(placement.node);
    std::set<std::string> seen;
    for (const devmgr::Vgpu& vgpu : placement.vgpus) {
      if (!seen.insert(vgpu.card).second) continue;
      size_t index = 0;
      while (node != nullptr && index < node->cards.size() &&
             node->cards[index].uuid != vgpu.card) {
        ++index;
      }
      text += text.empty() ? ", GPU " : ",";
      text += node != nullptr && index < node->cards.size() ? std::to_string(index) : vgpu.card;
    }
    return text;
  }

  Json StatusOf(const Entry& entry, const Share& share, const Pod* child) const {
    const Json* before = Find(share.object, "status");
    Json status = before != nullptr && before->is_object() ? *before : Json::object();
    const std::string time = Rfc3339(now.unix_s);
    const auto say = [&](const char* type, bool is, std::string reason, std::string message) {
      SetCondition(status, {type, is, std::move(reason), Cut(std::move(message))}, share.generation,
                   time);
    };
    const bool bound = child != nullptr && !child->node.empty();
    const bool finished = child != nullptr && child->finished();
    // What it has, where that is not what it asks for.
    const bool kept =
        child != nullptr && (finished || !share.wrong.empty() || !entry.resize.empty());
    const GpuPod& gpu = kept ? child->gpu : share.gpu;
    std::optional<Placement> place;
    if (view.IsBooked(entry.key) && (bound || entry.refusal.kind.empty())) {
      place = PlaceOf(entry);
    } else if (bound) {
      place = child->placement;
    }
    if (place) {
      const std::string text = PlacementText(gpu, *place);
      // Which index a card has is not said again once its node is away.
      if (TextAt(status, "placement") != text) {
        status["placement"] = text;
        status["node"] = place->node;
        const std::string cards = CardsText(*place);
        status["gpu"] = cards.size() > 6 ? cards.substr(6) : "";
      }
    } else if (!finished) {
      for (const char* field : {"placement", "node", "gpu"}) status.erase(field);
    }
    SetTexts(gpu, status);
    status["observedGeneration"] = share.generation;
    if (finished || bound) {
      status["phase"] = PhaseOf(*child);
      say("Placed", true, "Placed", "on node " + child->node);
      say("Bound", true, "Bound", "on node " + child->node);
      if (finished) {
        say("Running", false, std::string(PhaseOf(*child)),
            TextAt(child->object, "status/message"));
      } else if (child->deleting) {
        say("Running", false, "Terminating", "the pod is about to end");
      } else {
        const bool runs = child->phase == "Running";
        say("Running", runs, runs ? (child->ready ? "Ready" : "NotReady") : "Starting",
            runs ? "" : TextAt(child->object, "status/message"));
      }
    } else if (IsAssumed(entry) && entry.refusal.kind.empty()) {
      status["phase"] = "Placed";
      say("Placed", true, "Placed", "on node " + place->node);
      say("Bound", false, "NotYet", "its pod is about to be bound");
      say("Running", false, "NotBound", "");
    } else {
      status["phase"] = "Pending";
      say("Placed", false, entry.shown.kind.empty() ? "Waiting" : entry.shown.kind,
          entry.shown.text);
      say("Bound", false, share.was_bound ? "PodGone" : "NotPlaced",
          share.was_bound ? "its pod has gone; another is made where there is room" : "");
      say("Running", false, "NotBound", "");
    }
    if (finished) {
      // What was said of its size stays.
    } else if (!entry.resize.empty()) {
      const bool valid = share.wrong.empty();
      say("Resized", false, valid ? "NoRoom" : "Invalid",
          entry.resize + (valid ? "; it keeps what it has until there is room" : ""));
    } else if (Find(status, "conditions") != nullptr && HasCondition(status, "Resized")) {
      say("Resized", true, "Resized", "");
    }
    return status;
  }

  static bool HasCondition(const Json& status, std::string_view type) {
    for (const Json& condition : status["conditions"]) {
      if (TextAt(condition, "type") == type) return true;
    }
    return false;
  }

  // The columns of kubectl.
  static void SetTexts(const GpuPod& gpu, Json& status) {
    std::string request;
    std::string limit;
    std::string memory;
    for (const ContainerGpus& container : gpu.containers) {
      const char* comma = request.empty() ? "" : ",";
      request += comma + PercentText(container.request);
      limit += comma + PercentText(container.limit);
      memory += comma + GpuMemoryText(container.memory);
    }
    if (gpu.containers.empty()) return;
    status["request"] = request;
    status["limit"] = limit;
    status["memory"] = memory;
  }

  // ------------------------------------------------------------------------------------- rounds

  const PodRequest& RequestOf(const Entry& entry) const {
    return entry.share ? entry.share->request : entry.pod->request;
  }
  const PodNeeds& NeedsOf(const Entry& entry) const {
    return entry.share ? entry.share->needs : entry.pod->needs;
  }
  const GpuPod& GpuOf(const Entry& entry) const {
    return entry.share ? entry.share->gpu : entry.pod->gpu;
  }
  bool MayDisplace(const Entry& entry) const {
    const Json& pod = entry.share ? *entry.share->child : entry.pod->object;
    return TextAt(pod, "spec/preemptionPolicy") != "Never";
  }

  void Round() {
    round_wanted = false;
    last_round = now.at;
    ++totals.rounds;
    std::vector<devmgr::WaitingPod> pods;
    std::map<std::string, PodNeeds> needs;
    for (const std::string& key : waiting) {
      const Entry& entry = entries.at(key);
      const GpuPod& gpu = GpuOf(entry);
      if (!entry.gang.empty() && gangs.at(entry.gang).size() < gpu.gang_size) continue;
      devmgr::WaitingPod pod;
      pod.request = RequestOf(entry);
      auto found = WithVolumes(entry, NeedsOf(entry));
      if (!found) continue;
      needs[key] = *std::move(found);
      pod.request.off_nodes = view.OffNodes(needs[key]);
      pod.since = SinceOf(entry.share ? entry.share->object : entry.pod->object);
      pod.gang = entry.gang;
      pod.passed_over = entry.passed_over;
      pods.push_back(std::move(pod));
    }
    PurgeDisplacing();
    const devmgr::Round round =
        devmgr::Schedule(view.cluster(), ClusterModes(), pods, {}, {}, kept, options.round);
    kept = round.reservations;
    for (const devmgr::PlacedNow& placed : round.placed) {
      Entry& entry = entries.at(placed.pod);
      ++totals.decided;
      entry.passed_over = 0;
      entry.why = Why();
      SetWaits(entry, false);
      Touch(placed.pod);
    }
    for (const devmgr::Refusal& refusal : round.refused) {
      Entry& entry = entries.at(refusal.pod);
      entry.passed_over = refusal.passed_over;
      const bool never = refusal.code == ErrorCode::kNotFound;
      const std::string kind = refusal.code == ErrorCode::kInvalid ? "Invalid"
                               : never                             ? "NoSuchCard"
                                                                   : "Unschedulable";
      refused[refusal.pod] = {{kind, refusal.why}, needs[refusal.pod]};
    }
    for (const devmgr::Proposal& proposal : round.proposals) Displace(proposal);
    for (const auto& [pod, displacing_now] : displacing) {
      std::erase_if(kept, [&, &name = pod](const auto& r) { return r.holder == name; });
      kept.push_back({pod, {displacing_now.node}});
    }
    for (const std::string& key : resizers) Touch(key);
  }

  // Those that need nobody to go any more.
  void PurgeDisplacing() {
    for (auto it = displacing.begin(); it != displacing.end();) {
      std::erase_if(it->second.victims, [&](const auto& victim) {
        const auto found = entries.find(victim.first);
        return found == entries.end() || !found->second.pod ||
               found->second.pod->uid != victim.second || !found->second.pod->takes_room;
      });
      const bool over = it->second.victims.empty() || !waiting.contains(it->first);
      if (over) {
        for (const auto& [key, uid] : it->second.victims) {
          // It need not go, if it has not been told yet.
          const auto found = entries.find(key);
          if (found != entries.end() && found->second.evict_uid == uid) {
            found->second.evict_uid.clear();
          }
        }
      }
      it = over ? displacing.erase(it) : std::next(it);
    }
  }

  void Displace(const devmgr::Proposal& proposal) {
    const auto drop = [&] {
      std::erase_if(kept, [&](const auto& r) { return r.holder == proposal.pod; });
    };
    // The room that it was promised comes.
    if (displacing.contains(proposal.pod)) return;
    size_t on_their_way = 0;
    for (const auto& [pod, others] : displacing) on_their_way += others.victims.size();
    const auto& victims = proposal.displacement.pods;
    if (!MayDisplace(entries.at(proposal.pod)) ||
        on_their_way + victims.size() > options.evictions_max) {
      drop();
      return;
    }
    Displacing made;
    made.node = proposal.displacement.node;
    for (const std::string& key : victims) {
      const auto found = entries.find(key);
      // What is not on its node yet is asked for again in the next round.
      if (found == entries.end() || !found->second.pod || found->second.pod->node.empty()) {
        drop();
        return;
      }
      made.victims[key] = found->second.pod->uid;
    }
    for (const auto& [key, uid] : made.victims) {
      Entry& victim = entries.at(key);
      victim.evict_uid = uid;
      victim.evict_for = proposal.pod;
      Touch(key);
    }
    Tell(entries.at(proposal.pod), false, "Preempting", "Preempting",
         fmt::format("{} pods of lower priority are deleted on node {} to make room",
                     victims.size(), made.node));
    displacing[proposal.pod] = std::move(made);
  }

  // Why it fits nowhere, node by node, as far as a condition has room for it.
  std::string Explain(const Entry& entry, const std::string& why, const PodNeeds& needs) {
    std::string text = why;
    PodRequest request = RequestOf(entry);
    request.off_nodes = view.OffNodes(needs);
    for (const devmgr::NodeRefusal& refusal : view.cluster().Explain(request)) {
      // Of nodes without GPUs there may be many, and their number has been said.
      if (refusal.cards.empty() && GpuOf(entry).asks()) continue;
      std::string line = refusal.why;
      const std::string off = view.WhyOff(needs, refusal.node);
      const std::string closed = view.WhyClosed(refusal.node);
      if (!off.empty()) {
        line = off;
      } else if (!closed.empty()) {
        line = closed;
      } else if (line.find(kPrefix) != std::string::npos) {
        // One of Baton's own resources is short.
        line = view.WhyKubelet(request, refusal.node);
      }
      if (line.empty()) {
        // Cards that say the same are named together.
        std::vector<std::pair<std::string, std::string>> groups;
        for (size_t c = 0; c < refusal.cards.size(); ++c) {
          const std::string& card = refusal.cards[c].why;
          const auto same = std::find_if(groups.begin(), groups.end(),
                                         [&](const auto& group) { return group.second == card; });
          if (same != groups.end()) {
            same->first += "," + std::to_string(c);
          } else {
            groups.emplace_back(std::to_string(c), card);
          }
        }
        for (const auto& [cards, reason] : groups) {
          line += fmt::format("{}card {} {}", line.empty() ? "" : "; ", cards,
                              reason.empty() ? "would do, but is not enough" : reason);
        }
      }
      text += "\n" + refusal.node + ": " + line;
      if (text.size() > kMessageMax) break;
    }
    return text;
  }

  // Works out why those wait that were refused, as many as one step may.
  void ExplainSome() {
    uint32_t left = options.explain_per_step;
    for (auto it = refused.begin(); it != refused.end();) {
      const auto found = entries.find(it->first);
      if (found == entries.end() || !found->second.waits) {
        it = refused.erase(it);
        continue;
      }
      Entry& entry = found->second;
      const Refused& refusal = it->second;
      if (refusal.why.kind == entry.shown.kind && now.at < entry.shown_at + options.say_again) {
        timers.emplace(entry.shown_at + options.say_again, entry.key);
        ++it;
        continue;
      }
      if (left == 0) break;
      --left;
      std::string why = Explain(entry, refusal.why.text, refusal.needs);
      const auto promise = displacing.find(entry.key);
      if (promise != displacing.end()) {
        why = fmt::format("{} pods of lower priority end on node {} to make room for it",
                          promise->second.victims.size(), promise->second.node);
      }
      Accepted(entry);  // whether it still would be refused shows when there is room
      entry.why = {refusal.why.kind, Cut(std::move(why))};
      Touch(entry.key);
      it = refused.erase(it);
    }
  }

  // -------------------------------------------------------------------------------------- steps

  void SettleTouched() {
    while (!touched.empty()) {
      std::set<std::string> keys;
      keys.swap(touched);
      for (const std::string& key : keys) {
        const auto it = entries.find(key);
        if (it != entries.end()) Settle(it->second);
      }
    }
  }

  Effects Step(const CoreNow& at) {
    now = at;
    effects = Effects();
    std::vector<std::variant<Told, WriteResult>> inputs;
    inputs.swap(inbox);
    for (auto& input : inputs) {
      if (Told* told = std::get_if<Told>(&input)) {
        Hear(*told);
      } else {
        Finish(std::get<WriteResult>(input));
      }
    }
    if (!synced) return std::move(effects);
    while (!timers.empty() && timers.begin()->first <= now.at) {
      Touch(timers.begin()->second);
      timers.erase(timers.begin());
    }
    round_wanted |= view.Flush();
    SettleTouched();
    round_wanted |= view.Flush();
    const bool due = last_round == kAlways || now.at >= last_round + options.round_interval;
    if (round_wanted && due) {
      if (waiting.empty()) {
        round_wanted = false;
        for (const std::string& key : resizers) Touch(key);
        PurgeDisplacing();
        kept.clear();
      } else {
        Round();
      }
      SettleTouched();
      round_wanted |= view.Flush();
    }
    ExplainSome();
    SettleTouched();
    return std::move(effects);
  }

  Instant Next() const {
    if (!synced) return kNever;
    if (!inbox.empty()) return now.at;
    Instant next = kNever;
    if (!timers.empty()) next = timers.begin()->first;
    if (round_wanted) {
      next = std::min(next, last_round == kAlways ? now.at : last_round + options.round_interval);
    }
    for (const auto& [key, refusal] : refused) {
      const auto entry = entries.find(key);
      if (entry == entries.end() || refusal.why.kind != entry->second.shown.kind) {
        next = std::min(next, now.at + options.round_interval);
        break;
      }
    }
    return next;
  }

  const CoreOptions options;
  ClusterView view;
  CoreNow now;
  Effects effects;
  std::vector<std::variant<Told, WriteResult>> inbox;
  bool synced = false;
  std::map<std::string, Entry> entries;
  std::set<std::string> touched;
  std::set<std::pair<Instant, std::string>> timers;
  std::map<uint64_t, std::string> ways;  // entries by the id of their write
  uint64_t last_id = 0;
  std::set<std::string> waiting;
  std::set<std::string> claimants;
  std::set<std::string> resizers;
  std::map<std::string, std::set<std::string>> gangs;
  std::map<std::string, int32_t> classes;
  std::string default_class;
  std::map<std::string, std::string> claims;  // the volumes that they are bound to
  std::map<std::string, std::vector<NodeTerm>> volumes;
  std::set<std::string> tombstones;
  std::deque<std::string> buried;
  bool round_wanted = false;
  bool waited = false;  // whether what is settled now waited before
  Instant last_round = kAlways;
  std::vector<devmgr::Reservation> kept;
  std::map<std::string, Displacing> displacing;
  std::map<std::string, Refused> refused;  // to be explained
  std::vector<std::string> troubles;
  CoreCounts totals;
};

Core::Core(CoreOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Core::~Core() = default;

void Core::Changed(Watched kind, Json object) {
  impl_->inbox.emplace_back(Told{kind, false, std::move(object)});
}
void Core::Gone(Watched kind, const Json& object) {
  impl_->inbox.emplace_back(Told{kind, true, object});
}
void Core::Synced() { impl_->synced = true; }
void Core::Done(WriteResult result) { impl_->inbox.emplace_back(std::move(result)); }
Effects Core::Step(const CoreNow& now) { return impl_->Step(now); }
Instant Core::next() const { return impl_->Next(); }
const devmgr::Cluster& Core::cluster() const { return impl_->view.cluster(); }

CoreCounts Core::counts() const {
  CoreCounts counts = impl_->totals;
  counts.waiting = impl_->waiting.size();
  counts.placed = impl_->view.cluster().pods().size();
  counts.on_their_way = impl_->ways.size();
  counts.unbooked = impl_->view.troubles().size();
  return counts;
}

std::vector<std::string> Core::TakeTroubles() { return std::exchange(impl_->troubles, {}); }

}  // namespace baton::k8s
