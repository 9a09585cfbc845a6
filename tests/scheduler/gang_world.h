// Gangs against singles and each other, on virtual time: the real schedulers and the real hook
// machine, over GPUs where a collective ends only once every rank of its gang has come to it.
#ifndef BATON_TESTS_SCHEDULER_GANG_WORLD_H_
#define BATON_TESTS_SCHEDULER_GANG_WORLD_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "hook/client_machine.h"
#include "scheduler/gang_scheduler.h"

namespace baton::scheduler {

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
  policy::Priority priority = policy::Priority::kNormal;
  int threads = 1;           // of each rank, each with a stream and a communicator of its own
  bool one_process = false;  // one thread launches on all GPUs, in turn
  bool many_pods = false;    // a gang of pods, one on each GPU. The world calls it one pod
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

  PodId Add(const PodPlan& plan);
  // Deleted, while its processes live.
  void Remove(PodId id);
  void SetShare(PodId id, double request, double limit);

  void Run(Duration length);

  // As the device saw it, since the last call.
  std::map<std::pair<PodId, size_t>, double> SharesOver(Duration length);
  uint64_t Collectives(PodId pod) const;
  // Of the one of its living ranks that has launched least.
  uint64_t Launches(PodId pod) const;
  // The process dies, and with it what it runs; the daemon learns of it after `noticed`.
  void Kill(PodId pod, size_t which, Duration noticed = Duration(0)) {
    if (Rank* rank = Living(pod, which)) Kill(*rank, noticed);
  }
  // All of the pod's processes are killed, one after the other, and started again.
  void StartAnew(PodId pod);
  // SIGSTOP, for a while. What it has launched runs on.
  void Stop(PodId pod, size_t which, Duration length) {
    if (Rank* rank = Living(pod, which)) rank->stopped_until = now_ + length;
  }
  // Its connection ends, and comes back.
  void Disconnect(PodId pod, size_t which, Duration length);
  // The link to all processes is cut, and back.
  void CutLink(Duration length);
  // The daemon ends, and another one starts with what was stored. It hears of the GPUs in `gpus`
  // only; of all where that is empty.
  void Restart(const std::set<size_t>& gpus = {});
  bool Living(PodId pod) { return Living(pod, 0) != nullptr; }
  // Whether the pod has something to do, and whether it stands in line.
  bool Asks(PodId pod, size_t) const;
  bool Waits(PodId pod, size_t g);
  uint64_t Tended() const { return gangs_->tended(); }
  uint64_t Grants(size_t g) const { return gpus_[g]->grants; }
  // Charged since the beginning.
  Duration Charged(PodId pod, size_t g) { return charged_[{pod, g}]; }
  // Charged since the daemon started, on the GPU where it is least.
  Duration Held(PodId pod);
  // Where it is ahead of its share most.
  Duration Debt(PodId pod);
  // From a launch that finds the gate closed to the gate open.
  Duration LongestWait(PodId pod) const;
  Instant now() const { return now_; }

  int overlaps = 0;
  uint64_t wakeups = 0;  // of the coordinator, by its timer
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
  // What the schedulers call it on a GPU, and back.
  static PodId AsPod(PodId id, const PodPlan& plan, size_t g) {
    return plan.many_pods ? PodId{id.value + 1000 * (g + 1)} : id;
  }
  static PodId Whole(PodId pod) { return PodId{pod.value % 1000}; }
  PodSet SetOf(PodId id, size_t g) const;
  // Of those of its GPUs that the daemon has heard of: up to `last`, and in `gpus` or all.
  void FormGang(PodId id, const std::set<size_t>& gpus, size_t last);
  void Start(PodId id);
  Rank* Living(PodId pod, size_t which);
  void Kill(Rank& rank, Duration noticed);

  void Step(size_t g, const scheduler::Event& event) {
    StepOne(g, event);
    Tend();
  }
  void Tend();
  void StepOne(size_t g, const scheduler::Event& event);
  // Between the daemon and one of its clients, in either direction.
  void Frame(const Rank& rank, const std::function<void()>& arrives);
  // Nobody pays for time twice, nor for what another one used.
  void CheckAccounts();

  void Connect(Rank& rank);
  static Duration Backlog(const Thread& thread);
  static bool Pending(const Rank& rank) {
    return std::any_of(rank.threads.begin(), rank.threads.end(),
                       [](const Thread& t) { return !t.queue.empty(); });
  }
  static uint64_t LaunchesOf(const Rank& rank);
  // Of a process whose one thread launches on its GPUs in turn: whether this one's is next.
  bool HasTurn(const Rank& rank) const;
  void Launch(Thread& thread);
  void StepRank(Rank& rank, const hook::Event& event);
  void LookFinished(Rank& rank);

  void Advance(Thread& thread);
  void CountUse(size_t g, PodId pod);
  void Finish(Thread& thread);

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

// On the GPU where it has least; 0: it had none at all.
inline double Least(const Shares& shares, PodId pod) {
  std::optional<double> least;
  for (const auto& [key, share] : shares) {
    if (key.first == pod) least = std::min(least.value_or(100), share);
  }
  return least.value_or(0);
}

// Unoptimised and under sanitizers a world takes twenty times as long.
#ifdef NDEBUG
inline constexpr uint64_t kWorlds = 20;
#else
inline constexpr uint64_t kWorlds = 1;
#endif

}  // namespace baton::scheduler

#endif  // BATON_TESTS_SCHEDULER_GANG_WORLD_H_
