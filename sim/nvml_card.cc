// libnvidia-ml.so.1: where a card is, how it is linked, how it is, and what happens to it.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "sim/nvml.h"

namespace baton::sim {
namespace {

struct NvmlPciInfo {
  char bus_id_legacy[16];
  unsigned int domain, bus, device;
  unsigned int pci_device_id, pci_subsystem_id;
  char bus_id[32];
};

struct NvmlEventData {
  void* device;
  unsigned long long event_type, event_data;
  unsigned int gpu_instance, compute_instance;
};

constexpr unsigned int kLinkToGpu = 0, kLinkToSwitch = 2;
constexpr unsigned int kCapNvLink = 2;
constexpr unsigned int kP2pOverLink = 0;  // of a link's capabilities
constexpr unsigned int kP2pOk = 0, kP2pNotSupported = 5;
enum : unsigned int { kSingle = 10, kNode = 40, kSystem = 50 };
constexpr uint64_t kXidEvent = 8;
constexpr uint64_t kSupportedEvents = 1 | 2 | 8 | 256;

NvmlReturn FillPci(const std::string& bus, NvmlPciInfo* pci) {
  if (pci == nullptr) return kInvalidArgument;
  unsigned int domain = 0, number = 0, device = 0;
  if (sscanf(bus.c_str(), "%x:%x:%x.", &domain, &number, &device) != 3) return kUnknown;
  *pci = {};
  snprintf(pci->bus_id_legacy, sizeof pci->bus_id_legacy, "%04X:%02X:%02X.0", domain & 0xffff,
           number & 0xff, device & 0x1f);
  snprintf(pci->bus_id, sizeof pci->bus_id, "%08X:%02X:%02X.0", domain, number, device);
  pci->domain = domain;
  pci->bus = number;
  pci->device = device;
  return kSuccess;
}

struct NvmlMemoryLimits {
  const char* folder;
  unsigned long long soft, hard;
};

// Replaces the device's line in a file of the group: "BUS BYTES", or "BUS max". False: no such
// file.
bool SetGroupLimit(const std::string& path, const std::string& bus, unsigned long long bytes) {
  std::ifstream in(path);
  if (!in) return false;
  std::string text, line;
  while (std::getline(in, line)) {
    if (line.compare(0, bus.size() + 1, bus + " ") != 0) text += line + "\n";
  }
  text += bus + " " + (bytes == ~0ull ? "max" : std::to_string(bytes)) + "\n";
  std::ofstream out(path, std::ios::trunc);
  out << text;
  return static_cast<bool>(out.flush());
}

// An event set: what was registered, and how much of it has been told.
struct EventSet {
  struct Watch {
    Device* device;
    uint64_t types;
    uint64_t seen;
  };
  std::vector<Watch> watches;
};
std::mutex sets_mutex;
std::vector<EventSet*>& Sets() {
  static auto& sets = *new std::vector<EventSet*>;
  return sets;
}
bool IsSet(const void* set) {
  auto& sets = Sets();
  return std::find(sets.begin(), sets.end(), set) != sets.end();
}

// The state of one link, or why there is none.
NvmlReturn LinkOf(const char* call, void* handle, unsigned int link, LinkEnd* end,
                  Device** device) {
  if (NvmlReturn r = Enter(call, handle, device)) return r;
  Device::Session session(*device);
  const CardState& card = session.card();
  if (card.links[0].kind == 0) return kNotSupported;
  if (link >= kMaxLinks || card.links[link].kind == 0) return kInvalidArgument;
  *end = card.links[link];
  return kSuccess;
}

bool Linked(const CardState& a, const std::string& bus_a, const CardState& b,
            const std::string& bus_b) {
  for (const LinkEnd& x : a.links) {
    if (x.kind == 0 || x.active == 0) continue;
    if (x.kind == 1 && bus_b == x.bus) return true;
    for (const LinkEnd& y : b.links) {
      if (y.kind == 0 || y.active == 0) continue;
      if (y.kind == 1 && bus_a == y.bus) return true;
      if (x.kind == 2 && y.kind == 2 && strcmp(x.bus, y.bus) == 0) return true;
    }
  }
  return false;
}

}  // namespace
}  // namespace baton::sim

