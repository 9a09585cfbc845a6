// Who may use the ticket of a Kubernetes pod: processes that really are in its cgroup.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/backend/daemon_process.h"
#include "tests/backend/scripted_client.h"

namespace baton::backend {
namespace {

using nlohmann::json;

// The hierarchy is the whole machine's: tests that run at once have uids of their own.
std::string UidFor(const char* beginning) {
  char uid[37];
  snprintf(uid, sizeof uid, "%s-%012x", beginning, static_cast<unsigned>(getpid()));
  return uid;
}
const std::string kMine = UidFor("0f5e3b1c-9d2a-4c3b-8e1f");
const std::string kOther = UidFor("11111111-2222-3333-4444");

// A group below the root of a hierarchy in which this user may make groups: removed at the end.
class Group {
 public:
  // `path` below the root, several levels. Empty root(): there is no such hierarchy here.
  explicit Group(const std::string& path) {
    for (const char* root : {"/sys/fs/cgroup/pids", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup"}) {
      if (access((std::string(root) + "/cgroup.procs").c_str(), W_OK) != 0) continue;
      // Another test may take an upper level away at that moment.
      for (int attempt = 0; attempt < 10; ++attempt) {
        for (size_t at = 1; at != std::string::npos;) {
          at = path.find('/', at);
          const std::string part = root + path.substr(0, at);
          if (mkdir(part.c_str(), 0755) == 0) made_.push_back(part);
          if (at != std::string::npos) ++at;
        }
        if (access((root + path + "/cgroup.procs").c_str(), W_OK) == 0) {
          path_ = root + path;
          return;
        }
        Remove();
      }
    }
  }
  ~Group() { Remove(); }
  bool made() const { return !path_.empty(); }
  bool Enter() const { return WriteProcs(path_); }

 private:
  static bool WriteProcs(const std::string& folder) {
    FILE* file = fopen((folder + "/cgroup.procs").c_str(), "w");
    if (file == nullptr) return false;
    const bool written = fputs("0", file) >= 0;
    return fclose(file) == 0 && written;
  }
  void Remove() {
    for (auto it = made_.rbegin(); it != made_.rend(); ++it) {
      for (int i = 0; i < 100 && rmdir(it->c_str()) != 0 && errno == EBUSY; ++i) usleep(10'000);
    }
    made_.clear();
  }
  std::vector<std::string> made_;
  std::string path_;
};

// What a process that lives in `group` (null: where we are) is told when it says Hello.
// "welcome", or the error's sentence.
std::string HelloFrom(const Group* group, const std::string& socket, const std::string& ticket) {
  int told[2];
  if (pipe(told) != 0) return "no pipe";
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::string answer = "did not enter the group";
    if (group == nullptr || group->Enter()) {
      ScriptedClient client(socket);
      client.SayHello(ticket);
      char bytes[wire::kTenantFrameMax];
      pollfd readable{client.fd(), POLLIN, 0};
      const ssize_t size = poll(&readable, 1, ScriptedClient::kPatienceMs) == 1
                               ? recv(client.fd(), bytes, sizeof bytes, 0)
                               : 0;
      wire::Frame frame;
      wire::Welcome welcome;
      wire::Error error;
      answer = "silence";
      if (size > 0 && frame.Parse(bytes, static_cast<size_t>(size)) == wire::DecodeStatus::kOk) {
        if (frame.Read(welcome)) answer = "welcome";
        if (frame.Read(error)) answer = error.text.view();
      }
    }
    if (write(told[1], answer.data(), answer.size()) < 0) _exit(1);
    _exit(0);
  }
  close(told[1]);
  char answer[1024];
  ssize_t size = 0, n;
  while ((n = read(told[0], answer + size, sizeof answer - static_cast<size_t>(size))) > 0) {
    size += n;
  }
  close(told[0]);
  waitpid(pid, nullptr, 0);
  return std::string(answer, static_cast<size_t>(size));
}

class PodIdentity : public testing::Test {
 protected:
  void SetUp() override {
    if (!mine_.made() || !other_.made()) {
      GTEST_SKIP() << "no cgroup hierarchy is writable here; run it as root";
    }
    WriteText(folder_ / "batond.toml", Server("run", "lock") +
                                           "[zmq]\nlisten = \"tcp://127.0.0.1:" + port_ + "\"\n" +
                                           "[[gpu]]\nuuid = \"GPU-a\"\n");
    WriteText(folder_ / "node.toml",
              Server("node", "node-lock") +
                  "[node]\nname = \"n0\"\n[zmq]\nconnect = \"tcp://127.0.0.1:" + port_ +
                  "\"\n[[gpu]]\nuuid = \"GPU-n\"\n");
    ASSERT_TRUE(batond_.Start()) << batond_.Log();
  }
  std::string Server(const std::string& run, const std::string& lock) {
    return "[server]\nlocal_gpus = \"yes\"\nsocket_dir = \"" + (folder_ / run) +
           "\"\nstate_dir = \"" + (folder_ / "state") + "\"\nlock_dir = \"" + (folder_ / lock) +
           "\"\n[http]\nlisten = \"\"\n";
  }
  json Create(const std::string& run, const std::string& gpu, const std::string& uid) {
    return Ask(folder_ / (run + "/control.sock"), {{"command", "create_pod"},
                                                   {"name", "vision/" + uid},
                                                   {"request", 50},
                                                   {"gpus", {gpu}},
                                                   {"cgroup", uid},
                                                   {"ticket", uid + "/0"}});
  }
  void ExpectOnlyItsOwn(const std::string& run) {
    const std::string socket = folder_ / (run + "/baton.sock");
    const std::string ticket = kMine + "/0";
    EXPECT_EQ(HelloFrom(&mine_, socket, ticket), "welcome");
    const std::string other = HelloFrom(&other_, socket, ticket);
    EXPECT_NE(other.find(kOther), std::string::npos) << other;
    const std::string nobody = HelloFrom(nullptr, socket, ticket);
    EXPECT_NE(nobody.find("only processes of the pod itself"), std::string::npos) << nobody;
    // It calls a group of its own as the kubelet calls the pod's.
    const Group hostile("/kubepods/burstable/pod" + kOther + "/c0/kubepods/pod" + kMine);
    ASSERT_TRUE(hostile.made());
    const std::string refused = HelloFrom(&hostile, socket, ticket);
    EXPECT_NE(refused.find(kOther), std::string::npos) << refused;
  }

