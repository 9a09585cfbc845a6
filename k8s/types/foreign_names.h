// Other projects' names for shared GPUs (HAMi's, Volcano's, KAI's, NVIDIA's time slicing), as data:
// where each is written, what its number counts, and what Baton understands by it. At admission a
// pod with such names becomes one with Baton's, so nothing else knows them. Each family is off
// until the operator switches it on.
//
// Pure; never throws.
#ifndef BATON_K8S_TYPES_FOREIGN_NAMES_H_
#define BATON_K8S_TYPES_FOREIGN_NAMES_H_

#include <cstdint>
#include <span>
#include <string_view>

namespace baton::k8s {

enum class Family : uint8_t { kHami, kVolcano, kKai, kTimeSlicing };

struct ForeignFamily {
  Family family;
  std::string_view title;                        // "HAMi"
  std::span<const std::string_view> schedulers;  // whose pods come to Baton's binder
};

enum class ForeignPlace : uint8_t {
  kResource,    // a container's resources.limits
  kAnnotation,  // of the pod
  kEnvironment  // a container's variable
};

enum class ForeignMeaning : uint8_t {
  kCount,          // GPUs; by itself, as a resource: whole GPUs
  kMemory,         // cap on each GPU
  kMemoryPart,     // the same, as a part of the GPU's memory
  kMemoryRequest,  // cap where it is said alone; must be that where both are said
  kShare,          // request and limit of each GPU
  kFraction,       // request, and memory cap as a part; no limit
  kReplica,        // request of one replica's part; no limit
  kModel,
  kNotModel,
  kUuid,
  kNotUuid,
  kNodePolicy,
  kGpuPolicy,
  kMode,       // hami-core: by turns; mig and mps as here
  kContainer,  // the container that the pod's annotations are for
  kOnly,       // one value changes nothing; others are refused
  kRefused,
};

struct ForeignUnit {
  std::string_view word;
  uint64_t scale;  // GPUs, MiB, or millionths of a GPU or of its memory in one unit; 0: text
};

// The two that are not whole numbers: of decimals, and as Kubernetes writes bytes (4Gi).
inline constexpr ForeignUnit kFractionUnit{"fraction of 1", 1'000'000};
inline constexpr ForeignUnit kQuantityUnit{"quantity", 1};

struct ForeignName {
  Family family;
  ForeignPlace place;
  std::string_view name;  // "NAME" in it stands for a container's name
  ForeignUnit unit;
  ForeignMeaning meaning;
  // For users. kRefused: what to write instead. Else: what differs here, or nothing.
  std::string_view note = {};
  std::string_view only = {};  // kOnly: the value
};

// The table. By families, and no name twice in one.
std::span<const ForeignName> ForeignNames();
std::span<const ForeignFamily> ForeignFamilies();
const ForeignFamily& FamilyOf(Family family);
// "request = limit": what Baton understands, in a few words.
std::string_view MeaningText(ForeignMeaning meaning);

inline constexpr uint32_t kReplicasMin = 2;
inline constexpr uint32_t kReplicasMax = 100;

// Which families are understood.
struct ForeignOptions {
  bool hami = false;
  bool volcano = false;
  bool kai = false;
  uint32_t replicas = 0;  // of NVIDIA's time slicing, kReplicasMin to kReplicasMax; 0: off

  bool On(Family family) const;
};

}  // namespace baton::k8s

#endif  // BATON_K8S_TYPES_FOREIGN_NAMES_H_
