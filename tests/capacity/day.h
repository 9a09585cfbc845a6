// A day of a cluster on virtual time, as it would be with Baton: pods come by chance, the queue of
// devmgr places them, a real token scheduler for each GPU grants them tokens, weights of teams
// follow their use, and a real ledger keeps the books.
#ifndef BATON_TESTS_CAPACITY_DAY_H_
#define BATON_TESTS_CAPACITY_DAY_H_

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numbers>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "capacity/scenario.h"
#include "devmgr/modes/modes.h"
#include "devmgr/placement/queue.h"
#include "ledger/ledger.h"
#include "scheduler/token_scheduler.h"
#include "teams/standing.h"
#include "tests/capacity/clusters.h"

namespace baton::capacity {

// One GPU under the real token scheduler, with a client for each pod.
class DayGpu {
 public:
  struct Figures {
    Duration held{0}, waited{0}, uncontended{0};
  };

  // Works for `burst` and pauses for `pause`, again and again, until it held the GPU for `work`.
  void Add(uint64_t pod, const policy::ShareSpec& spec, Duration burst, Duration pause,
           Duration work) {
    Client& client = clients_[pod];
    client.burst = burst;
    client.pause = pause;
    client.left = work;
    client.burst_left = std::min(burst, work);
    Step(scheduler::PodSet{PodId{pod}, spec});
    Step(scheduler::ClientAttached{ClientId{pod}, PodId{pod}});
    client.wakes = now_;
    End(pod);
  }
  bool IsDone(uint64_t pod) const { return clients_.at(pod).left <= Duration(0); }
  // Its last figures.
  Figures Remove(uint64_t pod) {
    const Figures figures = FiguresOf(pod);
    Step(scheduler::ClientGone{ClientId{pod}});
    Step(scheduler::PodRemoved{PodId{pod}});
    clients_.erase(pod);
    return figures;
  }
  Figures FiguresOf(uint64_t pod) {
    Figures figures = figures_.at(pod);
    for (const scheduler::PodStatus& status : scheduler_.Status(now_)) {
      if (status.pod == PodId{pod}) figures.waited = status.waited;
    }
    return figures;
  }
  void Weigh(const std::vector<uint32_t>& weights) { Step(scheduler::TeamWeights{weights}); }

  void RunUntil(Instant end) {
    while (true) {
      while (!inbox_.empty()) {
        const scheduler::SendToken token = inbox_.front();
        inbox_.pop_front();
        Receive(token);
      }
      Instant next = std::max(now_, scheduler_.wakeup());
      for (const auto& [pod, client] : clients_) next = std::min(next, EndOf(client));
      next = std::max(next, now_);
      if (next >= end) break;
      now_ = next;
      if (scheduler_.wakeup() <= now_) Step(scheduler::Tick{});
      for (const auto& [pod, client] : clients_) {
        if (EndOf(client) <= now_) End(pod);
      }
    }
    now_ = std::max(now_, end);
  }

 private:
  struct Client {
    wire::Phase phase = wire::Phase::kIdle;
    uint64_t seq = 0, epoch = 0, rev = 0;
    Duration burst{0}, pause{0};
    Duration left{0};  // of all its work
    Duration burst_left{0};
    Instant wakes = kNever;
    Instant granted{};
    Instant deadline = kNever;
  };
  static constexpr Duration kDrain = std::chrono::milliseconds(1);

  static scheduler::SchedulerOptions Options() {
    scheduler::SchedulerOptions options;
    options.quota_min = std::chrono::seconds(1);
    options.quota_max = std::chrono::seconds(2);
    return options;
  }
  void Step(const scheduler::Event& event) {
    scheduler::Effects effects;
    scheduler_.Step(now_, event, effects);
    for (const scheduler::Effect& effect : effects) {
      if (const auto* send = std::get_if<scheduler::SendToken>(&effect)) {
        inbox_.push_back(*send);
      } else if (const auto* charged = std::get_if<scheduler::Charged>(&effect)) {
        figures_[charged->pod.value].held += charged->held;
        figures_[charged->pod.value].uncontended += charged->uncontended;
      }
    }
  }
  void Say(uint64_t pod, wire::Phase phase, Duration held) {
    Client& c = clients_.at(pod);
    c.phase = phase;
    Step(scheduler::ClientReport{ClientId{pod}, ++c.seq, phase, c.epoch, c.rev, held});
  }
  // When the holder stops, or who pauses has work again.
  static Instant EndOf(const Client& c) {
    if (c.phase == wire::Phase::kWaiting) return kNever;
    if (c.phase != wire::Phase::kHolding) return c.wakes;
    return std::min(c.deadline, c.granted + c.burst_left);
  }
  void End(uint64_t pod) {
    Client& c = clients_.at(pod);
    if (c.phase == wire::Phase::kIdle) {
      if (c.wakes > now_) return;
      c.wakes = kNever;
      return Say(pod, wire::Phase::kWaiting, Duration(0));
    }
    const Duration worked = now_ - c.granted;
    c.left -= worked;
    c.burst_left -= worked;
    now_ += kDrain;
    if (c.left > Duration(0) && c.burst_left > Duration(0)) {
      return Say(pod, wire::Phase::kWaiting, worked + kDrain);
    }
    c.burst_left = std::min(c.burst, c.left);
    c.wakes = c.left > Duration(0) ? now_ + c.pause : kNever;
    Say(pod, wire::Phase::kIdle, worked + kDrain);
  }
  void Receive(const scheduler::SendToken& token) {
    const auto at = clients_.find(token.client.value);
    if (at == clients_.end()) return;
    Client& c = at->second;
    if (std::pair(token.epoch, token.rev) <= std::pair(c.epoch, c.rev)) return;
    if (token.epoch != c.epoch) c.granted = now_;
    c.epoch = token.epoch;
    c.rev = token.rev;
    c.deadline = now_ + token.quota;
    Say(at->first, wire::Phase::kHolding, Duration(0));
  }

