// What the hook adds to a launch while the token is held, beside a driver that does nothing, event
// marking included.
//
// The program starts itself again with the hook and the stub driver; this first process plays the
// backend, which grants one token for the whole run.
#include <benchmark/benchmark.h>
#include <dlfcn.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "hook/cuda_types.h"
#include "wire/codec.h"

namespace baton::bench {
namespace {

using LaunchKernel = CUresult (*)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                                  unsigned, unsigned, CUstream, void**, void**);

constexpr int kBatch = 8192;

// Of this thread: what other programs do to the machine counts less.
int64_t CpuNanos() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec * INT64_C(1'000'000'000) + t.tv_nsec;
}

// How many kernels and streams take turns.
struct Shape {
  size_t functions = 1;
  std::vector<CUstream> streams{nullptr};  // a power of two of them
};

// Streams as a driver hands them out: structures of its own, somewhere in the heap.
std::vector<CUstream> Streams(size_t count) {
  static std::vector<std::unique_ptr<char[]>> kept;
  std::vector<CUstream> streams;
  for (size_t i = 0; i < count; ++i) {
    kept.push_back(std::make_unique<char[]>(1200 + 16 * (i % 7)));
    streams.push_back(reinterpret_cast<CUstream>(kept.back().get()));
  }
  return streams;
}

// Nanoseconds per call of `launch`.
double PerCall(LaunchKernel launch, const Shape& shape) {
  const size_t mask = shape.streams.size() - 1;
  const int64_t begin = CpuNanos();
  for (size_t i = 0; i < kBatch; ++i) {
    const auto f = reinterpret_cast<CUfunction>(0x1000 + 64 * (i % shape.functions));
    launch(f, 64, 1, 1, 128, 1, 1, 0, shape.streams[i & mask], nullptr, nullptr);
  }
  return static_cast<double>(CpuNanos() - begin) / kBatch;
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Batches of hooked and of bare calls take turns, and the medians are compared: other load on the
// machine hits both alike.
void Held(benchmark::State& state, const Shape& shape) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  const auto hooked = reinterpret_cast<LaunchKernel>(dlsym(driver, "cuLaunchKernel"));
  const auto find = reinterpret_cast<void* (*)()>(dlsym(driver, "stub_bare_launch"));
  const auto bare = find == nullptr ? nullptr : reinterpret_cast<LaunchKernel>(find());
  if (hooked == nullptr || bare == nullptr || hooked == bare) {
    state.SkipWithError("the hook or the stub driver is not loaded");
    return;
  }
  reinterpret_cast<CUresult (*)(unsigned)>(dlsym(driver, "cuInit"))(0);
  PerCall(hooked, shape);  // waits for the token, and learns
  std::vector<double> with, without;
  for (auto _ : state) {
    with.push_back(PerCall(hooked, shape));
    without.push_back(PerCall(bare, shape));
  }
  state.counters["bare_ns"] = Median(without);
  state.counters["hooked_ns"] = Median(with);
  state.counters["overhead_ns"] = Median(with) - Median(without);
}

void Measure(int argc, char** argv) {
  benchmark::RegisterBenchmark("launch_overhead/held", Held, Shape());
  for (const size_t kernels : {16, 100, 400, 1000}) {
    benchmark::RegisterBenchmark(
        ("launch_overhead/held_" + std::to_string(kernels) + "_kernels").c_str(), Held,
        Shape{kernels, Streams(1)});
  }
  for (const size_t streams : {2, 4, 8, 16, 32, 64}) {
    benchmark::RegisterBenchmark(
        ("launch_overhead/held_" + std::to_string(streams) + "_streams").c_str(), Held,
        Shape{1, Streams(streams)});
  }
  benchmark::RegisterBenchmark("launch_overhead/held_1000_kernels_64_streams", Held,
                               Shape{1000, Streams(64)});
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}

template <class Message>
void Send(int fd, const Message& message) {
  char frame[wire::kTenantFrameMax];
  const size_t n = wire::Encode(message, frame, sizeof(frame));
  (void)!send(fd, frame, n, MSG_NOSIGNAL);
}

// Answers one frame: everybody is welcome, and may launch for an hour.
void OnFrame(int fd, const char* data, size_t size) {
  wire::Frame frame;
  if (frame.Parse(data, size) != wire::DecodeStatus::kOk) return;
  wire::Attach attach;
  wire::State state;
  if (frame.type() == wire::Hello::kType) {
    Send(fd, wire::Welcome{});
  } else if (frame.Read(attach)) {
    wire::Attached attached;
    attached.gpu = attach.gpu;
    attached.backlog_ns = 4'000'000;
    attached.idle_ns = 1'000'000'000;
    attached.heartbeat_ns = 100'000'000;
    Send(fd, attached);
  } else if (frame.Read(state) && state.phase == wire::Phase::kWaiting) {
    wire::Token token;
    token.gpu = state.gpu;
    token.epoch = state.epoch + 1;
    token.rev = 1;
    token.quota_ns = uint64_t{3600} * 1'000'000'000;
    Send(fd, token);
  }
}

// Serves the child until it ends; its exit status.
int Serve(int listener, pid_t child) {
  int status = 1;
  pollfd connecting = {listener, POLLIN, 0};
  while (poll(&connecting, 1, 100) == 0) {
    if (waitpid(child, &status, WNOHANG) == child) return 1;  // it failed before it connected
  }
  const int fd = accept(listener, nullptr, nullptr);
  char bytes[wire::kTenantFrameMax];
  for (ssize_t n; (n = recv(fd, bytes, sizeof(bytes), 0)) > 0;) {
    OnFrame(fd, bytes, static_cast<size_t>(n));
  }
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int Start(char** argv) {
  const std::string path = "/tmp/baton-launch-overhead-" + std::to_string(getpid());
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  const int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(listener, 1) != 0) {
    std::perror(path.c_str());
    return 1;
  }
  const pid_t child = fork();
  if (child == 0) {
    setenv("LD_PRELOAD", BATON_HOOK_LIBRARY, 1);
    setenv("LD_LIBRARY_PATH", BATON_STUB_DRIVER_FOLDER, 1);
    setenv("BATON_SOCKET", path.c_str(), 1);
    setenv("BATON_TICKET", "bench", 1);
    unsetenv("BATON_DISABLE");
    execv("/proc/self/exe", argv);
    _exit(127);
  }
  const int status = Serve(listener, child);
  unlink(path.c_str());
  return status;
}

}  // namespace
}  // namespace baton::bench

int main(int argc, char** argv) {
  const char* preloaded = std::getenv("LD_PRELOAD");
  if (preloaded == nullptr || std::strcmp(preloaded, BATON_HOOK_LIBRARY) != 0) {
    return baton::bench::Start(argv);
  }
  baton::bench::Measure(argc, argv);
}
