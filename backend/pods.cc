#include "backend/pods.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "backend/process.h"
#include "backend/usage_book.h"

namespace baton::backend {
namespace {

using nlohmann::json;

// The scheduler orders pods by 32 bits.
constexpr uint64_t kIdMax = UINT32_MAX;
constexpr std::string_view kFirstLine = "baton pods 1 ";

std::string PercentText(policy::Share share) { return fmt::format("{}%", share / 1e4); }

}  // namespace

policy::Share Pods::Room(std::string_view gpu) const {
  uint64_t requested = 0;
  for (const auto& [id, pod] : pods_) {
    if (pod.throw_away) continue;
    if (std::find(pod.gpus.begin(), pod.gpus.end(), gpu) != pod.gpus.end()) {
      requested += pod.share.request;
    }
  }
  return requested >= overcommit_ ? 0 : static_cast<policy::Share>(overcommit_ - requested);
}

Result<void> Pods::Admit(const Pod& pod, policy::Share request) const {
  if (pod.throw_away) return {};
  for (const std::string& gpu : pod.gpus) {
    uint64_t requested = 0;
    std::string holders;
    for (const auto& [id, other] : pods_) {
      if (id == pod.id || other.throw_away) continue;
      if (std::find(other.gpus.begin(), other.gpus.end(), gpu) == other.gpus.end()) continue;
      requested += other.share.request;
      if (holders.size() < 200) {
        holders += fmt::format("{}{} {}", holders.empty() ? "" : ", ", other.name,
                               PercentText(other.share.request));
      } else if (holders.back() != '.') {
        holders += ", ...";
      }
    }
    if (requested + request <= overcommit_) continue;
    const auto left =
        requested >= overcommit_ ? 0 : static_cast<policy::Share>(overcommit_ - requested);
    return Fail(ErrorCode::kExhausted,
                fmt::format("{} of {} is asked for, but only {} of {} is left ({}); request less, "
                            "take another GPU, remove a pod, or raise scheduler.overcommit",
                            PercentText(request), gpu, PercentText(left), PercentText(overcommit_),
                            holders.empty() ? "nobody else has any" : holders));
  }
  return {};
}

Result<Pod*> Pods::Add(Pod pod) {
  if (by_name_.count(pod.name) != 0) {
    return Fail(ErrorCode::kExists,
                fmt::format("there is a pod {} already; choose another name, or "
                            "remove it with: baton rm {}",
                            pod.name, pod.name));
  }
  if (pod.ticket.empty()) pod.ticket = RandomTicket();
  if (by_ticket_.count(pod.ticket) != 0) {
    return Fail(ErrorCode::kExists, "another pod has this ticket");
  }
  if (last_id_ >= kIdMax) return Fail(ErrorCode::kExhausted, "the ids of pods are used up");
  pod.id = PodId{};
  if (auto admitted = Admit(pod, pod.share.request); !admitted) {
    return tl::unexpected(admitted.error());
  }
  pod.id = PodId{++last_id_};
  by_name_[pod.name] = pod.id;
  by_ticket_[pod.ticket] = pod.id;
  return &pods_.emplace(pod.id, std::move(pod)).first->second;
}

Result<void> Pods::SetShare(Pod& pod, const policy::ShareSpec& share) {
  // Asking for less is always fine, even where the GPU is overbooked for other reasons.
  if (share.request > pod.share.request) {
    if (auto admitted = Admit(pod, share.request); !admitted) return admitted;
  }
  pod.share = share;
  return {};
}

void Pods::Remove(PodId id, bool departs) {
  auto it = pods_.find(id);
  if (it == pods_.end()) return;
  if (departs) departed_[id] = {it->second.owner(), it->second.gpus};
  by_name_.erase(it->second.name);
  by_ticket_.erase(it->second.ticket);
  pods_.erase(it);
}

Pod* Pods::Find(PodId id) {
  auto it = pods_.find(id);
  return it == pods_.end() ? nullptr : &it->second;
}

Pod* Pods::FindByName(std::string_view name) {
  auto it = by_name_.find(std::string(name));
  return it == by_name_.end() ? nullptr : Find(it->second);
}

Pod* Pods::FindByTicket(std::string_view ticket) {
  auto it = by_ticket_.find(std::string(ticket));
  return it == by_ticket_.end() ? nullptr : Find(it->second);
}

std::string Pods::Save() const {
  json list = json::array();
  for (const auto& [id, pod] : pods_) {
    if (pod.throw_away) continue;
    list.push_back({
        {"id", id.value},
        {"name", pod.name},
        {"request", pod.share.request},
        {"limit", pod.share.limit},
        {"priority", static_cast<int>(pod.share.priority)},
        {"memory", pod.memory_cap},
        {"team", pod.team},
        {"user", pod.user},
        {"namespace", pod.name_space},
        {"gpus", pod.gpus},
        {"ticket", pod.ticket},
        {"uid", pod.uid},
        {"independent", pod.independent},
        {"from_file", pod.from_file},
    });
  }
  json departed = json::array();
  for (const auto& [id, pod] : departed_) {
    departed.push_back({{"id", id.value},
                        {"name", pod.owner.pod},
                        {"team", pod.owner.team},
                        {"user", pod.owner.user},
                        {"namespace", pod.owner.name_space},
                        {"gpus", pod.gpus}});
  }
  const std::string body = json{{"last_id", last_id_}, {"pods", list}, {"departed", departed}}.dump(
      1, ' ', false, json::error_handler_t::replace);
  return fmt::format("{}{:016x}\n{}\n", kFirstLine, UsageBook::GpuKey(body), body);
}

Result<void> Pods::Load(const std::string& text) {
  Pods loaded(overcommit_);
  auto read = loaded.Read(text);
  if (!read) return read;
  last_id_ = loaded.last_id_;
  pods_ = std::move(loaded.pods_);
  departed_ = std::move(loaded.departed_);
  by_name_ = std::move(loaded.by_name_);
  by_ticket_ = std::move(loaded.by_ticket_);
  return {};
}

Result<void> Pods::Read(const std::string& text) {
  const size_t line = text.find('\n');
  if (line == std::string::npos || text.compare(0, kFirstLine.size(), kFirstLine) != 0) {
    return Fail(ErrorCode::kInvalid, "this is not a file of pods");
  }
  std::string body = text.substr(line + 1);
  if (!body.empty() && body.back() == '\n') body.pop_back();
  if (text.substr(kFirstLine.size(), line - kFirstLine.size()) !=
      fmt::format("{:016x}", UsageBook::GpuKey(body))) {
    return Fail(ErrorCode::kInvalid, "its checksum does not match");
  }
  try {
    const json root = json::parse(body);
    last_id_ = root.at("last_id");
    for (const json& entry : root.at("pods")) {
      Pod pod;
      pod.id = PodId{entry.at("id")};
      pod.name = entry.at("name");
      pod.share.request = entry.at("request");
      pod.share.limit = entry.at("limit");
      pod.share.priority = static_cast<policy::Priority>(entry.at("priority").get<int>());
      pod.memory_cap = entry.at("memory");
      pod.team = entry.at("team");
      pod.user = entry.value("user", "");
      pod.name_space = entry.value("namespace", "");
      pod.gpus = entry.at("gpus").get<std::vector<std::string>>();
      pod.ticket = entry.at("ticket");
      pod.uid = entry.at("uid");
      pod.independent = entry.value("independent", false);
      pod.from_file = entry.at("from_file");
      auto share = policy::Validated(pod.share);
      if (!share) return tl::unexpected(share.error());
      if (pod.id.value == 0 || pod.id.value > last_id_ || last_id_ > kIdMax) {
        return Fail(ErrorCode::kInvalid, "a pod's id is out of range");
      }
      pod.share = *share;
      by_name_[pod.name] = pod.id;
      by_ticket_[pod.ticket] = pod.id;
      pods_.emplace(pod.id, std::move(pod));
    }
    for (const json& entry : root.value("departed", json::array())) {
      departed_[PodId{entry.at("id")}] = {
          {entry.at("name"), entry.at("namespace"), entry.at("team"), entry.at("user")},
          entry.at("gpus").get<std::vector<std::string>>()};
    }
  } catch (const json::exception& e) {
    return Fail(ErrorCode::kInvalid, e.what());
  }
  return {};
}

}  // namespace baton::backend
