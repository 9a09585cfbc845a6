// A report as charges of the FinOps Open Cost and Usage Specification (FOCUS) 1.0, which cost
// tools read. Pure and thread safe.
#ifndef BATON_CLI_FOCUS_H_
#define BATON_CLI_FOCUS_H_

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "base/result.h"
#include "cli/text_table.h"

namespace baton::cli {

// What the two reports are by.
inline constexpr std::string_view kFocusUseBy = "day,team,user,namespace,pod,model,price";
inline constexpr std::string_view kFocusIdleBy = "day,model,price";

// A charge for what each pod held on each model of GPU in each day at each price, and, unless
// `idle` is null, for what nobody held; with these the charges add up to what the GPUs cost. All
// columns that FOCUS 1.0 calls mandatory, those of its conditional ones that have a meaning here,
// and x_Kind ("held", "idle" or "unattributed"), by name. An empty cell is null. Times are UTC: so
// must the reports' be.
//
// kInvalid: a model has no price, or the currency is no code of ISO 4217 (three capitals).
Result<TextTable> FocusTable(const nlohmann::json& use, const nlohmann::json& idle);

}  // namespace baton::cli

#endif  // BATON_CLI_FOCUS_H_
