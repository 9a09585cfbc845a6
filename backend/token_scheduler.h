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

#include <boost/container/small_vector.hpp>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <unordered_map>
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
  Duration quota_max = std::chrono::milliseconds(40);
  // ε: the part of the GPU's time that hand-offs may cost, in millionths; 1 %.
  uint32_t handoff_fraction = 10'000;
  // GPU time that a client may have launched ahead of its completion. It is what a drain has to
  // wait for; less of it leaves gaps between kernels on a busy host.
  Duration backlog = std::chrono::milliseconds(2);
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
  // It takes its tokens on several GPUs together: here it is granted only by GangStep. Fixed when
  // the pod is new.
  bool gang = false;
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
// this State, when the State says that `epoch` has drained and the node saw all of it; else 0.
// `claimed`: how long the client says that it has held since it last held nothing. It counts for
// time in which nobody watched: this daemon, or its node's relay, was not there.
struct ClientReport {
  ClientId client;
  uint64_t seq = 0;
  wire::Phase phase = wire::Phase::kIdle;
  uint64_t epoch = 0;
  uint64_t rev = 0;
  Duration held{0};
  Duration claimed{0};
  Duration backlog{0};  // GPU time that it expects its unfinished work to take
};
// The client's connection is gone, its process may live: it holds what it held. `heard_at` (not
// after now): the link between its node's relay and this daemon was lost; until then it was
// connected for certain. kNever: it closed its own socket, beside which its node goes on watching;
// until it was seen to drain it holds.
struct ClientDisconnected {
  ClientId client;
  Instant heard_at = kNever;
};
// The client's process is gone and its GPU work has ended.
struct ClientGone {
  ClientId client;
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
};
// The way to the GPU's clients is cut, or back. While it is cut nothing is decided, and it does not
// count as time in which a client could have drained.
struct LinkCut {
  bool cut = false;
};
// What a gang's coordinator (backend/gang_scheduler.h) decides for one of its GPUs.
struct GangStep {
  enum class Do : uint8_t {
    kWait,       // the gang has work on one of its GPUs: it stands in line here
    kRest,       // it has none
    kReserve,    // the holder's token ends, and nobody but the gang is granted; while the GPU is
                 // kept free for it, it is charged as if it held
    kGrant,      // reserved and free: the gang's, for `span`
    kExtend,     // its token, for `span` more
    kClose,      // its token ends now
    kReopen,     // its token has ended; those of its clients that ask may launch for `span`
    kReopenAll,  // ... and those that have not drained
    kCap,      // it waits for another of its GPUs: what it is owed here is cut to two of its holds,
               // or what a pod that sleeps may save up
    kRelease,  // the token, if it is out, and the reservation end; nothing may be held
  };
  PodId pod;
  Do act = Do::kWait;
  Duration span{0};
};
// The teams' weights in what requests leave over, by ShareSpec::team; none where teams do not
// matter (policy/share.h: FluidShares). Everybody's lag stays. Read during Step only.
struct TeamWeights {
  std::span<const uint32_t> weights;
};
// Time has passed; due when `now` reaches wakeup().
struct Tick {};

using Event = std::variant<PodSet, PodRemoved, ClientAttached, ClientReport, ClientDisconnected,
                           ClientGone, HolderRestored, LinkCut, GangStep, TeamWeights, Tick>;

// --------------------------------------------------------------------------------------- effects

// `client` is about to be sent the token of `epoch` for the first time, at `joined_at`. Must be
// stored, durable against a crash of the daemon, before the SendToken that follows is carried out.
struct StoreHolder {
  ClientId client;
  PodId pod;
  uint64_t epoch = 0;
  Instant joined_at{};
  Duration waited{0};  // the pod did, before this token
};
// `pod` has been charged this much more held time; said as the hold goes on, so that little is lost
// when the daemon dies. Negative when an estimate turns out to have been too much.
struct Charged {
  PodId pod;
  Duration held{0};
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

using Effect = std::variant<StoreHolder, Charged, ClearHolders, SendToken, KillClient, Notice>;
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
  Instant waiting_since = kNever;
  Duration lag{0};
  uint64_t grants = 0;
  uint64_t revocations = 0;
};

