#include "ledger/merge.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "ledger/buckets.h"

namespace baton::ledger {
namespace {

// Whether all GPUs of both were there from the one to the other.
bool GpusStayed(const Batch& older, const Batch& newer) {
  // Whoever sent them may have said anything.
  const Int128 apart_ms = Int128{Millis(newer.there_since())} - Millis(older.to);
  if (apart_ms <= 0 || apart_ms > kPresenceGapMax_ms) return false;
  const auto listed = [](const Batch& batch) {
    std::set<std::string_view> uuids;
    for (const GpuSample& gpu : batch.gpus) uuids.insert(gpu.uuid);
    return uuids;
  };
  return listed(older) == listed(newer);
}

bool SameOwner(const Owner& a, const Owner& b) {
  return a.pod == b.pod && a.name_space == b.name_space && a.team == b.team && a.user == b.user;
}

}  // namespace

bool IsMergedWell(const Batch& older, const Batch& newer) {
  if (older.source != newer.source || !GpusStayed(older, newer)) return false;
  std::map<std::pair<uint64_t, std::string_view>, const Owner*> owners;
  for (const Sample& sample : older.samples) owners[{sample.pod, sample.gpu}] = &sample.owner;
  return std::all_of(newer.samples.begin(), newer.samples.end(), [&](const Sample& sample) {
    const auto before = owners.find({sample.pod, sample.gpu});
    return before == owners.end() || SameOwner(*before->second, sample.owner);
  });
}

void MergeInto(Batch&& older, Batch& newer) {
  if (GpusStayed(older, newer)) newer.since = older.there_since();
  std::map<std::pair<uint64_t, std::string_view>, Sample*> known;
  // Pointers into it stay.
  newer.samples.reserve(newer.samples.size() + older.samples.size());
  for (Sample& sample : newer.samples) known[{sample.pod, sample.gpu}] = &sample;
  for (Sample& sample : older.samples) {
    const auto it = known.find({sample.pod, sample.gpu});
    if (it == known.end()) {
      newer.samples.push_back(std::move(sample));
    } else {
      it->second->memory_peak_mib = std::max(it->second->memory_peak_mib, sample.memory_peak_mib);
    }
  }
  std::map<std::string_view, Duration> idle;
  for (const GpuSample& gpu : older.gpus) idle[gpu.uuid] = gpu.idle;
  for (GpuSample& gpu : newer.gpus) {
    const auto it = idle.find(gpu.uuid);
    if (it != idle.end()) gpu.idle += it->second;
  }
}

}  // namespace baton::ledger
