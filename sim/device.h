// One device file, opened: the lock around its timeline, the real clock, who is alive, and
// waiting. Everything that looks at the GPU does so through a Session.
#ifndef BATON_SIM_DEVICE_H_
#define BATON_SIM_DEVICE_H_

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "sim/timeline.h"

namespace baton::sim {

struct DeviceOptions {
  std::string name = "Baton Sim GPU";
  uint64_t memory_bytes = uint64_t{16} << 30;
  int64_t slice_ns = 2'000'000;
  int64_t switch_ns = 0;        // what the GPU needs to go from one context to another
  uint64_t records = 1 << 18;   // newest kept; 80 bytes each
  unsigned char uuid[16] = {};  // all zero: random
  uint64_t host_bytes_per_s = 12'000'000'000;
  uint64_t device_bytes_per_s = 1'500'000'000'000;
  // For NVML only. sim/card.h makes these of a model.
  std::string model;        // sim/models.h's key; empty: none, no MIG
  std::string bus;          // "0000:17:00.0"; empty: by its place among the devices
  std::string pcie_switch;  // cards with the same name hang on one; empty: on none
  int32_t numa = -1;        // -1: NVML does not say
  bool ecc = false;
  bool mig = false;  // MIG mode is on from the start
  struct Link {
    bool to_switch = false;
    std::string bus;  // of the other end
  };
  std::vector<Link> links;  // NVLinks, at most kMaxLinks
};

// Makes a device file; fails where one is already.
Result<bool> CreateDeviceFile(const std::string& path, const DeviceOptions& options);

struct ProcessOnDevice {
  uint64_t pid;
  uint64_t memory;  // bytes
  uint64_t energy;  // nanojoules
  bool dying;       // dead, and its last kernel has not ended yet
};

// Thread safe. Never destroyed in a process that attached: closing any descriptor of the file
// would drop the record lock by which the others see that this process lives.
class Device {
 public:
  // `path` must be a device file of this version; opened for writing.
  static Result<Device*> Open(const std::string& path);

  const DeviceFile& file() const { return *file_; }
  const std::string& path() const { return path_; }

  // Takes a slot for this process until it ends; -1 when all are taken. Once per process.
  // `instance`: Process::instance.
  int Attach(uint64_t instance = 0);
  int process() const { return process_; }

  // Holds the device's lock with the timeline at the present. Do not nest.
  class Session {
   public:
    explicit Session(Device* device);
    ~Session();
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;
    Timeline* operator->() { return &device_->timeline_; }
    Timeline& operator*() { return device_->timeline_; }
    // Looks for dead processes now; without it that happens about once a millisecond.
    void CheckProcesses();
    CardState& card() { return device_->file_->card; }

   private:
    Device* device_;
  };

  // The change word for WaitForChange, read inside a session.
  uint32_t change_word() const { return file_->change_word.load(); }
  // Sleeps until `until` (CLOCK_MONOTONIC ns) or until the schedule changes from what `word` says.
  // Accurate to some microseconds; spins for at most 20 us.
  void WaitForChange(uint32_t word, int64_t until);
  // Ends every wait for a change, here and in other processes: they look again.
  void WakeAll();

  // Processes with a context, and dead ones not yet torn down.
  std::vector<ProcessOnDevice> Processes();

 private:
  Device(std::string path, int fd, DeviceFile* file)
      : path_(std::move(path)), fd_(fd), file_(file), timeline_(file) {}
  void Lock();
  void Unlock();
  void CheckProcessesLocked();
  bool IsAlive(int process) const;

  std::string path_;
  int fd_;
  DeviceFile* file_;
  Timeline timeline_;
  int process_ = -1;
};

// CLOCK_MONOTONIC in ns.
int64_t NowNs();
// "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx".
std::string FormatUuid(const unsigned char uuid[16]);
// Accepts that form, with or without "GPU-".
bool ParseUuid(const std::string& text, unsigned char uuid[16]);
// Paths of BATON_SIM_DEVICES, in order.
std::vector<std::string> DevicePaths();

}  // namespace baton::sim

#endif  // BATON_SIM_DEVICE_H_
