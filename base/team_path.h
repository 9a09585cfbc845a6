// How a team's path is written, wherever one is named: by users, in files, in the ledger.
// Thread safe: no state.
#ifndef BATON_BASE_TEAM_PATH_H_
#define BATON_BASE_TEAM_PATH_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace baton {

// The team of those that name none.
inline constexpr std::string_view kDefaultTeam = "default";
inline constexpr size_t kTeamDepthMax = 16;  // teams above each other

// No empty parts ("/lab//vision/" is "lab/vision"), and of what is deeper than kTeamDepthMax its
// ancestor there. Empty where it names nothing. What users and old books say is never an error.
std::string TeamPath(std::string_view said);

}  // namespace baton

#endif  // BATON_BASE_TEAM_PATH_H_
