// What libFuzzer calls: the target BATON_FUZZ_TARGET.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "tests/fuzz/target.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static void (*const run)(std::string_view) = [] {
    for (const baton::fuzz::Target& target : baton::fuzz::Targets()) {
      if (target.name == std::string_view(BATON_FUZZ_TARGET)) return target.run;
    }
    std::abort();
  }();
  run({reinterpret_cast<const char*>(data), size});
  return 0;
}

// JSON also by its values: bytes alone rarely make another object that is well formed.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  if (seed % 2 == 0) {
    const std::string json =
        baton::fuzz::MutatedJson({reinterpret_cast<const char*>(data), size}, seed);
    if (!json.empty() && json.size() <= max_size) {
      std::memcpy(data, json.data(), json.size());
      return json.size();
    }
  }
  return LLVMFuzzerMutate(data, size, max_size);
}
