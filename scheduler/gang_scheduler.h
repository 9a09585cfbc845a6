// Processes that wait for each other on several GPUs (NCCL): gangs, of one pod or of several. A
// gang takes the tokens of all its GPUs or none; this is what decides when, above one
// TokenScheduler per GPU. On each of its GPUs the share of the pod that it has there counts.
//
//   in line   on each of its GPUs, by what it is owed there; singles are granted meanwhile
//   reserved  it came before every single pod on all its GPUs at once: all of them are kept for it,
//             and their holders' tokens end. Where another gang has one of them yet, gangs that
//             came later may have the rest until that one should be done. If a holder hangs, the
//             others are let go and only its GPU stays pinned for the gang
//   holding   all are free: granted on all, with one deadline; extended on all or none
//   closing   one end for all. A rank that is behind the others gets its token again for moments,
//             for their kernels may be waiting for its next launch; where ranks wait for each other
//             in a circle, all do. Where that goes on, kernels get longer to end before the next
//             are let on. Released on all once all have drained
//
// No deadlock: a gang reserves all its GPUs in one step, and only where no other gang has reserved
// one of them; who holds needs nothing more to finish. A pinned GPU is let go as soon as it is
// free, unless the gang reserves the rest in the same step. No starvation: what a gang is owed
// grows until it comes first, on each GPU; of gangs that overlap the one goes first that comes
// first on their GPU of the lowest number, and where such an order goes round in a circle, the
// longest ready. Where a gang waits for one of its GPUs, what it is owed on the others stops at two
// of its holds, or gangs that do without that GPU would come after it for ever. A gang that cannot
// be brought to stand still counts as a holder that hangs.
//
// What a daemon finds held when it starts is closed like a token of its own: the gang's other GPUs
// are claimed for it, as each is heard of.
//
// Shown by tests/scheduler/gang_scheduler_test.cc: Gang.InManyMixesEverybodyGoesOn (shares, nobody
// is left out), Gang.WhateverGoesWrongNobodyOverlapsAndEverybodyGoesOn (faults, accounts, no busy
// loop), and one test for each thing that went wrong once.
//
// Pure, like the schedulers it steps: no clock, no I/O, the same events give the same decisions.
// Not thread safe.
#ifndef BATON_SCHEDULER_GANG_SCHEDULER_H_
#define BATON_SCHEDULER_GANG_SCHEDULER_H_

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "scheduler/token_scheduler.h"

namespace baton::scheduler {

class GangScheduler {
 public:
  explicit GangScheduler(const SchedulerOptions& options) : options_(options) {}

  // A pod of a gang on one of its GPUs, which knows the pod (PodSet with `gang`) and outlives both.
  struct Member {
    PodId pod;
    TokenScheduler* gpu = nullptr;
    bool leaves = false;  // the pod is deleted
    // Its request, as the GPU was told.
    policy::BehindBy behind = policy::BehindBy::kLittle;
  };
  // All members of a gang, new or not, in an order of GPUs that is the same for all gangs; of one
  // GPU there is one. Who is not named any more leaves: with what it holds, once the whole gang has
  // drained. Not `complete`: some are not there (yet); the gang is granted nothing, but what it
  // holds since before a restart comes back. No members: it is over.
  void Set(GangId gang, std::vector<Member> members, bool complete = true);
  bool empty() const { return gangs_.empty(); }

  // Steps one GPU's scheduler with an event, and carries its effects out.
  using StepGpu = std::function<void(TokenScheduler&, const GangStep&)>;
  // Decides what can be decided at `now`. To be called after every Step of a scheduler that a gang
  // is on, and when wakeup() is due.
  void Tend(Instant now, const StepGpu& step);
  // When Tend is due although nothing has happened.
  Instant wakeup() const;
  // So many gangs have been tended, in all calls.
  uint64_t tended() const { return tended_; }
  // What must hold after Tend, for tests: a sentence about the first that does not, or nothing. Of
  // gangs with a GPU whose link is cut, or that was stepped since, nothing is said. O(members).
  std::optional<std::string> Invariants() const;

 private:
  using Clients = std::vector<ClientId>;
  enum class State : uint8_t { kIdle, kWaiting, kReserved, kHolding, kClosing };
  struct Gang {
    std::vector<Member> members;
    bool complete = true;
    State state = State::kIdle;
    uint64_t tended_at = 0;        // TokenScheduler::steps() of all its GPUs, when last tended
    Instant ready_since = kNever;  // comes before every single on all its GPUs
    // Reserved or holding: its GPUs are promised to gangs that waited before it, from then on.
    Instant until = kNever;
    Instant granted_at{};
    Instant deadline{};
    Instant act_at = kNever;  // when to renew (holding) or to let somebody on (closing)
    Duration closing{0};      // how long its tokens take to come back, smoothed
    // While closing:
    Instant closing_since{};
    Instant changed_at{};  // when last somebody drained, or what let them on ended
    Duration window{0};    // how long the ranks that are behind get next
    uint32_t windows = 0;  // how often they got it
    uint32_t again = 0;    // so many windows in a row were of those that were behind before
    uint32_t in_vain = 0;  // how often in a row all got it, for none was behind
    Clients behind;        // who was when last looked at ...
    Clients let_on;        // ... and when last let on
  };
  using Views = std::vector<GangView>;

  static bool Cut(const Gang& gang);
  static bool Leaves(const Gang& gang);
  static bool Overlap(const Gang& a, const Gang& b);
  bool Due(const Gang& gang) const;
  static uint64_t Steps(const Gang& gang);
  void Tend(Gang& gang);
  void GiveUp(Gang& gang);
  void LetGo(const Gang& gang, const Views& views, bool wants);
  void LetDrainedGo();
  void CapClaims(const Gang& gang, const Views& views);
  void Hold(Gang& gang);
  Duration Quota(const Gang& gang, const Views& views) const;
  Duration Left(const Gang& gang) const;
  Instant FreeFrom(const Gang& gang) const;
  void BeginClosing(Gang& gang);
  void Claim(const Gang& gang);
  void Close(Gang& gang, const Views& views);
  void LetOn(Gang& gang, const Views& views, Clients behind);
  void Reserve();
  static bool GoesBefore(const Gang& a, const Views& of_a, const Gang& b, const Views& of_b);
  static Views ViewsOf(const Gang& gang);
  void One(const Member& member, GangStep::Do act, Duration span = Duration(0),
           policy::BehindBy behind = policy::BehindBy::kLittle);
  void All(const Gang& gang, GangStep::Do act, Duration span = Duration(0));
  void Wait(Gang& gang, std::set<const TokenScheduler*>* seen = nullptr);

  const SchedulerOptions options_;
  std::map<GangId, Gang> gangs_;
  Instant now_{};
  uint64_t tended_ = 0;
  Instant look_at_{};  // at those in line and reserved, although nothing has happened
  const StepGpu* step_ = nullptr;
};

}  // namespace baton::scheduler

#endif  // BATON_SCHEDULER_GANG_SCHEDULER_H_
