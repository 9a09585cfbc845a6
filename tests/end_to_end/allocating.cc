// allocating fill KIND
//   takes memory in pieces of 8 MiB by one way until it is refused. Prints how many it got, and
//   what the device has for all its processes, as JSON.
// allocating shuffle SEED SEQUENCES BYTES FILE
//   random sequences of allocations and frees by every way, each ending with everything freed.
//   Fails as soon as the device has more than BYTES for all its processes. Then allocates a little,
//   says how it was as JSON, frees that when FILE is there, and ends when FILE.freed is.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "hook/cuda_types.h"
#include "sim/device.h"

extern "C" {
// Of several generations, by the names that they are exported under.
CUresult Allocate(CUdeviceptr* p, size_t bytes) __asm__("cuMemAlloc_v2");
CUresult AllocateFirst(unsigned* p, unsigned bytes) __asm__("cuMemAlloc");
CUresult AllocatePitch(CUdeviceptr* p, size_t* pitch, size_t width, size_t height,
                       unsigned element) __asm__("cuMemAllocPitch_v2");
CUresult AllocateAsync(CUdeviceptr* p, size_t bytes, CUstream s) __asm__("cuMemAllocAsync");
CUresult AllocateFrom(CUdeviceptr* p, size_t bytes, CUmemoryPool pool,
                      CUstream s) __asm__("cuMemAllocFromPoolAsync");
CUresult Free(CUdeviceptr p) __asm__("cuMemFree_v2");
CUresult FreeFirst(unsigned p) __asm__("cuMemFree");
CUresult FreeAsync(CUdeviceptr p, CUstream s) __asm__("cuMemFreeAsync");
CUresult MakeArray(CUarray* a, const CUDA_ARRAY_DESCRIPTOR* d) __asm__("cuArrayCreate_v2");
CUresult MakeArray3D(CUarray* a, const CUDA_ARRAY3D_DESCRIPTOR* d) __asm__("cuArray3DCreate_v2");
CUresult BeginCapture(CUstream s, CUstreamCaptureMode mode) __asm__("cuStreamBeginCapture_v2");
CUresult EndCapture(CUstream s, CUgraph* graph) __asm__("cuStreamEndCapture");
CUresult Instantiate(CUgraphExec* exec, CUgraph graph,
                     unsigned long long flags) __asm__("cuGraphInstantiateWithFlags");
CUresult LaunchGraph(CUgraphExec exec, CUstream s) __asm__("cuGraphLaunch");
}

namespace {

using baton::sim::Device;

CUcontext g_context;
CUstream g_stream;
Device* g_device;

void Check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "%s: error %d\n", what, static_cast<int>(result));
  std::_Exit(1);
}

uint64_t OnDevice() {
  uint64_t bytes = 0;
  for (const auto& process : g_device->Processes()) bytes += process.memory;
  return bytes;
}

// How to give it back. Empty: it was not given.
using Taken = std::function<void()>;
using Way = std::function<Taken(size_t bytes)>;

Taken If(CUresult result, Taken give_back) {
  if (result == CUDA_SUCCESS) return give_back;
  if (result == CUDA_ERROR_OUT_OF_MEMORY) return {};
  Check(result, "an allocation");
  return {};
}

CUarray_format kFormat = CU_AD_FORMAT_UNSIGNED_INT8;

Taken TakeArray(size_t bytes) {
  CUarray a;
  const CUDA_ARRAY_DESCRIPTOR d = {bytes / 1024, 1024, kFormat, 1};
  const CUresult result = MakeArray(&a, &d);
  return If(result, [a] { Check(cuArrayDestroy(a), "free"); });
}

Taken TakeArray3D(size_t bytes) {
  CUarray a;
  const CUDA_ARRAY3D_DESCRIPTOR d = {bytes / 4096, 64, 64, kFormat, 1, 0};
  const CUresult result = MakeArray3D(&a, &d);
  return If(result, [a] { Check(cuArrayDestroy(a), "free"); });
}

Taken TakeMipmapped(size_t bytes) {
  CUmipmappedArray a;
  const CUDA_ARRAY3D_DESCRIPTOR d = {bytes / 4096 * 3, 1024, 0, kFormat, 1, 0};
  const CUresult result = cuMipmappedArrayCreate(&a, &d, 5);
  return If(result, [a] { Check(cuMipmappedArrayDestroy(a), "cuMipmappedArrayDestroy"); });
}

// The heap of malloc in kernels grows by so much.
Taken TakeHeap(size_t bytes) {
  size_t was = 0;
  Check(cuCtxGetLimit(&was, CU_LIMIT_MALLOC_HEAP_SIZE), "cuCtxGetLimit");
  const CUresult result = cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, was + bytes);
  return If(result, [bytes] {
    size_t is = 0;
    Check(cuCtxGetLimit(&is, CU_LIMIT_MALLOC_HEAP_SIZE), "cuCtxGetLimit");
    Check(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, is - bytes), "cuCtxSetLimit");
  });
}

