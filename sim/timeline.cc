#include "sim/timeline.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>

#include "base/check.h"

namespace baton::sim {
namespace {

std::atomic<int64_t> kill_at_write{0};

// An edge names one dependency of an operation: the operation and which of its kMaxDeps.
uint64_t EdgeOf(OpRef ref, int k) { return ref * kMaxDeps + static_cast<uint64_t>(k); }
OpRef RefOfEdge(uint64_t edge) { return edge / kMaxDeps; }

int64_t SaturatingAdd(int64_t a, int64_t b) {
  return a == kForever || b == kForever || a > kForever - b ? kForever : a + b;
}

}  // namespace

void Timeline::KillAtWriteForTest(int64_t n) { kill_at_write = n; }

void Timeline::Set(Cell& cell, uint64_t value) {
  if (cell.value_ == value) return;
  BATON_CHECK(file_->undo_count < kUndoEntries);
  UndoEntry& entry = file_->undo[file_->undo_count];
  entry.offset =
      static_cast<uint64_t>(reinterpret_cast<char*>(&cell) - reinterpret_cast<char*>(file_));
  entry.old = cell.value_;
  // A kill leaves a prefix of the program's stores; the fences keep the compiler to their order.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  file_->undo_count = file_->undo_count + 1;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  cell.value_ = value;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  if (__builtin_expect(kill_at_write.load(std::memory_order_relaxed) != 0, 0)) {
    if (kill_at_write.fetch_sub(1) == 1) kill(getpid(), SIGKILL);
  }
}

