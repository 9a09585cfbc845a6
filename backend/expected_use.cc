#include "backend/expected_use.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "spec/modes.h"
#include "teams/what_if.h"

namespace baton::backend {
namespace {

constexpr auto kByMinutes = std::chrono::hours(6);
constexpr auto kByHours = std::chrono::hours(7 * 24);
constexpr int64_t kMinutesLeast = 20;
constexpr int64_t kHoursLeast = 1;
constexpr policy::Share kIdleUse = policy::kWhole / 2;

void AddUses(const std::vector<ledger::Activity>& activities, int64_t least, ledger::WallTime now,
             const std::set<std::string>& present, UsesByName& uses) {
  const int64_t now_s =
      std::chrono::duration_cast<std::chrono::seconds>(now.time_since_epoch()).count();
  UsesByName these;
  for (const ledger::Activity& activity : activities) {
    if (!activity.measured) continue;
    const bool there = present.contains(activity.owner.pod);
    const auto mean = MeanAlone(activity, least, there ? now_s : 0);
    if (!mean) continue;
    policy::Share& use = these[activity.owner.pod];
    use = std::max(use, policy::ShareOf(*mean));
  }
  // Of several, the last one by name that says something.
  for (const auto& [name, use] : these) {
    uses.insert_or_assign(std::string(WorkloadOf(name)), use);
  }
  for (const auto& [name, use] : these) uses[name] = use;
}

}  // namespace

std::string_view WorkloadOf(std::string_view pod) {
  const size_t dash = pod.find_last_not_of("0123456789");
  if (dash == std::string_view::npos || dash == 0 || dash + 1 == pod.size() || pod[dash] != '-') {
    return pod;
  }
  return pod.substr(0, dash);
}

std::optional<double> MeanAlone(const ledger::Activity& activity, int64_t least, int64_t until_s) {
  const int64_t first = activity.buckets.front().t;
  const int64_t last =
      std::max(activity.buckets.back().t, until_s / activity.seconds * activity.seconds);
  const int64_t between = (last - first) / activity.seconds - 1;
  if (between < std::max<int64_t>(1, least)) return std::nullopt;
  double sum = 0;
  for (const ledger::Activity::Bucket& bucket : activity.buckets) {
    if (bucket.t == first) continue;
    // More than the bucket has was booked late, for the time of several before it.
    if (bucket.t == last) {
      sum += std::max(0.0F, bucket.held - 1);
    } else if (bucket.held > 1) {
      sum += bucket.held;
    } else {
      sum += teams::Alone({bucket.held, bucket.busy, bucket.waited}, 0);
    }
  }
  return std::clamp(sum / static_cast<double>(between), 0.0, 1.0);
}

Result<UsesByName> UsesByLedger(ledger::Ledger& ledger, ledger::WallTime now,
                                const std::set<std::string>& present) {
  UsesByName uses;
  const auto hours = ledger.Activities({now - kByHours, now});
  if (!hours) return tl::unexpected(hours.error());
  AddUses(*hours, kHoursLeast, now, present, uses);
  const auto minutes = ledger.Activities({now - kByMinutes, now});
  if (!minutes) return tl::unexpected(minutes.error());
  // Minutes may be dropped already; then these are hours too.
  AddUses(*minutes, kMinutesLeast, now, present, uses);
  return uses;
}

void ExpectedUse::Set(UsesByName uses, const Pods& pods) {
  uses_ = std::move(uses);
  for (const auto& [id, pod] : pods.all()) {
    if (!pod.throw_away) static_cast<void>(cluster_.SetExpectedUse(pod.name, Of(pod)));
  }
}

std::optional<policy::Share> ExpectedUse::Of(const Pod& pod) const {
  const std::string& mode = pod.wishes.mode.empty() ? pod.mode : pod.wishes.mode;
  if (uses_.empty() || (!mode.empty() && mode != spec::kTimeSlice)) return std::nullopt;
  auto known = uses_.find(pod.name);
  if (known == uses_.end()) known = uses_.find(WorkloadOf(pod.name));
  if (known != uses_.end()) return std::min(known->second, pod.share.limit);
  if (pod.share.priority != policy::Priority::kIdle) return std::nullopt;
  return std::min(kIdleUse, pod.share.limit);
}

std::optional<int64_t> ExpectedUse::BeyondOn(std::string_view uuid) const {
  if (uses_.empty()) return std::nullopt;
  bool known = false;
  int64_t beyond = 0;
  for (const auto& [name, pod] : cluster_.pods()) {
    if (!pod.request.expected_use) continue;
    for (const devmgr::Vgpu& vgpu : pod.placement.vgpus) {
      if (vgpu.card != uuid) continue;
      known = true;
      beyond += int64_t{pod.request.expected_use->millionths()} - vgpu.fit.share.millionths();
    }
  }
  return known ? std::optional(beyond) : std::nullopt;
}

std::string ExpectedUse::Explain(const devmgr::PodRequest& request, const devmgr::Placement& where,
                                 const devmgr::UseChoice& choice) const {
  if (where.vgpus.empty() || uses_.empty()) return "";
  const std::string& gpu = where.vgpus.front().card;
  if (choice.instead_of.empty() && !request.expected_use && !BeyondOn(gpu)) return "";
  const auto percent = [](int64_t use) {
    return fmt::format("{:.0f} %", static_cast<double>(use) / 1e4);
  };
  std::string text =
      fmt::format("By what pods used before, the pods on {} would use {} of it with this one", gpu,
                  percent(choice.here));
  if (choice.instead_of.empty()) return text + ".";
  return text + fmt::format("; {}, which the rule takes by requests alone, would be wanted to {}.",
                            choice.instead_of, percent(choice.there));
}

}  // namespace baton::backend
