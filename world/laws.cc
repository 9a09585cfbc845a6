#include "world/laws.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace baton::world {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kShareWindow = seconds(10);
constexpr Duration kShareStep = milliseconds(10);
// Everybody has arrived by then.
constexpr Duration kSettled = seconds(2);

double InNs(Duration d) { return static_cast<double>(Nanos(d)); }

}  // namespace

Laws::Laws(WorldState& world, const Node& node)
    : world_(world), node_(node), scheduler_(world.options.scheduler), gpus_(world.plan.gpus) {
  const Plan& plan = world.plan;
  calm_ = (world.options.bounds || world.options.measure) && plan.faults.empty();
  fair_ = true;
  for (size_t i = 0; i < plan.pods.size(); ++i) {
    const PodPlan& pod = plan.pods[i];
    gangs_here_ |= world.IsGang(i);
    hostile_here_ |= pod.hostile;
    fair_ &= pod.arrives == Duration(0) && pod.leaves >= plan.length;
    for (const uint32_t g : pod.gpus) {
      gpus_[g].longest_kernel =
          std::max(gpus_[g].longest_kernel, pod.LongestKernel() * pod.processes);
    }
  }
  calm_ &= !gangs_here_ && !hostile_here_;
  fair_ &= calm_;
  uint32_t kinds = 0;
  for (const FaultPlan& fault : plan.faults) kinds |= fault.kind;
  const uint32_t ends = kinds & ~static_cast<uint32_t>(kResizes);
  const bool one = ends == 0 || ends == kRelays || ends == kRestarts;
  measured_ = plan.relay && !hostile_here_ && one;
  for (WatchedGpu& gpu : gpus_) gpu.pods.resize(plan.pods.size());
}

void Laws::Begin() {
  if (world_.options.bounds) world_.At(Instant(world_.plan.calm_from), What::kLiveness);
  if (fair_) PrepareShares();
}

// L: what a token can last, with the longest kernel of each process that may run beyond it.
Duration Laws::Longest(uint32_t g) const {
  return scheduler_.quota_max + gpus_[g].longest_kernel + scheduler_.backlog + milliseconds(2);
}

// M, by this L.
Duration Laws::MustGo(uint32_t g) const {
  return std::max(scheduler_.fairness.guarantee_bound, 2 * Longest(g));
}

void Laws::CheckFairness(uint32_t g) {
  const StatusList pods = world_.sites[g].scheduler->Status(world_.now);
  CheckIdle(g, pods);
  if (fair_) CheckLags(g, pods);
  CheckRequests(g, pods);
}

// A pod of idle priority has the GPU while nobody else could use it, and is gone one kernel and 2
// ms after somebody could.
void Laws::CheckIdle(uint32_t g, const StatusList& pods) {
  const scheduler::PodStatus* holder = nullptr;
  const scheduler::PodStatus* first = nullptr;
  for (const scheduler::PodStatus& s : pods) {
    const bool idle = s.spec.priority == policy::Priority::kIdle;
    if (idle && s.holding) holder = &s;
    if (!idle && s.waiting && !s.throttled) first = &s;
  }
  WatchedGpu& gpu = gpus_[g];
  if (holder == nullptr || first == nullptr) {
    gpu.keeps_others_since = kNever;
    return;
  }
  if (gpu.keeps_others_since == kNever) gpu.keeps_others_since = world_.now;
  const Duration kept = world_.now - gpu.keeps_others_since;
  const PodPlan& plan = world_.plan.pods[world_.IndexOf(holder->pod)];
  // Frames take up to 0.3 ms each way.
  if (kept > plan.LongestKernel() * plan.processes + milliseconds(3)) {
    world_.Violation("idle", world_.Name(world_.IndexOf(holder->pod)) + " has kept the GPU from " +
                                 world_.Name(world_.IndexOf(first->pod)) + " for " +
                                 FormatSeconds(kept));
  }
}

bool Laws::Steady(size_t pod) const {
  const policy::ShareSpec& spec = world_.pods[pod].spec;
  return world_.plan.pods[pod].burst == Duration(0) && spec.limit == policy::kWhole &&
         spec.priority != policy::Priority::kIdle;
}

