// Words (wire/word.h) that a test writes, in a file as a hook makes it.
#ifndef BATON_TESTS_WIRE_SEALED_WORDS_H_
#define BATON_TESTS_WIRE_SEALED_WORDS_H_

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

#include "base/check.h"
#include "base/file.h"
#include "wire/word.h"

namespace baton::wire {

class SealedWords {
 public:
  static constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | 0x10 /* future write */ | F_SEAL_SEAL;

  explicit SealedWords(size_t size = kWordsBytes, int seals = kSeals)
      : file_(memfd_create("words", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    BATON_CHECK(ftruncate(file_.get(), static_cast<off_t>(size)) == 0);
    void* at = mmap(nullptr, kWordsBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
    BATON_CHECK(at != MAP_FAILED);
    words_ = static_cast<Words*>(at);
    BATON_CHECK(fcntl(file_.get(), F_ADD_SEALS, seals) == 0);
  }
  ~SealedWords() { munmap(words_, kWordsBytes); }
  SealedWords(const SealedWords&) = delete;
  SealedWords& operator=(const SealedWords&) = delete;

  int file() const { return file_.get(); }
  Word& word(int gpu = 0) { return words_->of[gpu]; }
  // (epoch, rev) has drained. `wake`: whoever sleeps on it.
  void Say(uint64_t epoch, uint64_t rev, bool wake = true) {
    word().rev = rev;
    word().epoch = epoch;
    ++word().changes;
    if (wake) syscall(SYS_futex, &word().changes, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }

 private:
  UniqueFd file_;
  Words* words_ = nullptr;
};

}  // namespace baton::wire

#endif  // BATON_TESTS_WIRE_SEALED_WORDS_H_
