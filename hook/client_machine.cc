#include "hook/client_machine.h"

namespace baton::hook {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using wire::Phase;

// How often the close of a running quota is reckoned again once its end is near: half way to it,
// within these.
constexpr Duration kRecheckMin = microseconds(100);
constexpr Duration kRecheckMax = microseconds(500);
// Before Attached has told it.
constexpr Duration kIdleDefault = milliseconds(2);
// A token is kept for `idle`, halved this often at most, once so many pauses in turn were longer.
constexpr int kIdleHalvingsMax = 5;
constexpr int kLongPauses = 2;
// The bound on the backlog is this many times as high without a rival.
constexpr int kAloneBacklog = 3;
// ... but for so long after a token was cut: who it was cut for may come again, and waits for all
// that is in flight then.
constexpr Duration kCutMatters = milliseconds(1000);
// Who leaves early closes its gate so long before its work ends: the next token is to be there.
constexpr Duration kLeaveBefore = microseconds(300);
constexpr int kLeaveNeededMax = 10'000;
// A probe that ends this soon found the GPU idle already.
constexpr Duration kProbeGrace = microseconds(200);
// Drains of late that took longer say no more about the next one: it may really be stuck.
constexpr Duration kDrainsMost = std::chrono::seconds(2);
constexpr int kReopenDoublings = 5;
// So long a thread that is woken for a single launch may take.
constexpr Duration kSingleWait = milliseconds(2);

uint64_t ToWire(Duration d) { return d.count() > 0 ? static_cast<uint64_t>(d.count()) : 0; }

template <class T>
T Min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
T Max(T a, T b) {
  return a < b ? b : a;
}

}  // namespace

ClientMachine::ClientMachine(const ClientOptions& options, Instant now)
    : options_(options),
      heartbeat_(options.heartbeat),
      idle_(kIdleDefault),
      open_after_(options.open_after),
      stuck_after_(options.stuck_after),
      away_since_(now),
      stuck_reopen_(options.stuck_reopen) {}

Effects ClientMachine::Step(Instant now, const Event& event, const Observation& seen) {
  changed_ = false;
  late_ = seen.late;
  cut_ = now < cut_until_;
  switch (event.kind) {
    case EventKind::kDisconnected:
      attached_ = false;
      [[fallthrough]];
    case EventKind::kAway:
      if (away_since_ == kNever) away_since_ = now;
      break;
    case EventKind::kAttached:
      OnAttached(now, event.attached, seen);
      break;
    case EventKind::kToken:
      OnToken(now, event.token, seen);
      break;
    case EventKind::kWord:
      OnWord(now, event.drained_at, seen);
      break;
    case EventKind::kSync:
      away_since_ = kNever;
      changed_ = true;
      break;
    case EventKind::kMemory:
      changed_ = true;
      break;
    case EventKind::kParked:
      OnParked(now);
      break;
    case EventKind::kFinished:
      OnFinished(now, seen);
      break;
    case EventKind::kExit:
      if (phase_ == Phase::kHolding) Drain(now);
      break;
    case EventKind::kTimer:
      break;
  }
  OnTimer(now, seen);

  open_ = unmanaged_ || (attached_ && !gated_) || (phase_ == Phase::kHolding && !probing_);
  Effects effects;
  if (attached_ && (changed_ || now >= next_heartbeat_)) {
    effects.send = true;
    effects.state = Report(now, seen);
    next_heartbeat_ = now + heartbeat_;
  }
  effects.open = open_;
  effects.watch = phase_ == Phase::kDraining || probing_;
  effects.wake = Wake(now, seen);
  return effects;
}

void ClientMachine::OnAttached(Instant now, const wire::Attached& a, const Observation& seen) {
  attached_ = true;
  away_since_ = kNever;
  changed_ = true;
  if (a.heartbeat_ns > 0)
    heartbeat_ = Max(DurationFromNanos(a.heartbeat_ns), Duration(milliseconds(1)));
  if (a.idle_ns > 0) idle_ = DurationFromNanos(a.idle_ns);
  if (a.backlog_ns > 0) backlog_bound_ = DurationFromNanos(a.backlog_ns);
  late_backlog_ = DurationFromNanos(a.late_backlog_ns);
  if (a.open_after_ns > 0) open_after_ = DurationFromNanos(a.open_after_ns);
  gang_ = a.gang;
  stuck_after_ = a.gang ? options_.stuck_after_gang : options_.stuck_after;
  const bool ungated_before = unmanaged_ || !gated_;
  if (unmanaged_) {
    unmanaged_ = false;
    unmanaged_time_ += now - unmanaged_since_;
  }
  gated_ = a.gated;
  if (!gated_ || ungated_before) ahead_ = {};
  if (!gated_) {
    if (phase_ != Phase::kIdle) Settle(now, seen);
    phase_ = Phase::kIdle;
    probing_ = false;
  } else if (ungated_before) {
    // What was launched without a token may still run: declared, and drained before anything else.
    if (phase_ != Phase::kHolding && phase_ != Phase::kDraining) granted_at_ = now;
    phase_ = Phase::kDraining;
    drain_since_ = now;
    probing_ = overtime_ = false;
  }
}

