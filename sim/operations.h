// The operations in a device file, and the lists that they are in: of an engine, of those that are
// done, of those that wait for another. Named by OpRef: 0 is none. The caller holds the device's
// lock (sim/device.h).
#ifndef BATON_SIM_OPERATIONS_H_
#define BATON_SIM_OPERATIONS_H_

#include "sim/layout.h"
#include "sim/undo.h"

namespace baton::sim {

using OpRef = uint64_t;

class Operations {
 public:
  Operations(DeviceFile* file, Undo& undo) : file_(file), undo_(undo) {}

  static OpRef RefOf(int context, int slot) {
    return static_cast<OpRef>(context) * kOpsPerContext + static_cast<OpRef>(slot) + 1;
  }
  static int ContextOf(OpRef ref) { return static_cast<int>((ref - 1) / kOpsPerContext); }
  static int SlotOf(OpRef ref) { return static_cast<int>((ref - 1) % kOpsPerContext); }

  Op& At(OpRef ref) const { return file_->contexts[ContextOf(ref)].ops[SlotOf(ref)]; }
  OpState StateOf(OpRef ref) const { return static_cast<OpState>(uint64_t{At(ref).state}); }
  void SetState(Op& op, OpState state) { undo_.Set(op.state, static_cast<uint64_t>(state)); }

  // A list through Op::next.
  void Append(Cell& head, Cell& tail, OpRef ref);
  OpRef PopFront(Cell& head, Cell& tail);
  // Takes those of the context out.
  void Remove(Cell& head, Cell& tail, int context);
  void UnlinkRunning(Context& c, OpRef ref);

  // `ref` waits for `dep`, which is the k-th that it waits for.
  void Depend(OpRef ref, int k, OpRef dep);
  // Takes a pending operation out of the lists of what it waits for.
  void StopWaiting(OpRef ref);
  // Nobody waits for `op` any more. `ready`: called for each that waits for nothing else.
  template <class Ready>
  void ReleaseDependents(Op& op, Ready ready) {
    uint64_t edge = op.first_edge;
    undo_.Set(op.first_edge, 0);
    while (edge != 0) {
      const OpRef ref = edge / kMaxDeps;
      Op& dependent = At(ref);
      edge = dependent.edge_next[edge % kMaxDeps];
      if (StateOf(ref) != OpState::kPending) continue;
      undo_.Set(dependent.deps_left, dependent.deps_left - 1);
      if (dependent.deps_left == 0) ready(ref);
    }
  }

  // A kernel has ended: the device's record of it. `flags`: how.
  void WriteRecord(OpRef ref, uint64_t flags);

 private:
  DeviceFile* file_;
  Undo& undo_;
};

}  // namespace baton::sim

#endif  // BATON_SIM_OPERATIONS_H_
