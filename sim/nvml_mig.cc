// libnvidia-ml.so.1: MIG. Instances are in the device file, so that every process sees the same and
// they outlive the one that made them, as the driver's do.
#include <stdio.h>
#include <string.h>

#include <algorithm>

#include "sim/models.h"
#include "sim/nvml.h"

namespace baton::sim {
namespace {

struct NvmlProfileInfo {
  unsigned int id, p2p, slices, instances, multiprocessors, copy_engines, decoders, encoders, jpegs,
      ofas;
  unsigned long long memory_mb;
};
struct NvmlProfileInfoV2 {
  unsigned int version;
  unsigned int id, p2p, slices, instances, multiprocessors, copy_engines, decoders, encoders, jpegs,
      ofas;
  unsigned long long memory_mb;
  char name[96];
};
struct NvmlPlacement {
  unsigned int start, size;
};
struct NvmlInstanceInfo {
  void* device;
  unsigned int id, profile;
  NvmlPlacement placement;
};
struct NvmlComputeProfileInfo {
  unsigned int id, slices, instances, multiprocessors, copy_engines, decoders, encoders, jpegs,
      ofas;
};
struct NvmlComputeInfo {
  void* device;
  void* gpu_instance;
  unsigned int id, profile;
  NvmlPlacement placement;
};
static_assert(sizeof(NvmlProfileInfoV2) == 152);

constexpr unsigned int kProfileIndexes = 18;
// NVML_COMPUTE_INSTANCE_PROFILE_*: the compute slices of each index.
constexpr unsigned int kComputeSlices[] = {1, 2, 3, 4, 7, 8, 6, 1, 7};
constexpr unsigned int kComputeIndexes = 9, kRev1 = 7, kSevenNvl = 8;

// Why there is no MIG here; null model: there is none.
NvmlReturn ModelOf(Device* device, const Model** model) {
  *model = FindModel(device->file().card.model);
  return *model == nullptr || (*model)->memory_slices == 0 ? kNotSupported : kSuccess;
}

// For what needs MIG mode.
NvmlReturn MigModel(Device* device, const Model** model) {
  if (NvmlReturn r = ModelOf(device, model)) return r;
  return device->file().card.mig_mode != 0 ? kSuccess : kNotSupported;
}

bool Overlaps(const InstanceSlot& slot, uint32_t start, uint32_t size) {
  return slot.serial != 0 && slot.start < start + size && start < slot.start + slot.size;
}

NvmlReturn CreateInstance(Device* device, unsigned int id, const NvmlPlacement* placement,
                          void** handle) {
  const Model* model;
  if (NvmlReturn r = MigModel(device, &model)) return r;
  const MigProfile* profile = model->ById(id);
  if (profile == nullptr || handle == nullptr) return kInvalidArgument;
  MigDevice made{device, 0, 0, kMaxInstances};
  {
    Device::Session session(device);
    CardState& card = session.card();
    uint32_t start = UINT32_MAX;
    for (const uint32_t candidate : profile->starts) {
      if (placement != nullptr && candidate != placement->start) continue;
      if (std::none_of(
              std::begin(card.instances), std::end(card.instances),
              [&](const InstanceSlot& slot) { return Overlaps(slot, candidate, profile->size); })) {
        start = candidate;
        break;
      }
    }
    if (placement != nullptr && (placement->size != profile->size ||
                                 std::find(profile->starts.begin(), profile->starts.end(),
                                           placement->start) == profile->starts.end())) {
      return kInvalidArgument;
    }
    const auto alike = std::count_if(std::begin(card.instances), std::end(card.instances),
                                     [&](const InstanceSlot& slot) {
                                       return slot.serial != 0 && slot.profile == profile->index;
                                     });
    if (start == UINT32_MAX || alike >= static_cast<int>(profile->instances)) {
      return kInsufficientResources;
    }
    uint32_t place = 0;
    while (card.instances[place].serial != 0) ++place;  // there are no more than eight slices
    InstanceSlot& slot = card.instances[place];
    slot.profile = profile->index;
    slot.start = start;
    slot.size = profile->size;
    for (ComputeSlot& compute : slot.computes) compute.profile = 0;
    made.slot = place;
    made.serial = ++card.last_serial;
    slot.serial = made.serial;  // now it exists
  }
  std::lock_guard lock(Library().mutex);
  *handle = Library().HandleOf(made);
  return kSuccess;
}

// A compute instance profile of a GPU instance: 0 slices: it has no such.
NvmlComputeProfileInfo ComputeProfile(const MigProfile& in, unsigned int index) {
  NvmlComputeProfileInfo info{};
  if (index >= kComputeIndexes || index == kRev1 || index == kSevenNvl) return info;
  const unsigned int slices = kComputeSlices[index];
  // All of it, or at most half.
  if (slices > in.slices || (slices != in.slices && slices * 2 > in.slices + 1)) return info;
  info.id = index;
  info.slices = slices;
  info.instances = in.slices / slices;
  info.multiprocessors = in.multiprocessors * slices / in.slices;
  info.copy_engines = in.copy_engines;
  info.decoders = in.decoders;
  info.jpegs = in.jpegs;
  info.ofas = in.ofas;
  return info;
}

NvmlReturn InstanceProfile(Device* device, unsigned int index, const MigProfile** profile) {
  const Model* model;
  if (NvmlReturn r = ModelOf(device, &model)) return r;
  if (index >= kProfileIndexes) return kInvalidArgument;
  *profile = model->ByIndex(index);
  return *profile == nullptr ? kNotSupported : kSuccess;
}

// What an open GPU instance was made of. With the session held.
const MigProfile& ProfileOf(Device* device, const InstanceSlot& slot) {
  return *FindModel(device->file().card.model)->ByIndex(slot.profile);
}

// Compute slices that the compute instances before `until` take.
unsigned int TakenSlices(const InstanceSlot& slot, uint32_t until) {
  unsigned int taken = 0;
  for (uint32_t i = 0; i < until; ++i) {
    if (slot.computes[i].profile != 0) taken += kComputeSlices[slot.computes[i].profile - 1];
  }
  return taken;
}

}  // namespace

}  // namespace baton::sim

