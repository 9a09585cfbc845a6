#include "sim/operations.h"

namespace baton::sim {
namespace {

// An edge names one dependency of an operation: the operation and which of its kMaxDeps.
uint64_t EdgeOf(OpRef ref, int k) { return ref * kMaxDeps + static_cast<uint64_t>(k); }

}  // namespace

void Operations::Append(Cell& head, Cell& tail, OpRef ref) {
  undo_.Set(At(ref).next, 0);
  if (head == 0) {
    undo_.Set(head, ref);
  } else {
    undo_.Set(At(tail).next, ref);
  }
  undo_.Set(tail, ref);
}

OpRef Operations::PopFront(Cell& head, Cell& tail) {
  const OpRef ref = head;
  if (ref == 0) return 0;
  undo_.Set(head, At(ref).next);
  if (head == 0) undo_.Set(tail, 0);
  return ref;
}

void Operations::Remove(Cell& head, Cell& tail, int context) {
  OpRef ref = head;
  undo_.Set(head, 0);
  undo_.Set(tail, 0);
  while (ref != 0) {
    const OpRef next = At(ref).next;
    if (ContextOf(ref) != context) Append(head, tail, ref);
    ref = next;
  }
}

void Operations::UnlinkRunning(Context& c, OpRef ref) {
  Cell* link = &c.running_head;
  while (*link != ref) link = &At(*link).next;
  undo_.Set(*link, At(ref).next);
  undo_.Set(c.running_count, c.running_count - 1);
}

void Operations::Depend(OpRef ref, int k, OpRef dep) {
  Op& op = At(ref);
  undo_.Set(op.edge_next[k], At(dep).first_edge);
  undo_.Set(At(dep).first_edge, EdgeOf(ref, k));
  op.deps[k] = dep;
}

void Operations::StopWaiting(OpRef ref) {
  const Op& op = At(ref);
  for (int k = 0; k < kMaxDeps; ++k) {
    if (op.deps[k] == 0) continue;
    Cell* link = &At(op.deps[k]).first_edge;
    while (*link != 0 && *link != EdgeOf(ref, k)) {
      link = &At(*link / kMaxDeps).edge_next[*link % kMaxDeps];
    }
    if (*link != 0) undo_.Set(*link, op.edge_next[k]);
  }
}

void Operations::WriteRecord(OpRef ref, uint64_t flags) {
  if (file_->record_capacity == 0) return;
  const Op& op = At(ref);
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
  undo_.Set(file_->record_count, index + 1);
}

}  // namespace baton::sim
