// The reports: what people may ask about use. Each is a row of Reports(); the control socket's
// commands and the routes under /api/v1/ follow from the table. CONTRIBUTING.md walks through
// adding one.
#ifndef BATON_BACKEND_REPORTS_H_
#define BATON_BACKEND_REPORTS_H_

#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "backend/arbiter.h"
#include "config/options.h"
#include "ledger/ledger.h"
#include "teams/budget.h"
#include "teams/standing.h"
#include "teams/tree.h"

namespace baton::backend {

// What a report may look at, as it is now.
struct ReportView {
  const config::Options& options;
  Arbiter& arbiter;
  const teams::Teams& teams;
  bool has_teams = false;  // else `teams` are the defaults
  const std::vector<teams::Use>& by_team;
  const teams::Budgets& budgets;
};

// The answer at once; or the work that finds it, which runs in the ledger's own thread.
using LedgerQuery = std::function<Result<nlohmann::json>(ledger::Ledger&)>;
using ReportAnswer = std::variant<nlohmann::json, LedgerQuery>;

struct Report {
  std::string_view name;                 // of the command, and of the route
  std::vector<std::string_view> fields;  // of the question; all are texts, "" when not given
  // `field`: the text of one of `fields`.
  Result<ReportAnswer> (*ask)(const std::map<std::string, std::string>& field,
                              const ReportView& view);
};

std::span<const Report> Reports();
// Null: there is no such report.
const Report* FindReport(std::string_view name);
// The question's fields. kInvalid: one that the report has not, or that is no text of at most 512
// characters.
Result<std::map<std::string, std::string>> FieldsOf(const Report& report,
                                                    const nlohmann::json& question);

// The window that "from", "to" and "last" say, which are in UTC; the last `otherwise` where nothing
// is said.
Result<ledger::Window> WindowOf(const std::map<std::string, std::string>& field,
                                const char* otherwise);
// What the fields from, to, last, time_zone, team and pod ask of the ledger, by nothing yet. In the
// ledger's thread: zones are files.
Result<ledger::Question> QuestionOf(const std::map<std::string, std::string>& field,
                                    const ledger::Prices& prices);

// What limits of teams count: each pod's request, on all its GPUs.
std::vector<teams::LimitPod> LimitPods(const Pods& pods);
// `uncontended_use`: as in TeamsOptions.
std::vector<teams::Use> UsesOf(const std::vector<ledger::DecayedUse>& decayed,
                               policy::Share uncontended_use);

}  // namespace baton::backend

#endif  // BATON_BACKEND_REPORTS_H_
