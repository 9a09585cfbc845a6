#include "backend/mapped_file.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#include <atomic>
#include <functional>
#include <vector>

namespace baton::backend {

// One is never freed, only used again: a signal may look at it at any time.
struct MappedFile::Region {
  // Of all of this process: signals have no other way to find them.
  static inline std::atomic<Region*> all{nullptr};
  std::atomic<bool> taken{true};
  std::atomic<char*> begin{nullptr};
  size_t size = 0;
  std::vector<char> copy;
  std::atomic<bool> torn{false};
  Region* next = nullptr;

  bool Has(const char* at) const {
    const char* from = begin;
    const std::less<const char*> before;
    return from != nullptr && !before(at, from) && before(at, from + size);
  }
  // Also called by a signal.
  void BecomeMemory() {
    // It replaces what is mapped there. Where it cannot, the fault comes again, and nobody waits.
    if (mmap(begin, size, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED) {
      signal(SIGBUS, SIG_DFL);
      return;
    }
    if (!copy.empty()) memcpy(begin, copy.data(), copy.size());
    torn = true;
  }
  static void OnBusError(int signal, siginfo_t* info, void* context);
};

// Somebody else's fault happens again, without a handler.
void MappedFile::Region::OnBusError(int, siginfo_t* info, void*) {
  for (Region* region = all; region != nullptr; region = region->next) {
    if (!region->Has(static_cast<const char*>(info->si_addr))) continue;
    region->BecomeMemory();
    return;
  }
  signal(SIGBUS, SIG_DFL);
}

MappedFile::Region* MappedFile::NewRegion() {
  for (Region* region = Region::all; region != nullptr; region = region->next) {
    bool free = false;
    if (region->taken.compare_exchange_strong(free, true)) return region;
  }
  auto* region = new Region;
  region->next = Region::all;
  while (!Region::all.compare_exchange_weak(region->next, region)) {
  }
  return region;
}

MappedFile::~MappedFile() {
  if (region_ == nullptr) return;
  char* begin = region_->begin.exchange(nullptr);
  munmap(begin, region_->size);
  region_->copy.clear();
  region_->torn = false;
  region_->taken = false;
}

bool MappedFile::Map(int fd, size_t size) {
  if (region_ != nullptr && region_->size == size) {
    const bool again = mmap(region_->begin, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                            fd, 0) != MAP_FAILED;
    if (again) region_->torn = false;
    return again;
  }
  void* map = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (map == MAP_FAILED) return false;
  MappedFile made;
  made.region_ = NewRegion();
  made.region_->size = size;
  made.region_->begin = static_cast<char*>(map);
  *this = std::move(made);
  struct sigaction action = {};
  action.sa_sigaction = Region::OnBusError;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
  return true;
}

char* MappedFile::data() const { return region_ == nullptr ? nullptr : region_->begin.load(); }

bool MappedFile::torn() const { return region_ != nullptr && region_->torn; }

void MappedFile::Keep(size_t bytes) {
  region_->copy.resize(bytes);
  memcpy(region_->copy.data(), region_->begin, bytes);
}

bool MappedFile::Tear() {
  if (region_ == nullptr || region_->copy.empty()) return false;
  if (!region_->torn) region_->BecomeMemory();
  return true;
}

}  // namespace baton::backend
