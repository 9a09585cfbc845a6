// The simulated GPU's discrete-event timeline, advanced only when somebody looks. It reads no
// clock: every call takes or follows AdvanceTo(now). Starts and ends fall on their exact virtual
// instants however late the look comes.
//
// Kernels go by the rules of the compute engine (sim/compute_engine.h), copies by those of the copy
// engines (sim/copy_engines.h).
//
// The caller holds the device's lock (sim/device.h) around every call.
#ifndef BATON_SIM_TIMELINE_H_
#define BATON_SIM_TIMELINE_H_

#include "sim/compute_engine.h"
#include "sim/copy_engines.h"
#include "sim/layout.h"
#include "sim/operations.h"
#include "sim/undo.h"

namespace baton::sim {

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
  explicit Timeline(DeviceFile* file)
      : file_(file),
        undo_(file),
        ops_(file, undo_),
        engine_(file, undo_, ops_),
        copies_(file, undo_, ops_) {}
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  // Brings the simulation to `now` (CLOCK_MONOTONIC ns); an earlier `now` does nothing.
  void AdvanceTo(int64_t now);
  // After the lock's owner died: back to the last commit.
  void Recover();
  // Ends a change: from here on it is kept.
  void Commit();

  // A slot for a process or a context, or -1 when all are taken. `instance`: Process::instance.
  int AttachProcess(uint64_t pid, uint64_t instance = 0);
  // `watts`: what the GPU takes while kernels of the context run.
  int CreateContext(int process, uint64_t watts = kBusyWatts);
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

  const Operations& operations() const { return ops_; }

  // Whether the change word moved since the last take. The lock's holder wakes its waiters after
  // unlocking.
  bool TakeWake() {
    const bool wake = wake_;
    wake_ = false;
    return wake;
  }

 private:
  void Set(Cell& cell, uint64_t value) { undo_.Set(cell, value); }
  int64_t Now() const { return file_->now.Signed(); }

  void BecomeReady(OpRef ref);
  // The operation, already out of every list, ends now.
  void Complete(OpRef ref, uint64_t flags);
  // Markers complete one by one here rather than by recursion: a chain of them may be long.
  void DrainMarkers();
  void EndKernels();
  // Ends everything of the context that has not started, and with `running_too` what has.
  void DropUnstarted(int context, uint64_t flags, bool running_too);
  void ReapDying(int context);
  void FreeContext(int context);
  void BumpChange();

  DeviceFile* file_;
  Undo undo_;
  Operations ops_;
  ComputeEngine engine_;
  CopyEngines copies_;
  bool wake_ = false;
  // Markers that became ready and are to be completed; linked through Op::next, so a local head.
  OpRef marker_head_ = 0, marker_tail_ = 0;
};

}  // namespace baton::sim

#endif  // BATON_SIM_TIMELINE_H_
