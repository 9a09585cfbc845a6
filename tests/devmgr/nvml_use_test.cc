// Who uses a GPU how much, as NVML tells it: here the simulated one, which knows to the nanosecond.
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <map>
#include <stdexcept>
#include <thread>

#include "devmgr/machine/nvml_api.h"
#include "sim/card.h"
#include "tests/temp_folder.h"

namespace baton::devmgr {
namespace {

using std::chrono::milliseconds;

uint64_t WallMicroseconds() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000 + static_cast<uint64_t>(now.tv_nsec) / 1000;
}

class NvmlUse : public testing::Test {
 protected:
  void Make(const std::string& model, bool mig) {
    sim::DeviceOptions options = sim::OptionsFor(*sim::FindModel(model));
    options.mig = mig;
    const std::string path = folder_ / "0";
    auto made = sim::CreateDeviceFile(path, options);
    if (!made) throw std::runtime_error(made.error().message);
    device_ = *sim::Device::Open(path);
    setenv("BATON_SIM_DEVICES", path.c_str(), 1);
    const char* folder = getenv("BATON_SIM_LIB");
    library_ = std::string(folder != nullptr ? folder : "lib/sim") + "/libnvidia-ml.so.1";
    nvml_ = Nvml::Load(library_);
    if (!nvml_->available()) throw std::runtime_error(nvml_->why());
  }
  std::string uuid() const { return sim::FormatUuid(device_->file().uuid); }

  // A process that executes for so long, and ends when it has; `instance`: 1 + its place.
  pid_t StartBusy(milliseconds time, const char* name = "kernel", uint64_t instance = 0) {
    const pid_t pid = fork();
    if (pid != 0) return pid;
    device_ = *sim::Device::Open(folder_ / "0");
    const int process = device_->Attach(instance);
    int context;
    {
      sim::Device::Session session(device_);
      context = session->CreateContext(process);
      sim::OpRequest request;
      request.kind = sim::OpKind::kKernel;
      request.duration = std::chrono::nanoseconds(time).count();
      request.name = session->NameId(name);
      session->Submit(context, 0, request);
    }
    for (sim::Completion completion;;) {
      usleep(1000);
      sim::Device::Session session(device_);
      if (session->Collect(context, &completion)) _exit(0);
    }
  }
  static void Await(pid_t pid) {
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    ASSERT_EQ(status, 0);
  }

