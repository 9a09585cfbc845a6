#include "backend/out_of_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "backend/memory_room.h"
#include "backend/unmanaged.h"
#include "base/parse.h"

namespace baton::backend {
namespace {

// Named in a sentence; the others are counted.
constexpr size_t kNamedMax = 4;

// Who has how many bytes, in words; the most first.
using Shares = std::vector<std::pair<uint64_t, std::string>>;

std::string InWords(Shares shares) {
  std::sort(shares.begin(), shares.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  std::string text;
  uint64_t rest = 0;
  for (size_t i = 0; i < shares.size(); ++i) {
    if (i < kNamedMax) {
      text += fmt::format("{}{} {}", i == 0 ? "" : ", ", shares[i].second,
                          FormatBytes(shares[i].first));
    } else {
      rest += shares[i].first;
    }
  }
  if (shares.size() > kNamedMax) {
    text += fmt::format(", {} more {}", shares.size() - kNamedMax, FormatBytes(rest));
  }
  return text;
}

Shares ProcessesOf(const Gpu& gpu, PodId pod) {
  Shares shares;
  for (const auto& [id, lane] : gpu.lanes) {
    const Client& client = *lane->client;
    if (client.pod != pod || lane->memory == 0) continue;
    shares.emplace_back(lane->memory, fmt::format("process {} ({})", client.pid, client.command));
  }
  return shares;
}

// All that is on the GPU, or kept free there, and is not the pod's.
Shares OthersOn(const Gpu& gpu, const Pods& pods, PodId but) {
  Shares shares;
  for (const auto& [id, on] : gpu.pods) {
    const Pod* pod = pods.Find(id);
    if (id == but || pod == nullptr) continue;
    const uint64_t reserved = ReservedOn(*pod, gpu.info.uuid);
    if (reserved > on.memory) {
      shares.emplace_back(reserved, fmt::format("pod {} (reserved)", pod->name));
    } else if (on.memory > 0) {
      shares.emplace_back(on.memory, "pod " + pod->name);
    }
  }
  for (const UnmanagedProcess& process : gpu.unmanaged) {
    UnmanagedProcess named = process;
    named.memory_bytes = 0;  // it stands beside the name
    if (process.memory_bytes > 0) shares.emplace_back(process.memory_bytes, Describe(named));
  }
  if (gpu.overhead > 0) shares.emplace_back(gpu.overhead, "contexts and code of pods");
  return shares;
}

}  // namespace

std::string OutOfMemoryText(const Gpu& gpu, const Pods& pods, const Pod& pod, const Lane& lane,
                            uint64_t asked, uint64_t swap_budget) {
  const uint64_t cap = pod.CapOn(gpu.info.uuid), has = lane.on->memory;
  const std::string processes = InWords(ProcessesOf(gpu, pod.id));
  std::string text = fmt::format("asked for {} on {}: ", FormatBytes(asked), gpu.info.uuid);
  const bool above = cap != 0 && (has > cap || asked > cap - has);
  if (above) {
    text += fmt::format("its cap there is {}", FormatBytes(cap));
  } else if (lane.host_full) {
    text += fmt::format(
        "the host memory for pods with swap, {}, is used up ([memory] "
        "swap_budget_mib)",
        FormatBytes(swap_budget));
  } else {
    text += "the GPU has no more room";
    if (const uint64_t all = gpu.info.memory_bytes; all != 0) {
      text += fmt::format(" in its {}", FormatBytes(all));
    }
  }
  text += fmt::format(", and it has {}{}{}", FormatBytes(has), processes.empty() ? "" : ": ",
                      processes);
  if (above || lane.host_full) return text;
  const std::string others = InWords(OthersOn(gpu, pods, pod.id));
  return text + (others.empty() ? "; nobody else has any" : "; others have: " + others);
}

}  // namespace baton::backend
