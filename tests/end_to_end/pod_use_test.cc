// What the books say that pods by MIG used, against the device's own record of it.
#include <signal.h>

#include <map>
#include <set>
#include <sstream>

#include "sim/card.h"
#include "sim/device.h"
#include "tests/end_to_end/fixture.h"
#include "tests/net/client.h"
#include "tests/net/prometheus.h"

namespace baton::bench {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;

class PodsUse : public EndToEnd {
 protected:
  void StartServing(const std::string& model, bool mig) {
    port_ = net::FreePort();
    StartCluster({.transport = Transport::kUnix,
                  .model = model,
                  .mig = mig,
                  .tables = "\n[ledger]\nevery = \"200ms\"\n",
                  .http = "127.0.0.1:" + std::to_string(port_)});
  }
  sim::Device* Opened() { return Must(sim::Device::Open(device().path)); }
  // A pod that executes for so many of 100 ms, again and again.
  void StartBusy(const std::string& name, const std::string& request, int of_100_ms,
                 std::vector<std::string> run_flags) {
    PodOptions options =
        Burn(name, request, "100",
             {"--burst", std::to_string(of_100_ms), "--sync", "burst", "--period", "100ms"});
    options.run_flags = std::move(run_flags);
    Start(options);
  }
  std::string Baton(const std::vector<std::string>& arguments) {
    std::string out, err;
    EXPECT_EQ(Must(cluster().Baton(0, arguments, &out, &err)), 0) << err;
    return out;
  }
  json OnGpu(const std::string& pod) {
    const json status = Must(cluster().Status());
    for (const json& row : status.at("pods")) {
      if (row.at("name") == pod) return row.at("gpus").at(0);
    }
    return json::object();
  }
  json Booked(const std::string& pod) {
    const json report = json::parse(Baton({"report", "--by", "pod", "--last", "1h", "--json"}));
    for (const json& row : report.at("rows")) {
      if (row.at("key") == pod) return row;
    }
    return json::object();
  }
  // A counter of /metrics by the pod's name.
  std::map<std::string, double> Told(const std::string& metric) {
    std::istringstream lines(net::Get(port_, "/metrics").body);
    std::map<std::string, double> told;
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with(metric + "{")) continue;
      const size_t pod = line.find("pod=\"") + 5;
      told[line.substr(pod, line.find('"', pod) - pod)] =
          std::stod(line.substr(line.rfind(' ') + 1));
    }
    return told;
  }

  // What was told of pods and what they took, when NVML was just read.
  struct Moment {
    Instant at{};
    std::map<std::string, double> told_s, taken_s, metric_s;
  };
  Moment AtReading(const std::set<std::string>& pods) {
    Moment moment;
    const std::string first = *pods.begin();
    const auto busy = [&](const std::string& pod) {
      return static_cast<double>(OnGpu(pod).at("busy_ns").get<uint64_t>()) / 1e9;
    };
    const double before = busy(first);
    EXPECT_TRUE(WaitUntil([&] { return busy(first) != before; }, seconds(20)));
    moment.at = MonotonicNow();
    for (const sim::ProcessOnDevice& process : Opened()->Processes()) {
      for (const std::string& pod : pods) {
        const auto pids = PodNamed(pod).Pids();
        if (std::find(pids.begin(), pids.end(), static_cast<pid_t>(process.pid)) != pids.end()) {
          moment.taken_s[pod] += static_cast<double>(process.energy) / 1e9 / sim::kBusyWatts;
        }
      }
    }
    for (const std::string& pod : pods) moment.told_s[pod] = busy(pod);
    moment.metric_s = Told("baton_pod_sm_busy_seconds_total");
    return moment;
  }
  // By pod, what it has of the GPU: what is booked as executed is that part of what it took.
  void ExpectBusy(const std::map<std::string, double>& parts) {
    std::set<std::string> pods;
    for (const auto& [pod, part] : parts) pods.insert(pod);
    using Moments = std::pair<Moment, Moment>;
    Windows(
        [&] {
          const Moment from = AtReading(pods);
          PassTime(seconds(4));
          return Moments{from, AtReading(pods)};
        },
        [&](const Moments& moments) {
          const auto& [from, to] = moments;
          const double passed = static_cast<double>(Nanos(to.at - from.at)) / 1e9;
          for (const auto& [pod, part] : parts) {
            const double took = (to.taken_s.at(pod) - from.taken_s.at(pod)) / passed;
            const double told = (to.told_s.at(pod) - from.told_s.at(pod)) / part / passed;
            const double metric = (to.metric_s.at(pod) - from.metric_s.at(pod)) / passed;
            Figure(pod + "_took", 100 * took, "%");
            Figure(pod + "_told", 100 * told, "%");
            EXPECT_NEAR(told, took, 0.03) << pod;
            EXPECT_NEAR(metric, took, 0.03) << pod;
            EXPECT_GT(took, 0.1) << pod;
          }
        });
  }
  void ExpectIdle(const std::string& pod) {
    json row;
    EXPECT_TRUE(WaitUntil(
        [&] {
          row = Booked(pod);
          return row.value("measured", false);
        },
        seconds(20)))
        << row;
    EXPECT_TRUE(row.at("allocated").get<bool>());
    EXPECT_LT(row.at("efficiency").get<double>(), 1e-6);
    EXPECT_GT(row.at("held_hours").get<double>(), 0);
    EXPECT_EQ(OnGpu(pod).at("sm_utilization"), 0.0);
  }
  // As before anything was measured.
  void ExpectUnmeasured(const std::string& pod) {
    const json row = Booked(pod);
    EXPECT_TRUE(row.at("allocated").get<bool>()) << row;
    EXPECT_FALSE(row.contains("measured")) << row;
    EXPECT_EQ(row.at("busy_hours"), 0.0);
    EXPECT_FALSE(OnGpu(pod).contains("sm_utilization"));
    EXPECT_FALSE(Told("baton_pod_sm_busy_seconds_total").contains(pod));
    EXPECT_NE(Baton({"explain", "pod", pod}).find("NVML does not tell"), std::string::npos);
  }

  uint16_t port_ = 0;
};

