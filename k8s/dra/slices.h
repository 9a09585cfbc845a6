// The node's GPUs as devices of a ResourceSlice (resource.k8s.io/v1). Pure.
#ifndef BATON_K8S_DRA_SLICES_H_
#define BATON_K8S_DRA_SLICES_H_

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <string_view>

#include "devmgr/inventory.h"
#include "k8s/api/object.h"

namespace baton::k8s {

// A device's name: of the GPU's uuid, which is the same after a reboot; a DNS label.
std::string DeviceNameOf(std::string_view uuid);

// spec.devices: a device for each GPU whose time can be shared, which several claims may have at
// once. Its capacity is `share`, in percent, and `memory`; what a request does not name, it takes
// all of, for of less nobody could say whom it would starve. A GPU that gets nothing new has a
// taint, whose value says why: cordoned, failed, missing, or in-use where it is of `taken` (uuids):
// pods that no claim is for have it. `pcie_root`: of a PCI address, "pci0000:00"; empty: unknown.
Json DraDevicesOf(const devmgr::Node& node, const std::set<std::string>& taken,
                  const std::function<std::string(const std::string& bus)>& pcie_root);
// Those without a taint, for an API server that knows none.
Json WithoutTainted(const Json& devices);

// The ResourceSlice of the node, its one pool, for server-side apply; the Node of that uid owns it.
// `mark` is kept with it, for SliceMarkOf().
Json ResourceSliceOf(const std::string& node, const std::string& node_uid, const Json& devices,
                     uint64_t generation, const std::string& mark);
std::string SliceNameOf(const std::string& node);
std::string SliceMarkOf(const Json& slice);
uint64_t SliceGenerationOf(const Json& slice);  // 0: it has none

}  // namespace baton::k8s

#endif  // BATON_K8S_DRA_SLICES_H_
