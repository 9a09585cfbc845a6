// The part of NVIDIA's management library that is used, as its public reference (NVML API 13)
// declares it; no header of the toolkit is needed. Every function may be null: libraries older than
// it lack it.
#ifndef BATON_DEVMGR_MACHINE_NVML_API_H_
#define BATON_DEVMGR_MACHINE_NVML_API_H_

#include <memory>
#include <string>
#include <type_traits>

#include "base/result.h"
#include "devmgr/machine/nvml.h"

namespace baton::devmgr::nvml {

enum Return : int {
  kSuccess = 0,
  kUninitialized = 1,
  kInvalidArgument = 2,
  kNotSupported = 3,
  kNoPermission = 4,
  kNotFound = 6,
  kInsufficientSize = 7,
  kDriverNotLoaded = 9,
  kTimeout = 10,
  kFunctionNotFound = 13,
  kGpuIsLost = 15,
  kResetRequired = 16,
  kOperatingSystem = 17,
  kVersionMismatch = 18,  // of driver and library
  kInUse = 19,
  kInsufficientResources = 23,
};

// Handles. NVML has a type for each.
using Device = void*;  // a GPU, or a MIG device of it
using GpuInstance = void*;
using ComputeInstance = void*;
using EventSet = void*;

struct Memory {  // bytes
  unsigned long long total, free, used;
};
struct Process {  // of the _v2 and _v3 calls
  unsigned int pid;
  unsigned long long used_memory;
  unsigned int gpu_instance, compute_instance;
};
inline constexpr unsigned long long kUnknown = ~0ull;  // of a process's memory
struct ProcessV1 {                                     // the first call had this shorter record
  unsigned int pid;
  unsigned long long used_memory;
};
struct Utilization {  // percent
  unsigned int gpu, memory;
};
struct PciInfo {
  char bus_id_legacy[16];
  unsigned int domain, bus, device;
  unsigned int device_id, subsystem_id;
  char bus_id[32];
};
struct EventData {
  Device device;
  unsigned long long type;
  unsigned long long data;  // the XID, of a kXidCriticalError
  unsigned int gpu_instance, compute_instance;
};
struct ProfileInfo {
  unsigned int id, p2p, slices, instances, multiprocessors, copy_engines, decoders, encoders, jpegs,
      ofas;
  unsigned long long memory_mib;
};
struct ProfileInfoV2 {
  unsigned int version;  // kProfileInfoV2
  unsigned int id, p2p, slices, instances, multiprocessors, copy_engines, decoders, encoders, jpegs,
      ofas;
  unsigned long long memory_mib;
  char name[96];
};
inline constexpr unsigned int kProfileInfoV2 = sizeof(ProfileInfoV2) | 2u << 24;
struct Placement {
  unsigned int start, size;  // slices
};
struct GpuInstanceInfo {
  Device device;
  unsigned int id, profile;
  Placement placement;  // of memory slices
};
struct ComputeProfileInfo {
  unsigned int id, slices, instances, multiprocessors, copy_engines, decoders, encoders, jpegs,
      ofas;
};

struct ProcessSample {
  unsigned int pid;
  unsigned long long at_us;                   // since 1970
  unsigned int sm, memory, encoder, decoder;  // percent
};
static_assert(sizeof(ProcessSample) == 32);

using GpmSample = void*;
struct GpmMetric {
  unsigned int id;  // what is asked for
  Return result;    // unless this is success, the value means nothing
  double value;
  const char *short_name, *long_name, *unit;
};
// Libraries of before have room for fewer metrics in it, and look at `count` of them.
inline constexpr unsigned int kGpmMetricsMax = 333;
struct GpmMetrics {
  unsigned int version;  // kGpmVersion
  unsigned int count;
  GpmSample first, last;
  GpmMetric metrics[kGpmMetricsMax];
};
static_assert(sizeof(GpmMetric) == 40 && sizeof(GpmMetrics) == 24 + kGpmMetricsMax * 40);
struct GpmSupport {
  unsigned int version;  // kGpmVersion
  unsigned int supported;
};

struct MemoryLimits {
  const char* folder;             // of a cgroup, the full path
  unsigned long long soft, hard;  // bytes
};
inline constexpr unsigned long long kNoLimit = ~0ull;  // as `hard`; as `soft` it is 0

enum : unsigned int {
  kUncorrectedErrors = 1,
  kVolatileErrors = 0,  // since the driver was loaded
  kAffinityOfNode = 0,
  kP2pOverNvLink = 2,
  kP2pOk = 0,
  kLinkToGpu = 0,
  kLinkToSwitch = 2,
  kTopologyMultiple = 20,  // over PCIe switches, but no host bridge; below it over one, or none
  kMaxLinks = 36,
  kGpmVersion = 1,
  kGpmSmUtil = 2,     // percent of the SMs that were busy, over time
  kGpmDramUtil = 10,  // percent of the bandwidth that there is
};
enum : unsigned long long {
  kDoubleBitEccEvent = 0x2,
  kXidCriticalError = 0x8,
  kMigConfigChange = 0x100,
};

// Field, type, and names to look for, the newest first.
#define BATON_NVML_FUNCTIONS(X)                                                                    \
  X(init, Return (*)(), "nvmlInit_v2", "nvmlInit")                                                 \
  X(shutdown, Return (*)(), "nvmlShutdown")                                                        \
  X(error_string, const char* (*)(Return), "nvmlErrorString")                                      \
  X(count, Return (*)(unsigned*), "nvmlDeviceGetCount_v2", "nvmlDeviceGetCount")                   \
  X(by_index, Return (*)(unsigned, Device*), "nvmlDeviceGetHandleByIndex_v2",                      \
    "nvmlDeviceGetHandleByIndex")                                                                  \
  X(by_uuid, Return (*)(const char*, Device*), "nvmlDeviceGetHandleByUUID")                        \
  X(uuid, Return (*)(Device, char*, unsigned), "nvmlDeviceGetUUID")                                \
  X(name, Return (*)(Device, char*, unsigned), "nvmlDeviceGetName")                                \
  X(memory, Return (*)(Device, Memory*), "nvmlDeviceGetMemoryInfo")                                \
  X(utilization, Return (*)(Device, Utilization*), "nvmlDeviceGetUtilizationRates")                \
  X(energy, Return (*)(Device, unsigned long long*), "nvmlDeviceGetTotalEnergyConsumption")        \
  X(set_memory_limits, Return (*)(Device, MemoryLimits*), "nvmlDeviceSetMemoryLimits_v1")          \
  X(processes, Return (*)(Device, unsigned*, Process*), "nvmlDeviceGetComputeRunningProcesses_v3", \
    "nvmlDeviceGetComputeRunningProcesses_v2")                                                     \
  X(processes_v1, Return (*)(Device, unsigned*, ProcessV1*),                                       \
    "nvmlDeviceGetComputeRunningProcesses")                                                        \
  X(pci, Return (*)(Device, PciInfo*), "nvmlDeviceGetPciInfo_v3")                                  \
  X(memory_affinity, Return (*)(Device, unsigned, unsigned long*, unsigned),                       \
    "nvmlDeviceGetMemoryAffinity")                                                                 \
  X(common_ancestor, Return (*)(Device, Device, unsigned*), "nvmlDeviceGetTopologyCommonAncestor") \
  X(link_state, Return (*)(Device, unsigned, unsigned*), "nvmlDeviceGetNvLinkState")               \
  X(link_type, Return (*)(Device, unsigned, unsigned*), "nvmlDeviceGetNvLinkRemoteDeviceType")     \
  X(link_pci, Return (*)(Device, unsigned, PciInfo*), "nvmlDeviceGetNvLinkRemotePciInfo_v2")       \
  X(p2p_status, Return (*)(Device, Device, unsigned, unsigned*), "nvmlDeviceGetP2PStatus")         \
  X(ecc_errors, Return (*)(Device, unsigned, unsigned, unsigned long long*),                       \
    "nvmlDeviceGetTotalEccErrors")                                                                 \
  X(remapped_rows, Return (*)(Device, unsigned*, unsigned*, unsigned*, unsigned*),                 \
    "nvmlDeviceGetRemappedRows")                                                                   \
  X(event_set_create, Return (*)(EventSet*), "nvmlEventSetCreate")                                 \
  X(event_set_free, Return (*)(EventSet), "nvmlEventSetFree")                                      \
  X(supported_events, Return (*)(Device, unsigned long long*), "nvmlDeviceGetSupportedEventTypes") \
  X(register_events, Return (*)(Device, unsigned long long, EventSet), "nvmlDeviceRegisterEvents") \
  X(event_set_wait, Return (*)(EventSet, EventData*, unsigned), "nvmlEventSetWait_v2",             \
    "nvmlEventSetWait")                                                                            \
  X(mig_mode, Return (*)(Device, unsigned*, unsigned*), "nvmlDeviceGetMigMode")                    \
  X(profile, Return (*)(Device, unsigned, ProfileInfo*), "nvmlDeviceGetGpuInstanceProfileInfo")    \
  X(profile_v, Return (*)(Device, unsigned, ProfileInfoV2*),                                       \
    "nvmlDeviceGetGpuInstanceProfileInfoV")                                                        \
  X(placements, Return (*)(Device, unsigned, Placement*, unsigned*),                               \
    "nvmlDeviceGetGpuInstancePossiblePlacements_v2")                                               \
  X(gpu_instances, Return (*)(Device, unsigned, GpuInstance*, unsigned*),                          \
    "nvmlDeviceGetGpuInstances")                                                                   \
  X(gpu_instance, Return (*)(Device, unsigned, GpuInstance*), "nvmlDeviceGetGpuInstanceById")      \
  X(gpu_instance_info, Return (*)(GpuInstance, GpuInstanceInfo*), "nvmlGpuInstanceGetInfo")        \
  X(create_gpu_instance, Return (*)(Device, unsigned, const Placement*, GpuInstance*),             \
    "nvmlDeviceCreateGpuInstanceWithPlacement")                                                    \
  X(destroy_gpu_instance, Return (*)(GpuInstance), "nvmlGpuInstanceDestroy")                       \
  X(compute_profile, Return (*)(GpuInstance, unsigned, unsigned, ComputeProfileInfo*),             \
    "nvmlGpuInstanceGetComputeInstanceProfileInfo")                                                \
  X(compute_instances, Return (*)(GpuInstance, unsigned, ComputeInstance*, unsigned*),             \
    "nvmlGpuInstanceGetComputeInstances")                                                          \
  X(create_compute_instance, Return (*)(GpuInstance, unsigned, ComputeInstance*),                  \
    "nvmlGpuInstanceCreateComputeInstance")                                                        \
  X(destroy_compute_instance, Return (*)(ComputeInstance), "nvmlComputeInstanceDestroy")           \
  X(mig_count, Return (*)(Device, unsigned*), "nvmlDeviceGetMaxMigDeviceCount")                    \
  X(mig_device, Return (*)(Device, unsigned, Device*), "nvmlDeviceGetMigDeviceHandleByIndex")      \
  X(gpu_instance_id, Return (*)(Device, unsigned*), "nvmlDeviceGetGpuInstanceId")                  \
  X(process_use, Return (*)(Device, ProcessSample*, unsigned*, unsigned long long),                \
    "nvmlDeviceGetProcessUtilization")                                                             \
  X(gpm_support, Return (*)(Device, GpmSupport*), "nvmlGpmQueryDeviceSupport")                     \
  X(gpm_alloc, Return (*)(GpmSample*), "nvmlGpmSampleAlloc")                                       \
  X(gpm_free, Return (*)(GpmSample), "nvmlGpmSampleFree")                                          \
  X(gpm_mig_sample, Return (*)(Device, unsigned, GpmSample), "nvmlGpmMigSampleGet")                \
  X(gpm_metrics, Return (*)(GpmMetrics*), "nvmlGpmMetricsGet")

struct Api {
#define BATON_NVML_FIELD(field, type, ...) std::remove_pointer_t<type>* field = nullptr;
  BATON_NVML_FUNCTIONS(BATON_NVML_FIELD)
#undef BATON_NVML_FIELD
};

// Loads the library and every function that it has. An error where it is absent, or lacks what
// nothing can be done without (init, count, by_index, by_uuid, uuid). Never unloaded: drivers leave
// threads and exit handlers behind.
Result<Api> Load(const std::string& library);
// Nvml over these functions. Never null.
std::unique_ptr<Nvml> Use(Result<Api> api);

// One sentence of what failed, where, what NVML said and what to do: "nvmlDeviceGetUUID of GPU 3
// (0000:17:00.0): GPU is lost (15); reset it ...". `where` may be empty.
Error Failure(const Api& api, const std::string& call, const std::string& where, Return code);
// The same of a function that the library lacks.
Error Missing(const std::string& call);

// This GPU answers no more, as opposed to having refused one question.
inline bool IsLost(Return code) { return code == kGpuIsLost || code == kResetRequired; }

}  // namespace baton::devmgr::nvml

#endif  // BATON_DEVMGR_MACHINE_NVML_API_H_
