#include "bench/workload.h"

#include <time.h>

#include <algorithm>
#include <barrier>
#include <cerrno>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <random>
#include <thread>

#include "bench/kernels.h"

namespace baton::bench {
namespace {

// Words that each burst counts up on the device under --verify.
constexpr unsigned int kCounterWords = 256;

// A device, as all threads of the process that use it share it.
struct Setup {
  Driver driver;
  int ordinal = 0;
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUfunction spin = nullptr;
  CUfunction store = nullptr;
  CUfunction wait = nullptr;
  CUfunction add = nullptr;
  CUfunction fault = nullptr;
  CUdeviceptr meeting = 0;  // Workload::ranks as the device sees it
};

// Sleeps until `at`, in steps short enough that a stop request is seen.
void SleepUntil(Instant at, const std::atomic<bool>& stop) {
  while (!stop.load(std::memory_order_relaxed)) {
    const Instant now = MonotonicNow();
    if (now >= at) return;
    const Duration step = std::min<Duration>(at - now, std::chrono::milliseconds(100));
    const int64_t until = Nanos(now + step);
    const timespec t{static_cast<time_t>(until / 1'000'000'000), until % 1'000'000'000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, nullptr) == EINTR) {
    }
  }
}

// One thread of the workload, on one device.
class Lane {
 public:
  Lane(const Setup& setup, const Workload& workload, int index, const std::atomic<bool>& stop,
       Progress* progress)
      : setup_(setup),
        driver_(setup.driver),
        workload_(workload),
        index_(index),
        stop_(stop),
        progress_(progress),
        random_(workload.seed * 1'000'003 + static_cast<uint64_t>(index)) {}

  // Allocates what the lane needs, on the lane's own thread.
  void Prepare();
  // Runs to the end of the window. Does nothing after a failure.
  void Run(Instant window_start);

  const Tally& tally() const { return tally_; }
  int device() const { return setup_.ordinal; }
  int64_t work_ns() const { return work_ns_; }

 private:
  struct Stream {
    CUstream handle = nullptr;
    CUevent event = nullptr;
    CUdeviceptr counters = 0;
    unsigned int counted = 0;
    bool used = false;  // launched to since the last wait
  };
  struct Pending {
    CUevent event;
    int64_t work_ns;
  };
  struct Graph {
    CUgraphExec exec = nullptr;
    int64_t work_ns = 0;
  };

  bool ok() const { return tally_.error.empty(); }
  // Records the first failure. Returns whether the lane may go on.
  bool Check(CUresult result, const char* what) {
    if (result == CUDA_SUCCESS) return true;
    if (ok()) tally_.error = std::string(what) + ": " + driver_.Name(result);
    return false;
  }
  int64_t DrawLength();
  bool BuildGraph();
  // Launches one kernel or graph to the next stream; returns its length. After every
  // Workload::collective of them the stream meets its peers.
  int64_t Launch();
  // The stream goes on when all ranks' streams have come to collective `n`.
  void Meet(CUstream stream, uint32_t n);
  // Whether this thread has launched its last.
  bool Enough();
  bool LaunchKernel(CUfunction kernel, CUstream stream, void** arguments);
  // Waits for everything launched.
  bool WaitAll();
  bool Burst();
  bool PopPending();
  void Completed(uint64_t launches, int64_t work_ns);
  void CheckCounters();

  const Setup& setup_;
  const Driver& driver_;
  const Workload& workload_;
  const int index_;
  const std::atomic<bool>& stop_;
  Progress* const progress_;
  std::mt19937_64 random_;

  std::vector<Stream> streams_;
  size_t next_stream_ = 0;
  int until_meeting_ = 0;  // launches; 0: none belongs to a collective that has begun
  uint32_t meeting_ = 0;   // the collective begun last
  bool over_ = false;      // no further collective is begun
  Graph graph_;
  std::deque<Pending> pending_;
  std::vector<CUevent> spare_events_;
  void* host_buffer_ = nullptr;
  CUdeviceptr device_buffer_ = 0;

