#include "cli/bench_compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <fstream>
#include <iostream>
#include <map>
#include <numeric>

namespace baton::cli {
namespace {

using nlohmann::json;

constexpr size_t kRunsForBounds = 3;

// What a run, or a part of one, says of a figure: logarithms, as what disturbs a measurement
// multiplies it.
struct Said {
  std::vector<double> by_run;
  std::vector<double> by_part;  // of all runs
  std::string unit;
  bool more_is_better = false;
};

// By name, in the order of coming.
struct AllSaid {
  std::vector<std::string> names;
  std::map<std::string, Said> said;

  Said& Of(const std::string& name) {
    const auto [it, is_new] = said.try_emplace(name);
    if (is_new) names.push_back(name);
    return it->second;
  }
};

void Add(std::vector<double>& logs, double value) {
  if (value > 0 && std::isfinite(value)) logs.push_back(std::log(value));
}

void AddFigure(AllSaid& all, const std::string& subject, const json& figure) {
  const std::string name = subject + " " + figure.at("name").get<std::string>();
  const json& parts = figure.at("parts");
  for (const char* quantile : {"p50", "p90", "p99"}) {
    const std::string key = std::string(quantile) + "_us";
    Said& said = all.Of(name + " " + quantile);
    said.unit = "us";
    Add(said.by_run, figure.at(key));
    for (const json& part : parts) Add(said.by_part, part.at(key));
  }
  if (!figure.contains("beside")) return;
  // What makes the whole machine slower makes the raw medium slower too.
  const json& beside = figure.at("beside");
  const json& beside_parts = beside.at("parts");
  Said& said = all.Of(name + " of raw");
  Add(said.by_run, figure.at("p50_us").get<double>() / beside.at("p50_us").get<double>());
  for (size_t i = 0; i < std::min(parts.size(), beside_parts.size()); ++i) {
    Add(said.by_part,
        parts[i].at("p50_us").get<double>() / beside_parts[i].at("p50_us").get<double>());
  }
}

Result<AllSaid> Collect(const std::vector<json>& runs) {
  AllSaid all;
  try {
    for (const json& run : runs) {
      const std::string subject = run.at("subject");
      for (const json& figure : run.at("figures")) AddFigure(all, subject, figure);
      for (const json& value : run.at("values")) {
        Said& said = all.Of(subject + " " + value.at("name").get<std::string>());
        said.unit = value.at("unit");
        said.more_is_better = said.unit == "1/s";
        Add(said.by_run, value.at("value"));
      }
    }
  } catch (const json::exception&) {
    return Fail(ErrorCode::kInvalid,
                "a run of 'baton bench' lacks a figure that it should have; make it anew");
  }
  return all;
}

// What a figure depends on beside the daemon and the machine. More samples, or a longer run, change
// nothing that is expected.
constexpr const char* kSettings[] = {"pods", "gpus", "hold_us"};

json Setting(const json& run, const char* name) {
  const auto options = run.find("options");
  return options != run.end() && options->is_object() ? options->value(name, json()) : json();
}

// By subject, the first of its runs.
using Asked = std::map<std::string, json>;

Result<void> SameSettings(const std::vector<json>& runs, Asked& asked) {
  for (const json& run : runs) {
    const auto [first, is_new] = asked.try_emplace(run.at("subject").get<std::string>(), run);
    if (is_new) continue;
    for (const char* setting : kSettings) {
      const json one = Setting(first->second, setting), other = Setting(run, setting);
      if (one == other) continue;
      return Fail(ErrorCode::kInvalid,
                  fmt::format("the runs of '{}' differ in {} ({} and {}), so their figures cannot "
                              "be compared; repeat one of them with the settings of the other",
                              first->first, setting, one.dump(), other.dump()));
    }
  }
  return {};
}

struct Moments {
  double mean = 0;
  double variance_of_mean = 0;
  double freedom = 0;
};

Moments Of(const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  Moments m;
  m.mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double squares = 0;
  for (const double v : values) squares += (v - m.mean) * (v - m.mean);
  m.freedom = n - 1;
  m.variance_of_mean = squares / (n - 1) / n;
  return m;
}

Comparison CompareOne(const std::string& name, const Said& before, const Said& after) {
  Comparison c;
  c.name = name;
  c.unit = before.unit;
  c.more_is_better = before.more_is_better;
  c.by_runs = std::min(before.by_run.size(), after.by_run.size()) >= kRunsForBounds;
  const std::vector<double>& a = c.by_runs ? before.by_run : before.by_part;
  const std::vector<double>& b = c.by_runs ? after.by_run : after.by_part;
  const Moments run_a = Of(before.by_run), run_b = Of(after.by_run);
  c.before = std::exp(run_a.mean);
  c.after = std::exp(run_b.mean);
  c.ratio = c.after / c.before;
  if (a.size() < 2 || b.size() < 2) {  // nothing is known of how sure it is
    c.low = 0;
    c.high = std::numeric_limits<double>::infinity();
    return c;
  }
  const Moments x = Of(a), y = Of(b);
  const double variance = x.variance_of_mean + y.variance_of_mean;
  if (variance <= 0) {
    c.low = c.high = c.ratio;
    return c;
  }
  // Welch and Satterthwaite's degrees of freedom.
  const double freedom = variance * variance /
                         (x.variance_of_mean * x.variance_of_mean / x.freedom +
                          y.variance_of_mean * y.variance_of_mean / y.freedom);
  const double t =
      boost::math::quantile(boost::math::complement(boost::math::students_t(freedom), 0.025));
  const double half = t * std::sqrt(variance);
  c.low = c.ratio * std::exp(-half);
  c.high = c.ratio * std::exp(half);
  return c;
}

}  // namespace

Result<std::vector<json>> ReadRuns(const std::string& file) {
  std::ifstream stream;
  if (file != "-") {
    stream.open(file);
    if (!stream) return Fail(ErrorCode::kNotFound, "cannot read " + file);
  }
  std::istream& in = file == "-" ? std::cin : stream;
  std::vector<json> runs;
  size_t line_number = 0;
  for (std::string line; std::getline(in, line);) {
    ++line_number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    json run = json::parse(line, nullptr, false);
    const auto has = [&](const char* key) { return run.is_object() && run.contains(key); };
    if (!has("subject") || !has("figures")) {
      return Fail(
          ErrorCode::kInvalid,
          fmt::format("{}: line {} is not a run of 'baton bench'; make one with --save FILE "
                      "or --json",
                      file, line_number));
    }
    runs.push_back(std::move(run));
  }
  if (runs.empty()) return Fail(ErrorCode::kInvalid, file + " has no run");
  return runs;
}

Result<std::vector<Comparison>> Compare(const std::vector<json>& before,
                                        const std::vector<json>& after) {
  const Result<AllSaid> a = Collect(before);
  if (!a) return tl::unexpected(a.error());
  const Result<AllSaid> b = Collect(after);
  if (!b) return tl::unexpected(b.error());
  Asked asked;
  for (const std::vector<json>* runs : {&before, &after}) {
    if (const Result<void> same = SameSettings(*runs, asked); !same) {
      return tl::unexpected(same.error());
    }
  }
  std::vector<Comparison> all;
  for (const std::string& name : a->names) {
    const auto other = b->said.find(name);
    const Said& said = a->said.at(name);
    if (other == b->said.end() || said.by_run.empty() || other->second.by_run.empty()) continue;
    all.push_back(CompareOne(name, said, other->second));
  }
  if (all.empty()) {
    return Fail(ErrorCode::kInvalid, "the two files have no figure in common");
  }
  return all;
}

}  // namespace baton::cli
