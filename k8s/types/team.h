// Teams of the cluster (Team, baton.dev/v1alpha1): their weights and quotas, and which of them are
// in force. Pure; never throws, whatever the objects are. Not thread safe.
#ifndef BATON_K8S_TYPES_TEAM_H_
#define BATON_K8S_TYPES_TEAM_H_

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "base/result.h"
#include "devmgr/placement/quota.h"
#include "k8s/api/object.h"

namespace baton::k8s {

struct Team {
  devmgr::Quota quota;             // with its path
  std::optional<uint32_t> weight;  // 1 to 1 000 000, among its siblings

  friend bool operator==(const Team&, const Team&) = default;
};
// spec: {team, weight, guarantee: {gpus, memory}, ceiling: {gpus, memory}}. kInvalid names the
// field.
Result<Team> ReadTeam(const Json& object);

// What the Teams of the cluster come to together. Where all of them agree, each is in force as it
// is. Where they do not (devmgr::Quotas::Make() says why), what was in force before stays, and each
// change that does not agree with it is not in force. Of several changes that are settled together,
// the older Teams come first: so after a start, once all of them have been told.
class TeamSet {
 public:
  void Set(Json object);
  void Remove(const Json& object);
  // Takes what changed since the last call into account. The rest is as this left it.
  void Settle();

  const devmgr::Quotas& quotas() const { return quotas_; }
  // Of those that say one, by path.
  const std::map<std::string, uint32_t, std::less<>>& weights() const { return weights_; }

  struct Known {
    Json object;
    Result<Team> read;
    std::optional<Team> in_force;  // may be of an older version of the object
    std::string why_not;           // what it says now is not in force; empty: it is
  };
  // By name.
  const std::map<std::string, Known>& all() const { return all_; }
  // The object with its status as it should be (condition InForce). Nothing: it is that already.
  static std::optional<Json> WithStatus(const Known& known, const std::string& now);

 private:
  void Agree();

  std::map<std::string, Known> all_;
  bool settled_ = true;
  devmgr::Quotas quotas_;
  std::map<std::string, uint32_t, std::less<>> weights_;
};

}  // namespace baton::k8s

#endif  // BATON_K8S_TYPES_TEAM_H_
