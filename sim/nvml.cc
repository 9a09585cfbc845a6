// libnvidia-ml.so.1 over the same device files: the small part of NVML's documented interface that
// a scheduler of GPUs asks. Declared here, for its header comes with no package that is needed
// otherwise. NVML does not look at CUDA_VISIBLE_DEVICES.
#include "sim/nvml.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "sim/record.h"

namespace baton::sim {

NvmlLibrary& Library() {
  static auto& library = *new NvmlLibrary;
  return library;
}

std::vector<Device*> NvmlLibrary::Counted() const {
  std::vector<Device*> counted;
  for (Device* device : devices) {
    Device::Session session(device);
    if (session.card().presence != static_cast<uint32_t>(Presence::kGone))
      counted.push_back(device);
  }
  return counted;
}

MigDevice* NvmlLibrary::HandleOf(const MigDevice& mig) {
  for (MigDevice* known : migs) {
    if (known->device == mig.device && known->slot == mig.slot && known->serial == mig.serial &&
        known->compute == mig.compute) {
      return known;
    }
  }
  migs.push_back(new MigDevice(mig));
  return migs.back();
}

NvmlReturn Injected(Device* device, const char* call) {
  int64_t delay_ns = 0;
  int code = 0;
  {
    Device::Session session(device);
    for (Failure& failure : session.card().failures) {
      const bool matches = failure.call[0] != '\0' && failure.left > 0 &&
                           (strcmp(failure.call, "*") == 0 || strcmp(failure.call, call) == 0);
      if (!matches) continue;
      delay_ns = failure.delay_ns;
      code = failure.code;
      if (failure.left != UINT32_MAX && --failure.left == 0) failure.call[0] = '\0';
      break;
    }
  }
  if (delay_ns > 0) usleep(static_cast<useconds_t>(delay_ns / 1000));
  return static_cast<NvmlReturn>(code);
}

NvmlReturn InjectedAnywhere(const char* call) {
  std::vector<Device*> devices;
  {
    std::lock_guard lock(Library().mutex);
    devices = Library().devices;
  }
  for (Device* device : devices) {
    if (NvmlReturn r = Injected(device, call)) return r;
  }
  return kSuccess;
}

namespace {

// Whether the card answers, and what was injected.
NvmlReturn Answers(const char* call, Device* device) {
  if (NvmlReturn r = Injected(device, call)) return r;
  Device::Session session(device);
  switch (static_cast<Presence>(session.card().presence)) {
    case Presence::kLost:
      return kGpuIsLost;
    case Presence::kGone:
      return kInvalidArgument;
    case Presence::kPresent:
      break;
  }
  return kSuccess;
}

}  // namespace

NvmlReturn Enter(const char* call, void* handle, Device** device) {
  {
    NvmlLibrary& library = Library();
    std::lock_guard lock(library.mutex);
    if (library.references == 0) return kUninitialized;
    const auto it =
        std::find(library.devices.begin(), library.devices.end(), static_cast<Device*>(handle));
    if (it == library.devices.end()) return kInvalidArgument;
    *device = *it;
  }
  return Answers(call, *device);
}

NvmlReturn EnterMig(const char* call, void* handle, MigDevice** mig) {
  {
    NvmlLibrary& library = Library();
    std::lock_guard lock(library.mutex);
    if (library.references == 0) return kUninitialized;
    const auto it = std::find(library.migs.begin(), library.migs.end(), handle);
    if (it == library.migs.end()) return kInvalidArgument;
    *mig = *it;
  }
  if (NvmlReturn r = Answers(call, (*mig)->device)) return r;
  // What it names may be gone, or be another by now.
  Device::Session session((*mig)->device);
  const InstanceSlot& slot = session.card().instances[(*mig)->slot];
  if (slot.serial != (*mig)->serial) return kInvalidArgument;
  if ((*mig)->compute < kMaxInstances && slot.computes[(*mig)->compute].profile == 0) {
    return kInvalidArgument;
  }
  return kSuccess;
}

std::string BusOf(Device* device) {
  if (device->file().card.bus[0] != '\0') return device->file().card.bus;
  std::lock_guard lock(Library().mutex);
  const auto& devices = Library().devices;
  const auto place = std::find(devices.begin(), devices.end(), device) - devices.begin();
  char bus[kBusBytes];
  snprintf(bus, sizeof bus, "0000:%02x:00.0", static_cast<unsigned>(1 + place) & 0xff);
  return bus;
}

NvmlReturn CopyText(const std::string& text, char* out, unsigned int length) {
  if (out == nullptr) return kInvalidArgument;
  if (text.size() >= length) return kInsufficientSize;
  memcpy(out, text.c_str(), text.size() + 1);
  return kSuccess;
}

namespace {

struct NvmlMemory {
  unsigned long long total, free, used;
};
struct NvmlMemoryV2 {
  unsigned int version;
  unsigned long long total, reserved, free, used;
};
struct NvmlUtilization {
  unsigned int gpu, memory;  // percent
};
struct NvmlSample {
  unsigned int pid;
  unsigned long long time_stamp;              // microseconds since 1970
  unsigned int sm, memory, encoder, decoder;  // percent
};
struct NvmlProcessV1 {
  unsigned int pid;
  unsigned long long used;
};
struct NvmlProcess {
  unsigned int pid;
  unsigned long long used;
  unsigned int gpu_instance, compute_instance;
};

struct Span {
  int64_t from = 0, to = 0;
  int64_t length() const { return to - from; }
};

// What has run in the last `window_ns`, and what runs now as far as it has. `span`: that time, or
// less where that were very many kernels.
Result<std::vector<KernelRecord>> RecordsUpToNow(Device* device, int64_t window_ns, Span* span) {
  constexpr uint64_t kRecordsMax = 1 << 17;
  uint64_t count;
  std::vector<KernelRecord> running;
  {
    Device::Session session(device);
    const DeviceFile& file = device->file();
    count = file.record_count;
    *span = {file.now.Signed() - window_ns, file.now.Signed()};
    for (const Context& c : file.contexts) {
      const bool current = file.current != 0 && &c == &file.contexts[file.current - 1];
      const int64_t since_account =
          current ? std::max<int64_t>(0, span->to - c.accounted.Signed()) : 0;
      for (OpRef ref = c.state != 0 ? uint64_t{c.running_head} : 0; ref != 0;
           ref = session->operations().At(ref).next) {
        const Op& op = session->operations().At(ref);
        KernelRecord record{};
        record.pid = file.processes[c.process].pid;
        if (op.name != 0) record.name = file.names[op.name - 1];
        record.start_ns = op.started_at.Signed();
        record.end_ns = span->to;
        record.busy_ns = static_cast<int64_t>(uint64_t{op.busy}) + since_account;
        running.push_back(record);
      }
    }
  }
  Result<std::vector<KernelRecord>> records = std::vector<KernelRecord>();
  // They are in the order of their ends.
  for (uint64_t most = 1 << 10; most <= kRecordsMax; most *= 2) {
    records = ReadRecords(device->path(), count > most ? count - most : 0);
    if (!records || most >= count || records->empty()) break;
    if (records->front().end_ns < span->from) break;
    if (most == kRecordsMax) span->from = std::min(span->to - 1, records->front().end_ns);
  }
  if (records) records->insert(records->end(), running.begin(), running.end());
  return records;
}

template <class Info, class Fill>
NvmlReturn Processes(const char* call, void* handle, unsigned int* count, Info* infos, Fill fill) {
  Device* device;
  if (NvmlReturn r = Enter(call, handle, &device)) return r;
  if (count == nullptr || (*count != 0 && infos == nullptr)) return kInvalidArgument;
  const std::vector<ProcessOnDevice> processes = device->Processes();
  const auto room = static_cast<size_t>(*count);
  *count = static_cast<unsigned int>(processes.size());
  if (processes.size() > room) return kInsufficientSize;
  for (size_t i = 0; i < processes.size(); ++i) infos[i] = fill(processes[i]);
  return kSuccess;
}

NvmlProcess Fill(const ProcessOnDevice& p) {
  // No instance: all bits set.
  return {static_cast<unsigned int>(p.pid), p.memory, UINT32_MAX, UINT32_MAX};
}

}  // namespace
}  // namespace baton::sim

