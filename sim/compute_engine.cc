#include "sim/compute_engine.h"

#include <algorithm>

namespace baton::sim {
namespace {

int64_t SaturatingAdd(int64_t a, int64_t b) {
  return a == kForever || b == kForever || a > kForever - b ? kForever : a + b;
}

}  // namespace

void ComputeEngine::Enqueue(int context, OpRef ref) {
  Context& c = file_->contexts[context];
  ops_.Append(c.ready_head, c.ready_tail, ref);
  SetActive(context, true);
}

int ComputeEngine::NextActive(int after) const {
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

void ComputeEngine::SetActive(int context, bool active) {
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

int64_t ComputeEngine::FirstRunningEnd(int context) const {
  const Context& c = file_->contexts[context];
  int64_t least = kForever;
  for (OpRef ref = c.running_head; ref != 0; ref = ops_.At(ref).next) {
    least = std::min(least, ops_.At(ref).remaining.Signed());
  }
  return SaturatingAdd(c.accounted.Signed(), least);
}

OpRef ComputeEngine::WholeKernelOf(const Context& c) const {
  OpRef ref = c.running_head;
  while (ref != 0 && (ops_.At(ref).flags & kConcurrent)) ref = ops_.At(ref).next;
  return ref;
}

void ComputeEngine::Account(int64_t t) {
  if (file_->current == 0) return;
  Context& c = file_->contexts[file_->current - 1];
  const int64_t passed = t - c.accounted.Signed();
  if (passed <= 0) return;
  for (OpRef ref = c.running_head; ref != 0; ref = ops_.At(ref).next) {
    Op& op = ops_.At(ref);
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

void ComputeEngine::SwitchTo(int context) {
  Set(file_->current, static_cast<uint64_t>(context + 1));
  Set(file_->slice_start, file_->now);
  if (context >= 0) Set(file_->contexts[context].accounted, file_->now);
}

void ComputeEngine::StartReadyKernels(int context) {
  Context& c = file_->contexts[context];
  while (c.ready_head != 0) {
    Op& op = ops_.At(c.ready_head);
    if (!(op.flags & kConcurrent) && WholeKernelOf(c) != 0) return;
    Account(Now());
    Set(c.accounted, file_->now);
    const OpRef ref = ops_.PopFront(c.ready_head, c.ready_tail);
    ops_.SetState(op, OpState::kRunning);
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

void ComputeEngine::Dispatch() {
  if (file_->current == 0 && file_->active_count != 0) SwitchTo(NextActive(kMaxContexts - 1));
  for (int at = current(); at >= 0; at = current()) {
    const Context& c = file_->contexts[at];
    if (c.ready_head != 0 || c.running_count != 0) return StartReadyKernels(at);
    SetActive(at, false);
    SwitchTo(NextActive(at));
  }
}

OpRef ComputeEngine::FirstEnded() const {
  if (current() < 0) return 0;
  OpRef ref = file_->contexts[current()].running_head;
  while (ref != 0 && ops_.At(ref).remaining != 0) ref = ops_.At(ref).next;
  return ref;
}

void ComputeEngine::EndSlice(int64_t t) {
  if (current() >= 0 && file_->active_count > 1 && t >= SliceEnd()) SwitchTo(NextActive(current()));
}

void ComputeEngine::Leave(int context) {
  SetActive(context, false);
  if (current() == context) SwitchTo(NextActive(context));
}

int64_t ComputeEngine::NextEvent() const {
  if (current() < 0) return kForever;
  const int64_t end = FirstRunningEnd(current());
  return file_->active_count > 1 ? std::min(end, SliceEnd()) : end;
}

int64_t ComputeEngine::EarliestStart(int context) const {
  if (current() < 0 || current() == context) return Now();
  return std::max(Now(), std::min(SliceEnd(), FirstRunningEnd(current())));
}

int64_t ComputeEngine::EarliestEnd(OpRef ref) const {
  const Op& op = ops_.At(ref);
  const int context = Operations::ContextOf(ref);
  const Context& c = file_->contexts[context];
  const int64_t base = current() == context ? c.accounted.Signed() : EarliestStart(context);
  if (ops_.StateOf(ref) == OpState::kRunning) return SaturatingAdd(base, op.remaining.Signed());
  const OpRef before = op.flags & kConcurrent ? 0 : WholeKernelOf(c);
  const int64_t start = before != 0 ? SaturatingAdd(base, ops_.At(before).remaining.Signed())
                        : current() == context ? Now()
                                               : base;
  return SaturatingAdd(start, op.remaining.Signed());
}

}  // namespace baton::sim
