#include "k8s/binder/core.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "k8s/binder/core_impl.h"

namespace baton::k8s {
namespace {

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

}  // namespace

Core::Impl::Entry& Core::Impl::At(const ObjectName& name) {
  const std::string key = name.Text();
  Entry& entry = entries[key];
  if (entry.key.empty()) {
    entry.key = key;
    entry.name = name;
  }
  return entry;
}

void Core::Impl::Touch(const std::string& key) { touched.insert(key); }

void Core::Impl::Hear(Told& told) {
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

void Core::Impl::HearClass(const Told& told) {
  told.gone ? classes.Remove(told.object) : classes.Set(told.object);
  for (auto& [key, entry] : entries) {
    if (!entry.share) continue;
    SetPriority(*entry.share);
    Touch(key);
  }
  round_wanted = true;
}

void Core::Impl::HearVolume(const Told& told) {
  if (told.kind == Watched::kClaim) {
    told.gone ? volumes.RemoveClaim(told.object) : volumes.SetClaim(told.object);
  } else {
    told.gone ? volumes.RemoveVolume(told.object) : volumes.SetVolume(told.object);
  }
  for (const std::string& key : claimants) Touch(key);
}

void Core::Impl::TouchAssumedOn(const std::string& node) {
  for (const devmgr::PlacedPod* pod : view.cluster().PodsOn(node)) Touch(pod->request.name);
}

void Core::Impl::PodChanged(Json object) {
  const std::string uid = UidOf(object);
  if (uid.empty() || graves.Has(uid)) return;
  Entry& entry = At(NameOf(object));
  const std::string version = ResourceVersionOf(object);
  std::string node = TextAt(object, "spec/nodeName");
  if (entry.pod) {
    if (IsOlder(version, entry.pod->version)) return;
    // A pod never leaves its node: this is from before its Binding.
    if (entry.pod->uid == uid && node.empty() && !entry.pod->node.empty()) return;
    if (entry.pod->uid != uid) {
      graves.Bury(entry.pod->uid);
      ForgetPod(entry);
    }
  }
  Pod pod = ReadPod(std::move(object), options, &troubles);
  if (pod.deleting) entry.retry_at = kAlways;
  // Another wish, another answer.
  round_wanted |= pod.ours && (!entry.pod || entry.pod->request != pod.request ||
                               entry.pod->needs != pod.needs || entry.pod->gpu != pod.gpu);
  entry.pod = std::move(pod);
  if (entry.pod->gpu.asks() && !entry.pod->node.empty()) Learn(entry, entry.pod->request);
  Register(entry);
  Join(entry);
  Fresh(entry);
  Touch(entry.key);
}

void Core::Impl::Register(Entry& entry) {
  const Pod& pod = *entry.pod;
  const bool bound = view.IsBound(entry.key);
  view.SetPod({entry.key, pod.node, pod.takes_room, pod.whole, pod.placement, pod.request});
  // Only who is on its node can be asked to go.
  if (!bound && view.IsBound(entry.key)) {
    entry.bound_at = now.at;
    round_wanted |= pod.request.priority < refused_priority;
  }
}

void Core::Impl::PodGone(const Json& object) {
  const std::string uid = UidOf(object);
  graves.Bury(uid);
  const auto it = entries.find(NameOf(object).Text());
  if (it == entries.end() || !it->second.pod || it->second.pod->uid != uid) return;
  ForgetPod(it->second);
  Join(it->second);
  Touch(it->first);
}

void Core::Impl::ForgetPod(Entry& entry) {
  view.RemovePod(entry.key);
  if (entry.bind_uid == entry.pod->uid) entry.bind_uid.clear();
  entry.pod.reset();
  entry.bound_at.reset();
  entry.deleted_uid.clear();
  entry.evict_uid.clear();
  entry.resize.clear();
  entry.passed_over = 0;
  entry.retry_at = kAlways;
  if (!entry.share) ForgetWaiter(entry);
}

void Core::Impl::ShareChanged(Json object) {
  const std::string uid = UidOf(object);
  if (uid.empty() || graves.Has(uid)) return;
  Entry& entry = At(NameOf(object));
  if (entry.share) {
    if (IsOlder(ResourceVersionOf(object), entry.share->version)) return;
    if (entry.share->uid != uid) {
      graves.Bury(entry.share->uid);
      ForgetShare(entry);
    }
  }
  Share share = ReadShare(std::move(object), &troubles);
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
    ReadChild(options, share);
    round_wanted = true;
    Accepted(entry);
  }
  SetPriority(share);
  entry.share = std::move(share);
  Join(entry);
  Fresh(entry);
  Touch(entry.key);
}

void Core::Impl::SetPriority(Share& share) const {
  if (!share.child) return;
  share.request.priority = classes.ValueOf(*share.child);
}

void Core::Impl::ForgetShare(Entry& entry) {
  entry.share.reset();
  entry.retry_at = kAlways;
  entry.passed_over = 0;
  ForgetWaiter(entry);
}

void Core::Impl::ForgetWaiter(Entry& entry) {
  entry.why = entry.shown = Why();
  entry.failures = entry.losses = 0;
  entry.learned = entry.make_child = false;
  Accepted(entry);
  StopDisplacing(entry.key);
}

void Core::Impl::ShareGone(const Json& object) {
  const std::string uid = UidOf(object);
  graves.Bury(uid);
  const auto it = entries.find(NameOf(object).Text());
  if (it == entries.end() || !it->second.share || it->second.share->uid != uid) return;
  ForgetShare(it->second);
  Join(it->second);
  Touch(it->first);
}

void Core::Impl::Fresh(Entry& entry) {
  if (!entry.stale) return;
  entry.stale = false;
  entry.retry_at = kAlways;
}

void Core::Impl::Join(Entry& entry) {
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

// ------------------------------------------------------------------------------------------ steps

void Core::Impl::SettleTouched() {
  while (!touched.empty()) {
    std::set<std::string> keys;
    keys.swap(touched);
    for (const std::string& key : keys) {
      const auto it = entries.find(key);
      if (it != entries.end()) Settle(it->second);
    }
  }
}

Effects Core::Impl::Step(const CoreNow& at) {
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

Instant Core::Impl::Next() const {
  if (!synced) return kNever;
  if (!inbox.empty()) return now.at;
  Instant next = kNever;
  if (!timers.empty()) next = timers.begin()->first;
  if (round_wanted) {
    next = std::min(next, last_round == kAlways ? now.at : last_round + options.round_interval);
  }
  if (!refused.empty()) {
    next = std::min(next, std::max(refused.begin()->first.first, now.at + options.round_interval));
  }
  return next;
}

Core::Core(CoreOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Core::~Core() = default;

void Core::Changed(Watched kind, Json object) {
  impl_->inbox.emplace_back(Impl::Told{kind, false, std::move(object)});
}
void Core::Gone(Watched kind, const Json& object) {
  impl_->inbox.emplace_back(Impl::Told{kind, true, object});
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
