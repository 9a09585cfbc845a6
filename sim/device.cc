#include "sim/device.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "base/check.h"

namespace baton::sim {
namespace {

constexpr int64_t kCheckEvery = 1'000'000;
// Two processes' locks never overlap; the offsets mean nothing but the slot.
off_t LockOffset(int process) { return process; }

std::string ErrnoText() { return strerror(errno); }

template <size_t kBytes>
void CopyText(const std::string& text, char (&out)[kBytes]) {
  const size_t length = std::min(text.size(), kBytes - 1);
  memcpy(out, text.data(), length);
  memset(out + length, 0, kBytes - length);
}

void FutexWake(std::atomic<uint32_t>* word) {
  syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

}  // namespace

int64_t NowNs() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * INT64_C(1'000'000'000) + t.tv_nsec;
}

std::string FormatUuid(const unsigned char uuid[16]) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += "0123456789abcdef"[uuid[i] >> 4];
    text += "0123456789abcdef"[uuid[i] & 15];
  }
  return text;
}

bool ParseUuid(const std::string& text, unsigned char uuid[16]) {
  size_t digits = 0;
  for (size_t i = text.rfind("GPU-", 0) == 0 ? 4 : 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '-') continue;
    const int value = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (value < 0 || digits == 32) return false;
    uuid[digits / 2] =
        static_cast<unsigned char>(digits % 2 ? uuid[digits / 2] << 4 | value : value);
    ++digits;
  }
  return digits == 32;
}

std::vector<std::string> DevicePaths() {
  std::vector<std::string> paths;
  const char* list = getenv("BATON_SIM_DEVICES");
  std::string text = list == nullptr ? "" : list;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(':', at), text.size());
    if (end > at) paths.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return paths;
}

