// Pods a second, and how long one waits, by the binder and by Kubernetes' own scheduler: the same
// API server, nodes and number of pods, in turns. Figures; it fails where a pod is not bound, or
// the binder binds less than half of what kube-scheduler does beside it.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "bench/cluster.h"
#include "k8s/types/annotations.h"
#include "tests/k8s/end_to_end/programs.h"
#include "tests/k8s/end_to_end/real_api_server.h"

namespace baton::k8s {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr const char* kNative = "example.com/gpu";  // what kube-scheduler counts
constexpr const char* kSpace = "default";

size_t FromEnvironment(const char* name, size_t standard) {
  const char* text = std::getenv(name);
  return text == nullptr ? standard : std::strtoul(text, nullptr, 10);
}

// When the pods of kSpace were bound, as a watcher sees it.
class Bindings {
 public:
  explicit Bindings(const ClusterConfig& config) : client_(Must(Client::Make(config))) {
    const Json list = MustDo(client_->List(resources::kPods, kSpace));
    thread_ = std::thread([this, version = TextAt(list, "metadata/resourceVersion")]() mutable {
      // The API server ends watches that do not keep up.
      while (!client_->stopped()) {
        client_->Watch(resources::kPods, kSpace, {}, version, std::chrono::minutes(5),
                       [&](std::string_view, const Json& pod) {
                         version = TextAt(pod, "metadata/resourceVersion");
                         if (!TextAt(pod, "spec/nodeName").empty()) Saw(NameOf(pod).name);
                         return true;
                       });
      }
    });
  }
  ~Bindings() {
    client_->Stop();
    thread_.join();
  }

  bool Await(size_t pods, Duration at_most) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, at_most, [&] { return bound_.size() >= pods; });
  }
  std::map<std::string, Instant> All() const {
    const std::lock_guard lock(mutex_);
    return bound_;
  }

 private:
  void Saw(const std::string& name) {
    const std::lock_guard lock(mutex_);
    bound_.emplace(name, MonotonicNow());
    changed_.notify_all();
  }
  std::unique_ptr<Client> client_;
  std::thread thread_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Instant> bound_;
};

class KubernetesThroughput : public ::testing::Test {
 protected:
  struct Figures {
    double pods_per_second;  // of a backlog
    double p50_ms, p99_ms;   // of pods that come one after the other, from creation to binding
  };

  void SetUp() override {
    if (const auto why = RealApiServer::WhyNot()) GTEST_SKIP() << *why;
    server_ = Must(RealApiServer::Start(folder_.path()));
    client_ = Must(Client::Make(server_->admin()));
    InstallBaton(*server_);
    for (size_t n = 0; n < nodes_; ++n) {
      const std::string name = "gpu-" + std::to_string(n);
      MustDo(CreateNode(*client_, name, 8, 80 * 1024));
      const Json room = {{kNative, "80"}};
      MustDo(client_->Patch(resources::kNodes, {"", name}, PatchKind::kMerge,
                            {{"status", {{"capacity", room}, {"allocatable", room}}}}, "status"));
      MustDo(TellGpus(*client_, name, 8, 80 * 1024));
    }
  }
  void TearDown() override {
    if (!HasFailure()) return;
    for (const char* name : {"binder", "kube-scheduler"}) {
      std::printf("--- %s\n%s\n", name, TailOf(folder_.path() + "/" + name + ".log").c_str());
    }
  }

  void CreatePod(const std::string& name, const std::string& scheduler) {
    Json limits = {{kNative, "1"}};
    if (scheduler == "baton") limits = {{kShareResource, "10"}, {kMemoryResource, "16"}};
    MustDo(client_->Create(
        resources::kPods, {kSpace, name},
        {{"apiVersion", "v1"},
         {"kind", "Pod"},
         {"metadata", {{"name", name}, {"namespace", kSpace}}},
         {"spec",
          {{"schedulerName", scheduler},
           {"containers", Json::array({{{"name", "main"},
                                        {"image", "registry.local/none"},
                                        {"resources", {{"limits", limits}}}}})}}}}));
  }
  void EndPods() {
    for (const Json& pod : Items(client_->List(resources::kPods, kSpace))) {
      client_->Delete(resources::kPods, NameOf(pod), "", 0);
    }
  }

