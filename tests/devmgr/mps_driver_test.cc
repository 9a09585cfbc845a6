#include "devmgr/machine/mps_driver.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "devmgr/modes/mps_mode.h"
#include "tests/devmgr/card_use.h"
#include "tests/devmgr/crash_points.h"
#include "tests/temp_folder.h"

namespace baton::devmgr {
namespace {

constexpr const char* kCard = "GPU-7a1b";

Card MpsCard() {
  Card card;
  card.uuid = kCard;
  card.model = "NVIDIA H200";
  card.memory_mib = 143'771;
  return card;
}

DeviceDriver::Vgpu VgpuOf(const std::string& id, uint32_t percent, uint32_t memory_mib) {
  return {id, kCard, Fit{MpsMode::kGrain * percent, memory_mib, 0, 0}, ""};
}

class FakeControl final : public MpsControl {
 public:
  explicit FakeControl(CrashPoints& crash) : crash_(crash) {}

  std::string PipeDirectory(const std::string& card) const override { return "/mps/" + card; }
  Result<bool> Running(const std::string&) override {
    if (hangs) return Fail(ErrorCode::kUnavailable, "it does not answer");
    return running;
  }
  Result<void> Start(const std::string&) override {
    if (absent) return Fail(ErrorCode::kNotFound, "no such program");
    crash_.Step();
    running = true;
    percentage = "100";
    memory = "none";
    crash_.Step();
    return {};
  }
  Result<std::string> Tell(const std::string&, const std::string& command) override {
    if (std::exchange(ends_when_told, false)) running = false;
    if (!running) return Fail(ErrorCode::kUnavailable, "there is no daemon");
    crash_.Step();
    told.push_back(command);
    const auto is = [&](const std::string& what) { return command.starts_with(what + " "); };
    const std::string last = command.substr(command.rfind(' ') + 1);
    if (is("set_default_active_thread_percentage")) percentage = last;
    if (is("set_default_device_pinned_mem_limit")) memory = last;
    if (command == "get_server_list") return std::string(clients.empty() ? "" : "4711");
    if (command == "get_client_list 4711") return clients;
    return std::string();
  }
  Result<void> Stop(const std::string&) override {
    crash_.Step();
    running = false;
    crash_.Step();
    return {};
  }

  bool running = false;
  bool hangs = false;
  bool absent = false;
  bool ends_when_told = false;
  std::string clients;  // pids
  std::string percentage, memory;
  std::vector<std::string> told;

 private:
  CrashPoints& crash_;
};

class MemoryMarks final : public DeviceMarks {
 public:
  explicit MemoryMarks(CrashPoints& crash) : crash_(crash) {}
  Result<std::map<std::string, std::string>> Of(const std::string&) override { return marks; }
  Result<void> Put(const std::string&, const std::string& id, const std::string& text) override {
    crash_.Step();
    marks[id] = text;
    crash_.Step();
    return {};
  }
  Result<void> Remove(const std::string&, const std::string& id) override {
    crash_.Step();
    marks.erase(id);
    crash_.Step();
    return {};
  }
  std::map<std::string, std::string> marks;

 private:
  CrashPoints& crash_;
};

struct MpsNode {
  CrashPoints crash;
  FakeControl control{crash};
  MemoryMarks marks{crash};
  Card card = MpsCard();
  std::map<std::string, DeviceDriver::Vgpu> map;

