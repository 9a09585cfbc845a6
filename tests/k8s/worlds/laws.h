// What must hold in every cluster world, whatever happens in it. docs/kubernetes.md and
// devmgr/placement promise it; here it is judged anew from what the API has and what the core was
// told, by code that decides nothing.
#ifndef BATON_TESTS_K8S_WORLDS_LAWS_H_
#define BATON_TESTS_K8S_WORLDS_LAWS_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "k8s/types/team.h"
#include "tests/k8s/binder/world.h"
#include "tests/k8s/worlds/fit.h"
#include "tests/k8s/worlds/guarantees.h"

namespace baton::k8s::testing {

struct Violation {
  std::string law;  // one word; empty: none
  std::string text;
};

struct LawOptions {
  // Nothing goes wrong in this world but what users do: nothing is lost or rejected.
  bool calm = false;
  // Nodes may be kept for those that starve, so who fits may have to wait.
  bool keeps = false;
};

class Laws {
 public:
  Laws(World& world, LawOptions options);

  // The first that was broken.
  const Violation& broken() const { return broken_; }

  // The core starts anew: what it has in mind is what the API has.
  void Restarted() {
    held_ = std::exchange(before_, {});
    decided_.clear();
    preempting_.clear();
    kept_.clear();
    teams_told_.clear();
    teams_ = {};
  }
  // After each step of the core.
  void AfterStep(const Effects& effects);
  // Nothing is under way and nothing ends.
  void AtRest();
  // At rest, with nobody on any node: everything that fits there was placed and has ended.
  void AtTheEnd();

 private:
  struct Waiter {
    Wish wish;
    std::string reason;  // that it says
    bool share = false;
  };
  struct Preempting {
    std::string node;
    bool reclaims = false;
    std::string uid;
    std::vector<std::string> victims;
  };

  // `says` are the words of one sentence, one after the other.
  template <class... Words>
  void Break(std::string_view law, const Words&... says) {
    if (!broken_.law.empty()) return;
    std::string text;
    (text.append(std::string_view(says)), ...);
    broken_ = {std::string(law), std::move(text)};
  }
  std::vector<NodeSeen> ToldNodes() const;
  std::vector<NodeSeen> Nodes();
  std::optional<Wish> ToldWish(const std::string& key) const;
  std::string UidOfTold(const std::string& key) const;
  // It has a place by decision, or its pod is on a node and not about to go.
  bool HasLastingPlace(const ObjectName& name) const;
  // For another that waits, until the pods that make room for it have gone.
  bool IsKeptForMoves(const std::string& node, const std::string& from) const {
    return std::any_of(kept_.begin(), kept_.end(), [&](const auto& kept) {
      return kept.second == node && kept.first != from &&
             world_.core().cluster().Find(kept.first) == nullptr;
    });
  }
  Pods All() const;
  static Pods On(const Pods& pods, const std::string& node, const Pods& without = {});
  std::vector<Waiter> Waiters();

  // Of each step.
  void CheckBooks();
  // Those of `placed` that were decided before a restart: it goes on with them.
  std::set<std::string> Restored(const std::set<std::string>& placed);
  void CheckPlaces(const std::set<std::string>& placed, const std::set<std::string>& restored);
  void CheckGangs(const std::set<std::string>& placed);
  void CheckCeilings(const std::set<std::string>& placed, const std::set<std::string>& restored);
  void CheckDeletions(const Effects& effects);
  void CheckPreemptions(const Effects& effects, const std::set<std::string>& placed);
  // At rest.
  void CheckBooked();
  void CheckPhases();
  void CheckTeams();
  void CheckWaiter(const Waiter& waiter, const std::vector<NodeSeen>& nodes);

  World& world_;
  const LawOptions options_;
  Violation broken_;
  std::map<std::string, devmgr::Placement> before_;  // as of the last step
  std::map<std::string, devmgr::Placement> held_;    // before the restart, until a new decision
  std::set<std::string> decided_;                    // uids of SharePods, since the restart
  std::map<std::string, Preempting> preempting_;     // by the pod that they are for
  std::map<std::string, std::string> kept_;          // nodes, by the pod for which others move
  std::map<std::string, Json> teams_told_;
  TeamSet teams_;  // as the core was told
};

}  // namespace baton::k8s::testing

#endif  // BATON_TESTS_K8S_WORLDS_LAWS_H_
