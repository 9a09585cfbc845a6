#include "devmgr/placement/fragmentation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "devmgr/placement/model_name.h"

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

// Scarcity: of what is free a class's room is so many tenths what one more pod could use, the rest
// what pods would use that fill the node.
constexpr int64_t kTenths = 10;
constexpr int64_t kNextPod = 9;

// What a class asks for, by the number of its pods. Not quite in proportion to their GPUs: pods
// that come often can use room that is left before those that come rarely.
double DemandOf(uint64_t pods, int16_t share, int16_t count) {
  // To the power of 3/4, by roots: the same to the bit everywhere.
  const double root = std::sqrt(share * count / 1e3);
  return static_cast<double>(pods) * root * std::sqrt(root);
}

// What comes is looked at after so many pods each.
constexpr size_t kLook = 32;
// Two samples of one mix differ by more than this, by chi-squared with 8 degrees of freedom, once
// in a thousand million times.
constexpr double kOtherPods = 60;

// By the models that are named; 0: none.
size_t KindOf(const PodRequest& request) {
  if (request.models.empty() && request.not_models.empty()) return 0;
  size_t sum = 0;
  for (const auto* names : {&request.models, &request.not_models}) {
    for (const std::string& name : *names) {
      for (const char c : name) sum = sum * 31 + static_cast<unsigned char>(c);
    }
    ++sum;
  }
  return 1 + sum % 8;
}

// Chi-squared of two samples that may differ in size.
double Difference(std::span<const uint64_t> a, std::span<const uint64_t> b) {
  double all_a = 0, all_b = 0, sum = 0;
  for (const uint64_t n : a) all_a += static_cast<double>(n);
  for (const uint64_t n : b) all_b += static_cast<double>(n);
  if (all_a == 0 || all_b == 0) return 0;
  for (size_t k = 0; k < a.size(); ++k) {
    const auto x = static_cast<double>(a[k]), y = static_cast<double>(b[k]);
    if (x + y == 0) continue;
    const double off = x * std::sqrt(all_b / all_a) - y * std::sqrt(all_a / all_b);
    sum += off * off / (x + y);
  }
  return sum;
}

