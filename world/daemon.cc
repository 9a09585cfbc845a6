#include "world/daemon.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace baton::world {

using std::chrono::milliseconds;

namespace {
// No world lasts for so many tokens.
constexpr uint64_t kEpochMost = uint64_t{1} << 31;
// A tick that is due at once may be late by a few, never by so many without anything done.
constexpr uint32_t kOverdueTicksMax = 10'000;
}  // namespace

Daemon::Daemon(WorldState& world, const Gpus& gpus, Links& links, Node& node, Laws& laws)
    : world_(world), gpus_(gpus), links_(links), node_(node), laws_(laws) {
  gangs_.emplace(world.options.scheduler);
  for (Site& site : world.sites) {
    site.scheduler = std::make_unique<scheduler::TokenScheduler>(world.options.scheduler, 0);
  }
}

void Daemon::AddPod(size_t pod) {
  SetShare(pod);
  FormGang(pod);
}

void Daemon::SetShare(size_t pod) {
  for (const uint32_t g : world_.plan.pods[pod].gpus) SetPod(pod, g);
}

void Daemon::SetPod(size_t pod, uint32_t g, Instant limit_full_at) {
  const PodState& state = world_.pods[pod];
  Step(g, scheduler::PodSet{world_.IdOf(pod), state.spec, world_.IsGang(pod) && state.present,
                            limit_full_at});
}

void Daemon::FormGang(size_t pod) {
  if (!world_.IsGang(pod)) return;
  const Gang& gang = world_.GangOf(pod);
  std::vector<scheduler::GangScheduler::Member> members;
  bool complete = true;
  for (const auto& [other, g] : gang.places) {
    complete &= world_.pods[other].arrived && world_.sites[g].heard;
    if (!world_.pods[other].present || !world_.sites[g].heard) continue;
    members.push_back({world_.IdOf(other), world_.sites[g].scheduler.get()});
  }
  gangs_->Set(gang.id, std::move(members), complete);
}

void Daemon::FormGangs() {
  for (size_t i = 0; i < world_.pods.size(); ++i) {
    if (world_.pods[i].present) FormGang(i);
  }
}

void Daemon::RemovePod(size_t pod) {
  if (!down_) FormGang(pod);
  for (const uint32_t g : world_.plan.pods[pod].gpus) {
    Step(g, scheduler::PodRemoved{world_.IdOf(pod)});
  }
}

void Daemon::Attach(const Process& p) {
  Step(p.gpu, scheduler::ClientAttached{WorldState::ClientOf(p), world_.IdOf(p.pod), true});
}

void Daemon::Detach(const Process& p, Instant heard_at) {
  Step(p.gpu, scheduler::ClientDisconnected{WorldState::ClientOf(p), heard_at});
}

void Daemon::Hear(Process& p, const wire::State& state, const scheduler::Measured& measured,
                  Duration age) {
  if (down_) return;
  const ClientId client = WorldState::ClientOf(p);
  p.said_ns = std::max(p.said_ns, state.held_ns);
  Step(p.gpu, scheduler::ReportOf(client, state, measured, age, p.settled_ns));
  if (!world_.sites[p.gpu].scheduler->Holds(client, state.epoch)) {
    p.settled_ns = std::max(p.settled_ns, state.held_ns);
  }
  p.restored = false;
}

void Daemon::CutLink(bool cut) {
  for (uint32_t g = 0; g < world_.sites.size(); ++g) Step(g, scheduler::LinkCut{cut});
}

void Daemon::Gone(Process& p, const Node::Held& held) {
  if (!down_) SayGone(p, held);
}

void Daemon::SayGone(Process& p, const Node::Held& held) {
  // What it used while nobody watched, nobody can tell.
  if (p.restored) {
    Account& account = world_.AccountOf(p);
    account.unseen += std::max(account.used - account.held - account.unseen, Duration(0));
    account.unseen += outages_;  // taken back, where it was charged meanwhile
  }
  Step(p.gpu, scheduler::ClientGone{WorldState::ClientOf(p), held.epoch, held.held});
}

void Daemon::Step(uint32_t g, const scheduler::Event& event) {
  if (!Hears(g)) return;
  StepOne(g, event);
  if (!gangs_->empty()) TendGangs();
}

