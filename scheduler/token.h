// The token of one GPU, and how far it is. One thing happens to it at a time:
//
//                 | free   | open      | closed    | reopened  | let on    |
//   --------------+--------+-----------+-----------+-----------+-----------+
//   granted       | open   |           |           |           |           |
//   adopted       | closed | a member  | a member  | a member  | a member  |
//   a client asks |        | a member  | parked    | a member  | parked    |
//   renewed       |        | open      |           |           |           |
//   its deadline  |        | closed    |           | closed    | closed    |
//   its drain is  |        |           | reopened, |           |           |
//     stuck       |        |           | let on    |           |           |
//   last drained  |        | free      | free      | free      | free      |
//
// open      its clients launch, and those of its pod that ask join them
// closed    past its deadline; comes back when the last of its clients has drained
// reopened  of a single pod: open again for a moment, for its drain was stuck
// let on    of a gang: open again for a moment, for those clients only that its coordinator lets on
//
// A gang's is free when its coordinator releases it (GangStep), not when the last has drained.
#ifndef BATON_SCHEDULER_TOKEN_H_
#define BATON_SCHEDULER_TOKEN_H_

#include <algorithm>
#include <cstdint>

#include "base/time.h"
#include "scheduler/roster.h"

namespace baton::scheduler {

struct Token {
  enum class Stage : uint8_t { kFree, kOpen, kClosed, kReopened, kLetOn };

  Stage stage = Stage::kFree;
  bool contended = false;          // as last told to the members
  bool revoked = false;            // of a gang: for a pod that goes first
  bool adopted = false;            // it was not granted here
  bool follows = false;            // granted as soon as the one before it was back
  uint64_t epoch = 0;              // its number; while it is free, that of the last one
  uint32_t pod = Roster::kNobody;  // kNobody exactly when it is free
  Roster::Numbers members;         // clients that have a part of it, in order of joining
  Instant granted_at{};
  Instant ahead_at = kNever;    // it was sent before it was granted: when
  bool ahead_before = false;    // ... by a daemon before this one
  PodId before;                 // ... and whose the one before it was
  Instant before_until{};       // ... until when, as it was charged
  Instant deadline{};           // as this side sees it
  Instant renew_at = kNever;    // when to decide about an extension
  Instant ended_at = kNever;    // when it first closed; a reopening does not set it back
  Instant let_on_at = kNever;   // when it was last let on
  Instant drained_at{};         // when one of its clients last drained
  uint32_t reopened = 0;        // how often
  Instant claimed_at = kNever;  // a client claimed to hold it, which nobody can check
  Duration quota{0};
  Duration waited{0};     // what the pod did before it
  Duration charged{0};    // of it, to the pod
  Duration renewed{0};    // of `charged`, what was before it was last renewed
  Duration longest{0};    // between two renewals
  Duration measured{0};   // the pod has held for, as far as its members have drained
  Duration unwatched{0};  // this daemon was not there, and cannot know who held

  bool held() const { return stage != Stage::kFree; }
  bool closed() const { return stage == Stage::kClosed; }
  // Whether clients of its pod that ask get a part of it.
  bool admits() const { return stage == Stage::kOpen || stage == Stage::kReopened; }

  // When what it has lasted is to be charged: a drain may last for ever, and this daemon may end
  // any time, so the account is never further behind than by `most`. `way`: a grant's to its
  // client.
  Instant ChargeDue(Duration way, Duration most) const {
    return granted_at + unwatched + way + charged + most;
  }
  // A new one, of a pod.
  void Begin(uint64_t number, uint32_t holder) {
    *this = Token();
    epoch = number;
    pod = holder;
  }
  void Close(Instant at) {
    stage = Stage::kClosed;
    ended_at = std::min(ended_at, at);
    renew_at = kNever;
  }
  void Reopen(Instant until) {
    stage = Stage::kReopened;
    ++reopened;
    deadline = until;
  }
  void LetOn(Instant now, Instant until) {
    stage = Stage::kLetOn;
    let_on_at = now;
    deadline = until;
  }
  void Extend(Duration more) {
    quota += more;
    deadline += more;
  }
  // Not renewed, and over at `at`.
  void EndAt(Instant at) {
    deadline = at;
    renew_at = kNever;
  }
  void Free() {
    stage = Stage::kFree;
    pod = Roster::kNobody;
  }
};

}  // namespace baton::scheduler

#endif  // BATON_SCHEDULER_TOKEN_H_
