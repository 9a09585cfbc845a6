#include "devmgr/machine/mps_control.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "devmgr/machine/device_marks.h"

extern char** environ;

namespace baton::devmgr {
namespace {

constexpr size_t kOutputMax = 65'536;
// The longest name of a unix socket, less the end; the daemon's longest is control_privileged.
constexpr size_t kSocketMax = 107;
constexpr std::string_view kLongestSocket = "/pipe/control_privileged";
constexpr Duration kLook = std::chrono::milliseconds(5);  // between two looks at what must change

bool MakePipe(UniqueFd* read_end, UniqueFd* write_end) {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return false;
  *read_end = UniqueFd(fds[0]);
  *write_end = UniqueFd(fds[1]);
  return true;
}

void Pause(Duration d) {
  timespec t{0, static_cast<long>(Nanos(d))};
  nanosleep(&t, nullptr);
}

std::string Trimmed(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) {
    text.pop_back();
  }
  return text;
}

// The first line, for a sentence.
std::string Line(const std::string& text) {
  return text.empty() ? "it said nothing" : "it said '" + text.substr(0, text.find('\n')) + "'";
}

// Nothing of ours goes along: neither what is preloaded nor what CUDA should do here.
std::vector<std::string> EnvironmentFor(const std::string& card, const std::string& folder) {
  std::vector<std::string> result;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string_view entry = *at;
    if (!entry.starts_with("CUDA_") && !entry.starts_with("LD_PRELOAD="))
      result.emplace_back(entry);
  }
  result.push_back("CUDA_VISIBLE_DEVICES=" + card);
  result.push_back("CUDA_MPS_PIPE_DIRECTORY=" + folder + "/pipe");
  result.push_back("CUDA_MPS_LOG_DIRECTORY=" + folder + "/log");
  return result;
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  result.reserve(strings.size() + 1);
  for (std::string& s : strings) result.push_back(s.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

struct ProcessMpsControl::Outcome {
  bool ended = false;  // false: it was killed, for its time was up
  int status = -1;     // exit status; -1: a signal
  std::string output;
};

ProcessMpsControl::ProcessMpsControl(Options options) : options_(std::move(options)) {}

std::string ProcessMpsControl::PipeDirectory(const std::string& card) const {
  return Folder(card) + "/pipe";
}

Result<void> ProcessMpsControl::Check(const std::string& card) const {
  if (!IsFileName(card)) {
    return Fail(ErrorCode::kInvalid, "'" + card + "' cannot be a GPU's uuid");
  }
  if (Folder(card).size() + kLongestSocket.size() > kSocketMax) {
    return Fail(ErrorCode::kInvalid, "the folder for MPS, " + options_.folder +
                                         ", has too long a name: its sockets' names must be " +
                                         std::to_string(kSocketMax) + " bytes or less");
  }
  return {};
}

Result<ProcessMpsControl::Outcome> ProcessMpsControl::Run(const std::string& card,
                                                          const char* argument,
                                                          const std::string& input) {
  if (const auto fine = Check(card); !fine) return tl::unexpected<Error>(fine.error());
  const auto failed = [&](const char* what, int error) {
    return Fail(error == ENOENT ? ErrorCode::kNotFound : ErrorCode::kInternal,
                std::string(what) + " " + options_.program + ": " + std::strerror(error) +
                    (error == ENOENT ? "; it comes with NVIDIA's driver, and MPS needs it" : ""));
  };
  UniqueFd in_read, in_write, out_read, out_write;
  if (!MakePipe(&in_read, &in_write) || !MakePipe(&out_read, &out_write)) {
    return failed("cannot make pipes for", errno);
  }
  // Commands are far shorter than a pipe is deep.
  if (write(in_write.get(), input.data(), input.size()) != static_cast<ssize_t>(input.size())) {
    return failed("cannot write to", errno);
  }
  in_write.Close();

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in_read.get(), 0);
  posix_spawn_file_actions_adddup2(&actions, out_write.get(), 1);
  posix_spawn_file_actions_adddup2(&actions, out_write.get(), 2);
  // The daemon outlives us, and must not hold what we have open.
  posix_spawn_file_actions_addclosefrom_np(&actions, 3);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::vector<std::string> arguments = {options_.program};
  if (argument != nullptr) arguments.emplace_back(argument);
  std::vector<std::string> environment = EnvironmentFor(card, Folder(card));
  pid_t pid = -1;
  const int error = posix_spawnp(&pid, options_.program.c_str(), &actions, &attributes,
                                 Pointers(arguments).data(), Pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) return failed("cannot run", error);
  out_write.Close();

  // Its exit counts, not the end of its output: a daemon may keep that open.
  const UniqueFd exit_of(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  const Instant until = MonotonicNow() + options_.timeout;
  Outcome outcome;
  const auto read_more = [&] {
    char bytes[4096];
    const ssize_t n = read(out_read.get(), bytes, sizeof(bytes));
    if (n <= 0) return false;
    const size_t room = kOutputMax - outcome.output.size();
    outcome.output.append(bytes, std::min(room, static_cast<size_t>(n)));
    return true;
  };
  fcntl(out_read.get(), F_SETFL, O_NONBLOCK);
  bool open = true;
  while (!outcome.ended) {
    int status = 0;
    const pid_t waited = waitpid(pid, &status, WNOHANG);
    if (waited == pid) {
      outcome.ended = true;
      outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
      break;
    }
    if (waited < 0 && errno != EINTR) return failed("cannot wait for", errno);
    const Duration left = until - MonotonicNow();
    if (left <= Duration(0)) {
      kill(pid, SIGKILL);
      waitpid(pid, &status, 0);
      break;
    }
    pollfd fds[2] = {{open ? out_read.get() : -1, POLLIN, 0}, {exit_of.get(), POLLIN, 0}};
    // Where there is no pidfd, a look now and then.
    const Duration wait = exit_of.get() < 0 ? std::min(left, kLook) : left;
    poll(fds, 2, static_cast<int>(Nanos(wait) / 1'000'000 + 1));
    if (fds[0].revents != 0) open = read_more() || errno == EAGAIN;
  }
  while (open && read_more()) {
  }
  outcome.output = Trimmed(std::move(outcome.output));
  return outcome;
}

Result<bool> ProcessMpsControl::Running(const std::string& card) {
  if (const auto fine = Check(card); !fine) return tl::unexpected<Error>(fine.error());
  // The daemon's pid is in a file as long as it runs; without it there is nobody to ask.
  std::error_code error;
  if (!std::filesystem::exists(PipeDirectory(card) + "/nvidia-cuda-mps-control.pid", error)) {
    return false;
  }
  const auto outcome = Run(card, nullptr, "get_server_list\n");
  if (!outcome) return tl::unexpected<Error>(outcome.error());
  if (!outcome->ended) {
    return Fail(ErrorCode::kUnavailable, "the MPS control daemon of " + card +
                                             " does not answer; end the process whose pid is in " +
                                             PipeDirectory(card) + "/nvidia-cuda-mps-control.pid");
  }
  return outcome->status == 0;
}

Result<void> ProcessMpsControl::Start(const std::string& card) {
  const auto running = Running(card);
  if (!running) return tl::unexpected<Error>(running.error());
  if (*running) return {};
  std::error_code error;
  std::filesystem::create_directories(PipeDirectory(card), error);
  if (!error) std::filesystem::create_directories(Folder(card) + "/log", error);
  if (error) {
    return Fail(ErrorCode::kInternal,
                "cannot make " + PipeDirectory(card) + ": " + error.message());
  }
  const auto outcome = Run(card, "-d", "");
  if (!outcome) return tl::unexpected<Error>(outcome.error());
  if (!outcome->ended || outcome->status != 0) {
    return Fail(ErrorCode::kUnavailable, "the MPS control daemon of " + card +
                                             " does not start: " + Line(outcome->output) +
                                             "; see " + Folder(card) + "/log/control.log");
  }
  // It is in the background now, and may not listen yet.
  for (const Instant until = MonotonicNow() + options_.timeout; MonotonicNow() < until;
       Pause(kLook)) {
    const auto answers = Running(card);
    if (!answers) return tl::unexpected<Error>(answers.error());
    if (*answers) return {};
  }
  return Fail(ErrorCode::kUnavailable, "the MPS control daemon of " + card +
                                           " has ended, or does not listen; see " + Folder(card) +
                                           "/log/control.log");
}

Result<std::string> ProcessMpsControl::Tell(const std::string& card, const std::string& command) {
  auto outcome = Run(card, nullptr, command + "\n");
  if (!outcome) return tl::unexpected<Error>(outcome.error());
  if (!outcome->ended) {
    return Fail(ErrorCode::kUnavailable,
                "the MPS control daemon of " + card + " does not answer to '" + command + "'");
  }
  if (outcome->status != 0) {
    const auto running = Running(card);
    if (running && !*running) {
      return Fail(ErrorCode::kUnavailable, "there is no MPS control daemon for " + card);
    }
    return Fail(ErrorCode::kInvalid, "the MPS control daemon of " + card + " refuses '" + command +
                                         "': " + Line(outcome->output));
  }
  return std::move(outcome->output);
}

Result<void> ProcessMpsControl::Stop(const std::string& card) {
  const auto running = Running(card);
  if (!running) return tl::unexpected<Error>(running.error());
  if (*running) {
    const auto outcome = Run(card, nullptr, "quit\n");
    if (!outcome) return tl::unexpected<Error>(outcome.error());
    const Instant until = MonotonicNow() + options_.timeout;
    for (;; Pause(kLook)) {
      const auto still = Running(card);
      if (!still) return tl::unexpected<Error>(still.error());
      if (!*still) break;
      if (MonotonicNow() >= until) {
        return Fail(ErrorCode::kUnavailable,
                    "the MPS control daemon of " + card + " does not end; it may have clients");
      }
    }
  }
  std::error_code error;
  std::filesystem::remove_all(Folder(card), error);
  return {};
}

}  // namespace baton::devmgr
