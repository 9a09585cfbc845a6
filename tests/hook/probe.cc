// A CUDA program for the hook's tests: `probe COMMAND`. It obeys lines on stdin and answers each
// with one line on stdout, so a test always knows how far it is. Linked to the tests' own driver.
#include <dlfcn.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "hook/cuda_types.h"
#include "tests/hook/fake_driver.h"

extern "C" {
// Older headers lack them.
CUresult GreenDestroy(void* green) __asm__("cuGreenCtxDestroy");
CUresult FromGreen(CUcontext* context, void* green) __asm__("cuCtxFromGreenCtx");
CUresult FirstCreate(CUcontext* context, unsigned flags, CUdevice device) __asm__("cuCtxCreate");
CUresult FirstPop(CUcontext* context) __asm__("cuCtxPopCurrent");
CUresult FirstDetach(CUcontext context) __asm__("cuCtxDetach");
CUresult FirstBeginCapture(CUstream stream) __asm__("cuStreamBeginCapture");
CUresult CopyBatch(CUdeviceptr* to, CUdeviceptr* from, size_t* sizes, size_t count,
                   void* attributes, size_t* indices, size_t n,
                   CUstream stream) __asm__("cuMemcpyBatchAsync_v2");
CUresult Prefetch(CUdeviceptr p, size_t n, CUmemLocation to, unsigned flags,
                  CUstream stream) __asm__("cuMemPrefetchAsync_v2");
CUresult CopyToArray(CUarray to, size_t offset, const void* from,
                     size_t n) __asm__("cuMemcpyHtoA_v2");
CUresult FirstAlloc(unsigned* p, unsigned bytes) __asm__("cuMemAlloc");
CUresult FirstFree(unsigned p) __asm__("cuMemFree");
CUresult FirstInfo(unsigned* free, unsigned* total) __asm__("cuMemGetInfo");
CUresult FirstSet(unsigned p, unsigned char value, unsigned n) __asm__("cuMemsetD8");
CUresult WaitValue(CUstream stream, CUdeviceptr p, cuuint32_t value,
                   unsigned flags) __asm__("cuStreamWaitValue32_v2");
CUresult BatchMemOp(CUstream stream, unsigned count, CUstreamBatchMemOpParams* ops,
                    unsigned flags) __asm__("cuStreamBatchMemOp_v2");
CUresult HostFuncPerThread(CUstream stream, CUhostFn function,
                           void* user) __asm__("cuLaunchHostFunc_ptsz");
CUresult SynchronizeV2(CUcontext context) __asm__("cuCtxSynchronize_v2");
CUfunction fake_kernel(int64_t ns);
CUresult cuCtxCreate_v2(CUcontext*, unsigned, CUdevice);
CUresult cuLaunchKernel_ptsz(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                             unsigned, CUstream, void**, void**);
}

// The plugins have one of this name too.
extern "C" __attribute__((visibility("default"))) const char* plugin_whose() { return "program"; }