// A steady saturating pod without a limit is never more than 2 L behind its due (L where no hold is
// longer than predicted, which bursts that begin anew are) and what high-priority pods, and those
// who were far below their requests, have taken early; and never further ahead than that, its own
// priority's burst, M where its request let it go first, and what those have saved up who pause or
// are at their limit. Who returns from sleep is owed no more than its credit. And no steady pod is
// ever far below its request, whoever comes, goes, naps or goes first.
void Laws::CheckLags(uint32_t g, const StatusList& pods) {
  const double l = InNs(Longest(g));
  const double burst = InNs(scheduler_.fairness.priority_burst) / l;
  // As docs/policy.md has it: who is owed M must go, and with half of it is not cut.
  const double due = InNs(MustGo(g));
  double saved = 0;
  double early = 0;
  for (const scheduler::PodStatus& s : pods) {
    if (s.spec.priority == policy::Priority::kIdle) continue;
    const size_t pod = world_.IndexOf(s.pod);
    const double lag = InNs(s.lag) / l;
    // What it took then it is ahead by until the others have caught up.
    bool& went_first = gpus_[g].pods[pod].went_first;
    went_first = InNs(s.owed_of_request) > due / 2 || (went_first && lag < 0);
    // So is one that went first by its latency, which is within its request.
    const bool first = s.spec.priority == policy::Priority::kHigh || s.spec.latency > Duration(0);
    if (first || went_first) early += std::max(0.0, -lag);
    if (!Steady(pod)) saved += std::max(0.0, lag);
    bool& was_active = gpus_[g].pods[pod].was_active;
    if (world_.options.bounds && s.fluid != policy::Share(0) && !was_active) CheckCredit(pod, g, s);
    was_active = s.fluid != policy::Share(0);
  }
  if (world_.now < Instant(kSettled)) return;
  Verdict& verdict = world_.verdict;
  for (const scheduler::PodStatus& s : pods) {
    const size_t pod = world_.IndexOf(s.pod);
    if (!Steady(pod)) continue;
    const double owed = InNs(s.lag) / l;
    double own = s.spec.priority == policy::Priority::kHigh ? burst : 0;
    if (gpus_[g].pods[pod].went_first) own += due / l;
    if (s.spec.latency > Duration(0)) own += 1;
    const double lag = std::max(0.0, owed < 0 ? -owed - saved - own : owed - early);
    if (world_.options.bounds && lag > world_.options.lag_bound) {
      world_.Violation("lag", world_.Name(pod) + " is " + std::to_string(lag) + " L from its due");
    }
    verdict.worst_lag = std::max(verdict.worst_lag, lag);
    verdict.lag_low = std::min(verdict.lag_low, owed);
    verdict.lag_high = std::max(verdict.lag_high, owed);
  }
}

void Laws::CheckRequests(uint32_t g, const StatusList& pods) {
  if (!world_.options.bounds || world_.now < Instant(kSettled)) return;
  const Duration most = MustGo(g) + Longest(g);
  for (const scheduler::PodStatus& s : pods) {
    const size_t pod = world_.IndexOf(s.pod);
    if (!Steady(pod) || s.owed_of_request <= most) continue;
    world_.Violation("request", world_.Name(pod) + " is owed " + FormatSeconds(s.owed_of_request) +
                                    " of its request alone, more than " + FormatSeconds(most));
  }
}

// Its request times sleep_credit, and its part of the hold in progress, which is charged as a
// whole.
void Laws::CheckCredit(size_t pod, uint32_t g, const scheduler::PodStatus& s) {
  const double credit = policy::Ratio(s.spec.request) * InNs(scheduler_.fairness.sleep_credit) +
                        policy::Ratio(s.fluid) * InNs(Longest(g));
  if (InNs(s.lag) > credit + 1e3) {
    world_.Violation("credit", world_.Name(pod) + " returns from sleep with a credit of " +
                                   FormatSeconds(s.lag) + ", more than its request allows");
  }
}

// On the GPUs all of whose pods always have work, and no limit and no priority.
void Laws::PrepareShares() {
  for (uint32_t g = 0; g < gpus_.size(); ++g) {
    std::vector<policy::Entitlement> all;
    bool steady = true;
    for (size_t i = 0; i < world_.pods.size(); ++i) {
      if (!world_.pods[i].accounts[g].here) continue;
      const policy::ShareSpec& spec = world_.pods[i].spec;
      if (spec.priority == policy::Priority::kIdle) continue;  // nobody else's share depends on it
      steady &= Steady(i) && spec.priority == policy::Priority::kNormal;
      all.push_back({spec.request, spec.limit, spec.slack_weight});
    }
    if (!steady || all.empty()) continue;
    policy::FluidShares(all);
    policy::ShareSum sum;
    for (const policy::Entitlement& e : all) sum += e.fluid;
    auto next = all.begin();
    for (size_t i = 0; i < world_.pods.size(); ++i) {
      if (!world_.pods[i].accounts[g].here) continue;
      const bool idle = world_.pods[i].spec.priority == policy::Priority::kIdle;
      gpus_[g].pods[i].share =
          idle ? 0 : (next++)->fluid.millionths() / static_cast<double>(sum.millionths());
      gpus_[g].pods[i].share_errors.resize(static_cast<size_t>(kShareWindow / kShareStep));
    }
    world_.At(Instant(kSettled), What::kShares, g);
  }
}