void ClientMachine::OnToken(Instant now, const wire::Token& t, const Observation& seen) {
  away_since_ = kNever;
  if (t.epoch < epoch_ || (t.epoch == epoch_ && t.rev <= rev_)) return;
  if (t.after_client != 0 && t.quota_ns > 0 && phase_ != Phase::kIdle) {
    if (phase_ == Phase::kWaiting && gated_ && !unmanaged_ && t.epoch > ahead_.epoch) ahead_ = t;
    return;
  }
  if (t.epoch >= ahead_.epoch) ahead_ = {};
  if (t.epoch > epoch_) handoff_ = Duration(0);
  epoch_ = t.epoch;
  rev_ = t.rev;
  contended_ = t.contended;
  changed_ = true;
  if (!gated_ || unmanaged_ || phase_ == Phase::kIdle) return;
  NoteCut(now, DurationFromNanos(t.quota_ns));
  if (t.quota_ns > 0) {
    Grant(now, t, seen);
  } else if (phase_ == Phase::kHolding) {
    Drain(now);
  }
}

void ClientMachine::OnWord(Instant now, Instant drained_at, const Observation& seen) {
  wire::Token token = ahead_;
  ahead_ = {};
  token.after_client = 0;
  if (phase_ != Phase::kWaiting || token.epoch == 0) return;
  OnToken(now, token, seen);
  const bool tells = epoch_ == token.epoch && drained_at != Instant{} && drained_at <= now;
  if (tells) handoff_ = Max(now - drained_at, Duration(1));
}

// A token that is held is to be over after `left` from now on.
void ClientMachine::NoteCut(Instant now, Duration left) {
  const bool holds = phase_ == Phase::kHolding && !overtime_ && !single_ && !gang_;
  if (holds && now + left < deadline_ - backlog_bound_) {
    cut_ = true;
    cut_until_ = now + kCutMatters;
  }
}

void ClientMachine::Grant(Instant now, const wire::Token& t, const Observation& seen) {
  if (phase_ == Phase::kWaiting) {
    waited_ += now - waiting_since_;
    granted_at_ = now;
  }
  if (phase_ != Phase::kHolding) {
    last_active_ = now;
    launches_before_ = seen.launches;
  }
  phase_ = Phase::kHolding;
  overtime_ = false;
  quota_from_ = now;
  deadline_ = now + DurationFromNanos(t.quota_ns);
  single_ = DurationFromNanos(t.quota_ns) <= wire::kSingleLaunch;
  single_from_ = seen.launches;
  if (single_) deadline_ = now + kSingleWait;
}

void ClientMachine::OnParked(Instant now) {
  if (probing_) {  // not idle after all
    probing_ = false;
    LearnPause(now - last_active_);
    last_active_ = now;
  }
  if (phase_ == Phase::kDraining && leave_.now) {  // it should have stayed
    leave_.now = false;
    leave_.pauses = 0;
    leave_.needed = Min(leave_.needed * 4, kLeaveNeededMax);
  }
  if (phase_ != Phase::kIdle || !gated_ || unmanaged_) return;
  phase_ = Phase::kWaiting;
  waiting_since_ = now;
  changed_ = true;
  if (returned_at_ != Instant{}) LearnPause(now - last_active_);
  returned_at_ = Instant{};
}

// A pause in which the token was not kept to the end, or not meant to be, was so long.
void ClientMachine::LearnPause(Duration pause) {
  Pauses& seen = pauses_[contended_];
  const bool short_one = pause < IdleMost();
  if (contended_) leave_.pauses = short_one ? 0 : Min(leave_.pauses + 1, kLeaveNeededMax);
  if (short_one) {
    seen.halvings = Max(seen.halvings - 1, 0);
    seen.in_turn = 0;
  } else if (++seen.in_turn >= kLongPauses) {
    seen.halvings = Min(seen.halvings + 1, kIdleHalvingsMax);
    seen.in_turn = 0;
  }
}

