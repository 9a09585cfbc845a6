#include "node/refusals.h"

#include <fmt/format.h>

namespace baton::node {

bool Refusals::Add(const std::string& bound, Instant now) {
  std::erase_if(bounds_, [&](const auto& entry) { return now - entry.second.last > kMemory; });
  const bool known = bounds_.count(bound) != 0 || bounds_.size() < kBoundsMax;
  Bound& of = bounds_[known ? bound : "other bounds are reached"];
  const bool say = of.refused == 0 || now - of.said > kMemory;
  ++of.refused;
  of.last = now;
  if (say) of.said = now;
  return say;
}

std::string Refusals::Trouble(Instant now) const {
  std::string text;
  for (const auto& [bound, of] : bounds_) {
    if (now - of.last > kMemory) continue;
    text += fmt::format("{}{} ({} refused)", text.empty() ? "" : "; ", bound, of.refused);
  }
  return text;
}

}  // namespace baton::node
