#include "k8s/dra/claims.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "k8s/api/timestamp.h"
#include "k8s/types/annotations.h"
#include "k8s/types/quantity.h"
#include "k8s/types/read.h"
#include "spec/modes.h"

namespace baton::k8s {
namespace {

constexpr std::string_view kParametersVersion = "baton.dev/v1alpha1";
constexpr std::string_view kParametersKind = "ShareParameters";
constexpr std::string_view kCdiClass = "claim";
constexpr int kClaimFormat = 1;
constexpr size_t kPodNameMax = 128;  // of batond's pods
constexpr size_t kOwnNameMax = 63;   // of the parameter
constexpr size_t kGpusOfRequestMax = spec::kGpusMax;
constexpr size_t kRequestsMax = 64;
constexpr int64_t kMilliOfPercent = 1'000;
constexpr int64_t kMemoryMin = int64_t{1} << 20;
constexpr int64_t kMemoryMax = int64_t{1} << 44;

// A request, or a subrequest "request/subrequest", is of this request.
std::string_view MainRequest(std::string_view name) { return name.substr(0, name.find('/')); }

bool IsDnsLabel(std::string_view text, size_t bytes_max) {
  const auto good = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  return !text.empty() && text.size() <= bytes_max && good(text.front()) && good(text.back()) &&
         std::all_of(text.begin(), text.end(), [&](char c) { return good(c) || c == '-'; });
}

// The name of an object: labels between dots.
bool IsDnsSubdomain(std::string_view name) {
  constexpr size_t kNameBytesMax = 253;
  if (name.size() > kNameBytesMax) return false;
  while (true) {
    const size_t dot = name.find('.');
    if (!IsDnsLabel(name.substr(0, dot), kNameBytesMax)) return false;
    if (dot == std::string_view::npos) return true;
    name.remove_prefix(dot + 1);
  }
}

// Where it is too long, the claim's uid makes the rest of it unique.
std::string WithinBounds(const std::string& name, std::string_view uid) {
  if (name.size() <= kPodNameMax) return name;
  const std::string end = fmt::format("~{}", uid.substr(0, 36));
  return name.substr(0, kPodNameMax - end.size()) + end;
}

// The parameters of one entry of status.allocation.devices.config, into the pod.
Result<void> ReadParameters(const Json& parameters, const std::string& field, bool may_be_high,
                            BatondPod& pod) {
  if (!parameters.is_object()) return Refuse(field, "must be an object");
  if (TextAt(parameters, "apiVersion") != kParametersVersion ||
      TextAt(parameters, "kind") != kParametersKind) {
    return Refuse(field, fmt::format("must have apiVersion {} and kind {}", kParametersVersion,
                                     kParametersKind));
  }
  for (const auto& [key, value] : parameters.items()) {
    if (key == "apiVersion" || key == "kind") continue;
    const std::string at = fmt::format("{}.{}", field, key);
    if (!value.is_string()) return Refuse(at, "must be a string");
    const auto& text = value.get_ref<const std::string&>();
    if (key == "limit") {
      auto limit = ParsePercent(text);
      if (!limit) return Refuse(at, limit.error().message);
      pod.share.limit = *limit;
    } else if (key == "priority") {
      auto priority = spec::ParsePriority(text);
      if (!priority) return Refuse(at, priority.error().message);
      if (*priority == policy::Priority::kHigh && !may_be_high) {
        return Refuse(at, fmt::format("'high' needs the label baton.dev/allow-{}=true of the "
                                      "Namespace, or a DeviceClass that says it",
                                      grants::kHighPriority));
      }
      pod.share.priority = *priority;
    } else if (key == "latency") {
      if (auto read = spec::ReadField(*spec::FindPodField("latency"), value, pod); !read) {
        return Refuse(field, read.error().message);
      }
    } else if (key == "name") {
      if (!IsDnsLabel(text, kOwnNameMax)) {
        return Refuse(at, "must be at most 63 lower-case letters, digits and dashes");
      }
      pod.name = text;
    } else {
      return Refuse(at, "is unknown; there are limit, priority, latency and name");
    }
  }
  return {};
}

// What one result says that is consumed of a GPU, into the pod: of several GPUs the least.
Result<void> ReadConsumed(const Json& result, const std::string& field, bool first,
                          BatondPod& pod) {
  policy::Share share = policy::kWhole;
  uint64_t memory = 0;
  const Json* consumed = Find(result, "consumedCapacity");
  if (consumed != nullptr && !consumed->is_null()) {
    if (!consumed->is_object()) return Refuse(field + ".consumedCapacity", "must be an object");
    const auto at = [&](std::string_view name) {
      return fmt::format("{}.consumedCapacity.{}", field, name);
    };
    const auto of_time = consumed->find(std::string(kShareCapacity));
    if (of_time == consumed->end()) return Refuse(at(kShareCapacity), "is missing");
    auto milli = MilliQuantity(*of_time);
    if (!milli) return Refuse(at(kShareCapacity), milli.error().message);
    if (*milli < kMilliOfPercent / 10 || *milli > 100 * kMilliOfPercent) {
      return Refuse(at(kShareCapacity), "must be a percentage of one GPU, above 0 and up to 100");
    }
    // In steps of 0.1 %, as everywhere.
    share = policy::Share(static_cast<uint32_t>(*milli / 100 * 1'000));
    // Of a GPU whose memory nobody knows there is none to consume.
    if (const auto of_memory = consumed->find(std::string(kMemoryCapacity));
        of_memory != consumed->end()) {
      auto bytes = WholeQuantity(*of_memory);
      if (!bytes) return Refuse(at(kMemoryCapacity), bytes.error().message);
      if (*bytes < kMemoryMin || *bytes > kMemoryMax) {
        return Refuse(at(kMemoryCapacity), "must be from 1Mi to 16Ti");
      }
      memory = static_cast<uint64_t>(*bytes);
    }
  }
  pod.share.request = first ? share : std::min(pod.share.request, share);
  pod.memory_cap = first ? memory : std::min(pod.memory_cap, memory);
  return {};
}

// The pod of Kubernetes that the claim was made for, by a template; empty: none was.
std::string OwnerPod(const Json& claim) {
  for (const Json& owner : ListAt(claim, "metadata/ownerReferences")) {
    const Json* controls = Find(owner, "controller");
    if (controls != nullptr && *controls == Json(true) && TextAt(owner, "kind") == "Pod" &&
        TextAt(owner, "apiVersion") == "v1" && IsDnsSubdomain(TextAt(owner, "name"))) {
      return TextAt(owner, "name");
    }
  }
  return "";
}

Result<void> ReadConfig(const Json& claim, const std::string& request, bool high, BatondPod& pod) {
  // Who allocates puts the class first; it is not relied on.
  for (const std::string_view source : {"FromClass", "FromClaim"}) {
    size_t index = 0;
    for (const Json& entry : ListAt(claim, "status/allocation/devices/config")) {
      const std::string field =
          fmt::format("status.allocation.devices.config[{}].opaque.parameters", index++);
      if (TextAt(entry, "source") != source || TextAt(entry, "opaque/driver") != kDraDriver) {
        continue;
      }
      const Json& requests = ListAt(entry, "requests");
      const bool concerns =
          requests.empty() || std::any_of(requests.begin(), requests.end(), [&](const Json& name) {
            return name.is_string() &&
                   MainRequest(name.get<std::string>()) == MainRequest(request) &&
                   (name.get<std::string>().find('/') == std::string::npos || name == request);
          });
      if (!concerns) continue;
      const Json* parameters = Find(entry, "opaque/parameters");
      if (auto read = ReadParameters(parameters == nullptr ? Json() : *parameters, field,
                                     source == "FromClass" || high, pod);
          !read) {
        return read;
      }
    }
  }
  return {};
}

}  // namespace

Result<DraClaim> ClaimReader::Read(const Json& claim) const {
  DraClaim read;
  read.name = NameOf(claim);
  read.uid = UidOf(claim);
  if (!IsDnsLabel(read.name.name_space, 63) || !IsDnsSubdomain(read.name.name) ||
      !IsClaimUid(read.uid)) {
    return Refuse("metadata", "must have a namespace, a name and a uid");
  }
  const NamespaceRules rules = RulesOf(name_space, tenancy);
  const bool high = rules.Allows(tenancy, grants::kHighPriority);
  const std::string owner = OwnerPod(claim);
  std::map<std::string, ClaimRequest> requests;
  size_t index = 0;
  for (const Json& result : ListAt(claim, "status/allocation/devices/results")) {
    const std::string field = fmt::format("status.allocation.devices.results[{}]", index++);
    if (TextAt(result, "driver") != kDraDriver) continue;
    const ClaimRequest::Device device{TextAt(result, "pool"), TextAt(result, "device"),
                                      TextAt(result, "shareID")};
    const std::string whole_name = TextAt(result, "request");
    const std::string name(MainRequest(whole_name));
    if (!IsDnsLabel(name, 63)) return Refuse(field + ".request", "must be a request's name");
    if (device.pool != node) {
      return Refuse(field + ".pool", Quoted(device.pool) + " is not the pool of node " + node);
    }
    if (const Json* admin = Find(result, "adminAccess"); admin != nullptr && *admin == Json(true)) {
      return Refuse(field + ".adminAccess",
                    "is not supported: a container would use the GPU "
                    "without taking turns");
    }
    const auto gpu = gpus.find(device.name);
    if (gpu == gpus.end()) {
      return Refuse(field + ".device", "this node has no GPU " + Quoted(device.name));
    }
    const bool first = !requests.contains(name);
    ClaimRequest& request = requests[name];
    std::vector<std::string>& uuids = request.pod.wishes.gpus;
    if (std::find(uuids.begin(), uuids.end(), gpu->second) != uuids.end()) {
      return Refuse(field + ".device",
                    fmt::format("request {} has {} twice; a constraint distinctAttribute: {}/uuid "
                                "of the claim gives it different GPUs",
                                name, device.name, kDraDriver));
    }
    if (uuids.size() == kGpusOfRequestMax || requests.size() > kRequestsMax) {
      return Refuse(field, fmt::format("a request has at most {} GPUs, a claim at most {} requests",
                                       kGpusOfRequestMax, kRequestsMax));
    }
    if (auto consumed = ReadConsumed(result, field, first, request.pod); !consumed) {
      return tl::unexpected(consumed.error());
    }
    if (first) {
      request.name = name;
      request.pod.share.limit = policy::kWhole;
      if (auto config = ReadConfig(claim, whole_name, high, request.pod); !config) {
        return tl::unexpected(config.error());
      }
      if (request.pod.name.empty()) request.pod.name = owner.empty() ? read.name.name : owner;
    }
    uuids.push_back(gpu->second);
    request.devices.push_back(device);
  }
  if (requests.empty()) {
    return Refuse("status.allocation", fmt::format("has no device of {}", kDraDriver));
  }
  for (auto& [name, request] : requests) {
    BatondPod& pod = request.pod;
    pod.name = WithinBounds(read.name.name_space + "/" + pod.name, read.uid);
    pod.name_space = read.name.name_space;
    pod.team = rules.team;
    pod.wishes.mode = spec::kTimeSlice;
    pod.asked_at =
        std::max<int64_t>(0, SecondsIn(TextAt(claim, "metadata/creationTimestamp")).value_or(0));
    if (pod.share.limit < pod.share.request) {
      return Refuse("limit", fmt::format("of request {} is below its share; raise the limit or "
                                         "lower the share",
                                         name));
    }
    // It is room on the GPU alone, and no time.
    if (pod.share.priority == policy::Priority::kIdle) pod.share.request = policy::Share(0);
    const bool together = pod.wishes.gpus.size() > 1;
    if (auto good = spec::CheckShare(pod.share, pod.wishes.mode, together); !good) {
      return Refuse("parameters", fmt::format("of request {}: {}", name, good.error().message));
    }
    read.requests.push_back(std::move(request));
  }
  return read;
}

std::vector<std::string> NamesFor(const DraClaim& claim, const ClaimRequest& request) {
  std::vector<std::string> names;
  if (claim.requests.size() == 1) names.push_back(request.pod.name);
  names.push_back(WithinBounds(request.pod.name + "/" + request.name, claim.uid));
  names.push_back(WithinBounds(
      fmt::format("{}/{}/{}", claim.name.name_space, claim.name.name, request.name), claim.uid));
  return names;
}

bool IsClaimUid(std::string_view uid) {
  return !uid.empty() && uid.size() <= 64 && std::all_of(uid.begin(), uid.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
  });
}

std::string DraClaimText(const DraClaim& claim) {
  Json requests = Json::array();
  for (const ClaimRequest& request : claim.requests) {
    Json devices = Json::array();
    for (const ClaimRequest::Device& device : request.devices) {
      devices.push_back(
          {{"pool", device.pool}, {"name", device.name}, {"share_id", device.share_id}});
    }
    requests.push_back({{"name", request.name},
                        {"pod", spec::WriteFields(request.pod)},
                        {"devices", std::move(devices)}});
  }
  const Json text{{"v", kClaimFormat},
                  {"namespace", claim.name.name_space},
                  {"name", claim.name.name},
                  {"uid", claim.uid},
                  {"requests", std::move(requests)}};
  return text.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<DraClaim> ParseDraClaim(std::string_view text) {
  const auto damaged = [](const char* what) {
    return Fail(ErrorCode::kInvalid, fmt::format("it is damaged: {}", what));
  };
  const auto json = ParseObject(text);
  if (!json) return damaged("no JSON object");
  if (const Json* version = Find(*json, "v"); version == nullptr || *version != kClaimFormat) {
    return Fail(ErrorCode::kInvalid, "another version of Baton wrote it");
  }
  DraClaim claim;
  claim.name = {TextAt(*json, "namespace"), TextAt(*json, "name")};
  claim.uid = TextAt(*json, "uid");
  if (claim.name.name_space.empty() || claim.name.name.empty() || !IsClaimUid(claim.uid)) {
    return damaged("namespace, name or uid");
  }
  for (const Json& row : ListAt(*json, "requests")) {
    ClaimRequest request;
    request.name = TextAt(row, "name");
    const Json* pod = Find(row, "pod");
    if (!IsDnsLabel(request.name, 63) || pod == nullptr || !pod->is_object()) {
      return damaged("a request");
    }
    if (auto read = spec::ReadFields(*pod, request.pod); !read) {
      return damaged(read.error().message.c_str());
    }
    for (const Json& device : ListAt(row, "devices")) {
      request.devices.push_back(
          {TextAt(device, "pool"), TextAt(device, "name"), TextAt(device, "share_id")});
    }
    if (request.devices.empty() || request.devices.size() != request.pod.wishes.gpus.size() ||
        request.pod.ticket.empty() || request.pod.name.empty()) {
      return damaged("a request's pod or devices");
    }
    claim.requests.push_back(std::move(request));
  }
  if (claim.requests.empty()) return damaged("no requests");
  return claim;
}

std::string CdiFileOf(std::string_view claim_uid) {
  return fmt::format("{}-{}_{}.json", kDraDriver, kCdiClass, claim_uid);
}

namespace {

// A device's name begins with a letter in the oldest version of CDI.
std::string CdiNameOf(std::string_view claim_uid, std::string_view request) {
  return fmt::format("claim-{}-{}", claim_uid, request);
}

}  // namespace

std::string CdiDeviceOf(std::string_view claim_uid, std::string_view request) {
  return fmt::format("{}/{}={}", kDraDriver, kCdiClass, CdiNameOf(claim_uid, request));
}

Json CdiSpecOf(const DraClaim& claim, const std::vector<HookMount>& mounts) {
  Json devices = Json::array();
  for (const ClaimRequest& request : claim.requests) {
    std::string gpus;
    for (const std::string& uuid : request.pod.wishes.gpus) {
      gpus += (gpus.empty() ? "" : ",") + uuid;
    }
    Json folders = Json::array();
    for (const HookMount& mount : mounts) {
      folders.push_back({{"hostPath", mount.host_path},
                         {"containerPath", mount.container_path},
                         {"options", {"ro", "nosuid", "nodev", "bind"}}});
    }
    devices.push_back({{"name", CdiNameOf(claim.uid, request.name)},
                       {"containerEdits",
                        {{"env",
                          {"BATON_TICKET=" + request.pod.ticket,
                           fmt::format("BATON_SOCKET={}/baton.sock", kSocketDir),
                           "NVIDIA_VISIBLE_DEVICES=" + gpus, "CUDA_VISIBLE_DEVICES=" + gpus}},
                         {"mounts", std::move(folders)}}}});
  }
  // 0.3.0 is the oldest version that runtimes read, and has all of this.
  return {{"cdiVersion", "0.3.0"},
          {"kind", fmt::format("{}/{}", kDraDriver, kCdiClass)},
          {"devices", std::move(devices)}};
}

}  // namespace baton::k8s
