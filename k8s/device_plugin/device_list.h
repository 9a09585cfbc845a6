// What the kubelet is told of a node's GPUs: devices, of which containers get a number. A share is
// a percent of one GPU, memory comes in units of so many MiB, whole GPUs count as one each. Which
// GPU a container really has, the binder said; the kubelet only counts. Pure.
#ifndef BATON_K8S_DEVICE_PLUGIN_DEVICE_LIST_H_
#define BATON_K8S_DEVICE_PLUGIN_DEVICE_LIST_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "devmgr/inventory.h"

namespace baton::k8s {

struct PluginCard {
  std::string uuid;
  uint32_t memory_mib = 0;
  bool healthy = true;
  bool divided = false;  // by MIG: nobody has it as a whole

  friend bool operator==(const PluginCard&, const PluginCard&) = default;
};

struct PluginDevice {
  std::string id;  // "GPU-.../17", at most 63 bytes; see CardOfDevice()
  bool healthy = true;

  friend bool operator==(const PluginDevice&, const PluginDevice&) = default;
};

// Of a GPU that is divided by MIG, or another vendor's, nobody can have a part by turns.
bool HasTurns(const devmgr::Card& card);

// The node's GPUs of which pods can have a part, by turns or by MIG.
std::vector<PluginCard> PluginCardsOf(const devmgr::Node& node);

// The kubelet takes messages of 4 MiB at most; a longer list makes it drop the resource.
inline constexpr size_t kListBytesMax = (size_t{7} << 20) / 2;

// 100 for each GPU.
std::vector<PluginDevice> ShareDevices(const std::vector<PluginCard>& cards);
// One for each GPU that is not divided by MIG.
std::vector<PluginDevice> WholeDevices(const std::vector<PluginCard>& cards);
// As many for each GPU that is not divided by MIG as it takes clients of MPS.
std::vector<PluginDevice> MpsDevices(const std::vector<PluginCard>& cards);
// The GPU's memory in units, rounded up: a container may ask for all of it. kInvalid: the list is
// longer than kListBytesMax, or the unit is 0; the sentence says which unit would do.
Result<std::vector<PluginDevice>> MemoryDevices(const std::vector<PluginCard>& cards,
                                                uint32_t unit_mib);

// What the list takes on the wire at most, in bytes.
size_t ListBytes(const std::vector<PluginDevice>& devices);

// The GPU that the id names (its last 54 bytes where the uuid is longer).
std::string_view CardOfDevice(std::string_view id);

// `size` of the available ones, `must` among them, from the fewest GPUs: first what is left of the
// GPUs of `must`, then the GPU that has enough and least beside, else the fullest. Ordered by
// id within a GPU. Fewer where there are not so many.
std::vector<std::string> PreferredDevices(const std::vector<std::string>& available,
                                          const std::vector<std::string>& must, size_t size);

}  // namespace baton::k8s

#endif  // BATON_K8S_DEVICE_PLUGIN_DEVICE_LIST_H_
