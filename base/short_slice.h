// Short turns on the processor, for threads that wake up often and run for microseconds.
#ifndef BATON_BASE_SHORT_SLICE_H_
#define BATON_BASE_SHORT_SLICE_H_

#include <sched.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace baton {

struct SchedAttributes {  // struct sched_attr, as of Linux 3.14
  uint32_t size, policy;
  uint64_t flags;
  int32_t nice;
  uint32_t priority;
  uint64_t runtime, deadline, period;
};

// Asks Linux for a slice of 100 us for the calling thread and those that it starts: beside threads
// that use up all processors it then runs as soon as it wakes up, not after some of their slices of
// milliseconds. It gets no more time for that, and needs no privilege. False, and nothing changes,
// before Linux 6.12, where a seccomp profile forbids it, and for a thread that does not have the
// ordinary scheduling policy.
inline bool UseShortSlice() {
  SchedAttributes attributes = {};
  constexpr uint64_t kSlice = 100'000;
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0) != 0) return false;
  if (attributes.policy != SCHED_OTHER && attributes.policy != SCHED_BATCH) return false;
  attributes.size = sizeof(attributes);
  attributes.runtime = kSlice;
  if (syscall(SYS_sched_setattr, 0, &attributes, 0) != 0) return false;
  attributes.runtime = 0;
  return syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0) == 0 &&
         attributes.runtime == kSlice;
}

// The calling thread has a short slice while this lives, and then the one that it had.
class ShortSlice {
 public:
  ShortSlice() {
    SchedAttributes attributes = {};
    if (syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0) != 0) return;
    if (UseShortSlice()) before_ = attributes.runtime;
  }
  ~ShortSlice() {
    // All else as it is now: others may have changed it meanwhile.
    SchedAttributes attributes = {};
    if (before_ == 0 || syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0) != 0) {
      return;
    }
    attributes.size = sizeof(attributes);
    attributes.runtime = before_;
    syscall(SYS_sched_setattr, 0, &attributes, 0);
  }
  ShortSlice(const ShortSlice&) = delete;
  ShortSlice& operator=(const ShortSlice&) = delete;

 private:
  uint64_t before_ = 0;  // 0: nothing is changed
};

}  // namespace baton

#endif  // BATON_BASE_SHORT_SLICE_H_
