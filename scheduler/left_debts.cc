#include "scheduler/left_debts.h"

#include <algorithm>

namespace baton::scheduler {

void LeftDebts::Leave(uint64_t owner, const Both& debts, Instant now) {
  if (owner == 0 || !(debts.of_requests.any(now) || debts.of_idle.any(now))) return;
  left_.push_back({owner, debts});
  if (left_.size() <= kMost) return;
  left_.erase(std::min_element(left_.begin(), left_.end(),
                               [](const Left& a, const Left& b) { return a.size() < b.size(); }));
}

LeftDebts::Both LeftDebts::Take(uint64_t owner) {
  auto largest = left_.end();
  for (auto it = left_.begin(); it != left_.end(); ++it) {
    if (owner == 0 || it->owner != owner) continue;
    if (largest == left_.end() || it->size() > largest->size()) largest = it;
  }
  if (largest == left_.end()) return {};
  const Both debts = largest->debts;
  left_.erase(largest);
  return debts;
}

}  // namespace baton::scheduler
