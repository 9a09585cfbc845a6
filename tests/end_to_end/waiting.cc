// waiting function|value MILLISECONDS: makes a stream wait for the host for so long, with short
// kernels before and behind the wait. Prints when the wait began and ended (CLOCK_MONOTONIC), as
// JSON.
// waiting exec MILLISECONDS: launches, and becomes a program that sleeps for so long.
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "base/time.h"
#include "bench/kernels.h"
#include "hook/cuda_types.h"

// Its name in cuda.h is a macro for this.
extern "C" CUresult WaitValue(CUstream stream, CUdeviceptr address, cuuint32_t value,
                              unsigned flags) __asm__("cuStreamWaitValue32_v2");

namespace {

void Check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "%s: error %d\n", what, static_cast<int>(result));
  std::_Exit(1);
}

std::atomic<uint32_t>* g_word;

void AwaitWord(void*) {
  while (g_word->load() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 64;
  const bool value = std::strcmp(argv[1], "value") == 0;
  CUcontext context;
  CUmodule module;
  CUfunction spin;
  CUstream stream;
  void* word;
  Check(cuInit(0), "cuInit");
  Check(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
  Check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  Check(cuModuleLoadData(&module, baton::bench::kKernelsPtx), "cuModuleLoadData");
  Check(cuModuleGetFunction(&spin, module, "baton_spin"), "cuModuleGetFunction");
  Check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  Check(cuMemHostAlloc(&word, sizeof(*g_word), CU_MEMHOSTALLOC_DEVICEMAP), "cuMemHostAlloc");
  g_word = new (word) std::atomic<uint32_t>(0);
  const auto launch = [&](unsigned long long ns) {
    void* arguments[] = {&ns};
    Check(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr), "cuLaunchKernel");
  };
  for (int i = 0; i < 20; ++i) launch(10'000);
  if (std::strcmp(argv[1], "exec") == 0) {
    const auto from = baton::Nanos(baton::MonotonicNow());
    const long long ns = std::atoll(argv[2]) * 1'000'000;
    std::printf("{\"from_ns\": %lld, \"to_ns\": %lld}\n", static_cast<long long>(from),
                static_cast<long long>(from + ns));
    std::fflush(stdout);
    const std::string seconds = std::to_string(static_cast<double>(ns) / 1e9);
    execlp("sleep", "sleep", seconds.c_str(), nullptr);
    return 1;
  }
  if (value) {
    Check(WaitValue(stream, reinterpret_cast<CUdeviceptr>(word), 1, CU_STREAM_WAIT_VALUE_GEQ),
          "cuStreamWaitValue32");
  } else {
    Check(cuLaunchHostFunc(stream, AwaitWord, nullptr), "cuLaunchHostFunc");
  }
  for (int i = 0; i < 20; ++i) launch(10'000);
  const auto from = baton::Nanos(baton::MonotonicNow());
  std::this_thread::sleep_for(std::chrono::milliseconds(std::atoi(argv[2])));
  const auto to = baton::Nanos(baton::MonotonicNow());
  g_word->store(1);
  Check(cuStreamSynchronize(stream), "cuStreamSynchronize");
  std::printf("{\"from_ns\": %lld, \"to_ns\": %lld}\n", static_cast<long long>(from),
              static_cast<long long>(to));
}
