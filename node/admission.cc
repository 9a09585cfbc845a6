#include "node/admission.h"

#include <fmt/format.h>

#include <algorithm>

namespace baton::node {

bool FrameRate::May(Instant now) {
  if (left_ <= 0) {
    const double earned =
        std::chrono::duration<double>(now - at_).count() * static_cast<double>(per_second_);
    left_ = std::min(burst_, static_cast<int64_t>(earned));
    if (left_ > 0) at_ = now;
  }
  return left_ > 0;
}

std::shared_ptr<FrameRate> FrameRates::Of(std::string_view ticket, Instant now) {
  std::erase_if(of_, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<FrameRate>& known = of_[std::string(ticket)];
  auto rate = known.lock();
  if (rate == nullptr) known = rate = std::make_shared<FrameRate>(limits_, now);
  return rate;
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
}

}  // namespace baton::node
