// A scenario, played on virtual time by the product's own decisions: the queue, quotas and
// placement of devmgr/placement decide who is where, and on each GPU pods get what teams/what_if.h
// says, by the weights of teams as their use goes on.
//
// A pod waits in the queue from when it was asked for. What it is preempted for, or reclaimed, it
// goes back into the queue and goes on later where it was. Of a pod on several GPUs all go as fast
// as the slowest. Hand-offs cost nothing. Budgets are not looked at.
//
// Pure; the same scenario gives the same outcome. Thread safe.
#ifndef BATON_CAPACITY_PLAY_H_
#define BATON_CAPACITY_PLAY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "capacity/scenario.h"

namespace baton::capacity {

struct PodFigures {
  std::string name;
  std::string team;  // teams::NormalPath()
  // GPU-hours: what it would have used in the time, had it had its place at once and nobody beside
  // it; and what it got.
  double asked_hours = 0;
  double got_hours = 0;
  // From when it was asked for until it had a place, or the end; nothing: it had one at the
  // beginning.
  std::optional<Duration> waited = {};
  bool placed = false;                 // it had one
  std::optional<Duration> ended = {};  // when it had gone
  uint32_t preempted = 0;              // times
  std::string refused = {};            // why it had no place when it was refused last
};

struct TeamFigures {
  std::string team;
  uint32_t pods = 0;
  uint32_t unplaced = 0;  // of them, that had no place until the end
  double asked_hours = 0;
  double got_hours = 0;
  std::vector<Duration> waits;  // of those that came in the time; sorted
  std::vector<double> series;   // GPUs that it used in the mean of each step
};

struct GpuFigures {
  std::string node;
  std::string uuid;
  double used_hours = 0;
};

struct Outcome {
  Duration length{0};
  double capacity_hours = 0;       // of all GPUs
  std::vector<PodFigures> pods;    // as in the scenario
  std::vector<TeamFigures> teams;  // by teams::PathLess; those that have pods
  std::vector<GpuFigures> gpus;    // by node and index
  Duration step{0};                // of the series
  std::vector<double> waiting;     // pods that waited for a place, in the mean of each step
  uint64_t rounds = 0;             // of the queue
};

// The value below which a part `q` of the waits lies (nearest rank); 0 of none.
Duration WaitQuantile(const std::vector<Duration>& waits, double q);

// kInvalid: nodes, quotas or pods that cannot be; no GPU; a length of 0 or more than ten years.
Result<Outcome> Play(const Scenario& scenario);

}  // namespace baton::capacity

#endif  // BATON_CAPACITY_PLAY_H_
