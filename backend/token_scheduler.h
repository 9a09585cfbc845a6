// The token scheduler of one GPU: a pure state machine. Events in, effects out; it reads no clock,
// does no I/O and iterates in the order of ids only, so the same events give the same decisions.
//
// It knows pods (who have shares) and clients (their processes). A token belongs to a pod; it is
// fanned out to the pod's clients that want to launch, and comes back when the last of them has
// drained. While it is out nobody else is granted anything: that, and that a client which is merely
// *disconnected* still counts as holding, is what makes exclusive mean exclusive.
//
// Not thread safe; a daemon has one per GPU and steps it from its event loop.
#ifndef BATON_BACKEND_TOKEN_SCHEDULER_H_
#define BATON_BACKEND_TOKEN_SCHEDULER_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "policy/fair_queue.h"
#include "wire/messages.h"

namespace baton::backend {

struct SchedulerOptions {
  policy::FairQueueOptions fairness;

  // A token's length lies between these. Shorter bounds how long others wait, longer saves
  // hand-offs. Between them it is what keeps hand-offs at or below `handoff_fraction`.
  Duration quota_min = std::chrono::milliseconds(5);
  Duration quota_max = std::chrono::milliseconds(25);
  // ε: the part of the GPU's time that hand-offs may cost, in millionths; 1 %.
  uint32_t handoff_fraction = 10'000;
  // How long a pod that stopped asking still counts as active (keeps its entitlement, so a gap
  // between two kernels does not reshuffle everybody's shares).
  Duration active_grace = std::chrono::milliseconds(10);
  // A holder that has not drained this long after its token ended is reported as hung ...
  Duration drain_timeout = std::chrono::seconds(10);
  // ... and killed, where this says so. Otherwise the GPU waits for it.
  bool drain_kill = false;
  // A client of the holding pod that asks for the token while another of its clients has not
  // drained for this long gets it again: the GPU work of one may be waiting for the other's launch.
  Duration drain_reopen = std::chrono::milliseconds(100);
  // A Token that the client's reports do not confirm is sent again after this.
  Duration resend = std::chrono::milliseconds(500);
};

// ---------------------------------------------------------------------------------------- events

// A pod has this share of the GPU from now on: a new pod, or a change in place.
struct PodSet {
  PodId pod;
  policy::ShareSpec spec;  // Validated()
};
// The pod is deleted. Its clients must be gone or about to go; a token it holds comes back first.
struct PodRemoved {
  PodId pod;
};
// A client attached, or attached again after a disconnect (same id).
struct ClientAttached {
  ClientId client;
  PodId pod;
};
// A client's State. `held`: how long the node measured between passing the Token on and receiving
// this State, when the State says that `epoch` has drained; else 0.
struct ClientReport {
  ClientId client;
  uint64_t seq = 0;
  wire::Phase phase = wire::Phase::kIdle;
  uint64_t epoch = 0;
  uint64_t rev = 0;
  Duration held{0};
};
// The client's connection is gone, its process may live: it holds what it held.
struct ClientDisconnected {
  ClientId client;
};
// The client's process is gone and its GPU work has ended.
struct ClientGone {
  ClientId client;
};
// Told before anything else after a restart: this client was sent the token of `epoch` and has not
// drained as far as is known. It counts as attached, disconnected and holding.
struct HolderRestored {
  ClientId client;
  PodId pod;
  uint64_t epoch = 0;
};
// Time has passed; due when `now` reaches wakeup().
struct Tick {};

using Event = std::variant<PodSet, PodRemoved, ClientAttached, ClientReport, ClientDisconnected,
                           ClientGone, HolderRestored, Tick>;

// --------------------------------------------------------------------------------------- effects

// `client` is about to be sent the token of `epoch` for the first time. Must be stored, durable
// against a crash of the daemon, before the SendToken that follows is carried out.
struct StoreHolder {
  ClientId client;
  PodId pod;
  uint64_t epoch = 0;
};
// No client holds anything any more: what StoreHolder stored for `epoch` is void.
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

using Effect = std::variant<StoreHolder, ClearHolders, SendToken, KillClient, Notice>;
using Effects = std::vector<Effect>;

// ---------------------------------------------------------------------------------------- status

// What is known of a pod on this GPU, cumulative since this scheduler was made.
struct PodStatus {
  PodId pod;
  policy::ShareSpec spec;
  policy::Share fluid = 0;  // entitlement among the pods active now
  bool waiting = false;
  bool holding = false;
  bool throttled = false;  // waits, but is at its limit
  Duration held{0};        // charged
  Duration waited{0};      // time in which at least one client waited and none held
  Duration lag{0};
  uint64_t grants = 0;
  uint64_t revocations = 0;
};

class TokenScheduler {
 public:
  // Epochs of this scheduler start above `last_epoch` (the last one stored; 0 for a new GPU).
  TokenScheduler(const SchedulerOptions& options, uint64_t last_epoch);

