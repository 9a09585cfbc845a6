// The models that a simulated GPU can be: names and memory as NVML tells them, and MIG profiles
// with their ids, sizes and places as `nvidia-smi mig -lgip` and `-lgipp` print them on the real
// card (NVIDIA's MIG User Guide, "Supported MIG Profiles" and "Getting Started").
#ifndef BATON_SIM_MODELS_H_
#define BATON_SIM_MODELS_H_

#include <cstdint>
#include <string_view>
#include <vector>

namespace baton::sim {

// A GPU instance profile.
struct MigProfile {
  uint32_t index;      // NVML_GPU_INSTANCE_PROFILE_*
  uint32_t id;         // what nvidia-smi calls its ID
  const char* name;    // "MIG 1g.10gb"
  uint32_t slices;     // compute slices
  uint32_t size;       // memory slices
  uint32_t instances;  // at most so many at once
  uint32_t multiprocessors;
  uint32_t copy_engines, decoders, jpegs, ofas;
  uint64_t memory_mib;
  std::vector<uint32_t> starts;  // memory slices on which it may begin
};

struct Model {
  const char* key;   // "h200": what one writes on the command line
  const char* name;  // "NVIDIA H200"
  uint64_t memory_mib;
  bool ecc;
  uint32_t memory_slices;            // 0: no MIG
  std::vector<MigProfile> profiles;  // in the order of their indexes
  bool gpm = false;                  // NVML has performance metrics: Hopper and newer

  // Null: it has none.
  const MigProfile* ByIndex(uint32_t index) const;
  const MigProfile* ById(uint32_t id) const;
};

const std::vector<Model>& Models();
// Null: no such.
const Model* FindModel(std::string_view key);

}  // namespace baton::sim

#endif  // BATON_SIM_MODELS_H_
