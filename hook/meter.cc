#include "hook/meter.h"

#include "hook/captures.h"
#include "hook/close_look.h"
#include "hook/driver.h"
#include "hook/gate.h"
#include "hook/gpu.h"
#include "hook/log.h"

namespace baton::hook {
namespace {

using std::chrono::milliseconds;

// Streams that a mark looks at in passing.
constexpr int kSweepLooks = 8;
// Where a stream does not keep the GPU busy, one in so many launches is measured by itself, or one
// in so much time. Two events for that and one each kMarkEveryNs are less than 3 % of launches,
// or of those that take more than 9 us, less than 0.5 % of their time.
constexpr uint32_t kSampleLaunches = 300;
constexpr uint64_t kSampleNs = 3'000'000;
// The GPU's clock and the monotonic one differ by less than one part in so many.
constexpr int64_t kClocksDiffer = 10'000;
// Whoever sees the end of a mark sees it no later than this, as a rule: it waits for it.
constexpr int64_t kEndSeenAfter = 50'000;
// A mark may answer as part of a capture for a moment in which another thread captures.
constexpr Duration kCaptured = milliseconds(100);
// A launch waits this long for the GPU to move before it is let pass.
constexpr Duration kStall = milliseconds(20);

int64_t Max(int64_t a, int64_t b) { return a > b ? a : b; }
int64_t Min(int64_t a, int64_t b) { return a < b ? a : b; }

void Learn(Estimate* e, uint64_t measured_ns) {
  const uint32_t samples = e->samples.load(std::memory_order_relaxed);
  const uint64_t old = e->ns.load(std::memory_order_relaxed);
  // The first samples count most; later ones move the estimate by a quarter.
  const uint64_t ns = samples == 0 ? measured_ns : old - old / 4 + measured_ns / 4;
  e->ns.store(ns, std::memory_order_relaxed);
  if (samples < 1000) e->samples.store(samples + 1, std::memory_order_relaxed);
}

// A kernel took `ns`. One that was long once is forgotten over some hundred others.
void Longest(Meter& meter, uint64_t ns) {
  const uint64_t longest = meter.longest_ns.load(std::memory_order_relaxed);
  meter.longest_ns.store(ns > longest ? ns : longest - (longest - ns) / 256,
                         std::memory_order_relaxed);
}

// The time between two finished events of `stream`; below zero: the driver does not tell.
double ElapsedNs(const Stream* stream, CUevent from, CUevent to) {
  // Whoever collects may have another context, or none, and this call wants one.
  HookCalls calls(stream->context->handle);
  float ms = 0;
  if (Drv<Fn::cuEventElapsedTime>(&ms, from, to) != CUDA_SUCCESS) return -1;
  return static_cast<double>(ms) * 1e6;
}

// When the stream's last finished mark ended, as well as it is known. Whoever looked last did so
// because it had ended, or was about to: nearer to the later bound.
int64_t EndOf(const Stream* stream) {
  return stream->ended_by - Min((stream->ended_by - stream->ended_from) / 2, kEndSeenAfter);
}

// A mark has finished: what it measured goes into the estimates. The streams that had work
// meanwhile had the GPU's time between them, `busy_streams` at the end: all together they are taken
// for as long as they kept it. Returns how long after the mark before it has finished; below zero:
// that is not known.
double Measure(Stream* stream, const Mark& mark, uint32_t busy_streams, Meter& meter) {
  uint64_t busy = mark.predicted_ns;
  const double part = 2.0 / (mark.busy + busy_streams);
  const bool follows = mark.dense && stream->previous != nullptr;
  const double after = follows ? ElapsedNs(stream, stream->previous, mark.event) : -1;
  if (mark.let_pass != meter.let_pass.load(std::memory_order_relaxed)) {
    // It may have waited for a launch.
  } else if (mark.start != nullptr) {
    if (const double ns = ElapsedNs(stream, mark.start, mark.event); ns >= 0) {
      busy = static_cast<uint64_t>(ns * part);
      // The first one finds caches without its data.
      if (mark.parts > 0 &&
          (mark.arrives_at == 0 || mark.part[0]->samples.load(std::memory_order_relaxed) == 0)) {
        Learn(mark.part[0], busy);
        Longest(meter, static_cast<uint64_t>(ns));
      }
    }
  } else if (after > 0) {
    busy = static_cast<uint64_t>(after * part);
    // All the work between two marks is corrected by the same factor, at most fourfold at once.
    if (mark.predicted_ns > 0) {
      double factor = static_cast<double>(busy) / static_cast<double>(mark.predicted_ns);
      factor = factor < 0.25 ? 0.25 : factor > 4 ? 4 : factor;
      for (int i = 0; i < mark.parts; ++i) {
        // Of what the estimate was then: the marks behind this one would correct the same error
        // again.
        const auto taken_for = static_cast<double>(mark.part_ns[i]);
        Learn(mark.part[i], static_cast<uint64_t>(taken_for * factor) + 1);
      }
    }
  }
  meter.busy_ns.fetch_add(busy, std::memory_order_relaxed);
  return after;
}

// It is known when the last mark ended, and so when the GPU began with this process's work.
void NoteArrival(Stream* stream) {
  const int64_t began = EndOf(stream) - stream->since_arrival;
  stream->since_arrival = -1;
  std::atomic<uint64_t>& known = stream->context->gpu->meter.switch_ns;
  const auto took = static_cast<uint64_t>(Max(began - stream->arrives_at, 1));
  const uint64_t old = known.load(std::memory_order_relaxed);
  known.store(old == 0 ? took : old - old / 8 + took / 8, std::memory_order_relaxed);
}

// The oldest mark, seen finished `seen` and not yet at Stream::unfinished_at, finished so long
// after the one before; below zero: that is not known. Narrows down when. `measures`: its events
// are the driver's still.
void NoteEnd(Stream* stream, const Mark& mark, bool measures, double after, int64_t seen) {
  int64_t from = stream->unfinished_at, by = seen;
  if (measures && mark.arrives_at != 0 && mark.start != nullptr) {
    stream->arrives_at = mark.arrives_at;
    stream->since_arrival = static_cast<int64_t>(ElapsedNs(stream, mark.start, mark.event));
  } else if (stream->since_arrival >= 0) {
    stream->since_arrival = after >= 0 ? stream->since_arrival + static_cast<int64_t>(after) : -1;
  }
  if (after >= 0) {
    // The two clocks run at slightly different speeds.
    const auto ns = static_cast<int64_t>(after);
    from = Max(from, stream->ended_from + ns - ns / kClocksDiffer);
    by = Min(by, stream->ended_by + ns + ns / kClocksDiffer);
    if (from > by) {
      from = stream->unfinished_at;
      by = seen;
    }
  }
  stream->ended_from = from;
  stream->ended_by = by;
  if (stream->since_arrival >= 0 && by - from <= kEndSeenAfter) NoteArrival(stream);
}

// Takes the oldest mark away. Stream::lock is held. `busy_streams`: measured among so many; 0: not
// at all.
void PopMark(Stream* stream, uint32_t busy_streams, int64_t seen) {
  Mark& mark = stream->marks[stream->first];
  Meter& meter = stream->context->gpu->meter;
  const bool measures = busy_streams > 0;
  const double after = measures ? Measure(stream, mark, busy_streams, meter) : -1;
  NoteEnd(stream, mark, measures, after, seen);
  if (mark.start != nullptr) ReturnEvent(stream->context, mark.start);
  if (stream->previous != nullptr) ReturnEvent(stream->context, stream->previous);
  stream->previous = mark.event;
  meter.outstanding_ns.fetch_sub(static_cast<int64_t>(mark.predicted_ns),
                                 std::memory_order_relaxed);
  stream->first = (stream->first + 1) % Stream::kMarks;
  if (stream->count.fetch_sub(1, std::memory_order_relaxed) == 1) {
    meter.busy_streams.fetch_sub(1, std::memory_order_relaxed);
  }
}

constexpr int kContained = 226, kExternalDevice = 911;  // older headers do not have them

// True of an error that means that a context and its work are over. Any other error, like those of
// a capture, says nothing about that.
bool IsOver(CUresult r) {
  switch (static_cast<int>(r)) {
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case kContained:
    case kExternalDevice:
    case CUDA_ERROR_UNKNOWN:
      return true;
    default:
      return r >= CUDA_ERROR_ILLEGAL_ADDRESS && r < 800;  // of a launch, and sticky
  }
}

uint32_t BusyStreams(const Meter& meter) {
  return meter.busy_streams.load(std::memory_order_relaxed);
}

// A mark of the stream has finished: corrects when all will have, by when that one did. The GPU may
// have begun late: it needs a while to come from another process.
void Foresee(const Stream* stream, Meter& meter) {
  int64_t left = 0;
  const uint32_t count = stream->count.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < count; ++i) {
    left += static_cast<int64_t>(stream->marks[(stream->first + i) % Stream::kMarks].predicted_ns);
  }
  const int64_t end = EndOf(stream) + left;
  // Whether the next mark has ended in the middle of the time in which it may end halves that.
  const int64_t apart = stream->ended_by - stream->ended_from;
  const Mark& next = stream->marks[stream->first];
  const bool tells = count > 1 && apart > kEndSeenAfter;
  meter.telling_at.store(
      tells ? stream->ended_by - apart / 2 + static_cast<int64_t>(next.predicted_ns) : 0,
      std::memory_order_relaxed);
  // Other streams' work may take longer.
  const bool others = BusyStreams(meter) > (count > 0 ? 1 : 0);
  if (others && end <= meter.finish_at.load(std::memory_order_relaxed)) return;
  meter.finish_at.store(end, std::memory_order_relaxed);
}

// Stream::lock is held. `busy_streams`: as many had work when the collecting began.
void CollectFinished(Stream* stream, uint32_t busy_streams) {
  bool any = false;
  while (stream->count.load(std::memory_order_relaxed) > 0) {
    const int64_t asked = Nanos(MonotonicNow());
    const CUresult r = Drv<Fn::cuEventQuery>(stream->marks[stream->first].event);
    // An event that the driver does not know any more went with its context; one that answers as
    // part of a capture for so long was recorded in one that the hook did not see, and never ends.
    const bool captured = r == CUDA_ERROR_CAPTURED_EVENT;
    if (!captured) {
      stream->captured_since = 0;
    } else if (stream->captured_since == 0) {
      stream->captured_since = asked;
    }
    const bool never = captured && asked - stream->captured_since > Nanos(kCaptured);
    if (r != CUDA_SUCCESS && r != CUDA_ERROR_INVALID_HANDLE && !IsOver(r) && !never) {
      stream->unfinished_at = asked;
      break;
    }
    PopMark(stream, r == CUDA_SUCCESS ? busy_streams : 0, Nanos(MonotonicNow()));
    any = true;
  }
  if (any) Foresee(stream, stream->context->gpu->meter);
}

// Collects what has finished in one other stream, each time in the next: one that nobody uses any
// more would count as busy until the next drain.
void Sweep(Meter& meter) {
  Stream* s = meter.sweep.load(std::memory_order_acquire);
  for (int looks = 0; looks < kSweepLooks; ++looks) {
    if (s == nullptr) s = meter.streams.load(std::memory_order_acquire);
    if (s == nullptr) return;
    Stream* const here = s;
    s = s->next;
    if (here->count.load(std::memory_order_relaxed) == 0 || !here->lock.TryAcquire()) continue;
    CollectFinished(here, BusyStreams(meter));
    here->lock.Release();
    break;
  }
  meter.sweep.store(s, std::memory_order_release);
}

// Adds the pending launches of `cell` to `mark`.
void AddPending(const Cell* cell, Mark& mark) {
  static std::atomic<uint32_t> serial{0};
  const uint32_t id = serial.fetch_add(1, std::memory_order_relaxed) + 1;
  const uint32_t pending = cell->pending.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < pending && mark.parts < Mark::kParts; ++i) {
    // Each kind once; another thread's mark may disturb that, which does no harm.
    Estimate* e = cell->log[i];
    if (e->seen.load(std::memory_order_relaxed) == id) continue;
    e->seen.store(id, std::memory_order_relaxed);
    mark.part_ns[mark.parts] = e->ns.load(std::memory_order_relaxed);
    mark.part[mark.parts++] = e;
  }
  mark.predicted_ns += cell->pending_ns.load(std::memory_order_relaxed);
}