  // Takes one event at time `now` (never before an earlier call's) and appends what is to be done,
  // in order, to `effects`. Events about pods or clients that are not known are ignored.
  void Step(Instant now, const Event& event, Effects& effects);

  // When the next Tick is due; kNever when only another event can change anything.
  Instant wakeup() const;

  std::optional<PodId> holder() const;
  uint64_t epoch() const { return epoch_; }
  // Estimated cost of a hand-off, from grant to the client's confirmation.
  Duration handoff() const { return Duration(handoff_ns_); }
  // Every pod, ordered by id.
  std::vector<PodStatus> Status(Instant now) const;

 private:
  struct Client {
    PodId pod;
    bool connected = true;
    bool wants = false;      // phase Waiting, or holding with more to come
    bool member = false;     // was sent the present token and has not drained
    bool confirmed = false;  // has reported the present (epoch, rev)
    bool draining = false;
    bool noticed = false;  // a Notice of the present token was given
    uint64_t seq = 0;
    uint64_t rev = 0;  // of the last token sent
    Instant sent_at{};
    Duration quota{0};  // of the last token sent
  };
  struct Pod {
    policy::Slot slot = 0;
    bool removed = false;  // to be forgotten when its token is back
    uint32_t clients = 0;
    uint32_t wanting = 0;  // clients with `wants`
    int64_t burst_ns = 0;  // predicted held time until it runs out of work
    bool ran_out = false;  // its last token came back early
    Instant idle_since = kNever;
    Instant waiting_since = kNever;
    int64_t held_ns = 0;
    int64_t waited_ns = 0;
    uint64_t grants = 0;
    uint64_t revocations = 0;
  };

  void On(const PodSet& event);
  void On(const PodRemoved& event);
  void On(const ClientAttached& event);
  void On(const ClientReport& event);
  void On(const ClientDisconnected& event);
  void On(const ClientGone& event);
  void On(const HolderRestored& event);
  void On(const Tick&) {}

  void SetWants(ClientId id, Client& client, bool wants);
  void UpdateWaiting(PodId id, Pod& pod);
  void Drained(ClientId id, Client& client, Duration held);
  void FinishToken();
  void Decide();
  void Grant(PodId id);
  void ServeMember(ClientId id, Client& client, Duration quota);
  void Renew();
  void MaybeRevoke();
  void CheckDrain();
  void ForgetIdle();
  void ChargeProgress();
  void Forget(PodId id);
  Duration Quota(const Pod& pod) const;
  Duration Burst(const Pod& pod) const;
  bool Contended() const;
  Pod& pod(PodId id) { return pods_.find(id)->second; }

  const SchedulerOptions options_;
  policy::FairQueue queue_;
  std::map<PodId, Pod> pods_;
  std::map<ClientId, Client> clients_;
  std::deque<std::pair<Instant, PodId>> grace_;  // pods that stopped, in order of time

  // The token. holder_ is none when nobody holds.
  PodId holder_;
  uint64_t epoch_;
  uint64_t rev_ = 0;
  std::vector<ClientId> members_;  // was sent the token and has not drained; ordered by id
  Instant granted_at_{};
  Instant deadline_ = kNever;   // granted_at + quota, as this side sees it
  Instant renew_at_ = kNever;   // when to decide about an extension
  Instant closed_at_ = kNever;  // the token has ended; its drain is awaited
  Duration charged_{0};         // of the present token, so far
  Duration measured_{0};        // longest held time that a drained member reported
  bool revoked_ = false;
  int64_t next_revoke_served_ns_ = 0;  // early revocations are rationed by held time
  int64_t handoff_ns_;

  Instant now_{};
  Effects* effects_ = nullptr;  // during Step
};

}  // namespace baton::backend

#endif  // BATON_BACKEND_TOKEN_SCHEDULER_H_
