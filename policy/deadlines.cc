#include "policy/deadlines.h"

#include <utility>

namespace baton::policy {

void Deadlines::Set(Slot slot, PodId id, Duration latency) {
  if (latency <= Duration(0)) {
    if (!Has(slot)) return;
    Leave(slot);
    Account& account = accounts_[slot];
    account.latency = Duration(0);
    account.since = account.due = kNever;
    return;
  }
  if (slot >= accounts_.size()) accounts_.resize(slot + 1);
  accounts_[slot].id = id;
  accounts_[slot].latency = latency;
}

void Deadlines::Owe(Slot slot, PodId id, Instant paid) {
  if (slot >= accounts_.size()) accounts_.resize(slot + 1);
  accounts_[slot].id = id;
  accounts_[slot].paid = paid;
}

Instant Deadlines::Remove(Slot slot) {
  Leave(slot);
  return slot < accounts_.size() ? std::exchange(accounts_[slot], {}).paid : Instant{};
}

void Deadlines::Wait(Slot slot, const WaitsSince& wait, Share rate) {
  if (Had(slot)) accounts_[slot].held = Duration(0);
  if (!Has(slot) || wait.since == kNever || rate == Share(0)) return;
  Account& account = accounts_[slot];
  if (!account.waiting) waiting_.push_back(slot);
  account.waiting = true;
  account.since = wait.since;
  account.due = std::max(wait.since, account.paid);
  account.paid = account.due + Duration(TimeToServe(Nanos(wait.handoff), rate));
}

void Deadlines::Leave(Slot slot) {
  if (!Has(slot) || !accounts_[slot].waiting) return;
  accounts_[slot].waiting = false;
  std::erase(waiting_, slot);
}

void Deadlines::Charge(Slot slot, Duration held, Instant now, Share rate, Duration longest) {
  if (!Had(slot) || rate == Share(0)) return;
  Account& account = accounts_[slot];
  const auto pays = [rate](Duration time) { return Duration(TimeToServe(Nanos(time), rate)); };
  if (held > Duration(0)) account.paid = std::max(account.paid, now - held);
  account.held += held;
  const Instant paid = account.paid + pays(held);
  const Instant most = now + pays(std::max(longest, account.held));
  // A short hold after a long one pays for nothing of that.
  account.paid = held > Duration(0) ? std::max(account.paid, std::min(paid, most)) : paid;
}

bool Deadlines::GoesBefore(Slot a, Slot b) const {
  const Instant first = Deadline(a), second = Deadline(b);
  return first != second ? first < second : accounts_[a].id < accounts_[b].id;
}

Deadlines::Ahead Deadlines::Next(Duration handover) const {
  Ahead next;
  for (const Slot slot : waiting_) {
    if (accounts_[slot].limited) continue;
    const Instant deadline = Deadline(slot);
    const Instant ends = std::max(deadline - handover, accounts_[slot].due);
    if (ends < next.ends) next = {ends, deadline};
  }
  return next;
}

}  // namespace baton::policy
