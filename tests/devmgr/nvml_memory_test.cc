// Memory caps that the driver holds for a cgroup, as NVML sets them: here the simulated one, with a
// group's limits in a folder.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "base/file.h"
#include "devmgr/machine/nvml.h"
#include "sim/card.h"
#include "tests/temp_folder.h"

namespace baton::devmgr {
namespace {

class NvmlMemory : public testing::Test {
 protected:
  NvmlMemory() {
    std::string list;
    for (int i = 0; i < 2; ++i) {
      sim::DeviceOptions options = sim::OptionsFor(*sim::FindModel("h200"));
      options.records = 16;
      const std::string path = folder_ / std::to_string(i);
      auto made = sim::CreateDeviceFile(path, options);
      if (!made) throw std::runtime_error(made.error().message);
      devices_.push_back(*sim::Device::Open(path));
      list += (list.empty() ? "" : ":") + path;
    }
    setenv("BATON_SIM_DEVICES", list.c_str(), 1);
    const char* library = getenv("BATON_SIM_LIB");
    nvml_ =
        Nvml::Load(std::string(library != nullptr ? library : "lib/sim") + "/libnvidia-ml.so.1");
    std::filesystem::create_directory(group_);
  }
  Result<void> Cap(size_t card, uint64_t bytes) {
    return nvml_->CapMemory(sim::FormatUuid(devices_[card]->file().uuid), group_, bytes);
  }
  std::string Limits(const char* file) const { return *ReadFile(group_ + file, 4096); }

  const MemoryFolder folder_;
  const std::string group_ = folder_ / "docker-1.scope";
  std::vector<sim::Device*> devices_;
  std::unique_ptr<Nvml> nvml_;
};

TEST_F(NvmlMemory, TheDriversCapIsSetForAGroupAndTakenAway) {
  ASSERT_TRUE(nvml_->CapsMemory());
  // The kernel does not count this group's memory.
  EXPECT_EQ(Cap(0, 1 << 30).error().code, ErrorCode::kNotFound);
  for (const char* file : {"/dmem.max", "/dmem.min"}) std::ofstream(group_ + file) << "";
  ASSERT_TRUE(Cap(0, 1 << 30));
  ASSERT_TRUE(Cap(1, 1 << 29));
  EXPECT_EQ(Limits("/dmem.max"), "0000:01:00.0 1073741824\n0000:02:00.0 536870912\n");
  // Nothing is guaranteed, so nothing above the group has to change when it goes.
  EXPECT_EQ(Limits("/dmem.min"), "0000:01:00.0 0\n0000:02:00.0 0\n");
  ASSERT_TRUE(Cap(0, 0));
  EXPECT_EQ(Limits("/dmem.max"), "0000:02:00.0 536870912\n0000:01:00.0 max\n");
}

TEST_F(NvmlMemory, ADriverThatCannotIsNamedInOneSentence) {
  ASSERT_TRUE(sim::AddFailure(
      devices_[0], {"nvmlDeviceSetMemoryLimits_v1", *sim::NvmlCode("NOT_SUPPORTED"), UINT32_MAX}));
  const auto refused = Cap(0, 1 << 30);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalid);
  EXPECT_EQ(refused.error().message.find('\n'), std::string::npos);
  const auto old = Nvml::Load(OLD_NVML);
  EXPECT_FALSE(old->CapsMemory());
  EXPECT_EQ(old->CapMemory("GPU-old", group_, 1 << 30).error().code, ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace baton::devmgr
