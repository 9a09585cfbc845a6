#include "node/admission.h"

#include <fmt/format.h>

#include <algorithm>

namespace baton::node {

TenantLimits LimitsOf(const config::Options& options) {
  TenantLimits limits;
  limits.clients_max = options.server.clients_max;
  limits.clients_per_uid = options.server.clients_per_uid;
  limits.clients_per_pod = options.server.clients_per_pod;
  limits.frames_per_second = options.server.frames_per_second;
  limits.connects_per_second = options.server.connects_per_second;
  limits.drain_timeout = options.scheduler.drain_timeout;
  return limits;
}

std::string Admission::OwnerOf(const Peer& peer) {
  return peer.kubernetes_pod.empty() ? fmt::format("user {}", peer.uid)
                                     : "Kubernetes pod " + peer.kubernetes_pod;
}

std::optional<Admission::Refusal> Admission::Refuse(const Peer& peer, size_t clients, Instant now) {
  const bool in_pod = !peer.kubernetes_pod.empty();
  const size_t most = in_pod ? limits_.clients_per_pod : limits_.clients_per_uid;
  const std::string owner = OwnerOf(peer);
  const auto of_owner = count_.find(owner);
  std::string bound;
  const char* key = "";
  const auto connects = connects_.Of(owner, now);
  if (!connects->May(now)) {
    Refusal refusal{
        fmt::format("{} connects more than {} times a second; try again, or raise [server] "
                    "connects_per_second",
                    owner, limits_.connects_per_second),
        "", true};
    if (refusals_.Add(owner + " connects too often", now)) {
      refusal.warning = refusal.text;
    }
    return refusal;
  }
  connects->Spend(1);
  if (clients >= limits_.clients_max) {
    bound = fmt::format("the daemon serves no more than {} processes", limits_.clients_max);
    key = "clients_max";
  } else if (of_owner != count_.end() && of_owner->second >= most) {
    bound = fmt::format("{} may have no more than {} processes here", owner, most);
    key = in_pod ? "clients_per_pod" : "clients_per_uid";
  } else {
    return std::nullopt;
  }
  const std::string remedy = fmt::format("end some, or raise [server] {}", key);
  Refusal refusal{bound + "; " + remedy, ""};
  if (refusals_.Add(bound, now)) refusal.warning = bound + ", and more are refused; " + remedy;
  return refusal;
}

void Admission::Leave(const std::string& owner) {
  const auto it = count_.find(owner);
  if (it != count_.end() && --it->second == 0) count_.erase(it);
}

void Admission::NotSilent(const std::string& owner, uint64_t number) {
  const auto it = silent_.find(owner);
  if (it == silent_.end()) return;
  std::erase(it->second, number);
  if (it->second.empty()) silent_.erase(it);
}

std::optional<uint64_t> Admission::TooSilent(const std::string& owner) const {
  const auto it = silent_.find(owner);
  if (it == silent_.end() || it->second.size() < kSilentMax) return std::nullopt;
  return it->second.front();
}

void Admission::Clear() {
  count_.clear();
  silent_.clear();
  connects_.Clear();
}

}  // namespace baton::node
