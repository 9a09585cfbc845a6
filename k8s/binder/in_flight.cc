#include "k8s/binder/in_flight.h"

#include "base/check.h"
#include "k8s/cluster/volumes.h"

namespace baton::k8s {

void InFlight::Send(const ObjectName& name, WriteKind kind, std::string uid, Json body) {
  Open(name, kind, std::move(uid)).body = std::move(body);
}

// The write as it is sent; what is kept of it has no body.
Write& InFlight::Open(const ObjectName& name, WriteKind kind, std::string uid) {
  Write write;
  write.id = ++last_id_;
  write.kind = kind;
  write.name = name;
  write.uid = std::move(uid);
  const bool first = ids_.emplace(name.Text(), write.id).second;
  BATON_CHECK(first);
  writes_.emplace(write.id, write);
  sent_.push_back(std::move(write));
  return sent_.back();
}

void InFlight::SendSelectedNode(const ObjectName& name, const std::string& claim,
                                const std::string& node) {
  Write& write = Open(name, WriteKind::kSelectNode, "");
  write.claim = claim;
  write.body = {{"metadata", {{"annotations", {{std::string(kSelectedNode), node}}}}}};
}

void InFlight::SendBinding(const ObjectName& name, std::string uid, devmgr::Placement to,
                           Json body) {
  PodState& pod = pods_[name.Text()];
  pod.bind_uid = uid;
  pod.sent_uid = uid;
  pod.bind_to = std::move(to);
  Send(name, WriteKind::kBind, std::move(uid), std::move(body));
}

std::optional<Write> InFlight::Finish(uint64_t id) {
  const auto it = writes_.find(id);
  if (it == writes_.end()) return std::nullopt;
  Write write = std::move(it->second);
  writes_.erase(it);
  ids_.erase(write.name.Text());
  return write;
}

const std::string& InFlight::MayBeBound(const std::string& key) const {
  static const std::string none;
  const auto it = pods_.find(key);
  return it == pods_.end() ? none : it->second.bind_uid;
}

const devmgr::Placement& InFlight::BindingTo(const std::string& key) const {
  return pods_.at(key).bind_to;
}

bool InFlight::SetCarriedOut(const std::string& key, const std::string& uid) {
  const auto it = pods_.find(key);
  if (it == pods_.end() || it->second.sent_uid != uid || it->second.told_uid == uid) return false;
  it->second.told_uid = uid;
  return true;
}

void InFlight::ClearBinding(const std::string& key) {
  if (const auto it = pods_.find(key); it != pods_.end()) it->second.bind_uid.clear();
}

bool InFlight::IsInDoubt(const std::string& key, const std::string& uid) const {
  const auto it = pods_.find(key);
  return it != pods_.end() && !uid.empty() && it->second.doubt_uid == uid;
}

void InFlight::SetInDoubt(const std::string& key, const std::string& uid) {
  pods_[key].doubt_uid = uid;
}

void InFlight::ClearDoubt(const std::string& key) {
  if (const auto it = pods_.find(key); it != pods_.end()) it->second.doubt_uid.clear();
}

void InFlight::ForgetPod(const std::string& key, const std::string& uid) {
  const auto it = pods_.find(key);
  if (it != pods_.end() && it->second.bind_uid == uid) it->second.bind_uid.clear();
}

}  // namespace baton::k8s