using namespace baton::sim;  // NOLINT: the entry points below are C

SIM_NVML(nvmlDeviceGetMigMode, (void* handle, unsigned int* current, unsigned int* pending)) {
  Device* device;
  if (NvmlReturn r = Enter(__func__, handle, &device)) return r;
  if (current == nullptr || pending == nullptr) return kInvalidArgument;
  const Model* model;
  if (NvmlReturn r = ModelOf(device, &model)) return r;
  *current = device->file().card.mig_mode;
  *pending = device->file().card.mig_pending;
  return kSuccess;
}

SIM_NVML(nvmlDeviceGetGpuInstanceProfileInfo,
         (void* handle, unsigned int index, NvmlProfileInfo* info)) {
  Device* device;
  const MigProfile* p;
  if (NvmlReturn r = Enter(__func__, handle, &device)) return r;
  if (info == nullptr) return kInvalidArgument;
  if (NvmlReturn r = InstanceProfile(device, index, &p)) return r;
  *info = {p->id,       0, p->slices, p->instances, p->multiprocessors, p->copy_engines,
           p->decoders, 0, p->jpegs,  p->ofas,      p->memory_mib};
  return kSuccess;
}

SIM_NVML(nvmlDeviceGetGpuInstanceProfileInfoV,
         (void* handle, unsigned int index, NvmlProfileInfoV2* info)) {
  Device* device;
  const MigProfile* p;
  if (NvmlReturn r = Enter(__func__, handle, &device)) return r;
  if (info == nullptr) return kInvalidArgument;
  if (info->version != (sizeof(NvmlProfileInfoV2) | 2u << 24)) return kArgumentVersionMismatch;
  if (NvmlReturn r = InstanceProfile(device, index, &p)) return r;
  if (device->file().card.mig_mode == 0) return kNotSupported;
  *info = {info->version,
           p->id,
           0,
           p->slices,
           p->instances,
           p->multiprocessors,
           p->copy_engines,
           p->decoders,
           0,
           p->jpegs,
           p->ofas,
           p->memory_mib,
           {}};
  return CopyText(p->name, info->name, sizeof info->name);
}