void ForgetPending(Cell* cell) {
  cell->unsampled += cell->pending.load(std::memory_order_relaxed);
  cell->unsampled_ns += cell->pending_ns.load(std::memory_order_relaxed);
  cell->pending_ns.store(0, std::memory_order_relaxed);
  cell->pending.store(0, std::memory_order_relaxed);
}

// Appends `mark` (whose event was just recorded). Stream::lock is held and there is room.
void PushMark(Stream* stream, const Mark& mark, Instant now) {
  Meter& meter = stream->context->gpu->meter;
  const uint32_t count = stream->count.load(std::memory_order_relaxed);
  Mark& pushed = stream->marks[(stream->first + count) % Stream::kMarks];
  if (count == 0) meter.busy_streams.fetch_add(1, std::memory_order_relaxed);
  pushed = mark;
  pushed.let_pass = meter.let_pass.load(std::memory_order_relaxed);
  pushed.busy = BusyStreams(meter);
  if (mark.behind > stream->newest_behind.load()) stream->newest_behind.store(mark.behind);
  stream->count.store(count + 1, std::memory_order_relaxed);
  const auto ns = static_cast<int64_t>(mark.predicted_ns);
  meter.outstanding_ns.fetch_add(ns, std::memory_order_relaxed);
  const int64_t end = meter.finish_at.load(std::memory_order_relaxed);
  meter.finish_at.store(Max(end, Nanos(now)) + ns, std::memory_order_relaxed);
}

