#include "capacity/play.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <set>
#include <utility>

#include "devmgr/modes/modes.h"
#include "devmgr/placement/cluster.h"
#include "devmgr/placement/queue.h"
#include "teams/what_if.h"

namespace baton::capacity {
namespace {

constexpr size_t kSeriesSteps = 240;
constexpr double kLengthMax_s = 3650.0 * 24 * 3600;
// Weights of teams are brought up to date so many times in a half-life, no more often than so many
// times in all.
constexpr double kStandingsInHalfLife = 200;
constexpr double kStandingsMax = 20'000;
// Rounds of the queue at one moment: those who are displaced in one make room in the next.
constexpr int kRoundsAtOnce = 8;
// Two moments that are closer are one.
constexpr double kMoment_s = 1e-6;
constexpr double kAtLimit = 1 - 1e-6;

double Seconds(Duration d) { return static_cast<double>(Nanos(d)) / 1e9; }
Duration Time(double seconds) { return Duration(std::llround(seconds * 1e9)); }

uint32_t GpusOf(const devmgr::PodRequest& request) {
  uint32_t count = 0;
  for (const auto& container : request.containers) {
    for (const auto& vgpu : container.vgpus) count += vgpu.count;
  }
  return count;
}

// What the pod works of the time from `from` on, in seconds, were it never held up.
double WorkOf(const PodPlan& plan, double length) {
  double work = 0;
  for (const Phase& phase : plan.course) {
    const double part = std::min(length, Seconds(phase.length));
    work += part * phase.alone;
    length -= part;
  }
  if (plan.ends == Ends::kNever && !plan.course.empty()) work += length * plan.course.back().alone;
  return work;
}

class Player {
 public:
  explicit Player(const Scenario& scenario)
      : s_(scenario), end_s_(Seconds(scenario.length)), cluster_(modes_, scenario.placement) {}

  Result<Outcome> Play() {
    if (auto good = Begin(); !good) return tl::unexpected(good.error());
    const double half_life_s = Seconds(s_.teams.half_life);
    const double refresh = std::max(half_life_s / kStandingsInHalfLife, end_s_ / kStandingsMax);
    double next_standing = refresh;
    while (true) {
      Settle();
      double next = std::min(end_s_, NextEvent());
      if (weigh_) next = std::min(next, next_standing);
      Pass(std::max(0.0, next - now_s_));
      now_s_ = std::max(now_s_, next);
      if (now_s_ >= end_s_ - kMoment_s) break;
      if (now_s_ < next_standing - kMoment_s) continue;
      next_standing = now_s_ + refresh;
      for (Gpu& gpu : gpus_) gpu.stale = gpu.stale || gpu.several_teams;
    }
    return Finish();
  }

 private:
  struct Gpu {
    std::vector<size_t> pods;
    std::vector<double> gets;  // of each of them, of the GPU
    bool several_teams = false;
    bool stale = false;  // who is there, or what they do, has changed
  };
  struct Pod {
    size_t team = 0;
    std::vector<size_t> gpus;  // where it is; empty: nowhere
    size_t phase = 0;
    double left_s = 0;       // of the phase, in its own time
    double speed = 0;        // of its own time, of the time
    double uncontended = 0;  // part of what it gets
    double queued_s = 0;     // since when it waits, or waited
    uint32_t passed_over = 0;
    bool came = false;
    bool waits = false;
    bool gone = false;
  };
  struct Team {
    std::string path;
    double counted = 0;  // decayed GPU-seconds
    double uncounted = 0;
  };

