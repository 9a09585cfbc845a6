#include "world/engine.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <queue>

#include "backend/gang_scheduler.h"
#include "base/random.h"
#include "hook/client_machine.h"
#include "wire/codec.h"
#include "world/gpu.h"

namespace baton::world {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using wire::Phase;

constexpr Duration kShareWindow = seconds(10);
constexpr Duration kShareStep = milliseconds(10);
// Everybody has arrived by then.
constexpr Duration kSettled = seconds(2);

// A stream of random numbers of its own for everything that is drawn, so that a world without one
// of its pods or faults is otherwise the same.
Random Stream(uint64_t seed, uint64_t pod, uint64_t process, uint64_t purpose) {
  return Random(seed * 0x9e3779b97f4a7c15u + pod * 0xbf58476d1ce4e5b9u +
                process * 0x94d049bb133111ebu + purpose);
}

// One process on one GPU: its launching thread, its hook, its connection.
struct Process {
  Process(uint32_t index, size_t pod, uint32_t gpu, uint32_t ordinal, Random work, Random link)
      : index(index), pod(pod), gpu(gpu), ordinal(ordinal), work(work), link(link) {}

  const uint32_t index;
  const size_t pod;
  const uint32_t gpu;
  const uint32_t ordinal;  // among the pod's on this GPU; one that is started again keeps it
  Random work;             // the same for those of a gang
  Random link;
  hook::ClientMachine machine;
  bool alive = true;
  bool stopped = false;
  bool connected = false;
  uint32_t connection = 0;  // counts connections; frames of an older one are lost
  // The launching thread.
  Duration left{-1};  // GPU time it still wants to launch in this burst; below 0: it pauses
  Instant burst_at{};
  bool parked = false;
  bool throttled = false;  // parked for its backlog
  bool open = false;
  bool watching = false;
  bool noticing = false;     // an event that tells of finished work is on its way
  bool hang = false;         // its next kernel never ends
  Instant asked = kNever;    // since when it waits for the token
  Instant due_ask = kNever;  // that wait, while it is owed time,
  Instant due_since{};       // since when it is,
  Duration due_behind{0};    // and the most that the others of its GPU were owed
  uint64_t launches = 0;
  uint32_t collectives = 0;
  Duration busy{0};
  Instant wake = kNever;         // when the machine wants to be stepped next,
  Instant wake_queued = kNever;  // and the event that sees to it
  // What the daemon's side of the connection measured.
  uint64_t sent_epoch = 0;
  Instant sent_at{};
  Duration settled{0};              // of its State: held_ns when it last held nothing
  bool restored = false;            // held when the daemon ended, and has not been heard since
  std::vector<hook::Event> missed;  // while it is stopped
};

// A pod's account on one GPU.
struct Account {
  bool here = false;
  Duration used{0};  // GPU time, by the GPU's own record
  // As the daemon's book keeps them, over its restarts.
  Duration held{0};
  Duration hold_base{0};  // `held` before its last token
  Duration unseen{0};     // used by processes that died before the daemon was back: never charged
  uint64_t grants = 0;
  Histogram waits;
  std::vector<Duration> series;
  bool was_active = false;
  Duration held_settled{0};          // of `held`, at kSettled
  double share = 0;                  // its part of what the GPU gives out, while everybody asks
  std::vector<double> share_errors;  // the last kShareWindow / kShareStep, a ring
};

struct PodState {
  policy::ShareSpec spec;
  bool present = false;
  bool resized = false;
  std::vector<Account> accounts;  // by GPU
  uint32_t started = 0;           // processes, over time
};

// One GPU with its token scheduler.
struct Site {
  std::unique_ptr<backend::TokenScheduler> scheduler;
  WorldGpu gpu;
  Instant tick_queued = kNever;
  uint64_t stored_epoch = 0;
  Instant granted_at{};  // when the first of `stored` was sent its token
  std::vector<backend::StoreHolder> stored;
  Duration held{0};  // charged to all pods
  Duration held_settled{0};
  Duration longest_kernel{0};
  bool steady = false;  // all pods of it always have work, and no limit and no priority
  uint64_t share_samples = 0;
};

class World {
 public:
  World(const Plan& plan, const RunOptions& options) : plan_(plan), options_(options) {
    // Where processes hang, somebody must see to it in the time that the world has.
    if (options.kill_hung && !plan.faults.empty()) {
      options_.scheduler.drain_kill = true;
      options_.scheduler.drain_timeout = seconds(2);
    }
    fair_ = (options_.bounds || options_.measure) && plan.faults.empty();
    for (const PodPlan& pod : plan.pods) {
      gangs_here_ |= pod.collective != 0 && pod.gpus.size() > 1;
      fair_ &= pod.arrives == Duration(0) && pod.leaves >= plan.length;
    }
  }

  Verdict Run() {
    fair_ &= !gangs_here_;
    sites_.resize(plan_.gpus);
    kernel_ends_.assign(plan_.gpus, kNever);
    pods_.resize(plan_.pods.size());
    gangs_.emplace(options_.scheduler);
    for (Site& site : sites_) {
      site.scheduler = std::make_unique<backend::TokenScheduler>(options_.scheduler, 0);
    }
    for (size_t i = 0; i < pods_.size(); ++i) {
      const PodPlan& plan = plan_.pods[i];
      if (plan.id >= index_of_.size()) index_of_.resize(plan.id + 1);
      index_of_[plan.id] = i;
      pods_[i].spec = plan.spec;
      pods_[i].accounts.resize(plan_.gpus);
      for (const uint32_t g : plan.gpus) {
        pods_[i].accounts[g].here = true;
        sites_[g].longest_kernel =
            std::max(sites_[g].longest_kernel, plan.kernel * (100 + plan.jitter) / 100);
      }
      if (plan.arrives == Duration(0)) {
        Arrive(i);
      } else {
        At(Instant(plan.arrives), What::kArrive, i);
      }
      if (plan.leaves < plan_.length) At(Instant(plan.leaves), What::kLeave, i);
    }
    if (!plan_.faults.empty()) At(Instant(plan_.faults[0].at), What::kFault, 0);
    if (options_.bounds) At(Instant(plan_.calm_from), What::kLiveness);
    if (fair_) PrepareShares();
    if (options_.series_step > Duration(0)) At(Instant(options_.series_step), What::kSeries);

    const Instant end(plan_.length);
    while (verdict_.ok) {
      // Kernels are most of what happens, and each GPU runs one: they need no queue.
      const auto kernel = std::min_element(kernel_ends_.begin(), kernel_ends_.end());
      const Instant next = events_.empty() ? kNever : events_.top().at;
      if (std::min(next, *kernel) > end) break;
      ++verdict_.events;
      if (*kernel <= next) {
        now_ = *kernel;
        KernelEnded(static_cast<uint32_t>(kernel - kernel_ends_.begin()));
      } else {
        const Event event = events_.top();
        events_.pop();
        now_ = event.at;
        Handle(event);
      }
    }
    now_ = Instant(plan_.length);
    Summarize();
    return std::move(verdict_);
  }