  Instant window_start_ = kNever;
  Instant window_end_ = kNever;
  Tally tally_;
  int64_t work_ns_ = 0;  // of the kernels completed in the window
};

int64_t Lane::DrawLength() {
  const double mean = static_cast<double>(Nanos(workload_.kernel));
  double length = mean;
  if (workload_.spread > 0) {
    if (workload_.spread_shape == Spread::kUniform) {
      std::uniform_real_distribution<double> factor(1 - workload_.spread, 1 + workload_.spread);
      length = mean * factor(random_);
    } else {
      // The mean of the distribution is the length asked for.
      const double sigma = workload_.spread;
      std::lognormal_distribution<double> factor(-sigma * sigma / 2, sigma);
      length = mean * factor(random_);
    }
  }
  return std::max<int64_t>(1, static_cast<int64_t>(length));
}

bool Lane::BuildGraph() {
  CUgraph graph = nullptr;
  if (!Check(driver_.GraphCreate(&graph, 0), "cuGraphCreate")) return false;
  CUgraphNode previous = nullptr;
  for (int i = 0; i < workload_.graph; ++i) {
    auto length = static_cast<unsigned long long>(DrawLength());
    void* arguments[] = {&length};
    CUDA_KERNEL_NODE_PARAMS_v1 node{};
    node.func = setup_.spin;
    node.gridDimX = node.gridDimY = node.gridDimZ = 1;
    node.blockDimX = node.blockDimY = node.blockDimZ = 1;
    node.kernelParams = arguments;
    CUgraphNode added = nullptr;
    if (!Check(driver_.GraphAddKernelNode(&added, graph, &previous, i > 0 ? 1 : 0, &node),
               "cuGraphAddKernelNode")) {
      return false;
    }
    previous = added;
    graph_.work_ns += static_cast<int64_t>(length);
  }
  return Check(driver_.GraphInstantiate(&graph_.exec, graph, 0), "cuGraphInstantiate");
}

void Lane::Prepare() {
  if (!Check(driver_.CtxSetCurrent(setup_.context), "cuCtxSetCurrent")) return;
  streams_.resize(static_cast<size_t>(std::max(1, workload_.streams)));
  unsigned int event_flags = CU_EVENT_DISABLE_TIMING;
  if (!workload_.spin) event_flags |= CU_EVENT_BLOCKING_SYNC;
  for (Stream& stream : streams_) {
    if (workload_.streams > 0 && !workload_.per_thread &&
        !Check(driver_.StreamCreate(&stream.handle, CU_STREAM_NON_BLOCKING), "cuStreamCreate")) {
      return;
    }
    if (!Check(driver_.EventCreate(&stream.event, event_flags), "cuEventCreate")) return;
    if (workload_.verify) {
      if (!Check(driver_.MemAlloc(&stream.counters, kCounterWords * 4), "cuMemAlloc") ||
          !Check(driver_.MemsetD32(stream.counters, 0, kCounterWords), "cuMemsetD32")) {
        return;
      }
    }
  }
  if (workload_.sync == Sync::kInFlight) {
    for (int i = 0; i <= workload_.in_flight; ++i) {
      CUevent event = nullptr;
      if (!Check(driver_.EventCreate(&event, event_flags), "cuEventCreate")) return;
      spare_events_.push_back(event);
    }
  }
  if (workload_.copy_bytes > 0) {
    if (!Check(driver_.MemAllocHost(&host_buffer_, workload_.copy_bytes), "cuMemAllocHost") ||
        !Check(driver_.MemAlloc(&device_buffer_, workload_.copy_bytes), "cuMemAlloc")) {
      return;
    }
    std::fill_n(static_cast<unsigned char*>(host_buffer_), workload_.copy_bytes,
                static_cast<unsigned char>(index_ + 1));
  }
  if (workload_.graph > 0) BuildGraph();
  // A driver may load a kernel when it is first launched, and wait for all that runs: not while a
  // peer is waited for.
  if (workload_.collective > 0 && ok()) Meet(streams_[0].handle, 0);
  // The memset above went to another stream than the kernels that will follow it.
  Check(driver_.CtxSynchronize(), "cuCtxSynchronize");
}

bool Lane::LaunchKernel(CUfunction kernel, CUstream stream, void** arguments) {
  return Check(driver_.LaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr),
               "cuLaunchKernel");
}

void Lane::Meet(CUstream stream, uint32_t n) {
  const Collective& ranks = *workload_.ranks;
  const int self = workload_.rank + index_;
  const auto store = [&](size_t offset) {
    CUdeviceptr word = setup_.meeting + offset;
    unsigned long long ns = 0;
    void* arguments[] = {&ns, &word, &n};
    return LaunchKernel(setup_.store, stream, arguments);
  };
  if (!store(ranks.ArrivedOffset(self))) return;
  for (int peer = 0; peer < ranks.ranks(); ++peer) {
    if (peer == self) continue;
    CUdeviceptr word = setup_.meeting + ranks.ArrivedOffset(peer);
    void* arguments[] = {&word, &n};
    if (!LaunchKernel(setup_.wait, stream, arguments)) return;
  }
  store(ranks.LeftOffset(self));
}

int64_t Lane::Launch() {
  Stream& stream = streams_[next_stream_];
  next_stream_ = (next_stream_ + 1) % streams_.size();
  stream.used = true;
  int64_t work_ns = graph_.work_ns;
  if (graph_.exec != nullptr) {
    Check(driver_.GraphLaunch(graph_.exec, stream.handle), "cuGraphLaunch");
  } else {
    auto length = static_cast<unsigned long long>(DrawLength());
    void* arguments[] = {&length};
    LaunchKernel(setup_.spin, stream.handle, arguments);
    work_ns = static_cast<int64_t>(length);
  }
  if (until_meeting_ > 0 && --until_meeting_ == 0 && ok()) Meet(stream.handle, meeting_);
  if (workload_.sync == Sync::kInFlight && ok()) {
    const CUevent event = spare_events_.back();
    spare_events_.pop_back();
    Check(driver_.EventRecord(event, stream.handle), "cuEventRecord");
    pending_.push_back({event, work_ns});
    if (pending_.size() > static_cast<size_t>(workload_.in_flight)) PopPending();
  }
  return work_ns;
}

bool Lane::PopPending() {
  const Pending oldest = pending_.front();
  pending_.pop_front();
  spare_events_.push_back(oldest.event);
  if (!Check(driver_.EventSynchronize(oldest.event), "cuEventSynchronize")) return false;
  Completed(1, oldest.work_ns);
  return true;
}

void Lane::Completed(uint64_t launches, int64_t work_ns) {
  progress_->launches.fetch_add(launches, std::memory_order_relaxed);
  progress_->work_ns.fetch_add(work_ns, std::memory_order_relaxed);
  const Instant now = MonotonicNow();
  if (now < window_start_ || now > window_end_) return;
  tally_.launches += launches;
  work_ns_ += work_ns;
}

bool Lane::Enough() {
  const bool enough = stop_.load(std::memory_order_relaxed) || MonotonicNow() >= window_end_ ||
                      (workload_.bursts_max > 0 && tally_.bursts >= workload_.bursts_max);
  if (workload_.collective == 0) return enough;
  // What one rank has begun, all must.
  if (enough) workload_.ranks->End();
  return over_;
}

bool Lane::WaitAll() {
  if (workload_.sync_by == SyncBy::kContext) {
    return Check(driver_.CtxSynchronize(), "cuCtxSynchronize");
  }
  for (Stream& stream : streams_) {
    if (!stream.used) continue;
    stream.used = false;
    if (workload_.sync_by == SyncBy::kStream) {
      if (!Check(driver_.StreamSynchronize(stream.handle), "cuStreamSynchronize")) return false;
    } else if (!Check(driver_.EventRecord(stream.event, stream.handle), "cuEventRecord") ||
               !Check(driver_.EventSynchronize(stream.event), "cuEventSynchronize")) {
      return false;
    }
  }
  return true;
}

bool Lane::Burst() {
  const Instant submitted = MonotonicNow();
  if (workload_.copy_bytes > 0 &&
      !Check(driver_.MemcpyHtoDAsync(device_buffer_, host_buffer_, workload_.copy_bytes,
                                     streams_[next_stream_].handle),
             "cuMemcpyHtoDAsync")) {
    return false;
  }
  const bool each = workload_.sync == Sync::kLaunch;
  int64_t work_ns = 0;
  uint64_t launches = 0;
  for (int i = 0; i < workload_.burst && ok(); ++i) {
    if (workload_.collective > 0 && until_meeting_ == 0) {
      over_ = !workload_.ranks->Begin(workload_.rank + index_, meeting_ + 1);
      if (over_) break;
      ++meeting_;
      until_meeting_ = workload_.collective;
    }
    const int64_t length = Launch();
    work_ns += length;
    ++launches;
    if (each && WaitAll()) Completed(1, length);
    // A stop request cuts a long burst short, but never a measured wait.
    if (workload_.sync == Sync::kInFlight && stop_.load(std::memory_order_relaxed) && Enough()) {
      break;
    }
  }
  if (workload_.verify) {
    for (Stream& stream : streams_) {
      if (!ok()) return false;
      void* p = &stream.counters;
      unsigned int words = kCounterWords, one = 1;
      void* arguments[] = {p, &words, &one};
      stream.used = true;
      if (LaunchKernel(setup_.add, stream.handle, arguments)) ++stream.counted;
    }
  }
  if (!ok()) return false;
  switch (workload_.sync) {
    case Sync::kNone:
      // Nothing is known about completion: what was launched counts, and Run() waits at both ends.
      Completed(launches, work_ns);
      break;
    case Sync::kBurst:
      if (!WaitAll()) return false;
      Completed(launches, work_ns);
      break;
    case Sync::kLaunch:
      if (workload_.verify && !WaitAll()) return false;
      break;
    case Sync::kInFlight:
      break;
  }
  const Instant now = MonotonicNow();
  if (over_ || now < window_start_ || now > window_end_) return true;
  ++tally_.bursts;
  if (workload_.sync == Sync::kBurst || each) {
    tally_.waits_ns.push_back(std::max<int64_t>(0, Nanos(now - submitted) - work_ns));
  }
  return true;
}

void Lane::Run(Instant window_start) {
  if (!ok()) return;
  window_start_ = window_start;
  window_end_ = window_start + workload_.length;
  const Instant fault_at = workload_.fault_after > Duration::zero() && index_ == 0
                               ? window_start + workload_.fault_after
                               : kNever;
  bool warm = workload_.sync != Sync::kNone;
  Instant wake = MonotonicNow();
  while (ok() && !Enough()) {
    const Instant now = MonotonicNow();
    if (!warm && now >= window_start_) {
      warm = true;
      if (!Check(driver_.CtxSynchronize(), "cuCtxSynchronize")) break;
      window_start_ = MonotonicNow();
    }
    if (now >= fault_at) {
      LaunchKernel(setup_.fault, streams_[0].handle, nullptr);
      Check(driver_.StreamSynchronize(streams_[0].handle), "cuStreamSynchronize");
      if (ok()) tally_.error = "the illegal store went unnoticed";
      break;
    }
    if (!Burst()) break;
    if (workload_.period > Duration::zero()) {
      wake = std::max(wake + workload_.period, MonotonicNow());
      SleepUntil(std::min({wake, window_end_, fault_at}), stop_);
    } else if (workload_.pause > Duration::zero()) {
      SleepUntil(std::min({MonotonicNow() + workload_.pause, window_end_, fault_at}), stop_);
    }
  }
  while (ok() && !pending_.empty()) PopPending();
  Instant end = std::min(MonotonicNow(), window_end_);
  if (ok()) Check(driver_.CtxSynchronize(), "cuCtxSynchronize");
  if (workload_.sync == Sync::kNone) end = MonotonicNow();
  tally_.elapsed_ns = std::max<int64_t>(0, Nanos(end - window_start_));
  CheckCounters();
}

void Lane::CheckCounters() {
  if (!workload_.verify) return;
  std::vector<unsigned int> words(kCounterWords);
  for (const Stream& stream : streams_) {
    if (!ok() || !Check(driver_.MemcpyDtoH(words.data(), stream.counters, kCounterWords * 4),
                        "cuMemcpyDtoH")) {
      return;
    }
    for (unsigned int i = 0; i < kCounterWords; ++i) {
      if (words[i] == stream.counted) continue;
      tally_.error = "verification failed: word " + std::to_string(i) + " is " +
                     std::to_string(words[i]) + ", expected " + std::to_string(stream.counted);
      return;
    }
  }
  if (workload_.copy_bytes > 0) {
    std::vector<unsigned char> bytes(workload_.copy_bytes);
    if (!Check(driver_.MemcpyDtoH(bytes.data(), device_buffer_, workload_.copy_bytes),
               "cuMemcpyDtoH")) {
      return;
    }
    const auto expected = static_cast<unsigned char>(index_ + 1);
    if (tally_.bursts > 0 &&
        std::any_of(bytes.begin(), bytes.end(), [&](unsigned char b) { return b != expected; })) {
      tally_.error = "verification failed: a copied byte is wrong";
      return;
    }
  }
  tally_.verified = true;
}

// Opens the devices, with everything on them that threads share.
Result<std::deque<Setup>> Open(const Workload& workload) {
  auto driver = LoadDriver(workload.resolve, workload.per_thread);
  if (!driver) return tl::unexpected(driver.error());
  const Driver& d = *driver;
  std::string error;
  const auto check = [&](CUresult result, const char* what) {
    if (result != CUDA_SUCCESS) error = std::string(what) + ": " + d.Name(result);
    return result == CUDA_SUCCESS;
  };
  const auto failed = [&] { return Fail(ErrorCode::kUnavailable, error); };
  int count = 0;
  if (!check(d.Init(0), "cuInit") || !check(d.DeviceGetCount(&count), "cuDeviceGetCount")) {
    return failed();
  }
  std::deque<Setup> setups;
  for (const int ordinal : workload.devices) {
    if (ordinal >= count) {
      return Fail(ErrorCode::kInvalid, "--device " + std::to_string(ordinal) +
                                           ": the driver shows " + std::to_string(count) +
                                           " device(s); count from 0");
    }
    Setup& setup = setups.emplace_back();
    setup.driver = d;
    setup.ordinal = ordinal;
    CUmodule module = nullptr;
    const auto function = [&](CUfunction* to, const char* name) {
      return check(d.ModuleGetFunction(to, module, name), "cuModuleGetFunction");
    };
    const unsigned int flags = workload.spin ? CU_CTX_SCHED_SPIN : CU_CTX_SCHED_BLOCKING_SYNC;
    if (!check(d.DeviceGet(&setup.device, ordinal), "cuDeviceGet") ||
        !check(d.DevicePrimaryCtxSetFlags(setup.device, flags), "cuDevicePrimaryCtxSetFlags") ||
        !check(d.DevicePrimaryCtxRetain(&setup.context, setup.device),
               "cuDevicePrimaryCtxRetain") ||
        !check(d.CtxSetCurrent(setup.context), "cuCtxSetCurrent") ||
        !check(d.ModuleLoadData(&module, kKernelsPtx), "cuModuleLoadData") ||
        !function(&setup.spin, "baton_spin") || !function(&setup.store, "baton_spin_store") ||
        !function(&setup.wait, "baton_spin_wait") || !function(&setup.add, "baton_add") ||
        !function(&setup.fault, "baton_fault")) {
      return failed();
    }
    if (workload.memory_bytes > 0) {
      CUdeviceptr held = 0;  // until the process ends
      if (!check(d.MemAlloc(&held, workload.memory_bytes), "cuMemAlloc")) return failed();
    }
    if (workload.collective > 0) {
      // Registered once in a process, for all its contexts; each may see it at another address.
      const unsigned int shared = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
      if ((setups.size() == 1 &&
           !check(d.MemHostRegister(workload.ranks, sizeof(Collective), shared),
                  "cuMemHostRegister")) ||
          !check(d.MemHostGetDevicePointer(&setup.meeting, workload.ranks, 0),
                 "cuMemHostGetDevicePointer")) {
        return failed();
      }
    }
  }
  return setups;
}

}  // namespace

