#include "devmgr/machine/nvml_mig.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace baton::devmgr::nvml {
namespace {

// NVML's own list ends with kInvalidArgument; this ends a list that does not.
constexpr unsigned kIndexes = 64;
constexpr unsigned kInstancesMax = 64;

struct Profile {
  std::string name;  // "1g.10gb+me"
  unsigned id = 0, slices = 0, instances = 0;
};

// Of the profiles of one size, those with other engines: NVML_GPU_INSTANCE_PROFILE_*.
const char* Suffix(unsigned index) {
  switch (index) {
    case 0x7:
    case 0x8:
      return "+me";
    case 0xa:
    case 0xb:
    case 0xc:
    case 0x11:
      return "+gfx";
    case 0xd:
    case 0xe:
      return "-me";
    case 0xf:
    case 0x10:
      return "+me.all";
    default:
      return "";
  }
}

// As nvidia-smi spells it. A library that does not tell names: its GB are the part of the GPU's
// memory in eighths, rounded up, of the GPU's whole GB.
std::string NameOf(const Api& api, Device device, unsigned index, const ProfileInfo& info) {
  ProfileInfoV2 named{};
  named.version = kProfileInfoV2;
  if (api.profile_v != nullptr && api.profile_v(device, index, &named) == kSuccess) {
    std::string name(named.name, std::find(named.name, std::end(named.name), '\0'));
    if (name.rfind("MIG ", 0) == 0) name.erase(0, 4);
    if (!name.empty()) return name;
  }
  Memory memory{};
  if (api.memory == nullptr || api.memory(device, &memory) != kSuccess || memory.total == 0) {
    return "";
  }
  const double gib = std::ceil(static_cast<double>(memory.total) / (1u << 30));
  const double part =
      static_cast<double>(info.memory_mib) * (1u << 20) / static_cast<double>(memory.total);
  const double gb = std::round(std::ceil(part * 8) / 8 * gib);
  return std::to_string(info.slices) + "g." + std::to_string(static_cast<unsigned>(gb)) + "gb" +
         Suffix(index);
}

Result<std::vector<Profile>> Profiles(const Api& api, Device device, const std::string& where) {
  if (api.profile == nullptr) {
    return tl::unexpected(Missing("nvmlDeviceGetGpuInstanceProfileInfo"));
  }
  std::vector<Profile> profiles;
  for (unsigned index = 0; index < kIndexes; ++index) {
    ProfileInfo info{};
    const Return result = api.profile(device, index, &info);
    if (result == kInvalidArgument) break;
    if (result == kNotSupported) continue;
    if (result != kSuccess) {
      return tl::unexpected(Failure(api, "nvmlDeviceGetGpuInstanceProfileInfo", where, result));
    }
    profiles.push_back({NameOf(api, device, index, info), info.id, info.slices, info.instances});
  }
  if (profiles.empty()) {
    return Fail(ErrorCode::kInternal,
                "nvmlDeviceGetGpuInstanceProfileInfo of " + where + " knows no MIG profile");
  }
  return profiles;
}

// Gives each instance the uuid of its MIG device; where it has several, of the first.
Result<void> NameMigDevices(const Api& api, Device device, const std::string& where,
                            std::vector<MigInstance>& instances) {
  if (instances.empty()) return {};
  if (api.mig_count == nullptr || api.mig_device == nullptr || api.gpu_instance_id == nullptr) {
    return tl::unexpected(Missing("nvmlDeviceGetMigDeviceHandleByIndex"));
  }
  unsigned count = 0;
  if (const Return result = api.mig_count(device, &count); result != kSuccess) {
    return tl::unexpected(Failure(api, "nvmlDeviceGetMaxMigDeviceCount", where, result));
  }
  for (unsigned i = 0; i < std::min(count, kInstancesMax); ++i) {
    Device mig = nullptr;
    unsigned id = 0;
    char uuid[96] = {};
    const Return found = api.mig_device(device, i, &mig);
    if (found == kNotFound) continue;
    const char* call = "nvmlDeviceGetMigDeviceHandleByIndex";
    Return result = found;
    if (result == kSuccess) {
      call = "nvmlDeviceGetGpuInstanceId";
      result = api.gpu_instance_id(mig, &id);
    }
    if (result == kSuccess) {
      call = "nvmlDeviceGetUUID";
      result = api.uuid(mig, uuid, sizeof uuid);
    }
    if (result != kSuccess) return tl::unexpected(Failure(api, call, where, result));
    for (MigInstance& instance : instances) {
      if (instance.id == id && instance.uuid.empty()) instance.uuid = uuid;
    }
  }
  return {};
}

// Whether MIG mode is on; an error where that is not to be known.
Result<bool> IsOn(const Api& api, Device device, const std::string& where) {
  unsigned current = 0, pending = 0;
  if (api.mig_mode == nullptr) return false;
  const Return result = api.mig_mode(device, &current, &pending);
  if (result == kNotSupported) return false;
  if (result != kSuccess) {
    return tl::unexpected(Failure(api, "nvmlDeviceGetMigMode", where, result));
  }
  return current == 1;
}

// Takes away all compute instances of the GPU instance, then itself. The compute instances' ids are
// those of their profiles.
Result<void> Destroy(const Api& api, GpuInstance instance, const std::string& where) {
  if (api.compute_profile == nullptr || api.compute_instances == nullptr ||
      api.destroy_compute_instance == nullptr || api.destroy_gpu_instance == nullptr) {
    return tl::unexpected(Missing("nvmlGpuInstanceDestroy, or what goes with it"));
  }
  for (unsigned index = 0; index < kIndexes; ++index) {
    ComputeProfileInfo profile{};
    const Return result = api.compute_profile(instance, index, 0, &profile);
    if (result == kInvalidArgument) break;
    if (result != kSuccess) continue;
    ComputeInstance computes[kInstancesMax] = {};
    unsigned count = kInstancesMax;
    if (const Return listed = api.compute_instances(instance, profile.id, computes, &count);
        listed != kSuccess) {
      return tl::unexpected(Failure(api, "nvmlGpuInstanceGetComputeInstances", where, listed));
    }
    for (unsigned i = 0; i < std::min(count, kInstancesMax); ++i) {
      if (const Return gone = api.destroy_compute_instance(computes[i]); gone != kSuccess) {
        return tl::unexpected(Failure(api, "nvmlComputeInstanceDestroy", where, gone));
      }
    }
  }
  if (const Return gone = api.destroy_gpu_instance(instance); gone != kSuccess) {
    return tl::unexpected(Failure(api, "nvmlGpuInstanceDestroy", where, gone));
  }
  return {};
}

// One compute instance over all of the GPU instance.
Result<void> CreateWhole(const Api& api, GpuInstance instance, unsigned slices,
                         const std::string& where) {
  for (unsigned index = 0; index < kIndexes; ++index) {
    ComputeProfileInfo profile{};
    const Return result = api.compute_profile(instance, index, 0, &profile);
    if (result == kInvalidArgument) break;
    if (result != kSuccess || profile.slices != slices) continue;
    ComputeInstance compute = nullptr;
    const Return made = api.create_compute_instance(instance, profile.id, &compute);
    if (made == kSuccess) return {};
    return tl::unexpected(Failure(api, "nvmlGpuInstanceCreateComputeInstance", where, made));
  }
  return Fail(ErrorCode::kInternal,
              where + " offers no compute instance over all of its new MIG instance");
}

// Why `start` is none of the profile's places; nothing where it is one, or NVML does not say.
std::optional<Error> Misplaced(const Api& api, Device device, const std::string& where,
                               const Profile& profile, uint32_t start, Placement& placement) {
  if (api.placements == nullptr) {
    return Missing("nvmlDeviceGetGpuInstancePossiblePlacements_v2");
  }
  Placement places[kInstancesMax] = {};
  unsigned count = 0;
  // Asked for the number first: the call fills whatever it is given.
  Return result = api.placements(device, profile.id, nullptr, &count);
  if (result == kSuccess && count <= kInstancesMax) {
    result = api.placements(device, profile.id, places, &count);
  }
  if (result != kSuccess) {
    return Failure(api, "nvmlDeviceGetGpuInstancePossiblePlacements", where, result);
  }
  std::string all;
  for (unsigned i = 0; i < std::min(count, kInstancesMax); ++i) {
    if (places[i].start == start) {
      placement = places[i];
      return std::nullopt;
    }
    all += (all.empty() ? "" : ", ") + std::to_string(places[i].start);
  }
  return Error{ErrorCode::kInvalid, "a " + profile.name + " of " + where +
                                        " cannot start at slice " + std::to_string(start) +
                                        "; it can at " + all};
}

Result<std::vector<MigInstance>> ListOnce(const Api& api, Device device, const std::string& where) {
  std::vector<MigInstance> instances;
  const auto on = IsOn(api, device, where);
  if (!on) return tl::unexpected(on.error());
  if (!*on) return instances;
  if (api.gpu_instances == nullptr || api.gpu_instance_info == nullptr) {
    return tl::unexpected(Missing("nvmlDeviceGetGpuInstances"));
  }
  const auto profiles = Profiles(api, device, where);
  if (!profiles) return tl::unexpected(profiles.error());
  for (const Profile& profile : *profiles) {
    std::vector<GpuInstance> handles(std::max(profile.instances, kInstancesMax));
    auto count = static_cast<unsigned>(handles.size());
    if (const Return listed = api.gpu_instances(device, profile.id, handles.data(), &count);
        listed != kSuccess) {
      return tl::unexpected(Failure(api, "nvmlDeviceGetGpuInstances", where, listed));
    }
    for (unsigned i = 0; i < std::min<size_t>(count, handles.size()); ++i) {
      GpuInstanceInfo info{};
      if (const Return known = api.gpu_instance_info(handles[i], &info); known != kSuccess) {
        return tl::unexpected(Failure(api, "nvmlGpuInstanceGetInfo", where, known));
      }
      instances.push_back({info.id, profile.name, "", info.placement.start, info.placement.size});
    }
  }
  std::sort(instances.begin(), instances.end(),
            [](const MigInstance& a, const MigInstance& b) { return a.start < b.start; });
  if (auto named = NameMigDevices(api, device, where, instances); !named) {
    return tl::unexpected(named.error());
  }
  return instances;
}

}  // namespace

