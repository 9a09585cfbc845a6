#include "backend/advise.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/parse.h"
#include "ledger/report.h"

namespace baton::backend {
namespace {

using nlohmann::json;

// Fewer buckets say nothing about a p99.
constexpr int64_t kBucketsLeast = 20;
constexpr int64_t kStepMib = 256;
// What is not so far off is left alone.
constexpr double kFar = 1.5;

std::string InPercent(double part) { return fmt::format("{:.1f}%", part * 100); }
std::string InBytes(int64_t mib) { return FormatBytes(static_cast<uint64_t>(mib) << 20); }

// Whole percents, at least one.
double WholePercents(double part) {
  return std::clamp(std::ceil(part * 100 - 1e-6) / 100, 0.01, 1.0);
}

// A quarter more than the p99.
double RequestThatFits(const ledger::Profile& use) { return WholePercents(use.held_p99 * 1.25); }

// A quarter more than the p99, and never less than was ever used.
int64_t MemoryThatFits(const AdvisedPod& pod, const ledger::Profile& use) {
  const int64_t wanted = std::max({use.memory_p99_mib * 5 / 4, use.memory_peak_mib * 21 / 20,
                                   static_cast<int64_t>(pod.memory_request >> 20)});
  return std::max<int64_t>(kStepMib, (wanted + kStepMib - 1) / kStepMib * kStepMib);
}

// Puts the advice in rows about one pod.
class Adviser {
 public:
  Adviser(const AdvisedPod& pod, const ledger::Profile& use) : pod_(pod), use_(use) {}

  json Take() {
    Memory();
    // An idle pod has no request, and wants none.
    if (pod_.held_known && pod_.share.priority != policy::Priority::kIdle && !Part() &&
        !pod_.exclusive) {
      Request();
      Limit();
    }
    return std::move(rows_);
  }

 private:
  void Add(const char* what, std::string now, std::string used, std::string set_to,
           std::string frees, std::string why, json set) {
    json row{{"pod", use_.owner.pod},
             {"team", use_.owner.team},
             {"gpu", use_.gpu},
             {"what", what},
             {"now", std::move(now)},
             {"used", std::move(used)},
             {"set_to", std::move(set_to)},
             {"frees", std::move(frees)},
             {"why", std::move(why)},
             {"set", std::move(set)}};
    if (pod_.kubernetes) {
      row["cannot"] = "it is a pod of Kubernetes; change its SharePod, or its annotations";
    } else if (std::string_view(what) == "part" && pod_.exclusive) {
      row["cannot"] = fmt::format(
          "its mode cannot change while it exists; create it again with --request {} "
          "--memory {}",
          row.at("set").at("request").get<double>(),
          FormatBytes(row.at("set").at("memory").get<uint64_t>()));
    }
    rows_.push_back(std::move(row));
  }

  void Memory() {
    const auto cap = static_cast<int64_t>(pod_.memory_cap >> 20);
    if (cap == 0) return;
    int64_t fit = MemoryThatFits(pod_, use_);
    const std::string used = InBytes(use_.memory_p99_mib);
    const auto set = [&] { return json{{"memory", fit << 20}}; };
    if (static_cast<double>(fit) * kFar < static_cast<double>(cap)) {
      // A whole GPU's memory is free with the GPU alone.
      if (pod_.exclusive) return;
      Add("memory", InBytes(cap), used, InBytes(fit), InBytes(cap - fit),
          fmt::format("it never used more than {} of its cap", InBytes(use_.memory_peak_mib)),
          set());
    } else if (use_.memory_p99_mib * 100 >= cap * 95) {
      if (pod_.gpu_memory != 0) fit = std::min(fit, static_cast<int64_t>(pod_.gpu_memory >> 20));
      if (fit <= cap) return;
      Add("memory", InBytes(cap), used, InBytes(fit), "",
          "it is at its cap; its next allocation may fail", set());
    }
  }

  // Of a pod that has a whole GPU. True: a part would do.
  bool Part() {
    if (!pod_.exclusive && pod_.share.request < policy::kWhole) return false;
    const double request = RequestThatFits(use_);
    const int64_t memory = MemoryThatFits(pod_, use_);
    const auto all = static_cast<int64_t>(pod_.gpu_memory >> 20);
    if (request * kFar >= 1 || static_cast<double>(memory) * kFar >= static_cast<double>(all)) {
      return false;
    }
    json set{{"request", std::round(request * 100)}};
    // A cap that it has already is advised on by itself.
    if (pod_.exclusive || pod_.memory_cap == 0) set["memory"] = memory << 20;
    Add("part", pod_.exclusive ? "exclusive" : InPercent(policy::Ratio(pod_.share.request)),
        InPercent(use_.held_p99) + ", " + InBytes(use_.memory_p99_mib),
        InPercent(request) + ", " + InBytes(memory),
        InPercent(1 - request) + " of a GPU, " + InBytes(all - memory),
        "it has a whole GPU, and a part would do", std::move(set));
    return true;
  }

