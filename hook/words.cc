#include "hook/words.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "hook/gpu.h"
#include "hook/libc.h"

namespace baton::hook {
namespace {

// As in the kernel's headers, which may be older.
#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif
#ifndef F_ADD_SEALS
#define F_ADD_SEALS 1033
#endif
constexpr unsigned kMemoryFile = 1 | 2;         // close on exec, seals allowed
constexpr int kSeals = 0x1 | 0x2 | 0x4 | 0x10;  // seal, shrink, grow, future write
constexpr uint32_t kFutex32 = 2;                // FUTEX_32
constexpr uint32_t kFutexOwn = kFutex32 | 128;  // ... of this process alone
constexpr size_t kOthersMax = 128;              // mapped at a time
constexpr int kDontFork = 10;                   // MADV_DONTFORK
constexpr uint32_t kLooksMost = 8;              // for one word
// Beside busy programs the holder's wake-up may wait for a clock tick. Another thread's, a little
// later, makes Linux reckon anew who is to run.
constexpr Duration kSecondChance = std::chrono::microseconds(150);
constexpr uint64_t kFarNs = uint64_t{1} << 62;  // no instant of this machine's clock

struct FutexWaiter {  // struct futex_waitv
  uint64_t value;
  uint64_t address;
  uint32_t flags;
  uint32_t reserved;
};

struct {
  wire::Words* words = nullptr;
  int file = -1;
  ino_t inode = 0;
} own;

// Words of others: places that files are mapped to in turn, and never taken away again, for a
// thread may be about to read there.
struct {
  Lock lock;
  char* room = nullptr;
  uint64_t clients[kOthersMax] = {};
  size_t next = 0;
} others;

void* Map(void* at, int protection, int flags, int fd) {
  const size_t size = at == nullptr && fd < 0 ? kOthersMax * wire::kWordsBytes : wire::kWordsBytes;
  void* p = mmap(at, size, protection, flags, fd, 0);
  if (p == MAP_FAILED) return nullptr;
  // A child after fork has neither: it says nothing for its parent.
  madvise(p, size, kDontFork);
  return p;
}

long WaitForAny(FutexWaiter* waiters, unsigned count, const timespec* until) {
  return syscall(SYS_futex_waitv, waiters, count, 0, until, CLOCK_MONOTONIC);
}

// 0: there is no such file.
ino_t InodeOf(int file) {
  struct stat about = {};
  // The C library's function is younger than the oldest one that the hook runs with.
  return syscall(SYS_fstat, file, &about) == 0 ? about.st_ino : 0;
}

bool InUse(const char* page) {
  for (int i = 0; i < GpuCount(); ++i) {
    const auto* word =
        reinterpret_cast<const char*>(GpuAt(i)->awaited.word.load(std::memory_order_relaxed));
    if (word >= page && word < page + wire::kWordsBytes) return true;
  }
  return false;
}

}  // namespace

void MakeWords() {
  // Without waiters it is an error, but one that says that the call is there.
  if (WaitForAny(nullptr, 0, nullptr) == 0 || errno != EINVAL) return;
  const int file = static_cast<int>(syscall(SYS_memfd_create, "baton-words", kMemoryFile));
  if (file < 0) return;
  void* words = nullptr;
  if (ftruncate(file, wire::kWordsBytes) == 0) {
    words = Map(nullptr, PROT_READ | PROT_WRITE, MAP_SHARED, file);
  }
  if (words == nullptr || fcntl(file, F_ADD_SEALS, kSeals) != 0) {
    if (words != nullptr) munmap(words, wire::kWordsBytes);
    close(file);
    return;
  }
  own.words = static_cast<wire::Words*>(words);
  own.file = file;
  own.inode = InodeOf(file);
}

void ForgetWords() {
  if (const int file = WordsFile(); file >= 0) close(file);
  own = {};
  others.lock.Reset();
  others.room = nullptr;
  ForgetClients();
}

int WordsFile() {
  // A program may have closed it, and opened another file by the same number.
  return own.file >= 0 && InodeOf(own.file) == own.inode ? own.file : -1;
}

void SayDrained(uint8_t gpu, uint64_t epoch, uint64_t rev, Instant ended) {
  if (own.words == nullptr) return;
  wire::Word& word = own.words->of[gpu];
  const uint64_t said = word.epoch.load(std::memory_order_relaxed);
  if (said == epoch && word.rev.load(std::memory_order_relaxed) == rev) return;
  word.rev.store(rev, std::memory_order_relaxed);
  word.drained_ns.store(static_cast<uint64_t>(Nanos(ended)), std::memory_order_relaxed);
  word.epoch.store(epoch, std::memory_order_release);
  word.changes.fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, &word.changes, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

Instant Awaited::DrainedAt() const {
  const wire::Word* w = word.load(std::memory_order_acquire);
  const uint64_t ns = w != nullptr ? w->drained_ns.load(std::memory_order_relaxed) : 0;
  return ns < kFarNs ? InstantFromNanos(static_cast<int64_t>(ns)) : Instant{};
}

void SayExpected(uint8_t gpu, Instant end) {
  if (own.words == nullptr) return;
  std::atomic<uint64_t>& said = own.words->of[gpu].expected_ns;
  const auto ns = static_cast<uint64_t>(Nanos(end));
  if (said.load(std::memory_order_relaxed) != ns) said.store(ns, std::memory_order_relaxed);
}

void SayBegan(uint8_t gpu, uint64_t epoch, Instant now) {
  if (own.words == nullptr) return;
  wire::Word& word = own.words->of[gpu];
  if (word.began_epoch.load(std::memory_order_relaxed) == epoch) return;
  word.began_ns.store(static_cast<uint64_t>(Nanos(now)), std::memory_order_relaxed);
  word.began_epoch.store(epoch, std::memory_order_release);
}

const wire::Word* ReadWord(int fd, uint64_t client, uint8_t gpu) {
  Guard guard(others.lock);
  if (gpu >= wire::kGpusMax) gpu = 0;
  if (others.room == nullptr) {
    others.room = static_cast<char*>(
        Map(nullptr, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1));
  }
  size_t place = 0;
  while (place < kOthersMax && others.clients[place] != client) ++place;
  char* page = nullptr;
  if (others.room != nullptr && place < kOthersMax) {
    page = others.room + place * wire::kWordsBytes;
  } else if (others.room != nullptr) {
    do {
      place = others.next++ % kOthersMax;
      page = others.room + place * wire::kWordsBytes;
    } while (InUse(page));  // there are fewer GPUs than places
    others.clients[place] = 0;
    page = static_cast<char*>(Map(page, PROT_READ, MAP_SHARED | MAP_FIXED, fd));
    if (page != nullptr) others.clients[place] = client;
  }
  close(fd);
  return page != nullptr ? &reinterpret_cast<const wire::Words*>(page)->of[gpu] : nullptr;
}

void ForgetClients() {
  Guard guard(others.lock);
  for (uint64_t& client : others.clients) client = 0;
}

void SleepOn(Awaited& awaited, const std::atomic<uint32_t>& gate, Duration timeout) {
  const wire::Word* word = awaited.word.load(std::memory_order_acquire);
  if (word == nullptr) return;
  const auto waits = [&] {
    return !awaited.HasCome() && gate.load(std::memory_order_seq_cst) == 0 &&
           awaited.word.load(std::memory_order_relaxed) == word;
  };
  const auto expected = [word] {
    const uint64_t ns = word->expected_ns.load(std::memory_order_relaxed);
    return ns < kFarNs ? InstantFromNanos(static_cast<int64_t>(ns)) : Instant{};
  };
  if (!awaited.close_look.Around(expected, waits)) return;
  const uint32_t seen = word->changes.load(std::memory_order_seq_cst);
  if (!waits()) return;
  FutexWaiter waiters[2] = {
      {seen, reinterpret_cast<uint64_t>(&word->changes), kFutex32, 0},
      {0, reinterpret_cast<uint64_t>(&gate), kFutexOwn, 0},
  };
  const Instant now = MonotonicNow();
  Instant until = now + timeout;
  Instant look = awaited.close_look.Begins(expected());
  if (look == kNever) look = expected() + kSecondChance;
  if (look > now && look < until && awaited.looks.fetch_add(1) < kLooksMost) until = look;
  const timespec wake = ToTimespec(until - Instant{});
  WaitForAny(waiters, 2, &wake);
  CloseLook::RanLate(until, MonotonicNow());
}

}  // namespace baton::hook
