// Virtual GPUs from the command line to the GPU: made, used, moved, and still there after a crash.
#include <signal.h>
#include <unistd.h>

#include <future>

#include "sim/card.h"
#include "tests/end_to_end/fixture.h"
#include "tests/net/client.h"
#include "tests/net/prometheus.h"

namespace baton::bench {
namespace {

using nlohmann::json;
using std::chrono::seconds;

constexpr const char* kBooksOften = "\n[ledger]\nevery = \"200ms\"\n";

class Vgpus : public EndToEnd {
 protected:
  struct Said {
    int status = -1;
    std::string out, err;
  };
  Said Baton(const std::vector<std::string>& arguments) {
    Said said;
    said.status = Must(cluster().Baton(0, arguments, &said.out, &said.err));
    return said;
  }
  void ExpectOk(const std::vector<std::string>& arguments) {
    const Said said = Baton(arguments);
    EXPECT_EQ(said.status, 0) << arguments[0] << " " << arguments[1] << ": " << said.err;
  }
  json List() { return json::parse(Baton({"vgpu", "list", "--json"}).out).at("vgpus"); }
  // Where each virtual GPU is, without what is measured.
  json Map() {
    json rows = List();
    for (json& row : rows) {
      for (const char* key : {"held_ns", "busy_ns", "memory_used", "memory_peak", "running"}) {
        row.erase(key);
      }
    }
    return rows;
  }
  void CrashBatond() {
    cluster().batond().Signal(SIGKILL);
    ASSERT_TRUE(cluster().batond().Wait(seconds(5)));
    Must(cluster().StartBatond());
  }
  // `baton run` of a program that launches on every GPU that it sees.
  Said BurnOn(const std::string& vgpu) {
    // A sanitizer's runtime wants to be first; a preloaded hook is by design.
    return Baton({"run", "--vgpu", vgpu, "--", "env",
                  "ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0",
                  cluster().Program("baton-burn"), "--seconds", "0.5"});
  }
};

TEST_F(Vgpus, OutliveProgramsAndTheDaemon) {
  StartCluster({.transport = Transport::kUnix, .gpus = 2});
  ExpectOk({"vgpu", "create", "train", "--request", "30", "--memory", "1GiB", "--count", "2"});
  ExpectOk(
      {"vgpu", "create", "solo", "--request", "40", "--memory", "25%", "--gpu", device(0, 1).uuid});
  const json before = Map();
  ASSERT_EQ(before.size(), 3u) << before.dump();
  EXPECT_EQ(before[0].at("memory"), uint64_t{4} << 30) << "a quarter of 16 GiB";

  const Said ran = BurnOn("solo");
  EXPECT_EQ(ran.status, 0) << ran.err;
  const uint64_t held = List().at(0).at("held_ns");
  EXPECT_GT(held, 100'000'000u);
  EXPECT_GT(Count(device(0, 1)), 0u);
  EXPECT_EQ(Count(device(0, 0)), 0u) << "it only sees its own GPU";

  CrashBatond();
  EXPECT_EQ(Map(), before);
  EXPECT_GE(List().at(0).at("held_ns").get<uint64_t>(), held);
  EXPECT_EQ(BurnOn("solo").status, 0);

  ExpectOk({"vgpu", "move", "solo", "--gpu", "0"});
  EXPECT_EQ(List().at(0).at("gpu"), device(0, 0).uuid);
  EXPECT_EQ(BurnOn("solo").status, 0);
  EXPECT_GT(Count(device(0, 0)), 0u);

  const Said refused = Baton({"vgpu", "create", "big", "--request", "80"});
  EXPECT_EQ(refused.status, 1);
  EXPECT_NE(refused.err.find("baton explain placement"), std::string::npos) << refused.err;
  const Said why = Baton({"explain", "placement", "--request", "80"});
  EXPECT_EQ(why.status, 1);
  EXPECT_NE(why.out.find("30 % of it are free, 80 % wanted"), std::string::npos) << why.out;
  const Said plan = Baton({"defrag", "--dry-run", "--request", "80"});
  EXPECT_EQ(plan.status, 1) << "train has both GPUs: " << plan.out;
  ExpectOk({"vgpu", "resize", "solo", "--request", "10"});
  ExpectOk({"vgpu", "delete", "train"});
  ExpectOk({"vgpu", "create", "big", "--request", "90"});
  ExpectOk({"vgpu", "delete", "big", "solo"});
  EXPECT_TRUE(List().empty());
}

// Frameworks size themselves by the first answer.
TEST_F(Vgpus, TheFirstMemoryQueryOfAProgramShowsTheCap) {
  for (const Transport transport : {Transport::kUnix, Transport::kCentral}) {
    StartCluster({.transport = transport});
    ExpectOk({"vgpu", "create", "capped", "--request", "10", "--memory", "1GiB"});
    for (const std::string query : {"info", "total"}) {
      int wrong = 0;
      for (int i = 0; i < 20; ++i) {
        const Said said = Baton({"run", "--vgpu", "capped", "--", MEMORY_QUERY, query});
        EXPECT_EQ(said.status, 0) << said.err;
        wrong += said.out != std::to_string(uint64_t{1} << 30) + "\n";
      }
      EXPECT_EQ(wrong, 0) << "of 20 first queries of " << query << " did not show the cap";
    }
  }
}

TEST_F(Vgpus, OfNodesAreMadeOverTheirFrontends) {
  StartCluster({.transport = Transport::kCentral, .nodes = 2});
  ExpectOk({"vgpu", "create", "a", "--request", "60"});
  const json rows = List();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].at("node"), "node0");
  const Said ran = BurnOn("a");
  EXPECT_EQ(ran.status, 0) << ran.err;
  // A node's own socket is confined to it, however much room there is elsewhere.
  const Said refused = Baton({"vgpu", "create", "b", "--request", "50"});
  EXPECT_EQ(refused.status, 1);
  EXPECT_NE(refused.err.find("40 % of it are free, 50 % wanted"), std::string::npos) << refused.err;
  // Instances and control daemons need a batond on the node.
  EXPECT_EQ(Baton({"vgpu", "create", "c", "--request", "5", "--mode", "mps"}).status, 1);
  CrashBatond();
  const json before = {rows[0].at("pod"), rows[0].at("gpu"), rows[0].at("node")};
  ASSERT_TRUE(WaitUntil(
      [&] {
        const json said = json::parse(Baton({"vgpu", "list", "--json"}).out, nullptr, false);
        if (!said.is_object() || said.at("vgpus").size() != 1) return false;
        const json& row = said.at("vgpus").at(0);
        return row.at("booked") && json{row.at("pod"), row.at("gpu"), row.at("node")} == before;
      },
      seconds(10)));
}

