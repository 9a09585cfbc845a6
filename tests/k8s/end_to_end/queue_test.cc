// Whose pods are next, over the API: three teams that always want more than there is, by a standing
// that counts what their pods ran. An hour of the standing is a second here. On a real API server
// where there is one, on the stand-in always.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/random.h"
#include "k8s/types/annotations.h"
#include "net/server.h"
#include "tests/k8s/end_to_end/programs.h"
#include "tests/k8s/end_to_end/real_api_server.h"
#include "tests/k8s/stand_in/api_server.h"

namespace baton::k8s {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kGpus = 4;
constexpr size_t kWaitingPods = 6;  // of each team
const std::map<std::string, unsigned> kWeights{{"a", 3}, {"b", 2}, {"c", 1}};

// What a central batond would say of the teams.
class Books {
 public:
  Books()
      : server_(net::ForPrograms("127.0.0.1:0"), nullptr, [this](const net::HttpRequest& request) {
          return request.path == "/api/v1/standing"
                     ? net::HttpResponse{200, Standing(), "application/json"}
                     : net::HttpResponse{404, "", "text/plain"};
        }) {
    if (!server_.Start()) throw std::runtime_error("the books' server did not start");
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(server_.port()); }

  void Add(const std::string& team, double gpu_seconds) {
    const std::lock_guard lock(mutex_);
    used_[team] += gpu_seconds;
  }
  std::map<std::string, double> used() const {
    const std::lock_guard lock(mutex_);
    return used_;
  }

 private:
  std::string Standing() const {
    Json rows = Json::array();
    for (const auto& [team, used] : used()) {
      rows.push_back({{"team", team},
                      {"user", ""},
                      {"raw_shares", kWeights.at(team)},
                      {"raw_usage_hours", used}});
    }
    return Json{{"half_life_s", 604'800}, {"k", 1}, {"rows", rows}}.dump();
  }
  mutable std::mutex mutex_;
  std::map<std::string, double> used_{{"a", 0}, {"b", 0}, {"c", 0}};
  net::HttpServer server_;
};

enum class Where { kStandIn, kReal };

class QueueOnKubernetes : public ::testing::TestWithParam<Where> {
 protected:
  void SetUp() override {
    ClusterConfig config;
    if (GetParam() == Where::kReal) {
      if (const auto why = RealApiServer::WhyNot()) GTEST_SKIP() << *why;
      real_ = Must(RealApiServer::Start(folder_.path()));
      InstallBaton(*real_);
      config = real_->admin();
    } else {
      stand_in_ = std::make_unique<testing::ApiServer>();
      config = stand_in_->config();
    }
    client_ = Must(Client::Make(config));
    MustDo(CreateNode(*client_, "gpu-0", kGpus, 80 * 1024));
    MustDo(TellGpus(*client_, "gpu-0", kGpus, 80 * 1024));
    std::string kubeconfig = folder_.path() + "/kubeconfig";
    if (real_) {
      kubeconfig = real_->KubeconfigOf("baton-binder");
    } else {
      std::ofstream(kubeconfig) << "apiVersion: v1\nkind: Config\ncurrent-context: t\n"
                                << "clusters: [{name: t, cluster: {server: \"" << config.server
                                << "\"}}]\nusers: [{name: t, user: {}}]\n"
                                << "contexts: [{name: t, context: {cluster: t, user: t}}]\n";
    }
    binder_ =
        StartProgram(folder_, "binder",
                     {"baton-k8s", "binder", "--listen", "", "--no-leader-election", "--kubeconfig",
                      kubeconfig, "--standing-url", books_.url(), "--standing-every", "200ms"});
  }
  void TearDown() override {
    binder_.reset();
    if (HasFailure()) std::printf("binder: %s\n", TailOf(folder_.path() + "/binder.log").c_str());
  }

  // A pod of 20 to 100 % of a GPU.
  void CreatePod(const std::string& team) {
    const std::string name = team + "-" + std::to_string(++pods_);
    MustDo(client_->Create(
        resources::kPods, {"default", name},
        {{"apiVersion", "v1"},
         {"kind", "Pod"},
         {"metadata",
          {{"name", name},
           {"namespace", "default"},
           {"annotations", {{PodKey(keys::kTeam), team}}}}},
         {"spec",
          {{"schedulerName", "baton"},
           {"containers", Json::array({{{"name", "main"},
                                        {"image", "registry.local/none"},
                                        {"resources",
                                         {{"limits",
                                           {{kShareResource, std::to_string(random_.Between(2, 10) *
                                                                            10)}}}}}}})}}}}));
  }

  // What kubelet and controllers do: each pod runs for up to two seconds and goes, and each team
  // has some that wait.
  void Look() {
    const Instant now = MonotonicNow();
    std::map<std::string, size_t> waiting;
    for (const Json& pod : Items(client_->List(resources::kPods, "default"))) {
      const ObjectName name = NameOf(pod);
      const std::string team = name.name.substr(0, 1);
      if (TextAt(pod, "spec/nodeName").empty()) {
        ++waiting[team];
        continue;
      }
      const auto [run, began] = runs_.try_emplace(name.name);
      if (began) run->second = {now, now, milliseconds(random_.Between(500, 2'000))};
      Run& is = run->second;
      const Json& limits = pod["spec"]["containers"][0]["resources"]["limits"];
      const double gpus = std::stod(limits[std::string(kShareResource)].get<std::string>()) / 100;
      books_.Add(team, gpus * std::chrono::duration<double>(now - is.booked).count());
      is.booked = now;
      if (now - is.began >= is.length) client_->Delete(resources::kPods, name, "", 0);
    }
    for (const auto& [team, weight] : kWeights) {
      for (size_t n = waiting[team]; n < kWaitingPods; ++n) CreatePod(team);
    }
  }

  struct Run {
    Instant began, booked;
    Duration length;
  };
  TempFolder folder_;
  Books books_;
  std::unique_ptr<RealApiServer> real_;
  std::unique_ptr<testing::ApiServer> stand_in_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<bench::Process> binder_;
  Random random_{7};
  uint64_t pods_ = 0;
  std::map<std::string, Run> runs_;
};

TEST_P(QueueOnKubernetes, EachTeamHasItsDue) {
  constexpr Duration kLength = seconds(40);
  const Instant end = MonotonicNow() + kLength;
  while (MonotonicNow() < end) {
    Look();
    std::this_thread::sleep_for(milliseconds(50));
  }
  double all = 0;
  for (const auto& [team, used] : books_.used()) all += used;
  const double there = kGpus * std::chrono::duration<double>(kLength).count();
  std::printf("figure kubernetes_queue_used %.1f of %.0f GPU-s\n", all, there);
  EXPECT_GT(all, there / 2);
  for (const auto& [team, used] : books_.used()) {
    std::printf("figure kubernetes_queue_%s %.1f %%\n", team.c_str(), 100 * used / all);
    // Two of the largest pods.
    EXPECT_NEAR(used, all * kWeights.at(team) / 6, 2 * 2.0) << team;
  }
}

INSTANTIATE_TEST_SUITE_P(Servers, QueueOnKubernetes,
                         ::testing::Values(Where::kStandIn, Where::kReal), [](const auto& info) {
                           return info.param == Where::kReal ? "Real" : "StandIn";
                         });

}  // namespace
}  // namespace baton::k8s