// Records a mark of `mark`'s kinds of work. Stream::lock is held and the context current. False:
// the driver refused, and what the mark stands for may still run.
bool RecordLocked(Stream* stream, Mark& mark) {
  const uint32_t count = stream->count.load(std::memory_order_relaxed);
  mark.waits = stream->waits.load();
  if (count > 0) {
    const Mark& last = stream->marks[(stream->first + count - 1) % Stream::kMarks];
    mark.dense =
        last.waits == mark.waits && Drv<Fn::cuEventQuery>(last.event) == CUDA_ERROR_NOT_READY;
  }
  CUresult r;
  if (count == Stream::kMarks) {
    // No room: the newest mark moves to here and stands for both.
    Mark& last = stream->marks[(stream->first + count - 1) % Stream::kMarks];
    r = Drv<Fn::cuEventRecord>(last.event, stream->handle);
    if (r == CUDA_SUCCESS) {
      last.predicted_ns += mark.predicted_ns;
      last.behind = last.behind < mark.behind ? last.behind : mark.behind;
      last.dense = false;
      last.parts = 0;
      stream->context->gpu->meter.outstanding_ns.fetch_add(static_cast<int64_t>(mark.predicted_ns),
                                                           std::memory_order_relaxed);
    }
    if (mark.start != nullptr) ReturnEvent(stream->context, mark.start);
  } else {
    r = RecordEvent(stream, &mark.event);
    if (r == CUDA_SUCCESS) {
      PushMark(stream, mark, MonotonicNow());
    } else if (mark.start != nullptr) {
      ReturnEvent(stream->context, mark.start);
    }
  }
  return r == CUDA_SUCCESS || IsOver(r);
}

