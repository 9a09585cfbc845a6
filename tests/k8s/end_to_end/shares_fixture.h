// A node with batond, its agent, a binder and a stand-in for the kubelet, on a real API server
// where there is one, on the stand-in always.
#ifndef BATON_TESTS_K8S_END_TO_END_SHARES_FIXTURE_H_
#define BATON_TESTS_K8S_END_TO_END_SHARES_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/end_to_end/fixture.h"
#include "tests/k8s/end_to_end/node_stand_in.h"
#include "tests/k8s/end_to_end/programs.h"
#include "tests/k8s/end_to_end/real_api_server.h"
#include "tests/k8s/stand_in/api_server.h"

namespace baton::k8s {

enum class Server { kStandIn, kReal };

class SharesOnKubernetes : public bench::EndToEnd, public ::testing::WithParamInterface<Server> {
 protected:
  void SetUp() override {
    if (GetParam() == Server::kReal) {
      if (const auto why = RealApiServer::WhyNot()) GTEST_SKIP() << *why;
      real_ = Must(RealApiServer::Start(folder_.path()));
      InstallBaton(*real_);
      config_ = real_->admin();
    } else {
      stand_in_ = std::make_unique<testing::ApiServer>();
      config_ = stand_in_->config();
    }
    client_ = Must(Client::Make(config_));
  }
  // A node of so many GPUs with what Baton runs there, and the binder.
  void StartNode(int gpus, const std::vector<std::string>& agent_flags,
                 bench::ClusterOptions options = {}) {
    options.transport = bench::Transport::kUnix;
    options.gpus = gpus;
    StartCluster(options);
    MustDo(CreateNode(*client_, kNode, gpus, 16 * 1024));
    agent_flags_ = agent_flags;
    StartAgent();
    ASSERT_TRUE(bench::WaitUntil(
        [&] {
          return client_->Get(resources::kGpuNodes, {"", kNode}).has_value();
        },
        std::chrono::seconds(20)))
        << TailOf(folder_ / "agent.log");
    StartBinder();
    // One pod in four is refused at first: its SharePod gets another.
    node_ = std::make_unique<NodeStandIn>(
        config_, NodeStandInOptions{kNode,
                                    folder_.path(),
                                    cluster().GpuEnvironment(0),
                                    {.socket_dir = cluster().SocketDir(0), .host_hook_dir = Hook()},
                                    refuse_every_});
  }
  static std::string Hook() { return std::filesystem::canonical(BATON_PROGRAMS "/../lib"); }
  void StartAgent() {
    std::vector<std::string> agent = {
        "baton-k8s",      "device-plugin",
        "--node",         kNode,
        "--socket-dir",   cluster().SocketDir(0),
        "--listen",       "",
        "--report-every", "2",
        "--identity",     NodeStandIn::HasCgroups() ? "cgroup" : "ticket",
        "--kubeconfig",   Kubeconfig("baton-node")};
    agent.insert(agent.end(), agent_flags_.begin(), agent_flags_.end());
    agent_ = StartProgram(folder_, "agent", agent);
  }
  void StartBinder() {
    binder_ = StartProgram(folder_, "binder",
                           {"baton-k8s", "binder", "--namespace", "baton-system", "--identity",
                            "one", "--listen", "", "--socket-dir", cluster().SocketDir(0),
                            "--hook-dir", Hook(), "--kubeconfig", Kubeconfig("baton-binder")});
  }
  void TearDown() override {
    node_.reset();
    binder_.reset();
    agent_.reset();
    client_.reset();
    if (HasFailure()) {
      if (real_) {
        std::printf("%s%s", real_->Kubectl({"get", "sharepods,pods,nodes", "-A"}).second.c_str(),
                    real_->Kubectl({"get", "sharepods", "-A", "-o", "yaml"}).second.c_str());
      }
      std::printf("binder: %s\nagent: %s\n", TailOf(folder_ / "binder.log").c_str(),
                  TailOf(folder_ / "agent.log").c_str());
    }
  }
  std::string Kubeconfig(const std::string& who) {
    if (real_) return real_->KubeconfigOf(who);
    std::string path = folder_.path() + "/kubeconfig";
    std::ofstream(path) << "apiVersion: v1\nkind: Config\ncurrent-context: t\n"
                        << "clusters: [{name: t, cluster: {server: \"" << config_.server
                        << "\"}}]\nusers: [{name: t, user: {}}]\n"
                        << "contexts: [{name: t, context: {cluster: t, user: t}}]\n";
    return path;
  }
  // Applies it as a user would: with kubectl and YAML where the server is real.
  void Apply(const std::string& name, const std::string& request,
             const std::string& restart = "Always") {
    if (real_) {
      const auto [status, said] = real_->KubectlFile(
          {"apply"}, "apiVersion: baton.dev/v1alpha1\nkind: SharePod\nmetadata: {name: " + name +
                         ", namespace: default}\nspec:\n  gpu: {request: \"" + request +
                         "\"}\n  template:\n    spec:\n      restartPolicy: " + restart +
                         "\n      containers:\n      - name: main\n"
                         "        image: registry.local/burn\n        command: [" +
                         cluster().Program("baton-burn") + ", --seconds, \"300\"]\n");
      ASSERT_EQ(status, 0) << said;
      return;
    }
    MustDo(client_->Create(
        resources::kSharePods, {"default", name},
        {{"apiVersion", "baton.dev/v1alpha1"},
         {"kind", "SharePod"},
         {"metadata", {{"name", name}, {"namespace", "default"}}},
         {"spec",
          {{"gpu", {{"request", request}}},
           {"template",
            {{"spec",
              {{"restartPolicy", restart},
               {"containers",
                Json::array({{{"name", "main"},
                              {"image", "registry.local/burn"},
                              {"command",
                               {cluster().Program("baton-burn"), "--seconds", "300"}}}})}}}}}}}}));
  }
  void PatchRequest(const std::string& name, const std::string& request) {
    MustDo(client_->Patch(resources::kSharePods, {"default", name}, PatchKind::kMerge,
                          {{"spec", {{"gpu", {{"request", request}}}}}}));
  }
  // Its condition PodScheduled says why it has no node.
  bool SaysThatItWaits(const std::string& pod) {
    return bench::WaitUntil(
        [&] {
          const auto found = client_->Get(resources::kPods, {"default", pod});
          return found && found->dump().find("PodScheduled") != std::string::npos;
        },
        std::chrono::seconds(20));
  }
  double StatusShare(const std::string& name) {
    const auto object = client_->Get(resources::kSharePods, {"default", name});
    const std::string text = object ? TextAt(*object, "status/achieved") : "";
    return text.empty() ? -1 : std::atof(text.c_str());
  }
  // What each pod got of the device over a while, in percent.
  std::map<std::string, double> OnDevice(const std::vector<std::string>& pods, Duration window) {
    const auto held = [&] {
      std::map<std::string, double> all;
      const Json status = Must(cluster().Status(0));
      for (const Json& pod : status.at("pods")) {
        const std::string name = pod.at("name");
        all[name.substr(name.find('/') + 1)] = pod.at("held_ns").get<double>();
      }
      return all;
    };
    const auto before = held();
    const Instant begin = MonotonicNow();
    bench::PassTime(window);
    const auto after = held();
    const double ns = static_cast<double>(Nanos(MonotonicNow() - begin));
    std::map<std::string, double> shares;
    for (const std::string& pod : pods) {
      shares[pod] = 100 * (after.at(pod) - before.at(pod)) / ns;
    }
    return shares;
  }

  static constexpr const char* kNode = "node0";
  TempFolder folder_;
  std::unique_ptr<RealApiServer> real_;
  std::unique_ptr<testing::ApiServer> stand_in_;
  ClusterConfig config_;
  std::unique_ptr<Client> client_;
  std::vector<std::string> agent_flags_;
  uint32_t refuse_every_ = 4;
  std::unique_ptr<bench::Process> agent_, binder_;
  std::unique_ptr<NodeStandIn> node_;
};

inline std::string NameOfServer(const ::testing::TestParamInfo<Server>& info) {
  return info.param == Server::kReal ? "Real" : "StandIn";
}

}  // namespace baton::k8s

#endif  // BATON_TESTS_K8S_END_TO_END_SHARES_FIXTURE_H_
