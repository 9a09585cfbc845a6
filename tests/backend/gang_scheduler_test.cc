// Gangs against singles and each other, on virtual time: the real schedulers and the real hook
// machine, over GPUs where a collective ends only once every rank of its gang has come to it.
#include "backend/gang_scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
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
  std::vector<size_t> gpus{0};
  Duration kernel = milliseconds(1);
  int collective_every = 0;  // kernels; 0: its ranks do not wait for each other
  Duration pause{0};         // after each collective, of one rank after the other
  policy::Priority priority = policy::Priority::kLow;
};

class GangWorld {
 public:
  explicit GangWorld(size_t gpus, uint64_t seed = 1, SchedulerOptions options = {})
      : options_(options), gangs_(std::in_place, options), random_(seed) {
    for (size_t i = 0; i < gpus; ++i) gpus_.push_back(std::make_unique<Gpu>(options));
  }

  PodId Add(const PodPlan& plan) {
    const PodId id{++last_pod_};
    policy::ShareSpec spec{.request = static_cast<policy::Share>(plan.request * 10'000),
                           .limit = static_cast<policy::Share>(plan.limit * 10'000),
                           .priority = plan.priority};
    std::vector<TokenScheduler*> schedulers;
    for (const size_t g : plan.gpus) {
      Step(g, PodSet{id, policy::Validated(spec).value(), plan.gpus.size() > 1});
      schedulers.push_back(&*gpus_[g]->scheduler);
    }
    if (plan.gpus.size() > 1) gangs_->Add(id, schedulers);
    for (const size_t g : plan.gpus) {
      ranks_.push_back(std::make_unique<Rank>());
      Rank& rank = *ranks_.back();
      rank.client = ClientId{ranks_.size()};
      rank.pod = id;
      rank.gpu = g;
      rank.plan = plan;
      rank.machine = hook::ClientMachine(hook::ClientOptions{}, now_);
      After(microseconds(Draw(1, 5'000)), [this, &rank] { Connect(rank); });
    }
    return id;
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
      if (rank->pod == pod) least = std::min(least, rank->collectives_done);
    }
    return least;
  }
  void Kill(PodId pod, size_t which) {
    for (const auto& rank : ranks_) {
      if (rank->pod != pod || which-- != 0) continue;
      rank->alive = false;
      Gpu& gpu = *gpus_[rank->gpu];
      std::erase_if(gpu.queue, [&](const Kernel& k) { return k.rank == rank.get(); });
      gpu.running = false;
      ++gpu.timer;
      Advance(rank->gpu);
      Step(rank->gpu, ClientGone{rank->client});
      return;
    }
  }
  // The daemon ends, and another one starts with what was stored.
  void Restart() {
    gangs_.emplace(options_);
    for (const auto& gpu : gpus_) gpu->scheduler.emplace(options_, gpu->scheduler->epoch());
    for (const auto& rank : ranks_) rank->generation++;
    std::map<PodId, std::vector<TokenScheduler*>> gangs;
    std::set<std::pair<PodId, size_t>> known;
    for (const auto& rank : ranks_) {
      if (!known.insert({rank->pod, rank->gpu}).second) continue;
      policy::ShareSpec spec{.request = static_cast<policy::Share>(rank->plan.request * 10'000),
                             .limit = static_cast<policy::Share>(rank->plan.limit * 10'000)};
      const bool gang = rank->plan.gpus.size() > 1;
      Step(rank->gpu, PodSet{rank->pod, policy::Validated(spec).value(), gang});
      if (gang) gangs[rank->pod].push_back(&*gpus_[rank->gpu]->scheduler);
    }
    for (const auto& [client, store] : stored_) {
      const Rank& rank = *ranks_[client.value - 1];
      Step(rank.gpu, HolderRestored{client, rank.pod, store.epoch, store.joined_at, store.joined_at,
                                    Duration(0)});
    }
    for (auto& [pod, gpus] : gangs) gangs_->Add(pod, gpus);
    for (const auto& rank : ranks_) {
      if (rank->alive) After(milliseconds(Draw(1, 50)), [this, &r = *rank] { Connect(r); });
    }
  }
  uint64_t Grants(size_t g) const { return gpus_[g]->grants; }
  // Charged since the beginning, on the GPU where it is least.
  Duration Held(PodId pod) {
    Duration least = Duration::max();
    for (const auto& gpu : gpus_) {
      for (const PodStatus& s : gpu->scheduler->Status(now_)) {
        if (s.pod == pod) least = std::min(least, s.held);
      }
    }
    return least;
  }
  // From a launch that finds the gate closed to the gate open.
  Duration LongestWait(PodId pod) const {
    Duration longest{0};
    for (const auto& rank : ranks_) {
      if (rank->pod == pod) longest = std::max(longest, rank->longest_wait);
    }
    return longest;
  }

  int overlaps = 0;

 private:
  struct Rank {
    ClientId client;
    PodId pod;
    size_t gpu = 0;
    PodPlan plan;
    hook::ClientMachine machine;
    bool alive = true;
    bool open = false;
    bool watch = false;
    bool parked = false;
    bool pacing = false;
    Instant parked_at{};
    Duration longest_wait{0};
    bool paused = false;
    bool waking = false;
    uint64_t generation = 0;  // of its connection
    uint64_t timer = 0;
    uint64_t launches = 0;
    uint64_t collectives = 0;     // launched
    uint64_t collectives_at = 0;  // come to the head of the queue
    uint64_t collectives_done = 0;
  };
  struct Kernel {
    Rank* rank;
    Duration length;
    uint64_t collective = 0;  // 0: none
  };
  struct Gpu {
    explicit Gpu(const SchedulerOptions& options) { scheduler.emplace(options, 0); }
    std::optional<TokenScheduler> scheduler;
    std::deque<Kernel> queue;
    bool running = false;  // the head
    Instant began{};       // the head came to the head
    uint64_t timer = 0;
    uint64_t tick = 0;
    uint64_t grants = 0;
    uint64_t epoch = 0;
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

  // ------------------------------------------------------------------------------- the daemon
  void Step(size_t g, const backend::Event& event) {
    StepOne(g, event);
    gangs_->Tend(now_, [this](const TokenScheduler& scheduler, const GangStep& step) {
      for (size_t i = 0; i < gpus_.size(); ++i) {
        if (&*gpus_[i]->scheduler == &scheduler) StepOne(i, step);
      }
    });
    const uint64_t timer = ++gang_timer_;
    if (const Instant at = gangs_->wakeup(); at != kNever) {
      At(std::max(at, now_ + microseconds(1)), [this, timer] {
        if (timer == gang_timer_) Step(0, Tick{});
      });
    }
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
        After(microseconds(Draw(20, 120)), [this, &rank, token, was = rank.generation] {
          if (was == rank.generation) StepRank(rank, token);
        });
      } else if (const auto* store = std::get_if<StoreHolder>(&effect)) {
        stored_[store->client] = *store;
        if (gpu.epoch != store->epoch) ++gpu.grants;
        gpu.epoch = store->epoch;
      } else if (const auto* clear = std::get_if<ClearHolders>(&effect)) {
        std::erase_if(stored_, [&](const auto& s) {
          return ranks_[s.first.value - 1]->gpu == g && s.second.epoch <= clear->epoch;
        });
      }
    }
    const uint64_t tick = ++gpu.tick;
    if (const Instant at = gpu.scheduler->wakeup(); at != kNever) {
      At(std::max(at, now_ + microseconds(1)), [this, g, tick] {
        if (tick == gpus_[g]->tick) Step(g, Tick{});
      });
    }
  }

  // -------------------------------------------------------------------------------- a process
  void Connect(Rank& rank) {
    Step(rank.gpu, ClientAttached{rank.client, rank.pod});
    hook::Event attached{.kind = hook::EventKind::kAttached};
    attached.attached.backlog_ns = static_cast<uint64_t>(options_.backlog.count());
    attached.attached.heartbeat_ns = 100'000'000;
    attached.attached.idle_ns = 1'000'000;
    attached.attached.gang = rank.plan.gpus.size() > 1;
    StepRank(rank, attached);
    Launch(rank);
  }
  Duration Backlog(const Rank& rank) const {
    Duration sum{0};
    for (const Kernel& k : gpus_[rank.gpu]->queue) {
      if (k.rank == &rank) sum += k.length;
    }
    return sum;
  }
  bool Pending(const Rank& rank) const {
    const auto& queue = gpus_[rank.gpu]->queue;
    return std::any_of(queue.begin(), queue.end(),
                       [&](const Kernel& k) { return k.rank == &rank; });
  }
  void Launch(Rank& rank) {
    if (!rank.alive || rank.paused) return;
    while (true) {
      if (!rank.open) {
        if (rank.parked) return;
        rank.parked = true;
        rank.parked_at = now_;
        StepRank(rank, {.kind = hook::EventKind::kParked});
        if (!rank.open) return;
      }
      if (rank.parked) rank.longest_wait = std::max(rank.longest_wait, now_ - rank.parked_at);
      rank.parked = false;
      rank.pacing = Backlog(rank) > rank.machine.backlog_bound();
      if (rank.pacing) return;
      Gpu& gpu = *gpus_[rank.gpu];
      if (!gpu.queue.empty() && gpu.queue.front().rank->pod != rank.pod) {
        ++overlaps;
        ADD_FAILURE() << "pod " << rank.pod.value << " launches on GPU " << rank.gpu
                      << " beside pod " << gpu.queue.front().rank->pod.value;
        return;
      }
      ++rank.launches;
      Kernel kernel{&rank, rank.plan.kernel * Draw(70, 130) / 100, 0};
      const int every = rank.plan.collective_every;
      if (every != 0 && rank.launches % static_cast<uint64_t>(every) == 0) {
        kernel.collective = ++rank.collectives;
        kernel.length = microseconds(20);
      }
      if (gpu.queue.empty()) gpu.began = now_;
      gpu.queue.push_back(kernel);
      Advance(rank.gpu);
      if (rank.machine.single()) StepRank(rank, {});
      if (kernel.collective != 0 && rank.plan.pause > Duration(0)) {
        rank.paused = true;
        After(rank.plan.pause * Draw(50, 150) / 100, [this, &rank] {
          rank.paused = false;
          Launch(rank);
        });
        return;
      }
    }
  }
  void StepRank(Rank& rank, const hook::Event& event) {
    if (!rank.alive) return;
    hook::Observation seen;
    seen.launches = rank.launches;
    seen.backlog = Backlog(rank);
    seen.longest = rank.plan.kernel * 13 / 10;
    seen.parked = rank.parked ? 1 : 0;
    seen.pacing = rank.pacing ? 1 : 0;
    const hook::Effects effects = rank.machine.Step(now_, event, seen);
    if (effects.send) {
      const wire::State s = effects.state;
      After(microseconds(Draw(20, 120)), [this, &rank, s, was = rank.generation] {
        if (!rank.alive || was != rank.generation) return;
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
    if (opened) After(microseconds(Draw(3, 40)), [this, &rank] { Launch(rank); });
    LookFinished(rank);
  }
  void LookFinished(Rank& rank) {
    if (!rank.watch || Pending(rank)) return;
    After(microseconds(Draw(5, 50)), [this, &rank] {
      if (rank.watch && !Pending(rank)) StepRank(rank, {.kind = hook::EventKind::kFinished});
    });
  }

  // ----------------------------------------------------------------------------------- a GPU
  void Advance(size_t g) {
    Gpu& gpu = *gpus_[g];
    if (gpu.running || gpu.queue.empty()) return;
    Kernel& head = gpu.queue.front();
    if (head.collective != 0) {
      head.rank->collectives_at = head.collective;
      for (const auto& peer : ranks_) {
        if (peer->pod == head.rank->pod && peer->collectives_at < head.collective) return;
      }
      gpu.running = true;
      for (const auto& peer : ranks_) {
        if (peer->pod == head.rank->pod && peer->gpu != g) Advance(peer->gpu);
      }
    }
    gpu.running = true;
    const uint64_t timer = ++gpu.timer;
    After(head.length, [this, g, timer] {
      if (timer == gpus_[g]->timer) Finish(g);
    });
  }
  void Finish(size_t g) {
    Gpu& gpu = *gpus_[g];
    const Kernel done = gpu.queue.front();
    gpu.queue.pop_front();
    gpu.running = false;
    used_[{done.rank->pod, g}] += now_ - gpu.began;  // a collective that waits spins
    gpu.began = now_;
    if (done.collective != 0) ++done.rank->collectives_done;
    Advance(g);
    Rank& rank = *done.rank;
    if (!rank.alive) return;
    // A thread that waits for its backlog has to be woken.
    if (!rank.waking) {
      rank.waking = true;
      After(microseconds(Draw(20, 80)), [this, &rank] {
        rank.waking = false;
        Launch(rank);
      });
    }
    LookFinished(rank);
  }

  SchedulerOptions options_;
  std::optional<GangScheduler> gangs_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<Gpu>> gpus_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::map<ClientId, StoreHolder> stored_;
  std::map<std::pair<PodId, size_t>, Duration> used_;
  std::priority_queue<Event> events_;
  Instant now_{};
  uint64_t order_ = 0;
  uint64_t last_pod_ = 0;
  uint64_t gang_timer_ = 0;
};

using Shares = std::map<std::pair<PodId, size_t>, double>;

double Least(const Shares& shares, PodId pod) {
  double least = 100;
  for (const auto& [key, share] : shares) {
    if (key.first == pod) least = std::min(least, share);
  }
  return least;
}

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
  for (uint64_t seed = 1; seed <= 20; ++seed) {
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
  const uint64_t first = fresh();
  for (uint64_t i = 0; i < 40; ++i) {
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
      bool gang;
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
                      request, true});
    }
    for (size_t g = 0; g < gpus; ++g) {
      if (draw(0, 2) == 0) continue;
      pods.push_back(
          {world.Add(
               {.request = room[g] - 5, .gpus = {g}, .kernel = microseconds(draw(20, 10'000))}),
           room[g] - 5, false});
    }
    world.Run(seconds(2));
    const Shares shares = world.SharesOver(seconds(8));
    for (const Expected& e : pods) {
      SCOPED_TRACE(testing::Message() << "pod " << e.pod.value << " with request " << e.request);
      // A gang is charged for the time that its ranks wait for each other to begin and to end.
      EXPECT_GT(Least(shares, e.pod), e.gang ? 0.6 * e.request : e.request);
      EXPECT_GT(world.Held(e.pod), e.request / 100 * seconds(10) - milliseconds(200));
    }
  }
}

}  // namespace
}  // namespace baton::backend