  void Request() {
    const auto advised = AdvisedRequest(use_, pod_.share);
    if (!advised) return;
    const double request = policy::Ratio(pod_.share.request), fit = policy::Ratio(*advised);
    const auto set = [&] { return json{{"request", std::round(fit * 1000) / 10}}; };
    if (fit < request) {
      Add("request", InPercent(request), InPercent(use_.held_p99), InPercent(fit),
          InPercent(request - fit) + " of a GPU",
          "its request is far above its use, and keeps other pods away", set());
    } else {
      Add("request", InPercent(request), InPercent(use_.held_p99), InPercent(fit), "",
          "it depends on time that other pods leave over and may need at any time", set());
    }
  }

  void Limit() {
    const double limit = policy::Ratio(pod_.share.limit);
    if (limit >= 1 || use_.held_p50 < 0.95 * limit || use_.wanted_p50 < kFar * limit) return;
    const double fit = WholePercents(use_.wanted_p50);
    Add("limit", InPercent(limit), InPercent(use_.held_p99), InPercent(fit), "",
        "it is at its limit, and waits though it has work", {{"limit", std::round(fit * 100)}});
  }

  const AdvisedPod& pod_;
  const ledger::Profile& use_;
  json rows_ = json::array();
};

// The most of both; the GPU is that of which more was held.
void Join(const ledger::Profile& other, ledger::Profile& use) {
  if (other.held_p99 > use.held_p99) use.gpu = other.gpu;
  use.held_p50 = std::max(use.held_p50, other.held_p50);
  use.held_p99 = std::max(use.held_p99, other.held_p99);
  use.wanted_p50 = std::max(use.wanted_p50, other.wanted_p50);
  use.memory_p99_mib = std::max(use.memory_p99_mib, other.memory_p99_mib);
  use.memory_peak_mib = std::max(use.memory_peak_mib, other.memory_peak_mib);
  use.buckets = std::max(use.buckets, other.buckets);
}

std::map<std::string, AdvisedPod> AdvisedPods(const ReportView& view) {
  std::map<std::string, AdvisedPod> pods;
  for (const auto& [id, pod] : view.arbiter.pods().all()) {
    if (pod.throw_away || !pod.by_token()) continue;
    AdvisedPod& advised = pods[pod.name];
    advised.share = pod.share;
    advised.memory_cap = pod.gpus.empty() ? 0 : pod.CapOn(pod.gpus.front());
    advised.memory_request = pod.memory_request;
    advised.exclusive = pod.mode == spec::kExclusive;
    advised.kubernetes = !pod.cgroup.empty();
    advised.held_known = Enforces(view.options);
    for (const std::string& uuid : pod.gpus) {
      const auto gpu = view.arbiter.gpus().find(uuid);
      if (gpu == view.arbiter.gpus().end()) continue;
      const uint64_t bytes = gpu->second->info.memory_bytes;
      if (advised.gpu_memory == 0 || bytes < advised.gpu_memory) advised.gpu_memory = bytes;
    }
  }
  return pods;
}

}  // namespace

bool SeenForLong(const ledger::Profile& use) { return use.buckets >= kBucketsLeast; }

std::optional<policy::Share> AdvisedRequest(const ledger::Profile& use,
                                            const policy::ShareSpec& asked) {
  if (asked.priority == policy::Priority::kIdle) return std::nullopt;
  const double request = policy::Ratio(asked.request);
  const double fit = RequestThatFits(use);
  if (fit * kFar < request) return policy::ShareOf(fit);
  if (use.held_p50 > kFar * request && request < 0.9) {
    const policy::Share more =
        policy::ShareOf(std::min(WholePercents(use.held_p50), policy::Ratio(asked.limit)));
    if (more > asked.request) return more;
  }
  return std::nullopt;
}

json AdviceOn(const AdvisedPod& pod, const ledger::Profile& use) {
  return Adviser(pod, use).Take();
}

Result<ReportAnswer> AskAdvise(const std::map<std::string, std::string>& field,
                               const ReportView& view) {
  const std::string& last = field.at("last");
  const auto window = ledger::ParseWindow("", "", last.empty() ? "7d" : last, ledger::WallNow());
  if (!window) return tl::unexpected(window.error());
  return LedgerQuery(
      [window = *window, pods = AdvisedPods(view)](ledger::Ledger& ledger) -> Result<json> {
        auto profiles = ledger.Profiles(window);
        if (!profiles) return tl::unexpected(profiles.error());
        int64_t seconds = ledger::BucketSeconds(window);
        // A request and a cap are of the pod, on all of its GPUs.
        std::map<std::string, ledger::Profile> uses;
        for (const ledger::Profile& profile : *profiles) {
          seconds = std::max(seconds, profile.seconds);
          const auto [use, fresh] = uses.emplace(profile.owner.pod, profile);
          if (!fresh) Join(profile, use->second);
        }
        json rows = json::array(), unseen = json::array();
        for (const auto& [name, pod] : pods) {
          const auto use = uses.find(name);
          if (use == uses.end() || !SeenForLong(use->second)) {
            unseen.push_back(name);
            continue;
          }
          for (json& row : AdviceOn(pod, use->second)) rows.push_back(std::move(row));
        }
        return json{{"from", ledger::FormatTime(window.from)},
                    {"to", ledger::FormatTime(window.to)},
                    {"pods", pods.size()},
                    {"unseen", std::move(unseen)},
                    {"needed_s", kBucketsLeast * seconds},
                    {"rows", std::move(rows)}};
      });
}

}  // namespace baton::backend