  Result<void> Begin() {
    if (end_s_ <= 0 || end_s_ > kLengthMax_s) {
      return Fail(ErrorCode::kInvalid, "the length must be above 0 and at most ten years");
    }
    for (const devmgr::Node& node : s_.nodes) {
      if (auto set = cluster_.SetNode(node); !set) return set;
    }
    for (const devmgr::Node* node : cluster_.Nodes()) {
      for (const devmgr::Card& card : node->cards) {
        gpu_of_[card.uuid] = gpus_.size();
        gpus_.emplace_back();
        outcome_.gpus.push_back({node->name, card.uuid, 0});
      }
    }
    if (gpus_.empty()) return Fail(ErrorCode::kInvalid, "the cluster has no GPUs");
    if (auto good = SetQuotas(); !good) return good;
    for (const teams::Use& use : s_.uses) {
      Team& team = teams_[TeamOf(use.team)];
      team.counted += use.decayed * 3600;
      team.uncounted += use.uncounted * 3600;
    }
    weigh_ = s_.teams.history > 0 && !s_.teams.teams.empty();
    outcome_.length = s_.length;
    outcome_.step = Time(end_s_ / static_cast<double>(kSeriesSteps));
    outcome_.waiting.assign(kSeriesSteps, 0);
    pods_.resize(s_.pods.size());
    std::set<std::string_view> names;
    for (size_t i = 0; i < pods_.size(); ++i) {
      const PodPlan& plan = s_.pods[i];
      if (auto valid = devmgr::Validate(plan.request); !valid) {
        return Fail(ErrorCode::kInvalid,
                    fmt::format("pod {}: {}", plan.request.name, valid.error().message));
      }
      if (!names.insert(plan.request.name).second) {
        return Fail(ErrorCode::kInvalid, "two pods are called " + plan.request.name);
      }
      pods_[i].team = TeamOf(plan.request.team);
      const double from = std::max(0.0, Seconds(plan.came));
      outcome_.pods.push_back({.name = plan.request.name,
                               .team = teams_[pods_[i].team].path,
                               .asked_hours = WorkOf(plan, std::max(0.0, end_s_ - from)) *
                                              GpusOf(plan.request) / 3600});
      arrivals_.push_back(i);
    }
    series_.assign(teams_.size(), std::vector<double>(kSeriesSteps));
    std::stable_sort(arrivals_.begin(), arrivals_.end(),
                     [&](size_t a, size_t b) { return s_.pods[a].came < s_.pods[b].came; });
    for (const size_t i : arrivals_) {
      if (!s_.pods[i].on.empty()) PutWhereItIs(i);
    }
    return {};
  }

  // Shares on a GPU add up to `overcommit`; the cluster counts parts of that.
  policy::Share Scaled(policy::Share share) const {
    if (s_.overcommit <= 1 || share == policy::Share(0)) return share;
    const double scaled = std::ceil(share.millionths() / s_.overcommit - 1e-9);
    return std::max(policy::kShareMin, policy::Share(static_cast<uint32_t>(scaled)));
  }
  devmgr::PodRequest RequestOf(size_t i) const {
    devmgr::PodRequest request = s_.pods[i].request;
    if (request.mode != "time-slice") return request;
    for (auto& container : request.containers) {
      for (auto& vgpu : container.vgpus) vgpu.share = Scaled(vgpu.share);
    }
    return request;
  }

  Result<void> SetQuotas() {
    std::map<std::string, devmgr::Quota, std::less<>> quotas;
    const auto part = [&](double gpus) {
      return static_cast<uint64_t>(std::llround(gpus * policy::kMillion / s_.overcommit));
    };
    for (const teams::Team& team : s_.teams.teams) {
      if (team.limit > policy::Share(0)) {
        quotas[team.path].ceiling_share = part(policy::Ratio(team.limit));
      }
    }
    for (const auto& [team, gpus] : s_.guarantees) quotas[team].guaranteed_share = part(gpus);
    std::vector<devmgr::Quota> all;
    for (auto& [team, quota] : quotas) {
      quota.team = team;
      all.push_back(quota);
    }
    auto made = devmgr::Quotas::Make(std::move(all));
    if (!made) return tl::unexpected(made.error());
    quotas_ = std::move(*made);
    return {};
  }

  size_t TeamOf(const std::string& said) {
    const std::string path = teams::NormalPath(said);
    const auto [at, added] = team_of_.emplace(path, teams_.size());
    if (added) teams_.push_back({path});
    return at->second;
  }

  // Who has no room where he was, because his node is another now, waits as the first.
  void PutWhereItIs(size_t i) {
    const devmgr::PodRequest request = RequestOf(i);
    cluster_.Learn(request);
    pods_[i].came = true;
    devmgr::PodRequest there = request;
    there.uuids = s_.pods[i].on;
    const auto placement = cluster_.Decide(there);
    if (placement && cluster_.Commit(request, *placement)) {
      Start(i, *placement);
    } else {
      Queue(i, 0);
    }
  }

