#include "bench/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>

extern char** environ;

namespace baton::bench {
namespace {

int StatusOf(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

std::vector<std::string> EnvironmentOf(const SpawnOptions& options) {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) variables[text.substr(0, equals)] = text.substr(equals + 1);
  }
  for (const std::string& name : options.unset) variables.erase(name);
  for (const auto& [name, value] : options.environment) variables[name] = value;
  std::vector<std::string> entries;
  for (const auto& [name, value] : variables) entries.push_back(name + "=" + value);
  return entries;
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Between fork and exec: async-signal-safe calls only.
void Redirect(const char* path, int target) {
  if (path[0] == '\0') return;
  const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd >= 0) dup2(fd, target);
}

}  // namespace

Result<Process> Process::Spawn(const SpawnOptions& options) {
  std::vector<std::string> command = options.command;
  std::vector<std::string> environment = EnvironmentOf(options);
  const std::vector<char*> argv = Pointers(command);
  const std::vector<char*> envp = Pointers(environment);
  const pid_t parent = getpid();
  int failure[2];  // carries errno of a failed exec; closed by a successful one
  if (pipe2(failure, O_CLOEXEC) != 0) {
    return Fail(ErrorCode::kInternal, std::string("pipe: ") + strerror(errno));
  }
  const pid_t pid = fork();
  if (pid < 0) {
    close(failure[0]);
    close(failure[1]);
    return Fail(ErrorCode::kInternal, std::string("fork: ") + strerror(errno));
  }
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
    setpgid(0, 0);  // the terminal's ^C is for the parent, which stops its children in order
    Redirect(options.stdout_path.c_str(), STDOUT_FILENO);
    Redirect(options.stderr_path.c_str(), STDERR_FILENO);
    const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null >= 0) dup2(null, STDIN_FILENO);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    execvpe(argv[0], argv.data(), envp.data());
    const int error = errno;
    [[maybe_unused]] const ssize_t written = write(failure[1], &error, sizeof error);
    _exit(127);
  }
  close(failure[1]);
  int error = 0;
  ssize_t n;
  while ((n = read(failure[0], &error, sizeof error)) < 0 && errno == EINTR) {
  }
  close(failure[0]);
  Process process;
  process.pid_ = pid;
  process.pidfd_ = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (n > 0) {
    return Fail(ErrorCode::kNotFound,
                "cannot start " + options.command[0] + ": " + strerror(error));
  }
  if (process.pidfd_ < 0) {
    return Fail(ErrorCode::kInternal,
                std::string("pidfd_open: ") + strerror(errno) + "; Linux 5.3 or newer is needed");
  }
  return process;
}

Process& Process::operator=(Process&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(pidfd_, other.pidfd_);
  std::swap(status_, other.status_);
  return *this;
}

Process::~Process() {
  if (pid_ < 0) return;
  Signal(SIGKILL);
  Wait(std::chrono::seconds(10));
  if (pidfd_ >= 0) close(pidfd_);
}

void Process::Signal(int signal) const {
  if (!status_) kill(pid_, signal);
}

std::optional<ExitStatus> Process::Wait(Duration timeout) {
  const Instant deadline = MonotonicNow() + timeout;
  while (!status_) {
    int wait_status = 0;
    const pid_t reaped = waitpid(pid_, &wait_status, WNOHANG);
    if (reaped == pid_) {
      status_ = StatusOf(wait_status);
      break;
    }
    if (reaped < 0 && errno == ECHILD) {
      status_ = 128 + SIGKILL;  // reaped by KillDescendants
      break;
    }
    const Duration left = deadline - MonotonicNow();
    if (left <= Duration::zero()) return std::nullopt;
    pollfd ended{pidfd_, POLLIN, 0};
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    poll(&ended, 1, static_cast<int>(std::min<int64_t>(ms, 3'600'000)));
  }
  return status_;
}

ExitStatus Process::Stop(Duration grace) {
  Signal(SIGTERM);
  if (const auto status = Wait(grace)) return *status;
  Signal(SIGKILL);
  return Wait(std::chrono::seconds(10)).value_or(128 + SIGKILL);
}

std::vector<pid_t> Descendants(pid_t root) {
  std::multimap<pid_t, pid_t> children;
  DIR* proc = opendir("/proc");
  if (proc == nullptr) return {};
  while (const dirent* entry = readdir(proc)) {
    const pid_t pid = atoi(entry->d_name);
    if (pid <= 0) continue;
    std::ifstream stat("/proc/" + std::string(entry->d_name) + "/stat");
    // Not by iterators, which throw where the process ends between opening and reading.
    std::string text;
    std::getline(stat, text, '\0');
    // "pid (name) state ppid ...": the name may contain anything.
    const size_t after_name = text.rfind(')');
    if (after_name == std::string::npos || after_name + 4 >= text.size()) continue;
    children.emplace(atoi(text.c_str() + after_name + 4), pid);
  }
  closedir(proc);
  std::vector<pid_t> found, open = {root};
  while (!open.empty()) {
    const pid_t parent = open.back();
    open.pop_back();
    const auto [first, last] = children.equal_range(parent);
    for (auto child = first; child != last; ++child) {
      found.push_back(child->second);
      open.push_back(child->second);
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

void AdoptOrphans() { prctl(PR_SET_CHILD_SUBREAPER, 1); }

void KillDescendants() {
  for (;;) {
    const std::vector<pid_t> pids = Descendants(getpid());
    if (pids.empty()) return;
    for (const pid_t pid : pids) kill(pid, SIGKILL);
    // Grandchildren become children as their parents die, and are met in the next round.
    while (waitpid(-1, nullptr, 0) > 0 || errno == EINTR) {
      if (errno == EINTR) errno = 0;
    }
  }
}

}  // namespace baton::bench