using namespace baton::sim;  // NOLINT: the entry points below are C

SIM_NVML(nvmlInit_v2, (void)) {
  NvmlLibrary& library = Library();
  {
    std::lock_guard lock(library.mutex);
    if (library.references == 0) {
      library.devices.clear();
      for (const std::string& path : DevicePaths()) {
        auto device = Device::Open(path);
        if (device) library.devices.push_back(*device);
      }
      if (library.devices.empty()) return kDriverNotLoaded;
    }
  }
  if (NvmlReturn r = InjectedAnywhere(__func__)) return r;
  std::lock_guard lock(library.mutex);
  ++library.references;
  return kSuccess;
}
SIM_NVML(nvmlInit, (void)) { return nvmlInit_v2(); }
SIM_NVML(nvmlInitWithFlags, (unsigned int)) { return nvmlInit_v2(); }

SIM_NVML(nvmlShutdown, (void)) {
  std::lock_guard lock(Library().mutex);
  if (Library().references == 0) return kUninitialized;
  --Library().references;
  return kSuccess;
}

extern "C" const char* nvmlErrorString(int result) __attribute__((visibility("default")));
extern "C" const char* nvmlErrorString(int result) { return NvmlText(result); }

SIM_NVML(nvmlSystemGetDriverVersion, (char* version, unsigned int length)) {
  return CopyText("580.00.00", version, length);
}

