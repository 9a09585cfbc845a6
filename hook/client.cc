#include "hook/client.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/short_slice.h"
#include "hook/drain.h"
#include "hook/driver.h"
#include "hook/libc.h"
#include "hook/listener.h"
#include "hook/log.h"
#include "hook/memory.h"
#include "hook/meter.h"
#include "hook/mover.h"
#include "hook/observe.h"
#include "hook/questions.h"
#include "hook/settings.h"
#include "hook/sleep.h"
#include "hook/steps.h"
#include "hook/words.h"
#include "wire/codec.h"

// NOLINTBEGIN(bugprone-reserved-identifier): the C++ ABI's names
extern "C" {
int __cxa_atexit(void (*function)(void*), void* argument, void* library);
extern void* __dso_handle __attribute__((visibility("hidden")));
}
// NOLINTEND(bugprone-reserved-identifier)

namespace baton::hook {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using wire::Phase;

// An Attach without an answer is repeated after this, a refused one too.
constexpr Duration kAttachAgain = seconds(1);
constexpr Duration kBackoffMin = milliseconds(5);
constexpr Duration kBackoffMax = milliseconds(200);
constexpr Duration kBackoffRefused = seconds(5);  // from then on
// Who waits looks this often whether the process was refused.
constexpr Duration kParkedLook = milliseconds(500);
// So long the client thread has for what is in the socket before the listener looks there again.
constexpr Duration kOtherReads = microseconds(200);
constexpr Duration kOtherReadsMost = milliseconds(20);

enum class Link : uint32_t { kDown, kHello, kUp };

struct Process {
  std::atomic<uint32_t> state{0};  // 0 not started, 1 starting, 2 runs, 3 cannot
  std::atomic<int> managed{-1};    // -1 not known yet
  bool membarrier = false;
  Settings settings;  // before anything else; fixed
  uint64_t incarnation = 0;

  std::atomic<int> fd{-1};
  std::atomic<uint32_t> link{0};  // Link
  std::atomic<bool> said_away{false};

  std::atomic<bool> refused{false};  // waits for the backend end with an error
  Instant refused_since = kNever;    // the client thread's; kNever: it is not, as far as is known

  // From exit() on the client thread leaves the driver alone.
  Lock driver_lock;  // held by the client thread while it uses the driver
  std::atomic<bool> exiting{false};