namespace {

constexpr unsigned long long kDeviceLaunch = 4;  // CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH

CUcontext g_context;
std::atomic<bool> g_stop{false};
std::atomic<uint64_t> g_returned{0};
std::vector<std::thread> g_threads;

CUresult Launch(int64_t ns, CUstream stream = nullptr, bool per_thread = false) {
  auto* launch = per_thread ? cuLaunchKernel_ptsz : cuLaunchKernel;
  return launch(fake_kernel(ns), 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr);
}

// What the GPU waits for: host functions and values.
std::atomic<uint32_t> g_host_word{0};
std::atomic<bool> g_held_up{false};

void AwaitWord(void*) {
  while (g_host_word.load() == 0) usleep(100);
}

// Makes the stream wait until the host word is not 0, by the call of this name.
CUresult WaitForHost(const std::string& how, CUstream stream) {
  const auto word = reinterpret_cast<CUdeviceptr>(&g_host_word);
  if (how == "function") return cuLaunchHostFunc(stream, AwaitWord, nullptr);
  if (how == "function-ptds") return HostFuncPerThread(nullptr, AwaitWord, nullptr);
  if (how == "callback") {
    return cuStreamAddCallback(
        stream, [](CUstream, CUresult, void*) { AwaitWord(nullptr); }, nullptr, 0);
  }
  if (how == "value") return WaitValue(stream, word, 1, CU_STREAM_WAIT_VALUE_GEQ);
  CUstreamBatchMemOpParams op = {};
  op.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  op.waitValue.address = word;
  op.waitValue.value = 1;
  return BatchMemOp(stream, 1, &op, 0);
}

// Launches and waits for the host at random, from several threads into streams that they share and
// their own default one; returns when all of it is over.
void Shuffle(uint64_t seed, int threads, int steps) {
  static std::atomic<uint32_t> words[64];
  std::vector<CUstream> streams(3);
  for (CUstream& s : streams) cuStreamCreate(&s, CU_STREAM_NON_BLOCKING);
  streams.push_back(nullptr);
  std::vector<std::thread> all;
  for (int t = 0; t < threads; ++t) {
    all.emplace_back([&, t] {
      cuCtxSetCurrent(g_context);
      uint64_t random = seed * 1000 + static_cast<uint64_t>(t) + 1;
      const auto draw = [&](uint64_t below) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        return (random >> 33) % below;
      };
      for (int i = 0; i < steps; ++i) {
        CUstream stream = streams[draw(streams.size())];
        const bool per_thread = stream == nullptr && draw(2) == 0;
        switch (draw(8)) {
          case 0: {
            static constexpr auto kSleep = [](void* us) {
              usleep(static_cast<useconds_t>(reinterpret_cast<uintptr_t>(us)));
            };
            void* us = reinterpret_cast<void*>(draw(3000));
            per_thread ? HostFuncPerThread(stream, kSleep, us)
                       : cuLaunchHostFunc(stream, kSleep, us);
            break;
          }
          case 1: {
            std::atomic<uint32_t>& word = words[draw(64)];
            const uint32_t next = word.load() + 1;
            WaitValue(stream, reinterpret_cast<CUdeviceptr>(&word), next, CU_STREAM_WAIT_VALUE_GEQ);
            const auto us = static_cast<useconds_t>(draw(3000));
            std::thread([&word, next, us] {
              usleep(us);
              uint32_t now = word.load();
              while (now < next && !word.compare_exchange_weak(now, next)) {
              }
            }).detach();
            break;
          }
          case 2:
            usleep(static_cast<useconds_t>(draw(1000)));
            break;
          default:
            for (uint64_t n = draw(8); n > 0; --n) {
              Launch(static_cast<int64_t>(5'000 + draw(200'000)), stream, per_thread);
            }
        }
      }
    });
  }
  for (auto& thread : all) thread.join();
  while (fake_waits() > 0) usleep(100);
}

// Captures that Interleave() left open.
std::mutex g_open_lock;
std::vector<CUstream> g_open;

// Launches at random, from several threads, into streams that they share, default ones and their
// own; beside that captures begin and streams wait for the host. If `for_good`, none of these ends
// before LetGo(); otherwise all of them end at once. The legacy stream waits for the threads'
// default ones, so either it is launched into (even seeds), or those wait for the host.
void Interleave(uint64_t seed, int threads, int steps, bool for_good) {
  g_host_word = for_good ? 0 : 1;
  const bool legacy = seed % 2 == 0;
  std::vector<CUstream> streams(3);
  for (CUstream& s : streams) cuStreamCreate(&s, CU_STREAM_NON_BLOCKING);
  std::vector<std::thread> all;
  for (int t = 0; t < threads; ++t) {
    all.emplace_back([&, t] {
      cuCtxSetCurrent(g_context);
      CUstream own = nullptr;
      cuStreamCreate(&own, CU_STREAM_NON_BLOCKING);
      bool capturing = false;
      uint64_t random = seed * 1000 + static_cast<uint64_t>(t) + 1;
      const auto draw = [&](uint64_t below) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        return (random >> 33) % below;
      };
      for (int i = 0; i < steps; ++i) {
        const uint64_t to = draw(6);
        CUstream stream = to < 3 ? streams[to] : to == 3 || (to == 4 && !legacy) ? own : nullptr;
        switch (draw(8)) {
          case 0: {
            static const char* const kWays[] = {"function", "callback", "value", "batch",
                                                "function-ptds"};
            if (to < 3) WaitForHost(kWays[draw(legacy ? 4 : 5)], stream);
            break;
          }
          case 1: {
            if (!capturing)
              capturing =
                  cuStreamBeginCapture_v2(own, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS;
            CUgraph graph = nullptr;
            if (capturing && !for_good) {
              cuStreamEndCapture(own, &graph);
              capturing = false;
            }
            break;
          }
          case 2:
            usleep(static_cast<useconds_t>(draw(300)));
            break;
          default:
            for (uint64_t n = draw(4); n > 0; --n) {
              Launch(static_cast<int64_t>(5'000 + draw(100'000)), stream, to == 5);
            }
        }
      }
      if (!capturing) return;
      std::lock_guard lock(g_open_lock);
      g_open.push_back(own);
    });
  }
  for (auto& thread : all) thread.join();
}

