#include "node/supervise.h"

#include <errno.h>
#include <fmt/format.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "base/async_log.h"

namespace baton::node {
namespace {

constexpr Duration kPauseMin = std::chrono::milliseconds(10);
constexpr Duration kPauseMax = std::chrono::seconds(1);

int ExitStatusOf(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

void Say(LogFormat format, const std::string& name, const std::string& text) {
  const std::string line = ComplaintLine(format, name, text);
  // Where nobody reads it, it is lost: the daemon must come back.
  WriteBefore(STDERR_FILENO, line.data(), line.size(), MonotonicNow() + kPauseMin);
}

// Waits for a signal of `set`, for `patience` at most. 0: none came.
int AwaitSignal(const sigset_t& set, std::optional<Duration> patience) {
  if (!patience) {
    const int signal = sigwaitinfo(&set, nullptr);
    return signal < 0 ? 0 : signal;
  }
  const int64_t ns = Nanos(*patience);
  const timespec time{static_cast<time_t>(ns / 1'000'000'000),
                      static_cast<long>(ns % 1'000'000'000)};
  const int signal = sigtimedwait(&set, nullptr, &time);
  return signal < 0 ? 0 : signal;
}

// What ps shows of this process: its name, and the memory of its arguments.
class Title {
 public:
  explicit Title(std::span<char* const> argv) {
    for (char* argument : argv) {
      // One after the other, as the kernel laid them; else they are left alone.
      if (begin_ != nullptr && argument != begin_ + size_) break;
      if (begin_ == nullptr) begin_ = argument;
      size_ += strlen(argument) + 1;
    }
    if (begin_ != nullptr) before_.assign(begin_, size_);
  }
  void Set(const char* title) {
    prctl(PR_SET_NAME, title);
    if (strlen(title) >= size_) return;
    memset(begin_, 0, size_);
    memcpy(begin_, title, strlen(title));
  }
  void Restore(const std::string& name) {
    prctl(PR_SET_NAME, name.c_str());
    if (begin_ != nullptr) memcpy(begin_, before_.data(), size_);
  }

 private:
  char* begin_ = nullptr;
  size_t size_ = 0;
  std::string before_;
};

}  // namespace

std::optional<Duration> RestartRule::AfterEnd(int status, Duration lived) {
  if (!WIFSIGNALED(status)) return std::nullopt;
  if (lived >= kEarly) {
    early_ = 0;
    return Duration(0);
  }
  if (++early_ > kEarlyMax) return std::nullopt;
  return std::min<Duration>(kPauseMin * (1 << (early_ - 1)), kPauseMax);
}

int Supervise(const std::string& name, std::span<char* const> argv, const std::function<int()>& run,
              LogFormat format) {
  Title title(argv);
  sigset_t set, before;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGCHLD}) sigaddset(&set, signal);
  sigprocmask(SIG_BLOCK, &set, &before);
  const pid_t self = getpid();
  RestartRule rule;
  bool stopping = false;
  title.Set("baton-keeper");  // before there is a daemon that could be looked for by its name
  while (true) {
    const pid_t child = fork();
    if (child < 0) {
      Say(format, name, std::string("cannot start: fork: ") + strerror(errno));
      return 1;
    }
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != self) _exit(1);
      title.Restore(name);
      sigprocmask(SIG_SETMASK, &before, nullptr);
      return run();
    }
    const Instant started = MonotonicNow();
    int status = 0;
    for (bool ended = false; !ended;) {
      const int signal = AwaitSignal(set, std::nullopt);
      if (signal == SIGCHLD) {
        // As the first process of a container it has children of others too.
        int of_any = 0;
        for (pid_t pid; (pid = waitpid(-1, &of_any, WNOHANG)) > 0;) {
          if (pid != child) continue;
          status = of_any;
          ended = true;
        }
      } else if (signal != 0) {
        stopping |= signal != SIGHUP;
        kill(child, signal);
      }
    }
    const Duration lived = MonotonicNow() - started;
    const std::optional<Duration> pause = stopping ? std::nullopt : rule.AfterEnd(status, lived);
    if (!pause) return ExitStatusOf(status);
    Say(format, name,
        fmt::format("ended by signal {} ({}) after {:.1f} s; it is started again", WTERMSIG(status),
                    strsignal(WTERMSIG(status)), static_cast<double>(Nanos(lived)) / 1e9));
    for (const Instant again = MonotonicNow() + *pause; !stopping;) {
      const Duration left = again - MonotonicNow();
      if (left <= Duration(0)) break;
      const int signal = AwaitSignal(set, left);
      stopping |= signal == SIGTERM || signal == SIGINT;
    }
    if (stopping) return ExitStatusOf(status);
  }
}

}  // namespace baton::node
