// Initialisation, errors and devices.
#include <stdlib.h>
#include <string.h>

#include <algorithm>

#include "sim/driver.h"
#include "sim/memory.h"

namespace baton::sim {
namespace {

struct ErrorText {
  int code;
  const char* name;
  const char* text;
};

// By number: headers differ in which of them they know.
constexpr ErrorText kErrors[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {4, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {34, "CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {202, "CUDA_ERROR_CONTEXT_ALREADY_CURRENT", "context already current"},
    {205, "CUDA_ERROR_MAP_FAILED", "mapping of buffer object failed"},
    {206, "CUDA_ERROR_UNMAP_FAILED", "unmapping of buffer object failed"},
    {208, "CUDA_ERROR_ALREADY_MAPPED", "resource already mapped"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "no kernel image is available for execution on the device"},
    {211, "CUDA_ERROR_NOT_MAPPED", "resource not mapped"},
    {214, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
    {215, "CUDA_ERROR_UNSUPPORTED_LIMIT", "limit is not supported on this architecture"},
    {217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
     "peer access is not supported between these two devices"},
    {218, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {300, "CUDA_ERROR_INVALID_SOURCE", "device kernel image is invalid"},
    {301, "CUDA_ERROR_FILE_NOT_FOUND", "file not found"},
    {302, "CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND", "shared object symbol not found"},
    {303, "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED", "shared object initialization failed"},
    {304, "CUDA_ERROR_OPERATING_SYSTEM", "OS call failed or operation not supported on this OS"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {401, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {702, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"},
    {704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
    {705, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access has not been enabled"},
    {708, "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE", "cannot set while device is active in this process"},
    {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {710, "CUDA_ERROR_ASSERT", "device-side assert triggered"},
    {712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
     "part or all of the requested memory range is already mapped"},
    {713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
     "pointer does not correspond to a registered memory region"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {720, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "too many blocks in cooperative launch"},
    {800, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {802, "CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {902, "CUDA_ERROR_STREAM_CAPTURE_MERGE",
     "operation would result in a merge of separate capture sequences"},
    {903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
     "capture was not ended in the same stream as it began"},
    {904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
    {905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency created on uncaptured work in another stream"},
    {906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {907, "CUDA_ERROR_CAPTURED_EVENT",
     "operation not permitted on an event last recorded in a capturing stream"},
    {908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
     "attempt to terminate a thread-local capture sequence from another thread"},
    {909, "CUDA_ERROR_TIMEOUT", "wait operation timed out"},
    {910, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE",
     "the graph update was not performed because it included changes which violated constraints"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

const ErrorText* FindError(CUresult error) {
  for (const ErrorText& e : kErrors) {
    if (e.code == static_cast<int>(error)) return &e;
  }
  return nullptr;
}

// What kernels and the queries below agree on: a mid-size card.
int Attribute(int attribute) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
      return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
      return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
      return 64;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
      return INT32_MAX;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
      return 65535;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
      return 65535;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
      return 48 * 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      return 227 * 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      return 228 * 1024;
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK:
      return 1024;
    case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY:
      return 65536;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      return 32;
    case CU_DEVICE_ATTRIBUTE_MAX_PITCH:
      return INT32_MAX;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
      return 65536;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
      return 65536;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
      return 1'500'000;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
      return 1'500'000;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
      return 4096;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      return 40 << 20;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT:
      return 512;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT:
      return 32;
    case CU_DEVICE_ATTRIBUTE_GPU_OVERLAP:
      return 1;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
      return 2;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      return kProcessors;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
      return kThreadsPerProcessor;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
      return 32;
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
      return 1;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE:
      return CU_COMPUTEMODE_DEFAULT;
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
      return 1;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
      return 1;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      return 9;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      return 0;
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
      return 1;
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
      return 1;
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
      return 1;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED:
      return 1;
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
      return 1;
    case 92 /* CAN_USE_STREAM_MEM_OPS, the first generation */:
      return 1;
    case 93 /* CAN_USE_64_BIT_STREAM_MEM_OPS, likewise */:
      return 1;
    case 94 /* CAN_USE_STREAM_WAIT_VALUE_NOR, likewise */:
      return 1;
    case 122 /* CAN_USE_64_BIT_STREAM_MEM_OPS */:
      return 1;
    case 123 /* CAN_USE_STREAM_WAIT_VALUE_NOR */:
      return 1;
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
      return 1;
    case 96 /* COOPERATIVE_MULTI_DEVICE_LAUNCH */:
      return 1;
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
      return 1;
    case 102 /* VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED */:
      return 1;
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
      return 1;
    default:
      return 0;
  }
}

}  // namespace

int DriverVersion() {
  const char* version = getenv("BATON_SIM_DRIVER_VERSION");
  return version != nullptr ? atoi(version) : 13000;
}

SIM_API(cuInit, (unsigned int flags)) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  Lock lock(TheDriver().mutex);
  return InitDriver();
}

SIM_API(cuDriverGetVersion, (int* version)) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = DriverVersion();
  return CUDA_SUCCESS;
}

SIM_API(cuGetErrorName, (CUresult error, const char** text)) {
  const ErrorText* e = FindError(error);
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *text = e == nullptr ? nullptr : e->name;
  return e == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

SIM_API(cuGetErrorString, (CUresult error, const char** text)) {
  const ErrorText* e = FindError(error);
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *text = e == nullptr ? nullptr : e->text;
  return e == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

// No private tables here: a library that the user names may know some.
SIM_API(cuGetExportTable, (const void** table, const CUuuid* id)) {
  if (table == nullptr || id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  static const auto answer = reinterpret_cast<int (*)(const void**, const CUuuid*)>(
      FromExportTables("baton_sim_export_table"));
  if (answer != nullptr) return static_cast<CUresult>(answer(table, id));
  *table = nullptr;
  return CUDA_ERROR_NOT_FOUND;
}

SIM_API(cuDeviceGetCount, (int* count)) {
  Lock lock(TheDriver().mutex);
  if (CUresult r = CheckInitialized()) return r;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<int>(TheDriver().devices.size());
  return CUDA_SUCCESS;
}

SIM_API(cuDeviceGet, (CUdevice * device, int ordinal)) {
  Lock lock(TheDriver().mutex);
  Dev* dev;
  if (CUresult r = GetDev(ordinal, &dev)) return r;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

SIM_API(cuDeviceGetName, (char* name, int length, CUdevice device)) {
  Lock lock(TheDriver().mutex);
  Dev* dev;
  if (CUresult r = GetDev(device, &dev)) return r;
  if (name == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  strncpy(name, dev->device->file().name, static_cast<size_t>(length));
  name[length - 1] = 0;
  return CUDA_SUCCESS;
}

static CUresult DeviceUuid(CUuuid* uuid, CUdevice device) {
  Lock lock(TheDriver().mutex);
  Dev* dev;
  if (CUresult r = GetDev(device, &dev)) return r;
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  memcpy(uuid->bytes, dev->device->file().uuid, 16);
  return CUDA_SUCCESS;
}
SIM_API(cuDeviceGetUuid, (CUuuid * uuid, CUdevice device)) { return DeviceUuid(uuid, device); }
SIM_API(cuDeviceGetUuid_v2, (CUuuid * uuid, CUdevice device)) { return DeviceUuid(uuid, device); }

SIM_API(cuDeviceTotalMem_v2, (size_t * bytes, CUdevice device)) {
  Lock lock(TheDriver().mutex);
  Dev* dev;
  if (CUresult r = GetDev(device, &dev)) return r;
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *bytes = dev->device->file().memory_bytes;
  return CUDA_SUCCESS;
}
SIM_API(cuDeviceTotalMem, (unsigned int* bytes, CUdevice device)) {
  size_t all = 0;
  const CUresult r = Api_cuDeviceTotalMem_v2(&all, device);
  if (r == CUDA_SUCCESS) *bytes = static_cast<unsigned int>(std::min<size_t>(all, UINT32_MAX));
  return r;
}

SIM_API(cuDeviceGetAttribute, (int* value, CUdevice_attribute attribute, CUdevice device)) {
  Lock lock(TheDriver().mutex);
  Dev* dev;
  if (CUresult r = GetDev(device, &dev)) return r;
  if (value == nullptr || attribute <= 0) return CUDA_ERROR_INVALID_VALUE;
  *value = attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID ? dev->ordinal + 1 : Attribute(attribute);
  return CUDA_SUCCESS;
}

SIM_API(cuDeviceComputeCapability, (int* major, int* minor, CUdevice device)) {
  if (CUresult r =
          Api_cuDeviceGetAttribute(major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device)) {
    return r;
  }
  return Api_cuDeviceGetAttribute(minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
}

SIM_API(cuDeviceGetProperties, (CUdevprop * properties, CUdevice device)) {
  Lock lock(TheDriver().mutex);
  Dev* dev;
  if (CUresult r = GetDev(device, &dev)) return r;
  if (properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *properties = {1024,
                 {1024, 1024, 64},
                 {INT32_MAX, 65535, 65535},
                 48 * 1024,
                 65536,
                 32,
                 INT32_MAX,
                 65536,
                 1'500'000,
                 512};
  return CUDA_SUCCESS;
}

SIM_API(cuDeviceGetPCIBusId, (char* id, int length, CUdevice device)) {
  Lock lock(TheDriver().mutex);
  Dev* dev;
  if (CUresult r = GetDev(device, &dev)) return r;
  if (id == nullptr || length < 13) return CUDA_ERROR_INVALID_VALUE;
  snprintf(id, static_cast<size_t>(length), "0000:%02x:00.0",
           static_cast<unsigned char>(dev->ordinal + 1));
  return CUDA_SUCCESS;
}

SIM_API(cuDeviceGetByPCIBusId, (CUdevice * device, const char* id)) {
  Lock lock(TheDriver().mutex);
  if (CUresult r = CheckInitialized()) return r;
  unsigned int domain, bus;
  if (device == nullptr || id == nullptr || sscanf(id, "%x:%x", &domain, &bus) != 2 || bus == 0 ||
      bus > TheDriver().devices.size()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *device = static_cast<CUdevice>(bus - 1);
  return CUDA_SUCCESS;
}

SIM_API(cuDeviceCanAccessPeer, (int* can, CUdevice device, CUdevice peer)) {
  Lock lock(TheDriver().mutex);
  Dev* dev;
  if (CUresult r = GetDev(device, &dev)) return r;
  if (CUresult r = GetDev(peer, &dev)) return r;
  if (can == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *can = device != peer;
  return CUDA_SUCCESS;
}

SIM_API(cuDeviceGetP2PAttribute,
        (int* value, CUdevice_P2PAttribute attribute, CUdevice device, CUdevice peer)) {
  Lock lock(TheDriver().mutex);
  Dev* dev;
  if (CUresult r = GetDev(device, &dev)) return r;
  if (CUresult r = GetDev(peer, &dev)) return r;
  if (value == nullptr || device == peer) return CUDA_ERROR_INVALID_VALUE;
  *value = attribute == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED;
  return CUDA_SUCCESS;
}

SIM_API(cuDeviceGetTexture1DLinearMaxWidth, (size_t * width, int, unsigned int, CUdevice device)) {
  Lock lock(TheDriver().mutex);
  Dev* dev;
  if (CUresult r = GetDev(device, &dev)) return r;
  *width = 1 << 28;
  return CUDA_SUCCESS;
}

SIM_API(cuDeviceGetExecAffinitySupport, (int* supported, int, CUdevice device)) {
  Lock lock(TheDriver().mutex);
  Dev* dev;
  if (CUresult r = GetDev(device, &dev)) return r;
  *supported = 0;
  return CUDA_SUCCESS;
}

SIM_API(cuProfilerStart, (void)) { return CUDA_SUCCESS; }
SIM_API(cuProfilerStop, (void)) { return CUDA_SUCCESS; }

}  // namespace baton::sim
