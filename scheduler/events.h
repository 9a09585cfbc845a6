// What a token scheduler is told, and what it answers.
#ifndef BATON_SCHEDULER_EVENTS_H_
#define BATON_SCHEDULER_EVENTS_H_

#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "policy/share.h"
#include "scheduler/hold_meter.h"
#include "scheduler/options.h"
#include "wire/messages.h"

namespace baton::scheduler {

// The backlog of a client, by whether its pod is of idle priority: that gives way at once.
inline Duration BacklogOf(const SchedulerOptions& options, bool idle) {
  return idle ? options.backlog / 2 : options.backlog;
}

// The same for a moment after the client's threads woke up late, so that the GPU is not idle until
// they do: not of idle priority, for which nobody is to wait longer.
inline Duration LateBacklogOf(const SchedulerOptions& options, bool idle) {
  return idle ? BacklogOf(options, idle) : 3 * options.backlog;
}

// After a link was cut: so long its clients have at least, to say what they did meanwhile.
inline constexpr Duration kHearing = std::chrono::seconds(1);

// A pod has this share of the GPU from now on: a new pod, or a change in place.
struct PodSet {
  PodId pod;
  policy::ShareSpec spec;  // Validated()
  // It takes its tokens on several GPUs together: here it is granted only by GangStep. Fixed when
  // the pod is new.
  bool gang = false;
  // As Charged said last, where the pod was there before this scheduler was: or a restart would be
  // worth all that its limit allows at once. Of a new pod only.
  Instant limit_full_at{};
  // Whose it is; 0: nobody's that is known. It takes over what a deleted pod of the same owner's
  // has had before its time (scheduler/left_debts.h). Of a new pod only.
  uint64_t owner = 0;
};
// The pod is deleted. Its clients must be gone or about to go; a token it holds comes back first.
struct PodRemoved {
  PodId pod;
};
// A client attached, or attached again after a disconnect (same id). `words`: it says by a word in
// memory that others can read what has drained, and waits for others' (SendToken::after).
struct ClientAttached {
  ClientId client;
  PodId pod;
  bool words = false;
};
// A client's State. `held`: how long the node measured between passing the Token on and receiving
// this State, when the State says that `epoch` has drained and the node saw all of it; else 0.
// `claimed`: how long the client says that it has held since it last held nothing. It counts for
// time in which nobody watched: this daemon, or its node's relay, was not there. So does
// `drained_ago`, where that is known: how long ago it says that it drained. That leaves out no gap
// in what it held, in which others of its pod may have held.
// `pod_held`: with `held`, or where it goes on, how long ago the node passed on the first of the
// pod's Tokens of this epoch, until the State came in; 0: not known.
struct ClientReport {
  ClientId client;
  uint64_t seq = 0;
  wire::Phase phase = wire::Phase::kIdle;
  uint64_t epoch = 0;
  uint64_t rev = 0;
  Duration held{0};
  Duration claimed{0};
  Duration backlog{0};  // GPU time that it expects its unfinished work to take
  Duration pod_held{0};
  Duration drained_ago{0};  // 0: not known
  // Its node had it so long ago: a relay says it again, or it had to wait (NextToken). What it
  // held, and when it drained, is as of then.
  Duration age{0};
  Duration handoff{0};     // to its token of `epoch`, as its hook measured; 0: not known
  Duration gpu_switch{0};  // wire::State::switch_ns
};
// What comes of a client's State: with what its node measured, which first received it `age` ago,
// and the held_ns of its State when it last held nothing.
ClientReport ReportOf(ClientId client, const wire::State& state, const Measured& measured,
                      Duration age, uint64_t settled_ns);
// The client's connection is gone, its process may live: it holds what it held. `heard_at` (not
// after now): the link between its node's relay and this daemon was lost; until then it was
// connected for certain. kNever: it closed its own socket, beside which its node goes on watching;
// until it was seen to drain it holds.
struct ClientDisconnected {
  ClientId client;
  Instant heard_at = kNever;
};
// The client's process is gone and its GPU work has ended. `held`: how long it had held the token
// of `epoch` when it drained, as its node measured; 0: not that anybody knows.
struct ClientGone {
  ClientId client;
  uint64_t epoch = 0;
  Duration held{0};
};
// Told before anything else after a restart: this client was sent the token of `epoch` and has not
// drained as far as is known. It counts as attached, disconnected and holding. `granted_at`: when
// the first client was sent this token, `joined_at`: when this one was; both not after now.
// `charged`: what of the token is in the pod's account already.
struct HolderRestored {
  ClientId client;
  PodId pod;
  uint64_t epoch = 0;
  Instant granted_at{};
  Instant joined_at{};
  Duration charged{0};
  // It was sent it ahead (SendToken::after), as StoreNext said.
  bool ahead = false;
};
// The way to the GPU's clients is cut, or back. While it is cut nothing is decided, and it does not
// count as time in which a client could have drained.
struct LinkCut {
  bool cut = false;
};
// What a gang's coordinator (scheduler/gang_scheduler.h) decides for one of its GPUs.
struct GangStep {
  enum class Do : uint8_t {
    kWait,     // the gang has work on one of its GPUs: it stands in line here, and is so far below
               // its request on one of them (`behind`)
    kRest,     // it has none
    kReserve,  // the holder's token ends, and nobody but the gang is granted; while the GPU is
               // kept free for it, it is charged as if it held
    kGrant,    // reserved and free: the gang's, for `span`
    kExtend,   // its token, for `span` more
    kClose,    // its token ends now
    kReopen,   // its token has ended; those of its clients that ask may launch for `span`
    kReopenAll,  // ... and those that have not drained
    kCap,      // it waits for another of its GPUs: what it is owed here of its fair share is cut to
               // two of its holds, or what a pod that sleeps may save up
    kRelease,  // the token, if it is out, and the reservation end; nothing may be held
  };
  PodId pod;
  Do act = Do::kWait;
  Duration span{0};
  policy::BehindBy behind = policy::BehindBy::kLittle;
};
// The teams' weights in what requests leave over, by ShareSpec::team; none where teams do not
// matter (policy/share.h: FluidShares). Everybody's lag stays. Read during Step only.
struct TeamWeights {
  std::span<const uint32_t> weights;
};
// There is no room for the pod's memory on the GPU: it stands aside, as if it did not ask, and a
// token that it holds ends; or it asks again. Not for a gang.
struct PodHeldBack {
  PodId pod;
  bool held_back = false;
};
// Time has passed; due when `now` reaches wakeup().
struct Tick {};

using Event =
    std::variant<PodSet, PodRemoved, ClientAttached, ClientReport, ClientDisconnected, ClientGone,
                 HolderRestored, LinkCut, GangStep, TeamWeights, PodHeldBack, Tick>;

// `client` is about to be sent the token of `epoch` for the first time, at `joined_at`, or has it
// since then, as is known now: that replaces what was stored of it. Must be stored, durable against
// a crash of the daemon, before the SendToken that follows is carried out.
struct StoreHolder {
  ClientId client;
  PodId pod;
  uint64_t epoch = 0;
  Instant joined_at{};
  Duration waited{0};  // the pod did, before this token
};
// `client` is about to be sent the token of `epoch` ahead. Must be stored as StoreHolder, beside
// what is stored of the present one; a StoreHolder of the same epoch replaces it.
struct StoreNext {
  ClientId client;
  PodId pod;
  uint64_t epoch = 0;
  Instant sent_at{};
};
// `pod` has been charged this much more held time; said as the hold goes on, so that little is lost
// when the daemon dies. Negative when an estimate turns out to have been too much.
struct Charged {
  PodId pod;
  Duration held{0};
  Instant limit_full_at{};  // policy::FairQueue::LimitFullAt(), this charge included
  Duration uncontended{0};  // the part of it in which no pod of another team wanted the GPU
};
// What the client has said of its own time until now is charged: its `settled_ns` (ReportOf) is
// what its last State says. Of one that has not reported in this Step.
struct Settled {
  ClientId client;
};
// The token of `epoch` is back: no client holds anything any more, and what StoreHolder stored for
// it is void.
struct ClearHolders {
  uint64_t epoch = 0;
};
// Send wire::Token to the client. quota 0: close and drain.
struct SendToken {
  ClientId client;
  uint64_t epoch = 0;
  uint64_t rev = 0;
  Duration quota{0};
  bool contended = false;
  // Ahead: it begins when this client's word says that at least this has drained. Without a client:
  // at once.
  struct After {
    ClientId client;
    uint64_t epoch = 0;
    uint64_t rev = 0;
  } after;
};
// SIGKILL the client's process: it has not drained, and drain_kill says so.
struct KillClient {
  ClientId client;
};
// Something for people to know. At most one per client and token.
struct Notice {
  enum class Kind : uint8_t {
    kHung,      // has not drained within drain_timeout (stopped, or a kernel that never ends)
    kRevoked,   // its token was taken back early for a pod that goes first
    kOverrun,   // drained, but the token took more than twice its quota
    kReopened,  // its drain was stuck behind a launch of the same pod
  } kind;
  PodId pod;
  ClientId client;
  Duration by{0};  // how long it has been hung, or how far the token overran
};

using Effect = std::variant<StoreHolder, StoreNext, Charged, Settled, ClearHolders, SendToken,
                            KillClient, Notice>;
using Effects = std::vector<Effect>;

// The Step that is under way: at what time, and where its effects go. Of the scheduler, for its
// parts; between two Steps `now` is that of the last one, and there is nowhere to put effects.
struct Turn {
  Instant now{};
  Effects* effects = nullptr;

  template <class E>
  void Emit(const E& effect) const {
    effects->emplace_back(effect);
  }
};

}  // namespace baton::scheduler

#endif  // BATON_SCHEDULER_EVENTS_H_
