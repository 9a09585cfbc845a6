// NVML as it is met on a machine: by dlopen, here of the simulated library.
#include "devmgr/machine/nvml.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <thread>

#include "devmgr/machine/nvml_api.h"
#include "devmgr/machine/nvml_mig.h"
#include "sim/card.h"
#include "tests/temp_folder.h"

namespace baton::devmgr {
namespace {

using std::chrono::milliseconds;

std::string Library() {
  const char* directory = getenv("BATON_SIM_LIB");
  return std::string(directory != nullptr ? directory : "lib/sim") + "/libnvidia-ml.so.1";
}

bool OneLine(const std::string& text) {
  return !text.empty() && text.find('\n') == std::string::npos;
}

class NvmlTest : public testing::Test {
 protected:
  static sim::DeviceOptions Model(const std::string& key) {
    sim::DeviceOptions options = sim::OptionsFor(*sim::FindModel(key));
    options.records = 16;
    return options;
  }
  void Add(const sim::DeviceOptions& options) {
    const std::string path = folder_ / std::to_string(devices_.size());
    auto made = sim::CreateDeviceFile(path, options);
    if (!made) throw std::runtime_error(made.error().message);
    devices_.push_back(*sim::Device::Open(path));
    list_ += (list_.empty() ? "" : ":") + path;
    setenv("BATON_SIM_DEVICES", list_.c_str(), 1);
  }
  std::string Uuid(size_t card) const { return sim::FormatUuid(devices_[card]->file().uuid); }
  void FailCall(size_t card, const std::string& call, const std::string& code,
                uint32_t times = UINT32_MAX) {
    ASSERT_TRUE(sim::AddFailure(devices_[card], {call, *sim::NvmlCode(code), times}));
  }
  static Node Look(Nvml& nvml) {
    std::vector<std::string> complaints;
    auto node = nvml.Look("n", &complaints);
    if (!node) {
      ADD_FAILURE() << node.error().message;
      return {};
    }
    for (const std::string& complaint : complaints) ADD_FAILURE() << complaint;
    return *node;
  }

  std::vector<MigInstance> Instances(Nvml& nvml, size_t card) const {
    auto instances = nvml.Instances(Uuid(card));
    if (!instances) {
      ADD_FAILURE() << instances.error().message;
      return {};
    }
    return *instances;
  }

