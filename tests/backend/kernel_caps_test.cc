// Memory caps that the driver holds: which group gets how much, and when it is taken away.
#include "backend/kernel_caps.h"

#include <gtest/gtest.h>

#include <list>

namespace baton::backend {
namespace {

constexpr uint64_t kMiB = 1 << 20;
using std::chrono::seconds;

// The thread for devices, as a list.
class Work : public DeviceMaker {
 public:
  void Create(std::vector<DeviceJob>,
              std::function<void(Result<std::vector<std::string>>)>) override {}
  void Destroy(std::vector<DeviceJob>, std::function<void(Result<void>)>) override {}
  void Forgive(const std::string&) override {}
  void Run(std::function<std::function<void()>()> work) override { todo.push_back(work); }
  void DoAll() {
    for (auto& work : std::exchange(todo, {})) work()();
  }
  std::vector<std::function<std::function<void()>()>> todo;
};

class KernelCapsTest : public testing::Test {
 protected:
  KernelCapsTest() {
    gpu_ = &gpus_.Add(std::make_unique<Gpu>(io_, scheduler::SchedulerOptions{}, 0, 0));
    gpu_->info.uuid = "GPU-a";
  }
  void Start(std::string why = "") {
    caps_.Start(
        work_,
        [this](const std::string& gpu, const std::string& folder, uint64_t bytes) -> Result<void> {
          EXPECT_EQ(gpu, "GPU-a");
          if (!refuses_.empty()) return Fail(ErrorCode::kInvalid, refuses_);
          if (bytes == 0) {
            EXPECT_EQ(groups_.erase(folder), 1u) << folder;
          } else {
            groups_[folder] = bytes / kMiB;
          }
          return {};
        },
        std::move(why));
  }
  PodId AddPod(const std::string& name, uint64_t cap_mib) {
    Pod pod;
    pod.name = name;
    pod.gpus = {"GPU-a"};
    pod.vgpus.resize(1);
    pod.memory_cap = cap_mib * kMiB;
    return (*pods_.Add(std::move(pod)))->id;
  }
  Client& AddProcess(PodId pod, const std::string& group) {
    Client& client = clients_.emplace_back();
    client.id = ClientId{clients_.size()};
    client.pod = pod;
    client.group = group;
    client.lanes.push_back(std::make_unique<Lane>());
    client.lanes[0]->client = &client;
    gpu_->lanes[client.id.value] = client.lanes[0].get();
    return client;
  }
  void End(const Client& client) { gpu_->lanes.erase(client.id.value); }
  void Tend() {
    caps_.Tend(now_ += seconds(1));
    work_.DoAll();
  }
  KernelCaps::Held HeldOf(PodId pod) const {
    return caps_.Of(*gpu_, *std::as_const(pods_).Find(pod));
  }

