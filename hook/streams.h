// The driver's contexts and streams, as far as this process launches into them: a record of each,
// with the events that mark what was launched.
//
// Locks: see hook/meter.h.
#ifndef BATON_HOOK_STREAMS_H_
#define BATON_HOOK_STREAMS_H_

#include <stdint.h>

#include <atomic>

#include "hook/captures.h"
#include "hook/cuda_types.h"
#include "hook/journal.h"
#include "hook/libc.h"

namespace baton::hook {

// A driver context on a GPU and the hook's unused events in it.
struct Context {
  CUcontext handle = nullptr;
  Gpu* gpu = nullptr;
  std::atomic<bool> gone{false};
  std::atomic<bool> going{false};  // being destroyed: its handle may be another's already
  Lock lock;
  static constexpr int kPool = 512;
  CUevent pool[kPool] = {};
  int pooled = 0;
};

// A finished launch or more, up to an event.
struct Mark {
  static constexpr int kParts = 24;
  CUevent event = nullptr;
  CUevent start = nullptr;  // just before the work, when it was measured by itself
  uint64_t predicted_ns = 0;
  uint64_t let_pass = 0;   // Meter::let_pass when it was recorded
  uint32_t behind = 0;     // all its work comes after this wait of its stream; 0: after none
  uint32_t waits = 0;      // Stream::waits when it was recorded
  int64_t arrives_at = 0;  // Meter::arrives, and `start` was recorded then; 0: not so
  uint32_t busy = 0;       // Meter::busy_streams then, this one included
  bool dense = false;      // the GPU had no gap between the mark before and this one
  uint8_t parts = 0;       // kinds of work; those beyond kParts are not corrected
  Estimate* part[kParts] = {};
  uint64_t part_ns[kParts] = {};  // what they were taken for
};

// A stream that this process launched into. Per-thread default streams have one per thread.
struct Stream {
  static constexpr uint32_t kMarks = 64;
  CUstream handle = nullptr;
  Context* context = nullptr;
  const Slot* owner = nullptr;    // the thread of a per-thread default stream
  std::atomic<bool> gone{false};  // destroyed; its marks still count
  Lock lock;
  Mark marks[kMarks];
  uint32_t first = 0;  // oldest unfinished
  std::atomic<uint32_t> count{0};
  CUevent previous = nullptr;  // of the last finished mark
  // When its work ended, on the monotonic clock: between these. The GPU's events tell only how long
  // after each other marks ended; what binds them to this clock is who looked when.
  int64_t ended_from = 0, ended_by = 0;
  int64_t unfinished_at = 0;   // the last look at which the oldest mark had not finished
  int64_t captured_since = 0;  // since when it answers as part of a capture; 0: it does not
  // Of the mark that was measured for Meter::arrives: when its start was recorded, and how long
  // after that start the last finished mark ended; below zero: nothing is measured.
  int64_t arrives_at = 0, since_arrival = -1;
  // Its waits for the host (hook/host_waits.h) are numbered from 1, also over the streams that this
  // record stands for in turn. They end in order.
  std::atomic<uint32_t> waits_begun{0};    // numbers given
  std::atomic<uint32_t> waits{0};          // the newest that the driver has taken
  std::atomic<uint32_t> waits_over{0};     // the newest that is over
  std::atomic<uint32_t> newest_behind{0};  // the largest Mark::behind so far
  // How many waits the driver is being asked for: launches into the stream let them go first.
  std::atomic<uint32_t> beginning{0};
  bool WaitsForHost() const { return waits.load() > waits_over.load(); }
  bool held = false;  // its lock, while its context is being destroyed
  Stream* next = nullptr;
};

// The record of a context or a stream, made on first use; null when the driver refuses. For a
// per-thread default stream `owner` is the calling thread's slot.
Context* ContextOf(CUcontext handle);
Stream* StreamOf(Context* context, CUstream handle, const Slot* owner);
// Waits while the context is being destroyed: only then it is known whose its handle is.
void AwaitLeft(const Context* context);

// The context of a stream; of a default one, the current context. False: there is none.
bool ContextOfStream(CUstream stream, CUcontext* context);

// An event at this point of the stream. The stream's context must be current. `*out` is written on
// success only.
CUresult RecordEvent(Stream* stream, CUevent* out);
void ReturnEvent(Context* context, CUevent event);

// Whether the handle is that of a default stream: the legacy one, or the calling thread's.
bool IsDefault(CUstream handle);

// Makes `context` current, and puts things back at the end.
class HookCalls {
 public:
  explicit HookCalls(CUcontext context);
  ~HookCalls();
  HookCalls(const HookCalls&) = delete;
  HookCalls& operator=(const HookCalls&) = delete;

 private:
  RelaxedCapture relaxed_;
  bool pushed_ = false;
};

// The records of contexts that are there, one by one: null ends them.
Context* KnownContext(int index);

// In a child after fork: contexts and streams were the parent's.
void ForgetStreams();

}  // namespace baton::hook

#endif  // BATON_HOOK_STREAMS_H_
