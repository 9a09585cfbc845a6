#include "backend/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "backend/advise.h"
#include "backend/books.h"
#include "capacity/scenario_files.h"
#include "config/options.h"
#include "ledger/report.h"
#include "ledger/terms.h"
#include "spec/pod_request.h"
#include "teams/what_if.h"

namespace baton::backend {
namespace {

using nlohmann::json;

const ledger::WallTime kBooksEnd = std::chrono::sys_days(std::chrono::year(3000) / 1 / 1);
// What was used before the window is added up in parts of a half-life, so many of them.
constexpr int kUsePartsInHalfLife = 4;
constexpr int kUseParts = 40;
// Phases in which a pod works for so nearly the same part of its time are one.
constexpr double kSamePhase = 0.01;
// A pod of which the log says nothing is there still if it used its GPU in the last buckets.
constexpr int64_t kLastBuckets = 2;
// Of a bucket, the least part in which a pod must have been there for it to say something.
constexpr double kPartLeast = 0.001;

int64_t MillisOf(ledger::WallTime time) { return time.time_since_epoch().count(); }
std::string KeyOf(const ledger::Owner& owner) {
  return owner.name_space.empty() ? owner.pod : owner.name_space + "/" + owner.pod;
}

// A pod from its making to its end, in milliseconds since 1970.
struct Life {
  std::string path;
  std::string team;
  int64_t from = 0, to = 0;
  bool began = false;  // when is known
  bool ended = false;
  std::vector<const ledger::Term*> terms;  // none: the log says nothing of it
  std::vector<const ledger::Activity*> did;
};

struct Booked {
  ledger::Window window;
  std::vector<ledger::Term> terms;
  std::vector<ledger::Activity> activities;
  int64_t from() const { return MillisOf(window.from); }
  int64_t to() const { return MillisOf(window.to); }
};

// Terms that follow each other without a gap are of one life.
std::vector<Life> LivesByLog(const Booked& booked) {
  std::vector<Life> lives;
  const ledger::Term* before = nullptr;
  for (const ledger::Term& term : booked.terms) {
    const bool goes_on = before != nullptr && before->pod == term.pod && before->to && term.from &&
                         *before->to == *term.from && term.action != "create";
    before = &term;
    if (!goes_on) {
      Life life;
      life.path = term.pod;
      life.began = term.from.has_value();
      life.from = term.from ? MillisOf(*term.from) : booked.from();
      lives.push_back(std::move(life));
    }
    Life& life = lives.back();
    life.team = term.team;
    life.terms.push_back(&term);
    life.ended = term.to.has_value();
    life.to = term.to ? MillisOf(*term.to) : booked.to();
  }
  std::erase_if(lives, [&](const Life& life) {
    // Where nobody knows when it ended, what it used says so.
    const bool known = life.ended || life.terms.back()->present;
    return life.from >= booked.to() || life.to <= booked.from() || !known;
  });
  return lives;
}

std::vector<Life> LivesOf(const Booked& booked) {
  std::vector<Life> lives = LivesByLog(booked);
  std::map<std::string, std::vector<size_t>> by_path;
  for (size_t i = 0; i < lives.size(); ++i) by_path[lives[i].path].push_back(i);
  for (const ledger::Activity& activity : booked.activities) {
    const std::string path = KeyOf(activity.owner);
    const int64_t from = activity.buckets.front().t * 1000;
    const int64_t to = (activity.buckets.back().t + activity.seconds) * 1000;
    Life* best = nullptr;
    int64_t most = 0;
    for (const size_t i : by_path[path]) {
      const int64_t common = std::min(to, lives[i].to) - std::max(from, lives[i].from);
      if (common <= most) continue;
      most = common;
      best = &lives[i];
    }
    if (best == nullptr) {
      Life life;
      life.path = path;
      life.from = std::max(from, booked.from());
      life.to = std::min(to, booked.to());
      life.ended = to + kLastBuckets * activity.seconds * 1000 < booked.to();
      life.began = from > booked.from();
      by_path[path].push_back(lives.size());
      lives.push_back(std::move(life));
      best = &lives.back();
    }
    best->team = activity.owner.team;
    best->did.push_back(&activity);
  }
  return lives;
}

// What all pods executed on a GPU, by bucket.
using Executed = std::map<std::pair<std::string, int64_t>, double>;

// What the pod did on its GPUs in a bucket, of the time in which it was there.
struct Done {
  double alone = 0;
  double progress = 1;  // of its own time
};
Done DoneIn(
    const std::vector<std::pair<const ledger::Activity*, const ledger::Activity::Bucket*>>& on,
    size_t gpus, double part, const Executed& executed) {
  double alone = 0, had = 0;
  for (const auto& [activity, bucket] : on) {
    const teams::Did did{std::min(1.0, bucket->held / part), std::min(1.0, bucket->busy / part),
                         std::min(1.0, bucket->waited / part)};
    const auto all = executed.find({activity->gpu, bucket->t});
    const double beside =
        all == executed.end() ? 0 : std::max(0.0, all->second - bucket->busy) / part;
    alone += teams::Alone(did, beside);
    // Without tokens others slowed it down while it executed.
    had += did.held > 0 ? std::max(did.held, did.busy) : did.busy / (1 + beside);
  }
  Done done;
  done.alone = std::clamp(alone / static_cast<double>(gpus), 0.0, 1.0);
  had = std::min(1.0, had / static_cast<double>(gpus));
  done.progress = done.alone > 0 ? std::min(1.0, had / done.alone) : 1;
  return done;
}

void AddPhase(std::vector<capacity::Phase>& course, double seconds, double alone) {
  if (seconds <= 0) return;
  const Duration length(std::llround(seconds * 1e9));
  if (!course.empty() && std::abs(course.back().alone - alone) < kSamePhase) {
    capacity::Phase& last = course.back();
    const double before = static_cast<double>(Nanos(last.length));
    const double more = static_cast<double>(Nanos(length));
    last.alone = (last.alone * before + alone * more) / (before + more);
    last.length += length;
    return;
  }
  course.push_back({length, alone});
}

// In its own time where it ends with its work, else by the clock.
std::vector<capacity::Phase> CourseOf(const Life& life, const Booked& booked, size_t gpus,
                                      bool ends, int64_t bucket_s, const Executed& executed) {
  std::map<int64_t,
           std::vector<std::pair<const ledger::Activity*, const ledger::Activity::Bucket*>>>
      by_time;
  for (const ledger::Activity* activity : life.did) {
    for (const auto& bucket : activity->buckets) by_time[bucket.t].emplace_back(activity, &bucket);
  }
  std::vector<capacity::Phase> course;
  const int64_t from = std::max(life.from, booked.from());
  const int64_t to = std::min(life.to, booked.to());
  const int64_t bucket_ms = bucket_s * 1000;
  for (int64_t t = from / bucket_ms * bucket_ms; t < to; t += bucket_ms) {
    const double there = static_cast<double>(std::min(t + bucket_ms, to) - std::max(t, from)) / 1e3;
    const double part = there / static_cast<double>(bucket_s);
    const auto on = by_time.find(t / 1000);
    if (on == by_time.end() || part < kPartLeast) {
      AddPhase(course, there, 0);
      continue;
    }
    const Done done = DoneIn(on->second, gpus, part, executed);
    AddPhase(course, ends ? there * done.progress : there, done.alone);
  }
  return course;
}

// Of the life's terms in the window the longest.
const ledger::Term* LongestTerm(const Life& life, const Booked& booked) {
  const ledger::Term* longest = nullptr;
  int64_t most = -1;
  for (const ledger::Term* term : life.terms) {
    const int64_t from =
        std::max(term->from ? MillisOf(*term->from) : booked.from(), booked.from());
    const int64_t to = std::min(term->to ? MillisOf(*term->to) : booked.to(), booked.to());
    if (to - from <= most) continue;
    most = to - from;
    longest = term;
  }
  return longest;
}

// What the log says that it asked for. Texts of this daemon or one of another version: keys that
// are none any more are passed over.
spec::PodRequest AskedIn(const std::string& text) {
  spec::PodRequest asked;
  const json object = ledger::ObjectIn(text);
  for (const auto& [key, value] : object.items()) {
    const spec::PodField* field = spec::FindPodField(key);
    if (field != nullptr && !value.is_null()) (void)spec::ReadField(*field, value, asked);
  }
  if (!spec::Complete(asked)) {
    asked.share = {.request = policy::kShareMin, .limit = policy::kWhole};
  }
  return asked;
}

void Ask(const spec::PodRequest& asked, size_t gpus, capacity::PodPlan& plan) {
  const auto valid = policy::Validated(asked.share);
  plan.share = valid ? *valid : policy::Validated({.request = policy::kShareMin}).value();
  devmgr::PodRequest& request = plan.request;
  request.mode = asked.wishes.mode.empty() ? std::string(spec::kTimeSlice) : asked.wishes.mode;
  request.models = asked.wishes.models;
  request.not_models = asked.wishes.not_models;
  request.gang = asked.gang;
  request.idle = plan.share.priority == policy::Priority::kIdle;
  devmgr::VgpuRequest vgpu;
  vgpu.share = plan.share.request;
  const uint64_t room = asked.swap ? asked.memory_request : asked.memory_cap;
  vgpu.memory_mib =
      static_cast<uint32_t>(std::min<uint64_t>((room + (1u << 20) - 1) >> 20, 1u << 31));
  vgpu.memory_part = room == 0 ? asked.memory_part : policy::Share(0);
  vgpu.count = static_cast<uint32_t>(std::clamp<size_t>(gpus, 1, devmgr::VgpuRequest::kCardsMax));
  request.containers.push_back({"main", {vgpu}});
}

class WorkloadMaker {
 public:
  WorkloadMaker(const Booked& booked, const WorkloadView& view) : booked_(booked), view_(view) {
    for (const ledger::Activity& activity : booked.activities) {
      bucket_s_ = activity.seconds;
      if (!activity.measured) {
        others_.insert(activity.gpu);
        continue;
      }
      for (const auto& bucket : activity.buckets) {
        executed_[{activity.gpu, bucket.t}] += bucket.busy;
      }
    }
  }