// The stacks of kernels grow by so much, for all threads that the device can have at a time.
Taken TakeStacks(size_t bytes) {
  int processors = 0, threads = 0;
  Check(cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0), "count");
  Check(cuDeviceGetAttribute(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 0),
        "threads");
  const size_t each = bytes / static_cast<size_t>(processors * threads);
  size_t was = 0;
  Check(cuCtxGetLimit(&was, CU_LIMIT_STACK_SIZE), "cuCtxGetLimit");
  const CUresult result = cuCtxSetLimit(CU_LIMIT_STACK_SIZE, was + each);
  return If(result, [each] {
    size_t is = 0;
    Check(cuCtxGetLimit(&is, CU_LIMIT_STACK_SIZE), "cuCtxGetLimit");
    Check(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, is - each), "cuCtxSetLimit");
  });
}

Taken TakePhysical(size_t bytes) {
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemGenericAllocationHandle handle;
  constexpr size_t kGranule = 2 << 20;
  const CUresult result =
      cuMemCreate(&handle, (bytes + kGranule - 1) / kGranule * kGranule, &prop, 0);
  return If(result, [handle] { Check(cuMemRelease(handle), "cuMemRelease"); });
}

Taken TakeFromPool(size_t bytes, bool managed) {
  CUmemPoolProps props = {};
  props.allocType = static_cast<CUmemAllocationType>(managed ? 2 : 1);
  if (!managed) props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemoryPool pool;
  CUdeviceptr p;
  Check(cuMemPoolCreate(&pool, &props), "cuMemPoolCreate");
  const CUresult result = AllocateFrom(&p, bytes, pool, g_stream);
  if (result != CUDA_SUCCESS) Check(cuMemPoolDestroy(pool), "cuMemPoolDestroy");
  return If(result, [pool, p] {
    Check(FreeAsync(p, g_stream), "cuMemFreeAsync");
    Check(cuStreamSynchronize(g_stream), "cuStreamSynchronize");
    Check(cuMemPoolDestroy(pool), "cuMemPoolDestroy");
  });
}

Taken LaunchedGraph(CUgraph graph) {
  CUgraphExec exec;
  Check(Instantiate(&exec, graph, 0), "cuGraphInstantiate");
  Check(cuGraphDestroy(graph), "cuGraphDestroy");
  const CUresult result = LaunchGraph(exec, g_stream);
  const auto destroy = [exec] {
    Check(cuStreamSynchronize(g_stream), "cuStreamSynchronize");
    Check(cuGraphExecDestroy(exec), "cuGraphExecDestroy");
  };
  if (result != CUDA_SUCCESS) destroy();
  return If(result, destroy);
}

Taken TakeByNode(size_t bytes) {
  CUgraph graph;
  CUgraphNode node;
  Check(cuGraphCreate(&graph, 0), "cuGraphCreate");
  CUDA_MEM_ALLOC_NODE_PARAMS params = {};
  params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  params.bytesize = bytes;
  Check(cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &params), "cuGraphAddMemAllocNode");
  return LaunchedGraph(graph);
}

Taken TakeByCapture(size_t bytes) {
  CUgraph graph;
  CUdeviceptr p;
  Check(BeginCapture(g_stream, CU_STREAM_CAPTURE_MODE_RELAXED), "cuStreamBeginCapture");
  Check(AllocateAsync(&p, bytes, g_stream), "cuMemAllocAsync");
  Check(EndCapture(g_stream, &graph), "cuStreamEndCapture");
  return LaunchedGraph(graph);
}

// A module with a variable of that size.
Taken TakeModule(size_t bytes) {
  const std::string ptx =
      "//@baton-sim kernel nothing()\n.version 8.0\n.visible .global .align 4 .b8 big[" +
      std::to_string(bytes) + "];\n";
  CUmodule module;
  const CUresult result = cuModuleLoadData(&module, ptx.c_str());
  return If(result, [module] { Check(cuModuleUnload(module), "cuModuleUnload"); });
}

