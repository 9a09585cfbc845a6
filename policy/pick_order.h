// A seam for experiments: another order of the pods that wait, over the accounts, limits and
// priorities of FairQueue. The daemon has none; world/rule.h has some to compare with.
#ifndef BATON_POLICY_PICK_ORDER_H_
#define BATON_POLICY_PICK_ORDER_H_

#include <cstdint>
#include <memory>

#include "base/ids.h"
#include "base/time.h"
#include "policy/share.h"

namespace baton::policy {

// Where an active pod stands. Virtual times are FairQueue's.
struct Standing {
  PodId id;
  bool owed = false;      // lag >= 0
  int64_t lag_ns = 0;     // held time that it is owed
  int64_t eligible = 0;   // virtual time at which its lag is 0: the start tag of its next hold
  int64_t finish = 0;     // virtual time at which the fluid GPU would finish its next hold
  Share fluid;            // its entitlement,
  ShareSum fluid_sum{1};  // of that of all active pods
};

// One queue's.
class PickOrder {
 public:
  virtual ~PickOrder() = default;

  // The pod was charged `held`; negative to take back.
  virtual void Charged(PodId pod, Duration held) = 0;
  // Whether the pod is not ahead of its share.
  virtual bool IsDue(const Standing& pod) const = 0;
  // Whether `a` goes before `b`: a strict order of pods with different ids.
  virtual bool GoesBefore(const Standing& a, const Standing& b) const = 0;
};

using MakePickOrder = std::unique_ptr<PickOrder> (*)();

}  // namespace baton::policy

#endif  // BATON_POLICY_PICK_ORDER_H_