// Records a mark for the pending launches of `cell` in `stream`; where the driver refuses they stay
// pending. Stream::lock is held and the context current.
bool MarkPending(Cell* cell, Stream* stream, Mark& mark) {
  if (cell->covered.load() == cell->launches.load(std::memory_order_relaxed)) {
    if (mark.start != nullptr) ReturnEvent(stream->context, mark.start);
    ForgetPending(cell);
    return true;
  }
  AddPending(cell, mark);
  mark.behind = stream == cell->stream ? cell->behind.load(std::memory_order_relaxed) : 0;
  if (!RecordLocked(stream, mark)) {
    // The launch that fills the log asks for a mark again.
    if (cell->pending.load(std::memory_order_relaxed) == Cell::kLogSize) {
      cell->pending.store(Cell::kLogSize - 1, std::memory_order_relaxed);
    }
    return false;
  }
  ForgetPending(cell);
  return true;
}

// Whether the cell's next launch is to be measured by itself after a plain mark.
bool IsSampleDue(const Cell* cell, const Mark& mark) {
  return !mark.dense && (cell->unsampled >= kSampleLaunches || cell->unsampled_ns >= kSampleNs);
}

// IsHeld() of a cell of the slot, which others may give another stream; `unknown` where that cannot
// be said now.
bool IsHeldOf(Slot* slot, const Cell* cell, bool unknown) {
  if (cell->behind.load(std::memory_order_relaxed) == 0) return false;
  if (!slot->cells_lock.TryAcquire()) return unknown;
  const bool held = IsHeld(cell);
  slot->cells_lock.Release();
  return held;
}

