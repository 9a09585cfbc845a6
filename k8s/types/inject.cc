#include "k8s/types/inject.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "k8s/types/gpu_pod.h"
#include "k8s/types/read.h"

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

// An entry of a list whose name is ours: added in front of `at`, or there already.
Result<void> Put(Json& list, size_t& at, Json ours, const std::string& field) {
  if (const Json* theirs = Named(list, TextAt(ours, "name"))) {
    if (Covers(*theirs, ours)) return {};
    return Refuse(
        field, Quoted(TextAt(ours, "name")) + " is set by Baton in pods that use GPUs; remove it");
  }
  list.insert(list.begin() + static_cast<Json::difference_type>(at++), std::move(ours));
  return {};
}

Result<void> AddHook(Json& container, const ContainerGpus& gpus, const std::string& away,
                     const std::string& where) {
  auto env = Array(container, "env", where);
  if (!env) return tl::unexpected(env.error());
  auto mounts = Array(container, "volumeMounts", where);
  if (!mounts) return tl::unexpected(mounts.error());
  const std::string env_field = where + ".env";

  const std::string devices =
      fmt::format("metadata.annotations['{}']", ContainerKey(gpus.name, keys::kDevices));
  std::vector<Json> ours;
  if (!gpus.whole) {
    ours.push_back(FromField("BATON_POD_UID", "metadata.uid"));
    ours.push_back(Plain("BATON_TICKET", TicketOf("$(BATON_POD_UID)", gpus.name)));
    ours.push_back(Plain("BATON_SOCKET", std::string(kSocketDir) + "/baton.sock"));
    if (!away.empty()) ours.push_back(Plain("BATON_AWAY", away));
  }
  ours.push_back(FromField(kNvidiaDevices, devices));
  ours.push_back(FromField("CUDA_VISIBLE_DEVICES", devices));
  size_t at = 0;
  for (Json& entry : ours) {
    if (auto ok = Put(**env, at, std::move(entry), env_field); !ok) return ok;
  }
  if (gpus.whole) return {};

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

  size_t end = (*mounts)->size();
  const bool preloads = std::any_of((*mounts)->begin(), (*mounts)->end(), [](const Json& m) {
    return TextAt(m, "mountPath") == kPreloadPath;
  });
  for (const auto& [name, path] :
       {std::pair{"baton-socket", kSocketDir}, {"baton-hook", kHookDir}}) {
    const Json mount{{"name", name}, {"mountPath", path}, {"readOnly", true}};
    const bool there = std::any_of((*mounts)->begin(), (*mounts)->end(),
                                   [&](const Json& m) { return Covers(m, mount); });
    if (there) continue;
    for (const Json& theirs : **mounts) {
      const std::string at_path = TextAt(theirs, "mountPath");
      if (at_path == path || (TextAt(theirs, "name") == name && at_path != kPreloadPath)) {
        return Refuse(where + ".volumeMounts",
                      fmt::format("Baton uses {} and the volume {} in pods with GPUs; use another "
                                  "path and name",
                                  path, name));
      }
    }
    (*mounts)->insert((*mounts)->begin() + static_cast<Json::difference_type>(end++), mount);
  }
  // For programs that set an LD_PRELOAD of their own. Who mounts such a file knows better.
  if (!preloads) {
    (*mounts)->push_back({{"name", "baton-hook"},
                          {"mountPath", kPreloadPath},
                          {"subPath", kPreloadFile},
                          {"readOnly", true}});
  }
  return {};
}

// Whether `path` is that folder or in it.
bool IsIn(const std::string& path, const std::string& folder) {
  const auto normal = [](const std::string& text) {
    return std::filesystem::path(text + "/").lexically_normal().string();
  };
  return normal(path).starts_with(normal(folder));
}

}  // namespace

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

Result<bool> Inject(Json& pod, const InjectOptions& options) {
  auto read = ReadGpuPod(pod, options.memory_unit_mib);
  if (!read) return tl::unexpected(read.error());
  if (!read->asks()) return false;
  const std::string away =
      TextAt(pod, "metadata/annotations/" + std::string("baton.dev~1") + std::string(keys::kAway));

  for (const char* key : {"metadata", "metadata/annotations"}) {
    const Json* member = Find(pod, key);
    if (member != nullptr && !member->is_null() && !member->is_object()) {
      return Refuse(key, "an object is needed");
    }
  }
  Json changed = pod;
  Json& spec = changed["spec"];
  const std::string scheduler = TextAt(spec, "schedulerName");
  if (scheduler.empty() || scheduler == "default-scheduler") spec["schedulerName"] = kScheduler;

  const bool hook = !read->containers.front().whole;
  if (hook) {
    auto volumes = Array(spec, "volumes", "spec");
    if (!volumes) return tl::unexpected(volumes.error());
    size_t at = (*volumes)->size();
    for (const auto& [name, path] :
         {std::pair{"baton-socket", options.socket_dir}, {"baton-hook", options.host_hook_dir}}) {
      Json volume{{"name", name}, {"hostPath", {{"path", path}, {"type", "Directory"}}}};
      if (auto ok = Put(**volumes, at, std::move(volume), "spec.volumes"); !ok) {
        return tl::unexpected(ok.error());
      }
    }
  }

  uint32_t index = 0;
  auto gpus = read->containers.begin();
  for (const char* list : {"initContainers", "containers"}) {
    const auto containers = spec.find(list);
    if (containers == spec.end() || !containers->is_array()) continue;
    for (Json& container : *containers) {
      const std::string where = fmt::format("spec.{}[{}]", list, TextAt(container, "name"));
      if (gpus != read->containers.end() && gpus->index == index) {
        if (auto ok = AddHook(container, *gpus, away, where); !ok)
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
  changed["metadata"]["annotations"][PodKey(keys::kInjected)] = "1";
  pod = std::move(changed);
  return true;
}

}  // namespace baton::k8s