// What each pod was charged in the last kShareWindow against its part of what all were, by the
// shares that follow from the plan. Where nobody pauses, lags stay within half the bound, and a
// share error is the difference of two.
void Laws::CheckShares(uint32_t g) {
  world_.After(kShareStep, What::kShares, g);
  WatchedGpu& gpu = gpus_[g];
  const Duration held = world_.sites[g].held;
  const auto slots = static_cast<uint64_t>(kShareWindow / kShareStep);
  if (gpu.share_samples == 0) {
    gpu.held_settled = held;
    for (size_t i = 0; i < gpu.pods.size(); ++i) {
      gpu.pods[i].held_settled = world_.pods[i].accounts[g].held;
    }
  }
  const double l = InNs(Longest(g));
  const double given = InNs(held - gpu.held_settled);
  Verdict& verdict = world_.verdict;
  for (size_t i = 0; i < gpu.pods.size(); ++i) {
    const Account& account = world_.pods[i].accounts[g];
    if (!account.here) continue;
    Watched& pod = gpu.pods[i];
    const double error = pod.share * given - InNs(account.held - pod.held_settled);
    double& slot = pod.share_errors[gpu.share_samples % slots];
    if (gpu.share_samples >= slots) {
      const double window = std::abs(error - slot) / l / 2;
      verdict.worst_share = std::max(verdict.worst_share, window);
      verdict.worst_share_points =
          std::max(verdict.worst_share_points, 100 * std::abs(error - slot) / InNs(kShareWindow));
      if (world_.options.bounds && window > world_.options.lag_bound / 2) {
        world_.Violation("share", world_.Name(i) + " is " + std::to_string(2 * window) +
                                      " L from its share of the last 10 s");
      }
    }
    slot = error;
  }
  ++gpu.share_samples;
}

void Laws::CheckLimit(size_t pod, uint32_t g) {
  const policy::ShareSpec& spec = world_.pods[pod].spec;
  if (spec.limit >= policy::kWhole || world_.pods[pod].resized) return;
  const double c = policy::Ratio(spec.limit);
  double hold = InNs(Longest(g));
  // A collective stays on the GPU until its peers have come, of which one may have begun to pause.
  const PodPlan& plan = world_.plan.pods[pod];
  if (world_.IsGang(pod)) hold += InNs(plan.pause * (100 + plan.jitter) / 100);
  const double window = c * InNs(scheduler_.fairness.limit_window);
  // A daemon that starts anew forgets by how much a pod overdrew its limit; a hold that faults
  // stretch (a stopped process cannot close its gate) is charged, but only afterwards.
  const double stretched = world_.faults ? 5e9 + InNs(scheduler_.drain_timeout) : 0;
  const double bound = c * InNs(world_.now - Instant(world_.plan.pods[pod].arrives)) + window +
                       (1 + world_.restarts) * (hold + stretched);
  const Duration used = world_.pods[pod].accounts[g].used;
  if (InNs(used) > bound) {
    world_.Violation("limit", world_.Name(pod) + " with limit " + std::to_string(c) + " used " +
                                  FormatSeconds(used));
  }
}

void Laws::CheckBook(uint32_t g) {
  if (world_.sites[g].held > world_.now - Instant{}) {
    world_.Violation("book", "more held time is charged than has passed");
  }
  // Who was sent its token ahead may have begun: it is looked at when that one is back.
  const Site& site = world_.sites[g];
  const bool ahead = !site.next.empty() && site.next.front().epoch > site.stored_epoch;
  // What happened while no relay watched is known to within the way of what is said of it.
  const Duration said = microseconds(200) * world_.relays;
  for (size_t i = 0; i < world_.pods.size(); ++i) {
    if (ahead && site.next.front().pod == world_.IdOf(i)) continue;
    const Account& account = world_.pods[i].accounts[g];
    if (account.held + account.unseen + said >= account.used) continue;
    world_.Violation("book",
                     world_.Name(i) + " used " +
                         std::to_string(Nanos(account.used - account.held - account.unseen)) +
                         " ns that it was not charged");
  }
  CheckCharged(g);
}

