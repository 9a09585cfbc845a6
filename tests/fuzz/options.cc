// The configuration of batond and baton-frontend.
#include "config/options.h"

#include "tests/fuzz/target.h"

namespace baton::fuzz {
namespace {

FUZZ_TARGET(options) {
  const auto options = config::ParseOptions(std::string(input), "batond.toml");
  if (!options) return;
  const std::string printed = config::PrintOptions(*options);
  const auto again = config::ParseOptions(printed, "printed");
  BATON_CHECK(again);
  BATON_CHECK(config::PrintOptions(*again) == printed);
}

}  // namespace
}  // namespace baton::fuzz
