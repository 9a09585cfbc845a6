// Kernels and graphs.
#include "hook/entries.h"
#include "hook/graph_memory.h"

namespace baton::hook {
BATON_API(cuLaunchKernel,
          (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
           unsigned bz, unsigned shared, CUstream stream, void** params, void** extra)) {
  BATON_REAL(cuLaunchKernel);
  return Launch(Legacy(stream), KernelKey(f, uint64_t{gx} * gy * gz),
                [&] { return real(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra); });
}

BATON_API(cuLaunchKernel_ptsz,
          (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
           unsigned bz, unsigned shared, CUstream stream, void** params, void** extra)) {
  BATON_REAL(cuLaunchKernel_ptsz);
  return Launch(PerThread(stream), KernelKey(f, uint64_t{gx} * gy * gz),
                [&] { return real(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra); });
}

BATON_API(cuLaunchKernelEx,
          (const CUlaunchConfig* config, CUfunction f, void** params, void** extra)) {
  BATON_REAL(cuLaunchKernelEx);
  if (config == nullptr) return real(config, f, params, extra);
  return Launch(Legacy(config->hStream),
                KernelKey(f, uint64_t{config->gridDimX} * config->gridDimY * config->gridDimZ),
                [&] { return real(config, f, params, extra); });
}

BATON_API(cuLaunchKernelEx_ptsz,
          (const CUlaunchConfig* config, CUfunction f, void** params, void** extra)) {
  BATON_REAL(cuLaunchKernelEx_ptsz);
  if (config == nullptr) return real(config, f, params, extra);
  return Launch(PerThread(config->hStream),
                KernelKey(f, uint64_t{config->gridDimX} * config->gridDimY * config->gridDimZ),
                [&] { return real(config, f, params, extra); });
}

BATON_API(cuLaunchCooperativeKernel,
          (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
           unsigned bz, unsigned shared, CUstream stream, void** params)) {
  BATON_REAL(cuLaunchCooperativeKernel);
  return Launch(Legacy(stream), KernelKey(f, uint64_t{gx} * gy * gz),
                [&] { return real(f, gx, gy, gz, bx, by, bz, shared, stream, params); });
}

BATON_API(cuLaunchCooperativeKernel_ptsz,
          (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
           unsigned bz, unsigned shared, CUstream stream, void** params)) {
  BATON_REAL(cuLaunchCooperativeKernel_ptsz);
  return Launch(PerThread(stream), KernelKey(f, uint64_t{gx} * gy * gz),
                [&] { return real(f, gx, gy, gz, bx, by, bz, shared, stream, params); });
}

// One launch on several GPUs: it goes when the gates of all of them are open at once.
BATON_API(cuLaunchCooperativeKernelMultiDevice,
          (CUDA_LAUNCH_PARAMS * launches, unsigned count, unsigned flags)) {
  BATON_REAL(cuLaunchCooperativeKernelMultiDevice);
  if (launches == nullptr || count == 0 || count > kGpusMax) return real(launches, count, flags);
  CUstream streams[kGpusMax];
  for (unsigned i = 0; i < count; ++i) streams[i] = Legacy(launches[i].hStream);
  const Entered entered = EnterSeveral(streams, count);
  if (entered == Entered::kRefused) return CUDA_ERROR_NOT_PERMITTED;
  if (entered == Entered::kNotOurs) return real(launches, count, flags);
  const CUresult result = real(launches, count, flags);
  const uint64_t blocks =
      uint64_t{launches[0].gridDimX} * launches[0].gridDimY * launches[0].gridDimZ;
  LeaveSeveral(streams, count, KernelKey(launches[0].function, blocks));
  return result;
}

BATON_API(cuLaunch, (CUfunction f)) {
  BATON_REAL(cuLaunch);
  return Launch(CU_STREAM_LEGACY, KernelKey(f, 1), [&] { return real(f); });
}

BATON_API(cuLaunchGrid, (CUfunction f, int width, int height)) {
  BATON_REAL(cuLaunchGrid);
  return Launch(CU_STREAM_LEGACY,
                KernelKey(f, static_cast<uint64_t>(width) * static_cast<uint64_t>(height)),
                [&] { return real(f, width, height); });
}

BATON_API(cuLaunchGridAsync, (CUfunction f, int width, int height, CUstream stream)) {
  BATON_REAL(cuLaunchGridAsync);
  return Launch(Legacy(stream),
                KernelKey(f, static_cast<uint64_t>(width) * static_cast<uint64_t>(height)),
                [&] { return real(f, width, height, stream); });
}

// A graph's whole run is one kind of work.
BATON_API(cuGraphLaunch, (CUgraphExec graph, CUstream stream)) {
  BATON_REAL(cuGraphLaunch);
  return WithGraphMemory(graph, Legacy(stream), true, [&] {
    return Launch(Legacy(stream), KernelKey(graph, 1), [&] { return real(graph, stream); });
  });
}

BATON_API(cuGraphLaunch_ptsz, (CUgraphExec graph, CUstream stream)) {
  BATON_REAL(cuGraphLaunch_ptsz);
  return WithGraphMemory(graph, PerThread(stream), true, [&] {
    return Launch(PerThread(stream), KernelKey(graph, 1), [&] { return real(graph, stream); });
  });
}

}  // namespace baton::hook
