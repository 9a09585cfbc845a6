// What batond says that pods took of a GPU's energy, against the device's own record of it.
#include <map>
#include <sstream>

#include "sim/card.h"
#include "sim/compute_engine.h"
#include "sim/device.h"
#include "tests/end_to_end/fixture.h"
#include "tests/net/client.h"
#include "tests/net/prometheus.h"

namespace baton::bench {
namespace {

using std::chrono::seconds;

class Energy : public EndToEnd {
 protected:
  void StartServing() {
    port_ = net::FreePort();
    StartCluster({.transport = Transport::kUnix,
                  .tables = "\n[ledger]\nevery = \"1s\"\n",
                  .http = "127.0.0.1:" + std::to_string(port_)});
  }
  void StartAt(const char* watts, const char* name, const char* request) {
    PodOptions options = Burn(name, request, "100");
    options.environment.emplace_back("BATON_SIM_WATTS", watts);
    Start(options);
  }
  // A counter of /metrics by the pod's name, or the GPU's under "". Nothing before it is there.
  std::map<std::string, double> Told(const std::string& metric) {
    std::istringstream lines(net::Get(port_, "/metrics").body);
    std::map<std::string, double> told;
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with(metric + "{")) continue;
      const size_t pod = line.find("pod=\"");
      const std::string name =
          pod == std::string::npos ? "" : line.substr(pod + 5, line.find('"', pod + 5) - pod - 5);
      told[name] = std::stod(line.substr(line.rfind(' ') + 1));
    }
    return told;
  }
  // Joules by the pod's name, as the device knows.
  std::map<std::string, double> Taken() {
    std::map<std::string, double> taken;
    const auto opened = sim::Device::Open(device().path);
    if (!opened) return taken;
    for (const sim::ProcessOnDevice& process : (*opened)->Processes()) {
      for (const char* name : {"hot", "cool"}) {
        const auto pids = PodNamed(name).Pids();
        if (std::find(pids.begin(), pids.end(), static_cast<pid_t>(process.pid)) != pids.end()) {
          taken[name] += static_cast<double>(process.energy) / 1e9;
        }
      }
    }
    return taken;
  }
  // What the whole GPU has taken, as its counter says; it may have begun long ago.
  double Counted() {
    const auto opened = sim::Device::Open(device().path);
    return opened ? static_cast<double>(sim::CountedMillijoules((*opened)->file())) / 1e3 : 0;
  }
  // Joules by the pod's name, as the books say; of all pods and without them under "".
  std::map<std::string, double> Booked() {
    std::string out;
    Must(cluster().Baton(0, {"report", "--by", "pod", "--last", "1h", "--json"}, &out));
    const auto report = nlohmann::json::parse(out);
    std::map<std::string, double> booked;
    const auto joules = [](const nlohmann::json& of, const char* field) {
      return of.value(field, 0.0) * 3.6e6;
    };
    for (const auto& row : report.at("rows")) booked[row.at("key")] = joules(row, "energy_kwh");
    booked[""] = joules(report, "energy_kwh") + joules(report, "idle_energy_kwh");
    return booked;
  }

 private:
  uint16_t port_ = 0;
};

