#include "devmgr/fragmentation.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace baton::devmgr {
namespace {

// What is asked for is rounded up.
int16_t Up(uint64_t n, uint64_t unit) {
  return static_cast<int16_t>(std::min<uint64_t>((n + unit - 1) / unit, INT16_MAX - 1));
}

}  // namespace

Mix::Mix() { Settle(); }

void Mix::Learn(const PodRequest& request) {
  // Of several kinds of virtual GPUs the greediest stands for all.
  VgpuRequest most{.share = 0, .memory_mib = 0, .memory_part = 0, .count = 0};
  uint32_t count = 0;
  for (const ContainerRequest& container : request.containers) {
    for (const VgpuRequest& vgpu : container.vgpus) {
      most.share = std::max(most.share, vgpu.share);
      most.memory_mib = std::max(most.memory_mib, vgpu.memory_mib);
      most.memory_part = std::max(most.memory_part, vgpu.memory_part);
      count += vgpu.count;
    }
  }
  if (count == 0) return;
  ++counts_[{Up(most.share, 1'000), Up(most.memory_mib, 64), Up(most.memory_part, 1'000),
             Up(count, 1), Up(request.cpu_milli, 100), Up(request.memory_mib, 256)}];
  ++learned_;
  // Rarely, for every node's fragmentation is worked out anew then.
  if (learned_ >= settled_ + 16 + settled_ / 4) Settle();
}

void Mix::Settle() {
  std::vector<std::pair<uint64_t, Class>> classes;
  for (const auto& [key, count] : counts_) classes.emplace_back(count, key);
  if (classes.empty()) {
    for (const int share : {250, 500, 1'000}) {
      classes.emplace_back(1, Class{static_cast<int16_t>(share), 0, 0, 1, 0, 0});
    }
  }
  std::stable_sort(classes.begin(), classes.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  classes.resize(std::min(classes.size(), kClasses));
  uint64_t sum = 0;
  for (const auto& [count, key] : classes) sum += count;
  used_ = (classes.size() + 7) / 8 * 8;
  for (size_t m = 0; m < used_; ++m) {
    const auto [count, key] = m < classes.size() ? classes[m] : std::pair<uint64_t, Class>{};
    std::tie(share_[m], memory_[m], part_[m], count_[m], cpu_[m], host_[m]) = key;
    weight_[m] = static_cast<int16_t>(count * kScale / sum);
  }
  settled_ = learned_;
  ++version_;
}

// The inner loops run over the classes with 16-bit lanes; sums stay below 2^15 per class (16 cards
// of 1 000) and below 2^31 over all, for the weights add up to kScale.
int64_t Mix::Fragmentation(const FreeNode& node) const {
  alignas(64) Row lost{}, fits{};
  int16_t total = 0;
  for (size_t c = 0; c < node.cards; ++c) {
    const int16_t share = node.share[c];
    const int16_t memory = node.memory[c];
    const int16_t part = node.part[c];
    total = static_cast<int16_t>(total + share);
    if (share == 0) continue;  // of a full card nothing can be lost
    for (size_t m = 0; m < used_; ++m) {
      const auto lacks =
          static_cast<int16_t>(-((share < share_[m]) | (memory < memory_[m]) | (part < part_[m])));
      lost[m] = static_cast<int16_t>(lost[m] + (lacks & share));
      fits[m] = static_cast<int16_t>(fits[m] + 1 + lacks);
    }
  }
  int32_t sum = 0;
  for (size_t m = 0; m < used_; ++m) {
    const auto cannot = static_cast<int16_t>(
        -((fits[m] < count_[m]) | (node.cpu < cpu_[m]) | (node.host < host_[m])));
    const auto f = static_cast<int16_t>((cannot & total) | (~cannot & lost[m]));
    sum += f * weight_[m];
  }
  return sum;
}

}  // namespace baton::devmgr
