// Who was refused because a bound is reached: how many of late, and whether it is time to say so.
// No clock, no I/O. Not thread safe.
#ifndef BATON_NODE_REFUSALS_H_
#define BATON_NODE_REFUSALS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "base/time.h"

namespace baton::node {

class Refusals {
 public:
  // A bound that has refused nobody for so long counts as reached no longer. While it does, it is
  // said again at most this often.
  static constexpr Duration kMemory = std::chrono::minutes(1);
  // Bounds that are told apart; further ones are counted together.
  static constexpr size_t kBoundsMax = 16;

  // One more was refused for `bound`, a sentence without its full stop. True: say it now.
  bool Add(const std::string& bound, Instant now);
  // The bounds that are reached, each with how many it has refused since it was; empty: none.
  std::string Trouble(Instant now) const;

 private:
  struct Bound {
    uint64_t refused = 0;
    Instant said{};
    Instant last{};
  };
  std::map<std::string, Bound> bounds_;
};

}  // namespace baton::node

#endif  // BATON_NODE_REFUSALS_H_