Result<Tally> RunWorkload(const Workload& workload, const std::atomic<bool>& stop,
                          Progress* progress) {
  auto setups = Open(workload);
  if (!setups) return tl::unexpected(setups.error());

  std::deque<Lane> lanes;
  for (const Setup& setup : *setups) {
    for (int i = 0; i < workload.threads; ++i) {
      lanes.emplace_back(setup, workload, static_cast<int>(lanes.size()), stop, progress);
    }
  }
  Instant window_start = kNever;
  std::barrier ready(static_cast<ptrdiff_t>(lanes.size()), [&]() noexcept {
    window_start =
        workload.start_at != kNever ? workload.start_at : MonotonicNow() + workload.warmup;
  });
  std::mutex mutex;
  std::condition_variable ended;
  size_t running = lanes.size();
  std::string failure;  // of the first lane that failed
  std::vector<std::thread> threads;
  for (Lane& lane : lanes) {
    threads.emplace_back([&] {
      lane.Prepare();
      ready.arrive_and_wait();
      lane.Run(window_start);
      const std::lock_guard lock(mutex);
      const std::string& error = lane.tally().error;
      if (!error.empty() && workload.collective > 0) workload.ranks->GiveUp();
      if (failure.empty()) failure = error;
      --running;
      ended.notify_one();
    });
  }
  if (workload.collective > 0) {
    StallWatch watch(*workload.ranks, workload.patience, MonotonicNow());
    std::unique_lock lock(mutex);
    while (!ended.wait_for(lock, std::chrono::milliseconds(100), [&] { return running == 0; })) {
      const std::string reason = watch.Look(MonotonicNow());
      if (!reason.empty()) workload.stalled(failure.empty() ? reason : failure);
    }
  }
  for (std::thread& thread : threads) thread.join();

  Tally total;
  total.verified = workload.verify;
  for (const Lane& lane : lanes) {
    const Tally& tally = lane.tally();
    total.launches += tally.launches;
    total.bursts += tally.bursts;
    total.work_ns[lane.device()] += lane.work_ns();
    total.elapsed_ns = std::max(total.elapsed_ns, tally.elapsed_ns);
    total.waits_ns.insert(total.waits_ns.end(), tally.waits_ns.begin(), tally.waits_ns.end());
    total.verified = total.verified && tally.verified;
    if (total.error.empty()) total.error = tally.error;
  }
  return total;
}

}  // namespace baton::bench
