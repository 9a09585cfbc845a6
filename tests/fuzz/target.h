// A fuzz target: something that reads text or bytes from outside, and what must hold whatever they
// are. Each is a file of this folder with one FUZZ_TARGET. The preset `fuzz` makes a libFuzzer
// program of each; in the other presets fuzz_test replays the corpora (tests/fuzz/corpus/TARGET).
//
//   FUZZ_TARGET(teams) {
//     const auto teams = ParseTeams(input, "teams.toml");
//     if (teams) BATON_CHECK(ParseTeams(PrintTeams(*teams), "printed"));
//   }
//
// A target ends the process where something does not hold. It keeps nothing from one input to the
// next: what is found must be found again from the input alone.
#ifndef BATON_TESTS_FUZZ_TARGET_H_
#define BATON_TESTS_FUZZ_TARGET_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"

namespace baton::fuzz {

struct Target {
  const char* name;
  void (*run)(std::string_view input);
};

// Those that are linked into this program.
std::vector<Target>& Targets();

struct Registration {
  Registration(const char* name, void (*run)(std::string_view)) {
    Targets().push_back({name, run});
  }
};

// `input` with something replaced, added or taken out: JSON by its values, other text by its bytes.
// The same for the same seed.
std::string Mutated(std::string_view input, uint64_t seed);
// The same for JSON alone; empty where `input` is none.
std::string MutatedJson(std::string_view input, uint64_t seed);

// The parts between lines that are "---": for targets that read several texts.
std::vector<std::string_view> Parts(std::string_view input);

}  // namespace baton::fuzz

#define FUZZ_TARGET(name)                                                           \
  static void Fuzz_##name(std::string_view input);                                  \
  static const ::baton::fuzz::Registration registration_##name(#name, Fuzz_##name); \
  static void Fuzz_##name([[maybe_unused]] std::string_view input)

#endif  // BATON_TESTS_FUZZ_TARGET_H_
