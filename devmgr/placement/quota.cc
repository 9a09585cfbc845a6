#include "devmgr/placement/quota.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace baton::devmgr {
namespace {

constexpr size_t kPathMax = 256;
constexpr size_t kDepthMax = 16;

std::string_view TeamOf(std::string_view team) { return team.empty() ? kNoTeam : team; }

std::string WhoIs(const std::string& team) {
  return team.empty() ? "all teams together" : "team " + team;
}

std::string Gpus(uint64_t millionths) { return policy::GpusText(policy::ShareSum(millionths)); }

bool IsPath(std::string_view team) {
  if (team.empty()) return true;
  if (team.size() > kPathMax || team.front() == '/' || team.back() == '/') return false;
  if (team.find("//") != std::string_view::npos) return false;
  return static_cast<size_t>(std::count(team.begin(), team.end(), '/')) < kDepthMax;
}

// One resource of a quota, and how people say it.
struct Resource {
  std::optional<uint64_t> Quota::*guaranteed;
  std::optional<uint64_t> Quota::*ceiling;
  uint64_t Amount::*amount;
  uint64_t most;
  const char* unit;

  std::string Say(uint64_t n) const {
    return amount == &Amount::share ? Gpus(n) : fmt::format("{}", n);
  }
};
constexpr Resource kResources[] = {
    {&Quota::guaranteed_share, &Quota::ceiling_share, &Amount::share, Quota::kShareMax, "GPUs"},
    {&Quota::guaranteed_memory_mib, &Quota::ceiling_memory_mib, &Amount::memory_mib,
     Quota::kMemoryMax, "MiB of GPU memory"},
};

bool Guarantees(const Quota& quota, const Amount& use) {
  if (!quota.guarantees()) return false;
  return std::all_of(std::begin(kResources), std::end(kResources), [&](const Resource& resource) {
    const auto& guaranteed = quota.*resource.guaranteed;
    return !guaranteed || use.*resource.amount <= *guaranteed;
  });
}

Amount Sum(Amount a, const Amount& b) { return a += b; }

void Subtract(Amount& from, const Amount& amount) {
  from.share -= amount.share;
  from.memory_mib -= amount.memory_mib;
}

}  // namespace

Amount& Amount::operator+=(const Amount& other) {
  share += other.share;
  memory_mib += other.memory_mib;
  return *this;
}

Amount AskedBy(const PodRequest& request) {
  Amount amount;
  for (const ContainerRequest& container : request.containers) {
    for (const VgpuRequest& vgpu : container.vgpus) {
      amount.share += uint64_t{vgpu.share.millionths()} * vgpu.count;
      amount.memory_mib += uint64_t{vgpu.memory_mib} * vgpu.count;
    }
  }
  return amount;
}

Amount TakenBy(const Placement& placement) {
  Amount amount;
  for (const Vgpu& vgpu : placement.vgpus)
    amount += {vgpu.fit.share.millionths(), vgpu.fit.memory_mib};
  return amount;
}

bool IsOfTeam(std::string_view team, std::string_view above) {
  if (above.empty()) return true;
  return team.starts_with(above) && (team.size() == above.size() || team[above.size()] == '/');
}

