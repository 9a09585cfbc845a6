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

// Those of idle priority go when nobody with a request has worked for so many graces: a pause that
// is shorter is not worth that its end must wait for their kernels.
constexpr int kIdleGraces = 2;

// As the queue of those of idle priority has it: they share equally what there is.
policy::ShareSpec AmongIdle(policy::ShareSpec spec) {
  spec.request = policy::kShareMin;
  spec.priority = policy::Priority::kNormal;
  return spec;
}

}  // namespace

Line::Line(const SchedulerOptions& options, Roster& roster, const Turn& turn)
    : options_(options),
      roster_(roster),
      turn_(turn),
      queue_(options.fairness),
      idle_queue_(options.fairness),
      grant_ns_(Nanos(kGrantGuess)),
      base_quota_(ReckonBaseQuota()) {}

void Line::Add(uint32_t index, const policy::ShareSpec& spec, Instant limit_full_at) {
  const Pod& added = roster_.pod(index);
  const policy::Slot slot =
      queue_.Add(added.id, spec, turn_.now,
                 added.gang ? policy::Claims::kWhenRanked : policy::Claims::kAlways, limit_full_at);
  BATON_CHECK(slot == index);  // both give out and take back numbers in the same order
  if (spec.priority == policy::Priority::kIdle) AddIdle(index, spec, limit_full_at);
}

void Line::AddIdle(uint32_t index, const policy::ShareSpec& spec, Instant limit_full_at) {
  Pod& pod = roster_.pod(index);
  BATON_CHECK(!pod.gang);
  pod.idle_slot =
      idle_queue_.Add(pod.id, AmongIdle(spec), turn_.now, policy::Claims::kNever, limit_full_at);
  idle_pods_.resize(std::max<size_t>(idle_pods_.size(), pod.idle_slot + 1));
  idle_pods_[pod.idle_slot] = index;
}

void Line::Update(uint32_t index, const policy::ShareSpec& spec) {
  Pod& pod = roster_.pod(index);
  const bool idle = spec.priority == policy::Priority::kIdle;
  if (idle && pod.idle_priority()) idle_queue_.Update(pod.idle_slot, AmongIdle(spec), turn_.now);
  if (idle == pod.idle_priority()) return queue_.Update(index, spec, turn_.now);
  // It leaves its place in one queue for one in the other.
  const Place from = PlaceOf(index);
  const bool active = from.queue.fluid().active(from.slot);
  const bool waits = from.queue.waiting(from.slot);
  const Instant rests = pod.rests_since;
  Count(pod, -1);
  SetResting(pod, kNever);
  from.queue.SetActive(from.slot, false);
  queue_.Update(index, spec, turn_.now);
  if (idle) {
    AddIdle(index, spec, queue_.LimitFullAt(index));
  } else {
    idle_queue_.Remove(pod.idle_slot);
    pod.idle_slot = Roster::kNobody;
  }
  Count(pod, 1);
  SetResting(pod, rests);
  const Place to = PlaceOf(index);
  to.queue.SetActive(to.slot, active);
  if (waits) to.queue.SetWaiting(to.slot, true, Burst(index));
}

void Line::Remove(uint32_t index) {
  Pod& pod = roster_.pod(index);
  SetResting(pod, kNever);
  queue_.Remove(index);
  if (pod.idle_priority()) idle_queue_.Remove(pod.idle_slot);
}

Line::Place Line::PlaceOf(uint32_t index) {
  const Pod& pod = roster_.pod(index);
  if (pod.idle_priority()) return {idle_queue_, pod.idle_slot};
  return {queue_, index};
}

std::optional<uint32_t> Line::Next() {
  if (const auto next = queue_.Pick(turn_.now)) return next;
  if (!IdleMayGo()) return std::nullopt;
  const auto next = idle_queue_.Pick(turn_.now);
  if (!next || UntilRefill() < policy::Guarantee::kLeastHandoffs * unheld()) return std::nullopt;
  return idle_pods_[*next];
}

bool Line::GoesOn(uint32_t index) {
  const Place place = PlaceOf(index);
  place.queue.SetWaiting(place.slot, true, Burst(index));
  const auto next = Next();
  place.queue.SetWaiting(place.slot, false, Burst(index));
  return next == index;
}