SIM_NVML(nvmlDeviceGetGpuInstancePossiblePlacements_v2,
         (void* handle, unsigned int id, NvmlPlacement* placements, unsigned int* count)) {
  Device* device;
  const Model* model;
  if (NvmlReturn r = Enter(__func__, handle, &device)) return r;
  if (count == nullptr) return kInvalidArgument;
  if (NvmlReturn r = ModelOf(device, &model)) return r;
  const MigProfile* profile = model->ById(id);
  if (profile == nullptr) return kInvalidArgument;
  *count = static_cast<unsigned int>(profile->starts.size());
  for (unsigned int i = 0; placements != nullptr && i < *count; ++i) {
    placements[i] = {profile->starts[i], profile->size};
  }
  return kSuccess;
}

SIM_NVML(nvmlDeviceGetGpuInstanceRemainingCapacity,
         (void* handle, unsigned int id, unsigned int* count)) {
  Device* device;
  const Model* model;
  if (NvmlReturn r = Enter(__func__, handle, &device)) return r;
  if (count == nullptr) return kInvalidArgument;
  if (NvmlReturn r = MigModel(device, &model)) return r;
  const MigProfile* profile = model->ById(id);
  if (profile == nullptr) return kInvalidArgument;
  Device::Session session(device);
  unsigned int free = 0, alike = 0;
  for (const InstanceSlot& slot : session.card().instances) {
    alike += slot.serial != 0 && slot.profile == profile->index;
  }
  for (const uint32_t start : profile->starts) {
    free += std::none_of(
        std::begin(session.card().instances), std::end(session.card().instances),
        [&](const InstanceSlot& slot) { return Overlaps(slot, start, profile->size); });
  }
  *count = std::min(free, profile->instances - std::min(alike, profile->instances));
  return kSuccess;
}

SIM_NVML(nvmlDeviceCreateGpuInstance, (void* handle, unsigned int id, void** instance)) {
  Device* device;
  if (NvmlReturn r = Enter(__func__, handle, &device)) return r;
  return CreateInstance(device, id, nullptr, instance);
}

SIM_NVML(nvmlDeviceCreateGpuInstanceWithPlacement,
         (void* handle, unsigned int id, const NvmlPlacement* placement, void** instance)) {
  Device* device;
  if (NvmlReturn r = Enter(__func__, handle, &device)) return r;
  if (placement == nullptr) return kInvalidArgument;
  return CreateInstance(device, id, placement, instance);
}

SIM_NVML(nvmlGpuInstanceDestroy, (void* handle)) {
  MigDevice* mig;
  if (NvmlReturn r = EnterMig(__func__, handle, &mig)) return r;
  Device::Session session(mig->device);
  InstanceSlot& slot = session.card().instances[mig->slot];
  for (const ComputeSlot& compute : slot.computes) {
    if (compute.profile != 0) return kInUse;
  }
  slot.serial = 0;
  return kSuccess;
}

SIM_NVML(nvmlDeviceGetGpuInstances,
         (void* handle, unsigned int id, void** instances, unsigned int* count)) {
  Device* device;
  const Model* model;
  if (NvmlReturn r = Enter(__func__, handle, &device)) return r;
  if (instances == nullptr || count == nullptr) return kInvalidArgument;
  if (NvmlReturn r = MigModel(device, &model)) return r;
  const MigProfile* profile = model->ById(id);
  if (profile == nullptr) return kInvalidArgument;
  std::vector<MigDevice> found;
  {
    Device::Session session(device);
    for (uint32_t i = 0; i < kMaxInstances; ++i) {
      const InstanceSlot& slot = session.card().instances[i];
      if (slot.serial == 0 || slot.profile != profile->index) continue;
      found.push_back({device, i, slot.serial, kMaxInstances});
    }
  }
  std::lock_guard lock(Library().mutex);
  *count = 0;
  for (const MigDevice& mig : found) instances[(*count)++] = Library().HandleOf(mig);
  return kSuccess;
}

