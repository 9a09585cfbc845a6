#include "devmgr/machine/nvml.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <set>

#include "devmgr/machine/nvml_api.h"
#include "devmgr/machine/nvml_mig.h"
#include "devmgr/machine/nvml_topology.h"
#include "devmgr/machine/nvml_use.h"

namespace baton::devmgr {
namespace {

constexpr unsigned kCardsMax = 256;  // of a node

struct Xid {
  uint32_t number;
  const char* text;
};
// What NVIDIA's documentation calls them.
constexpr Xid kApplicationXids[] = {
    {13, "graphics engine exception"}, {31, "GPU memory page fault"},
    {43, "GPU stopped processing"},    {45, "preemptive cleanup after earlier errors"},
    {68, "video processor exception"}, {109, "context switch timeout"}};
constexpr Xid kNotes[] = {{63, "a row was remapped"},
                          {92, "high rate of single-bit ECC errors"},
                          {93, "inforom erase limit"},
                          {106, "test message"},
                          {107, "test message"},
                          {108, "NVLink remote translation error"},
                          {137, "NVLink privilege error"},
                          {141, "fast path error"},
                          {154, "GPU recovery action changed"}};
constexpr Xid kCriticalXids[] = {{48, "double-bit ECC error"},
                                 {62, "internal micro-controller halt"},
                                 {64, "a row could not be remapped"},
                                 {74, "NVLink error"},
                                 {79, "GPU has fallen off the bus"},
                                 {94, "contained ECC error"},
                                 {95, "uncontained ECC error"},
                                 {119, "GSP RPC timeout"},
                                 {120, "GSP error"},
                                 {140, "unrecovered ECC error"}};

template <size_t kCount>
const Xid* Find(const Xid (&xids)[kCount], uint32_t number) {
  const auto* at = std::find_if(std::begin(xids), std::end(xids),
                                [number](const Xid& xid) { return xid.number == number; });
  return at != std::end(xids) ? at : nullptr;
}

std::string GpuText(unsigned index) { return "GPU " + std::to_string(index); }

class LoadedNvml final : public Nvml {
 public:
  explicit LoadedNvml(Result<nvml::Api> api) {
    if (!api) {
      why_ = api.error().message;
      return;
    }
    api_ = *api;
    loaded_ = true;
    Begin();
  }
  ~LoadedNvml() override {
    instances_.Clear();
    if (events_ != nullptr && api_.event_set_free != nullptr) api_.event_set_free(events_);
    for (; api_.shutdown != nullptr && begun_ > 0; --begun_) api_.shutdown();
  }

  bool available() const override { return available_.load(); }
  std::string why() const override {
    const std::lock_guard lock(mutex_);
    return why_;
  }

  std::vector<GpuInfo> Gpus() override {
    std::vector<GpuInfo> gpus;
    unsigned count = 0;
    if (!available() || api_.count(&count) != nvml::kSuccess) return gpus;
    for (unsigned i = 0; i < std::min(count, kCardsMax); ++i) {
      nvml::Device device = nullptr;
      char uuid[96] = {};
      char name[96] = {};
      nvml::Memory memory{};
      // A GPU that fell off the bus answers with an error; the others go on.
      if (api_.by_index(i, &device) != nvml::kSuccess ||
          api_.uuid(device, uuid, sizeof uuid) != nvml::kSuccess) {
        continue;
      }
      if (api_.name != nullptr) api_.name(device, name, sizeof name);
      if (api_.memory != nullptr) api_.memory(device, &memory);
      gpus.push_back({uuid, name, memory.total});
    }
    return gpus;
  }

  bool Lists(const std::string& uuid, pid_t pid) override {
    const auto all = Processes(uuid);
    return std::any_of(all.begin(), all.end(), [pid](const Process& p) { return p.pid == pid; });
  }

  std::vector<Process> Processes(const std::string& uuid) override {
    std::vector<Process> all;
    const nvml::Device device = DeviceOf(uuid);
    if (device == nullptr) return all;
    Collect(api_.processes, device, all);
    if (api_.processes == nullptr) Collect(api_.processes_v1, device, all);
    return all;
  }

