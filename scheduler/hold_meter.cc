#include "scheduler/hold_meter.h"

#include <algorithm>
#include <utility>

namespace baton::scheduler {
namespace {

// So long a client that has drained may take to say so again.
constexpr Duration kAnswerPatience = std::chrono::seconds(1);

}  // namespace

void HoldMeter::Sent(Instant at, const wire::Token& token, bool watched) {
  const bool kept = token.epoch == kept_epoch_;
  // What was said of it before this was lost on its way here.
  const bool lost =
      token.rev > 1 && watched && token.epoch != ahead_epoch_ && token.rev != kRevOfStops;
  if (token.epoch > epoch_ && (token.quota_ns != 0 || kept || lost)) {
    // With a new epoch a hold begins; one whose grant was kept from the client, or lost, no sooner
    // than now.
    epoch_ = token.epoch;
    rev_ = token.rev;
    opened_ = token.quota_ns != 0;
    sent_at_ = token.rev == 1 || kept || lost ? at : kNever;
    word_at_ = at;
    held_ = idle_ = Duration(0);
    asked_at_ = kNever;
    return;
  }
  if (token.epoch != epoch_ || token.rev <= rev_) return;
  // A gate that is closed again lets nothing pass: who has drained has. Until it says so again it
  // keeps the GPU, though. With any other word about the token its hold ends anew.
  rev_ = token.rev;
  word_at_ = at;
  if (token.quota_ns != 0) {
    opened_ = true;
    held_ = Duration(0);
  } else if (held_ > Duration(0) && asked_at_ == kNever) {
    asked_at_ = at;
  }
}

void HoldMeter::SentAhead(const wire::Token& token) {
  if (token.epoch > epoch_) ahead_epoch_ = token.epoch;
}

void HoldMeter::Kept(const wire::Token& token) {
  if (token.epoch > epoch_ && token.rev == 1) kept_epoch_ = token.epoch;
}

void HoldMeter::Over(uint64_t epoch, Duration held) {
  if (Measures(epoch)) held_ = std::max(held, Duration(1));
}

bool HoldMeter::Ends(const wire::State& state) const {
  return state.seq > seq_ && IsDrained(state.phase) && state.epoch == epoch_ && state.rev == rev_ &&
         sent_at_ != kNever;
}

Duration HoldMeter::HeldUntil(Instant ended) const {
  if (held_ > Duration(0)) return held_;
  if (sent_at_ == kNever || ended == kNever) return Duration(0);
  return std::max(ended - sent_at_ - idle_, Duration(1));
}

Duration HoldMeter::Said(Instant now, const wire::State& state) {
  if (state.seq <= seq_) return Duration(0);
  seq_ = state.seq;
  const bool drained = IsDrained(state.phase);
  if (!drained) held_ = Duration(0);
  if (state.epoch == epoch_ && state.rev + 1 == rev_ && now < word_at_) {
    // It came before that word was sent, and was read after.
    if (!drained) idle_ = Duration(0);
    if (drained && idle_ == Duration(0)) idle_ = word_at_ - now;
  }
  if (!drained || state.epoch != epoch_ || state.rev != rev_ || sent_at_ == kNever) {
    return Duration(0);
  }
  const Instant asked_at = std::exchange(asked_at_, kNever);
  if (asked_at != kNever && now - asked_at > kAnswerPatience) held_ = Duration(0);
  if (held_ == Duration(0)) held_ = std::max(now - sent_at_ - idle_, Duration(1));
  return held_;
}

void PodMeter::Sent(Instant at, const wire::Token& token) {
  if (token.quota_ns == 0 || token.epoch <= epoch_) return;
  if (first_ == 0 && token.rev == 1) first_ = token.epoch;
  epoch_ = token.epoch;
  since_ = at;
}

Measured PodMeter::Said(Instant now, const wire::State& state, HoldMeter& client) const {
  Measured measured{client.Said(now, state), Duration(0)};
  if (!IsDrained(state.phase) && state.epoch == epoch_ && client.Opened(epoch_)) {
    measured.pod_held = std::max(now - since_, Duration(1));
  }
  if (measured.held > Duration(0) && state.epoch == epoch_ && client.drained_at() != kNever) {
    measured.pod_held = client.drained_at() - since_;
  }
  return measured;
}

}  // namespace baton::scheduler
