#include "sim/record.h"

#include <algorithm>

#include "sim/device.h"

namespace baton::sim {
namespace {

constexpr uint64_t kAllRecords = UINT64_MAX;

}  // namespace

Result<std::vector<KernelRecord>> ReadRecords(const std::string& path, uint64_t first) {
  auto opened = Device::Open(path);
  if (!opened) return tl::unexpected<Error>(opened.error());
  Device* device = *opened;
  const DeviceFile& file = device->file();
  std::vector<KernelRecord> records;
  std::vector<Record> batch;
  // In batches: nobody who launches shall wait long for the lock.
  constexpr uint64_t kBatch = 1024;
  uint64_t end = kAllRecords;
  while (first < end) {
    uint64_t from;
    {
      Device::Session session(device);
      if (end == kAllRecords) {
        session.CheckProcesses();
        end = file.record_count;
      }
      const uint64_t count = file.record_count;
      // Meanwhile the oldest may have been overwritten.
      from = std::max(first, count > file.record_capacity ? count - file.record_capacity : 0);
      first = std::min(end, from + kBatch);
      batch.clear();
      for (uint64_t i = from; i < first; ++i) {
        batch.push_back(file.Records()[i % file.record_capacity]);
      }
    }
    for (const Record& r : batch) {
      records.push_back({from++, r.pid, r.context, r.stream, r.sequence,
                         r.name > 0 ? file.names[r.name - 1] : "", r.submitted_ns, r.start_ns,
                         r.end_ns, r.busy_ns, (r.flags & kKilled) != 0, (r.flags & kFaulted) != 0});
    }
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
  struct Ends {
    std::vector<int64_t> starts, ends;
    void Sort() {
      std::sort(starts.begin(), starts.end());
      std::sort(ends.begin(), ends.end());
    }
    // How many of them intersect [start, end): those that start before its end, less those that
    // end before its start.
    int64_t Meeting(int64_t start, int64_t end) const {
      return (std::lower_bound(starts.begin(), starts.end(), end) - starts.begin()) -
             (std::upper_bound(ends.begin(), ends.end(), start) - ends.begin());
    }
  };
  Ends all;
  std::map<int64_t, Ends> by_group;
  std::map<uint64_t, int64_t> groups;
  for (const KernelRecord& r : records) {
    if (r.end_ns <= r.start_ns) continue;
    auto [it, fresh] = groups.try_emplace(r.pid, 0);
    if (fresh) it->second = group_of_pid(r.pid);
    for (Ends* ends : {&all, &by_group[it->second]}) {
      ends->starts.push_back(r.start_ns);
      ends->ends.push_back(r.end_ns);
    }
  }
  all.Sort();
  for (auto& [group, ends] : by_group) ends.Sort();
  uint64_t overlaps = 0;
  for (const KernelRecord& r : records) {
    if (r.end_ns <= r.start_ns) continue;
    const Ends& own = by_group[groups[r.pid]];
    overlaps += all.Meeting(r.start_ns, r.end_ns) > own.Meeting(r.start_ns, r.end_ns);
  }
  return overlaps;
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
