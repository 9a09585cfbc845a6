#include "base/standard_files.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <cstdio>
#include <string>

namespace baton {

void OpenStandardFiles() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) >= 0) continue;
    // The lowest that is free, which is this one.
    const int opened = open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY);
    if (opened > fd) close(opened);
  }
}

Result<void> OutputTaken() {
  errno = 0;
  bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  const int reason = errno;
  // A file on another machine may be refused only when it is closed. A copy, for stdout stays open.
  const int copy = written ? dup(STDOUT_FILENO) : -1;
  if (copy >= 0) written = close(copy) == 0;
  if (written) return {};
  const int why = reason != 0 ? reason : errno;
  return Fail(ErrorCode::kUnavailable, std::string("cannot write the output") +
                                           (why != 0 ? std::string(": ") + strerror(why) : ""));
}

int AfterOutput(const char* program, int status) {
  const auto taken = OutputTaken();
  if (taken) return status;
  std::fprintf(stderr, "%s: %s\n", program, taken.error().message.c_str());
  return status == 0 ? 1 : status;
}

}  // namespace baton
