// Gangs against singles and each other, on virtual time: the real schedulers and the real hook
// machine, over GPUs where a collective ends only once every rank of its gang has come to it.
#include "backend/gang_scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <set>

#include "hook/client_machine.h"

namespace baton::backend {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

struct PodPlan {
  double request;
  double limit = 100;
  std::vector<size_t> gpus{0};  // of its ranks: one that is named twice has two of its processes
  Duration kernel = milliseconds(1);
  int collective_every = 0;  // kernels; 0: its ranks do not wait for each other
  Duration pause{0};         // after each collective, of one rank after the other
  policy::Priority priority = policy::Priority::kLow;
  int threads = 1;           // of each rank, each with a stream and a communicator of its own
  bool one_process = false;  // one thread launches on all GPUs, in turn
};

// What may happen to each frame between daemon and processes.
struct LinkFaults {
  int lost = 0;  // percent
  int repeated = 0;
  Duration late{0};  // so much at most; they overtake each other
};

class GangWorld {
 public:
  explicit GangWorld(size_t gpus, uint64_t seed = 1, SchedulerOptions options = {})
      : options_(options), gangs_(std::in_place, options), random_(seed) {
    for (size_t i = 0; i < gpus; ++i) gpus_.push_back(std::make_unique<Gpu>(options));
  }

  PodId Add(const PodPlan& plan) {
    const PodId id{++last_pod_};
    pods_[id] = plan;
    for (const size_t g : GpusOf(plan)) Step(g, SetOf(id));
    FormGang(id, {}, gpus_.size());
    Start(id);
    return id;
  }
  // Deleted, while its processes live.
  void Remove(PodId id) {
    gangs_->Remove(id);
    for (const size_t g : GpusOf(pods_.at(id))) Step(g, PodRemoved{id});
    pods_.erase(id);
  }
  void SetShare(PodId id, double request, double limit) {
    pods_.at(id).request = request;
    pods_.at(id).limit = limit;
    for (const size_t g : GpusOf(pods_.at(id))) Step(g, SetOf(id));
  }

  void Run(Duration length) {
    const Instant end = now_ + length;
    while (!events_.empty() && events_.top().at <= end && overlaps == 0) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.at;
      (*event.action)();
    }
    now_ = end;
    CheckAccounts();
  }

