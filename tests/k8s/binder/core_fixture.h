// What tests of the binder's core have in common.
#ifndef BATON_TESTS_K8S_BINDER_CORE_FIXTURE_H_
#define BATON_TESTS_K8S_BINDER_CORE_FIXTURE_H_

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "k8s/binder/core.h"
#include "tests/k8s/binder/objects.h"
#include "tests/k8s/binder/world.h"

namespace baton::k8s::testing {

inline CoreOptions Options() {
  CoreOptions options;
  // Rooms are not kept for those that starve: then whatever fits is placed.
  options.round.patience = 1'000'000;
  options.round.reservations = 0;
  return options;
}

inline std::string StatusText(World& world, const std::string& name, const char* pointer) {
  const auto share = world.Get(resources::kSharePods, name);
  return share ? TextAt(*share, std::string("status/") + pointer) : "gone";
}

inline Json ConditionOf(World& world, const std::string& name, const std::string& type) {
  const auto share = world.Get(resources::kSharePods, name);
  if (!share) return {};
  const Json* list = Find(*share, "status/conditions");
  if (list == nullptr) return {};
  for (const Json& condition : *list) {
    if (TextAt(condition, "type") == type) return condition;
  }
  return {};
}

// Of a pod: why it waits, as its condition PodScheduled says; empty: it does not.
inline std::string MessageOf(World& world, const std::string& pod) {
  const auto found = world.Get(resources::kPods, pod);
  const Json* list = found ? Find(*found, "status/conditions") : nullptr;
  if (list == nullptr) return "";
  for (const Json& condition : *list) {
    if (TextAt(condition, "type") == "PodScheduled") return TextAt(condition, "message");
  }
  return "";
}

// By which no GPUs are guessed before its GpuNode is known.
inline Json MemoryPlugin(int64_t units) {
  return {{"status", {{"allocatable", {{"baton.dev/gpu-memory", std::to_string(units)}}}}}};
}

// A core that is told of objects by the test itself.
class FedByHand {
 public:
  explicit FedByHand(CoreOptions options) : core(std::move(options)) {
    core.Changed(Watched::kNode, Stamp(NodeOf("n1"), "node"));
    core.Changed(Watched::kGpuNode, Stamp(CardsOn("n1", 1), "cards"));
    core.Synced();
  }

  Json Stamp(Json object, const std::string& uid) {
    object["metadata"].merge_patch(
        {{"uid", uid}, {"generation", 1}, {"resourceVersion", std::to_string(++version_)}});
    return object;
  }
  std::vector<Write> Step() { return StepAll().writes; }
  std::vector<Note> StepNotes() { return StepAll().notes; }
  Effects StepAll() {
    now_.at += std::chrono::milliseconds(20);
    return core.Step(now_);
  }
  // The next write of that name within a second.
  std::optional<Write> Next(const std::string& name) {
    for (int i = 0; i < 50; ++i) {
      for (Write& write : Step()) {
        if (write.name.name == name) return std::move(write);
      }
    }
    return std::nullopt;
  }

  Core core;

 private:
  uint64_t version_ = 0;
  CoreNow now_{Instant(std::chrono::seconds(1'000)), 1'800'000'000};
};

}  // namespace baton::k8s::testing

#endif  // BATON_TESTS_K8S_BINDER_CORE_FIXTURE_H_