// How many captures were open.
size_t LetGo() {
  g_host_word = 1;
  const size_t open = g_open.size();
  for (CUstream stream : g_open) {
    CUgraph graph = nullptr;
    cuStreamEndCapture(stream, &graph);
  }
  g_open.clear();
  return open;
}

void Say(const std::string& line) { std::cout << line << std::endl; }

CUcontext MakeContext(int device) {
  CUcontext c = nullptr;
  cuDevicePrimaryCtxRetain(&c, device);
  cuCtxSetCurrent(c);
  return c;
}

// loop NS THREADS [stream|ptds]: each thread launches kernels of NS for ever.
void StartLoop(int64_t ns, int threads, const std::string& kind) {
  for (int i = 0; i < threads; ++i) {
    g_threads.emplace_back([ns, kind] {
      cuCtxSetCurrent(g_context);
      CUstream stream = nullptr;
      if (kind == "stream") cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
      while (!g_stop) {
        Launch(ns, stream, kind == "ptds");
        ++g_returned;
      }
    });
  }
}

// In the background, and then counted as returned.
template <class Call>
void Later(Call call) {
  g_threads.emplace_back([call] {
    cuCtxSetCurrent(g_context);
    call();
    ++g_returned;
  });
}

// Threads that all allocate `bytes` at once by `allocate`; says how many got it.
template <class Allocate>
void Race(int threads, Allocate allocate) {
  std::atomic<int> granted{0};
  std::atomic<bool> go{false};
  std::vector<std::thread> racers;
  for (int i = 0; i < threads; ++i) {
    racers.emplace_back([&] {
      cuCtxSetCurrent(g_context);
      while (!go) {
      }
      CUdeviceptr p = 0;
      if (allocate(&p) == CUDA_SUCCESS) ++granted;
    });
  }
  go = true;
  for (auto& r : racers) r.join();
  Say(std::to_string(granted.load()));
}

std::string NameOf(void* p) {
  Dl_info info = {};
  if (p == nullptr || dladdr(p, &info) == 0) return "none";
  const char* file = strrchr(info.dli_fname, '/');
  return std::string(file == nullptr ? info.dli_fname : file + 1) + ":" +
         (info.dli_sname == nullptr ? "?" : info.dli_sname);
}

void Find(const std::string& how, const std::string& name) {
  void* handle = how == "next"      ? RTLD_NEXT
                 : how == "default" ? RTLD_DEFAULT
                                    : dlopen(how.c_str(), RTLD_LAZY);
  Say(NameOf(dlsym(handle, name.c_str())));
}

using GetProc = CUresult (*)(const char*, void**, int, cuuint64_t, int*);

void Ask(const std::string& symbol, int version, uint64_t flags) {
  auto get =
      reinterpret_cast<GetProc>(dlsym(dlopen("libcuda.so.1", RTLD_LAZY), "cuGetProcAddress_v2"));
  void* p = nullptr;
  int status = -1;
  const CUresult r = get(symbol.c_str(), &p, version, flags, &status);
  Say(NameOf(p) + " " + std::to_string(r) + " " + std::to_string(status));
}

// Forks; the child says its pid, waits for its own stdin to end, and exits.
void ForkAndWait() {
  const pid_t pid = fork();
  if (pid == 0) {
    char c;
    while (read(0, &c, 1) > 0) {
    }
    _exit(0);
  }
  Say(std::to_string(pid));
}

