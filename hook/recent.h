// A small cache that one thread keeps for itself: which value a key had of late. It stands on the
// way of every launch, so a key is found in one line of the processor's cache, and mostly at its
// first place. A new key takes the place of the one that came in longest ago of those beside it.
#ifndef BATON_HOOK_RECENT_H_
#define BATON_HOOK_RECENT_H_

#include <stddef.h>
#include <stdint.h>

namespace baton::hook {

// Of 4 * kSets keys, none of which is 0, as no value is null. kSets: a power of two.
template <class T, size_t kSets>
class Recent {
 public:
  // Null: not of late.
  T* Find(uint64_t key) const {
    const Way* ways = sets_[SetOf(key)].ways;
    if (__builtin_expect(ways[0].key == key, 1)) return ways[0].value;
    // Without a jump for each: which of them it is cannot be foreseen.
    const unsigned at = (ways[1].key == key ? 1u : 0u) | (ways[2].key == key ? 2u : 0u) |
                        (ways[3].key == key ? 3u : 0u);
    return at != 0 ? ways[at].value : nullptr;
  }
  void Put(uint64_t key, T* value) {
    Way* ways = sets_[SetOf(key)].ways;
    size_t at = 0;
    while (at < 3 && ways[at].key != key && ways[at].key != 0) ++at;
    for (; at > 0; --at) ways[at] = ways[at - 1];
    ways[0] = {key, value};
  }
  void Forget(uint64_t key) {
    Way* ways = sets_[SetOf(key)].ways;
    size_t at = 0;
    while (at < 4 && ways[at].key != key) ++at;
    for (; at < 3; ++at) ways[at] = ways[at + 1];  // no gap: Put() stops at the first
    if (at == 3) ways[3] = {};
  }
  void ForgetAll() {
    for (Set& set : sets_) set = {};
  }

 private:
  struct Way {
    uint64_t key = 0;
    T* value = nullptr;
  };
  struct alignas(64) Set {
    Way ways[4];
  };

  static constexpr size_t SetOf(uint64_t key) {
    static_assert((kSets & (kSets - 1)) == 0);
    // The product's highest bits, which all of the key has a part in.
    constexpr int kBits = __builtin_ctzll(kSets);
    return (key * 0x9e3779b97f4a7c15u) >> 1 >> (63 - kBits);
  }

  Set sets_[kSets];
};

}  // namespace baton::hook

#endif  // BATON_HOOK_RECENT_H_
