#include "scheduler/gang_line.h"

#include <algorithm>

namespace baton::scheduler {
namespace {

// For so long, between two tokens of a gang, pods that stopped asking a moment ago come before it.
// Of small bursts they may do nothing else for ever, high-priority ones at that.
constexpr Duration kForResting = std::chrono::milliseconds(10);

}  // namespace

void GangLine::Stand(uint32_t pod, bool stands, policy::BehindBy behind) {
  line_.queue().SetElsewhere(pod, behind);
  const auto by_id = [this](uint32_t a, uint32_t b) {
    return roster_.pod(a).id < roster_.pod(b).id;
  };
  const auto at = std::lower_bound(gangs_.begin(), gangs_.end(), pod, by_id);
  const bool listed = at != gangs_.end() && *at == pod;
  if (stands && !listed) gangs_.insert(at, pod);
  if (!stands && listed) gangs_.erase(at);
  roster_.pod(pod).rank = GangView::kUnranked;
}

void GangLine::Rank(bool cut) {
  for (const uint32_t g : gangs_) {
    Roster::Pod& gang = roster_.pod(g);
    if (gang.rank == GangView::kUnranked) gang.first_lag = Roster::kNoLag;
    gang.rank = GangView::kUnranked;
  }
  if (passed_over_since_ != kNever) passed_over_ += turn_.now - passed_over_since_;
  passed_over_since_ = kNever;
  if (cut) return;
  if (holding_.held()) holding_.ChargeProgress();
  // Whoever holds competes too, or it would lose its turn by draining. So do those who stopped
  // asking a moment ago: a gang's hold is too long to be handed out for a gap between two kernels.
  std::vector<uint32_t> absent;
  if (holding_.held()) {
    const Roster::Pod& holder = roster_.pod(holding_.pod());
    const bool competes = !holder.gang && !holder.idle_priority() && holder.wanting > 0;
    if (competes) absent.push_back(holding_.pod());
  }
  const std::vector<uint32_t> resting = line_.demand().Resting();
  if (passed_over_ < kForResting) absent.insert(absent.end(), resting.begin(), resting.end());
  for (const uint32_t a : absent) StandInQueue(a, true);
  for (const uint32_t g : gangs_) StandInQueue(g, true);
  policy::FairQueue& queue = line_.queue();
  uint32_t rank = 0;
  auto next = queue.Pick(turn_.now);
  for (; next && roster_.pod(*next).gang; next = queue.Pick(turn_.now)) {
    roster_.pod(*next).rank = rank++;
    StandInQueue(*next, false);
  }
  const bool all = rank == gangs_.size();
  if (next && !all && std::find(resting.begin(), resting.end(), *next) != resting.end()) {
    passed_over_since_ = turn_.now;
  }
  for (const uint32_t g : gangs_) {
    Roster::Pod& gang = roster_.pod(g);
    gang.owed_much = false;
    if (gang.rank == GangView::kUnranked) {
      StandInQueue(g, false);
      continue;
    }
    const Duration lag = queue.Lag(g);
    if (gang.first_lag == Roster::kNoLag) gang.first_lag = lag;
    gang.owed_much = lag > Credit(g);
  }
  for (const uint32_t a : absent) StandInQueue(a, false);
}

void GangLine::StandInQueue(uint32_t pod, bool stands) {
  line_.queue().SetWaiting(pod, stands, forecast_.Burst(pod));
}

// Less than its next hold, or than it took to come first, would put it back in line as often as
// another of its GPUs is not ready.
Duration GangLine::Credit(uint32_t pod) const {
  const Duration first = roster_.pod(pod).first_lag;
  const Duration least = std::max(line_.queue().fluid().Credit(pod), 2 * forecast_.Burst(pod));
  return first == Roster::kNoLag ? least : std::max(least, first);
}

bool GangLine::Reserve(uint32_t pod) {
  if (reserved_ != Roster::kNobody) return false;
  reserved_ = pod;
  kept_since_ = turn_.now;
  return true;
}

void GangLine::Unreserve() {
  ChargeKept();
  reserved_ = Roster::kNobody;
}

void GangLine::ChargeKept() {
  if (reserved_ == Roster::kNobody || holding_.held()) return;
  line_.Charge(reserved_, turn_.now - kept_since_);
  kept_since_ = turn_.now;
}

void GangLine::Returned(uint32_t pod) {
  if (reserved_ == pod) reserved_ = Roster::kNobody;
  if (roster_.pod(pod).gang) passed_over_ = Duration(0);
  kept_since_ = turn_.now;
}

}  // namespace baton::scheduler