Duration Line::UntilRefill() const {
  const Instant refill = queue_.NextRefill();
  return refill == kNever ? Duration::max() : std::max(Duration(0), refill - turn_.now);
}

Duration Line::Allowance(uint32_t index) const {
  const Pod& pod = roster_.pod(index);
  if (!pod.idle_priority()) return queue_.Allowance(index, turn_.now);
  return std::min(idle_queue_.Allowance(pod.idle_slot, turn_.now), UntilRefill());
}

bool Line::IdleMayGo() const { return resting_ + gangs_waiting_ == 0 && idle_from_ <= turn_.now; }

Instant Line::NextRefill() const {
  return IdleMayGo() ? std::min(queue_.NextRefill(), idle_queue_.NextRefill())
                     : queue_.NextRefill();
}

void Line::Describe(uint32_t index, Instant now, bool requester_holds, PodStatus& status) {
  const Pod& pod = roster_.pod(index);
  const Place place = PlaceOf(index);
  status.spec = queue_.spec(index);
  status.waiting = pod.waiting_since != kNever;
  status.throttled = status.waiting && place.queue.Allowance(place.slot, now) < Burst(index);
  const bool others = requester_holds || waiting_ > 0 || !IdleMayGo();
  status.paused = pod.idle_priority() && status.waiting && others;
  status.fluid = pod.idle_priority() && others ? policy::Share(0) : place.queue.Fluid(place.slot);
  status.lag = place.queue.Lag(place.slot);
  status.owed_of_request = place.queue.requests().Owed(place.slot);
}

bool Line::Enter(uint32_t index) {
  Pod& pod = roster_.pod(index);
  if (pod.waiting_since != kNever) return false;
  const Place place = PlaceOf(index);
  if (pod.rests_since != kNever) {
    place.queue.CapLag(place.slot, place.queue.fluid().Credit(place.slot));
  }
  SetResting(pod, kNever);
  pod.waiting_since = turn_.now;
  Count(pod, 1);
  place.queue.SetActive(place.slot, true);
  // A gang stands there while it is ranked only (GangLine).
  const Duration burst = Burst(index);
  if (pod.gang) {
    place.queue.SetWork(place.slot, true, burst);
  } else if (pod.saturating || pod.idle_priority()) {
    // One that had more to do when its token ended does not come from a pause.
    place.queue.SetWaiting(place.slot, true, burst);
  } else {
    const Duration usual = pod.usual_ns != 0 ? Duration(pod.usual_ns) : burst;
    place.queue.SetWaiting(place.slot, true, burst, {usual, unheld()});
  }
  return true;
}

void Line::Leave(uint32_t index, bool holds) {
  Pod& pod = roster_.pod(index);
  if (pod.waiting_since == kNever) return;
  Count(pod, -1);
  pod.waited_ns += Nanos(turn_.now - pod.waiting_since);
  pod.waiting_since = kNever;
  const Place place = PlaceOf(index);
  if (pod.gang) {
    place.queue.SetWork(place.slot, false, Burst(index));
  } else {
    place.queue.SetWaiting(place.slot, false, Burst(index));
  }
  if (!holds) Rest(index);
}

void Line::Rest(uint32_t pod) {
  SetResting(roster_.pod(pod), turn_.now);
  grace_.emplace_back(turn_.now, pod);
  const bool idle = roster_.pod(pod).idle_priority();
  if (!idle) idle_from_ = turn_.now + kIdleGraces * options_.active_grace;
}

void Line::Wake(uint32_t pod) {
  const Place place = PlaceOf(pod);
  place.queue.SetActive(place.slot, true);
  SetResting(roster_.pod(pod), kNever);
}

void Line::SetResting(Pod& pod, Instant since) {
  if (!pod.idle_priority()) {
    resting_ -= pod.rests_since != kNever ? 1 : 0;
    resting_ += since != kNever ? 1 : 0;
  }
  pod.rests_since = since;
}

void Line::Count(const Pod& pod, int by) {
  const auto add = [by](uint32_t& number, bool one) {
    number += one ? static_cast<uint32_t>(by) : 0;
  };
  const bool waits = pod.waiting_since != kNever;
  add(idle_waiting_, waits && pod.idle_priority());
  add(waiting_, waits && !pod.idle_priority());
  add(gangs_waiting_, waits && pod.gang);
}

