// What a run of `baton bench` found: samples beside those of the raw medium, and single values. For
// people as tables and histograms, for programs as JSON that `baton bench compare` reads again.
#ifndef BATON_CLI_BENCH_RUN_H_
#define BATON_CLI_BENCH_RUN_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"

namespace baton::cli {

// Microseconds.
struct Quantiles {
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
};

// Nearest rank. `samples` need not be sorted; none gives zeros.
Quantiles Summarize(std::vector<Duration> samples);

struct BenchFigure {
  std::string name;               // for programs: "round_trip"
  std::string label;              // for people: "token round trip"
  std::vector<Duration> samples;  // in the order of time
  // The raw medium's, from the same time; none: nothing is beside it.
  std::string beside_label;
  std::vector<Duration> beside;
};

struct BenchValue {
  std::string name;
  std::string label;
  double value = 0;
  std::string unit;
};

struct BenchRun {
  std::string subject;
  nlohmann::json options;  // what was asked for
  std::vector<BenchFigure> figures;
  std::vector<BenchValue> values;
};

// One object. Each figure has its quantiles, those of `kBenchParts` parts of its samples in the
// order of time, from which `compare` has its bounds, and a histogram.
inline constexpr size_t kBenchParts = 20;
nlohmann::json ToJson(const BenchRun& run);

// Counts of samples between `from` and `to`, both in microseconds; the bounds of neighbours are the
// same. At most 16 of them, by halves of a doubling or by whole ones; what lies below the first or
// above the last one counts there.
struct HistogramBar {
  double from = 0;
  double to = 0;
  uint64_t count = 0;
  uint64_t beside = 0;
};
std::vector<HistogramBar> Histogram(const std::vector<Duration>& samples,
                                    const std::vector<Duration>& beside);

// Tables and histograms, as `baton bench` prints them.
std::string ToText(const BenchRun& run);

// Adds the run to `file` as one line; makes the file where there is none.
Result<void> AppendRun(const std::string& file, const nlohmann::json& run);

}  // namespace baton::cli

#endif  // BATON_CLI_BENCH_RUN_H_
