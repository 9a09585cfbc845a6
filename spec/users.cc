#include "spec/users.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/team_path.h"
#include "spec/modes.h"

namespace baton::spec {
namespace {

tl::unexpected<Error> Denied(const std::string& sentence) {
  return Fail(ErrorCode::kDenied, sentence + "; ask the operator");
}

// The team itself, or one below it.
bool IsWithin(std::string_view team, std::string_view of) {
  return team == of || (team.starts_with(of) && team.substr(of.size()).starts_with('/'));
}

std::vector<std::string> TeamsOf(const UsersOptions& options, const User& user) {
  std::vector<std::string> teams;
  for (const auto& [group, team] : options.teams) {
    if (std::find(user.groups.begin(), user.groups.end(), group) != user.groups.end()) {
      teams.push_back(TeamPath(team));
    }
  }
  if (teams.empty()) teams.push_back(TeamPath(options.team));
  return teams;
}

Result<std::string> TeamFor(const UsersOptions& options, const User& user,
                            const std::string& asked) {
  const std::vector<std::string> teams = TeamsOf(options, user);
  if (asked.empty()) return teams.front();
  std::string all;
  for (const std::string& team : teams) {
    const std::string_view path = team.empty() ? kDefaultTeam : std::string_view(team);
    if (IsWithin(asked, path)) return asked;
    all += fmt::format("{}{}", all.empty() ? "" : ", ", path);
  }
  return Denied(fmt::format("team {} is not of {}'s, who may name {}", asked, user.name, all));
}

Result<void> CheckAmounts(const UsersOptions& options, const UserPods& has, const PodRequest& asked,
                          size_t gpus) {
  if (asked.share.priority == policy::Priority::kHigh && options.high_priority != "yes") {
    return Denied("high priority is not for users here");
  }
  const policy::ShareSum sum = has.requests + policy::ShareSum(asked.share.request) * gpus;
  if (sum > policy::ShareSum(options.requests_max)) {
    return Fail(
        ErrorCode::kExhausted,
        fmt::format("the requests of your pods would add up to {} GPUs, and a user's may add "
                    "up to {}; end a pod, or request less",
                    policy::GpusText(sum), policy::GpusText(options.requests_max)));
  }
  return {};
}

}  // namespace

Result<void> CheckUsers(const UsersOptions& options) {
  if (options.allow.empty()) {
    return Fail(ErrorCode::kInvalid,
                "users.allow must be \"nobody\", \"everybody\" or the name of a group");
  }
  return {};
}

Result<PodRequest> AsUser(const UsersOptions& options, const User& user, const UserPods& has,
                          PodRequest asked) {
  if (has.count >= options.pods_max) {
    return Fail(ErrorCode::kExhausted,
                fmt::format("you have {} pods, and a user may have {}; end one", has.count,
                            options.pods_max));
  }
  if (asked.uid != -1 && asked.uid != user.uid) return Denied("uid must be your own");
  if (!asked.user.empty() && asked.user != user.name) return Denied("user must be your own name");
  if (!asked.name_space.empty()) return Denied("a namespace is the operator's to name");
  if (!asked.cgroup.empty() || !asked.ticket.empty()) {
    return Denied("cgroup and ticket are the operator's to set");
  }
  if (!asked.wishes.mode.empty() && asked.wishes.mode != kTimeSlice) {
    return Denied(fmt::format("mode {} is the operator's to give", asked.wishes.mode));
  }
  if (!asked.wishes.exclusion.empty()) {
    return Denied("an exclusion keeps others away, so it is the operator's to say");
  }
  for (const std::string& word : {asked.gang, asked.wishes.affinity, asked.wishes.anti_affinity}) {
    const auto& taken = has.words_of_others;
    if (!word.empty() && std::find(taken.begin(), taken.end(), word) != taken.end()) {
      return Denied(fmt::format("others' pods use the word {}", word));
    }
  }
  auto team = TeamFor(options, user, asked.team);
  if (!team) return tl::unexpected(team.error());
  const size_t gpus =
      std::max<size_t>({1, asked.count, asked.count == 0 ? asked.wishes.gpus.size() : 0});
  if (auto amounts = CheckAmounts(options, has, asked, gpus); !amounts) {
    return tl::unexpected(amounts.error());
  }
  asked.uid = user.uid;
  asked.user = user.name;
  asked.team = *team;
  return asked;
}

Result<void> MayChange(const UsersOptions& options, const User& user, const UserPods& has,
                       const PodRequest& was, const PodRequest& now, size_t gpus) {
  if (now.team != was.team) {
    if (auto team = TeamFor(options, user, now.team); !team) return tl::unexpected(team.error());
    if (now.team.empty()) return Denied("a pod of a team stays in one");
  }
  // What an operator gave stays, as long as it is not raised.
  const bool raised =
      now.share.request > was.share.request || (now.share.priority == policy::Priority::kHigh &&
                                                was.share.priority != policy::Priority::kHigh);
  return raised ? CheckAmounts(options, has, now, gpus) : Result<void>();
}

}  // namespace baton::spec