  std::optional<Utilization> UtilizationOf(const std::string& uuid) override {
    const nvml::Device device = DeviceOf(uuid);
    nvml::Utilization rates{};
    if (device == nullptr || api_.utilization == nullptr ||
        api_.utilization(device, &rates) != nvml::kSuccess) {
      return std::nullopt;
    }
    return Utilization{std::min(rates.gpu, 100u) / 100.0, std::min(rates.memory, 100u) / 100.0};
  }

  std::optional<std::vector<ProcessUse>> ProcessUses(const std::string& uuid,
                                                     uint64_t since_us) override {
    const nvml::Device device = DeviceOf(uuid);
    if (device == nullptr) return std::nullopt;
    return nvml::ProcessUses(api_, device, since_us);
  }
  std::optional<InstanceUse> UseOfInstance(const std::string& uuid, uint32_t instance) override {
    const nvml::Device device = DeviceOf(uuid);
    if (device == nullptr) return std::nullopt;
    return instances_.UseOf(device, uuid, instance);
  }

  std::optional<double> EnergyOf(const std::string& uuid) override {
    const nvml::Device device = DeviceOf(uuid);
    unsigned long long millijoules = 0;
    if (device == nullptr || api_.energy == nullptr ||
        api_.energy(device, &millijoules) != nvml::kSuccess) {
      return std::nullopt;
    }
    return static_cast<double>(millijoules) / 1e3;
  }

  Result<void> CapMemory(const std::string& uuid, const std::string& folder,
                         uint64_t bytes) override {
    const auto device = Known(uuid);
    if (!device) return tl::unexpected(device.error());
    const std::string call = "nvmlDeviceSetMemoryLimits_v1";
    if (api_.set_memory_limits == nullptr) return tl::unexpected(nvml::Missing(call));
    nvml::MemoryLimits limits{folder.c_str(), 0, bytes == 0 ? nvml::kNoLimit : bytes};
    const nvml::Return result = api_.set_memory_limits(*device, &limits);
    if (result == nvml::kSuccess) return {};
    return tl::unexpected(nvml::Failure(api_, call, uuid + " for " + folder, result));
  }
  bool CapsMemory() const override { return available() && api_.set_memory_limits != nullptr; }

  Result<Node> Look(const std::string& name, std::vector<std::string>* complaints) override;
  Result<std::optional<CardNews>> Wait(Duration at_most) override;
  void ForgetXid(const std::string& uuid) override {
    const std::lock_guard lock(mutex_);
    xids_.erase(uuid);
  }

  Result<std::vector<MigInstance>> Instances(const std::string& card) override {
    const auto device = Known(card);
    if (!device) return tl::unexpected(device.error());
    return nvml::Instances(api_, *device, card);
  }
  Result<MigInstance> Create(const std::string& card, const std::string& profile,
                             uint32_t start) override {
    const auto device = Known(card);
    if (!device) return tl::unexpected(device.error());
    return nvml::CreateInstance(api_, *device, card, profile, start);
  }
  Result<void> Destroy(const std::string& card, uint32_t instance) override {
    const auto device = Known(card);
    if (!device) return tl::unexpected(device.error());
    return nvml::DestroyInstance(api_, *device, card, instance);
  }

 private:
  // Initialises the library. Also once more, where the driver came late or was lost.
  bool Begin() {
    const nvml::Return result = api_.init();
    const std::lock_guard lock(mutex_);
    why_ = result == nvml::kSuccess ? "" : nvml::Failure(api_, "nvmlInit", "", result).message;
    devices_.clear();
    available_ = result == nvml::kSuccess;
    begun_ += result == nvml::kSuccess ? 1 : 0;
    return available_;
  }

