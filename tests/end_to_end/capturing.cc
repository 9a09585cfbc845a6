// capturing default|captured MILLISECONDS: one thread launches a few short kernels, into the legacy
// default stream or into the stream that another then captures for so long. Prints when the capture
// began and ended (CLOCK_MONOTONIC), as JSON.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/time.h"
#include "bench/kernels.h"
#include "hook/cuda_types.h"

namespace {

void Check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "%s: error %d\n", what, static_cast<int>(result));
  std::_Exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 64;
  const bool captured = std::strcmp(argv[1], "captured") == 0;
  CUcontext context;
  CUmodule module;
  CUfunction spin;
  CUstream stream;
  Check(cuInit(0), "cuInit");
  Check(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
  Check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  Check(cuModuleLoadData(&module, baton::bench::kKernelsPtx), "cuModuleLoadData");
  Check(cuModuleGetFunction(&spin, module, "baton_spin"), "cuModuleGetFunction");
  Check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  const auto launch = [&](unsigned long long ns) {
    void* arguments[] = {&ns};
    Check(
        cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, captured ? stream : nullptr, arguments, nullptr),
        "cuLaunchKernel");
  };
  std::thread([&] {
    Check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    // Until it is known how long they take; then a few that nobody waits for.
    for (int i = 0; i < 20; ++i) {
      launch(10'000);
      Check(cuCtxSynchronize(), "cuCtxSynchronize");
    }
    for (int i = 0; i < 4; ++i) launch(10'000);
  }).join();
  const auto from = baton::Nanos(baton::MonotonicNow());
  Check(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED), "cuStreamBeginCapture");
  std::this_thread::sleep_for(std::chrono::milliseconds(std::atoi(argv[2])));
  CUgraph graph;
  Check(cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
  const auto to = baton::Nanos(baton::MonotonicNow());
  std::printf("{\"from_ns\": %lld, \"to_ns\": %lld}\n", static_cast<long long>(from),
              static_cast<long long>(to));
}
