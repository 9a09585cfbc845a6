// How long a client holds a token, measured where its frames come in: by its node's relay, or by
// the daemon itself. What a client says of its own time is never booked as measured: this is.
//
// A hold begins when the grant is passed on to the client. It ends with the State that says that
// exactly the newest Token has drained, and no earlier: a State that the token scheduler would not
// take for a drain must not end the measuring either, or the client would be charged up to there
// and hold on.
//
// One for each client and GPU, over all of the client's connections. Pure; not thread safe.
#ifndef BATON_SCHEDULER_HOLD_METER_H_
#define BATON_SCHEDULER_HOLD_METER_H_

#include <cstdint>

#include "base/time.h"
#include "wire/messages.h"

namespace baton::scheduler {

// The word that stops a claim is newer than any about that token (Strays::Stop), and says nothing
// about those of the daemon's own.
inline constexpr uint64_t kRevOfStops = ~uint64_t{0};

inline bool IsDrained(wire::Phase phase) {
  return phase == wire::Phase::kIdle || phase == wire::Phase::kWaiting;
}

// What a node measured of the hold that a State ends, and of its pod's also where it goes on; 0: it
// ends none, or nobody here knows.
struct Measured {
  Duration held{0};      // by its client: from the grant passed on to the State that came in
  Duration pod_held{0};  // by its pod: from the first of its clients' grants that was passed on
};

class HoldMeter {
 public:
  // `token` is passed on to the client, `at` (never before an earlier call's). `watched`: an
  // earlier one of this GPU was passed on from here to anybody, so that this one, too, was if it
  // ever was.
  void Sent(Instant at, const wire::Token& token, bool watched = false);
  // `token` is passed on to the client ahead: it may begin before it is Sent().
  void SentAhead(const wire::Token& token);
  // `token` is kept from the client: of this grant it holds nothing, until it is passed on after
  // all.
  void Kept(const wire::Token& token);
  // What was passed on just now of `epoch`, which the client was sent ahead, it has held for so
  // long and drained, as it has said before.
  void Over(uint64_t epoch, Duration held);
  // The client's State has come in. How long it has held the token of state.epoch, which has
  // drained; 0: it does not say so, or nobody here knows. The same with every later State, until it
  // says otherwise, is sent another grant, or takes more than a second to answer a Token that
  // closes its gate. Where it came in before a Token that was passed on, and is told of after, the
  // time between the two is not held.
  Duration Said(Instant now, const wire::State& state);
  // Whether Said() will say how long the client has held.
  bool Ends(const wire::State& state) const;
  // Whether it is known since when the client holds the token of `epoch`, which is the newest.
  bool Measures(uint64_t epoch) const { return epoch == epoch_ && sent_at_ != kNever; }
  // ... and it was passed a Token of it that opens its gate.
  bool Opened(uint64_t epoch) const { return Measures(epoch) && opened_; }
  // Whether the token of `epoch` is the newest, and its revision `rev` or a later one has drained.
  bool HasDrained(uint64_t epoch, uint64_t rev) const {
    return epoch == epoch_ && rev <= rev_ && held_ > Duration(0);
  }
  // The client is gone, and its newest token was not out any more at `ended` (kNever: that is not
  // known): how long it has held that. 0: nobody here knows.
  Duration HeldUntil(Instant ended) const;
  uint64_t epoch() const { return epoch_; }
  // After a Said() that is not 0: when the State that ended the hold came in; kNever: it was passed
  // no Token that opens its gate.
  Instant drained_at() const { return opened_ ? sent_at_ + held_ : kNever; }

 private:
  uint64_t seq_ = 0;    // of the newest State
  uint64_t epoch_ = 0;  // of the newest token passed on, and the last word about it
  uint64_t rev_ = 0;
  uint64_t ahead_epoch_ = 0;   // of the newest token that it was passed ahead
  uint64_t kept_epoch_ = 0;    // of the newest token that was kept from it
  bool opened_ = false;        // by a token of that epoch
  Instant sent_at_ = kNever;   // when it was first passed on; kNever: not from here
  Instant word_at_ = kNever;   // when the last word about it was passed on
  Duration idle_{0};           // meanwhile, drained, until a word about it was passed on
  Duration held_{0};           // until it drained; 0: it has not, or nobody knows
  Instant asked_at_ = kNever;  // since it drained it was told to close, and has not answered
};

// The same for the pod that a GPU's token is granted to, over all of its clients. Each client's
// Token has a way of its own to where it is passed on, so what they held does not tell by itself
// how long one or another of them did. One for each GPU. Pure; not thread safe.
class PodMeter {
 public:
  // `token` is passed on to one of the clients, `at` (never before an earlier call's).
  void Sent(Instant at, const wire::Token& token);
  // The grant of an earlier token was passed on from here.
  bool watches(uint64_t epoch) const { return first_ != 0 && first_ < epoch; }
  // `client`, of one of the clients, is told of its State.
  Measured Said(Instant now, const wire::State& state, HoldMeter& client) const;

 private:
  uint64_t first_ = 0;  // of the first token whose grant was passed on
  uint64_t epoch_ = 0;  // of the newest token that was passed on
  Instant since_{};     // when that was first
};

}  // namespace baton::scheduler

#endif  // BATON_SCHEDULER_HOLD_METER_H_
