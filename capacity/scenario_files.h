// A scenario as files that people read and change: the cluster in TOML, its teams as batond's file
// of teams (teams/tree.h), the pods as a trace in CSV (devmgr/placement/replay.h) with more
// columns.
//
//   length = "30d"
//   pods = "pods.csv"           # relative to this file
//   teams = "teams.toml"        # optional
//   [[node]]
//   name = "a"                  # with a count: a-1, a-2 ...
//   count = 8                   # optional
//   gpus = 4                    # or their uuids
//   model = "NVIDIA H200"       # optional
//   memory = "141GiB"           # of each GPU; optional
//   [[guarantee]]               # optional; GPUs of a team and all below it
//   team = "research"
//   gpus = 3
//   [[used]]                    # optional; before the beginning, older use counting less
//   team = "research"
//   hours = 120.5
//   uncounted_hours = 20
//   [placement]                 # optional, as in batond's configuration
//   nodes = "fgd"
//   cards = "fgd"
//
// Instead of [[node]]s, `nodes = "nodes.csv"` names a trace's nodes. Pure.
#ifndef BATON_CAPACITY_SCENARIO_FILES_H_
#define BATON_CAPACITY_SCENARIO_FILES_H_

#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "capacity/scenario.h"

namespace baton::capacity {

// So are the files called that `baton simulate cluster --save` writes.
inline constexpr std::string_view kClusterFile = "cluster.toml";
inline constexpr std::string_view kTeamsFile = "teams.toml";
inline constexpr std::string_view kPodsFile = "pods.csv";

struct ScenarioFiles {
  std::string cluster, teams, pods;
};
// What has no column is left out: affinity, exclusion, labels. Shares are in thousandths of a GPU.
ScenarioFiles WriteScenario(const Scenario& scenario);

// `name` stands for the file of the cluster in errors; `read` gives the text of another file that
// it names. kInvalid: "name:line: what is wrong", and what `read` says.
Result<Scenario> ReadScenario(std::string_view cluster, const std::string& name,
                              const std::function<Result<std::string>(const std::string&)>& read);

// Columns beside those of a trace, all optional; times in seconds since the beginning:
//   creation_time    when it was asked for; below 0: before the beginning. Default: 0
//   scheduled_time   when it got its place; with deletion_time: how long it ran
//   deletion_time    when it had gone; empty: it never goes
//   team, priority   of the queue; the higher priority goes first
//   limit_milli      thousandths of a GPU. Default: 1000
//   share_priority   "high", "idle" (then gpu_milli does not matter)
//   gpu_memory       its cap on each GPU: "16GiB", "25%"; "0": none. Default: as a trace
//   mode             "time-slice" (default) or "exclusive"
//   gang             pods with one word are placed together
//   use              what it would use of each GPU without the others, in percent: "40"; or with
//                    for how many seconds of its own time, "100*3600 5*600". Default: 100
//   ends             "work" (default), "time" or "never" (default without deletion_time)
//   on               uuids, joined by |, of the GPUs that it has at the beginning
//   advised_milli    what `baton advise` would have it request
//   had_hours        GPU-hours that it held
// kInvalid: "line N: what is wrong".
Result<std::vector<PodPlan>> ReadPods(std::string_view csv);

}  // namespace baton::capacity

#endif  // BATON_CAPACITY_SCENARIO_FILES_H_