  void AddNodes(const std::vector<ledger::BookedGpu>& gpus) {
    for (const ledger::BookedGpu& gpu : gpus) {
      if (others_.contains(gpu.uuid)) continue;
      const std::string name = gpu.node.empty() ? view_.here : gpu.node;
      auto& nodes = made_.scenario.nodes;
      auto node = std::find_if(nodes.begin(), nodes.end(),
                               [&](const devmgr::Node& known) { return known.name == name; });
      if (node == nodes.end()) {
        node = nodes.emplace(nodes.end());
        node->name = name;
      }
      devmgr::Card card;
      card.uuid = gpu.uuid;
      card.model = gpu.model;
      card.memory_mib = static_cast<uint32_t>(std::min<uint64_t>(gpu.memory_bytes >> 20, 1u << 31));
      // Of a GPU of which nobody said it, room is not a matter of memory.
      if (card.memory_mib == 0) card.memory_mib = 1u << 20;
      card.memory_mib -= std::min(card.memory_mib - 1, view_.memory_reserve_mib);
      node->cards.push_back(std::move(card));
      there_.insert(gpu.uuid);
    }
  }

  void AddPod(const Life& life) {
    const ledger::Term* term = LongestTerm(life, booked_);
    const spec::PodRequest asked = AskedIn(term != nullptr ? term->asked : "");
    std::set<std::string> on;
    bool measured = true;
    double had = 0;
    for (const ledger::Activity* activity : life.did) {
      measured = measured && activity->measured;
      on.insert(activity->gpu);
      for (const auto& bucket : activity->buckets) {
        had += std::max(bucket.held, bucket.busy) * static_cast<double>(activity->seconds) / 3600;
      }
    }
    if (term != nullptr && !term->gpus.empty()) on = {term->gpus.begin(), term->gpus.end()};
    const bool elsewhere = std::any_of(
        on.begin(), on.end(), [this](const std::string& gpu) { return others_.contains(gpu); });
    const std::string& mode = asked.wishes.mode;
    if (!measured || elsewhere || (!mode.empty() && !spec::ByToken(mode))) {
      ++made_.left_out;
      return;
    }
    capacity::PodPlan plan;
    const size_t gpus = std::max<size_t>(1, on.size());
    Ask(asked, gpus, plan);
    plan.request.name = life.path;
    for (int n = 2; !names_.insert(plan.request.name).second; ++n) {
      plan.request.name = fmt::format("{}#{}", life.path, n);
    }
    plan.request.team = life.team;
    const bool ends = life.ended || !WasThereBefore(life);
    plan.course = CourseOf(life, booked_, gpus, ends, bucket_s_, executed_);
    plan.ends = ends ? capacity::Ends::kWork : capacity::Ends::kNever;
    plan.had_hours = had;
    SetTimes(life, asked.asked_at * 1000, on, plan);
    for (const ledger::Activity* activity : life.did) {
      const ledger::Profile use = ledger::ProfileOf(*activity);
      const auto advised = SeenForLong(use) ? AdvisedRequest(use, plan.share) : std::nullopt;
      if (advised) plan.advised = std::max(plan.advised.value_or(*advised), *advised);
    }
    made_.scenario.pods.push_back(std::move(plan));
  }

