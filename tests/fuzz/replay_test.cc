// Every fuzz target with its corpus, and with some hundred mutations of each input: without
// libFuzzer, and the same in each run. `scripts/fuzz` looks further.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "tests/fuzz/target.h"

namespace baton::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMutations = 100;  // of each input
constexpr size_t kInputMax = 64 << 20;

class Fuzz : public testing::TestWithParam<Target> {};

TEST_P(Fuzz, HoldsForItsCorpus) {
  const fs::path folder = fs::path(BATON_SOURCE) / "tests/fuzz/corpus" / GetParam().name;
  ASSERT_TRUE(fs::is_directory(folder)) << folder << ": a target needs some inputs";
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  ASSERT_FALSE(files.empty());
  uint64_t seed = 0;
  for (const fs::path& file : files) {
    const auto input = ReadFile(file, kInputMax);
    ASSERT_TRUE(input) << input.error().message;
    GetParam().run(*input);
    // Long ones are there for what they are.
    const uint64_t mutations = input->size() > (16 << 10) ? 0 : kMutations;
    for (const uint64_t end = seed + mutations; seed < end; ++seed) {
      // A target that ends the process shows which input it was.
      std::fprintf(stderr, "\r%s, seed %llu ", file.filename().c_str(),
                   static_cast<unsigned long long>(seed));
      GetParam().run(Mutated(*input, seed));
    }
  }
  std::fprintf(stderr, "\n");
}

std::vector<Target> Sorted() {
  std::vector<Target> targets = Targets();
  std::sort(targets.begin(), targets.end(),
            [](const Target& a, const Target& b) { return std::string_view(a.name) < b.name; });
  return targets;
}

INSTANTIATE_TEST_SUITE_P(Corpus, Fuzz, testing::ValuesIn(Sorted()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace baton::fuzz
