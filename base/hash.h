// FNV-1a, 64 bits: for ids and checksums, also in files, so its values never change. It is fast and
// spreads well; who chooses the bytes can make two texts collide.
// Thread safe: no state.
#ifndef BATON_BASE_HASH_H_
#define BATON_BASE_HASH_H_

#include <cstdint>
#include <string_view>

namespace baton {

constexpr uint64_t HashOf(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace baton

#endif  // BATON_BASE_HASH_H_
