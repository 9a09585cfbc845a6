#include "world/state.h"

#include <algorithm>
#include <cstdio>

namespace baton::world {

WorldState::WorldState(const Plan& plan, const RunOptions& options) : plan(plan), options(options) {
  // Where processes hang, somebody must see to it in the time that the world has.
  const bool hostile = std::any_of(plan.pods.begin(), plan.pods.end(),
                                   [](const PodPlan& pod) { return pod.hostile; });
  this->options.invariants |= hostile;
  in_order = hostile || plan.relay;
  if (options.kill_hung && (hostile || !plan.faults.empty())) {
    this->options.scheduler.drain_kill = true;
    this->options.scheduler.drain_timeout = std::chrono::seconds(2);
  }
  verdict.trace_hash = 0xcbf29ce484222325u;
  sites.resize(plan.gpus);
  pods.resize(plan.pods.size());
  for (size_t i = 0; i < pods.size(); ++i) {
    const PodPlan& pod = plan.pods[i];
    if (pod.id >= index_of_.size()) index_of_.resize(pod.id + 1);
    index_of_[pod.id] = i;
    pods[i].spec = pod.spec;
    pods[i].accounts.resize(plan.gpus);
    for (const uint32_t g : pod.gpus) pods[i].accounts[g].here = true;
  }
  faults = !plan.faults.empty();
  FormGangs();
}

void WorldState::FormGangs() {
  for (size_t i = 0; i < pods.size(); ++i) {
    const PodPlan& pod = plan.pods[i];
    const auto found = std::find_if(gangs.begin(), gangs.end(), [&](const Gang& gang) {
      return pod.gang != 0 && plan.pods[gang.places.front().pod].gang == pod.gang;
    });
    pods[i].gang = static_cast<size_t>(found - gangs.begin());
    if (found == gangs.end()) gangs.push_back({.id = GangId{pod.id}, .places = {}});
    Gang& gang = gangs[pods[i].gang];
    for (const uint32_t g : pod.gpus) gang.places.push_back({i, g});
    gang.together = gang.places.size() > 1 && pod.WaitsForPeers();
  }
  for (Gang& gang : gangs) {
    std::sort(gang.places.begin(), gang.places.end(),
              [](const Gang::Place& a, const Gang::Place& b) { return a.gpu < b.gpu; });
  }
}

void WorldState::Violation(const char* check, const std::string& saw) {
  if (!verdict.ok) return;
  verdict.ok = false;
  verdict.check = check;
  verdict.at = now - Instant{};
  verdict.violation = "at " + FormatSeconds(verdict.at) + ": " + saw;
}

void WorldState::Trace(uint64_t a, uint64_t b) {
  uint64_t& hash = verdict.trace_hash;
  for (const uint64_t word : {a, b, static_cast<uint64_t>(Nanos(now))}) {
    hash = (hash ^ word) * 0x100000001b3u;
    hash ^= hash >> 29;
  }
}

std::string FormatSeconds(Duration d) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6f s", static_cast<double>(Nanos(d)) / 1e9);
  return text;
}

}  // namespace baton::world
