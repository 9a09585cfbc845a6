#include "world/node.h"

#include <algorithm>
#include <string>

namespace baton::world {

Node::Node(WorldState& world)
    : world_(world),
      keeping_(world.plan.pods.size(), std::vector<Keeping>(world.plan.gpus)),
      meters_(world.plan.gpus),
      handovers_(world.plan.gpus) {
  MakeGuards();
}

void Node::MakeGuards() {
  guards_.clear();
  for (uint32_t g = 0; world_.plan.relay && g < world_.plan.gpus; ++g) {
    guards_.emplace_back(world_.options.scheduler.drain_timeout);
  }
}

Node::Seen& Node::SeenOf(const Process& p) {
  if (p.index >= seen_.size()) seen_.resize(world_.processes.size());
  return seen_[p.index];
}

void Node::Attach(const Process& p) {
  SeenOf(p);
  if (!guards_.empty()) guards_[p.gpu].Attach(p.index, world_.Name(p.pod));
}

void Node::Served(const Process& p) {
  if (!guards_.empty()) guards_[p.gpu].Served(world_.now, p.index);
}

void Node::Disconnect(const Process& p) {
  SeenOf(p).last.reset();
  if (!guards_.empty()) guards_[p.gpu].Disconnect(p.index);
}

Node::Held Node::Gone(const Process& p) {
  // Its last word may have been read. If not, the daemon tells the next one.
  std::vector<scheduler::Handover::Next> begun =
      handovers_[p.gpu].Gone(p.index + 1, p.word.began_epoch, p.word.began_at);
  std::erase_if(begun, [&](const auto& next) {
    return world_.processes[next.client - 1]->word.began_epoch != next.token.epoch;
  });
  const Instant end = begun.empty() ? kNever : EndBefore(begun);
  SetKeeps(p, false, std::min(end, world_.now));
  SeenOf(p).last.reset();
  if (!guards_.empty()) guards_[p.gpu].Gone(world_.now, p.index);
  const scheduler::HoldMeter& meter = SeenOf(p).meter;
  const Held held{meter.epoch(), meter.HeldUntil(end)};
  for (const auto& next : begun) Began(next, end);
  return held;
}

void Node::Began(const scheduler::Handover::Next& next, Instant at) {
  const Process& q = *world_.processes[next.client - 1];
  if (!guards_.empty()) guards_[q.gpu].Began(world_.now, q.index, next.token);
  if (next.gone) return;
  for (const wire::Token& token : next.Passed()) NotePassed(q, token, at);
  if (next.over_at == kNever) return;
  SeenOf(q).meter.Over(next.token.epoch, next.held);
  SetKeeps(q, false, at + next.held);
}

std::optional<scheduler::Measured> Node::Said(const Process& p, const wire::State& state) {
  Seen& seen = SeenOf(p);
  const auto* over =
      handovers_[p.gpu].Heard(world_.now, p.index + 1, state, p.word.began_epoch, p.word.began_at);
  std::vector<scheduler::Handover::Next> begin;
  const Instant end = EndOf(p, state, begin);
  scheduler::Measured measured = meters_[p.gpu].Said(end, state, seen.meter);
  if (over != nullptr) measured.held = over->held;
  bool passed = true;
  if (!guards_.empty()) {
    scheduler::RelayGuard& guard = guards_[p.gpu];
    passed = guard.Said(world_.now, p.index, state);
    if (const auto wrong = guard.Invariants(world_.now)) world_.Violation("relay", *wrong);
  }
  if (!passed) return std::nullopt;
  SeeBegun(p, state);
  // While no relay watched it, it alone knows when it drained.
  const Duration ago = DurationFromNanos(std::exchange(seen.unseen, false) ? state.drained_ns : 0);
  const Instant ended = end - ago;
  const bool last = state.epoch == seen.epoch && state.rev >= seen.rev;
  if (last && scheduler::IsDrained(state.phase)) SetKeeps(p, false, ended);
  // Where frames are late, an older one may come last.
  if (!seen.last || state.seq >= seen.last->state.seq) {
    seen.last = Saying{state, measured, world_.now};
  }
  for (const auto& next : begin) {
    Began(next, end);
    const Process& q = *world_.processes[next.client - 1];
    if (q.word.began_epoch == next.token.epoch) continue;
    // The word that it waits for has not come, or it has not woken up yet.
    plain_.push_back({static_cast<uint32_t>(next.client - 1), next.token});
    plain_.back().token.after_client = 0;
  }
  return measured;
}

// An honest process' word tells when it began what it was sent ahead, also where the one before it
// never ends here: its relay has ended, or that one, too, was sent ahead and had drained before.
void Node::SeeBegun(const Process& p, const wire::State& state) {
  Seen& seen = SeenOf(p);
  if (state.epoch <= seen.epoch || p.word.began_epoch != state.epoch) return;
  if (world_.PlanOf(p).hostile) return;
  seen.epoch = state.epoch;
  seen.rev = 0;
  SetKeeps(p, true, p.word.began_at);
}

// When the hold ends that the State may end, and who begins then.
Instant Node::EndOf(const Process& p, const wire::State& state,
                    std::vector<scheduler::Handover::Next>& next) {
  scheduler::Handover& handover = handovers_[p.gpu];
  const Instant end = world_.now;
  if (!handover.AwaitsEnd(p.index + 1, state) || !SeenOf(p).meter.Ends(state)) return end;
  next = handover.Take(p.index + 1, state);
  return EndBefore(next);
}

Instant Node::EndBefore(const std::vector<scheduler::Handover::Next>& next) const {
  scheduler::Succession after{world_.now};
  for (const auto& one : next) {
    const Word& word = world_.processes[one.client - 1]->word;
    after.began = std::min(after.began, BeganAt(one, word.began_epoch, word.began_at, world_.now));
    after.over = std::max(after.over, one.over_at);
  }
  return after.EndOfHold(world_.now);
}

bool Node::Pass(const Process& p, wire::Token& token) {
  SeenOf(p);
  if (token.after_client != 0) {
    const scheduler::HoldMeter& before = SeenOf(*world_.processes[token.after_client - 1]).meter;
    // Where the hold before is not measured, this one's beginning would not be known.
    if (!before.Measures(token.after_epoch)) {
      SeenOf(p).meter.Kept(token);
      return false;
    }
    if (before.HasDrained(token.after_epoch, token.after_rev)) token.after_client = 0;
  }
  Seen& seen = SeenOf(p);
  using Verdict = scheduler::RelayGuard::Verdict;
  const Verdict verdict =
      guards_.empty() ? Verdict::kPass : guards_[p.gpu].Judge(world_.now, p.index, token);
  if (verdict == Verdict::kKeep) seen.meter.Kept(token);
  if (verdict != Verdict::kPass) return false;
  handovers_[p.gpu].Passed(world_.now, p.index + 1, token);
  if (token.after_client == 0) {
    NotePassed(p, token, world_.now);
  } else {
    seen.meter.SentAhead(token);
  }
  return true;
}

void Node::NotePassed(const Process& p, const wire::Token& token, Instant at) {
  Seen& seen = SeenOf(p);
  seen.meter.Sent(at, token, meters_[p.gpu].watches(token.epoch));
  meters_[p.gpu].Sent(at, token);
  // It is told to stop what it claims, by the number that it named.
  if (token.quota_ns == 0 && token.epoch != seen.epoch) return;
  if (token.epoch < seen.epoch) return;
  const bool again = token.epoch == seen.epoch;
  const bool told = again && seen.rev == 0 && token.rev == 1;
  seen.epoch = token.epoch;
  seen.rev = token.rev;
  if (token.quota_ns == 0) return;
  if (told) return;  // its word has told already
  Keeping& keeping = keeping_[p.pod][p.gpu];
  if (again && keeping.processes == 0) keeping.paused += at - keeping.until;
  SetKeeps(p, true, at);
  seen.last.reset();  // it was about an earlier word
}

std::optional<Node::Saying> Node::Last(const Process& p) const {
  return p.index < seen_.size() ? seen_[p.index].last : std::nullopt;
}

void Node::LoseDaemon() {
  for (Seen& seen : seen_) {
    // Of a token that is out the next daemon knows the number, and not what was said about it: to
    // have drained after any of that counts, where it is passed on.
    seen.rev = std::min<uint64_t>(seen.rev, 1);
    if (!guards_.empty()) continue;
    seen.meter = {};
    seen.last.reset();
  }
  if (!guards_.empty()) return;
  meters_.assign(meters_.size(), {});
  handovers_.assign(handovers_.size(), {});
}

void Node::SetDown(bool down) {
  down_ = down;
  if (!down) return;
  for (Seen& seen : seen_) {
    seen.rev = std::min<uint64_t>(seen.rev, 1);
    seen.meter = {};
    seen.last.reset();
    seen.unseen = true;
  }
  meters_.assign(meters_.size(), {});
  handovers_.assign(handovers_.size(), {});
  MakeGuards();
}

Duration Node::Kept(size_t pod, uint32_t gpu) const {
  const Keeping& keeping = keeping_[pod][gpu];
  return keeping.before + (keeping.processes > 0 ? world_.now - keeping.since : Duration(0));
}

void Node::SetKeeps(const Process& p, bool keeps, Instant at) {
  Seen& seen = SeenOf(p);
  if (seen.keeps == keeps) return;
  seen.keeps = keeps;
  Keeping& keeping = keeping_[p.pod][p.gpu];
  if (keeps) {
    if (keeping.processes++ == 0) keeping.since = keeping.until = at;
    return;
  }
  keeping.until = std::max(keeping.until, at);
  if (--keeping.processes == 0) keeping.before += keeping.until - keeping.since;
}

}  // namespace baton::world
