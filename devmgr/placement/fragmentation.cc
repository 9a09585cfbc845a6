#include "devmgr/placement/fragmentation.h"

#include <algorithm>
#include <utility>
#include <vector>

// Compiled for wide registers as well, and chosen when the program starts. Not beside sanitizers,
// whose runtime is not up by then; clang cannot do so behind a declaration.
#if defined(__x86_64__) && !defined(BATON_SANITIZED) && !defined(__clang__)
#define BATON_WIDE [[gnu::target_clones("avx2", "default")]]
#else
#define BATON_WIDE
#endif

namespace baton::devmgr {
namespace {

// What is asked for is rounded up.
int16_t Up(uint64_t n, uint64_t unit) {
  return static_cast<int16_t>(std::min<uint64_t>((n + unit - 1) / unit, INT16_MAX - 1));
}

// Pods that ask for nothing of something: so many fit for each unit that is free, and for kHair
// where none is. Beside a whole unit that is less than what is lost to rounding.
constexpr float kMany = 1e9f;
constexpr float kHair = 0.0001f;

}  // namespace

Mix::Mix() { Settle(); }

void Mix::Learn(const PodRequest& request) {
  // Of several kinds of virtual GPUs the greediest stands for all.
  VgpuRequest most{.share = {}, .memory_mib = 0, .memory_part = {}, .count = 0};
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
  ++counts_[{Up(most.share.millionths(), 1'000), Up(most.memory_mib, 64),
             Up(most.memory_part.millionths(), 1'000), Up(count, 1), Up(request.cpu_milli, 100),
             Up(request.memory_mib, 256)}];
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
  blocks_ = (classes.size() + kBlock - 1) / kBlock;
  const size_t used = blocks_ * kBlock;
  weights_ = {};
  for (size_t m = 0; m < used; ++m) {
    const auto [count, key] = m < classes.size() ? classes[m] : std::pair<uint64_t, Class>{};
    std::tie(share_[m], memory_[m], part_[m], count_[m], cpu_[m], host_[m]) = key;
    weight_[m] = static_cast<int16_t>(count * kScale / sum);
    weights_[m / kBlock] += weight_[m];
  }
  for (size_t m = 0; m < used; ++m) {
    const auto per = [](int16_t n) { return n > 0 ? 1.0f / static_cast<float>(n) : kMany; };
    together_[m] = static_cast<int16_t>(share_[m] * count_[m]);
    per_count_[m] = per(count_[m]);
    per_cpu_[m] = per(cpu_[m]);
    per_host_[m] = per(host_[m]);
  }
  slots_.resize(1'001);
  for (size_t free = 0; free < slots_.size(); ++free) {
    for (size_t m = 0; m < used; ++m) {
      slots_[free][m] =
          static_cast<int16_t>(share_[m] > 0 ? free / static_cast<size_t>(share_[m]) : 0);
    }
  }
  settled_ = learned_;
  ++version_;
}

Mix::Sum::Sum(const FreeNode& free) : cpu(free.cpu), host(free.host) {
  for (size_t c = 0; c < free.cards; ++c) {
    Add({free.share[c], free.memory[c], free.part[c], 1});
  }
}

void Mix::Sum::Add(const Cards& one) {
  if (one.share == 0) return;  // of a full GPU nothing can be lost
  total = static_cast<int16_t>(total + one.share);
  for (size_t k = 0; k < kinds; ++k) {
    if (cards[k].share != one.share || cards[k].memory != one.memory || cards[k].part != one.part) {
      continue;
    }
    ++cards[k].alike;
    return;
  }
  cards[kinds++] = one;
}

void Mix::Sum::Change(const Cards& from, const Cards& to) {
  for (size_t k = 0; k < kinds; ++k) {
    if (cards[k].share != from.share || cards[k].memory != from.memory ||
        cards[k].part != from.part) {
      continue;
    }
    if (--cards[k].alike == 0) cards[k] = cards[--kinds];
    total = static_cast<int16_t>(total - from.share);
    break;
  }
  Add({to.share, to.memory, to.part, 1});
}

// The inner loops run over the classes of a block, with 16-bit lanes where numbers are small: sums
// stay below 2^15 per class (16 GPUs of 1 000) and below 2^31 over all, for the weights add up to
// kScale.
template <bool remainder>
[[gnu::always_inline]] inline int64_t Mix::Lost(const Sum& node, size_t block) const {
  alignas(64) std::array<int16_t, kBlock> lost{}, fits{}, slots{};
  const size_t first = block * kBlock;
  const int16_t total = node.total;
  for (size_t k = 0; k < node.kinds; ++k) {
    const auto [share, memory, part, alike] = node.cards[k];
    const auto all = static_cast<int16_t>(share * alike);
    [[maybe_unused]] const Row& of_card = slots_[static_cast<size_t>(share)];
    for (size_t i = 0; i < kBlock; ++i) {
      const size_t m = first + i;
      const auto lacks = static_cast<int16_t>(
          -(int{share < share_[m]} | int{memory < memory_[m]} | int{part < part_[m]}));
      lost[i] = static_cast<int16_t>(lost[i] + (lacks & all));
      fits[i] = static_cast<int16_t>(fits[i] + (~lacks & alike));
      if constexpr (remainder) {
        slots[i] =
            static_cast<int16_t>(slots[i] + (~lacks & static_cast<int16_t>(of_card[m] * alike)));
      }
    }
  }
  int32_t left = 0;
  if constexpr (remainder) {
    const auto cpu = static_cast<float>(node.cpu) + kHair;
    const auto host = static_cast<float>(node.host) + kHair;
    for (size_t i = 0; i < kBlock; ++i) {
      const size_t m = first + i;
      const float by_cards = static_cast<float>(slots[i]) * per_count_[m];
      const float by_cpu = cpu * per_cpu_[m];
      const float by_host = host * per_host_[m];
      const float least = by_cards < by_cpu ? by_cards : by_cpu;
      // A little more, for what is not quite a whole number in binary.
      const auto pods = static_cast<int16_t>((least < by_host ? least : by_host) + 0.0005f);
      const auto f = static_cast<int16_t>(total - static_cast<int16_t>(pods * together_[m]));
      left += f * weight_[m];
    }
  }
  int32_t unfit = 0;
  for (size_t i = 0; i < kBlock; ++i) {
    const size_t m = first + i;
    const auto cannot = static_cast<int16_t>(
        -(int{fits[i] < count_[m]} | int{node.cpu < cpu_[m]} | int{node.host < host_[m]}));
    const auto f = static_cast<int16_t>((cannot & total) | (~cannot & lost[i]));
    unfit += f * weight_[m];
  }
  // Half of each, in halves.
  return remainder ? int64_t{left} + unfit : 2 * int64_t{unfit};
}

BATON_WIDE int64_t Mix::FragmentationOf(const Sum& node, size_t block) const {
  return Lost<false>(node, block);
}
BATON_WIDE int64_t Mix::RemainderOf(const Sum& node, size_t block) const {
  return Lost<true>(node, block);
}

Mix::Losses Mix::LossesOf(Rule rule, const Sum& node) const {
  Losses losses{};
  for (size_t b = 0; b < blocks_; ++b) losses[b] = LossOf(rule, node, b);
  return losses;
}

std::optional<int64_t> Mix::Growth(Rule rule, const Losses& before, const Sum& after, int64_t taken,
                                   int64_t limit) const {
  // The least that it can be: the blocks that were looked at, and all that was taken for the rest.
  int64_t growth = 0;
  for (const int64_t weight : weights_) growth -= 2 * taken * weight;
  for (size_t b = 0; b < blocks_; ++b) {
    if (growth > limit) return std::nullopt;
    growth += 2 * taken * weights_[b] + LossOf(rule, after, b) - before[b];
  }
  return growth;
}

}  // namespace baton::devmgr
