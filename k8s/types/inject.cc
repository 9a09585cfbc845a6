#include "k8s/types/inject.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "k8s/types/flavors.h"
#include "k8s/types/gpu_pod.h"
#include "k8s/types/quantity.h"
#include "k8s/types/read.h"
#include "spec/modes.h"

namespace baton::k8s {

namespace {

constexpr std::string_view kLdPreload = "LD_PRELOAD";
constexpr std::string_view kNvidiaDevices = "NVIDIA_VISIBLE_DEVICES";

std::string HookPath() { return std::string(kHookDir) + "/libbaton.so"; }

Json Plain(std::string_view name, std::string value) {
  return {{"name", name}, {"value", std::move(value)}};
}
Json FromField(std::string_view name, std::string path) {
  return {{"name", name}, {"valueFrom", {{"fieldRef", {{"fieldPath", std::move(path)}}}}}};
}

// Whether `theirs` says what `ours` does; the API server adds fields of its own (apiVersion).
bool Covers(const Json& theirs, const Json& ours) {
  if (!ours.is_object()) return theirs == ours;
  if (!theirs.is_object()) return false;
  return std::all_of(ours.items().begin(), ours.items().end(), [&](const auto& member) {
    const auto found = theirs.find(member.key());
    return found != theirs.end() && Covers(*found, member.value());
  });
}

// The member `key`, an array; made where it is not there.
Result<Json*> Array(Json& object, const char* key, const std::string& where) {
  Json& member = object[key];
  if (member.is_null()) member = Json::array();
  if (!member.is_array()) return Refuse(fmt::format("{}.{}", where, key), "must be a list");
  return &member;
}

Json* Named(Json& list, std::string_view name) {
  for (Json& entry : list) {
    if (TextAt(entry, "name") == name) return &entry;
  }
  return nullptr;
}

// An entry of a list whose name is ours: added in front of `at`, or there already. Of several of
// one name the last one counts in a container.
Result<void> Put(Json& list, size_t& at, Json ours, const std::string& field) {
  const std::string name = TextAt(ours, "name");
  bool there = false;
  for (const Json& theirs : list) {
    if (TextAt(theirs, "name") != name) continue;
    if (!Covers(theirs, ours)) {
      return Refuse(field, Quoted(name) + " is set by Baton in pods that use GPUs; remove it");
    }
    there = true;
  }
  if (there) return {};
  list.insert(list.begin() + static_cast<Json::difference_type>(at++), std::move(ours));
  return {};
}

// Whether `path` is that folder or in it.
bool IsIn(const std::string& path, const std::string& folder) {
  const auto normal = [](const std::string& text) {
    return std::filesystem::path(text + "/").lexically_normal().string();
  };
  return normal(path).starts_with(normal(folder));
}

// A mount over one of ours would hide it. The one that webhooks of before put in shows the same.
Result<void> CheckPaths(const Json& mounts, const Json& volumes, const std::string& where,
                        const InjectOptions& options) {
  for (const HookMount& ours : HookMounts(options)) {
    if (ours.container_path == kPreloadPath) continue;
    for (const Json& mount : mounts) {
      const std::string path = TextAt(mount, "mountPath");
      if (!IsIn(path, ours.container_path) || !IsIn(ours.container_path, path)) continue;
      const bool same = std::any_of(volumes.begin(), volumes.end(), [&](const Json& volume) {
        return TextAt(volume, "name") == TextAt(mount, "name") &&
               TextAt(volume, "hostPath/path") == ours.host_path;
      });
      if (same) continue;
      return Refuse(where + ".volumeMounts",
                    fmt::format("{} is where Baton's hook is in pods with GPUs; use another path",
                                ours.container_path));
    }
  }
  return {};
}

Result<void> AddHook(Json& container, const ContainerGpus& gpus, const Json& volumes,
                     const std::string& away, const GpuPod& pod, const std::string& where,
                     const InjectOptions& options) {
  auto env = Array(container, "env", where);
  if (!env) return tl::unexpected(env.error());
  const std::string env_field = where + ".env";

  const std::string devices =
      fmt::format("metadata.annotations['{}']", ContainerKey(gpus.name, keys::kDevices));
  std::vector<Json> ours;
  const bool hook = !gpus.whole && (pod.mode_is_auto || spec::ByToken(pod.request.mode));
  if (hook) {
    ours.push_back(FromField("BATON_POD_UID", "metadata.uid"));
    // Without a ticket the hook stands aside, as it must in a MIG instance.
    ours.push_back(
        pod.mode_is_auto
            ? FromField("BATON_TICKET", fmt::format("metadata.annotations['{}']",
                                                    ContainerKey(gpus.name, keys::kTicket)))
            : Plain("BATON_TICKET", TicketOf("$(BATON_POD_UID)", gpus.name)));
    ours.push_back(Plain("BATON_SOCKET", std::string(kSocketDir) + "/baton.sock"));
    if (!away.empty()) ours.push_back(Plain("BATON_AWAY", away));
    if (pod.asked.swap) ours.push_back(Plain("BATON_SWAP", "1"));
  }
  ours.push_back(FromField(kNvidiaDevices, devices));
  ours.push_back(FromField("CUDA_VISIBLE_DEVICES", devices));
  if (pod.request.mode == spec::kMps) {
    const auto from = [&](std::string_view variable, std::string_view key) {
      ours.push_back(FromField(
          variable, fmt::format("metadata.annotations['{}']", ContainerKey(gpus.name, key))));
    };
    from("CUDA_MPS_PIPE_DIRECTORY", keys::kMpsPipe);
    from("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", keys::kMpsShare);
    if (gpus.memory != GpuMemory{}) from("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", keys::kMpsMemory);
    for (const char* part : {"limits", "requests"}) {
      const Json* there = Find(container, std::string("resources/") + part);
      if (there != nullptr && there->is_object()) {
        container["resources"][part][std::string(kMpsResource)] = "1";
      }
    }
  }
  size_t at = 0;
  for (Json& entry : ours) {
    if (auto ok = Put(**env, at, std::move(entry), env_field); !ok) return ok;
  }
  if (!hook) return {};

  Json* preload = Named(**env, kLdPreload);
  if (preload == nullptr) {
    (*env)->insert((*env)->begin() + static_cast<Json::difference_type>(at),
                   Plain(kLdPreload, HookPath()));
  } else if (preload->contains("valueFrom")) {
    return Refuse(env_field,
                  "LD_PRELOAD uses valueFrom, so Baton cannot add its hook; set it as a value");
  } else {
    const std::string theirs = TextAt(*preload, "value");
    if (theirs.empty()) {
      (*preload)["value"] = HookPath();
    } else if (theirs != HookPath() && !theirs.starts_with(HookPath() + ":")) {
      (*preload)["value"] = HookPath() + ":" + theirs;
    }
  }

  const Json* mounts = Find(container, "volumeMounts");
  if (mounts == nullptr || mounts->is_null()) return {};
  if (!mounts->is_array()) return Refuse(where + ".volumeMounts", "must be a list");
  return CheckPaths(*mounts, volumes, where, options);
}

// Where nodes with GPUs are kept for pods that ask for GPUs, and how their runtime is named.
Result<void> AddPlaces(Json& spec, const InjectOptions& options) {
  if (!options.runtime_class.empty() && TextAt(spec, "runtimeClassName").empty()) {
    spec["runtimeClassName"] = options.runtime_class;
  }
  if (options.tolerate.empty()) return {};
  auto tolerations = Array(spec, "tolerations", "spec");
  if (!tolerations) return tl::unexpected(tolerations.error());
  for (const std::string& key : options.tolerate) {
    Json ours{{"key", key}, {"operator", "Exists"}, {"effect", "NoSchedule"}};
    const bool there = std::any_of((*tolerations)->begin(), (*tolerations)->end(),
                                   [&](const Json& theirs) { return Covers(theirs, ours); });
    if (!there) (*tolerations)->push_back(std::move(ours));
  }
  return {};
}

// Units are whole numbers and few; nobody writes a mebibyte of them.
constexpr int64_t kLeastBytes = 1 << 20;

// Whether annotations can be set.
Result<void> CheckAnnotations(const Json& pod) {
  for (const char* key : {"metadata", "metadata/annotations"}) {
    const Json* member = Find(pod, key);
    if (member != nullptr && !member->is_null() && !member->is_object()) {
      return Refuse(key, "an object is needed");
    }
  }
  return {};
}

// A limit of GPU memory that is written as a size, as everywhere else, becomes a number of units.
Result<void> CountMemory(Json& pod, uint32_t memory_unit_mib) {
  const uint32_t unit = std::max<uint32_t>(1, memory_unit_mib);
  const std::string resource(kMemoryResource);
  for (const char* list : {"initContainers", "containers"}) {
    for (size_t i = 0; i < ListAt(pod, std::string("spec/") + list).size(); ++i) {
      Json& container = pod["spec"][list][i];
      const Json* limits = Find(container, "resources/limits");
      if (limits == nullptr || !limits->is_object() || !limits->contains(resource)) continue;
      const auto bytes = WholeQuantity((*limits)[resource]);
      if (!bytes || *bytes < kLeastBytes) continue;
      const std::string name = TextAt(container, "name");
      const auto annotation = [&](std::string_view key) {
        const Json* all = Find(pod, "metadata/annotations");
        for (const std::string& at : {ContainerKey(name, key), PodKey(key)}) {
          if (all != nullptr && all->is_object() && all->contains(at) && (*all)[at].is_string()) {
            return (*all)[at].get<std::string>();
          }
        }
        return std::string();
      };
      const std::string field =
          fmt::format("spec.{}[{}].resources.limits[{}]", list, name, resource);
      uint32_t count = 1;
      if (const std::string text = annotation(keys::kCount); !text.empty()) {
        auto read = ReadCount(PodKey(keys::kCount), text, kCountMax);
        if (!read) return tl::unexpected(read.error());
        count = *read;
      }
      const int64_t mib = *bytes / kLeastBytes + (*bytes % kLeastBytes != 0 ? 1 : 0);
      if (mib % count != 0) {
        return Refuse(field,
                      fmt::format("{} MiB cannot be divided evenly among {} GPUs", mib, count));
      }
      if (mib / count > int64_t{1} << 24) {
        return Refuse(field, "more memory than any GPU has; at most 16 TiB");
      }
      const GpuMemory each{static_cast<uint32_t>(mib / count), {}};
      // With swap limits say what is reserved.
      const bool swap = annotation(keys::kSwap) == "true";
      const auto key = swap ? keys::kMemoryRequest : keys::kMemory;
      if (auto ok = CheckAnnotations(pod); !ok) return ok;
      if (annotation(key).empty()) {
        pod["metadata"]["annotations"][swap ? PodKey(key) : ContainerKey(name, key)] =
            GpuMemoryText(each);
      }
      const std::string units = std::to_string(UnitsOf(each.mib, unit, count).least);
      for (const char* part : {"limits", "requests"}) {
        const Json* quantities = Find(container, std::string("resources/") + part);
        if (quantities == nullptr || !quantities->contains(resource)) continue;
        container["resources"][part][resource] = units;
      }
    }
  }
  return {};
}

}  // namespace

std::vector<HookMount> HookMounts(const InjectOptions& options) {
  return {
      {std::string(kSocketDir), options.socket_dir, false},
      {std::string(kHookDir), options.host_hook_dir, false},
      {std::string(kPreloadPath), options.host_hook_dir + "/" + std::string(kPreloadFile), false}};
}

bool NeedsHookMounts(const Json& pod) {
  const Json* annotations = Find(pod, "metadata/annotations");
  if (annotations == nullptr || !annotations->is_object()) return false;
  const auto injected = annotations->find(PodKey(keys::kInjected));
  return injected != annotations->end() && *injected == kInjectedEnv;
}

// A volume of the host has no flag of its own against being written, so each mount must have.
Result<void> CheckMounts(const Json& spec, const InjectOptions& options) {
  std::set<std::string> ours;
  for (const Json& volume : ListAt(spec, "volumes")) {
    const std::string path = TextAt(volume, "hostPath/path");
    if (path.empty()) continue;
    if (IsIn(path, options.socket_dir) || IsIn(path, options.host_hook_dir)) {
      ours.insert(TextAt(volume, "name"));
    }
  }
  for (const char* list : {"initContainers", "containers", "ephemeralContainers"}) {
    for (const Json& container : ListAt(spec, list)) {
      for (const Json& mount : ListAt(container, "volumeMounts")) {
        const std::string volume = TextAt(mount, "name");
        const Json* read_only = Find(mount, "readOnly");
        if (!ours.contains(volume) || (read_only != nullptr && *read_only == true)) continue;
        return Refuse(fmt::format("spec.{}[{}].volumeMounts", list, TextAt(container, "name")),
                      Quoted(volume) +
                          " is Baton's folder on the node, which all pods share; mount it "
                          "with readOnly: true");
      }
    }
  }
  return {};
}

Result<bool> Inject(Json& given, const InjectOptions& options) {
  Json pod = given;
  if (auto ok = FillInPod(options.flavors, options.memory_unit_mib, pod); !ok) {
    return tl::unexpected(ok.error());
  }
  if (auto ok = CountMemory(pod, options.memory_unit_mib); !ok) return tl::unexpected(ok.error());
  auto read = ReadGpuPod(pod, options.memory_unit_mib);
  if (!read) return tl::unexpected(read.error());
  if (!read->asks()) return false;
  const auto said = [&](std::string_view key) {
    return TextAt(pod, fmt::format("metadata/annotations/baton.dev~1{}", key));
  };
  const std::string away = said(keys::kAway);

  if (auto ok = CheckAnnotations(pod); !ok) return tl::unexpected(ok.error());
  // What was injected before was made for the mode that it had.
  if (options.choose_mode && !read->containers.front().whole && said(keys::kMode).empty() &&
      said(keys::kInjected).empty()) {
    pod["metadata"]["annotations"][PodKey(keys::kMode)] = spec::kAuto;
    read = ReadGpuPod(pod, options.memory_unit_mib);
    if (!read) return tl::unexpected(read.error());
  }
  Json changed = pod;
  Json& spec = changed["spec"];
  const std::string scheduler = TextAt(spec, "schedulerName");
  if (scheduler.empty() || scheduler == "default-scheduler") spec["schedulerName"] = kScheduler;
  if (auto ok = AddPlaces(spec, options); !ok) return tl::unexpected(ok.error());

  // Pods by MIG and MPS have no hook, but MPS's sockets are where the daemon's are.
  const bool mounts = !read->containers.front().whole;
  const Json volumes = ListAt(spec, "volumes");
  uint32_t index = 0;
  auto gpus = read->containers.begin();
  for (const char* list : {"initContainers", "containers"}) {
    const auto containers = spec.find(list);
    if (containers == spec.end() || !containers->is_array()) continue;
    for (Json& container : *containers) {
      const std::string where = fmt::format("spec.{}[{}]", list, TextAt(container, "name"));
      if (gpus != read->containers.end() && gpus->index == index) {
        if (auto ok = AddHook(container, *gpus, volumes, away, *read, where, options); !ok)
          return tl::unexpected(ok.error());
        ++gpus;
      } else if (container.is_object()) {
        // Images of CUDA say "all", and NVIDIA's runtime would give them every GPU.
        auto env = Array(container, "env", where);
        if (!env) return tl::unexpected(env.error());
        if (Named(**env, kNvidiaDevices) == nullptr) {
          (*env)->insert((*env)->begin(), Plain(kNvidiaDevices, "void"));
        }
      }
      ++index;
    }
  }
  if (auto ok = CheckMounts(spec, options); !ok) return tl::unexpected(ok.error());
  changed["metadata"]["annotations"][PodKey(keys::kInjected)] =
      mounts ? kInjectedEnv : kInjectedAll;
  given = std::move(changed);
  return true;
}

}  // namespace baton::k8s
