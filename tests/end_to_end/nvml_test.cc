// NVML in a pod: its own part of its GPUs, and no more.
#include "tests/end_to_end/fixture.h"

namespace baton::bench {
namespace {

using nlohmann::json;
using std::chrono::seconds;

class NvmlInAPod : public EndToEnd {
 protected:
  static constexpr uint64_t kMiB = 1 << 20;
  // What a program of the pod is told that asks NVML alone.
  json Ask(const std::string& vgpu, const std::string& how) {
    std::string out, err;
    const auto status =
        Must(cluster().Baton(0, {"run", "--vgpu", vgpu, "--", NVML_QUERY, how}, &out, &err));
    EXPECT_EQ(status, 0) << out << err;
    return json::parse(out, nullptr, false);
  }
  // A program that uses the first GPU, until the test's end.
  Pod& StartOne(const std::string& name, const char* request, const char* limit, const char* cap,
                const char* memory) {
    PodOptions options = Burn(name, request, limit, {"--memory", memory});
    options.run_flags = {"--memory", cap};
    return Start(options);
  }
};

TEST_F(NvmlInAPod, ShowsItsMemoryItsProcessesAndItsUse) {
  StartCluster({.transport = Transport::kUnix, .gpus = 2});
  const Pod& mine = StartOne("mine", "25", "25", "1GiB", "256MiB");
  StartOne("other", "50", "100", "4GiB", "2GiB");
  for (const std::string how : {"linked", "dlsym"}) {
    json gpu;
    const auto of_the_pod = [&] {
      const json all = Ask("mine", how);
      if (!all.is_array() || all.size() != 2) return false;
      gpu = all.at(0);
      const auto use = gpu.at("gpu_use").get<int>();
      return use >= 10 && use <= 40;
    };
    EXPECT_TRUE(WaitUntil(of_the_pod, seconds(10))) << how << ": " << gpu;
    EXPECT_EQ(gpu.at("total"), 1024 * kMiB) << how;
    EXPECT_EQ(gpu.at("total_v2"), 1024 * kMiB) << how;
    const auto used = gpu.at("used").get<uint64_t>();
    EXPECT_GE(used, 256 * kMiB) << how;
    EXPECT_LE(used, 260 * kMiB) << how;
    EXPECT_EQ(gpu.at("used_v2"), used) << how;
    EXPECT_EQ(gpu.at("free"), 1024 * kMiB - used) << how;
    EXPECT_EQ(gpu.at("processes"), json(mine.Pids())) << how;
    EXPECT_EQ(gpu.at("samples"), json(mine.Pids())) << how;
  }
  // A GPU that is not the pod's is as it is.
  EXPECT_EQ(Ask("mine", "dlsym").at(1).at("total"), 16384 * kMiB);
}

TEST_F(NvmlInAPod, OfAProgramWithoutBatonIsAsItIs) {
  StartCluster({.transport = Transport::kUnix});
  StartOne("mine", "25", "25", "1GiB", "256MiB");
  PodOptions query;
  query.name = "bare";
  query.command = {NVML_QUERY, "dlsym"};
  Pod bare = Must(cluster().RunBare(query));
  EXPECT_EQ(bare.Wait(seconds(20)), 0) << bare.Stderr();
  EXPECT_EQ(Must(cluster().Status()).at("clients").size(), 1u);
}

}  // namespace
}  // namespace baton::bench