  boost::asio::io_context io_;
  config::KernelCapOptions options_{"/cg", 100};
  Pods pods_;
  Gpus gpus_;
  Gpu* gpu_ = nullptr;
  std::list<Client> clients_;
  node::EventLog log_;
  Work work_;
  KernelCaps caps_{options_, pods_, gpus_, log_};
  std::string refuses_;
  std::map<std::string, uint64_t> groups_;  // MiB, as the driver has them
  Instant now_ = MonotonicNow();
};

using Groups = std::map<std::string, uint64_t>;

TEST_F(KernelCapsTest, AContainerHasItsPodsCapAndAnAllowanceForEachProcess) {
  Start();
  const PodId pod = AddPod("a", 1000), free = AddPod("free", 0);
  const Client& first = AddProcess(pod, "/docker-1.scope");
  AddProcess(free, "/docker-2.scope");
  EXPECT_FALSE(HeldOf(pod).by_driver);
  Tend();
  EXPECT_EQ(groups_, (Groups{{"/cg/docker-1.scope", 1100}}));
  EXPECT_TRUE(HeldOf(pod).by_driver);
  EXPECT_FALSE(HeldOf(free).by_driver);
  EXPECT_EQ(HeldOf(free).why, "");
  const Client& second = AddProcess(pod, "/docker-1.scope");
  Tend();
  EXPECT_EQ(groups_, (Groups{{"/cg/docker-1.scope", 1200}}));
  pods_.Find(pod)->memory_cap = 500 * kMiB;
  End(first);
  Tend();
  EXPECT_EQ(groups_, (Groups{{"/cg/docker-1.scope", 600}}));
  // With the last process nothing of ours is left.
  End(second);
  Tend();
  EXPECT_EQ(groups_, Groups{});
  Tend();
  EXPECT_TRUE(work_.todo.empty());
}

TEST_F(KernelCapsTest, NothingIsAskedTwiceWhileNothingChanges) {
  Start();
  AddProcess(AddPod("a", 1000), "/docker-1.scope");
  caps_.Tend(now_ += seconds(1));
  caps_.Tend(now_ += seconds(1));
  EXPECT_EQ(work_.todo.size(), 1u) << "the driver has not answered yet";
  work_.DoAll();
  caps_.Tend(now_ += seconds(1));
  EXPECT_TRUE(work_.todo.empty());
}

TEST_F(KernelCapsTest, TwoPodsInOneContainerHaveNone) {
  Start();
  const PodId a = AddPod("a", 1000), b = AddPod("b", 2000);
  AddProcess(a, "/docker-1.scope");
  Tend();
  EXPECT_TRUE(HeldOf(a).by_driver);
  AddProcess(b, "/docker-1.scope");
  Tend();
  EXPECT_EQ(groups_, Groups{});
  for (const PodId pod : {a, b}) {
    EXPECT_FALSE(HeldOf(pod).by_driver);
    EXPECT_EQ(HeldOf(pod).why, "another pod has processes in the same container");
  }
}

TEST_F(KernelCapsTest, AProcessOutsideOfAContainerIsHeldByTheHookAlone) {
  Start();
  const PodId pod = AddPod("a", 1000);
  AddProcess(pod, "/docker-1.scope");
  AddProcess(pod, "");
  Tend();
  EXPECT_EQ(groups_, (Groups{{"/cg/docker-1.scope", 1100}}));
  EXPECT_FALSE(HeldOf(pod).by_driver);
  EXPECT_EQ(HeldOf(pod).why, "a process of the pod is in no container");
}

TEST_F(KernelCapsTest, WhatTheDriverRefusesIsToldAndTriedAgain) {
  Start();
  const PodId pod = AddPod("a", 1000);
  AddProcess(pod, "/docker-1.scope");
  refuses_ = "Not Supported";
  Tend();
  EXPECT_EQ(HeldOf(pod).why, "Not Supported");
  refuses_.clear();
  now_ = MonotonicNow();  // of the refusal
  caps_.Tend(now_ += seconds(5));
  EXPECT_TRUE(work_.todo.empty());
  caps_.Tend(now_ += KernelCaps::kTryAgain);
  work_.DoAll();
  EXPECT_TRUE(HeldOf(pod).by_driver);
  // A cap that cannot be taken away went with its container.
  refuses_ = "Not Found";
  End(clients_.front());
  Tend();
  Tend();
  EXPECT_TRUE(work_.todo.empty());
}

TEST_F(KernelCapsTest, NothingIsAskedOfADriverThatCannot) {
  Start("the NVIDIA driver is older than release 615");
  const PodId pod = AddPod("a", 1000);
  AddProcess(pod, "/docker-1.scope");
  caps_.Tend(now_ += seconds(1));
  EXPECT_TRUE(work_.todo.empty());
  EXPECT_EQ(HeldOf(pod).why, "the NVIDIA driver is older than release 615");
  EXPECT_EQ(caps_.WhyNot(*gpu_), "the NVIDIA driver is older than release 615");
  gpu_->node = "n1";
  EXPECT_EQ(caps_.WhyNot(*gpu_), "the GPU is on another node");
}

}  // namespace
}  // namespace baton::backend
