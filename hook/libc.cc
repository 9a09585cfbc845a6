#include "hook/libc.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace baton::hook {

extern "C" {
__attribute__((visibility("hidden"))) void* baton_real_dlsym = nullptr;
__attribute__((visibility("hidden"))) void* baton_real_dlvsym = nullptr;
__attribute__((visibility("hidden"))) void* baton_real_dlopen = nullptr;
}

namespace {

// FindLibc() runs inside the first dlsym of the process, which may be a sanitizer's that is about
// to replace strcmp and its like: nothing on that way may call them.
bool StartsWith(const char* text, const char* prefix) {
  for (; *prefix != 0; ++text, ++prefix) {
    if (*text != *prefix) return false;
  }
  return true;
}

bool Same(const char* a, const char* b) {
  for (; *a != 0 && *a == *b; ++a, ++b) {
  }
  return *a == *b;
}

// Reads the dynamic symbol table of one loaded object.
class LoadedObject {
 public:
  explicit LoadedObject(const dl_phdr_info& info) : base_(info.dlpi_addr) {
    for (int i = 0; i < info.dlpi_phnum; ++i) {
      if (info.dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
      const auto* d = reinterpret_cast<const ElfW(Dyn)*>(base_ + info.dlpi_phdr[i].p_vaddr);
      for (; d->d_tag != DT_NULL; ++d) {
        switch (d->d_tag) {
          case DT_SYMTAB:
            symbols_ = Address<ElfW(Sym)>(d);
            break;
          case DT_STRTAB:
            strings_ = Address<char>(d);
            break;
          case DT_GNU_HASH:
            gnu_hash_ = Address<uint32_t>(d);
            break;
          case DT_VERSYM:
            versions_ = Address<uint16_t>(d);
            break;
          default:
            break;
        }
      }
    }
  }

  // The default version of `name`, or where there is none any version. Null when not defined here.
  void* Find(const char* name) const {
    if (symbols_ == nullptr || strings_ == nullptr || gnu_hash_ == nullptr) return nullptr;
    const uint32_t buckets = gnu_hash_[0];
    const uint32_t first = gnu_hash_[1];
    const uint32_t bloom_words = gnu_hash_[2];
    if (buckets == 0) return nullptr;
    const uint32_t* bucket = gnu_hash_ + 4 + bloom_words * (sizeof(ElfW(Addr)) / 4);
    const uint32_t* chain = bucket + buckets;
    uint32_t hash = 5381;
    for (const char* c = name; *c != 0; ++c) hash = hash * 33 + static_cast<unsigned char>(*c);
    uint32_t i = bucket[hash % buckets];
    if (i < first) return nullptr;
    void* found = nullptr;
    for (;; ++i) {
      const uint32_t h = chain[i - first];
      if ((h | 1) == (hash | 1) && Same(strings_ + symbols_[i].st_name, name) &&
          symbols_[i].st_shndx != SHN_UNDEF) {
        found = reinterpret_cast<void*>(base_ + symbols_[i].st_value);
        const bool hidden_version = versions_ != nullptr && (versions_[i] & 0x8000) != 0;
        if (!hidden_version) return found;
      }
      if ((h & 1) != 0) return found;
    }
  }

 private:
  // glibc rewrites d_ptr to addresses on most machines and leaves offsets on a few.
  template <class T>
  const T* Address(const ElfW(Dyn) * d) const {
    const ElfW(Addr) p = d->d_un.d_ptr;
    return reinterpret_cast<const T*>(p < base_ ? base_ + p : p);
  }

  ElfW(Addr) base_;
  const ElfW(Sym) * symbols_ = nullptr;
  const char* strings_ = nullptr;
  const uint32_t* gnu_hash_ = nullptr;
  const uint16_t* versions_ = nullptr;
};

// The C library itself ("libc.so.6", or "libc-2.31.so" where the path was resolved), and, before
// glibc 2.34, libdl.
bool IsLibc(const char* path) {
  const char* file = path;
  for (const char* c = path; *c != 0; ++c) {
    if (*c == '/') file = c + 1;
  }
  return Same(file, "libc.so.6") || Same(file, "libdl.so.2") || StartsWith(file, "libc-2.") ||
         StartsWith(file, "libdl-2.");
}

int Visit(dl_phdr_info* info, size_t, void*) {
  if (info->dlpi_name == nullptr || !IsLibc(info->dlpi_name)) return 0;
  const LoadedObject object(*info);
  if (void* p = object.Find("dlsym")) baton_real_dlsym = p;
  if (void* p = object.Find("dlvsym")) baton_real_dlvsym = p;
  if (void* p = object.Find("dlopen")) baton_real_dlopen = p;
  return baton_real_dlsym != nullptr && baton_real_dlvsym != nullptr &&
         baton_real_dlopen != nullptr;
}

long Futex(const std::atomic<uint32_t>* word, int op, uint32_t value, const timespec* timeout) {
  return syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, value, timeout, nullptr, 0);
}

template <class F>
F Resolve(const char* name) {
  return FindLibc() ? reinterpret_cast<F>(RealDlsym(RTLD_DEFAULT, name)) : nullptr;
}

pthread_key_t exit_key;
std::atomic<uint32_t> exit_key_state{0};  // 0 none, 1 being made, 2 there, 3 refused

}  // namespace

