// The file of teams, which nodes also get from their upstream.
#include "teams/tree.h"
#include "tests/fuzz/target.h"

namespace baton::fuzz {
namespace {

FUZZ_TARGET(teams) {
  const std::string normal = teams::NormalPath(input);
  BATON_CHECK(!normal.empty() && teams::NormalPath(normal) == normal);
  const auto teams = teams::ParseTeams(input, "teams.toml");
  if (!teams) return;
  const std::string printed = teams::PrintTeams(*teams);
  const auto again = teams::ParseTeams(printed, "printed");
  BATON_CHECK(again);
  BATON_CHECK(teams::PrintTeams(*again) == printed);
  for (const teams::Team& team : teams->teams) BATON_CHECK(teams->Find(team.path) == &team);
}

}  // namespace
}  // namespace baton::fuzz
