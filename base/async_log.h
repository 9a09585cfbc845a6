// The log of a program: spdlog's default logger, written by a thread of its own, so that nobody who
// logs ever waits for whoever reads the log. While the reader stands still lines queue; of more
// than kQueueMax the oldest are lost, and the log says how many once it goes on.
//
// Thread safe, but for the constructor and the destructor.
#ifndef BATON_BASE_ASYNC_LOG_H_
#define BATON_BASE_ASYNC_LOG_H_

#include <cstddef>
#include <memory>
#include <string>

#include "base/log_format.h"
#include "base/time.h"

namespace baton {

// Why a program ends, in a line like those of its log; a text begins with the program's name. The
// message is UTF-8.
std::string ComplaintLine(LogFormat format, const std::string& program, const std::string& message);

class AsyncLog {
 public:
  static constexpr size_t kQueueMax = 1024;  // lines
  // How long the end waits for a reader that stands still.
  static constexpr Duration kPatience = std::chrono::seconds(1);

  // spdlog's default logger writes to `fd` from now on, from level info on. Where `fd` is a pipe
  // this should be the only writer: it waits for room there, and a write of another may take it.
  AsyncLog(int fd, const std::string& name, LogFormat format);
  // Writes what is queued, for at most twice kPatience. From here on nothing is logged. No other
  // thread may log meanwhile.
  ~AsyncLog();
  AsyncLog(const AsyncLog&) = delete;
  AsyncLog& operator=(const AsyncLog&) = delete;

 private:
  class Sink;
  struct Worker;

  std::shared_ptr<Sink> sink_;
  std::unique_ptr<Worker> worker_;
};

// Writes the text to `fd`, as far as its reader takes it before `until`. False when the rest is
// lost.
bool WriteBefore(int fd, const char* text, size_t size, Instant until);

}  // namespace baton

#endif  // BATON_BASE_ASYNC_LOG_H_