timespec ToTimespec(Duration d) {
  const int64_t ns = d.count() > 0 ? d.count() : 0;
  return {static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
}

bool FindLibc() {
  static std::atomic<uint32_t> state{0};
  uint32_t s = state.load(std::memory_order_acquire);
  if (s == 0) {
    dl_iterate_phdr(Visit, nullptr);
    s = baton_real_dlsym != nullptr ? 1 : 2;
    // A program that loads libdl later (glibc before 2.34) is looked at again.
    if (s == 1) state.store(s, std::memory_order_release);
  }
  return s == 1;
}

void* RealDlsym(void* handle, const char* name) {
  using F = void* (*)(void*, const char*);
  return baton_real_dlsym == nullptr ? nullptr
                                     : reinterpret_cast<F>(baton_real_dlsym)(handle, name);
}

void* OpenLibrary(const char* name, bool only_if_loaded) {
  using F = void* (*)(const char*, int);
  const auto open = FindLibc() ? reinterpret_cast<F>(baton_real_dlopen) : nullptr;
  return open == nullptr ? nullptr : open(name, RTLD_LAZY | (only_if_loaded ? RTLD_NOLOAD : 0));
}

void SignalsHeld::Hold() {
  // All but 32 and 33, by which glibc makes every thread take part in setuid() and its like.
  const uint64_t all = ~(uint64_t{3} << 31);
  syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, &before_, sizeof(before_));
  held_ = true;
}

void SignalsHeld::Release() {
  if (!held_) return;
  held_ = false;
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before_, nullptr, sizeof(before_));
}

bool StartThread(void* (*run)(void*), void* argument) {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  const auto create = Resolve<Create>("pthread_create");
  const auto detach = Resolve<int (*)(pthread_t)>("pthread_detach");
  if (create == nullptr || detach == nullptr) return false;
  SignalsHeld held;  // in the new thread for ever
  pthread_t thread;
  if (create(&thread, nullptr, run, argument) != 0) return false;
  detach(thread);
  return true;
}

bool AtThreadExit(void (*at_exit)(void*), void* value) {
  const auto set = Resolve<int (*)(pthread_key_t, const void*)>("pthread_setspecific");
  if (set == nullptr) return false;
  uint32_t state = exit_key_state.load(std::memory_order_acquire);
  if (state == 0 && exit_key_state.compare_exchange_strong(state, 1)) {
    const auto create = Resolve<int (*)(pthread_key_t*, void (*)(void*))>("pthread_key_create");
    state = create != nullptr && create(&exit_key, at_exit) == 0 ? 2 : 3;
    exit_key_state.store(state, std::memory_order_release);
  }
  while ((state = exit_key_state.load(std::memory_order_acquire)) == 1) sched_yield();
  return state == 2 && set(exit_key, value) == 0;
}

void AfterFork(void (*child)()) {
  using F = int (*)(void (*)(), void (*)(), void (*)(), void*);
  const auto at_fork = Resolve<F>("__register_atfork");
  if (at_fork != nullptr) at_fork(nullptr, nullptr, child, nullptr);
}

void FutexWait(const std::atomic<uint32_t>* word, uint32_t expected, Duration timeout) {
  const timespec t = ToTimespec(timeout);
  Futex(word, FUTEX_WAIT, expected, timeout == Duration::max() ? nullptr : &t);
}

void FutexWakeAll(const std::atomic<uint32_t>* word) { Futex(word, FUTEX_WAKE, INT_MAX, nullptr); }

bool RegisterMembarrier() {
  return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

void Membarrier() { syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0); }

void SleepFor(Duration d) {
  timespec t = ToTimespec(d);
  while (syscall(SYS_nanosleep, &t, &t) != 0 && errno == EINTR) {
  }
}

uint64_t Random64() {
  uint64_t value = 0;
  if (syscall(SYS_getrandom, &value, sizeof(value), 0) != sizeof(value) || value == 0) {
    value = static_cast<uint64_t>(Nanos(MonotonicNow())) * 0x9e3779b97f4a7c15u +
            static_cast<uint64_t>(getpid());
  }
  return value;
}

size_t CommandLine(char* text, size_t room) {
  size_t n = 0;
  if (FILE* f = fopen("/proc/self/cmdline", "re")) {
    n = fread(text, 1, room, f);
    fclose(f);
  }
  while (n > 0 && text[n - 1] == 0) --n;
  for (size_t i = 0; i < n; ++i) {
    if (static_cast<unsigned char>(text[i]) < 32) text[i] = ' ';
  }
  return n;
}

Duration EnvironmentSeconds(const char* name, Duration otherwise) {
  Duration value = otherwise;
  const char* text = getenv(name);
  for (int said = 0; text != nullptr && *text >= '0' && *text <= '9' && said < 100'000; ++text) {
    said = said * 10 + (*text - '0');
    value = std::chrono::seconds(said);
  }
  return value;
}

void Lock::Acquire() {
  if (TryAcquire()) return;
  while (word_.exchange(2, std::memory_order_acquire) != 0) {
    FutexWait(&word_, 2, Duration::max());
  }
}

void Lock::Release() {
  if (word_.exchange(0, std::memory_order_release) == 2) {
    Futex(&word_, FUTEX_WAKE, 1, nullptr);
  }
}

}  // namespace baton::hook
