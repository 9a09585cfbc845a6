// The simulated GPU's discrete-event timeline, advanced only when somebody looks. It reads no
// clock: every call takes or follows AdvanceTo(now). Starts and ends fall on their exact virtual
// instants however late the look comes.
//
// The rules: contexts with work share the compute engine by round-robin slices; inside a context
// kernels start in the order in which they became ready, and of those that take the whole GPU one
// runs at a time; those that say kConcurrent run beside any; each copy direction has an engine of
// its own.
//
// The caller holds the device's lock (sim/device.h) around every call. Operations are named by
// OpRef: 0 is none.
#ifndef BATON_SIM_TIMELINE_H_
#define BATON_SIM_TIMELINE_H_

#include "sim/layout.h"

namespace baton::sim {

using OpRef = uint64_t;

enum class Injection : uint64_t { kNone, kIllegalAddress, kHang };

struct OpRequest {
  OpKind kind = OpKind::kMarker;
  uint64_t flags = 0;
  int64_t duration = 0;  // ns; for a kGated kernel, what it still runs once released
  uint64_t stream = 0;
  uint64_t name = 0;
  OpRef deps[kMaxDeps] = {};
  uint64_t dep_sequences[kMaxDeps] = {};  // as Submit returned them
  int dep_count = 0;
};

struct Submitted {
  OpRef ref;
  uint64_t sequence;
};

struct Completion {
  OpRef ref;
  int64_t started_at, ended_at;
  uint64_t flags;
};

class Timeline {
 public:
  explicit Timeline(DeviceFile* file) : file_(file) {}

  // Brings the simulation to `now` (CLOCK_MONOTONIC ns); an earlier `now` does nothing.
  void AdvanceTo(int64_t now);
  // After the lock's owner died: back to the last commit.
  void Recover();
  // Ends a change: from here on it is kept.
  void Commit();

  // A slot for a process or a context, or -1 when all are taken.
  int AttachProcess(uint64_t pid);
  int CreateContext(int process);
  // Drops all its work at once and frees it.
  void DestroyContext(int context);
  // The process is gone: its queued work is dropped, a running kernel goes to its natural end
  // (a hung one is cut now), its memory is free once the last of it has ended. Several commits: to
  // be called again for a process that is dying and has live contexts, whose looker died too.
  void ProcessDied(int process);

  // `slot` is a free operation of the context: the owner keeps account of them.
  Submitted Submit(int context, int slot, const OpRequest& request);
  // Takes the next finished operation of the context and frees its slot; false: none.
  bool Collect(int context, Completion* completion);
  // Finishes a ready gate, or lets a gated kernel run out its duration.
  void Release(OpRef ref);

  bool ChargeMemory(int process, uint64_t bytes);
  void ReleaseMemory(int process, uint64_t bytes);

  // To every live context of `pid`: at its running kernel, or else at its next. False: no such.
  bool Inject(uint64_t pid, Injection what);
  // The context's kernels end in this fault now.
  void FaultContext(int context, uint64_t error);

  // An instant before which the operation, whose dependencies are done, cannot end; kForever when
  // only a release can end it.
  int64_t EarliestEnd(OpRef ref) const;
  // The next instant at which anything ends or is sliced out; kForever when nothing runs.
  int64_t NextEvent() const;

  // Processes were looked for at the present.
  void MarkChecked() { Set(file_->checked_at, file_->now); }

  // The id of a kernel's name in records; 0 when the table is full.
  uint64_t NameId(const char* name);

  Op& At(OpRef ref) const {
    return file_->contexts[(ref - 1) / kOpsPerContext].ops[(ref - 1) % kOpsPerContext];
  }
  static int ContextOf(OpRef ref) { return static_cast<int>((ref - 1) / kOpsPerContext); }
  static int SlotOf(OpRef ref) { return static_cast<int>((ref - 1) % kOpsPerContext); }
  OpState StateOf(OpRef ref) const { return static_cast<OpState>(uint64_t{At(ref).state}); }

  // Whether the change word moved since the last take. The lock's holder wakes its waiters after
  // unlocking.
  bool TakeWake() {
    const bool wake = wake_;
    wake_ = false;
    return wake;
  }

  // Fault injection for tests: SIGKILL to this process at its n-th write from now; 0: never.
  static void KillAtWriteForTest(int64_t n);

 private:
  void Set(Cell& cell, uint64_t value);
  void SetState(Op& op, OpState state) { Set(op.state, static_cast<uint64_t>(state)); }
  int64_t Now() const { return file_->now.Signed(); }

  void Account(int64_t t);
  void Dispatch();
  void StartReadyKernels(int context);
  void SwitchTo(int context);
  int NextActive(int after) const;
  void SetActive(int context, bool active);
  bool HasKernels(const Context& c) const { return c.ready_head != 0 || c.running_count != 0; }
  int64_t SliceEnd() const { return file_->slice_start.Signed() + file_->slice_ns; }
  int64_t FirstRunningEnd(int context) const;
  // The running kernel of the context that is not kConcurrent, or 0.
  OpRef WholeKernelOf(const Context& c) const;
  int64_t EarliestKernelStart(int context) const;

  void BecomeReady(OpRef ref);
  void Complete(OpRef ref, uint64_t flags);
  void DrainMarkers();
  void StartCopy(int engine);
  void DropUnstarted(int context, uint64_t flags, bool running_too);
  void ReleaseDependents(Op& op);
  void UnlinkEdges(OpRef ref);
  void UnlinkRunning(Context& c, OpRef ref);
  void ReapDying(int context);
  void FreeContext(int context);
  void WriteRecord(OpRef ref, const Op& op, uint64_t flags);
  void Append(Cell& head, Cell& tail, OpRef ref);
  OpRef PopFront(Cell& head, Cell& tail);
  void FilterEngine(int engine, int context);
  void BumpChange();

  DeviceFile* file_;
  bool wake_ = false;
  // Markers that became ready and are to be completed; linked through Op::next, so a local head.
  OpRef marker_head_ = 0, marker_tail_ = 0;
};

}  // namespace baton::sim

#endif  // BATON_SIM_TIMELINE_H_