TEST_F(PodsUse, ByMpsIsNotKnown) {
  StartServing("a100-40", false);
  StartBusy("pod", "50", 50, {"--mode", "mps"});
  PassTime(seconds(6));
  ExpectUnmeasured("pod");
  EXPECT_NE(Baton({"report", "--by", "pod", "--last", "1h"}).find(" - "), std::string::npos);
}

TEST_F(PodsUse, ByMigIsWhatTheirInstancesExecuted) {
  StartServing("h200", true);
  Baton({"vgpu", "create", "idle", "--request", "10"});
  StartBusy("half", "10", 50, {});
  ExpectBusy({{"half", 1 / 7.0}});
  ExpectIdle("idle");
  const json half = Booked("half");
  EXPECT_TRUE(half.at("allocated").get<bool>());
  EXPECT_TRUE(half.at("measured").get<bool>());
  // What was read last is booked with the next batch.
  EXPECT_TRUE(
      WaitUntil([&] { return Booked("half").at("efficiency").get<double>() > 0.3; }, seconds(20)));
  EXPECT_NE(Baton({"explain", "pod", "half"}).find("kept the SMs of its part"), std::string::npos);
  EXPECT_TRUE(json::parse(Baton({"whatif", "--last", "1h", "--format", "json"})).at("rows").empty())
      << "they hold no tokens, whatever is measured of them";
  // What was measured is not lost with the daemon.
  const auto before = OnGpu("half").at("busy_ns").get<uint64_t>();
  cluster().batond().Signal(SIGKILL);
  ASSERT_TRUE(cluster().batond().Wait(seconds(5)));
  Must(cluster().StartBatond());
  EXPECT_GE(OnGpu("half").at("busy_ns").get<uint64_t>(), before);
}

TEST_F(PodsUse, OfPodsByTokensIsShownAndBookedAsTheirHooksMeasure) {
  StartServing("", false);
  StartBusy("pod", "50", 50, {});
  double told = 0;
  EXPECT_TRUE(WaitUntil(
      [&] {
        told = OnGpu("pod").value("sm_utilization", 0.0);
        return told > 20;
      },
      seconds(20)));
  EXPECT_LE(told, 80);
  EXPECT_FALSE(Booked("pod").contains("allocated"));
}

TEST_F(PodsUse, IsUnknownWhereNvmlDoesNotTell) {
  StartServing("", false);
  ASSERT_TRUE(sim::AddFailure(Opened(), {"nvmlDeviceGetProcessUtilization", 3}));
  StartBusy("pod", "50", 50, {});
  PassTime(seconds(6));
  EXPECT_FALSE(OnGpu("pod").contains("sm_utilization"));
  EXPECT_FALSE(Told("baton_pod_sm_busy_seconds_total").contains("pod"));
  // It is measured as soon as NVML tells.
  sim::ClearFailures(Opened());
  EXPECT_TRUE(WaitUntil([&] { return OnGpu("pod").contains("sm_utilization"); }, seconds(20)));
}

TEST_F(PodsUse, OfMigBeforeHopperIsUnknown) {
  StartServing("a100-40", true);
  StartBusy("pod", "10", 50, {});
  PassTime(seconds(6));
  ExpectUnmeasured("pod");
}

// Energy is read by the same threads, and before.
TEST_F(PodsUse, AnNvmlThatFailsOrHangsCostsNoToken) {
#ifdef BATON_SANITIZED
  GTEST_SKIP() << "it takes long; the release preset runs it, and all daemons read what NVML tells";
#endif
  struct Case {
    const char* call;
    int code;
    Duration delay;
  };
  const char* const use = "nvmlDeviceGetProcessUtilization";
  const char* const energy = "nvmlDeviceGetTotalEnergyConsumption";
  for (const auto& [call, code, delay] :
       {Case{use, 999, {}}, {energy, 999, {}}, {use, 0, seconds(60)}, {energy, 0, seconds(60)}}) {
    SCOPED_TRACE(std::string(call) + (code == 0 ? " hangs" : " fails"));
    StartServing("", false);
    constexpr uint32_t kCalls = 1'000'000;
    ASSERT_TRUE(sim::AddFailure(Opened(), {call, code, kCalls, Nanos(delay)}));
    StartTogether({Burn("a", "50", "100"), Burn("b", "50", "100")});
    const auto met = [&] {
      sim::Device::Session session(Opened());
      return session.card().failures[0].left < kCalls;
    };
    ASSERT_TRUE(WaitUntil(met, seconds(20)));
    const uint64_t before = OnGpu("b").at("grants");
    EXPECT_TRUE(WaitUntil([&] { return OnGpu("b").at("grants").get<uint64_t>() > before + 20; },
                          seconds(20)));
    EXPECT_FALSE(OnGpu("b").contains("sm_utilization") && call == use);
    StopPods();
    // The thread hangs still: the daemon ends all the same.
    cluster().batond().Signal(SIGTERM);
    EXPECT_TRUE(cluster().batond().Wait(seconds(10)));
  }
}

}  // namespace
}  // namespace baton::bench