  Lock gpus_lock;
  Gpu* gpus[kGpusMax] = {};
  std::atomic<int> gpu_count{0};
};
Process g;

Link LinkNow() { return static_cast<Link>(g.link.load(std::memory_order_acquire)); }

void StepAll(EventKind kind) {
  for (int i = 0; i < GpuCount(); ++i) Step(GpuAt(i), Event{.kind = kind});
}

void SayAway(const char* why) {
  if (g.said_away.exchange(true)) return;
  Say("the backend at %s is away (%s); %s and this process connects again by itself",
      g.settings.socket_path, why,
      g.settings.away == wire::AwayMode::kOpen ? "launches pass after a grace period"
                                               : "launches and questions about memory wait");
}

void Disconnect(const char* why) {
  const int fd = g.fd.exchange(-1);
  if (fd >= 0) close(fd);
  g.link.store(static_cast<uint32_t>(Link::kDown), std::memory_order_release);
  for (int i = 0; i < GpuCount(); ++i) {
    GpuAt(i)->attached.store(false);
    GpuAt(i)->attach_at = Instant{};
    // Whoever waits for an answer asks again.
    GpuAt(i)->memory.answer.store(3);
    FutexWakeAll(&GpuAt(i)->memory.answer);
  }
  SayAway(why);
  StepAll(EventKind::kDisconnected);
}

bool Connect() {
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  // Where others connect faster than they are accepted, it waits in line.
  const timeval patience = {0, 200'000};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  memcpy(address.sun_path, g.settings.socket_path, sizeof(address.sun_path));
  if (fd < 0 || connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    SayAway(strerror(errno));
    if (fd >= 0) close(fd);
    return false;
  }
  fcntl(fd, F_SETFL, O_NONBLOCK);
  g.fd.store(fd);  // before it is known whether anybody listens: who begins to looks at it after
  g.link.store(static_cast<uint32_t>(Link::kHello), std::memory_order_release);
  WakeListener();
  wire::Hello hello;
  hello.ticket = g.settings.ticket;
  hello.incarnation = g.incarnation;
  hello.away = g.settings.away;
  char command[128];
  hello.command = std::string_view(command, CommandLine(command, sizeof(command)));
  hello.hook_version = std::string_view(BATON_VERSION);
  hello.words = WordsFile() >= 0;
  ForgetClients();
  char frame[wire::kTenantFrameMax];
  SendWithFile(fd, frame, wire::Encode(hello, frame, sizeof(frame)), WordsFile());
  return true;
}

void SendAttach(Gpu* gpu) {
  gpu->attach_at = MonotonicNow() + kAttachAgain;
  wire::Attach attach;
  attach.gpu = gpu->index;
  attach.uuid = gpu->uuid;
  attach.memory_total = gpu->memory_total;
  Send(attach);
}

// Attaches what waits for it. Returns when to look again.
Instant AttachWanted(Instant now) {
  Instant next = kNever;
  for (int i = 0; LinkNow() == Link::kUp && i < GpuCount(); ++i) {
    Gpu* gpu = GpuAt(i);
    if (!gpu->wanted.load() || gpu->attached.load()) continue;
    if (now >= gpu->attach_at) SendAttach(gpu);
    if (gpu->attach_at < next) next = gpu->attach_at;
  }
  return next;
}

void OnAttached(Gpu* gpu, const wire::Attached& attached) {
  Event event;
  event.kind = EventKind::kAttached;
  event.attached = attached;
  gpu->memory.cap.store(attached.memory_cap);
  if (gpu->movable != nullptr) gpu->movable->gated.store(attached.gated);
  gpu->memory.cap_known.store(1);
  FutexWakeAll(&gpu->memory.cap_known);
  if (g.said_away.exchange(false)) Say("the backend at %s is back", g.settings.socket_path);
  Step(gpu, event);
  gpu->attached.store(true);
  if (gpu->memory.used.load() > 0) TellMemory(gpu, gpu->memory.used.load());
  // A question asked while nobody answered is asked again.
  uint32_t open = 0;
  if (gpu->memory.answer.compare_exchange_strong(open, 3)) FutexWakeAll(&gpu->memory.answer);
}

// The backend has refused the ticket again, or for the first time.
void OnTicketRefused() {
  const Instant now = MonotonicNow();
  if (g.refused_since == kNever) g.refused_since = now;
  if (g.settings.away == wire::AwayMode::kOpen || g.refused.load()) return;
  if (now - g.refused_since < g.settings.ticket_wait) return;
  Say("this process is of no pod, so its launches and allocations now fail with "
      "CUDA_ERROR_NOT_PERMITTED");
  g.refused.store(true);  // who waits looks every now and then
}

// `file`: came with the frame, or -1; a Token's is closed here. False: the connection is of no more
// use.
bool OnFrame(const char* data, size_t size, int file) {
  wire::Frame frame;
  if (frame.Parse(data, size) != wire::DecodeStatus::kOk) {
    Disconnect("it speaks another version, or is no Baton backend");
    return false;
  }
  switch (frame.type()) {
    case wire::Welcome::kType: {
      wire::Welcome m;
      if (!frame.Read(m)) break;
      g.link.store(static_cast<uint32_t>(Link::kUp), std::memory_order_release);
      g.refused_since = kNever;
      g.refused.store(false);
      const auto pod = m.pod.view();
      BATON_SAY_MORE("attached to pod %.*s", static_cast<int>(pod.size()), pod.data());
      AttachWanted(MonotonicNow());
      return true;
    }
    case wire::Attached::kType: {
      wire::Attached m;
      if (!frame.Read(m) || m.gpu >= GpuCount()) break;
      OnAttached(GpuAt(m.gpu), m);
      return true;
    }
    case wire::Token::kType: {
      wire::Token token;
      if (!frame.Read(token) || token.gpu >= GpuCount()) break;
      TakeToken(token, file);
      return true;
    }
    case wire::MemoryReply::kType: {
      wire::MemoryReply m;
      if (!frame.Read(m) || m.gpu >= GpuCount()) break;
      OnMemoryReply(GpuAt(m.gpu), m);
      return true;
    }
    case wire::MakeRoom::kType: {
      wire::MakeRoom m;
      if (!frame.Read(m) || m.gpu >= GpuCount()) break;
      MakeRoom(GpuAt(m.gpu), m.keep);
      return true;
    }
    case wire::Sync::kType:
      for (int i = 0; i < GpuCount(); ++i) {
        if (GpuAt(i)->attached.load()) SendAttach(GpuAt(i));
      }
      StepAll(EventKind::kSync);
      return true;
    case wire::Error::kType: {
      wire::Error m;
      if (!frame.Read(m)) break;
      Gpu* refused = nullptr;
      const auto text = m.text.view();
      if (m.kind == wire::ErrorKind::kUnavailable) {
        if (!g.said_away.exchange(true)) {
          Say("%.*s", static_cast<int>(text.size()), text.data());
        }
        StepAll(EventKind::kAway);
        return true;
      }
      static std::atomic<bool> said{false};
      if (!said.exchange(true) || g_verbose.load()) {
        Say("the backend refuses this process: %.*s", static_cast<int>(text.size()), text.data());
      }
      if (m.kind == wire::ErrorKind::kUnknownGpu) {
        // Attaches are answered in order: it means the first without an answer. The others are not
        // to suffer, so that one is asked for again later.
        for (int i = 0; i < GpuCount(); ++i) {
          if (!GpuAt(i)->wanted.load() || GpuAt(i)->attached.load()) continue;
          if (refused == nullptr) refused = GpuAt(i);
        }
      }
      Disconnect("it refused this process");
      if (m.kind == wire::ErrorKind::kUnknownPod || m.kind == wire::ErrorKind::kDenied) {
        OnTicketRefused();
      }
      if (refused != nullptr) {
        refused->attach_at = MonotonicNow() + kAttachAgain;
        uint32_t unknown = 0;
        if (refused->memory.cap_known.compare_exchange_strong(unknown, 2)) {
          FutexWakeAll(&refused->memory.cap_known);
        }
      }
      return false;
    }
    default:
      return true;  // a newer peer may say more
  }
  Disconnect("it sent a message that makes no sense");
  return false;
}

// Everything that has arrived. False: the connection ended.
bool Receive() {
  Guard guard(g_reading);
  char frame[wire::kTenantFrameMax];
  for (;;) {
    const int fd = g.fd.load();
    if (fd < 0) return false;
    int file = -1;
    const ssize_t n = ReceiveWithFile(fd, frame, sizeof(frame), file);
    if (n > 0) {
      if (!OnFrame(frame, static_cast<size_t>(n), file)) return false;
    } else if (n < 0 && errno == EINTR) {
      continue;
    } else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      return true;
    } else {
      Disconnect(n == 0 ? "it closed the connection" : strerror(errno));
      return false;
    }
  }
}

// Whoever is next may run before the backend hears of it.
void Finished(Gpu* gpu) {
  StepLocked(gpu, Event{.kind = EventKind::kFinished}, MonotonicNow(), Says::kLater);
}

void* Run(void*) {
  prctl(PR_SET_NAME, "baton", 0, 0, 0);
  prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
  UseShortSlice();
  if (Slot* slot = MySlot()) slot->in_launch.store(Slot::kHooksOwn);
  // Other threads' captures do not concern what this one does.
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  Drv<Fn::cuThreadExchangeStreamCaptureMode>(&mode);

  Duration backoff = kBackoffMin;
  Instant next_attempt{};
  const auto put_off = [&](Instant now) {
    // Jittered, so that a thousand processes do not come back as one.
    const int64_t half = Nanos(backoff) / 2;
    next_attempt =
        now + Duration(half + static_cast<int64_t>(Random64() % static_cast<uint64_t>(half)));
    backoff = backoff * 2 < kBackoffMax ? backoff * 2 : kBackoffMax;
  };
  for (;;) {
    Instant until = kNever;
    Instant now = MonotonicNow();
    if (g.fd.load() < 0) {
      if (now >= next_attempt && Connect()) {
        next_attempt = kNever;
      } else if (now >= next_attempt || next_attempt == kNever) {
        put_off(now);
      }
      if (g.fd.load() < 0) until = next_attempt;
    }
    const Instant attach = AttachWanted(now);
    if (attach < until) until = attach;
    for (int i = 0; i < GpuCount(); ++i) {
      Gpu* gpu = GpuAt(i);
      {
        Guard guard(gpu->lock);
        now = MonotonicNow();
        if (now >= gpu->wake) StepLocked(gpu, Event{}, now);
      }
      LookAtWord(gpu, false);
      if (gpu->awaited.word.load(std::memory_order_relaxed) != nullptr && now + kWordLook < until) {
        until = now + kWordLook;
      }
      Instant again = kNever;
      {
        Guard guard(g.driver_lock);
        if (!g.exiting.load()) again = WatchDrain(gpu, Finished);
      }
      if (again < until) until = again;
      Guard guard(gpu->lock);
      SendOwed(gpu);
      if (gpu->wake < until) until = gpu->wake;
    }
    SleepUntil(until, g.fd.load());
    if (g.fd.load() >= 0) {
      if (Receive() && LinkNow() == Link::kUp) backoff = kBackoffMin;
      if (g.fd.load() < 0) {
        put_off(MonotonicNow());
        if (g.refused.load()) next_attempt = MonotonicNow() + kBackoffRefused;
      }
    }
  }
  return nullptr;
}

// In the child after fork: nothing of the parent's is left but its copy of the socket.
void InChild() {
  const int fd = g.fd.exchange(-1);
  if (fd >= 0) close(fd);
  ForgetSleep();
  g.link.store(0);
  g.said_away.store(false);
  g.refused.store(false);
  g.refused_since = kNever;
  g.state.store(0);
  g.gpu_count.store(0);
  g.gpus_lock.Reset();
  g.driver_lock.Reset();
  ForgetListening();
  ForgetWords();
  ForgetSlots();
  ForgetStreams();
  ForgetCaptures();
  ForgetMemory();
  ForgetMover();
}

// Calls `act` with each GPU, locked; not with one whose lock the client thread hangs in the driver
// with.
template <class Act>
void WithGpus(Act act) {
  for (int i = 0; i < GpuCount(); ++i) {
    Gpu* gpu = GpuAt(i);
    for (int looks = 0; looks < 20; ++looks) {
      if (gpu->lock.TryAcquire()) {
        act(gpu);
        gpu->lock.Release();
        break;
      }
      SleepFor(microseconds(500));
    }
  }
}

// Whether this process holds a GPU, as the backend sees it.
bool Holds() {
  bool holds = false;
  WithGpus([&holds](const Gpu* gpu) {
    const Phase phase = gpu->machine.phase();
    holds = holds || phase == Phase::kHolding || phase == Phase::kDraining;
  });
  return holds;
}

// The driver's own exit handlers come after this one, which was registered later. They may take
// long, and without the driver no drain ends: what is held is returned first, if that takes no
// time.
void AtExit(void*) {
  if (Holds()) {
    WithGpus([](Gpu* gpu) { StepLocked(gpu, Event{.kind = EventKind::kExit}, MonotonicNow()); });
    Kick();
    for (int i = 0; i < 100 && Holds(); ++i) SleepFor(microseconds(500));
    WithGpus(SendOwed);
  }
  g.exiting.store(true);
  StopMoving();
  // The client thread is not in the driver for long; if it is stuck there, the exit is not.
  for (int i = 0; i < 100; ++i) {
    if (g.driver_lock.TryAcquire()) {
      g.driver_lock.Release();
      return;
    }
    SleepFor(microseconds(200));
  }
}

}  // namespace

