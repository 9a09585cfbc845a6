#include "hook/captures.h"

#include <stdlib.h>

#include "hook/driver.h"
#include "hook/journal.h"
#include "hook/streams.h"

namespace baton::hook {
namespace {

struct Capture {
  CUstream stream;
  const void* thread;  // of a per-thread default stream, whose handle is the same in all
  CUcontext context;
  uint64_t moment;  // when it began
  Capture* next;
};

Lock g_lock;
Capture* g_first = nullptr;
uint64_t g_moment = 0;

const void* ThreadOf(CUstream stream) {
  return stream == CU_STREAM_PER_THREAD ? static_cast<const void*>(&t_slot) : nullptr;
}

// Takes out those that match, or the first.
template <class Match>
void Remove(bool all, Match match) {
  bool any = false;
  {
    Guard guard(g_lock);
    for (Capture** at = &g_first; *at != nullptr && (all || !any);) {
      Capture* c = *at;
      if (!match(*c)) {
        at = &c->next;
        continue;
      }
      *at = c->next;
      free(c);
      g_captures.fetch_sub(1);
      any = true;
    }
  }
  if (any) NewStamp();
}

}  // namespace

std::atomic<uint32_t> g_captures{0};
Lock g_capture_lock;

RelaxedCapture::RelaxedCapture() { Drv<Fn::cuThreadExchangeStreamCaptureMode>(&mode_); }

RelaxedCapture::~RelaxedCapture() {
  if (mode_ != CU_STREAM_CAPTURE_MODE_RELAXED) Drv<Fn::cuThreadExchangeStreamCaptureMode>(&mode_);
}

bool IsCapturing(CUstream stream) {
  if (stream == CU_STREAM_LEGACY) return false;  // it cannot be captured
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult r = Drv<Fn::cuStreamIsCapturing>(stream, &status);
  return r == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

bool CaptureBegins(CUstream stream, bool* first) {
  auto* c = static_cast<Capture*>(malloc(sizeof(Capture)));
  if (c == nullptr) return false;
  CUcontext context = nullptr;
  ContextOfStream(stream, &context);
  {
    Guard guard(g_lock);
    *c = {stream, ThreadOf(stream), context, ++g_moment, g_first};
    g_first = c;
    *first = g_captures.fetch_add(1) == 0;
  }
  NewStamp();
  return true;
}

void CaptureEnded(CUstream stream) {
  const void* thread = ThreadOf(stream);
  Remove(false, [&](const Capture& c) { return c.stream == stream && c.thread == thread; });
}

uint64_t CaptureMoment() {
  Guard guard(g_lock);
  return g_moment;
}

void CapturesGone(CUstream stream, uint64_t moment) {
  Remove(true, [&](const Capture& c) { return c.stream == stream && c.moment <= moment; });
}

void CapturesGone(CUcontext context, uint64_t moment) {
  Remove(true, [&](const Capture& c) { return c.context == context && c.moment <= moment; });
}

void ForgetCaptures() {
  g_capture_lock.Reset();
  g_captures.store(0);
  g_lock.Reset();
  g_first = nullptr;
}

}  // namespace baton::hook
