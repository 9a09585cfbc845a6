// The gangs of one GPU: which stand in line for it, which come before every single pod there, and
// for which of them the GPU is kept. When one of them is granted, its coordinator decides
// (scheduler/gang_scheduler.h).
#ifndef BATON_SCHEDULER_GANG_LINE_H_
#define BATON_SCHEDULER_GANG_LINE_H_

#include <cstdint>
#include <vector>

#include "scheduler/forecast.h"
#include "scheduler/holding.h"
#include "scheduler/line.h"
#include "scheduler/roster.h"

namespace baton::scheduler {

class GangLine {
 public:
  GangLine(Roster& roster, const Forecast& forecast, Line& line, Holding& holding, const Turn& turn)
      : roster_(roster), forecast_(forecast), line_(line), holding_(holding), turn_(turn) {}

  bool empty() const { return gangs_.empty(); }
  // Whether the gang stands in line, or holds; and how far it is below its request where it is so
  // most.
  void Stand(uint32_t pod, bool stands, policy::BehindBy behind);
  // Finds out which of the gangs come before every single pod that waits or holds here, in their
  // order (GangView::rank). `cut`: none while the link is.
  void Rank(bool cut);
  // What the gang is owed here of its fair share is cut to what it may keep.
  void Cap(uint32_t pod) { line_.queue().CapLag(pod, Credit(pod), true); }

  // The gang that the GPU is kept for; kNobody: none.
  uint32_t reserved() const { return reserved_; }
  // False when it is kept for one already.
  bool Reserve(uint32_t pod);
  // The GPU is found to be held by the gang.
  void FoundHolding(uint32_t pod) { reserved_ = pod; }
  // The reservation ends without a token.
  void Unreserve();
  // While the GPU is kept free for a gang, the gang is charged as if it held.
  void ChargeKept();
  // In the time that has passed it was somebody else who kept the GPU.
  void NotKept(Duration passed) { kept_since_ = std::min(kept_since_ + passed, turn_.now); }
  // The pod has given its token back.
  void Returned(uint32_t pod);
  // How long it has been kept, and not charged for yet.
  Duration kept() const { return turn_.now - kept_since_; }

 private:
  void StandInQueue(uint32_t pod, bool stands);
  Duration Credit(uint32_t pod) const;

  Roster& roster_;
  const Forecast& forecast_;
  Line& line_;
  Holding& holding_;
  const Turn& turn_;
  std::vector<uint32_t> gangs_;  // that wait or hold, ordered by pod id
  uint32_t reserved_ = Roster::kNobody;
  Instant kept_since_{};  // with nobody holding anything, and not charged yet
  // How long a pod that stopped asking a moment ago came before a gang, since a gang held here
  // last; and since when one does, not counted in it yet.
  Duration passed_over_{0};
  Instant passed_over_since_ = kNever;
};

}  // namespace baton::scheduler

#endif  // BATON_SCHEDULER_GANG_LINE_H_
