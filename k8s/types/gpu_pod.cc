#include "k8s/types/gpu_pod.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "devmgr/modes/mps_mode.h"
#include "k8s/types/annotations.h"
#include "k8s/types/read.h"
#include "spec/modes.h"

namespace baton::k8s {

namespace {

constexpr size_t kPlacementBytesMax = 64 << 10;
constexpr size_t kPlacedContainersMax = 32;
constexpr size_t kPlacedVgpusMax = 128;
constexpr size_t kCardNameMax = 128;
constexpr uint32_t kVgpuMibMax = 1u << 26;
constexpr uint32_t kMemoryMibMax = 1u << 24;  // of a request

std::string Annotation(std::string_view key) {
  return fmt::format("metadata.annotations[{}]", key);
}

// The annotations of a pod; those that are no texts count as not there.
class Annotations {
 public:
  explicit Annotations(const Json& pod) : all_(Find(pod, "metadata/annotations")) {}

  const std::string* Get(const std::string& key) const {
    if (all_ == nullptr || !all_->is_object()) return nullptr;
    const auto found = all_->find(key);
    if (found == all_->end() || !found->is_string()) return nullptr;
    const auto& text = found->get_ref<const std::string&>();
    return text.empty() ? nullptr : &text;
  }

 private:
  const Json* all_;
};

// An annotation that a container's own wins over the pod's.
struct Said {
  std::string key;
  const std::string* text = nullptr;