  const TempFolder folder_;
  const std::string port_ = std::to_string(FreePort());
  const Group mine_{"/kubepods/pod" + kMine + "/c0"};
  const Group other_{"/kubepods/burstable/pod" + kOther + "/c0"};
  DaemonProcess batond_{BATOND, folder_ / "batond.toml", folder_ / "batond.log"};
  DaemonProcess frontend_{FRONTEND, folder_ / "node.toml", folder_ / "node.log"};
};

TEST_F(PodIdentity, OnlyProcessesInThePodsCgroupAttach) {
  const json made = Create("run", "GPU-a", kMine);
  ASSERT_TRUE(made.value("ok", false)) << made.dump();
  EXPECT_EQ(made.at("ticket"), kMine + "/0");
  EXPECT_EQ(made.at("cgroup"), kMine);
  ExpectOnlyItsOwn("run");
  // It is kept, and holds again, after a restart.
  ASSERT_EQ(batond_.Stop(), 0);
  ASSERT_TRUE(batond_.Start());
  ExpectOnlyItsOwn("run");
}

TEST_F(PodIdentity, ARelayVouchesForTheCgroup) {
  ASSERT_TRUE(frontend_.Start()) << frontend_.Log();
  json made;
  ASSERT_TRUE(Eventually([&] {
    made = Create("node", "GPU-n", kMine);
    return made.value("ok", false);
  })) << made.dump();
  ExpectOnlyItsOwn("node");
}

TEST_F(PodIdentity, WhatIsNoUidOrTicketIsRefused) {
  const auto ask = [&](const json& more) {
    json request{{"command", "create_pod"}, {"name", "p"}, {"request", 50}};
    request.update(more);
    return Ask(folder_ / "run/control.sock", request).value("error", "");
  };
  EXPECT_NE(ask({{"cgroup", "../x"}}).find("cgroup must be the uid"), std::string::npos);
  EXPECT_NE(ask({{"cgroup", std::string(65, 'a')}}).find("cgroup must"), std::string::npos);
  EXPECT_NE(ask({{"cgroup", 5}}).find("cgroup must be text"), std::string::npos);
  EXPECT_NE(ask({{"ticket", ""}}).find("ticket must be 1 to 64"), std::string::npos);
  EXPECT_NE(ask({{"ticket", std::string(65, 'a')}}).find("ticket must"), std::string::npos);
  EXPECT_NE(ask({{"ticket", "a b"}}).find("ticket must"), std::string::npos);
  ASSERT_TRUE(Create("run", "GPU-a", kMine).value("ok", false));
  EXPECT_NE(ask({{"ticket", kMine + "/0"}}).find("another pod has this ticket"), std::string::npos);
}

}  // namespace
}  // namespace baton::backend