bool Accepts(const std::pair<std::vector<std::string>, std::vector<std::string>>& models,
             std::string_view model) {
  const auto means = [&](const std::string& text) { return MeansModel(text, model); };
  return (models.first.empty() || std::any_of(models.first.begin(), models.first.end(), means)) &&
         std::none_of(models.second.begin(), models.second.end(), means);
}

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
  const int16_t share = Up(most.share.millionths(), 1'000);
  Recent pod{{share, Up(most.memory_mib, 64), Up(most.memory_part.millionths(), 1'000),
              Up(count, 1), Up(request.cpu_milli, 100), Up(request.memory_mib, 256)},
             {request.models, request.not_models},
             KindOf(request)};
  Count(pod);
  ++learned_;
  Remember(std::move(pod));
  // Rarely, for every node's fragmentation is worked out anew then.
  if (learned_ >= settled_ + 16 + settled_ / 4) Settle();
}

void Mix::Count(const Recent& pod) {
  Counted& known = counts_[pod.key];
  known.pods += kOfPod;
  known.by_models[pod.models] += kOfPod;
}

void Mix::Remember(Recent pod) {
  ++recent_[pod.kind];
  window_.push_back(std::move(pod));
  if (window_.size() <= kWindow) return;
  --recent_[window_.front().kind];
  ++before_[window_.front().kind];
  window_.pop_front();
  if (learned_ % kLook != 0) return;
  const uint64_t before = std::accumulate(before_.begin(), before_.end(), uint64_t{0});
  if (before > 2 * kWindow && Difference(before_, recent_) > kOtherPods) {
    Scale(2 * kWindow, before);
    settled_ = 0;
  }
}

// So much is left of the counts of pods before the window. Those in it stay, for they are what
// comes now.
void Mix::Scale(uint64_t part, uint64_t of) {
  for (const Recent& pod : window_) {
    Counted& known = counts_[pod.key];
    known.pods -= kOfPod;
    known.by_models[pod.models] -= kOfPod;
  }
  for (auto& [key, known] : counts_) {
    known.pods = 0;
    for (auto& [models, pods] : known.by_models) known.pods += pods = pods * part / of;
  }
  for (const Recent& pod : window_) Count(pod);
  learned_ = 0;
  for (auto& [key, known] : counts_) {
    std::erase_if(known.by_models, [](const auto& models) { return models.second == 0; });
    learned_ += known.pods;
  }
  learned_ /= kOfPod;
  std::erase_if(counts_, [](const auto& known) { return known.second.pods == 0; });
  for (uint64_t& pods : before_) pods = pods * part / of;
}

void Mix::Add(const Supply& node) {
  ++supply_[node];
  weighed_ = false;
}

void Mix::Remove(const Supply& node) {
  const auto it = supply_.find(node);
  if (--it->second == 0) supply_.erase(it);
  weighed_ = false;
}

void Mix::Weigh() {
  if (weighed_) return;
  WeighClasses();
  ++version_;
}

void Mix::WeighClasses() {
  weighed_ = true;
  size_t models = 1;
  for (const auto& [node, count] : supply_) models = std::max<size_t>(models, node.model + 1);
  double cards = 0;
  std::vector<double> of_model(models);
  std::vector<std::string_view> names(models);
  for (const auto& [node, count] : supply_) {
    const auto number = static_cast<double>(count * node.cards);
    of_model[node.model] += number;
    cards += number;
    names[node.model] = node.name;
  }
  std::vector<std::array<double, kClasses>> worth(models);
  for (size_t m = 0; m < used_.size(); ++m) {
    const auto& [key, known] = used_[m];
    const auto [share, memory, part, count, cpu, host] = key;
    // A bit for each kind of node: whether it is large enough.
    std::vector<bool> large;
    for (const auto& [node, number] : supply_) {
      large.push_back(node.cards >= static_cast<size_t>(count) && node.cpu >= cpu &&
                      node.host >= host && FreeNode::CardMemory(node.card_mib) >= memory);
    }
    for (const auto& [wanted, pods] : known.by_models) {
      std::vector<bool> accepts(models);
      for (size_t t = 0; t < models; ++t) accepts[t] = Accepts(wanted, names[t]);
      double could = 0;  // GPUs that could ever take it
      std::vector<bool> on(models, supply_.empty());
      size_t kind = 0;
      for (const auto& [node, number] : supply_) {
        if (!large[kind++] || !accepts[node.model]) continue;
        on[node.model] = true;
        could += static_cast<double>(number * node.cards);
      }
      const double each = DemandOf(pods, share, count) / std::max(could, 1.0);
      for (size_t t = 0; t < models; ++t) worth[t][m] += on[t] ? each : 0;
    }
  }
  // A GPU is worth 1 in the mean.
  double sum = 0;
  for (size_t t = 0; t < models; ++t) {
    for (const double w : worth[t]) sum += w * (supply_.empty() ? 1 : of_model[t] / cards);
  }
  worth_.assign(models, {});
  for (size_t t = 0; t < models && sum > 0; ++t) {
    double all = 0;
    for (const double w : worth[t]) all += w;
    if (all == 0) continue;
    worth_[t].price = std::llround(std::min(all / sum, 1e6) * kPrice);
    for (size_t m = 0; m < used_.size(); ++m) {
      worth_[t].weight[m] = static_cast<int16_t>(worth[t][m] / all * kScale);
      worth_[t].weights[m / kBlock] += worth_[t].weight[m];
    }
  }
}

void Mix::Settle() {
  if (learned_ >= kMemory) Scale(1, 2);
  used_.assign(counts_.begin(), counts_.end());
  if (used_.empty()) {
    for (const int16_t share : std::to_array<int16_t>({250, 500, 1'000})) {
      used_.push_back({{share, 0, 0, 1, 0, 0}, {1, {{{}, 1}}}});
    }
  }
  const auto demand = [](const auto& known) {
    return DemandOf(known.second.pods, std::get<0>(known.first), std::get<3>(known.first));
  };
  std::stable_sort(used_.begin(), used_.end(),
                   [&](const auto& a, const auto& b) { return demand(a) > demand(b); });
  used_.resize(std::min(used_.size(), kClasses));
  uint64_t sum = 0;
  for (const auto& [key, known] : used_) sum += known.pods;
  blocks_ = (used_.size() + kBlock - 1) / kBlock;
  const size_t used = blocks_ * kBlock;
  weights_ = {};
  for (size_t m = 0; m < used; ++m) {
    const auto [key, known] = m < used_.size() ? used_[m] : std::pair<Class, Counted>{};
    std::tie(share_[m], memory_[m], part_[m], count_[m], cpu_[m], host_[m]) = key;
    weight_[m] = static_cast<int16_t>(known.pods * kScale / sum);
    weights_[m / kBlock] += weight_[m];
  }
  WeighClasses();
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

Mix::Sum::Sum(const FreeNode& free) : cpu(free.cpu), host(free.host), model(free.model) {
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
template <Rule rule>
[[gnu::always_inline]] inline int64_t Mix::Lost(const Sum& node, size_t block) const {
  constexpr bool remainder = rule != Rule::kFragmentation;
  const Row& weight = rule == Rule::kScarcity ? worth_[node.model].weight : weight_;
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
      left += f * weight[m];
    }
  }
  int32_t unfit = 0;
  for (size_t i = 0; i < kBlock; ++i) {
    const size_t m = first + i;
    const auto cannot = static_cast<int16_t>(
        -(int{fits[i] < count_[m]} | int{node.cpu < cpu_[m]} | int{node.host < host_[m]}));
    const auto f = static_cast<int16_t>((cannot & total) | (~cannot & lost[i]));
    unfit += f * weight[m];
  }
  if constexpr (rule == Rule::kScarcity) {
    // Rounded down, so that less room is never worth more.
    const Worth& worth = worth_[node.model];
    const int64_t room = kTenths * total * worth.weights[block] - kNextPod * unfit -
                         (kTenths - kNextPod) * int64_t{left};
    return -(room * worth.price / (kPrice * kTenths / 2));
  }
  // Half of each, in halves.
  return remainder ? int64_t{left} + unfit : 2 * int64_t{unfit};
}

BATON_WIDE int64_t Mix::FragmentationOf(const Sum& node, size_t block) const {
  return Lost<Rule::kFragmentation>(node, block);
}
BATON_WIDE int64_t Mix::RemainderOf(const Sum& node, size_t block) const {
  return Lost<Rule::kRemainder>(node, block);
}
BATON_WIDE int64_t Mix::ScarcityOf(const Sum& node, size_t block) const {
  return Lost<Rule::kScarcity>(node, block);
}

int64_t Mix::LossOf(Rule rule, const Sum& node, size_t block) const {
  switch (rule) {
    case Rule::kFragmentation:
      return FragmentationOf(node, block);
    case Rule::kRemainder:
      return RemainderOf(node, block);
    default:
      return ScarcityOf(node, block);
  }
}

Mix::Losses Mix::LossesOf(Rule rule, const Sum& node) const {
  Losses losses{};
  for (size_t b = 0; b < blocks_; ++b) losses[b] = LossOf(rule, node, b);
  return losses;
}

std::optional<int64_t> Mix::Growth(Rule rule, const Losses& before, const Sum& after, int64_t taken,
                                   int64_t limit) const {
  // The least that a block's can be: all that was taken is lost to nobody; or, by scarcity, none.
  const int64_t gain = rule == Rule::kScarcity ? 0 : 2 * taken;
  int64_t growth = 0;
  for (const int64_t weight : weights_) growth -= gain * weight;
  for (size_t b = 0; b < blocks_; ++b) {
    if (growth > limit) return std::nullopt;
    growth += gain * weights_[b] + LossOf(rule, after, b) - before[b];
  }
  return growth;
}

}  // namespace baton::devmgr