SIM_NVML(nvmlSystemGetCudaDriverVersion_v2, (int* version)) {
  if (version == nullptr) return kInvalidArgument;
  *version = 13000;
  return kSuccess;
}

SIM_NVML(nvmlDeviceGetCount_v2, (unsigned int* count)) {
  if (NvmlReturn r = InjectedAnywhere(__func__)) return r;
  std::lock_guard lock(Library().mutex);
  if (Library().references == 0) return kUninitialized;
  if (count == nullptr) return kInvalidArgument;
  *count = static_cast<unsigned int>(Library().Counted().size());
  return kSuccess;
}

SIM_NVML(nvmlDeviceGetHandleByIndex_v2, (unsigned int index, void** handle)) {
  Device* device;
  {
    std::lock_guard lock(Library().mutex);
    if (Library().references == 0) return kUninitialized;
    const auto counted = Library().Counted();
    if (handle == nullptr || index >= counted.size()) return kInvalidArgument;
    device = counted[index];
  }
  if (NvmlReturn r = Enter(__func__, device, &device)) return r;
  *handle = device;
  return kSuccess;
}

SIM_NVML(nvmlDeviceGetCount, (unsigned int* count)) { return nvmlDeviceGetCount_v2(count); }
SIM_NVML(nvmlDeviceGetHandleByIndex, (unsigned int index, void** handle)) {
  return nvmlDeviceGetHandleByIndex_v2(index, handle);
}

SIM_NVML(nvmlDeviceGetHandleByUUID, (const char* uuid, void** handle)) {
  if (handle == nullptr || uuid == nullptr) return kInvalidArgument;
  std::vector<Device*> counted;
  {
    std::lock_guard lock(Library().mutex);
    if (Library().references == 0) return kUninitialized;
    counted = Library().Counted();
  }
  unsigned char bytes[16];
  const std::string text = uuid;
  const bool is_mig = text.rfind("MIG-", 0) == 0;
  if (!is_mig && !ParseUuid(text, bytes)) return kInvalidArgument;
  for (Device* device : counted) {
    if (!is_mig) {
      if (memcmp(device->file().uuid, bytes, 16) != 0) continue;
      if (NvmlReturn r = Enter(__func__, device, &device)) return r;
      *handle = device;
      return kSuccess;
    }
    const std::optional<MigPlace> found = FindMig(device, text);
    if (!found) continue;
    if (NvmlReturn r = Enter(__func__, device, &device)) return r;
    std::lock_guard lock(Library().mutex);
    *handle = Library().HandleOf({device, found->place, found->serial, found->compute});
    return kSuccess;
  }
  return kNotFound;
}

SIM_NVML(nvmlDeviceGetIndex, (void* handle, unsigned int* index)) {
  Device* device;
  if (NvmlReturn r = Enter(__func__, handle, &device)) return r;
  if (index == nullptr) return kInvalidArgument;
  std::lock_guard lock(Library().mutex);
  const auto counted = Library().Counted();
  *index = static_cast<unsigned int>(std::find(counted.begin(), counted.end(), device) -
                                     counted.begin());
  return kSuccess;
}

SIM_NVML(nvmlDeviceGetUUID, (void* handle, char* uuid, unsigned int length)) {
  MigDevice* mig;
  const NvmlReturn as_mig = EnterMig(__func__, handle, &mig);
  if (as_mig == kSuccess && mig->compute < kMaxInstances) {
    Device::Session session(mig->device);
    const uint32_t id = GpuInstanceId(*mig->device, session.card().instances[mig->slot]);
    return CopyText(MigUuid(*mig->device, id, mig->compute), uuid, length);
  }
  if (as_mig != kSuccess && as_mig != kInvalidArgument) return as_mig;
  Device* device;
  if (NvmlReturn r = Enter(__func__, handle, &device)) return r;
  return CopyText(FormatUuid(device->file().uuid), uuid, length);
}

SIM_NVML(nvmlDeviceGetName, (void* handle, char* name, unsigned int length)) {
  Device* device;
  if (NvmlReturn r = Enter(__func__, handle, &device)) return r;
  return CopyText(device->file().name, name, length);
}