using namespace baton::sim;  // NOLINT: the entry points below are C

// What processes of a cgroup may have of the device (R615). As with the kernel's dmem controller
// the limits are in files of the group, a line for each device; here the files must be there
// already. Nothing is enforced.
SIM_NVML(nvmlDeviceSetMemoryLimits_v1, (void* handle, const NvmlMemoryLimits* limits)) {
  Device* device;
  if (NvmlReturn r = Enter(__func__, handle, &device)) return r;
  if (limits == nullptr || limits->folder == nullptr || limits->folder[0] != '/') {
    return kInvalidArgument;
  }
  if (limits->soft > limits->hard) return kInvalidArgument;
  const std::string folder = limits->folder, bus = BusOf(device);
  for (const auto& [file, bytes] :
       {std::pair{"/dmem.max", limits->hard}, {"/dmem.min", limits->soft}}) {
    if (!SetGroupLimit(folder + file, bus, bytes)) return kNotFound;
  }
  return kSuccess;
}

SIM_NVML(nvmlDeviceGetPciInfo_v3, (void* handle, NvmlPciInfo* pci)) {
  Device* device;
  if (NvmlReturn r = Enter(__func__, handle, &device)) return r;
  return FillPci(BusOf(device), pci);
}

// As cuDeviceGetPCIBusId writes it, or with eight digits of the domain.
SIM_NVML(nvmlDeviceGetHandleByPciBusId_v2, (const char* bus, void** handle)) {
  if (bus == nullptr || handle == nullptr) return kInvalidArgument;
  std::vector<Device*> counted;
  {
    std::lock_guard lock(Library().mutex);
    if (Library().references == 0) return kUninitialized;
    counted = Library().Counted();
  }
  for (Device* device : counted) {
    const std::string own = BusOf(device);
    if (strcasecmp(bus, own.c_str()) != 0 && strcasecmp(bus, ("0000" + own).c_str()) != 0) continue;
    *handle = device;
    return kSuccess;
  }
  return kNotFound;
}
SIM_NVML(nvmlDeviceGetHandleByPciBusId, (const char* bus, void** handle)) {
  return nvmlDeviceGetHandleByPciBusId_v2(bus, handle);
}

SIM_NVML(nvmlDeviceGetCudaComputeCapability, (void* handle, int* major, int* minor)) {
  Device* device;
  if (NvmlReturn r = Enter(__func__, handle, &device)) return r;
  if (major == nullptr || minor == nullptr) return kInvalidArgument;
  *major = 9;  // as cuDeviceGetAttribute
  *minor = 0;
  return kSuccess;
}

SIM_NVML(nvmlDeviceGetMemoryAffinity,
         (void* handle, unsigned int size, unsigned long* set, unsigned int scope)) {
  Device* device;
  if (NvmlReturn r = Enter(__func__, handle, &device)) return r;
  if (size == 0 || set == nullptr || scope > 1) return kInvalidArgument;
  const int32_t numa = device->file().card.numa;
  if (numa < 0) return kNotSupported;
  std::fill(set, set + size, 0);
  const auto word = static_cast<unsigned int>(numa) / 64;
  if (word < size) set[word] = 1ul << (numa % 64);
  return kSuccess;
}

SIM_NVML(nvmlDeviceGetTopologyCommonAncestor, (void* one, void* other, unsigned int* level)) {
  Device *a, *b;
  if (NvmlReturn r = Enter(__func__, one, &a)) return r;
  if (NvmlReturn r = Enter(__func__, other, &b)) return r;
  if (level == nullptr) return kInvalidArgument;
  const CardState &x = a->file().card, &y = b->file().card;
  if (a != b && x.pcie_switch[0] != '\0' && strcmp(x.pcie_switch, y.pcie_switch) == 0) {
    *level = kSingle;
  } else {
    *level = a == b ? 0u : x.numa == y.numa ? kNode : kSystem;
  }
  return kSuccess;
}

