#include "backend/series.h"

#include <algorithm>

namespace baton::backend {

void Series::Add(Instant now, uint64_t held_ns, uint64_t waited_ns) {
  samples_[count_++ % samples_.size()] = {now, held_ns, waited_ns};
}

Series::Shares Series::Over(Duration window, Instant now, uint64_t held_ns,
                            uint64_t waited_ns) const {
  // The newest sample that is at least `window` old, else the oldest there is.
  const size_t kept = std::min(count_, samples_.size());
  const Sample* from = nullptr;
  for (size_t i = 1; i <= kept; ++i) {
    from = &samples_[(count_ - i) % samples_.size()];
    if (now - from->at >= window) break;
  }
  if (from == nullptr || now <= from->at) return {};
  const auto span = static_cast<double>(Nanos(now - from->at));
  auto part = [&](uint64_t newer, uint64_t older) {
    return newer <= older ? 0 : std::min(1.0, static_cast<double>(newer - older) / span);
  };
  return {part(held_ns, from->held_ns), part(waited_ns, from->waited_ns)};
}

void Hold::OnPhase(wire::Phase phase, Instant now) {
  if (phase == wire::Phase::kHolding) {
    drains_since = kNever;
  } else if (phase == wire::Phase::kDraining) {
    drains_since = std::min(drains_since, now);
  }
}

Instant Hold::Drains(bool awaited) const {
  return awaited || returned_at != kNever ? drains_since : kNever;
}

void Timeline::Add(const Hold& hold) {
  if (holds_.size() < kKept) {
    holds_.push_back(hold);
  } else {
    holds_[made_ % kKept] = hold;
  }
  ++made_;
}

std::vector<Hold> Timeline::Since(Instant since) const {
  std::vector<Hold> newest;
  for (size_t i = 1; i <= holds_.size(); ++i) {
    const Hold& hold = holds_[(made_ - i) % kKept];
    if (hold.returned_at < since) break;
    newest.push_back(hold);
  }
  std::reverse(newest.begin(), newest.end());
  return newest;
}

}  // namespace baton::backend
