#include "world/world.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <queue>
#include <set>

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

constexpr struct {
  uint32_t fault;
  const char* name;
} kFaultNames[] = {{kFrames, "frames"},     {kKills, "kills"}, {kStops, "stops"},
                   {kRestarts, "restarts"}, {kCuts, "cuts"},   {kResizes, "resizes"},
                   {kHangs, "hangs"}};

// How a pod uses the GPU.
enum class Habit { kSaturating, kBursty, kSleeper, kTiny, kLong };

struct PodModel {
  PodId id;
  policy::ShareSpec spec;
  Habit habit = Habit::kSaturating;
  Duration kernel{0};
  Duration burst{0};  // GPU time per burst; unused when saturating
  Duration pause{0};
  bool present = true;
  uint32_t processes = 1;
  bool touched = false;  // a fault or a resize hit it: no steady bounds
  Duration used{0};      // GPU time, by the GPU's own record
  // As the daemon's book keeps them, over its restarts.
  Duration held{0};
  uint64_t hold_epoch = 0;
  Duration hold_base{0};  // `held` before the token of hold_epoch
  Duration unseen{0};     // used by processes that died before the daemon was back: never charged
};

// One process: its launching thread, its hook, its connection.
struct Process {
  uint32_t index = 0;
  size_t pod = 0;
  ClientId client;
  hook::ClientMachine machine;
  bool alive = true;
  bool stopped = false;
  bool connected = false;
  uint64_t connection = 0;  // counts connections; frames of an older one are lost
  // The launching thread.
  Duration left{0};  // GPU time it still wants to launch in this burst
  bool parked = false;
  bool throttled = false;  // parked for its backlog
  bool open = false;
  bool watching = false;
  Instant asked = kNever;    // since when it waits for the token
  Instant due_ask = kNever;  // that wait, while it is owed time,
  Instant due_since{};       // since when it is
  uint64_t launches = 0;
  Duration busy{0};
  uint64_t timer = 0;  // counts timers; an older one is void
  // What the daemon's side of the connection measured.
  uint64_t sent_epoch = 0;
  Instant sent_at{};
  Duration settled{0};    // of its State: held_ns when it last held nothing
  bool restored = false;  // held when the daemon ended, and has not been heard since
};

class World {
 public:
  explicit World(const WorldOptions& options) : options_(options), random_(options.seed) {
    faults_ = options.faults;
    options_.scheduler.drain_kill = (faults_ & (kHangs | kStops)) != 0;
    if (faults_ & (kHangs | kStops)) options_.scheduler.drain_timeout = seconds(2);
  }

  Verdict Run() {
    MakePods();
    scheduler_ = std::make_unique<backend::TokenScheduler>(options_.scheduler, 0);
    for (const PodModel& pod : pods_) StepScheduler(backend::PodSet{pod.id, pod.spec});
    for (size_t i = 0; i < pods_.size(); ++i) {
      if (pods_[i].habit == Habit::kSaturating && random_.OneIn(6)) pods_[i].processes = 2;
      for (uint32_t n = 0; n < pods_[i].processes; ++n) StartProcess(i);
    }
    quiet_from_ = Instant(options_.length - options_.calm);
    if (faults_ != 0) At(Instant(milliseconds(500)), [this] { InjectFault(); });
    At(quiet_from_, [this] { CheckLiveness(); });

    while (verdict_.ok && !events_.empty() && events_.top().at <= Instant(options_.length)) {
      const Entry entry = events_.top();
      events_.pop();
      now_ = entry.at;
      ++verdict_.events;
      const auto action = std::move(actions_[entry.action]);
      free_actions_.push_back(entry.action);
      action();
    }
    verdict_.busy =
        static_cast<double>(Nanos(gpu_.busy())) / static_cast<double>(Nanos(options_.length));
    verdict_.trace_hash = hash_;
    return verdict_;
  }

 private:
  // ------------------------------------------------------------------------------------ events
  struct Entry {
    Instant at;
    uint64_t sequence;
    uint32_t action;
    bool operator<(const Entry& other) const {
      return at != other.at ? at > other.at : sequence > other.sequence;
    }
  };

  void At(Instant at, std::function<void()> action) {
    uint32_t index;
    if (free_actions_.empty()) {
      index = static_cast<uint32_t>(actions_.size());
      actions_.emplace_back();
    } else {
      index = free_actions_.back();
      free_actions_.pop_back();
    }
    actions_[index] = std::move(action);
    events_.push({std::max(at, now_), ++sequence_, index});
  }
  void After(Duration delay, std::function<void()> action) { At(now_ + delay, std::move(action)); }

