#include "scheduler/line.h"

#include <algorithm>

#include "base/check.h"

namespace baton::scheduler {
namespace {

// A token may draw so much of what its pod's limit allows in advance.
constexpr Duration kOverdraw = std::chrono::milliseconds(750);
// Nor must it be much shorter than that: of many pods at small limits some would then come a second
// time before others had come once, whose buckets overflow meanwhile.
constexpr int kLimitedFactor = 2;  // times quota_min
// A token of less would be taken for one that is good for a launch.
constexpr Duration kQuotaLeast = 2 * wire::kSingleLaunch;

// As the queue of those of idle priority has it: they share equally what there is.
policy::ShareSpec AmongIdle(policy::ShareSpec spec) {
  spec.request = policy::kShareMin;
  spec.priority = policy::Priority::kNormal;
  return spec;
}

}  // namespace

Line::Line(const SchedulerOptions& options, Roster& roster, const Forecast& forecast,
           const Turn& turn)
    : options_(options),
      roster_(roster),
      forecast_(forecast),
      turn_(turn),
      queue_(options.fairness),
      idle_queue_(options.fairness) {}

void Line::Add(uint32_t index, const policy::ShareSpec& spec, uint64_t owner,
               Instant limit_full_at) {
  Pod& added = roster_.pod(index);
  added.owner = owner;
  LeftDebts::Both debts = left_.Take(owner);
  Instant& full_at = debts.of_requests.limit_full_at;
  full_at = std::max({full_at, debts.of_idle.limit_full_at, limit_full_at});
  debts.of_idle.limit_full_at = full_at;
  const policy::Slot slot = queue_.Add(
      added.id, spec, turn_.now, added.gang ? policy::Claims::kWhenRanked : policy::Claims::kAlways,
      debts.of_requests);
  BATON_CHECK(slot == index);  // both give out and take back numbers in the same order
  wanting_.SetTeam(index, spec.team);
  added.token_most = LongestToken(added, spec);
  if (spec.priority == policy::Priority::kIdle) AddIdle(index, spec, debts.of_idle);
}

// That its limit allows: a full bucket, and what may be drawn in advance.
Duration Line::LongestToken(const Pod& pod, const policy::ShareSpec& spec) const {
  if (spec.limit >= policy::kWhole) return Duration::max();
  const bool draws = !pod.gang && spec.priority != policy::Priority::kIdle;
  const Duration window = options_.fairness.limit_window + (draws ? kOverdraw : Duration(0));
  return std::max(Duration(1), Duration(policy::ServedIn(Nanos(window), spec.limit)));
}

void Line::AddIdle(uint32_t index, const policy::ShareSpec& spec, const policy::Debts& debts) {
  Pod& pod = roster_.pod(index);
  BATON_CHECK(!pod.gang);
  pod.idle_slot =
      idle_queue_.Add(pod.id, AmongIdle(spec), turn_.now, policy::Claims::kNever, debts);
  idle_pods_.resize(std::max<size_t>(idle_pods_.size(), pod.idle_slot + 1));
  idle_pods_[pod.idle_slot] = index;
}

void Line::Update(uint32_t index, const policy::ShareSpec& spec) {
  Pod& pod = roster_.pod(index);
  wanting_.SetTeam(index, spec.team);
  pod.token_most = LongestToken(pod, spec);
  const bool idle = spec.priority == policy::Priority::kIdle;
  if (idle && pod.idle_priority()) idle_queue_.Update(pod.idle_slot, AmongIdle(spec), turn_.now);
  if (idle == pod.idle_priority()) {
    queue_.Update(index, spec, turn_.now);
    if (pod.waiting_since != kNever) Want(index);
    return;
  }
  // It leaves its place in one queue for one in the other.
  const Place from = PlaceOf(index);
  const bool active = from.queue.fluid().active(from.slot);
  const bool waits = from.queue.waiting(from.slot);
  const Instant rests = pod.rests_since;
  demand_.Count(pod, -1);
  demand_.SetResting(pod, kNever);
  from.queue.SetActive(from.slot, false);
  // What it has used in one counts in the other.
  queue_.Update(index, spec, turn_.now, idle ? Instant{} : idle_queue_.LimitFullAt(pod.idle_slot));
  if (idle) {
    AddIdle(index, spec, {.limit_full_at = queue_.LimitFullAt(index)});
  } else {
    idle_queue_.Remove(pod.idle_slot);
    pod.idle_slot = Roster::kNobody;
  }
  demand_.Count(pod, 1);
  demand_.SetResting(pod, rests);
  const Place to = PlaceOf(index);
  to.queue.SetActive(to.slot, active);
  if (waits) {
    to.queue.SetWaiting(to.slot, true, forecast_.Burst(index), {}, WaitsSince(index));
  }
  if (pod.waiting_since != kNever) Want(index);
}

void Line::Remove(uint32_t index) {
  Pod& pod = roster_.pod(index);
  demand_.SetResting(pod, kNever);
  LeftDebts::Both debts{queue_.Remove(index), {}};
  if (pod.idle_priority()) debts.of_idle = idle_queue_.Remove(pod.idle_slot);
  left_.Leave(pod.owner, debts, turn_.now);
  if (uncontended_.pod == index) uncontended_ = {};  // who gets this index has held nothing
}

Line::Place Line::PlaceOf(uint32_t index) {
  const Pod& pod = roster_.pod(index);
  if (pod.idle_priority()) return {idle_queue_, pod.idle_slot};
  return {queue_, index};
}

std::optional<uint32_t> Line::Next() {
  if (const auto next = queue_.Pick(turn_.now)) return next;
  if (!demand_.idle_may_go()) return std::nullopt;
  const auto next = idle_queue_.Pick(turn_.now);
  if (!next || UntilRefill() < policy::Guarantee::kLeastHandoffs * forecast_.unheld()) {
    return std::nullopt;
  }
  return idle_pods_[*next];
}

bool Line::GoesOn(uint32_t index) {
  const Place place = PlaceOf(index);
  place.queue.SetWaiting(place.slot, true, forecast_.Burst(index));
  const auto next = Next();
  place.queue.SetWaiting(place.slot, false, forecast_.Burst(index));
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

Instant Line::NextRefill() const {
  return demand_.idle_may_go() ? std::min(queue_.NextRefill(), idle_queue_.NextRefill())
                               : queue_.NextRefill();
}

void Line::Describe(uint32_t index, Instant now, bool requester_holds, PodStatus& status) {
  const Pod& pod = roster_.pod(index);
  const Place place = PlaceOf(index);
  status.spec = queue_.spec(index);
  status.waiting = pod.waiting_since != kNever;
  status.throttled = status.waiting && now < place.queue.MayGoAt(place.slot);
  const bool others = requester_holds || demand_.anybody_waits() || !demand_.idle_may_go();
  status.paused = pod.idle_priority() && status.waiting && others;
  status.fluid = pod.idle_priority() && others ? policy::Share(0) : place.queue.Fluid(place.slot);
  status.lag = place.queue.Lag(place.slot);
  status.owed_of_request = place.queue.requests().Owed(place.slot);
  status.met = pod.met;
  status.burst = Duration(pod.burst_ns);
  status.usual = Duration(pod.usual_ns);
  status.overrun = Duration(pod.overrun_ns);
  status.saturating = pod.saturating;
}

bool Line::Enter(uint32_t index) {
  Pod& pod = roster_.pod(index);
  if (pod.waiting_since != kNever) return false;
  const Place place = PlaceOf(index);
  if (pod.rests_since != kNever) {
    place.queue.CapLag(place.slot, place.queue.fluid().Credit(place.slot));
  }
  demand_.SetResting(pod, kNever);
  pod.waiting_since = turn_.now;
  demand_.Count(pod, 1);
  place.queue.SetActive(place.slot, true);
  // A gang stands there while it is ranked only (GangLine).
  const Duration burst = forecast_.Burst(index);
  if (pod.gang) {
    place.queue.SetWork(place.slot, true, burst);
  } else if (pod.saturating || pod.idle_priority()) {
    // One that had more to do when its token ended does not come from a pause.
    place.queue.SetWaiting(place.slot, true, burst, {}, WaitsSince(index));
  } else {
    const Duration usual = pod.usual_ns != 0 ? Duration(pod.usual_ns) : burst;
    place.queue.SetWaiting(place.slot, true, burst, {usual, forecast_.unheld()}, WaitsSince(index));
  }
  Want(index);
  return true;
}

void Line::Leave(uint32_t index, bool holds) {
  Pod& pod = roster_.pod(index);
  if (pod.waiting_since == kNever) return;
  demand_.Count(pod, -1);
  pod.waited_ns += Nanos(turn_.now - pod.waiting_since);
  if (holds) NoteWait(index);
  pod.waiting_since = kNever;
  wanting_.Erase(index);
  const Place place = PlaceOf(index);
  if (pod.gang) {
    place.queue.SetWork(place.slot, false, forecast_.Burst(index));
  } else {
    place.queue.SetWaiting(place.slot, false, forecast_.Burst(index));
  }
  if (!holds) Rest(index);
}

policy::WaitsSince Line::WaitsSince(uint32_t index) const {
  return {roster_.pod(index).waiting_since, forecast_.unheld()};
}

// It is served: in time, or late.
void Line::NoteWait(uint32_t index) {
  const Duration latency = queue_.spec(index).latency;
  if (latency == Duration(0)) return;
  Pod& pod = roster_.pod(index);
  ++pod.met.waits;
  if (turn_.now - pod.waiting_since <= latency) return;
  ++pod.met.late;
  pod.met.ahead += queue_.deadlines().WasAhead(index) ? 1 : 0;
}

void Line::Wake(uint32_t pod) {
  const Place place = PlaceOf(pod);
  place.queue.SetActive(place.slot, true);
  demand_.SetResting(roster_.pod(pod), kNever);
}

void Line::ForgetRested() {
  while (const auto rested = demand_.TakeRested()) {
    const Place place = PlaceOf(*rested);
    place.queue.SetActive(place.slot, false);
  }
}

void Line::Want(uint32_t index) {
  const Place place = PlaceOf(index);
  const bool limited = queue_.spec(index).limit < policy::kWhole;  // few are: spares the division
  wanting_.Set(index, limited ? place.queue.MayGoAt(place.slot) : Instant{}, turn_.now);
}

void Line::Pass(Duration passed, uint32_t holder) {
  if (holder == Roster::kNobody) return;
  const Pod& pod = roster_.pod(holder);
  if (uncontended_.pod != holder || uncontended_.grants != pod.grants) {
    uncontended_ = {.pod = holder, .grants = pod.grants};
  }
  if (passed <= Duration(0)) return;
  const Instant until = wanting_.OthersSince(holder, turn_.now);
  const Instant from = turn_.now - passed;
  uncontended_.left += std::max(Duration(0), std::min(until, turn_.now) - from);
}

void Line::Charge(uint32_t index, Duration held) {
  Pod& pod = roster_.pod(index);
  const Place place = PlaceOf(index);
  place.queue.Charge(place.slot, held, turn_.now);
  pod.held_ns += Nanos(held);
  Duration uncontended{0};
  if (index == uncontended_.pod) {
    uncontended = std::clamp(held, -uncontended_.charged, uncontended_.left);
    uncontended_.left -= uncontended;
    uncontended_.charged += uncontended;
  }
  if (pod.waiting_since != kNever) Want(index);  // what its limit allows has changed
  turn_.Emit(Charged{pod.id, held, place.queue.LimitFullAt(place.slot), uncontended});
}

void Line::ChargeAside(uint32_t index, Duration held) {
  Wake(index);
  Charge(index, held);
  if (roster_.pod(index).waiting_since == kNever) Rest(index);
}

Duration Line::LeastQuota(uint32_t index) const {
  const Pod& pod = roster_.pod(index);
  if (queue_.requests().MustStay(index)) return Duration::max();
  const Duration least = policy::Guarantee::kLeastHandoffs * forecast_.unheld();
  return std::min(pod.saturating ? least : std::max(least, forecast_.Burst(index)),
                  options_.quota_min);
}

Duration Line::Quota(uint32_t index) const {
  const Pod& pod = roster_.pod(index);
  Duration wanted = std::max(forecast_.BaseQuota(), Duration(pod.burst_ns));
  Duration allowed = Allowance(index);
  // Where others wait, many small limits must not chop the GPU's time into hand-offs.
  const policy::Share limit = queue_.spec(index).limit;
  const bool others_wait = demand_.others_wait(pod);
  if (others_wait && forecast_.Unknown(index)) {
    return std::max(kQuotaLeast, std::min(forecast_.Burst(index), allowed));
  }
  if (others_wait && limit < policy::kWhole && !pod.idle_priority()) {
    allowed += Duration(policy::ServedIn(Nanos(kOverdraw), limit));
    wanted = std::max(wanted, kLimitedFactor * options_.quota_min);
  }
  return std::max(kQuotaLeast, std::min({wanted, options_.quota_max, allowed}));
}

Instant Line::EndForDeadline(uint32_t index, Instant granted_at) const {
  const auto next = queue_.deadlines().Next(forecast_.Handover(index));
  if (next.ends == kNever) return kNever;
  // Who has an earlier one itself has first what it came for.
  const bool earlier = queue_.deadlines().Deadline(index) < next.deadline;
  return earlier ? std::max(next.ends, granted_at + forecast_.Burst(index)) : next.ends;
}

Duration Line::CutForDue(uint32_t index, Duration quota) const {
  const Pod& pod = roster_.pod(index);
  Duration due = queue_.NextDue();
  if (const Instant ends = EndForDeadline(index, turn_.now); ends != kNever) {
    due = std::min(due, ends - turn_.now);
  }
  if (due >= quota || pod.gang || pod.idle_priority()) return quota;
  return std::min(quota, std::max(LeastQuota(index), due));
}

}  // namespace baton::scheduler
