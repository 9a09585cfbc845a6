#include "scheduler/holding.h"

#include <algorithm>

#include "base/check.h"

namespace baton::scheduler {
namespace {

// A renewal is decided so much earlier than it takes to arrive.
constexpr Duration kRenewalMargin = std::chrono::microseconds(500);

}  // namespace

Holding::Holding(const SchedulerOptions& options, Roster& roster, Forecast& forecast, Line& line,
                 NextToken& next, const Turn& turn, uint64_t last_epoch, uint64_t first_epoch)
    : options_(options),
      roster_(roster),
      forecast_(forecast),
      line_(line),
      next_(next),
      turn_(turn),
      first_epoch_(first_epoch) {
  token_.epoch = last_epoch;
}

void Holding::Grant(uint32_t index, Duration quota) {
  Begin(index, NextEpoch(), quota);
  token_.follows = free_since_ == turn_.now;
  const Pod& pod = roster_.pod(index);
  // Once it has left the line: who is due then is somebody else.
  token_.quota = line_.CutForDue(index, quota);
  token_.deadline = turn_.now + token_.quota;
  if (!pod.gang) PlanRenewal(token_.quota);
  token_.contended = line_.demand().contended(index);
  members_.JoinParked();
  BATON_CHECK(pod.gang || !token_.members.empty());
}

void Holding::Begin(uint32_t index, uint64_t epoch, Duration quota) {
  token_.Begin(epoch, index);
  token_.stage = Token::Stage::kOpen;
  Pod& pod = roster_.pod(index);
  if (pod.waiting_since != kNever) token_.waited = turn_.now - pod.waiting_since;
  ++pod.grants;
  line_.Leave(index, true);
  token_.granted_at = turn_.now;
  token_.quota = quota;
  token_.deadline = turn_.now + quota;
}

uint64_t Holding::NextEpoch() const {
  return std::max({token_.epoch + 1, first_epoch_, next_.last_epoch() + 1});
}

void Holding::BeginNext(PodId before) {
  const NextToken next = next_.Take();
  const Pod& pod = roster_.pod(next.pod());
  // It began when the one before had drained, as far as that was measured; the news took a while.
  const Instant at = std::clamp(token_.granted_at + token_.measured, next.sent_at(), turn_.now);
  // Clients that are gone may have held until then. What their node measured counts also where the
  // beginning is known too late, for the holder before was heard late.
  const Duration gone = std::max(next.gone_held(), next.gone_at() - at);
  if (next.clients().empty()) {
    line_.ChargeAside(next.pod(), gone);
    return;
  }
  if (pod.waiting_since == kNever) line_.Wake(next.pod());
  Begin(next.pod(), next.last_epoch(), next.quota());
  token_.granted_at = at;
  token_.ahead_at = next.sent_at();
  token_.ahead_before = next.restored();
  token_.before = before;
  token_.before_until = at;
  token_.measured = std::clamp(gone, Duration(0), turn_.now - at);
  token_.deadline = at + next.quota();
  token_.contended = true;
  if (next.restored()) token_.unwatched = turn_.now - at;
  PlanRenewal(next.quota());
  for (const uint32_t c : next.clients()) {
    Client& client = roster_.client(c);
    client.part = Client::Part::kSent;
    client.sent_at = turn_.now;
    client.lost |= next.recalled();
    const Instant away_since = client.away_since;
    members_.Enlist(c, at);
    if (next.restored()) {
      client.away_since = at;
      client.watched_from = turn_.now;
      client.unwatched = token_.unwatched;
    } else if (away_since != kNever) {  // its link was lost, perhaps before it began
      client.away_since = std::max(away_since, at);
    }
  }
}

void Holding::NoteBegun(uint32_t c, Instant at) {
  if (token_.ahead_at == kNever) return;
  Client& client = roster_.client(c);
  at = std::max(at, token_.ahead_at);
  const bool earlier = at < token_.granted_at;
  const uint32_t before = earlier ? roster_.Find(token_.before) : Roster::kNobody;
  // To a pod that is deleted by now nothing can be given back: what it was charged stays its own.
  if (earlier && before == Roster::kNobody) at = std::max(at, token_.before_until);
  client.joined_at = std::min(client.joined_at, at);
  if (at >= token_.granted_at) return;
  if (at < token_.before_until) {
    line_.ChargeAside(before, at - token_.before_until);
    token_.before_until = at;
  }
  token_.granted_at = at;
  // The next daemon is to know since when it is charged.
  members_.Store(c);
}

void Holding::TellNext(bool said) {
  const Pod& pod = roster_.pod(token_.pod);
  for (const uint32_t c : token_.members) {
    const Client& client = roster_.client(c);
    // Who has attached again is told nothing before it has said what it has.
    if (!client.heard()) return;
    if (client.part == Client::Part::kSent && (client.lost || !said)) members_.Send(c);
  }
  if (token_.closed()) return;
  members_.JoinParked();
  if (pod.removed || pod.held_back) return End();
  if (const Duration cut = line_.CutForDue(token_.pod, token_.quota); cut < token_.quota) {
    token_.EndAt(turn_.now + cut);
    members_.SendToAll();
  }
  // Who came meanwhile and goes first, as where it had found the token out already.
  const auto first = line_.Next();
  if (!first) return;
  if (pod.idle_priority() || line_.queue().MayRevoke(*first, token_.pod)) MakeWay(*first);
}

void Holding::Adopt(uint32_t c, const Adopted& hold) {
  Client& client = roster_.client(c);
  if (!token_.held()) {
    // A token of its own, by this daemon's numbers: what the client says of an epoch never given
    // out here counts for nothing, and what it is told must not look old.
    const bool later = hold.epoch > token_.epoch;
    token_.Begin(later ? NextEpoch() : token_.epoch, client.pod);
    token_.adopted = true;
    token_.granted_at = hold.granted_at;
    token_.charged = hold.charged;
    token_.deadline = turn_.now;
    token_.quota = options_.quota_max;
    token_.Close(turn_.now);
    line_.Wake(client.pod);
    line_.Leave(client.pod, true);
  }
  BATON_CHECK(token_.pod == client.pod);
  if (hold.claimed) token_.claimed_at = std::min(token_.claimed_at, turn_.now);
  client.epoch = hold.epoch;
  client.rev = 0;
  client.told = false;
  client.ahead = false;
  client.part = Client::Part::kConfirmed;
  members_.Enlist(c, hold.joined_at);
}

bool Holding::Drained(uint32_t c, Duration held, Duration pod_held) {
  const Client& client = roster_.client(c);
  members_.Leave(c);
  // The pod has held from its first client's grant to its last one's drain. Each grant takes a
  // while to where the client is measured, so only who measures them all can tell.
  const bool any = held > Duration(0);  // or what it was sent did not reach it
  const Duration since = any ? client.joined_at - token_.granted_at + held : Duration(0);
  Duration most = turn_.now - token_.granted_at;
  if (next_.sent()) {
    // It may have drained long ago; the next one's time is not its own.
    if (pod_held > Duration(0)) most = std::min(most, pod_held);
    most = std::min(most, std::max(Duration(0), next_.measured_at() - token_.granted_at));
  }
  token_.measured = std::max({token_.measured, std::min(since, most), std::min(pod_held, most)});
  const bool last = token_.members.empty() && !roster_.pod(client.pod).gang;
  if (!last && token_.measured > token_.charged) {
    // Now, for after a restart this client has nothing more to claim.
    line_.Charge(token_.pod, token_.measured - token_.charged);
    token_.charged = token_.measured;
  }
  return last;
}

void Holding::Return() {
  const Pod& pod = roster_.pod(token_.pod);
  Duration& measured = token_.measured;
  if (const Duration held = next_.held(); next_.sent() && held > Duration(0)) {
    const Duration own = turn_.now - token_.granted_at - held;
    measured = std::clamp(own, Duration(0), measured);
  }
  // Of a gang's, all of the time was its own, whether it had work here or not.
  if (pod.gang) measured = std::max(measured, turn_.now - token_.granted_at - token_.unwatched);
  line_.Charge(token_.pod, measured - token_.charged);
  forecast_.Learn(token_.pod, measured, std::max(token_.longest, measured - token_.renewed));
  const Duration overrun = token_.granted_at + measured - token_.deadline;
  if (overrun > Duration(0) && !token_.adopted) forecast_.LearnOverrun(token_.pod, overrun);
  if (measured > 2 * token_.quota + options_.quota_max) {
    turn_.Emit(Notice{Notice::Kind::kOverrun, pod.id, ClientId{}, measured - token_.quota});
  }
  turn_.Emit(ClearHolders{token_.epoch});
  token_.Free();
  free_since_ = turn_.now;
}

void Holding::MakeWay(uint32_t index) {
  if (token_.closed() || next_.sent()) return;
  const Pod& by = roster_.pod(index);
  Pod& holder = roster_.pod(token_.pod);
  if (by.idle_priority()) return;  // in nobody's way
  if (holder.idle_priority()) {
    if (!by.gang) GiveWay();  // its coordinator ends it when all of its GPUs are to be kept
    return;
  }
  if (by.gang) {
    if (!token_.contended) members_.SendToAll();
    return;
  }
  policy::FairQueue& queue = line_.queue();
  const bool high = queue.MayRevoke(index, token_.pod);
  const bool early = queue.fluid().served().count() >= next_cut_served_ns_ &&
                     queue.FinishesBefore(index, token_.pod);
  const bool allowed =
      queue.Allowance(index, turn_.now) >= std::min(forecast_.Burst(index), options_.quota_min);
  if (holder.gang) {
    // Ends on all its GPUs or on none: its coordinator sees to it.
    token_.revoked |= high && allowed;
    if (!token_.contended) members_.SendToAll();
    return;
  }
  const Instant early_at = std::max(turn_.now, token_.granted_at + options_.quota_min);
  const Instant due_at = DueAt();
  Instant at = std::min(due_at, early ? early_at : kNever);
  if (high) at = turn_.now;
  if (allowed && at < token_.deadline) {
    token_.EndAt(at);
    ++holder.revocations;
    if (high) {
      turn_.Emit(Notice{Notice::Kind::kRevoked, holder.id, ClientId{}, Duration(0)});
    } else if (at < due_at) {
      next_cut_served_ns_ = Nanos(queue.fluid().served() + forecast_.BaseQuota());
    }
    members_.SendToAll();
  } else if (!token_.contended) {
    members_.SendToAll();  // so that it comes back as soon as its work runs out
  }
}

void Holding::GiveWay() {
  if (token_.closed()) return;
  const auto next = line_.Next();
  const bool now = next && !roster_.pod(*next).idle_priority();
  EndAtOnce(now ? Duration(0) : line_.UntilRefill());
}

// After this time, whatever the holder was promised.
void Holding::EndAtOnce(Duration after) {
  if (token_.deadline - turn_.now <= after) return;
  token_.EndAt(turn_.now + after);
  ++roster_.pod(token_.pod).revocations;
  members_.SendToAll();
}

// When one that waits since a pause, or by a latency, must begin, as far as the holder's token may
// be cut for it; kNever: there is none. What the holder has held is charged.
Instant Holding::DueAt() const {
  if (roster_.pod(token_.pod).idle_priority()) return kNever;
  const Duration due = line_.queue().NextDue();
  const Instant ends = std::min(due == Duration::max() ? kNever : turn_.now + due,
                                line_.EndForDeadline(token_.pod, token_.granted_at));
  if (ends == kNever) return kNever;
  const Duration least = line_.LeastQuota(token_.pod);
  if (least == Duration::max()) return kNever;
  return std::max({turn_.now, ends, token_.granted_at + least});
}

void Holding::EndForGang() {
  if (!token_.held() || token_.closed()) return;
  if (roster_.pod(token_.pod).idle_priority()) return EndAtOnce(Duration(0));
  ++roster_.pod(token_.pod).revocations;
  const Instant least = std::max(turn_.now, token_.granted_at + options_.quota_min);
  token_.EndAt(std::min(token_.deadline, least));
  members_.SendToAll();
}

void Holding::End() {
  token_.deadline = std::min(token_.deadline, turn_.now);
  members_.SendToAll();
}

void Holding::Extend(Duration span) {
  if (token_.closed()) return;
  token_.Extend(span);
  members_.SendToAll();
}

void Holding::Close() {
  if (token_.closed() || token_.deadline <= turn_.now) return;  // they close by themselves
  token_.deadline = turn_.now;
  token_.Close(turn_.now);
  members_.SendToAll();
}

void Holding::LetOn(Duration span, bool all) {
  if (!token_.closed()) return;
  token_.LetOn(turn_.now, turn_.now + span);
  for (const uint32_t c : roster_.pod(token_.pod).clients) {
    if (roster_.client(c).parked()) {
      members_.Join(c);
    } else if (all && roster_.client(c).member()) {
      members_.Send(c);
    }
  }
}

void Holding::Tend() {
  if (!token_.closed() && token_.renew_at <= turn_.now) Renew();
  if (!token_.closed() && token_.deadline <= turn_.now) token_.Close(token_.deadline);
  if (!token_.closed()) return;
  if (token_.ChargeDue(forecast_.grant(), options_.quota_max) <= turn_.now) ChargeProgress();
  members_.WatchDrain();
}

// Shortly before the token ends: the holder competes with those who wait. If it is still the one
// furthest below its share it goes on, without a drain.
void Holding::Renew() {
  token_.renew_at = kNever;
  if (next_.sent()) return;
  const uint32_t index = token_.pod;
  const Pod& holder = roster_.pod(index);
  if (holder.wanting == 0 || holder.gang || holder.held_back) return;
  ChargeProgress();
  if (!line_.GoesOn(index)) return;
  const Duration left = token_.deadline - turn_.now;
  const Duration wanted = line_.demand().anybody_waits() ? line_.Quota(index) : options_.quota_max;
  Duration more = std::min(wanted, line_.Allowance(index) - left);
  if (const Instant due = DueAt(); due != kNever) more = std::min(more, due - token_.deadline);
  if (more <= Duration(0)) return;
  token_.longest = std::max(token_.longest, token_.charged - token_.renewed);
  token_.renewed = token_.charged;
  token_.Extend(more);
  PlanRenewal(more);
  members_.SendToAll();
}

// Decides early enough that an extension arrives before the clients close their gates, which they
// do ahead of the deadline by the work they have in flight.
void Holding::PlanRenewal(Duration span) {
  token_.renew_at = token_.deadline -
                    std::min(span / 2, options_.backlog + 2 * forecast_.grant() + kRenewalMargin);
}

// Charges the holder for what it has held so far, by this side's clock; Return() sets right what
// this estimates. Not for the time that nobody watched, before its clients are heard of.
void Holding::ChargeProgress() {
  const Duration watched = turn_.now - token_.granted_at - token_.unwatched - forecast_.grant();
  const Duration held = std::max(Duration(0), watched) - token_.charged;
  line_.Charge(token_.pod, held);
  token_.charged += held;
}

void Holding::LinkBack(Duration away) {
  if (!token_.held()) return;
  // What its clients said meanwhile is still to come. A drain goes on where it was, so that a link
  // which is cut again and again does not keep a hung kernel alive.
  const Instant now = turn_.now;
  token_.deadline = std::max(token_.deadline, now);
  if (token_.closed()) {
    const Instant still = now - options_.drain_timeout + std::min(options_.drain_timeout, kHearing);
    token_.ended_at = std::max(std::min(now, token_.ended_at + away), still);
  }
  for (const uint32_t c : token_.members) roster_.client(c).hang_reported = false;
}

Instant Holding::wakeup() const {
  if (!token_.closed()) return std::min(token_.renew_at, token_.deadline);
  return std::min(token_.ChargeDue(forecast_.grant(), options_.quota_max), members_.wakeup());
}

void Holding::Describe(GangView& view) const {
  if (!token_.held()) return;
  if (!view.holds) {
    // A kernel that was as long before is waited for.
    const Duration usual(2 * roster_.pod(token_.pod).service_ns);
    view.overdue |=
        token_.closed() && turn_.now - token_.ended_at > std::max(options_.quota_max, usual);
    return;
  }
  view.drained = token_.members.empty();
  view.closed = token_.closed();
  view.revoked = token_.revoked;
  view.ends = line_.EndForDeadline(token_.pod, token_.granted_at);
  for (const uint32_t c : token_.members) {
    const Client& client = roster_.client(c);
    view.done_at = std::max(view.done_at, client.done_at);
    view.stuck |= token_.stage != Token::Stage::kLetOn || client.joined_at < token_.let_on_at;
  }
  for (const uint32_t c : roster_.pod(token_.pod).clients) {
    if (roster_.client(c).parked()) view.parked.push_back(roster_.client(c).id);
  }
}

}  // namespace baton::scheduler
