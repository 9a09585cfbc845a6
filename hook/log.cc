#include "hook/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

namespace baton::hook {

std::atomic<bool> g_verbose{false};

void Say(const char* format, ...) {
  char line[512] = "baton: ";
  constexpr int kPrefix = 7;
  va_list arguments;
  va_start(arguments, format);
  int n = vsnprintf(line + kPrefix, sizeof(line) - kPrefix - 1, format, arguments);
  va_end(arguments);
  if (n < 0) return;
  const int room = static_cast<int>(sizeof(line)) - kPrefix - 2;
  if (n > room) n = room;
  line[kPrefix + n] = '\n';
  const ssize_t written = write(STDERR_FILENO, line, static_cast<size_t>(kPrefix + n + 1));
  (void)written;  // a host that closed its stderr does not want to know
}

}  // namespace baton::hook
