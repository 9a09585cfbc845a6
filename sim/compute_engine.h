// The compute engine of a device file: which context's turn it is, and what of its kernels runs.
//
// Contexts with work share it by round-robin slices; inside a context kernels start in the order in
// which they became ready, and of those that take the whole GPU one runs at a time; those that say
// kConcurrent run beside any. The caller holds the device's lock (sim/device.h).
#ifndef BATON_SIM_COMPUTE_ENGINE_H_
#define BATON_SIM_COMPUTE_ENGINE_H_

#include "sim/layout.h"
#include "sim/operations.h"
#include "sim/undo.h"

namespace baton::sim {

enum class Injection : uint64_t { kNone, kIllegalAddress, kHang };

class ComputeEngine {
 public:
  ComputeEngine(DeviceFile* file, Undo& undo, Operations& ops)
      : file_(file), undo_(undo), ops_(ops) {}

  // The context whose turn it is; -1: nobody's.
  int current() const { return static_cast<int>(file_->current) - 1; }
  // Whether the engine must switch before the context can do anything.
  bool Elsewhere(int context) const {
    return file_->switch_ns > 0 && (file_->resident != static_cast<uint64_t>(context) + 1 ||
                                    file_->contexts[context].accounted.Signed() > Now());
  }
  // A kernel of the context is ready, or what takes no time and is to come when the engine is
  // there.
  void Enqueue(int context, OpRef ref);
  // Puts the engine where it belongs at the present: off an idle context, onto an active one; and
  // starts what may run there.
  void Dispatch();
  // Takes the time since the last account off what the current context's kernels have left.
  void Account(int64_t t);
  // A kernel of the current context that has nothing left; 0: none.
  OpRef FirstEnded() const;
  // At `t` it is another's turn, where the slice is over.
  void EndSlice(int64_t t);
  // The context is gone.
  void Leave(int context);

  // The next instant at which a kernel ends or is sliced out; kForever when none runs.
  int64_t NextEvent() const;
  // An instant before which the kernel, which waits for no other operation, cannot end.
  int64_t EarliestEnd(OpRef ref) const;

 private:
  void Set(Cell& cell, uint64_t value) { undo_.Set(cell, value); }
  int64_t Now() const { return file_->now.Signed(); }
  int64_t SliceEnd() const { return file_->slice_start.Signed() + file_->slice_ns; }
  void StartReadyKernels(int context);
  void SwitchTo(int context);
  void AddEnergy(const Context& c, uint64_t t, uint64_t passed);
  void AddToInstance(const Context& c, uint64_t passed);
  int NextActive(int after) const;
  void SetActive(int context, bool active);
  int64_t FirstRunningEnd(int context) const;
  // The running kernel of the context that is not kConcurrent, or 0.
  OpRef WholeKernelOf(const Context& c) const;
  int64_t EarliestStart(int context) const;

  DeviceFile* file_;
  Undo& undo_;
  Operations& ops_;
};

// What the card's energy counter says: all that it took up to the last 100 ms.
uint64_t CountedMillijoules(const DeviceFile& file);
// How long processes of a MIG instance, by its place, have executed so far, in nanoseconds.
struct InstanceUse {
  uint64_t busy, copying;  // of it, copies and sets in device memory
};
InstanceUse UseOfInstance(const DeviceFile& file, uint32_t place);

}  // namespace baton::sim

#endif  // BATON_SIM_COMPUTE_ENGINE_H_