  const MemoryFolder folder_;
  std::string list_;
  std::vector<sim::Device*> devices_;
};

TEST_F(NvmlTest, EveryModelIsListedWithAllThatIsKnownOfIt) {
  for (const sim::Model& model : sim::Models()) {
    sim::DeviceOptions options = Model(model.key);
    options.numa = static_cast<int32_t>(devices_.size() % 2);
    Add(options);
  }
  const auto nvml = Nvml::Load(Library());
  ASSERT_TRUE(nvml->available()) << nvml->why();
  const Node node = Look(*nvml);
  EXPECT_EQ(node.name, "n");
  ASSERT_EQ(node.cards.size(), sim::Models().size());
  for (size_t i = 0; i < node.cards.size(); ++i) {
    const Card& card = node.cards[i];
    const sim::Model& model = sim::Models()[i];
    EXPECT_EQ(card.uuid, Uuid(i));
    EXPECT_EQ(card.vendor, "nvidia");
    EXPECT_EQ(card.model, model.name);
    EXPECT_EQ(card.memory_mib, model.memory_mib);
    EXPECT_EQ(card.numa, static_cast<int32_t>(i % 2));
    EXPECT_EQ(card.bus, "0000:0" + std::to_string(i + 1) + ":00.0");
    EXPECT_EQ(card.island, -1);
    EXPECT_EQ(card.pcie, -1);
    EXPECT_EQ(card.mig_capable, model.memory_slices > 0);
    EXPECT_FALSE(card.mig_enabled);
    EXPECT_EQ(card.health, Health::kHealthy) << card.why;
  }
  EXPECT_EQ(nvml->Gpus().size(), node.cards.size());
  EXPECT_TRUE(Differences(node, Look(*nvml)).empty());
}

TEST_F(NvmlTest, GpusOnOneSwitchOrOneBridgeAreAnIslandUntilALinkIsDown) {
  // Two boards of two with a switch each, a bridged pair, and one alone.
  for (int i = 0; i < 7; ++i) {
    sim::DeviceOptions options = Model(i < 6 ? "h100-80" : "l40s");
    options.bus = "0000:" + std::to_string(10 + i) + ":00.0";
    if (i < 4) options.links = {{true, i < 2 ? "0000:c1:00.0" : "0000:c2:00.0"}};
    if (i == 4) options.links = {{false, "0000:15:00.0"}};
    if (i == 5) options.links = {{false, "0000:14:00.0"}};
    options.pcie_switch = i == 4 || i == 6 ? "left" : i == 5 ? "right" : "";
    Add(options);
  }
  const auto nvml = Nvml::Load(Library());
  const auto islands = [&] {
    std::vector<int32_t> all;
    for (const Card& card : Look(*nvml).cards) all.push_back(card.island);
    return all;
  };
  EXPECT_EQ(islands(), (std::vector<int32_t>{0, 0, 1, 1, 2, 2, -1}));
  const Node before = Look(*nvml);
  EXPECT_EQ(before.cards[4].pcie, 0);
  EXPECT_EQ(before.cards[6].pcie, 0);
  EXPECT_EQ(before.cards[5].pcie, -1) << "alone on its switch";
  EXPECT_EQ(before.cards[0].pcie, -1);
  ASSERT_TRUE(sim::SetLink(devices_[0], 0, false));
  ASSERT_TRUE(sim::SetLink(devices_[4], 0, false));
  ASSERT_TRUE(sim::SetLink(devices_[5], 0, false));
  EXPECT_EQ(islands(), (std::vector<int32_t>{-1, 0, 1, 1, -1, -1, -1}));
  for (const InventoryEvent& event : Differences(before, Look(*nvml))) {
    EXPECT_EQ(event.kind, InventoryEvent::Kind::kChanged);
  }
}

TEST_F(NvmlTest, ALinkWhoseEndIsNotToldStillJoinsByP2pStatus) {
  for (int i = 0; i < 2; ++i) {
    sim::DeviceOptions options = Model("a100-80");
    options.links = {{true, "0000:c1:00.0"}};
    Add(options);
    FailCall(static_cast<size_t>(i), "nvmlDeviceGetNvLinkRemotePciInfo_v2", "NOT_SUPPORTED");
  }
  const Node node = Look(*Nvml::Load(Library()));
  EXPECT_EQ(node.cards[0].island, 0);
  EXPECT_EQ(node.cards[1].island, 0);
}

TEST_F(NvmlTest, EveryMigProfileIsMadeAtEachOfItsPlacesFoundAgainAndTakenAway) {
  for (const sim::Model& model : sim::Models()) {
    if (model.memory_slices == 0) continue;
    sim::DeviceOptions options = Model(model.key);
    options.mig = true;
    Add(options);
  }
  const auto nvml = Nvml::Load(Library());
  size_t card = 0;
  for (const sim::Model& model : sim::Models()) {
    if (model.memory_slices == 0) continue;
    const std::string uuid = Uuid(card++);
    for (const sim::MigProfile& profile : model.profiles) {
      for (const uint32_t start : profile.starts) {
        const std::string name = std::string(profile.name).substr(4);
        SCOPED_TRACE(std::string(model.key) + " " + name + " at " + std::to_string(start));
        auto made = nvml->Create(uuid, name, start);
        ASSERT_TRUE(made) << made.error().message;
        EXPECT_EQ(made->profile, name);
        EXPECT_EQ(made->start, start);
        EXPECT_EQ(made->slices, profile.size);
        EXPECT_EQ(made->uuid.substr(0, 4), "MIG-");
        EXPECT_EQ(*nvml->Instances(uuid), std::vector<MigInstance>{*made});
        ASSERT_TRUE(nvml->Destroy(uuid, made->id));
        EXPECT_TRUE(nvml->Instances(uuid)->empty());
      }
    }
  }
}

TEST_F(NvmlTest, NamesOfProfilesAreWorkedOutWhereAnOldLibraryDoesNotTellThem) {
  for (const sim::Model& model : sim::Models()) {
    if (model.memory_slices == 0) continue;
    sim::DeviceOptions options = Model(model.key);
    options.mig = true;
    Add(options);
    FailCall(devices_.size() - 1, "nvmlDeviceGetGpuInstanceProfileInfoV", "FUNCTION_NOT_FOUND");
  }
  const auto nvml = Nvml::Load(Library());
  size_t card = 0;
  for (const sim::Model& model : sim::Models()) {
    if (model.memory_slices == 0) continue;
    const std::string uuid = Uuid(card++);
    for (const sim::MigProfile& profile : model.profiles) {
      const auto made =
          nvml->Create(uuid, std::string(profile.name).substr(4), profile.starts.back());
      ASSERT_TRUE(made) << made.error().message;
      ASSERT_TRUE(nvml->Destroy(uuid, made->id));
    }
  }
}

TEST_F(NvmlTest, InstancesOutliveWhoMadeThemAndOtherProcessesSeeThem) {
  sim::DeviceOptions options = Model("h100-80");
  options.mig = true;
  Add(options);
  std::vector<MigInstance> made;
  {
    const auto nvml = Nvml::Load(Library());
    for (const auto& [profile, start] :
         {std::pair{"1g.10gb", 6u}, {"3g.40gb", 0u}, {"1g.20gb", 4u}}) {
      auto one = nvml->Create(Uuid(0), profile, start);
      ASSERT_TRUE(one) << one.error().message;
      made.push_back(*one);
    }
  }
  std::sort(made.begin(), made.end(), [](auto& a, auto& b) { return a.start < b.start; });
  const pid_t pid = fork();
  if (pid == 0) {
    const auto nvml = Nvml::Load(Library());
    const auto node = nvml->Look("n");
    if (!node || node->cards[0].instances != made) _exit(1);
    _exit(nvml->Destroy(Uuid(0), made[0].id) ? 0 : 2);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  made.erase(made.begin());
  const auto nvml = Nvml::Load(Library());
  const Node node = Look(*nvml);
  EXPECT_TRUE(node.cards[0].mig_enabled);
  EXPECT_EQ(node.cards[0].instances, made);
}

TEST_F(NvmlTest, WhatMigCannotGiveIsRefusedInOneLineAndLeavesNothing) {
  sim::DeviceOptions options = Model("a100-40");
  options.mig = true;
  Add(options);
  Add(Model("a100-40"));
  Add(Model("l40s"));
  const auto nvml = Nvml::Load(Library());
  const auto refused = [&](size_t card, const char* profile, uint32_t start, ErrorCode code,
                           const char* part) {
    SCOPED_TRACE(profile);
    const auto made = nvml->Create(Uuid(card), profile, start);
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().code, code) << made.error().message;
    EXPECT_NE(made.error().message.find(part), std::string::npos) << made.error().message;
    EXPECT_TRUE(OneLine(made.error().message));
  };
  refused(0, "1g.10gb+me", 0, ErrorCode::kInvalid, "it has 1g.5gb, 2g.10gb, 3g.20gb");
  refused(0, "2g.10gb", 1, ErrorCode::kInvalid, "it can at 0, 2, 4");
  refused(0, "1g.5gb", 7, ErrorCode::kInvalid, "it can at 0, 1, 2, 3, 4, 5, 6");
  refused(1, "1g.5gb", 0, ErrorCode::kInvalid, "MIG mode");
  refused(2, "1g.5gb", 0, ErrorCode::kInvalid, "MIG mode");
  const auto first = nvml->Create(Uuid(0), "3g.20gb", 0);
  ASSERT_TRUE(first);
  refused(0, "2g.10gb", 2, ErrorCode::kExhausted, "Insufficient Resources");
  ASSERT_TRUE(nvml->Create(Uuid(0), "1g.5gb+me", 4));
  refused(0, "1g.5gb+me", 5, ErrorCode::kExhausted, "the place is taken");
  EXPECT_EQ(nvml->Instances(Uuid(0))->size(), 2u);
  EXPECT_TRUE(nvml->Instances(Uuid(1))->empty());
  EXPECT_TRUE(nvml->Instances(Uuid(2))->empty());
  const auto unknown = nvml->Instances("GPU-00000000-0000-0000-0000-000000000000");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::kNotFound);
  EXPECT_TRUE(nvml->Destroy(Uuid(0), 12)) << "none is as good as gone";
  EXPECT_TRUE(nvml->Destroy(Uuid(1), 0));

