// Memory as a pod and the device see it: whatever a program allocates is charged against the pod's
// cap while the device has it.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "sim/device.h"
#include "tests/end_to_end/fixture.h"
#include "tests/temp_folder.h"

namespace baton::bench {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint64_t kMiB = 1 << 20;
// The device gives whole pages, so it may have one more for each allocation than was asked for.
constexpr uint64_t kPage = 4096;

class Memory : public EndToEnd {
 protected:
  // A pod with a cap of `mib` that runs this. The caller waits for its end.
  Pod Run(const std::string& name, int mib, std::vector<std::string> command) {
    PodOptions options;
    options.name = name;
    options.run_flags = {"--memory", std::to_string(mib) + "MiB"};
    options.command = std::move(command);
    return Must(cluster().Run(options));
  }
  uint64_t OnDevice() {
    uint64_t bytes = 0;
    for (const auto& process : Must(sim::Device::Open(device().path))->Processes()) {
      bytes += process.memory;
    }
    return bytes;
  }
  // What the daemon says that the pod has.
  uint64_t Charged(const std::string& pod) {
    const nlohmann::json status = Must(cluster().Status());
    uint64_t bytes = 0;
    for (const nlohmann::json& row : status.at("pods")) {
      if (row.at("name") != pod) continue;
      for (const nlohmann::json& on : row.at("gpus")) {
        bytes += on.at("memory_used").get<uint64_t>();
      }
    }
    return bytes;
  }
};

TEST_F(Memory, EveryWayToAllocateIsCapped) {
  StartCluster({.transport = Transport::kUnix});
  for (const char* kind :
       {"plain", "first", "pitch", "managed", "async", "pool", "managed-pool", "physical", "array",
        "array-3d", "mipmapped", "heap", "stacks", "module", "graph-node", "graph-capture"}) {
    Pod pod = Run(kind, 64, {ALLOCATING, "fill", kind});
    ASSERT_EQ(pod.Wait(seconds(30)), 0) << kind << ": " << pod.Stderr();
    const nlohmann::json said = pod.Report();
    EXPECT_GE(said.at("pieces").get<int>(), 5) << kind;
    EXPECT_LE(said.at("pieces").get<int>(), 8) << kind;
    EXPECT_LE(said.at("on_device").get<uint64_t>(), 64 * kMiB + 8 * kPage) << kind;
    const std::string errors = pod.Stderr();
    EXPECT_NE(errors.find("baton: out of memory: "), std::string::npos) << kind << ": " << errors;
    EXPECT_NE(errors.find("the pod's cap there is 64.0 MiB"), std::string::npos) << errors;
    EXPECT_TRUE(WaitUntil(
        [&] {
          const std::string events = Must(cluster().Status()).at("events").dump();
          return events.find(fmt::format("pod {} is out of memory: process ", kind)) !=
                 std::string::npos;
        },
        seconds(5)))
        << kind;
  }
}

// What a pod without a cap has is given to nobody, and it gets nothing that others have reserved.
TEST_F(Memory, APodWithoutACapHasWhatOthersHaveNotReserved) {
  StartCluster({.transport = Transport::kUnix});
  const auto create = [&](const std::string& name, const std::string& memory) {
    std::string err;
    const auto status = Must(cluster().Baton(
        0, {"vgpu", "create", name, "--request", "10", "--memory", memory}, nullptr, &err));
    if (status != 0) {
      EXPECT_NE(err.find("in use without a reservation"), std::string::npos) << err;
    }
    return status == 0;
  };
  const auto total = [&](const std::string& name) {
    std::string out;
    Must(cluster().Baton(0, {"run", "--request", "10", "--name", name, "--", MEMORY_QUERY, "info"},
                         &out));
    return out;
  };
  constexpr uint64_t kGiB = uint64_t{1} << 30;
  EXPECT_EQ(total("alone"), std::to_string(16 * kGiB) + "\n");
  Start(Burn("uncapped", "10", "100", {"--memory", "10GiB"}));
  EXPECT_FALSE(create("large", "10GiB"));
  EXPECT_TRUE(create("small", "4GiB"));
  EXPECT_EQ(total("third"), std::to_string(2 * kGiB) + "\n");

  // A little of the 2 GiB that nobody has is for contexts.
  Pod greedy = Must(cluster().Run(Burn("greedy", "10", "100", {"--memory", "3GiB"})));
  EXPECT_NE(greedy.Wait(seconds(20)), 0);
  EXPECT_NE(greedy.Stderr().find("out of memory"), std::string::npos) << greedy.Stderr();
  const auto told = [&] {
    const std::string events = Must(cluster().Status()).at("events").dump();
    return events.find("pod greedy is out of memory: ") != std::string::npos &&
           events.find("the GPU has no more room in its 16GiB") != std::string::npos &&
           events.find("pod uncapped 10GiB, pod small (reserved) 4GiB") != std::string::npos;
  };
  EXPECT_TRUE(WaitUntil(told, seconds(5))) << Must(cluster().Status()).at("events");
  std::string err;
  EXPECT_EQ(Must(cluster().Baton(
                0,
                {"run", "--vgpu", "small", "--", "env",
                 "ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0",
                 cluster().Program("baton-burn"), "--seconds", "0.2", "--memory", "4095MiB"},
                nullptr, &err)),
            0)
      << err;
  StopPods();
  EXPECT_TRUE(WaitUntil([&] { return create("large", "10GiB"); }, seconds(5)));
}

// NVML says more of a process than its pod is charged: what contexts take is nobody's to give, and
// who finds the GPU full is told of it.
TEST_F(Memory, WhatContextsTakeIsSaidAndLeftOutOfWhatPodsWithoutACapMayHave) {
  StartCluster({.transport = Transport::kUnix});
  const auto start = [&](const std::string& name, const std::string& context_mib) {
    PodOptions options = Burn(name, "10", "100", {"--memory", "1GiB"});
    options.environment = {{"BATON_SIM_CONTEXT_MIB", context_mib}};
    Start(options);
  };
  start("one", "300");
  start("two", "200");
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  nlohmann::json status;
  const auto overhead = [&] {
    status = Must(cluster().Status());
    return status.at("gpus").at(0).at("memory_overhead").get<uint64_t>();
  };
  ASSERT_TRUE(WaitUntil([&] { return overhead() >= 500 * kMiB; }, seconds(20))) << status;
  EXPECT_LE(overhead(), 501 * kMiB);
  uint64_t charged = 0;
  for (const auto& pod : status.at("pods")) charged += pod.at("memory_used").get<uint64_t>();
  EXPECT_GE(charged, 2 * 1024 * kMiB);
  EXPECT_LE(charged, 2 * 1200 * kMiB);
  std::string out;
  Must(cluster().Baton(0, {"run", "--request", "10", "--name", "third", "--", MEMORY_QUERY, "info"},
                       &out));
  EXPECT_NEAR(std::stod(out), static_cast<double>(16 * 1024 * kMiB - charged - overhead()),
              static_cast<double>(kMiB));
  Pod greedy = Must(cluster().Run(Burn("greedy", "10", "100", {"--memory", "14GiB"})));
  EXPECT_NE(greedy.Wait(seconds(20)), 0);
  const auto told = [&] {
    return Must(cluster().Status()).at("events").dump().find("contexts and code of pods 50") !=
           std::string::npos;
  };
  EXPECT_TRUE(WaitUntil(told, seconds(5))) << Must(cluster().Status()).at("events");
  StopPods();
  EXPECT_TRUE(WaitUntil([&] { return overhead() == 0; }, seconds(20))) << status;
}

TEST_F(Memory, ADefaultCapHoldsForPodsThatAskForNoneAndTheReserveIsNobodys) {
  StartCluster({.transport = Transport::kUnix,
                .tables = "[memory]\ndefault_cap = 0.25\nreserve_mib = 384\n"});
  const auto cap = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"vgpu", "create", "p", "--request", "10"});
    std::string err, out;
    EXPECT_EQ(Must(cluster().Baton(0, flags, nullptr, &err)), 0) << err;
    Must(cluster().Baton(0, {"vgpu", "list", "--json"}, &out));
    Must(cluster().Baton(0, {"vgpu", "delete", "p"}));
    return nlohmann::json::parse(out).at("vgpus").at(0).at("memory").get<uint64_t>() >> 20;
  };
  EXPECT_EQ(cap({}), 4000u);
  EXPECT_EQ(cap({"--memory", "1GiB"}), 1024u);
  EXPECT_EQ(cap({"--memory", "100%"}), 16000u);
  EXPECT_EQ(cap({"--mode", "exclusive"}), 0u);
  std::string err;
  EXPECT_NE(
      Must(cluster().Baton(0, {"vgpu", "create", "p", "--request", "10", "--memory", "16001MiB"},
                           nullptr, &err)),
      0);
  EXPECT_NE(err.find("384 are kept for contexts"), std::string::npos) << err;
  EXPECT_EQ(Must(cluster().Status()).at("gpus").at(0).at("memory_reserve"), 384u << 20);
}

