// A batond without GPUs in a temporary folder: for measuring the token's way to it.
#ifndef BATON_BENCH_LONE_BATOND_H_
#define BATON_BENCH_LONE_BATOND_H_

#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "bench/process.h"

namespace baton::bench {

// "tcp://127.0.0.1:PORT" with a port that is free now.
Result<std::string> FreeAddress();

class LoneBatond {
 public:
  // `configuration` is appended to what names its folders, after `server`, which are lines of
  // [server]. Returns when it answers.
  static Result<std::unique_ptr<LoneBatond>> Start(const std::string& configuration,
                                                   const std::string& server = "");
  // Ends it and removes the folder.
  ~LoneBatond();
  LoneBatond(const LoneBatond&) = delete;
  LoneBatond& operator=(const LoneBatond&) = delete;

  const std::string& socket_dir() const { return folder_; }
  pid_t pid() const { return process_->pid(); }

 private:
  LoneBatond() = default;
  std::string folder_;
  std::optional<Process> process_;
};

}  // namespace baton::bench

#endif  // BATON_BENCH_LONE_BATOND_H_
