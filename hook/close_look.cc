#include "hook/close_look.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace baton::hook {

bool SeveralProcessors() {
  unsigned long set[128] = {};  // of 8 192 processors
  const long bytes = syscall(SYS_sched_getaffinity, 0, sizeof(set), set);
  int processors = 0;
  for (long i = 0; i < bytes / static_cast<long>(sizeof(set[0])); ++i) {
    processors += __builtin_popcountl(set[i]);
  }
  return processors > 1;
}

}  // namespace baton::hook