// A cgroup as a container runtime makes it, in the machine's own hierarchy, and its limits in a
// folder: the kernel here counts no device memory.
class Container {
 public:
  static constexpr const char* kHierarchies[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
  explicit Container(const std::string& root)
      : name_("/docker-" + std::string(56, 'b') + fmt::format("{:08x}", getpid()) + ".scope"),
        limits_(root + name_) {
    for (const char* hierarchy : kHierarchies) {
      if (access((std::string(hierarchy) + "/cgroup.controllers").c_str(), F_OK) != 0) continue;
      if (mkdir((hierarchy + name_).c_str(), 0755) == 0) group_ = hierarchy + name_;
    }
    std::filesystem::create_directories(limits_);
    std::ofstream(root + "/cgroup.controllers") << "dmem\n";
    for (const char* file : {"/dmem.max", "/dmem.min"}) std::ofstream(limits_ + file) << "";
  }
  ~Container() {
    if (made()) rmdir(group_.c_str());
  }
  bool made() const { return !group_.empty(); }
  std::vector<std::string> Start(const std::vector<std::string>& command) const {
    std::vector<std::string> in{"/bin/sh", "-c",
                                "echo $$ > " + group_ + "/cgroup.procs && exec \"$@\"", "sh"};
    in.insert(in.end(), command.begin(), command.end());
    return in;
  }
  std::string Limits(const char* file) const {
    std::ifstream in(limits_ + file);
    return std::string(std::istreambuf_iterator<char>(in), {});
  }

 private:
  const std::string name_, limits_;
  std::string group_;
};

TEST_F(Memory, TheDriverHoldsTheCapOfAContainerUntilItsLastProcessEnds) {
  const TempFolder root;
  const Container container(root.path());
  if (!container.made()) GTEST_SKIP() << "no cgroup can be made here (root, cgroup v2)";
  StartCluster({.transport = Transport::kUnix,
                .tables = "[memory]\nkernel_cap_process_mib = 100\ncgroup_root = \"" + root.path() +
                          "\"\n"});
  Pod pod = Run("boxed", 64, container.Start(Burn("", "10", "100").command));
  const auto part = [&](const std::string& name) -> nlohmann::json {
    const nlohmann::json status = Must(cluster().Status());
    for (const nlohmann::json& row : status.at("pods")) {
      if (row.at("name") == name && !row.at("gpus").empty()) return row.at("gpus").at(0);
    }
    return nlohmann::json::object();
  };
  EXPECT_TRUE(WaitUntil([&] { return part("boxed").value("kernel_cap", false); }, seconds(20)))
      << part("boxed") << pod.Stderr();
  EXPECT_EQ(container.Limits("/dmem.max"), fmt::format("0000:01:00.0 {}\n", 164 * kMiB));
  EXPECT_EQ(container.Limits("/dmem.min"), "0000:01:00.0 0\n");
  Pod bare = Run("bare", 64, Burn("", "10", "100").command);
  EXPECT_TRUE(WaitUntil(
      [&] {
        return part("bare").value("kernel_cap_why", "") ==
               "a process of the pod is in no container";
      },
      seconds(20)))
      << part("bare");
  std::string said;
  Must(cluster().Baton(0, {"doctor"}, &said));
  EXPECT_NE(said.find("memory caps     the driver holds 1, the hook alone 1: a process"),
            std::string::npos)
      << said;
  Must(cluster().Baton(0, {"explain", "pod", "boxed"}, &said));
  EXPECT_NE(said.find("the driver holds its memory cap too"), std::string::npos) << said;
  pod.Stop();
  EXPECT_TRUE(
      WaitUntil([&] { return container.Limits("/dmem.max") == "0000:01:00.0 max\n"; }, seconds(10)))
      << container.Limits("/dmem.max");
  bare.Stop();
}

// BATON_TEST_SEQUENCES: of all four processes together.
TEST_F(Memory, RandomSequencesOfSeveralProcessesStayBelowTheCapAndEndAtZero) {
  const char* many = getenv("BATON_TEST_SEQUENCES");
  const int sequences = many == nullptr ? 120 : std::max(4, atoi(many));
  constexpr int kProcesses = 4;
  // Each process has so many allocations at once at most.
  constexpr uint64_t kCap = 96 * kMiB, kOverhead = kProcesses * 25 * kPage;
  StartCluster({.transport = Transport::kUnix});
  const std::string end = cluster().File("end");
  std::string all;
  for (int i = 1; i <= kProcesses; ++i) {
    all += std::string(ALLOCATING) + " shuffle " + std::to_string(i) + " " +
           std::to_string(sequences / kProcesses) + " " + std::to_string(kCap + kOverhead) + " " +
           end + " & p" + std::to_string(i) + "=$!; ";
  }
  for (int i = 1; i <= kProcesses; ++i) all += "wait $p" + std::to_string(i) + " || exit 1; ";
  Pod pod = Run("shuffle", 96, {"/bin/sh", "-c", all});

  // All of them have said how it was, and have a little.
  constexpr uint64_t kLittle = kProcesses * 20 * kMiB;
  const auto agree = [&](uint64_t bytes, Duration patience) {
    return WaitUntil(
        [&] {
          const uint64_t charged = Charged("shuffle");
          return (OnDevice() == bytes && charged + kMiB >= bytes && charged <= bytes + kMiB) ||
                 pod.Wait(Duration(0)).has_value();
        },
        patience);
  };
  EXPECT_TRUE(agree(kLittle, seconds(20) + milliseconds(20) * sequences));
  EXPECT_EQ(OnDevice(), kLittle) << pod.Stderr();
  std::ofstream(end) << "";
  EXPECT_TRUE(agree(0, seconds(10)));
  EXPECT_EQ(OnDevice(), 0u);
  EXPECT_LE(Charged("shuffle"), kMiB);
  std::ofstream(end + ".freed") << "";
  EXPECT_EQ(pod.Wait(seconds(30)), 0) << pod.Stderr();
}

}  // namespace
}  // namespace baton::bench