  void Begin(MpsDriver& driver, DeviceDriver::Vgpu vgpu) {
    crash.Step();
    map[vgpu.id] = vgpu;
    const auto device = driver.Create(card, vgpu);
    ASSERT_TRUE(device) << device.error().message;
    crash.Step();
    map[vgpu.id].device = *device;
  }
  void End(MpsDriver& driver, const std::string& id) {
    const auto gone = driver.Destroy(card, map.at(id));
    ASSERT_TRUE(gone) << gone.error().message;
    crash.Step();
    map.erase(id);
  }
  std::vector<std::string> Reconcile() {
    MpsDriver driver(control, marks);
    std::vector<DeviceDriver::Vgpu> known;
    for (const auto& [id, vgpu] : map) known.push_back(vgpu);
    const auto done = driver.Reconcile(card, known);
    EXPECT_TRUE(done) << done.error().message;
    for (const DeviceDriver::Vgpu& vgpu : known) map[vgpu.id] = vgpu;
    return done.value_or(std::vector<std::string>{});
  }
  // A daemon while there are virtual GPUs, with the limits of the largest; else none.
  void Check() const {
    EXPECT_EQ(control.running, !map.empty());
    EXPECT_EQ(marks.marks.size(), map.size());
    uint32_t percent = 0, memory = 0;
    bool unlimited = false;
    for (const auto& [id, vgpu] : map) {
      EXPECT_EQ(vgpu.device, control.PipeDirectory(card.uuid)) << id;
      percent = std::max(percent, vgpu.fit.share / MpsMode::kGrain);
      memory = std::max(memory, vgpu.fit.memory_mib);
      unlimited |= vgpu.fit.memory_mib == 0;
    }
    if (map.empty()) return;
    EXPECT_EQ(control.percentage, std::to_string(percent));
    EXPECT_EQ(control.memory, std::to_string(unlimited ? card.memory_mib : memory) + "M");
  }
};

TEST(MpsDriver, TheFirstVirtualGpuStartsTheDaemonAndTheLastEndsIt) {
  MpsNode node;
  MpsDriver driver(node.control, node.marks);
  node.Begin(driver, VgpuOf("a", 30, 20'000));
  EXPECT_EQ(node.control.told,
            (std::vector<std::string>{"set_default_active_thread_percentage 30",
                                      "set_default_device_pinned_mem_limit GPU-7a1b 20000M",
                                      "get_server_list"}));
  node.Check();
  node.Begin(driver, VgpuOf("b", 50, 10'000));
  node.Check();
  node.Begin(driver, VgpuOf("c", 10, 0));
  node.Check();
  node.End(driver, "c");
  node.Check();
  node.End(driver, "b");
  node.Check();
  EXPECT_TRUE(node.control.running);
  node.End(driver, "a");
  node.Check();
  EXPECT_FALSE(node.control.running);
}

TEST(MpsDriver, AServerThatIsThereIsToldByItself) {
  MpsNode node;
  MpsDriver driver(node.control, node.marks);
  node.Begin(driver, VgpuOf("a", 30, 20'000));
  node.control.clients = "123\n124";
  node.control.told.clear();
  node.Begin(driver, VgpuOf("b", 50, 30'000));
  EXPECT_EQ(node.control.told,
            (std::vector<std::string>{"set_default_active_thread_percentage 50",
                                      "set_default_device_pinned_mem_limit GPU-7a1b 30000M",
                                      "get_server_list", "set_active_thread_percentage 4711 50",
                                      "set_device_pinned_mem_limit 4711 GPU-7a1b 30000M"}));
}

TEST(MpsDriver, TheDaemonStaysWhileProcessesUseItAndEndsLater) {
  MpsNode node;
  MpsDriver driver(node.control, node.marks);
  node.Begin(driver, VgpuOf("a", 30, 20'000));
  node.control.clients = "123";
  const auto gone = driver.Destroy(node.card, node.map["a"]);
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(gone.error().message,
            "process 123 still uses MPS on GPU-7a1b, so its control daemon stays");
  node.control.clients.clear();
  EXPECT_TRUE(driver.Destroy(node.card, node.map["a"]));
  EXPECT_FALSE(node.control.running);
}

TEST(MpsDriver, AKillAtAnyStepLeavesNoDaemonThatNobodyNeedsAndNoVirtualGpuWithoutOne) {
  const auto run = [](MpsNode& node) {
    MpsDriver driver(node.control, node.marks);
    node.Begin(driver, VgpuOf("a", 30, 20'000));
    node.Begin(driver, VgpuOf("b", 50, 0));
    node.End(driver, "a");
    node.End(driver, "b");
    node.Begin(driver, VgpuOf("c", 70, 1'000));
  };
  MpsNode whole;
  run(whole);
  const int steps = whole.crash.steps();
  ASSERT_GT(steps, 30);
  for (int first = 1; first <= steps; ++first) {
    for (int second = 0; second <= 12; ++second) {
      MpsNode node;
      node.crash.ArmAt(first);
      EXPECT_THROW(run(node), Killed);
      if (second > 0) {
        node.crash.ArmAt(second);
        try {
          node.Reconcile();
        } catch (const Killed&) {
        }
      }
      node.crash.ArmAt(0);
      node.Reconcile();
      node.Check();
      EXPECT_TRUE(node.Reconcile().empty()) << "not done after once";
      if (testing::Test::HasFailure()) {
        FAIL() << "killed at step " << first << ", then at step " << second;
      }
    }
  }
}

TEST(MpsDriver, WhatCannotBeDoneIsSaidAndNothingIsLeftBehind) {
  MpsNode node;
  MpsDriver driver(node.control, node.marks);
  node.control.absent = true;
  const auto made = driver.Create(node.card, VgpuOf("a", 30, 0));
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::kNotFound);
  EXPECT_TRUE(node.marks.marks.empty());
  node.control.absent = false;
  node.Begin(driver, VgpuOf("a", 30, 0));
  node.control.hangs = true;
  EXPECT_EQ(driver.Create(node.card, VgpuOf("b", 30, 0)).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(node.marks.marks.size(), 1u);
  std::vector<DeviceDriver::Vgpu> known = {node.map["a"]};
  const auto done = driver.Reconcile(node.card, known);
  ASSERT_TRUE(done);
  EXPECT_EQ(*done, (std::vector<std::string>{"there is no MPS on GPU-7a1b: it does not answer"}));
  EXPECT_EQ(known[0].device, "");
  known.clear();
  EXPECT_EQ(*driver.Reconcile(node.card, known),
            (std::vector<std::string>{
                "virtual GPU a of MPS on GPU-7a1b is not known any more",
                "the MPS control daemon of GPU-7a1b, which no virtual GPU needs, stays for now: it "
                "does not answer"}));
}

// It may not have been reaped yet, for its parent is not here.
bool HasEnded(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string id, name, state;
  return !(stat >> id >> name >> state) || state == "Z" || state == "X";
}

// A process that uses MPS as a pod's would.
class Client {
 public:
  explicit Client(const Environment& environment) {
    int fds[2];
    EXPECT_EQ(pipe2(fds, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fds[1], 1);
    std::vector<std::string> strings;
    for (const auto& [name, value] : environment) strings.push_back(name + "=" + value);
    std::vector<char*> env;
    for (std::string& s : strings) env.push_back(s.data());
    env.push_back(nullptr);
    std::string program = BATON_SIM_MPS, option = "--sim-client", seconds = "60";
    char* argv[] = {program.data(), option.data(), seconds.data(), nullptr};
    EXPECT_EQ(posix_spawn(&pid_, BATON_SIM_MPS, &actions, nullptr, argv, env.data()), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(fds[1]);
    for (char c; read(fds[0], &c, 1) == 1 && c != '\n';) limits_ += c;
    out_ = fds[0];
  }
  ~Client() {
    close(out_);
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }
  // Percentage and MiB that bind it.
  const std::string& limits() const { return limits_; }

 private:
  pid_t pid_ = -1;
  int out_ = -1;
  std::string limits_;
};

// As where the next batond finds the daemon that ends with the container of the one before.
TEST(MpsDriver, ADaemonThatEndsIsStartedAgainWhileItIsNeeded) {
  MpsNode node;
  MpsDriver before(node.control, node.marks);
  node.Begin(before, VgpuOf("a", 40, 8192));
  MpsDriver driver(node.control, node.marks);
  EXPECT_EQ(driver.Keep(), std::vector<std::string>{}) << "it knows of none";
  std::vector<DeviceDriver::Vgpu> known{node.map.at("a")};
  ASSERT_TRUE(driver.Reconcile(node.card, known));
  EXPECT_EQ(driver.Keep(), std::vector<std::string>{});
  node.control.running = false;
  EXPECT_EQ(driver.Keep().size(), 1u);
  EXPECT_TRUE(node.control.running);
  EXPECT_EQ(node.control.percentage, "40");
  node.control.running = false;
  node.control.absent = true;
  EXPECT_EQ(driver.Keep().size(), 1u) << "it says why there is none";
  node.control.absent = false;
  EXPECT_EQ(driver.Keep().size(), 1u);
  EXPECT_TRUE(node.control.running);
  node.End(driver, "a");
  EXPECT_FALSE(node.control.running);
  EXPECT_EQ(driver.Keep(), std::vector<std::string>{});
  EXPECT_FALSE(node.control.running);
}

TEST(MpsDriver, ADaemonThatEndsWhileItIsToldIsStartedAgain) {
  MpsNode node;
  MpsDriver driver(node.control, node.marks);
  node.control.running = true;
  node.control.ends_when_told = true;
  node.Begin(driver, VgpuOf("a", 40, 8192));
  EXPECT_TRUE(node.control.running);
  EXPECT_EQ(node.control.percentage, "40");
}

class MpsProcesses : public testing::Test {
 protected:
  void SetUp() override {
    options_.program = BATON_SIM_MPS;
    options_.folder = folder_ / "mps";
  }
  void TearDown() override {
    unsetenv("BATON_SIM_MPS_FAULT");
    for (const char* card : {kCard, "GPU-2"}) {
      if (const pid_t pid = DaemonOf(card); pid > 0) kill(pid, SIGKILL);
    }
  }
  pid_t DaemonOf(const std::string& card) const {
    pid_t pid = 0;
    std::ifstream(folder_ / "mps" / card / "pipe" / "nvidia-cuda-mps-control.pid") >> pid;
    return pid;
  }

  const TempFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path();
  ProcessMpsControl::Options options_;
  Card card_ = MpsCard();
};

TEST_F(MpsProcesses, ADaemonServesFromTheFirstVirtualGpuToTheLastWithTheirLimits) {
  ProcessMpsControl control(options_);
  FileMarks marks(folder_ / "marks");
  MpsDriver driver(control, marks);
  const MpsMode mode;
  EXPECT_FALSE(*control.Running(kCard));
  const auto a = VgpuOf("a", 30, 20'000);
  const auto b = VgpuOf("b", 50, 10'000);
  const auto device = driver.Create(card_, a);
  ASSERT_TRUE(device) << device.error().message;
  EXPECT_EQ(*device, (folder_ / "mps" / kCard / "pipe").string());
  EXPECT_TRUE(*control.Running(kCard));
  const pid_t daemon = DaemonOf(kCard);
  ASSERT_GT(daemon, 0);
  ASSERT_TRUE(driver.Create(card_, b));
  EXPECT_EQ(DaemonOf(kCard), daemon);
  EXPECT_EQ(*control.Tell(kCard, "get_default_active_thread_percentage"), "50.0");
  EXPECT_EQ(*control.Tell(kCard, std::string("get_default_device_pinned_mem_limit ") + kCard),
            "20000M");
  {
    // With what the mode gives them, and one that comes without.
    const Client of_a(mode.EnvironmentOf(card_, a.fit, *device));
    const Client of_b(mode.EnvironmentOf(card_, b.fit, *device));
    const Client bare({{"CUDA_MPS_PIPE_DIRECTORY", *device}, {"CUDA_VISIBLE_DEVICES", kCard}});
    EXPECT_EQ(of_a.limits(), "30.0 20000");
    EXPECT_EQ(of_b.limits(), "50.0 10000");
    EXPECT_EQ(bare.limits(), "50.0 20000");
    // One that goes while others are there; a bigger one that comes.
    ASSERT_TRUE(driver.Destroy(card_, a));
    ASSERT_TRUE(driver.Create(card_, VgpuOf("c", 40, 50'000)));
    const std::string server = *control.Tell(kCard, "get_server_list");
    EXPECT_EQ(*control.Tell(kCard, "get_active_thread_percentage " + server), "50.0");
    EXPECT_EQ(*control.Tell(kCard, "get_device_pinned_mem_limit " + server + " " + kCard),
              "50000M");
    // The last while its processes run.
    ASSERT_TRUE(driver.Destroy(card_, b));
    const auto busy = driver.Destroy(card_, VgpuOf("c", 40, 50'000));
    ASSERT_FALSE(busy);
    EXPECT_EQ(busy.error().code, ErrorCode::kUnavailable);
  }
  // They are gone; the daemon hears it with its next look.
  Result<void> gone;
  do {
    gone = driver.Destroy(card_, VgpuOf("c", 40, 50'000));
  } while (!gone && gone.error().message.find("still uses") != std::string::npos);
  ASSERT_TRUE(gone) << gone.error().message;
  EXPECT_FALSE(*control.Running(kCard));
  while (!HasEnded(daemon)) {
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "mps" / kCard));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "marks" / kCard));
}

TEST_F(MpsProcesses, GpusHaveDaemonsOfTheirOwn) {
  ProcessMpsControl control(options_);
  FileMarks marks(folder_ / "marks");
  MpsDriver driver(control, marks);
  Card other = card_;
  other.uuid = "GPU-2";
  ASSERT_TRUE(driver.Create(card_, VgpuOf("a", 30, 0)));
  ASSERT_TRUE(driver.Create(other, VgpuOf("a", 60, 0)));
  EXPECT_NE(DaemonOf(kCard), DaemonOf("GPU-2"));
  EXPECT_EQ(*control.Tell("GPU-2", "get_default_active_thread_percentage"), "60.0");
  ASSERT_TRUE(driver.Destroy(card_, VgpuOf("a", 30, 0)));
  EXPECT_FALSE(*control.Running(kCard));
  EXPECT_TRUE(*control.Running("GPU-2"));
  ASSERT_TRUE(driver.Destroy(other, VgpuOf("a", 60, 0)));
}

TEST_F(MpsProcesses, ADaemonThatWasKilledIsStartedAgain) {
  ProcessMpsControl control(options_);
  FileMarks marks(folder_ / "marks");
  std::vector<DeviceDriver::Vgpu> known = {VgpuOf("a", 30, 20'000)};
  {
    MpsDriver driver(control, marks);
    const auto device = driver.Create(card_, known[0]);
    ASSERT_TRUE(device);
    known[0].device = *device;
  }
  const pid_t before = DaemonOf(kCard);
  ASSERT_EQ(kill(before, SIGKILL), 0);
  while (!HasEnded(before)) {
  }
  // The driver of another batond.
  MpsDriver driver(control, marks);
  const auto done = driver.Reconcile(card_, known);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(*done, (std::vector<std::string>{"started the MPS control daemon of GPU-7a1b again"}));
  EXPECT_NE(DaemonOf(kCard), before);
  EXPECT_EQ(*control.Tell(kCard, "get_default_active_thread_percentage"), "30.0");
  EXPECT_TRUE(driver.Reconcile(card_, known)->empty());
  known.clear();
  EXPECT_EQ(driver.Reconcile(card_, known)->back(),
            "ended the MPS control daemon of GPU-7a1b, which no virtual GPU needs");
  EXPECT_FALSE(*control.Running(kCard));
}

TEST_F(MpsProcesses, AProgramThatMisbehavesIsOneSentence) {
  const auto error = [&](const char* fault, const std::string& program, Duration timeout) {
    setenv("BATON_SIM_MPS_FAULT", fault, 1);
    ProcessMpsControl::Options options = options_;
    options.program = program;
    options.timeout = timeout;
    ProcessMpsControl control(options);
    FileMarks marks(folder_ / "marks");
    MpsDriver driver(control, marks);
    const auto made = driver.Create(card_, VgpuOf("a", 30, 0));
    EXPECT_FALSE(made) << fault;
    EXPECT_TRUE(marks.Of(kCard)->empty());
    return made ? Error{} : made.error();
  };
  const std::string log = (folder_ / "mps" / kCard / "log" / "control.log").string();
  Error e = error("start", BATON_SIM_MPS, std::chrono::seconds(10));
  EXPECT_EQ(e.code, ErrorCode::kUnavailable);
  EXPECT_EQ(e.message,
            "the MPS control daemon of GPU-7a1b does not start: it said 'Failed to start: no "
            "CUDA-capable device'; see " +
                log);
  e = error("", "/nonexistent/nvidia-cuda-mps-control", std::chrono::seconds(10));
  EXPECT_EQ(e.code, ErrorCode::kNotFound);
  EXPECT_EQ(e.message,
            "cannot run /nonexistent/nvidia-cuda-mps-control: No such file or directory; it comes "
            "with NVIDIA's driver, and MPS needs it");
  // What is waited for in vain.
  e = error("die", BATON_SIM_MPS, std::chrono::milliseconds(400));
  EXPECT_EQ(e.code, ErrorCode::kUnavailable);
  EXPECT_TRUE(e.message.ends_with("; see " + log)) << e.message;
  e = error("hang", BATON_SIM_MPS, std::chrono::milliseconds(400));
  EXPECT_EQ(e.code, ErrorCode::kUnavailable);
  EXPECT_TRUE(e.message.starts_with("the MPS control daemon of GPU-7a1b does not ")) << e.message;
}

TEST_F(MpsProcesses, ADaemonThatTakesItsTimeIsWaitedFor) {
  setenv("BATON_SIM_MPS_FAULT", "slow", 1);
  ProcessMpsControl control(options_);
  ASSERT_TRUE(control.Start(kCard));
  EXPECT_TRUE(*control.Running(kCard));
  ASSERT_TRUE(control.Start(kCard));  // it is there already
  const auto refused = control.Tell(kCard, "set_default_active_thread_percentage 200");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalid);
  EXPECT_EQ(refused.error().message,
            "the MPS control daemon of GPU-7a1b refuses 'set_default_active_thread_percentage "
            "200': it said 'Invalid percentage 200'");
  ASSERT_TRUE(control.Stop(kCard));
  ASSERT_TRUE(control.Stop(kCard));
  EXPECT_EQ(control.Tell(kCard, "get_server_list").error().message,
            "there is no MPS control daemon for GPU-7a1b");
}

TEST_F(MpsProcesses, NamesThatCannotBeFilesOrSocketsAreRefused) {
  ProcessMpsControl control(options_);
  for (const char* card : {"", "../x", "a/b", "a;b"}) {
    EXPECT_EQ(control.Start(card).error().code, ErrorCode::kInvalid) << card;
  }
  options_.folder = folder_ / std::string(90, 'x');
  ProcessMpsControl deep(options_);
  const auto started = deep.Start(kCard);
  ASSERT_FALSE(started);
  EXPECT_NE(started.error().message.find("has too long a name"), std::string::npos);
}

}  // namespace
}  // namespace baton::devmgr