  void Queue(size_t i, double since) {
    pods_[i].waits = true;
    pods_[i].queued_s = since;
    changed_ = true;
  }

  void Start(size_t i, const devmgr::Placement& placement) {
    Pod& pod = pods_[i];
    if (pod.waits && !outcome_.pods[i].placed) {
      outcome_.pods[i].waited = Time(std::max(0.0, now_s_ - pod.queued_s));
    }
    const bool first = !std::exchange(outcome_.pods[i].placed, true);
    pod.waits = false;
    pod.passed_over = 0;
    pod.gpus.clear();
    for (const devmgr::Vgpu& vgpu : placement.vgpus) pod.gpus.push_back(gpu_of_.at(vgpu.card));
    if (first && !s_.pods[i].course.empty()) pod.left_s = Seconds(s_.pods[i].course[0].length);
    for (const size_t g : pod.gpus) {
      gpus_[g].pods.push_back(i);
      gpus_[g].stale = true;
    }
    running_.push_back(i);
  }

  // It has no place any more.
  void Stop(size_t i) {
    for (const size_t g : pods_[i].gpus) {
      std::erase(gpus_[g].pods, i);
      gpus_[g].stale = true;
    }
    pods_[i].gpus.clear();
    cluster_.Delete(s_.pods[i].request.name);
    std::erase(running_, i);
    changed_ = true;
  }

  // What its own time goes at: a clock goes on whatever the pod gets.
  double RateOf(size_t i) const { return s_.pods[i].ends == Ends::kWork ? pods_[i].speed : 1; }
  double AloneOf(size_t i) const {
    const auto& course = s_.pods[i].course;
    if (course.empty()) return 0;
    return std::clamp(course[std::min(pods_[i].phase, course.size() - 1)].alone, 0.0, 1.0);
  }

  double NextEvent() const {
    double next = end_s_;
    if (arrived_ < arrivals_.size()) {
      next = std::min(next, Seconds(s_.pods[arrivals_[arrived_]].came));
    }
    for (const size_t i : running_) {
      const double rate = RateOf(i);
      if (rate > 0 && pods_[i].phase < s_.pods[i].course.size()) {
        next = std::min(next, now_s_ + pods_[i].left_s / rate);
      }
    }
    return next;
  }

  // Everything that happens at this moment.
  void Settle() {
    for (; arrived_ < arrivals_.size(); ++arrived_) {
      const size_t i = arrivals_[arrived_];
      if (Seconds(s_.pods[i].came) > now_s_ + kMoment_s) break;
      if (std::exchange(pods_[i].came, true)) continue;
      cluster_.Learn(RequestOf(i));
      Queue(i, Seconds(s_.pods[i].came));
    }
    const std::vector<size_t> running = running_;
    for (const size_t i : running) EndPhases(i);
    for (int n = 0; n < kRoundsAtOnce && std::exchange(changed_, false); ++n) RunRound();
    for (size_t g = 0; g < gpus_.size(); ++g) {
      if (std::exchange(gpus_[g].stale, false)) Divide(g);
    }
    SetSpeeds();
  }

  void EndPhases(size_t i) {
    Pod& pod = pods_[i];
    const PodPlan& plan = s_.pods[i];
    while (pod.phase < plan.course.size() && pod.left_s <= kMoment_s * RateOf(i) + 1e-9) {
      ++pod.phase;
      if (pod.phase < plan.course.size()) pod.left_s = Seconds(plan.course[pod.phase].length);
      for (const size_t g : pod.gpus) gpus_[g].stale = true;
    }
    if (pod.phase < plan.course.size() || plan.ends == Ends::kNever) return;
    Stop(i);
    pod.gone = true;
    outcome_.pods[i].ended = Time(now_s_);
  }

  devmgr::Standings StandingsNow() const {
    devmgr::Standings standings;
    for (const teams::Team& team : s_.teams.teams) standings[team.path].weight = team.weight;
    for (const Team& team : teams_) standings[team.path].used_hours = team.counted / 3600;
    return standings;
  }

