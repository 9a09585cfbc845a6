// How long things took: counts by logarithm, exact to 3 %, in constant space. Not thread safe.
#ifndef BATON_WORLD_HISTOGRAM_H_
#define BATON_WORLD_HISTOGRAM_H_

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "base/time.h"

namespace baton::world {

class Histogram {
 public:
  void Add(Duration d) {
    const size_t bucket = BucketOf(static_cast<uint64_t>(std::max<int64_t>(Nanos(d), 0)));
    if (bucket >= counts_.size()) counts_.resize(bucket + 1);
    ++counts_[bucket];
    ++count_;
    max_ = std::max(max_, d);
  }
  void Add(const Histogram& other) {
    if (other.counts_.size() > counts_.size()) counts_.resize(other.counts_.size());
    for (size_t i = 0; i < other.counts_.size(); ++i) counts_[i] += other.counts_[i];
    count_ += other.count_;
    max_ = std::max(max_, other.max_);
  }

  uint64_t count() const { return count_; }
  Duration max() const { return max_; }
  // Nearest rank, 0 < q <= 1; 0 when nothing was added.
  Duration Quantile(double q) const {
    const auto rank = static_cast<uint64_t>(q * static_cast<double>(count_) + 0.999999);
    uint64_t seen = 0;
    for (size_t i = 0; i < counts_.size(); ++i) {
      seen += counts_[i];
      if (seen >= std::max<uint64_t>(rank, 1)) return std::min(MiddleOf(i), max_);
    }
    return Duration(0);
  }

 private:
  // Sixteen buckets to each power of two.
  static constexpr int kBits = 4;
  static size_t BucketOf(uint64_t ns) {
    if (ns < (1u << kBits)) return ns;
    const int shift = static_cast<int>(std::bit_width(ns)) - 1 - kBits;
    return (static_cast<size_t>(shift) << kBits) + static_cast<size_t>(ns >> shift);
  }
  static Duration MiddleOf(size_t bucket) {
    if (bucket < (1u << kBits)) return Duration(static_cast<int64_t>(bucket));
    const size_t shift = (bucket >> kBits) - 1;
    const auto low =
        static_cast<int64_t>(((bucket & ((1u << kBits) - 1)) + (1u << kBits)) << shift);
    return Duration(low + ((int64_t{1} << shift) / 2));
  }

  std::vector<uint64_t> counts_;
  uint64_t count_ = 0;
  Duration max_{0};
};

}  // namespace baton::world

#endif  // BATON_WORLD_HISTOGRAM_H_
