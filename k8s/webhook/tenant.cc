#include "k8s/webhook/tenant.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/team_path.h"
#include "base/utf8.h"
#include "k8s/types/annotations.h"
#include "k8s/types/read.h"
#include "spec/modes.h"

namespace baton::k8s {
namespace {

constexpr size_t kUserMax = 256;  // bytes, as spec/pod_request.cc has it
constexpr std::string_view kPriorityClass = "priorityClassName";

bool IsWithin(const std::string& team, const std::string& of) {
  return team == of || (team.size() > of.size() && team.starts_with(of) && team[of.size()] == '/');
}

}  // namespace

Result<const NamespaceRules*> Tenant::Rules() {
  if (!rules_) {
    auto name_space = options_.facts->Namespace(name_space_);
    if (!name_space) {
      return Fail(
          ErrorCode::kUnavailable,
          fmt::format("what namespace {} may ask for cannot be looked up now; try again: {}",
                      name_space_, name_space.error().message));
    }
    rules_ = RulesOf(*name_space, options_.tenancy);
  }
  return &*rules_;
}

std::string Tenant::Requester() const {
  constexpr std::string_view kAccount = "system:serviceaccount:";
  const std::string_view name = user_name_;
  // Controllers of Kubernetes (ReplicaSets, Jobs) make pods of what somebody else wrote.
  if (name.starts_with(std::string(kAccount) + "kube-system:")) return "";
  if (name.starts_with("system:") && !name.starts_with(kAccount)) return "";
  return ToPrintable(name.substr(0, kUserMax));
}

Result<void> Tenant::Complete(TenantWishes& wishes) {
  if (options_.facts == nullptr || !options_.tenancy.IsOn()) return {};
  const auto rules = Rules();
  if (!rules) return tl::unexpected(rules.error());
  if (wishes.team.empty()) wishes.team = (*rules)->team;
  if ((*rules)->Allows(options_.tenancy, grants::kUser)) return {};
  const std::string requester = Requester();
  // A template says who wrote it, if anybody; it is not known to be true.
  if (wishes.user.empty() || requester.empty()) wishes.user = requester;
  return {};
}

Result<void> Tenant::CheckWishes(const TenantWishes& is, const TenantWishes* was,
                                 const std::function<std::string(std::string_view)>& field) {
  if (options_.facts == nullptr || !options_.tenancy.IsOn()) return {};
  const auto changed = [&](std::string TenantWishes::*wish) {
    return was == nullptr ? !(is.*wish).empty() : is.*wish != was->*wish;
  };
  const bool team = was == nullptr || is.team != was->team;
  const bool user = was == nullptr || is.user != was->user;
  const bool high = is.priority == "high" && changed(&TenantWishes::priority);
  const bool exclusive = is.mode == spec::kExclusive && changed(&TenantWishes::mode);
  const bool open = is.away == "open" && changed(&TenantWishes::away);
  const bool by_class = changed(&TenantWishes::priority_class) && !is.priority_class.empty();
  const bool uuid = changed(&TenantWishes::uuid) && !is.uuid.empty();
  const bool not_uuid = changed(&TenantWishes::not_uuid) && !is.not_uuid.empty();
  if (!team && !user && !high && !exclusive && !open && !by_class && !uuid && !not_uuid) return {};
  const auto found = Rules();
  if (!found) return tl::unexpected(found.error());
  const NamespaceRules& rules = **found;
  const std::string normal = TeamPath(is.team);
  if (team && !rules.team.empty() && !IsWithin(normal, rules.team)) {
    return Fail(ErrorCode::kDenied,
                fmt::format("{}: namespace {} is of team {}; name that team or one below it, or "
                            "leave it out",
                            field(keys::kTeam), name_space_, rules.team));
  }
  if (user && !rules.Allows(options_.tenancy, grants::kUser)) {
    const std::string requester = Requester();
    if (is.user != requester) {
      return Fail(ErrorCode::kDenied,
                  fmt::format("{}: {} is not who asks ({}); leave it out, or ask the cluster's "
                              "operator for label baton.dev/allow-user=true on namespace {}",
                              field(keys::kUser), Quoted(is.user),
                              requester.empty() ? "a controller" : requester, name_space_));
    }
  }
  const auto refuse = [&](std::string_view key, const std::string& value, std::string_view grant) {
    return Fail(ErrorCode::kDenied,
                fmt::format("{}: {} is not allowed in namespace {}; ask the cluster's operator for "
                            "label baton.dev/allow-{}=true on it",
                            field(key), Quoted(value), name_space_, grant));
  };
  if (high && !rules.Allows(options_.tenancy, grants::kHighPriority)) {
    return refuse(keys::kPriority, is.priority, grants::kHighPriority);
  }
  if (exclusive && !rules.Allows(options_.tenancy, grants::kExclusive)) {
    return refuse(keys::kMode, is.mode, grants::kExclusive);
  }
  if (open && !rules.Allows(options_.tenancy, grants::kAwayOpen)) {
    return refuse(keys::kAway, is.away, grants::kAwayOpen);
  }
  if (by_class && !rules.Allows(options_.tenancy, grants::kPriorityClass)) {
    const auto standard = options_.facts->DefaultPriorityClass();
    if (!standard) {
      return Fail(ErrorCode::kUnavailable,
                  fmt::format("{}: which PriorityClass is the default cannot be looked up now; try "
                              "again: {}",
                              field(kPriorityClass), standard.error().message));
    }
    // Pods that name none have that one, for the API server writes it.
    if (is.priority_class != *standard) {
      return refuse(kPriorityClass, is.priority_class, grants::kPriorityClass);
    }
  }
  if ((uuid || not_uuid) && !rules.Allows(options_.tenancy, grants::kGpuUuid)) {
    return uuid ? refuse(keys::kGpuUuid, is.uuid, grants::kGpuUuid)
                : refuse(keys::kNotGpuUuid, is.not_uuid, grants::kGpuUuid);
  }
  return {};
}

Result<void> Tenant::CheckQuota(const std::string& pod, const GpuCharge& now,
                                const GpuCharge& wanted) {
  const bool more =
      wanted.share > now.share || wanted.memory > now.memory || (wanted.open && !now.open);
  if (options_.facts == nullptr || !options_.check_quotas || !more) return {};
  const auto quotas = options_.facts->Quotas(name_space_);
  if (!quotas) return tl::unexpected(quotas.error());
  std::vector<GpuQuota> counted;
  for (const Json& quota : *quotas) {
    if (auto read = ReadGpuQuota(quota)) counted.push_back(*std::move(read));
  }
  if (counted.empty()) return {};
  const auto pods = options_.facts->Pods(name_space_);
  if (!pods) return tl::unexpected(pods.error());
  GpuCharge others;
  for (const Json& other : *pods) {
    if (!TakesRoom(other) || TextAt(other, "metadata/name") == pod) continue;
    const auto gpu = ReadGpuPod(other, options_.memory_unit_mib);
    if (gpu && gpu->asks()) others += ChargeOf(*gpu, options_.memory_unit_mib);
  }
  for (const GpuQuota& quota : counted) {
    if (std::string why = Exceeds(quota, others, now, wanted); !why.empty()) {
      return Fail(ErrorCode::kDenied, std::move(why));
    }
  }
  return {};
}

}  // namespace baton::k8s