const std::map<std::string, Way>& Ways() {
  static const std::map<std::string, Way> ways = {
      {"plain",
       [](size_t bytes) {
         CUdeviceptr p;
         const CUresult result = Allocate(&p, bytes);
         return If(result, [p] { Check(Free(p), "cuMemFree"); });
       }},
      {"first",
       [](size_t bytes) {
         unsigned p;
         const CUresult result = AllocateFirst(&p, static_cast<unsigned>(bytes));
         return If(result, [p] { Check(FreeFirst(p), "cuMemFree"); });
       }},
      {"pitch",
       [](size_t bytes) {
         CUdeviceptr p;
         size_t pitch;
         const CUresult result = AllocatePitch(&p, &pitch, bytes / 64, 64, 4);
         return If(result, [p] { Check(Free(p), "cuMemFree"); });
       }},
      {"managed",
       [](size_t bytes) {
         CUdeviceptr p;
         const CUresult result = cuMemAllocManaged(&p, bytes, CU_MEM_ATTACH_GLOBAL);
         return If(result, [p] { Check(Free(p), "cuMemFree"); });
       }},
      {"async",
       [](size_t bytes) {
         CUdeviceptr p;
         const CUresult result = AllocateAsync(&p, bytes, g_stream);
         return If(result, [p] {
           Check(FreeAsync(p, g_stream), "cuMemFreeAsync");
           Check(cuStreamSynchronize(g_stream), "cuStreamSynchronize");
         });
       }},
      {"pool", [](size_t bytes) { return TakeFromPool(bytes, false); }},
      {"managed-pool", [](size_t bytes) { return TakeFromPool(bytes, true); }},
      {"physical", TakePhysical},
      {"module", TakeModule},
      {"array", TakeArray},
      {"array-3d", TakeArray3D},
      {"mipmapped", TakeMipmapped},
      {"heap", TakeHeap},
      {"stacks", TakeStacks},
      {"graph-node", TakeByNode},
      {"graph-capture", TakeByCapture},
  };
  return ways;
}

int Fill(const std::string& kind) {
  const Way& way = Ways().at(kind);
  int pieces = 0;
  while (pieces < 1000 && way(8 << 20)) ++pieces;
  std::printf("{\"pieces\": %d, \"on_device\": %llu}\n", pieces,
              static_cast<unsigned long long>(OnDevice()));
  return 0;
}

void GiveBackAll(std::vector<Taken>& taken) {
  for (Taken& each : taken) each();
  taken.clear();
  Check(cuCtxSynchronize(), "cuCtxSynchronize");
  CUmemoryPool pool;
  Check(cuDeviceGetMemPool(&pool, 0), "cuDeviceGetMemPool");
  Check(cuMemPoolTrimTo(pool, 0), "cuMemPoolTrimTo");
  Check(cuDeviceGraphMemTrim(0), "cuDeviceGraphMemTrim");
}

int Shuffle(unsigned seed, int sequences, uint64_t bytes_max, const char* end) {
  std::mt19937 random(seed);
  const auto draw = [&](size_t below) { return random() % below; };
  std::vector<const Way*> ways;
  for (const auto& [name, way] : Ways()) ways.push_back(&way);
  uint64_t most = 0;
  int refused = 0;
  std::vector<Taken> taken;
  for (int i = 0; i < sequences; ++i) {
    for (size_t steps = 5 + draw(20); steps > 0; --steps) {
      if (!taken.empty() && draw(3) == 0) {
        std::swap(taken[draw(taken.size())], taken.back());
        taken.back()();
        taken.pop_back();
      } else {
        // Mostly small, now and then a large piece.
        const size_t bytes = draw(6) == 0 ? (8 << 20) + draw(24 << 20) : 65536 + draw(2 << 20);
        Taken one = (*ways[draw(ways.size())])(bytes);
        if (one) {
          taken.push_back(std::move(one));
        } else {
          ++refused;
        }
      }
      const uint64_t now = OnDevice();
      most = std::max(most, now);
      if (now <= bytes_max) continue;
      std::fprintf(stderr, "seed %u, sequence %d: the device has %llu bytes\n", seed, i,
                   static_cast<unsigned long long>(now));
      return 1;
    }
    GiveBackAll(taken);
  }
  for (const char* kind : {"plain", "async", "array", "physical", "graph-node"}) {
    // Until the others have come to their ends.
    Taken one;
    while (!(one = Ways().at(kind)(4 << 20))) usleep(1000);
    taken.push_back(std::move(one));
  }
  std::printf("{\"most\": %llu, \"refused\": %d}\n", static_cast<unsigned long long>(most),
              refused);
  std::fflush(stdout);
  while (access(end, F_OK) != 0) usleep(10'000);
  GiveBackAll(taken);
  // The context stays: what the device has now is nobody's allocation.
  const std::string gone = std::string(end) + ".freed";
  while (access(gone.c_str(), F_OK) != 0) usleep(10'000);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 64;
  Check(cuInit(0), "cuInit");
  Check(cuDevicePrimaryCtxRetain(&g_context, 0), "cuDevicePrimaryCtxRetain");
  Check(cuCtxSetCurrent(g_context), "cuCtxSetCurrent");
  Check(cuStreamCreate(&g_stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  auto device = Device::Open(baton::sim::DevicePaths().at(0));
  if (!device) return 2;
  g_device = *device;
  if (std::strcmp(argv[1], "fill") == 0) return Fill(argv[2]);
  if (argc != 6) return 64;
  return Shuffle(static_cast<unsigned>(std::atoi(argv[2])), std::atoi(argv[3]),
                 std::strtoull(argv[4], nullptr, 10), argv[5]);
}