  // What fails half way is taken back; where that fails too, it is said and seen.
  FailCall(0, "nvmlGpuInstanceCreateComputeInstance", "INSUFFICIENT_RESOURCES", 1);
  refused(0, "1g.5gb", 6, ErrorCode::kExhausted, "nvmlGpuInstanceCreateComputeInstance");
  EXPECT_EQ(nvml->Instances(Uuid(0))->size(), 2u);
  FailCall(0, "nvmlGpuInstanceCreateComputeInstance", "UNKNOWN", 1);
  FailCall(0, "nvmlGpuInstanceDestroy", "IN_USE", 1);
  refused(0, "1g.5gb", 6, ErrorCode::kInternal, "it is left over: nvmlGpuInstanceDestroy");
  const auto left = Instances(*nvml, 0);
  ASSERT_EQ(left.size(), 3u);
  EXPECT_EQ(left[2].uuid, "") << "it has no compute instance";
  EXPECT_TRUE(nvml->Destroy(Uuid(0), left[2].id));

  FailCall(0, "nvmlComputeInstanceDestroy", "IN_USE", 1);
  const auto busy = nvml->Destroy(Uuid(0), first->id);
  ASSERT_FALSE(busy);
  EXPECT_EQ(busy.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(nvml->Instances(Uuid(0))->size(), 2u);
  EXPECT_TRUE(nvml->Destroy(Uuid(0), first->id));
  FailCall(0, "nvmlDeviceGetGpuInstances", "NO_PERMISSION");
  const Node node = Look(*nvml);
  EXPECT_EQ(node.cards[0].health, Health::kFailed);
  EXPECT_NE(node.cards[0].why.find("run batond as root"), std::string::npos) << node.cards[0].why;
}

TEST_F(NvmlTest, EccErrorsAndAFailedRemapFailAGpuUntilTheyAreGone) {
  Add(Model("a100-80"));
  const auto nvml = Nvml::Load(Library());
  const Node before = Look(*nvml);
  sim::SetEccErrors(devices_[0], 10, 0);
  sim::SetRowRemap(devices_[0], true, false);
  EXPECT_TRUE(Differences(before, Look(*nvml)).empty()) << "corrected, or contained till a reset";
  sim::SetEccErrors(devices_[0], 0, 3);
  Node node = Look(*nvml);
  EXPECT_EQ(node.cards[0].health, Health::kFailed);
  EXPECT_EQ(node.cards[0].why,
            "3 uncorrected ECC errors since the driver was loaded; reset the GPU "
            "(nvidia-smi --gpu-reset)");
  sim::SetEccErrors(devices_[0], 0, 0);
  sim::SetRowRemap(devices_[0], false, true);
  node = Look(*nvml);
  EXPECT_EQ(node.cards[0].health, Health::kFailed);
  EXPECT_NE(node.cards[0].why.find("remapped"), std::string::npos);
  sim::SetRowRemap(devices_[0], false, false);
  EXPECT_TRUE(Differences(before, Look(*nvml)).empty());
}

TEST_F(NvmlTest, ACriticalXidFailsAGpuAndAnApplicationsDoesNot) {
  Add(Model("h200"));
  Add(Model("h200"));
  const auto nvml = Nvml::Load(Library());
  const Node before = Look(*nvml);
  ASSERT_TRUE(nvml->Wait(milliseconds(0)));
  sim::RaiseXid(devices_[1], 31);
  auto news = nvml->Wait(milliseconds(500));
  ASSERT_TRUE(news && *news) << "the event is told";
  EXPECT_EQ((*news)->uuid, Uuid(1));
  EXPECT_EQ((*news)->xid, 31u);
  EXPECT_FALSE((*news)->fails);
  EXPECT_TRUE(Differences(before, Look(*nvml)).empty());

  std::thread later([&] {
    std::this_thread::sleep_for(milliseconds(20));
    sim::RaiseXid(devices_[1], 48);
  });
  news = nvml->Wait(std::chrono::seconds(30));
  later.join();
  ASSERT_TRUE(news && *news);
  EXPECT_TRUE((*news)->fails);
  EXPECT_EQ((*news)->what, "XID 48: double-bit ECC error");
  const Node failed = Look(*nvml);
  EXPECT_EQ(failed.cards[0], before.cards[0]);
  EXPECT_EQ(failed.cards[1].health, Health::kFailed);
  EXPECT_EQ(failed.cards[1].why,
            "XID 48: double-bit ECC error; reset the GPU (nvidia-smi --gpu-reset)");
  const auto events = Differences(before, failed);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, InventoryEvent::Kind::kFailed);
  EXPECT_EQ(Look(*nvml).cards[1].health, Health::kFailed) << "still";
  nvml->ForgetXid(Uuid(1));
  EXPECT_TRUE(Differences(before, Look(*nvml)).empty());

