// Clusters and pods for the tests of what-if questions.
#ifndef BATON_TESTS_CAPACITY_CLUSTERS_H_
#define BATON_TESTS_CAPACITY_CLUSTERS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "capacity/play.h"

namespace baton::capacity {

inline devmgr::Node NodeOf(const std::string& name, size_t gpus) {
  devmgr::Node node;
  node.name = name;
  for (size_t g = 0; g < gpus; ++g) {
    devmgr::Card card;
    card.uuid = name + "/" + std::to_string(g);
    card.model = "NVIDIA H200";
    card.memory_mib = 10'000;
    node.cards.push_back(card);
  }
  return node;
}

// `request` in percent of each of `gpus` GPUs; it works all of `length`.
inline PodPlan PodOf(const std::string& name, const std::string& team, double request,
                     Duration came, Duration length, uint32_t gpus = 1, double alone = 1) {
  PodPlan pod;
  pod.request.name = name;
  pod.request.team = team;
  pod.request.mode = "time-slice";
  pod.share = policy::Validated({.request = policy::ShareOf(request / 100)}).value();
  pod.request.containers.push_back({"main", {{pod.share.request, 0, {}, gpus}}});
  pod.came = came;
  pod.course = {{length, alone}};
  return pod;
}

inline teams::Team TeamOf(const std::string& path, uint32_t weight) {
  teams::Team team;
  team.path = path;
  team.weight = weight;
  return team;
}

inline Outcome Played(const Scenario& scenario) {
  auto outcome = Play(scenario);
  EXPECT_TRUE(outcome) << outcome.error().message;
  return outcome ? *outcome : Outcome{};
}

inline const TeamFigures& TeamIn(const Outcome& outcome, const std::string& team) {
  const auto at = std::find_if(outcome.teams.begin(), outcome.teams.end(),
                               [&](const TeamFigures& row) { return row.team == team; });
  EXPECT_NE(at, outcome.teams.end()) << team;
  return *at;
}
// Percent of all GPUs.
inline double ShareIn(const Outcome& outcome, const std::string& team) {
  return 100 * TeamIn(outcome, team).got_hours / outcome.capacity_hours;
}

}  // namespace baton::capacity

#endif  // BATON_TESTS_CAPACITY_CLUSTERS_H_
