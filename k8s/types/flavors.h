// Flavors (spec/flavors.h) of pods and SharePods: what they do not say of request, limit and memory
// is written into them, at admission and, where there is no webhook, by the binder as it reads a
// SharePod. So nothing else knows flavors, and one that changes later changes nobody's size: the
// binder notes on the SharePod's pod what it filled in.
// Pure; never throws.
#ifndef BATON_K8S_TYPES_FLAVORS_H_
#define BATON_K8S_TYPES_FLAVORS_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "k8s/api/object.h"
#include "spec/flavors.h"

namespace baton::k8s {

// "small=request=10,memory=4Gi", each another name. kInvalid.
Result<spec::Flavors> ParseFlavors(const std::vector<std::string>& texts);

// The same flavors as one text, and back: "small=request=10,limit=100,memory=4Gi;large=...".
std::string FlavorsText(const spec::Flavors& flavors);
Result<spec::Flavors> ReadFlavorsText(const std::string& text);

// The flavors that a SharePod names, each once.
std::set<std::string> FlavorsNamedBy(const Json& share_pod);

// spec.gpu.flavor, and those of spec.containers. `before`: as it was, null for one that is new.
// Where the flavor is another one than before, what it says takes the place of what the change does
// not touch. kInvalid names the field: there is no such flavor, and something is to be filled in.
Result<void> FillInSharePod(const spec::Flavors& flavors, const Json& before, Json& share_pod);

// The annotations `flavor` of a new pod and of its containers: limits, and annotations of the
// container. That of the pod is for each container with baton.dev/gpu-share in its limits, or for
// the only container. Repeating it changes nothing. kInvalid as above.
Result<void> FillInPod(const spec::Flavors& flavors, uint32_t memory_unit_mib, Json& pod);

}  // namespace baton::k8s

#endif  // BATON_K8S_TYPES_FLAVORS_H_