  const MemoryFolder folder_;
  sim::Device* device_ = nullptr;
  std::string library_;
  std::unique_ptr<Nvml> nvml_;
};

TEST_F(NvmlUse, TellsProcessesApart) {
  Make("a100-40", false);
  const uint64_t since = WallMicroseconds();
  EXPECT_TRUE(nvml_->ProcessUses(uuid(), since)->empty());
  const std::map<pid_t, double> expected = {{StartBusy(milliseconds(700)), 0.7},
                                            {StartBusy(milliseconds(200), "[memcpy]"), 0.2}};
  for (const auto& [pid, seconds] : expected) Await(pid);
  const auto uses = nvml_->ProcessUses(uuid(), since);
  const double passed = static_cast<double>(WallMicroseconds() - since) / 1e6;
  ASSERT_TRUE(uses);
  ASSERT_EQ(uses->size(), 2u);
  for (const Nvml::ProcessUse& process : *uses) {
    ASSERT_TRUE(expected.contains(process.pid));
    const double seconds = expected.at(process.pid);
    EXPECT_NEAR(process.use.sm, seconds / passed, 0.02);
    EXPECT_NEAR(process.use.memory, seconds == 0.2 ? seconds / passed : 0, 0.02);
  }
  EXPECT_TRUE(nvml_->ProcessUses(uuid(), WallMicroseconds())->empty());
}

TEST_F(NvmlUse, CountsWhatIsStillRunning) {
  Make("a100-40", false);
  const uint64_t since = WallMicroseconds();
  const pid_t pid = StartBusy(std::chrono::hours(1));
  std::vector<Nvml::ProcessUse> uses;
  while (uses.empty() || uses[0].use.sm < 0.5) uses = *nvml_->ProcessUses(uuid(), since);
  EXPECT_EQ(uses[0].pid, pid);
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

// An instance that executes in half of the time, beside one that does nothing.
TEST_F(NvmlUse, OfAMigInstanceIsSinceTheLastLook) {
  Make("h200", true);
  const auto half = nvml_->Create(uuid(), "1g.18gb", 0);
  const auto none = nvml_->Create(uuid(), "1g.18gb", 3);
  ASSERT_TRUE(half && none);
  const auto place = sim::FindMig(device_, half->uuid);
  ASSERT_TRUE(place);
  EXPECT_FALSE(nvml_->ProcessUses(uuid(), 0)) << "NVML does not tell processes of MIG apart";
  EXPECT_FALSE(nvml_->UseOfInstance(uuid(), half->id));
  EXPECT_FALSE(nvml_->UseOfInstance(uuid(), none->id));
  for (int look = 0; look < 3; ++look) {
    const Instant begin = MonotonicNow();
    Await(StartBusy(milliseconds(150), "[memset]", place->place + 1));
    std::this_thread::sleep_for(milliseconds(300) - (MonotonicNow() - begin));
    const auto use = nvml_->UseOfInstance(uuid(), half->id);
    ASSERT_TRUE(use);
    EXPECT_GE(use->over, milliseconds(299));
    // Nobody knows for how long this process was held up.
    EXPECT_NEAR(use->use.sm, 0.150 / (static_cast<double>(Nanos(use->over)) / 1e9), 0.03);
    EXPECT_DOUBLE_EQ(use->use.memory, use->use.sm);
    const auto idle = nvml_->UseOfInstance(uuid(), none->id);
    ASSERT_TRUE(idle);
    EXPECT_EQ(idle->use.sm, 0);
  }
  // Less than 100 ms after another there is nothing new, and nothing is lost.
  std::this_thread::sleep_for(milliseconds(110));
  EXPECT_TRUE(nvml_->UseOfInstance(uuid(), half->id));
  const Instant looked = MonotonicNow();
  const auto soon = nvml_->UseOfInstance(uuid(), half->id);
  EXPECT_TRUE(!soon || MonotonicNow() - looked > milliseconds(90));
  ASSERT_TRUE(nvml_->Destroy(uuid(), half->id));
  std::this_thread::sleep_for(milliseconds(110));
  EXPECT_FALSE(nvml_->UseOfInstance(uuid(), half->id));
}

TEST_F(NvmlUse, IsUnknownBeforeHopperAndWithoutMig) {
  Make("a100-40", true);
  const auto made = nvml_->Create(uuid(), "1g.5gb", 0);
  ASSERT_TRUE(made);
  for (int look = 0; look < 2; ++look) {
    EXPECT_FALSE(nvml_->UseOfInstance(uuid(), made->id));
    std::this_thread::sleep_for(milliseconds(110));
  }
  EXPECT_FALSE(nvml_->UseOfInstance(uuid(), 12));
  EXPECT_FALSE(nvml_->UseOfInstance("GPU-0", 0));
  EXPECT_FALSE(nvml_->ProcessUses("GPU-0", 0));
}

TEST_F(NvmlUse, IsUnknownWhereACallIsMissingOrFails) {
  Make("h200", true);
  const auto made = nvml_->Create(uuid(), "1g.18gb", 0);
  ASSERT_TRUE(made);
  const auto told = [&](Nvml& nvml) {
    nvml.UseOfInstance(uuid(), made->id);
    std::this_thread::sleep_for(milliseconds(110));
    return nvml.UseOfInstance(uuid(), made->id).has_value();
  };
  EXPECT_TRUE(told(*nvml_));
  const auto whole = nvml::Load(library_);
  ASSERT_TRUE(whole);
  const std::map<const char*, void (*)(nvml::Api&)> calls = {
      {"nvmlGpmQueryDeviceSupport", [](nvml::Api& api) { api.gpm_support = nullptr; }},
      {"nvmlGpmSampleAlloc", [](nvml::Api& api) { api.gpm_alloc = nullptr; }},
      {"nvmlGpmMigSampleGet", [](nvml::Api& api) { api.gpm_mig_sample = nullptr; }},
      {"nvmlGpmMetricsGet", [](nvml::Api& api) { api.gpm_metrics = nullptr; }}};
  for (const auto& [call, remove] : calls) {
    nvml::Api api = *whole;
    remove(api);
    EXPECT_FALSE(told(*nvml::Use(api))) << call;
    ASSERT_TRUE(sim::AddFailure(device_, {call, 999}));
    EXPECT_FALSE(told(*nvml_)) << call;
    sim::ClearFailures(device_);
    EXPECT_TRUE(told(*nvml_)) << call;
  }
  nvml::Api api = *whole;
  api.process_use = nullptr;
  EXPECT_FALSE(nvml::Use(api)->ProcessUses(uuid(), 0));
}

// What drivers were seen to answer.
unsigned asked_with_room = 0, needed_room = 0;
nvml::Return OddSamples(nvml::Device, nvml::ProcessSample* samples, unsigned* count,
                        unsigned long long since) {
  const std::vector<nvml::ProcessSample> all = {{0, 0, 0, 0, 0, 0},       // none
                                                {7, since, 50, 0, 0, 0},  // an old one
                                                {8, since + 1, 3'212'836'864u, 0, 0, 0},
                                                {9, since + 1, 40, 30, 0, 0}};
  // More than the first time: processes have come.
  asked_with_room = *count;
  *count = needed_room;
  if (asked_with_room < needed_room) return nvml::kInsufficientSize;
  *count = static_cast<unsigned>(all.size());
  std::copy(all.begin(), all.end(), samples);
  return nvml::kSuccess;
}

TEST_F(NvmlUse, EntriesThatAreNoneAreLeftOut) {
  Make("a100-40", false);
  auto api = nvml::Load(library_);
  ASSERT_TRUE(api);
  api->process_use = OddSamples;
  const auto uses = nvml::Use(*api)->ProcessUses(uuid(), 1'000);
  ASSERT_TRUE(uses);
  ASSERT_EQ(uses->size(), 1u);
  EXPECT_EQ(uses->at(0).pid, 9);
  EXPECT_DOUBLE_EQ(uses->at(0).use.sm, 0.4);
  EXPECT_DOUBLE_EQ(uses->at(0).use.memory, 0.3);
  needed_room = 5'000;
  ASSERT_TRUE(nvml::Use(*api)->ProcessUses(uuid(), 1'000));
  EXPECT_GE(asked_with_room, 5'000u);
  needed_room = UINT32_MAX;
  EXPECT_FALSE(nvml::Use(*api)->ProcessUses(uuid(), 1'000)) << "that cannot be true";
}

}  // namespace
}  // namespace baton::devmgr
