// Reading what a simulated GPU executed, and judging it: did kernels of different owners overlap,
// how busy was the GPU, and whose work was it.
#ifndef BATON_SIM_RECORD_H_
#define BATON_SIM_RECORD_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"

namespace baton::sim {

// One executed kernel, or copy or set on the compute engine. Times are CLOCK_MONOTONIC ns. From
// start to end counts the time in which it was sliced out, so two owners' kernels that shared the
// GPU by slices overlap.
struct KernelRecord {
  uint64_t index;  // its place among all ever recorded, from 0
  uint64_t pid;
  uint64_t context;   // unique on the device
  uint64_t stream;    // unique in its process
  uint64_t sequence;  // of its queue entry
  std::string name;
  int64_t submitted_ns, start_ns, end_ns;
  int64_t busy_ns;  // executing, not sliced out
  bool killed;      // its process died before it ended
  bool fault;       // it ended in, or was cut by, an illegal address
};

// Brings the device to the present and returns its records from number `first` on, as many as
// the ring still holds, in the order in which they ended. A kernel still running is not in it.
// The file stays open until the process ends.
Result<std::vector<KernelRecord>> ReadRecords(const std::string& path, uint64_t first = 0);
// How many were ever written: the `first` for what comes from now on.
Result<uint64_t> CountRecords(const std::string& path);

using GroupOfPid = std::function<int64_t(uint64_t pid)>;

// The number of kernels whose [start, end) intersects that of a kernel of another group.
// O(n log n).
uint64_t CountOverlaps(const std::vector<KernelRecord>& records, const GroupOfPid& group_of_pid);
// The part of [from, to) in which some kernel was on the GPU, 0 to 1.
double BusyFraction(const std::vector<KernelRecord>& records, int64_t from_ns, int64_t to_ns);
// Each group's busy ns in [from, to). A kernel that crosses the border counts by the part of
// [start, end) that lies inside.
std::map<int64_t, int64_t> BusyByGroup(const std::vector<KernelRecord>& records,
                                       const GroupOfPid& group_of_pid, int64_t from_ns,
                                       int64_t to_ns);

}  // namespace baton::sim

#endif  // BATON_SIM_RECORD_H_