TEST_F(Vgpus, AGpuThatFailsGetsNoMorePodsAndSaysWhoseItWas) {
  const uint16_t port = net::FreePort();
  StartCluster({.transport = Transport::kUnix,
                .gpus = 2,
                .model = "a100-80",
                .http = "127.0.0.1:" + std::to_string(port)});
  ExpectOk({"vgpu", "create", "a", "--request", "10", "--gpu", "0"});
  ExpectOk({"vgpu", "create", "b", "--request", "10", "--gpu", "1"});
  Pod& other = Start([&] {
    PodOptions options = Burn("other", "20", "100");
    options.gpu = 1;
    return options;
  }());
  sim::RaiseXid(*sim::Device::Open(device(0, 0).path), 79);
  const auto failed = cluster().WaitForStatus(
      0,
      [&](const json& status) {
        for (const json& gpu : status.at("gpus")) {
          if (gpu.at("uuid") == device(0, 0).uuid) return gpu.at("health") == "failed";
        }
        return false;
      },
      "the GPU does not fail", seconds(20));
  ASSERT_TRUE(failed) << failed.error().message;
  const json status = Must(cluster().Status());
  bool told = false;
  for (const json& event : status.at("events")) {
    const std::string text = event.at("text");
    told |=
        text.find("has failed") != std::string::npos && text.find("on it: a") != std::string::npos;
  }
  EXPECT_TRUE(told) << status.at("events").dump(1);
  const std::string metrics = net::Get(port, "/metrics").body;
  for (int gpu = 0; gpu < 2; ++gpu) {
    const size_t row = metrics.find("\nbaton_gpu_failed{device_uuid=\"" + device(0, gpu).uuid);
    ASSERT_NE(row, std::string::npos) << metrics;
    const size_t end = metrics.find('\n', row + 1);
    EXPECT_EQ(metrics.substr(end - 2, 2), gpu == 0 ? " 1" : " 0");
  }
  for (const char* name : {"c", "d"}) {
    ExpectOk({"vgpu", "create", name, "--request", "10"});
  }
  for (const json& row : List()) {
    EXPECT_EQ(row.at("gpu") == device(0, 0).uuid, row.at("pod") == "a") << row.dump();
  }
  const Said ran = BurnOn("a");
  EXPECT_EQ(ran.status, 1);
  EXPECT_NE(ran.err.find("cannot be used"), std::string::npos) << ran.err;
  EXPECT_TRUE(MakesProgress(other, device(0, 1), seconds(2)));
}

