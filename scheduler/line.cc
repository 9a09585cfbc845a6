#include "scheduler/line.h"

#include <algorithm>

#include "base/check.h"

namespace baton::scheduler {
namespace {

using std::chrono::microseconds;

// Until the first grants have been measured.
constexpr Duration kGrantGuess = microseconds(100);
// A hook notices the end of its work, and its threads wake up, within about this.
constexpr Duration kWakeUp = microseconds(50);
// A token may draw so much of what its pod's limit allows in advance.
constexpr Duration kOverdraw = std::chrono::milliseconds(750);
// A token of less would be taken for one that is good for a launch.
constexpr Duration kQuotaLeast = 2 * wire::kSingleLaunch;

}  // namespace

Line::Line(const SchedulerOptions& options, Roster& roster, const Turn& turn)
    : options_(options),
      roster_(roster),
      turn_(turn),
      queue_(options.fairness),
      grant_ns_(Nanos(kGrantGuess)) {}

void Line::Add(uint32_t pod, const policy::ShareSpec& spec) {
  const Pod& added = roster_.pod(pod);
  const policy::Slot slot = queue_.Add(added.id, spec, turn_.now, !added.gang);
  BATON_CHECK(slot == pod);  // both give out and take back numbers in the same order
}

void Line::Remove(uint32_t pod) {
  SetResting(roster_.pod(pod), kNever);
  queue_.Remove(pod);
}

bool Line::Enter(uint32_t index) {
  Pod& pod = roster_.pod(index);
  if (pod.waiting_since != kNever) return false;
  if (pod.idle_since != kNever) queue_.CapLag(index, queue_.Credit(index));
  SetResting(pod, kNever);
  pod.waiting_since = turn_.now;
  ++waiting_;
  queue_.SetActive(index, true);
  // A gang stands there while it is ranked only (GangLine).
  if (!pod.gang) {
    // One that had more to do when its token ended does not come from a pause.
    const Duration usual = pod.usual_ns != 0 ? Duration(pod.usual_ns) : Burst(index);
    queue_.SetWaiting(index, true, Burst(index),
                      pod.saturating ? policy::FromPause{} : policy::FromPause{usual, unheld()});
  }
  return true;
}

void Line::Leave(uint32_t index, bool holds) {
  Pod& pod = roster_.pod(index);
  if (pod.waiting_since == kNever) return;
  pod.waited_ns += Nanos(turn_.now - pod.waiting_since);
  pod.waiting_since = kNever;
  --waiting_;
  if (!pod.gang) queue_.SetWaiting(index, false, Burst(index));
  if (!holds) Rest(index);
}

void Line::Rest(uint32_t pod) {
  SetResting(roster_.pod(pod), turn_.now);
  grace_.emplace_back(turn_.now, pod);
}

void Line::Wake(uint32_t pod) {
  queue_.SetActive(pod, true);
  SetResting(roster_.pod(pod), kNever);
}

void Line::SetResting(Pod& pod, Instant since) {
  resting_ -= pod.idle_since != kNever ? 1 : 0;
  resting_ += since != kNever ? 1 : 0;
  pod.idle_since = since;
}

void Line::ForgetRested() {
  while (!grace_.empty() && grace_.front().first + options_.active_grace <= turn_.now) {
    const auto [since, index] = grace_.front();
    grace_.pop_front();
    Pod& pod = roster_.pod(index);
    if (!pod.id || pod.idle_since != since) continue;  // it came back, or is somebody else
    SetResting(pod, kNever);
    queue_.SetActive(index, false);
  }
}

std::vector<uint32_t> Line::Resting() const {
  std::vector<uint32_t> resting;
  for (const auto& [since, index] : grace_) {
    const Pod& pod = roster_.pod(index);
    if (pod.id && pod.idle_since == since && !pod.gang) resting.push_back(index);
  }
  return resting;
}

Instant Line::wakeup() const {
  return grace_.empty() ? kNever : grace_.front().first + options_.active_grace;
}

void Line::Charge(uint32_t index, Duration held) {
  Pod& pod = roster_.pod(index);
  queue_.Charge(index, held, turn_.now);
  pod.held_ns += Nanos(held);
  turn_.Emit(Charged{pod.id, held});
}

void Line::Learn(uint32_t index, Duration held, Duration longest) {
  Pod& pod = roster_.pod(index);
  pod.saturating = pod.wanting > 0;
  // A hold beyond this was an accident (a stopped process, a hung kernel); who had one is not to be
  // treated for long as if every hold of it were such.
  const int64_t most = 10 * Nanos(options_.quota_max);
  const int64_t measured = std::min(Nanos(held), most);
  pod.service_ns = std::max(std::min(Nanos(longest), most), pod.service_ns - pod.service_ns / 8);
  if (!pod.saturating) {
    // Up at once, down slowly: a burst cut in two costs a hand-off and a wait.
    pod.burst_ns = std::max(measured, (3 * pod.burst_ns + measured) / 4);
    pod.usual_ns = pod.usual_ns == 0 ? measured : (3 * pod.usual_ns + measured) / 4;
  }
}

Duration Line::BaseQuota() const {
  const int64_t ns =
      Nanos(handoff()) * policy::kWhole / std::max<uint32_t>(1, options_.handoff_fraction);
  return std::clamp(Duration(ns), options_.quota_min, options_.quota_max);
}

Duration Line::Burst(uint32_t index) const {
  const Pod& pod = roster_.pod(index);
  const Duration longest = std::max(BaseQuota(), Duration(pod.service_ns));
  if (pod.saturating || pod.burst_ns == 0) return longest;
  return std::min(longest, Duration(std::max<int64_t>(1, pod.burst_ns)));
}

Duration Line::LeastQuota(uint32_t index) const {
  const Pod& pod = roster_.pod(index);
  if (queue_.MustStay(index)) return Duration::max();
  const Duration least = policy::Guarantee::kLeastHandoffs * unheld();
  return std::min(pod.saturating ? least : std::max(least, Burst(index)), options_.quota_min);
}

Duration Line::Quota(uint32_t index) const {
  const Pod& pod = roster_.pod(index);
  const Duration wanted =
      std::min(std::max(BaseQuota(), Duration(pod.burst_ns)), options_.quota_max);
  Duration allowed = queue_.Allowance(index, turn_.now);
  // Where others wait, many small limits must not chop the GPU's time into hand-offs.
  const policy::Share limit = queue_.spec(index).limit;
  if (anybody_waits() && limit < policy::kWhole) allowed += kOverdraw * limit / policy::kWhole;
  return std::max(kQuotaLeast, std::min(wanted, allowed));
}

void Line::NoteConfirmed(Duration took) {
  const int64_t sample = std::min(Nanos(took), Nanos(options_.quota_max));
  grant_ns_ += (sample - grant_ns_) / 16;
}

// A return and a grant, each about as long, and the client's own waking up.
Duration Line::handoff() const { return Duration(2 * grant_ns_) + kWakeUp; }

}  // namespace baton::scheduler
