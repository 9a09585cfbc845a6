#include "hook/driver.h"

#include <dlfcn.h>
#include <stdio.h>

#include "hook/libc.h"

namespace baton::hook {
namespace internal {

std::atomic<void*> g_real[kFnCount];

namespace {

constexpr const char* kNames[kFnCount] = {
#define BATON_ENTRY(action, spelling, name, since, per_thread) #spelling,
#include "hook/functions.inc"
#define BATON_USED(name, type) #name,
    BATON_USED_FUNCTIONS(BATON_USED)
#undef BATON_USED
};

// A program that has the driver loaded is asked first: it may have come from any folder.
void* Library() {
  static std::atomic<void*> library{nullptr};
  void* l = library.load(std::memory_order_acquire);
  if (l == nullptr) {
    l = OpenLibrary("libcuda.so.1", true);
    if (l == nullptr) l = OpenLibrary("libcuda.so.1", false);
    library.store(l, std::memory_order_release);
  }
  return l;
}

}  // namespace

void* FindReal(Fn fn) {
  const size_t i = static_cast<size_t>(fn);
  if (!FindLibc()) return nullptr;
  void* library = Library();
  if (library == nullptr) return nullptr;
  void* p = RealDlsym(library, kNames[i]);
  if (p != nullptr) g_real[i].store(p, std::memory_order_relaxed);
  return p;
}

}  // namespace internal

void OfferReal(Fn fn, void* address) {
  void* none = nullptr;
  internal::g_real[static_cast<size_t>(fn)].compare_exchange_strong(none, address);
}

size_t DeviceUuid(CUdevice device, char (&text)[64]) {
  CUuuid uuid = {};
  CUresult r = Drv<Fn::cuDeviceGetUuid_v2>(&uuid, device);
  if (r != CUDA_SUCCESS) r = Drv<Fn::cuDeviceGetUuid>(&uuid, device);
  if (r != CUDA_SUCCESS) return 0;
  int n = snprintf(text, sizeof(text), "GPU-");
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text[n++] = '-';
    n += snprintf(text + n, sizeof(text) - static_cast<size_t>(n), "%02x",
                  static_cast<unsigned char>(uuid.bytes[i]));
  }
  return static_cast<size_t>(n);
}

}  // namespace baton::hook
