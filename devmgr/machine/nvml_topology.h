// How the GPUs of a node reach each other, as NVML tells it.
#ifndef BATON_DEVMGR_MACHINE_NVML_TOPOLOGY_H_
#define BATON_DEVMGR_MACHINE_NVML_TOPOLOGY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "devmgr/machine/nvml_api.h"

namespace baton::devmgr::nvml {

struct Reachable {
  Device device;
  std::string bus;  // as BusText() spells it; empty: unknown
};

// For each GPU, which group it is in: numbered from 0 by their first GPU; -1: in none. What NVML
// does not answer joins nobody.
//
// NVLink: what a chain of active links joins, directly or over switches; P2P status has a say where
// links do not tell their other end. A GPU whose links end at a switch that no other GPU is on is
// a group by itself.
std::vector<int32_t> NvLinkIslands(const Api& api, const std::vector<Reachable>& cards);
// PCIe: GPUs that reach each other without passing a host bridge. No group of one.
std::vector<int32_t> PcieGroups(const Api& api, const std::vector<Reachable>& cards);

// "0000:17:00.0", as sysfs spells it.
std::string BusText(const PciInfo& pci);
// The NUMA node whose memory is next to the GPU, from NVML or else from sysfs; -1: unknown, or
// there is no difference.
//
// Not nvmlDeviceGetNumaNodeId: that is the node which the GPU's own memory forms, where CPU and GPU
// share their addresses.
int32_t NumaOf(const Api& api, Device device, const std::string& bus);

}  // namespace baton::devmgr::nvml

#endif  // BATON_DEVMGR_MACHINE_NVML_TOPOLOGY_H_
