#include "policy/guarantee.h"

#include <algorithm>

namespace baton::policy {

int64_t Guarantee::OwedNow(const Account& account) const {
  if (account.waiting) {
    if (served_ns_ == account.at) return account.owed_ns;
    return account.owed_ns + ServedIn(served_ns_ - account.at, Rate(account));
  }
  if (account.owed_ns >= 0 || account.request == Share(0) || account.at_passed == passed_ns_) {
    return account.owed_ns;
  }
  const int64_t paid = ServedIn(passed_ns_ - account.at_passed, Rate(account));
  return std::min<int64_t>(0, account.owed_ns + paid);
}

void Guarantee::Settle(Account& account) {
  account.owed_ns = OwedNow(account);
  account.at = served_ns_;
  account.at_passed = passed_ns_;
}

template <class Change>
void Guarantee::ForAll(Change change) {
  for (Slot slot = 0; slot < accounts_.size(); ++slot) {
    Settle(accounts_[slot]);
    own_[slot].Settle(served_ns_, Rate(accounts_[slot]));
  }
  change();
  for (Slot slot = 0; slot < accounts_.size(); ++slot) Requeue(slot);
}

void Guarantee::Requeue(Slot slot) {
  if (!behind_.empty()) behind_.Erase(slot);
  Account& account = accounts_[slot];
  if (!account.waiting || account.request == Share(0) || !account.queued) return;
  // One that looks too early is cheaper than one that is moved at every hold; and that it does is
  // seen without a division.
  const int64_t left = Limit() - account.owed_ns;
  int64_t until_it_looks;
  if (left >= 0 && account.looks_at != kNotAtAll &&
      !__builtin_mul_overflow(account.looks_at - account.at, Rate(account).millionths(),
                              &until_it_looks) &&
      until_it_looks / kMillion < left) {
    return;
  }
  const int64_t at = account.at + TimeToServe(left, Rate(account));
  if (account.looks_at <= at) return;
  account.looks_at = at;
  if (early_.contains(slot)) return early_.SetKey(slot, at);
  early_.Insert(slot, at, account.id.value);
}

void Guarantee::Add(Slot slot, PodId id, Share request, bool queued, const Debts& debts) {
  if (slot >= accounts_.size()) {
    accounts_.resize(slot + 1);
    own_.resize(slot + 1);
  }
  accounts_[slot] = {};
  own_[slot] = {};
  accounts_[slot].id = id;
  accounts_[slot].queued = queued;
  accounts_[slot].at = served_ns_;
  SetRequest(slot, request);
  accounts_[slot].owed_ns = std::min<int64_t>(debts.owed_ns, 0);
  accounts_[slot].at_passed = debts.owed_ns < 0 ? debts.passed_at : passed_ns_;
  const Share rate = Rate(accounts_[slot]);
  const int64_t left = debts.hold_ns - ServedIn(passed_ns_ - debts.passed_at, rate);
  if (debts.hold_ns <= 0 || left <= 0) return;
  own_[slot].After(left, served_ns_, rate);
  accounts_[slot].paying = true;
}

void Guarantee::SetRequest(Slot slot, Share request) {
  const ShareSum requested = requested_ + request - accounts_[slot].request;
  const auto change = [&] {
    requested_ = requested;
    accounts_[slot].request = request;
  };
  if (std::max(requested, requested_) > kWhole) return ForAll(change);
  Settle(accounts_[slot]);
  own_[slot].Settle(served_ns_, Rate(accounts_[slot]));
  change();
  Requeue(slot);
}

void Guarantee::Remove(Slot slot, Debts& debts) {
  SetWaiting(slot, false, Duration(1));
  debts.owed_ns = std::min<int64_t>(accounts_[slot].owed_ns, 0);
  debts.passed_at = accounts_[slot].at_passed;
  const Share rate = Rate(accounts_[slot]);
  if (accounts_[slot].paying) debts.hold_ns = own_[slot].After(0, served_ns_, rate);
  SetRequest(slot, Share(0));
  early_.Erase(slot);
}

void Guarantee::SetWaiting(Slot slot, bool waiting, Duration burst, const FromPause& from) {
  Account& account = accounts_[slot];
  Settle(account);
  if (IsDue(slot)) account.owed_ns -= handoff_ns_;
  due_.Erase(slot);
  int64_t own = 0;
  // A gang's token is extended without being renewed: how long it held at a time is not known.
  const bool is_long = account.queued && account.hold_ns > limit_longest_ns_;
  if (is_long || account.paying) {
    own = own_[slot].After(is_long ? account.hold_ns : 0, served_ns_, Rate(account));
    account.paying = own > limit_longest_ns_;
    if (!account.paying) own_[slot] = {};
  }
  // Not with the charge, of which a part may come back.
  account.owed_ns = std::max(account.owed_ns, -std::max(Limit(), own));
  // Who had no work for a moment comes with no more than it would have to wait for.
  if (waiting && !account.waiting && account.hold_ns == 0) {
    account.owed_ns = std::min(account.owed_ns, Limit());
  }
  account.hold_ns = 0;
  account.waiting = waiting;
  account.burst_ns = Nanos(burst);
  if (waiting) NoteHold(account.burst_ns);
  const bool paused = waiting && from.handoff > Duration(0) && account.request > Share(0);
  if (paused) account.owed_ns = std::max(account.owed_ns, -std::max(limit_longest_ns_, own));
  Requeue(slot);
  if (!paused) return;
  handoff_ns_ = Nanos(from.handoff);
  const int64_t cost = Nanos(from.usual) + handoff_ns_;
  const int64_t deadline = served_ns_ + TimeToServe(cost - account.owed_ns, Rate(account));
  due_.Insert(slot, deadline - cost, account.id.value);
}

void Guarantee::CapClaim(Slot slot, Duration most) {
  Account& account = accounts_[slot];
  Settle(account);
  account.owed_ns = std::min({account.owed_ns, Nanos(most), Limit()});
  Requeue(slot);
}

void Guarantee::Throttle(Slot slot) {
  SetWaiting(slot, false, Duration(1));
  CapClaim(slot, Duration(0));
}

void Guarantee::Charge(Slot slot, Duration held) {
  const int64_t s = Nanos(held);
  Account& account = accounts_[slot];
  Settle(account);
  served_ns_ += s;
  passed_ns_ += std::max<int64_t>(s, 0);
  account.hold_ns += s;
  account.owed_ns += ServedIn(s, Rate(account)) - s;
  account.at = served_ns_;
  account.at_passed = passed_ns_;
  Requeue(slot);
  longest_ns_ -= longest_ns_ / 256;
  NoteHold(s);
  if (2 * limit_longest_ns_ <= bound_ns_ || longest_ns_ >= limit_longest_ns_ / 2) return;
  for (const Account& other : accounts_) {
    if (other.waiting) longest_ns_ = std::max(longest_ns_, other.burst_ns);
  }
  ForAll([this] { limit_longest_ns_ = longest_ns_; });
}

// A hold takes so long, or will. Of those who wait, the ones not yet behind by a shorter limit are
// looked at again by Behind() when their time comes.
void Guarantee::NoteHold(int64_t ns) {
  longest_ns_ = std::max(longest_ns_, ns);
  const bool rises = 2 * longest_ns_ > Limit();
  limit_longest_ns_ = std::max(limit_longest_ns_, longest_ns_);
  while (rises && !behind_.empty()) {
    Settle(accounts_[behind_.top()]);
    Requeue(behind_.top());
  }
}

std::optional<Guarantee::Slot> Guarantee::FirstBehind() {
  while (!early_.empty() && early_.top_key() <= served_ns_) {
    const Slot slot = early_.top();
    Account& account = accounts_[slot];
    account.looks_at = kNotAtAll;
    const bool waits = account.waiting && account.request != Share(0);
    if (waits) Settle(account);
    if (waits && account.owed_ns < Limit()) {
      Requeue(slot);
      continue;
    }
    early_.Erase(slot);
    if (!waits) continue;
    behind_.Insert(slot, Deadline(slot), account.id.value);
  }
  while (!behind_.empty() && !FarBehind(behind_.top())) {  // what was charged was taken back
    Settle(accounts_[behind_.top()]);
    Requeue(behind_.top());
  }
  if (!behind_.empty()) return behind_.top();
  if (!due_.empty() && IsDue(due_.top())) return due_.top();
  return std::nullopt;
}

int64_t Guarantee::Deadline(Slot slot) const {
  const Account& account = accounts_[slot];
  const int64_t left = account.burst_ns - (OwedNow(account) - Limit());
  return served_ns_ + TimeToServe(left, Rate(account));
}

Duration Guarantee::Owed(Slot slot) const { return Duration(OwedNow(accounts_[slot])); }

}  // namespace baton::policy
