// bench_gpu: what a GPU and its driver take by themselves for the things that Baton does on them: a
// launch, an event, seeing the end of a kernel, and a hand-off between two processes. These are the
// limits beside which Baton's own costs on that GPU are to be read (scripts/gpu, step "limits").
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/time.h"
#include "bench/bare_gpu.h"

namespace baton::bench {
namespace {

constexpr char kUsage[] = R"(Usage: bench_gpu [TURNS]

Measures, on the first GPU and without Baton, in microseconds and as medians:

  launch       a kernel of 2 us among 1000 of them, launched back to back into one stream
  event        what an event with a time adds to that on the GPU; event_untimed: one without
  record, query, elapsed   what the driver's calls for events take the processor
  end_seen     from a kernel's end until a thread that asks without a pause knows of it, and the
               launch before it
  handoff      what the GPU is without work when two processes take turns (TURNS each, 200): one ends
               its kernels, the other sees a word of shared memory that the first one writes, and
               launches. Both look without a pause, so nothing that is woken up can be quicker
  handoff_one  the same within one process, between two streams: without a switch of the GPU between
               contexts

  pin          taking 64 MiB of the host's memory that the GPU can reach, in milliseconds
  copy_out, copy_in   copies between the GPU and such memory, in GB/s

Prints a JSON object. Exit status: 0, 1 after a CUDA error, 64 usage, 69 no driver.
)";

constexpr int kExitUsage = 64;
constexpr int kExitUnavailable = 69;
constexpr int kLooks = 300;
constexpr int kRounds = 60;           // of bursts
constexpr int kBurst = 1000;          // launches
constexpr uint64_t kShortNs = 2'000;  // of a kernel
constexpr uint64_t kLongNs = 100'000;
constexpr uint64_t kTurnNs = 500'000;  // of each of a turn's kernels
constexpr int kTurnKernels = 4;

double MicrosOf(Duration d) { return static_cast<double>(Nanos(d)) / 1e3; }

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

class Gpu : public BareGpu {
 public:
  explicit Gpu(const Driver& found) : BareGpu(found), stream(NewStream()) {}
  CUstream NewStream() const {
    CUstream made = nullptr;
    Check(driver.StreamCreate(&made, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    return made;
  }
  CUevent NewEvent(unsigned flags) const {
    CUevent made = nullptr;
    Check(driver.EventCreate(&made, flags), "cuEventCreate");
    return made;
  }
  void Record(CUevent event, CUstream in) const {
    Check(driver.EventRecord(event, in), "cuEventRecord");
  }
  bool HasEnded(CUevent event) const {
    const CUresult result = driver.EventQuery(event);
    if (result == CUDA_ERROR_NOT_READY) return false;
    Check(result, "cuEventQuery");
    return true;
  }
  Duration Between(CUevent from, CUevent to) const {
    float ms = 0;
    Check(driver.EventElapsedTime(&ms, from, to), "cuEventElapsedTime");
    return Duration(static_cast<int64_t>(ms * 1e6));
  }

  const CUstream stream;
};

// What `call` takes, in microseconds.
double Took(const std::function<void()>& call) {
  const Instant from = MonotonicNow();
  call();
  return MicrosOf(MonotonicNow() - from);
}

// A burst of short kernels, until the last has ended; each `every` of them is followed by an event.
double BurstTook(const Gpu& gpu, int every, unsigned flags) {
  std::vector<CUevent> events;
  if (every > 0) {
    for (int i = 0; i < kBurst / every; ++i) events.push_back(gpu.NewEvent(flags));
  }
  std::vector<double> took;
  took.reserve(kRounds);
  for (int round = 0; round < kRounds; ++round) {
    took.push_back(Took([&] {
      size_t next = 0;
      for (int i = 1; i <= kBurst; ++i) {
        gpu.Spin(kShortNs, gpu.stream);
        if (every > 0 && i % every == 0) gpu.Record(events[next++], gpu.stream);
      }
      gpu.Synchronize();
    }));
  }
  for (CUevent event : events) gpu.Check(gpu.driver.EventDestroy(event), "cuEventDestroy");
  return Median(took);
}

nlohmann::json Launches(const Gpu& gpu) {
  BurstTook(gpu, 0, 0);  // warm
  const double bare = BurstTook(gpu, 0, 0);
  nlohmann::json event = nlohmann::json::object(), untimed = nlohmann::json::object();
  for (const int every : {10, 100}) {
    const auto each = [&](unsigned flags) {
      return (BurstTook(gpu, every, flags) - bare) / (kBurst / every);
    };
    event["one_in_" + std::to_string(every)] = each(CU_EVENT_DEFAULT);
    untimed["one_in_" + std::to_string(every)] = each(CU_EVENT_DISABLE_TIMING);
  }
  return {{"launch", bare / kBurst}, {"event", event}, {"event_untimed", untimed}};
}

// What the calls take while the GPU has work.
nlohmann::json Calls(const Gpu& gpu) {
  std::vector<double> launch, record, query, ended, elapsed;
  CUevent before = gpu.NewEvent(CU_EVENT_DEFAULT);
  CUevent after = gpu.NewEvent(CU_EVENT_DEFAULT);
  for (int round = 0; round < kLooks; ++round) {
    gpu.Spin(kLongNs, gpu.stream);
    launch.push_back(Took([&] { gpu.Spin(kShortNs, gpu.stream); }));
    gpu.Record(before, gpu.stream);
    record.push_back(Took([&] { gpu.Record(after, gpu.stream); }));
    query.push_back(Took([&] { gpu.HasEnded(after); }));
    gpu.Synchronize();
    ended.push_back(Took([&] { gpu.HasEnded(after); }));
    elapsed.push_back(Took([&] { gpu.Between(before, after); }));
  }
  return {{"launch_call", Median(launch)},
          {"record", Median(record)},
          {"query", Median(query)},
          {"query_ended", Median(ended)},
          {"elapsed", Median(elapsed)}};
}

// What moving memory to the host and back takes.
nlohmann::json Copies(const Gpu& gpu) {
  constexpr size_t kPart = 64 << 20;
  constexpr size_t kParts = 8;
  std::vector<double> pin, out, in;
  std::array<void*, kParts> host = {};
  CUdeviceptr device = 0;
  gpu.Check(gpu.driver.MemAlloc(&device, kParts * kPart), "cuMemAlloc");
  for (void*& part : host) {
    pin.push_back(
        Took([&] { gpu.Check(gpu.driver.MemAllocHost(&part, kPart), "cuMemAllocHost"); }));
  }
  for (int round = 0; round < 4; ++round) {
    for (size_t i = 0; i < kParts; ++i) {
      const CUdeviceptr at = device + i * kPart;
      out.push_back(
          Took([&] { gpu.Check(gpu.driver.MemcpyDtoH(host[i], at, kPart), "cuMemcpyDtoH"); }));
      in.push_back(
          Took([&] { gpu.Check(gpu.driver.MemcpyHtoD(at, host[i], kPart), "cuMemcpyHtoD"); }));
    }
  }
  gpu.Check(gpu.driver.MemFree(device), "cuMemFree");
  return {{"pin", Median(pin) / 1e3},
          {"copy_out", kPart / Median(out) / 1e3},
          {"copy_in", kPart / Median(in) / 1e3}};
}

double EndSeen(const Gpu& gpu) {
  std::vector<double> seen;
  seen.reserve(kLooks);
  CUevent end = gpu.NewEvent(CU_EVENT_DISABLE_TIMING);
  for (int round = 0; round < kLooks; ++round) {
    seen.push_back(Took([&] {
                     gpu.Spin(kLongNs, gpu.stream);
                     gpu.Record(end, gpu.stream);
                     while (!gpu.HasEnded(end)) {
                     }
                   }) -
                   kLongNs / 1e3);
  }
  return Median(seen);
}

// A turn of the GPU: launches, and looks until all has ended. Returns what the GPU worked for.
class Turns {
 public:
  Turns(const Gpu& gpu, CUstream stream)
      : gpu_(gpu),
        stream_(stream),
        begin_(gpu.NewEvent(CU_EVENT_DEFAULT)),
        end_(gpu.NewEvent(CU_EVENT_DEFAULT)) {}
  void Launch() const {
    gpu_.Record(begin_, stream_);
    for (int i = 0; i < kTurnKernels; ++i) gpu_.Spin(kTurnNs, stream_);
    gpu_.Record(end_, stream_);
  }
  bool HasEnded() const { return gpu_.HasEnded(end_); }
  Duration Worked() const { return gpu_.Between(begin_, end_); }

 private:
  const Gpu& gpu_;
  CUstream stream_;
  CUevent begin_, end_;
};

double HandOffInOneProcess(const Gpu& gpu, int turns) {
  const std::array<Turns, 2> of = {Turns(gpu, gpu.stream), Turns(gpu, gpu.NewStream())};
  std::vector<double> lost;
  for (int i = 0; i < 2 * turns; ++i) {
    const Turns& turn = of[static_cast<size_t>(i % 2)];
    const double took = Took([&] {
      turn.Launch();
      while (!turn.HasEnded()) {
      }
    });
    lost.push_back(took - MicrosOf(turn.Worked()));
  }
  return Median(lost);
}

struct Shared {
  std::atomic<uint32_t> turn{0};                 // even: the first process's
  alignas(64) std::atomic<int64_t> began_ns{0};  // the turn
  std::atomic<int64_t> worked_ns{0};             // the GPU in the turn before
};

// One of the two processes: takes its turns. `lost`: what was lost with each that the other one
// took over from this one's before.
void TakeTurns(const Gpu& gpu, Shared& shared, uint32_t own, int turns, std::vector<double>* lost) {
  const Turns turn(gpu, gpu.stream);
  for (uint32_t i = own; i < 2 * static_cast<uint32_t>(turns); i += 2) {
    while (shared.turn.load(std::memory_order_acquire) != i) {
    }
    const int64_t now = Nanos(MonotonicNow());
    // From the beginning of the other one's turn to that of this one.
    if (lost != nullptr && i > 2) {
      lost->push_back(static_cast<double>(now - shared.began_ns.load() - shared.worked_ns.load()) /
                      1e3);
    }
    shared.began_ns.store(now);
    turn.Launch();
    while (!turn.HasEnded()) {
    }
    shared.worked_ns.store(Nanos(turn.Worked()));
    shared.turn.store(i + 1, std::memory_order_release);
  }
}

int Main(int argc, char** argv) {
  int turns = 200;
  if (argc == 2 && std::string_view(argv[1]) == "--help") {
    std::fputs(kUsage, stdout);
    return 0;
  }
  if (argc > 2 || (argc == 2 && (turns = std::atoi(argv[1])) < 2)) {
    std::fputs(kUsage, stderr);
    return kExitUsage;
  }
  const Result<Driver> driver = LoadDriver(Resolve::kDlsym, false);
  if (!driver) {
    std::fprintf(stderr, "%s\n", driver.error().message.c_str());
    return kExitUnavailable;
  }
  void* memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  auto* shared = new (memory) Shared();
  shared->turn.store(~0u);
  // Before the driver is started: it does not go along into a child.
  const pid_t other = fork();
  if (other == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const Gpu gpu(*driver);
    TakeTurns(gpu, *shared, 1, turns, nullptr);
    std::_Exit(0);
  }
  const Gpu gpu(*driver);
  nlohmann::json said = Launches(gpu);
  said.update(Calls(gpu));
  said.update(Copies(gpu));
  said["end_seen"] = EndSeen(gpu);
  said["handoff_one"] = HandOffInOneProcess(gpu, turns);
  std::vector<double> lost;
  shared->turn.store(0);
  TakeTurns(gpu, *shared, 0, turns, &lost);
  int status = 0;
  waitpid(other, &status, 0);
  if (status != 0 || lost.empty()) return 1;
  said["handoff"] = Median(lost);
  std::sort(lost.begin(), lost.end());
  said["handoff_p99"] = lost[lost.size() * 99 / 100];
  std::printf("%s\n", said.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace baton::bench

int main(int argc, char** argv) { return baton::bench::Main(argc, argv); }
