#include "sim/copy_engines.h"

#include <algorithm>

namespace baton::sim {

void CopyEngines::Enqueue(OpRef ref) {
  const int e = EngineOf(ops_.At(ref));
  ops_.Append(file_->engines[e].head, file_->engines[e].tail, ref);
  Start(e);
}

void CopyEngines::Start(int e) {
  CopyEngine& engine = file_->engines[e];
  if (engine.running != 0 || engine.head == 0) return;
  const OpRef ref = ops_.PopFront(engine.head, engine.tail);
  Op& op = ops_.At(ref);
  Context& c = file_->contexts[Operations::ContextOf(ref)];
  ops_.SetState(op, OpState::kRunning);
  undo_.Set(op.started_at, file_->now);
  undo_.Set(engine.running, ref);
  undo_.Set(engine.ends_at, static_cast<uint64_t>(file_->now.Signed() + op.duration));
  undo_.Set(c.copies, c.copies + 1);
}

OpRef CopyEngines::TakeEnded(int e, int64_t t) {
  CopyEngine& engine = file_->engines[e];
  const OpRef ref = engine.running;
  if (ref == 0 || engine.ends_at.Signed() > t) return 0;
  Op& op = ops_.At(ref);
  Context& c = file_->contexts[Operations::ContextOf(ref)];
  undo_.Set(engine.running, 0);
  undo_.Set(c.copies, c.copies - 1);
  undo_.Set(op.busy, static_cast<uint64_t>(op.duration));
  return ref;
}

void CopyEngines::Drop(int context, bool running_too) {
  Context& c = file_->contexts[context];
  for (CopyEngine& engine : file_->engines) {
    ops_.Remove(engine.head, engine.tail, context);
    const OpRef running = engine.running;
    if (running_too && running != 0 && Operations::ContextOf(running) == context) {
      undo_.Set(engine.running, 0);
      undo_.Set(c.copies, c.copies - 1);
    }
  }
}

int64_t CopyEngines::NextEvent() const {
  int64_t next = kForever;
  for (const CopyEngine& engine : file_->engines) {
    if (engine.running != 0) next = std::min(next, engine.ends_at.Signed());
  }
  return next;
}

int64_t CopyEngines::EarliestEnd(OpRef ref) const {
  const Op& op = ops_.At(ref);
  const CopyEngine& engine = file_->engines[EngineOf(op)];
  if (engine.running == ref) return engine.ends_at.Signed();
  const int64_t start = engine.running != 0 ? engine.ends_at.Signed() : file_->now.Signed();
  return op.duration > kForever - start ? kForever : start + op.duration;
}

}  // namespace baton::sim
