// The meter: how much work is on the GPU, how long it takes, and when it has finished.
//
// Launching threads record *marks*, the hook's own events, about every kMarkEveryNs of predicted
// GPU time. A finished mark tells that everything before it in its stream has finished; the time
// between two marks corrects the estimates of the work between them.
//
// Locks, in this order: Meter::leaving, Meter::cover_lock, Slot::cells_lock, Meter::streams_lock,
// Stream::lock, Context::lock. Only the destruction of a context holds some over a wait for the GPU
// (`leaving` and its streams' own); the client thread only ever tries those.
#ifndef BATON_HOOK_METER_H_
#define BATON_HOOK_METER_H_

#include <atomic>

#include "base/time.h"
#include "hook/streams.h"

namespace baton::hook {

struct Gpu;

struct Meter {
  Lock streams_lock;                      // taken to add one or to use one again
  std::atomic<Stream*> streams{nullptr};  // newest first, none is ever taken away
  std::atomic<Stream*> sweep{nullptr};    // whose finished marks are collected next
  // Streams with marks not known to have finished: among them the GPU's time is divided.
  std::atomic<uint32_t> busy_streams{0};
  std::atomic<int64_t> outstanding_ns{0};  // predicted time of all unfinished marks
  std::atomic<int64_t> head_ns{0};         // the part of it that may be running now
  std::atomic<int64_t> held_ns{0};         // the part of it that waits for the host
  std::atomic<int64_t> finish_at{0};       // predicted end of it all, on the monotonic clock
  std::atomic<int64_t> telling_at{0};  // a look then tells much of finish_at; 0, or past: none does
  std::atomic<int64_t> bound_ns{0};    // park above this much; 0: never
  std::atomic<uint64_t> busy_ns{0};
  std::atomic<uint64_t> longest_ns{0};  // the longest kernel of late
  // The next launch is the first one after another process's on the GPU: how long the GPU takes to
  // come to it is measured.
  std::atomic<bool> arrives{false};
  std::atomic<uint64_t> switch_ns{0};  // that, smoothed; 0: not known
  // How often launches were let through in the middle of a drain, or because nothing moved: work on
  // the GPU may have waited for them, and what was measured meanwhile says nothing about its
  // length.
  std::atomic<uint64_t> let_pass{0};
  // Waits for the host that ended with work behind them: as if that was launched then.
  std::atomic<uint64_t> resumed{0};
  Lock cover_lock;           // CoverStream()'s
  Lock waits_lock;           // short, and never held over a call of the driver
  uint64_t waits_ended = 0;  // those that ended while the gate was closed; under waits_lock
  std::atomic<uint32_t> destroying{0};  // contexts being destroyed: their work may still run
  Lock leaving;                         // one at a time; from ContextGoing() to ContextLeft()
};

// Records a mark for the cell's pending launches. Call with the thread's flag set and the cell's
// context current. `start`: an event recorded before the only pending launch. False: the driver
// refused, and they stay pending.
bool RecordMark(Cell* cell, CUevent start);

// The same where that can be done at once, for whoever may touch the cell. `own`: it is the calling
// thread's. `captures`: there are some. False: not now.
bool TryMark(Cell* cell, bool own, bool captures);

// Collects finished marks of every stream of the GPU. True when none is left but those that are
// behind a wait for the host.
bool Harvest(Gpu* gpu);
// Predicted unfinished GPU time.
Duration Backlog(const Gpu* gpu, Instant now);
// Whether the part of it that marks cover exceeds its bound: of the rest nobody would see the end.
bool OverBound(const Gpu* gpu);
// Waits while it does. Never for ever: work may be waiting for a launch.
void AwaitBacklog(Gpu* gpu);

// Closer only, gate closed and flags clear: sees to it that every launch is covered by a mark, and
// collects. True when everything launched has finished, but for what is behind a wait for the host:
// that wait does not end without the token.
bool Drained(Gpu* gpu);
// After that, gate closed: whether anything is in the driver's queues still, behind such a wait.
bool HasWork(const Gpu* gpu);

// Stream::beginning counts the caller: from here on other threads' launches into the stream wait
// for it to begin (AwaitBegun()), and those under way have been made. As far as that takes no more
// than a moment: who is held up in the driver may be waiting for the host.
void StopLaunches(const Slot* own, const Stream* stream);
// Whether nobody begins a wait in the stream now; if somebody does, sleeps a little, as often as
// `looks` is left, and then it is true. `looks`: kBeginLooks at first. The calling thread is in no
// launch when it is false.
inline constexpr int kBeginLooks = 2000;
bool AwaitBegun(Slot* slot, const Stream* stream, int& looks);

// What is in the cell's stream so far is covered by marks from here on, whichever thread launched
// it. The calling thread is in no launch.
void CoverStream(Slot* slot, Cell* cell);

// A stream is about to be destroyed: marks what was launched into it, and forgets it before the
// driver may give its handle out again. Should it stay, the next launch makes a record anew.
void StreamGoing(CUstream handle);
// Around the destruction (or release) of a context: holds off whoever would use its events, and
// whoever has its handle from the driver anew.
// `gone`: it really is.
Gpu* ContextGoing(CUcontext handle);
void ContextLeft(Gpu* gpu, CUcontext handle, bool gone);

// Marks what all threads have launched, before the first capture begins: until its end a default
// stream could not be marked, and the captured one not at all. g_captures counts it already, and
// g_capture_lock is held.
void MarkBeforeCapture();

}  // namespace baton::hook

#endif  // BATON_HOOK_METER_H_