Result<std::vector<MigInstance>> Instances(const Api& api, Device device,
                                           const std::string& where) {
  // One that goes while it is being listed makes a call fail; the next time it is not there.
  auto instances = ListOnce(api, device, where);
  for (int attempt = 0; !instances && attempt < 2; ++attempt) {
    instances = ListOnce(api, device, where);
  }
  return instances;
}

Result<MigInstance> CreateInstance(const Api& api, Device device, const std::string& where,
                                   const std::string& profile, uint32_t start) {
  const auto on = IsOn(api, device, where);
  if (!on) return tl::unexpected(on.error());
  if (!*on) {
    return Fail(ErrorCode::kInvalid,
                "MIG mode of " + where + " is off; turn it on (nvidia-smi -mig 1)");
  }
  if (api.create_gpu_instance == nullptr || api.gpu_instance_info == nullptr ||
      api.compute_profile == nullptr || api.create_compute_instance == nullptr) {
    return tl::unexpected(Missing("nvmlDeviceCreateGpuInstanceWithPlacement"));
  }
  const auto profiles = Profiles(api, device, where);
  if (!profiles) return tl::unexpected(profiles.error());
  const auto wanted = std::find_if(profiles->begin(), profiles->end(),
                                   [&](const Profile& p) { return p.name == profile; });
  if (wanted == profiles->end()) {
    std::string all;
    for (const Profile& p : *profiles) all += (all.empty() ? "" : ", ") + p.name;
    return Fail(ErrorCode::kInvalid, where + " has no MIG profile " + profile + "; it has " + all);
  }
  Placement placement{};
  if (auto error = Misplaced(api, device, where, *wanted, start, placement)) {
    return tl::unexpected(*error);
  }
  GpuInstance instance = nullptr;
  if (const Return made = api.create_gpu_instance(device, wanted->id, &placement, &instance);
      made != kSuccess) {
    Error error = Failure(api, "nvmlDeviceCreateGpuInstanceWithPlacement", where, made);
    error.message =
        "cannot make a " + profile + " at slice " + std::to_string(start) + ": " + error.message;
    return tl::unexpected(error);
  }
  GpuInstanceInfo info{};
  Result<void> done = {};
  if (const Return known = api.gpu_instance_info(instance, &info); known != kSuccess) {
    done = tl::unexpected(Failure(api, "nvmlGpuInstanceGetInfo", where, known));
  } else {
    done = CreateWhole(api, instance, wanted->slices, where);
  }
  MigInstance result{info.id, wanted->name, "", info.placement.start, info.placement.size};
  if (done) {
    std::vector<MigInstance> one = {result};
    done = NameMigDevices(api, device, where, one);
    if (done && !one[0].uuid.empty()) return one[0];
    if (done) {
      done = Fail(ErrorCode::kInternal, "NVML gives no uuid to the new MIG instance of " + where);
    }
  }
  if (const auto undone = Destroy(api, instance, where); !undone) {
    done.error().message += "; and it is left over: " + undone.error().message;
  }
  return tl::unexpected(done.error());
}

Result<void> DestroyInstance(const Api& api, Device device, const std::string& where,
                             uint32_t instance) {
  const auto on = IsOn(api, device, where);
  if (!on) return tl::unexpected(on.error());
  if (!*on) return {};
  if (api.gpu_instance == nullptr) return tl::unexpected(Missing("nvmlDeviceGetGpuInstanceById"));
  GpuInstance handle = nullptr;
  const Return found = api.gpu_instance(device, instance, &handle);
  if (found == kNotFound) return {};
  if (found != kSuccess) {
    return tl::unexpected(Failure(api, "nvmlDeviceGetGpuInstanceById", where, found));
  }
  return Destroy(api, handle, "MIG instance " + std::to_string(instance) + " of " + where);
}

}  // namespace baton::devmgr::nvml