void Daemon::StepOne(uint32_t g, const scheduler::Event& event) {
  Site& site = world_.sites[g];
  effects_.clear();
  site.scheduler->Step(world_.now, event, effects_);
  for (const scheduler::Effect& effect : effects_) {
    if (const auto* store = std::get_if<scheduler::StoreHolder>(&effect)) {
      Store(g, *store);
    } else if (const auto* next = std::get_if<scheduler::StoreNext>(&effect)) {
      if (!site.next.empty() && site.next.front().epoch != next->epoch) site.next.clear();
      site.next.push_back(*next);
    } else if (const auto* charged = std::get_if<scheduler::Charged>(&effect)) {
      Account& account = world_.pods[world_.IndexOf(charged->pod)].accounts[g];
      account.held += charged->held;
      account.limit_full_at = charged->limit_full_at;
      site.held += charged->held;
    } else if (const auto* settled = std::get_if<scheduler::Settled>(&effect)) {
      Process& p = world_.ProcessOf(settled->client);
      p.settled_ns = std::max(p.settled_ns, p.said_ns);
    } else if (std::holds_alternative<scheduler::ClearHolders>(effect)) {
      ReportHold(g);
      site.stored.clear();
      laws_.CheckBook(g);
    } else if (const auto* send = std::get_if<scheduler::SendToken>(&effect)) {
      // Sent after this step, as an event loop does; the order between frames stays.
      Send(*send);
    } else if (const auto* kill = std::get_if<scheduler::KillClient>(&effect)) {
      world_.After(Duration(0), What::kKill, world_.ProcessOf(kill->client).index);
    }
  }
  if (world_.options.invariants) {
    if (const auto wrong = site.scheduler->Invariants()) world_.Violation("invariant", *wrong);
  }
  laws_.AfterStep(g);
  QueueTick(site.scheduler->wakeup(), site.tick_queued, g);
}

void Daemon::Store(uint32_t g, const scheduler::StoreHolder& holder) {
  Site& site = world_.sites[g];
  if (site.stored.empty()) {
    Account& account = world_.pods[world_.IndexOf(holder.pod)].accounts[g];
    site.granted_at = holder.joined_at;
    account.hold_base = account.held;
    ++account.grants;
    ++world_.verdict.grants;
  }
  site.granted_at = std::min(site.granted_at, holder.joined_at);
  if (holder.epoch > kEpochMost) {
    world_.Violation("epoch",
                     "a client's claim has moved the epochs to " + std::to_string(holder.epoch));
  }
  site.stored_epoch = holder.epoch;
  const auto same = [&](const scheduler::StoreHolder& h) { return h.client == holder.client; };
  const auto stored = std::find_if(site.stored.begin(), site.stored.end(), same);
  if (stored != site.stored.end()) {
    *stored = holder;
  } else {
    site.stored.push_back(holder);
  }
  world_.Trace(holder.client.value, holder.epoch);
}

void Daemon::Send(const scheduler::SendToken& send) {
  Process& p = world_.ProcessOf(send.client);
  if (!p.connected) return;
  wire::Token token;
  token.epoch = send.epoch;
  token.rev = send.rev;
  token.quota_ns = static_cast<uint64_t>(Nanos(send.quota));
  token.contended = send.contended;
  token.after_client = send.after.client.value;
  token.after_epoch = send.after.epoch;
  token.after_rev = send.after.rev;
  if (!world_.plan.relay && !node_.Pass(p, token)) return;
  links_.ToClient(p, token);
}

void Daemon::TendGangs() {
  gangs_->Tend(world_.now,
               [this](const scheduler::TokenScheduler& gpu, const scheduler::GangStep& step) {
                 for (uint32_t g = 0; g < world_.sites.size(); ++g) {
                   if (world_.sites[g].scheduler.get() == &gpu) StepOne(g, step);
                 }
               });
  if (world_.options.invariants) {
    if (const auto wrong = gangs_->Invariants()) world_.Violation("invariant", *wrong);
  }
  // While a link is cut it may be due all the time.
  const Instant wakeup = gangs_->wakeup();
  QueueTick(wakeup <= world_.now ? world_.now + milliseconds(1) : wakeup, gangs_queued_, kGangs);
}

