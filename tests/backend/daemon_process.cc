#include "tests/backend/daemon_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "tests/backend/scripted_client.h"

extern char** environ;

namespace baton::backend {
namespace {

sockaddr_un Address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  return address;
}

int ExitStatus(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

void WriteText(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::trunc) << text;
}
std::string ReadText(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

DaemonProcess::DaemonProcess(std::string program, std::string config, std::string log,
                             std::vector<std::string> flags)
    : program_(std::move(program)),
      config_(std::move(config)),
      log_(std::move(log)),
      flags_(std::move(flags)) {}
DaemonProcess::~DaemonProcess() {
  Crash();
  // It was killed, so its exit status does not tell of a sanitizer's report.
  const std::string log = Log();
  for (const char* report : {"Sanitizer: ", "runtime error: "}) {
    if (log.find(report) != std::string::npos) ADD_FAILURE() << program_ << ":\n" << log;
  }
}

bool DaemonProcess::Start() {
  const std::string notify = log_ + ".notify";
  unlink(notify.c_str());
  const int ready = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const sockaddr_un address = Address(notify);
  if (bind(ready, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return false;
  const std::string variable = "NOTIFY_SOCKET=" + notify;
  std::vector<char*> environment{const_cast<char*>(variable.c_str())};
  for (char** e = environ; *e != nullptr; ++e) environment.push_back(*e);
  environment.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 2, log_.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  std::vector<const char*> arguments{program_.c_str(), "--config", config_.c_str()};
  for (const std::string& flag : flags_) arguments.push_back(flag.c_str());
  arguments.push_back(nullptr);
  posix_spawn(&pid_, program_.c_str(), &files, nullptr, const_cast<char**>(arguments.data()),
              environment.data());
  posix_spawn_file_actions_destroy(&files);
  bool is_ready = false;
  for (int waited = 0; waited < ScriptedClient::kPatienceMs && !is_ready; waited += 20) {
    pollfd p{ready, POLLIN, 0};
    if (poll(&p, 1, 20) > 0) {
      char text[64] = {};
      is_ready = recv(ready, text, sizeof text - 1, 0) > 0 && strncmp(text, "READY=1", 7) == 0;
    } else {
      siginfo_t ended{};
      if (waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
          ended.si_pid == pid_) {
        break;
      }
    }
  }
  close(ready);
  return is_ready;
}

void DaemonProcess::Signal(int signal) {
  if (pid_ <= 0 || kill(pid_, signal) != 0 || signal != SIGSTOP) return;
  // It goes on for a moment, on another processor.
  waitpid(pid_, nullptr, WUNTRACED);
}
void DaemonProcess::Crash() {
  Signal(SIGKILL);
  Wait();
}
int DaemonProcess::Stop() {
  Signal(SIGTERM);
  return Wait();
}
int DaemonProcess::Wait() {
  if (pid_ <= 0) return -1;
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return ExitStatus(status);
}
std::string DaemonProcess::Log() const {
  return std::filesystem::is_regular_file(log_) ? ReadText(log_) : "";
}

nlohmann::json Ask(const std::string& socket_path, const nlohmann::json& request) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_un address = Address(socket_path);
  std::string answer;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
    const std::string line = request.dump() + "\n";
    if (send(fd, line.data(), line.size(), MSG_NOSIGNAL) > 0) {
      char buffer[4096];
      while (answer.find('\n') == std::string::npos) {
        const ssize_t n = recv(fd, buffer, sizeof buffer, 0);
        if (n <= 0) break;
        answer.append(buffer, static_cast<size_t>(n));
      }
    }
  }
  close(fd);
  return nlohmann::json::parse(answer, nullptr, false);
}

bool Eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < ScriptedClient::kPatienceMs / 5; ++i) {
    if (condition()) return true;
    const timespec pause{0, 5'000'000};
    nanosleep(&pause, nullptr);
  }
  return false;
}

int FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  close(fd);
  return ntohs(address.sin_port);
}

HolderProcess::HolderProcess(const std::string& socket_path, const std::string& ticket,
                             const std::string& uuid) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return;
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigset_t give_back;
    sigemptyset(&give_back);
    sigaddset(&give_back, SIGUSR1);
    sigprocmask(SIG_BLOCK, &give_back, nullptr);
    ScriptedClient client(socket_path, static_cast<uint64_t>(getpid()));
    const bool holds = client.Join(ticket, uuid) && client.Ask() && client.AwaitGrant() &&
                       client.Report(wire::Phase::kHolding);
    const char told = holds ? 'y' : 'n';
    if (write(ends[1], &told, 1) != 1) _exit(1);
    for (int signal = 0; sigwait(&give_back, &signal) == 0;) {
      const char gave = client.GiveBack() ? 'y' : 'n';
      if (write(ends[1], &gave, 1) != 1) _exit(1);
    }
  }
  close(ends[1]);
  told_ = ends[0];
}
HolderProcess::~HolderProcess() {
  Kill();
  close(told_);
}
bool HolderProcess::AwaitWord() const {
  pollfd p{told_, POLLIN, 0};
  char told = 'n';
  return poll(&p, 1, ScriptedClient::kPatienceMs) == 1 && read(told_, &told, 1) == 1 && told == 'y';
}
bool HolderProcess::AwaitHolding() { return AwaitWord(); }
bool HolderProcess::GiveBack() const { return kill(pid_, SIGUSR1) == 0 && AwaitWord(); }
void HolderProcess::Kill() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

}  // namespace baton::backend
