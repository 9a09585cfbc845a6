#include "cli/child.h"

#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace baton::cli {
namespace {

constexpr int kPassedOn[] = {SIGINT,  SIGTERM,  SIGHUP,  SIGQUIT, SIGUSR1,
                             SIGUSR2, SIGWINCH, SIGCONT, SIGTSTP};

// In the child: becomes the program, or writes errno to `report` and ends.
[[noreturn]] void Become(const std::vector<std::string>& command, const sigset_t& mask, int report,
                         const std::optional<Account>& account) {
  std::vector<char*> argv;
  argv.reserve(command.size() + 1);
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  const bool is_account = !account || (initgroups(account->name.c_str(), account->gid) == 0 &&
                                       setgid(account->gid) == 0 && setuid(account->uid) == 0);
  if (is_account) execvp(argv[0], argv.data());
  const int error = errno;
  [[maybe_unused]] const ssize_t written = write(report, &error, sizeof error);
  _exit(127);
}

// Waits until the child has ended and returns its wait status.
int PassSignals(pid_t child, const sigset_t& signals, const std::optional<Meanwhile>& meanwhile) {
  Instant next = meanwhile ? MonotonicNow() + meanwhile->every : kNever;
  for (;;) {
    int status = 0;
    const pid_t changed = waitpid(child, &status, WNOHANG | WUNTRACED);
    if (changed == child && !WIFSTOPPED(status)) return status;
    if (changed == child && WSTOPSIG(status) != SIGSTOP) {
      // Job control stopped it: stop as well, and wake it when the shell wakes us. (A SIGSTOP sent
      // to the child alone is somebody's own business, as is its SIGCONT.)
      raise(SIGSTOP);
      kill(child, SIGCONT);
      continue;
    }
    siginfo_t info;
    const Instant now = MonotonicNow();
    if (next <= now) {
      meanwhile->act();
      next = MonotonicNow() + meanwhile->every;
      continue;
    }
    const int64_t left = meanwhile ? Nanos(next - now) : 0;
    const timespec limit{left / 1'000'000'000, left % 1'000'000'000};
    const int signal =
        meanwhile ? sigtimedwait(&signals, &info, &limit) : sigwaitinfo(&signals, &info);
    if (signal < 0 || signal == SIGCHLD) continue;
    if (info.si_code != SI_KERNEL) kill(child, signal);
  }
}

}  // namespace

HeldSignals::HeldSignals() {
  sigemptyset(&held_);
  sigaddset(&held_, SIGCHLD);
  for (const int signal : kPassedOn) sigaddset(&held_, signal);
  sigprocmask(SIG_BLOCK, &held_, &before_);
}

bool HeldSignals::Ending() const {
  sigset_t waiting;
  sigpending(&waiting);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    if (sigismember(&waiting, signal) == 1) return true;
  }
  return false;
}

HeldSignals::~HeldSignals() { sigprocmask(SIG_SETMASK, &before_, nullptr); }

Result<int> RunChild(const HeldSignals& signals, const std::vector<std::string>& command,
                     const std::vector<std::pair<std::string, std::string>>& environment,
                     const std::optional<Account>& account,
                     const std::optional<Meanwhile>& meanwhile) {
  int report[2];
  if (pipe2(report, O_CLOEXEC) != 0) {
    return Fail(ErrorCode::kInternal, std::string("pipe: ") + std::strerror(errno));
  }
  // Whoever starts this may ignore the ends of children: then none would be told here.
  signal(SIGCHLD, SIG_DFL);
  const pid_t child = fork();
  if (child == 0) {
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    if (account) {
      setenv("USER", account->name.c_str(), 1);
      setenv("LOGNAME", account->name.c_str(), 1);
      if (!account->home.empty()) setenv("HOME", account->home.c_str(), 1);
    }
    Become(command, signals.before(), report[1], account);
  }
  const int fork_error = errno;
  close(report[1]);
  int error = 0;
  ssize_t got = 0;
  int status = 0;
  if (child > 0) {
    do {
      got = read(report[0], &error, sizeof error);
    } while (got < 0 && errno == EINTR);
    status = PassSignals(child, signals.held(), meanwhile);
  }
  close(report[0]);

  if (child < 0) {
    return Fail(ErrorCode::kInternal, std::string("fork: ") + std::strerror(fork_error));
  }
  if (got == sizeof error) {
    if (error == ENOENT) {
      return Fail(ErrorCode::kNotFound, "no program '" + command[0] + "'; check its name and PATH");
    }
    return Fail(ErrorCode::kDenied, "cannot run '" + command[0] + "': " + std::strerror(error));
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace baton::cli
