// What NVIDIA's MIG User Guide (R580) says of the GPUs that Baton has templates for, independently
// of those: "Supported MIG Profiles" has names, slices and counts, `nvidia-smi mig -lgipp` in
// "Getting Started with MIG" the places.
#ifndef BATON_TESTS_DEVMGR_MIG_TABLE_H_
#define BATON_TESTS_DEVMGR_MIG_TABLE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "devmgr/inventory.h"

namespace baton::devmgr {

struct DocumentedProfile {
  std::string name;
  uint32_t compute;
  uint32_t slices;
  std::vector<uint32_t> starts;
  uint32_t count;
  bool media = false;
};

struct DocumentedModel {
  std::string name;  // as NVML says it
  uint32_t memory_mib;
  uint32_t slices;
  uint32_t compute;
  std::vector<DocumentedProfile> profiles;
};

inline std::vector<DocumentedModel> DocumentedModels() {
  const auto seven = [](std::vector<std::string> n) {
    return std::vector<DocumentedProfile>{
        {n[0], 1, 1, {0, 1, 2, 3, 4, 5, 6}, 7},
        {n[0] + "+me", 1, 1, {0, 1, 2, 3, 4, 5, 6}, 1, true},
        {n[1], 1, 2, {0, 2, 4, 6}, 4},
        {n[2], 2, 2, {0, 2, 4}, 3},
        {n[3], 3, 4, {0, 4}, 2},
        {n[4], 4, 4, {0}, 1},
        {n[5], 7, 8, {0}, 1},
    };
  };
  const std::vector<std::string> of80 = {"1g.10gb", "1g.20gb", "2g.20gb",
                                         "3g.40gb", "4g.40gb", "7g.80gb"};
  return {
      {"NVIDIA A100-SXM4-40GB", 40'960, 8, 7,
       seven({"1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"})},
      {"NVIDIA A100-SXM4-80GB", 81'920, 8, 7, seven(of80)},
      {"NVIDIA H100 80GB HBM3", 81'559, 8, 7, seven(of80)},
      {"NVIDIA H200", 143'771, 8, 7,
       seven({"1g.18gb", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"})},
      {"NVIDIA A30",
       24'576,
       4,
       4,
       {{"1g.6gb", 1, 1, {0, 1, 2, 3}, 4},
        {"1g.6gb+me", 1, 1, {0, 1, 2, 3}, 1, true},
        {"2g.12gb", 2, 2, {0, 2}, 2},
        {"2g.12gb+me", 2, 2, {0, 2}, 1, true},
        {"4g.24gb", 4, 4, {0}, 1}}},
  };
}

inline Card MigCard(const DocumentedModel& model) {
  Card card;
  card.uuid = "GPU-0";
  card.model = model.name;
  card.memory_mib = model.memory_mib;
  card.mig_capable = true;
  card.mig_enabled = true;
  return card;
}

}  // namespace baton::devmgr

#endif  // BATON_TESTS_DEVMGR_MIG_TABLE_H_