  void Violation(const std::string& what) {
    if (!verdict_.ok) return;
    verdict_.ok = false;
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

  // -------------------------------------------------------------------------------------- pods
  void MakePods() {
    const uint32_t n =
        options_.pods != 0 ? options_.pods : static_cast<uint32_t>(random_.Spread(2, 64));
    int64_t left = policy::kWhole;
    for (uint32_t i = 0; i < n; ++i) {
      PodModel pod;
      pod.id = PodId{i + 1};
      const int64_t most = left - (n - i - 1) * int64_t{policy::kShareMin};
      const int64_t fair = std::max<int64_t>(policy::kShareMin, 2 * left / (n - i));
      pod.spec.request = static_cast<policy::Share>(random_.Between(
          policy::kShareMin, std::max<int64_t>(policy::kShareMin, std::min(most, fair))));
      left -= pod.spec.request;
      switch (random_.Between(0, 3)) {
        case 0:
          pod.spec.limit = pod.spec.request;
          break;
        case 1:
          pod.spec.limit =
              static_cast<policy::Share>(random_.Between(pod.spec.request, policy::kWhole));
          break;
        default:
          pod.spec.limit = policy::kWhole;
      }
      if (random_.OneIn(8)) pod.spec.priority = policy::Priority::kHigh;
      pod.spec = policy::Validated(pod.spec).value();
      pod.habit = static_cast<Habit>(random_.Between(0, 4));
      if (i < 2) pod.habit = Habit::kSaturating;
      pod.kernel = Duration(random_.Spread(10'000, 2'000'000));
      if (pod.habit == Habit::kTiny) pod.kernel = Duration(random_.Spread(5'000, 50'000));
      if (pod.habit == Habit::kLong) pod.kernel = Duration(random_.Spread(5'000'000, 200'000'000));
      pod.burst = Duration(random_.Spread(10'000, 2'000'000'000));
      pod.pause = Duration(random_.Spread(100'000, 1'000'000'000));
      if (pod.habit == Habit::kSleeper)
        pod.pause = Duration(random_.Spread(1'000'000'000, 20'000'000'000));
      longest_kernel_ = std::max(longest_kernel_, pod.kernel);
      pods_.push_back(pod);
    }
  }

  Process& StartProcess(size_t pod) {
    processes_.push_back(std::make_unique<Process>());
    Process& p = *processes_.back();
    p.index = static_cast<uint32_t>(processes_.size() - 1);
    p.pod = pod;
    p.client = ClientId{p.index + 1};
    hook::ClientOptions hook_options;
    p.machine = hook::ClientMachine(hook_options, now_);
    After(Duration(random_.Between(0, 200'000'000)), [this, &p] {
      Connect(p);
      NextBurst(p);
    });
    return p;
  }

  // ---------------------------------------------------------------------------------- launching
  void NextBurst(Process& p) {
    if (!p.alive) return;
    const PodModel& pod = pods_[p.pod];
    if (!pod.present) return;
    const bool endless =
        pod.habit == Habit::kSaturating || pod.habit == Habit::kTiny || pod.habit == Habit::kLong;
    p.left = endless ? Duration::max() : pod.burst;
    Launch(p);
  }

  // The launching thread runs until it is parked, has launched its burst, or is far enough ahead.
  void Launch(Process& p) {
    if (!p.alive || p.stopped || p.throttled) return;
    const PodModel& pod = pods_[p.pod];
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
      if (bound > Duration(0) && gpu_.BacklogOf(p.index, now_) > bound) {
        p.throttled = true;
        return;
      }
      Duration length =
          Duration(std::max<int64_t>(1'000, Nanos(pod.kernel) * random_.Between(70, 130) / 100));
      if (p.left != Duration::max()) {
        length = std::min(length, p.left);
        p.left -= length;
      }
      if (hang_next_ && pod.present && now_ < quiet_from_) {
        hang_next_ = false;
        pods_[p.pod].touched = true;
        LaunchKernel(p, Duration::max());
      } else {
        LaunchKernel(p, length);
      }
    }
    if (p.parked) p.parked = false;
    if (gpu_.PendingOf(p.index) == 0) BurstDone(p);
  }

  void LaunchKernel(Process& p, Duration length) {
    const PodModel& pod = pods_[p.pod];
    const auto occupant = gpu_.occupant();
    if (occupant && *occupant != pod.id) {
      Violation("pod " + std::to_string(pod.id.value) + " launched while a kernel of pod " +
                std::to_string(occupant->value) + " was pending");
    }
    ++p.launches;
    const bool idle = !occupant;
    gpu_.Launch({p.index, pod.id, length}, now_);
    if (idle) ArmGpu();
  }

  void ArmGpu() {
    const Instant end = gpu_.end();
    if (end == kNever) return;
    const uint64_t generation = ++gpu_timer_;
    At(end, [this, generation] {
      if (generation == gpu_timer_) KernelEnded();
    });
  }

  void KernelEnded() {
    const WorldGpu::Kernel done = gpu_.Finish(now_);
    Process& p = *processes_[done.process];
    p.busy += done.length;
    pods_[p.pod].used += done.length;
    CheckLimit(pods_[p.pod]);
    ArmGpu();
    if (p.alive && !p.stopped) {
      if (p.throttled && gpu_.BacklogOf(p.index, now_) <= p.machine.backlog_bound() / 2) {
        p.throttled = false;
        Launch(p);
      }
      if (gpu_.PendingOf(p.index) == 0) {
        NoticeFinished(p);
        if (p.left == Duration(0)) BurstDone(p);
      }
    } else if (!p.alive && gpu_.PendingOf(p.index) == 0) {
      ReportGone(p);
    }
  }

  void BurstDone(Process& p) {
    const PodModel& pod = pods_[p.pod];
    p.left = Duration(-1);  // until the next burst
    After(Duration(Nanos(pod.pause) * random_.Between(50, 150) / 100),
          [this, &p] { NextBurst(p); });
  }

  // ------------------------------------------------------------------------------------ the hook
  hook::Observation Observe(const Process& p) const {
    hook::Observation seen;
    seen.launches = p.launches;
    seen.backlog = gpu_.BacklogOf(p.index, now_);
    seen.longest = pods_[p.pod].kernel * 13 / 10;
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
    const uint64_t timer = ++p.timer;
    if (effects.wake != kNever) {
      At(std::max(effects.wake, now_ + microseconds(1)), [this, &p, timer] {
        if (timer == p.timer) StepMachine(p, {.kind = hook::EventKind::kTimer});
      });
    }
    if (opened) {
      After(microseconds(random_.Between(3, 40)), [this, &p] {
        if (p.open && p.parked) {
          verdict_.worst_wait = std::max(verdict_.worst_wait, now_ - p.asked);
          Launch(p);
        }
      });
    }
    if (p.watching) NoticeFinished(p);
  }

  // The hook polls its events: it sees the end of its work a little later.
  void NoticeFinished(Process& p) {
    if (!p.watching || gpu_.PendingOf(p.index) != 0) return;
    After(microseconds(random_.Between(5, 50)), [this, &p] {
      if (p.alive && !p.stopped && p.watching && gpu_.PendingOf(p.index) == 0) {
        StepMachine(p, {.kind = hook::EventKind::kFinished});
      }
    });
  }

  // --------------------------------------------------------------------------------- connections
  void Connect(Process& p) {
    if (!p.alive || p.connected) return;
    if (daemon_down_ || !pods_[p.pod].present) {
      After(milliseconds(random_.Between(5, 200)), [this, &p] { Connect(p); });
      return;
    }
    p.connected = true;
    const uint64_t connection = ++p.connection;
    StepScheduler(backend::ClientAttached{p.client, pods_[p.pod].id});
    After(microseconds(random_.Between(20, 300)), [this, &p, connection] {
      if (!p.connected || p.connection != connection) return;
      hook::Event event{.kind = hook::EventKind::kAttached};
      event.attached.backlog_ns = static_cast<uint64_t>(Nanos(options_.scheduler.backlog));
      event.attached.heartbeat_ns = 100'000'000;
      event.attached.idle_ns = 1'000'000;
      Deliver(p, event);
    });
  }

  void Disconnect(Process& p, bool reconnect) {
    if (!p.connected) return;
    p.connected = false;
    p.sent_epoch = 0;
    if (!daemon_down_) StepScheduler(backend::ClientDisconnected{p.client, now_});
    Deliver(p, {.kind = hook::EventKind::kDisconnected});
    if (reconnect) After(milliseconds(random_.Between(5, 200)), [this, &p] { Connect(p); });
  }

  // To the process; one that is stopped finds it when it goes on.
  void Deliver(Process& p, const hook::Event& event) {
    if (!p.alive) return;
    if (p.stopped) {
      inbox_[p.index].push_back(event);
    } else {
      StepMachine(p, event);
    }
  }

  // How long a frame takes; empty: it is lost. Sometimes it comes twice.
  std::vector<Duration> Fate() {
    std::vector<Duration> arrivals{microseconds(random_.Between(8, 120))};
    if (!(faults_ & kFrames) || now_ >= quiet_from_) return arrivals;
    switch (random_.Between(0, 199)) {
      case 0:
        arrivals.clear();
        break;
      case 1:
        arrivals.push_back(microseconds(random_.Between(10, 5'000)));
        break;
      case 2:
        arrivals[0] = milliseconds(random_.Between(1, 300));
        break;
      default:
        break;
    }
    return arrivals;
  }

  void ToDaemon(Process& p, const wire::State& state) {
    if (!p.connected || link_cut_) return;
    char buffer[wire::kTenantFrameMax];
    const std::string bytes(buffer, wire::Encode(state, buffer, sizeof buffer));
    const uint64_t connection = p.connection;
    for (const Duration delay : Fate()) {
      After(delay, [this, &p, connection, bytes] {
        if (!p.connected || p.connection != connection || daemon_down_) return;
        wire::Frame frame;
        wire::State got;
        if (frame.Parse(bytes.data(), bytes.size()) != wire::DecodeStatus::kOk ||
            !frame.Read(got)) {
          Violation("a State does not read back");
          return;
        }
        const bool drained = got.phase == Phase::kIdle || got.phase == Phase::kWaiting;
        const bool measured = drained && got.epoch == p.sent_epoch && p.sent_epoch != 0;
        const auto held = Duration(got.held_ns);
        StepScheduler(backend::ClientReport{p.client, got.seq, got.phase, got.epoch, got.rev,
                                            measured ? now_ - p.sent_at : Duration(0),
                                            std::max(held - p.settled, Duration(0))});
        if (!scheduler_->Holds(p.client, got.epoch)) p.settled = std::max(p.settled, held);
        p.restored = false;
      });
    }
  }

  void ToClient(Process& p, const backend::SendToken& send) {
    if (!p.connected) return;
    if (send.rev == 1 && send.quota > Duration(0)) {
      p.sent_epoch = send.epoch;
      p.sent_at = now_;
    }
    if (link_cut_) return;
    wire::Token token;
    token.epoch = send.epoch;
    token.rev = send.rev;
    token.quota_ns = static_cast<uint64_t>(Nanos(send.quota));
    token.contended = send.contended;
    const uint64_t connection = p.connection;
    for (const Duration delay : Fate()) {
      After(delay, [this, &p, connection, token] {
        if (!p.connected || p.connection != connection) return;
        hook::Event event{.kind = hook::EventKind::kToken};
        event.token = token;
        Deliver(p, event);
      });
    }
  }

  // ---------------------------------------------------------------------------------- the daemon
  void StepScheduler(const backend::Event& event) {
    if (daemon_down_) return;
    backend::Effects effects;
    scheduler_->Step(now_, event, effects);
    for (const backend::Effect& effect : effects) {
      if (const auto* store = std::get_if<backend::StoreHolder>(&effect)) {
        PodModel& pod = pods_[store->pod.value - 1];
        if (stored_.empty()) {
          granted_at_ = store->joined_at;
          pod.hold_epoch = store->epoch;
          pod.hold_base = pod.held;
        }
        stored_epoch_ = store->epoch;
        stored_[store->client] = *store;
        Trace(store->client.value, store->epoch);
        ++verdict_.grants;
      } else if (const auto* charged = std::get_if<backend::Charged>(&effect)) {
        pods_[charged->pod.value - 1].held += charged->held;
        held_ += charged->held;
      } else if (std::holds_alternative<backend::ClearHolders>(effect)) {
        stored_.clear();
        CheckBook();
      } else if (const auto* send = std::get_if<backend::SendToken>(&effect)) {
        Process& p = *processes_[send->client.value - 1];
        // Sent after this step, as an event loop does; the order between frames stays.
        ToClient(p, *send);
      } else if (const auto* kill = std::get_if<backend::KillClient>(&effect)) {
        Process& p = *processes_[kill->client.value - 1];
        After(Duration(0), [this, &p] { Kill(p); });
      }
    }
    CheckLags();
    const Instant wakeup = scheduler_->wakeup();
    const uint64_t generation = ++daemon_timer_;
    if (wakeup != kNever) {
      At(std::max(wakeup, now_ + Duration(1)), [this, generation] {
        if (generation == daemon_timer_) StepScheduler(backend::Tick{});
      });
    }
  }

  void RestartDaemon() {
    daemon_down_ = true;
    ++daemon_timer_;
    for (auto& p : processes_) {
      if (p->connected) Disconnect(*p, true);
    }
    After(milliseconds(random_.Between(1, 3'000)), [this] {
      daemon_down_ = false;
      scheduler_ = std::make_unique<backend::TokenScheduler>(options_.scheduler, stored_epoch_);
      ++restarts_;
      const auto holders = stored_;
      for (const PodModel& pod : pods_) {
        if (pod.present) StepScheduler(backend::PodSet{pod.id, pod.spec});
      }
      for (const auto& [client, holder] : holders) {
        const PodModel& pod = pods_[holder.pod.value - 1];
        StepScheduler(backend::HolderRestored{holder.client, holder.pod, holder.epoch, granted_at_,
                                              holder.joined_at, pod.held - pod.hold_base});
      }
      for (const auto& [client, holder] : holders) {
        Process& p = *processes_[client.value - 1];
        p.restored = true;
        if (!p.alive && gpu_.PendingOf(p.index) == 0) SayGone(p);
      }
    });
  }

  // ---------------------------------------------------------------------------------- the faults
  void InjectFault() {
    if (now_ >= quiet_from_) return;
    After(Duration(random_.Spread(50'000'000, 4'000'000'000)), [this] { InjectFault(); });
    std::vector<uint32_t> kinds;
    for (const auto& f : kFaultNames) {
      if ((faults_ & f.fault) && f.fault != kFrames) kinds.push_back(f.fault);
    }
    if (kinds.empty()) return;
    Process& p = *processes_[static_cast<size_t>(
        random_.Between(0, static_cast<int64_t>(processes_.size()) - 1))];
    PodModel& pod = pods_[p.pod];
    switch (
        kinds[static_cast<size_t>(random_.Between(0, static_cast<int64_t>(kinds.size()) - 1))]) {
      case kKills:
        Kill(p);
        break;
      case kStops:
        if (p.alive && !p.stopped) {
          pod.touched = true;
          p.stopped = true;
          After(milliseconds(random_.Between(1, 5'000)), [this, &p] { Continue(p); });
        }
        break;
      case kRestarts:
        if (!daemon_down_) RestartDaemon();
        break;
      case kCuts:
        if (!link_cut_) {
          link_cut_ = true;
          // The daemon may notice, or find out only when it is back.
          const bool noticed = random_.OneIn(2);
          if (noticed) StepScheduler(backend::LinkCut{true});
          After(milliseconds(random_.Between(1, 2'000)), [this, noticed] {
            link_cut_ = false;
            if (noticed) StepScheduler(backend::LinkCut{false});
          });
        }
        break;
      case kResizes:
        Resize(pod);
        break;
      case kHangs:
        hang_next_ = true;
        break;
      default:
        break;
    }
  }

  void Kill(Process& p) {
    if (!p.alive) return;
    p.alive = false;
    p.connected = false;
    p.open = false;
    pods_[p.pod].touched = true;
    gpu_.Kill(p.index, now_);
    ArmGpu();
    StepScheduler(backend::ClientDisconnected{p.client, now_});
    if (gpu_.PendingOf(p.index) == 0) ReportGone(p);
    const size_t pod = p.pod;
    After(milliseconds(random_.Between(10, 2'000)), [this, pod] {
      if (pods_[pod].present) StartProcess(pod);
    });
  }

  // The daemon learns it from the pidfd and NVML, a moment later.
  void ReportGone(Process& p) {
    After(microseconds(random_.Between(50, 1'500)), [this, &p] {
      if (!daemon_down_) SayGone(p);  // else when it is back
    });
  }

  void SayGone(Process& p) {
    // What it used while nobody watched, nobody can tell.
    PodModel& pod = pods_[p.pod];
    if (p.restored) pod.unseen += std::max(pod.used - pod.held - pod.unseen, Duration(0));
    StepScheduler(backend::ClientGone{p.client});
  }

  void Continue(Process& p) {
    if (!p.alive) return;
    p.stopped = false;
    auto events = std::move(inbox_[p.index]);
    inbox_.erase(p.index);
    StepMachine(p, {.kind = hook::EventKind::kTimer});
    for (const hook::Event& event : events) StepMachine(p, event);
    if (p.throttled && gpu_.BacklogOf(p.index, now_) <= p.machine.backlog_bound() / 2) {
      p.throttled = false;
    }
    NoticeFinished(p);
    if (p.left == Duration(0) && gpu_.PendingOf(p.index) == 0) {
      BurstDone(p);
    } else {
      Launch(p);
    }
  }

  void Resize(PodModel& pod) {
    pod.touched = true;
    for (PodModel& other : pods_) other.touched = true;  // everybody's entitlement changes
    int64_t others = 0;
    for (const PodModel& other : pods_) {
      if (other.present && other.id != pod.id) others += other.spec.request;
    }
    const int64_t room = policy::kWhole - others;
    if (room < policy::kShareMin) return;
    pod.spec.request = static_cast<policy::Share>(random_.Between(policy::kShareMin, room));
    pod.spec.limit = random_.OneIn(3) ? pod.spec.request : policy::kWhole;
    pod.spec.slack_weight = pod.spec.request;
    resized_at_[pod.id] = now_;
    if (pod.present) StepScheduler(backend::PodSet{pod.id, pod.spec});
  }

  // ---------------------------------------------------------------------------------- the checks
  Duration Longest() const {
    return options_.scheduler.quota_max + longest_kernel_ * 13 / 10 + options_.scheduler.backlog +
           milliseconds(2);
  }

  // A steady saturating pod without a binding limit is never more than 2 L behind its due (L where
  // no hold is longer than predicted, which bursts that begin anew are), and never further ahead
  // than that and what those who pause between bursts have saved up meanwhile.
  void CheckLags() {
    if (faults_ != 0 || now_ < Instant(seconds(2))) return;
    const double l = static_cast<double>(Nanos(Longest()));
    // High-priority pods may run ahead by their burst, and one hold that began within it.
    double bound = 2;
    for (const PodModel& pod : pods_) {
      if (pod.spec.priority != policy::Priority::kHigh) continue;
      bound = 2 + static_cast<double>(Nanos(options_.scheduler.fairness.priority_burst)) / l;
    }
    const auto pods = scheduler_->Status(now_);
    const auto steady = [this](const backend::PodStatus& s) {
      const PodModel& pod = pods_[s.pod.value - 1];
      return pod.habit == Habit::kSaturating && pod.spec.limit == policy::kWhole;
    };
    double saved = 0;
    for (const backend::PodStatus& s : pods) {
      if (!steady(s)) saved += std::max(0.0, static_cast<double>(Nanos(s.lag)) / l);
    }
    for (const backend::PodStatus& s : pods) {
      if (!steady(s)) continue;
      const double ahead = -static_cast<double>(Nanos(s.lag)) / l;
      const double lag = ahead > 0 ? std::max(0.0, ahead - saved) : -ahead;
      if (lag > bound) {
        Violation("pod " + std::to_string(s.pod.value) + " is " + std::to_string(lag) +
                  " L from its due");
      }
      verdict_.worst_lag = std::max(verdict_.worst_lag, lag);
    }
  }

  void CheckLimit(const PodModel& pod) {
    if (pod.spec.limit >= policy::kWhole || resized_at_.contains(pod.id)) return;
    const double c = pod.spec.limit / 1e6;
    const double hold = static_cast<double>(Nanos(Longest()));
    const double window = c * static_cast<double>(Nanos(options_.scheduler.fairness.limit_window));
    // A daemon that starts anew starts with full buckets; a hold that faults stretch (a stopped
    // process cannot close its gate) is charged, but only afterwards.
    const double stretched =
        faults_ != 0 ? 5e9 + static_cast<double>(Nanos(options_.scheduler.drain_timeout)) : 0;
    const double bound = c * static_cast<double>(Nanos(now_)) + (1 + restarts_) * (window + hold) +
                         (1 + restarts_) * stretched;
    if (static_cast<double>(Nanos(pod.used)) > bound) {
      Violation("pod " + std::to_string(pod.id.value) + " with limit " + std::to_string(c) +
                " used " + std::to_string(static_cast<double>(Nanos(pod.used)) / 1e9) + " s");
    }
  }

  // No token is out: what was held has been charged, once.
  void CheckBook() {
    if (held_ > now_ - Instant{}) Violation("more held time is charged than has passed");
    for (const PodModel& pod : pods_) {
      // After a restart each process tells how long it held, not when; so of several at once the
      // longest counts.
      const Duration unknown = pod.processes > 1 ? restarts_ * Longest() : Duration(0);
      if (pod.held + pod.unseen + unknown >= pod.used) continue;
      Violation("pod " + std::to_string(pod.id.value) + " used " +
                std::to_string(Nanos(pod.used - pod.held - pod.unseen)) +
                " ns that it was not charged");
    }
  }

  // The faults have stopped: who waits, is owed time and is below its limit is served. Its lag
  // grows at its entitlement and never beyond L, so its turn comes within L / φ.
  void CheckLiveness() {
    After(milliseconds(100), [this] { CheckLiveness(); });
    // Who had an accident is predicted up to this much.
    const Duration longest = std::max(Longest(), 10 * options_.scheduler.quota_max);
    std::map<PodId, backend::PodStatus> status;
    for (const backend::PodStatus& s : scheduler_->Status(now_)) status[s.pod] = s;
    for (const auto& p : processes_) {
      const PodModel& pod = pods_[p->pod];
      const backend::PodStatus& s = status[pod.id];
      const bool due = p->alive && pod.present && p->parked && !s.throttled && s.lag >= Duration(0);
      if (!due || p->asked != p->due_ask) {
        p->due_ask = p->asked;
        p->due_since = now_;
        continue;
      }
      const Duration patience =
          seconds(5) + 2 * longest * policy::kWhole / std::max<policy::Share>(1, s.fluid);
      if (now_ - p->due_since > patience) {
        Violation("process " + std::to_string(p->index) + " of pod " +
                  std::to_string(pod.id.value) + " has been owed time for " +
                  std::to_string(static_cast<double>(Nanos(now_ - p->due_since)) / 1e9) + " s" +
                  (s.waiting ? "" : ", and the scheduler does not know"));
      }
    }
  }

  WorldOptions options_;
  Random random_;
  uint32_t faults_ = 0;
  Instant now_{};
  Instant quiet_from_{};
  std::priority_queue<Entry> events_;
  std::vector<std::function<void()>> actions_;
  std::vector<uint32_t> free_actions_;
  uint64_t sequence_ = 0;
  uint64_t hash_ = 0xcbf29ce484222325u;
  Verdict verdict_;

  std::vector<PodModel> pods_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::map<uint32_t, std::vector<hook::Event>> inbox_;  // of stopped processes
  WorldGpu gpu_;
  uint64_t gpu_timer_ = 0;
  Duration longest_kernel_{0};

  std::unique_ptr<backend::TokenScheduler> scheduler_;
  uint64_t daemon_timer_ = 0;
  bool daemon_down_ = false;
  bool link_cut_ = false;
  bool hang_next_ = false;
  int restarts_ = 0;
  uint64_t stored_epoch_ = 0;
  Instant granted_at_{};  // when the first of stored_ was sent its token
  Duration held_{0};      // charged to all pods
  std::map<ClientId, backend::StoreHolder> stored_;
  std::map<PodId, Instant> resized_at_;
};

}  // namespace

Result<uint32_t> ParseFaults(std::string_view text) {
  if (text == "all") return kAllFaults;
  if (text == "none") return 0;
  uint32_t faults = 0;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view name = text.substr(0, comma);
    const auto* found = std::find_if(std::begin(kFaultNames), std::end(kFaultNames),
                                     [&](const auto& f) { return name == f.name; });
    if (found == std::end(kFaultNames)) {
      return Fail(ErrorCode::kInvalid, "'" + std::string(name) +
                                           "' is no kind of fault; write all, none, or some of " +
                                           FormatFaults(kAllFaults));
    }
    faults |= found->fault;
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return faults;
}

std::string FormatFaults(uint32_t faults) {
  std::string text;
  for (const auto& f : kFaultNames) {
    if (!(faults & f.fault)) continue;
    if (!text.empty()) text += ',';
    text += f.name;
  }
  return text.empty() ? "none" : text;
}

Verdict Run(const WorldOptions& options) { return World(options).Run(); }

}  // namespace baton::world
