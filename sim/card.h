// What NVML says of a simulated card, and how to change it while programs look: XIDs, ECC errors,
// lost cards, MIG mode, and errors from any call. baton-simgpu nvml is these functions.
#ifndef BATON_SIM_CARD_H_
#define BATON_SIM_CARD_H_

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "sim/device.h"
#include "sim/models.h"

namespace baton::sim {

// Name, memory, ECC and MIG of the model.
DeviceOptions OptionsFor(const Model& model);

// All of them take the device's lock; thread safe, and seen by other processes at once.

// NVML reports XID `xid` to whoever waits for events. 79 also loses the card.
void RaiseXid(Device* device, uint64_t xid);
// Errors since the driver was loaded.
void SetEccErrors(Device* device, uint64_t corrected, uint64_t uncorrected);
void SetRowRemap(Device* device, bool pending, bool failed);
void SetPresence(Device* device, Presence presence);
// kExists while there are instances, kInvalid for a model without MIG.
Result<bool> SetMigMode(Device* device, bool on);
// A process may hold a link up or down.
Result<bool> SetLink(Device* device, uint32_t link, bool active);

// The driver's id of a GPU instance, from its place: whole 0, halves 1 and 2, quarters 3 to 6, ...
uint32_t GpuInstanceId(const Device& device, const InstanceSlot& slot);
// NVML's name of the uuid: "MIG-...", from where the compute instance is, as the driver makes it:
// the same place has the same one again.
std::string MigUuid(const Device& device, uint32_t gpu_instance, uint32_t compute_instance);
struct MigPlace {
  uint32_t place;   // of the GPU instance, in CardState::instances
  uint32_t serial;  // which it has now
  uint32_t compute;
};
// Nothing: the card has no such. Takes the device's lock.
std::optional<MigPlace> FindMig(Device* device, const std::string& uuid);

struct NvmlFailure {
  std::string call;             // "nvmlDeviceGetUUID", or "*"
  int code = 0;                 // NVML's; 0: it only takes its time
  uint32_t times = UINT32_MAX;  // calls; UINT32_MAX: until it is cleared
  int64_t delay_ns = 0;
};
// kExhausted: there are kMaxFailures already.
Result<bool> AddFailure(Device* device, const NvmlFailure& failure);
void ClearFailures(Device* device);
// "GPU_IS_LOST" or "NVML_ERROR_GPU_IS_LOST" is 15; a number is itself. kInvalid: neither.
Result<int> NvmlCode(const std::string& name);
// "GPU is lost", ...: NVML's own words for it.
const char* NvmlText(int code);

}  // namespace baton::sim

#endif  // BATON_SIM_CARD_H_
