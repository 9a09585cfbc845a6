#include "ledger/merge.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

namespace baton::ledger {

void MergeInto(Batch&& older, Batch& newer) {
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
