// The node's agent between an API server, in this process, and a batond, which is a real one.
#ifndef BATON_TESTS_K8S_DEVICE_PLUGIN_AGENT_OF_TESTS_H_
#define BATON_TESTS_K8S_DEVICE_PLUGIN_AGENT_OF_TESTS_H_

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/time.h"
#include "k8s/device_plugin/node_agent.h"
#include "tests/backend/daemon_process.h"
#include "tests/backend/scripted_client.h"
#include "tests/k8s/device_plugin/node_daemons.h"
#include "tests/k8s/device_plugin/node_pods_of_tests.h"
#include "tests/k8s/stand_in/api_server.h"

namespace baton::k8s {

// A batond that tells its status, no pods and perhaps a GPU, and closes at every command without a
// word.
class DumbBatond {
 public:
  explicit DumbBatond(const std::string& folder) {
    std::filesystem::create_directories(folder);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    (folder + "/control.sock").copy(address.sun_path, sizeof(address.sun_path) - 1);
    listen_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(bind(listen_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(listen_, 16), 0);
    thread_ = std::thread([this] { Run(); });
  }
  ~DumbBatond() {
    ending_ = true;
    thread_.join();
    close(listen_);
  }
  int asked() const { return asked_; }
  int told() const { return told_; }
  // From now on it has a GPU on which MIG is on.
  void TurnMigOn() { mig_ = true; }

 private:
  void Run() {
    while (!ending_) {
      pollfd wanted{listen_, POLLIN, 0};
      if (poll(&wanted, 1, 20) <= 0) continue;
      const int fd = accept4(listen_, nullptr, nullptr, SOCK_CLOEXEC);
      char line[4096];
      const ssize_t size = fd < 0 ? 0 : recv(fd, line, sizeof(line), 0);
      const std::string text(line, size > 0 ? static_cast<size_t>(size) : 0);
      if (text.find("\"status\"") != std::string::npos) {
        const Json gpus =
            mig_ ? Json::parse(R"([{"uuid": "GPU-m", "mig_enabled": true}])") : Json::array();
        const std::string answer =
            Json{{"ok", true}, {"pods", Json::array()}, {"gpus", gpus}}.dump() + "\n";
        (void)!send(fd, answer.data(), answer.size(), MSG_NOSIGNAL);
        ++told_;
      } else if (text.find("\"create_pod\"") != std::string::npos) {
        ++asked_;
      }
      if (fd >= 0) close(fd);
    }
  }

  int listen_ = -1;
  std::atomic<bool> ending_ = false, mig_ = false;
  std::atomic<int> asked_ = 0, told_ = 0;
  std::thread thread_;
};

class AgentOfTests : public ::testing::Test {
 protected:
  void SetUp() override {
    ConfigureBatond(folder_, central_);
    ASSERT_TRUE(batond_.Start()) << batond_.Log();
  }
  void TearDown() override { StopAgent(); }

  void StartAgent(bool by_cgroup = true, const std::string& sockets = "run") {
    auto client = Client::Make(api_.config(), {});
    ASSERT_TRUE(client) << client.error().message;
    client_ = std::move(*client);
    EventRecorderOptions events;
    events.controller = "baton.dev/node";
    events_ = std::make_unique<EventRecorder>(*client_, events);
    NodeAgentOptions options;
    options.node = "n1";
    options.socket_dir = folder_ / sockets;
    options.report_every = std::chrono::milliseconds(100);
    options.paused_after = std::chrono::milliseconds(300);
    options.advise_every = std::chrono::milliseconds(200);
    options.away_after = std::chrono::milliseconds(500);
    options.refresh_every = refresh_every_;
    options.makes_mps = makes_mps_;
    options.by_cgroup = by_cgroup;
    options.mounts_hook = [this] { return mounts_hook_.load(); };
    options.on_cards = [this](std::vector<PluginCard> cards) {
      const std::lock_guard lock(mutex_);
      cards_ = std::move(cards);
    };
    agent_ = std::make_unique<NodeAgent>(*client_, *events_, std::move(options));
  }
  void StopAgent() {
    if (client_ != nullptr) client_->Stop();
    agent_.reset();
    events_.reset();
    client_.reset();
  }

  Json Ask(const Json& request) { return backend::Ask(folder_ / "run/control.sock", request); }
  // A pod of batond; an empty object: there is none.
  Json Row(const std::string& name) {
    const Json status = Ask({{"command", "status"}});
    if (status.is_object()) {
      for (const Json& row : status.at("pods")) {
        if (row.at("name") == name) return row;
      }
    }
    return Json::object();
  }
  size_t Rows() {
    const Json status = Ask({{"command", "status"}});
    return status.is_object() ? status.at("pods").size() : 0;
  }
  bool AwaitRow(const std::string& name, double request) {
    return api_.WaitFor([&] { return Row(name).value("request", 0.0) == request; });
  }
  std::vector<PluginCard> Cards() {
    const std::lock_guard lock(mutex_);
    return cards_;
  }
  net::HttpResponse Get(const std::string& path) { return agent_->Answer({"GET", path, ""}); }
  bool MetricsSay(const std::string& line) {
    return Get("/metrics").body.find("\n" + line + "\n") != std::string::npos;
  }
  int BatondErrors() {
    const std::string name = "\nbaton_agent_batond_errors_total ";
    const std::string metrics = Get("/metrics").body;
    return std::stoi(metrics.substr(metrics.find(name) + name.size()));
  }
  Json Status(const Resource& resource, const ObjectName& name) {
    const auto object = api_.Get(resource, name);
    return object ? object->value("status", Json::object()) : Json::object();
  }

  Duration refresh_every_ = std::chrono::minutes(5);
  bool makes_mps_ = true;
  std::atomic<bool> mounts_hook_{true};
  const TempFolder folder_;
  const std::string central_ = "tcp://127.0.0.1:" + std::to_string(backend::FreePort());
  testing::ApiServer api_;
  backend::DaemonProcess batond_{BATOND, folder_ / "batond.toml", folder_ / "batond.log"};
  std::unique_ptr<Client> client_;
  std::unique_ptr<EventRecorder> events_;
  std::unique_ptr<NodeAgent> agent_;
  std::mutex mutex_;
  std::vector<PluginCard> cards_;
};

}  // namespace baton::k8s

#endif  // BATON_TESTS_K8S_DEVICE_PLUGIN_AGENT_OF_TESTS_H_