// A gang as one of its GPUs sees it.
struct GangView {
  bool wants = false;  // a client asks, or holds and may go on
  // Has the token: those that ask and hold no part of it.
  boost::container::small_vector<ClientId, 2> parked;
  // Its place among the gangs that come before every single pod here, the holder included; 0 is
  // the first. kUnranked: some single pod comes first.
  static constexpr uint32_t kUnranked = ~0u;
  uint32_t rank = kUnranked;
  bool owed_much = false;  // kCap would cut what it is owed
  bool reserved = false;   // kept for it
  bool taken = false;      // kept for another gang
  bool free = false;       // reserved for it, and nobody holds anything
  bool holds = false;      // has the token
  bool drained = false;    // has the token, and none of its clients holds a part
  bool closed = false;     // its token has ended
  bool stuck = false;      // one of its clients has not drained, and was not let on since
  bool revoked = false;    // its token is to end for a pod that goes first
  bool contended = false;  // somebody else waits here
  bool overdue = false;    // another's drain takes longer than it should
  Instant done_at{};       // when the work of its clients should end, as they said
  Duration quota{0};       // what it would be granted now
  Duration allowance{0};   // what its limit allows now
};

class TokenScheduler {
 public:
  // Epochs of this scheduler start above `last_epoch` (the last one stored; 0 for a new GPU), and
  // those of its grants at `first_epoch` at least. They only ever grow by its own grants: a client
  // that names a higher one moves none.
  explicit TokenScheduler(const SchedulerOptions& options, uint64_t last_epoch,
                          uint64_t first_epoch = 0);

  // Takes one event at time `now` (never before an earlier call's) and appends what is to be done,
  // in order, to `effects`. Events about pods or clients that are not known are ignored.
  void Step(Instant now, const Event& event, Effects& effects);

  // When the next Tick is due; kNever when only another event can change anything.
  Instant wakeup() const;

  std::optional<PodId> holder() const;
  // Nobody holds anything, and nobody wants to.
  bool idle() const { return !token_ && stopped_.empty() && waiting_pods_ == 0; }
  // Whether the client was sent a token (or told to stop) and has not drained.
  bool Holds(ClientId client) const;
  // ... of this epoch.
  bool Holds(ClientId client, uint64_t epoch) const;
  uint64_t epoch() const { return epoch_; }
  // What a hand-off costs the GPU: a return and a grant, each about as long as it takes a client to
  // confirm a grant (which is measured), and the client's own waking up.
  Duration handoff() const;
  // Every pod, ordered by id.
  std::vector<PodStatus> Status(Instant now);
  // For a gang's coordinator: as of the last Step.
  GangView Gang(PodId pod) const;
  bool cut() const { return cut_at_ != kNever; }
  bool has_gangs() const { return gang_pods_ > 0; }
  // So often Step was called: while this is the same, so is what Gang() says.
  uint64_t steps() const { return steps_; }

 private:
  using ClientList = boost::container::small_vector<uint32_t, 4>;
  static constexpr uint32_t kNobody = ~0u;
  static constexpr Duration kNoLag = Duration::min();

  // Aligned so that a decision among many pods touches as few cache lines as can be.
  struct alignas(64) Client {
    ClientId id;
    uint32_t pod = 0;  // index into pods_
    bool connected = true;
    bool wants = false;     // reported Waiting, or Holding and Draining (more may come)
    bool member = false;    // was sent the present token and has not drained
    bool confirmed = true;  // has reported the last Token that it was sent
    bool stopped = false;   // ran beside another pod's token, was told to stop and has not drained
    bool fresh = true;      // has not reported since it attached
    bool noticed = false;   // a hang of the present token was reported
    uint64_t seq = 0;       // of its last report
    uint64_t epoch = 0;     // of the last token sent
    uint64_t rev = 0;       // and its revision
    Instant sent_at{};
    Instant joined_at{};          // when it became a member
    Instant done_at{};            // when its work on the GPU should end, as it said
    bool draining = false;        // ... in the present drain
    Instant away_since = kNever;  // until here it is known to have held; since then, nobody watched
    Instant watched_from{};       // while away: since then somebody does again
    Duration unwatched{0};        // part of that in which this daemon was not there either
  };
  struct alignas(128) Pod {
    PodId id;
    policy::Slot slot = 0;  // in queue_: the same number as the index into pods_
    bool removed = false;   // forgotten once its token is back
    bool gang = false;
    bool gang_waits = false;              // as its coordinator says
    uint32_t rank = GangView::kUnranked;  // see there
    bool owed_much = false;
    Duration first_lag = kNoLag;  // what it was owed when it came first, while it does
    ClientList clients;           // indexes into clients_, in order of attaching
    uint32_t wanting = 0;         // connected clients with `wants`
    int64_t burst_ns = 0;         // predicted held time until it runs out of work; 0: not known yet
    int64_t service_ns = 0;       // longest recent hold, overrun included
    bool saturating = false;      // its last token ended with more to do
    Instant idle_since = kNever;
    Instant waiting_since = kNever;
    int64_t held_ns = 0;
    int64_t waited_ns = 0;
    uint64_t grants = 0;
    uint64_t revocations = 0;
    // How long its clients may yet hold up the GPU by claims that nobody can check, as of stops_at.
    Duration stops{0};
    Instant stops_at{};
  };
  // A client that claims to run beside another pod's token.
  struct Stopped {
    uint32_t client = 0;
    Instant since{};
    Instant until{};  // nobody is granted until then, unless it drains before
  };
  // The token, while a pod holds it.
  struct Token {
    uint32_t pod = 0;
    ClientList members;  // clients that were sent it and have not drained
    Instant granted_at{};
    Instant deadline{};         // as this side sees it: granted + quota
    Instant renew_at = kNever;  // when to decide about an extension
    Instant ended_at = kNever;  // when it first closed; a reopening does not set it back
    bool closed = false;        // past its deadline: the drain is awaited
    bool contended = false;     // as last told to the members
    Duration quota{0};
    Duration waited{0};  // what the pod did before it
    Duration charged{0};
    Duration measured{0};  // longest held time that a drained member reported
    // Of a gang's:
    Instant reopened_at = kNever;  // since then it is only for those that were let on
    bool revoked = false;          // for a pod that goes first
    Duration unwatched{0};         // this daemon was not there, and cannot know who held
  };