  // `process` schedules the pods that name `scheduler`, and has nothing to do now.
  Figures Measure(bench::Process& process, const std::string& scheduler) {
    Figures figures{};
    {
      // A pod that shows that it is up.
      Bindings up(server_->admin());
      CreatePod("first", scheduler);
      EXPECT_TRUE(up.Await(1, seconds(60))) << scheduler;
    }
    EndPods();
    {
      Bindings bindings(server_->admin());
      // It sees the pods all at once.
      kill(process.pid(), SIGSTOP);
      for (size_t p = 0; p < pods_; ++p) CreatePod("backlog-" + std::to_string(p), scheduler);
      const Instant start = MonotonicNow();
      kill(process.pid(), SIGCONT);
      EXPECT_TRUE(bindings.Await(pods_, seconds(120)))
          << scheduler << " bound " << bindings.All().size();
      Instant last = start;
      for (const auto& [name, at] : bindings.All()) last = std::max(last, at);
      figures.pods_per_second =
          static_cast<double>(pods_) / std::chrono::duration<double>(last - start).count();
    }
    EndPods();
    Bindings bindings(server_->admin());
    std::map<std::string, Instant> created;
    Instant next = MonotonicNow();
    for (size_t p = 0; p < pods_ / 2; ++p) {
      const std::string name = "single-" + std::to_string(p);
      next += milliseconds(20);
      std::this_thread::sleep_for(next - MonotonicNow());
      created.emplace(name, MonotonicNow());
      CreatePod(name, scheduler);
    }
    EXPECT_TRUE(bindings.Await(created.size(), seconds(60))) << scheduler;
    std::vector<double> waits;
    for (const auto& [name, at] : bindings.All()) {
      waits.push_back(std::chrono::duration<double, std::milli>(at - created[name]).count());
    }
    EndPods();
    if (waits.empty()) return figures;
    std::sort(waits.begin(), waits.end());
    figures.p50_ms = waits[waits.size() / 2];
    figures.p99_ms = waits[waits.size() * 99 / 100];
    return figures;
  }

  const size_t nodes_ = FromEnvironment("BATON_TEST_NODES", 50);
  const size_t pods_ = FromEnvironment("BATON_TEST_PODS", 1'000);
  TempFolder folder_;
  std::unique_ptr<RealApiServer> server_;
  std::unique_ptr<Client> client_;
};

TEST_F(KubernetesThroughput, IsMoreThanHalfOfKubeSchedulers) {
  // Its own limit of 50 requests a second would be all that is measured.
  auto kube_scheduler = StartKubeScheduler(folder_, *server_, ", qps: 10000, burst: 10000", "");
  if (kube_scheduler == nullptr) GTEST_SKIP() << "KUBEBUILDER_ASSETS has no kube-scheduler";
  auto binder = StartProgram(folder_, "binder",
                             {"baton-k8s", "binder", "--listen", "", "--no-leader-election",
                              "--kubeconfig", server_->KubeconfigOf("baton-binder")});
  std::map<std::string, std::vector<Figures>> all;
  for (int round = 0; round < 3; ++round) {
    all["kube-scheduler"].push_back(Measure(*kube_scheduler, "default-scheduler"));
    all["binder"].push_back(Measure(*binder, "baton"));
    if (HasFailure()) return;
  }
  for (auto& [name, rounds] : all) {
    for (const Figures& f : rounds) {
      std::printf("figure kubernetes_throughput %s: %.0f pods/s; one at a time %.1f ms, p99 %.1f\n",
                  name.c_str(), f.pods_per_second, f.p50_ms, f.p99_ms);
    }
    std::sort(rounds.begin(), rounds.end(), [](const Figures& a, const Figures& b) {
      return a.pods_per_second < b.pods_per_second;
    });
  }
  const double ratio = all["binder"][1].pods_per_second / all["kube-scheduler"][1].pods_per_second;
  std::printf("figure kubernetes_throughput_ratio %.2f\n", ratio);
  EXPECT_GT(ratio, 0.5);
}

}  // namespace
}  // namespace baton::k8s
