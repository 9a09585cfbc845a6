#include "scheduler/strays.h"

#include <algorithm>

namespace baton::scheduler {

bool Strays::Has(uint32_t client) const {
  return std::any_of(strays_.begin(), strays_.end(),
                     [client](const Stray& s) { return s.client == client; });
}

void Strays::Allow(Roster::Pod& pod) const {
  pod.claims = ClaimBudget(options_.drain_timeout, turn_.now);
}

void Strays::Stop(uint32_t c, uint64_t epoch) {
  if (Has(c)) return;
  const Roster::Client& client = roster_.client(c);
  Roster::Pod& pod = roster_.pod(client.pod);
  turn_.Emit(SendToken{client.id, epoch, kRevOfStops, Duration(0), true, {}});
  const Duration left = pod.claims.Left(turn_.now);
  if (left > Duration(0)) strays_.push_back({c, turn_.now, turn_.now + left});
}

void Strays::Release(uint32_t client) {
  const auto found = std::find_if(strays_.begin(), strays_.end(),
                                  [client](const Stray& s) { return s.client == client; });
  if (found == strays_.end()) return;
  roster_.pod(roster_.client(client).pod).claims.Spend(turn_.now - found->since);
  strays_.erase(found);
}

void Strays::Expire() {
  for (size_t i = 0; i < strays_.size();) {
    const Stray s = strays_[i];
    if (s.until > turn_.now) {
      ++i;
      continue;
    }
    const Roster::Client& client = roster_.client(s.client);
    const Duration by = turn_.now - s.since;
    if (by >= options_.drain_timeout) {
      turn_.Emit(Notice{Notice::Kind::kHung, roster_.pod(client.pod).id, client.id, by});
      if (options_.drain_kill) turn_.Emit(KillClient{client.id});
    }
    Release(s.client);
  }
}

void Strays::LinkBack(Duration away) {
  for (Stray& s : strays_) {
    const Duration unseen = std::min(away, turn_.now - s.since);
    s.since += unseen;
    s.until += unseen;
  }
}

Instant Strays::wakeup() const {
  Instant at = kNever;
  for (const Stray& s : strays_) at = std::min(at, s.until);
  return at;
}

bool Strays::bounded() const {
  return std::all_of(strays_.begin(), strays_.end(), [this](const Stray& s) {
    return s.until - s.since <= options_.drain_timeout;
  });
}

bool Strays::overdue() const {
  return !strays_.empty() && turn_.now - strays_.front().since > options_.quota_max;
}

}  // namespace baton::scheduler
