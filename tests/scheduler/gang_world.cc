#include "tests/scheduler/gang_world.h"

#include <gtest/gtest.h>

#include "tests/scheduler/share_spec.h"

namespace baton::scheduler {

PodId GangWorld::Add(const PodPlan& plan) {
  const PodId id{++last_pod_};
  pods_[id] = plan;
  for (const size_t g : GpusOf(plan)) Step(g, SetOf(id, g));
  FormGang(id, {}, gpus_.size());
  Start(id);
  return id;
}

void GangWorld::Remove(PodId id) {
  const PodPlan plan = pods_.at(id);
  pods_.erase(id);
  if (GpusOf(plan).size() > 1) gangs_->Set(GangId{id.value}, {});
  for (const size_t g : GpusOf(plan)) Step(g, PodRemoved{AsPod(id, plan, g)});
}

void GangWorld::SetShare(PodId id, double request, double limit) {
  pods_.at(id).request = request;
  pods_.at(id).limit = limit;
  for (const size_t g : GpusOf(pods_.at(id))) Step(g, SetOf(id, g));
}

void GangWorld::Run(Duration length) {
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

std::map<std::pair<PodId, size_t>, double> GangWorld::SharesOver(Duration length) {
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

uint64_t GangWorld::Collectives(PodId pod) const {
  uint64_t least = ~uint64_t{0};
  for (const auto& rank : ranks_) {
    if (rank->pod != pod || !rank->alive) continue;
    for (const Thread& thread : rank->threads) least = std::min(least, thread.collectives_done);
  }
  return least;
}

uint64_t GangWorld::Launches(PodId pod) const {
  uint64_t least = ~uint64_t{0};
  for (const auto& rank : ranks_) {
    if (rank->pod == pod && rank->alive) least = std::min(least, LaunchesOf(*rank));
  }
  return least;
}

void GangWorld::StartAnew(PodId pod) {
  for (const auto& rank : ranks_) {
    if (rank->pod != pod || !rank->alive) continue;
    After(microseconds(Draw(0, 20'000)),
          [this, &r = *rank] { Kill(r, microseconds(Draw(0, 5'000))); });
  }
  After(milliseconds(Draw(20, 100)), [this, pod] {
    if (pods_.contains(pod)) Start(pod);
  });
}

void GangWorld::Disconnect(PodId pod, size_t which, Duration length) {
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

void GangWorld::CutLink(Duration length) {
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

void GangWorld::Restart(const std::set<size_t>& gpus) {
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
      if (GpusOf(plan).contains(g)) Step(g, SetOf(id, g));
    }
    for (const auto& [client, joined_at] : std::map(gpu.stored)) {
      const Rank& rank = *ranks_[client.value - 1];
      const PodId pod = AsPod(rank.pod, rank.plan, g);
      if (!pods_.contains(rank.pod)) Step(g, PodSet{pod, {}, false});  // deleted since
      Step(g, HolderRestored{client, pod, gpu.epoch, gpu.granted_at, joined_at,
                             charged_[{rank.pod, g}] - gpu.charged_before});
      if (!pods_.contains(rank.pod)) Step(g, PodRemoved{pod});
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

bool GangWorld::Asks(PodId pod, size_t) const {
  return std::any_of(ranks_.begin(), ranks_.end(), [&](const auto& rank) {
    return rank->pod == pod && rank->machine.phase() != wire::Phase::kIdle;
  });
}

bool GangWorld::Waits(PodId pod, size_t g) {
  for (const PodStatus& s : gpus_[g]->scheduler->Status(now_)) {
    if (Whole(s.pod) == pod) return s.waiting || s.holding;
  }
  return false;
}

Duration GangWorld::Held(PodId pod) {
  Duration least = Duration::max();
  for (const auto& gpu : gpus_) {
    for (const PodStatus& s : gpu->scheduler->Status(now_)) {
      if (Whole(s.pod) == pod) least = std::min(least, s.held);
    }
  }
  return least;
}

Duration GangWorld::Debt(PodId pod) {
  Duration most{0};
  for (const auto& gpu : gpus_) {
    for (const PodStatus& s : gpu->scheduler->Status(now_)) {
      if (Whole(s.pod) == pod) most = std::max(most, -s.lag);
    }
  }
  return most;
}

Duration GangWorld::LongestWait(PodId pod) const {
  Duration longest{0};
  for (const auto& rank : ranks_) {
    if (rank->pod != pod) continue;
    for (const Thread& t : rank->threads) longest = std::max(longest, t.longest_wait);
  }
  return longest;
}

PodSet GangWorld::SetOf(PodId id, size_t g) const {
  const PodPlan& plan = pods_.at(id);
  return {AsPod(id, plan, g), Spec(plan.request, plan.limit, plan.priority),
          GpusOf(plan).size() > 1};
}

void GangWorld::FormGang(PodId id, const std::set<size_t>& gpus, size_t last) {
  const std::set<size_t> all = GpusOf(pods_.at(id));
  std::vector<GangScheduler::Member> there;
  for (const size_t g : all) {
    if (g > last || (!gpus.empty() && !gpus.contains(g))) continue;
    there.push_back({AsPod(id, pods_.at(id), g), &*gpus_[g]->scheduler});
  }
  const bool complete = there.size() == all.size();
  if (all.size() > 1 && !there.empty()) {
    gangs_->Set(GangId{id.value}, std::move(there), complete);
  }
}

void GangWorld::Start(PodId id) {
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

GangWorld::Rank* GangWorld::Living(PodId pod, size_t which) {
  std::vector<Rank*> living;
  for (const auto& rank : ranks_) {
    if (rank->pod == pod && rank->alive) living.push_back(rank.get());
  }
  return living.empty() ? nullptr : living[which % living.size()];
}

void GangWorld::Kill(Rank& rank, Duration noticed) {
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

void GangWorld::Tend() {
  gangs_->Tend(now_, [this](const TokenScheduler& scheduler, const GangStep& step) {
    for (size_t i = 0; i < gpus_.size(); ++i) {
      if (&*gpus_[i]->scheduler == &scheduler) StepOne(i, step);
    }
  });
  ASSERT_EQ(gangs_->Invariants(), std::nullopt);
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

void GangWorld::StepOne(size_t g, const scheduler::Event& event) {
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
        gpu.charged_before = charged_[{Whole(store->pod), g}];
      }
      gpu.epoch = store->epoch;
      gpu.stored[store->client] = store->joined_at;
    } else if (std::holds_alternative<ClearHolders>(effect)) {
      gpu.stored.clear();
    } else if (const auto* charged = std::get_if<scheduler::Charged>(&effect)) {
      charged_[{Whole(charged->pod), g}] += charged->held;
    } else if (const auto* kill = std::get_if<KillClient>(&effect)) {
      After(microseconds(100),
            [this, &rank = *ranks_[kill->client.value - 1]] { Kill(rank, milliseconds(1)); });
    }
  }
  const uint64_t tick = ++gpu.tick;
  if (const Instant at = gpu.scheduler->wakeup(); at != kNever) {
    At(std::max(at, now_ + microseconds(1)), [this, g, tick] {
      if (tick == gpus_[g]->tick) Step(g, Tick{});
    });
  }
}

void GangWorld::Frame(const Rank& rank, const std::function<void()>& arrives) {
  if (cut_ || Draw(1, 100) <= faults.lost) return;
  const int64_t late = faults.late / microseconds(1);
  for (int copies = Draw(1, 100) <= faults.repeated ? 2 : 1; copies > 0; --copies) {
    After(microseconds(Draw(20, 120) + Draw(0, late)),
          [this, &rank, arrives, was = rank.generation] {
            if (!cut_ && was == rank.generation) arrives();
          });
  }
}

void GangWorld::CheckAccounts() {
  std::map<size_t, Duration> all;
  for (const auto& [key, held] : charged_) all[key.second] += held;
  for (const auto& [g, held] : all) EXPECT_LE(held, now_.time_since_epoch()) << "on GPU " << g;
}

void GangWorld::Connect(Rank& rank) {
  if (!rank.alive) return;
  if (rank.stopped_until > now_) {
    At(rank.stopped_until, [this, &rank] { Connect(rank); });
    return;
  }
  ++rank.generation;
  rank.connected = true;
  Step(rank.gpu, ClientAttached{rank.client, AsPod(rank.pod, rank.plan, rank.gpu)});
  hook::Event attached{.kind = hook::EventKind::kAttached};
  attached.attached.backlog_ns = static_cast<uint64_t>(options_.backlog.count());
  attached.attached.heartbeat_ns = 100'000'000;
  attached.attached.idle_ns = 1'000'000;
  attached.attached.gang = GpusOf(rank.plan).size() > 1;
  StepRank(rank, attached);
  for (Thread& thread : rank.threads) Launch(thread);
}

Duration GangWorld::Backlog(const Thread& thread) {
  Duration sum{0};
  for (const Kernel& k : thread.queue) sum += k.length;
  return sum;
}

uint64_t GangWorld::LaunchesOf(const Rank& rank) {
  uint64_t sum = 0;
  for (const Thread& thread : rank.threads) sum += thread.launches;
  return sum;
}

bool GangWorld::HasTurn(const Rank& rank) const {
  if (!rank.plan.one_process) return true;
  return std::all_of(ranks_.begin(), ranks_.end(), [&](const auto& peer) {
    if (peer->job != rank.job || !peer->alive) return true;
    const uint64_t ahead = peer->client < rank.client ? 1 : 0;
    return LaunchesOf(*peer) >= LaunchesOf(rank) + ahead;
  });
}

void GangWorld::Launch(Thread& thread) {
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
      ADD_FAILURE() << "pod " << rank.pod.value << " launches on GPU " << rank.gpu << " beside pod "
                    << other->pod.value << " at " << now_.time_since_epoch().count();
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

void GangWorld::StepRank(Rank& rank, const hook::Event& event) {
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

void GangWorld::LookFinished(Rank& rank) {
  if (!rank.watch || Pending(rank)) return;
  After(microseconds(Draw(5, 50)), [this, &rank] {
    if (rank.watch && !Pending(rank)) StepRank(rank, {.kind = hook::EventKind::kFinished});
  });
}

void GangWorld::Advance(Thread& thread) {
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

void GangWorld::CountUse(size_t g, PodId pod) {
  Gpu& gpu = *gpus_[g];
  if (gpu.pending > 0) used_[{pod, g}] += now_ - gpu.counted;  // a collective that waits spins
  gpu.counted = now_;
}

void GangWorld::Finish(Thread& thread) {
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

}  // namespace baton::scheduler
