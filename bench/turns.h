// How pods took turns on a device, by the device's own record.
#ifndef BATON_BENCH_TURNS_H_
#define BATON_BENCH_TURNS_H_

#include <cstdint>
#include <map>
#include <vector>

#include "base/time.h"
#include "sim/record.h"

namespace baton::bench {

// From the end of one process's last kernel to the start of another's next, wherever the process
// changes; negative where kernels overlap.
std::vector<Duration> HandOffGaps(std::vector<sim::KernelRecord> records);

// A turn lasts from the start of a pod's first kernel to the end of its last one before another
// pod's; so what passes between two turns is the hand-off, and what stands still within one is the
// pod's own.
struct Turns {
  int64_t from_ns = 0, to_ns = 0;  // what the figures are of
  int count = 0;                   // turns in it
  std::map<int64_t, double> held;  // each group's turns, in percent of that time
  std::map<int64_t, double> busy;  // each group's kernels, the same
};

// Of [from_ns, to_ns) as many whole rounds as there are: from the start of the first turn to the
// last start of a turn of the same group, so that the figures do not depend on where in a turn the
// window begins. All of the window where it has no whole round.
Turns TurnsIn(const std::vector<sim::KernelRecord>& records, const sim::GroupOfPid& group_of_pid,
              int64_t from_ns, int64_t to_ns);

}  // namespace baton::bench

#endif  // BATON_BENCH_TURNS_H_