  void RunRound() {
    std::vector<devmgr::WaitingPod> waiting;
    std::map<std::string, size_t, std::less<>> numbers;
    for (size_t i = 0; i < pods_.size(); ++i) {
      if (!pods_[i].waits) continue;
      devmgr::WaitingPod pod;
      pod.request = RequestOf(i);
      // In milliseconds, all of them above 0.
      pod.since = static_cast<uint64_t>((Seconds(s_.pods[i].came) + kLengthMax_s) * 1e3);
      pod.gang = pod.request.gang;
      pod.passed_over = pods_[i].passed_over;
      numbers[pod.request.name] = i;
      waiting.push_back(std::move(pod));
    }
    if (waiting.empty()) {
      kept_.clear();
      return;
    }
    const devmgr::Round round =
        devmgr::Schedule(cluster_, modes_, waiting, quotas_, StandingsNow(), kept_);
    ++outcome_.rounds;
    kept_ = round.reservations;
    for (const devmgr::Refusal& refusal : round.refused) {
      const size_t i = numbers.at(refusal.pod);
      pods_[i].passed_over = refusal.passed_over;
      outcome_.pods[i].refused = refusal.why;
    }
    for (const devmgr::PlacedNow& placed : round.placed) {
      Start(numbers.at(placed.pod), placed.placement);
    }
    for (const devmgr::Proposal& proposal : round.proposals) {
      for (const std::string& name : proposal.displacement.pods) {
        const auto victim = std::find_if(running_.begin(), running_.end(),
                                         [&](size_t i) { return s_.pods[i].request.name == name; });
        if (victim == running_.end()) continue;
        const size_t i = *victim;
        Stop(i);
        Queue(i, now_s_);
        ++outcome_.pods[i].preempted;
      }
    }
  }

  std::vector<teams::Use> Uses() const {
    std::vector<teams::Use> uses;
    for (const Team& team : teams_) uses.push_back({team.path, "", team.counted, team.uncounted});
    return uses;
  }

  // What each pod gets of this GPU from now on.
  void Divide(size_t g) {
    Gpu& gpu = gpus_[g];
    std::vector<teams::WhatIfPod> pods;
    std::vector<double> alone;
    std::set<size_t> present;
    for (const size_t i : gpu.pods) {
      pods.push_back({teams_[pods_[i].team].path, s_.pods[i].share});
      alone.push_back(AloneOf(i));
      present.insert(pods_[i].team);
    }
    gpu.several_teams = present.size() > 1;
    const bool weighed = gpu.several_teams && !s_.teams.teams.empty();
    const std::vector<teams::Use> uses = weighed ? Uses() : std::vector<teams::Use>();
    gpu.gets = teams::WhatIf(std::move(pods), weighed ? &s_.teams : nullptr, uses).Divide(alone);
  }

  void SetSpeeds() {
    for (const size_t i : running_) pods_[i].speed = 1;
    for (const Gpu& gpu : gpus_) {
      for (size_t n = 0; n < gpu.pods.size(); ++n) {
        const double alone = AloneOf(gpu.pods[n]);
        double& speed = pods_[gpu.pods[n]].speed;
        if (alone > 0) speed = std::min(speed, gpu.gets[n] / alone);
      }
    }
    for (const size_t i : running_) pods_[i].uncontended = 0;
    for (const Gpu& gpu : gpus_) {
      for (const size_t i : gpu.pods) {
        pods_[i].uncontended += Uncontended(gpu, i) / static_cast<double>(pods_[i].gpus.size());
      }
    }
  }

  // The part of what the pod gets of this GPU in which no pod of another team wants it.
  double Uncontended(const Gpu& gpu, size_t holder) const {
    double nobody = 1;
    for (const size_t i : gpu.pods) {
      if (pods_[i].team == pods_[holder].team) continue;
      const policy::ShareSpec& spec = s_.pods[i].share;
      const double alone = AloneOf(i);
      const bool gives_way = spec.priority == policy::Priority::kIdle &&
                             s_.pods[holder].share.priority != policy::Priority::kIdle;
      const bool at_limit = spec.limit < policy::kWhole &&
                            pods_[i].speed * alone >= kAtLimit * policy::Ratio(spec.limit);
      if (alone == 0 || gives_way || at_limit) continue;
      // It pauses for so much of the time; else it works, or waits.
      nobody *= std::clamp(pods_[i].speed * (1 - alone), 0.0, 1.0);
    }
    return nobody;
  }