  scheduler::TokenScheduler scheduler_{Options(), 0};
  std::map<uint64_t, Client> clients_;
  std::map<uint64_t, Figures> figures_;
  std::deque<scheduler::SendToken> inbox_;
  Instant now_{};
};

// A pod that comes, and what became of it.
struct DayPod {
  std::string name, team;
  double request = 100;  // percent
  Duration came{0};
  Duration burst{0}, pause{0}, work{0};
  Duration placed{-1}, ended{-1};
  size_t gpu = 0;
};

class Day {
 public:
  static constexpr Duration kStep = std::chrono::minutes(1);

  Day(std::vector<devmgr::Node> nodes, teams::Teams teams, std::vector<DayPod> pods,
      ledger::Ledger& ledger, ledger::WallTime begin)
      : pods_(std::move(pods)),
        teams_(std::move(teams)),
        ledger_(ledger),
        begin_(begin),
        cluster_(modes_) {
    for (const devmgr::Node& node : nodes) {
      EXPECT_TRUE(cluster_.SetNode(node));
      for (const devmgr::Card& card : node.cards) {
        gpu_of_[card.uuid] = gpus_.size();
        uuids_.push_back(card.uuid);
        node_of_.push_back(node.name);
        gpus_.push_back(std::make_unique<DayGpu>());
      }
    }
    Book();
  }

  void Run(Duration length) {
    for (now_ = Duration(0); now_ < length;) {
      LetGo();
      Place();
      Weigh();
      now_ += kStep;
      for (auto& gpu : gpus_) gpu->RunUntil(Instant{} + now_);
      Account();
      Book();
    }
  }

  const std::vector<DayPod>& pods() const { return pods_; }
  // Those that are there now, as batond knows them.
  std::map<std::string, std::string> present() const {
    std::map<std::string, std::string> present;
    for (const size_t i : running_) present[pods_[i].name] = Described(pods_[i]).dump();
    return present;
  }
  std::map<std::string, Duration> held_by_team;

 private:
  devmgr::PodRequest RequestOf(const DayPod& pod) const {
    return PodOf(pod.name, pod.team, pod.request, pod.came, Duration(0)).request;
  }

  void LetGo() {
    for (const size_t i : std::set<size_t>(running_)) {
      DayPod& pod = pods_[i];
      if (!gpus_[pod.gpu]->IsDone(i + 1)) continue;
      last_[i] = gpus_[pod.gpu]->Remove(i + 1);
      EXPECT_TRUE(cluster_.Delete(pod.name));
      running_.erase(i);
      pod.ended = now_;
      changed_ = true;
      Record(pod, "delete");
    }
  }

  void Place() {
    for (size_t i = 0; i < pods_.size(); ++i) {
      if (pods_[i].came > now_ || !came_.insert(i).second) continue;
      waiting_[pods_[i].name] = i;
      cluster_.Learn(RequestOf(pods_[i]));
      changed_ = true;
    }
    if (!std::exchange(changed_, false) || waiting_.empty()) return;
    devmgr::Standings standings;
    for (const teams::Team& team : teams_.teams) standings[team.path].weight = team.weight;
    for (const auto& [team, use] : uses_) standings[team].used_hours = use.decayed / 3600e9;
    std::vector<devmgr::WaitingPod> waiting;
    for (const auto& [name, i] : waiting_) {
      devmgr::WaitingPod pod;
      pod.request = RequestOf(pods_[i]);
      pod.since = static_cast<uint64_t>(Nanos(pods_[i].came) / 1'000'000);
      pod.passed_over = passed_over_[i];
      waiting.push_back(std::move(pod));
    }
    const devmgr::Round round =
        devmgr::Schedule(cluster_, modes_, waiting, devmgr::Quotas(), standings, kept_);
    kept_ = round.reservations;
    for (const auto& refusal : round.refused) {
      passed_over_[waiting_.at(refusal.pod)] = refusal.passed_over;
    }
    for (const auto& placed : round.placed) {
      const size_t i = waiting_.at(placed.pod);
      waiting_.erase(placed.pod);
      DayPod& pod = pods_[i];
      pod.placed = now_;
      pod.gpu = gpu_of_.at(placed.placement.vgpus[0].card);
      running_.insert(i);
      policy::ShareSpec spec = PodOf("", "", pod.request, Duration(0), Duration(0)).share;
      spec.team = index_.Of(pod.team);
      gpus_[pod.gpu]->Add(i + 1, spec, pod.burst, pod.pause, pod.work);
      Record(pod, "create");
    }
  }

