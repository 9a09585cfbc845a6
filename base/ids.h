// Ids that cannot be mixed up: a PodId is not a ClientId. Zero is "none".
#ifndef BATON_BASE_IDS_H_
#define BATON_BASE_IDS_H_

#include <compare>
#include <cstdint>

namespace baton {

template <class Tag>
struct Id {
  uint64_t value = 0;
  constexpr explicit operator bool() const { return value != 0; }
  friend constexpr auto operator<=>(const Id&, const Id&) = default;
};

// A pod: the unit that has a share.
using PodId = Id<struct PodTag>;
// Pods that take their tokens together.
using GangId = Id<struct GangTag>;
// One process of a pod, attached through the hook. It may use several GPUs.
using ClientId = Id<struct ClientTag>;

}  // namespace baton

#endif  // BATON_BASE_IDS_H_
