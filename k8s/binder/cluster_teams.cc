#include "k8s/binder/cluster_teams.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "k8s/api/timestamp.h"

namespace baton::k8s {
namespace {

constexpr Duration kStatusAgain = std::chrono::seconds(1);

}  // namespace

void ClusterTeams::Set(Json object) {
  const auto known = teams_.all().find(TextAt(object, "metadata/name"));
  if (known != teams_.all().end() && UidOf(known->second.object) == UidOf(object) &&
      IsOlderVersion(ResourceVersionOf(object), ResourceVersionOf(known->second.object))) {
    return;
  }
  teams_.Set(std::move(object));
  changed_ = true;
}

void ClusterTeams::Remove(const Json& object) {
  teams_.Remove(object);
  not_before_.erase(TextAt(object, "metadata/name"));
  changed_ = true;
}

void ClusterTeams::SetStandings(devmgr::Standings standings) {
  if (told_ == standings) return;
  told_ = std::move(standings);
  changed_ = true;
}

void ClusterTeams::Settle() {
  if (!std::exchange(changed_, false)) return;
  teams_.Settle();
  // Whether one is in force may depend on any other.
  for (const auto& [name, known] : teams_.all()) pending_.insert(name);
  standings_ = told_;
  for (const auto& [team, weight] : teams_.weights()) standings_[team].weight = weight;
  queue_.RequestRound();
}

void ClusterTeams::Reconcile(const CoreNow& now) {
  for (auto name = pending_.begin(); name != pending_.end();) {
    const auto known = teams_.all().find(*name);
    const auto later = not_before_.find(*name);
    if (known != teams_.all().end() &&
        (in_flight_.Has(*name) || (later != not_before_.end() && now.at < later->second))) {
      ++name;
      continue;
    }
    if (known != teams_.all().end()) {
      const auto time = std::chrono::system_clock::time_point(std::chrono::seconds(now.unix_s));
      if (auto body = TeamSet::WithStatus(known->second, Timestamp(time))) {
        in_flight_.Send({"", *name}, WriteKind::kTeamStatus, UidOf(*body), *std::move(body));
      }
    }
    name = pending_.erase(name);
  }
}

void ClusterTeams::OnWriteResult(const Write& write, WriteResult& result, Instant now) {
  const std::string& name = write.name.name;
  pending_.insert(name);
  if (result.done) {
    not_before_.erase(name);
    // It may have gone meanwhile, and another may have its name.
    const auto known = teams_.all().find(name);
    if (known != teams_.all().end() && UidOf(known->second.object) == write.uid) {
      Set(std::move(result.object));
    }
  } else {
    not_before_[name] = now + kStatusAgain;
  }
}

Instant ClusterTeams::next() const {
  Instant next = kNever;
  for (const std::string& name : pending_) {
    if (in_flight_.Has(name)) continue;
    const auto later = not_before_.find(name);
    next = std::min(next, later == not_before_.end() ? kAlways : later->second);
  }
  return next;
}

}  // namespace baton::k8s
