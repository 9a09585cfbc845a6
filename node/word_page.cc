#include "node/word_page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

namespace baton::node {
namespace {

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;

}  // namespace

std::shared_ptr<const WordPage> WordPage::Map(UniqueFd& file) {
  struct stat about {};
  // Only files of memory have seals.
  const int seals = file ? fcntl(file.get(), F_GET_SEALS) : -1;
  if (seals < 0 || (seals & kSeals) != kSeals || fstat(file.get(), &about) != 0 ||
      about.st_size != static_cast<off_t>(wire::kWordsBytes)) {
    return nullptr;
  }
  void* const at = mmap(nullptr, wire::kWordsBytes, PROT_READ, MAP_SHARED, file.get(), 0);
  if (at == MAP_FAILED) return nullptr;
  return std::shared_ptr<const WordPage>(
      new WordPage(std::move(file), static_cast<const wire::Words*>(at)));
}

WordPage::~WordPage() { munmap(const_cast<wire::Words*>(words_), wire::kWordsBytes); }

Begun BegunBy(const wire::Word* word) {
  if (word == nullptr) return {};
  const uint64_t epoch = word->began_epoch.load(std::memory_order_acquire);
  const uint64_t at = word->began_ns.load(std::memory_order_relaxed) & INT64_MAX;
  return {epoch, InstantFromNanos(static_cast<int64_t>(at))};
}

}  // namespace baton::node