// One event at a time sees to a scheduler's timer, or to that of the gangs'.
void Daemon::QueueTick(Instant wakeup, Instant& queued, uint32_t whose) {
  if (wakeup >= queued) return;
  overdue_ticks_ = wakeup <= world_.now ? overdue_ticks_ + 1 : 0;
  if (overdue_ticks_ > kOverdueTicksMax) {
    world_.Violation("spin", "a scheduler has been due " + std::to_string(overdue_ticks_) +
                                 " times in a row, and does nothing");
  }
  queued = std::max(wakeup, world_.now + Duration(1));
  world_.At(queued, What::kTick, whose);
}

void Daemon::Tick(uint32_t whose, Instant at) {
  const bool gangs = whose == kGangs;
  Instant& queued = gangs ? gangs_queued_ : world_.sites[whose].tick_queued;
  if (at != queued) return;
  queued = kNever;
  if (down_) return;
  const Instant wakeup = gangs ? gangs_->wakeup() : world_.sites[whose].scheduler->wakeup();
  if (wakeup > world_.now) return QueueTick(wakeup, queued, whose);
  if (gangs) {
    ++gang_wakeups_;
    return TendGangs();
  }
  Step(whose, scheduler::Tick{});
}

void Daemon::ReportHold(uint32_t g) const {
  const Site& site = world_.sites[g];
  if (!world_.options.on_hold || site.stored.empty()) return;
  world_.options.on_hold({g, static_cast<uint32_t>(site.stored.front().pod.value),
                          site.granted_at - Instant{}, world_.now - Instant{}});
}

void Daemon::Stop(Duration away) {
  down_ = true;
  node_.LoseDaemon();
  // What is charged while a hold goes on may be older than this by a token.
  outages_ += away + world_.options.scheduler.quota_max;
}

void Daemon::ComeBack(const std::vector<uint32_t>& of) {
  down_ = false;
  ++world_.restarts;
  gangs_.emplace(world_.options.scheduler);
  gangs_queued_ = kNever;
  for (Site& site : world_.sites) {
    // The next token is void once it has been stored as the present one.
    if (!site.next.empty() && site.next.front().epoch <= site.stored_epoch) site.next.clear();
    site.scheduler =
        std::make_unique<scheduler::TokenScheduler>(world_.options.scheduler, site.stored_epoch);
    site.tick_queued = kNever;
    site.heard = of.empty();
  }
  for (uint32_t g = 0; g < world_.sites.size() && of.empty(); ++g) Restore(g);
  for (const uint32_t g : of) {
    world_.sites[g].heard = true;
    Restore(g);
    // A gang that holds here claims its other GPUs as soon as they are heard of.
    FormGangs();
  }
  FormGangs();
  if (!gangs_->empty()) TendGangs();
}

void Daemon::Restore(uint32_t g) {
  const Site& site = world_.sites[g];
  const std::vector<scheduler::StoreHolder> holders = site.stored;
  const std::vector<scheduler::StoreNext> next = site.next;
  const auto is_of = [this](size_t i) {
    return [this, i](const auto& h) { return h.pod == world_.IdOf(i); };
  };
  for (size_t i = 0; i < world_.pods.size(); ++i) {
    const PodState& pod = world_.pods[i];
    const bool held = std::any_of(holders.begin(), holders.end(), is_of(i)) ||
                      std::any_of(next.begin(), next.end(), is_of(i));
    if (pod.accounts[g].here && (pod.present || held)) SetPod(i, g, pod.accounts[g].limit_full_at);
  }
  for (const scheduler::StoreHolder& holder : holders) {
    const Account& account = world_.pods[world_.IndexOf(holder.pod)].accounts[g];
    Step(g, scheduler::HolderRestored{holder.client, holder.pod, holder.epoch, site.granted_at,
                                      holder.joined_at, account.held - account.hold_base});
  }
  for (const scheduler::StoreNext& one : next) {
    Step(g, scheduler::HolderRestored{one.client, one.pod, one.epoch, one.sent_at, one.sent_at,
                                      Duration(0), true});
  }
  const auto look = [&](const auto& holder) {
    Process& p = world_.ProcessOf(holder.client);
    p.restored = true;
    if (!world_.pods[p.pod].present) Step(g, scheduler::PodRemoved{holder.pod});
    if (!p.alive && gpus_.PendingOf(p) == 0) SayGone(p);
  };
  for (const scheduler::StoreHolder& holder : holders) look(holder);
  for (const scheduler::StoreNext& one : next) look(one);
}

}  // namespace baton::world
