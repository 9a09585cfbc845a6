// What a team may use and ask for: GPU-hours over a rolling period, and requests at one time. Both
// are of the team and all below it.
//
// Pure: what was held comes from the ledger, through the caller.
#ifndef BATON_TEAMS_BUDGET_H_
#define BATON_TEAMS_BUDGET_H_

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "teams/tree.h"

namespace baton::teams {

// How one budget stands.
struct BudgetState {
  double held_hours = 0;  // by the team and all below it, in the last budget_period
  bool over = false;
};

// Who is over its budget. A team is over from the moment its last period holds more than the budget
// until it holds 1 % less than that: a team that goes on at the rate at which old use leaves the
// period does not come and go with every look. Not thread safe.
class Budgets {
 public:
  // GPU-hours that `team` and all below it held in its last budget_period.
  using HeldHours = std::function<Result<double>(const Team& team)>;

  // Looks at every budget. Returns sentences for the event log: one for each team that has gone
  // over or come back since the last call, and for a team whose budget is gone from the file while
  // it was over. Where `held` fails the team stays what it was; once per row of failures that is
  // said too, unless it fails with kNotFound: nobody has looked yet. The first call says who is
  // over as if it were new.
  std::vector<std::string> Update(const Teams& teams, const HeldHours& held);

  // Of teams with a budget, by path.
  const std::map<std::string, BudgetState, PathLess>& states() const { return states_; }

  // The priority with which a pod of `team` runs: low where it or a team above it is over a budget
  // with over_budget = "low".
  policy::Priority Effective(const Teams& teams, std::string_view team,
                             policy::Priority priority) const;
  // kExhausted, with a sentence, where a new pod of `team` is refused: it or a team above it is
  // over a budget with over_budget = "refuse".
  Result<void> Admit(const Teams& teams, std::string_view team) const;

 private:
  // The team itself or the nearest above it that is over a budget with this consequence.
  const Team* Over(const Teams& teams, std::string_view team, OverBudget what) const;

  std::map<std::string, BudgetState, PathLess> states_;
  std::map<std::string, bool, std::less<>> unknown_;  // that their use was not to be had was said
};

// A pod as limits count it: its request on each of its GPUs.
struct LimitPod {
  std::string name;
  std::string team;          // any path
  policy::ShareSum request;  // over all its GPUs
};

// Whether `pod` may be created or changed to this request, beside `pods` (one of the same name, its
// former self, does not count). kExhausted: a limit of its team or of one above it; the sentence
// says which, who has what of it, and what would fit. A pod that asks for no more than its former
// self of the same team is let through, whatever the limit: it may have been lowered since.
Result<void> CheckLimits(const Teams& teams, std::span<const LimitPod> pods, const LimitPod& pod);

}  // namespace baton::teams

#endif  // BATON_TEAMS_BUDGET_H_
