#include "world/adversary.h"

#include <iterator>

namespace baton::world {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using wire::Phase;

// Numbers at the edges, where code that adds or compares them breaks.
uint64_t Edge(Random& random, uint64_t near) {
  const uint64_t edges[] = {0,
                            1,
                            near,
                            near,
                            near + 1,
                            near == 0 ? 0 : near - 1,
                            uint64_t{1} << 32,
                            (uint64_t{1} << 57) + 1,
                            (uint64_t{1} << 62) - 1};
  return edges[static_cast<size_t>(random.Between(0, std::ssize(edges) - 1))];
}

}  // namespace

Adversary::Mind& Adversary::MindOf(Process& p) {
  if (p.index >= minds_.size()) minds_.resize(world_.processes.size());
  Mind& mind = minds_[p.index];
  if (!mind.known) {
    mind.known = true;
    mind.habit = static_cast<Habit>(p.work.Between(0, kHabits - 1));
    mind.insists = p.work.OneIn(2);
  }
  return mind;
}

void Adversary::Soon(const Process& p, int64_t at_least_us, int64_t at_most_us) {
  Process& who = *world_.processes[p.index];
  ActAfter(who, microseconds(who.work.Spread(at_least_us, at_most_us)));
}

void Adversary::ActAfter(Process& p, Duration time) {
  MindOf(p).acts_at = world_.now + time;
  world_.After(time, What::kAct, p.index, p.connection);
}

void Adversary::Attached(Process& p) {
  Say(p, Phase::kWaiting);
  Soon(p, 50, 100'000);
}

void Adversary::Heard(Process& p, const wire::Token& token) {
  Mind& mind = MindOf(p);
  if (token.epoch >= mind.epoch) {
    mind.epoch = token.epoch;
    mind.rev = token.rev;
    if (p.work.OneIn(3)) {
      clients_.SayWord(p, p.work.OneIn(4) ? Edge(p.work, mind.epoch) : mind.epoch, mind.rev);
    }
  }
  switch (mind.habit) {
    case Habit::kThief:
      return token.quota_ns != 0 ? HangUp(p) : Say(p, Phase::kWaiting);
    case Habit::kClaimer:
      if (token.quota_ns == 0 && mind.claims && !p.work.OneIn(4)) return;  // told to stop
      Say(p, Phase::kWaiting);
      if (mind.insists || p.work.OneIn(2)) ClaimNext(p);
      return;
    case Habit::kSilent:
      return Soon(p, 1'000, 4'000'000);
    case Habit::kWord:
      if (token.quota_ns == 0) return;
      Say(p, Phase::kDraining);
      mind.said_word = false;
      return Soon(p, 300, 5'000);
    case Habit::kAnything:
      return Soon(p, 1, 10'000);
  }
}

void Adversary::Act(Process& p) {
  if (!p.alive || p.stopped || !p.connected) return;
  Mind& mind = MindOf(p);
  if (world_.now != mind.acts_at) return;  // it has thought of something else since
  switch (mind.habit) {
    case Habit::kThief:
      return Say(p, Phase::kWaiting);
    case Habit::kClaimer:
      mind.claims = !mind.claims;
      if (mind.claims) {
        AttachAgain(p);
        mind.epoch = p.work.OneIn(8) ? Edge(p.work, mind.epoch) : mind.epoch;
        Say(p, p.work.OneIn(4) ? Phase::kDraining : Phase::kHolding);
        return Soon(p, 100, 3'000'000);
      }
      Say(p, p.work.OneIn(2) ? Phase::kIdle : Phase::kWaiting);
      if (mind.insists || p.work.OneIn(2)) return ClaimNext(p);
      return Soon(p, 100, 20'000);
    case Habit::kSilent:
      if (!p.work.OneIn(4)) Say(p, Phase::kWaiting);
      return;
    case Habit::kWord:
      mind.said_word = !mind.said_word;
      if (!mind.said_word) return Say(p, Phase::kWaiting);
      clients_.SayWord(p, mind.epoch, mind.rev);
      return Soon(p, 1'000, 4'000'000);
    case Habit::kAnything:
      SayAnything(p);
      return Soon(p, 20, 100'000);
  }
}

// Claims as soon as what it has just said has been heard, before anybody else has been granted what
// it gave back.
void Adversary::ClaimNext(Process& p) {
  MindOf(p).claims = false;
  ActAfter(p, microseconds(world_.plan.relay ? 61 : 121));
}

void Adversary::SayAnything(Process& p) {
  switch (p.work.Between(0, 15)) {
    case 0:
    case 1:
      return AttachAgain(p);
    case 2:
      return HangUp(p);
    case 3:
      if (p.work.OneIn(20)) world_.After(Duration(0), What::kKill, p.index);
      return;
    case 4:
    case 5:
    case 6: {
      const uint64_t drained_ns = Edge(p.work, 1'000'000);
      return Say(p, p.work.OneIn(2) ? Phase::kIdle : Phase::kWaiting, Edge(p.work, 1'000'000),
                 drained_ns);
    }
    default:
      break;
  }
  Mind& mind = MindOf(p);
  wire::State state;
  state.seq = p.work.OneIn(4) ? mind.seq : ++mind.seq;
  state.phase = static_cast<Phase>(p.work.Between(0, 3));
  state.epoch = Edge(p.work, mind.epoch);
  state.rev = Edge(p.work, mind.rev);
  state.held_ns = Edge(p.work, 1'000'000);
  state.busy_ns = Edge(p.work, 1'000'000);
  state.waited_ns = Edge(p.work, 1'000'000);
  state.backlog_ns = Edge(p.work, 1'000'000);
  state.drained_ns = Edge(p.work, 1'000'000);
  state.handoff_ns = Edge(p.work, 1'000'000);
  state.switch_ns = Edge(p.work, 1'000'000);
  links_.ToDaemon(p, state);
}

void Adversary::Say(Process& p, Phase phase, uint64_t held_ns, uint64_t drained_ns) {
  Mind& mind = MindOf(p);
  wire::State state;
  state.seq = ++mind.seq;
  state.phase = phase;
  state.epoch = mind.epoch;
  state.rev = mind.rev;
  state.held_ns = held_ns;
  state.drained_ns = drained_ns;
  links_.ToDaemon(p, state);
}

void Adversary::AttachAgain(Process& p) {
  node_.Attach(p);
  if (links_.cut() || daemon_.down()) return;
  daemon_.Attach(p);
  node_.Served(p);
}

void Adversary::HangUp(Process& p) {
  p.connected = false;
  node_.Disconnect(p);
  daemon_.Detach(p);
  world_.After(milliseconds(p.work.Spread(1, 1'500)), What::kConnect, p.index);
}

}  // namespace baton::world
