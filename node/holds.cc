#include "node/holds.h"

#include <algorithm>

namespace baton::node {

Holds::OfGpu& Holds::Of(Lane& lane) {
  if (lane.of_gpu == nullptr) lane.of_gpu = &gpus_[lane.uuid];
  return *lane.of_gpu;
}

void Holds::Sent(const Party& to, Instant at, const wire::Token& token) {
  OfGpu& gpu = Of(*to.lane);
  to.lane->meter.Sent(at, token, gpu.meter.watches(token.epoch));
  gpu.meter.Sent(at, token);
  gpu.handover.Passed(at, to.client, token);
}

std::optional<wire::Token> Holds::Ready(const Party& to, const Party& before,
                                        const wire::Token& token) {
  if (before.lane == nullptr || !before.lane->meter.Measures(token.after_epoch)) {
    to.lane->meter.Kept(token);
    return std::nullopt;
  }
  wire::Token ready = token;
  ready.after_gpu = before.lane->index;
  if (before.lane->meter.HasDrained(token.after_epoch, token.after_rev)) {
    ready.after_client = 0;
  } else if (to.words == nullptr || before.words == nullptr) {
    SentAhead(to, MonotonicNow(), token);
    return std::nullopt;
  }
  return ready;
}

void Holds::SentAhead(const Party& to, Instant at, const wire::Token& token) {
  to.lane->meter.SentAhead(token);
  Of(*to.lane).handover.Passed(at, to.client, token);
}

scheduler::Measured Holds::Said(const Party& who, Instant said, const wire::State& state,
                                const Find& find, std::vector<Next>& begin) {
  Lane& lane = *who.lane;
  lane.last = state;
  if (lane.of_gpu == nullptr) return {lane.meter.Said(said, state), Duration(0)};
  OfGpu& gpu = *lane.of_gpu;
  const Begun began = BegunBy(who.word());
  const Next* over = gpu.handover.Heard(said, who.client, state, began.epoch, began.at);
  if (!gpu.handover.AwaitsEnd(who.client, state) || !lane.meter.Ends(state)) {
    scheduler::Measured measured = gpu.meter.Said(said, state, lane.meter);
    if (over != nullptr) measured.held = over->held;
    return measured;
  }
  begin = gpu.handover.Take(who.client, state);
  scheduler::Succession after{said};
  for (const Next& next : begin) {
    const Begun by = BegunBy(find(next.client, lane.uuid).word());
    after.began = std::min(after.began, BeganAt(next, by.epoch, by.at, said));
    after.over = std::max(after.over, next.over_at);
  }
  const Instant end = after.EndOfHold(said);
  const scheduler::Measured measured = gpu.meter.Said(end, state, lane.meter);
  for (const Next& next : begin) {
    const Party party = find(next.client, lane.uuid);
    if (party.lane == nullptr) continue;
    for (const wire::Token& token : next.Passed()) {
      Of(*party.lane);
      party.lane->meter.Sent(end, token, gpu.meter.watches(token.epoch));
      gpu.meter.Sent(end, token);
    }
    if (next.over_at != kNever) party.lane->meter.Over(next.token.epoch, next.held);
  }
  return measured;
}

std::optional<wire::State> Holds::LastWords(const Party& who) {
  const wire::Word* word = who.word();
  if (word == nullptr || who.lane->of_gpu == nullptr) return std::nullopt;
  wire::State state = who.lane->last;
  ++state.seq;
  state.gpu = who.lane->index;
  state.phase = wire::Phase::kIdle;
  state.epoch = word->epoch.load(std::memory_order_acquire);
  state.rev = word->rev.load(std::memory_order_relaxed);
  if (!who.lane->of_gpu->handover.AwaitsEnd(who.client, state)) return std::nullopt;
  return state;
}

Holds::Ended Holds::Gone(const Party& who) {
  if (who.lane == nullptr || who.lane->of_gpu == nullptr) return {};
  // Whoever waits for it is told by whom this is told.
  const Begun began = BegunBy(who.word());
  who.lane->of_gpu->handover.Gone(who.client, began.epoch, began.at);
  const scheduler::HoldMeter& meter = who.lane->meter;
  return {meter.epoch(), meter.HeldUntil(kNever)};
}

}  // namespace baton::node