  // Nothing happens for so long.
  void Pass(double seconds) {
    if (seconds <= 0) return;
    std::vector<double> counted(teams_.size()), uncounted(teams_.size());
    const double spared = 1 - policy::Ratio(s_.uncontended_use);
    for (const size_t i : running_) {
      Pod& pod = pods_[i];
      const double gets = pod.speed * AloneOf(i);
      const double all = gets * static_cast<double>(pod.gpus.size());
      outcome_.pods[i].got_hours += all * seconds / 3600;
      for (const size_t g : pod.gpus) outcome_.gpus[g].used_hours += gets * seconds / 3600;
      pod.left_s -= RateOf(i) * seconds;
      const double free = all * pod.uncontended * spared;
      counted[pod.team] += all - free;
      uncounted[pod.team] += free;
    }
    const double decay = std::numbers::ln2 / Seconds(s_.teams.half_life);
    const double kept = std::exp(-decay * seconds);
    double waiting = 0;
    for (const Pod& pod : pods_) waiting += pod.waits ? 1 : 0;
    for (size_t t = 0; t < teams_.size(); ++t) {
      teams_[t].counted = teams_[t].counted * kept + counted[t] * (1 - kept) / decay;
      teams_[t].uncounted = teams_[t].uncounted * kept + uncounted[t] * (1 - kept) / decay;
      AddSeries(series_[t], counted[t] + uncounted[t], seconds);
    }
    AddSeries(outcome_.waiting, waiting, seconds);
  }

  // Adds the value, which holds for so long from now on, to the means of the steps.
  void AddSeries(std::vector<double>& series, double value, double seconds) const {
    if (value == 0) return;
    const double step = end_s_ / static_cast<double>(kSeriesSteps);
    const double to = now_s_ + seconds;
    for (auto n = static_cast<size_t>(now_s_ / step); n < kSeriesSteps; ++n) {
      const double from = static_cast<double>(n) * step;
      if (from >= to) break;
      series[n] += value * (std::min(to, from + step) - std::max(now_s_, from)) / step;
    }
  }

  Outcome Finish() {
    outcome_.capacity_hours = static_cast<double>(gpus_.size()) * end_s_ / 3600;
    std::map<std::string, TeamFigures, teams::PathLess> rows;
    for (size_t i = 0; i < pods_.size(); ++i) {
      PodFigures& pod = outcome_.pods[i];
      if (!pods_[i].came) continue;
      if (!pod.placed) pod.waited = Time(std::max(0.0, end_s_ - pods_[i].queued_s));
      TeamFigures& team = rows[pod.team];
      team.team = pod.team;
      ++team.pods;
      team.unplaced += pod.placed ? 0 : 1;
      team.asked_hours += pod.asked_hours;
      team.got_hours += pod.got_hours;
      if (pod.waited) team.waits.push_back(*pod.waited);
    }
    for (auto& [path, team] : rows) {
      std::sort(team.waits.begin(), team.waits.end());
      team.series = series_[team_of_.at(path)];
      outcome_.teams.push_back(std::move(team));
    }
    return std::move(outcome_);
  }

  const Scenario& s_;
  const double end_s_;
  const devmgr::Modes modes_{devmgr::TokenModes()};
  devmgr::Cluster cluster_;
  devmgr::Quotas quotas_;
  std::vector<devmgr::Reservation> kept_;
  std::vector<Gpu> gpus_;
  std::map<std::string, size_t, std::less<>> gpu_of_;
  std::vector<Team> teams_;
  std::map<std::string, size_t, std::less<>> team_of_;
  std::vector<Pod> pods_;
  std::vector<size_t> arrivals_;  // by when they come
  size_t arrived_ = 0;
  std::vector<size_t> running_;
  std::vector<std::vector<double>> series_;  // by team
  double now_s_ = 0;
  bool weigh_ = false;    // history changes weights
  bool changed_ = false;  // the queue has something to decide
  Outcome outcome_;
};

}  // namespace

Duration WaitQuantile(const std::vector<Duration>& waits, double q) {
  if (waits.empty()) return Duration(0);
  const double rank = std::ceil(q * static_cast<double>(waits.size()));
  return waits[static_cast<size_t>(std::clamp<double>(rank, 1, waits.size())) - 1];
}

Result<Outcome> Play(const Scenario& scenario) { return Player(scenario).Play(); }

}  // namespace baton::capacity