// Nobody is charged for what it did not have: by the node's own record, where a relay measures.
// What several processes of a pod held together is known to within their frames' way; over a
// restart of relay or daemon, to within a hold.
void Laws::CheckCharged(uint32_t g) {
  if (!measured_) return;
  const Duration known = milliseconds(5) + milliseconds(30) * (world_.relays + world_.restarts);
  for (size_t i = 0; i < world_.pods.size(); ++i) {
    if (world_.IsGang(i)) continue;  // all of its time is its own, whether it had work or not
    const Account& account = world_.pods[i].accounts[g];
    const Duration kept = node_.Kept(i, g) + node_.Paused(i, g);
    if (account.held <= kept + known + microseconds(100) * account.grants) continue;
    world_.Violation("charged", world_.Name(i) + " is charged for " + FormatSeconds(account.held) +
                                    " on GPU " + std::to_string(g) + ", and kept it for " +
                                    FormatSeconds(kept));
  }
}

// What a pod may have to wait for on a GPU: what others are owed there. The high-priority ones are
// served first, and go on to be owed their shares meanwhile: what they are owed lasts 1 / (1 − Σ φ)
// as long for those of low priority.
Duration Laws::OwedToOthers(const Statuses& status, PodId pod) {
  const bool low = status.at(pod).spec.priority == policy::Priority::kNormal;
  Duration owed{0}, first{0};
  policy::Share rest = policy::kWhole;
  for (const auto& [id, s] : status) {
    if (id == pod) continue;
    const bool before = low && s.spec.priority == policy::Priority::kHigh;
    (before ? first : owed) += std::max(s.lag, Duration(0));
    if (before) rest -= s.fluid;
  }
  return owed + first * 1'000 / std::max<int64_t>(1, rest / policy::kShareMin);
}

void Laws::CheckLiveness() {
  world_.After(milliseconds(100), What::kLiveness);
  std::vector<Statuses> status(gpus_.size());
  for (uint32_t g = 0; g < gpus_.size(); ++g) {
    for (const auto& s : world_.sites[g].scheduler->Status(world_.now)) status[g][s.pod] = s;
  }
  due_.resize(world_.processes.size());
  for (const auto& p : world_.processes) {
    // A gang beside hostile pods: see CheckRobbed().
    const bool exempt = hostile_here_ && world_.IsGang(p->pod);
    if (p->alive && world_.pods[p->pod].present && !exempt) CheckPatience(*p, status);
  }
}

// The faults have stopped: who waits, is owed time and is below its limit is served. Only holds
// that the fluid GPU would finish before its own go first, so its turn comes within L / φ, and what
// others are owed: somebody's accident leaves everybody else owed seconds, at once or when it is
// back.
void Laws::CheckPatience(const Process& p, std::vector<Statuses>& status) {
  const PodId id = world_.IdOf(p.pod);
  const scheduler::PodStatus& s = status[p.gpu][id];  // nothing where a daemon is away
  // Nobody of idle priority is owed anything.
  const bool idle = world_.pods[p.pod].spec.priority == policy::Priority::kIdle;
  bool owed = p.Parked() && !s.throttled && !idle && s.lag >= Duration(0);
  policy::Share fluid = s.fluid;
  Duration behind{0};
  // A gang is due when it is on all its GPUs, as slowly as on the slowest, and behind those who are
  // owed anything on any of them.
  for (const auto& [pod, g] : world_.GangOf(p.pod).places) {
    if (!world_.IsGang(p.pod) && g != p.gpu) continue;
    const scheduler::PodStatus& there = status[g][world_.IdOf(pod)];
    owed &= !there.throttled && there.lag >= Duration(0);
    fluid = std::min(fluid, there.fluid);
    behind += OwedToOthers(status[g], world_.IdOf(pod));
  }
  Due& due = due_[p.index];
  const Instant asked = p.Asked();
  if (!owed || asked != due.asked) {
    due = {asked, world_.now, behind, fluid};
    return;
  }
  due.behind = std::max(due.behind, behind);
  due.fluid = std::min(due.fluid, fluid);
  // Who had an accident is predicted up to this much.
  Duration longest = std::max(Longest(p.gpu), 10 * scheduler_.quota_max);
  // Who is hostile keeps the GPU until that is ended, and pays for it.
  if (hostile_here_) {
    longest += scheduler_.drain_timeout;
    fluid = due.fluid;
  }
  Duration patience =
      seconds(5) + due.behind + 2 * longest * policy::kMillion / std::max(1u, fluid.millionths());
  // A gang waits until it comes first on all its GPUs, and keeps them from others meanwhile.
  if (gangs_here_) patience *= 3;
  if (world_.now - due.since > patience) {
    world_.Violation("liveness", "process " + std::to_string(p.index) + " of " +
                                     world_.Name(p.pod) + " has been owed time for " +
                                     FormatSeconds(world_.now - due.since) +
                                     (s.waiting ? "" : ", and the scheduler does not know"));
  }
}

