// What libraries look up when they start, and do not work without: the linker of device code, which
// is not simulated, and tensor maps, which only kernels read.
#include <string.h>

#include "sim/driver.h"

namespace baton::sim {

SIM_API(cuLinkCreate_v2, (unsigned int, CUjit_option*, void**, CUlinkState*)) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
SIM_API(cuLinkAddData_v2, (CUlinkState, CUjitInputType, void*, size_t, const char*, unsigned int,
                           CUjit_option*, void**)) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
SIM_API(cuLinkAddFile_v2,
        (CUlinkState, CUjitInputType, const char*, unsigned int, CUjit_option*, void**)) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
SIM_API(cuLinkComplete, (CUlinkState, void**, size_t*)) { return CUDA_ERROR_NOT_SUPPORTED; }
SIM_API(cuLinkDestroy, (CUlinkState)) { return CUDA_ERROR_NOT_SUPPORTED; }

// The map is younger than the oldest header: 128 bytes.
SIM_API(cuTensorMapEncodeTiled,
        (void* map, int, unsigned int, void*, const cuuint64_t*, const cuuint64_t*,
         const cuuint32_t*, const cuuint32_t*, int, int, int, int)) {
  if (map == nullptr) return CUDA_ERROR_INVALID_VALUE;
  memset(map, 0, 128);
  return CUDA_SUCCESS;
}

}  // namespace baton::sim