  // A reset makes the GPU go and come.
  sim::RaiseXid(devices_[0], 95);
  news = nvml->Wait(milliseconds(500));
  ASSERT_TRUE(news && *news && (*news)->fails);
  sim::SetPresence(devices_[0], sim::Presence::kGone);
  EXPECT_EQ(Look(*nvml).cards.size(), 1u);
  sim::SetPresence(devices_[0], sim::Presence::kPresent);
  EXPECT_TRUE(Differences(before, Look(*nvml)).empty());
}

TEST_F(NvmlTest, WhatIsNewsOfMigOrEccAsksForAnotherLook) {
  Add(Model("h200"));
  const auto nvml = Nvml::Load(Library());
  Look(*nvml);
  ASSERT_TRUE(nvml->Wait(milliseconds(0)));
  ASSERT_TRUE(sim::SetMigMode(devices_[0], true));
  auto news = nvml->Wait(milliseconds(500));
  ASSERT_TRUE(news && *news);
  EXPECT_EQ((*news)->xid, 0u);
  EXPECT_EQ((*news)->what, "MIG was changed");
  EXPECT_TRUE(Look(*nvml).cards[0].mig_enabled);
  sim::SetEccErrors(devices_[0], 0, 1);
  news = nvml->Wait(milliseconds(500));
  ASSERT_TRUE(news && *news);
  EXPECT_EQ((*news)->what, "an ECC error");
  EXPECT_EQ(Look(*nvml).cards[0].health, Health::kFailed);
}

TEST(XidTest, TheListOfNvidiasDevicePluginIsKept) {
  for (const uint32_t xid : {13u, 31u, 43u, 45u, 68u, 109u}) EXPECT_FALSE(IsCriticalXid(xid));
  for (const uint32_t xid : {48u, 62u, 64u, 74u, 79u, 94u, 95u, 119u, 120u, 140u, 999u}) {
    EXPECT_TRUE(IsCriticalXid(xid)) << xid;
  }
  EXPECT_EQ(XidText(79), "XID 79: GPU has fallen off the bus");
  EXPECT_EQ(XidText(5000), "XID 5000");
}

TEST_F(NvmlTest, AGpuThatIsLostIsToldAsItWasAndFailed) {
  for (int i = 0; i < 3; ++i) {
    sim::DeviceOptions options = Model("h100-80");
    options.links = {{true, "0000:c1:00.0"}};
    options.mig = i == 1;
    Add(options);
  }
  const auto nvml = Nvml::Load(Library());
  ASSERT_TRUE(nvml->Create(Uuid(1), "2g.20gb", 2));
  const Node before = Look(*nvml);
  ASSERT_TRUE(nvml->Wait(milliseconds(0)));
  sim::RaiseXid(devices_[1], 79);
  auto news = nvml->Wait(milliseconds(500));
  ASSERT_TRUE(news && *news);
  EXPECT_EQ((*news)->what, "XID 79: GPU has fallen off the bus");
  Node lost = Look(*nvml);
  ASSERT_EQ(lost.cards.size(), 3u);
  EXPECT_EQ(lost.cards[0], before.cards[0]);
  EXPECT_EQ(lost.cards[2], before.cards[2]);
  EXPECT_EQ(lost.cards[1].health, Health::kFailed);
  EXPECT_EQ(lost.cards[1].why,
            "nvmlDeviceGetHandleByIndex of GPU 1: GPU is lost (15); reset the GPU "
            "(nvidia-smi --gpu-reset) or restart the machine");
  lost.cards[1].health = Health::kHealthy;
  lost.cards[1].why.clear();
  EXPECT_EQ(lost, before) << "memory, place and instances are as they were";
  EXPECT_EQ(nvml->Instances(Uuid(1)).error().code, ErrorCode::kUnavailable);
  // The wait says so, and goes on for the others.
  news = nvml->Wait(milliseconds(0));
  ASSERT_FALSE(news);
  EXPECT_EQ(news.error().code, ErrorCode::kUnavailable);
  EXPECT_TRUE(OneLine(news.error().message));
  ASSERT_TRUE(nvml->Wait(milliseconds(0)));
  sim::RaiseXid(devices_[2], 13);
  news = nvml->Wait(milliseconds(500));
  ASSERT_TRUE(news && *news);
  EXPECT_EQ((*news)->uuid, Uuid(2));
}

TEST_F(NvmlTest, AGpuThatIsGoneIsMissingAndComesBack) {
  for (int i = 0; i < 3; ++i) Add(Model("l40s"));
  const auto nvml = Nvml::Load(Library());
  const Node before = Look(*nvml);
  sim::SetPresence(devices_[0], sim::Presence::kGone);
  const Node seen = Look(*nvml);
  EXPECT_EQ(seen.cards.size(), 2u);
  const Node merged = Merged(before, seen);
  ASSERT_EQ(Differences(before, merged).size(), 1u);
  EXPECT_EQ(Differences(before, merged)[0].kind, InventoryEvent::Kind::kVanished);
  EXPECT_FALSE(nvml->Lists(Uuid(0), getpid()));
  sim::SetPresence(devices_[0], sim::Presence::kPresent);
  const Node back = Merged(merged, Look(*nvml));
  ASSERT_EQ(Differences(merged, back).size(), 1u);
  EXPECT_EQ(Differences(merged, back)[0].kind, InventoryEvent::Kind::kAppeared);
}

TEST_F(NvmlTest, ADriverThatGoesOrComesLateIsOneErrorAndLooksGoOn) {
  Add(Model("h200"));
  FailCall(0, "nvmlInit_v2", "DRIVER_NOT_LOADED", 2);
  const auto nvml = Nvml::Load(Library());
  EXPECT_FALSE(nvml->available());
  EXPECT_EQ(nvml->why(),
            "nvmlInit: Driver Not Loaded (9); load the NVIDIA driver (nvidia-smi must work)");
  EXPECT_TRUE(nvml->Gpus().empty());
  EXPECT_FALSE(nvml->Instances(Uuid(0)));
  EXPECT_FALSE(nvml->Wait(milliseconds(0)));
  auto node = nvml->Look("n");
  ASSERT_FALSE(node);
  EXPECT_EQ(node.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(node.error().message, nvml->why());
  const Node before = Look(*nvml);
  EXPECT_TRUE(nvml->available());
  for (const char* code : {"DRIVER_NOT_LOADED", "UNINITIALIZED", "UNKNOWN", "TIMEOUT"}) {
    FailCall(0, "*", code);
    node = nvml->Look("n");
    ASSERT_FALSE(node) << code;
    EXPECT_EQ(node.error().code, ErrorCode::kUnavailable) << code;
    EXPECT_TRUE(OneLine(node.error().message)) << node.error().message;
    sim::ClearFailures(devices_[0]);
    EXPECT_EQ(Look(*nvml), before) << code;
  }
}

TEST_F(NvmlTest, WithoutTheLibraryEverythingIsAnAnswer) {
  const auto nvml = Nvml::Load("/nonexistent/libnvidia-ml.so.1");
  EXPECT_FALSE(nvml->available());
  EXPECT_EQ(nvml->why(), "/nonexistent/libnvidia-ml.so.1 was not found");
  EXPECT_TRUE(nvml->Gpus().empty());
  EXPECT_TRUE(nvml->Processes("GPU-0").empty());
  EXPECT_FALSE(nvml->UtilizationOf("GPU-0"));
  EXPECT_EQ(nvml->Look("n").error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(nvml->Wait(milliseconds(1)).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(nvml->Create("GPU-0", "1g.5gb", 0).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(nvml->Destroy("GPU-0", 0).error().code, ErrorCode::kUnavailable);
}

TEST(OldNvmlTest, ALibraryOfLongAgoTellsWhatItKnows) {
  const auto nvml = Nvml::Load(OLD_NVML);
  ASSERT_TRUE(nvml->available()) << nvml->why();
  std::vector<std::string> complaints;
  const auto node = nvml->Look("n", &complaints);
  ASSERT_TRUE(node);
  EXPECT_TRUE(complaints.empty());
  ASSERT_EQ(node->cards.size(), 1u);
  EXPECT_EQ(node->cards[0].uuid, "GPU-old");
  EXPECT_EQ(node->cards[0].memory_mib, 6144u);
  EXPECT_EQ(node->cards[0].health, Health::kHealthy);
  EXPECT_FALSE(node->cards[0].mig_capable);
  EXPECT_TRUE(nvml->Instances("GPU-old")->empty());
  EXPECT_EQ(nvml->Wait(milliseconds(0)).error().code, ErrorCode::kUnavailable);
}

// The functions of the interface that is used, as the library names them now.
struct Function {
  const char* field;
  const char* name;
  void (*remove)(nvml::Api&);
};
const std::vector<Function>& Functions() {
#define FIRST(name, ...) name
#define FUNCTION(field, type, ...) \
  {#field, FIRST(__VA_ARGS__), [](nvml::Api& api) { api.field = nullptr; }},
  static const std::vector<Function> functions = {BATON_NVML_FUNCTIONS(FUNCTION)};
#undef FUNCTION
#undef FIRST
  return functions;
}

TEST_F(NvmlTest, AnyFunctionMayBeMissing) {
  for (int i = 0; i < 2; ++i) {
    sim::DeviceOptions options = Model("h200");
    options.mig = i == 0;
    options.links = {{true, "0000:c1:00.0"}};
    options.numa = 0;
    Add(options);
  }
  const auto whole = nvml::Load(Library());
  ASSERT_TRUE(whole);
  const Node before = Look(*nvml::Use(*whole));
  const std::set<std::string> indispensable = {"init", "count", "by_index", "by_uuid", "uuid"};
  for (const Function& function : Functions()) {
    SCOPED_TRACE(function.field);
    nvml::Api api = *whole;
    function.remove(api);
    if (indispensable.contains(function.field)) continue;
    const auto nvml = nvml::Use(api);
    std::vector<std::string> complaints;
    const auto node = nvml->Look("n", &complaints);
    ASSERT_TRUE(node) << node.error().message;
    for (const std::string& complaint : complaints) EXPECT_TRUE(OneLine(complaint));
    if (std::string(function.field) != "memory") {
      EXPECT_EQ(node->cards.size(), 2u);
    }
    nvml->Processes(Uuid(0));
    nvml->UtilizationOf(Uuid(0));
    nvml->ProcessUses(Uuid(1), 0);
    if (const auto news = nvml->Wait(milliseconds(0)); !news) {
      EXPECT_TRUE(OneLine(news.error().message));
    }
    const auto made = nvml->Create(Uuid(0), "2g.35gb", 2);
    if (made) {
      const auto gone = nvml->Destroy(Uuid(0), made->id);
      if (!gone) {
        EXPECT_NE(gone.error().message.find("nvml"), std::string::npos) << gone.error().message;
      }
    } else {
      EXPECT_TRUE(OneLine(made.error().message));
    }
    const auto rest = Instances(*nvml::Use(*whole), 0);
    for (const MigInstance& left : rest) {
      ASSERT_TRUE(nvml::Use(*whole)->Destroy(Uuid(0), left.id));
    }
    EXPECT_EQ(Look(*nvml::Use(*whole)), before);
    if (api.shutdown == nullptr) whole->shutdown();  // the library is the next test's too
  }
}

TEST_F(NvmlTest, AnyCallMayFailInAnyWayAndNothingIsLost) {
  for (int i = 0; i < 3; ++i) {
    sim::DeviceOptions options = Model("h100-80");
    options.mig = i == 1;
    options.links = {{true, "0000:c1:00.0"}};
    options.numa = i / 2;
    Add(options);
  }
  const auto nvml = Nvml::Load(Library());
  ASSERT_TRUE(nvml->Create(Uuid(1), "3g.40gb", 4));
  const Node before = Look(*nvml);
  int failed = 0;
  for (const Function& function : Functions()) {
    for (const char* code : {"UNINITIALIZED", "INVALID_ARGUMENT", "NOT_SUPPORTED", "NO_PERMISSION",
                             "NOT_FOUND", "TIMEOUT", "GPU_IS_LOST", "RESET_REQUIRED", "UNKNOWN"}) {
      SCOPED_TRACE(std::string(function.name) + " " + code);
      FailCall(1, function.name, code);
      std::vector<std::string> complaints;
      const auto node = nvml->Look("n", &complaints);
      for (const std::string& complaint : complaints) {
        EXPECT_TRUE(OneLine(complaint) && complaint.find("nvml") != std::string::npos) << complaint;
      }
      if (!node) {
        EXPECT_EQ(node.error().code, ErrorCode::kUnavailable);
        EXPECT_TRUE(OneLine(node.error().message));
        EXPECT_NE(node.error().message.find("nvmlDeviceGetCount"), std::string::npos);
      } else {
        ASSERT_EQ(node->cards.size(), 3u);
        const Card& card = node->cards[1];
        EXPECT_EQ(card.uuid, before.cards[1].uuid);
        EXPECT_EQ(card.memory_mib, before.cards[1].memory_mib);
        if (card.health == Health::kHealthy) {
          EXPECT_TRUE(card.why.empty());
          // Where MIG is on, nobody gets the whole GPU by mistake: one without the mode, or an
          // instance without uuid, is what NVML itself called so.
          const std::string name = function.name;
          const bool no_mode = name == "nvmlDeviceGetMigMode";
          const bool no_device = name == "nvmlDeviceGetMigDeviceHandleByIndex";
          EXPECT_TRUE(card.mig_enabled || no_mode);
          EXPECT_TRUE(card.instances == before.cards[1].instances || no_mode || no_device);
        } else {
          EXPECT_TRUE(OneLine(card.why));
          EXPECT_EQ(card.instances, before.cards[1].instances);
          ++failed;
        }
        for (const size_t other : {0u, 2u}) {
          Card now = node->cards[other];
          now.island = before.cards[other].island;  // their neighbour's links may be silent
          EXPECT_EQ(now, before.cards[other]);
        }
      }
      const auto news = nvml->Wait(milliseconds(0));
      EXPECT_TRUE(news || OneLine(news.error().message));
      const auto made = nvml->Create(Uuid(1), "1g.10gb", 0);
      EXPECT_TRUE(made || OneLine(made.error().message));
      nvml->Processes(Uuid(1));
      sim::ClearFailures(devices_[1]);
      // What was made, and what was left of what was not.
      const auto rest = Instances(*nvml, 1);
      for (const MigInstance& instance : rest) {
        if (instance.start == 0) {
          ASSERT_TRUE(nvml->Destroy(Uuid(1), instance.id));
        }
      }
      ASSERT_EQ(Look(*nvml), before);
    }
  }
  EXPECT_GT(failed, 20);
}

TEST_F(NvmlTest, AWaitIsNoLongerThanAsked) {
  Add(Model("h200"));
  const auto nvml = Nvml::Load(Library());
  Look(*nvml);
  const Instant start = MonotonicNow();
  for (int i = 0; i < 3; ++i) {
    const auto news = nvml->Wait(milliseconds(20));
    ASSERT_TRUE(news);
    EXPECT_FALSE(*news);
  }
  EXPECT_LT(MonotonicNow() - start, std::chrono::seconds(10));
}

TEST_F(NvmlTest, ThreadsMayAskAtOnce) {
  for (int i = 0; i < 2; ++i) {
    sim::DeviceOptions options = Model("a30");
    options.mig = true;
    Add(options);
  }
  const auto nvml = Nvml::Load(Library());
  std::vector<std::thread> threads;
  std::atomic<bool> done = false;
  threads.emplace_back([&] {
    while (!done) (void)nvml->Wait(milliseconds(1));
  });
  threads.emplace_back([&] {
    while (!done) nvml->Processes(Uuid(0));
  });
  threads.emplace_back([&] {
    for (int i = 0; i < 20; ++i) sim::RaiseXid(devices_[0], i % 2 == 0 ? 13 : 48);
    for (int i = 0; i < 10; ++i) {
      const auto made = nvml->Create(Uuid(1), "1g.6gb", static_cast<uint32_t>(i % 4));
      if (made) (void)nvml->Destroy(Uuid(1), made->id);
    }
  });
  for (int i = 0; i < 30; ++i) {
    const auto node = nvml->Look("n");
    ASSERT_TRUE(node);
    EXPECT_EQ(node->cards.size(), 2u);
  }
  threads[2].join();
  done = true;
  threads[0].join();
  threads[1].join();
  EXPECT_TRUE(nvml->Instances(Uuid(1))->empty());
}

}  // namespace
}  // namespace baton::devmgr