SIM_NVML(nvmlDeviceGetNvLinkState, (void* handle, unsigned int link, unsigned int* active)) {
  Device* device;
  LinkEnd end;
  if (NvmlReturn r = LinkOf(__func__, handle, link, &end, &device)) return r;
  if (active == nullptr) return kInvalidArgument;
  *active = end.active;
  return kSuccess;
}

SIM_NVML(nvmlDeviceGetNvLinkCapability,
         (void* handle, unsigned int link, unsigned int capability, unsigned int* has)) {
  constexpr unsigned int kCapabilities = 6;
  Device* device;
  LinkEnd end;
  if (NvmlReturn r = LinkOf(__func__, handle, link, &end, &device)) return r;
  if (has == nullptr || capability >= kCapabilities) return kInvalidArgument;
  *has = capability == kP2pOverLink ? end.active : 0;
  return kSuccess;
}

SIM_NVML(nvmlDeviceGetNvLinkRemoteDeviceType,
         (void* handle, unsigned int link, unsigned int* type)) {
  Device* device;
  LinkEnd end;
  if (NvmlReturn r = LinkOf(__func__, handle, link, &end, &device)) return r;
  if (type == nullptr) return kInvalidArgument;
  *type = end.kind == 2 ? kLinkToSwitch : kLinkToGpu;
  return kSuccess;
}

SIM_NVML(nvmlDeviceGetNvLinkRemotePciInfo_v2, (void* handle, unsigned int link, NvmlPciInfo* pci)) {
  Device* device;
  LinkEnd end;
  if (NvmlReturn r = LinkOf(__func__, handle, link, &end, &device)) return r;
  return FillPci(end.bus, pci);
}

// Libraries look up the names without a version too, and call them.
SIM_NVML(nvmlDeviceGetNvLinkRemotePciInfo, (void* handle, unsigned int link, NvmlPciInfo* pci)) {
  return nvmlDeviceGetNvLinkRemotePciInfo_v2(handle, link, pci);
}
SIM_NVML(nvmlDeviceGetFieldValues, (void* handle, int, void*)) {
  Device* device;
  if (NvmlReturn r = Enter(__func__, handle, &device)) return r;
  return kNotSupported;
}

SIM_NVML(nvmlDeviceGetP2PStatus,
         (void* one, void* other, unsigned int index, unsigned int* status)) {
  Device *a, *b;
  if (NvmlReturn r = Enter(__func__, one, &a)) return r;
  if (NvmlReturn r = Enter(__func__, other, &b)) return r;
  if (status == nullptr || index > 4) return kInvalidArgument;
  if (a == b) {  // NCCL asks every card about itself too, and takes no error
    *status = kP2pOk;
    return kSuccess;
  }
  const bool linked = Linked(a->file().card, BusOf(a), b->file().card, BusOf(b));
  // A card in MIG mode does without NVLink.
  const bool mig = a->file().card.mig_mode != 0 || b->file().card.mig_mode != 0;
  *status = index == kCapNvLink && linked && !mig ? kP2pOk : kP2pNotSupported;
  return kSuccess;
}

SIM_NVML(nvmlDeviceGetEccMode, (void* handle, unsigned int* current, unsigned int* pending)) {
  Device* device;
  if (NvmlReturn r = Enter(__func__, handle, &device)) return r;
  if (current == nullptr || pending == nullptr) return kInvalidArgument;
  if (device->file().card.ecc == 0) return kNotSupported;
  *current = *pending = 1;
  return kSuccess;
}

SIM_NVML(nvmlDeviceGetTotalEccErrors,
         (void* handle, unsigned int type, unsigned int counter, unsigned long long* count)) {
  Device* device;
  if (NvmlReturn r = Enter(__func__, handle, &device)) return r;
  if (type > 1 || counter > 1 || count == nullptr) return kInvalidArgument;
  Device::Session session(device);
  if (session.card().ecc == 0) return kNotSupported;
  *count = type == 0 ? session.card().ecc_corrected : session.card().ecc_uncorrected;
  return kSuccess;
}

