// The first generation of memory calls, with 32-bit addresses and sizes. cuMemAlloc (without _v2)
// hands out addresses that fit.
#include "sim/driver.h"

extern "C" {
// The present generation, under its exported names.
CUresult SecondHtoD(CUdeviceptr, const void*, size_t) __asm__("cuMemcpyHtoD_v2");
CUresult SecondDtoH(void*, CUdeviceptr, size_t) __asm__("cuMemcpyDtoH_v2");
CUresult SecondDtoD(CUdeviceptr, CUdeviceptr, size_t) __asm__("cuMemcpyDtoD_v2");
CUresult SecondHtoDAsync(CUdeviceptr, const void*, size_t,
                         CUstream) __asm__("cuMemcpyHtoDAsync_v2");
CUresult SecondDtoHAsync(void*, CUdeviceptr, size_t, CUstream) __asm__("cuMemcpyDtoHAsync_v2");
CUresult SecondDtoDAsync(CUdeviceptr, CUdeviceptr, size_t,
                         CUstream) __asm__("cuMemcpyDtoDAsync_v2");
CUresult SecondD8(CUdeviceptr, unsigned char, size_t) __asm__("cuMemsetD8_v2");
CUresult SecondD16(CUdeviceptr, unsigned short, size_t) __asm__("cuMemsetD16_v2");
CUresult SecondD32(CUdeviceptr, unsigned int, size_t) __asm__("cuMemsetD32_v2");
CUresult SecondRange(CUdeviceptr*, size_t*, CUdeviceptr) __asm__("cuMemGetAddressRange_v2");
}

namespace baton::sim {

SIM_API(cuMemcpyHtoD, (unsigned int to, const void* from, unsigned int bytes)) {
  return SecondHtoD(to, from, bytes);
}
SIM_API(cuMemcpyDtoH, (void* to, unsigned int from, unsigned int bytes)) {
  return SecondDtoH(to, from, bytes);
}
SIM_API(cuMemcpyDtoD, (unsigned int to, unsigned int from, unsigned int bytes)) {
  return SecondDtoD(to, from, bytes);
}
SIM_API(cuMemcpyHtoDAsync, (unsigned int to, const void* from, unsigned int bytes, CUstream s)) {
  return SecondHtoDAsync(to, from, bytes, s);
}
SIM_API(cuMemcpyDtoHAsync, (void* to, unsigned int from, unsigned int bytes, CUstream s)) {
  return SecondDtoHAsync(to, from, bytes, s);
}
SIM_API(cuMemcpyDtoDAsync, (unsigned int to, unsigned int from, unsigned int bytes, CUstream s)) {
  return SecondDtoDAsync(to, from, bytes, s);
}
SIM_API(cuMemsetD8, (unsigned int to, unsigned char value, unsigned int n)) {
  return SecondD8(to, value, n);
}
SIM_API(cuMemsetD16, (unsigned int to, unsigned short value, unsigned int n)) {
  return SecondD16(to, value, n);
}
SIM_API(cuMemsetD32, (unsigned int to, unsigned int value, unsigned int n)) {
  return SecondD32(to, value, n);
}
SIM_API(cuMemGetAddressRange, (unsigned int* base, unsigned int* size, unsigned int pointer)) {
  CUdeviceptr b = 0;
  size_t s = 0;
  const CUresult r = SecondRange(&b, &s, pointer);
  if (base != nullptr) *base = static_cast<unsigned int>(b);
  if (size != nullptr) *size = static_cast<unsigned int>(s);
  return r;
}

}  // namespace baton::sim