void Line::ForgetRested() {
  while (!grace_.empty() && grace_.front().first + options_.active_grace <= turn_.now) {
    const auto [since, index] = grace_.front();
    grace_.pop_front();
    Pod& pod = roster_.pod(index);
    if (!pod.id || pod.rests_since != since) continue;  // it came back, or is somebody else
    SetResting(pod, kNever);
    const Place place = PlaceOf(index);
    place.queue.SetActive(place.slot, false);
  }
}

std::vector<uint32_t> Line::Resting() const {
  std::vector<uint32_t> resting;
  for (const auto& [since, index] : grace_) {
    const Pod& pod = roster_.pod(index);
    const bool counts = pod.id && !pod.gang && !pod.idle_priority();
    if (counts && pod.rests_since == since) resting.push_back(index);
  }
  return resting;
}

Instant Line::wakeup() const {
  const Instant at = grace_.empty() ? kNever : grace_.front().first + options_.active_grace;
  return idle_waiting_ > 0 && idle_from_ > turn_.now ? std::min(at, idle_from_) : at;
}

void Line::Charge(uint32_t index, Duration held) {
  Pod& pod = roster_.pod(index);
  const Place place = PlaceOf(index);
  place.queue.Charge(place.slot, held, turn_.now);
  pod.held_ns += Nanos(held);
  turn_.Emit(Charged{pod.id, held, place.queue.LimitFullAt(place.slot)});
}

void Line::ChargeAside(uint32_t index, Duration held) {
  Wake(index);
  Charge(index, held);
  if (roster_.pod(index).waiting_since == kNever) Rest(index);
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

Duration Line::ReckonBaseQuota() const {
  const policy::Share fraction = std::max(options_.handoff_fraction, policy::Share(1));
  return std::clamp(Duration(policy::TimeToServe(Nanos(handoff()), fraction)), options_.quota_min,
                    options_.quota_max);
}

bool Line::Unknown(uint32_t index) const {
  const Pod& pod = roster_.pod(index);
  return pod.grants == 0 && pod.service_ns == 0 && !pod.gang;
}

Duration Line::Burst(uint32_t index) const {
  const Pod& pod = roster_.pod(index);
  if (Unknown(index)) return options_.quota_min;
  const Duration longest = std::max(BaseQuota(), Duration(pod.service_ns));
  if (pod.saturating || pod.burst_ns == 0) return longest;
  return std::min(longest, Duration(std::max<int64_t>(1, pod.burst_ns)));
}

Duration Line::LeastQuota(uint32_t index) const {
  const Pod& pod = roster_.pod(index);
  if (queue_.requests().MustStay(index)) return Duration::max();
  const Duration least = policy::Guarantee::kLeastHandoffs * unheld();
  return std::min(pod.saturating ? least : std::max(least, Burst(index)), options_.quota_min);
}

Duration Line::Quota(uint32_t index) const {
  const Pod& pod = roster_.pod(index);
  const Duration wanted =
      std::min(std::max(BaseQuota(), Duration(pod.burst_ns)), options_.quota_max);
  Duration allowed = Allowance(index);
  // Where others wait, many small limits must not chop the GPU's time into hand-offs.
  const policy::Share limit = queue_.spec(index).limit;
  const bool others_wait = waiting_ > (pod.waiting_since != kNever ? 1 : 0);
  if (others_wait && Unknown(index)) return std::max(kQuotaLeast, std::min(Burst(index), allowed));
  if (others_wait && limit < policy::kWhole && !pod.idle_priority()) {
    allowed += Duration(policy::ServedIn(Nanos(kOverdraw), limit));
  }
  return std::max(kQuotaLeast, std::min(wanted, allowed));
}

void Line::NoteConfirmed(Duration took) {
  const int64_t sample = std::min(Nanos(took), Nanos(options_.quota_max));
  grant_ns_ += (sample - grant_ns_) / 16;
  base_quota_ = ReckonBaseQuota();
}

// A return and a grant, each about as long, and the client's own waking up.
Duration Line::handoff() const { return Duration(2 * grant_ns_) + kWakeUp; }

}  // namespace baton::scheduler
