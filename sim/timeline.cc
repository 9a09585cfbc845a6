#include "sim/timeline.h"

#include <string.h>

#include <algorithm>

#include "base/check.h"

namespace baton::sim {

void Timeline::Commit() {
  BATON_CHECK(marker_head_ == 0);
  undo_.Commit();
}

void Timeline::Recover() {
  undo_.Recover();
  marker_head_ = marker_tail_ = 0;
}

void Timeline::BumpChange() {
  file_->change_word.fetch_add(1);
  wake_ = true;
}

int64_t Timeline::NextEvent() const { return std::min(engine_.NextEvent(), copies_.NextEvent()); }

void Timeline::EndKernels() {
  const int context = engine_.current();
  if (context < 0) return;
  Context& c = file_->contexts[context];
  // Completing one may fault and empty the list.
  while (const OpRef ref = engine_.FirstEnded()) {
    ops_.UnlinkRunning(c, ref);
    if (ops_.At(ref).flags & kFaults) {
      Complete(ref, kFaulted);
      if (c.state == static_cast<uint64_t>(SlotState::kLive)) FaultContext(context, 700);
    } else {
      Complete(ref, kCompleted);
    }
  }
  ReapDying(context);
}

void Timeline::AdvanceTo(int64_t now) {
  while (true) {
    const int64_t next = NextEvent();
    if (next > now) break;
    if (next > Now()) Set(file_->now, static_cast<uint64_t>(next));
    engine_.Account(next);
    for (int e = 0; e < CopyEngines::kEngines; ++e) {
      const OpRef ref = copies_.TakeEnded(e, next);
      if (ref == 0) continue;
      Complete(ref, kCompleted);
      copies_.Start(e);
      ReapDying(Operations::ContextOf(ref));
    }
    EndKernels();
    DrainMarkers();
    engine_.EndSlice(next);
    engine_.Dispatch();
    Commit();
  }
  if (now > Now()) Set(file_->now, static_cast<uint64_t>(now));
  Commit();
}

Submitted Timeline::Submit(int context, int slot, const OpRequest& request) {
  Context& c = file_->contexts[context];
  Op& op = c.ops[slot];
  const OpRef ref = Operations::RefOf(context, slot);
  BATON_CHECK(op.state == static_cast<uint64_t>(OpState::kFree));
  op.kind = static_cast<uint64_t>(request.kind);
  op.duration = request.duration;
  op.stream = request.stream;
  op.name = request.name;
  op.submitted_at = Now();
  const bool spins = request.kind == OpKind::kKernel && (request.flags & kGated);
  ops_.SetState(op, OpState::kPending);
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
    const Op& dep = ops_.At(request.deps[k]);
    const OpState state = static_cast<OpState>(uint64_t{dep.state});
    if (state == OpState::kFree || state == OpState::kDone ||
        dep.sequence != request.dep_sequences[k]) {
      continue;
    }
    ops_.Depend(ref, k, request.deps[k]);
    ++left;
  }
  Set(op.deps_left, left);
  if (left == 0) {
    BecomeReady(ref);
    DrainMarkers();
    engine_.Dispatch();
  }
  Commit();
  return {ref, op.sequence};
}

void Timeline::BecomeReady(OpRef ref) {
  Op& op = ops_.At(ref);
  const int context = Operations::ContextOf(ref);
  Context& c = file_->contexts[context];
  Set(op.ready_at, file_->now);
  // Work of a faulted context passes through the same list, as dropped.
  switch (c.error != 0 ? OpKind::kMarker : static_cast<OpKind>(op.kind)) {
    case OpKind::kMarker:
      ops_.SetState(op, OpState::kReady);
      if (c.error == 0 && engine_.Elsewhere(context)) {
        Set(op.flags, op.flags | kConcurrent);
        engine_.Enqueue(context, ref);
        break;
      }
      Set(op.marker_next, 0);
      if (marker_head_ == 0) {
        marker_head_ = ref;
      } else {
        Set(ops_.At(marker_tail_).marker_next, ref);
      }
      marker_tail_ = ref;
      break;
    case OpKind::kGate:
      ops_.SetState(op, OpState::kGateReady);
      BumpChange();
      break;
    case OpKind::kKernel:
      ops_.SetState(op, OpState::kReady);
      engine_.Enqueue(context, ref);
      break;
    case OpKind::kCopyIn:
    case OpKind::kCopyOut:
      ops_.SetState(op, OpState::kReady);
      copies_.Enqueue(ref);
      break;
  }
}

void Timeline::DrainMarkers() {
  while (marker_head_ != 0) {
    const OpRef ref = marker_head_;
    marker_head_ = ops_.At(ref).marker_next;
    if (marker_head_ == 0) marker_tail_ = 0;
    if (ops_.StateOf(ref) != OpState::kReady) continue;  // dropped since
    Complete(ref, file_->contexts[Operations::ContextOf(ref)].error != 0 ? kDropped : kCompleted);
  }
}

void Timeline::Complete(OpRef ref, uint64_t flags) {
  Op& op = ops_.At(ref);
  Context& c = file_->contexts[Operations::ContextOf(ref)];
  const bool ran = static_cast<OpState>(uint64_t{op.state}) == OpState::kRunning;
  const bool dying = c.state == static_cast<uint64_t>(SlotState::kDying);
  if (dying) flags |= kKilled;
  if (!ran) Set(op.started_at, file_->now);
  Set(op.ended_at, file_->now);
  Set(op.flags, op.flags | flags);
  Set(c.unfinished, c.unfinished - 1);
  if (ran && static_cast<OpKind>(op.kind) == OpKind::kKernel) ops_.WriteRecord(ref, flags);
  if (dying) {
    ops_.SetState(op, OpState::kFree);
  } else {
    ops_.SetState(op, OpState::kDone);
    ops_.Append(c.done_head, c.done_tail, ref);
  }
  ops_.ReleaseDependents(op, [this](OpRef ready) { BecomeReady(ready); });
}

bool Timeline::Collect(int context, Completion* completion) {
  Context& c = file_->contexts[context];
  const OpRef ref = ops_.PopFront(c.done_head, c.done_tail);
  if (ref == 0) return false;
  Op& op = ops_.At(ref);
  *completion = {ref, op.started_at.Signed(), op.ended_at.Signed(), op.flags};
  ops_.SetState(op, OpState::kFree);
  Commit();
  return true;
}

void Timeline::Release(OpRef ref) {
  Op& op = ops_.At(ref);
  engine_.Account(Now());
  if (ops_.StateOf(ref) == OpState::kGateReady) {
    Complete(ref, kCompleted);
    DrainMarkers();
    engine_.Dispatch();
  } else if (static_cast<OpKind>(op.kind) == OpKind::kKernel && (op.flags & kGated) &&
             (ops_.StateOf(ref) == OpState::kRunning || ops_.StateOf(ref) == OpState::kReady ||
              ops_.StateOf(ref) == OpState::kPending)) {
    Set(op.flags, op.flags & ~kGated);
    Set(op.remaining, static_cast<uint64_t>(op.duration));
  }
  BumpChange();
  Commit();
}

int64_t Timeline::EarliestEnd(OpRef ref) const {
  const Op& op = ops_.At(ref);
  const OpKind kind = static_cast<OpKind>(op.kind);
  const OpState state = ops_.StateOf(ref);
  if (state == OpState::kDone || state == OpState::kFree) return Now();
  if (kind == OpKind::kGate) return kForever;
  if (kind == OpKind::kMarker) return Now();
  if (kind == OpKind::kKernel) return engine_.EarliestEnd(ref);
  return copies_.EarliestEnd(ref);
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
