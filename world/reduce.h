// Delta debugging (Zeller, Hildebrandt: "Simplifying and Isolating Failure-Inducing Input", 2002)
// over anything that is a row of things.
#ifndef BATON_WORLD_REDUCE_H_
#define BATON_WORLD_REDUCE_H_

#include <algorithm>
#include <cstddef>

namespace baton::world {

// Leaves out as many of `size()` things as it can: halves first, then ever smaller parts.
// `without(from, to)`: tries the best so far without these, and keeps that where it does. True when
// some are gone.
template <class Size, class Without>
bool Reduce(Size size, Without without) {
  bool smaller = false;
  for (size_t part = size(); part > 0; part /= 2) {
    for (size_t from = 0; from < size();) {
      if (without(from, std::min(from + part, size()))) {
        smaller = true;
      } else {
        from += part;
      }
    }
  }
  return smaller;
}

}  // namespace baton::world

#endif  // BATON_WORLD_REDUCE_H_