 private:
  // ------------------------------------------------------------------------------------ events
  enum class What : uint8_t {
    kArrive,      // a pod
    kLeave,       // a pod
    kBegin,       // a process
    kConnect,     // a process
    kAttached,    // a process; serial: its connection
    kBurst,       // a process
    kOpened,      // a process whose gate has opened
    kFinished,    // a process that watches for the end of its work
    kWake,        // a process' machine
    kToDaemon,    // a frame
    kToClient,    // a frame
    kTick,        // a GPU's scheduler
    kGone,        // a process: the daemon learns that it is
    kKill,        // a process
    kContinue,    // a process
    kDaemonBack,  //
    kLinkBack,    // serial: whether the daemon knows of the cut
    kFault,       // by its number
    kLiveness,    //
    kShares,      // a GPU
    kSeries,      //
  };

  struct Event {
    Instant at;
    uint64_t order;  // a sequence number, and What in the low byte
    uint32_t subject;
    uint32_t serial;
    What what() const { return static_cast<What>(order & 0xff); }
    bool operator<(const Event& other) const {
      return at != other.at ? at > other.at : order > other.order;
    }
  };

  // A frame on its way.
  struct Frame {
    uint32_t process = 0;
    uint32_t connection = 0;
    uint32_t size = 0;
    wire::Token token;  // to a client
    char bytes[512];    // to the daemon
  };

  void At(Instant at, What what, size_t subject = 0, uint32_t serial = 0) {
    events_.push({std::max(at, now_), (++sequence_ << 8) | static_cast<uint64_t>(what),
                  static_cast<uint32_t>(subject), serial});
  }
  void After(Duration delay, What what, size_t subject = 0, uint32_t serial = 0) {
    At(now_ + delay, what, subject, serial);
  }

  void Handle(const Event& event) {
    switch (event.what()) {
      case What::kArrive:
        return Arrive(event.subject);
      case What::kLeave:
        return Leave(event.subject);
      case What::kBegin:
        Connect(ProcessAt(event));
        return BeginBurst(ProcessAt(event));
      case What::kConnect:
        return Connect(ProcessAt(event));
      case What::kAttached:
        return Attached(ProcessAt(event), event.serial);
      case What::kBurst:
        return BeginBurst(ProcessAt(event));
      case What::kOpened:
        return Opened(ProcessAt(event));
      case What::kFinished:
        return Finished(ProcessAt(event));
      case What::kWake:
        return Wake(ProcessAt(event), event.at);
      case What::kToDaemon:
        return AtDaemon(event.subject);
      case What::kToClient:
        return AtClient(event.subject);
      case What::kTick:
        return Tick(event.subject, event.at);
      case What::kGone:
        if (!daemon_down_) SayGone(ProcessAt(event));  // else when it is back
        return;
      case What::kKill:
        return Kill(ProcessAt(event));
      case What::kContinue:
        return Continue(ProcessAt(event));
      case What::kDaemonBack:
        return DaemonBack();
      case What::kLinkBack:
        link_cut_ = false;
        if (event.serial != 0) StepAll(backend::LinkCut{false});
        return;
      case What::kFault:
        return InjectFault(event.subject);
      case What::kLiveness:
        return CheckLiveness();
      case What::kShares:
        return CheckShares(event.subject);
      case What::kSeries:
        return ExtendSeries();
    }
  }
  Process& ProcessAt(const Event& event) { return *processes_[event.subject]; }

  void Violation(const char* check, const std::string& what) {
    if (!verdict_.ok) return;
    verdict_.ok = false;
    verdict_.check = check;
    verdict_.at = now_ - Instant{};
    char text[64];
    std::snprintf(text, sizeof text, "at %.6f s: ", static_cast<double>(Nanos(now_)) / 1e9);
    verdict_.violation = text + what;
  }
  void Trace(uint64_t a, uint64_t b) {
    for (const uint64_t word : {a, b, static_cast<uint64_t>(Nanos(now_))}) {
      hash_ = (hash_ ^ word) * 0x100000001b3u;
      hash_ ^= hash_ >> 29;
    }
  }
  std::string Name(size_t pod) const { return "pod " + std::to_string(plan_.pods[pod].id); }
  PodId IdOf(size_t pod) const { return PodId{plan_.pods[pod].id}; }
  size_t IndexOf(PodId pod) const { return index_of_[pod.value]; }
  static ClientId ClientOf(const Process& p) { return ClientId{p.index + 1}; }
  Process& ProcessOf(ClientId client) { return *processes_[client.value - 1]; }

  // -------------------------------------------------------------------------------------- pods
  void Arrive(size_t pod) {
    pods_[pod].present = true;
    for (const uint32_t g : plan_.pods[pod].gpus) SetPod(pod, g);
    FormGang(pod);
    for (const uint32_t g : plan_.pods[pod].gpus) {
      for (uint32_t n = 0; n < plan_.pods[pod].processes; ++n) StartProcess(pod, g, n, Duration(0));
    }
  }

  bool IsGang(size_t pod) const {
    return plan_.pods[pod].collective != 0 && plan_.pods[pod].gpus.size() > 1;
  }
  void SetPod(size_t pod, uint32_t g) {
    Step(g, backend::PodSet{IdOf(pod), pods_[pod].spec, IsGang(pod) && pods_[pod].present});
  }
  void FormGang(size_t pod) {
    if (!IsGang(pod)) return;
    std::vector<uint32_t> order = plan_.pods[pod].gpus;
    std::sort(order.begin(), order.end());
    std::vector<backend::TokenScheduler*> gpus;
    for (const uint32_t g : order) gpus.push_back(sites_[g].scheduler.get());
    gangs_->Add(IdOf(pod), std::move(gpus));
  }