  explicit operator bool() const { return text != nullptr; }
  std::string field() const { return Annotation(key); }
};

Said Of(const Annotations& annotations, const std::string& container, std::string_view key) {
  Said said{ContainerKey(container, key), nullptr};
  said.text = annotations.Get(said.key);
  if (said.text == nullptr) {
    said.key = PodKey(key);
    said.text = annotations.Get(said.key);
  }
  return said;
}

// A limit that is counted in whole things; 0: it is not there.
Result<uint32_t> Limit(const Json& limits, std::string_view resource, const std::string& field,
                       std::string_view what) {
  const auto found = limits.find(std::string(resource));
  if (found == limits.end()) return 0;
  const auto milli = MilliQuantity(*found);
  if (!milli) return Refuse(field, milli.error().message);
  // Not as it was written: the API server makes "12500m" of "12.5" before anybody sees it.
  const std::string said = fmt::format("{:.15g}", static_cast<double>(*milli) / 1'000);
  if (*milli % 1'000 != 0) {
    return Refuse(field,
                  fmt::format("{} is not a whole number; round it and {}", Quoted(said), what));
  }
  if (*milli / 1'000 > std::numeric_limits<int32_t>::max()) {
    return Refuse(field, Quoted(said) + " is more than any node has");
  }
  return static_cast<uint32_t>(*milli / 1'000);
}

// Whether what the limits say was settled earlier: they cannot change any more, annotations can.
bool Settled(const Json& pod) {
  if (!TextAt(pod, "spec/nodeName").empty()) return true;
  for (const Json& owner : ListAt(pod, "metadata/ownerReferences")) {
    if (TextAt(owner, "kind") == "SharePod" &&
        TextAt(owner, "apiVersion").starts_with("baton.dev/")) {
      return true;
    }
  }
  return false;
}

struct Reader {
  const Annotations& annotations;
  bool settled;
  bool exclusive;
  uint32_t unit_mib;
  // With swap a pod takes its memory request of a GPU, not its cap.
  bool swap;
  uint64_t reserved_mib;

  // One container by its limits; nothing: it asks for no GPU.
  Result<std::optional<ContainerGpus>> Read(const Json& container, const std::string& where) const {
    const Json* limits = Find(container, "resources/limits");
    if (limits == nullptr || !limits->is_object()) return std::nullopt;
    const bool asks_share = limits->contains(std::string(kShareResource));
    const bool asks_memory = limits->contains(std::string(kMemoryResource));
    ContainerGpus gpus;
    gpus.name = TextAt(container, "name");
    const auto limit_field = [&](std::string_view resource) {
      return fmt::format("{}[{}].resources.limits[{}]", where, gpus.name, resource);
    };
    const std::string share_field = limit_field(kShareResource);
    const std::string memory_field = limit_field(kMemoryResource);
    auto whole = Limit(*limits, kWholeResource, limit_field(kWholeResource), "request whole GPUs");
    if (!whole) return tl::unexpected(whole.error());
    if (*whole == 0 && !asks_share && !asks_memory) return std::nullopt;
    if (gpus.name.empty() || gpus.name.size() > 63) {
      return Refuse(where, "a container that uses GPUs needs a name of 1 to 63 bytes");
    }
    if (*whole > 0)
      return Whole(std::move(gpus), *whole, limit_field(kWholeResource), asks_share || asks_memory);

    auto units = Limit(*limits, kShareResource, share_field,
                       "set the exact value in annotation " + PodKey(keys::kRequest));
    if (!units) return tl::unexpected(units.error());
    if (!asks_share) {
      return Refuse(memory_field, fmt::format("GPU memory requires a GPU share; add {}: "
                                              "\"30\"",
                                              kShareResource));
    }
    if (*units == 0) {
      return Refuse(share_field,
                    "'0' percent of a GPU; set at least 1, or remove the limit for no GPU");
    }
    auto memory_units = Limit(*limits, kMemoryResource, memory_field,
                              "set the exact value in annotation " + PodKey(keys::kMemory));
    if (!memory_units) return tl::unexpected(memory_units.error());
    if (asks_memory && *memory_units == 0) {
      return Refuse(memory_field,
                    "'0' of GPU memory; set at least 1, or remove the limit for no cap");
    }
    gpus.share_units = *units;
    gpus.memory_units = *memory_units;

    if (const Said said = Of(annotations, gpus.name, keys::kCount)) {
      auto count = ReadCount(said.field(), *said.text, kCountMax);
      if (!count) return tl::unexpected(count.error());
      gpus.count = *count;
    }
    if (auto ok = ReadShare(gpus, share_field); !ok) return tl::unexpected(ok.error());
    if (auto ok = ReadMemory(gpus, memory_field); !ok) return tl::unexpected(ok.error());
    return gpus;
  }

  Result<std::optional<ContainerGpus>> Whole(ContainerGpus gpus, uint32_t whole,
                                             const std::string& field, bool others) const {
    if (others) {
      return Refuse(field, fmt::format("the container requests both whole GPUs and a share; "
                                       "remove this limit or {}",
                                       kShareResource));
    }
    if (whole > kCountMax) {
      return Refuse(field, fmt::format("'{}' GPUs; at most {} per container", whole, kCountMax));
    }
    for (const auto key : {keys::kRequest, keys::kLimit, keys::kMemory, keys::kCount}) {
      if (const Said said = Of(annotations, gpus.name, key)) {
        return Refuse(said.field(),
                      fmt::format("container {} requests whole GPUs ({}), which do not support "
                                  "this; use {} instead, or remove the annotation",
                                  gpus.name, kWholeResource, kShareResource));
      }
    }
    gpus.whole = true;
    gpus.count = whole;
    return gpus;
  }

  Result<void> ReadShare(ContainerGpus& gpus, const std::string& field) const {
    const Said request = Of(annotations, gpus.name, keys::kRequest);
    if (request) {
      auto share = ParsePercent(*request.text);
      if (!share) return Refuse(request.field(), share.error().message);
      gpus.request = *share;
      const Units units = UnitsOf(share->millionths(), kShareUnit, gpus.count);
      if (!settled && !units.Holds(gpus.share_units)) {
        return Refuse(field, fmt::format("'{}', but annotation {} requests {} % of {} GPU{}; "
                                         "set this limit to {}",
                                         gpus.share_units, request.key, policy::PercentText(*share),
                                         gpus.count, gpus.count == 1 ? "" : "s", units.least));
      }
    } else {
      const uint32_t each = gpus.share_units / gpus.count;
      if (gpus.share_units % gpus.count != 0) {
        return Refuse(field, fmt::format("'{}' percent cannot be divided evenly among {} GPUs; "
                                         "set a multiple of {}",
                                         gpus.share_units, gpus.count, gpus.count));
      }
      if (each > 100) {
        return Refuse(field,
                      fmt::format("'{}' percent is more than {}; set at most {}, or set the number "
                                  "of GPUs in annotation {}",
                                  gpus.share_units,
                                  gpus.count == 1 ? "one GPU" : fmt::format("{} GPUs", gpus.count),
                                  100 * gpus.count, PodKey(keys::kCount)));
      }
      gpus.request = policy::kWhole * each / 100;
    }
    if (const Said limit = Of(annotations, gpus.name, keys::kLimit)) {
      auto share = ParsePercent(*limit.text);
      if (!share) return Refuse(limit.field(), share.error().message);
      gpus.limit = *share;
      if (gpus.limit < gpus.request) {
        return Refuse(
            limit.field(),
            fmt::format("the limit, {} %, is less than the request, {} %; raise the limit "
                        "or lower the request",
                        policy::PercentText(gpus.limit), policy::PercentText(gpus.request)));
      }
    }
    if (exclusive && (gpus.request != policy::kWhole || gpus.limit != policy::kWhole)) {
      return Refuse(field, fmt::format("mode exclusive uses whole GPUs; set {}, or use mode "
                                       "time-slice",
                                       100 * gpus.count));
    }
    return {};
  }

  // Where limits say something of memory, they say the memory request.
  Result<void> CheckReserved(const ContainerGpus& gpus, const std::string& field) const {
    if (settled || gpus.memory_units == 0) return {};
    if (reserved_mib == 0) {
      return Refuse(field, fmt::format("with swap the pod takes its memory request of a GPU; set "
                                       "annotation {}, or remove this limit",
                                       PodKey(keys::kMemoryRequest)));
    }
    const Units units = UnitsOf(reserved_mib, unit_mib, gpus.count);
    if (units.Holds(gpus.memory_units)) return {};
    return Refuse(field,
                  fmt::format("'{}', but annotation {} requests {} MiB; set this limit to {} "
                              "(units of {} MiB)",
                              gpus.memory_units, PodKey(keys::kMemoryRequest), reserved_mib,
                              units.least, unit_mib));
  }

  Result<void> ReadMemory(ContainerGpus& gpus, const std::string& field) const {
    const Said said = Of(annotations, gpus.name, keys::kMemory);
    if (swap) {
      if (auto ok = CheckReserved(gpus, field); !ok) return ok;
    }
    if (said) {
      auto memory = ParseGpuMemory(*said.text);
      if (!memory) return Refuse(said.field(), memory.error().message);
      gpus.memory = *memory;
      if (settled || gpus.memory_units == 0 || swap) return {};
      if (memory->part > policy::Share(0)) {
        return Refuse(field, "annotation " + said.key +
                                 " requests a part of the GPU's memory, which has no number of "
                                 "units; remove this limit");
      }
      const Units units = UnitsOf(memory->mib, unit_mib, gpus.count);
      if (!units.Holds(gpus.memory_units)) {
        return Refuse(field,
                      fmt::format("'{}', but annotation {} requests {} on {} GPU{}; "
                                  "set this limit to {} (units of {} MiB)",
                                  gpus.memory_units, said.key, GpuMemoryText(*memory), gpus.count,
                                  gpus.count == 1 ? "" : "s", units.least, unit_mib));
      }
      return {};
    }
    if (swap) return {};
    const uint64_t mib = uint64_t{gpus.memory_units} / gpus.count * unit_mib;
    if (gpus.memory_units % gpus.count != 0) {
      return Refuse(field, fmt::format("'{}' units cannot be divided evenly among {} GPUs; set a "
                                       "multiple of {}",
                                       gpus.memory_units, gpus.count, gpus.count));
    }
    if (mib > kMemoryMibMax) {
      return Refuse(field, fmt::format("'{}' units of {} MiB are more memory than any GPU has; at "
                                       "most 16 TiB",
                                       gpus.memory_units, unit_mib));
    }
    gpus.memory.mib = static_cast<uint32_t>(mib);
    return {};
  }
};

uint64_t Plus(uint64_t a, uint64_t b) {
  return a + b < a ? std::numeric_limits<uint64_t>::max() : a + b;
}

struct Needs {
  uint64_t cpu_milli = 0;
  uint64_t memory_bytes = 0;

  void Add(const Needs& other) {
    cpu_milli = Plus(cpu_milli, other.cpu_milli);
    memory_bytes = Plus(memory_bytes, other.memory_bytes);
  }
  void Raise(const Needs& other) {
    cpu_milli = std::max(cpu_milli, other.cpu_milli);
    memory_bytes = std::max(memory_bytes, other.memory_bytes);
  }
};

// Of {"requests": {...}, "limits": {...}}: a limit alone is a request too. What is no quantity
// counts as nothing.
Needs NeedsOf(const Json* resources) {
  Needs needs;
  if (resources == nullptr) return needs;
  const auto value = [&](std::string_view name) -> const Json* {
    const Json* requests = Find(*resources, "requests");
    const Json* found = requests == nullptr ? nullptr : Find(*requests, name);
    if (found != nullptr) return found;
    const Json* limits = Find(*resources, "limits");
    return limits == nullptr ? nullptr : Find(*limits, name);
  };
  if (const Json* cpu = value("cpu")) {
    needs.cpu_milli = static_cast<uint64_t>(MilliQuantity(*cpu).value_or(0));
  }
  if (const Json* memory = value("memory")) {
    needs.memory_bytes = static_cast<uint64_t>(WholeQuantity(*memory).value_or(0));
  }
  return needs;
}

}  // namespace

NodeResources ResourcesOf(const Json& pod) {
  Needs together;  // containers, and init containers that stay
  for (const Json& container : ListAt(pod, "spec/containers")) {
    together.Add(NeedsOf(Find(container, "resources")));
  }
  Needs most;
  Needs staying;
  for (const Json& container : ListAt(pod, "spec/initContainers")) {
    Needs needs = NeedsOf(Find(container, "resources"));
    if (TextAt(container, "restartPolicy") == "Always") {
      staying.Add(needs);
      most.Raise(staying);
    } else {
      needs.Add(staying);
      most.Raise(needs);
    }
  }
  together.Add(staying);
  together.Raise(most);
  // What the pod says as a whole comes before the sum.
  if (const Json* whole = Find(pod, "spec/resources")) {
    const Needs needs = NeedsOf(whole);
    if (needs.cpu_milli > 0) together.cpu_milli = needs.cpu_milli;
    if (needs.memory_bytes > 0) together.memory_bytes = needs.memory_bytes;
  }
  if (const Json* overhead = Find(pod, "spec/overhead")) {
    const Json resources{{"requests", *overhead}};
    together.Add(NeedsOf(&resources));
  }
  const uint64_t mib =
      together.memory_bytes / (1 << 20) + (together.memory_bytes % (1 << 20) != 0 ? 1 : 0);
  return {together.cpu_milli, mib};
}

Result<GpuPod> ReadGpuPod(const Json& pod, uint32_t memory_unit_mib) {
  GpuPod read;
  read.name = NameOf(pod);
  read.uid = UidOf(pod);
  // Before the API server has named it.
  std::string name = read.name.Text();
  if (read.name.name.empty()) name += TextAt(pod, "metadata/generateName", "(new pod)");
  read.request.name = name;

  const Annotations annotations(pod);
  PodWishes wishes;
  for (const WishField& field : WishFields()) {
    if (const std::string* text = annotations.Get(PodKey(field.key))) wishes[field.key] = *text;
  }
  const spec::PodRequest said = AskedBy(wishes);
  const Reader reader{annotations,
                      Settled(pod),
                      Wish(wishes, keys::kMode) == spec::kExclusive,
                      std::max<uint32_t>(1, memory_unit_mib),
                      said.swap,
                      MibOf(said.memory_request)};
  uint32_t index = 0;
  for (const auto& [pointer, where] : {std::pair{"spec/initContainers", "spec.initContainers"},
                                       std::pair{"spec/containers", "spec.containers"}}) {
    for (const Json& container : ListAt(pod, pointer)) {
      auto gpus = reader.Read(container, where);
      if (!gpus) return tl::unexpected(gpus.error());
      if (*gpus) {
        (*gpus)->index = index;
        read.containers.push_back(std::move(**gpus));
      }
      ++index;
    }
  }
  if (!read.asks()) return read;

  const auto by_annotation = [](const WishField& field) { return Annotation(PodKey(field.key)); };
  if (auto ok = CheckWishes(wishes, by_annotation); !ok) return tl::unexpected(ok.error());
  read.asked = AskedBy(wishes);
  const spec::CardWishes cards = std::exchange(read.asked.wishes, {});
  read.gang = Wish(wishes, keys::kGang);
  if (!read.gang.empty()) {
    read.gang_size = ReadCount({}, Wish(wishes, keys::kGangSize), kGangSizeMax).value_or(1);
  }

  if (MibOf(read.asked.memory_request) > kMemoryMibMax) {
    return Refuse(Annotation(PodKey(keys::kMemoryRequest)),
                  Quoted(Wish(wishes, keys::kMemoryRequest)) +
                      " is more memory than any GPU has; at most 16 TiB");
  }
  const bool whole = read.containers.front().whole;
  for (const ContainerGpus& gpus : read.containers) {
    if (gpus.whole != whole) {
      return Refuse(
          "spec.containers",
          fmt::format("containers {} and {} request whole GPUs and a share ({} and {}); a "
                      "pod can use only one of the two",
                      read.containers.front().name, gpus.name, kWholeResource, kShareResource));
    }
    devmgr::VgpuRequest vgpu;
    vgpu.share = gpus.request;
    if (read.asked.swap) {
      vgpu.memory_mib = static_cast<uint32_t>(MibOf(read.asked.memory_request));
    } else {
      vgpu.memory_mib = gpus.memory.mib;
      vgpu.memory_part = gpus.memory.part;
    }
    vgpu.count = gpus.count;
    read.request.containers.push_back({gpus.name, {vgpu}});
    // It takes nothing once it has ended.
    read.request.idle |= gpus.index < ListAt(pod, "spec/initContainers").size();
  }
  const bool divided = !whole && !cards.mode.empty() && !spec::ByToken(cards.mode);
  if (divided && std::any_of(read.containers.begin(), read.containers.end(),
                             [](const ContainerGpus& gpus) { return gpus.count > 1; })) {
    return Refuse(Annotation(PodKey(keys::kCount)),
                  fmt::format("in mode {} a container has a part of one GPU, for a process can "
                              "use no more of them; remove the annotation",
                              cards.mode));
  }
  const bool unfit = whole || divided || cards.mode == spec::kExclusive ||
                     std::any_of(read.containers.begin(), read.containers.end(),
                                 [](const ContainerGpus& gpus) { return gpus.count > 1; });
  if (unfit && read.asked.share.priority == policy::Priority::kIdle) {
    return Refuse(
        Annotation(PodKey(keys::kPriority)),
        "'idle', which is for pods that share one GPU by the token; remove the annotation, "
        "or use mode time-slice and one GPU");
  }
  if (whole && !cards.mode.empty() && cards.mode != spec::kExclusive) {
    return Refuse(Annotation(PodKey(keys::kMode)),
                  fmt::format("{}, but {} requests whole GPUs; use {} instead, or remove the "
                              "annotation",
                              Quoted(cards.mode), kWholeResource, kShareResource));
  }
  for (const ContainerGpus& gpus : read.containers) {
    spec::PodRequest asked = read.asked;
    asked.wishes.mode = whole ? std::string(spec::kExclusive) : cards.mode;
    asked.memory_cap = uint64_t{gpus.memory.mib} << 20;
    asked.memory_part = gpus.memory.part;
    asked.count = gpus.count;
    asked.gang = read.gang;
    if (asked.share.latency != Duration(0)) {
      const bool idle = asked.share.priority == policy::Priority::kIdle;
      auto ok = spec::CheckShare(asked.share, asked.wishes.mode, asked.Together(gpus.count));
      if (idle) ok = Fail(ErrorCode::kInvalid, "a pod of idle priority has no latency");
      if (!ok) {
        return Refuse(Annotation(PodKey(keys::kLatency)),
                      ok.error().message + "; remove the annotation, or what it does not go with");
      }
    }
    if (auto ok = spec::CheckSwap(asked); !ok) {
      return Refuse(Annotation(PodKey(asked.swap ? keys::kSwap : keys::kMemoryRequest)),
                    ok.error().message);
    }
  }
  devmgr::PodRequest& request = read.request;
  const spec::PodRequest& asked = read.asked;
  read.mode_is_auto = !whole && Wish(wishes, keys::kMode) == spec::kAuto;
  // An instance has a fixed size, and no token that these could order.
  const bool by_turns =
      asked.share.priority != policy::Priority::kNormal || asked.swap ||
      asked.share.by_token_only() || !read.gang.empty() ||
      std::any_of(read.containers.begin(), read.containers.end(), [](const ContainerGpus& gpus) {
        return gpus.count > 1 || gpus.limit < policy::kWhole;
      });
  request.mode = cards.mode;
  if (whole) {
    request.mode = spec::kExclusive;
  } else if (cards.mode.empty() && (!read.mode_is_auto || by_turns)) {
    request.mode = spec::kTimeSlice;
  }
  request.team = read.asked.team;
  if (const Json* priority = Find(pod, "spec/priority");
      priority != nullptr && priority->is_number_integer()) {
    request.priority =
        static_cast<int32_t>(std::clamp<int64_t>(priority->get<int64_t>(), INT32_MIN, INT32_MAX));
  }
  const NodeResources resources = ResourcesOf(pod);
  request.cpu_milli = static_cast<uint32_t>(
      std::min<uint64_t>(resources.cpu_milli, std::numeric_limits<uint32_t>::max()));
  request.memory_mib = std::min(resources.memory_mib, uint64_t{1} << 40);
  request.models = cards.models;
  request.not_models = cards.not_models;
  request.uuids = cards.gpus;
  request.not_uuids = cards.not_gpus;
  if (const auto rule = devmgr::ParseRule(cards.node_policy)) request.node_rule = *rule;
  if (const auto rule = devmgr::ParseRule(cards.gpu_policy)) request.card_rule = *rule;
  request.affinity = cards.affinity;
  request.anti_affinity = cards.anti_affinity;
  request.exclusion = cards.exclusion;
  if (!read.gang.empty()) request.gang = read.name.name_space + "/" + read.gang;
  if (const Json* selector = Find(pod, "spec/nodeSelector");
      selector != nullptr && selector->is_object()) {
    for (const auto& [key, value] : selector->items()) {
      if (value.is_string()) request.node_labels.emplace(key, value.get<std::string>());
    }
  }
  if (auto ok = devmgr::Validate(request); !ok) return tl::unexpected(ok.error());
  return read;
}

std::string PlacementText(const GpuPod& pod, const devmgr::Placement& placement) {
  Json containers = Json::array();
  for (size_t i = 0; i < pod.containers.size(); ++i) {
    Json vgpus = Json::array();
    for (const devmgr::Vgpu& vgpu : placement.vgpus) {
      if (vgpu.container != i) continue;
      vgpus.push_back({{"card", vgpu.card},
                       {"mode", vgpu.mode},
                       {"share", vgpu.fit.share.millionths()},
                       {"memoryMiB", vgpu.fit.memory_mib},
                       {"layout", vgpu.fit.layout},
                       {"slot", vgpu.fit.slot}});
    }
    containers.push_back({{"name", pod.containers[i].name}, {"vgpus", std::move(vgpus)}});
  }
  return Json{{"v", 1}, {"node", placement.node}, {"containers", std::move(containers)}}.dump(
      -1, ' ', false, Json::error_handler_t::replace);
}

std::vector<std::pair<std::string, std::string>> PlacementAnnotations(
    const GpuPod& pod, const devmgr::Placement& placement, const GpuPod& made) {
  std::vector<std::pair<std::string, std::string>> annotations;
  annotations.emplace_back(PodKey(keys::kPlacement), PlacementText(pod, placement));
  for (size_t i = 0; i < pod.containers.size(); ++i) {
    std::string devices;
    bool by_token = false;
    for (const devmgr::Vgpu& vgpu : placement.vgpus) {
      if (vgpu.container != i) continue;
      by_token = spec::ByToken(vgpu.mode);
      const std::string& name = pod.containers[i].name;
      const bool by_mps = vgpu.mode == spec::kMps;
      if (!devices.empty()) devices += ',';
      devices += vgpu.device.empty() || by_mps ? vgpu.card : vgpu.device;
      if (!by_mps) continue;
      devmgr::Card card;
      card.uuid = vgpu.card;
      for (const auto& [variable, value] :
           devmgr::MpsMode().EnvironmentOf(card, vgpu.fit, vgpu.device)) {
        if (variable == "CUDA_MPS_PIPE_DIRECTORY") {
          annotations.emplace_back(ContainerKey(name, keys::kMpsPipe), value);
        } else if (variable == "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE") {
          annotations.emplace_back(ContainerKey(name, keys::kMpsShare), value);
        } else if (variable == "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT") {
          annotations.emplace_back(ContainerKey(name, keys::kMpsMemory), value);
        }
      }
    }
    annotations.emplace_back(ContainerKey(pod.containers[i].name, keys::kDevices),
                             std::move(devices));
    if (made.mode_is_auto && by_token) {
      annotations.emplace_back(ContainerKey(pod.containers[i].name, keys::kTicket),
                               TicketOf(made.uid, pod.containers[i].name));
    }
  }
  return annotations;
}

Result<devmgr::Placement> ParsePlacement(std::string_view text) {
  const auto damaged = [](std::string_view what) {
    return Refuse(PodKey(keys::kPlacement),
                  fmt::format("the placement is damaged ({}); delete the pod so that it is placed "
                              "anew",
                              what));
  };
  if (text.size() > kPlacementBytesMax) return damaged("too long");
  const Json read = Json::parse(text, nullptr, false);
  if (!read.is_object()) return damaged("no JSON object");
  const auto number = [](const Json& object, std::string_view key,
                         uint64_t max) -> std::optional<uint64_t> {
    const Json* value = Find(object, key);
    if (value == nullptr || !value->is_number_unsigned() || value->get<uint64_t>() > max) {
      return std::nullopt;
    }
    return value->get<uint64_t>();
  };
  const auto word = [](const std::string& text, size_t bytes) {
    return !text.empty() && text.size() <= bytes &&
           std::all_of(text.begin(), text.end(),
                       [](char c) { return c > 0x20 && c < 0x7f && c != ','; });
  };
  if (number(read, "v", 1) != 1) return damaged("its version is not 1");
  devmgr::Placement placement;
  placement.node = TextAt(read, "node");
  if (!word(placement.node, 253)) return damaged("no node");
  const Json& containers = ListAt(read, "containers");
  if (containers.empty() || containers.size() > kPlacedContainersMax) return damaged("containers");
  uint32_t index = 0;
  for (const Json& container : containers) {
    const Json& vgpus = ListAt(container, "vgpus");
    if (vgpus.empty() || vgpus.size() > kCountMax) return damaged("vgpus");
    for (const Json& vgpu : vgpus) {
      devmgr::Vgpu placed;
      placed.container = index;
      placed.card = TextAt(vgpu, "card");
      placed.mode = TextAt(vgpu, "mode");
      if (!word(placed.card, kCardNameMax)) return damaged("card");
      if (!word(placed.mode, 32)) return damaged("mode");
      const auto share = number(vgpu, "share", policy::kMillion);
      const auto memory = number(vgpu, "memoryMiB", kVgpuMibMax);
      const auto layout = number(vgpu, "layout", std::numeric_limits<uint64_t>::max());
      const auto slot = number(vgpu, "slot", std::numeric_limits<uint32_t>::max());
      if (!share || !memory || !layout || !slot) return damaged("share, memoryMiB, layout or slot");
      placed.fit = {policy::Share(*share), static_cast<uint32_t>(*memory), *layout,
                    static_cast<uint32_t>(*slot)};
      placement.vgpus.push_back(std::move(placed));
    }
    ++index;
  }
  if (placement.vgpus.size() > kPlacedVgpusMax) return damaged("vgpus");
  return placement;
}

Result<std::optional<devmgr::Placement>> ReadPlacement(const Json& pod) {
  const Json* annotations = Find(pod, "metadata/annotations");
  if (annotations == nullptr || !annotations->is_object()) return std::nullopt;
  const auto text = annotations->find(PodKey(keys::kPlacement));
  if (text == annotations->end()) return std::nullopt;
  if (!text->is_string()) return ParsePlacement({}).map([](auto p) { return std::optional(p); });
  auto placement = ParsePlacement(text->get_ref<const std::string&>());
  if (!placement) return tl::unexpected(placement.error());
  return std::optional(std::move(*placement));
}

std::string MakesDevicesOn(const Json& pod) {
  const Json* labels = Find(pod, "metadata/labels");
  if (labels == nullptr || !labels->is_object()) return "";
  const auto label = labels->find(PodKey(keys::kMakesDevices));
  return label != labels->end() && label->is_string() ? label->get<std::string>() : "";
}

bool TakesRoom(const Json& pod) {
  const std::string phase = TextAt(pod, "status/phase");
  return phase != "Succeeded" && phase != "Failed";
}

}  // namespace baton::k8s
