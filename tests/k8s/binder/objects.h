// Objects for tests of the binder, and what must hold of them whatever happened.
#ifndef BATON_TESTS_K8S_BINDER_OBJECTS_H_
#define BATON_TESTS_K8S_BINDER_OBJECTS_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "k8s/api/object.h"

namespace baton::k8s::testing {

inline constexpr const char* kSpace = "team";  // the namespace of all that follows

// A ready node with 64 CPUs and 256 GiB; `rest` is merged into it.
Json NodeOf(const std::string& name, const Json& rest = {});
// Its GpuNode, with GPUs "GPU-NAME-0" and so on.
Json CardsOn(const std::string& name, size_t cards, uint32_t memory_mib = 80'000);
// `gpu`: spec.gpu; `template_spec` is merged into the template's spec.
Json ShareOf(const std::string& name, const Json& gpu, const Json& template_spec = {});
// A pod that Baton's scheduler is to bind.
Json PodOf(const std::string& name, const Json& limits);

// Of its condition of that type; empty: it has none.
std::string ReasonOf(const Json& object, std::string_view type);

// The pods that the node's kubelet would not take, by their limits: a sentence. Empty: none.
std::string Refused(const std::vector<Json>& pods, const std::vector<Json>& nodes);
// What is given away twice, or to pods on other nodes: a sentence. Empty: nothing.
std::string Overbooked(const std::vector<Json>& pods, const std::vector<Json>& gpu_nodes);

}  // namespace baton::k8s::testing

#endif  // BATON_TESTS_K8S_BINDER_OBJECTS_H_