TEST_F(Vgpus, OnAGpuWithMigAreInstancesThatComeAndGo) {
  StartCluster({.transport = Transport::kUnix, .model = "a100-40", .mig = true});
  const Said ran = Baton({"run", "--request", "40", "--", "/bin/sh", "-c",
                          "echo [$LD_PRELOAD] $CUDA_VISIBLE_DEVICES"});
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(ran.out.substr(0, 7), "[] MIG-") << ran.out;
  // It is gone with its program: the whole GPU can be had.
  for (int i = 0; i < 7; ++i) {
    ExpectOk({"vgpu", "create", "m" + std::to_string(i), "--request", "10"});
  }
  const Said refused = Baton({"vgpu", "create", "m7", "--request", "10"});
  EXPECT_EQ(refused.status, 1);
  const json before = Map();
  for (const json& row : before) {
    EXPECT_EQ(row.at("mode"), "mig");
    EXPECT_EQ(row.at("device").get<std::string>().substr(0, 4), "MIG-");
  }
  CrashBatond();
  EXPECT_EQ(Map(), before);
  for (int i = 0; i < 7; ++i) ExpectOk({"vgpu", "delete", "m" + std::to_string(i)});
  ExpectOk({"vgpu", "create", "whole", "--request", "100", "--mode", "mig"});
  EXPECT_EQ(Baton({"vgpu", "create", "turns", "--request", "10", "--mode", "time-slice"}).status,
            1);
}

