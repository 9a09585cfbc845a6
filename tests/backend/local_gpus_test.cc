// Which GPUs of its machine a batond manages, and by what names.
#include "backend/local_gpus.h"

#include <gtest/gtest.h>

#include <cstring>

#include "devmgr/machine/nvml_api.h"

namespace baton::backend {
namespace {

// An NVML that lists one GPU.
std::unique_ptr<devmgr::Nvml> NvmlOfOneGpu() {
  using namespace devmgr::nvml;  // NOLINT: its records
  static int card = 0;
  Api api;
  api.init = [] { return kSuccess; };
  api.count = [](unsigned* count) {
    *count = 1;
    return kSuccess;
  };
  api.by_index = [](unsigned, Device* device) {
    *device = &card;
    return kSuccess;
  };
  api.by_uuid = [](const char*, Device* device) {
    *device = &card;
    return kSuccess;
  };
  api.uuid = [](Device, char* text, unsigned size) {
    std::strncpy(text, "GPU-a", size);
    return kSuccess;
  };
  api.name = [](Device, char* text, unsigned size) {
    std::strncpy(text, "NVIDIA H200", size);
    return kSuccess;
  };
  return Use(api);
}

TEST(LocalGpus, OneThatIsConfiguredByItsUuidHasTheNameThatNvmlSays) {
  const auto nvml = NvmlOfOneGpu();
  config::Options options;
  ASSERT_EQ(LocalGpus(options, *nvml).size(), 1u);
  options.gpus = {{"GPU-a", "", 16}, {"GPU-b", "", 16}};
  const auto gpus = LocalGpus(options, *nvml);
  ASSERT_EQ(gpus.size(), 2u);
  EXPECT_EQ(gpus[0].name, "NVIDIA H200");
  EXPECT_EQ(gpus[0].memory_bytes, 16u) << "as the file says";
  EXPECT_EQ(gpus[1].name, "") << "NVML does not know it";
  options.gpus = {{"GPU-a", "mine", 16}};
  EXPECT_EQ(LocalGpus(options, *nvml)[0].name, "mine");
}

}  // namespace
}  // namespace baton::backend