bool Managed() {
  int managed = g.managed.load(std::memory_order_acquire);
  if (managed < 0) {
    managed = ReadSettings(g.settings) ? 1 : 0;
    g.managed.store(managed, std::memory_order_release);
  }
  return managed == 1;
}

bool HasMembarrier() { return g.membarrier; }

bool StartOnce() {
  uint32_t state = g.state.load(std::memory_order_acquire);
  if (__builtin_expect(state == 2, 1)) return true;
  if (!Managed() || state == 3) return false;
  if (state == 0 && g.state.compare_exchange_strong(state, 1)) {
    static std::atomic<bool> at_fork{false};
    if (!at_fork.exchange(true)) {
      AfterFork(InChild);
      __cxa_atexit(AtExit, nullptr, &__dso_handle);
    }
    g.incarnation = Random64();
    g.membarrier = RegisterMembarrier();
    NewStamp();
    PrepareSleep();
    PrepareListening();
    MakeWords();
    state = StartThread(Run, nullptr) ? 2 : 3;
    if (state == 3) Say("no thread could be started for the hook; this program runs without Baton");
    g.state.store(state, std::memory_order_release);
    FutexWakeAll(&g.state);
  }
  while ((state = g.state.load(std::memory_order_acquire)) == 1) {
    FutexWait(&g.state, 1, milliseconds(100));
  }
  return state == 2;
}

