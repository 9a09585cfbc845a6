// batond as a process, spoken to by clients that say exactly what a test wants.
#ifndef BATON_TESTS_BACKEND_BATOND_FIXTURE_H_
#define BATON_TESTS_BACKEND_BATOND_FIXTURE_H_

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/time.h"
#include "node/process.h"
#include "tests/backend/daemon_process.h"
#include "tests/backend/scripted_client.h"

namespace baton::backend {

using nlohmann::json;
using wire::ErrorKind;
using wire::Phase;

class Batond : public testing::Test {
 protected:
  void SetUp() override {
    Configure("");
    ASSERT_TRUE(daemon_.Start()) << daemon_.Log();
  }
  void Configure(const std::string& more) {
    WriteText(folder_ / "batond.toml",
              "[server]\nsocket_dir = \"" + (folder_ / "run") + "\"\nstate_dir = \"" +
                  (folder_ / "state") + "\"\nlock_dir = \"" + (folder_ / "lock") +
                  "\"\nlog_level = \"debug\"\n[http]\nlisten = \"\"\n[scheduler]\n" +
                  "drain_timeout = \"60s\"\n" +
                  "[[gpu]]\nuuid = \"GPU-a\"\n[[gpu]]\nuuid = \"GPU-b\"\n" + more);
  }
  // False: it refuses to start, and says so by its exit status.
  bool StartsAnyway() {
    if (!daemon_.Start()) return daemon_.Wait() != 1;
    daemon_.Stop();
    return true;
  }
  // Starts it again with another line of [server].
  bool StartWithServer(const std::string& line) {
    daemon_.Stop();
    std::string text = *ReadFile(folder_ / "batond.toml", 4096);
    text.insert(text.find("state_dir"), line + "\n");
    WriteText(folder_ / "batond.toml", text);
    return daemon_.Start();
  }
  // Starts it again with the operator's socket in a folder of its own.
  bool StartWithControlDir() {
    return StartWithServer("control_dir = \"" + (folder_ / "operator") + "\"");
  }
  // What status says that does not work.
  std::string Degraded() { return Status().at("daemon").at("degraded").dump(); }
  json Say(const json& request) { return Ask(folder_ / "run/control.sock", request); }
  // The ticket of a new pod.
  std::string Pod(const std::string& name, double request, json more = json::object()) {
    more.update({{"command", "create_pod"}, {"name", name}, {"request", request}});
    if (!more.contains("gpus")) more["gpus"] = {"GPU-a"};
    const json answer = Say(more);
    EXPECT_TRUE(answer.value("ok", false)) << answer.dump();
    return answer.value("ticket", "");
  }
  std::string Socket() { return folder_ / "run/baton.sock"; }
  json Status() { return Say({{"command", "status"}}); }
  json PodStatus(const std::string& name) {
    const json status = Status();
    for (const json& pod : status.at("pods")) {
      if (pod.at("name") == name) return pod;
    }
    return json::object();
  }
  std::string Holder(const std::string& uuid = "GPU-a") {
    const json status = Status();
    for (const json& gpu : status.at("gpus")) {
      if (gpu.at("uuid") == uuid) return gpu.value("holder", "");
    }
    return "?";
  }
  std::string PhaseOf(const std::string& pod) { return PodStatus(pod).value("phase", "?"); }
  // The client gives back, as one does that follows what it is told, until its pod holds no more.
  bool GivesBack(ScriptedClient& client, const std::string& pod) {
    return Eventually([&] {
      client.HasGrantNow();
      client.GiveBack();
      return Holder() != pod;
    });
  }
  // The daemon has taken in that the pod waits.
  bool IsWaiting(const std::string& pod) {
    return Eventually([&] { return PhaseOf(pod) == "waiting"; });
  }

  const TempFolder folder_;
  DaemonProcess daemon_{BATOND, folder_ / "batond.toml", folder_ / "batond.log"};
};

}  // namespace baton::backend

#endif  // BATON_TESTS_BACKEND_BATOND_FIXTURE_H_
