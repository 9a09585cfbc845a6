// What NVML tells of processes and instances, by pod.
#include "backend/pod_use.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "base/hash.h"
#include "devmgr/machine/nvml_api.h"

namespace baton::backend {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class AddUseTest : public testing::Test {
 protected:
  AddUseTest() {
    gpu_ = &gpus_.Add(std::make_unique<Gpu>(io_, scheduler::SchedulerOptions{}, 0, 0));
    gpu_->info.uuid = "GPU-a";
    gpu_->key = HashOf(gpu_->info.uuid);
  }
  // `part`: of the GPU, in percent, which it has had for 1000 s; 0: by turns.
  PodId AddPod(const std::string& name, std::string_view mode, uint32_t part,
               const std::string& device = "") {
    Pod pod;
    pod.name = name;
    pod.ticket = "ticket of " + name;
    pod.gpus = {"GPU-a"};
    pod.vgpus.resize(1);
    pod.vgpus[0].device = device;
    pod.mode = mode;
    const PodId id = (*pods_.Add(std::move(pod)))->id;
    usage_.At(id, gpu_->key, 0);
    gpu_->pods[id];
    if (part != 0) {
      gpu_->allocations[id] = {policy::Share(part * 10'000), now_ - seconds(1000), 0};
    }
    return id;
  }
  static UseReading::Process ProcessOf(const std::string& pod, double sm, double memory = 0) {
    UseReading::Process process{4711, {}, {sm, memory}};
    process.facts.start_time = 1;
    process.facts.ticket = "ticket of " + pod;
    return process;
  }
  static UseReading Processes(std::vector<UseReading::Process> processes) {
    UseReading reading;
    reading.by_process = true;
    reading.over = seconds(5);
    reading.processes = std::move(processes);
    return reading;
  }
  static UseReading Instance(const char* device, double sm, Duration over, double memory = 0) {
    UseReading reading;
    reading.instances = {{device, {{sm, memory}, over}}};
    return reading;
  }
  void Add(const UseReading& reading) { AddUse(reading, pods_, accounts_, *gpu_, now_); }
  uint64_t Busy(PodId pod) { return accounts_.Of(*gpu_, pod)->usage.busy_ns; }
  const PodUse* Told(PodId pod) { return UseNow(gpu_->pods[pod], now_); }

  boost::asio::io_context io_;
  config::Options options_;
  Pods pods_;
  UsageBook usage_;
  Gpus gpus_;
  Accounts accounts_{options_, pods_, usage_};
  Gpu* gpu_ = nullptr;
  const Instant now_ = MonotonicNow();
};

TEST_F(AddUseTest, AllProcessesOfAPodCount) {
  const PodId much = AddPod("much", spec::kTimeSlice, 0),
              little = AddPod("little", spec::kTimeSlice, 0);
  Add(Processes({ProcessOf("much", 0.4, 0.1), ProcessOf("much", 0.3, 0.2), ProcessOf("little", 0.2),
                 ProcessOf("nobody", 0.1)}));
  ASSERT_TRUE(Told(much) && Told(little));
  EXPECT_DOUBLE_EQ(Told(much)->sm, 0.7);
  EXPECT_DOUBLE_EQ(Told(much)->memory, 0.1 + 0.2);
  EXPECT_DOUBLE_EQ(Told(much)->sm_s, 3.5);
  EXPECT_DOUBLE_EQ(Told(little)->sm_s, 1);
  EXPECT_EQ(Busy(much), 0u) << "by turns tokens and hooks say what is booked";
  Add(Processes({}));
  EXPECT_EQ(Told(much)->sm, 0);
  EXPECT_DOUBLE_EQ(Told(much)->sm_s, 3.5);
  EXPECT_EQ(UseNow(gpu_->pods[much], now_ + seconds(31)), nullptr) << "NVML tells no more";
}

TEST_F(AddUseTest, AnIdlePodIsToldFromOneThatWasNotMeasured) {
  const PodId idle = AddPod("idle", spec::kMig, 14, "MIG-a"),
              unknown = AddPod("unknown", spec::kMig, 14, "MIG-b");
  Add(Instance("MIG-a", 0, seconds(5)));
  EXPECT_EQ(Busy(idle), 1u);
  EXPECT_EQ(Busy(unknown), 0u);
  EXPECT_EQ(Told(unknown), nullptr);
}

TEST_F(AddUseTest, NoPodExecutedForLongerThanItHeld) {
  const PodId pod = AddPod("pod", spec::kMig, 50, "MIG-a");
  gpu_->allocations[pod].since = now_ - seconds(1);
  Add(Instance("MIG-a", 1, seconds(5)));
  EXPECT_NEAR(static_cast<double>(Busy(pod)), 0.5e9, 2);
}

TEST_F(AddUseTest, WhatAPodWithoutTheHookDoesOnItsGpuCountsAsBusy) {
  const PodId pod = AddPod("pod", spec::kExclusive, 100), hooked = AddPod("b", spec::kExclusive, 0);
  pods_.Find(pod)->allocated = true;
  Add(Processes({ProcessOf("pod", 0.25), ProcessOf("b", 0.5)}));
  EXPECT_GT(Busy(pod), 0u);
  EXPECT_EQ(Busy(hooked), 0u) << "its hook measures that";
  EXPECT_DOUBLE_EQ(Told(pod)->sm, 0.25);
}

// As driver 580 tells on an H200: what pods by MPS do counts for MPS's server, which was idle at
// first, and one of them is named for its first moments.
TEST_F(AddUseTest, NothingIsKnownOfPodsByMps) {
  const PodId pod = AddPod("pod", spec::kMps, 70), other = AddPod("other", spec::kMps, 20);
  UseReading::Process server{17, {}, {0, 0}};
  server.facts.command = "nvidia-cuda-mps";  // as much of its name as the kernel keeps
  for (const double sm : {0.0, 0.13, 1.0}) {
    server.use.sm = sm;
    Add(Processes({server, ProcessOf("pod", sm == 0 ? 0.11 : 0)}));
    Add(Processes({}));
    for (const PodId of : {pod, other}) {
      EXPECT_EQ(Busy(of), 0u) << "then a report says that it used nothing of its part";
      EXPECT_EQ(Told(of), nullptr);
    }
  }
}

TEST_F(AddUseTest, AnInstanceIsThePodsThatHasIt) {
  const PodId pod = AddPod("pod", spec::kMig, 14, "MIG-a"),
              other = AddPod("b", spec::kMig, 14, "b");
  UseReading reading = Instance("MIG-a", 0.5, seconds(4), 0.25);
  reading.instances.push_back({"MIG-unknown", {{1, 1}, seconds(4)}});
  Add(reading);
  EXPECT_NEAR(static_cast<double>(Busy(pod)), 0.5 * 4e9 * 0.14, 2);
  EXPECT_DOUBLE_EQ(Told(pod)->memory_s, 1);
  EXPECT_EQ(Told(other), nullptr);
}

// An NVML with one GPU, which answers what it is told to.
struct Answers {
  devmgr::nvml::Return result = devmgr::nvml::kSuccess;
  std::vector<std::pair<unsigned, unsigned>> processes;  // pid, percent
  unsigned whole = 0;                                    // percent
} answers;
template <class... Args>
devmgr::nvml::Return Fine(Args...) {
  return devmgr::nvml::kSuccess;
}
std::unique_ptr<devmgr::Nvml> AnsweringNvml() {
  using namespace devmgr::nvml;  // NOLINT: its records
  Api api;
  api.init = Fine<>;
  api.count = Fine<unsigned*>;
  api.by_index = Fine<unsigned, Device*>;
  api.uuid = Fine<Device, char*, unsigned>;
  api.by_uuid = [](const char*, Device* device) {
    *device = &answers;
    return kSuccess;
  };
  api.process_use = [](Device, ProcessSample* samples, unsigned* count, unsigned long long since) {
    if (answers.result != kSuccess) return answers.result;
    const bool fits = *count >= answers.processes.size() && samples != nullptr;
    *count = static_cast<unsigned>(answers.processes.size());
    if (answers.processes.empty()) return kNotFound;
    if (!fits) return kInsufficientSize;
    for (const auto& [pid, sm] : answers.processes) *samples++ = {pid, since + 1, sm, 0, 0, 0};
    return kSuccess;
  };
  api.utilization = [](Device, Utilization* all) {
    *all = {answers.whole, 0};
    return kSuccess;
  };
  return Use(api);
}

class UseReaderTest : public testing::Test {
 protected:
  UseReaderTest() { answers = {}; }
  std::optional<UseReading> Read() { return reader_.Read(*nvml_, "GPU-a"); }

  const std::unique_ptr<devmgr::Nvml> nvml_ = AnsweringNvml();
  UseReader reader_;
};

TEST_F(UseReaderTest, TellsWhoDidWhatSinceTheLastTime) {
  const auto self = static_cast<unsigned>(getpid());
  answers.processes = {{self, 40}};
  EXPECT_FALSE(Read()) << "since when?";
  const Instant begin = MonotonicNow();
  std::this_thread::sleep_for(milliseconds(20));
  const auto reading = Read();
  ASSERT_TRUE(reading);
  EXPECT_TRUE(reading->by_process);
  EXPECT_GE(reading->over, milliseconds(20));
  EXPECT_LE(reading->over, MonotonicNow() - begin + milliseconds(20));
  ASSERT_EQ(reading->processes.size(), 1u);
  EXPECT_EQ(reading->processes[0].pid, getpid());
  EXPECT_EQ(reading->processes[0].facts.uid, getuid());
  EXPECT_NE(reading->processes[0].facts.start_time, 0u);
  EXPECT_DOUBLE_EQ(reading->processes[0].use.sm, 0.4);
}

TEST_F(UseReaderTest, KnowsWhoAProcessWasThatHasEnded) {
  const pid_t pid = fork();
  if (pid == 0) {
    pause();
    _exit(0);
  }
  answers.processes = {{static_cast<unsigned>(pid), 40}};
  EXPECT_FALSE(Read());
  const auto before = Read();
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  const auto after = Read(), later = Read();
  ASSERT_TRUE(before && after);
  ASSERT_NE(before->processes[0].facts.start_time, 0u);
  EXPECT_EQ(after->processes[0].facts.start_time, before->processes[0].facts.start_time);
}

TEST_F(UseReaderTest, NobodyIsIdleWhereTheGpuIsBusyWithProcessesThatAreNotTold) {
  EXPECT_FALSE(Read());
  EXPECT_TRUE(Read());
  answers.whole = 60;
  EXPECT_FALSE(Read());
  answers.whole = 0;
  answers.result = devmgr::nvml::kNotSupported;
  EXPECT_FALSE(Read());
  answers.result = devmgr::nvml::kSuccess;
  EXPECT_TRUE(Read());
}

}  // namespace
}  // namespace baton::backend
