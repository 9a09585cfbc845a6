// Ends a "process" at a chosen step: what acts on the world says so before and after, and the n-th
// time it is told that this was the last. What is thrown then is caught by no product code, so
// nothing more happens, as when a process is killed.
#ifndef BATON_TESTS_DEVMGR_CRASH_POINTS_H_
#define BATON_TESTS_DEVMGR_CRASH_POINTS_H_

namespace baton::devmgr {

struct Killed {};

class CrashPoints {
 public:
  // At the `n`-th step from now, counted from 1; 0: never.
  void ArmAt(int n) {
    steps_ = 0;
    at_ = n;
  }
  void Step() {
    if (++steps_ == at_) throw Killed();
  }
  int steps() const { return steps_; }

 private:
  int steps_ = 0;
  int at_ = 0;
};

}  // namespace baton::devmgr

#endif  // BATON_TESTS_DEVMGR_CRASH_POINTS_H_
