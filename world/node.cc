#include "world/node.h"

#include <algorithm>
#include <string>

namespace baton::world {

Node::Node(WorldState& world)
    : world_(world),
      keeping_(world.plan.pods.size(), std::vector<Keeping>(world.plan.gpus)),
      meters_(world.plan.gpus) {
  if (!world.plan.relay) return;
  for (uint32_t g = 0; g < world.plan.gpus; ++g) {
    guards_.emplace_back(world.options.scheduler.drain_timeout);
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

void Node::Gone(const Process& p) {
  SetKeeps(p, false);
  SeenOf(p).last.reset();
  if (!guards_.empty()) guards_[p.gpu].Gone(world_.now, p.index);
}

std::optional<scheduler::Measured> Node::Said(const Process& p, const wire::State& state) {
  Seen& seen = SeenOf(p);
  const scheduler::Measured measured = meters_[p.gpu].Said(world_.now, state, seen.meter);
  bool passed = true;
  if (!guards_.empty()) {
    scheduler::RelayGuard& guard = guards_[p.gpu];
    passed = guard.Said(world_.now, p.index, state);
    if (const auto wrong = guard.Invariants(world_.now)) world_.Violation("relay", *wrong);
  }
  if (!passed) return std::nullopt;
  const bool last = state.epoch == seen.epoch && state.rev >= seen.rev;
  if (last && scheduler::IsDrained(state.phase)) SetKeeps(p, false);
  seen.last = Saying{state, measured, world_.now};
  return measured;
}

bool Node::Pass(const Process& p, const wire::Token& token) {
  Seen& seen = SeenOf(p);
  using Verdict = scheduler::RelayGuard::Verdict;
  const Verdict verdict =
      guards_.empty() ? Verdict::kPass : guards_[p.gpu].Judge(world_.now, p.index, token);
  if (verdict == Verdict::kKeep) seen.meter.Kept(token);
  if (verdict != Verdict::kPass) return false;
  seen.meter.Sent(world_.now, token);
  meters_[p.gpu].Sent(world_.now, token);
  // It is told to stop what it claims, by the number that it named.
  if (token.quota_ns == 0 && token.epoch != seen.epoch) return true;
  if (token.epoch < seen.epoch) return true;
  seen.epoch = token.epoch;
  seen.rev = token.rev;
  if (token.quota_ns == 0) return true;
  SetKeeps(p, true);
  seen.last.reset();  // it was about an earlier word
  return true;
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
  if (guards_.empty()) meters_.assign(meters_.size(), {});
}

Duration Node::Kept(size_t pod, uint32_t gpu) const {
  const Keeping& keeping = keeping_[pod][gpu];
  return keeping.before + (keeping.processes > 0 ? world_.now - keeping.since : Duration(0));
}

void Node::SetKeeps(const Process& p, bool keeps) {
  Seen& seen = SeenOf(p);
  if (seen.keeps == keeps) return;
  seen.keeps = keeps;
  Keeping& keeping = keeping_[p.pod][p.gpu];
  if (keeps) {
    if (keeping.processes++ == 0) keeping.since = world_.now;
  } else if (--keeping.processes == 0) {
    keeping.before += world_.now - keeping.since;
  }
}

}  // namespace baton::world