SIM_NVML(nvmlDeviceGetGpuInstanceById, (void* handle, unsigned int id, void** instance)) {
  Device* device;
  const Model* model;
  if (NvmlReturn r = Enter(__func__, handle, &device)) return r;
  if (instance == nullptr) return kInvalidArgument;
  if (NvmlReturn r = MigModel(device, &model)) return r;
  MigDevice found{device, 0, 0, kMaxInstances};
  {
    Device::Session session(device);
    for (uint32_t i = 0; i < kMaxInstances; ++i) {
      const InstanceSlot& slot = session.card().instances[i];
      if (slot.serial == 0 || GpuInstanceId(*device, slot) != id) continue;
      found.slot = i;
      found.serial = slot.serial;
    }
  }
  if (found.serial == 0) return kNotFound;
  std::lock_guard lock(Library().mutex);
  *instance = Library().HandleOf(found);
  return kSuccess;
}

SIM_NVML(nvmlGpuInstanceGetInfo, (void* handle, NvmlInstanceInfo* info)) {
  MigDevice* mig;
  if (NvmlReturn r = EnterMig(__func__, handle, &mig)) return r;
  if (info == nullptr) return kInvalidArgument;
  Device::Session session(mig->device);
  const InstanceSlot& slot = session.card().instances[mig->slot];
  *info = {mig->device,
           GpuInstanceId(*mig->device, slot),
           ProfileOf(mig->device, slot).id,
           {slot.start, slot.size}};
  return kSuccess;
}

SIM_NVML(nvmlGpuInstanceGetComputeInstanceProfileInfo,
         (void* handle, unsigned int index, unsigned int engines, NvmlComputeProfileInfo* info)) {
  MigDevice* mig;
  if (NvmlReturn r = EnterMig(__func__, handle, &mig)) return r;
  if (info == nullptr || index >= kComputeIndexes || engines != 0) return kInvalidArgument;
  Device::Session session(mig->device);
  *info = ComputeProfile(ProfileOf(mig->device, session.card().instances[mig->slot]), index);
  return info->slices == 0 ? kNotSupported : kSuccess;
}

SIM_NVML(nvmlGpuInstanceCreateComputeInstance,
         (void* handle, unsigned int id, void** compute_instance)) {
  MigDevice* mig;
  if (NvmlReturn r = EnterMig(__func__, handle, &mig)) return r;
  if (compute_instance == nullptr) return kInvalidArgument;
  MigDevice made = *mig;
  {
    Device::Session session(mig->device);
    InstanceSlot& slot = session.card().instances[mig->slot];
    const MigProfile& in = ProfileOf(mig->device, slot);
    const NvmlComputeProfileInfo profile = ComputeProfile(in, id);
    if (profile.slices == 0) return kNotSupported;
    if (TakenSlices(slot, kMaxInstances) + profile.slices > in.slices) {
      return kInsufficientResources;
    }
    made.compute = 0;
    while (slot.computes[made.compute].profile != 0) ++made.compute;
    slot.computes[made.compute].profile = 1 + id;
  }
  std::lock_guard lock(Library().mutex);
  *compute_instance = Library().HandleOf(made);
  return kSuccess;
}

SIM_NVML(nvmlComputeInstanceDestroy, (void* handle)) {
  MigDevice* mig;
  if (NvmlReturn r = EnterMig(__func__, handle, &mig)) return r;
  if (mig->compute >= kMaxInstances) return kInvalidArgument;
  Device::Session session(mig->device);
  session.card().instances[mig->slot].computes[mig->compute].profile = 0;
  return kSuccess;
}

SIM_NVML(nvmlGpuInstanceGetComputeInstances,
         (void* handle, unsigned int id, void** instances, unsigned int* count)) {
  MigDevice* mig;
  if (NvmlReturn r = EnterMig(__func__, handle, &mig)) return r;
  if (instances == nullptr || count == nullptr) return kInvalidArgument;
  std::vector<MigDevice> found;
  {
    Device::Session session(mig->device);
    const InstanceSlot& slot = session.card().instances[mig->slot];
    if (ComputeProfile(ProfileOf(mig->device, slot), id).slices == 0) return kNotSupported;
    for (uint32_t i = 0; i < kMaxInstances; ++i) {
      if (slot.computes[i].profile != 1 + id) continue;
      found.push_back({mig->device, mig->slot, mig->serial, i});
    }
  }
  std::lock_guard lock(Library().mutex);
  *count = 0;
  for (const MigDevice& compute : found) instances[(*count)++] = Library().HandleOf(compute);
  return kSuccess;
}