// Forks; the child is a CUDA program of its own.
void ForkAndLaunch() {
  const pid_t pid = fork();
  if (pid == 0) {
    cuInit(0);
    MakeContext(0);
    _exit(Launch(1000) == CUDA_SUCCESS ? 0 : 1);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  Say(std::to_string(WEXITSTATUS(status)));
}

}  // namespace

int main() {
  std::atexit([] {
    Say("exiting");
    std::string rest;
    while (std::getline(std::cin, rest)) {
    }
  });
  std::string line;
  CUstream stream = nullptr;
  while (std::getline(std::cin, line)) {
    std::istringstream in(line);
    std::string command, text;
    int64_t n = 0, m = 0;
    in >> command;
    if (command == "init") {
      const CUresult r = cuInit(0);
      g_context = MakeContext(0);
      Say(std::to_string(r));
    } else if (command == "device") {
      in >> n;
      MakeContext(static_cast<int>(n));
      Say("ok");
    } else if (command == "context") {  // a new one, current in this thread
      CUcontext c = nullptr;
      const CUresult r = cuCtxCreate_v2(&c, 0, 0);
      Say(std::to_string(r) + " " + std::to_string(reinterpret_cast<uintptr_t>(c)));
    } else if (command == "context-v1") {
      in >> n;
      CUcontext c = nullptr;
      const CUresult r = FirstCreate(&c, 0, static_cast<CUdevice>(n));
      Say(std::to_string(r) + " " + std::to_string(reinterpret_cast<uintptr_t>(c)));
    } else if (command == "pop-v1") {
      CUcontext c = nullptr;
      Say(std::to_string(FirstPop(&c)));
    } else if (command == "detach") {
      in >> n;
      Say(std::to_string(FirstDetach(reinterpret_cast<CUcontext>(n))));
    } else if (command == "context-destroy") {
      in >> n;
      Say(std::to_string(cuCtxDestroy_v2(reinterpret_cast<CUcontext>(n))));
    } else if (command == "context-destroy-later") {
      in >> n;
      Later([n] { cuCtxDestroy_v2(reinterpret_cast<CUcontext>(n)); });
      Say("ok");
    } else if (command == "context-launch-later") {  // in a new context of that handle
      in >> n >> m;
      Later([n, m] {
        CUcontext c = nullptr;
        do cuCtxCreate_v2(&c, 0, 0);
        while (c != reinterpret_cast<CUcontext>(n));
        Launch(m);
      });
      Say("ok");
    } else if (command == "green") {  // a new green context, current in this thread
      CUcontext c = nullptr;
      void* green = fake_green();
      const CUresult r = FromGreen(&c, green);
      cuCtxSetCurrent(c);
      Say(std::to_string(r) + " " + std::to_string(reinterpret_cast<uintptr_t>(green)));
    } else if (command == "green-destroy") {
      in >> n;
      Say(std::to_string(GreenDestroy(reinterpret_cast<void*>(n))));
    } else if (command == "primary-reset") {
      Say(std::to_string(cuDevicePrimaryCtxReset_v2(0)));
    } else if (command == "primary-release") {
      Say(std::to_string(cuDevicePrimaryCtxRelease_v2(0)));
    } else if (command == "mistakes") {
      Say(std::to_string(fake_mistakes()));
    } else if (command == "say-signals") {
      signal(SIGUSR1, [](int) { (void)!write(STDOUT_FILENO, "signal\n", 7); });
      Say("ok");
    } else if (command == "launch-held-up") {  // NS: in a thread that hold-up holds up
      in >> n;
      signal(SIGUSR2, [](int) {
        for (g_held_up = true; g_host_word.load() == 0;) usleep(100);
      });
      g_threads.emplace_back([n] {
        cuCtxSetCurrent(g_context);
        Launch(n);
        ++g_returned;
      });
      Say("ok");
    } else if (command == "hold-up") {  // in a signal handler, until host-is-ready
      pthread_kill(g_threads.back().native_handle(), SIGUSR2);
      while (!g_held_up) usleep(100);
      Say("ok");
    } else if (command == "launch") {
      in >> n;
      Say(std::to_string(Launch(n)));
    } else if (command == "burst") {  // launch in the background: NS COUNT [stream|ptds]
      in >> n >> m >> text;
      g_threads.emplace_back([n, m, text, to = text == "stream" ? stream : nullptr] {
        cuCtxSetCurrent(g_context);
        for (int64_t i = 0; i < m; ++i, ++g_returned) Launch(n, to, text == "ptds");
      });
      Say("ok");
    } else if (command ==
               "round") {  // COUNT kernels of NS, in turn into so many STREAMS; says how long
      int64_t streams = 0;
      in >> n >> m >> streams;
      std::vector<CUstream> all(static_cast<size_t>(streams));
      for (CUstream& s : all) cuStreamCreate(&s, CU_STREAM_NON_BLOCKING);
      const auto begin = std::chrono::steady_clock::now();
      for (int64_t i = 0; i < m; ++i) Launch(n, all[static_cast<size_t>(i % streams)]);
      Say(std::to_string((std::chrono::steady_clock::now() - begin).count()));
    } else if (command == "loop") {
      in >> n >> m >> text;
      StartLoop(n, static_cast<int>(m), text);
      Say("ok");
    } else if (command == "stop") {
      g_stop = true;
      for (auto& t : g_threads) t.join();
      g_threads.clear();
      g_stop = false;
      Say("ok");
    } else if (command == "count") {
      Say(std::to_string(fake_launches()));
    } else if (command == "returned") {
      Say(std::to_string(g_returned.load()));
    } else if (command == "records") {
      Say(std::to_string(fake_records()));
    } else if (command == "most-queued") {
      Say(std::to_string(fake_most_queued()));
    } else if (command == "release") {
      fake_release();
      Say("ok");
    } else if (command == "full-channel") {  // marks behind a wait for the host wait for that
      fake_full_channel(true);
      Say("ok");
    } else if (command == "query-errors") {
      in >> n >> m;
      fake_query_errors(static_cast<int>(n), static_cast<int>(m));
      Say("ok");
    } else if (command == "record-errors") {
      in >> n;
      fake_record_errors(static_cast<int>(n));
      Say("ok");
    } else if (command == "stream") {
      const CUresult r = cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
      Say(std::to_string(r) + " " + std::to_string(reinterpret_cast<uintptr_t>(stream)));
    } else if (command == "stream-launch") {
      in >> n;
      Say(std::to_string(Launch(n, stream)));
    } else if (command == "launch-after") {  // NS, in another stream, after all that is in this one
      in >> n;
      CUevent event;
      CUstream next;
      cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
      cuEventRecord(event, stream);
      cuStreamCreate(&next, CU_STREAM_NON_BLOCKING);
      cuStreamWaitEvent(next, event, 0);
      Say(std::to_string(Launch(n, next)));
    } else if (command == "stream-destroy") {
      Say(std::to_string(cuStreamDestroy_v2(stream)));
    } else if (command == "stream-destroy-later") {
      Later([stream] { cuStreamDestroy_v2(stream); });
      Say("ok");
    } else if (command == "hold-destroys") {
      in >> n;
      fake_hold_destroys(n != 0);
      Say("ok");
    } else if (command == "stretch") {
      in >> n;
      fake_stretch(n);
      Say("ok");
    } else if (command == "come-late") {
      in >> n;
      fake_come_late(n);
      Say("ok");
    } else if (command == "capture") {
      Say(std::to_string(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL)));
    } else if (command == "capture-v1") {
      Say(std::to_string(FirstBeginCapture(stream)));
    } else if (command == "end-capture") {
      CUgraph graph;
      Say(std::to_string(cuStreamEndCapture(stream, &graph)));
    } else if (command == "sync") {  // by WHAT
      in >> text;
      Say(std::to_string(text == "stream"  ? cuStreamSynchronize(stream)
                         : text == "event" ? cuEventSynchronize(nullptr)
                         : text == "v2"    ? SynchronizeV2(g_context)
                                           : cuCtxSynchronize()));
    } else if (command == "limit") {  // WHICH BYTES
      in >> text >> n;
      Say(std::to_string(
          cuCtxSetLimit(text == "stack" ? CU_LIMIT_STACK_SIZE : CU_LIMIT_MALLOC_HEAP_SIZE,
                        static_cast<size_t>(n))));
    } else if (command == "alloc") {
      in >> n;
      CUdeviceptr p = 0;
      const CUresult r = cuMemAlloc_v2(&p, static_cast<size_t>(n));
      Say(std::to_string(r) + " " + std::to_string(p));
    } else if (command == "alloc-v1") {
      in >> n;
      unsigned p = 0;
      const CUresult r = FirstAlloc(&p, static_cast<unsigned>(n));
      Say(std::to_string(r) + " " + std::to_string(p));
    } else if (command == "free-v1") {
      in >> n;
      Say(std::to_string(FirstFree(static_cast<unsigned>(n))));
    } else if (command == "meminfo-v1") {
      unsigned f = 0, t = 0;
      FirstInfo(&f, &t);
      Say(std::to_string(f) + " " + std::to_string(t));
    } else if (command == "set-v1") {
      in >> n;
      Say(std::to_string(FirstSet(0, 0, static_cast<unsigned>(n))));
    } else if (command == "wait-for-host") {
      in >> text;
      Say(std::to_string(WaitForHost(text, stream)));
    } else if (command == "host-is-ready") {
      g_host_word = 1;
      Say("ok");
    } else if (command == "waits") {
      Say(std::to_string(fake_waits()));
    } else if (command == "launch-ptds") {
      in >> n;
      Say(std::to_string(Launch(n, nullptr, true)));
    } else if (command == "shuffle") {  // SEED THREADS STEPS, in the background
      in >> n >> m;
      int64_t steps = 0;
      in >> steps;
      g_threads.emplace_back([n, m, steps] {
        cuCtxSetCurrent(g_context);
        Shuffle(static_cast<uint64_t>(n), static_cast<int>(m), static_cast<int>(steps));
        ++g_returned;
      });
      Say("ok");
    } else if (command == "interleave") {  // SEED THREADS STEPS FOR-GOOD, in the background
      int64_t steps = 0, for_good = 0;
      in >> n >> m >> steps >> for_good;
      g_threads.emplace_back([n, m, steps, for_good] {
        cuCtxSetCurrent(g_context);
        Interleave(static_cast<uint64_t>(n), static_cast<int>(m), static_cast<int>(steps),
                   for_good != 0);
        ++g_returned;
      });
      Say("ok");
    } else if (command == "let-go") {
      Say(std::to_string(LetGo()));
    } else if (command == "graph") {  // NS DEVICE_NS: of its own, and of what it launches there
      in >> n >> m;
      CUgraphExec exec = nullptr;
      cuGraphInstantiateWithFlags(&exec, fake_graph(n, m), kDeviceLaunch);
      Say(std::to_string(cuGraphLaunch(exec, stream)));
    } else if (command == "kernels") {  // begin and end of each
      std::string line_of_all;
      int64_t begin = 0, end = 0;
      for (size_t i = 0; fake_kernel_ran(i, &begin, &end); ++i) {
        line_of_all += std::to_string(begin) + " " + std::to_string(end) + " ";
      }
      Say(line_of_all);
    } else if (command == "plugin") {  // NAME: opened by its name alone
      in >> text;
      void* plugin = dlopen(text.c_str(), RTLD_NOW | RTLD_DEEPBIND);
      if (plugin == nullptr) {
        Say(dlerror());
      } else if (auto* asks = reinterpret_cast<const char* (*)()>(dlsym(plugin, "plugin_asks"))) {
        Say(asks());
      } else {
        Say(std::to_string(
            reinterpret_cast<int (*)(int64_t)>(dlsym(plugin, "plugin_launch"))(1000)));
      }
    } else if (command == "copy-batch") {  // TO FROM BYTES, after one byte between hosts
      CUdeviceptr to[2] = {0, 0}, from[2] = {1, 0};
      size_t bytes[2] = {1, 0};
      in >> to[1] >> from[1] >> bytes[1];
      Say(std::to_string(CopyBatch(to, from, bytes, 2, nullptr, nullptr, 0, stream)));
    } else if (command == "prefetch") {
      in >> n;
      Say(std::to_string(Prefetch(0, static_cast<size_t>(n), {}, 0, stream)));
    } else if (command == "copy-to-array") {
      in >> n;
      Say(std::to_string(CopyToArray(nullptr, 0, nullptr, static_cast<size_t>(n))));
    } else if (command == "free") {
      in >> n;
      Say(std::to_string(cuMemFree_v2(static_cast<CUdeviceptr>(n))));
    } else if (command == "alloc-async" || command == "stream-alloc-async") {
      in >> n;
      CUdeviceptr p = 0;
      const CUresult r =
          cuMemAllocAsync(&p, static_cast<size_t>(n), command == "alloc-async" ? nullptr : stream);
      Say(std::to_string(r) + " " + std::to_string(p));
    } else if (command == "pool-alloc-async") {  // BYTES LOCATION: from a new pool
      in >> n >> m;
      CUmemPoolProps props = {};
      props.location.type = static_cast<CUmemLocationType>(m);
      CUmemoryPool pool = nullptr;
      CUdeviceptr p = 0;
      cuMemPoolCreate(&pool, &props);
      const CUresult r = cuMemAllocFromPoolAsync(&p, static_cast<size_t>(n), pool, nullptr);
      Say(std::to_string(r) + " " + std::to_string(p));
    } else if (command == "defer-frees") {
      in >> n;
      fake_defer_frees(n != 0);
      Say("ok");
    } else if (command == "free-async") {
      in >> n;
      Say(std::to_string(cuMemFreeAsync(static_cast<CUdeviceptr>(n), nullptr)));
    } else if (command == "trim-pool" || command == "destroy-pool") {
      CUmemoryPool pool = nullptr;
      cuDeviceGetMemPool(&pool, 0);
      Say(std::to_string(command == "trim-pool" ? cuMemPoolTrimTo(pool, 0)
                                                : cuMemPoolDestroy(pool)));
    } else if (command == "create") {
      in >> n;
      CUmemAllocationProp prop = {};
      prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
      CUmemGenericAllocationHandle handle = 0;
      const CUresult r = cuMemCreate(&handle, static_cast<size_t>(n), &prop, 0);
      Say(std::to_string(r) + " " + std::to_string(handle));
    } else if (command == "map") {  // ADDRESS BYTES HANDLE
      CUmemGenericAllocationHandle handle = 0;
      in >> n >> m >> handle;
      Say(std::to_string(
          cuMemMap(static_cast<CUdeviceptr>(n), static_cast<size_t>(m), 0, handle, 0)));
    } else if (command == "unmap") {
      in >> n >> m;
      Say(std::to_string(cuMemUnmap(static_cast<CUdeviceptr>(n), static_cast<size_t>(m))));
    } else if (command == "release-handle") {
      in >> n;
      Say(std::to_string(cuMemRelease(static_cast<CUmemGenericAllocationHandle>(n))));
    } else if (command == "allocations") {
      Say(std::to_string(fake_allocations()));
    } else if (command == "meminfo") {
      size_t f = 0, t = 0;
      cuMemGetInfo_v2(&f, &t);
      Say(std::to_string(f) + " " + std::to_string(t));
    } else if (command == "total") {  // needs no context
      size_t t = 0;
      cuInit(0);
      cuDeviceTotalMem_v2(&t, 0);
      Say(std::to_string(t));
    } else if (command == "race") {
      in >> n >> m;
      Race(static_cast<int>(n),
           [m](CUdeviceptr* p) { return cuMemAlloc_v2(p, static_cast<size_t>(m)); });
    } else if (command == "race-async") {
      in >> n >> m;
      Race(static_cast<int>(n),
           [m](CUdeviceptr* p) { return cuMemAllocAsync(p, static_cast<size_t>(m), nullptr); });
    } else if (command == "find") {
      std::string name;
      in >> text >> name;
      Find(text, name);
    } else if (command == "ask") {
      in >> text >> n >> m;
      Ask(text, static_cast<int>(n), static_cast<uint64_t>(m));
    } else if (command == "exit") {  // slowly: until stdin ends
      exit(0);
    } else if (command == "setuid") {
      Say(std::to_string(setuid(getuid())));
    } else if (command == "fork") {
      ForkAndWait();
    } else if (command == "fork-launch") {
      ForkAndLaunch();
    } else {
      Say("what?");
    }
  }
  g_stop = true;
  _exit(0);
}
