#include "k8s/types/team.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/team_path.h"
#include "k8s/types/quantity.h"
#include "k8s/types/read.h"
#include "k8s/types/share_pod.h"

namespace baton::k8s {
namespace {

constexpr int64_t kTeamWeightMax = 1'000'000;
constexpr uint64_t kMillionthsPerMilli = 1'000;

Result<void> ReadAmount(const Json& object, const std::string& part, std::optional<uint64_t>* share,
                        std::optional<uint64_t>* memory_mib) {
  const std::string gpus = "spec/" + part + "/gpus";
  if (const Json* found = Find(object, gpus); found != nullptr && !found->is_null()) {
    const auto milli = MilliQuantity(*found);
    if (!milli) return Refuse("spec." + part + ".gpus", milli.error().message);
    *share = std::min<uint64_t>(static_cast<uint64_t>(*milli), devmgr::Quota::kShareMax) *
             kMillionthsPerMilli;
  }
  const std::string memory = "spec/" + part + "/memory";
  if (const Json* found = Find(object, memory); found != nullptr && !found->is_null()) {
    const auto bytes = WholeQuantity(*found);
    if (!bytes) return Refuse("spec." + part + ".memory", bytes.error().message);
    *memory_mib = MibOf(static_cast<uint64_t>(*bytes));
  }
  return {};
}

// In the order in which they are taken where they do not agree.
using Order = std::vector<std::pair<std::string, TeamSet::Known*>>;

std::optional<devmgr::Quotas> QuotasInForce(const std::map<std::string, TeamSet::Known>& all,
                                            std::string* why) {
  std::vector<devmgr::Quota> quotas;
  for (const auto& [name, known] : all) {
    if (known.in_force) quotas.push_back(known.in_force->quota);
  }
  auto made = devmgr::Quotas::Make(std::move(quotas));
  if (made) return *std::move(made);
  *why = made.error().message;
  return std::nullopt;
}

}  // namespace

Result<Team> ReadTeam(const Json& object) {
  Team team;
  team.quota.team = TextAt(object, "spec/team");
  if (team.quota.team.empty() || TeamPath(team.quota.team) != team.quota.team) {
    return Refuse("spec.team", Quoted(team.quota.team) +
                                   " is not a path such as research/vision, of 1 to 16 parts");
  }
  if (const Json* weight = Find(object, "spec/weight"); weight != nullptr && !weight->is_null()) {
    const int64_t value = weight->is_number_integer() ? weight->get<int64_t>() : 0;
    if (value < 1 || value > kTeamWeightMax) {
      return Refuse("spec.weight", "must be a whole number from 1 to 1000000");
    }
    team.weight = static_cast<uint32_t>(value);
  }
  devmgr::Quota& quota = team.quota;
  if (auto ok =
          ReadAmount(object, "guarantee", &quota.guaranteed_share, &quota.guaranteed_memory_mib);
      !ok) {
    return tl::unexpected(ok.error());
  }
  if (auto ok = ReadAmount(object, "ceiling", &quota.ceiling_share, &quota.ceiling_memory_mib);
      !ok) {
    return tl::unexpected(ok.error());
  }
  return team;
}

void TeamSet::Set(Json object) {
  const std::string name = TextAt(object, "metadata/name");
  if (name.empty()) return;
  auto read = ReadTeam(object);
  const auto known = all_.find(name);
  if (known == all_.end()) {
    all_.emplace(name, Known{std::move(object), std::move(read), std::nullopt, ""});
    settled_ = false;
    return;
  }
  const bool same = read.has_value() == known->second.read.has_value() &&
                    (read ? *read == *known->second.read
                          : read.error().message == known->second.read.error().message);
  // Another object of the same name has nothing from before.
  const bool other = UidOf(known->second.object) != UidOf(object);
  known->second.object = std::move(object);
  if (same && !other) return;
  known->second.read = std::move(read);
  if (other) known->second.in_force.reset();
  settled_ = false;
}

void TeamSet::Remove(const Json& object) {
  if (all_.erase(TextAt(object, "metadata/name")) > 0) settled_ = false;
}

void TeamSet::Settle() {
  if (!std::exchange(settled_, true)) Agree();
}

void TeamSet::Agree() {
  Order order;
  for (auto& [name, known] : all_) order.emplace_back(name, &known);
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    const auto age = [](const auto& one) {
      return std::pair(TextAt(one.second->object, "metadata/creationTimestamp"), one.first);
    };
    return age(a) < age(b);
  });
  std::map<std::string, std::optional<Team>> before;
  for (auto& [name, known] : order) {
    before[name] = known->in_force;
    known->why_not = known->read ? "" : known->read.error().message;
    if (known->read) known->in_force = *known->read;
  }
  std::string why;
  std::optional<devmgr::Quotas> agreed = QuotasInForce(all_, &why);
  if (!agreed) {
    for (auto& [name, known] : order) known->in_force = before[name];
    agreed = QuotasInForce(all_, &why);
    if (!agreed) {
      // One that has gone allowed what the others have.
      for (auto& [name, known] : order) known->in_force.reset();
      agreed.emplace();
    }
    // One change may need another: until none is possible any more.
    for (bool more = true; more;) {
      more = false;
      for (auto& [name, known] : order) {
        if (!known->read || known->in_force == *known->read) continue;
        const std::optional<Team> kept = std::exchange(known->in_force, *known->read);
        if (auto with = QuotasInForce(all_, &known->why_not)) {
          agreed = std::move(with);
          known->why_not.clear();
          more = true;
        } else {
          known->in_force = kept;
        }
      }
    }
  }
  quotas_ = *std::move(agreed);
  weights_.clear();
  for (const auto& [name, known] : all_) {
    if (known.in_force && known.in_force->weight) {
      weights_[known.in_force->quota.team] = *known.in_force->weight;
    }
  }
}

std::optional<Json> TeamSet::WithStatus(const Known& known, const std::string& now) {
  const Json* before = Find(known.object, "status");
  Json status = before != nullptr && before->is_object() ? *before : Json::object();
  const bool kept = !known.why_not.empty() && known.in_force;
  const std::string message = kept ? known.why_not + "; what was in force before for team " +
                                         known.in_force->quota.team + " still is"
                                   : known.why_not;
  const Json* generation = Find(known.object, "metadata/generation");
  const bool changed = SetCondition(
      status,
      {"InForce", known.why_not.empty(), known.why_not.empty() ? "InForce" : "Invalid", message},
      generation != nullptr && generation->is_number_integer()
          ? std::optional(generation->get<int64_t>())
          : std::nullopt,
      now);
  if (!changed) return std::nullopt;
  Json object = known.object;
  object["status"] = std::move(status);
  return object;
}

}  // namespace baton::k8s