Result<Quotas> Quotas::Make(std::vector<Quota> quotas) {
  const auto invalid = [](std::string what) { return Fail(ErrorCode::kInvalid, std::move(what)); };
  if (quotas.size() > kQuotasMax) {
    return invalid(fmt::format("{} quotas; at most {}", quotas.size(), kQuotasMax));
  }
  std::sort(quotas.begin(), quotas.end(),
            [](const Quota& a, const Quota& b) { return a.team < b.team; });
  Quotas made;
  made.quotas_ = std::move(quotas);
  // What those below have been guaranteed of each.
  std::vector<Amount> handed(made.quotas_.size());
  for (size_t q = 0; q < made.quotas_.size(); ++q) {
    const Quota& quota = made.quotas_[q];
    if (!IsPath(quota.team)) {
      return invalid(
          fmt::format("quota: '{}' is not a path such as \"research/vision\": 1 to {} parts, {} "
                      "bytes at most",
                      quota.team.substr(0, kPathMax), kDepthMax, kPathMax));
    }
    if (q > 0 && made.quotas_[q - 1].team == quota.team) {
      return invalid("quota: " + WhoIs(quota.team) + " has two");
    }
    for (const Resource& resource : kResources) {
      for (const auto& value : {quota.*resource.guaranteed, quota.*resource.ceiling}) {
        if (value && *value > resource.most) {
          return invalid(fmt::format("quota: {}: {} {}; at most {}", WhoIs(quota.team),
                                     resource.Say(*value), resource.unit,
                                     resource.Say(resource.most)));
        }
      }
    }
  }
  for (size_t q = 0; q < made.quotas_.size(); ++q) {
    const Quota& quota = made.quotas_[q];
    for (const Resource& resource : kResources) {
      if (!(quota.*resource.guaranteed)) continue;
      const uint64_t guaranteed = *(quota.*resource.guaranteed);
      bool nearest = false;
      for (const size_t above : made.Chain(quota.team)) {
        const Quota& other = made.quotas_[above];
        if (other.*resource.ceiling && guaranteed > *(other.*resource.ceiling)) {
          return invalid(fmt::format("quota: {} is guaranteed {} {}, and {} may use {} at most",
                                     WhoIs(quota.team), resource.Say(guaranteed), resource.unit,
                                     WhoIs(other.team), resource.Say(*(other.*resource.ceiling))));
        }
        if (above == q || nearest || !(other.*resource.guaranteed)) continue;
        nearest = true;
        uint64_t& sum = handed[above].*resource.amount;
        sum += guaranteed;
        if (sum > *(other.*resource.guaranteed)) {
          return invalid(
              fmt::format("quota: teams below {} are guaranteed {} {} in all, and it is itself {}",
                          WhoIs(other.team), resource.Say(sum), resource.unit,
                          resource.Say(*(other.*resource.guaranteed))));
        }
      }
    }
  }
  return made;
}

Result<void> Quotas::AdmitEver(const PodRequest& request) const {
  const Amount asked = AskedBy(request);
  for (const size_t q : Chain(TeamOf(request.team))) {
    for (const Resource& resource : kResources) {
      const auto& ceiling = quotas_[q].*resource.ceiling;
      if (!ceiling || asked.*resource.amount <= *ceiling) continue;
      return Fail(ErrorCode::kExhausted,
                  fmt::format("it asks for {} {}, and {} may use {} at most; ask for less, or ask "
                              "the cluster's operator to raise that",
                              resource.Say(asked.*resource.amount), resource.unit,
                              WhoIs(quotas_[q].team), resource.Say(*ceiling)));
    }
  }
  return {};
}

std::vector<size_t> Quotas::Chain(std::string_view team) const {
  std::vector<size_t> chain;
  const auto find = [&](std::string_view path) {
    const auto it =
        std::lower_bound(quotas_.begin(), quotas_.end(), path,
                         [](const Quota& quota, std::string_view p) { return quota.team < p; });
    if (it != quotas_.end() && it->team == path) {
      chain.push_back(static_cast<size_t>(it - quotas_.begin()));
    }
  };
  while (!quotas_.empty() && !team.empty()) {
    find(team);
    const size_t slash = team.rfind('/');
    team = slash == std::string_view::npos ? std::string_view() : team.substr(0, slash);
  }
  find("");
  return chain;
}

Ledger::Ledger(const Quotas& quotas, const Cluster& cluster)
    : quotas_(quotas), uses_(quotas.all().size()) {
  if (quotas.all().empty()) return;
  for (const auto& [name, pod] : cluster.pods()) Add(pod.request, pod.placement);
}