  void Leave(size_t pod) {
    pods_[pod].present = false;
    for (size_t i = 0; i < processes_.size(); ++i) {
      if (processes_[i]->pod == pod) End(*processes_[i]);
    }
    if (!daemon_down_) gangs_->Remove(IdOf(pod));
    for (const uint32_t g : plan_.pods[pod].gpus) Step(g, backend::PodRemoved{IdOf(pod)});
  }

  void StartProcess(size_t pod, uint32_t gpu, uint32_t ordinal, Duration delay) {
    const auto index = static_cast<uint32_t>(processes_.size());
    const uint32_t id = plan_.pods[pod].id;
    const uint32_t run = pods_[pod].started++;
    const bool gang = IsGang(pod);
    processes_.push_back(std::make_unique<Process>(index, pod, gpu, ordinal,
                                                   Stream(plan_.seed, id, gang ? 0 : run, 1),
                                                   Stream(plan_.seed, id, run, 2)));
    Process& p = *processes_.back();
    p.machine = hook::ClientMachine(hook::ClientOptions{}, now_ + delay);
    // Those of a gang have found each other before they begin.
    const int64_t late = (gang ? p.work : p.link).Between(0, 200'000'000);
    After(delay + Duration(late), What::kBegin, index);
  }

  // ---------------------------------------------------------------------------------- launching
  void BeginBurst(Process& p) {
    if (!p.alive || !pods_[p.pod].present) return;
    const PodPlan& plan = plan_.pods[p.pod];
    p.left = plan.burst == Duration(0) ? Duration::max() : plan.burst;
    p.burst_at = now_;
    Launch(p);
  }

  // About its mean, as the plan says. Without a division, for every kernel is drawn so.
  static Duration Vary(Duration mean, uint32_t jitter, Random& random) {
    const int64_t spread = Nanos(mean) * jitter / 100;
    const auto draw = static_cast<int64_t>(random.Next() >> 40);
    // Above some minutes in steps of 8 ms, for the product to fit.
    const bool fits = spread < (int64_t{1} << 38);
    return mean - Duration(spread) +
           Duration(fits ? (2 * spread * draw) >> 24 : (spread >> 23) * draw);
  }

  // The launching thread runs until it is parked, has launched its burst, or is far enough ahead.
  void Launch(Process& p) {
    if (!p.alive || p.stopped || p.throttled) return;
    const PodPlan& plan = plan_.pods[p.pod];
    const WorldGpu& gpu = sites_[p.gpu].gpu;
    while (p.left > Duration(0)) {
      if (!p.open) {
        if (!p.parked) {
          p.parked = true;
          p.asked = now_;
          StepMachine(p, {.kind = hook::EventKind::kParked});
        }
        return;
      }
      p.parked = false;
      const Duration bound = p.machine.backlog_bound();
      if (bound > Duration(0) && gpu.BacklogOf(p.index, now_) > bound) {
        p.throttled = true;
        return;
      }
      Duration length = std::max<Duration>(microseconds(1), Vary(plan.kernel, plan.jitter, p.work));
      if (p.left != Duration::max()) {
        length = std::min(length, p.left);
        p.left -= length;
      }
      if (p.hang && now_ < Instant(plan_.calm_from)) {
        p.hang = false;
        length = Duration::max();
      }
      LaunchKernel(p, length);
    }
    p.parked = false;
    if (p.left == Duration(0) && gpu.PendingOf(p.index) == 0) EndBurst(p);
  }

  void LaunchKernel(Process& p, Duration length) {
    Site& site = sites_[p.gpu];
    const PodId pod = IdOf(p.pod);
    const PodId occupant = site.gpu.occupant();
    if (occupant && occupant != pod) {
      Violation("exclusive", Name(p.pod) + " launched while a kernel of pod " +
                                 std::to_string(occupant.value) + " was pending");
    }
    ++p.launches;
    const uint32_t every = plan_.pods[p.pod].collective;
    const bool collective = every != 0 && p.launches % every == 0;
    site.gpu.Launch(p.index, pod, length, collective ? ++p.collectives : 0, now_);
    if (!occupant) AwaitKernel(p.gpu);
    if (p.machine.single()) StepMachine(p, {.kind = hook::EventKind::kTimer});
  }

  // A kernel has come to the head of the GPU's queue, or there is none.
  void AwaitKernel(uint32_t g) {
    kernel_ends_[g] = sites_[g].gpu.end();
    if (const WorldGpu::Kernel* kernel = sites_[g].gpu.gathering()) Gather(*kernel);
  }

  // Collective kernels run once all of the pod's have come to the head of their queues.
  void Gather(const WorldGpu::Kernel& kernel) {
    const std::vector<uint32_t>& gpus = plan_.pods[processes_[kernel.process]->pod].gpus;
    for (const uint32_t g : gpus) {
      const WorldGpu::Kernel* peer = sites_[g].gpu.gathering();
      if (peer == nullptr || peer->pod != kernel.pod || peer->collective != kernel.collective) {
        return;
      }
    }
    for (const uint32_t g : gpus) {
      sites_[g].gpu.Begin(now_);
      kernel_ends_[g] = sites_[g].gpu.end();
    }
  }

  void KernelEnded(uint32_t g) {
    Site& site = sites_[g];
    const Duration ran = now_ - site.gpu.started();
    Process& p = *processes_[site.gpu.Finish(now_).process];
    p.busy += ran;
    pods_[p.pod].accounts[g].used += ran;
    CheckLimit(p.pod, g);
    AwaitKernel(g);
    if (p.alive && !p.stopped) {
      if (p.throttled && site.gpu.BacklogOf(p.index, now_) <= p.machine.backlog_bound() / 2) {
        p.throttled = false;
        Launch(p);
      }
      if (site.gpu.PendingOf(p.index) == 0) {
        NoticeFinished(p);
        if (p.left == Duration(0)) EndBurst(p);
      }
    } else if (!p.alive && site.gpu.PendingOf(p.index) == 0) {
      ReportGone(p);
    }
  }

  void EndBurst(Process& p) {
    const PodPlan& plan = plan_.pods[p.pod];
    p.left = Duration(-1);
    const Duration pause =
        std::max<Duration>(microseconds(1), Vary(plan.pause, plan.jitter, p.work));
    At((plan.periodic ? p.burst_at : now_) + pause, What::kBurst, p.index);
  }

