// A GPU's token in use: it is granted to a pod, whose clients that ask become its members, renewed,
// ended, and comes back when the last of them has drained. What it lasts is charged as it goes on.
#ifndef BATON_SCHEDULER_HOLDING_H_
#define BATON_SCHEDULER_HOLDING_H_

#include <cstdint>

#include "scheduler/events.h"
#include "scheduler/forecast.h"
#include "scheduler/line.h"
#include "scheduler/members.h"
#include "scheduler/next_token.h"
#include "scheduler/roster.h"
#include "scheduler/token.h"
#include "scheduler/views.h"

namespace baton::scheduler {

class Holding {
 public:
  // As TokenScheduler's.
  Holding(const SchedulerOptions& options, Roster& roster, Forecast& forecast, Line& line,
          NextToken& next, const Turn& turn, uint64_t last_epoch, uint64_t first_epoch);

  const Token& token() const { return token_; }
  bool held() const { return token_.held(); }
  // kNobody: nobody's.
  uint32_t pod() const { return token_.pod; }
  Members& members() { return members_; }

  // The token, which is free, is the pod's; the clients of it that ask are sent it. A gang's is
  // extended by its coordinator only.
  void Grant(uint32_t pod, Duration quota);
  // Of whatever is granted next.
  uint64_t NextEpoch() const;
  // The token, which is free, is the next one's (NextToken); `before`: whose it was until now.
  // Then, when it is known what its clients have said of it: what they are to be told. `said`: the
  // holder before has said that it drained, and its node has seen to the rest; else the next one is
  // told.
  void BeginNext(PodId before);
  void TellNext(bool said);
  // A client of it that was sent it ahead had begun by `at`, as its node has measured, or as it
  // says where nobody watched. What the holder before it was charged since then was not its own.
  void NoteBegun(uint32_t client, Instant at);
  // A hold that this scheduler did not begin.
  struct Adopted {
    uint64_t epoch = 0;
    Instant granted_at{};
    Instant joined_at{};
    Duration charged{0};
    bool claimed = false;  // by the client alone
  };
  // The client holds so, and is a member from here on. Where the token is free this makes one that
  // has ended already; else it must be the pod's.
  void Adopt(uint32_t client, const Adopted& hold);
  // Of the token, this daemon was not there for so long, and cannot know who held.
  void SetUnwatched(Duration unwatched) { token_.unwatched = unwatched; }
  // A member has drained, after it held for `held`; the pod had held for `pod_held` by then, where
  // that is known. True when nobody holds a part any more.
  bool Drained(uint32_t client, Duration held, Duration pod_held = Duration(0));
  // Nobody holds a part: trues up the charge, and the token is free. What the next one has held
  // already, while this one had not said that it drained, is not this one's.
  void Return();

  // Pod `by` has started to wait; ChargeProgress() was called before that.
  void MakeWay(uint32_t by);
  // It ends as soon as it may, for a gang that the GPU is kept for.
  void EndForGang();
  // It ends now, and closes when time is next looked at.
  void End();
  // What a gang's coordinator decides.
  void Extend(Duration span);
  void Close();
  void LetOn(Duration span, bool all);

  // Does what is due: an extension, the end, what belongs to a drain.
  void Tend();
  void ChargeProgress();
  // The link was cut until now, for this long.
  void LinkBack(Duration away);
  // When Tend() is due.
  Instant wakeup() const;
  // Its part of the view of the gang that holds, or of another one.
  void Describe(GangView& view) const;

 private:
  using Client = Roster::Client;
  using Pod = Roster::Pod;

  // Who has the token, from now on.
  void Begin(uint32_t pod, uint64_t epoch, Duration quota);
  // The holder is of idle priority: its token ends when somebody with a request may go, be it now.
  void GiveWay();
  void EndAtOnce(Duration after);
  void Renew();
  void PlanRenewal(Duration span);
  Instant DueAt() const;

  const SchedulerOptions& options_;
  Roster& roster_;
  Forecast& forecast_;
  Line& line_;
  NextToken& next_;
  const Turn& turn_;
  Token token_;
  Members members_{options_, roster_, line_.demand(), turn_, token_, next_};
  const uint64_t first_epoch_;
  int64_t next_cut_served_ns_ = 0;  // early ends are rationed by held time
  Instant free_since_ = kNever;     // the token was last given back then
};

}  // namespace baton::scheduler

#endif  // BATON_SCHEDULER_HOLDING_H_