// Both hold for the same time; one takes four times the power.
TEST_F(Energy, IsDividedByWhatPodsTook) {
#ifdef BATON_SANITIZED
  GTEST_SKIP() << "it takes a minute; the release preset runs it, and all daemons read energy";
#endif
  StartServing();
  ASSERT_TRUE(
      WaitUntil([&] { return !Told("baton_gpu_energy_joules_total").empty(); }, seconds(20)));
  const double beginning = Counted() - Told("baton_gpu_energy_joules_total").at("");
  StartAt("600", "hot", "50");
  StartAt("150", "cool", "50");
  std::this_thread::sleep_for(seconds(25));  // what is read waits for what is learnt
  struct Figures {
    double told = 0, taken = 0;  // the cool one's part
  };
  Windows(
      [&] {
        const auto part = [](std::map<std::string, double> from, std::map<std::string, double> to) {
          const double hot = to["hot"] - from["hot"], cool = to["cool"] - from["cool"];
          return cool / (hot + cool);
        };
        const auto told = Told("baton_pod_energy_joules_total");
        const auto taken = Taken();
        std::this_thread::sleep_for(seconds(10));
        return Figures{part(told, Told("baton_pod_energy_joules_total")), part(taken, Taken())};
      },
      [&](const Figures& figures) {
        Figure("told_of_taken", figures.told / figures.taken, "");
        EXPECT_NEAR(figures.taken, 0.2, 0.02);
        EXPECT_NEAR(figures.told, figures.taken, 0.15 * figures.taken);
      });
  // It adds up to the counter.
  const double gpu = Told("baton_gpu_energy_joules_total").at("");
  double sum = Told("baton_gpu_idle_energy_joules_total").at("");
  for (const auto& [pod, joules] : Told("baton_pod_energy_joules_total")) sum += joules;
  EXPECT_NEAR(sum, gpu, 0.05 * gpu);  // read one after the other

  // The books have all of it, what was used while no daemon ran too.
  cluster().batond().Signal(SIGKILL);
  ASSERT_TRUE(cluster().batond().Wait(seconds(5)));
  std::this_thread::sleep_for(seconds(2));
  Must(cluster().StartBatond());
  const auto taken = Taken();
  const double counted = Counted() - beginning;
  StopPods();
  std::map<std::string, double> booked;
  const auto near = [&](const std::string& whose, double joules, double part) {
    return std::abs(booked[whose] - joules) <= part * joules;
  };
  const auto right = [&] {
    booked = Booked();
    booked["pods"] = booked["hot"] + booked["cool"];
    // In half a minute little can be learnt of two pods that take turns so evenly, beside busy
    // processors: by the mean the cool one would have 2.5 times what it took.
    return near("hot", taken.at("hot"), 0.12) && near("cool", taken.at("cool"), 0.45) &&
           near("pods", taken.at("hot") + taken.at("cool"), 0.04) && near("", counted, 0.02);
  };
  const bool booked_right = WaitUntil(right, seconds(10));
  for (const char* pod : {"hot", "cool"}) {
    Figure(std::string(pod) + "_booked_of_taken", booked[pod] / taken.at(pod), "");
  }
  EXPECT_TRUE(booked_right) << "hot " << booked["hot"] << " of " << taken.at("hot") << " J, cool "
                            << booked["cool"] << " of " << taken.at("cool") << ", all "
                            << booked[""] << " of " << counted;
}

// Without pods there is nothing to learn, so all is divided as it is read.
TEST_F(Energy, OfATimeInWhichNvmlFailedIsMadeUpFor) {
#ifdef BATON_SANITIZED
  GTEST_SKIP() << "it takes long; the release preset runs it, and all daemons read what NVML tells";
#endif
  StartServing();
  const auto told = [&] { return Told("baton_gpu_energy_joules_total")[""]; };
  ASSERT_TRUE(WaitUntil([&] { return told() > 0; }, seconds(20)));
  const double beginning = Counted() - told();
  sim::Device* gpu = *sim::Device::Open(device().path);
  ASSERT_TRUE(sim::AddFailure(gpu, {"nvmlDeviceGetTotalEnergyConsumption", 999}));
  const double before = told();
  PassTime(seconds(6));
  EXPECT_EQ(told(), before) << "it was asked, and has not answered";
  sim::ClearFailures(gpu);
  ASSERT_TRUE(WaitUntil([&] { return told() > before; }, seconds(20)));
  const double counted = Counted() - beginning;
  EXPECT_GT(counted - before, 6 * 75);
  EXPECT_NEAR(told(), counted, 75) << "within a second of the idle GPU's 75 W";
}

}  // namespace
}  // namespace baton::bench