  // ------------------------------------------------------------------------------------ the hook
  hook::Observation Observe(const Process& p) const {
    hook::Observation seen;
    const PodPlan& plan = plan_.pods[p.pod];
    seen.launches = p.launches;
    seen.backlog = sites_[p.gpu].gpu.BacklogOf(p.index, now_);
    seen.longest = plan.kernel * (100 + plan.jitter) / 100;
    seen.parked = p.parked ? 1 : 0;
    seen.busy_ns = static_cast<uint64_t>(Nanos(p.busy));
    return seen;
  }

  void StepMachine(Process& p, const hook::Event& event) {
    if (!p.alive || p.stopped) return;
    const hook::Effects effects = p.machine.Step(now_, event, Observe(p));
    if (effects.send) ToDaemon(p, effects.state);
    const bool opened = effects.open && !p.open;
    p.open = effects.open;
    p.watching = effects.watch;
    p.wake = effects.wake == kNever ? kNever : std::max(effects.wake, now_ + microseconds(1));
    QueueWake(p);
    if (opened) After(microseconds(p.link.Between(3, 40)), What::kOpened, p.index);
    if (p.watching) NoticeFinished(p);
  }

  // One event at a time sees to a machine's timer, however often it is set.
  void QueueWake(Process& p) {
    if (p.wake >= p.wake_queued) return;
    p.wake_queued = p.wake;
    At(p.wake, What::kWake, p.index);
  }
  void Wake(Process& p, Instant at) {
    if (at != p.wake_queued) return;
    p.wake_queued = kNever;
    if (!p.alive || p.stopped) return;
    if (p.wake > now_) return QueueWake(p);
    StepMachine(p, {.kind = hook::EventKind::kTimer});
  }

  void Opened(Process& p) {
    if (!p.open || !p.parked) return;
    const Duration wait = now_ - p.asked;
    verdict_.worst_wait = std::max(verdict_.worst_wait, wait);
    pods_[p.pod].accounts[p.gpu].waits.Add(wait);
    Launch(p);
  }

  // The hook polls its events: it sees the end of its work a little later.
  void NoticeFinished(Process& p) {
    if (!p.watching || p.noticing || sites_[p.gpu].gpu.PendingOf(p.index) != 0) return;
    p.noticing = true;
    After(microseconds(p.link.Between(5, 50)), What::kFinished, p.index);
  }
  void Finished(Process& p) {
    p.noticing = false;
    if (p.alive && !p.stopped && p.watching && sites_[p.gpu].gpu.PendingOf(p.index) == 0) {
      StepMachine(p, {.kind = hook::EventKind::kFinished});
    }
  }

  // --------------------------------------------------------------------------------- connections
  void Connect(Process& p) {
    if (!p.alive || p.connected || !pods_[p.pod].present) return;
    // Who is stopped connects when it goes on: after what the last connection still had.
    if (daemon_down_ || p.stopped) {
      After(milliseconds(p.link.Between(5, 200)), What::kConnect, p.index);
      return;
    }
    p.connected = true;
    ++p.connection;
    Step(p.gpu, backend::ClientAttached{ClientOf(p), IdOf(p.pod)});
    After(microseconds(p.link.Between(20, 300)), What::kAttached, p.index, p.connection);
  }

  void Attached(Process& p, uint32_t connection) {
    if (!p.connected || p.connection != connection) return;
    hook::Event event{.kind = hook::EventKind::kAttached};
    event.attached.backlog_ns = static_cast<uint64_t>(Nanos(options_.scheduler.backlog));
    event.attached.heartbeat_ns = 100'000'000;
    event.attached.idle_ns = static_cast<uint64_t>(Nanos(options_.idle));
    event.attached.gang = IsGang(p.pod);
    Deliver(p, event);
  }

  // To the process; one that is stopped finds it when it goes on.
  void Deliver(Process& p, const hook::Event& event) {
    if (!p.alive) return;
    if (p.stopped) {
      p.missed.push_back(event);
    } else {
      StepMachine(p, event);
    }
  }

  uint32_t NewFrame(const Process& p) {
    if (free_frames_.empty()) {
      frames_.emplace_back();
      free_frames_.push_back(static_cast<uint32_t>(frames_.size() - 1));
    }
    const uint32_t slot = free_frames_.back();
    free_frames_.pop_back();
    frames_[slot].process = p.index;
    frames_[slot].connection = p.connection;
    return slot;
  }

