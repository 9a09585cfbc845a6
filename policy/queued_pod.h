// What a fair queue keeps of one pod. Its parts share the record, so that a decision among many
// pods touches as few cache lines as can be.
#ifndef BATON_POLICY_QUEUED_POD_H_
#define BATON_POLICY_QUEUED_POD_H_

#include <algorithm>
#include <cstdint>

#include "base/ids.h"
#include "policy/limit_bucket.h"
#include "policy/rational.h"
#include "policy/share.h"

namespace baton::policy {

// When a pod may go first for its request's sake (policy/guarantee.h).
enum class Claims : uint8_t {
  kAlways,
  kWhenRanked,  // it can seldom go when it is picked, and the GPU must not wait for it: a gang,
                // which waits here only for the moment in which somebody finds out its place
  kNever,
};

// How far a pod is below its request, in parts of M (policy/guarantee.h): with more than half its
// token is not cut, with M it goes first.
enum class BehindBy : uint8_t { kLittle, kHalf, kAll };

// A pod's account of its fair share. FluidQueue's alone.
struct FluidAccount {
  Share fluid;  // 0: inactive, or active since the last SettleAll
  bool active = false;
  bool queued = false;
  bool owes = false;  // became active with a debt since the SettleAll before; its own
  int64_t burst_ns = 1;
  int64_t eligible = 0;       // virtual time at which the lag is 0; while fluid > 0
  int64_t eligible_rest = 0;  // remainder of the last division, so that it does not drift
  int64_t finish = 0;         // eligible + burst / fluid; while fluid > 0
  int64_t lag_ns = 0;         // while fluid == 0
  int64_t served_at = 0;      // what had been served when it became inactive

  int64_t LagAt(int64_t virtual_ns) const;
  // Its lag is 0 at this virtual time; the finish follows.
  void SetEligible(int64_t at) {
    eligible = std::min(at, kRationalMost);
    if (fluid > Share(0)) finish = eligible + TimeToServe(burst_ns, fluid);
  }
};

struct alignas(128) QueuedPod {
  PodId id;
  ShareSpec spec;
  bool waiting = false;
  Claims claims = Claims::kAlways;
  LimitBucket bucket;
  FluidAccount account;

  LimitBucket::Rate RateOver(Duration window) const { return {spec.limit, window}; }
  // What its bucket must have for it to go. Half a bucket is enough to begin: one that must be full
  // first overflows whenever its turn comes late.
  int64_t NeededOf(Duration window) const {
    return std::min(account.burst_ns, RateOver(window).Size() / 2);
  }
};

}  // namespace baton::policy

#endif  // BATON_POLICY_QUEUED_POD_H_
