// The clients that have a part of a GPU's token: what each is told of it, and whether it drains
// once the token is closed.
#ifndef BATON_SCHEDULER_MEMBERS_H_
#define BATON_SCHEDULER_MEMBERS_H_

#include <cstdint>

#include "scheduler/demand.h"
#include "scheduler/events.h"
#include "scheduler/next_token.h"
#include "scheduler/roster.h"
#include "scheduler/token.h"

namespace baton::scheduler {

class Members {
 public:
  // Those of `token`, which lists them.
  Members(const SchedulerOptions& options, Roster& roster, const Demand& demand, const Turn& turn,
          Token& token, NextToken& next)
      : options_(options),
        roster_(roster),
        demand_(demand),
        turn_(turn),
        token_(token),
        next_(next) {}

  // A client of the pod is a member since `joined_at`, and needs no word of it.
  void Enlist(uint32_t client, Instant joined_at);
  // What is stored of the member is as it now is.
  void Store(uint32_t client);
  // The grant was lost on its way to the member, which has held nothing until `at`.
  void NotReached(uint32_t client, Instant at);
  // One more client of the pod is sent the token; and all that ask and have no part of it are.
  void Join(uint32_t client);
  void JoinParked();
  // A client that asks for its pod's token joins where that is open.
  void Admit(uint32_t client);
  // The member is told of the token again; and all are.
  void Send(uint32_t client);
  void SendToAll();
  // It has drained.
  void Leave(uint32_t client);

  // The token is closed: says again what may be lost, reports who hangs, and opens the token of a
  // single pod for a moment where its drain is stuck.
  void WatchDrain();
  // When WatchDrain() is due.
  Instant wakeup() const;

 private:
  using Client = Roster::Client;

  bool Stuck() const;
  // When a drain that is stuck then is taken to be so.
  Instant ReopenAt() const;
  bool CallBack();

  const SchedulerOptions& options_;
  Roster& roster_;
  const Demand& demand_;
  const Turn& turn_;
  Token& token_;
  NextToken& next_;
};

}  // namespace baton::scheduler

#endif  // BATON_SCHEDULER_MEMBERS_H_
