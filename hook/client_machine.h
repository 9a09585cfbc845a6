// The hook's side of docs/protocol.md for one process on one GPU, as a pure state machine:
// Step(now, event, observation) -> effects. It reads no clock, does no I/O and allocates nothing,
// so a deterministic world can run it on virtual time.
//
// The edge (hook/client.cc) feeds it frames, timers and what it sees of the GPU, and carries the
// effects out: it sends `state`, opens or closes the gate, and calls again no later than `wake`.
//
// What always holds:
//   * the gate is open exactly in phase kHolding (but for an idle probe), in observe mode, and
//     while unmanaged (AwayMode::kOpen with the backend away);
//   * phases kIdle and kWaiting are entered from kHolding and kDraining only by Finished, that is
//     after everything launched has finished on the GPU;
//   * an Idle client takes no token, it answers with its State; a Waiting one takes any token above
//     the (epoch, rev) it reported. The backend therefore counts a client as drained only when its
//     State names the *latest* (epoch, rev) it was sent: an extension that crosses with the return
//     of its own epoch is then either taken or given back, never both held and forgotten.
//
// Not thread safe; the edge holds one lock per GPU.
#ifndef BATON_HOOK_CLIENT_MACHINE_H_
#define BATON_HOOK_CLIENT_MACHINE_H_

#include <cstdint>

#include "base/time.h"
#include "wire/messages.h"

namespace baton::hook {

struct ClientOptions {
  uint8_t gpu = 0;
  wire::AwayMode away = wire::AwayMode::kWait;
  // Used until Attached says otherwise.
  Duration heartbeat = std::chrono::milliseconds(100);
  Duration open_after = std::chrono::seconds(2);
  // A drain in which launches have been parked, and nothing has ended, for so long waits for one of
  // them (or four times the longest kernel seen, or twice what drains took of late, if that is
  // more): the gate reopens for `stuck_reopen`. Both double with each reopening.
  Duration stuck_after = std::chrono::milliseconds(50);
  Duration stuck_reopen = std::chrono::milliseconds(5);
  // A gang's the backend reopens, who sees all its ranks; this is for when it cannot.
  Duration stuck_after_gang = std::chrono::seconds(1);
  // Without rivals an idle token is kept this many times longer.
  int lazy_factor = 16;
};

// What the edge sees at the moment of a step. All counters are cumulative.
struct Observation {
  uint64_t launches = 0;  // gated launches
  Duration backlog{0};    // predicted unfinished GPU time
  Duration longest{0};    // longest single kernel or graph measured of late
  uint32_t parked = 0;    // threads that wait for the gate
  uint32_t pacing = 0;    // threads that wait for the backlog to shrink
  bool late = false;      // threads of this process have woken up late a moment ago
  uint64_t busy_ns = 0;
  uint64_t switch_ns = 0;  // wire::State::switch_ns
  uint64_t memory_bytes = 0;
  uint64_t copies_bytes = 0;
  uint64_t movable_in = 0;     // memory that can be moved, and is on the GPU
  uint64_t memory_wanted = 0;  // bytes that are to come in, and for which there was no room
};

enum class EventKind : uint8_t {
  kTimer,         // `wake` came, or nothing in particular
  kDisconnected,  // no connection (any more)
  kAway,          // connected, but the backend behind the relay does not answer
  kAttached,      // `attached` arrived (on a new connection too)
  kToken,         // `token` arrived
  kSync,          // the backend asks for everything again
  kParked,        // a thread found the gate closed
  kMemory,        // memory was moved, or waits for room
  kExit,          // the process is about to end: it holds no longer than its work runs
  kWord,          // the token of ahead() begins: the word that it waits for has come
  kFinished,      // asked for by `watch`: all that was launched has finished, and no thread is
                  // between the gate and the driver
};

struct Event {
  EventKind kind = EventKind::kTimer;
  wire::Attached attached{};
  wire::Token token{};
  Instant drained_at{};  // kWord: when the holder before had drained, as it says; {}: not known
};

struct Effects {
  bool send = false;  // `state` is to be sent, if there is a connection
  wire::State state{};
  bool open = false;   // what the gate is to be from now on
  bool watch = false;  // report kFinished as soon as it is true
  Instant wake = kNever;
};

class ClientMachine {
 public:
  ClientMachine() = default;
  ClientMachine(const ClientOptions& options, Instant now);

  Effects Step(Instant now, const Event& event, const Observation& seen);

