// Writes: how they are sent, and what follows from how they ended.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "k8s/binder/core_impl.h"

namespace baton::k8s {
namespace {

constexpr Duration kDeleteAgain = std::chrono::seconds(30);

}  // namespace

void Core::Impl::Send(Entry& entry, WriteKind kind, std::string uid, Json body) {
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

void Core::Impl::Finish(WriteResult& result) {
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

void Core::Impl::Succeeded(Entry& entry, WriteResult& result) {
  switch (entry.write.kind) {
    case WriteKind::kStatus:
      ShareChanged(std::move(result.object));
      break;
    case WriteKind::kCreateChild:
      Accepted(entry);
      entry.make_child = false;
      PodChanged(std::move(result.object));
      break;
    case WriteKind::kMarkVictim:
      entry.marked_uid = entry.write.uid;
      PodChanged(std::move(result.object));
      break;
    case WriteKind::kPatchPod:
    case WriteKind::kPodCondition:
      PodChanged(std::move(result.object));
      EndDoubt(entry);
      break;
    case WriteKind::kBind:
      Accepted(entry);
      Bound(entry);
      break;
    case WriteKind::kDeletePod:
      // Where it has been seen to end there is nothing to wait for.
      if (!entry.pod || entry.pod->uid != entry.write.uid || entry.pod->deleting) break;
      entry.deleted_uid = entry.write.uid;
      entry.retry_at = now.at + kDeleteAgain;
      break;
  }
}

void Core::Impl::Bound(Entry& entry) {
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

void Core::Impl::EndDoubt(Entry& entry) {
  if (entry.doubt_uid != entry.write.uid) return;
  entry.doubt_uid.clear();
  if (!entry.pod || entry.pod->uid != entry.write.uid || !entry.pod->node.empty()) return;
  // No Binding of before was carried out.
  entry.bind_uid.clear();
  if (!entry.refusal.kind.empty()) view.Release(entry.key);
}

void Core::Impl::Failed(Entry& entry, const ApiError& error) {
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
      if (open) {
        entry.doubt_uid = entry.write.uid;
        break;
      }
      if (conflict || error.exists()) {
        // It is bound already, perhaps by us, or another has its name: the watch will tell.
        WaitForNewer(entry);
        return;
      }
      // An earlier one may have been carried out all the same.
      if (error.not_found() || entry.doubt_uid != entry.write.uid) entry.bind_uid.clear();
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
      if (open) entry.doubt_uid = entry.write.uid;
      // A child that may not say what is asked for now is not bound.
      if (IsAssumed(entry) && entry.bind_uid.empty() && !open && !conflict && !error.not_found()) {
        Refuse(entry, "ChildRefused", error);
        return;
      }
      [[fallthrough]];
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
  entry.retry_at =
      now.at + std::max(Backoff(entry.failures++), std::min(error.retry_after, options.retry_max));
  if (!open) troubles.push_back(entry.key + ": " + error.message);
}

Duration Core::Impl::Backoff(uint32_t failures) const {
  const uint32_t shift = std::min<uint32_t>(failures, 16);
  return std::min(options.retry_max, options.retry_min * (int64_t{1} << shift));
}

void Core::Impl::Refuse(Entry& entry, const char* kind, const ApiError& error) {
  if (entry.bind_uid.empty()) view.Release(entry.key);
  entry.refusal = {kind, error.message};
  entry.refused_until = now.at + Backoff(entry.refusals++);
  troubles.push_back(entry.key + ": " + error.message);
}

void Core::Impl::Accepted(Entry& entry) {
  entry.refusal = Why();
  entry.refusals = 0;
  entry.refused_until = kAlways;
}

bool Core::Impl::IsRefused(Entry& entry) {
  if (entry.refusal.kind.empty()) return false;
  entry.why = entry.refusal;
  if (now.at >= entry.refused_until) return false;
  timers.emplace(entry.refused_until, entry.key);
  return true;
}

void Core::Impl::WaitForNewer(Entry& entry) {
  entry.stale = true;
  entry.retry_at = now.at + Backoff(entry.failures++);
}

}  // namespace baton::k8s
