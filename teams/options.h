// How a daemon is told of the tree of teams.
#ifndef BATON_TEAMS_OPTIONS_H_
#define BATON_TEAMS_OPTIONS_H_

#include <string>

#include "policy/share.h"

namespace baton::teams {

struct TeamsOptions {
  std::string file;  // TOML (teams/tree.h); empty: teams do not matter
  // Pods of a team that the file does not name, nor one below it: "warn" or "refuse".
  std::string unknown = "warn";
  // How much of the use that no pod of another team wanted is held against a team: 0 to 1.
  policy::Share uncontended_use{0};

  // Shows `v` each key of [teams] (config/options.h).
  template <class V>
  void Visit(V& v) {
    v.Text("file", file, "File of the tree of teams (docs/teams.md); empty: no teams.");
    v.Choice("unknown", unknown, {"warn", "refuse"},
             "What becomes of a new pod of a team that the file does not name.");
    v.Ratio("uncontended_use", uncontended_use, 0, 1,
            "How much of the use that no pod of another team wanted is held against a team: 0 for\n"
            "nothing, 1 for all of it, as if it had been wanted.");
  }
};

}  // namespace baton::teams

#endif  // BATON_TEAMS_OPTIONS_H_
