#include "k8s/types/foreign_names.h"

#include <array>

#include "k8s/types/annotations.h"

namespace baton::k8s {
namespace {

constexpr ForeignUnit kGpus{"GPUs", 1};
constexpr ForeignUnit kMib{"MiB", 1};
constexpr ForeignUnit kPercentUnit{"percent", 10'000};
constexpr ForeignUnit kNumberUnit{"number", 1};
constexpr ForeignUnit kTextUnit{"text", 0};

constexpr std::string_view kMemoryOnlyNote = "alone: request 1, limit 100";
constexpr std::string_view kCoresNote =
    "a limit there, guaranteed too here; 0: as if it were not there. Without a memory size there "
    "is no memory cap";
constexpr std::string_view kWordsNote =
    "whole words of the model here, parts of words there: A10 is not A100";
constexpr std::string_view kModeNote =
    "hami-core: by turns; mig, mps: as here, of one GPU, and MIG has to be on";
constexpr std::string_view kWholeNote = "alone: whole GPUs";

using F = Family;
using P = ForeignPlace;
using M = ForeignMeaning;
constexpr std::array kNames{
    ForeignName{F::kHami, P::kResource, kWholeResource, kGpus, M::kCount, kWholeNote},
    ForeignName{F::kHami, P::kResource, "nvidia.com/gpumem", kMib, M::kMemory, kMemoryOnlyNote},
    ForeignName{F::kHami, P::kResource, "nvidia.com/gpumem-percentage", kPercentUnit,
                M::kMemoryPart, kMemoryOnlyNote},
    ForeignName{F::kHami, P::kResource, "nvidia.com/gpucores", kPercentUnit, M::kShare, kCoresNote},
    ForeignName{F::kHami, P::kResource, "nvidia.com/priority", kNumberUnit, M::kRefused,
                "use the annotation baton.dev/priority (normal, high or idle)"},
    ForeignName{F::kHami, P::kAnnotation, "nvidia.com/use-gputype", kTextUnit, M::kModel,
                kWordsNote},
    ForeignName{F::kHami, P::kAnnotation, "nvidia.com/nouse-gputype", kTextUnit, M::kNotModel,
                kWordsNote},
    ForeignName{F::kHami, P::kAnnotation, "nvidia.com/use-gpuuuid", kTextUnit, M::kUuid},
    ForeignName{F::kHami, P::kAnnotation, "nvidia.com/nouse-gpuuuid", kTextUnit, M::kNotUuid},
    ForeignName{F::kHami, P::kAnnotation, "hami.io/node-scheduler-policy", kTextUnit,
                M::kNodePolicy},
    ForeignName{F::kHami, P::kAnnotation, "hami.io/gpu-scheduler-policy", kTextUnit, M::kGpuPolicy,
                "binpack and spread only"},
    ForeignName{F::kHami, P::kAnnotation, "nvidia.com/vgpu-mode", kTextUnit, M::kMode, kModeNote},
    ForeignName{F::kVolcano, P::kResource, "volcano.sh/vgpu-number", kGpus, M::kCount, kWholeNote},
    ForeignName{F::kVolcano, P::kResource, "volcano.sh/vgpu-memory", kMib, M::kMemory,
                kMemoryOnlyNote},
    ForeignName{F::kVolcano, P::kResource, "volcano.sh/vgpu-memory-percentage", kPercentUnit,
                M::kMemoryPart, kMemoryOnlyNote},
    ForeignName{F::kVolcano, P::kResource, "volcano.sh/vgpu-cores", kPercentUnit, M::kShare,
                kCoresNote},
    ForeignName{F::kVolcano, P::kAnnotation, "volcano.sh/vgpu-mode", kTextUnit, M::kMode,
                kModeNote},
    ForeignName{F::kKai, P::kAnnotation, "gpu-fraction", kFractionUnit, M::kFraction,
                "memory is capped and compute guaranteed here; rounded down to 0.1 %"},
    ForeignName{F::kKai, P::kAnnotation, "gpu-memory", kMib, M::kMemory, kMemoryOnlyNote},
    ForeignName{F::kKai, P::kAnnotation, "gpu-fraction-num-devices", kGpus, M::kCount},
    ForeignName{F::kKai, P::kAnnotation, "gpu-fraction-container-name", kTextUnit, M::kContainer,
                "default: the first container"},
    ForeignName{F::kKai, P::kAnnotation, "nvidia.com/container.NAME.gpu-memory.request",
                kQuantityUnit, M::kMemoryRequest, kMemoryOnlyNote},
    ForeignName{F::kKai, P::kAnnotation, "nvidia.com/container.NAME.gpu-memory.limit",
                kQuantityUnit, M::kMemory, kMemoryOnlyNote},
    ForeignName{F::kKai,
                P::kAnnotation,
                "nvidia.com/container.NAME.gpu-compute.mode",
                kTextUnit,
                M::kOnly,
                {},
                "time-slicing"},
    ForeignName{F::kKai, P::kEnvironment, "RUNAI_GPU_MEMORY_LIMIT", kTextUnit, M::kRefused,
                "for memory that moves to the host while others need it use the annotations "
                "baton.dev/swap, baton.dev/memory and baton.dev/memory-request"},
    ForeignName{F::kTimeSlicing, P::kResource, "nvidia.com/gpu.shared", kGpus, M::kReplica,
                "1 only; no memory cap, as there"},
};

constexpr std::array<std::string_view, 1> kHamiSchedulers{"hami-scheduler"};
constexpr std::array<std::string_view, 1> kVolcanoSchedulers{"volcano"};
constexpr std::array<std::string_view, 2> kKaiSchedulers{"kai-scheduler", "runai-scheduler"};
constexpr std::array kFamilies{
    ForeignFamily{F::kHami, "HAMi", kHamiSchedulers},
    ForeignFamily{F::kVolcano, "Volcano", kVolcanoSchedulers},
    ForeignFamily{F::kKai, "KAI, Run:ai", kKaiSchedulers},
    ForeignFamily{F::kTimeSlicing, "NVIDIA's time slicing", {}},
};

constexpr std::array<std::string_view, 17> kMeanings{
    "number of GPUs",
    "memory cap on each GPU",
    "memory cap on each GPU, as a part of its memory",
    "memory cap on each GPU; must equal the limit",
    "request = limit, of each GPU",
    "request of each GPU and memory cap, as a part of its memory; limit 100",
    "request 100 / replicas; limit 100",
    "`baton.dev/model`",
    "`baton.dev/not-model`",
    "`baton.dev/gpu-uuid`",
    "`baton.dev/not-gpu-uuid`",
    "`baton.dev/node-policy`",
    "`baton.dev/gpu-policy`",
    "`baton.dev/mode`",
    "the container that the annotations are for",
    "only",
    "refused"};

}  // namespace

std::span<const ForeignName> ForeignNames() { return kNames; }

std::span<const ForeignFamily> ForeignFamilies() { return kFamilies; }

const ForeignFamily& FamilyOf(Family family) { return kFamilies[static_cast<size_t>(family)]; }

std::string_view MeaningText(ForeignMeaning meaning) {
  return kMeanings[static_cast<size_t>(meaning)];
}

bool ForeignOptions::On(Family family) const {
  switch (family) {
    case Family::kHami:
      return hami;
    case Family::kVolcano:
      return volcano;
    case Family::kKai:
      return kai;
    case Family::kTimeSlicing:
      return replicas >= kReplicasMin;
  }
  return false;
}

}  // namespace baton::k8s