SIM_NVML(nvmlDeviceGetRemappedRows,
         (void* handle, unsigned int* corrected, unsigned int* uncorrected, unsigned int* pending,
          unsigned int* failed)) {
  Device* device;
  if (NvmlReturn r = Enter(__func__, handle, &device)) return r;
  if (corrected == nullptr || uncorrected == nullptr || pending == nullptr || failed == nullptr) {
    return kInvalidArgument;
  }
  Device::Session session(device);
  const CardState& card = session.card();
  // Nor while there are MIG instances.
  if (card.ecc == 0 || std::any_of(std::begin(card.instances), std::end(card.instances),
                                   [](const InstanceSlot& slot) { return slot.serial != 0; })) {
    return kNotSupported;
  }
  *corrected = 0;
  *uncorrected = card.remapped_rows;
  *pending = card.remap_pending;
  *failed = card.remap_failed;
  return kSuccess;
}

SIM_NVML(nvmlEventSetCreate, (void** set)) {
  if (NvmlReturn r = InjectedAnywhere(__func__)) return r;
  if (set == nullptr) return kInvalidArgument;
  std::lock_guard lock(sets_mutex);
  Sets().push_back(new EventSet);
  *set = Sets().back();
  return kSuccess;
}

SIM_NVML(nvmlEventSetFree, (void* set)) {
  std::lock_guard lock(sets_mutex);
  if (!IsSet(set)) return kInvalidArgument;
  Sets().erase(std::find(Sets().begin(), Sets().end(), set));
  delete static_cast<EventSet*>(set);
  return kSuccess;
}

SIM_NVML(nvmlDeviceGetSupportedEventTypes, (void* handle, unsigned long long* types)) {
  Device* device;
  if (NvmlReturn r = Enter(__func__, handle, &device)) return r;
  if (types == nullptr) return kInvalidArgument;
  *types = kSupportedEvents;
  return kSuccess;
}

SIM_NVML(nvmlDeviceRegisterEvents, (void* handle, unsigned long long types, void* set)) {
  Device* device;
  if (NvmlReturn r = Enter(__func__, handle, &device)) return r;
  if ((types & ~kSupportedEvents) != 0) return kNotSupported;
  std::lock_guard lock(sets_mutex);
  if (!IsSet(set)) return kInvalidArgument;
  Device::Session session(device);
  for (auto& watch : static_cast<EventSet*>(set)->watches) {
    if (watch.device != device) continue;
    watch.types |= types;
    return kSuccess;
  }
  static_cast<EventSet*>(set)->watches.push_back({device, types, session.card().event_count});
  return kSuccess;
}

SIM_NVML(nvmlEventSetWait_v2, (void* set, NvmlEventData* data, unsigned int timeout_ms)) {
  if (NvmlReturn r = InjectedAnywhere(__func__)) return r;
  if (data == nullptr) return kInvalidArgument;
  const int64_t until = NowNs() + timeout_ms * INT64_C(1'000'000);
  while (true) {
    {
      std::lock_guard lock(sets_mutex);
      if (!IsSet(set)) return kInvalidArgument;
      bool lost = false;
      for (auto& watch : static_cast<EventSet*>(set)->watches) {
        Device::Session session(watch.device);
        const CardState& card = session.card();
        if (card.event_count - watch.seen > kMaxEvents) watch.seen = card.event_count - kMaxEvents;
        while (watch.seen < card.event_count) {
          const CardEvent event = card.events[watch.seen++ % kMaxEvents];
          if ((event.type & watch.types) == 0) continue;
          *data = {watch.device, event.type, event.type == kXidEvent ? event.xid : 0, UINT32_MAX,
                   UINT32_MAX};
          return kSuccess;
        }
        lost |= card.presence == static_cast<uint32_t>(Presence::kLost);
      }
      if (lost) return kGpuIsLost;
    }
    if (NowNs() >= until) return kTimeout;
    usleep(20'000);
  }
}