  // Null for what NVML does not know.
  nvml::Device DeviceOf(const std::string& uuid) {
    const auto device = Known(uuid);
    return device ? *device : nullptr;
  }
  Result<nvml::Device> Known(const std::string& uuid) {
    if (!available()) return Fail(ErrorCode::kUnavailable, why());
    {
      const std::lock_guard lock(mutex_);
      if (const auto it = devices_.find(uuid); it != devices_.end()) return it->second;
    }
    nvml::Device device = nullptr;
    if (const nvml::Return result = api_.by_uuid(uuid.c_str(), &device); result != nvml::kSuccess) {
      if (result == nvml::kNotFound || result == nvml::kInvalidArgument) {
        return Fail(ErrorCode::kNotFound, "NVML knows no GPU " + uuid);
      }
      return tl::unexpected(nvml::Failure(api_, "nvmlDeviceGetHandleByUUID", uuid, result));
    }
    const std::lock_guard lock(mutex_);
    devices_[uuid] = device;
    return device;
  }

  template <class Listed>
  static void Collect(nvml::Return (*call)(nvml::Device, unsigned*, Listed*), nvml::Device device,
                      std::vector<Process>& all) {
    if (call == nullptr) return;
    std::vector<Listed> processes(32);
    // More processes may start between the calls: ask with room to spare, a bounded number of
    // times.
    for (int attempt = 0; attempt < 4; ++attempt) {
      auto count = static_cast<unsigned>(processes.size());
      const nvml::Return result = call(device, &count, processes.data());
      if (result == nvml::kSuccess) {
        for (unsigned i = 0; i < std::min<size_t>(count, processes.size()); ++i) {
          const unsigned long long bytes = processes[i].used_memory;
          all.push_back(
              {static_cast<pid_t>(processes[i].pid), bytes != nvml::kUnknown ? bytes : 0});
        }
        return;
      }
      if (result != nvml::kInsufficientSize || count > 1'000'000) return;
      processes.resize(count + 32);
    }
  }

  // One GPU of a look, as it answers. An error: it cannot be identified.
  struct Seen {
    Card card;
    nvml::Device device = nullptr;
    bool mig_known = true;
  };
  Result<Seen> See(unsigned index, std::vector<std::string>& complaints);
  void SeeHealth(nvml::Device device, const std::string& where, Card& card,
                 std::vector<std::string>& complaints);
  // False: nothing is known of it.
  bool SeeMig(nvml::Device device, const std::string& where, Card& card,
              std::vector<std::string>& complaints);
  void RegisterForEvents(const std::vector<std::pair<std::string, nvml::Device>>& devices);

  nvml::Api api_;
  nvml::InstanceSamples instances_{api_};
  bool loaded_ = false;
  std::atomic<bool> available_ = false;

  mutable std::mutex mutex_;  // for what follows; the library's own calls need none
  std::string why_;
  int begun_ = 0;  // NVML counts its users
  std::map<std::string, nvml::Device> devices_;
  std::vector<Card> before_;                 // of the last look, by index
  std::map<std::string, std::string> xids_;  // critical ones: what to say, by GPU