  wire::Phase phase() const { return phase_; }
  uint64_t epoch() const { return epoch_; }
  uint64_t rev() const { return rev_; }
  bool open() const { return open_; }
  bool attached() const { return attached_; }
  bool unmanaged() const { return unmanaged_; }
  Instant deadline() const { return deadline_; }
  // A token that was sent ahead, and waits for another client's word (wire::Token::after_client);
  // null: none.
  const wire::Token* ahead() const { return ahead_.epoch != 0 ? &ahead_ : nullptr; }
  // Everything up to (epoch(), rev()) has drained, and nothing is launched without a token.
  bool drained() const {
    return !open_ && (phase_ == wire::Phase::kIdle || phase_ == wire::Phase::kWaiting);
  }
  // Holds for one launch (wire::kSingleLaunch): the edge steps the machine when it has gone.
  bool single() const { return phase_ == wire::Phase::kHolding && single_; }
  // Above this much predicted GPU time launching threads are to be parked; zero: never. More while
  // nobody else waits, and where threads wake up late, so that the GPU is not idle until they do;
  // but not soon after a token was cut.
  Duration backlog_bound() const;

 private:
  static constexpr int kLeaveNeeded = 10;

  void OnAttached(Instant now, const wire::Attached& a, const Observation& seen);
  void OnToken(Instant now, const wire::Token& t, const Observation& seen);
  void OnWord(Instant now, Instant drained_at, const Observation& seen);
  void OnParked(Instant now);
  void LearnPause(Duration pause);
  bool Leaves(const Observation& seen) const;
  void OnFinished(Instant now, const Observation& seen);
  void OnTimer(Instant now, const Observation& seen);
  void NoteCut(Instant now, Duration left);
  void Grant(Instant now, const wire::Token& t, const Observation& seen);
  void Drain(Instant now);
  void Settle(Instant now, const Observation& seen);
  Duration IdleMost() const;
  Duration IdleAfter() const;
  Duration StuckAfter(const Observation& seen) const;
  Instant CloseAt(const Observation& seen) const;
  Instant Wake(Instant now, const Observation& seen) const;
  wire::State Report(Instant now, const Observation& seen);

  ClientOptions options_;
  wire::Phase phase_ = wire::Phase::kIdle;
  uint64_t epoch_ = 0;
  uint64_t rev_ = 0;
  uint64_t seq_ = 0;
  wire::Token ahead_;      // epoch 0: none
  bool attached_ = false;  // on the present connection
  bool gated_ = true;
  bool contended_ = false;
  bool open_ = false;
  bool probing_ = false;    // Holding with the gate closed, to see whether all has finished
  bool overtime_ = false;   // Holding past its quota because the drain was stuck
  bool unmanaged_ = false;  // gate open without a token: away and AwayMode::kOpen
  bool changed_ = false;    // a State is due
  bool gang_ = false;       // of several GPUs, whose tokens go together
  bool late_ = false;       // Observation::late
  bool cut_ = false;        // a token was, less than a second ago

  Duration heartbeat_{0};
  Duration idle_{0};
  Duration backlog_bound_{0};
  Duration late_backlog_{0};
  Duration open_after_{0};
  Duration stuck_after_{0};
  // A pause shorter than IdleMost() is cheaper to wait through than to give the token back and get
  // it again. Where pauses are longer, waiting for their ends is a waste: it is halved.
  struct Pauses {
    int halvings = 0;
    int in_turn = 0;  // long ones
  };
  Pauses pauses_[2];  // without rivals, and with them
  // Where so many pauses in turn were long, beside rivals, the client leaves early: it closes the
  // gate shortly before its work ends, so that the next token can be sent ahead. A launch that
  // comes before that end was kept off: then many more are to be seen first.
  struct {
    int pauses = 0;  // long ones in turn
    int needed = kLeaveNeeded;
    bool now = false;  // this drain is one
  } leave_;

  Instant granted_at_{};      // of the hold that runs now
  Instant drained_at_{};      // of the one before; {}: there was none
  Instant quota_from_{};      // receipt of the latest token
  bool single_ = false;       // it is for a launch, wire::kSingleLaunch
  uint64_t single_from_ = 0;  // launches before it
  Instant deadline_{};
  Instant cut_until_{};
  Instant drain_since_{};
  Instant parked_since_ = kNever;  // in this drain, the first launch that is parked
  Instant last_active_{};          // of a launch, or the predicted end of its work if that is later
  Instant probe_at_{};
  Instant returned_at_{};
  Instant waiting_since_{};
  Instant away_since_ = kNever;
  Instant unmanaged_since_{};
  Instant next_heartbeat_ = kNever;
  Duration stuck_reopen_{0};
  int reopened_ = 0;        // how often in this hold
  Duration drains_{0};      // what drains took of late, after the gate closed for the last time
  uint64_t busy_seen_ = 0;  // Observation::busy_ns
  uint64_t launches_seen_ = 0;
  uint64_t launches_before_ = 0;  // this hold
  Duration handoff_{0};           // to the token of epoch_; 0: not known
  Duration held_{0};
  Duration waited_{0};
  Duration unmanaged_time_{0};
};

}  // namespace baton::hook

#endif  // BATON_HOOK_CLIENT_MACHINE_H_