void Timeline::Commit() {
  BATON_CHECK(marker_head_ == 0);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  file_->undo_count = 0;
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

void Timeline::Recover() {
  while (file_->undo_count > 0) {
    const UndoEntry& entry = file_->undo[file_->undo_count - 1];
    reinterpret_cast<Cell*>(reinterpret_cast<char*>(file_) + entry.offset)->value_ = entry.old;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    file_->undo_count = file_->undo_count - 1;
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  marker_head_ = marker_tail_ = 0;
}

void Timeline::BumpChange() {
  file_->change_word.fetch_add(1);
  wake_ = true;
}

void Timeline::Append(Cell& head, Cell& tail, OpRef ref) {
  Set(At(ref).next, 0);
  if (head == 0) {
    Set(head, ref);
  } else {
    Set(At(tail).next, ref);
  }
  Set(tail, ref);
}

OpRef Timeline::PopFront(Cell& head, Cell& tail) {
  const OpRef ref = head;
  if (ref == 0) return 0;
  Set(head, At(ref).next);
  if (head == 0) Set(tail, 0);
  return ref;
}

int Timeline::NextActive(int after) const {
  for (int i = 1; i <= kMaxContexts; ++i) {
    const int context = (after + i) % kMaxContexts;
    if (context % 64 == 0 && file_->active[context / 64] == 0) {
      i += 63;  // none in this word
      continue;
    }
    if (file_->active[context / 64] >> (context % 64) & 1) return context;
  }
  return -1;
}

void Timeline::SetActive(int context, bool active) {
  Cell& word = file_->active[context / 64];
  const uint64_t bit = uint64_t{1} << (context % 64);
  if (((word & bit) != 0) == active) return;
  if (active && file_->active_count == 1 && file_->current != 0) {
    // The one that had the engine to itself was renewed at every end of its slice.
    const int64_t passed = Now() - file_->slice_start.Signed();
    Set(file_->slice_start, static_cast<uint64_t>(file_->slice_start.Signed() +
                                                  passed / file_->slice_ns * file_->slice_ns));
  }
  Set(word, active ? word | bit : word & ~bit);
  Set(file_->active_count, active ? file_->active_count + 1 : file_->active_count - 1);
}

int64_t Timeline::FirstRunningEnd(int context) const {
  const Context& c = file_->contexts[context];
  int64_t least = kForever;
  for (OpRef ref = c.running_head; ref != 0; ref = At(ref).next) {
    least = std::min(least, At(ref).remaining.Signed());
  }
  return SaturatingAdd(c.accounted.Signed(), least);
}

OpRef Timeline::WholeKernelOf(const Context& c) const {
  OpRef ref = c.running_head;
  while (ref != 0 && (At(ref).flags & kConcurrent)) ref = At(ref).next;
  return ref;
}

// Takes the time since the last account off what the current context's kernels have left.
void Timeline::Account(int64_t t) {
  if (file_->current == 0) return;
  Context& c = file_->contexts[file_->current - 1];
  const int64_t passed = t - c.accounted.Signed();
  if (passed <= 0) return;
  for (OpRef ref = c.running_head; ref != 0; ref = At(ref).next) {
    Op& op = At(ref);
    if (op.remaining.Signed() != kForever) {
      Set(op.remaining, static_cast<uint64_t>(op.remaining.Signed() - passed));
    }
    Set(op.busy, op.busy + static_cast<uint64_t>(passed));
  }
  if (c.running_count != 0) {
    Set(file_->busy_total, file_->busy_total + static_cast<uint64_t>(passed));
  }
  Set(c.accounted, static_cast<uint64_t>(t));
}

void Timeline::SwitchTo(int context) {
  Set(file_->current, static_cast<uint64_t>(context + 1));
  Set(file_->slice_start, file_->now);
  if (context >= 0) Set(file_->contexts[context].accounted, file_->now);
}

void Timeline::StartReadyKernels(int context) {
  Context& c = file_->contexts[context];
  while (c.ready_head != 0) {
    Op& op = At(c.ready_head);
    if (!(op.flags & kConcurrent) && WholeKernelOf(c) != 0) return;
    Account(Now());
    Set(c.accounted, file_->now);
    const OpRef ref = PopFront(c.ready_head, c.ready_tail);
    SetState(op, OpState::kRunning);
    Set(op.started_at, file_->now);
    if (c.inject == static_cast<uint64_t>(Injection::kIllegalAddress)) {
      Set(op.flags, op.flags | kFaults);
      Set(op.remaining, 0);
      Set(c.inject, 0);
    } else if (c.inject == static_cast<uint64_t>(Injection::kHang)) {
      Set(op.remaining, static_cast<uint64_t>(kForever));
      Set(op.flags, op.flags & ~kGated);
      Set(c.inject, 0);
    }
    Set(op.next, c.running_head);
    Set(c.running_head, ref);
    Set(c.running_count, c.running_count + 1);
  }
}

// Puts the engine where it belongs at `now`: off an idle context, onto an active one.
void Timeline::Dispatch() {
  if (file_->current == 0 && file_->active_count != 0) SwitchTo(NextActive(kMaxContexts - 1));
  while (file_->current != 0 && !HasKernels(file_->contexts[file_->current - 1])) {
    const int idle = static_cast<int>(file_->current - 1);
    SetActive(idle, false);
    SwitchTo(NextActive(idle));
  }
  if (file_->current != 0) StartReadyKernels(static_cast<int>(file_->current - 1));
}

int64_t Timeline::NextEvent() const {
  int64_t next = kForever;
  if (file_->current != 0) {
    next = FirstRunningEnd(static_cast<int>(file_->current - 1));
    if (file_->active_count > 1) next = std::min(next, SliceEnd());
  }
  for (const CopyEngine& engine : file_->engines) {
    if (engine.running != 0) next = std::min(next, engine.ends_at.Signed());
  }
  return next;
}

void Timeline::AdvanceTo(int64_t now) {
  while (true) {
    const int64_t next = NextEvent();
    if (next > now) break;
    if (next > Now()) Set(file_->now, static_cast<uint64_t>(next));
    Account(next);
    for (int e = 0; e < 2; ++e) {
      CopyEngine& engine = file_->engines[e];
      if (engine.running == 0 || engine.ends_at.Signed() > next) continue;
      const OpRef ref = engine.running;
      Op& op = At(ref);
      const int context = ContextOf(ref);
      Context& c = file_->contexts[context];
      Set(engine.running, 0);
      Set(c.copies, c.copies - 1);
      Set(op.busy, static_cast<uint64_t>(op.duration));
      Complete(ref, kCompleted);
      StartCopy(e);
      ReapDying(context);
    }
    if (file_->current != 0) {
      const int context = static_cast<int>(file_->current - 1);
      Context& c = file_->contexts[context];
      // Completing one may fault and empty the list, so look afresh each time.
      bool found = true;
      while (found) {
        found = false;
        for (OpRef ref = c.running_head; ref != 0; ref = At(ref).next) {
          if (At(ref).remaining != 0) continue;
          UnlinkRunning(c, ref);
          if (At(ref).flags & kFaults) {
            Complete(ref, kFaulted);
            if (c.state == static_cast<uint64_t>(SlotState::kLive)) FaultContext(context, 700);
          } else {
            Complete(ref, kCompleted);
          }
          found = true;
          break;
        }
      }
      ReapDying(context);
    }
    DrainMarkers();
    if (file_->current != 0 && file_->active_count > 1 && next >= SliceEnd()) {
      SwitchTo(NextActive(static_cast<int>(file_->current - 1)));
    }
    Dispatch();
    Commit();
  }
  if (now > Now()) Set(file_->now, static_cast<uint64_t>(now));
  Commit();
}

Submitted Timeline::Submit(int context, int slot, const OpRequest& request) {
  Context& c = file_->contexts[context];
  Op& op = c.ops[slot];
  const OpRef ref = static_cast<OpRef>(context) * kOpsPerContext + static_cast<OpRef>(slot) + 1;
  BATON_CHECK(op.state == static_cast<uint64_t>(OpState::kFree));
  op.kind = static_cast<uint64_t>(request.kind);
  op.duration = request.duration;
  op.stream = request.stream;
  op.name = request.name;
  op.submitted_at = Now();
  const bool spins = request.kind == OpKind::kKernel && (request.flags & kGated);
  SetState(op, OpState::kPending);
  Set(op.sequence, op.sequence + 1);
  Set(op.remaining, static_cast<uint64_t>(spins ? kForever : request.duration));
  Set(op.busy, 0);
  Set(op.started_at, 0);
  Set(op.flags, request.flags);
  Set(op.first_edge, 0);
  Set(c.unfinished, c.unfinished + 1);
  uint64_t left = 0;
  for (int k = 0; k < kMaxDeps; ++k) op.deps[k] = 0;
  for (int k = 0; k < request.dep_count; ++k) {
    if (request.deps[k] == 0) continue;
    Op& dep = At(request.deps[k]);
    const OpState state = static_cast<OpState>(uint64_t{dep.state});
    if (state == OpState::kFree || state == OpState::kDone ||
        dep.sequence != request.dep_sequences[k]) {
      continue;
    }
    Set(op.edge_next[k], dep.first_edge);
    Set(dep.first_edge, EdgeOf(ref, k));
    op.deps[k] = request.deps[k];
    ++left;
  }
  Set(op.deps_left, left);
  if (left == 0) {
    BecomeReady(ref);
    DrainMarkers();
    Dispatch();
  }
  Commit();
  return {ref, op.sequence};
}

void Timeline::BecomeReady(OpRef ref) {
  Op& op = At(ref);
  const int context = ContextOf(ref);
  Context& c = file_->contexts[context];
  Set(op.ready_at, file_->now);
  // Work of a faulted context passes through the same list, as dropped.
  switch (c.error != 0 ? OpKind::kMarker : static_cast<OpKind>(op.kind)) {
    case OpKind::kMarker:
      SetState(op, OpState::kReady);
      Set(op.marker_next, 0);
      if (marker_head_ == 0) {
        marker_head_ = ref;
      } else {
        Set(At(marker_tail_).marker_next, ref);
      }
      marker_tail_ = ref;
      break;
    case OpKind::kGate:
      SetState(op, OpState::kGateReady);
      BumpChange();
      break;
    case OpKind::kKernel:
      SetState(op, OpState::kReady);
      Append(c.ready_head, c.ready_tail, ref);
      SetActive(context, true);
      break;
    case OpKind::kCopyIn:
    case OpKind::kCopyOut: {
      const int e = static_cast<OpKind>(op.kind) == OpKind::kCopyIn ? 0 : 1;
      SetState(op, OpState::kReady);
      Append(file_->engines[e].head, file_->engines[e].tail, ref);
      StartCopy(e);
      break;
    }
  }
}

// Markers complete one by one here rather than by recursion: a chain of them may be long.
void Timeline::DrainMarkers() {
  while (marker_head_ != 0) {
    const OpRef ref = marker_head_;
    marker_head_ = At(ref).marker_next;
    if (marker_head_ == 0) marker_tail_ = 0;
    if (StateOf(ref) != OpState::kReady) continue;  // dropped since
    Complete(ref, file_->contexts[ContextOf(ref)].error != 0 ? kDropped : kCompleted);
  }
}

void Timeline::StartCopy(int e) {
  CopyEngine& engine = file_->engines[e];
  if (engine.running != 0 || engine.head == 0) return;
  const OpRef ref = PopFront(engine.head, engine.tail);
  Op& op = At(ref);
  Context& c = file_->contexts[ContextOf(ref)];
  SetState(op, OpState::kRunning);
  Set(op.started_at, file_->now);
  Set(engine.running, ref);
  Set(engine.ends_at, static_cast<uint64_t>(Now() + op.duration));
  Set(c.copies, c.copies + 1);
}

void Timeline::UnlinkRunning(Context& c, OpRef ref) {
  Cell* link = &c.running_head;
  while (*link != ref) link = &At(*link).next;
  Set(*link, At(ref).next);
  Set(c.running_count, c.running_count - 1);
}

// The operation, already out of every list, ends now.
void Timeline::Complete(OpRef ref, uint64_t flags) {
  Op& op = At(ref);
  Context& c = file_->contexts[ContextOf(ref)];
  const bool ran = static_cast<OpState>(uint64_t{op.state}) == OpState::kRunning;
  const bool dying = c.state == static_cast<uint64_t>(SlotState::kDying);
  if (dying) flags |= kKilled;
  if (!ran) Set(op.started_at, file_->now);
  Set(op.ended_at, file_->now);
  Set(op.flags, op.flags | flags);
  Set(c.unfinished, c.unfinished - 1);
  if (ran && static_cast<OpKind>(op.kind) == OpKind::kKernel) WriteRecord(ref, op, flags);
  if (dying) {
    SetState(op, OpState::kFree);
  } else {
    SetState(op, OpState::kDone);
    Append(c.done_head, c.done_tail, ref);
  }
  ReleaseDependents(op);
}

// Takes a pending operation out of the lists of what it waits for.
void Timeline::UnlinkEdges(OpRef ref) {
  const Op& op = At(ref);
  for (int k = 0; k < kMaxDeps; ++k) {
    if (op.deps[k] == 0) continue;
    Cell* link = &At(op.deps[k]).first_edge;
    while (*link != 0 && *link != EdgeOf(ref, k)) {
      link = &At(RefOfEdge(*link)).edge_next[*link % kMaxDeps];
    }
    if (*link != 0) Set(*link, op.edge_next[k]);
  }
}

void Timeline::ReleaseDependents(Op& op) {
  uint64_t edge = op.first_edge;
  Set(op.first_edge, 0);
  while (edge != 0) {
    const OpRef ref = RefOfEdge(edge);
    Op& dependent = At(ref);
    edge = dependent.edge_next[edge % kMaxDeps];
    if (static_cast<OpState>(uint64_t{dependent.state}) != OpState::kPending) continue;
    Set(dependent.deps_left, dependent.deps_left - 1);
    if (dependent.deps_left == 0) BecomeReady(ref);
  }
}

bool Timeline::Collect(int context, Completion* completion) {
  Context& c = file_->contexts[context];
  const OpRef ref = PopFront(c.done_head, c.done_tail);
  if (ref == 0) return false;
  Op& op = At(ref);
  *completion = {ref, op.started_at.Signed(), op.ended_at.Signed(), op.flags};
  SetState(op, OpState::kFree);
  Commit();
  return true;
}

void Timeline::Release(OpRef ref) {
  Op& op = At(ref);
  Account(Now());
  if (StateOf(ref) == OpState::kGateReady) {
    Complete(ref, kCompleted);
    DrainMarkers();
    Dispatch();
  } else if (static_cast<OpKind>(op.kind) == OpKind::kKernel && (op.flags & kGated) &&
             (StateOf(ref) == OpState::kRunning || StateOf(ref) == OpState::kReady ||
              StateOf(ref) == OpState::kPending)) {
    Set(op.flags, op.flags & ~kGated);
    Set(op.remaining, static_cast<uint64_t>(op.duration));
  }
  BumpChange();
  Commit();
}

void Timeline::WriteRecord(OpRef ref, const Op& op, uint64_t flags) {
  if (file_->record_capacity == 0) return;
  const uint64_t index = file_->record_count;
  const Context& c = file_->contexts[ContextOf(ref)];
  Record& record = file_->Records()[index % file_->record_capacity];
  record.pid = file_->processes[c.process].pid;
  record.context = c.id;
  record.stream = op.stream;
  record.sequence = op.sequence;
  record.name = op.name;
  record.submitted_ns = op.submitted_at;
  record.start_ns = op.started_at.Signed();
  record.end_ns = op.ended_at.Signed();
  record.busy_ns = static_cast<int64_t>(uint64_t{op.busy});
  record.flags = flags;
  Set(file_->record_count, index + 1);
}

int64_t Timeline::EarliestKernelStart(int context) const {
  int64_t start = Now();
  if (file_->current != 0 && file_->current != static_cast<uint64_t>(context + 1)) {
    start = std::max(start,
                     std::min(SliceEnd(), FirstRunningEnd(static_cast<int>(file_->current - 1))));
  }
  return start;
}

int64_t Timeline::EarliestEnd(OpRef ref) const {
  const Op& op = At(ref);
  const int context = ContextOf(ref);
  const Context& c = file_->contexts[context];
  const OpKind kind = static_cast<OpKind>(op.kind);
  const OpState state = StateOf(ref);
  if (state == OpState::kDone || state == OpState::kFree) return Now();
  if (kind == OpKind::kGate) return kForever;
  if (kind == OpKind::kMarker) return Now();
  if (kind == OpKind::kKernel) {
    const bool current = file_->current == static_cast<uint64_t>(context + 1);
    const int64_t base = current ? c.accounted.Signed() : EarliestKernelStart(context);
    if (state == OpState::kRunning) return SaturatingAdd(base, op.remaining.Signed());
    const OpRef before = op.flags & kConcurrent ? 0 : WholeKernelOf(c);
    const int64_t start = before != 0 ? SaturatingAdd(base, At(before).remaining.Signed())
                          : current   ? Now()
                                      : base;
    return SaturatingAdd(start, op.remaining.Signed());
  }
  const CopyEngine& engine = file_->engines[kind == OpKind::kCopyIn ? 0 : 1];
  if (engine.running == ref) return engine.ends_at.Signed();
  const int64_t start = engine.running != 0 ? engine.ends_at.Signed() : Now();
  return SaturatingAdd(start, op.duration);
}

uint64_t Timeline::NameId(const char* name) {
  const uint64_t count = file_->name_count;
  for (uint64_t i = 0; i < count; ++i) {
    if (strncmp(file_->names[i], name, kNameBytes - 1) == 0) return i + 1;
  }
  if (count == kMaxNames) return 0;
  strncpy(file_->names[count], name, kNameBytes - 1);
  file_->names[count][kNameBytes - 1] = 0;
  Set(file_->name_count, count + 1);
  Commit();
  return count + 1;
}

}  // namespace baton::sim
