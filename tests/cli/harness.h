// Runs the real `baton` against a daemon that the test plays.
#ifndef BATON_TESTS_CLI_HARNESS_H_
#define BATON_TESTS_CLI_HARNESS_H_

#include <sys/types.h>

#include <condition_variable>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/temp_folder.h"

namespace baton::cli {

using Environment = std::vector<std::pair<std::string, std::string>>;

// A `baton` that runs now, leader of its own process group, with pipes for its output.
class BatonProcess {
 public:
  // `out_file`: where its standard output goes instead; empty: a pipe.
  explicit BatonProcess(const std::vector<std::string>& arguments,
                        const Environment& environment = {}, const std::string& out_file = "");
  ~BatonProcess();
  BatonProcess(const BatonProcess&) = delete;
  BatonProcess& operator=(const BatonProcess&) = delete;

  pid_t pid() const { return pid_; }
  // Blocks until the line came on its standard output; false when that ended first.
  bool AwaitLine(const std::string& line);
  // Blocks until it is stopped by a signal; false when it ended.
  bool AwaitStop();
  // Blocks until it ends. The exit status, or 128 + signal.
  int Wait();
  // After Wait(): everything that it said.
  std::string out, err;

 private:
  pid_t pid_;
  int out_fd_, err_fd_;
};

struct Outcome {
  int status;
  std::string out, err;
};
// `out_file`: as of BatonProcess.
Outcome RunBaton(const std::vector<std::string>& arguments, const Environment& environment = {},
                 const std::string& out_file = "");

// A control socket in a folder, answered by the test. Its answers default to {"ok": true}.
class FakeDaemon {
 public:
  using Answer = std::function<nlohmann::json(const nlohmann::json& request)>;
  explicit FakeDaemon(Answer answer = {});
  ~FakeDaemon();
  FakeDaemon(const FakeDaemon&) = delete;
  FakeDaemon& operator=(const FakeDaemon&) = delete;

  const std::string& socket_dir() const { return folder_.path(); }
  // What was asked so far.
  std::vector<nlohmann::json> requests();

 private:
  void Serve();

  TempFolder folder_;
  Answer answer_;
  int listener_;
  std::mutex mutex_;
  std::vector<nlohmann::json> requests_;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace baton::cli

#endif  // BATON_TESTS_CLI_HARNESS_H_
