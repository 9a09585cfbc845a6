// One GPU under the real token scheduler on virtual time, with the slack weights of its teams
// brought up to date from its own accounts.
#ifndef BATON_TESTS_TEAMS_STEERED_GPU_H_
#define BATON_TESTS_TEAMS_STEERED_GPU_H_

#include <cmath>
#include <deque>
#include <functional>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/token_scheduler.h"
#include "teams/standing.h"

namespace baton::teams {

inline policy::ShareSpec CourseShare(double request, double limit = 100) {
  return policy::Validated(
             {.request = policy::ShareOf(request / 100), .limit = policy::ShareOf(limit / 100)})
      .value();
}

// When a pod has work, and how much: each time it works it has `burst` to do, and then pauses.
struct Work {
  Duration burst = Duration::max();  // without an end
  Duration pause{0};
  // Its times: only from `from` to `to` in each `period`; without a period always.
  Duration period{0}, from{0}, to{0};
  // It asks whenever it does not hold, and drains as soon as it is granted.
  bool fake = false;

  // From then on it has work, at `at` or later.
  Instant Next(Instant at) const {
    if (period == Duration(0)) return at;
    const Duration in(Nanos(at - Instant{}) % Nanos(period));
    return in < from ? at + (from - in) : in < to ? at : at + (period - in + from);
  }
  // Until then, where it has work at `at`.
  Instant Until(Instant at) const {
    if (period == Duration(0)) return kNever;
    return at + (to - Duration(Nanos(at - Instant{}) % Nanos(period)));
  }
};

class SteeredGpu {
 public:
  // Uses so far, as the slack weights are made of them, and what of them is held against nobody,
  // from what each team held (Use::decayed) and held while no other team wanted it (uncounted).
  using Rule = std::function<std::vector<Use>(const std::vector<Use>& held, double capacity)>;

  SteeredGpu(const Teams& teams, std::vector<Use> uses, std::vector<CoursePod> pods,
             std::vector<Work> work = {}, Rule rule = nullptr)
      : teams_(teams),
        uses_(std::move(uses)),
        pods_(std::move(pods)),
        work_(std::move(work)),
        rule_(std::move(rule)),
        scheduler_({}, 0) {
    clients_.resize(pods_.size());
    work_.resize(pods_.size());
    Weigh();
    for (size_t i = 0; i < pods_.size(); ++i) {
      policy::ShareSpec spec = pods_[i].spec;
      spec.team = index_.Of(pods_[i].team);
      Step(scheduler::PodSet{PodId{i + 1}, spec});
      Step(scheduler::ClientAttached{ClientId{i + 1}, PodId{i + 1}});
      clients_[i].wakes = work_[i].Next(now_);
      WakeUp(i);
    }
  }

  // Runs for `length`, with the decay applied and the weights set anew every `step`.
  void Run(Duration length, Duration step) {
    const Instant end = now_ + length;
    while (now_ < end) {
      const std::vector<Duration> before = held;
      const std::vector<Duration> before_uncontended = uncontended;
      RunUntil(std::min(end, now_ + step));
      Account(before, before_uncontended, step);
      Weigh();
    }
  }

  // Part of the GPU's time that the pods of `team` held between two readings of `held`.
  double ShareOf(const std::string& team, const std::vector<Duration>& from,
                 Duration length) const {
    return Between(team, held, from, length);
  }

  std::vector<Duration> held = std::vector<Duration>(16);         // charged, by pod
  std::vector<Duration> uncontended = std::vector<Duration>(16);  // the part of it
  uint64_t grants = 0;

 private:
  struct Process {
    wire::Phase phase = wire::Phase::kIdle;
    uint64_t seq = 0, epoch = 0, rev = 0;
    Duration left{0};        // work to be done yet
    Instant wakes = kNever;  // has work again
    Instant granted{};
    Instant deadline = kNever;
  };

  static constexpr Duration kDrain = std::chrono::microseconds(300);

