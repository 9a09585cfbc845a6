#include "k8s/device_plugin/node_pods.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "base/utf8.h"
#include "k8s/api/timestamp.h"
#include "k8s/types/annotations.h"
#include "k8s/types/gpu_pod.h"
#include "k8s/types/quantity.h"
#include "k8s/types/read.h"
#include "spec/modes.h"

namespace baton::k8s {
namespace {

constexpr size_t kNameMax = 128;   // of batond's pods
constexpr size_t kCardsMax = 16;   // of a GpuNode
constexpr size_t kWordsMax = 200;  // likewise, in bytes
constexpr size_t kAdviceMax = 16;  // of a SharePod's status
constexpr size_t kWhyMax = 1'024;  // likewise, in bytes
// Millionths. Smaller changes of what is expected are not worth a write to the API server.
constexpr int64_t kBeyondStep = 50'000;
// A GPU of batond's that is only there to measure it.
constexpr std::string_view kBench = "BENCH-";

// Of the answers of batond, whose types are not taken for granted.
double NumberAt(const Json& object, std::string_view key) {
  const Json* value = Find(object, key);
  return value != nullptr && value->is_number() ? value->get<double>() : 0;
}
uint64_t CountAt(const Json& object, std::string_view key) {
  const Json* value = Find(object, key);
  return value != nullptr && value->is_number_unsigned() ? value->get<uint64_t>() : 0;
}
int32_t PlaceAt(const Json& object, std::string_view key) {
  const double place = Find(object, key) == nullptr ? -1 : NumberAt(object, key);
  return place >= 0 && place < 65536 ? static_cast<int32_t>(place) : -1;
}
bool FlagAt(const Json& object, std::string_view key) {
  const Json* value = Find(object, key);
  return value != nullptr && value->is_boolean() && value->get<bool>();
}

// Names are for people: where one is too long, its pod's uid makes the rest of it unique.
std::string NameFor(const GpuPod& pod, const ContainerGpus& container) {
  std::string name = pod.name.Text();
  if (pod.containers.size() > 1) name += "/" + container.name;
  if (name.size() <= kNameMax) return name;
  const std::string end = fmt::format("~{}/{}", pod.uid.substr(0, 36), container.index);
  return name.substr(0, kNameMax - end.size()) + end;
}

// The third word of "namespace/pod/container"; empty: the pod has one container.
std::string ContainerIn(const std::string& name) {
  const size_t pod = name.find('/');
  const size_t container = pod == std::string::npos ? pod : name.find('/', pod + 1);
  if (container == std::string::npos || name.find('~') != std::string::npos) return "";
  return name.substr(container + 1);
}

// In a SharePod's spelling; empty: it is not advised on.
std::string AdvisedText(const Json& set, std::string_view field) {
  const double value = NumberAt(set, field);
  if (value <= 0) return "";
  if (field != "memory") return fmt::format("{:.10g}", value);
  return fmt::format("{}Mi", static_cast<uint64_t>(std::ceil(value / (1 << 20))));
}

}  // namespace

Result<std::vector<BatondPod>> DesiredPods(const Json& pod, uint32_t memory_unit_mib,
                                           const std::string& node) {
  std::vector<BatondPod> pods;
  if (!TakesRoom(pod)) return pods;
  const bool bound = !TextAt(pod, "spec/nodeName").empty();
  auto read = ReadGpuPod(pod, memory_unit_mib);
  if (!read) return tl::unexpected(read.error());
  if (!read->asks()) return pods;
  auto placement = ReadPlacement(pod);
  if (!placement) return tl::unexpected(placement.error());
  if (!*placement) return pods;
  if (!bound && ((*placement)->node != node || MakesDevicesOn(pod) != LabelOfNode(node))) {
    return pods;
  }
  if (bound && (*placement)->node != TextAt(pod, "spec/nodeName")) {
    return Fail(ErrorCode::kInvalid,
                fmt::format("the placement names GPUs of node {}, but the pod is on another node; "
                            "delete the pod so that it is placed again",
                            (*placement)->node));
  }
  for (size_t i = 0; i < read->containers.size(); ++i) {
    const ContainerGpus& container = read->containers[i];
    BatondPod wanted{read->asked, {}};
    devmgr::Fit fit;
    for (const devmgr::Vgpu& vgpu : (*placement)->vgpus) {
      if (vgpu.container != i) continue;
      fit = vgpu.fit;
      wanted.wishes.gpus.push_back(vgpu.card);
      wanted.wishes.mode = vgpu.mode;
      if (vgpu.mode == spec::kMig) wanted.slots.push_back(vgpu.fit.slot);
    }
    if (wanted.wishes.gpus.empty()) {
      return Fail(
          ErrorCode::kInvalid,
          fmt::format("container {} requests GPUs but the placement has none for it; delete "
                      "the pod so that it is placed again",
                      container.name));
    }
    const spec::Mode* mode = spec::FindMode(wanted.wishes.mode);
    if (mode == nullptr) {
      return Fail(ErrorCode::kInvalid,
                  fmt::format("container {} was placed with mode '{}'; there are {}",
                              container.name, wanted.wishes.mode, spec::ModeNames()));
    }
    if (!bound && mode->by_token) continue;
    const bool by_turns = wanted.wishes.mode == spec::kTimeSlice;
    // A container that has ended.
    if (by_turns && fit.share == policy::Share(0)) continue;
    wanted.without_hook = container.whole;
    wanted.name = NameFor(*read, container);
    wanted.cgroup = read->uid;
    wanted.ticket = TicketOf(read->uid, container.name);
    // It has waited for its place since then.
    wanted.asked_at =
        std::max<int64_t>(0, SecondsIn(TextAt(pod, "metadata/creationTimestamp")).value_or(0));
    // Of idle priority it is room on the GPU alone.
    const bool idle = wanted.share.priority == policy::Priority::kIdle;
    // What the binder has given, not what the annotations ask for by now: it looks at room and
    // quotas.
    const bool part = !mode->by_token;
    const policy::Share given = by_turns || part ? fit.share : container.request;
    wanted.share.request = idle ? policy::Share(0) : given;
    // What was made for it has its size, and no tokens.
    wanted.share.limit = part ? policy::kWhole : std::max(container.limit, given);
    if (part) wanted.share.priority = policy::Priority::kNormal;
    wanted.memory_cap = uint64_t{container.memory.mib} << 20;
    wanted.memory_part = container.memory.part;
    if (by_turns && wanted.swap) {
      wanted.memory_request = std::min(wanted.memory_request, uint64_t{fit.memory_mib} << 20);
    } else if ((by_turns || part) && fit.memory_mib > 0) {
      wanted.memory_cap = uint64_t{fit.memory_mib} << 20;
      wanted.memory_part = policy::Share(0);
    }
    wanted.name_space = read->name.name_space;
    if (!read->gang.empty()) wanted.gang = read->name.name_space + "/" + read->gang;
    pods.push_back(std::move(wanted));
  }
  return pods;
}

std::vector<PresentPod> PresentPods(const Json& status) {
  std::vector<PresentPod> pods;
  for (const Json& row : ListAt(status, "pods")) {
    PresentPod present;
    BatondPod& pod = present.pod;
    // A batond of before says it in the row itself, a part of the memory beside what it comes to.
    const Json* asked = Find(row, "asked");
    Json said = asked != nullptr && asked->is_object() ? *asked : row;
    if (asked == nullptr && NumberAt(row, "memory_percent") > 0) {
      said["memory"] = fmt::format("{}%", NumberAt(row, "memory_percent"));
    }
    for (const spec::PodField& field : spec::PodFields()) {
      const Json* value = Find(said, field.key);
      if (value != nullptr) (void)spec::ReadField(field, *value, pod);
    }
    pod.wishes.gpus.clear();
    for (const Json& gpu : ListAt(row, "gpus")) {
      pod.wishes.gpus.push_back(TextAt(gpu, "uuid"));
      if (std::string device = TextAt(gpu, "device"); !device.empty()) {
        present.devices.push_back(std::move(device));
      }
      if (Find(gpu, "slot") != nullptr) {
        pod.slots.push_back(static_cast<uint32_t>(CountAt(gpu, "slot")));
      }
    }
    present.achieved = NumberAt(row, "achieved_60s");
    if (!present.devices.empty()) present.achieved = NumberAt(said, "request");
    present.held_ns = CountAt(row, "held_ns");
    present.paused = TextAt(row, "phase") == "paused";
    for (const Json& client : ListAt(row, "clients")) {
      present.attached = present.attached || FlagAt(client, "connected");
    }
    if (!pod.name.empty()) pods.push_back(std::move(present));
  }
  return pods;
}

MadeDevices MadeFor(const std::vector<PresentPod>& present,
                    const std::map<std::string, BatondPod>& desired) {
  MadeDevices made;
  for (const PresentPod& one : present) {
    const auto wanted = desired.find(one.pod.name);
    if (wanted == desired.end() || wanted->second.cgroup != one.pod.cgroup ||
        wanted->second.slots != one.pod.slots) {
      continue;
    }
    if (one.devices.empty() || one.devices.size() != wanted->second.wishes.gpus.size()) continue;
    made[wanted->second.ticket] = one.devices;
  }
  return made;
}

GpuNodeUse UseOf(const std::vector<PresentPod>& pods) {
  GpuNodeUse use;
  for (const PresentPod& present : pods) {
    const std::vector<std::string>& gpus = present.pod.wishes.gpus;
    // Of one without GPUs it is not known where it is.
    for (size_t i = 0; i < std::max<size_t>(1, gpus.size()); ++i) {
      use.shares[gpus.empty() ? "" : gpus[i]] += policy::ShareSum(present.pod.share.request);
      use.memory_mib += present.pod.memory_cap >> 20;
    }
  }
  return use;
}

devmgr::Node NodeOf(const Json& status, const std::string& name) {
  devmgr::Node node;
  node.name = name;
  for (const Json& row : ListAt(status, "gpus")) {
    devmgr::Card card;
    card.uuid = TextAt(row, "uuid");
    if (card.uuid.empty() || card.uuid.starts_with(kBench)) continue;
    card.vendor = TextAt(row, "vendor", card.vendor);
    card.model = CutUtf8(TextAt(row, "name"), kWordsMax);
    // What pods that share it may have. At least one: of a GPU whose memory nobody knows, pods
    // without a cap can have a part.
    card.mig_capable = FlagAt(row, "mig_capable");
    card.mig_enabled = FlagAt(row, "mig_enabled");
    for (const Json& instance : ListAt(row, "instances")) {
      card.instances.push_back({0, CutUtf8(TextAt(instance, "profile"), kWordsMax),
                                TextAt(instance, "uuid"),
                                static_cast<uint32_t>(CountAt(instance, "start")),
                                static_cast<uint32_t>(CountAt(instance, "slices"))});
    }
    // Nothing is kept from what the hardware divides.
    const uint64_t memory = CountAt(row, "memory");
    const uint64_t reserve = card.mig_enabled ? 0 : CountAt(row, "memory_reserve");
    card.memory_mib = static_cast<uint32_t>(
        std::clamp<uint64_t>((memory - std::min(memory, reserve)) >> 20, 1, 1 << 24));
    card.numa = PlaceAt(row, "numa");
    card.island = PlaceAt(row, "island");
    card.pcie = PlaceAt(row, "pcie");
    card.bus = TextAt(row, "bus");
    card.cordoned = FlagAt(row, "cordoned");
    const double beyond = std::clamp(NumberAt(row, "use_beyond_requests") * 1e4,
                                     -static_cast<double>(devmgr::Card::kBeyondMax),
                                     static_cast<double>(devmgr::Card::kBeyondMax));
    card.beyond = std::llround(beyond / kBeyondStep) * kBeyondStep;
    card.why = CutUtf8(TextAt(row, "why"), kWordsMax);
    const std::string health = TextAt(row, "health", "healthy");
    if (health == "missing" || !FlagAt(row, "present")) {
      card.health = devmgr::Health::kMissing;
    } else if (health != "healthy") {
      card.health = devmgr::Health::kFailed;
    }
    if (node.cards.size() < kCardsMax) node.cards.push_back(std::move(card));
  }
  return node;
}

void LeaveOut(const MadeDevices& made, devmgr::Node& node) {
  std::set<std::string_view> uuids;
  for (const auto& [ticket, devices] : made) uuids.insert(devices.begin(), devices.end());
  for (devmgr::Card& card : node.cards) {
    std::erase_if(card.instances, [&](const devmgr::MigInstance& instance) {
      return uuids.contains(instance.uuid);
    });
  }
}

std::vector<BatondCommand> Difference(const std::map<std::string, BatondPod>& desired,
                                      const std::map<std::string, BatondPod>& present,
                                      const std::function<bool(const std::string& uid)>& keep) {
  using Kind = BatondCommand::Kind;
  std::vector<BatondCommand> commands;
  const auto alike = [](const BatondPod& a, const BatondPod& b, bool changes) {
    const auto fields = spec::PodFields();
    return std::all_of(fields.begin(), fields.end(), [&](const spec::PodField& field) {
      // Pods of before there were gangs of tokens, or a time since when they were asked for, stay
      // as they are.
      return field.changes != changes || field.key == "gpus" || field.key == "ticket" ||
             field.key == "gang" || field.key == "asked_at" ||
             spec::WriteField(field, a) == spec::WriteField(field, b);
    });
  };
  // What cannot change while it is there. Its ticket may not be known; of a GPU that is away status
  // says nothing: only one that it should not have is wrong.
  const auto same = [&](const BatondPod& wanted, const BatondPod& is) {
    const std::vector<std::string>& gpus = wanted.wishes.gpus;
    return alike(wanted, is, false) && (is.slots.empty() || is.slots == wanted.slots) &&
           std::all_of(is.wishes.gpus.begin(), is.wishes.gpus.end(), [&](const std::string& gpu) {
             return std::find(gpus.begin(), gpus.end(), gpu) != gpus.end();
           });
  };
  for (const auto& [name, is] : present) {
    const auto wanted = desired.find(name);
    if (wanted == desired.end() && keep(is.cgroup)) continue;
    if (wanted == desired.end() || !same(wanted->second, is)) {
      commands.push_back({Kind::kDelete, is});
    }
  }
  std::vector<std::pair<int64_t, BatondCommand>> sets;  // by what they take more
  for (const auto& [name, pod] : desired) {
    const auto is = present.find(name);
    if (is == present.end() || !same(pod, is->second)) continue;
    if (alike(pod, is->second, true)) continue;
    const policy::ShareSpec& was = is->second.share;
    const bool ends = was.latency != Duration(0) && pod.share.latency == Duration(0);
    sets.emplace_back(int64_t{pod.share.request.millionths()} - was.request.millionths(),
                      BatondCommand{Kind::kSet, pod, ends});
  }
  std::stable_sort(sets.begin(), sets.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& [more, set] : sets) commands.push_back(std::move(set));
  for (const bool by_token : {true, false}) {
    for (const auto& [name, pod] : desired) {
      if (spec::ByToken(pod.wishes.mode) != by_token) continue;
      const auto is = present.find(name);
      if (is == present.end() || !same(pod, is->second)) commands.push_back({Kind::kCreate, pod});
    }
  }
  return commands;
}

Json RequestFor(const BatondCommand& command, bool by_cgroup) {
  const BatondPod& pod = command.pod;
  if (command.kind == BatondCommand::Kind::kDelete) {
    return {{"command", "delete_pod"}, {"name", pod.name}};
  }
  const bool create = command.kind == BatondCommand::Kind::kCreate;
  Json request{{"command", create ? "create_pod" : "set_pod"}, {"name", pod.name}};
  for (const spec::PodField& field : spec::PodFields()) {
    if (!create && !field.changes) continue;
    if (field.key == "cgroup" && !by_cgroup) continue;
    Json value = spec::WriteField(field, pod);
    // A batond of before does not know them.
    if ((field.key == "latency" || field.key == "without_hook") && value.is_null()) continue;
    request[field.key] = std::move(value);
  }
  if (create && !pod.slots.empty()) request["slots"] = pod.slots;
  // Where nothing is said, what was said before ends.
  if (pod.memory_cap == 0 && pod.memory_part == policy::Share(0)) request["memory"] = 0;
  if (pod.team.empty()) request["team"] = "";
  if (command.ends_latency) request["latency"] = "none";
  if (!create && pod.swap && pod.memory_request == 0) request["memory_request"] = 0;
  return request;
}

ShareReport ReportOf(const std::vector<PresentPod>& pods) {
  ShareReport report;
  std::set<std::string_view> cards;
  for (const PresentPod& present : pods) {
    report.achieved += present.achieved;
    report.part = report.part || !present.devices.empty();
    report.attached = report.attached || present.attached || report.part;
    report.idle = report.idle || present.pod.share.priority == policy::Priority::kIdle;
    report.paused = report.paused || present.paused;
    report.held_ns += present.held_ns;
    cards.insert(present.pod.wishes.gpus.begin(), present.pod.wishes.gpus.end());
  }
  if (!cards.empty()) report.achieved /= static_cast<double>(cards.size());
  return report;
}

bool WorthTelling(const ShareReport& before, const ShareReport& now) {
  return before.attached != now.attached || before.ended != now.ended || before.idle != now.idle ||
         before.paused != now.paused || std::abs(before.achieved - now.achieved) >= 0.2;
}

Json AdviceOf(const Json& answer, const std::vector<std::string>& names) {
  Json all = Json::array();
  for (const std::string& name : names) {
    Json set = Json::object(), reasons = Json::array();
    for (const Json& row : ListAt(answer, "rows")) {
      const Json* fields = Find(row, "set");
      if (TextAt(row, "pod") != name || fields == nullptr || !fields->is_object()) continue;
      set.update(*fields);
      if (std::string why = TextAt(row, "what") + ": " + TextAt(row, "why");
          why.size() <= kWhyMax && reasons.size() < kAdviceMax) {
        reasons.push_back(std::move(why));
      }
    }
    Json advice = Json::object();
    std::string summary;
    for (const char* field : {"request", "limit", "memory"}) {
      const std::string text = AdvisedText(set, field);
      if (text.empty()) continue;
      advice[field] = text;
      summary += (summary.empty() ? "" : ", ") + (field + (" " + text));
    }
    if (summary.empty() || all.size() == kAdviceMax) continue;
    if (const std::string container = ContainerIn(name); !container.empty()) {
      advice["container"] = container;
      summary.insert(0, container + ": ");
    }
    advice["summary"] = summary;
    advice["reasons"] = std::move(reasons);
    all.push_back(std::move(advice));
  }
  return all;
}

bool PauseWatch::Look(bool waits, uint64_t held_ns, Instant now, Duration long_enough) {
  // Where it held a GPU since the last look, it was not paused all the time, however it is now.
  const bool went_on = held_ns_ && *held_ns_ != held_ns;
  held_ns_ = held_ns;
  if (paused_ ? waits && !went_on : !waits) {
    otherwise_.reset();
  } else if (!otherwise_ || (!paused_ && went_on)) {
    otherwise_ = now;
  } else if (now - *otherwise_ >= long_enough) {
    paused_ = !paused_;
    otherwise_.reset();
  }
  return paused_;
}

Controller SharePodOf(const Json& pod) {
  for (const Json& owner : ListAt(pod, "metadata/ownerReferences")) {
    if (!FlagAt(owner, "controller") || TextAt(owner, "kind") != resources::kSharePods.kind ||
        !TextAt(owner, "apiVersion").starts_with(resources::kSharePods.group + "/")) {
      continue;
    }
    return {{NameOf(pod).name_space, TextAt(owner, "name")}, TextAt(owner, "uid")};
  }
  return {};
}

}  // namespace baton::k8s