// Its work ends soon, and after that there is nothing to wait for. Not where another rank may have
// launched what this one is still to launch.
bool ClientMachine::Leaves(const Observation& seen) const {
  return contended_ && !gang_ && leave_.pauses >= leave_.needed && !probing_ && !overtime_ &&
         !single_ && seen.parked + seen.pacing == 0 && seen.launches != launches_before_ &&
         seen.backlog > Duration(0);
}

void ClientMachine::Drain(Instant now) {
  phase_ = Phase::kDraining;
  drain_since_ = now;
  probing_ = false;
  overtime_ = false;
  leave_.now = false;
  changed_ = true;
}

// The end of a hold: nothing of this client runs on the GPU.
void ClientMachine::Settle(Instant now, const Observation& seen) {
  if (phase_ == Phase::kHolding || phase_ == Phase::kDraining) {
    held_ += now - granted_at_;
    drained_at_ = now;
  }
  phase_ = seen.parked + seen.pacing > 0 ? Phase::kWaiting : Phase::kIdle;
  if (phase_ == Phase::kWaiting) waiting_since_ = now;
  probing_ = overtime_ = false;
  stuck_reopen_ = options_.stuck_reopen;
  reopened_ = 0;
  changed_ = true;
}

void ClientMachine::OnFinished(Instant now, const Observation& seen) {
  if (phase_ == Phase::kDraining) {
    const bool left = leave_.now;
    drains_ = Min(Max(now - drain_since_, drains_ - drains_ / 8), kDrainsMost);
    Settle(now, seen);
    if (left && phase_ == Phase::kIdle) {
      last_active_ = now;
      returned_at_ = now;
    }
  } else if (phase_ == Phase::kHolding && probing_) {
    // What matters is how long it has been idle: that begins when the work ends.
    if (seen.parked > 0 || now - probe_at_ > kProbeGrace) {
      probing_ = false;
      last_active_ = now;
      return;
    }
    Settle(now, seen);
    if (phase_ == Phase::kIdle) returned_at_ = now;
  }
}

Duration ClientMachine::backlog_bound() const {
  if (!gated_) return Duration(0);
  if (phase_ != Phase::kHolding) return backlog_bound_;
  // No further ahead than the token is long: those that let a rank of a gang catch up are short.
  Duration bound = backlog_bound_;
  if (!cut_ && !contended_) bound = kAloneBacklog * backlog_bound_;
  if (!cut_ && contended_ && late_) bound = Max(bound, late_backlog_);
  return Max(Duration(1), Min(bound, deadline_ - quota_from_));
}

Duration ClientMachine::IdleMost() const {
  return contended_ ? idle_ : idle_ * options_.lazy_factor;
}

Duration ClientMachine::IdleAfter() const {
  return IdleMost() / (1 << pauses_[contended_].halvings);
}

Duration ClientMachine::StuckAfter(const Observation& seen) const {
  const Duration after = Max(stuck_after_, Max(4 * seen.longest, 2 * drains_));
  return after * (1 << Min(reopened_, kReopenDoublings));
}

// The gate closes early by the predicted backlog, so that the drain ends about when the quota
// does, but never before half of the quota.
Instant ClientMachine::CloseAt(const Observation& seen) const {
  if (overtime_) return deadline_;
  if (single_) return seen.launches != single_from_ ? quota_from_ : deadline_;
  const Instant half = quota_from_ + (deadline_ - quota_from_) / 2;
  return Max(half, deadline_ - Max(seen.backlog, Duration(0)));
}

