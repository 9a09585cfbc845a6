#include "scheduler/handover.h"

#include <algorithm>

#include "scheduler/hold_meter.h"

namespace baton::scheduler {
namespace {

bool IsEnded(const Handover::Next& next, uint64_t client, const wire::State& state) {
  const wire::Token& token = next.token;
  return token.after_client == client && token.after_epoch == state.epoch &&
         token.after_rev <= state.rev;
}

}  // namespace

void Handover::Passed(Instant at, uint64_t client, const wire::Token& token) {
  // With a later token, or a word that opens the gate of the client itself or of the holder again,
  // what waited is void. Who is told to close may have begun.
  const auto is_void = [&](const Next& next) {
    if (token.quota_ns == 0) return false;
    if (next.client == client) return next.token.epoch <= token.epoch;
    return next.token.epoch < token.epoch ||
           (next.token.after_client == client && next.token.after_epoch == token.epoch);
  };
  std::erase_if(next_, is_void);
  for (Next& next : next_) {
    const bool closes = next.client == client && next.token.epoch == token.epoch;
    if (closes && token.quota_ns == 0) next.closed = std::max(next.closed, token.rev);
  }
  if (token.after_client != 0 && token.quota_ns != 0) next_.push_back({client, token, at});
}

const Handover::Next* Handover::Heard(Instant at, uint64_t client, const wire::State& state,
                                      uint64_t began_epoch, Instant began_at) {
  for (auto next = next_.begin(); next != next_.end(); ++next) {
    if (next->client != client || next->token.epoch != state.epoch) continue;
    const bool drained = IsDrained(state.phase);
    if (drained && next->closed > 0 && state.rev >= next->closed && began_epoch != state.epoch) {
      next_.erase(next);
      return nullptr;
    }
    if (began_epoch == state.epoch) next->began_at = BeganAt(*next, began_epoch, began_at, at);
    const bool over = drained && state.rev >= std::max(next->token.rev, next->closed);
    next->over_at = over ? std::min(next->over_at, at) : kNever;
    if (!over) return nullptr;
    Instant first = next->over_at;
    for (const Next& one : next_) {
      if (one.token.epoch == state.epoch) first = std::min(first, one.began_at);
    }
    next->held = std::max(Duration(1), next->over_at - first);
    return &*next;
  }
  return nullptr;
}

bool Handover::AwaitsEnd(uint64_t client, const wire::State& state) const {
  return std::any_of(next_.begin(), next_.end(),
                     [&](const Next& next) { return IsEnded(next, client, state); });
}

std::vector<Handover::Next> Handover::Take(uint64_t client, const wire::State& state) {
  std::vector<Next> taken;
  std::erase_if(next_, [&](const Next& next) {
    if (!IsEnded(next, client, state)) return false;
    taken.push_back(next);
    return true;
  });
  return taken;
}

std::vector<Handover::Next> Handover::Gone(uint64_t client, uint64_t began_epoch,
                                           Instant began_at) {
  std::vector<Next> taken;
  std::erase_if(next_, [&](Next& next) {
    if (next.token.after_client == client) taken.push_back(next);
    if (next.client != client) return next.token.after_client == client;
    next.gone = true;
    next.began_at = std::min(next.began_at, began_at);
    return next.token.epoch != began_epoch;
  });
  return taken;
}

std::vector<wire::Token> Handover::Next::Passed() const {
  std::vector<wire::Token> passed{token};
  if (closed > token.rev) {
    passed.push_back(token);
    passed.back().rev = closed;
    passed.back().quota_ns = 0;
  }
  return passed;
}

Instant BeganAt(const Handover::Next& next, uint64_t began_epoch, Instant began_at, Instant said) {
  if (next.began_at != kNever) {
    began_at = next.began_at;
  } else if (began_epoch != next.token.epoch) {
    return said;
  }
  return std::clamp(began_at, std::min(next.passed_at, said), said);
}

}  // namespace baton::scheduler