uint32_t Ledger::TeamIndex(std::string_view path) {
  const auto it = team_indices_.find(path);
  if (it != team_indices_.end()) return it->second;
  const auto index = static_cast<uint32_t>(teams_.size());
  teams_.push_back({std::string(path), quotas_.Chain(path)});
  BATON_CHECK(teams_.back().chain.size() <= kChainMax);
  team_indices_.emplace(path, index);
  return index;
}

void Ledger::Add(const PodRequest& request, const Placement& placement) {
  if (quotas_.all().empty()) return;
  const uint32_t team = TeamIndex(TeamOf(request.team));
  const Amount amount = TakenBy(placement);
  for (const size_t q : teams_[team].chain) uses_[q] += amount;
  // From a cluster they come in the order of names.
  pods_.insert_or_assign(pods_.end(), request.name, Entry{team, request.priority, amount, 0});
  covered_ = false;
}

void Ledger::Remove(std::string_view pod) {
  const auto it = pods_.find(pod);
  if (it == pods_.end()) return;
  for (const size_t q : teams_[it->second.team].chain) Subtract(uses_[q], it->second.amount);
  pods_.erase(it);
  covered_ = false;
}

Result<void> Ledger::Admit(const PodRequest& request, const Amount& more,
                           std::span<const PlacedPod* const> without) const {
  for (const size_t q : quotas_.Chain(TeamOf(request.team))) {
    const Quota& quota = quotas_.all()[q];
    const Amount use = UseWithout(q, without);
    for (const Resource& resource : kResources) {
      const auto& ceiling = quota.*resource.ceiling;
      if (!ceiling || more.*resource.amount == 0 ||
          use.*resource.amount + more.*resource.amount <= *ceiling) {
        continue;
      }
      return Fail(ErrorCode::kExhausted,
                  fmt::format("{} may use {} {} at most; it uses {}, and {} asks for {} more",
                              WhoIs(quota.team), resource.Say(*ceiling), resource.unit,
                              resource.Say(use.*resource.amount), request.name,
                              resource.Say(more.*resource.amount)));
    }
  }
  return {};
}

Amount Ledger::UseWithout(size_t quota, std::span<const PlacedPod* const> without) const {
  Amount use = uses_[quota];
  for (const PlacedPod* pod : without) {
    if (!IsOfTeam(TeamOf(pod->request.team), quotas_.all()[quota].team)) continue;
    Subtract(use, TakenBy(pod->placement));
  }
  return use;
}

std::optional<size_t> Ledger::Guarantor(std::string_view team, const Amount& more,
                                        std::span<const PlacedPod* const> without) const {
  for (const size_t q : quotas_.Chain(TeamOf(team))) {
    if (Guarantees(quotas_.all()[q], Sum(UseWithout(q, without), more))) return q;
  }
  return std::nullopt;
}

bool Ledger::Entitled(std::string_view team, const Amount& more,
                      std::span<const PlacedPod* const> without) const {
  return Guarantor(team, more, without).has_value();
}

void Ledger::Cover() const {
  if (covered_) return;
  covered_ = true;
  struct Claim {
    const Entry* pod;
    uint32_t link;  // of the chain: a bit
    bool below;     // covered further down
  };
  std::vector<std::vector<Claim>> claims(quotas_.all().size());
  for (const auto& [name, pod] : pods_) {
    pod.covered = 0;
    uint32_t link = 1;
    for (const size_t q : teams_[pod.team].chain) {
      if (quotas_.all()[q].guarantees()) claims[q].push_back({&pod, link, false});
      link <<= 1;
    }
  }
  // A path is less than those below it, so backwards the lower ones come first.
  for (size_t q = claims.size(); q-- > 0;) {
    for (Claim& claim : claims[q]) claim.below = claim.pod->covered != 0;
    // They are in the order of names already.
    std::stable_sort(claims[q].begin(), claims[q].end(), [](const Claim& a, const Claim& b) {
      if (a.below != b.below) return a.below;
      return a.pod->priority > b.pod->priority;
    });
    Amount sum;
    for (const Claim& claim : claims[q]) {
      const Amount with = Sum(sum, claim.pod->amount);
      if (!Guarantees(quotas_.all()[q], with)) continue;
      sum = with;
      claim.pod->covered |= claim.link;
    }
  }
}

