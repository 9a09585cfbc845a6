// Real images on the simulated GPU: PTX, cubins and fat binaries, made by hand and by nvcc.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "sim/record.h"
#include "tests/gpu_image.h"
#include "tests/sim/in_child.h"
#include "tests/sim/temp_device.h"

namespace baton::sim {
namespace {

using namespace gpu_image;

constexpr char kPtx[] = R"(.version 8.0
.target sm_80
.address_size 64
.visible .global .align 4 .b8 state[4096];
.visible .entry slow(.param .u64 .ptr .align 4 to, .param .u8 few,
                     .param .align 8 .b8 wide[12], .param .f32 f)
{ ret; }
.entry quick
{ ret; }
)";
constexpr char kNameOfAdd[] = "_Z3AddIfEvPT_4Widej";

// What a program sees of the kernels and variables in an image.
struct Seen {
  CUresult loaded = CUDA_SUCCESS;
  CUmodule module = nullptr;

  explicit Seen(const void* image) {
    CUdevice device;
    CUcontext context;
    if ((loaded = SIM(cuInit)(0)) != CUDA_SUCCESS ||
        (loaded = SIM(cuDeviceGet)(&device, 0)) != CUDA_SUCCESS ||
        (loaded = SIM(cuDevicePrimaryCtxRetain)(&context, device)) != CUDA_SUCCESS ||
        (loaded = SIM(cuCtxSetCurrent)(context)) != CUDA_SUCCESS) {
      return;
    }
    loaded = SIM(cuModuleLoadData)(&module, image);
  }
  CUfunction Function(const char* name) const {
    CUfunction function = nullptr;
    return SIM(cuModuleGetFunction)(&function, module, name) == CUDA_SUCCESS ? function : nullptr;
  }
  // "0+8 8+1 ...": offsets and sizes.
  std::string Params(const char* name) const {
    using Info = CUresult(CUfunction, size_t, size_t*, size_t*);
    auto* const info =
        reinterpret_cast<Info*>(dlsym(Library("libcuda.so.1"), "cuFuncGetParamInfo"));
    std::string all;
    size_t offset = 0, size = 0;
    for (size_t i = 0; info(Function(name), i, &offset, &size) == CUDA_SUCCESS; ++i) {
      all += (i == 0 ? "" : " ") + std::to_string(offset) + "+" + std::to_string(size);
    }
    return all;
  }
  size_t Variable(const char* name) const {
    CUdeviceptr at = 0;
    size_t bytes = 0;
    const CUresult r = SIM(cuModuleGetGlobal)(&at, &bytes, module, name);
    return r == CUDA_SUCCESS && at != 0 ? bytes : 0;
  }
  CUresult Launch(const char* name, void** params = nullptr) const {
    if (const CUresult r =
            SIM(cuLaunchKernel)(Function(name), 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr)) {
      return r;
    }
    return SIM(cuCtxSynchronize)();
  }
};

std::string File(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

class RealImage : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(nullptr, Library("libcuda.so.1")) << dlerror();
    setenv("BATON_SIM_DEVICES", temp_.path().c_str(), 1);
    setenv("BATON_SIM_KERNELS", (folder_ / "kernels").c_str(), 1);
    setenv("BATON_SIM_KERNEL_NS", "5000", 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    std::ofstream(folder_ / "kernels") << "slow 70000\n3Add 90000\nlow 1\n";
  }
  using Runs = std::vector<std::pair<std::string, int64_t>>;
  // How long the kernels took, in the order of their ends.
  Runs Ran() const {
    Runs all;
    const auto records = ReadRecords(temp_.path());
    for (const KernelRecord& record : *records) all.emplace_back(record.name, record.busy_ns);
    return all;
  }
  const TempDevice temp_;
  const TempFolder folder_;
};

TEST_F(RealImage, PtxHasItsKernelsParametersAndVariables) {
  EXPECT_EQ(InChild([] {
              const Seen seen(kPtx);
              if (seen.loaded != CUDA_SUCCESS) return 1;
              if (seen.Params("slow") != "0+8 8+1 16+12 28+4" || !seen.Params("quick").empty()) {
                return 2;
              }
              if (seen.Variable("state") != 4096 || seen.Variable("other") != 0) return 3;
              if (seen.Function("absent") != nullptr) return 4;
              CUdeviceptr to = 0;
              char few = 0, wide[12] = {};
              float f = 0;
              void* params[] = {&to, &few, wide, &f};
              if (seen.Launch("slow", params) != CUDA_SUCCESS) return 5;
              return static_cast<int>(seen.Launch("quick"));
            }),
            0);
  EXPECT_EQ(Ran(), (Runs{{"slow", 70000}, {"quick", 5000}}));
}

TEST_F(RealImage, AFatBinaryIsUnpackedAndWhatCannotBeIsTakenToBeThere) {
  EXPECT_EQ(InChild([] {
              std::string parts;
              AddPart(parts, 1, PackedByZstd(kPtx), 0x8000, sizeof(kPtx) - 1);
              AddPart(parts, 1, Packed(kPtx), 0x2000, sizeof(kPtx) - 1);
              const Seen seen(Fat(parts).data());
              if (seen.loaded != CUDA_SUCCESS || seen.Function("absent") != nullptr) return 1;
              if (seen.Launch("quick") != CUDA_SUCCESS || seen.Variable("state") != 4096) return 2;
              std::string broken;
              AddPart(broken, 1, "not packed", 0x8000, 1000);
              const Seen any(Fat(broken).data());
              return static_cast<int>(any.Launch("anything"));
            }),
            0);
  EXPECT_EQ(Ran(), (Runs{{"quick", 5000}, {"anything", 5000}}));
}

TEST_F(RealImage, VariablesHaveMemoryAgainAfterAReset) {
  EXPECT_EQ(InChild([] {
              Seen seen(kPtx);
              CUdevice device = 0;
              CUcontext before = nullptr, after = nullptr;
              if (seen.Variable("state") != 4096 || SIM(cuCtxGetCurrent)(&before) != CUDA_SUCCESS ||
                  SIM(cuDevicePrimaryCtxReset)(device) != CUDA_SUCCESS ||
                  SIM(cuDevicePrimaryCtxRetain)(&after, device) != CUDA_SUCCESS ||
                  SIM(cuCtxSetCurrent)(after) != CUDA_SUCCESS) {
                return 1;
              }
              // As on a real driver, which programs count on.
              if (before != after) return 2;
              return seen.Variable("state") == 4096 ? 0 : 3;
            }),
            0);
}

TEST_F(RealImage, WhatNvccMakesIsReadInEveryForm) {
  if (std::string(BATON_REAL_IMAGES).empty()) {
    GTEST_SKIP() << "no nvcc when this was built: set CUDA_HOME";
  }
  for (const char* form : {"ptx", "cubin", "fatbin"}) {
    const std::string image = File(std::string(BATON_REAL_IMAGES) + "/real." + form);
    ASSERT_FALSE(image.empty()) << form;
    EXPECT_EQ(InChild([&] {
                const Seen seen(image.c_str());
                if (seen.loaded != CUDA_SUCCESS) return 1;
                if (seen.Params(kNameOfAdd) != "0+8 8+20 28+4" || !seen.Params("plain").empty()) {
                  return 2;
                }
                if (seen.Variable("big") != 1 << 20) return 3;
                CUdeviceptr to = 0;
                char wide[20] = {};
                unsigned n = 0;
                void* params[] = {&to, wide, &n};
                if (seen.Launch(kNameOfAdd, params) != CUDA_SUCCESS) return 4;
                return static_cast<int>(seen.Launch("plain"));
              }),
              0)
        << form;
  }
  const Runs once = {{kNameOfAdd, 90000}, {"plain", 5000}};
  Runs thrice;
  for (int i = 0; i < 3; ++i) thrice.insert(thrice.end(), once.begin(), once.end());
  EXPECT_EQ(Ran(), thrice);
}

}  // namespace
}  // namespace baton::sim
