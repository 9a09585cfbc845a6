// What a device file holds: one simulated GPU, mapped by every process that uses it.
//
// A process may be killed at any instruction while it changes this state. So the scheduling state
// consists of Cells, which only Undo::Set writes: it first notes the old value in the undo
// log. Whoever next takes the lock of a dead owner rolls the log back, and so sees the state as
// it was at the last Commit. What is not a Cell is written only before a commit makes it
// reachable.
#ifndef BATON_SIM_LAYOUT_H_
#define BATON_SIM_LAYOUT_H_

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace baton::sim {

inline constexpr uint64_t kMagic = 0x34'55'50'47'4d'49'53'42;  // "BSIMGPU4"
inline constexpr int kMaxProcesses = 256;
inline constexpr int kMaxContexts = 256;
inline constexpr int kOpsPerContext = 1024;
inline constexpr int kMaxDeps = 4;
inline constexpr int kUndoEntries = 32768;
inline constexpr int kMaxNames = 512;
inline constexpr int kNameBytes = 64;
inline constexpr int64_t kForever = INT64_MAX;

// A 64-bit word of the scheduling state; Undo::Set writes it.
class Cell {
 public:
  operator uint64_t() const { return value_; }
  int64_t Signed() const { return static_cast<int64_t>(value_); }
  Cell& operator=(const Cell&) = delete;

 private:
  friend class Undo;
  uint64_t value_;
};

enum class OpKind : uint64_t {
  kMarker,  // takes no time: an event's record, a join of streams
  kGate,    // done when its process says so: host functions, waits for a value
  kKernel,  // the compute engine: kernels, device-to-device copies, sets
  kCopyIn,  // host to device engine
  kCopyOut  // device to host engine
};

enum class OpState : uint64_t {
  kFree,
  kPending,    // waits for other operations
  kReady,      // in its engine's queue
  kGateReady,  // a gate that its process may release
  kRunning,    // started; perhaps sliced out just now
  kDone        // in the context's done list until its process collects it
};

// Flags of operations and of records.
inline constexpr uint64_t kConcurrent = 1;  // small: runs beside any kernel of its context
inline constexpr uint64_t kFaults = 2;      // ends in an illegal address
inline constexpr uint64_t kGated = 4;       // runs until its process releases it
inline constexpr uint64_t kCompleted = 16;  // ran to its end
inline constexpr uint64_t kKilled = 32;     // its process died, or it was cut
inline constexpr uint64_t kFaulted = 64;    // ended in, or was cut by, a fault
inline constexpr uint64_t kDropped = 128;   // never ran

struct Op {
  Cell state;  // OpState
  Cell sequence;
  Cell remaining;  // ns of work left, kForever for a hung kernel
  Cell busy;
  Cell ready_at, started_at, ended_at;
  Cell flags;
  Cell deps_left;
  Cell next;         // in whichever list the operation is in
  Cell marker_next;  // in the list of what completes at once
  Cell first_edge;   // operations that wait for this one
  Cell edge_next[kMaxDeps];
  // Fixed at submission.
  uint64_t kind;  // OpKind
  int64_t duration;
  uint64_t stream;
  uint64_t name;
  int64_t submitted_at;
  uint64_t deps[kMaxDeps];  // operations, 0: none
};

enum class SlotState : uint64_t { kFree, kLive, kDying };

struct Context {
  Cell state;    // SlotState
  Cell process;  // index
  Cell id;       // unique on the device, from 1
  Cell ready_head, ready_tail;
  Cell running_head, running_count;
  Cell done_head, done_tail;
  Cell copies;      // running on a copy engine
  Cell accounted;   // `remaining` of the running operations is as of this instant
  Cell error;       // nonzero once faulted
  Cell inject;      // Injection for the next kernel
  Cell watts;       // that the GPU takes while its kernels run
  Cell unfinished;  // operations submitted and not done
  Op ops[kOpsPerContext];
};

struct Process {
  Cell state;  // SlotState
  Cell pid;
  Cell memory;    // bytes
  Cell contexts;  // live or dying
  Cell energy;    // nanojoules that the GPU took for it
  Cell instance;  // 1 + its MIG instance's place in CardState::instances; 0: none
};

struct CopyEngine {
  Cell head, tail;
  Cell running;  // operation
  Cell ends_at;
};

// One executed kernel, compute-engine copy or set. Under the lock, like everything else.
struct Record {
  uint64_t pid, context, stream, sequence, name;
  int64_t submitted_ns, start_ns, end_ns, busy_ns;
  uint64_t flags;
};

struct UndoEntry {
  uint64_t offset, old;
};

// What NVML says of the card beside what the timeline knows (sim/card.h). Under the lock. Each
// change of it becomes visible by one last write of a word, so a process may be killed in the
// middle.
inline constexpr int kMaxInstances = 8;  // GPU instances, and compute instances in each
inline constexpr int kMaxLinks = 18;
inline constexpr int kMaxFailures = 16;
inline constexpr uint64_t kIdleWatts = 75, kBusyWatts = 300;  // the latter where nobody says
inline constexpr uint64_t kEnergyStepNs = 100'000'000;        // how often the counter moves
inline constexpr int kMaxEvents = 64;                         // the newest are kept
inline constexpr int kBusBytes = 16;                          // "0000:17:00.0"

enum class Presence : uint32_t {
  kPresent,
  kLost,  // NVML counts it and says of it that it is lost
  kGone,  // NVML does not count it
};

struct ComputeSlot {
  uint32_t profile;  // 1 + sim/models.h's index; 0: free
};

struct InstanceSlot {
  uint32_t serial;  // 0: free; otherwise never given twice
  uint32_t profile;
  uint32_t start, size;
  ComputeSlot computes[kMaxInstances];
};

struct LinkEnd {
  uint32_t kind;  // 0: no such link; 1: a GPU, 2: a switch
  uint32_t active;
  char bus[kBusBytes];  // of the other end
};

struct Failure {
  char call[64];  // an NVML function, or "*"; empty: a free slot
  int32_t code;   // what it returns; 0: it is only slow
  uint32_t left;  // calls; UINT32_MAX: for ever
  int64_t delay_ns;
};

struct CardEvent {
  uint64_t type;  // nvmlEventType...
  uint64_t xid;
};

struct CardState {
  char model[32];               // sim/models.h; empty: none of them
  char bus[kBusBytes];          // empty: by its place in the list of devices
  char pcie_switch[kBusBytes];  // cards with the same name hang on one; empty: on none
  int32_t numa;                 // -1: NVML does not say
  uint32_t ecc;                 // it has ECC, and it is on
  LinkEnd links[kMaxLinks];
  uint32_t presence;  // Presence
  uint32_t mig_mode, mig_pending;
  uint32_t last_serial;
  InstanceSlot instances[kMaxInstances];
  uint64_t ecc_corrected, ecc_uncorrected;
  uint32_t remapped_rows, remap_pending, remap_failed;
  Failure failures[kMaxFailures];
  uint64_t event_count;  // ever
  CardEvent events[kMaxEvents];
};

struct DeviceFile {
  uint64_t magic;
  uint64_t bytes;  // of the whole file
  char name[128];
  unsigned char uuid[16];
  uint64_t memory_bytes;
  int64_t slice_ns;
  int64_t switch_ns;  // from one context to another
  uint64_t host_bytes_per_s, device_bytes_per_s;
  uint64_t record_capacity;
  uint64_t records_offset;

  pthread_mutex_t lock;
  std::atomic<uint32_t> change_word;  // futex: bumped when something may end sooner than predicted
  CardState card;

  uint32_t undo_count;
  UndoEntry undo[kUndoEntries];

  Cell now;
  Cell current;   // 1 + index of the context on the compute engine, 0: none
  Cell resident;  // 1 + index of the context that was on it last, 0: none
  Cell slice_start;
  Cell active_count;
  Cell active[kMaxContexts / 64];  // contexts with ready or running kernels
  Cell next_context_id;
  Cell memory_used;
  Cell busy_total;  // ns in which the compute engine executed
  // Nanojoules beyond those of an idle GPU; and those of them before an instant, the last multiple
  // of kEnergyStepNs at which, or after which, it executed.
  Cell energy, energy_then, energy_at;
  // By place in CardState::instances: ns in which it executed, and of them copies and sets.
  Cell instance_busy[kMaxInstances], instance_copying[kMaxInstances];
  Cell record_count;  // ever written
  Cell checked_at;    // when processes were last looked for
  Cell name_count;
  char names[kMaxNames][kNameBytes];
  CopyEngine engines[2];  // in, out
  Process processes[kMaxProcesses];
  Context contexts[kMaxContexts];

  Record* Records() {
    return reinterpret_cast<Record*>(reinterpret_cast<char*>(this) + records_offset);
  }
  const Record* Records() const {
    return reinterpret_cast<const Record*>(reinterpret_cast<const char*>(this) + records_offset);
  }
};

}  // namespace baton::sim

#endif  // BATON_SIM_LAYOUT_H_