void ClientMachine::OnTimer(Instant now, const Observation& seen) {
  if (phase_ == Phase::kHolding) {
    if (seen.launches != launches_seen_) {
      launches_seen_ = seen.launches;
      last_active_ = now + Max(seen.backlog, Duration(0));
    }
    if (now >= CloseAt(seen)) {
      Drain(now);
    } else if (Leaves(seen) && now >= last_active_ - kLeaveBefore) {
      Drain(now);
      leave_.now = true;
    } else if (!probing_ && !overtime_ && now >= last_active_ + IdleAfter()) {
      if (seen.parked > 0) {  // the grant has woken a thread that has not launched yet
        last_active_ = now;
      } else {
        probing_ = true;
        probe_at_ = now;
      }
    }
  } else if (phase_ == Phase::kDraining && seen.parked > 0) {
    if (seen.busy_ns != busy_seen_) parked_since_ = kNever;  // something has ended
    if (parked_since_ != kNever && now - parked_since_ >= StuckAfter(seen)) {
      // Work on the GPU waits for a launch that is parked here. Still the holder, and charged.
      phase_ = Phase::kHolding;
      overtime_ = true;
      single_ = false;
      quota_from_ = now;
      deadline_ = now + stuck_reopen_;
      last_active_ = now;
      stuck_reopen_ = Min(stuck_reopen_ * 2, Duration(std::chrono::seconds(1)));
      ++reopened_;
      changed_ = true;
    }
  }
  // A thread that waited for the work's end is parked at once then, before that end is seen here:
  // what counts is for how long it has been.
  if (phase_ != Phase::kDraining || seen.parked == 0) {
    parked_since_ = kNever;
  } else if (parked_since_ == kNever) {
    parked_since_ = now;
  }
  busy_seen_ = seen.busy_ns;
  // A launch that was parked when the gate closed for good, or during a reconnect.
  if (phase_ == Phase::kIdle && seen.parked > 0 && gated_ && !unmanaged_) OnParked(now);

  if (options_.away == wire::AwayMode::kOpen && away_since_ != kNever && !unmanaged_ &&
      (phase_ == Phase::kIdle || phase_ == Phase::kWaiting) && now - away_since_ >= open_after_) {
    if (phase_ == Phase::kWaiting) waited_ += now - waiting_since_;
    phase_ = Phase::kIdle;
    ahead_ = {};
    unmanaged_ = true;
    unmanaged_since_ = now;
  }
}

Instant ClientMachine::Wake(Instant now, const Observation& seen) const {
  Instant wake = attached_ ? next_heartbeat_ : kNever;
  if (phase_ == Phase::kHolding) {
    // Far from the end it is enough to look again when the largest backlog could matter.
    const Instant near = deadline_ - Max(backlog_bound(), seen.backlog);
    const Instant close = CloseAt(seen);
    Instant look = now < near && !single_
                       ? Min(near, close)
                       : Min(close, now + Max(kRecheckMin, Min((close - now) / 2, kRecheckMax)));
    if (overtime_) look = deadline_;
    wake = Min(wake, Max(look, now));
    if (!probing_ && !overtime_) wake = Min(wake, Max(last_active_ + IdleAfter(), now));
    if (Leaves(seen)) wake = Min(wake, Max(last_active_ - kLeaveBefore, now));
  } else if (phase_ == Phase::kDraining && seen.parked > 0) {
    wake = Min(wake, parked_since_ + StuckAfter(seen));
  }
  if (options_.away == wire::AwayMode::kOpen && away_since_ != kNever && !unmanaged_ &&
      (phase_ == Phase::kIdle || phase_ == Phase::kWaiting)) {
    wake = Min(wake, Max(away_since_ + open_after_, now));
  }
  return wake;
}

wire::State ClientMachine::Report(Instant now, const Observation& seen) {
  const bool holds = phase_ == Phase::kHolding || phase_ == Phase::kDraining;
  wire::State s;
  s.gpu = options_.gpu;
  s.seq = ++seq_;
  s.phase = phase_;
  s.epoch = epoch_;
  s.rev = rev_;
  s.held_ns = ToWire(held_ + (holds ? now - granted_at_ : Duration(0)));
  // Work of several streams at once is measured once for each.
  const bool all_held = gated_ && unmanaged_time_ == Duration(0) && !unmanaged_;
  s.busy_ns = all_held ? Min(seen.busy_ns, s.held_ns) : seen.busy_ns;
  s.launches = seen.launches;
  s.waited_ns = ToWire(waited_ + (phase_ == Phase::kWaiting ? now - waiting_since_ : Duration(0)));
  s.unmanaged_ns = ToWire(unmanaged_time_ + (unmanaged_ ? now - unmanaged_since_ : Duration(0)));
  s.memory_bytes = seen.memory_bytes;
  s.backlog_ns = ToWire(seen.backlog);
  s.copies_bytes = seen.copies_bytes;
  s.movable_in = seen.movable_in;
  s.memory_wanted = seen.memory_wanted;
  if (!holds && drained_at_ != Instant{})
    s.drained_ns = ToWire(Max(now - drained_at_, Duration(1)));
  s.handoff_ns = ToWire(handoff_);
  s.switch_ns = seen.switch_ns;
  return s;
}

}  // namespace baton::hook
