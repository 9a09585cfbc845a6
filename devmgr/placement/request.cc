#include "devmgr/placement/request.h"

#include <fmt/format.h>

#include <set>

namespace baton::devmgr {
namespace {

constexpr size_t kContainersMax = 32;
constexpr uint32_t kVgpusMax = 128;
constexpr uint32_t kMemoryMax = 64u << 20;              // MiB: 64 TiB
constexpr uint64_t kHostMemoryMax = uint64_t{1} << 40;  // MiB

tl::unexpected<Error> Invalid(std::string message) {
  return Fail(ErrorCode::kInvalid, std::move(message));
}

}  // namespace

Result<void> Validate(const PodRequest& request) {
  if (request.name.empty()) return Invalid("a pod needs a name");
  if (request.containers.size() > kContainersMax) {
    return Invalid(fmt::format("{}: {} containers; at most {}", request.name,
                               request.containers.size(), kContainersMax));
  }
  if (request.memory_mib > kHostMemoryMax) {
    return Invalid(fmt::format("{}: {} MiB of memory; more than any node has", request.name,
                               request.memory_mib));
  }
  uint32_t vgpus = 0;
  std::set<std::string> names;
  for (const ContainerRequest& container : request.containers) {
    const std::string who = request.name + "/" + container.name;
    if (!names.insert(container.name).second) {
      return Invalid(fmt::format("{}: two containers have that name", who));
    }
    uint32_t cards = 0;
    for (const VgpuRequest& vgpu : container.vgpus) {
      const bool least =
          vgpu.share >= policy::kShareMin || (request.idle && vgpu.share == policy::Share(0));
      if (!least || vgpu.share > policy::kWhole) {
        return Invalid(fmt::format("{}: {:.7g} % of a GPU; between 0.1 and 100", who,
                                   policy::Percent(vgpu.share)));
      }
      if (vgpu.memory_mib > 0 && vgpu.memory_part > policy::Share(0)) {
        return Invalid(
            fmt::format("{}: memory both in MiB and as a part of the GPU; say one", who));
      }
      if (vgpu.memory_mib > kMemoryMax || vgpu.memory_part > policy::kWhole) {
        return Invalid(fmt::format("{}: more memory than any GPU has", who));
      }
      if (vgpu.count == 0 || vgpu.count > VgpuRequest::kCardsMax) {
        return Invalid(
            fmt::format("{}: {} GPUs; between 1 and {}", who, vgpu.count, VgpuRequest::kCardsMax));
      }
      cards += vgpu.count;
    }
    if (cards > VgpuRequest::kCardsMax) {
      return Invalid(fmt::format("{}: {} GPUs for one container; at most {}", who, cards,
                                 VgpuRequest::kCardsMax));
    }
    vgpus += cards;
  }
  if (vgpus > kVgpusMax) {
    return Invalid(fmt::format("{}: {} virtual GPUs; at most {}", request.name, vgpus, kVgpusMax));
  }
  return {};
}

}  // namespace baton::devmgr