int GpuCount() { return g.gpu_count.load(std::memory_order_acquire); }
Gpu* GpuAt(int index) { return g.gpus[index]; }

Gpu* GpuOf(CUdevice device) {
  for (int i = 0; i < GpuCount(); ++i) {
    if (g.gpus[i]->device == device) return g.gpus[i];
  }
  char uuid[64];
  const size_t uuid_size = DeviceUuid(device, uuid);
  if (uuid_size == 0) return nullptr;
  size_t total = 0;
  if (auto* f = RealAs<CUresult(size_t*, CUdevice)>(Fn::cuDeviceTotalMem_v2)) f(&total, device);

  Guard guard(g.gpus_lock);
  const int count = g.gpu_count.load();
  for (int i = 0; i < count; ++i) {
    if (g.gpus[i]->device == device) return g.gpus[i];
  }
  void* p = nullptr;
  if (count == kGpusMax || posix_memalign(&p, 64, sizeof(Gpu)) != 0) return nullptr;
  auto* gpu = new (p) Gpu();
  gpu->index = static_cast<uint8_t>(count);
  gpu->device = device;
  gpu->memory_total = total;
  gpu->uuid = std::string_view(uuid, uuid_size);
  ClientOptions options;
  options.gpu = gpu->index;
  options.away = g.settings.away;
  gpu->machine = ClientMachine(options, MonotonicNow());
  MakeMovable(gpu);
  g.gpus[count] = gpu;
  g.gpu_count.store(count + 1, std::memory_order_release);
  return gpu;
}

