// Thousands of pods: how often is written, and in how many steps is told, what there is of them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "backend/arbiter.h"
#include "backend/status.h"
#include "tests/backend/memory_disk.h"
#include "tests/temp_folder.h"

namespace baton::backend {
namespace {

using nlohmann::json;

constexpr size_t kPods = 2'000;
constexpr size_t kGpus = 16;

std::vector<config::ConfiguredPod> Configured(size_t count) {
  std::vector<config::ConfiguredPod> pods(count);
  for (size_t i = 0; i < count; ++i) {
    pods[i].request.name = "pod-" + std::to_string(i);
    pods[i].request.share = *spec::ShareFrom(policy::Share(1'000), {}, policy::Priority::kNormal);
    pods[i].request.wishes.gpus = {"GPU-" + std::to_string(i % kGpus)};
    pods[i].fingerprint = "as it was";
  }
  return pods;
}

class ManyPods : public testing::Test {
 protected:
  ManyPods() {
    options_.server.state_dir = folder_.path();
    EXPECT_TRUE(file_.Load());
    arbiter_ = std::make_unique<Arbiter>(io_, options_, file_, vgpus_, usage_, log_);
    for (size_t i = 0; i < kGpus; ++i) {
      EXPECT_TRUE(arbiter_->AddGpu({"GPU-" + std::to_string(i), "H200", uint64_t{141} << 30}, ""));
    }
  }

  const TempFolder folder_;
  config::Options options_;
  boost::asio::io_context io_;
  node::EventLog log_;
  Pods pods_;
  std::shared_ptr<MemoryDisk> disk_ = std::make_shared<MemoryDisk>();
  PodsFile file_{disk_, pods_, log_};
  UsageBook usage_;
  Vgpus vgpus_{options_.placement.policy, options_.overcommit, devmgr::MigTemplates::BuiltIn(),
               "here"};
  std::unique_ptr<Arbiter> arbiter_;
};

TEST_F(ManyPods, OfTheConfigurationAreOneWrite) {
  const uint64_t before = disk_->operations;
  arbiter_->lifecycle().ApplyConfiguredPods(Configured(kPods));
  ASSERT_EQ(pods_.all().size(), kPods);
  // They are more than pods.json then, which is begun anew.
  EXPECT_LE(disk_->operations - before, 3u);
  while (io_.poll_one() != 0) {
  }
  const uint64_t bytes = disk_->bytes, operations = disk_->operations;
  arbiter_->lifecycle().ApplyConfiguredPods(Configured(kPods));
  EXPECT_EQ(disk_->operations, operations) << "nothing has changed";
  arbiter_->lifecycle().ApplyConfiguredPods(Configured(kPods - 1));
  EXPECT_EQ(pods_.all().size(), kPods - 1);
  EXPECT_EQ(disk_->operations, operations + 1);
  EXPECT_LT(disk_->bytes - bytes, 500u);
}

TEST_F(ManyPods, AreToldAFewAtATimeWhileOthersComeAndGo) {
  arbiter_->lifecycle().ApplyConfiguredPods(Configured(kPods));
  StatusSteps status(*arbiter_, log_, DaemonStatus{}, "*");
  VgpusSteps vgpus(*arbiter_, "*");
  size_t steps = 0, more = 0;
  for (bool done = false, listed = false; !done || !listed; ++steps) {
    if (!done) done = status.GoOn(8);
    if (!listed) listed = vgpus.GoOn(8);
    if (steps % 100 != 0) continue;
    // One that was told already or not goes, and another comes.
    arbiter_->lifecycle().DeletePod(*pods_.FindByName("pod-" + std::to_string(steps)),
                                    [](const Result<void>& gone) { EXPECT_TRUE(gone); });
    Pod pod;
    static_cast<spec::PodRequest&>(pod) = Configured(1)[0].request;
    pod.name = "more-" + std::to_string(more++);
    arbiter_->lifecycle().CreatePod(pod, 1, "*",
                                    [](const Result<Pod*>& made) { EXPECT_TRUE(made); });
  }
  EXPECT_GE(steps, kPods / 8 + kGpus);
  const json told = json::parse(status.Take().Whole() + "}");
  EXPECT_EQ(told.at("gpus").size(), kGpus);
  EXPECT_GE(told.at("pods").size(), kPods - 20);
  EXPECT_LE(told.at("pods").size(), kPods + 20);
  const json list = json::parse(vgpus.Take().Whole() + "}").at("vgpus");
  EXPECT_GE(list.size(), kPods - 20);
  for (size_t i = 1; i < list.size(); ++i) {
    ASSERT_LT(list[i - 1].at("pod").get<std::string>(), list[i].at("pod").get<std::string>());
  }
}

}  // namespace
}  // namespace baton::backend
