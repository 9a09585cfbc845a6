// What a user of the machine may ask for without an operator: pods of one's own, within what
// [users] of the configuration allows. Pure; thread safe.
#ifndef BATON_SPEC_USERS_H_
#define BATON_SPEC_USERS_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "policy/share.h"
#include "spec/pod_request.h"

namespace baton::spec {

struct UsersOptions {
  std::string allow = "nobody";  // "everybody", or a group of the machine
  std::string team;              // of users of whose groups `teams` names none; empty: default
  std::map<std::string, std::string> teams;     // by group
  policy::Share requests_max = policy::kWhole;  // of a user's pods together, in GPUs
  uint32_t pods_max = 16;                       // of a user
  std::string high_priority = "no";             // "yes": theirs to take

  // Shows `v` each key of [users] (config/options.h).
  template <class V>
  void Visit(V& v) {
    v.Text("allow", allow,
           "Who may make pods of their own over user.sock, without root: \"nobody\", "
           "\"everybody\", or\n"
           "the users of a group of this machine. They see all pods, and change their own alone.");
    v.Text("team", team,
           "Team of their pods, unless one of their groups has a team below; empty: default.");
    v.Ratio("requests_max", requests_max, 0, 4'000,
            "Requests of one user's pods may add up to this many GPUs.");
    v.Number("pods_max", pods_max, 1, 100'000, "Pods of one user.");
    v.Choice("high_priority", high_priority, {"no", "yes"}, "Whether users may ask for it.");
    v.Words("teams", teams,
            "Teams by groups of this machine: a user may name those of one's groups.");
  }
};

// kInvalid: no such value.
Result<void> CheckUsers(const UsersOptions& options);

struct User {
  uint32_t uid = 0;
  std::string name;
  std::vector<std::string> groups;
};

// What a user's pods have already.
struct UserPods {
  uint32_t count = 0;
  policy::ShareSum requests;
  // Words of gangs and neighbours that others' pods use: to say them too would hold those up.
  std::vector<std::string> words_of_others;
};

// What is asked for a pod, made the user's own: uid, name and team. kDenied: it asks for what is
// the operator's to give.
Result<PodRequest> AsUser(const UsersOptions& options, const User& user, const UserPods& has,
                          PodRequest asked);
// A change of a pod that is the user's own, on `gpus` GPUs. `has`: that pod apart.
Result<void> MayChange(const UsersOptions& options, const User& user, const UserPods& has,
                       const PodRequest& was, const PodRequest& now, size_t gpus);

}  // namespace baton::spec

#endif  // BATON_SPEC_USERS_H_
