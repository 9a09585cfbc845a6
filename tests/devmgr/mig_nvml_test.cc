// The MIG driver on NVML, here the simulated one: what the templates promise is what NVML makes.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>

#include "devmgr/machine/mig_driver.h"
#include "devmgr/machine/nvml.h"
#include "sim/card.h"
#include "tests/devmgr/card_use.h"
#include "tests/devmgr/mig_table.h"
#include "tests/temp_folder.h"

namespace baton::devmgr {
namespace {

class MigOnNvml : public testing::Test {
 protected:
  // All models that have templates, one GPU each, with MIG on.
  void AddCards() {
    std::string list;
    for (const DocumentedModel& documented : DocumentedModels()) {
      const auto model = std::find_if(sim::Models().begin(), sim::Models().end(),
                                      [&](const auto& m) { return m.name == documented.name; });
      if (model == sim::Models().end()) throw std::runtime_error(documented.name);
      sim::DeviceOptions options = sim::OptionsFor(*model);
      options.records = 16;
      const std::string path = folder_ / std::to_string(devices_.size());
      auto made = sim::CreateDeviceFile(path, options);
      if (!made) throw std::runtime_error(made.error().message);
      devices_.push_back(*sim::Device::Open(path));
      const auto on = sim::SetMigMode(devices_.back(), true);
      if (!on) throw std::runtime_error(on.error().message);
      list += (list.empty() ? "" : ":") + path;
    }
    setenv("BATON_SIM_DEVICES", list.c_str(), 1);
    const char* library = getenv("BATON_SIM_LIB");
    nvml_ =
        Nvml::Load(std::string(library != nullptr ? library : "lib/sim") + "/libnvidia-ml.so.1");
  }
  std::vector<Card> Look() {
    std::vector<std::string> complaints;
    const auto node = nvml_->Look("n", &complaints);
    if (!node) throw std::runtime_error(node.error().message);
    return node->cards;
  }

