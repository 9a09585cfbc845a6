// ResourceClaims that were allocated on this node, as pods of batond, as files on disk and as CDI
// devices. Pure; never throws, whatever the objects are.
//
// A claim's request (spec.devices.requests) is one pod of batond, on as many GPUs as the scheduler
// has allocated for it. All containers that use the request share it.
#ifndef BATON_K8S_DRA_CLAIMS_H_
#define BATON_K8S_DRA_CLAIMS_H_

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "k8s/api/object.h"
#include "k8s/device_plugin/node_pods.h"
#include "k8s/types/inject.h"
#include "k8s/types/tenancy.h"

namespace baton::k8s {

// The driver's name: of ResourceSlices, of the DeviceClass, and the domain of its attributes.
inline constexpr std::string_view kDraDriver = "gpu.baton.dev";
// What a claim may consume of a device.
inline constexpr std::string_view kShareCapacity = "share";    // percent of the GPU's time
inline constexpr std::string_view kMemoryCapacity = "memory";  // bytes

// One request of a claim.
struct ClaimRequest {
  struct Device {
    std::string pool;
    std::string name;
    std::string share_id;  // of the allocation; empty: the API server has none

    friend bool operator==(const Device&, const Device&) = default;
  };
  std::string name;             // without that of a subrequest
  BatondPod pod;                // on the GPUs of `devices`, in their order
  std::vector<Device> devices;  // at least one

  friend bool operator==(const ClaimRequest&, const ClaimRequest&) = default;
};

struct DraClaim {
  ObjectName name;
  std::string uid;
  std::vector<ClaimRequest> requests;  // those that this driver has devices for, by name

  friend bool operator==(const DraClaim&, const DraClaim&) = default;
};

// What a claim is read by.
struct ClaimReader {
  std::string node;                         // the name of its pool
  std::map<std::string, std::string> gpus;  // uuids by the names of devices
  TenancyOptions tenancy;
  Json name_space = Json::object();  // the claim's Namespace: its team, and what it may ask for

  // kInvalid: a sentence that names the field. A pod has share and memory as consumed, limit 100,
  // and beside that what the driver's parameters say, those of the class before those of the claim:
  //   {"apiVersion": "baton.dev/v1alpha1", "kind": "ShareParameters", "limit": "60",
  //    "priority": "high", "latency": "20ms", "name": "trainer"}
  // It has no ticket yet; NamesFor() says how it may be called. A device that the API server
  // has allocated as a whole, for it knows no consumable capacity, is 100 % without a cap.
  Result<DraClaim> Read(const Json& claim) const;
};

// How the pod may be called, the best first: as Read() says, which is by the parameter `name`, else
// by the pod that the claim was made for (from a template), else by the claim; with the request's
// name where the claim has several. The last is no other claim's, whatever the pod is called now.
std::vector<std::string> NamesFor(const DraClaim& claim, const ClaimRequest& request);

// 1 to 64 letters, digits and dashes: it is part of files' names.
bool IsClaimUid(std::string_view uid);

// What the driver keeps of a claim, over restarts and reboots. kInvalid: it is damaged.
std::string DraClaimText(const DraClaim& claim);
Result<DraClaim> ParseDraClaim(std::string_view text);

// What the container's runtime gives a container with that request, and a file's name for it.
std::string CdiFileOf(std::string_view claim_uid);                              // *.json
std::string CdiDeviceOf(std::string_view claim_uid, std::string_view request);  // qualified
Json CdiSpecOf(const DraClaim& claim, const std::vector<HookMount>& mounts);

}  // namespace baton::k8s

#endif  // BATON_K8S_DRA_CLAIMS_H_
