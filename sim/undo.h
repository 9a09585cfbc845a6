// Changes of a device file's scheduling state, which a process that is killed at any instruction
// leaves undone or whole. The caller holds the device's lock (sim/device.h).
#ifndef BATON_SIM_UNDO_H_
#define BATON_SIM_UNDO_H_

#include "sim/layout.h"

namespace baton::sim {

class Undo {
 public:
  explicit Undo(DeviceFile* file) : file_(file) {}

  // Writes the cell, and notes what it was.
  void Set(Cell& cell, uint64_t value);
  // From here on what was set is kept.
  void Commit();
  // Takes back what was set since the last commit.
  void Recover();

  // Fault injection for tests: SIGKILL to this process at its n-th write from now; 0: never.
  static void KillAtWriteForTest(int64_t n);

 private:
  DeviceFile* file_;
};

}  // namespace baton::sim

#endif  // BATON_SIM_UNDO_H_
