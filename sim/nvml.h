// What the parts of the simulated libnvidia-ml.so.1 share: NVIDIA's numbers and records, and the
// way in. Declared here after the public NVML reference (API version 13), for its header comes with
// no package that is needed otherwise, and apart from the product's own declarations, so that the
// two cannot be wrong together by copying.
#ifndef BATON_SIM_NVML_H_
#define BATON_SIM_NVML_H_

#include <mutex>
#include <string>
#include <vector>

#include "sim/card.h"
#include "sim/device.h"

#define SIM_NVML(name, params)                                       \
  extern "C" int name params __attribute__((visibility("default"))); \
  extern "C" int name params

namespace baton::sim {

enum NvmlReturn : int {
  kSuccess = 0,
  kUninitialized = 1,
  kInvalidArgument = 2,
  kNotSupported = 3,
  kNoPermission = 4,
  kNotFound = 6,
  kInsufficientSize = 7,
  kDriverNotLoaded = 9,
  kTimeout = 10,
  kGpuIsLost = 15,
  kInUse = 19,
  kInsufficientResources = 23,
  kArgumentVersionMismatch = 25,
  kUnknown = 999
};

// A GPU's handle is its Device*; a MIG device's one of these. Never freed: programs keep handles.
struct MigDevice {
  Device* device;
  uint32_t slot;     // of the GPU instance
  uint32_t serial;   // which it had
  uint32_t compute;  // of the compute instance; kMaxInstances: the GPU instance itself
};

// Everything that the entry points share between threads.
struct NvmlLibrary {
  std::mutex mutex;
  int references = 0;
  // Opened devices stay open: their descriptors also carry the lock of a driver in this process.
  std::vector<Device*> devices;
  std::vector<MigDevice*> migs;

  // With `mutex` held.
  std::vector<Device*> Counted() const;
  MigDevice* HandleOf(const MigDevice& mig);
};
NvmlLibrary& Library();

// What was injected for a call of `call` on this device (sim/card.h), after its delay: the code to
// return, or success. Counts the call.
NvmlReturn Injected(Device* device, const char* call);
// The same for a call that is on no device: on any of them.
NvmlReturn InjectedAnywhere(const char* call);
// The device that a handle means, if a call on it can go on.
NvmlReturn Enter(const char* call, void* handle, Device** device);
// Of a MIG device or an instance, whose parent is then `mig->device`.
NvmlReturn EnterMig(const char* call, void* handle, MigDevice** mig);

std::string BusOf(Device* device);
NvmlReturn CopyText(const std::string& text, char* out, unsigned int length);

}  // namespace baton::sim

#endif  // BATON_SIM_NVML_H_
