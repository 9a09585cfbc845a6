// What tests of objects have in common.
#ifndef BATON_TESTS_K8S_TYPES_FIXTURE_H_
#define BATON_TESTS_K8S_TYPES_FIXTURE_H_

#include <nlohmann/json.hpp>
#include <string>

#include "base/random.h"
#include "base/result.h"
#include "k8s/api/object.h"

namespace baton::k8s::testing {

// Random numbers as fuzzing needs them.
struct Dice : Random {
  using Random::Random;
  uint64_t Below(uint64_t n) {
    return static_cast<uint64_t>(Between(0, static_cast<int64_t>(n) - 1));
  }
  bool Chance(double part) { return Below(1'000) < static_cast<uint64_t>(part * 1'000); }
};

template <class T>
std::string Why(const Result<T>& result) {
  return result ? "" : result.error().message;
}

inline Json Parsed(const char* text) { return Json::parse(text); }

inline Json GpuPodJson(const char* limits, const char* annotations = "{}") {
  return {
      {"metadata",
       {{"name", "p"}, {"namespace", "n"}, {"uid", "u-1"}, {"annotations", Parsed(annotations)}}},
      {"spec",
       {{"containers",
         {{{"name", "main"}, {"image", "x"}, {"resources", {{"limits", Parsed(limits)}}}}}}}}};
}

inline Json SharePod(const char* gpu, const char* rest = "{}") {
  Json pod = Parsed(R"({"apiVersion": "baton.dev/v1alpha1", "kind": "SharePod",
      "metadata": {"name": "s", "namespace": "n", "uid": "u-2"},
      "spec": {"template": {"spec": {"containers": [{"name": "main", "image": "x"}]}}}})");
  if (*gpu != 0) pod["spec"]["gpu"] = Parsed(gpu);
  pod["spec"].update(Parsed(rest));
  return pod;
}

}  // namespace baton::k8s::testing

#endif  // BATON_TESTS_K8S_TYPES_FIXTURE_H_
