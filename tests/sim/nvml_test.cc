// The simulated NVML as a program meets it, beyond what batond asks: tests/devmgr/nvml_test.cc has
// that.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "sim/card.h"
#include "tests/sim/temp_device.h"

namespace baton::sim {
namespace {

// As NVIDIA's nvml.h has them.
struct Placement {
  unsigned int start, size;
};
struct GpuInstanceInfo {
  void* device;
  unsigned int id, profile;
  Placement placement;
};
struct ComputeInstanceInfo {
  void* device;
  void* gpu_instance;
  unsigned int id, profile;
  Placement placement;
};
enum { kSuccess, kUninitialized, kInvalidArgument, kNotSupported, kNotFound = 6, kInUse = 19 };
constexpr int kInsufficientResources = 23;

template <class... Args>
int Call(const char* name, Args... args) {
  const char* directory = getenv("BATON_SIM_LIB");
  static void* library = dlopen(
      (std::string(directory != nullptr ? directory : "lib/sim") + "/libnvidia-ml.so.1").c_str(),
      RTLD_NOW | RTLD_LOCAL);
  auto function = reinterpret_cast<int (*)(Args...)>(dlsym(library, name));
  if (function == nullptr) throw std::runtime_error(std::string("no ") + name);
  return function(args...);
}

DeviceOptions MigCard(const char* model) {
  DeviceOptions options = OptionsFor(*FindModel(model));
  options.records = 16;
  options.mig = true;
  return options;
}

class SimNvmlTest : public testing::Test {
 protected:
  void Start(const DeviceOptions& options) {
    temp_ = std::make_unique<TempDevice>(options);
    setenv("BATON_SIM_DEVICES", temp_->path().c_str(), 1);
    ASSERT_EQ(kSuccess, Call("nvmlInit_v2"));
    ASSERT_EQ(kSuccess, Call("nvmlDeviceGetHandleByIndex_v2", 0u, &card_));
  }
  void TearDown() override {
    if (temp_ != nullptr) {
      EXPECT_EQ(kSuccess, Call("nvmlShutdown"));
    }
  }
  int Create(unsigned int profile, void** instance) {
    return Call("nvmlDeviceCreateGpuInstance", card_, profile, instance);
  }
  unsigned int Remaining(unsigned int profile) {
    unsigned int count = 99;
    EXPECT_EQ(kSuccess, Call("nvmlDeviceGetGpuInstanceRemainingCapacity", card_, profile, &count));
    return count;
  }

