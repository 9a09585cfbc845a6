// What the calls for memory share: pages of this process, and their account in the device file.
#ifndef BATON_SIM_MEMORY_H_
#define BATON_SIM_MEMORY_H_

#include <cstddef>

#include "sim/driver.h"

namespace baton::sim {

inline constexpr size_t kPage = 4096;
// As devices say of themselves.
inline constexpr int kProcessors = 108, kThreadsPerProcessor = 2048;

// The next multiple of `unit`; it may overflow.
inline size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

// Fresh pages, `low`: below 2 GiB; null when there are none.
void* Map(size_t bytes, bool low);
// Takes memory off the device; false when it has no more.
bool Charge(Dev* dev, size_t bytes);
void Uncharge(Dev* dev, size_t bytes);

}  // namespace baton::sim

#endif  // BATON_SIM_MEMORY_H_
