// The driver's own side: what one process keeps about its contexts, streams, events, modules and
// memory. What all processes share is behind sim/device.h.
//
// One lock, Lock(), guards everything here. Functions that say "may wait" give it up while they
// wait; effects on memory (copies, sets) and host functions run without it.
#ifndef BATON_SIM_DRIVER_H_
#define BATON_SIM_DRIVER_H_

#include <cuda.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "sim/device.h"

// Defines an exported entry point under exactly this name, whatever cuda.h renames by macros.
#define SIM_API(name, params)                                                                  \
  extern "C" CUresult Api_##name params __asm__(#name) __attribute__((visibility("default"))); \
  extern "C" CUresult Api_##name params

namespace baton::sim {

struct Ctx;
struct Dev;
struct Stream;
struct Graph;
struct Node;

using Lock = std::unique_lock<std::mutex>;

// An operation as its process sees it. `finished` when it has ended on the device, `done` once its
// effects can be seen too.
struct LocalOp {
  Ctx* ctx = nullptr;
  OpRef ref = 0;
  uint64_t sequence = 0;
  int64_t duration = 0;
  int64_t started_at = 0, ended_at = 0;
  uint64_t flags = 0;
  bool finished = false, done = false, released = false;
  int64_t earliest_end = 0;  // scratch of a prediction
  std::vector<std::shared_ptr<LocalOp>> deps;
  std::function<void()> effect;
  std::function<bool()> condition;
  std::function<void()> host_function;
};
using OpPtr = std::shared_ptr<LocalOp>;

// What cuGraphKernelNodeGetParams tells.
struct Function;
struct KernelCall {
  Function* function = nullptr;
  unsigned int grid[3] = {}, block[3] = {}, shared_bytes = 0;
  void** params = nullptr;
  void** extra = nullptr;
};

// One thing to enqueue, or to keep in a graph's node and enqueue at every launch.
struct Work {
  OpKind kind = OpKind::kMarker;
  CUgraphNodeType node_type = CU_GRAPH_NODE_TYPE_EMPTY;
  int64_t duration = 0;
  uint64_t flags = 0;
  const char* name = "";                // lives as long as the process
  std::function<void()> effect;         // on memory, when it ends
  bool prompt = false;                  // the effect must be seen by a host that only polls memory
  std::function<bool()> condition;      // a gate, or a kernel that spins, ends when true
  std::function<void()> host_function;  // run by the service thread; makes it a gate
};

// A kernel of a module, as a `//@baton-sim` line or a real image says.
struct KernelSpec {
  std::string name;
  std::vector<size_t> param_sizes, param_offsets;
  size_t param_bytes = 0;
  int duration_arg = -1;
  int64_t duration_ns = 1000;
  bool per_block = false;
  double spread = 0;
  bool concurrent = false, fault = false, hang = false;
  int wait_pointer = -1, wait_value = -1;
  int store_pointer = -1, store_value = -1;
  int add_pointer = -1, add_count = -1, add_value = -1;
};

// CUfunction and CUkernel both point to one of these; the first word tells them from others.
inline constexpr uint64_t kFunctionTag = 0x46'4e'55'46'4d'49'53'42;
struct Function {
  uint64_t tag = kFunctionTag;
  const KernelSpec* spec = nullptr;
  CUmodule module = nullptr;
  bool is_kernel = false;
  Function* function_of_kernel = nullptr;
  std::map<int, int> attributes;
  // The launch state of the legacy API.
  unsigned int block[3] = {1, 1, 1};
  std::vector<unsigned char> params;
};

struct Variable {
  size_t bytes = 0;
  CUdeviceptr at = 0;  // 0: nowhere yet; it may name memory that a reset has taken
};

struct Module {
  std::deque<KernelSpec> specs;
  std::map<std::string, Variable> variables;
  std::map<std::string, KernelSpec*> by_name;  // of real images
  bool open_ended = false;                     // a real one that was not read to its end
  std::map<std::string, std::unique_ptr<Function>> functions, kernels;
};

enum class CaptureStatus { kActive, kInvalidated };
struct Capture {
  uint64_t id = 0;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  CaptureStatus status = CaptureStatus::kActive;
  uint64_t thread = 0;
  Graph* graph = nullptr;
  bool owns_graph = true;
  Stream* origin = nullptr;
  std::set<Stream*> streams;
};

// What an allocation node of a graph names: addresses, which get memory when the graph is launched.
struct GraphMemory {
  CUdeviceptr at = 0;
  size_t bytes = 0;
  Dev* dev = nullptr;
  ~GraphMemory();  // with the last node, of any copy of the graph; the driver's lock is held
};

struct Node {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  Graph* graph = nullptr;
  Work work;
  KernelCall call;
  std::vector<Node*> deps;
  Graph* child = nullptr;  // owned
  std::shared_ptr<GraphMemory> memory;
  CUdeviceptr frees = 0;
  struct Event* event = nullptr;  // to record or to wait for
  // Of a conditional node: which of its bodies run is asked at each launch.
  std::vector<Graph*> bodies;  // owned
  int condition_type = 0;      // CUgraphConditionalNodeType
  uint64_t condition = 0;      // its handle
};

struct Graph {
  std::vector<std::unique_ptr<Node>> nodes;  // none before what it depends on
};

struct GraphExec {
  std::unique_ptr<Graph> graph;
  std::map<const Node*, Node*> copies;  // from the nodes it was made of
  cuuint64_t flags = 0;
  OpPtr last;             // launches of one executable graph follow one another
  Dev* backed = nullptr;  // where its allocation nodes have memory
};

struct Stream {
  Ctx* ctx = nullptr;
  uint64_t id = 0;
  unsigned int flags = 0;
  int priority = 0;
  bool legacy = false;
  bool per_thread = false;
  OpPtr last;
  Capture* capture = nullptr;
  std::vector<Node*> capture_deps;
};

struct Event {
  Ctx* ctx = nullptr;
  unsigned int flags = 0;
  OpPtr op;
  Capture* capture = nullptr;  // recorded in this capture
  uint64_t capture_id = 0;
  std::vector<Node*> capture_deps;
};

struct Ctx {
  Dev* dev = nullptr;
  int index = -1;  // in the device file
  uint64_t id = 0;
  unsigned int flags = 0;
  bool primary = false;
  bool destroyed = false;
  CUresult error = CUDA_SUCCESS;  // sticky
  Stream legacy;
  OpPtr orphaned;             // joins what destroyed blocking streams still had to do
  std::set<Stream*> streams;  // but the legacy one
  std::vector<int> free_slots;
  std::vector<OpPtr> by_slot;
  std::deque<OpPtr> outstanding;  // in order of submission
  std::map<int, size_t> limits;
  // What it takes itself: BATON_SIM_CONTEXT_MIB, and of the limits what is beyond every context's.
  size_t own_bytes = 0;
  std::set<void*> arrays;
};

struct Pool {
  Dev* dev = nullptr;
  uint64_t reserved = 0, reserved_high = 0, used = 0, used_high = 0, threshold = 0;
  std::map<int, int> flags;
  std::multimap<size_t, CUdeviceptr> free_blocks;
};

// The memory of a device's graphs: what they have, and what is kept for the next one.
struct GraphPool {
  uint64_t reserved = 0, reserved_high = 0, used = 0, used_high = 0;
  std::set<GraphExec*> backed;
};

struct Dev {
  Device* device = nullptr;
  uint64_t instance = 0;  // Process::instance
  int ordinal = 0;
  Ctx* primary = nullptr;
  Ctx* spent_primary = nullptr;  // the one before: its handle is the next one's too
  int primary_refs = 0;
  unsigned int primary_flags = 0;
  std::vector<Ctx*> contexts;
  Pool default_pool;
  Pool* pool = nullptr;  // current
  std::vector<Pool*> pools;
  GraphPool graphs;
  // Ended operations whose effects are to be applied, in order.
  std::deque<OpPtr> ended;
  bool applying = false;
  // Gates, spinning kernels and prompt effects: the service thread's.
  std::vector<OpPtr> attention;
  bool service_running = false;
};

struct Allocation {
  size_t bytes = 0;    // asked
  size_t charged = 0;  // on the device; 0 for host memory
  enum Kind { kDevice, kManaged, kHost, kRegistered, kPool, kMapped, kGraph } kind = kDevice;
  Dev* dev = nullptr;
  Ctx* ctx = nullptr;
  Pool* pool = nullptr;
  uint64_t id = 0;
  unsigned int flags = 0;
};

struct Driver {
  std::mutex mutex;
  std::condition_variable applied;  // Dev::applying ended
  std::condition_variable work;     // Dev::attention is not empty
  bool initialized = false;
  std::vector<Dev*> devices;
  std::unordered_set<const void*> live;  // valid handles
  std::map<uintptr_t, Allocation> memory;
  uint64_t next_id = 1;
  std::set<Capture*> captures;
};

// The one driver of this process; never destroyed, so calls after exit() has begun are safe.
Driver& TheDriver();

// NOT_INITIALIZED before cuInit, and in a child forked after it.
CUresult CheckInitialized();
// The calling thread's current context, usable.
CUresult CurrentContext(Ctx** ctx);
CUresult CheckContext(Ctx* ctx);
std::vector<Ctx*>& ContextStack();

template <class T>
bool IsLive(T* handle) {
  return handle != nullptr && TheDriver().live.count(handle) != 0;
}

CUresult InitDriver();
// What cuDriverGetVersion tells.
int DriverVersion();
CUresult GetDev(CUdevice device, Dev** dev);
CUresult NewContext(Dev* dev, unsigned int flags, bool primary, Ctx** ctx);
// A symbol of the library that BATON_SIM_EXPORT_TABLES names, or null.
void* FromExportTables(const char* symbol);
// Waits for the context's work, then frees it. May wait.
void DestroyCtx(Lock& lock, Ctx* ctx);

// Streams: a handle as the caller gave it, with `per_thread` for the _ptsz spellings.
CUresult GetStream(CUstream handle, bool per_thread, Stream** stream);

// Enqueues after what the stream already holds, or adds a node where it is being captured.
// May wait for room. `op` may be null.
CUresult Enqueue(Lock& lock, Stream* stream, const Work& work, OpPtr* op = nullptr);
// Submits with explicit dependencies, whatever the stream's order. May wait for room.
OpPtr Submit(Lock& lock, Ctx* ctx, uint64_t stream_id, const Work& work, std::vector<OpPtr> deps);
// What a new operation of the stream must wait for.
std::vector<OpPtr> StreamDeps(Stream* stream);

// Brings this process up to date with the device and applies what has ended. May wait for another
// thread that applies effects.
void Refresh(Lock& lock, Dev* dev);
// Until the operation is done. May wait.
CUresult WaitFor(Lock& lock, const OpPtr& op);
CUresult WaitForContext(Lock& lock, Ctx* ctx);

// Captures: an unsafe call is refused where one bars it, and invalidates it.
CUresult CheckUnsafe();
CUresult AddCaptureNode(Stream* stream, const Work& work, Node** node = nullptr);
void InvalidateCapture(Capture* capture);
uint64_t ThreadId();

// Memory.
CUresult AllocateDevice(Lock& lock, Ctx* ctx, size_t bytes, Allocation::Kind kind, CUdeviceptr* out,
                        bool low = false);
CUresult FreeDevice(Lock& lock, CUdeviceptr pointer);
// The allocation that holds [pointer, pointer + bytes), or null.
Allocation* FindAllocation(uintptr_t pointer, size_t bytes, uintptr_t* base = nullptr);
bool IsDeviceMemory(uintptr_t pointer);
void TrimPool(Pool* pool, uint64_t keep);
void TrimPools(Dev* dev);
void ReleaseContextMemory(Ctx* ctx);
void ReleaseContextArrays(Ctx* ctx);
inline void* AsPointer(CUdeviceptr p) { return reinterpret_cast<void*>(p); }

// Kernels.
CUresult LoadModule(const void* image, size_t bytes_limit, Module** module);
// What is in a real image of `bytes`, or as long as it says itself where they are UINT64_MAX.
// False: it is none.
bool ReadImage(Module* module, const void* image, size_t bytes);
// The kernel of that name, which a real image has or may have.
KernelSpec* AddKernel(Module* module, const std::string& name);
// Declarations of PTX in global memory.
void ReadVariables(const std::string& text, Module* module);
struct LaunchShape {
  unsigned int grid[3], block[3], shared_bytes;
};
CUresult MakeKernelWork(Function* function, const LaunchShape& shape, void** params, void** extra,
                        Work* work);
CUresult GetFunction(const void* handle, Function** function);

// Graphs.
CUresult LaunchGraph(Lock& lock, GraphExec* exec, Stream* stream);
Graph* NewGraph();
// Those of a conditional node's bodies that run at a launch, in their order.
std::vector<const Graph*> BodiesToRun(const Node& node);
void DeleteGraph(Graph* graph);
Node* AddNode(Graph* graph, CUgraphNodeType type, Work work, std::vector<Node*> deps);
// An allocation node's memory, charged nowhere yet; null: no addresses are left.
std::shared_ptr<GraphMemory> NewGraphMemory(Dev* dev, size_t bytes);
// Before a launch, and when the executable graph is destroyed.
CUresult BackGraph(GraphExec* exec, Dev* dev);
void UnbackGraph(GraphExec* exec);
CUresult InstantiateGraph(Graph* graph, cuuint64_t flags, GraphExec** exec);

// Work that moves `bytes` and then has this effect. `engine`: which engine's bandwidth.
Work MoveWork(Dev* dev, OpKind engine, size_t bytes, CUgraphNodeType type,
              std::function<void()> effect);
// A copy between any two places of `bytes`; which engine it takes follows from the pointers.
Work CopyWork(Dev* dev, void* to, const void* from, size_t bytes);
OpKind CopyEngineFor(const void* to, const void* from);
CUresult AllocateFromPool(Lock& lock, Stream* stream, Pool* pool, size_t bytes, CUdeviceptr* out);
CUresult FreeToPool(Lock& lock, Stream* stream, CUdeviceptr pointer);
CUresult Capturing(Stream* stream);

}  // namespace baton::sim

#endif  // BATON_SIM_DRIVER_H_
