// Short turns on the processor, for threads that wake up often and run for microseconds.
#ifndef BATON_BASE_SHORT_SLICE_H_
#define BATON_BASE_SHORT_SLICE_H_

#include <sched.h>
#include <stdint.h>
#include <sys/prctl.h>
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
// `before`: the slice until now.
inline bool UseShortSlice(uint64_t* before = nullptr) {
  SchedAttributes attributes = {};
  constexpr uint64_t kSlice = 100'000;
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0) != 0) return false;
  if (attributes.policy != SCHED_OTHER && attributes.policy != SCHED_BATCH) return false;
  if (before != nullptr) *before = attributes.runtime;
  attributes.size = sizeof(attributes);
  attributes.runtime = kSlice;
  if (syscall(SYS_sched_setattr, 0, &attributes, 0) != 0) return false;
  attributes.runtime = 0;
  return syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0) == 0 &&
         attributes.runtime == kSlice;
}

// For a while a thread wakes up as promptly as Linux can do it without a privilege: a short slice,
// and timers that are exact. Then it is as it was. One thread uses it.
class PromptWaking {
 public:
  void Begin() {
    if (begun_) return;
    begun_ = true;
    const int slack = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
    timer_slack_ = slack > 1 && prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0) == 0 ? slack : 0;
    if (!UseShortSlice(&slice_)) slice_ = 0;
  }
  void End() {
    if (!begun_) return;
    begun_ = false;
    if (timer_slack_ > 0) prctl(PR_SET_TIMERSLACK, timer_slack_, 0, 0, 0);
    // All else as it is now: others may have changed it meanwhile.
    SchedAttributes attributes = {};
    if (slice_ == 0 || syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0) != 0) {
      return;
    }
    attributes.size = sizeof(attributes);
    attributes.runtime = slice_;
    syscall(SYS_sched_setattr, 0, &attributes, 0);
  }

 private:
  bool begun_ = false;
  uint64_t slice_ = 0;   // before; 0: it is as it was
  int timer_slack_ = 0;  // the same
};

}  // namespace baton

#endif  // BATON_BASE_SHORT_SLICE_H_