TEST_F(Vgpus, AnInstanceThatCannotBeMadeLeavesNothing) {
  StartCluster({.transport = Transport::kUnix, .gpus = 2, .model = "a100-40", .mig = true});
  sim::Device* card = Must(sim::Device::Open(device().path));
  Must(sim::AddFailure(card, {.call = "nvmlGpuInstanceCreateComputeInstance", .code = 999}));
  const Said refused = Baton({"vgpu", "create", "a", "--request", "100", "--gpu", "0"});
  EXPECT_EQ(refused.status, 1);
  EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << refused.err;
  EXPECT_TRUE(List().empty());
  sim::ClearFailures(card);
  ExpectOk({"vgpu", "create", "a", "--request", "100", "--gpu", "0"});
  const std::string device0 = List().at(0).at("device");
  ExpectOk({"vgpu", "move", "a", "--gpu", "1"});
  EXPECT_EQ(List().at(0).at("gpu"), device(0, 1).uuid);
  EXPECT_NE(List().at(0).at("device"), device0);
  ExpectOk({"vgpu", "create", "b", "--request", "100", "--gpu", "0"});

  // Killed while it makes one: what was made, and nobody knows of, is taken away.
  ExpectOk({"vgpu", "delete", "b"});
  Must(sim::AddFailure(
      card,
      {.call = "nvmlGpuInstanceCreateComputeInstance", .times = 1, .delay_ns = 2'000'000'000}));
  auto create = std::async(std::launch::async, [this] {
    return Baton({"vgpu", "create", "c", "--request", "10", "--gpu", "0"});
  });
  const auto instances = [&] {
    sim::Device::Session session(card);
    uint32_t made = 0;
    for (const auto& instance : session.card().instances) made += instance.serial != 0 ? 1 : 0;
    return made;
  };
  ASSERT_TRUE(WaitUntil([&] { return instances() != 0; }, seconds(5)));
  CrashBatond();
  EXPECT_EQ(create.get().status, 1);
  EXPECT_TRUE(WaitUntil([&] { return instances() == 0; }, seconds(5)));
  EXPECT_TRUE(WaitUntil(
      [&] {
        return Baton({"vgpu", "create", "d", "--request", "100", "--gpu", "0"}).status == 0;
      },
      seconds(5)));
}

TEST_F(Vgpus, OfMpsHaveAControlDaemonAsLongAsThereIsOne) {
  StartCluster({.transport = Transport::kUnix, .model = "a100-40"});
  ExpectOk({"vgpu", "create", "a", "--request", "30", "--memory", "4GiB", "--mode", "mps"});
  const Said ran = Baton({"run", "--vgpu", "a", "--", "/bin/sh", "-c",
                          ("echo [$LD_PRELOAD] $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE "
                           "$CUDA_MPS_PINNED_DEVICE_MEM_LIMIT; echo $CUDA_MPS_PIPE_DIRECTORY")});
  EXPECT_EQ(ran.status, 0) << ran.err;
  const std::string first = "[] 30 " + device().uuid + "=4096M\n";
  ASSERT_EQ(ran.out.substr(0, first.size()), first);
  const std::string pipes = ran.out.substr(first.size(), ran.out.size() - first.size() - 1);
  EXPECT_EQ(access((pipes + "/control").c_str(), F_OK), 0) << pipes;
  CrashBatond();
  EXPECT_EQ(Baton({"run", "--vgpu", "a", "--", "true"}).status, 0);
  // Not beside pods that take turns.
  EXPECT_EQ(Baton({"vgpu", "create", "b", "--request", "10"}).status, 1);
  ExpectOk({"vgpu", "delete", "a"});
  EXPECT_NE(access((pipes + "/control").c_str(), F_OK), 0) << pipes;
  ExpectOk({"vgpu", "create", "b", "--request", "10"});
}

// By MIG and MPS there are no tokens: what a pod has counts as held for as long as it is there.
class Allocated : public Vgpus {
 protected:
  json Report() {
    return json::parse(Baton({"report", "--by", "pod", "--last", "1h", "--format", "json"}).out);
  }
  static double Held(const json& report, const std::string& pod) {
    for (const json& row : report.at("rows")) {
      if (row.at("key") == pod) return row.at("held_hours").get<double>() * 3600;
    }
    return 0;
  }
  static void ExpectReconciled(const json& report) {
    EXPECT_NEAR(report.at("held_hours").get<double>() + report.at("idle_hours").get<double>() +
                    report.at("unattributed_hours").get<double>(),
                report.at("capacity_hours").get<double>(), 1e-9)
        << report.dump();
  }
  // Seconds of each GPU between two reports that its pods of such parts had, and that were idle.
  void ExpectParts(const std::map<std::string, double>& parts) {
    PassTime(seconds(1));  // a snapshot of what was before
    const json before = Report();
    PassTime(seconds(2));
    const json after = Report();
    ExpectReconciled(after);
    const auto grown = [&](const char* key) {
      return 3600 * (after.at(key).get<double>() - before.at(key).get<double>());
    };
    const double passed = grown("capacity_hours");
    EXPECT_GT(passed, 1);
    double all = 0;
    for (const auto& [pod, part] : parts) {
      EXPECT_NEAR((Held(after, pod) - Held(before, pod)) / passed, part, 0.002) << pod;
      all += part;
    }
    EXPECT_NEAR(grown("idle_hours") / passed, 1 - all, 0.002);
    EXPECT_NEAR(grown("unattributed_hours") / passed, 0, 0.002);
  }
};

TEST_F(Allocated, PartsByMpsAreBooked) {
  StartCluster({.transport = Transport::kUnix, .model = "a100-40", .tables = kBooksOften});
  ExpectOk({"vgpu", "create", "a", "--request", "30", "--mode", "mps"});
  ExpectOk({"vgpu", "create", "b", "--request", "50", "--mode", "mps"});
  ExpectOk({"vgpu", "resize", "a", "--request", "40"});
  ExpectParts({{"a", 0.4}, {"b", 0.5}});
  CrashBatond();
  ExpectParts({{"a", 0.4}, {"b", 0.5}});
  ExpectOk({"vgpu", "delete", "a"});
  ExpectParts({{"a", 0.0}, {"b", 0.5}});
}

TEST_F(Allocated, InstancesByMigAreBooked) {
  StartCluster(
      {.transport = Transport::kUnix, .model = "a100-40", .mig = true, .tables = kBooksOften});
  ExpectOk({"vgpu", "create", "a", "--request", "10"});
  ExpectOk({"vgpu", "create", "b", "--request", "10"});
  ExpectParts({{"a", 1 / 7.0}, {"b", 1 / 7.0}});
  const json report = Report();
  for (const json& row : report.at("rows")) EXPECT_EQ(row.at("allocated"), true) << row.dump();
  EXPECT_TRUE(json::parse(Baton({"whatif", "--format", "json"}).out).at("rows").empty());
  const std::string why = Baton({"explain", "pod", "a"}).out;
  EXPECT_NE(why.find("the part counts as held"), std::string::npos) << why;
  const json advice = json::parse(Baton({"advise", "--json"}).out);
  EXPECT_TRUE(advice.at("rows").empty()) << advice.dump();
}

}  // namespace
}  // namespace baton::bench
