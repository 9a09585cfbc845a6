// Words (wire/word.h): this process's own, which says what of its tokens has drained, and those of
// others, which the tokens that were sent to it ahead wait for.
//
// A kernel that lacks what it takes (sealed memory files, futex_waitv), or a container that forbids
// it: there is no word, nothing is sent ahead, and every token comes by the socket.
#ifndef BATON_HOOK_WORDS_H_
#define BATON_HOOK_WORDS_H_

#include <stdint.h>

#include <atomic>

#include "base/time.h"
#include "hook/close_look.h"
#include "wire/word.h"

namespace baton::hook {

// A word that this process waits for, until it says (epoch, rev). Read anywhere; written under the
// GPU's lock, `word` last.
struct Awaited {
  std::atomic<const wire::Word*> word{nullptr};  // null: none
  std::atomic<uint64_t> epoch{0};
  std::atomic<uint64_t> rev{0};
  std::atomic<bool> watched{false};  // a launching thread sleeps on it
  // That thread's. It begins after the holder, which is to have found a processor by then.
  CloseLook close_look{std::chrono::microseconds(60)};
  // How often that thread has woken up for this word because it was expected. A holder may say what
  // it likes: so there is an end to it.
  std::atomic<uint32_t> looks{0};

  bool HasCome() const {
    const wire::Word* w = word.load(std::memory_order_acquire);
    return w != nullptr &&
           w->Says(epoch.load(std::memory_order_relaxed), rev.load(std::memory_order_relaxed));
  }
  // When that had drained, as it says; {}: it does not.
  Instant DrainedAt() const;
};

// Makes this process's words. Before anybody asks for them; in the child after fork again, after
// ForgetWords().
void MakeWords();
void ForgetWords();
// Their file, to be sent with Hello; -1: there are none.
int WordsFile();

// (epoch, rev) of the GPU has drained; that was over by then. Wakes who sleeps on that word.
void SayDrained(uint8_t gpu, uint64_t epoch, uint64_t rev, Instant ended);
// What still runs on the GPU is expected to have drained then.
void SayExpected(uint8_t gpu, Instant end);
// The token of `epoch` begins.
void SayBegan(uint8_t gpu, uint64_t epoch, Instant now);

// The word of `gpu` of another client, whose file is `fd`, which is closed. Null: it cannot be
// read. It stays readable; what it says may be another client's once many more have been read.
const wire::Word* ReadWord(int fd, uint64_t client, uint8_t gpu);
// A new connection: numbers of clients mean others.
void ForgetClients();

// Sleeps until the word has come or is another one, `gate` is not 0, a signal comes, `timeout` is
// over, or the word is expected soon: then it looks without a pause.
void SleepOn(Awaited& awaited, const std::atomic<uint32_t>& gate, Duration timeout);

}  // namespace baton::hook

#endif  // BATON_HOOK_WORDS_H_
