// An inventory as text: what a cluster has, for planning, for tests, and for nodes that tell
// nothing by themselves. Pure.
//
//   [[node]]
//   name = "gpu-01"
//   cpu = 96                       # cores, likewise 0.5; not looked at without it
//   memory = "512GiB"              # of the host, likewise
//   labels = {zone = "a"}
//   cordoned = true
//
//   [[node.card]]
//   model = "H200"                 # as NVML says it, with or without "NVIDIA "
//   uuid = "GPU-..."               # without it "gpu-01/0", by its place on the node
//   count = 4                      # so many alike; their uuids then end in /0, /1, ...
//   memory = "80GiB"               # needed for models that are not known only
//   vendor = "nvidia"
//   numa = 0
//   island = 0                     # NVLink: cards of the node with the same number
//   pcie = 0                       # PCIe switch: likewise
//   bus = "0000:17:00.0"
//   mig_capable = true             # of models that are not known
//   mig = true                     # MIG mode is on
//   instances = [{profile = "3g.71gb", start = 0, slices = 4, id = 1, uuid = "MIG-..."}]
//   health = "failed"              # or "missing"
//   why = "XID 79"
//   cordoned = true
#ifndef BATON_DEVMGR_PLACEMENT_INVENTORY_TOML_H_
#define BATON_DEVMGR_PLACEMENT_INVENTORY_TOML_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "devmgr/inventory.h"

namespace baton::devmgr {

// Bounds of an inventory: bytes of its text, and nodes. A node has at most VgpuRequest::kCardsMax
// cards.
inline constexpr size_t kInventoryBytesMax = size_t{32} << 20;
inline constexpr size_t kInventoryNodesMax = 20'000;

// The nodes in the order of the text. An error is one line, "NAME:LINE: what is wrong; what to do",
// and the first of them; `name` is the file's. Checked is what can be without knowing more: names
// and uuids are unique, memory is there, MIG instances lie on the card and not over each other.
Result<std::vector<Node>> ParseInventory(std::string_view text, const std::string& name);

// The text that gives these nodes again.
std::string PrintInventory(const std::vector<Node>& nodes);

// What is known of a model by its name.
struct KnownModel {
  const char* name;  // "NVIDIA H200", as NVML says it
  uint32_t memory_mib;
  bool mig_capable;
};
// With or without "NVIDIA ". Null: not known.
const KnownModel* FindModel(std::string_view name);

}  // namespace baton::devmgr

#endif  // BATON_DEVMGR_PLACEMENT_INVENTORY_TOML_H_