  std::unique_ptr<TempDevice> temp_;
  void* card_ = nullptr;
};

TEST_F(SimNvmlTest, GeometriesOfTheUserGuideFillTheCard) {
  Start(MigCard("a100-80"));
  // Profile ids: 0 is 7g.80gb, 5 4g.40gb, 9 3g.40gb, 14 2g.20gb, 15 1g.20gb, 19 1g.10gb.
  for (const std::vector<unsigned int>& geometry : {std::vector<unsigned int>{0},
                                                    {5, 9},
                                                    {5, 14, 19},
                                                    {9, 9},
                                                    {14, 14, 14, 19},
                                                    {15, 15, 15, 15},
                                                    {19, 19, 19, 19, 19, 19, 19},
                                                    {14, 9, 19, 19}}) {
    std::vector<void*> instances;
    for (const unsigned int profile : geometry) {
      instances.push_back(nullptr);
      EXPECT_EQ(kSuccess, Create(profile, &instances.back())) << profile;
    }
    void* more = nullptr;
    EXPECT_EQ(kInsufficientResources, Create(0, &more));
    EXPECT_EQ(kInsufficientResources, Create(9, &more));
    for (void* instance : instances) EXPECT_EQ(kSuccess, Call("nvmlGpuInstanceDestroy", instance));
    EXPECT_EQ(7u, Remaining(19));
    EXPECT_EQ(1u, Remaining(0));
  }
  void* no = nullptr;
  EXPECT_EQ(kInvalidArgument, Create(77, &no));
}

TEST_F(SimNvmlTest, AnInstanceIsInUseWhileThereAreComputeInstancesInIt) {
  Start(MigCard("h100-80"));
  void* instance = nullptr;
  ASSERT_EQ(kSuccess, Create(9, &instance));  // 3g.40gb
  EXPECT_EQ(5u, Remaining(19) + 2u) << "slices 4, 5 and 6 are left";
  void* computes[3] = {};
  ASSERT_EQ(kSuccess, Call("nvmlGpuInstanceCreateComputeInstance", instance, 0u, &computes[0]));
  ASSERT_EQ(kSuccess, Call("nvmlGpuInstanceCreateComputeInstance", instance, 1u, &computes[1]));
  EXPECT_EQ(kInsufficientResources,
            Call("nvmlGpuInstanceCreateComputeInstance", instance, 0u, &computes[2]));
  ComputeInstanceInfo info{};
  ASSERT_EQ(kSuccess, Call("nvmlComputeInstanceGetInfo_v2", computes[1], &info));
  EXPECT_EQ(instance, info.gpu_instance);
  EXPECT_EQ(1u, info.placement.start);
  EXPECT_EQ(2u, info.placement.size);
  EXPECT_EQ(kInUse, Call("nvmlGpuInstanceDestroy", instance));

  // Each of them is a MIG device, with a name by which it is found.
  void* devices[2] = {};
  char uuids[2][96] = {};
  for (unsigned int i = 0; i < 2; ++i) {
    ASSERT_EQ(kSuccess, Call("nvmlDeviceGetMigDeviceHandleByIndex", card_, i, &devices[i]));
    ASSERT_EQ(kSuccess, Call("nvmlDeviceGetUUID", devices[i], uuids[i], 96u));
    void *again = nullptr, *parent = nullptr;
    EXPECT_EQ(kSuccess,
              Call("nvmlDeviceGetHandleByUUID", static_cast<const char*>(uuids[i]), &again));
    EXPECT_EQ(devices[i], again);
    unsigned int id = 99;
    EXPECT_EQ(kSuccess, Call("nvmlDeviceGetComputeInstanceId", devices[i], &id));
    EXPECT_EQ(i, id);
    EXPECT_EQ(kSuccess, Call("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", devices[i], &parent));
    EXPECT_EQ(card_, parent);
  }
  EXPECT_STRNE(uuids[0], uuids[1]);
  void* third = nullptr;
  EXPECT_EQ(kNotFound, Call("nvmlDeviceGetMigDeviceHandleByIndex", card_, 2u, &third));

  for (int i = 0; i < 2; ++i) ASSERT_EQ(kSuccess, Call("nvmlComputeInstanceDestroy", computes[i]));
  EXPECT_EQ(kInvalidArgument, Call("nvmlComputeInstanceDestroy", computes[0])) << "it is gone";
  EXPECT_EQ(kInvalidArgument, Call("nvmlDeviceGetUUID", devices[0], uuids[0], 96u));
  ASSERT_EQ(kSuccess, Call("nvmlGpuInstanceDestroy", instance));
  GpuInstanceInfo gone{};
  EXPECT_EQ(kInvalidArgument, Call("nvmlGpuInstanceGetInfo", instance, &gone));
  void* other = nullptr;
  ASSERT_EQ(kSuccess, Create(9, &other));
  EXPECT_NE(instance, other) << "an old handle does not mean the new one";
}

TEST_F(SimNvmlTest, WithoutMigModeOrWithoutMigThereAreNoInstances) {
  DeviceOptions off = MigCard("a30");
  off.mig = false;
  Start(off);
  void* instance = nullptr;
  unsigned int count = 99;
  EXPECT_EQ(kNotSupported, Create(14, &instance));
  EXPECT_EQ(kSuccess, Call("nvmlDeviceGetMaxMigDeviceCount", card_, &count));
  EXPECT_EQ(0u, count);
  Device* device = *Device::Open(temp_->path());
  ASSERT_TRUE(SetMigMode(device, true));
  ASSERT_EQ(kSuccess, Create(14, &instance));
  EXPECT_FALSE(SetMigMode(device, false)) << "while there are instances";
  ASSERT_EQ(kSuccess, Call("nvmlGpuInstanceDestroy", instance));
  EXPECT_TRUE(SetMigMode(device, false));
}

TEST_F(SimNvmlTest, WhoIsKilledWhileMakingInstancesLeavesWholeOnes) {
  Start(MigCard("h200"));
  for (int round = 0; round < 20; ++round) {
    const pid_t pid = fork();
    if (pid == 0) {
      while (true) {
        for (const unsigned int profile : {19u, 14u, 9u}) {
          void *instance = nullptr, *compute = nullptr;
          if (Create(profile, &instance) != kSuccess) continue;
          const unsigned int whole = profile == 19 ? 0 : profile == 14 ? 1 : 2;
          Call("nvmlGpuInstanceCreateComputeInstance", instance, whole, &compute);
          if (profile != 14) continue;
          Call("nvmlComputeInstanceDestroy", compute);
          Call("nvmlGpuInstanceDestroy", instance);
        }
      }
    }
    usleep(static_cast<useconds_t>(500 + 300 * round));
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    unsigned int taken = 0;
    for (const unsigned int profile : {0u, 5u, 9u, 14u, 15u, 19u, 20u}) {
      void* instances[16] = {};
      unsigned int count = 16;
      ASSERT_EQ(kSuccess, Call("nvmlDeviceGetGpuInstances", card_, profile,
                               static_cast<void**>(instances), &count));
      for (unsigned int i = 0; i < count; ++i) {
        GpuInstanceInfo info{};
        ASSERT_EQ(kSuccess, Call("nvmlGpuInstanceGetInfo", instances[i], &info));
        const unsigned int slots = ((1u << info.placement.size) - 1) << info.placement.start;
        EXPECT_EQ(0u, taken & slots) << "one over another";
        taken |= slots;
        for (unsigned int c = 0; c < 5; ++c) {
          void* computes[8] = {};
          unsigned int found = 8;
          if (Call("nvmlGpuInstanceGetComputeInstances", instances[i], c,
                   static_cast<void**>(computes), &found) != kSuccess) {
            continue;
          }
          for (unsigned int d = 0; d < found; ++d) {
            EXPECT_EQ(kSuccess, Call("nvmlComputeInstanceDestroy", computes[d]));
          }
        }
        EXPECT_EQ(kSuccess, Call("nvmlGpuInstanceDestroy", instances[i]));
      }
    }
  }
}

// NCCL looks these up without a version, and calls what it did not find.
TEST_F(SimNvmlTest, HasWhatNcclAsksFor) {
  Start(OptionsFor(*FindModel("l40s")));
  unsigned int count = 0, index = 7, status = 7;
  EXPECT_EQ(kSuccess, Call("nvmlDeviceGetCount", &count));
  EXPECT_EQ(count, 1u);
  void* card = nullptr;
  for (const char* bus : {"0000:01:00.0", "00000000:01:00.0"}) {
    for (const char* name : {"nvmlDeviceGetHandleByPciBusId", "nvmlDeviceGetHandleByPciBusId_v2"}) {
      EXPECT_EQ(kSuccess, Call(name, bus, &card)) << name;
      EXPECT_EQ(card, card_);
    }
  }
  EXPECT_EQ(kNotFound, Call("nvmlDeviceGetHandleByPciBusId", "0000:02:00.0", &card));
  EXPECT_EQ(kSuccess, Call("nvmlDeviceGetIndex", card_, &index));
  EXPECT_EQ(index, 0u);
  for (unsigned int what = 0; what <= 4; ++what) {
    EXPECT_EQ(kSuccess, Call("nvmlDeviceGetP2PStatus", card_, card_, what, &status));
    EXPECT_EQ(status, 0u);
  }
  int major = 0, minor = -1;
  EXPECT_EQ(kSuccess, Call("nvmlDeviceGetCudaComputeCapability", card_, &major, &minor));
  EXPECT_EQ(major, 9);
  EXPECT_EQ(minor, 0);
}

// What is wrong with a question is said as by NVIDIA's library; samples that are too close together
// make no number.
TEST_F(SimNvmlTest, PerformanceMetricsAreOfTwoSamplesOfOneInstance) {
  struct Support {
    unsigned int version, supported;
  };
  struct Metric {
    unsigned int id;
    int result;
    double value;
    char* texts[3];
  };
  struct Metrics {
    unsigned int version, count;
    void *one, *other;
    Metric metrics[333];
  };
  constexpr int kVersionMismatch = 25;
  Start(MigCard("h100-80"));
  Support support{2, 0};
  EXPECT_EQ(kVersionMismatch, Call("nvmlGpmQueryDeviceSupport", card_, &support));
  support.version = 1;
  EXPECT_EQ(kSuccess, Call("nvmlGpmQueryDeviceSupport", card_, &support));
  EXPECT_EQ(support.supported, 1u);
  void *instance = nullptr, *samples[3] = {};
  ASSERT_EQ(kSuccess, Create(19, &instance));
  GpuInstanceInfo info{};
  ASSERT_EQ(kSuccess, Call("nvmlGpuInstanceGetInfo", instance, &info));
  for (void*& sample : samples) ASSERT_EQ(kSuccess, Call("nvmlGpmSampleAlloc", &sample));
  EXPECT_EQ(kNotFound, Call("nvmlGpmMigSampleGet", card_, info.id + 1, samples[0]));
  EXPECT_EQ(kInvalidArgument, Call("nvmlGpmMigSampleGet", card_, info.id, card_));
  ASSERT_EQ(kSuccess, Call("nvmlGpmMigSampleGet", card_, info.id, samples[0]));
  ASSERT_EQ(kSuccess, Call("nvmlGpmMigSampleGet", card_, info.id, samples[1]));
  auto metrics = std::make_unique<Metrics>();
  *metrics = {1, 2, samples[0], samples[2], {}};
  metrics->metrics[0].id = 2;
  metrics->metrics[1].id = 20;  // PCIe, which the simulated card does not know
  EXPECT_EQ(kInvalidArgument, Call("nvmlGpmMetricsGet", metrics.get())) << "nothing is in it";
  metrics->other = samples[1];
  EXPECT_EQ(kSuccess, Call("nvmlGpmMetricsGet", metrics.get()));
  EXPECT_EQ(metrics->metrics[0].result, kSuccess);
  EXPECT_EQ(metrics->metrics[1].result, kNotSupported);
  usleep(110'000);
  ASSERT_EQ(kSuccess, Call("nvmlGpmMigSampleGet", card_, info.id, samples[1]));
  EXPECT_EQ(kSuccess, Call("nvmlGpmMetricsGet", metrics.get()));
  EXPECT_EQ(metrics->metrics[0].value, 0);
  metrics->one = samples[1];
  EXPECT_EQ(kSuccess, Call("nvmlGpmMetricsGet", metrics.get()));
  EXPECT_TRUE(std::isnan(metrics->metrics[0].value));
  metrics->version = 2;
  EXPECT_EQ(kVersionMismatch, Call("nvmlGpmMetricsGet", metrics.get()));
  for (void* sample : samples) EXPECT_EQ(kSuccess, Call("nvmlGpmSampleFree", sample));
  EXPECT_EQ(kInvalidArgument, Call("nvmlGpmSampleFree", samples[0]));
}

TEST_F(SimNvmlTest, InjectedErrorsEndWhenTheyAreUsedUpOrCleared) {
  Start(OptionsFor(*FindModel("l40s")));
  Device* device = *Device::Open(temp_->path());
  ASSERT_TRUE(AddFailure(device, {"nvmlDeviceGetUUID", 999, 2}));
  char uuid[96];
  EXPECT_EQ(999, Call("nvmlDeviceGetUUID", card_, static_cast<char*>(uuid), 96u));
  EXPECT_EQ(999, Call("nvmlDeviceGetUUID", card_, static_cast<char*>(uuid), 96u));
  EXPECT_EQ(kSuccess, Call("nvmlDeviceGetUUID", card_, static_cast<char*>(uuid), 96u));
  ASSERT_TRUE(AddFailure(device, {"*", 3}));
  unsigned int index = 0;
  EXPECT_EQ(3, Call("nvmlDeviceGetIndex", card_, &index));
  EXPECT_EQ(3, Call("nvmlDeviceGetCount_v2", &index));
  ClearFailures(device);
  EXPECT_EQ(kSuccess, Call("nvmlDeviceGetIndex", card_, &index));
  for (int i = 0; i < kMaxFailures; ++i) EXPECT_TRUE(AddFailure(device, {"x", 1}));
  EXPECT_FALSE(AddFailure(device, {"x", 1}));
  EXPECT_EQ(15, *NvmlCode("GPU_IS_LOST"));
  EXPECT_EQ(15, *NvmlCode("NVML_ERROR_GPU_IS_LOST"));
  EXPECT_EQ(15, *NvmlCode("15"));
  EXPECT_FALSE(NvmlCode("LOST"));
}

}  // namespace
}  // namespace baton::sim
