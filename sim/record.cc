#include "sim/record.h"

#include <algorithm>

#include "sim/device.h"

namespace baton::sim {

Result<std::vector<KernelRecord>> ReadRecords(const std::string& path, uint64_t first) {
  auto opened = Device::Open(path);
  if (!opened) return tl::unexpected<Error>(opened.error());
  Device* device = *opened;
  uint64_t count;
  {
    Device::Session session(device);
    session.CheckProcesses();
    count = device->file().record_count;
  }
  const DeviceFile& file = device->file();
  std::vector<KernelRecord> records;
  const uint64_t oldest = count > file.record_capacity ? count - file.record_capacity : 0;
  first = std::max(first, oldest);
  if (first < count) records.reserve(count - first);
  // Read without the lock: a record that is overwritten meanwhile is left out.
  for (uint64_t i = first; i < count; ++i) {
    const Record& r = file.Records()[i % file.record_capacity];
    if (r.stamp.load(std::memory_order_acquire) != i + 1) continue;
    KernelRecord record{i,
                        r.pid,
                        r.context,
                        r.stream,
                        r.sequence,
                        {},
                        r.submitted_ns,
                        r.start_ns,
                        r.end_ns,
                        r.busy_ns,
                        (r.flags & kKilled) != 0,
                        (r.flags & kFaulted) != 0};
    const uint64_t name = r.name;
    std::atomic_thread_fence(std::memory_order_acquire);
    if (r.stamp.load(std::memory_order_relaxed) != i + 1) continue;
    if (name > 0 && name <= file.name_count) record.name = file.names[name - 1];
    records.push_back(std::move(record));
  }
  return records;
}

Result<uint64_t> CountRecords(const std::string& path) {
  auto opened = Device::Open(path);
  if (!opened) return tl::unexpected<Error>(opened.error());
  Device::Session session(*opened);
  return uint64_t{(*opened)->file().record_count};
}

uint64_t CountOverlaps(const std::vector<KernelRecord>& records, const GroupOfPid& group_of_pid) {
  struct Interval {
    int64_t start, end, group;
    bool overlaps;
  };
  std::vector<Interval> intervals;
  intervals.reserve(records.size());
  std::map<uint64_t, int64_t> groups;
  for (const KernelRecord& r : records) {
    if (r.end_ns <= r.start_ns) continue;
    auto [it, fresh] = groups.try_emplace(r.pid, 0);
    if (fresh) it->second = group_of_pid(r.pid);
    intervals.push_back({r.start_ns, r.end_ns, it->second, false});
  }
  // In order of start, an interval meets an earlier one of another group if and only if the
  // latest end seen so far among the other groups lies beyond its start. So the latest end is kept
  // for the group that has it and for the best of the rest. A second pass, mirrored in time,
  // finds those that meet a later one.
  const auto sweep = [&intervals] {
    std::sort(intervals.begin(), intervals.end(),
              [](const Interval& a, const Interval& b) { return a.start < b.start; });
    int64_t best_group = 0, best = INT64_MIN, rest = INT64_MIN;
    for (Interval& i : intervals) {
      const int64_t others = i.group == best_group ? rest : best;
      if (others > i.start) i.overlaps = true;
      if (i.group == best_group) {
        best = std::max(best, i.end);
      } else if (i.end > best) {
        rest = best;
        best = i.end;
        best_group = i.group;
      } else {
        rest = std::max(rest, i.end);
      }
    }
  };
  sweep();
  for (Interval& i : intervals) {
    const int64_t start = i.start;
    i.start = -i.end;
    i.end = -start;
  }
  sweep();
  return static_cast<uint64_t>(std::count_if(intervals.begin(), intervals.end(),
                                             [](const Interval& i) { return i.overlaps; }));
}

double BusyFraction(const std::vector<KernelRecord>& records, int64_t from_ns, int64_t to_ns) {
  if (to_ns <= from_ns) return 0;
  std::vector<std::pair<int64_t, int64_t>> spans;
  for (const KernelRecord& r : records) {
    const int64_t start = std::max(r.start_ns, from_ns), end = std::min(r.end_ns, to_ns);
    if (start < end) spans.emplace_back(start, end);
  }
  std::sort(spans.begin(), spans.end());
  int64_t busy = 0, covered = from_ns;
  for (const auto& [start, end] : spans) {
    if (end <= covered) continue;
    busy += end - std::max(start, covered);
    covered = end;
  }
  return static_cast<double>(busy) / static_cast<double>(to_ns - from_ns);
}

std::map<int64_t, int64_t> BusyByGroup(const std::vector<KernelRecord>& records,
                                       const GroupOfPid& group_of_pid, int64_t from_ns,
                                       int64_t to_ns) {
  std::map<int64_t, int64_t> busy;
  std::map<uint64_t, int64_t> groups;
  for (const KernelRecord& r : records) {
    const int64_t start = std::max(r.start_ns, from_ns), end = std::min(r.end_ns, to_ns);
    if (start >= end) continue;
    auto [it, fresh] = groups.try_emplace(r.pid, 0);
    if (fresh) it->second = group_of_pid(r.pid);
    const double part =
        static_cast<double>(end - start) / static_cast<double>(r.end_ns - r.start_ns);
    busy[it->second] += static_cast<int64_t>(static_cast<double>(r.busy_ns) * part + 0.5);
  }
  return busy;
}

}  // namespace baton::sim