uint64_t PendingNs(const Gpu* gpu) {
  uint64_t ns = 0;
  for (Slot* s = FirstSlot(); s != nullptr; s = s->next) {
    for (Cell* c = s->cells.load(std::memory_order_acquire); c != nullptr; c = c->next) {
      if (c->gpu != gpu) continue;
      const uint64_t pending = c->pending_ns.load(std::memory_order_relaxed);
      if (pending != 0 && !IsHeldOf(s, c, false)) ns += pending;
    }
  }
  return ns;
}

}  // namespace

bool RecordMark(Cell* cell, CUevent start) {
  Stream* stream = cell->stream;
  Meter& meter = cell->gpu->meter;
  Sweep(meter);
  Guard guard(stream->lock);
  Mark mark;
  mark.start = start;
  mark.arrives_at = start != nullptr ? cell->arrives_at : 0;
  bool covered = true;
  if (stream->gone.load() || stream->context->gone.load()) {
    ForgetPending(cell);  // its end is marked already, or it ended with its context
  } else {
    CollectFinished(stream, BusyStreams(meter));
    covered = MarkPending(cell, stream, mark);
  }
  if (start != nullptr) cell->unsampled = cell->unsampled_ns = 0;
  cell->sample_next = IsSampleDue(cell, mark);
  return covered;
}

bool Harvest(Gpu* gpu) {
  Meter& meter = gpu->meter;
  const uint32_t busy = BusyStreams(meter);
  bool empty = true;
  int64_t head = 0, held = 0;
  for (Stream* s = meter.streams.load(std::memory_order_acquire); s != nullptr; s = s->next) {
    if (s->count.load(std::memory_order_relaxed) == 0) continue;
    if (!s->lock.TryAcquire()) {
      empty = false;
      continue;
    }
    CollectFinished(s, busy);
    const uint32_t over = s->waits_over.load();
    const uint32_t count = s->count.load(std::memory_order_relaxed);
    for (uint32_t i = 0; i < count; ++i) {
      const Mark& mark = s->marks[(s->first + i) % Stream::kMarks];
      const auto ns = static_cast<int64_t>(mark.predicted_ns);
      if (mark.behind > over) {
        held += ns;
        continue;
      }
      empty = false;
      if (i == 0) head += ns;
    }
    s->lock.Release();
  }
  meter.head_ns.store(head, std::memory_order_relaxed);
  meter.held_ns.store(held, std::memory_order_relaxed);
  // What was predicted longer than it took must not hold anybody up.
  const int64_t latest =
      Nanos(MonotonicNow()) + Max(meter.outstanding_ns.load(std::memory_order_relaxed), 0);
  if (meter.finish_at.load(std::memory_order_relaxed) > latest) {
    meter.finish_at.store(latest, std::memory_order_relaxed);
  }
  return empty;
}

namespace {

// Predicted unfinished GPU time of what marks cover, in nanoseconds.
int64_t MarkedBacklog(const Meter& meter, Instant now) {
  const int64_t outstanding = Max(meter.outstanding_ns.load(std::memory_order_relaxed), 0);
  const int64_t queued = Max(outstanding - meter.head_ns.load(std::memory_order_relaxed), 0);
  const int64_t left = meter.finish_at.load(std::memory_order_relaxed) - Nanos(now);
  return Max(queued, Min(left, outstanding));
}

}  // namespace

Duration Backlog(const Gpu* gpu, Instant now) {
  const int64_t held = gpu->meter.held_ns.load(std::memory_order_relaxed);
  return Duration(Max(MarkedBacklog(gpu->meter, now) - held, 0) +
                  static_cast<int64_t>(PendingNs(gpu)));
}

bool OverBound(const Gpu* gpu) {
  const int64_t bound = gpu->meter.bound_ns.load(std::memory_order_relaxed);
  return bound > 0 && MarkedBacklog(gpu->meter, MonotonicNow()) > bound;
}

