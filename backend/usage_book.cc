#include "backend/usage_book.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <functional>
#include <utility>

#include "base/entropy.h"
#include "base/file.h"
#include "base/hash.h"

namespace baton::backend {
namespace {

constexpr char kBookMagic[16] = "baton usage 3\n";
constexpr std::string_view kBookFormat = "baton usage ";
constexpr uint64_t kBookVersion = 3;
constexpr size_t kIdentity = 32;  // characters, after the magic; zeros where none was drawn yet
constexpr size_t kEntry = sizeof(UsageEntry);
constexpr size_t kFirstEntry = 3;  // the header takes the place of entry 0, the journal of two more
constexpr size_t kMapSize = 64 << 20;  // address space; 524 287 entries
constexpr size_t kStep = 64 << 10;
constexpr uint64_t kUsed = 0x6261746f6e757365;

// The number under which a pod's entry about its limit on a GPU stands.
uint64_t LimitOn(uint64_t gpu) { return ~gpu; }

// Of all of this process: signals have no other way to find it.
std::atomic<UsageBook*> mapped_book{nullptr};

}  // namespace

void UsageEntry::BeginHold(uint64_t epoch) {
  __atomic_store_n(&hold_base_ns[epoch % 2], usage.held_ns, __ATOMIC_RELEASE);
  __atomic_store_n(&hold_epoch, epoch, __ATOMIC_RELEASE);
}

// What both entries held before the change that is under way.
struct UsageBook::Journal {
  uint64_t valid;
  uint64_t total_at;
  uint64_t last_at;
  Usage total;
  Usage last;
};

UsageBook::Journal* UsageBook::journal() const {
  static_assert(sizeof(Journal) <= (kFirstEntry - 1) * kEntry);
  return reinterpret_cast<Journal*>(map_ + kEntry);
}

UsageEntry* UsageBook::EntryAt(size_t at) const {
  return reinterpret_cast<UsageEntry*>(map_ + at * kEntry);
}

size_t UsageBook::NumberOf(const UsageEntry& entry) const {
  const auto* at = reinterpret_cast<const char*>(&entry);
  const std::less<const char*> before;
  if (map_ == nullptr || before(at, map_) || !before(at, map_ + file_size_)) return 0;
  return static_cast<size_t>(at - map_) / kEntry;
}

// A process that is killed has done all stores before that instant and none after it, so it is
// enough that the compiler leaves their order as it is.
void UsageBook::Begin(const UsageEntry& total, const UsageEntry& last) {
  const size_t total_at = NumberOf(total);
  const size_t last_at = NumberOf(last);
  if (total_at == 0 || last_at == 0) return;  // in memory only: gone with the daemon
  *journal() = {0, total_at, last_at, total.usage, last.usage};
  std::atomic_signal_fence(std::memory_order_seq_cst);
  __atomic_store_n(&journal()->valid, 1, __ATOMIC_RELEASE);
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

void UsageBook::End() {
  if (map_ == nullptr || file_size_ == 0) return;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  __atomic_store_n(&journal()->valid, 0, __ATOMIC_RELEASE);
}

UsageBook::~UsageBook() {
  UsageBook* self = this;
  if (mapped_book.compare_exchange_strong(self, nullptr)) signal(SIGBUS, SIG_DFL);
  if (map_ != nullptr) munmap(map_, kMapSize);
}

// Somebody else's fault happens again, without a handler.
void UsageBook::OnBusError(int, siginfo_t* info, void*) {
  UsageBook* book = mapped_book.load();
  const auto* at = static_cast<const char*>(info->si_addr);
  const std::less<const char*> before;
  if (book == nullptr || before(at, book->map_) || !before(at, book->map_ + kMapSize)) {
    signal(SIGBUS, SIG_DFL);
    return;
  }
  book->TakeCopy();
}

// Also called by a signal.
void UsageBook::TakeCopy() {
  // It replaces what is mapped there. Where it cannot, memcpy faults as without a handler.
  static_cast<void>(mmap(map_, kMapSize, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0));
  memcpy(map_, copy_.data(), copy_.size());
  torn_ = true;
}

bool UsageBook::WriteAnew() {
  // Entries that are younger than the copy.
  for (const auto& [key, entry] : index_) {
    if (NumberOf(*entry) == 0) continue;
    std::tie(entry->pod, entry->gpu, entry->incarnation) = key;
    entry->used = kUsed;
  }
  if (posix_fallocate(fd_.get(), 0, static_cast<off_t>(file_size_)) != 0) return false;
  for (size_t done = 0; done < file_size_;) {
    const ssize_t n = pwrite(fd_.get(), map_ + done, file_size_ - done, static_cast<off_t>(done));
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  if (mmap(map_, kMapSize, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd_.get(), 0) ==
      MAP_FAILED) {
    return false;
  }
  torn_ = false;
  return true;
}

Result<std::string> UsageBook::Open(const std::string& path, std::string_view boot_id) {
  path_ = path;
  boot_ = HashOf(boot_id);
  identity_ = RandomTicket();
  std::string note;
  for (int attempt = 0; attempt < 2; ++attempt) {
    fd_ = UniqueFd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!fd_) {
      degraded_ = "cannot open " + path + ": " + strerror(errno) + "; usage is kept in memory only";
      return degraded_;
    }
    struct stat st;
    char magic[sizeof kBookMagic] = {};
    if (fstat(fd_.get(), &st) != 0 || st.st_size == 0) break;
    file_size_ = static_cast<size_t>(st.st_size) / kStep * kStep;
    if (pread(fd_.get(), magic, sizeof magic, 0) == sizeof magic &&
        memcmp(magic, kBookMagic, sizeof magic) == 0 && file_size_ != 0 && file_size_ <= kMapSize) {
      break;
    }
    file_size_ = 0;
    if (IsOfNewerVersion({magic, sizeof magic}, kBookFormat, kBookVersion)) {
      return Fail(ErrorCode::kDenied,
                  path +
                      ": a newer version of Baton wrote it, with what pods have used. Install "
                      "that version again, or move the file away: use before it is then lost");
    }
    const auto aside = MoveAside(path);
    if (!aside) return tl::unexpected(aside.error());
    note = path + " is damaged; it was moved to " + *aside + ", and a new usage book was created";
  }
  void* map = mmap(nullptr, kMapSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (map == MAP_FAILED) {
    degraded_ = "cannot map " + path + ": " + strerror(errno) + "; usage is kept in memory only";
    return degraded_;
  }
  map_ = static_cast<char*>(map);
  UsageBook* none = nullptr;
  if (mapped_book.compare_exchange_strong(none, this)) {
    struct sigaction action = {};
    action.sa_sigaction = OnBusError;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGBUS, &action, nullptr);
  }
  next_ = kFirstEntry;
  if (file_size_ != 0) {
    char* identity = map_ + sizeof kBookMagic;
    if (*identity == '\0') memcpy(identity, identity_.data(), kIdentity);
    identity_.assign(identity, kIdentity);
  }
  if (file_size_ != 0 && journal()->valid == 1) {
    const Journal& j = *journal();
    for (const auto& [at, usage] : {std::pair(j.total_at, j.total), std::pair(j.last_at, j.last)}) {
      if (at >= kFirstEntry && at < file_size_ / kEntry) EntryAt(at)->usage = usage;
    }
    End();
  }
  for (size_t at = kFirstEntry; (at + 1) * kEntry <= file_size_; ++at) {
    UsageEntry* entry = EntryAt(at);
    if (entry->used != kUsed) continue;
    index_[{entry->pod, entry->gpu, entry->incarnation}] = entry;
    next_ = at + 1;
  }
  for (size_t at = kFirstEntry; at < next_; ++at) {
    UsageEntry* entry = EntryAt(at);
    if (entry->used != kUsed) free_.push_back(entry);
  }
  Flush();
  return note;
}

void UsageBook::ChangeIdentity() {
  identity_ = RandomTicket();
  if (file_size_ != 0) memcpy(map_ + sizeof kBookMagic, identity_.data(), kIdentity);
  Flush();
}

UsageEntry* UsageBook::Allocate() {
  if (!free_.empty()) {
    UsageEntry* entry = free_.back();
    free_.pop_back();
    return entry;
  }
  if (map_ != nullptr && (next_ + 1) * kEntry > file_size_ && file_size_ + kStep <= kMapSize) {
    // Room on the disk first: touching a mapped page that has none would be a SIGBUS.
    const int error = posix_fallocate(fd_.get(), static_cast<off_t>(file_size_), kStep);
    if (error == 0) {
      if (file_size_ == 0) {
        memcpy(map_, kBookMagic, sizeof kBookMagic);
        memcpy(map_ + sizeof kBookMagic, identity_.data(), kIdentity);
      }
      file_size_ += kStep;
      degraded_.clear();
      Flush();
    } else {
      degraded_ = std::string("no space for the usage book in state_dir: ") + strerror(error) +
                  "; the newest are kept in memory only";
    }
  }
  if (map_ != nullptr && (next_ + 1) * kEntry <= file_size_) {
    return EntryAt(next_++);
  }
  return &overflow_.emplace_back();
}

UsageEntry* UsageBook::Find(PodId pod, uint64_t gpu, uint64_t incarnation) const {
  auto it = index_.find({pod.value, gpu, incarnation});
  return it == index_.end() ? nullptr : it->second;
}

UsageEntry& UsageBook::At(PodId pod, uint64_t gpu, uint64_t incarnation) {
  if (UsageEntry* entry = Find(pod, gpu, incarnation)) return *entry;
  UsageEntry* entry = Allocate();
  *entry = UsageEntry{};
  entry->pod = pod.value;
  entry->gpu = gpu;
  entry->incarnation = incarnation;
  // Last: a crash before this leaves a free entry.
  __atomic_store_n(&entry->used, kUsed, __ATOMIC_RELEASE);
  index_[{pod.value, gpu, incarnation}] = entry;
  return *entry;
}

void UsageBook::SetLimitFullAt(PodId pod, uint64_t gpu, Instant at) {
  if (Find(pod, gpu, 0) == nullptr) return;  // its last charge may come when it is forgotten
  UsageEntry& entry = At(pod, LimitOn(gpu), 0);
  entry.hold_base_ns[1] = boot_;
  __atomic_store_n(&entry.hold_base_ns[0], static_cast<uint64_t>(Nanos(at)), __ATOMIC_RELEASE);
}

Instant UsageBook::LimitFullAt(PodId pod, uint64_t gpu) const {
  const UsageEntry* entry = Find(pod, LimitOn(gpu), 0);
  if (entry == nullptr || entry->hold_base_ns[1] != boot_) return {};
  return InstantFromNanos(static_cast<int64_t>(entry->hold_base_ns[0]));
}

uint64_t UsageBook::NewestHold(uint64_t gpu) const {
  uint64_t newest = 0;
  for (const auto& [key, entry] : index_) {
    if (entry->gpu == gpu) newest = std::max(newest, entry->hold_epoch);
  }
  return newest;
}

void UsageBook::Drop(PodId pod, uint64_t incarnation) {
  auto it = index_.lower_bound({pod.value, 0, 0});
  while (it != index_.end() && std::get<0>(it->first) == pod.value) {
    if (incarnation == 0 || std::get<2>(it->first) == incarnation) {
      it->second->used = 0;
      free_.push_back(it->second);
      it = index_.erase(it);
    } else {
      ++it;
    }
  }
}

std::string UsageBook::Flush() {
  if (map_ == nullptr || file_size_ == 0) return "";
  struct stat file = {};
  const bool whole = fstat(fd_.get(), &file) == 0 &&
                     static_cast<size_t>(file.st_size) >= file_size_ &&
                     memcmp(map_, kBookMagic, sizeof kBookMagic) == 0;
  if (!torn_ && whole) {
    copy_.resize(next_ * kEntry);
    memcpy(copy_.data(), map_, copy_.size());
    msync(map_, file_size_, MS_ASYNC);
    return "";
  }
  const bool said = !degraded_.empty();
  if (!torn_ && !copy_.empty()) TakeCopy();
  if (WriteAnew()) {
    degraded_.clear();
    return path_ +
           " was cut short by another program; it was written again, and usage of the last "
           "moments before may be missing";
  }
  degraded_ = path_ +
              " was cut short by another program and cannot be written; usage is kept in "
              "memory only";
  return said ? "" : degraded_;
}

}  // namespace baton::backend
