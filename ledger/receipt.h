// What a pod or a team asked for, what it was guaranteed, what it got, and why less where it was
// less: the answer to `baton receipt` as JSON. docs/ledger.md says how each figure is found.
//
// Pure and thread safe.
#ifndef BATON_LEDGER_RECEIPT_H_
#define BATON_LEDGER_RECEIPT_H_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "ledger/history.h"
#include "ledger/ledger.h"
#include "ledger/prices.h"
#include "ledger/terms.h"

namespace baton::ledger {

// A receipt with more lines than this is refused.
inline constexpr size_t kReceiptLinesMax = 2'000;
// Of what was asked for so many entries are listed; the rest is counted in a note.
inline constexpr size_t kReceiptTermsMax = 2'000;

// {kind: "pod" | "team", name, from, to (RFC 3339), from_ms, to_ms, time_zone?, by, unit,
// currency?, step_s, asked: [{pod, team, from?, to?, request, limit, priority, memory?, gpus, who?,
// action?}], lines: [...], total: {...}, notes: [sentence]}
//
// A line, and the total, is a row of ReportJson() for the same question, and has beside that
//   pod_hours          the pod was there: hours of a pod on one GPU
//   guaranteed_hours   of these, by its request
//   got_hours          of the guaranteed hours, what it held
//   less               {no_work_hours, outage_hours, overcommit_hours, limit_hours,
//                      high_priority_hours, unattributed_hours, others_hours, unknown_hours}: why
//                      it did not hold the rest
//   beyond_hours       what it held beyond the guaranteed hours
//   memory_peak_gib    the most that one pod had on one GPU at a time
// In nanoseconds, got + all of `less` = guaranteed and got + beyond = held, in each line, and the
// lines add up to the total.
//
// `question`: of one pod or one team, by one of day, month, pod and gpu. `uses`: its answer.
// `whole`: the same by total. `history`: the same step by step. `terms`: those of all pods, by pod
// and time. kUnavailable: the three are of different states of the ledger, as something was
// recorded in between: ask again. kInvalid: more than kReceiptLinesMax lines. `ends`: the window
// ends where somebody said, not now: where less is recorded than that, a note says so.
Result<nlohmann::json> ReceiptJson(const Question& question, const Uses& uses, const Uses& whole,
                                   const History& history, const std::vector<Term>& terms,
                                   const Prices& prices, const std::string& currency,
                                   const EnergyFactors& factors = {}, bool ends = false);

}  // namespace baton::ledger

#endif  // BATON_LEDGER_RECEIPT_H_
