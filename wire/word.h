// A client's word: memory that its hook writes and others read, one Word for each of its GPUs (by
// its own index). It says what of the client's tokens has drained, the instant that is so, without
// a frame to anybody: whoever was sent the next token (Token::after_client) sleeps on it.
//
// The memory is a sealed file of kWordsBytes, whose descriptor comes with Hello: it can neither
// shrink nor grow, and only the mapping that its client made before the seals can be written. The
// daemon, or its relay, checks that (node/word_page.h) and passes it on with the Token.
//
// Thread safe: everything is atomic. A reader may see a word of any age, never half of one: `rev`
// and `drained_ns` are written before `epoch`, and `began_ns` before `began_epoch`.
#ifndef BATON_WIRE_WORD_H_
#define BATON_WIRE_WORD_H_

#include <atomic>
#include <cstdint>

#include "wire/messages.h"

namespace baton::wire {

struct alignas(64) Word {
  std::atomic<uint32_t> changes{0};  // futex, shared: of what has drained
  std::atomic<uint64_t> epoch{0};    // everything up to this token and revision has drained
  std::atomic<uint64_t> rev{0};
  std::atomic<uint64_t> began_epoch{0};  // the last token that the client took
  std::atomic<uint64_t> began_ns{0};     // and when, MonotonicNow()
  // When what runs is expected to have drained; in the past, or 0: nobody knows. A hint: what it
  // says costs a reader a bounded time of its processor, and nobody else anything.
  std::atomic<uint64_t> expected_ns{0};
  // When the work of that had ended, MonotonicNow(), as far as is known: whoever saw it may have
  // been late. A hint as well: of what a hand-off takes.
  std::atomic<uint64_t> drained_ns{0};

  // Whether the token has drained, up to this revision at least.
  bool Says(uint64_t of_epoch, uint64_t of_rev) const {
    const uint64_t last = epoch.load(std::memory_order_acquire);
    return last > of_epoch || (last == of_epoch && rev.load(std::memory_order_relaxed) >= of_rev);
  }
};
static_assert(sizeof(Word) == 64 && std::atomic<uint64_t>::is_always_lock_free);

struct Words {
  Word of[kGpusMax];
};
inline constexpr uint64_t kWordsBytes = 4096;
static_assert(sizeof(Words) <= kWordsBytes);

}  // namespace baton::wire

#endif  // BATON_WIRE_WORD_H_
