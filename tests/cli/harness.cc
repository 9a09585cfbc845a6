#include "tests/cli/harness.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>

namespace baton::cli {
namespace {

std::string ReadAll(int fd) {
  std::string text;
  std::array<char, 4096> buffer;
  for (ssize_t n; (n = read(fd, buffer.data(), buffer.size())) > 0;) {
    text.append(buffer.data(), static_cast<size_t>(n));
  }
  return text;
}

}  // namespace

BatonProcess::BatonProcess(const std::vector<std::string>& arguments,
                           const Environment& environment, const std::string& out_file) {
  std::array<int, 2> out_pipe, err_pipe;
  if (pipe2(out_pipe.data(), O_CLOEXEC) != 0 || pipe2(err_pipe.data(), O_CLOEXEC) != 0) {
    std::abort();
  }
  std::vector<const char*> argv{BATON_PROGRAM};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  argv.push_back(nullptr);
  pid_ = fork();
  if (pid_ == 0) {
    setpgid(0, 0);
    signal(SIGINT, SIG_DFL);  // a shell has its background jobs ignore it
    const int out_fd = out_file.empty() ? out_pipe[1] : open(out_file.c_str(), O_WRONLY);
    dup2(out_fd, STDOUT_FILENO);
    dup2(err_pipe[1], STDERR_FILENO);
    for (const char* name : {"BATON_SOCKET_DIR", "BATON_HOOK", "LD_PRELOAD"}) unsetenv(name);
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    execv(argv[0], const_cast<char**>(argv.data()));
    _exit(111);
  }
  close(out_pipe[1]);
  close(err_pipe[1]);
  out_fd_ = out_pipe[0];
  err_fd_ = err_pipe[0];
}

BatonProcess::~BatonProcess() {
  if (pid_ > 0) {
    kill(-pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close(out_fd_);
  close(err_fd_);
}

bool BatonProcess::AwaitLine(const std::string& line) {
  for (char c; out.find(line + "\n") == std::string::npos; out += c) {
    if (read(out_fd_, &c, 1) <= 0) return false;
  }
  return true;
}

bool BatonProcess::AwaitStop() {
  int status = 0;
  return waitpid(pid_, &status, WUNTRACED) == pid_ && WIFSTOPPED(status);
}

int BatonProcess::Wait() {
  out += ReadAll(out_fd_);
  err += ReadAll(err_fd_);
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

Outcome RunBaton(const std::vector<std::string>& arguments, const Environment& environment,
                 const std::string& out_file) {
  BatonProcess process(arguments, environment, out_file);
  const int status = process.Wait();
  return {status, process.out, process.err};
}

FakeDaemon::FakeDaemon(Answer answer) : answer_(std::move(answer)) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  (folder_.path() + "/control.sock").copy(address.sun_path, sizeof address.sun_path - 1);
  listener_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      listen(listener_, 16) != 0) {
    std::abort();
  }
  thread_ = std::thread([this] { Serve(); });
}

FakeDaemon::~FakeDaemon() {
  shutdown(listener_, SHUT_RDWR);  // wakes accept()
  thread_.join();
  close(listener_);
}

std::vector<nlohmann::json> FakeDaemon::requests() {
  const std::lock_guard lock(mutex_);
  return requests_;
}

void FakeDaemon::Serve() {
  for (int fd; (fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0; close(fd)) {
    std::string line;
    for (char c; read(fd, &c, 1) == 1 && c != '\n';) line += c;
    if (line.empty()) continue;
    const nlohmann::json request = nlohmann::json::parse(line);
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(request);
    }
    nlohmann::json answer = answer_ ? answer_(request) : nlohmann::json::object();
    if (!answer.contains("ok")) answer["ok"] = true;
    const std::string text = answer.dump() + "\n";
    if (send(fd, text.data(), text.size(), MSG_NOSIGNAL) < 0) continue;
  }
}

}  // namespace baton::cli