  // As the device saw it, since the last call.
  std::map<std::pair<PodId, size_t>, double> SharesOver(Duration length) {
    const auto before = used_;
    Run(length);
    std::map<std::pair<PodId, size_t>, double> shares;
    for (const auto& [key, used] : used_) {
      const auto found = before.find(key);
      const Duration was = found == before.end() ? Duration(0) : found->second;
      shares[key] =
          100.0 * static_cast<double>((used - was).count()) / static_cast<double>(length.count());
    }
    return shares;
  }
  uint64_t Collectives(PodId pod) const {
    uint64_t least = ~uint64_t{0};
    for (const auto& rank : ranks_) {
      if (rank->pod != pod || !rank->alive) continue;
      for (const Thread& thread : rank->threads) least = std::min(least, thread.collectives_done);
    }
    return least;
  }
  // Of the one of its living ranks that has launched least.
  uint64_t Launches(PodId pod) const {
    uint64_t least = ~uint64_t{0};
    for (const auto& rank : ranks_) {
      if (rank->pod == pod && rank->alive) least = std::min(least, LaunchesOf(*rank));
    }
    return least;
  }
  // The process dies, and with it what it runs; the daemon learns of it after `noticed`.
  void Kill(PodId pod, size_t which, Duration noticed = Duration(0)) {
    if (Rank* rank = Living(pod, which)) Kill(*rank, noticed);
  }
  // All of the pod's processes are killed, one after the other, and started again.
  void StartAnew(PodId pod) {
    for (const auto& rank : ranks_) {
      if (rank->pod != pod || !rank->alive) continue;
      After(microseconds(Draw(0, 20'000)),
            [this, &r = *rank] { Kill(r, microseconds(Draw(0, 5'000))); });
    }
    After(milliseconds(Draw(20, 100)), [this, pod] {
      if (pods_.contains(pod)) Start(pod);
    });
  }
  // SIGSTOP, for a while. What it has launched runs on.
  void Stop(PodId pod, size_t which, Duration length) {
    if (Rank* rank = Living(pod, which)) rank->stopped_until = now_ + length;
  }
  // Its connection ends, and comes back.
  void Disconnect(PodId pod, size_t which, Duration length) {
    Rank* rank = Living(pod, which);
    if (rank == nullptr || !rank->connected) return;
    rank->connected = false;
    const uint64_t was = ++rank->generation;
    StepRank(*rank, {.kind = hook::EventKind::kDisconnected});
    Step(rank->gpu, ClientDisconnected{rank->client, now_ - microseconds(Draw(0, 1'000))});
    After(length, [this, rank, was] {
      if (rank->generation == was && rank->alive) Connect(*rank);
    });
  }
  // The link to all processes is cut, and back.
  void CutLink(Duration length) {
    if (cut_) return;
    cut_ = true;
    for (size_t g = 0; g < gpus_.size(); ++g) Step(g, LinkCut{true});
    for (const auto& rank : ranks_) StepRank(*rank, {.kind = hook::EventKind::kAway});
    After(length, [this, daemon = daemons_] {
      if (daemon != daemons_) return;
      cut_ = false;
      for (size_t g = 0; g < gpus_.size(); ++g) Step(g, LinkCut{false});
      for (const auto& rank : ranks_) StepRank(*rank, {.kind = hook::EventKind::kSync});
    });
  }
  // The daemon ends, and another one starts with what was stored. It hears of the GPUs in `gpus`
  // only; of all where that is empty.
  void Restart(const std::set<size_t>& gpus = {}) {
    ++daemons_;
    cut_ = false;
    gangs_.emplace(options_);
    for (const auto& gpu : gpus_) gpu->scheduler.emplace(options_, gpu->scheduler->epoch());
    for (const auto& rank : ranks_) {
      rank->generation++;
      rank->connected = false;
    }
    for (size_t g = 0; g < gpus_.size(); ++g) {
      const Gpu& gpu = *gpus_[g];
      if (!gpus.empty() && !gpus.contains(g)) continue;
      for (const auto& [id, plan] : pods_) {
        if (GpusOf(plan).contains(g)) Step(g, SetOf(id));
      }
      for (const auto& [client, joined_at] : std::map(gpu.stored)) {
        const Rank& rank = *ranks_[client.value - 1];
        if (!pods_.contains(rank.pod)) Step(g, PodSet{rank.pod, {}, false});  // deleted since
        Step(g, HolderRestored{client, rank.pod, gpu.epoch, gpu.granted_at, joined_at,
                               charged_[{rank.pod, g}] - gpu.charged_before});
        if (!pods_.contains(rank.pod)) Step(g, PodRemoved{rank.pod});
      }
      // Its own holders first: a gang that holds elsewhere claims it at once.
      for (const auto& [id, plan] : pods_) FormGang(id, gpus, g);
    }
    for (const auto& rank : ranks_) {
      if (!gpus.empty() && !gpus.contains(rank->gpu)) continue;
      After(milliseconds(Draw(1, 50)), [this, &r = *rank, daemon = daemons_] {
        if (daemon != daemons_) return;
        r.alive ? Connect(r) : Step(r.gpu, ClientGone{r.client});
      });
    }
  }
  void Hear(size_t g, const backend::Event& event) { Step(g, event); }
  bool Living(PodId pod) { return Living(pod, 0) != nullptr; }
  ClientId ClientOf(PodId pod, size_t which) { return Living(pod, which)->client; }
  // Whether the pod has something to do, and whether it stands in line.
  bool Asks(PodId pod, size_t) const {
    return std::any_of(ranks_.begin(), ranks_.end(), [&](const auto& rank) {
      return rank->pod == pod && rank->machine.phase() != wire::Phase::kIdle;
    });
  }
  bool Waits(PodId pod, size_t g) {
    for (const PodStatus& s : gpus_[g]->scheduler->Status(now_)) {
      if (s.pod == pod) return s.waiting || s.holding;
    }
    return false;
  }
  uint64_t Tended() const { return gangs_->tended(); }
  uint64_t Grants(size_t g) const { return gpus_[g]->grants; }
  const TokenScheduler& Scheduler(size_t g) const { return *gpus_[g]->scheduler; }
  // Charged since the beginning.
  Duration Charged(PodId pod, size_t g) { return charged_[{pod, g}]; }
  // Charged since the daemon started, on the GPU where it is least.
  Duration Held(PodId pod) {
    Duration least = Duration::max();
    for (const auto& gpu : gpus_) {
      for (const PodStatus& s : gpu->scheduler->Status(now_)) {
        if (s.pod == pod) least = std::min(least, s.held);
      }
    }
    return least;
  }
  // Where it is ahead of its share most.
  Duration Debt(PodId pod) {
    Duration most{0};
    for (const auto& gpu : gpus_) {
      for (const PodStatus& s : gpu->scheduler->Status(now_)) {
        if (s.pod == pod) most = std::max(most, -s.lag);
      }
    }
    return most;
  }
  // From a launch that finds the gate closed to the gate open.
  Duration LongestWait(PodId pod) const {
    Duration longest{0};
    for (const auto& rank : ranks_) {
      if (rank->pod != pod) continue;
      for (const Thread& t : rank->threads) longest = std::max(longest, t.longest_wait);
    }
    return longest;
  }
  Instant now() const { return now_; }

  int overlaps = 0;
  uint64_t wakeups = 0;  // of the coordinator, by its timer
  uint64_t notices = 0;  // of holders that hang
  LinkFaults faults;

 private:
  struct Rank;
  struct Kernel {
    Duration length;
    uint64_t collective = 0;  // 0: none
  };
  struct Thread {
    Rank* rank = nullptr;
    size_t index = 0;
    std::deque<Kernel> queue;  // its stream
    bool running = false;      // the head
    uint64_t timer = 0;
    bool parked = false;
    bool pacing = false;
    bool paused = false;
    bool waking = false;
    Instant parked_at{};
    Duration longest_wait{0};
    uint64_t launches = 0;
    uint64_t collectives = 0;     // launched
    uint64_t collectives_at = 0;  // come to the head of the queue
    uint64_t collectives_done = 0;
  };
  struct Rank {
    ClientId client;
    PodId pod;
    uint64_t job = 0;  // those that were started together
    size_t gpu = 0;
    PodPlan plan;
    hook::ClientMachine machine;
    std::vector<Thread> threads;
    bool alive = true;
    bool connected = false;
    bool open = false;
    bool watch = false;
    Instant stopped_until{};
    uint64_t generation = 0;  // of its connection
    uint64_t timer = 0;
  };
  struct Gpu {
    explicit Gpu(const SchedulerOptions& options) { scheduler.emplace(options, 0); }
    std::optional<TokenScheduler> scheduler;
    std::vector<Rank*> ranks;
    size_t pending = 0;  // kernels
    Instant counted{};   // its use, up to here
    uint64_t tick = 0;
    uint64_t grants = 0;
    // As the holder's file has it.
    uint64_t epoch = 0;
    std::map<ClientId, Instant> stored;
    Instant granted_at{};
    Duration charged_before{0};  // to the holder, before this hold
  };
  struct Event {
    Instant at;
    uint64_t order;
    std::shared_ptr<std::function<void()>> action;
    bool operator<(const Event& other) const {
      return at != other.at ? at > other.at : order > other.order;
    }
  };

  int64_t Draw(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  void At(Instant at, std::function<void()> action) {
    events_.push(
        {std::max(at, now_), ++order_, std::make_shared<std::function<void()>>(std::move(action))});
  }
  void After(Duration delay, std::function<void()> action) { At(now_ + delay, std::move(action)); }

  static std::set<size_t> GpusOf(const PodPlan& plan) {
    return {plan.gpus.begin(), plan.gpus.end()};
  }
  PodSet SetOf(PodId id) const {
    const PodPlan& plan = pods_.at(id);
    const policy::ShareSpec spec{.request = static_cast<policy::Share>(plan.request * 10'000),
                                 .limit = static_cast<policy::Share>(plan.limit * 10'000),
                                 .priority = plan.priority};
    return {id, policy::Validated(spec).value(), GpusOf(plan).size() > 1};
  }
  // Of those of its GPUs that the daemon has heard of: up to `last`, and in `gpus` or all.
  void FormGang(PodId id, const std::set<size_t>& gpus, size_t last) {
    const std::set<size_t> all = GpusOf(pods_.at(id));
    std::vector<TokenScheduler*> there;
    for (const size_t g : all) {
      if (g <= last && (gpus.empty() || gpus.contains(g))) there.push_back(&*gpus_[g]->scheduler);
    }
    const bool complete = there.size() == all.size();
    if (all.size() > 1 && !there.empty()) gangs_->Add(id, std::move(there), complete);
  }
  void Start(PodId id) {
    ++last_job_;
    for (const size_t g : pods_.at(id).gpus) {
      ranks_.push_back(std::make_unique<Rank>());
      Rank& rank = *ranks_.back();
      rank.client = ClientId{ranks_.size()};
      rank.pod = id;
      rank.job = last_job_;
      rank.gpu = g;
      rank.plan = pods_.at(id);
      rank.machine = hook::ClientMachine(hook::ClientOptions{}, now_);
      rank.threads.resize(static_cast<size_t>(rank.plan.threads));
      for (size_t t = 0; t < rank.threads.size(); ++t) {
        rank.threads[t].rank = &rank;
        rank.threads[t].index = t;
      }
      gpus_[g]->ranks.push_back(&rank);
      After(microseconds(Draw(1, 5'000)), [this, &rank] { Connect(rank); });
    }
  }
  Rank* Living(PodId pod, size_t which) {
    std::vector<Rank*> living;
    for (const auto& rank : ranks_) {
      if (rank->pod == pod && rank->alive) living.push_back(rank.get());
    }
    return living.empty() ? nullptr : living[which % living.size()];
  }
  void Kill(Rank& rank, Duration noticed) {
    if (!rank.alive) return;
    rank.alive = false;
    CountUse(rank.gpu, rank.pod);
    for (Thread& thread : rank.threads) {
      gpus_[rank.gpu]->pending -= thread.queue.size();
      thread.queue.clear();
      ++thread.timer;
    }
    std::erase(gpus_[rank.gpu]->ranks, &rank);
    After(noticed, [this, &rank] { Step(rank.gpu, ClientGone{rank.client}); });
  }

  // ------------------------------------------------------------------------------- the daemon
  void Step(size_t g, const backend::Event& event) {
    StepOne(g, event);
    Tend();
  }
  void Tend() {
    gangs_->Tend(now_, [this](const TokenScheduler& scheduler, const GangStep& step) {
      for (size_t i = 0; i < gpus_.size(); ++i) {
        if (&*gpus_[i]->scheduler == &scheduler) StepOne(i, step);
      }
    });
    // As the daemon's: one that is due too early only looks again.
    const Instant at = gangs_->wakeup();
    if (at >= armed_) return;
    armed_ = at;
    At(std::max(at, now_), [this, at] {
      if (at != armed_) return;
      armed_ = kNever;
      ++wakeups;
      if (now_ == woken_) {
        ASSERT_LT(++woken_times_, 100) << "no way on from a wakeup";
      } else {
        woken_times_ = 0;
      }
      woken_ = now_;
      Tend();
    });
  }
  void StepOne(size_t g, const backend::Event& event) {
    Effects effects;
    Gpu& gpu = *gpus_[g];
    gpu.scheduler->Step(now_, event, effects);
    for (const Effect& effect : effects) {
      if (const auto* send = std::get_if<SendToken>(&effect)) {
        Rank& rank = *ranks_[send->client.value - 1];
        hook::Event token{.kind = hook::EventKind::kToken};
        token.token.epoch = send->epoch;
        token.token.rev = send->rev;
        token.token.quota_ns = static_cast<uint64_t>(send->quota.count());
        token.token.contended = send->contended;
        Frame(rank, [this, &rank, token] { StepRank(rank, token); });
      } else if (const auto* store = std::get_if<StoreHolder>(&effect)) {
        if (gpu.epoch != store->epoch) ++gpu.grants;
        if (gpu.epoch != store->epoch || gpu.stored.empty()) {
          gpu.stored.clear();
          gpu.granted_at = store->joined_at;
          gpu.charged_before = charged_[{store->pod, g}];
        }
        gpu.epoch = store->epoch;
        gpu.stored[store->client] = store->joined_at;
      } else if (std::holds_alternative<ClearHolders>(effect)) {
        gpu.stored.clear();
      } else if (const auto* charged = std::get_if<backend::Charged>(&effect)) {
        charged_[{charged->pod, g}] += charged->held;
      } else if (const auto* kill = std::get_if<KillClient>(&effect)) {
        After(microseconds(100),
              [this, &rank = *ranks_[kill->client.value - 1]] { Kill(rank, milliseconds(1)); });
      } else if (const auto* notice = std::get_if<Notice>(&effect)) {
        notices += notice->kind == Notice::Kind::kHung ? 1 : 0;
      }
    }
    const uint64_t tick = ++gpu.tick;
    if (const Instant at = gpu.scheduler->wakeup(); at != kNever) {
      At(std::max(at, now_ + microseconds(1)), [this, g, tick] {
        if (tick == gpus_[g]->tick) Step(g, Tick{});
      });
    }
  }
  // Between the daemon and one of its clients, in either direction.
  void Frame(const Rank& rank, const std::function<void()>& arrives) {
    if (cut_ || Draw(1, 100) <= faults.lost) return;
    const int64_t late = faults.late / microseconds(1);
    for (int copies = Draw(1, 100) <= faults.repeated ? 2 : 1; copies > 0; --copies) {
      After(microseconds(Draw(20, 120) + Draw(0, late)),
            [this, &rank, arrives, was = rank.generation] {
              if (!cut_ && was == rank.generation) arrives();
            });
    }
  }
  // Nobody pays for time twice, nor for what another one used.
  void CheckAccounts() {
    std::map<size_t, Duration> all;
    for (const auto& [key, held] : charged_) all[key.second] += held;
    for (const auto& [g, held] : all) EXPECT_LE(held, now_.time_since_epoch()) << "on GPU " << g;
  }

  // -------------------------------------------------------------------------------- a process
  void Connect(Rank& rank) {
    if (!rank.alive) return;
    if (rank.stopped_until > now_) {
      At(rank.stopped_until, [this, &rank] { Connect(rank); });
      return;
    }
    ++rank.generation;
    rank.connected = true;
    Step(rank.gpu, ClientAttached{rank.client, rank.pod});
    hook::Event attached{.kind = hook::EventKind::kAttached};
    attached.attached.backlog_ns = static_cast<uint64_t>(options_.backlog.count());
    attached.attached.heartbeat_ns = 100'000'000;
    attached.attached.idle_ns = 1'000'000;
    attached.attached.gang = GpusOf(rank.plan).size() > 1;
    StepRank(rank, attached);
    for (Thread& thread : rank.threads) Launch(thread);
  }
  static Duration Backlog(const Thread& thread) {
    Duration sum{0};
    for (const Kernel& k : thread.queue) sum += k.length;
    return sum;
  }
  static bool Pending(const Rank& rank) {
    return std::any_of(rank.threads.begin(), rank.threads.end(),
                       [](const Thread& t) { return !t.queue.empty(); });
  }
  static uint64_t LaunchesOf(const Rank& rank) {
    uint64_t sum = 0;
    for (const Thread& thread : rank.threads) sum += thread.launches;
    return sum;
  }
  // Of a process whose one thread launches on its GPUs in turn: whether this one's is next.
  bool HasTurn(const Rank& rank) const {
    if (!rank.plan.one_process) return true;
    return std::all_of(ranks_.begin(), ranks_.end(), [&](const auto& peer) {
      if (peer->job != rank.job || !peer->alive) return true;
      const uint64_t ahead = peer->client < rank.client ? 1 : 0;
      return LaunchesOf(*peer) >= LaunchesOf(rank) + ahead;
    });
  }
  void Launch(Thread& thread) {
    Rank& rank = *thread.rank;
    if (rank.stopped_until > now_) {
      At(rank.stopped_until, [this, &thread] { Launch(thread); });
      return;
    }
    while (rank.alive && !thread.paused && HasTurn(rank)) {
      if (!rank.open) {
        if (thread.parked) return;
        thread.parked = true;
        thread.parked_at = now_;
        StepRank(rank, {.kind = hook::EventKind::kParked});
        if (!rank.open) return;
      }
      if (thread.parked) {
        thread.longest_wait = std::max(thread.longest_wait, now_ - thread.parked_at);
      }
      thread.parked = false;
      // Of the thread's own: the hook lets pass who waits for what does not move.
      thread.pacing = Backlog(thread) > rank.machine.backlog_bound();
      if (thread.pacing) return;
      Gpu& gpu = *gpus_[rank.gpu];
      for (const Rank* other : gpu.ranks) {
        if (other->pod == rank.pod || !Pending(*other)) continue;
        ++overlaps;
        ADD_FAILURE() << "pod " << rank.pod.value << " launches on GPU " << rank.gpu
                      << " beside pod " << other->pod.value << " at "
                      << now_.time_since_epoch().count();
        return;
      }
      ++thread.launches;
      Kernel kernel{rank.plan.kernel * Draw(70, 130) / 100, 0};
      const int every = rank.plan.collective_every;
      if (every != 0 && thread.launches % static_cast<uint64_t>(every) == 0) {
        kernel.collective = ++thread.collectives;
        kernel.length = microseconds(20);
      }
      if (gpu.pending++ == 0) gpu.counted = now_;
      thread.queue.push_back(kernel);
      Advance(thread);
      if (rank.machine.single()) StepRank(rank, {});
      if (rank.plan.one_process) {
        for (const auto& peer : ranks_) {
          if (peer->job != rank.job || peer.get() == &rank) continue;
          After(microseconds(Draw(1, 5)), [this, &t = peer->threads[0]] { Launch(t); });
        }
      }
      if (kernel.collective != 0 && rank.plan.pause > Duration(0)) {
        thread.paused = true;
        After(rank.plan.pause * Draw(50, 150) / 100, [this, &thread] {
          thread.paused = false;
          Launch(thread);
        });
        return;
      }
    }
  }
  void StepRank(Rank& rank, const hook::Event& event) {
    if (!rank.alive) return;
    if (rank.stopped_until > now_) {
      At(rank.stopped_until, [this, &rank, event, was = rank.generation] {
        if (was == rank.generation) StepRank(rank, event);
      });
      return;
    }
    hook::Observation seen;
    seen.launches = LaunchesOf(rank);
    seen.longest = rank.plan.kernel * 13 / 10;
    for (const Thread& thread : rank.threads) {
      seen.backlog += Backlog(thread);
      seen.parked += thread.parked ? 1 : 0;
      seen.pacing += thread.pacing ? 1 : 0;
    }
    const hook::Effects effects = rank.machine.Step(now_, event, seen);
    if (effects.send && rank.connected) {
      const wire::State s = effects.state;
      Frame(rank, [this, &rank, s] {
        if (!rank.alive) return;
        Step(rank.gpu, ClientReport{rank.client, s.seq, s.phase, s.epoch, s.rev, Duration(0),
                                    Duration(0), DurationFromNanos(s.backlog_ns)});
      });
    }
    const bool opened = effects.open && !rank.open;
    rank.open = effects.open;
    rank.watch = effects.watch;
    const uint64_t timer = ++rank.timer;
    if (effects.wake != kNever) {
      At(std::max(effects.wake, now_ + microseconds(1)), [this, &rank, timer] {
        if (timer == rank.timer) StepRank(rank, {.kind = hook::EventKind::kTimer});
      });
    }
    if (opened) {
      for (Thread& thread : rank.threads) {
        After(microseconds(Draw(3, 40)), [this, &thread] { Launch(thread); });
      }
    }
    LookFinished(rank);
  }
  void LookFinished(Rank& rank) {
    if (!rank.watch || Pending(rank)) return;
    After(microseconds(Draw(5, 50)), [this, &rank] {
      if (rank.watch && !Pending(rank)) StepRank(rank, {.kind = hook::EventKind::kFinished});
    });
  }

  // ----------------------------------------------------------------------------------- a GPU
  void Advance(Thread& thread) {
    if (thread.running || thread.queue.empty()) return;
    const Kernel head = thread.queue.front();
    std::vector<Thread*> peers;
    if (head.collective != 0) {
      thread.collectives_at = head.collective;
      for (const auto& peer : ranks_) {
        if (peer->job != thread.rank->job) continue;
        peers.push_back(&peer->threads[thread.index]);
        if (peers.back()->collectives_at < head.collective) return;
      }
    }
    thread.running = true;
    const uint64_t timer = ++thread.timer;
    After(head.length, [this, &thread, timer] {
      if (timer == thread.timer) Finish(thread);
    });
    for (Thread* peer : peers) Advance(*peer);
  }
  void CountUse(size_t g, PodId pod) {
    Gpu& gpu = *gpus_[g];
    if (gpu.pending > 0) used_[{pod, g}] += now_ - gpu.counted;  // a collective that waits spins
    gpu.counted = now_;
  }
  void Finish(Thread& thread) {
    Rank& rank = *thread.rank;
    CountUse(rank.gpu, rank.pod);
    --gpus_[rank.gpu]->pending;
    if (thread.queue.front().collective != 0) ++thread.collectives_done;
    thread.queue.pop_front();
    thread.running = false;
    Advance(thread);
    // A thread that waits for its backlog has to be woken.
    for (Thread& waits : rank.threads) {
      if (waits.waking || (!waits.pacing && &waits != &thread)) continue;
      waits.waking = true;
      After(microseconds(Draw(20, 80)), [this, &waits] {
        waits.waking = false;
        Launch(waits);
      });
    }
    LookFinished(rank);
  }

  SchedulerOptions options_;
  std::optional<GangScheduler> gangs_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<Gpu>> gpus_;
  std::map<PodId, PodPlan> pods_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::map<std::pair<PodId, size_t>, Duration> used_;     // as the device saw it
  std::map<std::pair<PodId, size_t>, Duration> charged_;  // by all daemons
  std::priority_queue<Event> events_;
  Instant now_{};
  Instant armed_ = kNever;
  Instant woken_ = kNever;
  int woken_times_ = 0;
  bool cut_ = false;
  uint64_t order_ = 0;
  uint64_t last_pod_ = 0;
  uint64_t last_job_ = 0;
  uint64_t daemons_ = 0;
};

using Shares = std::map<std::pair<PodId, size_t>, double>;

double Least(const Shares& shares, PodId pod) {
  double least = 100;
  for (const auto& [key, share] : shares) {
    if (key.first == pod) least = std::min(least, share);
  }
  return least;
}

// Unoptimised and under sanitizers a world takes twenty times as long.
#ifdef NDEBUG
constexpr uint64_t kWorlds = 20;
#else
constexpr uint64_t kWorlds = 1;
#endif

TEST(Gang, AloneItKeepsItsTokens) {
  GangWorld world(2);
  const PodId a = world.Add({.request = 50, .gpus = {0, 1}, .collective_every = 5});
  world.Run(seconds(1));
  EXPECT_GT(Least(world.SharesOver(seconds(5)), a), 99);
  EXPECT_LE(world.Grants(0), 2u);
}

TEST(Gang, TwoOnTheSameGpusAndASaturatingSingleOnEachAllGetTheirRequests) {
  for (const Duration kernel :
       {Duration(microseconds(20)), Duration(microseconds(300)), Duration(milliseconds(3))}) {
    for (const int every : {2, 20}) {
      if (kWorlds == 1 && every == 2) continue;
      SCOPED_TRACE(testing::Message() << kernel.count() << " ns, collective every " << every);
      GangWorld world(2, 7);
      const PodPlan gang{
          .request = 30, .gpus = {0, 1}, .kernel = kernel, .collective_every = every};
      const PodId a = world.Add(gang);
      const PodId b = world.Add(gang);
      const PodId s = world.Add({.request = 40, .gpus = {0}});
      const PodId t = world.Add({.request = 40, .gpus = {1}});
      world.Run(seconds(2));
      const Shares shares = world.SharesOver(seconds(10));
      // A part of what a gang holds goes by while its ranks meet at the end of it.
      for (const PodId gang_pod : {a, b}) EXPECT_GT(Least(shares, gang_pod), 26);
      for (const PodId single : {s, t}) EXPECT_GT(Least(shares, single), 39);
    }
  }
}

// Each of the collectives is a meeting of its own: the ranks can hardly ever be caught at the same
// place.
TEST(Gang, CollectivesBackToBackStillDrain) {
  GangWorld world(2);
  const PodId a = world.Add({.request = 50, .gpus = {0, 1}, .collective_every = 1});
  const PodId s = world.Add({.request = 50, .gpus = {0}});
  world.Run(seconds(1));
  const Shares shares = world.SharesOver(seconds(5));
  EXPECT_GT(Least(shares, a), 35);
  EXPECT_GT(Least(shares, s), 48);
}

TEST(Gang, ThoseThatCrossInACircleAllGoOn) {
  GangWorld world(3);
  const Duration kernel = microseconds(200);
  std::vector<PodId> gangs;
  for (const std::vector<size_t>& gpus :
       {std::vector<size_t>{0, 1}, std::vector<size_t>{1, 2}, std::vector<size_t>{0, 2}}) {
    gangs.push_back(
        world.Add({.request = 30, .gpus = gpus, .kernel = kernel, .collective_every = 10}));
  }
  std::vector<PodId> singles;
  for (const size_t g : {0, 1, 2}) singles.push_back(world.Add({.request = 40, .gpus = {g}}));
  world.Run(seconds(2));
  const Shares shares = world.SharesOver(seconds(10));
  for (const PodId pod : gangs) EXPECT_GT(Least(shares, pod), 25);
  for (const PodId pod : singles) EXPECT_GT(Least(shares, pod), 39);
}

TEST(Gang, OneGpuThatIsWantedByManyDoesNotGiveItMoreThanItsShareOfTheOthers) {
  GangWorld world(2);
  const PodId a = world.Add({.request = 20, .gpus = {0, 1}, .collective_every = 10});
  const PodId s = world.Add({.request = 80, .gpus = {0}});
  const PodId t = world.Add({.request = 30, .gpus = {1}});
  world.Run(seconds(2));
  const Shares shares = world.SharesOver(seconds(10));
  EXPECT_GT(Least(shares, a), 17);
  EXPECT_GT(Least(shares, s), 78);  // its request is not touched by the gang's elsewhere
  EXPECT_GT(Least(shares, t), 60);  // what the gang cannot use
}

TEST(Gang, ItsLimitHolds) {
  GangWorld world(2);
  const PodId a = world.Add({.request = 20, .limit = 20, .gpus = {0, 1}, .collective_every = 10});
  world.Run(seconds(2));
  const Shares shares = world.SharesOver(seconds(10));
  EXPECT_LT(shares.at({a, 0}), 21);
  EXPECT_LT(shares.at({a, 1}), 21);
  EXPECT_GT(Least(shares, a), 17);
}

TEST(Gang, AHighPriorityPodTakesTheTokensBackAtOnce) {
  GangWorld world(2);
  const PodId a = world.Add({.request = 30, .gpus = {0, 1}, .collective_every = 10});
  const PodId s = world.Add({.request = 30,
                             .gpus = {1},
                             .collective_every = 5,
                             .pause = milliseconds(100),
                             .priority = policy::Priority::kHigh});
  world.Run(seconds(5));
  EXPECT_GT(world.Collectives(s), 40u);  // one each 105 ms, and a short wait
  EXPECT_LT(world.LongestWait(s), milliseconds(12));
  EXPECT_GT(Least(world.SharesOver(seconds(5)), a), 80);
}

TEST(Gang, WhenARankDiesTheGpusAreGivenToOthers) {
  GangWorld world(2);
  const PodId a = world.Add({.request = 50, .gpus = {0, 1}, .collective_every = 2});
  const PodId s = world.Add({.request = 50, .gpus = {0}});
  const PodId t = world.Add({.request = 50, .gpus = {1}});
  world.Run(seconds(1));
  world.Kill(a, 0);
  world.Run(milliseconds(100));
  world.Kill(a, 1);  // its peer waits for the dead one's next collective for ever
  world.Run(milliseconds(100));
  const Shares shares = world.SharesOver(seconds(2));
  EXPECT_GT(Least(shares, s), 99);
  EXPECT_GT(Least(shares, t), 99);
}

TEST(Gang, ADaemonThatStartsAnewWaitsForAllOfItsRanks) {
  for (uint64_t seed = 1; seed <= kWorlds; ++seed) {
    GangWorld world(2, seed);
    const PodPlan gang{
        .request = 30, .gpus = {0, 1}, .kernel = microseconds(300), .collective_every = 3};
    const PodId a = world.Add(gang);
    const PodId b = world.Add(gang);
    const PodId s = world.Add({.request = 40, .gpus = {0}});
    world.Run(milliseconds(500 + 7 * static_cast<int>(seed)));
    world.Restart();
    world.Run(seconds(1));
    const Shares shares = world.SharesOver(seconds(3));
    EXPECT_GT(Least(shares, a), 25) << "seed " << seed;
    EXPECT_GT(Least(shares, b), 25) << "seed " << seed;
    EXPECT_GT(Least(shares, s), 38) << "seed " << seed;
  }
}

// Any number of gangs and singles over up to eight GPUs: nobody overlaps, nobody is left out.
TEST(Gang, InManyMixesEverybodyGoesOn) {
  std::random_device fresh;
  const char* given = getenv("BATON_GANG_SEED");
  const uint64_t first = given != nullptr ? strtoull(given, nullptr, 10) : fresh();
  for (uint64_t i = 0; i < 2 * kWorlds; ++i) {
    const uint64_t seed = first + i;
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const auto draw = [&](int64_t low, int64_t high) {
      return std::uniform_int_distribution<int64_t>(low, high)(random);
    };
    const auto gpus = static_cast<size_t>(draw(2, 8));
    GangWorld world(gpus, seed);
    std::vector<double> room(gpus, 100);
    struct Expected {
      PodId pod;
      double request;
      std::vector<size_t> on;  // of a gang: its GPUs
    };
    std::vector<Expected> pods;
    for (int64_t n = draw(1, 5); n > 0; --n) {
      std::vector<size_t> on;
      for (size_t g = 0; g < gpus; ++g) {
        if (room[g] > 25 && draw(0, 1) == 0) on.push_back(g);
      }
      if (on.size() < 2) continue;
      const auto request = static_cast<double>(draw(5, 20));
      for (const size_t g : on) room[g] -= request;
      pods.push_back({world.Add({.request = request,
                                 .gpus = on,
                                 .kernel = microseconds(draw(20, 3'000)),
                                 .collective_every = static_cast<int>(draw(1, 30))}),
                      request, on});
    }
    for (size_t g = 0; g < gpus; ++g) {
      if (draw(0, 2) == 0) continue;
      pods.push_back(
          {world.Add(
               {.request = room[g] - 5, .gpus = {g}, .kernel = microseconds(draw(20, 10'000))}),
           room[g] - 5,
           {}});
    }
    world.Run(seconds(2));
    const Shares shares = world.SharesOver(seconds(8));
    for (const Expected& e : pods) {
      SCOPED_TRACE(testing::Message() << "pod " << e.pod.value << " with request " << e.request);
      // A gang is charged for the time that its ranks wait for each other to begin and to end: the
      // more of them, the longer.
      const double worked = e.on.empty()       ? 1
                            : e.on.size() == 2 ? 0.75
                            : e.on.size() == 3 ? 0.6
                                               : 0.45;
      EXPECT_GT(Least(shares, e.pod), worked * e.request);
      // Gangs that have a GPU in common cannot run at once, and until all GPUs of the next one are
      // free some stand idle: the more such gangs ask for together, the less of that can be made
      // up.
      double together = 0;
      for (const Expected& other : pods) {
        const bool overlaps = std::any_of(e.on.begin(), e.on.end(), [&](size_t g) {
          return std::find(other.on.begin(), other.on.end(), g) != other.on.end();
        });
        together += overlaps ? other.request : 0;
      }
      EXPECT_GT(world.Held(e.pod), e.request / 100 * seconds(10) - milliseconds(100) -
                                       microseconds(std::llround(3'000 * together)));
    }
  }
}

// ------------------------------------------------------------------- what may go wrong on the way

TEST(Gang, OneThatIsDeletedWhileItsGpusAreKeptForItLetsThemGo) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    GangWorld world(2, seed);
    const PodId a = world.Add({.request = 50, .gpus = {0, 1}, .collective_every = 5});
    const PodId s = world.Add({.request = 50, .gpus = {0}, .kernel = milliseconds(5)});
    const PodId t = world.Add({.request = 50, .gpus = {1}, .kernel = milliseconds(5)});
    world.Run(milliseconds(500) + microseconds(917) * seed);
    world.Remove(a);
    world.Run(milliseconds(100));
    const Shares shares = world.SharesOver(milliseconds(500));
    for (const PodId single : {s, t}) EXPECT_GT(Least(shares, single), 98);
  }
}

TEST(Gang, SeveralProcessesOnOneGpuAllCatchUp) {
  GangWorld world(2);
  const PodId a = world.Add(
      {.request = 50, .gpus = {0, 0, 1, 1}, .kernel = microseconds(300), .collective_every = 7});
  const PodId s = world.Add({.request = 50, .gpus = {0}});
  world.Run(seconds(1));
  const Shares shares = world.SharesOver(seconds(5));
  EXPECT_GT(Least(shares, a), 40);
  EXPECT_GT(Least(shares, s), 48);
}

TEST(Gang, SeveralThreadsWithCommunicatorsOfTheirOwnAllCatchUp) {
  GangWorld world(2);
  const PodId a = world.Add({.request = 50,
                             .gpus = {0, 1},
                             .kernel = microseconds(300),
                             .collective_every = 7,
                             .threads = 3});
  const PodId s = world.Add({.request = 50, .gpus = {0}});
  world.Run(seconds(1));
  const Shares shares = world.SharesOver(seconds(5));
  EXPECT_GT(Least(shares, a), 40);
  EXPECT_GT(Least(shares, s), 48);
}

TEST(Gang, OneProcessThatLaunchesOnAllItsGpusInTurnGoesOn) {
  GangWorld world(3);
  const PodId a = world.Add({.request = 50,
                             .gpus = {0, 1, 2},
                             .kernel = microseconds(300),
                             .collective_every = 7,
                             .one_process = true});
  const PodId s = world.Add({.request = 50, .gpus = {0}});
  world.Run(seconds(1));
  const Shares shares = world.SharesOver(seconds(5));
  EXPECT_GT(Least(shares, a), 40);
  EXPECT_GT(Least(shares, s), 48);
}

TEST(Gang, WhileTheLinkIsCutNothingIsDecidedAndNothingSpins) {
  for (uint64_t seed = 1; seed <= kWorlds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    GangWorld world(2, seed);
    const PodPlan gang{.request = 30, .gpus = {0, 1}, .collective_every = 5};
    const PodId a = world.Add(gang);
    const PodId b = world.Add(gang);
    const PodId s = world.Add({.request = 40, .gpus = {0}});
    world.Run(milliseconds(500) + microseconds(3'137) * seed);
    world.CutLink(seconds(1));
    const uint64_t before = world.wakeups;
    world.Run(milliseconds(900));
    EXPECT_LT(world.wakeups - before, 50u);
    world.Run(milliseconds(1'000));
    // Who held all the time has to pay for it.
    world.Run(seconds(3));
    const Shares shares = world.SharesOver(seconds(2));
    for (const PodId pod : {a, b}) EXPECT_GT(Least(shares, pod), 25);
    EXPECT_GT(Least(shares, s), 37);
  }
}

// A node comes back without one of its GPUs.
TEST(Gang, WhenOneOfItsGpusIsGoneTheOthersAreNotLost) {
  for (uint64_t seed = 1; seed <= kWorlds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    GangWorld world(2, seed);
    const PodId a = world.Add({.request = 90, .gpus = {0, 1}});
    const PodId s = world.Add({.request = 10, .gpus = {0}});
    world.Run(milliseconds(500) + microseconds(3'137) * seed);
    world.Restart({0});
    world.Run(milliseconds(300));
    EXPECT_GT(Least(world.SharesOver(seconds(1)), s), 95);
    EXPECT_GT(world.Launches(a), 0u);
  }
}

// What others do elsewhere, or what the limit gives back, happens while nothing happens here.
TEST(Gang, AtItsLimitItGoesOnAsSoonAsItMay) {
  GangWorld world(2);
  const PodId a = world.Add({.request = 20, .limit = 20, .gpus = {0, 1}, .collective_every = 10});
  world.Run(seconds(1));
  const Shares shares = world.SharesOver(seconds(10));
  EXPECT_GT(Least(shares, a), 19);
  EXPECT_LT(world.LongestWait(a), milliseconds(180));
  for (const size_t g : {0, 1}) {
    EXPECT_LT(world.Charged(a, g),
              (world.now().time_since_epoch() + milliseconds(200)) * 20 / 100 + milliseconds(45));
  }
}

TEST(Gang, AClaimThatNobodyCanCheckStopsOneGpuNotAllOfTheGang) {
  GangWorld world(2);
  const PodId a = world.Add({.request = 50, .gpus = {0, 1}, .collective_every = 10});
  const PodId s = world.Add({.request = 25, .gpus = {0}});
  const PodId t = world.Add({.request = 50, .gpus = {1}});
  const PodId liar = world.Add({.request = 25, .gpus = {0}, .kernel = seconds(100)});
  world.Run(milliseconds(500));
  (void)s, (void)liar;
  EXPECT_GT(Least(world.SharesOver(seconds(2)), t), 90);
  EXPECT_GE(world.Charged(a, 1), Duration(0));
}

TEST(Gang, OneThatHasNothingToDoIsInNobodysWay) {
  GangWorld world(2);
  const PodId a =
      world.Add({.request = 50, .gpus = {0, 1}, .collective_every = 5, .pause = milliseconds(500)});
  const PodId s = world.Add({.request = 50, .gpus = {0}});
  world.Run(milliseconds(300));
  EXPECT_GT(world.Launches(a), 0u);
  for (int i = 0; i < 100; ++i) {
    world.Run(milliseconds(10));
    for (const size_t g : {0, 1}) EXPECT_EQ(world.Asks(a, g), world.Waits(a, g));
  }
  EXPECT_GT(world.Launches(s), 0u);
}

TEST(Gang, WhatHappensOnOtherGpusCostsItNothing) {
  GangWorld world(3);
  const PodId s = world.Add({.request = 50, .gpus = {2}, .kernel = microseconds(100)});
  world.Add({.request = 50, .gpus = {2}, .kernel = microseconds(100)});
  world.Add({.request = 50, .gpus = {0, 1}, .collective_every = 5});
  world.Run(seconds(1));
  const uint64_t before = world.Tended(), grants = world.Grants(2);
  world.Run(seconds(1));
  EXPECT_GT(world.Launches(s), 0u);
  EXPECT_GT(world.Grants(2) - grants, 10u);
  EXPECT_LT(world.Tended() - before, 200u);  // its own heartbeats and renewals
}

// Gangs and singles of all kinds, while frames are lost, repeated and overtake each other, ranks
// are stopped, killed and started again, connections and links end, shares change and daemons
// restart: kernels of two pods never meet, nobody pays for time twice, nothing spins; and when it
// is over everybody goes on.
TEST(Gang, WhateverGoesWrongNobodyOverlapsAndEverybodyGoesOn) {
  std::random_device fresh;
  const char* given = getenv("BATON_GANG_SEED");
  const uint64_t first = given != nullptr ? strtoull(given, nullptr, 10) : fresh();
  for (uint64_t i = 0; i < kWorlds && !HasFailure(); ++i) {
    const uint64_t seed = first + i;
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const auto draw = [&](int64_t low, int64_t high) {
      return std::uniform_int_distribution<int64_t>(low, high)(random);
    };
    const auto gpus = static_cast<size_t>(draw(2, 4));
    SchedulerOptions options;
    options.drain_kill = draw(0, 1) == 0;
    options.drain_timeout = milliseconds(options.drain_kill ? 300 : 10'000);
    GangWorld world(gpus, seed, options);
    std::vector<PodId> pods, removed;
    for (int64_t n = draw(1, 4); n > 0; --n) {
      PodPlan plan{.request = static_cast<double>(draw(5, 20))};
      plan.gpus.clear();
      for (size_t g = 0; g < gpus; ++g) {
        for (int64_t ranks = draw(-1, 3) % 3; ranks > 0; --ranks) plan.gpus.push_back(g);
      }
      if (std::set<size_t>(plan.gpus.begin(), plan.gpus.end()).size() < 2) plan.gpus = {0, 1};
      plan.limit = draw(0, 2) == 0 ? plan.request : 100;
      plan.kernel = microseconds(draw(20, 3'000));
      plan.collective_every = static_cast<int>(draw(0, 20));
      plan.one_process = draw(0, 4) == 0;
      // Several threads that do little but meet others could be caught at one place by chance only.
      if (!plan.one_process && plan.collective_every % 20 > 4) {
        plan.threads = static_cast<int>(draw(1, 2));
      }
      pods.push_back(world.Add(plan));
    }
    for (size_t g = 0; g < gpus; ++g) {
      if (draw(0, 3) == 0) continue;
      pods.push_back(world.Add(
          {.request = static_cast<double>(draw(5, 20)),
           .gpus = {g},
           .kernel = microseconds(draw(20, 10'000)),
           .priority = draw(0, 4) == 0 ? policy::Priority::kHigh : policy::Priority::kLow}));
    }
    const int64_t kinds = draw(1, 255);
    if ((kinds & 1) != 0) {
      world.faults = {.lost = static_cast<int>(draw(0, 5)),
                      .repeated = static_cast<int>(draw(0, 20)),
                      .late = microseconds(draw(0, 5'000))};
    }
    const auto some = [&] { return pods[static_cast<size_t>(draw(0, 1'000)) % pods.size()]; };
    for (int n = 0; n < 40; ++n) {
      world.Run(microseconds(draw(1'000, 300'000)));
      const int64_t kind = draw(1, 7);
      if ((kinds & (1 << kind)) == 0) continue;
      const auto which = static_cast<size_t>(draw(0, 100));
      if (kind == 1) world.Stop(some(), which, milliseconds(draw(1, 500)));
      if (kind == 2) world.StartAnew(some());
      if (kind == 3) world.Disconnect(some(), which, milliseconds(draw(1, 300)));
      if (kind == 4) world.CutLink(milliseconds(draw(1, 300)));
      if (kind == 5) world.Restart();
      if (kind == 6) world.SetShare(some(), static_cast<double>(draw(1, 20)), 100);
      if (kind == 7 && pods.size() > 1) {
        const PodId pod = some();
        world.Remove(pod);
        std::erase(pods, pod);
        removed.push_back(pod);
      }
    }
    world.faults = {};
    // Who was killed in the middle of a collective leaves peers that wait for ever.
    world.Run(seconds(1));
    for (const PodId pod : pods) world.StartAnew(pod);
    for (const PodId pod : removed) {
      while (world.Living(pod)) world.Kill(pod, 0);
    }
    world.Run(seconds(5));
    std::map<PodId, uint64_t> launches;
    std::map<PodId, Duration> debts;
    for (const PodId pod : pods) {
      // Who was killed since, for it hung, stays away.
      if (world.Living(pod)) launches[pod] = world.Launches(pod);
      debts[pod] = world.Debt(pod);
    }
    const uint64_t wakeups = world.wakeups;
    world.Run(seconds(5));
    for (const auto& [pod, before] : launches) {
      // What it held while it hung is paid back first.
      EXPECT_TRUE(world.Launches(pod) > before || world.Debt(pod) < debts[pod])
          << "pod " << pod.value << " stands still";
    }
    EXPECT_LT(world.wakeups - wakeups, 5'000u);
    EXPECT_EQ(world.overlaps, 0);
  }
}

}  // namespace
}  // namespace baton::backend
