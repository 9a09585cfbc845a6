// Who works on the device: processes and their contexts, from their coming to their end.
#include <string.h>

#include <algorithm>

#include "base/check.h"
#include "sim/timeline.h"

namespace baton::sim {

int Timeline::AttachProcess(uint64_t pid, uint64_t instance) {
  for (int i = 0; i < kMaxProcesses; ++i) {
    Process& p = file_->processes[i];
    if (p.state != static_cast<uint64_t>(SlotState::kFree)) continue;
    Set(p.state, static_cast<uint64_t>(SlotState::kLive));
    Set(p.pid, pid);
    Set(p.memory, 0);
    Set(p.contexts, 0);
    Set(p.energy, 0);
    Set(p.instance, instance);
    Commit();
    return i;
  }
  return -1;
}

int Timeline::CreateContext(int process, uint64_t watts) {
  for (int i = 0; i < kMaxContexts; ++i) {
    Context& c = file_->contexts[i];
    if (c.state != static_cast<uint64_t>(SlotState::kFree)) continue;
    Set(c.state, static_cast<uint64_t>(SlotState::kLive));
    Set(c.process, static_cast<uint64_t>(process));
    Set(file_->next_context_id, file_->next_context_id + 1);
    Set(c.id, file_->next_context_id);
    Set(c.error, 0);
    Set(c.inject, 0);
    Set(c.watts, watts);
    Set(file_->processes[process].contexts, file_->processes[process].contexts + 1);
    Commit();
    return i;
  }
  return -1;
}

void Timeline::DropUnstarted(int context, uint64_t flags, bool running_too) {
  Context& c = file_->contexts[context];
  engine_.Account(Now());
  Set(c.ready_head, 0);
  Set(c.ready_tail, 0);
  copies_.Drop(context, running_too);
  if (running_too) {
    Set(c.running_head, 0);
    Set(c.running_count, 0);
  }
  for (int slot = 0; slot < kOpsPerContext && c.unfinished != 0; ++slot) {
    const OpRef ref = Operations::RefOf(context, slot);
    switch (ops_.StateOf(ref)) {
      case OpState::kPending:
        ops_.StopWaiting(ref);
        [[fallthrough]];
      case OpState::kReady:
      case OpState::kGateReady:
        Complete(ref, flags | kDropped);
        break;
      case OpState::kRunning:
        if (running_too) Complete(ref, flags);
        break;
      case OpState::kFree:
      case OpState::kDone:
        break;
    }
  }
  for (int e = 0; e < CopyEngines::kEngines; ++e) copies_.Start(e);
  DrainMarkers();
}

void Timeline::FaultContext(int context, uint64_t error) {
  Context& c = file_->contexts[context];
  if (c.error != 0) return;
  Set(c.error, error);
  DropUnstarted(context, kFaulted, true);
  BumpChange();
}

void Timeline::FreeContext(int context) {
  Context& c = file_->contexts[context];
  Process& p = file_->processes[c.process];
  for (Op& op : c.ops) ops_.SetState(op, OpState::kFree);
  Set(c.done_head, 0);
  Set(c.done_tail, 0);
  Set(c.unfinished, 0);
  engine_.Leave(context);
  Set(c.state, static_cast<uint64_t>(SlotState::kFree));
  Set(p.contexts, p.contexts - 1);
  if (p.contexts == 0 && p.state == static_cast<uint64_t>(SlotState::kDying)) {
    Set(file_->memory_used, file_->memory_used - p.memory);
    Set(p.memory, 0);
    Set(p.state, static_cast<uint64_t>(SlotState::kFree));
  }
}

void Timeline::ReapDying(int context) {
  Context& c = file_->contexts[context];
  if (c.state != static_cast<uint64_t>(SlotState::kDying)) return;
  if (c.running_count == 0 && c.copies == 0) FreeContext(context);
}

void Timeline::DestroyContext(int context) {
  Context& c = file_->contexts[context];
  if (c.error == 0) Set(c.error, 1);  // so that what is dropped starts nothing
  DropUnstarted(context, kKilled, true);
  FreeContext(context);
  engine_.Dispatch();
  BumpChange();
  Commit();
}

void Timeline::ProcessDied(int process) {
  Process& p = file_->processes[process];
  if (p.state == static_cast<uint64_t>(SlotState::kFree)) return;
  Set(p.state, static_cast<uint64_t>(SlotState::kDying));
  if (p.contexts == 0) {
    Set(file_->memory_used, file_->memory_used - p.memory);
    Set(p.memory, 0);
    Set(p.state, static_cast<uint64_t>(SlotState::kFree));
  }
  Commit();
  // One change for each context: the undo log holds what a full one does, and not much more.
  // Whoever is killed in between leaves a dying process with live contexts to the next.
  for (int i = 0; i < kMaxContexts; ++i) {
    Context& c = file_->contexts[i];
    if (c.state != static_cast<uint64_t>(SlotState::kLive) ||
        c.process != static_cast<uint64_t>(process)) {
      continue;
    }
    Set(c.state, static_cast<uint64_t>(SlotState::kDying));
    if (c.error == 0) Set(c.error, 1);
    DropUnstarted(i, kKilled, false);
    // Nobody can release what spins, and what hangs never ends.
    OpRef ref = c.running_head;
    while (ref != 0) {
      const OpRef next = ops_.At(ref).next;
      if (ops_.At(ref).remaining.Signed() == kForever) {
        ops_.UnlinkRunning(c, ref);
        Complete(ref, kKilled);
      }
      ref = next;
    }
    ReapDying(i);
    DrainMarkers();
    engine_.Dispatch();
    BumpChange();
    Commit();
  }
}

bool Timeline::ChargeMemory(int process, uint64_t bytes) {
  Process& p = file_->processes[process];
  if (bytes > file_->memory_bytes - file_->memory_used) return false;
  Set(file_->memory_used, file_->memory_used + bytes);
  Set(p.memory, p.memory + bytes);
  Commit();
  return true;
}

void Timeline::ReleaseMemory(int process, uint64_t bytes) {
  Process& p = file_->processes[process];
  bytes = std::min(bytes, uint64_t{p.memory});
  Set(file_->memory_used, file_->memory_used - bytes);
  Set(p.memory, p.memory - bytes);
  Commit();
}

bool Timeline::Inject(uint64_t pid, Injection what) {
  bool found = false;
  for (int i = 0; i < kMaxContexts; ++i) {
    Context& c = file_->contexts[i];
    if (c.state != static_cast<uint64_t>(SlotState::kLive) ||
        file_->processes[c.process].pid != pid) {
      continue;
    }
    found = true;
    engine_.Account(Now());
    if (c.running_count == 0) {
      Set(c.inject, static_cast<uint64_t>(what));
    } else if (what == Injection::kIllegalAddress) {
      FaultContext(i, 700);
    } else if (what == Injection::kHang) {
      Set(ops_.At(c.running_head).remaining, static_cast<uint64_t>(kForever));
    }
    DrainMarkers();
    engine_.Dispatch();
    BumpChange();
    Commit();
  }
  return found;
}

}  // namespace baton::sim
