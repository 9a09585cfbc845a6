#include "backend/usage_book.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <functional>
#include <utility>

#include "backend/state_versions.h"
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

// The number of a pod's second entry on a GPU, or of the GPU's own. It has until when a limit is
// used up in hold_base_ns, uncontended time in held_ns, and of energy: the held time at the last
// reading in waited_ns, millijoules in busy_ns, and a GPU's counter in copies_bytes.
uint64_t OtherOn(uint64_t gpu) { return ~gpu; }

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
  return reinterpret_cast<Journal*>(map_.data() + kEntry);
}

UsageEntry* UsageBook::EntryAt(size_t at) const {
  return reinterpret_cast<UsageEntry*>(map_.data() + at * kEntry);
}

size_t UsageBook::NumberOf(const UsageEntry& entry) const {
  const auto* at = reinterpret_cast<const char*>(&entry);
  const std::less<const char*> before;
  const char* begin = map_.data();
  if (begin == nullptr || before(at, begin) || !before(at, begin + file_size_)) return 0;
  return static_cast<size_t>(at - begin) / kEntry;
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
  if (!map_.mapped() || file_size_ == 0) return;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  __atomic_store_n(&journal()->valid, 0, __ATOMIC_RELEASE);
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
    const ssize_t n =
        pwrite(fd_.get(), map_.data() + done, file_size_ - done, static_cast<off_t>(done));
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return map_.Map(fd_.get(), kMapSize);
}

bool IsNewerUsage(std::string_view text) {
  return IsOfNewerVersion(text.substr(0, sizeof kBookMagic), kBookFormat, kBookVersion);
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
    if (IsNewerUsage({magic, sizeof magic})) {
      return Fail(ErrorCode::kDenied,
                  path +
                      ": a newer version of Baton wrote it, with what pods have used. Install "
                      "that version again, or move the file away: use before it is then lost");
    }
    const auto aside = MoveAside(path);
    if (!aside) return tl::unexpected(aside.error());
    note = path + " is damaged; it was moved to " + *aside + ", and a new usage book was created";
  }
  if (!map_.Map(fd_.get(), kMapSize)) {
    degraded_ = "cannot map " + path + ": " + strerror(errno) + "; usage is kept in memory only";
    return degraded_;
  }
  next_ = kFirstEntry;
  if (file_size_ != 0) {
    char* identity = map_.data() + sizeof kBookMagic;
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
  if (file_size_ != 0) memcpy(map_.data() + sizeof kBookMagic, identity_.data(), kIdentity);
  Flush();
}

UsageEntry* UsageBook::Allocate() {
  if (!free_.empty()) {
    UsageEntry* entry = free_.back();
    free_.pop_back();
    return entry;
  }
  if (map_.mapped() && (next_ + 1) * kEntry > file_size_ && file_size_ + kStep <= kMapSize) {
    // Room on the disk first: touching a mapped page that has none would be a SIGBUS.
    const int error = posix_fallocate(fd_.get(), static_cast<off_t>(file_size_), kStep);
    if (error == 0) {
      if (file_size_ == 0) {
        memcpy(map_.data(), kBookMagic, sizeof kBookMagic);
        memcpy(map_.data() + sizeof kBookMagic, identity_.data(), kIdentity);
      }
      file_size_ += kStep;
      degraded_.clear();
      Flush();
    } else {
      degraded_ = std::string("no space for the usage book in state_dir: ") + strerror(error) +
                  "; the newest are kept in memory only";
    }
  }
  if (map_.mapped() && (next_ + 1) * kEntry <= file_size_) {
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
  UsageEntry& entry = At(pod, OtherOn(gpu), 0);
  entry.hold_base_ns[1] = boot_;
  __atomic_store_n(&entry.hold_base_ns[0], static_cast<uint64_t>(Nanos(at)), __ATOMIC_RELEASE);
}

Instant UsageBook::LimitFullAt(PodId pod, uint64_t gpu) const {
  const UsageEntry* entry = Find(pod, OtherOn(gpu), 0);
  if (entry == nullptr || entry->hold_base_ns[1] != boot_) return {};
  return InstantFromNanos(static_cast<int64_t>(entry->hold_base_ns[0]));
}

// In millijoules. The counter comes last: a daemon that dies within this finds what was measured
// since the reading before once more, or not at all.
void UsageBook::SetEnergy(PodId pod, uint64_t gpu, const EnergyAccount& energy) {
  if (pod != PodId{} && Find(pod, gpu, 0) == nullptr) return;
  const auto thousandths = [](double value) {
    return static_cast<uint64_t>(std::llround(std::clamp(value, 0.0, 1e15) * 1e3));
  };
  UsageEntry& entry = At(pod, OtherOn(gpu), 0);
  entry.usage.waited_ns = energy.held_ns;
  entry.usage.busy_ns = thousandths(energy.joules);
  if (pod != PodId{}) return;  // the limit's instant stands there
  entry.hold_base_ns[0] = energy.at == kNever ? 0 : static_cast<uint64_t>(Nanos(energy.at));
  entry.hold_base_ns[1] = boot_;
  __atomic_store_n(&entry.usage.copies_bytes, thousandths(energy.counter), __ATOMIC_RELEASE);
}

EnergyAccount UsageBook::EnergyOf(PodId pod, uint64_t gpu) const {
  EnergyAccount energy;
  const UsageEntry* entry = Find(pod, OtherOn(gpu), 0);
  if (entry == nullptr) return energy;
  energy.joules = static_cast<double>(entry->usage.busy_ns) / 1e3;
  energy.held_ns = entry->usage.waited_ns;
  if (pod != PodId{}) return energy;
  energy.counter = static_cast<double>(entry->usage.copies_bytes) / 1e3;
  if (entry->hold_base_ns[1] == boot_ && entry->hold_base_ns[0] != 0) {
    energy.at = InstantFromNanos(static_cast<int64_t>(entry->hold_base_ns[0]));
  }
  return energy;
}

void UsageBook::AddUncontended(PodId pod, uint64_t gpu, int64_t more_ns) {
  if (Find(pod, gpu, 0) == nullptr) return;
  uint64_t& sum = At(pod, OtherOn(gpu), 0).usage.held_ns;
  const uint64_t less = more_ns < 0 ? static_cast<uint64_t>(-more_ns) : 0;
  sum = more_ns < 0 ? sum - std::min(sum, less) : sum + static_cast<uint64_t>(more_ns);
}

uint64_t UsageBook::Uncontended(PodId pod, uint64_t gpu) const {
  const UsageEntry* total = Find(pod, gpu, 0);
  const UsageEntry* other = Find(pod, OtherOn(gpu), 0);
  if (total == nullptr || other == nullptr) return 0;
  return std::min(other->usage.held_ns, total->usage.held_ns);
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
  if (!map_.mapped() || file_size_ == 0) return "";
  struct stat file = {};
  const bool whole = fstat(fd_.get(), &file) == 0 &&
                     static_cast<size_t>(file.st_size) >= file_size_ &&
                     memcmp(map_.data(), kBookMagic, sizeof kBookMagic) == 0;
  if (!map_.torn() && whole) {
    map_.Keep(next_ * kEntry);
    msync(map_.data(), file_size_, MS_ASYNC);
    return "";
  }
  const bool said = !degraded_.empty();
  map_.Tear();
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