  // As the log of changes has a pod.
  nlohmann::json Described(const DayPod& pod) const {
    return {{"request", pod.request},
            {"limit", 100.0},
            {"team", pod.team},
            {"gpus", {uuids_[pod.gpu]}},
            {"asked_at", (begin_.time_since_epoch() + Millis(pod.came)).count() / 1000}};
  }

  void Record(const DayPod& pod, const char* action) {
    ledger::Change change;
    change.at = begin_ + Millis(now_);
    change.action = action;
    change.kind = "pod";
    change.object = pod.name;
    (change.action == "create" ? change.is : change.was) = Described(pod).dump();
    ASSERT_TRUE(ledger_.Record(change));
  }

  void Weigh() {
    std::vector<teams::Use> uses;
    for (const auto& [team, use] : uses_) uses.push_back(use);
    for (size_t g = 0; g < gpus_.size(); ++g) {
      std::vector<std::string> present;
      for (const size_t i : running_) {
        if (pods_[i].gpu == g) present.push_back(pods_[i].team);
      }
      if (!present.empty()) {
        gpus_[g]->Weigh(index_.Weights(teams::SlackWeights(teams_, uses, present)));
      }
    }
  }

  // What was held in the step, older use counting less.
  void Account() {
    const double decay = std::numbers::ln2 / static_cast<double>(Nanos(teams_.half_life));
    const double kept = std::exp(-decay * static_cast<double>(Nanos(kStep)));
    for (auto& [team, use] : uses_) {
      use.decayed *= kept;
      use.uncounted *= kept;
    }
    for (size_t i = 0; i < pods_.size(); ++i) {
      if (!running_.contains(i)) continue;
      const DayGpu::Figures is = gpus_[pods_[i].gpu]->FiguresOf(i + 1);
      const DayGpu::Figures was = std::exchange(accounted_[i], is);
      teams::Use& use = uses_[pods_[i].team];
      use.team = pods_[i].team;
      use.decayed +=
          static_cast<double>(Nanos((is.held - was.held) - (is.uncontended - was.uncontended)));
      use.uncounted += static_cast<double>(Nanos(is.uncontended - was.uncontended));
      held_by_team[pods_[i].team] += is.held - was.held;
    }
  }

  void Book() {
    ledger::Batch batch;
    batch.source = std::string(32, 'a');
    batch.node = "node";
    batch.seq = ++seq_;
    batch.to = begin_ + Millis(now_);
    for (size_t g = 0; g < gpus_.size(); ++g) {
      batch.gpus.push_back({uuids_[g], "NVIDIA H200", uint64_t{10'000} << 20, Duration(0)});
    }
    for (size_t i = 0; i < pods_.size(); ++i) {
      const bool runs = running_.contains(i);
      if (!runs && !last_.contains(i)) continue;
      const DayGpu::Figures is = runs ? gpus_[pods_[i].gpu]->FiguresOf(i + 1) : last_.at(i);
      ledger::Sample sample;
      sample.pod = i + 1;
      sample.gpu = uuids_[pods_[i].gpu];
      sample.owner = {pods_[i].name, "", pods_[i].team, ""};
      sample.total.held_ns = Nanos(is.held);
      sample.total.busy_ns = Nanos(is.held);
      sample.total.waited_ns = Nanos(is.waited);
      sample.total.uncontended_ns = Nanos(is.uncontended);
      sample.total.grants = 1;
      batch.samples.push_back(std::move(sample));
    }
    last_.clear();
    const auto applied = ledger_.Apply(batch);
    ASSERT_TRUE(applied) << applied.error().message;
  }

  static std::chrono::milliseconds Millis(Duration d) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(d);
  }

  std::vector<DayPod> pods_;
  const teams::Teams teams_;
  ledger::Ledger& ledger_;
  const ledger::WallTime begin_;
  const devmgr::Modes modes_{devmgr::TokenModes()};
  devmgr::Cluster cluster_;
  std::vector<std::unique_ptr<DayGpu>> gpus_;
  std::vector<std::string> uuids_, node_of_;
  std::map<std::string, size_t> gpu_of_;
  teams::TeamIndex index_;
  std::map<std::string, teams::Use> uses_;  // nanoseconds
  std::set<size_t> came_, running_;
  std::map<std::string, size_t> waiting_;
  std::map<size_t, uint32_t> passed_over_;
  std::map<size_t, DayGpu::Figures> accounted_, last_;
  std::vector<devmgr::Reservation> kept_;
  uint64_t seq_ = 0;
  Duration now_{0};
  bool changed_ = false;
};

}  // namespace baton::capacity

#endif  // BATON_TESTS_CAPACITY_DAY_H_
