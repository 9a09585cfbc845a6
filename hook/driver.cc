#include "hook/driver.h"

#include <dlfcn.h>

#include "hook/libc.h"

namespace baton::hook {
namespace internal {

std::atomic<void*> g_real[kFnCount];

namespace {

constexpr const char* kNames[kFnCount] = {
#define BATON_ENTRY(spelling, name, since, per_thread) #spelling,
#include "hook/entries.inc"
#undef BATON_ENTRY
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

}  // namespace baton::hook
