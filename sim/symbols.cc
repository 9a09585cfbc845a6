// cuGetProcAddress: by name, version and default stream, from the one list of symbols.
#include "sim/symbols.h"

#include <string.h>

#include "sim/driver.h"

// Only their addresses are taken here; the true types stand where they are defined.
#define X(name, version, symbol, per_thread)                   \
  extern "C" void Plain_##name##_##version() __asm__(#symbol); \
  extern "C" void PerThread_##name##_##version() __asm__(#per_thread);
BATON_SIM_SYMBOLS(X)
#undef X

namespace baton::sim {
namespace {

struct Symbol {
  const char* name;
  int version;
  void (*plain)();
  void (*per_thread)();
};

constexpr Symbol kSymbols[] = {
#define X(name, version, symbol, per_thread) \
  {#name, version, Plain_##name##_##version, PerThread_##name##_##version},
    BATON_SIM_SYMBOLS(X)
#undef X
};

// CUdriverProcAddressQueryResult, which the oldest header lacks.
constexpr int kFound = 0, kNotFound = 1, kVersionNotSufficient = 2;

CUresult Resolve(const char* name, void** out, int version, cuuint64_t flags, bool per_thread,
                 int* status) {
  if (name == nullptr || out == nullptr || flags > 2) return CUDA_ERROR_INVALID_VALUE;
  *out = nullptr;
  if (flags == 1) per_thread = false;
  if (flags == 2) per_thread = true;
  *status = kNotFound;
  const Symbol* best = nullptr;
  for (const Symbol& symbol : kSymbols) {
    if (strcmp(symbol.name, name) != 0) continue;
    if (best == nullptr) *status = kVersionNotSufficient;
    if (symbol.version <= version && (best == nullptr || symbol.version > best->version)) {
      best = &symbol;
    }
  }
  if (best == nullptr) return CUDA_SUCCESS;
  *status = kFound;
  *out = reinterpret_cast<void*>(per_thread ? best->per_thread : best->plain);
  return CUDA_SUCCESS;
}

// The first generation has no status: it returns an error instead.
CUresult First(const char* name, void** out, int version, cuuint64_t flags, bool per_thread) {
  int status;
  if (CUresult r = Resolve(name, out, version, flags, per_thread, &status)) return r;
  return status == kFound ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult Second(const char* name, void** out, int version, cuuint64_t flags, bool per_thread,
                int* status) {
  int ignored;
  return Resolve(name, out, version, flags, per_thread, status != nullptr ? status : &ignored);
}

}  // namespace

SIM_API(cuGetProcAddress, (const char* name, void** out, int version, cuuint64_t flags)) {
  return First(name, out, version, flags, false);
}
SIM_API(cuGetProcAddress_ptsz, (const char* name, void** out, int version, cuuint64_t flags)) {
  return First(name, out, version, flags, true);
}
SIM_API(cuGetProcAddress_v2,
        (const char* name, void** out, int version, cuuint64_t flags, int* status)) {
  return Second(name, out, version, flags, false, status);
}
SIM_API(cuGetProcAddress_v2_ptsz,
        (const char* name, void** out, int version, cuuint64_t flags, int* status)) {
  return Second(name, out, version, flags, true, status);
}

}  // namespace baton::sim