  const MemoryFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path();
  std::vector<sim::Device*> devices_;
  std::unique_ptr<Nvml> nvml_;
};

TEST_F(MigOnNvml, EveryGroupOfEveryModelIsMadeAsItIsPromised) {
  AddCards();
  ASSERT_TRUE(nvml_->available()) << nvml_->why();
  FileMarks marks(folder_ / "marks");
  const MigMode mode;
  MigDriver driver(*nvml_, marks, mode);
  size_t groups = 0;
  for (const Card& card : Look()) {
    ASSERT_TRUE(mode.Serves(card)) << card.model;
    const MigModel& model = *mode.templates().Find(card.model);
    for (const MigGroup& group : model.groups) {
      ++groups;
      // The last parts first: the order is of no matter.
      std::vector<DeviceDriver::Vgpu> vgpus;
      CardUse use;
      for (size_t i = group.parts.size(); i-- > 0;) {
        const MigProfile& profile = model.profiles[group.parts[i].profile];
        const uint32_t slot = group.id << 8 | group.parts[i].start;
        const auto fit = mode.FitAt(card, use, {profile.share, profile.memory_mib}, slot);
        ASSERT_TRUE(fit) << model.Describe(group);
        Add(use, *fit);
        DeviceDriver::Vgpu vgpu{"v" + std::to_string(i), card.uuid, *fit, ""};
        const auto device = driver.Create(card, vgpu);
        ASSERT_TRUE(device) << model.Describe(group) << ": " << device.error().message;
        vgpu.device = *device;
        vgpus.push_back(vgpu);
      }
      const auto instances = nvml_->Instances(card.uuid);
      ASSERT_TRUE(instances);
      ASSERT_EQ(instances->size(), group.parts.size());
      for (const MigInstance& instance : *instances) {
        const auto vgpu = std::find_if(vgpus.begin(), vgpus.end(),
                                       [&](const auto& v) { return v.device == instance.uuid; });
        ASSERT_NE(vgpu, vgpus.end());
        const auto part = mode.PartOf(card, vgpu->fit.slot);
        EXPECT_EQ(instance.profile, part->profile);
        EXPECT_EQ(instance.start, part->start);
        EXPECT_EQ(instance.slices, part->slices);
      }
      for (const DeviceDriver::Vgpu& vgpu : vgpus) ASSERT_TRUE(driver.Destroy(card, vgpu));
      ASSERT_TRUE(nvml_->Instances(card.uuid)->empty());
    }
  }
  EXPECT_EQ(groups, 184u);
}

TEST_F(MigOnNvml, WhatAnotherBatondLeftIsPutRightAndWhatOthersMadeStays) {
  AddCards();
  const MigMode mode;
  const Card before = Look()[2];
  FileMarks marks(folder_ / "marks");
  // Somebody's own, made before.
  const auto others = nvml_->Create(before.uuid, "3g.40gb", 4);
  ASSERT_TRUE(others) << others.error().message;
  const Card card = Look()[2];
  std::vector<DeviceDriver::Vgpu> known;
  {
    MigDriver driver(*nvml_, marks, mode);
    CardUse use;
    for (int i = 0; i < 3; ++i) {
      const auto fit = mode.TryFit(card, use, {policy::Share(140'000), 0});
      ASSERT_TRUE(fit);
      Add(use, *fit);
      known.push_back({"v" + std::to_string(i), card.uuid, *fit, ""});
      const auto device = driver.Create(card, known.back());
      ASSERT_TRUE(device) << device.error().message;
      known.back().device = *device;
    }
  }
  // v0 was not recorded, v1's instance is gone, v2 is not known any more.
  known[0].device.clear();
  const auto made = nvml_->Instances(card.uuid);
  ASSERT_TRUE(made);
  for (const MigInstance& instance : *made) {
    if (instance.uuid == known[1].device) {
      ASSERT_TRUE(nvml_->Destroy(card.uuid, instance.id));
    }
  }
  known.pop_back();
  MigDriver driver(*nvml_, marks, mode);
  const auto done = driver.Reconcile(Look()[2], known);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(done->size(), 3u);
  const auto instances = nvml_->Instances(card.uuid);
  ASSERT_TRUE(instances);
  std::vector<std::string> uuids;
  for (const MigInstance& instance : *instances) uuids.push_back(instance.uuid);
  EXPECT_EQ(uuids, (std::vector<std::string>{known[0].device, known[1].device, others->uuid}));
  EXPECT_TRUE(driver.Reconcile(Look()[2], known)->empty());
}

TEST_F(MigOnNvml, AnNvmlThatFailsOrAGpuThatVanishesIsOneSentenceAndNothingIsLost) {
  AddCards();
  FileMarks marks(folder_ / "marks");
  const MigMode mode;
  MigDriver driver(*nvml_, marks, mode);
  const Card card = Look()[3];
  const auto fit = mode.TryFit(card, {}, {policy::Share(400'000), 0});
  ASSERT_TRUE(fit);
  DeviceDriver::Vgpu vgpu{"v", card.uuid, *fit, ""};
  // The second half of making an instance fails once.
  ASSERT_TRUE(sim::AddFailure(
      devices_[3], {"nvmlGpuInstanceCreateComputeInstance", *sim::NvmlCode("UNKNOWN"), 1}));
  const auto failed = driver.Create(card, vgpu);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().message.find('\n'), std::string::npos);
  EXPECT_TRUE(failed.error().message.starts_with("cannot make 3g.71gb at slice 0 of " + card.uuid))
      << failed.error().message;
  ASSERT_TRUE(nvml_->Instances(card.uuid)->empty());
  auto device = driver.Create(card, vgpu);
  ASSERT_TRUE(device) << device.error().message;
  vgpu.device = *device;

  sim::SetPresence(devices_[3], sim::Presence::kLost);
  const auto lost = driver.Destroy(card, vgpu);
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().code, ErrorCode::kUnavailable) << lost.error().message;
  EXPECT_EQ(marks.Of(card.uuid)->size(), 1u);
  sim::SetPresence(devices_[3], sim::Presence::kPresent);
  ASSERT_TRUE(driver.Destroy(card, vgpu));
  EXPECT_TRUE(nvml_->Instances(card.uuid)->empty());
}

}  // namespace
}  // namespace baton::devmgr
