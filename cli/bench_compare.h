// Two files of runs of `baton bench`, before and after a change: how much slower or faster each
// figure became, and how sure that is.
#ifndef BATON_CLI_BENCH_COMPARE_H_
#define BATON_CLI_BENCH_COMPARE_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.h"

namespace baton::cli {

struct Comparison {
  std::string name;   // "token round_trip p50", or "... of raw" for the ratio to the raw medium
  std::string unit;   // of before and after; empty: a ratio
  double before = 0;  // geometric mean over the runs, or over the parts of the only one
  double after = 0;
  double ratio = 1;  // after / before
  double low = 1;    // with 95 % confidence (Welch's t, on logarithms) it lies between these
  double high = 1;
  bool by_runs =
      false;  // both files have three runs or more: the bounds are of what runs differ by
  bool more_is_better = false;

  bool differs() const { return low > 1 || high < 1; }
  bool worse() const { return more_is_better ? high < 1 : low > 1; }
};

// The runs that `file` has, a line each; "-": standard input.
Result<std::vector<nlohmann::json>> ReadRuns(const std::string& file);

// Of all that is in both, in the order of `before`. Fails with kInvalid where they have nothing in
// common, a run is not one of baton bench, or two runs of the same kind had other settings (pods,
// GPUs, holds): their figures differ whatever has changed.
Result<std::vector<Comparison>> Compare(const std::vector<nlohmann::json>& before,
                                        const std::vector<nlohmann::json>& after);

}  // namespace baton::cli

#endif  // BATON_CLI_BENCH_COMPARE_H_
