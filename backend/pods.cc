#include "backend/pods.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "base/entropy.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/nesting.h"
#include "base/team_path.h"

namespace baton::backend {
namespace {

using nlohmann::json;

// The scheduler orders pods by 32 bits.
constexpr uint64_t kIdMax = UINT32_MAX;
constexpr std::string_view kPodsFormat = "baton pods ";
constexpr uint64_t kPodsVersion = 1;
constexpr size_t kNestsMost = 32;
const std::string kFirstLine = fmt::format("{}{} ", kPodsFormat, kPodsVersion);

// The conversion of a number that does not fit is not an error of JSON's own.
template <class N>
N NumberOf(const json& value) {
  const bool fits = value.is_number_unsigned()  ? std::in_range<N>(value.get<uint64_t>())
                    : value.is_number_integer() ? std::in_range<N>(value.get<int64_t>())
                                                : false;
  if (!fits) throw std::out_of_range("a number is out of range: " + value.dump().substr(0, 64));
  return static_cast<N>(value.is_number_unsigned() ? value.get<uint64_t>()
                                                   : static_cast<uint64_t>(value.get<int64_t>()));
}

template <class N>
N NumberAt(const json& entry, const char* key) {
  return NumberOf<N>(entry.at(key));
}

template <class N>
N NumberAt(const json& entry, const char* key, N absent) {
  const auto at = entry.find(key);
  return at == entry.end() ? absent : NumberOf<N>(*at);
}

policy::Share ShareAt(const json& entry, const char* key) {
  return policy::Share(NumberAt<uint32_t>(entry, key));
}

std::vector<std::string> TextsAt(const json& entry, const char* key) {
  return entry.value(key, std::vector<std::string>{});
}

json WishesJson(const Pod& pod) {
  json said = json::object();
  for (const spec::PodField& field : spec::PodFields()) {
    if (!field.is_wish()) continue;
    if (json value = spec::WriteField(field, pod); !value.is_null()) said[field.key] = value;
  }
  return said;
}

// Keys that this version does not know are of a later one.
Result<void> ReadAsked(const json& asked, Pod& pod) {
  for (const auto& [key, value] : asked.items()) {
    const spec::PodField* field = spec::FindPodField(key);
    if (field == nullptr) continue;
    if (auto read = spec::ReadField(*field, value, pod); !read) return read;
  }
  return {};
}

}  // namespace

uint64_t Pod::CapOn(std::string_view gpu) const {
  if (memory_cap != 0 || memory_part == policy::Share(0)) return memory_cap;
  for (size_t i = 0; i < gpus.size() && i < vgpus.size(); ++i) {
    if (gpus[i] == gpu) return uint64_t{vgpus[i].fit.memory_mib} << 20;
  }
  return 0;
}

std::vector<std::string> Pod::Accounted() const {
  std::vector<std::string> all = gpus;
  for (const PodVgpu& vgpu : vgpus) {
    for (const std::string& gpu : vgpu.before) {
      if (std::find(all.begin(), all.end(), gpu) == all.end()) all.push_back(gpu);
    }
  }
  return all;
}

Result<void> CheckPriority(policy::Priority priority, std::string_view mode, bool gang) {
  if (priority != policy::Priority::kIdle) return {};
  if (!mode.empty() && mode != spec::kTimeSlice) {
    return Fail(ErrorCode::kInvalid,
                fmt::format("idle priority needs mode {}, where GPUs are shared by the token",
                            spec::kTimeSlice));
  }
  if (gang) {
    return Fail(
        ErrorCode::kInvalid,
        "a pod of idle priority is in no gang, and has one GPU or several that are "
        "--independent: the tokens of all at once would keep GPUs from those who have work");
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
  pod.vgpus.resize(pod.gpus.size());
  pod.id = PodId{++last_id_};
  return &Enter(std::move(pod));
}

Pod& Pods::Enter(Pod pod) {
  by_name_[pod.name] = pod.id;
  by_ticket_[pod.ticket] = pod.id;
  Pod& entered = pods_.emplace(pod.id, std::move(pod)).first->second;
  JoinGang(entered);
  return entered;
}

void Pods::JoinGang(Pod& pod) {
  pod.beside_own = false;
  if (pod.gang.empty() || !pod.in_gang()) return;
  const std::vector<const Pod*> gang = GangOf(pod);
  pod.beside_own = std::any_of(gang.begin(), gang.end(), [&](const Pod* other) {
    return other->id != pod.id && std::any_of(pod.gpus.begin(), pod.gpus.end(),
                                              [&](const auto& gpu) { return other->Has(gpu); });
  });
  if (!pod.beside_own && MissingOf(pod) != 0) return;
  for (const Pod* other : gang) Find(other->id)->gang_met = true;
}

size_t Pods::MissingOf(const Pod& pod) const {
  if (pod.gang.empty() || !pod.in_gang()) return 0;
  size_t size = 0;
  const std::vector<const Pod*> gang = GangOf(pod);
  for (const Pod* other : gang) {
    if (other->gang_met) return 0;
    size = std::max<size_t>(size, other->gang_size);
  }
  return size - std::min(size, gang.size());
}

std::vector<const Pod*> Pods::GangOf(const Pod& pod) const {
  std::vector<const Pod*> gang;
  if (!pod.in_gang()) return gang;
  if (pod.gang.empty()) {
    if (const Pod* self = Find(pod.id)) gang.push_back(self);
    return gang;
  }
  for (const auto& [id, other] : pods_) {
    if (other.gang == pod.gang && other.in_gang()) gang.push_back(&other);
  }
  return gang;
}

void Pods::Remove(PodId id, bool departs) {
  auto it = pods_.find(id);
  if (it == pods_.end()) return;
  if (departs) departed_[id] = {it->second.owner(), it->second.Accounted()};
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

void Pods::SetCordoned(const std::string& gpu, bool cordoned) {
  if (cordoned) {
    cordoned_.insert(gpu);
  } else {
    cordoned_.erase(gpu);
  }
}

std::string Pods::Save() const {
  json list = json::array();
  for (const auto& [id, pod] : pods_) {
    if (pod.throw_away) continue;
    json vgpus = json::array();
    for (const PodVgpu& vgpu : pod.vgpus) {
      json row{{"share", vgpu.fit.share.millionths()},
               {"memory_mib", vgpu.fit.memory_mib},
               {"slot", vgpu.fit.slot},
               {"memory_peak", vgpu.memory_peak}};
      if (!vgpu.device.empty()) row["device"] = vgpu.device;
      if (!vgpu.before.empty()) row["before"] = vgpu.before;
      vgpus.push_back(std::move(row));
    }
    list.push_back({
        {"id", id.value},
        {"name", pod.name},
        {"request", pod.share.request.millionths()},
        {"limit", pod.share.limit.millionths()},
        {"priority", static_cast<int>(pod.share.priority)},
        {"memory", pod.memory_cap},
        {"memory_part", pod.memory_part.millionths()},
        {"team", pod.team},
        {"user", pod.user},
        {"namespace", pod.name_space},
        {"gpus", pod.gpus},
        {"mode", pod.mode},
        {"vgpus", std::move(vgpus)},
        {"wishes", WishesJson(pod)},
        {"ticket", pod.ticket},
        {"uid", pod.uid},
        {"cgroup", pod.cgroup},
        {"independent", pod.independent},
        {"gang_met", pod.gang_met},
        {"from_file", pod.from_file},
        // All of it once more, by the table: what is above is for versions that know no more.
        {"asked", spec::WriteFields(pod)},
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
  const std::string body = json{
      {"last_id", last_id_},
      {"pods", list},
      {"departed", departed},
      {"cordoned", cordoned_}}.dump(1, ' ', false, json::error_handler_t::replace);
  return fmt::format("{}{:016x}\n{}\n", kFirstLine, HashOf(body), body);
}

Result<void> Pods::Load(const std::string& text) {
  Pods loaded;
  auto read = loaded.Read(text);
  if (!read) return read;
  last_id_ = loaded.last_id_;
  pods_ = std::move(loaded.pods_);
  departed_ = std::move(loaded.departed_);
  by_name_ = std::move(loaded.by_name_);
  by_ticket_ = std::move(loaded.by_ticket_);
  cordoned_ = std::move(loaded.cordoned_);
  return {};
}

Result<void> Pods::Read(const std::string& text) {
  if (IsOfNewerVersion(text, kPodsFormat, kPodsVersion)) {
    return Fail(ErrorCode::kDenied, "a newer version of Baton wrote it");
  }
  const size_t line = text.find('\n');
  if (line == std::string::npos || text.compare(0, kFirstLine.size(), kFirstLine) != 0) {
    return Fail(ErrorCode::kInvalid, "this is not a pods file");
  }
  std::string body = text.substr(line + 1);
  if (!body.empty() && body.back() == '\n') body.pop_back();
  if (text.substr(kFirstLine.size(), line - kFirstLine.size()) !=
      fmt::format("{:016x}", HashOf(body))) {
    return Fail(ErrorCode::kInvalid, "its checksum does not match");
  }
  if (!JsonNestsWithin(body, kNestsMost)) {
    return Fail(ErrorCode::kInvalid, "its values lie too deep in each other");
  }
  try {
    const json root = json::parse(body);
    last_id_ = NumberAt<uint64_t>(root, "last_id");
    for (const json& entry : root.at("pods")) {
      Pod pod;
      pod.id = PodId{NumberAt<uint64_t>(entry, "id")};
      pod.name = entry.at("name");
      pod.share.request = ShareAt(entry, "request");
      pod.share.limit = ShareAt(entry, "limit");
      pod.share.priority = static_cast<policy::Priority>(NumberAt<uint8_t>(entry, "priority"));
      pod.memory_cap = NumberAt<uint64_t>(entry, "memory");
      pod.team = TeamPath(entry.at("team").get<std::string>());
      pod.user = entry.value("user", "");
      pod.name_space = entry.value("namespace", "");
      pod.gpus = entry.at("gpus").get<std::vector<std::string>>();
      // Files of before there were virtual GPUs: by turns, and placed anew where they are.
      pod.mode = entry.value("mode", std::string(spec::kTimeSlice));
      pod.memory_part = policy::Share(NumberAt<uint32_t>(entry, "memory_part", 0));
      for (const json& row : entry.value("vgpus", json::array())) {
        PodVgpu vgpu;
        vgpu.fit = {ShareAt(row, "share"), NumberAt<uint32_t>(row, "memory_mib"), 0,
                    NumberAt<uint32_t>(row, "slot")};
        vgpu.device = row.value("device", "");
        vgpu.memory_peak = NumberAt<uint64_t>(row, "memory_peak", 0);
        vgpu.before = TextsAt(row, "before");
        pod.vgpus.push_back(std::move(vgpu));
      }
      pod.vgpus.resize(pod.gpus.size());
      pod.ticket = entry.at("ticket");
      pod.uid = NumberAt<int64_t>(entry, "uid");
      pod.cgroup = entry.value("cgroup", "");
      pod.independent = entry.value("independent", false);
      pod.gang_met = entry.value("gang_met", false);
      pod.from_file = entry.at("from_file");
      const auto asked = entry.find("asked");
      if (auto read =
              ReadAsked(asked != entry.end() ? *asked : entry.value("wishes", json::object()), pod);
          !read) {
        return read;
      }
      // Save() writes it by the table, which must take it again.
      spec::PodRequest written;
      if (auto read = spec::ReadFields(spec::WriteFields(pod), written); !read) return read;
      auto share = policy::Validated(pod.share);
      if (!share) return tl::unexpected(share.error());
      if (pod.id.value == 0 || pod.id.value > last_id_ || last_id_ > kIdMax) {
        return Fail(ErrorCode::kInvalid, "a pod's id is out of range");
      }
      pod.share = *share;
      if (pod.share.priority > policy::Priority::kIdle || pod.gpus.empty()) {
        return Fail(ErrorCode::kInvalid, "a pod has no GPU, or an unknown priority");
      }
      if (pods_.count(pod.id) + by_name_.count(pod.name) + by_ticket_.count(pod.ticket) != 0) {
        return Fail(ErrorCode::kInvalid, "a pod's id, name or ticket is listed twice");
      }
      if (auto ok = CheckPriority(pod.share.priority, pod.mode, pod.in_gang()); !ok) return ok;
      Enter(std::move(pod));
    }
    for (const std::string& gpu : TextsAt(root, "cordoned")) cordoned_.insert(gpu);
    for (const json& entry : root.value("departed", json::array())) {
      departed_[PodId{NumberAt<uint64_t>(entry, "id")}] = {
          {entry.at("name"), entry.at("namespace"), TeamPath(entry.at("team").get<std::string>()),
           entry.at("user")},
          entry.at("gpus").get<std::vector<std::string>>()};
    }
  } catch (const std::exception& e) {
    return Fail(ErrorCode::kInvalid, e.what());
  }
  return {};
}

}  // namespace baton::backend
