#include "backend/what_if.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "ledger/report.h"
#include "teams/what_if.h"

namespace baton::backend {
namespace {

using nlohmann::json;
using SharesAsked = std::map<std::string, policy::ShareSpec>;

// Shares that are asked about: "train=60,web=10:40", by pod.
Result<SharesAsked> ParseShares(const std::string& text) {
  SharesAsked shares;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string one = text.substr(at, end - at);
    at = end + 1;
    const size_t equal = one.rfind('=');
    if (equal == std::string::npos || equal == 0) {
      return Fail(ErrorCode::kInvalid,
                  "shares: '" + one + "' is not POD=REQUEST or POD=REQUEST:LIMIT, in percent");
    }
    const std::string value = one.substr(equal + 1);
    const size_t colon = value.find(':');
    const auto request = policy::ParsePercent(value.substr(0, colon));
    if (!request) return tl::unexpected(request.error());
    policy::ShareSpec spec{.request = *request};
    if (colon != std::string::npos) {
      const auto limit = policy::ParsePercent(value.substr(colon + 1));
      if (!limit) return tl::unexpected(limit.error());
      spec.limit = *limit;
    }
    const auto valid = policy::Validated(spec);
    if (!valid) return tl::unexpected(valid.error());
    shares[one.substr(0, equal)] = *valid;
  }
  return shares;
}

std::string PathOf(const ledger::Owner& owner) {
  return owner.name_space.empty() ? owner.pod : owner.name_space + "/" + owner.pod;
}

// NAMESPACE/NAME, or NAME. Null: the pod is not among them.
const policy::ShareSpec* FindIn(const SharesAsked& asked, const ledger::Owner& owner) {
  auto found = asked.find(PathOf(owner));
  if (found == asked.end()) found = asked.find(owner.pod);
  return found == asked.end() ? nullptr : &found->second;
}

// A pod whose use is in the books, and the shares that it is asked about with.
struct WhatIfShare {
  teams::WhatIfPod pod;
  bool known = true;  // else nobody knows what it asked for
};

policy::Share ShareIn(const json& object, const char* key, policy::Share otherwise) {
  const auto value = object.find(key);
  if (value == object.end() || !value->is_number()) return otherwise;
  return policy::Share(
      static_cast<uint32_t>(std::lround(std::clamp(value->get<double>(), 0.0, 100.0) * 1e4)));
}

// What a pod that is gone asked for when somebody last had a hand in it; nothing: that is not
// known.
Result<std::optional<policy::ShareSpec>> LastAsked(ledger::Ledger& ledger,
                                                   const ledger::Owner& owner,
                                                   ledger::WallTime until) {
  const ledger::ChangesQuestion question{
      .from = {}, .to = until, .kind = "pod", .object = PathOf(owner), .most = 1};
  const auto changes = ledger.Changes(question);
  if (!changes) return tl::unexpected(changes.error());
  for (const ledger::Change& change : *changes) {
    // Of texts that this daemon, or one of another version, wrote.
    const json pod = json::parse(change.is.empty() ? change.was : change.is, nullptr, false);
    if (!pod.is_object()) continue;
    policy::ShareSpec spec{.request = ShareIn(pod, "request", policy::Share(0)),
                           .limit = ShareIn(pod, "limit", policy::kWhole)};
    const auto priority = pod.find("priority");
    if (priority != pod.end() && *priority == "high") spec.priority = policy::Priority::kHigh;
    if (priority != pod.end() && *priority == "idle") spec.priority = policy::Priority::kIdle;
    if (const auto valid = policy::Validated(spec)) return *valid;
  }
  return std::nullopt;
}

// What the pod asks for now, or is asked about, or asked for last.
Result<WhatIfShare> ShareOf(const ledger::Owner& owner, const SharesAsked& asked,
                            const std::map<std::string, teams::WhatIfPod>& present,
                            ledger::WallTime until, ledger::Ledger& ledger) {
  const auto is = present.find(owner.pod);
  WhatIfShare share{{owner.team, {policy::kShareMin, policy::kWhole, 1}}};
  if (is != present.end()) share.pod = is->second;
  if (const policy::ShareSpec* spec = FindIn(asked, owner)) {
    share.pod.spec = *spec;
  } else if (is == present.end()) {
    const auto last = LastAsked(ledger, owner, until);
    if (!last) return tl::unexpected(last.error());
    share.known = last->has_value();
    if (share.known) share.pod.spec = **last;
  }
  return share;
}

struct Outcome {
  double alone = 0, had = 0, gets = 0, waits = 0;  // seconds
};

// A bucket of one GPU: what each pod did in it, null: nothing.
void DivideBucket(std::span<const ledger::Activity::Bucket* const> did, double seconds,
                  const teams::WhatIf& what_if, std::vector<Outcome>& sums) {
  double executed = 0;
  for (const auto* bucket : did) executed += bucket != nullptr ? bucket->busy : 0;
  std::vector<double> alone(did.size(), 0);
  for (size_t i = 0; i < did.size(); ++i) {
    if (did[i] == nullptr) continue;
    const ledger::Activity::Bucket& bucket = *did[i];
    alone[i] = teams::Alone({bucket.held, bucket.busy, bucket.waited},
                            std::max(0.0, executed - bucket.busy));
  }
  const std::vector<double> gets = what_if.Divide(alone);
  for (size_t i = 0; i < did.size(); ++i) {
    if (alone[i] == 0) continue;
    sums[i].had += std::clamp<double>(std::max(did[i]->held, did[i]->busy), 0, 1) * seconds;
    sums[i].alone += alone[i] * seconds;
    sums[i].gets += gets[i] * seconds;
    // It works and pauses as before, and waits for the rest of the time.
    sums[i].waits += std::max(0.0, 1 - gets[i] / alone[i]) * seconds;
  }
}

// The books of one GPU, divided anew.
void DivideAnew(std::span<const ledger::Activity* const> activities,
                const std::vector<WhatIfShare>& shares, const teams::WhatIf& what_if, json& rows) {
  std::vector<Outcome> sums(activities.size());
  std::vector<size_t> next(activities.size(), 0);
  std::vector<const ledger::Activity::Bucket*> did(activities.size());
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  while (true) {
    int64_t t = kNone;
    for (size_t i = 0; i < activities.size(); ++i) {
      const auto& buckets = activities[i]->buckets;
      if (next[i] < buckets.size()) t = std::min(t, buckets[next[i]].t);
    }
    if (t == kNone) break;
    for (size_t i = 0; i < activities.size(); ++i) {
      const auto& buckets = activities[i]->buckets;
      const bool has = next[i] < buckets.size() && buckets[next[i]].t == t;
      did[i] = has ? &buckets[next[i]++] : nullptr;
    }
    DivideBucket(did, static_cast<double>(activities.front()->seconds), what_if, sums);
  }
  for (size_t i = 0; i < activities.size(); ++i) {
    const ledger::Activity& activity = *activities[i];
    const auto there = static_cast<double>(activity.buckets.back().t - activity.buckets.front().t +
                                           activity.seconds);
    const policy::ShareSpec& spec = shares[i].pod.spec;
    rows.push_back({{"pod", activity.owner.pod},
                    {"namespace", activity.owner.name_space},
                    {"team", activity.owner.team},
                    {"gpu", activity.gpu},
                    {"known", shares[i].known},
                    {"request", shares[i].known ? policy::Percent(spec.request) : 0.0},
                    {"limit", policy::Percent(spec.limit)},
                    {"hours", there / 3600},
                    {"alone", 100 * sums[i].alone / there},
                    {"had", 100 * sums[i].had / there},
                    {"would_get", 100 * sums[i].gets / there},
                    {"would_wait", 100 * sums[i].waits / there}});
  }
}

}  // namespace

