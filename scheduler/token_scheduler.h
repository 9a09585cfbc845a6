// The token scheduler of one GPU: a pure state machine. Events in, effects out; it reads no clock,
// does no I/O and iterates in the order of ids only, so the same events give the same decisions.
//
// It knows pods (who have shares) and clients (their processes). A token belongs to a pod; it is
// fanned out to the pod's clients that want to launch, and comes back when the last of them has
// drained. While it is out nobody else is granted anything: that, and that a client which is merely
// *disconnected* still counts as holding, is what makes exclusive mean exclusive.
//
// Its parts. Each but the last has a state of its own:
//
//   Roster        who there is: pods and their clients
//   Forecast      what each pod will need, and what a hand-off costs
//   Line          which pods wait (Demand counts them), what each has been charged; the fair queue
//   Holding       the token, from its grant to its return (scheduler/token.h has its stages), and
//                 its Members, the clients that have a part of it
//   NextToken     the one after it, where that was sent ahead
//   Strays        clients that claim to run beside it
//   GangLine      gangs in line, and the one that the GPU is kept for
//   ClientEvents  what the events of clients make of them
//
// The link: while it is cut, events are taken and nothing is granted, extended, ended or reported;
// when it is back, deadlines and drains go on with the time of the cut left out.
//
// Not thread safe; a daemon has one per GPU and steps it from its event loop.
#ifndef BATON_SCHEDULER_TOKEN_SCHEDULER_H_
#define BATON_SCHEDULER_TOKEN_SCHEDULER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/client_events.h"
#include "scheduler/events.h"
#include "scheduler/forecast.h"
#include "scheduler/gang_line.h"
#include "scheduler/holding.h"
#include "scheduler/line.h"
#include "scheduler/next_token.h"
#include "scheduler/roster.h"
#include "scheduler/strays.h"
#include "scheduler/views.h"

namespace baton::scheduler {

class TokenScheduler {
 public:
  // Epochs of this scheduler start above `last_epoch` (the last one stored; 0 for a new GPU), and
  // those of its grants at `first_epoch` at least. They only ever grow by its own grants: a client
  // that names a higher one moves none.
  explicit TokenScheduler(const SchedulerOptions& options, uint64_t last_epoch,
                          uint64_t first_epoch = 0);
  // Its parts know each other.
  TokenScheduler(const TokenScheduler&) = delete;
  TokenScheduler& operator=(const TokenScheduler&) = delete;

  // Takes one event at time `now` (never before an earlier call's) and appends what is to be done,
  // in order, to `effects`. Events about pods or clients that are not known are ignored.
  void Step(Instant now, const Event& event, Effects& effects);

  // When the next Tick is due; kNever when only another event can change anything.
  Instant wakeup() const;

  std::optional<PodId> holder() const;
  // Nobody holds anything, and nobody wants to.
  bool idle() const { return !holding_.held() && strays_.empty() && line_.demand().nobody_waits(); }
  // Whether the client was sent a token (or told to stop) and has not drained; `epoch`: that one.
  bool Holds(ClientId client, std::optional<uint64_t> epoch = {}) const;
  uint64_t epoch() const { return holding_.token().epoch; }
  // What a hand-off costs the GPU at present, and what all of them have cost since this scheduler
  // began, but for `context_switch`.
  Duration handoff() const { return forecast_.handoff(); }
  Duration handoff_total() const { return forecast_.handoff_total(); }
  // Every pod, ordered by id.
  std::vector<PodStatus> Status(Instant now);
  // For a gang's coordinator: as of the last Step.
  GangView Gang(PodId pod) const;
  bool cut() const { return cut_at_ != kNever; }
  bool has_gangs() const { return roster_.has_gangs(); }
  // Number of calls of Step(). Gang() is unchanged while this is.
  uint64_t steps() const { return steps_; }
  // What must hold between any two Steps, for tests: a sentence about the first that does not, or
  // nothing. O(pods and clients).
  std::optional<std::string> Invariants() const;

 private:
  using Client = Roster::Client;
  using Pod = Roster::Pod;

  void On(const PodSet& event);
  void On(const PodRemoved& event);
  void On(const LinkCut& event);
  void On(const GangStep& event);
  void On(const TeamWeights& event);
  void On(const PodHeldBack& event);

  // The pod, which is known, has this share from now on.
  void Set(uint32_t pod, const policy::ShareSpec& spec);
  // It has a token, or was sent the next one.
  bool HasToken(uint32_t pod) const { return holding_.pod() == pod || next_.pod() == pod; }
  void SettleIdle();
  // What is due: the token's end, the next grant, the next one ahead.
  void Decide();
  void ChargeStrays(Duration passed);

  const SchedulerOptions options_;
  Turn turn_;
  Roster roster_;
  Forecast forecast_{options_, roster_};
  Line line_{options_, roster_, forecast_, turn_};
  NextToken next_;
  Holding holding_;
  Strays strays_{options_, roster_, turn_};
  GangLine gangs_{roster_, forecast_, line_, holding_, turn_};
  ClientEvents clients_{options_, roster_, forecast_, line_, holding_,
                        next_,    strays_, gangs_,    turn_};
  // Pods with a token that are to be of idle priority once that is back. Their tokens end.
  std::vector<PodSet> to_be_idle_;
  Instant cut_at_ = kNever;  // since then the link is cut
  uint64_t steps_ = 0;
};

}  // namespace baton::scheduler

#endif  // BATON_SCHEDULER_TOKEN_SCHEDULER_H_
