#include "bench/turns.h"

#include <algorithm>

namespace baton::bench {
namespace {

struct Turn {
  int64_t group, start_ns, end_ns;
};

std::vector<Turn> TurnsOf(const std::vector<sim::KernelRecord>& records,
                          const sim::GroupOfPid& group_of_pid) {
  std::vector<const sim::KernelRecord*> by_start;
  by_start.reserve(records.size());
  for (const sim::KernelRecord& record : records) by_start.push_back(&record);
  std::sort(by_start.begin(), by_start.end(),
            [](const auto* a, const auto* b) { return a->start_ns < b->start_ns; });
  std::map<uint64_t, int64_t> groups;
  std::vector<Turn> turns;
  for (const sim::KernelRecord* record : by_start) {
    auto [it, fresh] = groups.try_emplace(record->pid, 0);
    if (fresh) it->second = group_of_pid(record->pid);
    if (turns.empty() || turns.back().group != it->second) {
      turns.push_back({it->second, record->start_ns, record->end_ns});
    } else {
      turns.back().end_ns = std::max(turns.back().end_ns, record->end_ns);
    }
  }
  return turns;
}

}  // namespace

std::vector<Duration> HandOffGaps(std::vector<sim::KernelRecord> records) {
  std::sort(records.begin(), records.end(),
            [](const auto& a, const auto& b) { return a.start_ns < b.start_ns; });
  std::vector<Duration> gaps;
  for (size_t i = 1; i < records.size(); ++i) {
    if (records[i].pid != records[i - 1].pid) {
      gaps.emplace_back(records[i].start_ns - records[i - 1].end_ns);
    }
  }
  return gaps;
}

Turns TurnsIn(const std::vector<sim::KernelRecord>& records, const sim::GroupOfPid& group_of_pid,
              int64_t from_ns, int64_t to_ns) {
  const std::vector<Turn> turns = TurnsOf(records, group_of_pid);
  Turns in{.from_ns = from_ns, .to_ns = to_ns, .count = 0, .held = {}, .busy = {}};
  const auto first = std::find_if(turns.begin(), turns.end(),
                                  [&](const Turn& turn) { return turn.start_ns >= from_ns; });
  const auto last = std::find_if(turns.rbegin(), turns.rend(), [&](const Turn& turn) {
    return turn.start_ns < to_ns && first != turns.end() && turn.group == first->group;
  });
  if (first != turns.end() && last != turns.rend() && last->start_ns > first->start_ns) {
    in.from_ns = first->start_ns;
    in.to_ns = last->start_ns;
  }
  const auto window = static_cast<double>(in.to_ns - in.from_ns);
  if (window <= 0) return in;
  for (const Turn& turn : turns) {
    const int64_t start = std::max(turn.start_ns, in.from_ns);
    const int64_t end = std::min(turn.end_ns, in.to_ns);
    if (start >= end) continue;
    ++in.count;
    in.held[turn.group] += 100 * static_cast<double>(end - start) / window;
  }
  for (const auto& [group, ns] : sim::BusyByGroup(records, group_of_pid, in.from_ns, in.to_ns)) {
    in.busy[group] = 100 * static_cast<double>(ns) / window;
  }
  return in;
}

}  // namespace baton::bench