  // The frame arrives after a while; while frames are bad perhaps never, or twice.
  void Send(Process& p, What what, uint32_t slot) {
    Duration delay = microseconds(p.link.Between(8, 120));
    if (now_ < frames_bad_until_) {
      switch (p.link.Between(0, 199)) {
        case 0:
          free_frames_.push_back(slot);
          return;
        case 1: {
          const uint32_t twin = NewFrame(p);
          frames_[twin] = frames_[slot];
          After(microseconds(p.link.Between(10, 5'000)), what, twin);
          break;
        }
        case 2:
          delay = milliseconds(p.link.Between(1, 300));
          break;
        default:
          break;
      }
    }
    After(delay, what, slot);
  }

  void ToDaemon(Process& p, const wire::State& state) {
    if (!p.connected || link_cut_) return;
    const uint32_t slot = NewFrame(p);
    Frame& frame = frames_[slot];
    frame.size = static_cast<uint32_t>(wire::Encode(state, frame.bytes, sizeof frame.bytes));
    Send(p, What::kToDaemon, slot);
  }

  void AtDaemon(uint32_t slot) {
    free_frames_.push_back(slot);
    const Frame& frame = frames_[slot];
    Process& p = *processes_[frame.process];
    if (!p.connected || p.connection != frame.connection || daemon_down_) return;
    wire::Frame parsed;
    wire::State state;
    if (parsed.Parse(frame.bytes, frame.size) != wire::DecodeStatus::kOk || !parsed.Read(state)) {
      return Violation("codec", "a State does not read back");
    }
    const bool drained = state.phase == Phase::kIdle || state.phase == Phase::kWaiting;
    const bool measured = drained && state.epoch == p.sent_epoch && p.sent_epoch != 0;
    const Duration held = DurationFromNanos(state.held_ns);
    Step(p.gpu, backend::ClientReport{ClientOf(p), state.seq, state.phase, state.epoch, state.rev,
                                      measured ? now_ - p.sent_at : Duration(0),
                                      std::max(held - p.settled, Duration(0)),
                                      DurationFromNanos(state.backlog_ns)});
    if (!sites_[p.gpu].scheduler->Holds(ClientOf(p), state.epoch)) {
      p.settled = std::max(p.settled, held);
    }
    p.restored = false;
  }

  void ToClient(Process& p, const backend::SendToken& send) {
    if (!p.connected) return;
    if (send.rev == 1 && send.quota > Duration(0)) {
      p.sent_epoch = send.epoch;
      p.sent_at = now_;
    }
    if (link_cut_) return;
    const uint32_t slot = NewFrame(p);
    wire::Token& token = frames_[slot].token;
    token = wire::Token{};
    token.epoch = send.epoch;
    token.rev = send.rev;
    token.quota_ns = static_cast<uint64_t>(Nanos(send.quota));
    token.contended = send.contended;
    Send(p, What::kToClient, slot);
  }

  void AtClient(uint32_t slot) {
    free_frames_.push_back(slot);
    const Frame& frame = frames_[slot];
    Process& p = *processes_[frame.process];
    if (!p.connected || p.connection != frame.connection) return;
    hook::Event event{.kind = hook::EventKind::kToken};
    event.token = frame.token;
    Deliver(p, event);
  }

  // ---------------------------------------------------------------------------------- the daemon
  void Step(uint32_t g, const backend::Event& event) {
    if (daemon_down_) return;
    StepOne(g, event);
    if (!gangs_->empty()) TendGangs();
  }
  void StepAll(const backend::Event& event) {
    for (uint32_t g = 0; g < sites_.size(); ++g) Step(g, event);
  }

  void TendGangs() {
    gangs_->Tend(now_, [this](const backend::TokenScheduler& gpu, const backend::GangStep& step) {
      for (uint32_t g = 0; g < sites_.size(); ++g) {
        if (sites_[g].scheduler.get() == &gpu) StepOne(g, step);
      }
    });
    // While a link is cut it may be due all the time.
    const Instant wakeup = gangs_->wakeup();
    QueueTick(wakeup <= now_ ? now_ + milliseconds(1) : wakeup, gangs_queued_, kGangs);
  }

  void StepOne(uint32_t g, const backend::Event& event) {
    Site& site = sites_[g];
    effects_.clear();
    site.scheduler->Step(now_, event, effects_);
    for (const backend::Effect& effect : effects_) {
      if (const auto* store = std::get_if<backend::StoreHolder>(&effect)) {
        Account& account = pods_[IndexOf(store->pod)].accounts[g];
        if (site.stored.empty()) {
          site.granted_at = store->joined_at;
          account.hold_base = account.held;
          ++account.grants;
          ++verdict_.grants;
        }
        site.stored_epoch = store->epoch;
        Store(site, *store);
        Trace(store->client.value, store->epoch);
      } else if (const auto* charged = std::get_if<backend::Charged>(&effect)) {
        pods_[IndexOf(charged->pod)].accounts[g].held += charged->held;
        site.held += charged->held;
      } else if (std::holds_alternative<backend::ClearHolders>(effect)) {
        ReportHold(g);
        site.stored.clear();
        CheckBook(g);
      } else if (const auto* send = std::get_if<backend::SendToken>(&effect)) {
        // Sent after this step, as an event loop does; the order between frames stays.
        ToClient(ProcessOf(send->client), *send);
      } else if (const auto* kill = std::get_if<backend::KillClient>(&effect)) {
        After(Duration(0), What::kKill, ProcessOf(kill->client).index);
      }
    }
    if (fair_) CheckLags(g);
    QueueTick(site.scheduler->wakeup(), site.tick_queued, g);
  }

  // One event at a time sees to a scheduler's timer, or to that of the gangs'.
  static constexpr uint32_t kGangs = ~0u;
  void QueueTick(Instant wakeup, Instant& queued, uint32_t whose) {
    if (wakeup >= queued) return;
    queued = std::max(wakeup, now_ + Duration(1));
    At(queued, What::kTick, whose);
  }
  void Tick(uint32_t whose, Instant at) {
    Instant& queued = whose == kGangs ? gangs_queued_ : sites_[whose].tick_queued;
    if (at != queued) return;
    queued = kNever;
    if (daemon_down_) return;
    const Instant wakeup = whose == kGangs ? gangs_->wakeup() : sites_[whose].scheduler->wakeup();
    if (wakeup > now_) return QueueTick(wakeup, queued, whose);
    if (whose == kGangs) return TendGangs();
    Step(whose, backend::Tick{});
  }

  static void Store(Site& site, const backend::StoreHolder& holder) {
    for (backend::StoreHolder& stored : site.stored) {
      if (stored.client != holder.client) continue;
      stored = holder;
      return;
    }
    site.stored.push_back(holder);
  }

  void ReportHold(uint32_t g) {
    const Site& site = sites_[g];
    if (!options_.on_hold || site.stored.empty()) return;
    options_.on_hold({g, static_cast<uint32_t>(site.stored.front().pod.value),
                      site.granted_at - Instant{}, now_ - Instant{}});
  }

  void RestartDaemon(Duration away) {
    daemon_down_ = true;
    // What is charged while a hold goes on may be older than this by a token.
    outages_ += away + options_.scheduler.quota_max;
    for (auto& p : processes_) {
      if (!p->connected) continue;
      p->connected = false;
      p->sent_epoch = 0;
      Deliver(*p, {.kind = hook::EventKind::kDisconnected});
      After(milliseconds(p->link.Between(5, 200)), What::kConnect, p->index);
    }
    After(away, What::kDaemonBack);
  }

  void DaemonBack() {
    daemon_down_ = false;
    ++restarts_;
    gangs_.emplace(options_.scheduler);
    gangs_queued_ = kNever;
    for (Site& site : sites_) {
      site.scheduler =
          std::make_unique<backend::TokenScheduler>(options_.scheduler, site.stored_epoch);
      site.tick_queued = kNever;
    }
    for (uint32_t g = 0; g < sites_.size(); ++g) {
      Site& site = sites_[g];
      const std::vector<backend::StoreHolder> holders = site.stored;
      for (size_t i = 0; i < pods_.size(); ++i) {
        const bool held = std::any_of(holders.begin(), holders.end(),
                                      [&](const auto& h) { return h.pod == IdOf(i); });
        if (!pods_[i].accounts[g].here || !(pods_[i].present || held)) continue;
        SetPod(i, g);
      }
      for (const backend::StoreHolder& holder : holders) {
        const Account& account = pods_[IndexOf(holder.pod)].accounts[g];
        Step(g, backend::HolderRestored{holder.client, holder.pod, holder.epoch, site.granted_at,
                                        holder.joined_at, account.held - account.hold_base});
      }
      for (const backend::StoreHolder& holder : holders) {
        Process& p = ProcessOf(holder.client);
        p.restored = true;
        if (!pods_[p.pod].present) Step(g, backend::PodRemoved{holder.pod});
        if (!p.alive && site.gpu.PendingOf(p.index) == 0) SayGone(p);
      }
    }
    for (size_t i = 0; i < pods_.size(); ++i) {
      if (pods_[i].present) FormGang(i);
    }
    if (!gangs_->empty()) TendGangs();
  }

  // ---------------------------------------------------------------------------------- the faults
  void InjectFault(size_t number) {
    if (number + 1 < plan_.faults.size()) {
      At(Instant(plan_.faults[number + 1].at), What::kFault, number + 1);
    }
    const FaultPlan& fault = plan_.faults[number];
    switch (fault.kind) {
      case kFrames:
        frames_bad_until_ = std::max(frames_bad_until_, now_ + fault.length);
        break;
      case kRestarts:
        if (!daemon_down_) RestartDaemon(fault.length);
        break;
      case kCuts:
        if (!link_cut_) {
          link_cut_ = true;
          // The daemon may notice, or find out only when it is back.
          if (fault.noticed) StepAll(backend::LinkCut{true});
          After(fault.length, What::kLinkBack, 0, fault.noticed ? 1 : 0);
        }
        break;
      case kResizes:
        Resize(index_of_[fault.pod], fault.spec);
        break;
      default:
        if (Process* p = Target(fault)) HitProcess(*p, fault);
        break;
    }
  }

  Process* Target(const FaultPlan& fault) {
    std::vector<Process*> living;
    for (auto& p : processes_) {
      if (p->alive && p->pod == index_of_[fault.pod]) living.push_back(p.get());
    }
    return living.empty() ? nullptr : living[fault.process % living.size()];
  }

  void HitProcess(Process& p, const FaultPlan& fault) {
    if (fault.kind == kKills) {
      Kill(p);
    } else if (fault.kind == kHangs) {
      p.hang = true;
    } else if (!p.stopped) {
      p.stopped = true;
      After(fault.length, What::kContinue, p.index);
    }
  }

  // Those of a gang end together: one that misses a peer waits for ever, and who started it knows.
  void Kill(Process& p) {
    if (!p.alive) return;
    const size_t pod = p.pod;
    const Duration delay = milliseconds(p.link.Between(10, 2'000));
    std::vector<Process*> ending{&p};
    if (IsGang(pod)) {
      for (const auto& other : processes_) {
        if (other->pod == pod && other->alive && other.get() != &p) ending.push_back(other.get());
      }
    }
    for (Process* other : ending) End(*other);
    if (!pods_[pod].present) return;
    for (const Process* other : ending) StartProcess(pod, other->gpu, other->ordinal, delay);
  }

  void End(Process& p) {
    if (!p.alive) return;
    p.alive = false;
    p.connected = false;
    p.open = false;
    Site& site = sites_[p.gpu];
    const Instant end = site.gpu.end();
    site.gpu.Kill(p.index, now_);
    if (site.gpu.end() != end) AwaitKernel(p.gpu);
    Step(p.gpu, backend::ClientDisconnected{ClientOf(p)});
    if (site.gpu.PendingOf(p.index) == 0) ReportGone(p);
  }

  // The daemon learns it from the pidfd and NVML, a moment later.
  void ReportGone(Process& p) {
    After(microseconds(p.link.Between(50, 1'500)), What::kGone, p.index);
  }

  void SayGone(Process& p) {
    // What it used while nobody watched, nobody can tell.
    Account& account = pods_[p.pod].accounts[p.gpu];
    if (p.restored) {
      account.unseen += std::max(account.used - account.held - account.unseen, Duration(0));
      account.unseen += outages_;  // taken back, where it was charged meanwhile
    }
    Step(p.gpu, backend::ClientGone{ClientOf(p)});
  }

  void Continue(Process& p) {
    if (!p.alive) return;
    p.stopped = false;
    const WorldGpu& gpu = sites_[p.gpu].gpu;
    const std::vector<hook::Event> events = std::move(p.missed);
    p.missed.clear();
    StepMachine(p, {.kind = hook::EventKind::kTimer});
    for (const hook::Event& event : events) StepMachine(p, event);
    if (p.throttled && gpu.BacklogOf(p.index, now_) <= p.machine.backlog_bound() / 2) {
      p.throttled = false;
    }
    NoticeFinished(p);
    if (p.left == Duration(0) && gpu.PendingOf(p.index) == 0) {
      EndBurst(p);
    } else {
      Launch(p);
    }
  }

  void Resize(size_t pod, const policy::ShareSpec& spec) {
    pods_[pod].spec = spec;
    pods_[pod].resized = true;
    if (!pods_[pod].present) return;
    for (const uint32_t g : plan_.pods[pod].gpus) SetPod(pod, g);
  }

  // ---------------------------------------------------------------------------------- the checks
  // L: what a token can last, with the longest kernel that may run beyond it.
  Duration Longest(uint32_t g) const {
    return options_.scheduler.quota_max + sites_[g].longest_kernel + options_.scheduler.backlog +
           milliseconds(2);
  }

  bool Steady(size_t pod) const {
    return plan_.pods[pod].burst == Duration(0) && pods_[pod].spec.limit == policy::kWhole;
  }

  // A steady saturating pod without a limit is never more than 2 L behind its due (L where no hold
  // is longer than predicted, which bursts that begin anew are) and what high-priority pods have
  // taken early; and never further ahead than that, its own priority's burst, and what those have
  // saved up who pause or are at their limit. Who returns from sleep is owed no more than its
  // credit.
  void CheckLags(uint32_t g) {
    const std::vector<backend::PodStatus> pods = sites_[g].scheduler->Status(now_);
    const double l = static_cast<double>(Nanos(Longest(g)));
    const double burst = static_cast<double>(Nanos(options_.scheduler.fairness.priority_burst)) / l;
    double saved = 0;
    double early = 0;
    for (const backend::PodStatus& s : pods) {
      const size_t pod = IndexOf(s.pod);
      const double lag = static_cast<double>(Nanos(s.lag)) / l;
      if (s.spec.priority == policy::Priority::kHigh) early += std::max(0.0, -lag);
      if (!Steady(pod)) saved += std::max(0.0, lag);
      Account& account = pods_[pod].accounts[g];
      if (options_.bounds && s.fluid != 0 && !account.was_active) CheckCredit(pod, g, s);
      account.was_active = s.fluid != 0;
    }
    if (now_ < Instant(kSettled)) return;
    for (const backend::PodStatus& s : pods) {
      if (!Steady(IndexOf(s.pod))) continue;
      const double owed = static_cast<double>(Nanos(s.lag)) / l;
      const double own = s.spec.priority == policy::Priority::kHigh ? burst : 0;
      const double lag = std::max(0.0, owed < 0 ? -owed - saved - own : owed - early);
      if (options_.bounds && lag > options_.lag_bound) {
        Violation("lag", Name(IndexOf(s.pod)) + " is " + std::to_string(lag) + " L from its due");
      }
      verdict_.worst_lag = std::max(verdict_.worst_lag, lag);
      verdict_.lag_low = std::min(verdict_.lag_low, owed);
      verdict_.lag_high = std::max(verdict_.lag_high, owed);
    }
  }

  // Its request times sleep_credit, and its part of the hold in progress, which is charged as a
  // whole.
  void CheckCredit(size_t pod, uint32_t g, const backend::PodStatus& s) {
    const double credit = s.spec.request / 1e6 *
                              static_cast<double>(Nanos(options_.scheduler.fairness.sleep_credit)) +
                          s.fluid / 1e6 * static_cast<double>(Nanos(Longest(g)));
    if (static_cast<double>(Nanos(s.lag)) > credit + 1e3) {
      Violation("credit", Name(pod) + " returns from sleep with a credit of " +
                              FormatSeconds(s.lag) + ", more than its request allows");
    }
  }

  void PrepareShares() {
    for (uint32_t g = 0; g < sites_.size(); ++g) {
      std::vector<policy::Entitlement> all;
      bool steady = true;
      for (size_t i = 0; i < pods_.size(); ++i) {
        if (!pods_[i].accounts[g].here) continue;
        steady &= Steady(i) && pods_[i].spec.priority == policy::Priority::kLow;
        const policy::ShareSpec& spec = pods_[i].spec;
        all.push_back({spec.request, spec.limit, spec.slack_weight});
      }
      if (!steady || all.empty()) continue;
      policy::FluidShares(all);
      double sum = 0;
      for (const policy::Entitlement& e : all) sum += e.fluid;
      auto next = all.begin();
      for (PodState& pod : pods_) {
        if (!pod.accounts[g].here) continue;
        pod.accounts[g].share = (next++)->fluid / sum;
        pod.accounts[g].share_errors.resize(static_cast<size_t>(kShareWindow / kShareStep));
      }
      At(Instant(kSettled), What::kShares, g);
    }
  }

  // What each pod was charged in the last kShareWindow against its part of what all were, by the
  // shares that follow from the plan. Where nobody pauses, lags stay within half the bound, and a
  // share error is the difference of two.
  void CheckShares(uint32_t g) {
    After(kShareStep, What::kShares, g);
    Site& site = sites_[g];
    const auto slots = static_cast<uint64_t>(kShareWindow / kShareStep);
    if (site.share_samples == 0) {
      site.held_settled = site.held;
      for (PodState& pod : pods_) pod.accounts[g].held_settled = pod.accounts[g].held;
    }
    const double l = static_cast<double>(Nanos(Longest(g)));
    const auto given = static_cast<double>(Nanos(site.held - site.held_settled));
    for (size_t i = 0; i < pods_.size(); ++i) {
      Account& account = pods_[i].accounts[g];
      if (!account.here) continue;
      const double error =
          account.share * given - static_cast<double>(Nanos(account.held - account.held_settled));
      double& slot = account.share_errors[site.share_samples % slots];
      if (site.share_samples >= slots) {
        const double window = std::abs(error - slot) / l / 2;
        verdict_.worst_share = std::max(verdict_.worst_share, window);
        verdict_.worst_share_points =
            std::max(verdict_.worst_share_points,
                     100 * std::abs(error - slot) / static_cast<double>(Nanos(kShareWindow)));
        if (options_.bounds && window > options_.lag_bound / 2) {
          Violation("share", Name(i) + " is " + std::to_string(2 * window) +
                                 " L from its share of the last 10 s");
        }
      }
      slot = error;
    }
    ++site.share_samples;
  }

  void CheckLimit(size_t pod, uint32_t g) {
    const policy::ShareSpec& spec = pods_[pod].spec;
    if (spec.limit >= policy::kWhole || pods_[pod].resized) return;
    const double c = spec.limit / 1e6;
    const double hold = static_cast<double>(Nanos(Longest(g)));
    const double window = c * static_cast<double>(Nanos(options_.scheduler.fairness.limit_window));
    // A daemon that starts anew starts with full buckets; a hold that faults stretch (a stopped
    // process cannot close its gate) is charged, but only afterwards.
    const double stretched =
        !plan_.faults.empty() ? 5e9 + static_cast<double>(Nanos(options_.scheduler.drain_timeout))
                              : 0;
    const double bound = c * static_cast<double>(Nanos(now_ - Instant(plan_.pods[pod].arrives))) +
                         (1 + restarts_) * (window + hold + stretched);
    const Duration used = pods_[pod].accounts[g].used;
    if (static_cast<double>(Nanos(used)) > bound) {
      Violation("limit",
                Name(pod) + " with limit " + std::to_string(c) + " used " + FormatSeconds(used));
    }
  }

  // No token is out: what was held has been charged, once.
  void CheckBook(uint32_t g) {
    if (sites_[g].held > now_ - Instant{}) {
      Violation("book", "more held time is charged than has passed");
    }
    for (size_t i = 0; i < pods_.size(); ++i) {
      const Account& account = pods_[i].accounts[g];
      // After a restart each process tells how long it held, not when; so of several at once the
      // longest counts.
      const Duration unknown = plan_.pods[i].processes > 1 ? restarts_ * Longest(g) : Duration(0);
      if (account.held + account.unseen + unknown >= account.used) continue;
      Violation("book", Name(i) + " used " +
                            std::to_string(Nanos(account.used - account.held - account.unseen)) +
                            " ns that it was not charged");
    }
  }

  // What a pod may have to wait for on a GPU: what others are owed there. The high-priority ones
  // are served first, and go on to be owed their shares meanwhile: what they are owed lasts
  // 1 / (1 − Σ φ) as long for those of low priority.
  static Duration OwedToOthers(const std::map<PodId, backend::PodStatus>& status, PodId pod) {
    const bool low = status.at(pod).spec.priority == policy::Priority::kLow;
    Duration owed{0}, first{0};
    policy::Share rest = policy::kWhole;
    for (const auto& [id, s] : status) {
      if (id == pod) continue;
      const bool before = low && s.spec.priority == policy::Priority::kHigh;
      (before ? first : owed) += std::max(s.lag, Duration(0));
      if (before) rest -= s.fluid;
    }
    return owed + first * 1'000 / std::max<int64_t>(1, rest * 1'000 / policy::kWhole);
  }

  // The faults have stopped: who waits, is owed time and is below its limit is served. Only holds
  // that the fluid GPU would finish before its own go first, so its turn comes within L / φ, and
  // what others are owed: somebody's accident leaves everybody else owed seconds, at once or when
  // it is back.
  void CheckLiveness() {
    After(milliseconds(100), What::kLiveness);
    std::vector<std::map<PodId, backend::PodStatus>> status(sites_.size());
    for (uint32_t g = 0; g < sites_.size(); ++g) {
      for (const backend::PodStatus& s : sites_[g].scheduler->Status(now_)) status[g][s.pod] = s;
    }
    for (const auto& p : processes_) {
      if (!p->alive || !pods_[p->pod].present) continue;
      const PodId id = IdOf(p->pod);
      const backend::PodStatus& s = status[p->gpu][id];
      bool due = p->parked && !s.throttled && s.lag >= Duration(0);
      policy::Share fluid = s.fluid;
      Duration behind{0};
      // A gang is due when it is on all its GPUs, as slowly as on the slowest, and behind those who
      // are owed anything on any of them.
      for (const uint32_t g : plan_.pods[p->pod].gpus) {
        if (!IsGang(p->pod) && g != p->gpu) continue;
        const backend::PodStatus& there = status[g][id];
        due &= !there.throttled && there.lag >= Duration(0);
        fluid = std::min(fluid, there.fluid);
        behind += OwedToOthers(status[g], id);
      }
      if (!due || p->asked != p->due_ask) {
        p->due_ask = p->asked;
        p->due_since = now_;
        p->due_behind = behind;
        continue;
      }
      p->due_behind = std::max(p->due_behind, behind);
      // Who had an accident is predicted up to this much.
      const Duration longest = std::max(Longest(p->gpu), 10 * options_.scheduler.quota_max);
      Duration patience = seconds(5) + p->due_behind +
                          2 * longest * policy::kWhole / std::max<policy::Share>(1, fluid);
      // A gang waits until it comes first on all its GPUs, and keeps them from others meanwhile.
      if (gangs_here_) patience *= 3;
      if (now_ - p->due_since > patience) {
        Violation("liveness", "process " + std::to_string(p->index) + " of " + Name(p->pod) +
                                  " has been owed time for " + FormatSeconds(now_ - p->due_since) +
                                  (s.waiting ? "" : ", and the scheduler does not know"));
      }
    }
  }

  static std::string FormatSeconds(Duration d) {
    char text[32];
    std::snprintf(text, sizeof text, "%.6f s", static_cast<double>(Nanos(d)) / 1e9);
    return text;
  }

  // --------------------------------------------------------------------------------- the figures
  // A kernel counts when it ends.
  void ExtendSeries() {
    After(options_.series_step, What::kSeries);
    for (PodState& pod : pods_) {
      for (Account& account : pod.accounts) {
        if (account.here) account.series.push_back(account.used);
      }
    }
  }

  void Summarize() {
    Duration busy{0};
    for (uint32_t g = 0; g < sites_.size(); ++g) {
      busy += sites_[g].gpu.busy();
      ReportHold(g);
    }
    verdict_.busy = static_cast<double>(Nanos(busy)) / static_cast<double>(Nanos(plan_.length)) /
                    static_cast<double>(sites_.size());
    verdict_.trace_hash = hash_;
    for (size_t i = 0; i < pods_.size(); ++i) {
      for (const uint32_t g : plan_.pods[i].gpus) {
        Account& account = pods_[i].accounts[g];
        for (size_t n = account.series.size(); n-- > 1;) {
          account.series[n] -= account.series[n - 1];
        }
        verdict_.pods.push_back({plan_.pods[i].id, g, account.used, account.held, account.grants,
                                 std::move(account.waits), std::move(account.series)});
      }
    }
  }

  const Plan& plan_;
  RunOptions options_;
  bool gangs_here_ = false;
  bool fair_ = false;  // measure every step, by the bounds of a world without faults
  Instant now_{};
  std::priority_queue<Event> events_;
  uint64_t sequence_ = 0;
  uint64_t hash_ = 0xcbf29ce484222325u;
  Verdict verdict_;

  std::vector<PodState> pods_;        // as in the plan
  std::vector<size_t> index_of_;      // a pod's id → its index
  std::vector<Site> sites_;           // by GPU
  std::vector<Instant> kernel_ends_;  // of what runs on each
  std::optional<backend::GangScheduler> gangs_;
  Instant gangs_queued_ = kNever;
  std::vector<std::unique_ptr<Process>> processes_;
  std::vector<Frame> frames_;
  std::vector<uint32_t> free_frames_;
  backend::Effects effects_;  // of the present Step

  bool daemon_down_ = false;
  Duration outages_{0};  // all of them
  bool link_cut_ = false;
  Instant frames_bad_until_{};
  int restarts_ = 0;
};

}  // namespace

Verdict Run(const Plan& plan, const RunOptions& options) { return World(plan, options).Run(); }

}  // namespace baton::world