void Want(Gpu* gpu) {
  if (gpu->wanted.load(std::memory_order_relaxed)) return;
  int64_t never = 0;
  gpu->wanted_at.compare_exchange_strong(never, Nanos(MonotonicNow()));
  if (!gpu->wanted.exchange(true)) Kick();
}

bool Refused() { return g.refused.load(std::memory_order_relaxed); }

namespace {

// Waits for the gate. False: as Park().
bool AwaitGate(Gpu* gpu, SignalsHeld& held) {
  // It is to run as soon as the token comes, beside busy threads too.
  if (t_slot != nullptr) t_slot->prompt.Begin();
  const auto sleep = [gpu](Duration timeout) {
    gpu->asleep.fetch_add(1, std::memory_order_seq_cst);
    FutexWait(&gpu->gate.open, 0, timeout);
    gpu->asleep.fetch_sub(1);
  };
  bool refused = false;
  Duration patience = kOtherReads;
  bool listens = BeginListening();
  if (!listens) held.Release();
  while (gpu->gate.open.load(std::memory_order_seq_cst) == 0 && !(refused = Refused())) {
    if (gpu->awaited.word.load(std::memory_order_relaxed) != nullptr &&
        !gpu->awaited.watched.exchange(true)) {
      // What comes by the socket meanwhile is somebody else's business.
      if (listens) EndListening();
      held.Release();
      gpu->asleep.fetch_add(1, std::memory_order_seq_cst);
      SleepOn(gpu->awaited, gpu->gate.open, kParkedLook);
      gpu->asleep.fetch_sub(1);
      gpu->awaited.watched.store(false);
      held.Hold();
      LookAtWord(gpu, true);
      listens = BeginListening();
      if (!listens) held.Release();
      continue;
    }
    if (!listens) {
      sleep(kParkedLook);
      continue;
    }
    wire::Token token;
    int file = -1;
    const Heard heard = Listen(g.fd, gpu->gate, kParkedLook, held, token, file);
    if (heard == Heard::kToken) TakeToken(token, file);
    if (heard != Heard::kOther) {
      patience = kOtherReads;
      continue;
    }
    Kick();
    sleep(patience);
    if (patience < kOtherReadsMost) patience *= 2;  // the client thread may be held up itself
  }
  if (listens) EndListening();
  if (refused && t_slot != nullptr) t_slot->prompt.End();
  return !refused;  // it may have closed again by now: then the caller comes back
}

}  // namespace