  // A hold that this scheduler did not begin.
  struct Adopted {
    uint64_t epoch = 0;
    Instant granted_at{};
    Instant joined_at{};
    Duration charged{0};
  };

  void On(const PodSet& event);
  void On(const PodRemoved& event);
  void On(const ClientAttached& event);
  void On(const ClientReport& event);
  void On(const ClientDisconnected& event);
  void On(const ClientGone& event);
  void On(const HolderRestored& event);
  void On(const LinkCut& event);
  void On(const GangStep& event);
  void On(const TeamWeights& event);
  void On(const Tick&) {}

  Client* FindClient(ClientId id);
  Pod* FindPod(PodId id);
  uint32_t AddClient(ClientId id, uint32_t pod);
  void Forget(uint32_t pod);

  void SetWants(Client& client, bool wants);
  void UpdateWaiting(Pod& pod);
  void JoinToken(uint32_t client);
  void Send(uint32_t client);
  void SendToMembers();
  void Drained(uint32_t client, Duration held);
  void ReturnToken();
  void ChargeProgress();
  Instant ChargeDue() const;
  void Charge(Pod& pod, Duration held);
  void Adopt(uint32_t client, const Adopted& hold);
  void Join(uint32_t client, Instant joined_at);
  void Stop(uint32_t client, uint64_t epoch);

  void TendToken();
  void Renew();
  void WatchDrain();
  void Cut(const Pod& by);
  void Grant(uint32_t pod, Duration quota);
  void RankGangs();
  void ChargeKept();
  void Unreserve();
  Duration GangCredit(const Pod& gang) const;
  void ForgetIdle();
  void ForgetStopped();
  void Unstop(uint32_t client);
  bool Parked(const Client& client) const;
  bool Stuck() const;
  void PlanRenewal(Duration span);
  Duration BaseQuota() const;
  Duration Burst(const Pod& pod) const;
  Duration Quota(const Pod& pod) const;
  bool RivalWaits() const;

  const SchedulerOptions options_;
  policy::FairQueue queue_;
  std::vector<Pod> pods_;
  std::vector<Client> clients_;
  std::vector<uint32_t> free_pods_;
  std::vector<uint32_t> free_clients_;
  // For look-up only: never iterated.
  std::unordered_map<uint64_t, uint32_t> pod_index_;
  std::unordered_map<uint64_t, uint32_t> client_index_;
  std::deque<std::pair<Instant, uint32_t>> grace_;  // pods that stopped asking, oldest first
  uint32_t waiting_pods_ = 0;
  uint64_t steps_ = 0;
  uint32_t gang_pods_ = 0;
  std::vector<uint32_t> gangs_;   // that wait or hold, ordered by pod id
  uint32_t reserved_ = kNobody;   // the gang that the GPU is kept for
  Instant kept_since_{};          // ... with nobody holding anything, and not charged yet
  std::vector<Stopped> stopped_;  // of clients with `stopped`, oldest first
  Instant cut_at_ = kNever;       // since then the link is cut

  std::optional<Token> token_;
  uint64_t epoch_;
  const uint64_t first_epoch_;
  int64_t grant_ns_;                // from grant to the client's confirmation, smoothed
  int64_t next_cut_served_ns_ = 0;  // early ends are rationed by held time

  Instant now_{};
  Effects* effects_ = nullptr;  // during Step
};

}  // namespace baton::backend

#endif  // BATON_BACKEND_TOKEN_SCHEDULER_H_