SIM_NVML(nvmlDeviceGetMemoryInfo, (void* handle, NvmlMemory* memory)) {
  Device* device;
  if (NvmlReturn r = Enter(__func__, handle, &device)) return r;
  if (memory == nullptr) return kInvalidArgument;
  Device::Session session(device);
  session.CheckProcesses();
  const DeviceFile& file = device->file();
  *memory = {file.memory_bytes, file.memory_bytes - file.memory_used, file.memory_used};
  return kSuccess;
}

SIM_NVML(nvmlDeviceGetMemoryInfo_v2, (void* handle, NvmlMemoryV2* memory)) {
  NvmlMemory plain;
  if (memory == nullptr) return kInvalidArgument;
  if (int r = nvmlDeviceGetMemoryInfo(handle, &plain)) return r;
  *memory = {memory->version, plain.total, 0, plain.free, plain.used};
  return kSuccess;
}

// In millijoules, which move every 100 ms as on an H200.
SIM_NVML(nvmlDeviceGetTotalEnergyConsumption, (void* handle, unsigned long long* energy)) {
  Device* device;
  if (NvmlReturn r = Enter(__func__, handle, &device)) return r;
  if (energy == nullptr) return kInvalidArgument;
  Device::Session session(device);
  *energy = CountedMillijoules(device->file());
  return kSuccess;
}

// Of the last second, as the records tell it, and the kernels that are running.
SIM_NVML(nvmlDeviceGetUtilizationRates, (void* handle, NvmlUtilization* rates)) {
  Device* device;
  if (NvmlReturn r = Enter(__func__, handle, &device)) return r;
  if (rates == nullptr) return kInvalidArgument;
  Span span;
  const auto records = RecordsUpToNow(device, 1'000'000'000, &span);
  if (!records) return kUnknown;
  const double busy = BusyFraction(*records, span.from, span.to);
  *rates = {static_cast<unsigned int>(std::lround(busy * 100)), 0};
  return kSuccess;
}

// What each process executed since then, ten seconds ago at most, on average; those that executed
// nothing are left out. Memory is in use for as long as copies and sets run.
SIM_NVML(nvmlDeviceGetProcessUtilization,
         (void* handle, NvmlSample* samples, unsigned int* count, unsigned long long since_us)) {
  Device* device;
  if (NvmlReturn r = Enter(__func__, handle, &device)) return r;
  if (count == nullptr || (*count != 0 && samples == nullptr)) return kInvalidArgument;
  if (device->file().card.mig_mode != 0) return kNotSupported;
  timespec wall;
  clock_gettime(CLOCK_REALTIME, &wall);
  const auto now_us = static_cast<unsigned long long>(wall.tv_sec) * 1'000'000 +
                      static_cast<unsigned long long>(wall.tv_nsec) / 1000;
  const auto window_us =
      since_us >= now_us ? 1 : std::clamp<unsigned long long>(now_us - since_us, 1, 10'000'000);
  Span span;
  const auto records = RecordsUpToNow(device, static_cast<int64_t>(window_us) * 1000, &span);
  if (!records) return kUnknown;
  std::vector<KernelRecord> copies;
  std::copy_if(records->begin(), records->end(), std::back_inserter(copies),
               [](const KernelRecord& r) { return r.name.rfind('[', 0) == 0; });
  const auto by_process = [&](const std::vector<KernelRecord>& of) {
    return BusyByGroup(
        of, [](uint64_t pid) { return static_cast<int64_t>(pid); }, span.from, span.to);
  };
  const auto busy = by_process(*records);
  auto copying = by_process(copies);
  const unsigned int room = *count;
  *count = static_cast<unsigned int>(busy.size());
  if (busy.empty()) return kNotFound;
  if (busy.size() > room) return kInsufficientSize;
  const auto percent = [&span](int64_t ns) {
    return static_cast<unsigned int>(
        std::lround(100 * static_cast<double>(ns) / static_cast<double>(span.length())));
  };
  for (const auto& [pid, ns] : busy) {
    *samples++ = {static_cast<unsigned int>(pid), now_us, percent(ns), percent(copying[pid]), 0, 0};
  }
  return kSuccess;
}

SIM_NVML(nvmlDeviceGetComputeRunningProcesses_v3,
         (void* handle, unsigned int* count, NvmlProcess* infos)) {
  return Processes(__func__, handle, count, infos, Fill);
}
SIM_NVML(nvmlDeviceGetComputeRunningProcesses_v2,
         (void* handle, unsigned int* count, NvmlProcess* infos)) {
  return Processes(__func__, handle, count, infos, Fill);
}
SIM_NVML(nvmlDeviceGetComputeRunningProcesses,
         (void* handle, unsigned int* count, NvmlProcessV1* infos)) {
  return Processes(__func__, handle, count, infos, [](const ProcessOnDevice& p) {
    return NvmlProcessV1{static_cast<unsigned int>(p.pid), p.memory};
  });
}