  Workload Finish(std::vector<teams::Use> uses) {
    capacity::Scenario& s = made_.scenario;
    s.length = std::chrono::milliseconds(booked_.to() - booked_.from());
    s.placement = view_.placement;
    s.overcommit = std::max(1.0, view_.overcommit);
    s.teams = view_.teams;
    s.uncontended_use = view_.uncontended_use;
    s.uses = std::move(uses);
    return std::move(made_);
  }

 private:
  bool WasThereBefore(const Life& life) const { return !life.began || life.from < booked_.from(); }

  void SetTimes(const Life& life, int64_t asked_at, const std::set<std::string>& on,
                capacity::PodPlan& plan) const {
    int64_t came = life.from;
    if (asked_at > 0) came = std::min(came, asked_at);
    const bool there_before = WasThereBefore(life);
    plan.came = std::chrono::milliseconds(came - booked_.from());
    if (there_before) plan.came = std::min<Duration>(plan.came, Duration(0));
    const bool known = std::all_of(on.begin(), on.end(),
                                   [this](const std::string& gpu) { return there_.contains(gpu); });
    if (there_before && known) plan.on = {on.begin(), on.end()};
  }

  const Booked& booked_;
  const WorkloadView& view_;
  int64_t bucket_s_ = 3600;
  Executed executed_;
  std::set<std::string> others_;  // GPUs that are not given out by tokens
  std::set<std::string> there_;
  std::set<std::string> names_;
  Workload made_;
};

// What teams had used by then, in GPU-hours, as if the standing were asked for at that time.
Result<std::vector<teams::Use>> UsesAt(ledger::Ledger& ledger, ledger::WallTime at,
                                       const WorkloadView& view) {
  using std::chrono::hours;
  using std::chrono::milliseconds;
  const auto half_life = std::chrono::duration_cast<milliseconds>(view.teams.half_life);
  const milliseconds part =
      std::max<milliseconds>(half_life / kUsePartsInHalfLife, std::chrono::seconds(10));
  std::map<std::string, ledger::DecayedUse> sums;
  ledger::WallTime to = at;
  for (int n = 0; n < kUseParts && to > ledger::WallTime{} + part; ++n) {
    const ledger::WallTime from = to - part;
    const auto uses = ledger.Query({from, to}, ledger::By::kTeam);
    if (!uses) return tl::unexpected(uses.error());
    const double age =
        static_cast<double>((at - to).count()) + static_cast<double>(part.count()) / 2;
    const double kept = std::exp2(-age / static_cast<double>(half_life.count()));
    for (const ledger::UseRow& row : uses->rows) {
      const double weight = ledger::WeightOf(view.weights, row.model) * kept / 3600e9;
      ledger::DecayedUse& sum = sums[row.keys[0]];
      sum.team = row.keys[0];
      sum.decayed_ns += weight * static_cast<double>(row.use.held_ns);
      sum.uncontended_ns += weight * static_cast<double>(row.use.uncontended_ns);
    }
    // Edges are moved out to whole buckets where the fine ones are gone.
    to = std::min(from, uses->window.from);
  }
  std::vector<ledger::DecayedUse> all;
  all.reserve(sums.size());
  for (auto& [team, sum] : sums) all.push_back(std::move(sum));
  return teams::ByTeam(UsesOf(all, view.uncontended_use));
}

}  // namespace

Result<Workload> WorkloadOf(ledger::Ledger& ledger, ledger::Window window,
                            const WorkloadView& view) {
  Booked booked;
  booked.window = window;
  const auto changes = ledger.Changes({.from = {},
                                       .to = kBooksEnd,
                                       .kind = "pod",
                                       .most = static_cast<size_t>(ledger::kChangesMax)});
  if (!changes) return tl::unexpected(changes.error());
  booked.terms = ledger::TermsOf(*changes, view.present, view.here);
  auto activities = ledger.Activities(window);
  if (!activities) return tl::unexpected(activities.error());
  booked.activities = std::move(*activities);
  const auto gpus = ledger.Gpus(window);
  if (!gpus) return tl::unexpected(gpus.error());
  auto uses = UsesAt(ledger, window.from, view);
  if (!uses) return tl::unexpected(uses.error());
  WorkloadMaker maker(booked, view);
  maker.AddNodes(*gpus);
  for (const Life& life : LivesOf(booked)) maker.AddPod(life);
  Workload made = maker.Finish(std::move(*uses));
  if (made.scenario.pods.empty() || made.scenario.nodes.empty()) {
    return Fail(ErrorCode::kNotFound,
                fmt::format("no pod was there from {} to {}{}; 'baton report --by day --last 90d' "
                            "shows when there were some",
                            ledger::FormatTime(window.from), ledger::FormatTime(window.to),
                            made.left_out > 0 ? " by tokens" : ""));
  }
  return made;
}

Result<ReportAnswer> AskWorkload(const std::map<std::string, std::string>& field,
                                 const ReportView& view) {
  const auto window = WindowOf(field, "24h");
  if (!window) return tl::unexpected(window.error());
  WorkloadView needs{.teams = view.has_teams ? view.teams : teams::Teams{},
                     .uncontended_use = view.options.teams.uncontended_use,
                     .overcommit = policy::Ratio(view.options.overcommit),
                     .placement = view.options.placement.policy,
                     .memory_reserve_mib = view.options.memory_reserve_mib,
                     .weights = view.options.ledger.weights,
                     .here = config::NodeName(view.options),
                     .present = {}};
  return LedgerQuery(
      [window = *window, needs = std::move(needs),
       present = PresentPods(view.arbiter)](ledger::Ledger& ledger) mutable -> Result<json> {
        needs.present = AsInTheLog(present);
        const auto workload = WorkloadOf(ledger, window, needs);
        if (!workload) return tl::unexpected(workload.error());
        const capacity::ScenarioFiles files = capacity::WriteScenario(workload->scenario);
        return json{{"from", ledger::FormatTime(window.from)},
                    {"to", ledger::FormatTime(window.to)},
                    {"left_out", workload->left_out},
                    {"cluster", files.cluster},
                    {"teams", files.teams},
                    {"pods", files.pods}};
      });
}

}  // namespace baton::backend
