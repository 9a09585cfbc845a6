// How this folder reads objects and speaks of their fields. Internal.
#ifndef BATON_K8S_TYPES_READ_H_
#define BATON_K8S_TYPES_READ_H_

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "k8s/api/object.h"
#include "policy/share.h"
#include "spec/pod_request.h"

namespace baton::k8s {

inline constexpr uint64_t kCountMax = 16;        // GPUs of a container, as devmgr has it
inline constexpr uint64_t kGangSizeMax = 1'024;  // devmgr::kGangMax

// "'text'", bounded, without control characters.
std::string Quoted(std::string_view text);
// kInvalid: "field: sentence".
tl::unexpected<Error> Refuse(std::string_view field, std::string_view sentence);

// What is at `pointer` (see Find()) where it is an array; else an empty one.
const Json& ListAt(const Json& object, std::string_view pointer);

// A whole number in plain digits. kInvalid.
Result<uint32_t> ReadCount(std::string_view field, std::string_view text, uint64_t max);

// What is said of a whole pod, by annotations or by a SharePod: by the annotation's key
// (k8s/types/annotations.h). What is not here is not said.
using PodWishes = std::map<std::string_view, std::string>;
// Empty: it is not said.
const std::string& Wish(const PodWishes& wishes, std::string_view key);
// Where each of them is written: the fields of spec/pod_request.h that hold for a whole pod, and
// what Kubernetes alone has.
struct WishField {
  std::string_view key;         // of the annotation
  std::string_view pointer;     // in a SharePod's spec.gpu
  size_t bytes;                 // at most
  bool may_change;              // of a SharePod that has its pod
  const spec::PodField* field;  // null: batond has nothing like it
};
std::span<const WishField> WishFields();
// `name` gives what a field is called in sentences. kInvalid.
Result<void> CheckWishes(const PodWishes& wishes,
                         const std::function<std::string(const WishField&)>& name);
// Wishes that were checked, as batond takes them; without share, memory, GPUs and name.
spec::PodRequest AskedBy(const PodWishes& wishes);

// What limits may say beside an exact value, for the kubelet's account: from the value rounded down
// (least; at least 1 for each GPU) to the value rounded up (most), over all `count` GPUs. Rounded
// down the sum of what fits on a GPU never exceeds the GPU.
struct Units {
  uint64_t least = 0;
  uint64_t most = 0;

  bool Holds(uint64_t units) const { return units >= least && units <= most; }
};
Units UnitsOf(uint64_t value, uint64_t unit, uint32_t count);
inline constexpr uint64_t kShareUnit = policy::kMillion / 100;  // 1 %

// In whole MiB, rounded up.
uint64_t MibOf(uint64_t bytes);

// The words between commas, without the blanks around them; no empty ones.
std::vector<std::string> Words(std::string_view text);

}  // namespace baton::k8s

#endif  // BATON_K8S_TYPES_READ_H_
