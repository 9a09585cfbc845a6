// Seeded random numbers that are the same on every machine and with every library (std's
// distributions are not): xoshiro256** by Blackman and Vigna, seeded by splitmix64.
// Not thread safe.
#ifndef BATON_BASE_RANDOM_H_
#define BATON_BASE_RANDOM_H_

#include <cstdint>

namespace baton {

class Random {
 public:
  explicit Random(uint64_t seed) {
    for (uint64_t& word : state_) {
      seed += 0x9e3779b97f4a7c15u;
      uint64_t z = seed;
      z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
      z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
      word = z ^ (z >> 31);
    }
  }

  uint64_t Next() {
    const uint64_t result = Rotate(state_[1] * 5, 7) * 9;
    const uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = Rotate(state_[3], 45);
    return result;
  }
  // Uniform in [low, high]; low <= high.
  int64_t Between(int64_t low, int64_t high) {
    const uint64_t span = static_cast<uint64_t>(high - low) + 1;
    return low + static_cast<int64_t>(span == 0 ? Next() : Next() % span);
  }
  // True once in `n` times on average; n >= 1.
  bool OneIn(uint64_t n) { return Next() % n == 0; }
  // Uniform in the exponent: as likely between 10 and 100 as between 100 and 1000. low >= 1.
  int64_t Spread(int64_t low, int64_t high) {
    int octaves = 0;
    while ((low << (octaves + 1)) <= high) ++octaves;
    const int64_t base = low << Between(0, octaves);
    return Between(base, base * 2 < high ? base * 2 : high);
  }

 private:
  static uint64_t Rotate(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }
  uint64_t state_[4];
};

}  // namespace baton

#endif  // BATON_BASE_RANDOM_H_
