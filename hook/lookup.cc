// How programs find the driver's functions: dlsym, dlvsym and cuGetProcAddress. All three ask the
// real one first and then hand out the wrapper of exactly what it found. And dlopen, which could
// lead a library past them.
//
// dlsym and dlopen read their caller's address (RTLD_NEXT means "after the caller", and whose
// RUNPATH counts), so what is not ours is passed on by a jump, not a call.
#include <dlfcn.h>
#include <string.h>

#include "hook/deepbind.h"
#include "hook/entries.h"
#include "hook/libc.h"
#include "hook/log.h"
#include "hook/nvml.h"

#define BATON_ENTRY(action, spelling, name, since, per_thread) \
  extern "C" void Wrapper_##spelling() __asm__(#spelling);
#include "hook/functions.inc"

namespace baton::hook {
namespace {

struct Entry {
  const char* spelling;
  const char* name;
  void (*wrapper)();
  int since;
  bool per_thread;
  Fn fn;
};

constexpr Entry kEntries[] = {
#define BATON_ENTRY(action, spelling, name, since, per_thread) \
  {#spelling, #name, Wrapper_##spelling, since, per_thread, Fn::spelling},
#define BATON_ALSO(spelling, name, since, per_thread) \
  {#spelling, #name, Wrapper_##spelling, since, per_thread, Fn::spelling},
#include "hook/functions.inc"
};

void* WrapperOf(const Entry& entry) { return reinterpret_cast<void*>(entry.wrapper); }

const Entry* FindSpelling(const char* spelling) {
  if (spelling[0] != 'c' || spelling[1] != 'u') return nullptr;
  for (const Entry& e : kEntries) {
    if (strcmp(e.spelling, spelling) == 0) return &e;
  }
  return nullptr;
}

// The wrapper of what the driver answered for (symbol, version). `ask(&function, version)` asks it
// again for another version.
template <class Ask>
void* WrapAnswer(const char* symbol, void* answer, int version, bool per_thread, Ask ask) {
  const Entry* best = nullptr;
  for (const Entry& e : kEntries) {
    if (strcmp(e.name, symbol) != 0) continue;
    // The address itself says which spelling it is, where the driver exports what it answers.
    if (answer == WrapperOf(e)) return answer;
    if (RealAs<void()>(e.fn) == reinterpret_cast<void (*)()>(answer)) return WrapperOf(e);
    if (e.since > version || (e.per_thread && !per_thread)) continue;
    if (best == nullptr || (e.per_thread && !best->per_thread) ||
        (e.per_thread == best->per_thread && e.since >= best->since)) {
      best = &e;
    }
  }
  if (best == nullptr) return answer;
  // It may be of a later version than this hook knows, and take other arguments.
  void* known = nullptr;
  if (ask(&known, best->since) != CUDA_SUCCESS || known != answer) {
    static std::atomic<bool> said{false};
    if (!said.exchange(true)) {
      Say("this driver has a newer %s, which passes without a token", symbol);
    }
    return answer;
  }
  OfferReal(best->fn, answer);
  return WrapperOf(*best);
}

template <class Ask>
CUresult GetProcAddress(const char* symbol, void** function, int version, cuuint64_t flags,
                        Ask ask) {
  const CUresult result = ask(function, version);
  if (result != CUDA_SUCCESS || !Managed() || symbol == nullptr || function == nullptr ||
      *function == nullptr) {
    return result;
  }
  *function = WrapAnswer(symbol, *function, version,
                         (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0, ask);
  return result;
}

}  // namespace

BATON_API(cuGetProcAddress, (const char* symbol, void** function, int version, cuuint64_t flags)) {
  BATON_REAL(cuGetProcAddress);
  return GetProcAddress(symbol, function, version, flags,
                        [&](void** out, int v) { return real(symbol, out, v, flags); });
}

// `status`: CUdriverProcAddressQueryResult*, which older headers lack. It stays as the driver set
// it.
BATON_API(cuGetProcAddress_v2,
          (const char* symbol, void** function, int version, cuuint64_t flags, void* status)) {
  BATON_REAL(cuGetProcAddress_v2);
  return GetProcAddress(symbol, function, version, flags, [&](void** out, int v) {
    // What is asked besides does not touch the caller's status.
    int unused = 0;
    return real(symbol, out, v, flags, out == function ? status : &unused);
  });
}

}  // namespace baton::hook

extern "C" {

// Stands in for the real dlsym where there is none (no glibc): finds nothing.
__attribute__((visibility("hidden"))) void* baton_find_nothing() { return nullptr; }

// What dlsym(handle, name) is to answer instead of the real one's answer; null: nothing else.
__attribute__((visibility("hidden"))) void* baton_lookup(void* handle, const char* name) {
  using baton::hook::Entry;
  if (!baton::hook::FindLibc()) {
    baton::hook::baton_real_dlsym = reinterpret_cast<void*>(baton_find_nothing);
    baton::hook::baton_real_dlvsym = reinterpret_cast<void*>(baton_find_nothing);
    return nullptr;
  }
  // RTLD_NEXT depends on who asks. It finds our exported wrappers by itself where they are next.
  if (name == nullptr || handle == RTLD_NEXT) return nullptr;
  if (name[0] == 'n') {
    void* replaced = baton::hook::NvmlWrapper(name);
    if (replaced == nullptr || !baton::hook::Managed()) return nullptr;
    return baton::hook::RealDlsym(handle, name) != nullptr ? replaced : nullptr;
  }
  const Entry* entry = baton::hook::FindSpelling(name);
  if (entry == nullptr || !baton::hook::Managed()) return nullptr;
  void* found = baton::hook::RealDlsym(handle, name);
  if (found == nullptr) return nullptr;
  void* wrapper = baton::hook::WrapperOf(*entry);
  if (found != wrapper) baton::hook::OfferReal(entry->fn, found);
  return wrapper;
}

// With what flags dlopen(file, flags) is to go on.
__attribute__((visibility("hidden"))) int baton_open_flags(const char* file, int flags,
                                                           const void* caller) {
  if (!baton::hook::FindLibc() || baton::hook::baton_real_dlopen == nullptr) {
    baton::hook::baton_real_dlopen = reinterpret_cast<void*>(baton_find_nothing);
    return flags;
  }
  if ((flags & RTLD_DEEPBIND) == 0 || file == nullptr || !baton::hook::Managed() ||
      !baton::hook::ReachesCuda(file, caller)) {
    return flags;
  }
  BATON_SAY_MORE("%s is opened without RTLD_DEEPBIND, which would lead it past the token", file);
  return flags & ~RTLD_DEEPBIND;
}
}

#if defined(__x86_64__)
#define BATON_TAIL(function, real)                                      \
  __asm__(".text\n.globl baton_" #function "\n.hidden baton_" #function \
          "\n"                                                          \
          ".type baton_" #function                                      \
          ", %function\n"                                               \
          "baton_" #function                                            \
          ":\n"                                                         \
          "  endbr64\n"                                                 \
          "  push %rdi\n  push %rsi\n  push %rdx\n"                     \
          "  call baton_lookup\n"                                       \
          "  pop %rdx\n  pop %rsi\n  pop %rdi\n"                        \
          "  test %rax, %rax\n"                                         \
          "  jnz 1f\n"                                                  \
          "  jmp *" #real                                               \
          "(%rip)\n"                                                    \
          "1: ret\n"                                                    \
          ".size baton_" #function ", .-baton_" #function "\n")
// Its caller's address lies on the stack.
__asm__(
    ".text\n.globl baton_dlopen\n.hidden baton_dlopen\n.type baton_dlopen, %function\n"
    "baton_dlopen:\n"
    "  endbr64\n"
    "  push %rdi\n  push %rsi\n  sub $8, %rsp\n"
    "  mov 24(%rsp), %rdx\n"
    "  call baton_open_flags\n"
    "  add $8, %rsp\n  pop %rsi\n  pop %rdi\n"
    "  mov %eax, %esi\n"
    "  jmp *baton_real_dlopen(%rip)\n"
    ".size baton_dlopen, .-baton_dlopen\n");
#define BATON_FIRST_GLIBC "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define BATON_TAIL(function, real)                                      \
  __asm__(".text\n.globl baton_" #function "\n.hidden baton_" #function \
          "\n"                                                          \
          ".type baton_" #function                                      \
          ", %function\n"                                               \
          "baton_" #function                                            \
          ":\n"                                                         \
          "  hint #34\n"                                                \
          "  stp x29, x30, [sp, #-48]!\n"                               \
          "  stp x0, x1, [sp, #16]\n  str x2, [sp, #32]\n"              \
          "  bl baton_lookup\n"                                         \
          "  mov x9, x0\n"                                              \
          "  ldp x0, x1, [sp, #16]\n  ldr x2, [sp, #32]\n"              \
          "  ldp x29, x30, [sp], #48\n"                                 \
          "  cbz x9, 1f\n"                                              \
          "  mov x0, x9\n"                                              \
          "  ret\n"                                                     \
          "1: adrp x16, " #real                                         \
          "\n"                                                          \
          "  ldr x16, [x16, #:lo12:" #real                              \
          "]\n"                                                         \
          "  br x16\n"                                                  \
          ".size baton_" #function ", .-baton_" #function "\n")
// Its caller's address is in x30.
__asm__(
    ".text\n.globl baton_dlopen\n.hidden baton_dlopen\n.type baton_dlopen, %function\n"
    "baton_dlopen:\n"
    "  hint #34\n"
    "  stp x29, x30, [sp, #-32]!\n"
    "  str x0, [sp, #16]\n"
    "  mov x2, x30\n"
    "  bl baton_open_flags\n"
    "  mov w1, w0\n"
    "  ldr x0, [sp, #16]\n"
    "  ldp x29, x30, [sp], #32\n"
    "  adrp x16, baton_real_dlopen\n"
    "  ldr x16, [x16, #:lo12:baton_real_dlopen]\n"
    "  br x16\n"
    ".size baton_dlopen, .-baton_dlopen\n");
#define BATON_FIRST_GLIBC "GLIBC_2.17"
#else
#error "libbaton.so is written for x86-64 and aarch64"
#endif

BATON_TAIL(dlsym, baton_real_dlsym);
BATON_TAIL(dlvsym, baton_real_dlvsym);
// Both versions that programs bind: glibc before 2.34 has only the first.
#define BATON_VERSIONS(function)                                              \
  __asm__(".globl baton_" #function "_old\n.type baton_" #function            \
          "_old, %function\n"                                                 \
          ".set baton_" #function "_old, baton_" #function                    \
          "\n"                                                                \
          ".globl baton_" #function "_new\n.type baton_" #function            \
          "_new, %function\n"                                                 \
          ".set baton_" #function "_new, baton_" #function                    \
          "\n"                                                                \
          ".symver baton_" #function "_old, " #function "@" BATON_FIRST_GLIBC \
          "\n"                                                                \
          ".symver baton_" #function "_new, " #function "@@GLIBC_2.34\n")
BATON_VERSIONS(dlopen);
BATON_VERSIONS(dlsym);
BATON_VERSIONS(dlvsym);
