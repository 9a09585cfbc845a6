// Tokens of one GPU that were passed on ahead (wire::Token::after_client), where clients' frames
// come in: by the node's relay, or by the daemon itself. Each waits for its holder to drain. When
// the holder says so its hold ends, and those that waited begin: at the same instant, which is when
// the first of them saw the holder's word, where it did; else when the State came in.
//
// Pure; not thread safe.
#ifndef BATON_SCHEDULER_HANDOVER_H_
#define BATON_SCHEDULER_HANDOVER_H_

#include <cstdint>
#include <vector>

#include "base/time.h"
#include "wire/messages.h"

namespace baton::scheduler {

class Handover {
 public:
  struct Next {
    uint64_t client = 0;
    wire::Token token;
    Instant passed_at{};
    bool gone = false;
    Instant began_at = kNever;  // as its memory told when it last said something, or was gone
    Instant over_at = kNever;   // when it said that it has drained, before its holder said so
    // Until then, since the first client of its pod began: their Tokens have ways of their own, so
    // one may begin when another has drained.
    Duration held{0};
    uint64_t closed = 0;  // it was told to close meanwhile: by this revision
    // All that it was passed of this token.
    std::vector<wire::Token> Passed() const;
  };

  // `token`, which waits for another one, is passed on to the client, `at`; or one that does not
  // is.
  void Passed(Instant at, uint64_t client, const wire::Token& token);
  // A client's State has come in, at `at`, and its memory says which token it began last, and when.
  // Who has closed, as it was told to, and has not begun, waits no more. The Token that was passed
  // on to it ahead, and that it has given back already by what it says; null: there is none.
  const Next* Heard(Instant at, uint64_t client, const wire::State& state, uint64_t began_epoch,
                    Instant began_at);
  // Whether somebody waits for what the client's State says to have drained.
  bool AwaitsEnd(uint64_t client, const wire::State& state) const;
  // It has: who waited, and waits no more.
  std::vector<Next> Take(uint64_t client, const wire::State& state);
  // The client is gone. Who waited for it: some may have seen its last word all the same. Where it
  // waited itself, and had begun, as its memory says, that is known when the holder has drained.
  std::vector<Next> Gone(uint64_t client, uint64_t began_epoch, Instant began_at);

 private:
  std::vector<Next> next_;
};

// When a Token that was passed on ahead began, as is known already, or as its client's memory says:
// at `began_at`, where `began_epoch` is its own. Never before it was passed on, nor after `said`,
// when the holder's State came in.
Instant BeganAt(const Handover::Next& next, uint64_t began_epoch, Instant began_at, Instant said);

// What became of Tokens that were passed on ahead, when their holder says that it has drained.
struct Succession {
  Instant began{};    // the first of them, by BeganAt(), or `said`
  Instant over = {};  // the last of them has drained already; kNever: not all have
  // Until when the holder held. Where those after it are over already, it kept everybody waiting
  // since then: all of the time is its own, but for what they held.
  Instant EndOfHold(Instant said) const {
    return over == kNever ? began : said - (over > began ? over - began : Duration(0));
  }
};

}  // namespace baton::scheduler

#endif  // BATON_SCHEDULER_HANDOVER_H_
