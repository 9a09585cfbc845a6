// What the events of clients make of them (Roster::Client): of a client's contact, of its part of
// the token, and of what it wants. Its pod then waits, gives the token back, or rests.
//
//                     | away               | new                    | heard
//   ------------------+--------------------+------------------------+-------------------------
//   ClientAttached    | new                | new                    | new
//     has a part      |   and its last word is unconfirmed again
//   ClientReport      | ignored            | heard                  | heard
//     of the last word|                    |   part: confirmed      |   part: confirmed
//     Idle, Waiting   |                    |   wants: no, yes; part: none once it has heard all
//       has no part   |                    |   Waiting: joins where its pod's token admits it
//     Holding,        |                    |   wants                |   wants
//       Draining      |                    |                        |
//       has no part   |                    |   adopted, or a stray  |   a stray
//   ClientDisconnected| away               | away; wants: no        | away; wants: no
//   ClientGone        | forgotten: its part is back, and it is no stray
//   HolderRestored    | (not known:) away; adopted, or next where it was sent its token ahead
//
// Who was sent the next token ahead has no part of the present one, and what it says of the next
// one waits until that has begun.
#ifndef BATON_SCHEDULER_CLIENT_EVENTS_H_
#define BATON_SCHEDULER_CLIENT_EVENTS_H_

#include <cstdint>

#include "scheduler/events.h"
#include "scheduler/forecast.h"
#include "scheduler/gang_line.h"
#include "scheduler/holding.h"
#include "scheduler/line.h"
#include "scheduler/next_token.h"
#include "scheduler/roster.h"
#include "scheduler/strays.h"

namespace baton::scheduler {

class ClientEvents {
 public:
  ClientEvents(const SchedulerOptions& options, Roster& roster, Forecast& forecast, Line& line,
               Holding& holding, NextToken& next, Strays& strays, GangLine& gangs, const Turn& turn)
      : options_(options),
        roster_(roster),
        forecast_(forecast),
        line_(line),
        holding_(holding),
        next_(next),
        strays_(strays),
        gangs_(gangs),
        turn_(turn) {}

  void On(const ClientAttached& event);
  void On(const ClientReport& event);
  void On(const ClientDisconnected& event);
  void On(const ClientGone& event);
  void On(const HolderRestored& event);

  // Whether the client wants the token from now on; its pod waits, or does not, accordingly.
  void SetWants(uint32_t client, bool wants);
  // The pod waits when it asks for the token and does not hold it.
  void UpdateWaiting(uint32_t pod);
  // Nobody holds a part of the token any more: it is free, or the next one's where that was sent
  // ahead. `said`: by what its last client said, as its
  // node has measured.
  void TakeBack(bool said = false);
  // The pod, which does not hold, is there no more, nor are its clients.
  void Forget(uint32_t pod);

 private:
  using Client = Roster::Client;
  using Pod = Roster::Pod;

  void NoteConfirmed(const Client& client, const ClientReport& report);
  void NoteBegun(uint32_t client, const ClientReport& report);
  void NoteNotReached(uint32_t client);
  void OnHolding(uint32_t client, const ClientReport& report, bool fresh);
  Duration NoLongerThanNext(const Client& client, Duration held) const;
  void OnDrained(uint32_t client, const ClientReport& report, bool heard);
  void Adopt(uint32_t client, const Holding::Adopted& hold);
  void BeginNext(bool said, PodId before);

  const SchedulerOptions& options_;
  Roster& roster_;
  Forecast& forecast_;
  Line& line_;
  Holding& holding_;
  NextToken& next_;
  Strays& strays_;
  GangLine& gangs_;
  const Turn& turn_;
};

}  // namespace baton::scheduler

#endif  // BATON_SCHEDULER_CLIENT_EVENTS_H_