SIM_NVML(nvmlComputeInstanceGetInfo_v2, (void* handle, NvmlComputeInfo* info)) {
  MigDevice* mig;
  if (NvmlReturn r = EnterMig(__func__, handle, &mig)) return r;
  if (info == nullptr || mig->compute >= kMaxInstances) return kInvalidArgument;
  void* parent;
  {
    std::lock_guard lock(Library().mutex);
    parent = Library().HandleOf({mig->device, mig->slot, mig->serial, kMaxInstances});
  }
  Device::Session session(mig->device);
  const InstanceSlot& slot = session.card().instances[mig->slot];
  const unsigned int index = slot.computes[mig->compute].profile - 1;
  *info = {mig->device,
           parent,
           mig->compute,
           index,
           {TakenSlices(slot, mig->compute), kComputeSlices[index]}};
  return kSuccess;
}

SIM_NVML(nvmlDeviceIsMigDeviceHandle, (void* handle, unsigned int* is_mig)) {
  if (is_mig == nullptr) return kInvalidArgument;
  MigDevice* mig;
  Device* device;
  if (EnterMig(__func__, handle, &mig) == kSuccess) {
    *is_mig = mig->compute < kMaxInstances;
    return kSuccess;
  }
  if (NvmlReturn r = Enter(__func__, handle, &device)) return r;
  *is_mig = 0;
  return kSuccess;
}

SIM_NVML(nvmlDeviceGetMaxMigDeviceCount, (void* handle, unsigned int* count)) {
  Device* device;
  const Model* model;
  if (NvmlReturn r = Enter(__func__, handle, &device)) return r;
  if (count == nullptr) return kInvalidArgument;
  *count = MigModel(device, &model) == kSuccess ? std::min(model->memory_slices, 7u) : 0;
  return kSuccess;
}

SIM_NVML(nvmlDeviceGetMigDeviceHandleByIndex,
         (void* handle, unsigned int index, void** mig_device)) {
  Device* device;
  const Model* model;
  if (NvmlReturn r = Enter(__func__, handle, &device)) return r;
  if (mig_device == nullptr) return kInvalidArgument;
  if (NvmlReturn r = MigModel(device, &model)) return r;
  if (index >= std::min(model->memory_slices, 7u)) return kInvalidArgument;
  MigDevice found{device, 0, 0, 0};
  {
    // By GPU instance, then by compute instance: their number is the index.
    Device::Session session(device);
    unsigned int at = 0;
    for (uint32_t i = 0; i < kMaxInstances && found.serial == 0; ++i) {
      const InstanceSlot& slot = session.card().instances[i];
      for (uint32_t c = 0; slot.serial != 0 && c < kMaxInstances; ++c) {
        if (slot.computes[c].profile == 0 || at++ != index) continue;
        found = {device, i, slot.serial, c};
        break;
      }
    }
  }
  if (found.serial == 0) return kNotFound;
  std::lock_guard lock(Library().mutex);
  *mig_device = Library().HandleOf(found);
  return kSuccess;
}

SIM_NVML(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, (void* handle, void** device)) {
  MigDevice* mig;
  if (NvmlReturn r = EnterMig(__func__, handle, &mig)) return r;
  if (device == nullptr || mig->compute >= kMaxInstances) return kInvalidArgument;
  *device = mig->device;
  return kSuccess;
}

SIM_NVML(nvmlDeviceGetGpuInstanceId, (void* handle, unsigned int* id)) {
  MigDevice* mig;
  if (NvmlReturn r = EnterMig(__func__, handle, &mig)) return r;
  if (id == nullptr || mig->compute >= kMaxInstances) return kInvalidArgument;
  Device::Session session(mig->device);
  *id = GpuInstanceId(*mig->device, session.card().instances[mig->slot]);
  return kSuccess;
}

SIM_NVML(nvmlDeviceGetComputeInstanceId, (void* handle, unsigned int* id)) {
  MigDevice* mig;
  if (NvmlReturn r = EnterMig(__func__, handle, &mig)) return r;
  if (id == nullptr || mig->compute >= kMaxInstances) return kInvalidArgument;
  *id = mig->compute;
  return kSuccess;
}
