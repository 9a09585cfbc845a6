// baton-runtime: a program of NVIDIA's runtime, as nvcc builds them. Compiled a second time with
// per-thread default streams (baton-runtime-ptds).
//
//   check      what runtime and driver are; ends with 77 where there is no GPU for them
//   api        the runtime's common calls, once each
//   capture    threads that capture, each into its own graph, while others launch
//   stream     steps of kernels in the default stream, counted while others count theirs
//   graph      the same steps, each one launch of a captured graph
//
// The last two take --ready FILE, --go FILE and --seconds N as scripts/gpu-steps/stepping.py says.
// Results are checked, but on the simulated GPU, whose kernels compute nothing.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int kUnavailable = 77;
constexpr int kUsage = 64;
constexpr unsigned kWords = 1u << 22;
constexpr int kKernels = 8;       // in a step
constexpr int kCheckedSteps = 20;  // whose result is told
constexpr int kInFlight = 3;

const bool g_computes = std::getenv("BATON_SIM_DEVICES") == nullptr;

void Check(cudaError_t result, const char* call, int line) {
  if (result == cudaSuccess) return;
  std::fprintf(stderr, "line %d: %s: %s\n", line, call, cudaGetErrorName(result));
  std::_Exit(1);
}
#define OK(call) Check(call, #call, __LINE__)

void Expect(bool right, const char* what) {
  if (right || !g_computes) return;
  std::fprintf(stderr, "wrong: %s\n", what);
  std::_Exit(1);
}

__global__ void Mix(uint32_t* words, unsigned n, uint32_t salt) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    uint32_t w = words[i] ^ salt;
    for (int k = 0; k < 32; ++k) {
      w ^= w << 13;
      w ^= w >> 17;
      w ^= w << 5;
    }
    words[i] = w + i;
  }
}

__global__ void Add(uint32_t* words, unsigned n, uint32_t by) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    words[i] += by;
  }
}

__device__ uint32_t g_variable;
__global__ void AddToVariable(uint32_t by) { g_variable += by; }

cudaGraphExec_t Instantiate(cudaGraph_t graph) {
  cudaGraphExec_t exec;
  OK(cudaGraphInstantiateWithFlags(&exec, graph, 0));
  return exec;
}

// A step's kernels, one after the other.
void LaunchKernels(uint32_t* words, cudaStream_t stream) {
  for (int k = 0; k < kKernels; ++k) Mix<<<256, 256, 0, stream>>>(words, kWords, 17u * k + 1);
  OK(cudaGetLastError());
}