// Where some pods are hostile: nobody kept a GPU for longer than it was charged for, and everybody
// who always has work got what it asked for.
void Laws::CheckHostile() {
  if (!hostile_here_ || !world_.verdict.ok) return;
  for (size_t i = 0; i < world_.pods.size(); ++i) {
    for (const uint32_t g : world_.plan.pods[i].gpus) {
      CheckStolen(i, g);
      CheckRobbed(i, g);
    }
  }
  for (uint32_t g = 0; g < world_.plan.gpus; ++g) CheckLost(g);
}

// By the node's own record. A daemon that was away cannot tell when who held; a relay's frames come
// late, so that what several processes held together is known to within that.
void Laws::CheckStolen(size_t pod, uint32_t g) {
  const Account& account = world_.pods[pod].accounts[g];
  Duration known = account.held + milliseconds(200) + milliseconds(1) * account.grants;
  if (world_.plan.relay) known += milliseconds(300) * std::ssize(world_.plan.faults);
  known += world_.restarts * (seconds(4) + 2 * scheduler_.drain_timeout);
  const Duration kept = node_.Kept(pod, g);
  if (kept > known) {
    world_.Violation("stolen", world_.Name(pod) + " kept the GPU for " + FormatSeconds(kept) +
                                   " and was charged " + FormatSeconds(account.held));
  }
  // What it was charged beyond its grants are claims: a hundredth of the time, drain_timeout once,
  // and what the last of them was longer.
  const Duration length = world_.now - Instant{};
  const Duration claims = account.held - kept - (known - account.held) - length / 100 -
                          (1 + world_.restarts) * (2 * scheduler_.drain_timeout + seconds(3));
  if (!world_.plan.pods[pod].hostile || claims <= Duration(0)) return;
  world_.Violation("claims", world_.Name(pod) + " held the GPU for " + FormatSeconds(account.held) +
                                 ", of which it was granted " + FormatSeconds(kept));
}

int64_t Laws::HostilePods(uint32_t g) const {
  return std::count_if(world_.plan.pods.begin(), world_.plan.pods.end(), [g](const PodPlan& pod) {
    return pod.hostile && std::count(pod.gpus.begin(), pod.gpus.end(), g) != 0;
  });
}

// What hostile pods may keep from others by claims together.
Duration Laws::Claims(uint32_t g) const {
  return HostilePods(g) * (scheduler_.drain_timeout + (world_.now - Instant{}) / 100);
}

// Where an honest pod always has work, all time is its, or that of another one, or is charged to a
// hostile one; but for claims and what hand-offs cost.
void Laws::CheckLost(uint32_t g) {
  if (gangs_here_ || !world_.plan.faults.empty()) return;
  bool always = false;
  Duration known{0};
  for (size_t i = 0; i < world_.pods.size(); ++i) {
    const PodPlan& plan = world_.plan.pods[i];
    const Account& account = world_.pods[i].accounts[g];
    known += plan.hostile ? account.held : account.used;
    always |= !plan.hostile && Steady(i);
  }
  const Duration length = world_.now - Instant{};
  const Duration lost = length - known - Claims(g);
  if (!always || lost <= length * 15 / 100) return;
  world_.Violation("lost", "GPU " + std::to_string(g) + " was lost to everybody for " +
                               FormatSeconds(lost) + " beyond what claims may take");
}

// Each hostile pod may keep the GPU for a hundredth of the time by claims, and drain_timeout once;
// a process that never drains keeps it for drain_timeout, and its pod pays for it.
void Laws::CheckRobbed(size_t pod, uint32_t g) {
  const PodPlan& plan = world_.plan.pods[pod];
  // A gang may get less where a pod on one of its GPUs keeps it for seconds again and again.
  if (!Steady(pod) || plan.hostile || world_.IsGang(pod)) return;
  if (!world_.plan.faults.empty()) return;
  const Duration length = world_.now - Instant{};
  const double due = policy::Ratio(world_.pods[pod].spec.request) * InNs(length - Claims(g));
  // What hand-offs cost; and docs/policy.md's 2 M + L, where a hold may last until it is ended.
  const double least = 0.85 * due - InNs(5 * (scheduler_.drain_timeout + Longest(g)));
  const Duration used = world_.pods[pod].accounts[g].used;
  if (InNs(used) >= least) return;
  world_.Violation("robbed", world_.Name(pod) + " used " + FormatSeconds(used) + " of the " +
                                 FormatSeconds(Duration(static_cast<int64_t>(due))) +
                                 " that its request gives it");
}

}  // namespace baton::world
