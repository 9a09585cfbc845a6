#include "sim/card.h"

#include <string.h>

#include <algorithm>

namespace baton::sim {
namespace {

constexpr uint64_t kXidCriticalError = 8;  // nvmlEventTypeXidCriticalError
constexpr uint64_t kDoubleBitEcc = 2;      // nvmlEventTypeDoubleBitEccError
constexpr uint64_t kMigConfigChange = 256;

struct Code {
  int number;
  const char* name;
  const char* text;
};
// NVIDIA's nvmlReturn_t and what nvmlErrorString says of each.
constexpr Code kCodes[] = {
    {0, "SUCCESS", "Success"},
    {1, "UNINITIALIZED", "Uninitialized"},
    {2, "INVALID_ARGUMENT", "Invalid Argument"},
    {3, "NOT_SUPPORTED", "Not Supported"},
    {4, "NO_PERMISSION", "Insufficient Permissions"},
    {6, "NOT_FOUND", "Not Found"},
    {7, "INSUFFICIENT_SIZE", "Insufficient Size"},
    {8, "INSUFFICIENT_POWER", "Insufficient External Power"},
    {9, "DRIVER_NOT_LOADED", "Driver Not Loaded"},
    {10, "TIMEOUT", "Timeout"},
    {11, "IRQ_ISSUE", "Interrupt Request Issue"},
    {12, "LIBRARY_NOT_FOUND", "NVML Shared Library Not Found"},
    {13, "FUNCTION_NOT_FOUND", "Function Not Found"},
    {14, "CORRUPTED_INFOROM", "Corrupted infoROM"},
    {15, "GPU_IS_LOST", "GPU is lost"},
    {16, "RESET_REQUIRED", "GPU requires reset"},
    {17, "OPERATING_SYSTEM", "GPU access blocked by the operating system"},
    {18, "LIB_RM_VERSION_MISMATCH", "Driver/library version mismatch"},
    {19, "IN_USE", "In use by another client"},
    {20, "MEMORY", "Insufficient Memory"},
    {21, "NO_DATA", "No data"},
    {23, "INSUFFICIENT_RESOURCES", "Insufficient Resources"},
    {25, "ARGUMENT_VERSION_MISMATCH", "Argument version mismatch"},
    {27, "NOT_READY", "System is not in ready state"},
    {999, "UNKNOWN", "Unknown Error"},
};

void Report(CardState& card, uint64_t type, uint64_t xid) {
  card.events[card.event_count % kMaxEvents] = {type, xid};
  ++card.event_count;
}

}  // namespace

DeviceOptions OptionsFor(const Model& model) {
  DeviceOptions options;
  options.model = model.key;
  options.name = model.name;
  options.memory_bytes = model.memory_mib << 20;
  options.ecc = model.ecc;
  return options;
}

void RaiseXid(Device* device, uint64_t xid) {
  Device::Session session(device);
  Report(session.card(), kXidCriticalError, xid);
  if (xid == 79) session.card().presence = static_cast<uint32_t>(Presence::kLost);
}

void SetEccErrors(Device* device, uint64_t corrected, uint64_t uncorrected) {
  Device::Session session(device);
  CardState& card = session.card();
  card.ecc_corrected = corrected;
  if (uncorrected > card.ecc_uncorrected) Report(card, kDoubleBitEcc, 0);
  card.ecc_uncorrected = uncorrected;
}

void SetRowRemap(Device* device, bool pending, bool failed) {
  Device::Session session(device);
  session.card().remap_pending = pending;
  session.card().remap_failed = failed;
}

void SetPresence(Device* device, Presence presence) {
  Device::Session session(device);
  session.card().presence = static_cast<uint32_t>(presence);
}

Result<bool> SetMigMode(Device* device, bool on) {
  Device::Session session(device);
  CardState& card = session.card();
  const Model* model = FindModel(card.model);
  if (model == nullptr || model->memory_slices == 0) {
    return Fail(ErrorCode::kInvalid,
                "this model has no MIG; baton-simgpu models lists those that do");
  }
  const bool used = std::any_of(std::begin(card.instances), std::end(card.instances),
                                [](const InstanceSlot& slot) { return slot.serial != 0; });
  if (used && !on) {
    return Fail(ErrorCode::kExists, "there are MIG instances; destroy them first");
  }
  card.mig_pending = on;
  card.mig_mode = on;
  Report(card, kMigConfigChange, 0);
  return true;
}

Result<bool> SetLink(Device* device, uint32_t link, bool active) {
  Device::Session session(device);
  if (link >= kMaxLinks || session.card().links[link].kind == 0) {
    return Fail(ErrorCode::kNotFound,
                "there is no NVLink " + std::to_string(link) + " on this card");
  }
  session.card().links[link].active = active;
  return true;
}

Result<bool> AddFailure(Device* device, const NvmlFailure& failure) {
  Device::Session session(device);
  for (Failure& slot : session.card().failures) {
    if (slot.call[0] != '\0') continue;
    slot.code = failure.code;
    slot.left = failure.times;
    slot.delay_ns = failure.delay_ns;
    // The first letter last: it makes the slot count.
    const size_t length = std::min(failure.call.size(), sizeof slot.call - 1);
    memset(slot.call, 0, sizeof slot.call);
    for (size_t i = length; i-- > 0;) slot.call[i] = failure.call[i];
    return true;
  }
  return Fail(ErrorCode::kExhausted, "no more than " + std::to_string(kMaxFailures) +
                                         " calls can fail at once; clear some");
}

void ClearFailures(Device* device) {
  Device::Session session(device);
  for (Failure& slot : session.card().failures) slot.call[0] = '\0';
}

Result<int> NvmlCode(const std::string& name) {
  const std::string bare = name.rfind("NVML_ERROR_", 0) == 0 ? name.substr(11) : name;
  for (const Code& code : kCodes) {
    if (bare == code.name) return code.number;
  }
  if (!bare.empty() && bare.size() < 6 &&
      bare.find_first_not_of("0123456789") == std::string::npos) {
    return std::stoi(bare);
  }
  return Fail(ErrorCode::kInvalid,
              "\"" + name + "\" is no code of NVML; write one such as GPU_IS_LOST, or a number");
}

const char* NvmlText(int code) {
  for (const Code& known : kCodes) {
    if (known.number == code) return known.text;
  }
  return "Unknown Error";
}

uint32_t GpuInstanceId(const Device& device, const InstanceSlot& slot) {
  const Model* model = FindModel(device.file().card.model);
  return model->memory_slices / slot.size - 1 + slot.start / slot.size;
}

std::string MigUuid(const Device& device, uint32_t gpu_instance, uint32_t compute_instance) {
  // Any mixing that is the same on every machine will do.
  uint64_t words[2];
  memcpy(words, device.file().uuid, sizeof words);
  const uint64_t place = (uint64_t{gpu_instance} << 8) + compute_instance + 1;
  for (uint64_t& word : words) {
    word += 0x9e3779b97f4a7c15 * place;
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
    word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
    word ^= word >> 31;
  }
  unsigned char bytes[16];
  memcpy(bytes, words, sizeof bytes);
  bytes[6] = static_cast<unsigned char>((bytes[6] & 0x0f) | 0x50);
  bytes[8] = static_cast<unsigned char>((bytes[8] & 0x3f) | 0x80);
  return "MIG-" + FormatUuid(bytes).substr(4);
}

std::optional<MigPlace> FindMig(Device* device, const std::string& uuid) {
  Device::Session session(device);
  for (uint32_t i = 0; i < kMaxInstances; ++i) {
    const InstanceSlot& slot = session.card().instances[i];
    for (uint32_t c = 0; slot.serial != 0 && c < kMaxInstances; ++c) {
      if (slot.computes[c].profile == 0) continue;
      if (MigUuid(*device, GpuInstanceId(*device, slot), c) == uuid) {
        return MigPlace{i, slot.serial, c};
      }
    }
  }
  return std::nullopt;
}

}  // namespace baton::sim