// FNV-1a of what the words are.
std::string ResultOf(const uint32_t* device) {
  std::vector<uint32_t> words(kWords);
  OK(cudaMemcpy(words.data(), device, kWords * 4, cudaMemcpyDeviceToHost));
  uint64_t hash = 14695981039346656037u;
  for (uint32_t w : words) hash = (hash ^ w) * 1099511628211u;
  char text[32];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

double Now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

struct Race {
  std::string ready, go;
  double seconds = 5;
};

int Count(bool graphs, const Race& race) {
  uint32_t* words;
  OK(cudaMalloc(&words, kWords * 4));
  cudaGraphExec_t exec = nullptr;
  cudaStream_t stream = nullptr;  // the default one, but a graph is captured from another
  if (graphs) {
    cudaGraph_t graph;
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    LaunchKernels(words, stream);
    OK(cudaStreamEndCapture(stream, &graph));
    exec = Instantiate(graph);
    OK(cudaGraphDestroy(graph));
  }
  std::vector<cudaEvent_t> ends(kInFlight + 1);
  for (cudaEvent_t& e : ends) OK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
  const auto step = [&] {
    if (graphs) {
      OK(cudaGraphLaunch(exec, stream));
    } else {
      LaunchKernels(words, stream);
    }
  };
  const auto checked = [&] {
    OK(cudaMemsetAsync(words, 0, kWords * 4, stream));
    for (int i = 0; i < kCheckedSteps; ++i) step();
    OK(cudaStreamSynchronize(stream));
    return ResultOf(words);
  };
  const std::string before = checked();
  if (!race.ready.empty()) std::ofstream(race.ready).flush();
  double end = Now() + race.seconds;
  if (!race.go.empty()) {
    while (access(race.go.c_str(), R_OK) != 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    std::ifstream(race.go) >> end;
  }
  const double begin = Now();
  const std::string during = checked();
  long steps = kCheckedSteps;
  for (long launched = 0; Now() < end; ++launched) {
    step();
    OK(cudaEventRecord(ends[launched % ends.size()], stream));
    if (launched < kInFlight) continue;
    OK(cudaEventSynchronize(ends[(launched - kInFlight) % ends.size()]));
    ++steps;
  }
  const double elapsed = Now() - begin;
  OK(cudaStreamSynchronize(stream));
  OK(cudaFree(words));
  Expect(before == during, "the result of the same steps");
  std::printf("{\"mode\": \"%s\", \"steps\": %ld, \"elapsed\": %.3f, \"result\": \"%s\"}\n",
              graphs ? "graph" : "stream", steps, elapsed, during.c_str());
  return 0;
}

bool AllAre(const uint32_t* device, unsigned n, uint32_t value) {
  std::vector<uint32_t> words(n);
  OK(cudaMemcpy(words.data(), device, n * 4, cudaMemcpyDeviceToHost));
  for (uint32_t w : words) {
    if (w != value) return false;
  }
  return true;
}

int Api() {
  constexpr unsigned kN = 1 << 16;
  size_t free_bytes, total;
  OK(cudaMemGetInfo(&free_bytes, &total));
  uint32_t *x, *y;
  OK(cudaMalloc(&x, kN * 4));
  OK(cudaMalloc(&y, kN * 4));
  std::vector<uint32_t> host(kN, 5);
  OK(cudaMemcpy(x, host.data(), kN * 4, cudaMemcpyHostToDevice));
  host.assign(kN, 0);
  OK(cudaMemcpy(host.data(), x, kN * 4, cudaMemcpyDeviceToHost));
  if (host[kN - 1] != 5) return std::fputs("a copy lost data\n", stderr), 1;
  OK(cudaMemset(y, 0, kN * 4));
  Add<<<64, 64>>>(y, kN, 3);
  OK(cudaGetLastError());
  OK(cudaDeviceSynchronize());
  Expect(AllAre(y, kN, 3), "a kernel in the default stream");

  cudaStream_t s, side;
  cudaEvent_t fork, join, from, to;
  OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  OK(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
  for (cudaEvent_t* e : {&fork, &join, &from, &to}) OK(cudaEventCreate(e));
  OK(cudaEventRecord(from, s));
  for (int i = 0; i < 10; ++i) Add<<<64, 64, 0, s>>>(y, kN, 1);
  OK(cudaEventRecord(to, s));
  OK(cudaEventSynchronize(to));
  float ms = 0;
  OK(cudaEventElapsedTime(&ms, from, to));
  if (ms <= 0) return std::fputs("kernels took no time\n", stderr), 1;
  Expect(AllAre(y, kN, 13), "kernels in a stream");

  // Two branches in one graph, launched three times.
  cudaGraph_t graph;
  OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  OK(cudaMemsetAsync(x, 0, kN * 4, s));
  OK(cudaEventRecord(fork, s));
  OK(cudaStreamWaitEvent(side, fork, 0));
  Add<<<64, 64, 0, s>>>(x, kN, 1);
  Add<<<64, 64, 0, side>>>(y, kN, 1);
  OK(cudaEventRecord(join, side));
  OK(cudaStreamWaitEvent(s, join, 0));
  OK(cudaStreamEndCapture(s, &graph));
  cudaGraphExec_t exec = Instantiate(graph);
  for (int i = 0; i < 3; ++i) OK(cudaGraphLaunch(exec, s));
  OK(cudaStreamSynchronize(s));
  Expect(AllAre(x, kN, 1) && AllAre(y, kN, 16), "a graph of two branches");
  OK(cudaGraphExecDestroy(exec));
  OK(cudaGraphDestroy(graph));

  // Stream-ordered, managed and pinned memory, and a variable of the module.
  uint32_t *pooled, *managed, *pinned;
  OK(cudaMallocAsync(&pooled, kN * 4, s));
  OK(cudaMemsetAsync(pooled, 0, kN * 4, s));
  Add<<<64, 64, 0, s>>>(pooled, kN, 9);
  OK(cudaMallocHost(&pinned, kN * 4));
  OK(cudaMemcpyAsync(pinned, pooled, kN * 4, cudaMemcpyDeviceToHost, s));
  OK(cudaFreeAsync(pooled, s));
  OK(cudaStreamSynchronize(s));
  Expect(pinned[7] == 9, "stream-ordered memory");
  OK(cudaMallocManaged(&managed, kN * 4));
  std::memset(managed, 0, kN * 4);
  Add<<<64, 64, 0, s>>>(managed, kN, 4);
  OK(cudaStreamSynchronize(s));
  Expect(managed[9] == 4, "managed memory");
  uint32_t variable = 30;
  OK(cudaMemcpyToSymbol(g_variable, &variable, 4));
  AddToVariable<<<1, 1>>>(12);
  OK(cudaMemcpyFromSymbol(&variable, g_variable, 4));
  Expect(variable == 42, "a variable of the module");

  // A host function between two kernels, and a cooperative launch.
  static std::atomic<int> called{0};
  Add<<<64, 64, 0, s>>>(managed, kN, 1);
  OK(cudaLaunchHostFunc(s, [](void*) { ++called; }, nullptr));
  Add<<<64, 64, 0, s>>>(managed, kN, 1);
  unsigned n = kN;
  uint32_t by = 1;
  void* arguments[] = {&managed, &n, &by};
  OK(cudaLaunchCooperativeKernel(reinterpret_cast<void*>(Add), dim3(8), dim3(32), arguments, 0, s));
  OK(cudaStreamSynchronize(s));
  if (called != 1) return std::fputs("a host function was not called once\n", stderr), 1;
  Expect(managed[kN - 1] == 7, "work around a host function");
  OK(cudaFree(managed));
  OK(cudaFreeHost(pinned));
  OK(cudaFree(x));
  OK(cudaFree(y));
  std::printf("{\"mode\": \"api\", \"total\": %zu, \"ms\": %.3f}\n", total, static_cast<double>(ms));
  return 0;
}

// Threads that capture, each for itself, while others launch into streams of their own.
int Capture() {
  constexpr int kThreads = 4, kRounds = 20, kCaptured = 5;
  constexpr unsigned kN = 1 << 14;
  std::atomic<bool> stop{false};
  std::atomic<long> beside{0};
  std::vector<std::thread> launching, capturing;
  for (int t = 0; t < 2; ++t) {
    launching.emplace_back([&] {
      cudaStream_t s;
      uint32_t* words;
      OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
      OK(cudaMalloc(&words, kN * 4));
      OK(cudaMemset(words, 0, kN * 4));
      uint32_t launched = 0;
      for (; !stop || launched == 0; ++launched) {
        Add<<<16, 64, 0, s>>>(words, kN, 1);
        OK(cudaGetLastError());
        if (launched % 16 == 15) OK(cudaStreamSynchronize(s));
      }
      OK(cudaStreamSynchronize(s));
      Expect(AllAre(words, kN, launched), "launches beside captures");
      beside += launched;
      OK(cudaStreamDestroy(s));
    });
  }
  for (int t = 0; t < kThreads; ++t) {
    capturing.emplace_back([&] {
      cudaStream_t s;
      uint32_t* words;
      OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
      OK(cudaMalloc(&words, kN * 4));
      OK(cudaMemset(words, 0, kN * 4));
      for (int round = 0; round < kRounds; ++round) {
        cudaGraph_t graph;
        OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
        for (int i = 0; i < kCaptured; ++i) Add<<<16, 64, 0, s>>>(words, kN, 1);
        OK(cudaStreamEndCapture(s, &graph));
        cudaGraphExec_t exec = Instantiate(graph);
        for (int i = 0; i < 3; ++i) OK(cudaGraphLaunch(exec, s));
        OK(cudaStreamSynchronize(s));
        OK(cudaGraphExecDestroy(exec));
        OK(cudaGraphDestroy(graph));
      }
      Expect(AllAre(words, kN, kRounds * kCaptured * 3), "captures of several threads");
      OK(cudaStreamDestroy(s));
    });
  }
  for (std::thread& thread : capturing) thread.join();
  stop = true;
  for (std::thread& thread : launching) thread.join();
  std::printf("{\"mode\": \"capture\", \"graphs\": %d, \"launches_beside\": %ld}\n",
              kThreads * kRounds, beside.load());
  return 0;
}

int CheckGpu(bool say) {
  int driver = 0, runtime = 0, devices = 0;
  OK(cudaRuntimeGetVersion(&runtime));
  OK(cudaDriverGetVersion(&driver));
  if (driver == 0) return std::fputs("no driver\n", stderr), kUnavailable;
  if (driver / 1000 < runtime / 1000) {
    std::fprintf(stderr, "the driver knows CUDA %d.%d, and this program is of %d.%d\n",
                 driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    return kUnavailable;
  }
  const cudaError_t counted = cudaGetDeviceCount(&devices);
  if (counted != cudaSuccess || devices == 0) {
    std::fprintf(stderr, "no GPU: %s\n", cudaGetErrorName(counted));
    return kUnavailable;
  }
  if (!say) return 0;
  std::printf("{\"mode\": \"check\", \"driver\": %d, \"runtime\": %d, \"devices\": %d}\n", driver,
              runtime, devices);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  Race race;
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--ready") race.ready = argv[i + 1];
    if (flag == "--go") race.go = argv[i + 1];
    if (flag == "--seconds") race.seconds = std::atof(argv[i + 1]);
  }
  const bool counts = mode == "stream" || mode == "graph";
  if (!counts && mode != "check" && mode != "api" && mode != "capture") {
    std::fputs("usage: baton-runtime check|api|capture|stream|graph\n", stderr);
    return kUsage;
  }
  const int status = CheckGpu(mode == "check");
  if (status != 0 || mode == "check") return status;
  if (mode == "api") return Api();
  if (mode == "capture") return Capture();
  return Count(mode == "graph", race);
}
