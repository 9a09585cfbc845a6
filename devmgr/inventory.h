// What there is: nodes and their GPUs, of NVIDIA or another vendor, as NVML or the configuration
// tells it.
// Values without behaviour, except the comparison that turns two looks at a node into events.
#ifndef BATON_DEVMGR_INVENTORY_H_
#define BATON_DEVMGR_INVENTORY_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace baton::devmgr {

// The vendor whose GPUs the token can share: the hook knows CUDA alone.
inline constexpr std::string_view kNvidia = "nvidia";

// A GPU as a daemon that shares it needs to know it.
struct GpuInfo {
  std::string uuid;  // "GPU-..."
  std::string name;  // "NVIDIA H200"
  uint64_t memory_bytes = 0;
  std::string vendor{kNvidia};
  // Of another vendor: Card::environment.
  std::map<std::string, std::string> environment{};

  bool by_token() const { return vendor == kNvidia; }
};

// What holds of a [[gpu]] of the configuration. NVIDIA's need a uuid; those of other vendors also a
// name, by which pods ask for them, and an environment, by which programs find them. kInvalid: what
// is wrong with it and what is accepted.
Result<void> Check(const GpuInfo& gpu);

enum class Health : uint8_t {
  kHealthy,
  kFailed,   // it is there and must not be used: an XID, uncorrectable ECC errors
  kMissing,  // it was there and is not any more
};

// An instance of a GPU that is divided by MIG.
struct MigInstance {
  uint32_t id = 0;      // NVML's id of the GPU instance
  std::string profile;  // "1g.10gb", as nvidia-smi spells it
  std::string uuid;     // "MIG-..." of its compute instance; empty: it has none yet
  uint32_t start = 0;   // first memory slice
  uint32_t slices = 0;  // memory slices

  friend bool operator==(const MigInstance&, const MigInstance&) = default;
};

struct Card {
  std::string uuid;  // "GPU-..."; unique in the cluster
  std::string vendor{kNvidia};
  std::string model;        // "NVIDIA H200", as NVML says it
  uint32_t memory_mib = 0;  // in all, as nvidia-smi says it
  // Of it, in use without a reservation: it is given to nobody. May be more than is left.
  uint32_t taken_mib = 0;
  // Of it, kept from pods that share the GPU, for what the driver takes beside their memory.
  uint32_t reserve_mib = 0;
  int32_t numa = -1;  // NUMA node that its bus hangs on; -1: unknown
  // GPUs of a node with the same number, 0 or more, reach each other by NVLink (directly or over a
  // switch); -1: no NVLink.
  int32_t island = -1;
  // Likewise those that reach each other over PCIe switches, past no host bridge; -1: none does.
  int32_t pcie = -1;
  std::string bus;  // PCI address, "0000:17:00.0"; empty: unknown
  bool mig_capable = false;
  bool mig_enabled = false;            // MIG mode is on now: only instances of it can be used
  std::vector<MigInstance> instances;  // by start
  Health health = Health::kHealthy;
  std::string why;        // why it is not healthy: "XID 79: GPU has fallen off the bus"
  bool cordoned = false;  // by its operator: what is on it stays, nothing comes
  // Millionths of the GPU that its pods are expected to execute beyond what they request, as its
  // node knows them; below 0: so much less. 0 also where nothing is known.
  int64_t beyond = 0;
  static constexpr int64_t kBeyondMax = 100'000'000;
  // Of another vendor, by what programs find it: ROCR_VISIBLE_DEVICES = "0". Where there is some,
  // pods may have the GPU as a whole (Exclusive); for several GPUs the values are joined by ",".
  std::map<std::string, std::string> environment;

  bool usable() const { return health == Health::kHealthy && !cordoned; }
  friend bool operator==(const Card&, const Card&) = default;
};

struct Node {
  std::string name;         // unique in the cluster
  uint32_t cpu_milli = 0;   // what pods may use of it; 0: not looked at
  uint64_t memory_mib = 0;  // of the host, likewise
  std::map<std::string, std::string> labels;
  bool cordoned = false;
  std::vector<Card> cards;  // in bus order: the index is what users count by
  // What else pods may use of it; of what is not here there is none.
  std::map<std::string, uint64_t> resources;

  friend bool operator==(const Node&, const Node&) = default;
};

struct InventoryEvent {
  enum class Kind : uint8_t {
    kAppeared,   // a GPU that was not known, or is back
    kVanished,   // Health::kMissing
    kFailed,     // Health::kFailed
    kRecovered,  // healthy again without having been away
    kCordoned,
    kUncordoned,
    kReshaped,  // MIG mode or instances are others than before
    kChanged,   // anything else: memory, topology, name
  };
  Kind kind;
  std::string node;
  std::string uuid;
  std::string why;  // a clause for people

  friend bool operator==(const InventoryEvent&, const InventoryEvent&) = default;
};

// What happened to the GPUs of one node between two looks, in the order of `after`, then those
// that are only in `before`. A GPU that failed and was cordoned gives two events.
std::vector<InventoryEvent> Differences(const Node& before, const Node& after);

// `now` with the GPUs of `before` that it lacks, as kMissing: a GPU that vanishes keeps its place
// until it is taken out on purpose, for pods are on it. A cordon of `before` stays.
Node Merged(const Node& before, Node now);

}  // namespace baton::devmgr

#endif  // BATON_DEVMGR_INVENTORY_H_
