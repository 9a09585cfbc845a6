// What a token scheduler shows: of a pod, for people; of a gang, for its coordinator.
#ifndef BATON_SCHEDULER_VIEWS_H_
#define BATON_SCHEDULER_VIEWS_H_

#include <boost/container/small_vector.hpp>
#include <cstdint>

#include "base/ids.h"
#include "base/time.h"
#include "policy/queued_pod.h"
#include "policy/share.h"

namespace baton::scheduler {

// Of the waits of a pod with a latency that ended with a token: how many there were, how many of
// them were longer than the latency, and in how many of those its request had yet to pay for what
// it had had before.
struct LatencyMet {
  uint64_t waits = 0;
  uint64_t late = 0;
  uint64_t ahead = 0;

  // Of all of them: those that were not longer. 1: there was none.
  double part() const {
    return waits == 0 ? 1 : 1 - static_cast<double>(late) / static_cast<double>(waits);
  }
};

// What is known of a pod on this GPU, cumulative since this scheduler was made.
struct PodStatus {
  PodId pod;
  policy::ShareSpec spec;
  policy::Share fluid;  // entitlement among the pods active now
  bool waiting = false;
  bool holding = false;
  bool throttled = false;  // waits, but is at its limit
  bool paused = false;     // of idle priority: waits, while others have work
  Duration held{0};        // charged
  Duration waited{0};      // time in which at least one client waited and none held
  Instant waiting_since = kNever;
  Duration lag{0};
  Duration owed_of_request{0};  // (policy/guarantee.h); negative: it has had more
  uint64_t grants = 0;
  uint64_t revocations = 0;
  LatencyMet met;
  // What it needs until it runs out of work, and that in the mean; 0: not known, or it never does.
  Duration burst{0};
  Duration usual{0};
  Duration overrun{0};      // the longest drain of late, after its token had ended; 0: not known
  bool saturating = false;  // its last token ended with more to do
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
  policy::Share request;                                // as far as those of all here fit
  policy::BehindBy behind = policy::BehindBy::kLittle;  // its request here
  bool owed_much = false;                               // kCap would cut what it is owed
  bool reserved = false;                                // kept for it
  bool taken = false;                                   // kept for another gang
  bool free = false;       // reserved for it, and nobody holds anything
  bool holds = false;      // has the token
  bool drained = false;    // has the token, and none of its clients holds a part
  bool closed = false;     // its token has ended
  bool stuck = false;      // one of its clients has not drained, and was not let on since
  bool revoked = false;    // its token is to end for a pod that goes first
  Instant ends = kNever;   // it is to end then at the latest, for one with a latency
  bool contended = false;  // somebody else waits here
  bool overdue = false;    // another's drain takes longer than it should
  Instant done_at{};       // when the work of its clients should end, as they said
  Duration quota{0};       // what it would be granted now
  Duration allowance{0};   // what its limit allows now
};

}  // namespace baton::scheduler

#endif  // BATON_SCHEDULER_VIEWS_H_