Result<bool> CreateDeviceFile(const std::string& path, const DeviceOptions& options) {
  // Made under another name and linked into place: nobody sees half a device.
  const std::string part = path + ".part" + std::to_string(getpid());
  const int fd = open(part.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return Fail(ErrorCode::kInvalid, "cannot create " + part + ": " + ErrnoText());
  const size_t offset = (sizeof(DeviceFile) + 4095) & ~size_t{4095};
  const size_t bytes = offset + options.records * sizeof(Record);
  void* at = MAP_FAILED;
  if (ftruncate(fd, static_cast<off_t>(bytes)) == 0) {
    at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  fchmod(fd, 0666);
  close(fd);
  if (at == MAP_FAILED) {
    unlink(part.c_str());
    return Fail(ErrorCode::kExhausted, "cannot map " + part + ": " + ErrnoText());
  }
  auto* file = static_cast<DeviceFile*>(at);
  file->bytes = bytes;
  strncpy(file->name, options.name.c_str(), sizeof(file->name) - 1);
  memcpy(file->uuid, options.uuid, 16);
  static const unsigned char kZero[16] = {};
  if (memcmp(file->uuid, kZero, 16) == 0 && getrandom(file->uuid, 16, 0) != 16) {
    return Fail(ErrorCode::kInternal, "no random numbers for a uuid: " + ErrnoText());
  }
  file->memory_bytes = options.memory_bytes;
  file->slice_ns = std::max<int64_t>(options.slice_ns, 1000);
  file->switch_ns = std::max<int64_t>(options.switch_ns, 0);
  file->host_bytes_per_s = options.host_bytes_per_s;
  file->device_bytes_per_s = options.device_bytes_per_s;
  file->record_capacity = options.records;
  file->records_offset = offset;
  CardState& card = file->card;
  CopyText(options.model, card.model);
  CopyText(options.bus, card.bus);
  CopyText(options.pcie_switch, card.pcie_switch);
  card.numa = options.numa;
  card.ecc = options.ecc;
  card.mig_mode = card.mig_pending = options.mig;
  for (size_t i = 0; i < std::min<size_t>(options.links.size(), kMaxLinks); ++i) {
    card.links[i].kind = options.links[i].to_switch ? 2 : 1;
    card.links[i].active = 1;
    CopyText(options.links[i].bus, card.links[i].bus);
  }
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&file->lock, &attributes);
  pthread_mutexattr_destroy(&attributes);
  file->magic = kMagic;
  munmap(at, bytes);
  const bool linked = link(part.c_str(), path.c_str()) == 0;
  const int error = errno;
  unlink(part.c_str());
  if (!linked) {
    return Fail(error == EEXIST ? ErrorCode::kExists : ErrorCode::kInvalid,
                "cannot create " + path + ": " + strerror(error) +
                    (error == EEXIST ? "; remove it first, or use it" : ""));
  }
  return true;
}

Result<Device*> Device::Open(const std::string& path) {
  // One Device and one descriptor per file and process, kept to its end (see the class).
  static std::mutex mutex;
  static auto& opened = *new std::map<std::pair<dev_t, ino_t>, Device*>;
  std::lock_guard lock(mutex);
  struct stat status;
  if (stat(path.c_str(), &status) != 0) {
    return Fail(ErrorCode::kNotFound, "no device file " + path + ": " + ErrnoText() +
                                          "; make one with baton-simgpu create " + path);
  }
  if (auto it = opened.find({status.st_dev, status.st_ino}); it != opened.end()) return it->second;
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return Fail(ErrorCode::kDenied, "cannot open " + path + ": " + ErrnoText());
  const auto bytes = static_cast<size_t>(status.st_size);
  void* at = bytes < sizeof(DeviceFile)
                 ? MAP_FAILED
                 : mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  auto* file = static_cast<DeviceFile*>(at);
  if (at == MAP_FAILED || file->magic != kMagic || file->bytes != bytes) {
    if (at != MAP_FAILED) munmap(at, bytes);
    close(fd);
    return Fail(ErrorCode::kInvalid,
                path + " is not a device file of this version; make one with baton-simgpu create");
  }
  auto* device = new Device(path, fd, file);
  opened[{status.st_dev, status.st_ino}] = device;
  return device;
}

void Device::Lock() {
  const int error = pthread_mutex_lock(&file_->lock);
  if (error == EOWNERDEAD) {
    timeline_.Recover();
    pthread_mutex_consistent(&file_->lock);
    return;
  }
  BATON_CHECK(error == 0);
}

void Device::Unlock() {
  const bool wake = timeline_.TakeWake();
  pthread_mutex_unlock(&file_->lock);
  if (!wake) return;
  FutexWake(&file_->change_word);
}

Device::Session::Session(Device* device) : device_(device) {
  device_->Lock();
  const int64_t now = NowNs();
  device_->timeline_.AdvanceTo(now);
  if (now - static_cast<int64_t>(uint64_t{device_->file_->checked_at}) >= kCheckEvery) {
    device_->CheckProcessesLocked();
  }
}

Device::Session::~Session() { device_->Unlock(); }

void Device::Session::CheckProcesses() { device_->CheckProcessesLocked(); }

bool Device::IsAlive(int process) const {
  if (process == process_) return true;
  // A process does not see its own locks, so another user of the file in this process is judged
  // by its pid. Attach() sees to it that no dead namesake keeps a slot.
  if (file_->processes[process].pid == static_cast<uint64_t>(getpid())) return true;
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = LockOffset(process);
  lock.l_len = 1;
  return fcntl(fd_, F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

void Device::CheckProcessesLocked() {
  timeline_.MarkChecked();
  for (int i = 0; i < kMaxProcesses; ++i) {
    const auto state = static_cast<SlotState>(uint64_t{file_->processes[i].state});
    // Of a dying one some contexts are still live where its looker was killed over it.
    if (state == SlotState::kDying || (state == SlotState::kLive && !IsAlive(i))) {
      timeline_.ProcessDied(i);
    }
  }
}

int Device::Attach(uint64_t instance) {
  Session session(this);
  const auto pid = static_cast<uint64_t>(getpid());
  for (int i = 0; i < kMaxProcesses; ++i) {
    const Process& p = file_->processes[i];
    if (p.state == static_cast<uint64_t>(SlotState::kLive) && p.pid == pid) {
      timeline_.ProcessDied(i);  // of an earlier process with this pid
    }
  }
  session.CheckProcesses();
  // The lock comes before the slot, so that nobody ever sees the slot of a live process unlocked.
  for (int i = 0; i < kMaxProcesses; ++i) {
    if (file_->processes[i].state != static_cast<uint64_t>(SlotState::kFree)) continue;
    struct flock lock = {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = LockOffset(i);
    lock.l_len = 1;
    if (fcntl(fd_, F_SETLK, &lock) != 0) return -1;
    process_ = timeline_.AttachProcess(pid, instance);
    BATON_CHECK(process_ == i);
    return process_;
  }
  return -1;
}

void Device::WaitForChange(uint32_t word, int64_t until) {
  constexpr int64_t kSpin = 20'000;
  const int64_t wake_at = until == kForever ? kForever : until - kSpin / 2;
  int64_t now = NowNs();
  if (wake_at > now) {
    const int slack = prctl(PR_GET_TIMERSLACK);
    prctl(PR_SET_TIMERSLACK, 1UL);
    timespec deadline;
    deadline.tv_sec = wake_at / 1'000'000'000;
    deadline.tv_nsec = wake_at % 1'000'000'000;
    syscall(SYS_futex, &file_->change_word, FUTEX_WAIT_BITSET, word,
            wake_at == kForever ? nullptr : &deadline, nullptr, FUTEX_BITSET_MATCH_ANY);
    if (slack > 0) prctl(PR_SET_TIMERSLACK, static_cast<unsigned long>(slack));
    now = NowNs();
  }
  if (until - now > kSpin) return;
  while (now < until && file_->change_word.load(std::memory_order_relaxed) == word) {
    now = NowNs();
  }
}

void Device::WakeAll() {
  file_->change_word.fetch_add(1);
  FutexWake(&file_->change_word);
}

std::vector<ProcessOnDevice> Device::Processes() {
  Session session(this);
  session.CheckProcesses();
  std::vector<ProcessOnDevice> processes;
  for (const Process& p : file_->processes) {
    if (p.state == static_cast<uint64_t>(SlotState::kFree)) continue;
    const bool dying = p.state == static_cast<uint64_t>(SlotState::kDying);
    if (p.contexts != 0 || dying) processes.push_back({p.pid, p.memory, p.energy, dying});
  }
  return processes;
}

}  // namespace baton::sim