void AwaitBacklog(Gpu* gpu) {
  Meter& meter = gpu->meter;
  const int64_t bound = meter.bound_ns.load(std::memory_order_relaxed);
  if (bound <= 0) return;
  Instant now = MonotonicNow();
  int64_t left = MarkedBacklog(meter, now);
  if (left <= bound) return;
  RelaxedCapture relaxed;
  Instant moved = now;
  bool pacing = false;
  int64_t outstanding = meter.outstanding_ns.load();
  // Late, beside busy threads, it would leave the GPU without work.
  if (t_slot != nullptr) t_slot->prompt.Begin();
  for (;;) {
    Harvest(gpu);
    now = MonotonicNow();
    left = MarkedBacklog(meter, now);
    if (left <= bound) break;
    // Who waits for the host wants no token.
    if (pacing != (left - meter.held_ns.load() > bound)) {
      pacing = !pacing;
      gpu->pacing.fetch_add(pacing ? 1u : ~0u);
    }
    const int64_t still = meter.outstanding_ns.load();
    if (still != outstanding) {
      outstanding = still;
      moved = now;
    } else if (now - moved > kStall + Duration(meter.head_ns.load())) {
      meter.let_pass.fetch_add(1);
      break;
    }
    const Duration sleep(Min(Max(left - bound, 20'000), 1'000'000));
    SleepFor(sleep);
    CloseLook::RanLate(now + sleep, MonotonicNow());
  }
  if (pacing) gpu->pacing.fetch_sub(1);
}

bool TryMark(Cell* cell, bool own, bool captures) {
  Stream* stream = cell->stream;
  Context* context = stream->context;
  if (stream->gone.load() || context->gone.load()) {
    ForgetPending(cell);  // its end is marked already, or it ended with its context
    return true;
  }
  // Nobody else can name a thread's default stream. The legacy one waits for it.
  if (!own && stream->owner != nullptr) stream = StreamOf(context, CU_STREAM_LEGACY, nullptr);
  if (stream == nullptr || !stream->lock.TryAcquire()) return false;
  bool covered = false;
  Meter& meter = context->gpu->meter;
  // From here on no context of this GPU begins to go: it would take this lock first.
  if (meter.destroying.load() == 0 && !stream->gone.load() && !context->gone.load()) {
    // In a capture an event would become part of it, or break it.
    if (!captures || (!IsDefault(stream->handle) && !IsCapturing(stream->handle))) {
      HookCalls calls(context->handle);
      CollectFinished(stream, BusyStreams(meter));
      Mark mark;
      covered = MarkPending(cell, stream, mark);
      cell->sample_next = stream == cell->stream && IsSampleDue(cell, mark);
    }
  }
  stream->lock.Release();
  return covered;
}

bool Drained(Gpu* gpu) {
  if (gpu->meter.destroying.load() > 0) return false;
  bool covered = true;
  const auto ended = [&] {
    Guard guard(gpu->meter.waits_lock);
    return gpu->meter.waits_ended;
  };
  const uint64_t ended_before = ended();
  const bool marks = g_capture_lock.TryAcquire();
  for (Slot* slot = FirstSlot(); slot != nullptr; slot = slot->next) {
    if (!slot->cells_lock.TryAcquire()) {
      covered = false;
      continue;
    }
    for (Cell* cell = slot->cells.load(); cell != nullptr; cell = cell->next) {
      if (cell->gpu != gpu || cell->pending.load(std::memory_order_relaxed) == 0) continue;
      // What waits for the host needs no mark; and where that wait keeps the driver's queue full,
      // the driver would take one only after it.
      if (IsHeld(cell)) continue;
      if (!marks || !TryMark(cell, false, g_captures.load() > 0)) covered = false;
    }
    slot->cells_lock.Release();
  }
  if (marks) g_capture_lock.Release();
  return Harvest(gpu) && covered && ended() == ended_before;
}

bool HasWork(const Gpu* gpu) {
  if (BusyStreams(gpu->meter) != 0) return true;
  for (Slot* slot = FirstSlot(); slot != nullptr; slot = slot->next) {
    for (Cell* c = slot->cells.load(std::memory_order_acquire); c != nullptr; c = c->next) {
      if (c->gpu != gpu || c->pending.load(std::memory_order_relaxed) == 0) continue;
      if (IsHeldOf(slot, c, true)) return true;
    }
  }
  return false;
}

void CoverStream(Slot* slot, Cell* cell) {
  Stream* stream = cell->stream;
  if (cell->pending.load(std::memory_order_relaxed) > 0 &&
      EnterGate(slot, *cell->gate, cell->flag)) {
    {
      HookCalls calls(stream->context->handle);
      RecordMark(cell, nullptr);
    }
    slot->in_launch.store(0, std::memory_order_release);
  }
  // Of other threads, and this one's while the gate is closed: a mark that is recorded now covers
  // the launches that were counted before. Whoever marks those cells next finds that out.
  Guard one_at_a_time(cell->gpu->meter.cover_lock);
  bool any = false;
  ForCells(stream, [&](Cell* c) {
    c->covering.store(c->launches.load(std::memory_order_acquire));
    any = any || c->pending.load(std::memory_order_acquire) > 0;
  });
  if (!any) return;
  {
    HookCalls calls(stream->context->handle);
    Guard guard(stream->lock);
    Mark mark;
    if (stream->gone.load() || stream->context->gone.load() || !RecordLocked(stream, mark)) return;
  }
  ForCells(stream, [](Cell* c) { c->covered.store(c->covering.load()); });
}

void StreamGoing(CUstream handle) {
  if (IsDefault(handle)) return;  // the driver will refuse
  bool any = false;
  for (int g = 0; g < GpuCount(); ++g) {
    Meter& meter = GpuAt(g)->meter;
    Stream* s;
    {
      Guard guard(meter.streams_lock);
      for (s = meter.streams.load(); s != nullptr; s = s->next) {
        if (s->handle == handle && !s->gone.load()) break;
      }
    }
    if (s == nullptr) continue;
    HookCalls calls(s->context->handle);
    Guard guard(s->lock);
    if (s->gone.load() || s->handle != handle) continue;
    if (g_captures.load() == 0 || !IsCapturing(handle)) {
      Mark mark;
      RecordLocked(s, mark);
    }
    s->gone.store(true);
    any = true;
  }
  if (any) NewStamp();
}

Gpu* ContextGoing(CUcontext handle) {
  Context* context = nullptr;
  for (int i = 0; Context* known = KnownContext(i); ++i) {
    if (known->handle == handle && !known->gone.load()) context = known;
  }
  if (context == nullptr) return nullptr;
  Gpu* gpu = context->gpu;
  Meter& meter = gpu->meter;
  meter.leaving.Acquire();
  if (context->gone.load() || context->handle != handle) {  // another thread was first
    meter.leaving.Release();
    return nullptr;
  }
  meter.destroying.fetch_add(1);
  context->going.store(true);
  NewStamp();
  Guard guard(meter.streams_lock);
  for (Stream* s = meter.streams.load(); s != nullptr; s = s->next) {
    // Without marks a stream that is gone has nothing to do with the context any more.
    if (s->context != context || (s->gone.load() && s->count.load() == 0)) continue;
    s->lock.Acquire();
    s->held = true;
  }
  return gpu;
}

void ContextLeft(Gpu* gpu, CUcontext handle, bool gone) {
  if (gpu == nullptr) return;
  Meter& meter = gpu->meter;
  {
    Guard guard(meter.streams_lock);
    for (Stream* s = meter.streams.load(); s != nullptr; s = s->next) {
      const bool held = s->held;
      if (gone && s->context->handle == handle && !s->context->gone.load()) {
        if (!held) s->lock.Acquire();  // it came meanwhile, or is to be used again
        s->gone.store(true);
        s->previous = nullptr;
        while (s->count.load() > 0) {
          s->marks[s->first].start = nullptr;
          s->marks[s->first].event = nullptr;
          PopMark(s, 0, Nanos(MonotonicNow()));
        }
        s->previous = nullptr;
        if (!held) s->lock.Release();
      }
      s->held = false;
      if (held) s->lock.Release();
    }
  }
  for (int i = 0; Context* known = KnownContext(i); ++i) {
    if (known->handle != handle) continue;
    if (gone) known->gone.store(true);
    known->going.store(false);
  }
  meter.destroying.fetch_sub(1);
  meter.leaving.Release();
}

}  // namespace baton::hook
