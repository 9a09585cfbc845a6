// Pods with other projects' names become pods with Baton's, at admission. Pure; never throws.
#ifndef BATON_K8S_TYPES_TRANSLATE_H_
#define BATON_K8S_TYPES_TRANSLATE_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "k8s/api/object.h"
#include "k8s/types/foreign_names.h"

namespace baton::k8s {

// Requests that say memory only get so much, in percent of each GPU: the least that is counted.
// Beside it they take their part of what other requests leave over.
inline constexpr uint32_t kForeignRequestPercent = 1;

// Rewrites a new pod that asks for GPUs by names of one family that is on: Baton's limits and
// annotations take the place of these names in all containers, the family's schedulers become
// Baton's, and the annotation kTranslated says what was understood. Returns that, a sentence for
// each container; nothing: there was nothing to do, and the pod is as it was. Repeating it changes
// nothing. A pod that has nothing but nvidia.com/gpu is left as it is: whole GPUs (gpu_pod.h).
//
// kInvalid names the field and says what to write instead: a value, names of two families, names
// that contradict each other or Baton's own sizes, a name that has no counterpart.
Result<std::vector<std::string>> TranslateForeignNames(const ForeignOptions& options, Json& pod);

}  // namespace baton::k8s

#endif  // BATON_K8S_TYPES_TRANSLATE_H_
