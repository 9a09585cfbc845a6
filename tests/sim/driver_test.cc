// The simulated libraries as programs see them, where a real driver cannot be asked to behave:
// killed processes, forks, device lists, capacity between processes, NVML's list.
#include <cuda.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>

#include "bench/kernels.h"
#include "sim/record.h"
#include "tests/sim/in_child.h"
#include "tests/sim/temp_device.h"

namespace baton::sim {
namespace {

// In a child: initialised, with the primary context current and the spin kernel at hand.
struct Program {
  CUresult Start() {
    CUdevice device;
    CUcontext context;
    CUmodule module;
    if (CUresult r = SIM(cuInit)(0)) return r;
    if (CUresult r = SIM(cuDeviceGet)(&device, 0)) return r;
    if (CUresult r = SIM(cuDevicePrimaryCtxRetain)(&context, device)) return r;
    if (CUresult r = SIM(cuCtxSetCurrent)(context)) return r;
    if (CUresult r = SIM(cuModuleLoadData)(&module, bench::kKernelsPtx)) return r;
    return SIM(cuModuleGetFunction)(&spin, module, "baton_spin");
  }
  CUresult Spin(uint64_t ns) {
    void* params[] = {&ns};
    return SIM(cuLaunchKernel)(spin, 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr);
  }
  CUfunction spin = nullptr;
};

class SimDriverTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(nullptr, Library("libcuda.so.1")) << dlerror();
    setenv("BATON_SIM_DEVICES", temp_.path().c_str(), 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
  }
  // A child with 50 ms of work on the device, of which it has told that it is enqueued.
  pid_t Busy(uint64_t ns, int kernels) {
    int ready[2];
    if (pipe(ready) != 0) return -1;
    const pid_t pid = fork();
    if (pid == 0) {
      Program program;
      if (program.Start() != CUDA_SUCCESS) _exit(1);
      for (int i = 0; i < kernels; ++i) program.Spin(ns);
      (void)!write(ready[1], "", 1);
      SIM(cuCtxSynchronize)();
      while (true) pause();
    }
    close(ready[1]);
    char byte;
    EXPECT_EQ(1, read(ready[0], &byte, 1));
    close(ready[0]);
    return pid;
  }
  TempDevice temp_;
};

TEST_F(SimDriverTest, WithoutADeviceThereIsNone) {
  EXPECT_EQ(0, InChild([] {
              setenv("BATON_SIM_DEVICES", "/nonexistent/a.gpu", 1);
              return SIM(cuInit)(0) == CUDA_ERROR_NO_DEVICE ? 0 : 1;
            }));
  EXPECT_EQ(0, InChild([] {
              unsetenv("BATON_SIM_DEVICES");
              return SIM(cuInit)(0) == CUDA_ERROR_NO_DEVICE ? 0 : 1;
            }));
}

TEST_F(SimDriverTest, CudaVisibleDevicesChoosesByOrdinalAndByUuid) {
  TempDevice second;
  setenv("BATON_SIM_DEVICES", (temp_.path() + ":" + second.path()).c_str(), 1);
  const std::string uuid = FormatUuid((*Device::Open(second.path()))->file().uuid);
  const auto count_with = [](const std::string& visible) {
    return InChild([visible] {
      setenv("CUDA_VISIBLE_DEVICES", visible.c_str(), 1);
      int count = 0;
      if (SIM(cuInit)(0) != CUDA_SUCCESS) return 50;
      SIM(cuDeviceGetCount)(&count);
      return count;
    });
  };
  EXPECT_EQ(2, count_with("1,0"));
  EXPECT_EQ(1, count_with("1"));
  EXPECT_EQ(1, count_with(uuid));
  EXPECT_EQ(1, count_with("0,9,1"));
  EXPECT_EQ(50, count_with(""));
}

TEST_F(SimDriverTest, AChildForkedAfterInitMayNotUseTheDriver) {
  EXPECT_EQ(0, InChild([] {
              if (SIM(cuInit)(0) != CUDA_SUCCESS) return 1;
              return InChild([] {
                int count;
                if (SIM(cuDeviceGetCount)(&count) != CUDA_ERROR_NOT_INITIALIZED) return 2;
                return SIM(cuInit)(0) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 3;
              });
            }));
}

TEST_F(SimDriverTest, AChildForkedBeforeInitWorksAndItsParentToo) {
  EXPECT_EQ(0, InChild([] {
              const auto work = [] {
                Program program;
                if (program.Start() != CUDA_SUCCESS) return 1;
                if (program.Spin(1000) != CUDA_SUCCESS) return 2;
                return SIM(cuCtxSynchronize)() == CUDA_SUCCESS ? 0 : 3;
              };
              if (int r = InChild(work)) return r;
              return work();
            }));
}

TEST_F(SimDriverTest, TheEndOfAForkedChildDoesNotEndItsParent) {
  const pid_t parent = fork();
  if (parent == 0) {
    Program program;
    if (program.Start() != CUDA_SUCCESS) _exit(1);
    InChild([] { return 0; });
    // A context that others believed dead would be gone by now.
    if ((*Device::Open(getenv("BATON_SIM_DEVICES")))->Processes().size() != 1) _exit(2);
    if (InChild([] {
          // Another process looks.
          execl("/bin/true", "true", nullptr);
          return 1;
        }) != 0) {
      _exit(3);
    }
    if (program.Spin(1000) != CUDA_SUCCESS || SIM(cuCtxSynchronize)() != CUDA_SUCCESS) _exit(4);
    _exit(0);
  }
  int status;
  waitpid(parent, &status, 0);
  EXPECT_EQ(0, WEXITSTATUS(status));
}

TEST_F(SimDriverTest, AKilledProcessFinishesItsRunningKernelAndDropsTheRest) {
  const pid_t pid = Busy(50'000'000, 20);
  ASSERT_GT(pid, 0);
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  Device* device = *Device::Open(temp_.path());
  while (!device->Processes().empty()) usleep(1000);
  auto records = *ReadRecords(temp_.path());
  ASSERT_GE(records.size(), 1u);
  ASSERT_LT(records.size(), 20u);
  EXPECT_TRUE(records.back().killed);
  EXPECT_EQ(50'000'000, records.back().end_ns - records.back().start_ns);
  EXPECT_EQ(0u, device->file().memory_used);
}

TEST_F(SimDriverTest, KilledAnywhereInALoopOfLaunchesItHarmsNobody) {
  Device* device = *Device::Open(temp_.path());
  for (int i = 0; i < 40; ++i) {
    int ready[2];
    ASSERT_EQ(0, pipe(ready));
    const pid_t pid = fork();
    if (pid == 0) {
      Program program;
      if (program.Start() != CUDA_SUCCESS) _exit(1);
      (void)!write(ready[1], "", 1);
      while (true) {
        CUdeviceptr p;
        SIM(cuMemAlloc)(&p, 4096);
        for (int k = 0; k < 20; ++k) program.Spin(2000);
        SIM(cuMemFree)(p);
      }
    }
    char byte;
    close(ready[1]);
    ASSERT_EQ(1, read(ready[0], &byte, 1));
    close(ready[0]);
    usleep(static_cast<useconds_t>(i * 137 % 3000));
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    while (!device->Processes().empty()) usleep(100);
    ASSERT_EQ(0u, device->file().memory_used);
    ASSERT_EQ(0u, device->file().active_count);
  }
  EXPECT_EQ(0, InChild([] {
              Program program;
              if (program.Start() != CUDA_SUCCESS) return 1;
              program.Spin(1000);
              return SIM(cuCtxSynchronize)() == CUDA_SUCCESS ? 0 : 2;
            }));
}

TEST_F(SimDriverTest, AnIllegalAddressInOneProcessLeavesOthersAlone) {
  const pid_t victim = Busy(30'000'000, 100);
  EXPECT_EQ(0, InChild([victim, this] {
              Program program;
              if (program.Start() != CUDA_SUCCESS) return 1;
              program.Spin(20'000'000);
              {
                Device::Session session(*Device::Open(temp_.path()));
                if (!session->Inject(static_cast<uint64_t>(victim), Injection::kIllegalAddress)) {
                  return 2;
                }
              }
              return SIM(cuCtxSynchronize)() == CUDA_SUCCESS ? 0 : 3;
            }));
  kill(victim, SIGKILL);
  waitpid(victim, nullptr, 0);
}

TEST_F(SimDriverTest, ProcessesShareOneCapacity) {
  EXPECT_EQ(0, InChild([] {
              Program program;
              if (program.Start() != CUDA_SUCCESS) return 1;
              CUdeviceptr p;
              if (SIM(cuMemAlloc)(&p, size_t{10} << 30) != CUDA_SUCCESS) return 2;
              // A separate program, for a fork of this one may not use CUDA.
              return 0;
            }));
  Device* device = *Device::Open(temp_.path());
  const int process = device->Attach();
  {
    Device::Session session(device);
    session.CheckProcesses();
    ASSERT_TRUE(session->ChargeMemory(process, uint64_t{10} << 30));
  }
  EXPECT_EQ(0, InChild([] {
              Program program;
              if (program.Start() != CUDA_SUCCESS) return 1;
              CUdeviceptr p;
              if (SIM(cuMemAlloc)(&p, size_t{10} << 30) != CUDA_ERROR_OUT_OF_MEMORY) return 2;
              size_t free, total;
              SIM(cuMemGetInfo)(&free, &total);
              return free == (size_t{6} << 30) && total == (size_t{16} << 30) ? 0 : 3;
            }));
}

TEST_F(SimDriverTest, NvmlListsTheDeadUntilTheirKernelsHaveEnded) {
  struct Info {
    unsigned int pid;
    unsigned long long used;
    unsigned int gpu_instance, compute_instance;
  };
  ASSERT_EQ(0, NVML(int (*)(), "nvmlInit_v2")());
  void* device = nullptr;
  ASSERT_EQ(0, NVML(int (*)(unsigned int, void**), "nvmlDeviceGetHandleByIndex_v2")(0, &device));
  const auto list =
      NVML(int (*)(void*, unsigned int*, Info*), "nvmlDeviceGetComputeRunningProcesses_v3");
  Info infos[8];
  unsigned int count = 8;
  ASSERT_EQ(0, list(device, &count, infos));
  EXPECT_EQ(0u, count);
  const pid_t pid = Busy(100'000'000, 3);
  count = 0;
  EXPECT_EQ(7 /* insufficient size */, list(device, &count, nullptr));
  EXPECT_EQ(1u, count);
  count = 8;
  ASSERT_EQ(0, list(device, &count, infos));
  ASSERT_EQ(1u, count);
  EXPECT_EQ(static_cast<unsigned int>(pid), infos[0].pid);
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  int64_t gone_at = 0;
  do {
    count = 8;
    ASSERT_EQ(0, list(device, &count, infos));
    gone_at = NowNs();
  } while (count != 0);
  auto records = *ReadRecords(temp_.path());
  ASSERT_FALSE(records.empty());
  EXPECT_LE(records.back().end_ns, gone_at);
  EXPECT_EQ(0, NVML(int (*)(), "nvmlShutdown")());
}

TEST_F(SimDriverTest, AKilledProcessesNeighbourGetsTheWholeGpu) {
  const pid_t hog = Busy(3'600'000'000'000, 1);
  EXPECT_EQ(0, InChild([hog] {
              Program program;
              if (program.Start() != CUDA_SUCCESS) return 1;
              program.Spin(10'000'000);
              kill(hog, SIGKILL);
              return SIM(cuCtxSynchronize)() == CUDA_SUCCESS ? 0 : 2;
            }));
  waitpid(hog, nullptr, 0);
}

TEST_F(SimDriverTest, ImagesWithoutKernelsItKnowsAreRefused) {
  EXPECT_EQ(
      0, InChild([] {
        Program program;
        CUmodule module;
        if (program.Start() != CUDA_SUCCESS) return 1;
        if (SIM(cuModuleLoadData)(&module, "nonsense") != CUDA_ERROR_INVALID_IMAGE) return 2;
        if (SIM(cuModuleLoadData)(&module, ".version 6.4\n") != CUDA_ERROR_NO_BINARY_FOR_GPU) {
          return 3;
        }
        for (const char* bad :
             {"//@baton-sim kernel f(u65)", "//@baton-sim kernel f() duration=5",
              "//@baton-sim kernel f(u64) duration=arg1", "//@baton-sim kernel f() wibble",
              "//@baton-sim kernel f(ptr) store=arg0", "//@baton-sim kernel f"}) {
          if (SIM(cuModuleLoadData)(&module, bad) != CUDA_ERROR_INVALID_PTX) return 4;
        }
        return static_cast<int>(SIM(cuModuleLoadData)(
            &module,
            "//@baton-sim kernel f(ptr,u32,f32) duration=grid*10us spread=20% concurrent\n"));
      }));
}

}  // namespace
}  // namespace baton::sim