Result<ReportAnswer> AskWhatIf(const std::map<std::string, std::string>& field,
                               const ReportView& view) {
  const auto window = WindowOf(field, "24h");
  if (!window) return tl::unexpected(window.error());
  const auto asked = ParseShares(field.at("shares"));
  if (!asked) return tl::unexpected(asked.error());
  std::map<std::string, teams::WhatIfPod> present;
  for (const auto& [id, pod] : view.arbiter.pods().all()) {
    if (!pod.throw_away) present[pod.name] = {pod.team, view.arbiter.shares().SpecOf(pod)};
  }
  const std::optional<teams::Teams> teams =
      view.has_teams ? std::optional(view.teams) : std::nullopt;
  return LedgerQuery([window = *window, asked = *asked, present = std::move(present), teams,
                      uses = view.by_team](ledger::Ledger& ledger) -> Result<json> {
    const auto activities = ledger.Activities(window);
    if (!activities) return tl::unexpected(activities.error());
    std::map<std::string, std::vector<const ledger::Activity*>> by_gpu;
    int64_t seconds = 0;
    for (const ledger::Activity& activity : *activities) {
      if (!activity.measured) continue;
      by_gpu[activity.gpu].push_back(&activity);
      seconds = activity.seconds;
    }
    std::set<std::string> unused;
    for (const auto& [name, spec] : asked) unused.insert(name);
    json rows = json::array();
    for (const auto& [gpu, on] : by_gpu) {
      std::vector<WhatIfShare> shares;
      std::vector<teams::WhatIfPod> pods;
      for (const ledger::Activity* activity : on) {
        unused.erase(activity->owner.pod);
        unused.erase(PathOf(activity->owner));
        auto share = ShareOf(activity->owner, asked, present, window.to, ledger);
        if (!share) return tl::unexpected(share.error());
        pods.push_back(share->pod);
        shares.push_back(std::move(*share));
      }
      DivideAnew(on, shares, {std::move(pods), teams ? &*teams : nullptr, uses}, rows);
    }
    if (!unused.empty()) {
      return Fail(ErrorCode::kNotFound,
                  "shares: no pod " + *unused.begin() + " used a GPU by the token in this time");
    }
    return json{{"from", ledger::FormatTime(window.from)},
                {"to", ledger::FormatTime(window.to)},
                {"bucket_s", seconds},
                {"rows", std::move(rows)}};
  });
}

}  // namespace baton::backend
