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

CUresult Resolve(const char* name, void** out, int version, cuuint64_t flags, int* status) {
  if (name == nullptr || out == nullptr || flags > 2) return CUDA_ERROR_INVALID_VALUE;
  *out = nullptr;
  const bool per_thread = flags == 2;
  *status = kNotFound;
  const Symbol* best = nullptr;
  for (const Symbol& symbol : kSymbols) {
    if (strcmp(symbol.name, name) != 0 || symbol.version > DriverVersion()) continue;
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

}  // namespace

// A program built for per-thread default streams asks by a flag: cuda.h makes the _ptsz spelling of
// both an inline function, and no driver exports it.

// The first generation has no status: it returns an error instead.
SIM_API(cuGetProcAddress, (const char* name, void** out, int version, cuuint64_t flags)) {
  int status;
  if (CUresult r = Resolve(name, out, version, flags, &status)) return r;
  return status == kFound ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
SIM_API(cuGetProcAddress_v2,
        (const char* name, void** out, int version, cuuint64_t flags, int* status)) {
  int ignored;
  return Resolve(name, out, version, flags, status != nullptr ? status : &ignored);
}

}  // namespace baton::sim
