#include "sim/compute_engine.h"

#include <algorithm>

namespace baton::sim {
namespace {

int64_t SaturatingAdd(int64_t a, int64_t b) {
  return a == kForever || b == kForever || a > kForever - b ? kForever : a + b;
}

// Whether one of the running operations is a copy or a set: their names are in brackets.
bool Copies(const DeviceFile& file, const Context& c) {
  const auto at = [&](OpRef ref) -> const Op& {
    return file.contexts[Operations::ContextOf(ref)].ops[Operations::SlotOf(ref)];
  };
  OpRef ref = c.running_head;
  while (ref != 0 && (at(ref).name == 0 || file.names[at(ref).name - 1][0] != '[')) {
    ref = at(ref).next;
  }
  return ref != 0;
}

uint64_t BeyondIdle(const Context& c) {
  return std::max(uint64_t{c.watts}, kIdleWatts) - kIdleWatts;
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
    AddEnergy(c, static_cast<uint64_t>(t), static_cast<uint64_t>(passed));
    AddToInstance(c, static_cast<uint64_t>(passed));
  }
  Set(c.accounted, static_cast<uint64_t>(t));
}

// Of the `passed` nanoseconds before `t`. (Watts are nanojoules per nanosecond.)
void ComputeEngine::AddEnergy(const Context& c, uint64_t t, uint64_t passed) {
  const uint64_t beyond = BeyondIdle(c);
  const auto step_of = [](uint64_t ns) { return ns / kEnergyStepNs * kEnergyStepNs; };
  // All before was before the step in which this begins, unless something in that was added.
  if (file_->energy_at < step_of(t - passed)) {
    Set(file_->energy_then, file_->energy);
    Set(file_->energy_at, step_of(t - passed));
  }
  if (file_->energy_at < step_of(t)) {
    Set(file_->energy_then, file_->energy + beyond * (step_of(t) - (t - passed)));
    Set(file_->energy_at, step_of(t));
  }
  Set(file_->energy, file_->energy + beyond * passed);
  Process& process = file_->processes[c.process];
  Set(process.energy, process.energy + c.watts * passed);
}

void ComputeEngine::AddToInstance(const Context& c, uint64_t passed) {
  const uint64_t instance = file_->processes[c.process].instance;
  if (instance == 0) return;
  Cell& busy = file_->instance_busy[instance - 1];
  Set(busy, busy + passed);
  if (!Copies(*file_, c)) return;
  Cell& copying = file_->instance_copying[instance - 1];
  Set(copying, copying + passed);
}

void ComputeEngine::SwitchTo(int context) {
  const uint64_t place = static_cast<uint64_t>(context) + 1;  // 0: nobody
  Set(file_->current, place);
  const bool switches = context >= 0 && file_->resident != 0 && file_->resident != place;
  const auto from = static_cast<uint64_t>(Now() + (switches ? file_->switch_ns : 0));
  Set(file_->slice_start, from);
  if (context < 0) return;
  Set(file_->resident, place);
  Set(file_->contexts[context].accounted, from);
}

void ComputeEngine::StartReadyKernels(int context) {
  Context& c = file_->contexts[context];
  while (c.ready_head != 0) {
    Op& op = ops_.At(c.ready_head);
    if (!(op.flags & kConcurrent) && WholeKernelOf(c) != 0) return;
    Account(Now());
    // Later than now: the engine still switches to this context.
    const int64_t from = std::max(Now(), c.accounted.Signed());
    Set(c.accounted, static_cast<uint64_t>(from));
    const OpRef ref = ops_.PopFront(c.ready_head, c.ready_tail);
    ops_.SetState(op, OpState::kRunning);
    Set(op.started_at, static_cast<uint64_t>(from));
    // What is injected is meant for a kernel.
    const uint64_t inject = static_cast<OpKind>(op.kind) == OpKind::kKernel ? c.inject : 0;
    if (inject == static_cast<uint64_t>(Injection::kIllegalAddress)) {
      Set(op.flags, op.flags | kFaults);
      Set(op.remaining, 0);
      Set(c.inject, 0);
    } else if (inject == static_cast<uint64_t>(Injection::kHang)) {
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
  if (current() < 0 || file_->contexts[current()].accounted.Signed() > Now()) return 0;
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

uint64_t CountedMillijoules(const DeviceFile& file) {
  const uint64_t step = file.now / kEnergyStepNs * kEnergyStepNs;
  uint64_t beyond = file.energy_at == step ? file.energy_then : file.energy;
  if (file.current != 0) {
    // What runs since before the step is in no account yet.
    const Context& c = file.contexts[file.current - 1];
    if (c.running_count != 0 && c.accounted < step) {
      beyond = file.energy + BeyondIdle(c) * (step - c.accounted);
    }
  }
  return (kIdleWatts * step + beyond) / 1'000'000;
}

InstanceUse UseOfInstance(const DeviceFile& file, uint32_t place) {
  InstanceUse use{file.instance_busy[place], file.instance_copying[place]};
  if (file.current == 0) return use;
  // What runs now is in the account up to some moment before.
  const Context& c = file.contexts[file.current - 1];
  const bool runs = c.running_count != 0 && c.accounted < file.now;
  if (!runs || file.processes[c.process].instance != place + 1) return use;
  const uint64_t passed = file.now - c.accounted;
  use.busy += passed;
  if (Copies(file, c)) use.copying += passed;
  return use;
}

}  // namespace baton::sim
