#include "scheduler/relay_guard.h"

#include <algorithm>

#include "scheduler/hold_meter.h"

namespace baton::scheduler {

void RelayGuard::Attach(uint64_t number, const std::string& pod) {
  Client& client = clients_[number];
  client.pod = pod;
  client.served = false;
  client.fresh = true;
  client.holds.reset();
}

void RelayGuard::Disconnect(uint64_t number) {
  const auto client = clients_.find(number);
  if (client == clients_.end()) return;
  client->second.served = false;
  client->second.told = client->second.opened = {};
}

void RelayGuard::Served(Instant now, uint64_t number) {
  const auto client = clients_.find(number);
  if (client == clients_.end()) return;
  client->second.served = true;
  Believe(now, number, client->second);
}

bool RelayGuard::Said(Instant now, uint64_t number, const wire::State& state) {
  const auto found = clients_.find(number);
  if (found == clients_.end()) return true;
  Client& client = found->second;
  const Word word(state.epoch, state.rev);
  if (word < client.opened) return false;
  // As the scheduler defers it: of that token alone.
  if (const auto ahead = ahead_.find(number);
      ahead != ahead_.end() && word.first == ahead->second.word.first) {
    ahead->second.over =
        IsDrained(state.phase) && word >= ahead->second.word && word <= client.passed;
  }
  client.told = std::max(client.told, std::min(word, client.passed));
  client.holds = !IsDrained(state.phase);
  if (!*client.holds) Release(now, number);
  Believe(now, number, client);
  return true;
}

RelayGuard::Verdict RelayGuard::Judge(Instant now, uint64_t number, const wire::Token& token) {
  const auto found = clients_.find(number);
  const Word word(token.epoch, token.rev);
  if (token.quota_ns == 0) {
    // It closes a gate, whatever epoch it names (one that the client claims, perhaps).
    if (found == clients_.end() || token.rev == kRevOfStops) return Verdict::kPass;
    Client& client = found->second;
    client.passed = std::max(client.passed, word);
    client.told = std::max(client.told, word);
    return Verdict::kPass;
  }
  if (found == clients_.end() || token.epoch < epoch_) return Verdict::kKeep;
  Client& client = found->second;
  // The client ignores it, so it would never say that it has drained.
  if (word <= client.told) return Verdict::kDrop;
  Expire(now);
  // The daemon has gone on to another token, so those before it are void.
  std::erase_if(ahead_, [&](const auto& one) { return one.second.word.first < token.epoch; });
  if (IsForOthers(client)) return Verdict::kKeep;
  const bool held = !holders_.empty() && pod_ != client.pod;
  if (held && (token.after_client == 0 || token.after_epoch != epoch_)) return Verdict::kKeep;
  if (token.after_client != 0) {
    ahead_[number] = {word};
    client.passed = std::max(client.passed, word);
    client.told = word;
    return Verdict::kPass;
  }
  Hold(now, number, client, word);
  return Verdict::kPass;
}

void RelayGuard::Began(Instant now, uint64_t number, const wire::Token& token) {
  const auto found = clients_.find(number);
  const auto ahead = ahead_.find(number);
  if (found == clients_.end() || ahead == ahead_.end()) return;
  const bool over = ahead->second.over;
  ahead_.erase(ahead);
  epoch_ = std::max(epoch_, token.epoch);
  if (over) return;
  Expire(now);
  if (!holders_.empty() && pod_ != found->second.pod) return;
  Hold(now, number, found->second, {token.epoch, token.rev});
}

void RelayGuard::Hold(Instant now, uint64_t number, Client& client, const Word& word) {
  if (holders_.contains(number)) Release(now, number);
  ahead_.erase(number);
  pod_ = client.pod;
  holders_[number] = Holder{};
  epoch_ = word.first;
  client.passed = std::max(client.passed, word);
  client.told = std::max(client.told, word);
  client.opened = word;
}

bool RelayGuard::IsForOthers(const Client& client) const {
  return std::any_of(ahead_.begin(), ahead_.end(), [&](const auto& one) {
    return !one.second.over && clients_.at(one.first).pod != client.pod;
  });
}

void RelayGuard::Gone(Instant now, uint64_t client) {
  Release(now, client);
  ahead_.erase(client);
  clients_.erase(client);
}

void RelayGuard::Believe(Instant now, uint64_t number, Client& client) {
  if (!client.served || !client.fresh || !client.holds) return;
  client.fresh = false;
  if (!*client.holds) return;
  Expire(now);
  if (!holders_.empty() && pod_ != client.pod) return;
  if (holders_.contains(number)) return;
  if (claims_ == 0) claimed_since_ = now;
  const Instant until = claimed_since_ + BudgetOf(now, client.pod).Left(now);
  if (until <= now) return;
  ++claims_;
  pod_ = client.pod;
  holders_[number] = {true, until};
}

void RelayGuard::Release(Instant now, uint64_t client) {
  const auto holder = holders_.find(client);
  if (holder == holders_.end()) return;
  if (holder->second.claims && --claims_ == 0) {
    BudgetOf(now, pod_).Spend(std::min(now, holder->second.until) - claimed_since_);
  }
  holders_.erase(holder);
}

void RelayGuard::Expire(Instant now) {
  for (auto holder = holders_.begin(); holder != holders_.end();) {
    const auto next = std::next(holder);
    if (holder->second.until <= now) Release(now, holder->first);
    holder = next;
  }
}

ClaimBudget& RelayGuard::BudgetOf(Instant now, const std::string& pod) {
  // Those that have all of it again need not be known.
  for (auto budget = budgets_.begin(); budget != budgets_.end();) {
    const bool whole = budget->first != pod && budget->second.Left(now) >= drain_timeout_;
    budget = whole ? budgets_.erase(budget) : std::next(budget);
  }
  return budgets_.try_emplace(pod, drain_timeout_, now).first->second;
}

std::optional<std::string> RelayGuard::Invariants(Instant now) const {
  uint32_t claims = 0;
  for (const auto& [number, holder] : holders_) {
    const auto client = clients_.find(number);
    if (client == clients_.end()) return "a holder is not known";
    if (client->second.pod != pod_) return "clients of two pods hold";
    if (client->second.opened.first > epoch_)
      return "a client has a later token than was passed on";
    if (holder.claims == (holder.until == kNever)) return "a claim without an end, or a grant with";
    claims += holder.claims;
    if (holder.claims && holder.until - claimed_since_ > drain_timeout_)
      return "a claim is too long";
  }
  for (const auto& [number, word] : ahead_) {
    if (!clients_.contains(number)) return "a token was passed ahead to a client that is not known";
  }
  if (claims != claims_ || (claims_ > 0 && claimed_since_ > now)) return "claims do not add up";
  return std::nullopt;
}

}  // namespace baton::scheduler