bool Park(Gpu* gpu) {
  gpu->parked.fetch_add(1);
  SignalsHeld held;
  Step(gpu, Event{.kind = EventKind::kParked});
  const bool open = AwaitGate(gpu, held);
  gpu->parked.fetch_sub(1);
  return open;
}

Parked ParkOrPass(Gpu* gpu, void (*pass)(void*), void* argument) {
  gpu->parked.fetch_add(1);
  SignalsHeld held;
  Parked parked = Parked::kPassed;
  if (StepOrPass(gpu, Event{.kind = EventKind::kParked}, pass, argument)) {
    parked = AwaitGate(gpu, held) ? Parked::kOpen : Parked::kRefused;
  }
  gpu->parked.fetch_sub(1);
  return parked;
}

void Launched(Slot* slot, Gpu* gpu) {
  if (gpu->after_launch.load(std::memory_order_relaxed)) {
    SignalsHeld held;
    Step(gpu, Event{});
  }
  slot->prompt.End();
}

void MemoryMoved(Gpu* gpu, bool tell) {
  Event event;
  if (tell) event.kind = EventKind::kMemory;
  {
    SignalsHeld held;
    Step(gpu, event);
  }
  Kick();
}

void SendFrame(const char* frame, size_t size) {
  const int fd = g.fd.load(std::memory_order_acquire);
  if (size == 0 || fd < 0) return;
  while (syscall(SYS_sendto, fd, frame, size, MSG_DONTWAIT | MSG_NOSIGNAL, nullptr, 0) < 0 &&
         errno == EINTR) {
  }
}

wire::AwayMode WhileAway() { return g.settings.away; }

}  // namespace baton::hook
