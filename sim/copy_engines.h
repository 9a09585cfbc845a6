// The two copy engines of a device file, one for each direction. Each takes copies in the order in
// which they became ready. The caller holds the device's lock (sim/device.h).
#ifndef BATON_SIM_COPY_ENGINES_H_
#define BATON_SIM_COPY_ENGINES_H_

#include "sim/layout.h"
#include "sim/operations.h"
#include "sim/undo.h"

namespace baton::sim {

class CopyEngines {
 public:
  static constexpr int kEngines = 2;

  CopyEngines(DeviceFile* file, Undo& undo, Operations& ops)
      : file_(file), undo_(undo), ops_(ops) {}

  // A copy is ready. It starts now where its engine is free.
  void Enqueue(OpRef ref);
  // The next copy of the engine starts, where it is free.
  void Start(int engine);
  // The engine's copy if that has ended by `t`, which leaves the engine; 0: none has.
  OpRef TakeEnded(int engine, int64_t t);
  // Takes out those of the context that have not started, and with `running_too` what has. Nothing
  // starts meanwhile.
  void Drop(int context, bool running_too);

  // When the next one ends; kForever when none runs.
  int64_t NextEvent() const;
  // An instant before which the copy, which waits for no other operation, cannot end.
  int64_t EarliestEnd(OpRef ref) const;

 private:
  static int EngineOf(const Op& op) {
    return static_cast<OpKind>(uint64_t{op.kind}) == OpKind::kCopyIn ? 0 : 1;
  }

  DeviceFile* file_;
  Undo& undo_;
  Operations& ops_;
};

}  // namespace baton::sim

#endif  // BATON_SIM_COPY_ENGINES_H_