bool Ledger::Protected(const Entry& pod, std::string_view team) const {
  if (pod.covered == 0) return false;
  uint32_t link = 1;
  for (const size_t q : teams_[pod.team].chain) {
    if ((pod.covered & link) != 0 && !IsOfTeam(team, quotas_.all()[q].team)) return true;
    link <<= 1;
  }
  return false;
}

PodTest Ledger::Reclaimable(std::string_view for_team, const Amount& more) const {
  const std::optional<size_t> guarantor = Guarantor(for_team, more);
  if (!guarantor) return [](const PlacedPod&) { return false; };
  Cover();
  return [this, guarantor = *guarantor,
          team = std::string(TeamOf(for_team))](const PlacedPod& placed) {
    const auto it = pods_.find(placed.request.name);
    if (it == pods_.end()) return false;
    const std::vector<size_t>& chain = teams_[it->second.team].chain;
    return std::find(chain.begin(), chain.end(), guarantor) == chain.end() &&
           !Protected(it->second, team);
  };
}

PodTest Ledger::Unprotected(std::string_view for_team) const {
  Cover();
  return [this, team = std::string(TeamOf(for_team))](const PlacedPod& placed) {
    const auto it = pods_.find(placed.request.name);
    return it == pods_.end() || !Protected(it->second, team);
  };
}

bool Ledger::Covered(std::string_view name) const {
  const auto it = pods_.find(name);
  if (it == pods_.end()) return false;
  Cover();
  return it->second.covered != 0;
}

std::string Ledger::Standing(std::string_view team) const {
  std::string text;
  for (const size_t q : quotas_.Chain(TeamOf(team))) {
    const Quota& quota = quotas_.all()[q];
    for (const Resource& resource : kResources) {
      const auto& guaranteed = quota.*resource.guaranteed;
      const auto& ceiling = quota.*resource.ceiling;
      if (!guaranteed && !ceiling) continue;
      const uint64_t use = uses_[q].*resource.amount;
      text += fmt::format("{}{} uses {} {}", text.empty() ? "" : "; ", WhoIs(quota.team),
                          resource.Say(use), resource.unit);
      if (guaranteed) {
        text += use > *guaranteed
                    ? fmt::format(", {} guaranteed to it and {} borrowed",
                                  resource.Say(*guaranteed), resource.Say(use - *guaranteed))
                    : fmt::format(" of {} guaranteed to it", resource.Say(*guaranteed));
      }
      if (ceiling) text += fmt::format(", of {} at most", resource.Say(*ceiling));
    }
  }
  return text;
}

Result<Displacement> Reclaim(const Cluster& cluster, Modes modes, const Ledger& ledger,
                             const PodRequest& request, const DisplacementOptions& options) {
  const Amount more = AskedBy(request);
  if (!ledger.Entitled(request.team, more)) {
    const std::string standing = ledger.Standing(request.team);
    return Fail(
        ErrorCode::kDenied,
        fmt::format("{} asks for {} GPUs, which is not within a guarantee{}{}", request.name,
                    Gpus(more.share), standing.empty() ? "" : ": ", standing));
  }
  DisplacementOptions with = options;
  if (!ledger.Admit(request, more)) {
    with.enough = [&](std::span<const PlacedPod* const> gone) {
      return (!options.enough || options.enough(gone)) &&
             ledger.Admit(request, more, gone).has_value();
    };
  }
  return LeastDisturbance(cluster, modes, request, ledger.Reclaimable(request.team, more), with);
}

}  // namespace baton::devmgr