  // Of the thread that waits.
  nvml::EventSet events_ = nullptr;
  std::set<nvml::Device> registered_;
};

void Fails(Card& card, const std::string& why) {
  if (card.health != Health::kHealthy) return;
  card.health = Health::kFailed;
  card.why = why;
}

Result<LoadedNvml::Seen> LoadedNvml::See(unsigned index, std::vector<std::string>& complaints) {
  Seen seen;
  Card& card = seen.card;
  if (const auto r = api_.by_index(index, &seen.device); r != nvml::kSuccess) {
    return tl::unexpected(nvml::Failure(api_, "nvmlDeviceGetHandleByIndex", GpuText(index), r));
  }
  char text[96] = {};
  if (const auto r = api_.uuid(seen.device, text, sizeof text); r != nvml::kSuccess) {
    return tl::unexpected(nvml::Failure(api_, "nvmlDeviceGetUUID", GpuText(index), r));
  }
  card.uuid = text;
  std::string where = GpuText(index) + " (" + card.uuid + ")";
  const auto found_out = [&](const char* call, nvml::Return result) {
    if (result == nvml::kSuccess) return true;
    const std::string message = nvml::Failure(api_, call, where, result).message;
    if (nvml::IsLost(result)) {
      Fails(card, message);
    } else if (result != nvml::kNotSupported) {
      complaints.push_back(message);
    }
    return false;
  };
  char name[96] = {};
  if (api_.name != nullptr &&
      found_out("nvmlDeviceGetName", api_.name(seen.device, name, sizeof name))) {
    card.model = name;
  }
  nvml::PciInfo pci{};
  if (api_.pci != nullptr && found_out("nvmlDeviceGetPciInfo", api_.pci(seen.device, &pci))) {
    card.bus = nvml::BusText(pci);
    where = GpuText(index) + " (" + card.bus + ")";
  }
  nvml::Memory memory{};
  if (api_.memory == nullptr) {
    complaints.push_back(nvml::Missing("nvmlDeviceGetMemoryInfo").message);
  } else if (found_out("nvmlDeviceGetMemoryInfo", api_.memory(seen.device, &memory))) {
    card.memory_mib = static_cast<uint32_t>(std::min<uint64_t>(memory.total >> 20, UINT32_MAX));
  }
  card.numa = nvml::NumaOf(api_, seen.device, card.bus);
  SeeHealth(seen.device, where, card, complaints);
  seen.mig_known = SeeMig(seen.device, where, card, complaints);
  return seen;
}

void LoadedNvml::SeeHealth(nvml::Device device, const std::string& where, Card& card,
                           std::vector<std::string>& complaints) {
  const auto found_out = [&](const char* call, nvml::Return result) {
    if (result == nvml::kSuccess) return true;
    const std::string message = nvml::Failure(api_, call, where, result).message;
    if (nvml::IsLost(result)) {
      Fails(card, message);
    } else if (result != nvml::kNotSupported && result != nvml::kNoPermission) {
      complaints.push_back(message);
    }
    return false;
  };
  constexpr const char* kReset = "; reset the GPU (nvidia-smi --gpu-reset)";
  unsigned long long errors = 0;
  if (api_.ecc_errors != nullptr &&
      found_out("nvmlDeviceGetTotalEccErrors", api_.ecc_errors(device, nvml::kUncorrectedErrors,
                                                               nvml::kVolatileErrors, &errors)) &&
      errors > 0) {
    Fails(card, std::to_string(errors) +
                    (errors == 1 ? " uncorrected ECC error" : " uncorrected ECC errors") +
                    " since the driver was loaded" + kReset);
  }
  unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0;
  if (api_.remapped_rows != nullptr &&
      found_out("nvmlDeviceGetRemappedRows",
                api_.remapped_rows(device, &corrected, &uncorrected, &pending, &failed)) &&
      failed != 0) {
    Fails(card, "a row of its memory could not be remapped; the GPU is to be replaced");
  }
  const std::lock_guard lock(mutex_);
  if (const auto it = xids_.find(card.uuid); it != xids_.end()) Fails(card, it->second + kReset);
}

bool LoadedNvml::SeeMig(nvml::Device device, const std::string& where, Card& card,
                        std::vector<std::string>& complaints) {
  unsigned current = 0, pending = 0;
  if (api_.mig_mode == nullptr) return true;
  const nvml::Return result = api_.mig_mode(device, &current, &pending);
  if (result == nvml::kNotSupported) return true;
  if (result != nvml::kSuccess) {
    const std::string message = nvml::Failure(api_, "nvmlDeviceGetMigMode", where, result).message;
    complaints.push_back(message);
    // Were it on, the whole GPU could not be used: better not to guess.
    Fails(card, message);
    return false;
  }
  card.mig_capable = true;
  card.mig_enabled = current == 1;
  auto instances = nvml::Instances(api_, device, where);
  if (instances) {
    card.instances = std::move(*instances);
  } else {
    Fails(card, "MIG mode is on and the instances cannot be listed: " + instances.error().message);
  }
  return instances.has_value();
}

Result<Node> LoadedNvml::Look(const std::string& name, std::vector<std::string>* out) {
  std::vector<std::string> ignored;
  std::vector<std::string>& complaints = out != nullptr ? *out : ignored;
  if (!available() && (!loaded_ || !Begin())) return Fail(ErrorCode::kUnavailable, why());
  unsigned count = 0;
  nvml::Return counted = api_.count(&count);
  if (counted == nvml::kUninitialized && Begin()) counted = api_.count(&count);
  if (counted != nvml::kSuccess) {
    // Whatever it answers: the node's GPUs are not to be known now, and that may pass.
    return Fail(ErrorCode::kUnavailable,
                nvml::Failure(api_, "nvmlDeviceGetCount", "", counted).message);
  }
  std::vector<Card> before;
  {
    const std::lock_guard lock(mutex_);
    before = before_;
  }
  Node node;
  node.name = name;
  std::vector<nvml::Reachable> reachable;
  std::map<std::string, nvml::Device> devices;
  std::set<std::string> untold;                          // GPUs of whose MIG nothing is known now
  std::vector<std::pair<unsigned, std::string>> silent;  // index, why
  for (unsigned i = 0; i < std::min(count, kCardsMax); ++i) {
    Result<Seen> seen = See(i, complaints);
    if (!seen) {
      silent.emplace_back(i, seen.error().message);
      continue;
    }
    reachable.push_back({seen->device, seen->card.bus});
    devices[seen->card.uuid] = seen->device;
    if (!seen->mig_known) untold.insert(seen->card.uuid);
    node.cards.push_back(std::move(seen->card));
  }
  const auto listed = [&node](const std::string& uuid) {
    return std::any_of(node.cards.begin(), node.cards.end(),
                       [&uuid](const Card& card) { return card.uuid == uuid; });
  };

  const auto islands = nvml::NvLinkIslands(api_, reachable);
  const auto groups = nvml::PcieGroups(api_, reachable);
  for (size_t i = 0; i < node.cards.size(); ++i) {
    node.cards[i].island = islands[i];
    node.cards[i].pcie = groups[i];
  }

  // What a GPU said once it is still, where it does not answer now.
  for (Card& card : node.cards) {
    const auto was = std::find_if(before.begin(), before.end(),
                                  [&card](const Card& c) { return c.uuid == card.uuid; });
    if (was == before.end()) continue;
    if (card.memory_mib == 0) card.memory_mib = was->memory_mib;
    if (card.model.empty()) card.model = was->model;
    if (card.bus.empty()) card.bus = was->bus;
    if (card.health == Health::kHealthy) continue;
    if (card.island < 0) card.island = was->island;
    if (card.pcie < 0) card.pcie = was->pcie;
    if (!untold.contains(card.uuid)) continue;
    card.mig_capable = was->mig_capable;
    card.mig_enabled = was->mig_enabled;
    card.instances = was->instances;
  }
  // One that does not answer at all is the one that was at its index, unless that is elsewhere now.
  for (const auto& [index, why] : silent) {
    if (index >= before.size() || listed(before[index].uuid)) {
      complaints.push_back(why);
      continue;
    }
    Card card = before[index];
    card.health = Health::kHealthy;
    Fails(card, why);
    node.cards.insert(node.cards.begin() + std::min<size_t>(index, node.cards.size()),
                      std::move(card));
  }
  // Nothing can be placed on a GPU of which not even the memory is known.
  std::erase_if(node.cards, [&complaints](const Card& card) {
    if (card.memory_mib > 0) return false;
    complaints.push_back("the memory of " + card.uuid + " is not known, so it is left out" +
                         (card.why.empty() ? "" : ": " + card.why));
    return true;
  });

  const std::lock_guard lock(mutex_);
  before_ = node.cards;
  devices_ = std::move(devices);  // a handle of before may mean nothing any more
  std::erase_if(xids_, [&](const auto& xid) { return !listed(xid.first); });
  return node;
}

void LoadedNvml::RegisterForEvents(
    const std::vector<std::pair<std::string, nvml::Device>>& devices) {
  for (const auto& [uuid, device] : devices) {
    if (registered_.contains(device)) continue;
    unsigned long long supported = nvml::kXidCriticalError;
    if (api_.supported_events != nullptr) api_.supported_events(device, &supported);
    const auto types =
        supported & (nvml::kXidCriticalError | nvml::kDoubleBitEccEvent | nvml::kMigConfigChange);
    // One that refuses is looked at only.
    if (types != 0) api_.register_events(device, types, events_);
    registered_.insert(device);
  }
}

Result<std::optional<CardNews>> LoadedNvml::Wait(Duration at_most) {
  if (!available()) return Fail(ErrorCode::kUnavailable, why());
  if (api_.event_set_create == nullptr || api_.event_set_wait == nullptr ||
      api_.register_events == nullptr) {
    return tl::unexpected(nvml::Missing("nvmlEventSetWait"));
  }
  std::vector<std::pair<std::string, nvml::Device>> devices;
  {
    const std::lock_guard lock(mutex_);
    devices.assign(devices_.begin(), devices_.end());
  }
  if (events_ == nullptr) {
    registered_.clear();
    if (const auto r = api_.event_set_create(&events_); r != nvml::kSuccess) {
      events_ = nullptr;
      Error error = nvml::Failure(api_, "nvmlEventSetCreate", "", r);
      error.code = ErrorCode::kUnavailable;
      return tl::unexpected(error);
    }
  }
  RegisterForEvents(devices);
  nvml::EventData event{};
  const auto ms = std::clamp<int64_t>(Nanos(at_most) / 1'000'000, 0, 60'000);
  const auto waited = api_.event_set_wait(events_, &event, static_cast<unsigned>(ms));
  if (waited == nvml::kTimeout) return std::nullopt;
  if (waited != nvml::kSuccess) {
    // A set that failed is not used again: the next call makes another.
    if (api_.event_set_free != nullptr) api_.event_set_free(events_);
    events_ = nullptr;
    Error error = nvml::Failure(api_, "nvmlEventSetWait", "", waited);
    error.code = ErrorCode::kUnavailable;
    return tl::unexpected(error);
  }
  CardNews news;
  const auto known = std::find_if(devices.begin(), devices.end(),
                                  [&](const auto& d) { return d.second == event.device; });
  char uuid[96] = {};
  if (known != devices.end()) {
    news.uuid = known->first;
  } else if (api_.uuid(event.device, uuid, sizeof uuid) == nvml::kSuccess) {
    news.uuid = uuid;
  }
  if (event.type == nvml::kXidCriticalError) {
    news.xid = static_cast<uint32_t>(event.data);
    news.fails = IsCriticalXid(news.xid);
    news.what = XidText(news.xid);
    const std::lock_guard lock(mutex_);
    if (news.fails && !news.uuid.empty()) xids_[news.uuid] = news.what;
  } else {
    news.what = event.type == nvml::kMigConfigChange ? "MIG was changed" : "an ECC error";
  }
  return news;
}

}  // namespace

std::unique_ptr<Nvml> Nvml::Load(const std::string& library) {
  return nvml::Use(nvml::Load(library));
}

std::unique_ptr<Nvml> nvml::Use(Result<Api> api) {
  return std::make_unique<LoadedNvml>(std::move(api));
}

bool IsCriticalXid(uint32_t xid) {
  return Find(kApplicationXids, xid) == nullptr && Find(kNotes, xid) == nullptr;
}

std::string XidText(uint32_t xid) {
  const Xid* known = Find(kApplicationXids, xid);
  if (known == nullptr) known = Find(kNotes, xid);
  if (known == nullptr) known = Find(kCriticalXids, xid);
  return "XID " + std::to_string(xid) + (known != nullptr ? ": " + std::string(known->text) : "");
}

}  // namespace baton::devmgr