  void Say(size_t i, wire::Phase phase, Duration held_for) {
    Process& c = clients_[i];
    c.phase = phase;
    Step(scheduler::ClientReport{ClientId{i + 1}, ++c.seq, phase, c.epoch, c.rev, held_for});
  }
  void Step(const scheduler::Event& event) {
    scheduler::Effects effects;
    scheduler_.Step(now_, event, effects);
    for (const scheduler::Effect& effect : effects) {
      if (const auto* send = std::get_if<scheduler::SendToken>(&effect)) {
        inbox_.push_back(*send);
      } else if (const auto* charged = std::get_if<scheduler::Charged>(&effect)) {
        held[charged->pod.value - 1] += charged->held;
        uncontended[charged->pod.value - 1] += charged->uncontended;
      }
    }
  }
  // It begins to ask, where its time has come.
  void WakeUp(size_t i) {
    Process& c = clients_[i];
    if (c.wakes > now_) return;
    c.wakes = kNever;
    c.left = work_[i].burst;
    Say(i, wire::Phase::kWaiting, Duration(0));
  }
  // When the holder stops, or who waits goes home.
  Instant EndOf(size_t i) const {
    const Process& c = clients_[i];
    if (c.phase == wire::Phase::kWaiting) return work_[i].Until(now_);
    if (c.phase != wire::Phase::kHolding) return c.wakes;
    if (work_[i].fake) return c.granted;
    const Instant done = c.left == Duration::max() ? kNever : c.granted + c.left;
    return std::min({c.deadline, done, work_[i].Until(c.granted)});
  }
  void End(size_t i) {
    Process& c = clients_[i];
    if (c.phase == wire::Phase::kIdle) return WakeUp(i);
    const bool held_it = c.phase == wire::Phase::kHolding;
    const Duration held_for = held_it ? now_ + kDrain - c.granted : Duration(0);
    if (held_it && c.left != Duration::max()) {
      c.left = std::max(Duration(0), c.left - (now_ - c.granted));
    }
    if (held_it) now_ += kDrain;
    const Instant from = c.left == Duration(0) ? now_ + work_[i].pause : now_;
    c.wakes = work_[i].Next(from);
    const bool goes_on = c.left > Duration(0) && c.wakes == now_;
    if (goes_on) c.wakes = kNever;
    Say(i, goes_on ? wire::Phase::kWaiting : wire::Phase::kIdle, held_for);
  }
  void RunUntil(Instant end) {
    while (true) {
      while (!inbox_.empty()) {
        const scheduler::SendToken token = inbox_.front();
        inbox_.pop_front();
        Receive(token);
      }
      Instant next = std::max(now_, scheduler_.wakeup());
      for (size_t i = 0; i < clients_.size(); ++i) next = std::min(next, EndOf(i));
      next = std::max(next, now_);
      if (next >= end) break;
      now_ = next;
      if (scheduler_.wakeup() <= now_) Step(scheduler::Tick{});
      for (size_t i = 0; i < clients_.size(); ++i) {
        if (EndOf(i) <= now_) End(i);
      }
    }
    now_ = std::max(now_, end);
  }
  void Receive(const scheduler::SendToken& token) {
    Process& c = clients_[token.client.value - 1];
    if (std::pair(token.epoch, token.rev) <= std::pair(c.epoch, c.rev)) return;
    if (token.epoch != c.epoch) {
      c.granted = now_;
      ++grants;
    }
    c.epoch = token.epoch;
    c.rev = token.rev;
    c.deadline = now_ + token.quota;
    Say(token.client.value - 1, wire::Phase::kHolding, Duration(0));
  }

  double Between(const std::string& team, const std::vector<Duration>& now,
                 const std::vector<Duration>& from, Duration length) const {
    double sum = 0;
    for (size_t i = 0; i < pods_.size(); ++i) {
      if (pods_[i].team == team) sum += static_cast<double>(Nanos(now[i] - from[i]));
    }
    return sum / static_cast<double>(Nanos(length));
  }
  // What was held since happened evenly over the step.
  void Account(const std::vector<Duration>& before, const std::vector<Duration>& before_uncontended,
               Duration step) {
    const double decay = std::numbers::ln2 / static_cast<double>(Nanos(teams_.half_life));
    const double kept = std::exp(-decay * static_cast<double>(Nanos(step)));
    const double more = (1 - kept) / decay;
    for (Use& use : uses_) {
      use.decayed = use.decayed * kept + Between(use.team, held, before, step) * more;
      use.uncounted =
          use.uncounted * kept + Between(use.team, uncontended, before_uncontended, step) * more;
    }
    capacity_ = capacity_ * kept + more;
  }
  void Weigh() {
    std::vector<std::string> present;
    for (const CoursePod& pod : pods_) present.push_back(pod.team);
    std::vector<Use> all = uses_;
    for (Use& use : all) use.uncounted = 0;
    if (rule_) all = rule_(uses_, capacity_);
    const auto weights = index_.Weights(SlackWeights(teams_, all, present));
    Step(scheduler::TeamWeights{weights});
  }

  const Teams teams_;
  std::vector<Use> uses_;
  const std::vector<CoursePod> pods_;
  std::vector<Work> work_;
  const Rule rule_;
  scheduler::TokenScheduler scheduler_;
  TeamIndex index_;
  std::vector<Process> clients_;
  std::deque<scheduler::SendToken> inbox_;
  Instant now_{};
  double capacity_ = 0;  // decayed
};

}  // namespace baton::teams

#endif  // BATON_TESTS_TEAMS_STEERED_GPU_H_
