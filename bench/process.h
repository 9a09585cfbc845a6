// Child processes of the demo and of the end-to-end tests.
#ifndef BATON_BENCH_PROCESS_H_
#define BATON_BENCH_PROCESS_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/time.h"

namespace baton::bench {

struct SpawnOptions {
  std::vector<std::string> command;  // [0] is a path, or is looked up in PATH
  std::vector<std::pair<std::string, std::string>> environment;  // on top of the caller's
  std::vector<std::string> unset;  // variables of the caller's environment to leave out
  std::string stdout_path;         // files; created, appended to
  std::string stderr_path;
};

// How a process ended: its exit status, or 128 + the signal that ended it.
using ExitStatus = int;

// A child of this process. Killed (SIGKILL) and reaped when it is destroyed, and killed by the
// kernel when the thread that started it dies. Not thread safe.
class Process {
 public:
  static Result<Process> Spawn(const SpawnOptions& options);
  Process(Process&& other) noexcept { *this = std::move(other); }
  Process& operator=(Process&& other) noexcept;
  ~Process();

  pid_t pid() const { return pid_; }
  // Nothing once it was reaped.
  void Signal(int signal) const;
  // Waits until it ends, at most `timeout`. The first call that sees its end reaps it; later ones
  // return the same.
  std::optional<ExitStatus> Wait(Duration timeout);
  bool running() { return !Wait(Duration::zero()); }
  // SIGTERM, then SIGKILL after `grace`.
  ExitStatus Stop(Duration grace);

 private:
  Process() = default;
  pid_t pid_ = -1;
  int pidfd_ = -1;
  std::optional<ExitStatus> status_;
};

// All descendants of `root` that live now, itself not included, in order of pid.
std::vector<pid_t> Descendants(pid_t root);

// From now on a descendant whose parent dies becomes a child of this process, so that
// KillDescendants finds it.
void AdoptOrphans();
// SIGKILL to every descendant of this process, and to those that they start meanwhile; reaps them.
void KillDescendants();

}  // namespace baton::bench

#endif  // BATON_BENCH_PROCESS_H_
