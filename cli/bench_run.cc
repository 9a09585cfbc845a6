#include "cli/bench_run.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <thread>

#include "base/file.h"

namespace baton::cli {
namespace {

using nlohmann::json;

constexpr size_t kBarsMax = 16;
constexpr int kBarWidth = 30;

double Us(Duration d) { return static_cast<double>(Nanos(d)) / 1e3; }

// To a nanosecond: more is noise, and long to read.
double Short(double us) { return std::round(us * 1e3) / 1e3; }

double Rank(const std::vector<Duration>& sorted, double quantile) {
  if (sorted.empty()) return 0;
  const auto rank = static_cast<size_t>(std::ceil(quantile * static_cast<double>(sorted.size())));
  return Us(sorted[std::max<size_t>(rank, 1) - 1]);
}

json QuantilesJson(const std::vector<Duration>& samples) {
  const Quantiles q = Summarize(samples);
  return {{"p50_us", Short(q.p50)}, {"p90_us", Short(q.p90)}, {"p99_us", Short(q.p99)}};
}

// Quantiles of each part; fewer parts where there are few samples.
json PartsJson(const std::vector<Duration>& samples) {
  const size_t parts = std::min(kBenchParts, samples.size() / 10);
  json all = json::array();
  for (size_t i = 0; i < parts; ++i) {
    const auto from = static_cast<ptrdiff_t>(samples.size() * i / parts);
    const auto to = static_cast<ptrdiff_t>(samples.size() * (i + 1) / parts);
    all.push_back(QuantilesJson({samples.begin() + from, samples.begin() + to}));
  }
  return all;
}

double Ratio(double value, double beside) { return beside > 0 ? value / beside : 0; }

std::string Bar(uint64_t count, uint64_t most) {
  // Eighths of a column, so that a bar that is there is seen.
  static constexpr const char* kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  if (count == 0 || most == 0) return "";
  const auto eighths = std::max<uint64_t>(1, count * kBarWidth * 8 / most);
  std::string bar;
  for (uint64_t i = 0; i < eighths / 8; ++i) bar += "█";
  return bar + kEighths[eighths % 8];
}

std::string Time(double us) {
  if (us < 1000) return fmt::format("{:.{}f} us", us, us < 10 ? 1 : 0);
  if (us < 1e6) return fmt::format("{:.{}f} ms", us / 1e3, us < 1e4 ? 1 : 0);
  return fmt::format("{:.1f} s", us / 1e6);
}

std::string HistogramText(const BenchFigure& figure) {
  const std::vector<HistogramBar> bars = Histogram(figure.samples, figure.beside);
  uint64_t most = 0, most_beside = 0;
  for (const HistogramBar& bar : bars) {
    most = std::max(most, bar.count);
    most_beside = std::max(most_beside, bar.beside);
  }
  const bool two = !figure.beside.empty();
  std::string text = fmt::format("\n{:<21}{:<{}}{}\n", "from", figure.label, kBarWidth + 2,
                                 two ? figure.beside_label : "");
  for (const HistogramBar& bar : bars) {
    const std::string left = Bar(bar.count, most);
    // Each character of a bar is one column and three bytes.
    const size_t columns = left.size() / 3;
    std::string line = fmt::format("{:>9} {:>9}  {}", Time(bar.from), bar.count, left);
    if (two) {
      line += std::string(kBarWidth + 2 - columns, ' ') + Bar(bar.beside, most_beside);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace

Quantiles Summarize(std::vector<Duration> samples) {
  std::sort(samples.begin(), samples.end());
  return {Rank(samples, 0.5), Rank(samples, 0.9), Rank(samples, 0.99)};
}

std::vector<HistogramBar> Histogram(const std::vector<Duration>& samples,
                                    const std::vector<Duration>& beside) {
  if (samples.empty()) return {};
  // One in a thousand at either end would stretch it to nothing.
  const auto ends = [](std::vector<Duration> sorted) {
    std::sort(sorted.begin(), sorted.end());
    return std::pair(std::max(Rank(sorted, 0.001), 0.1), std::max(Rank(sorted, 0.999), 0.1));
  };
  auto [low, high] = ends(samples);
  if (!beside.empty()) {
    const auto [beside_low, beside_high] = ends(beside);
    low = std::min(low, beside_low);
    high = std::max(high, beside_high);
  }
  double step = 0.5;
  int first = 0, last = 0;
  for (;; step *= 2) {
    first = static_cast<int>(std::floor(std::log2(low) / step));
    last = static_cast<int>(std::floor(std::log2(high) / step));
    if (static_cast<size_t>(last - first) < kBarsMax) break;
  }
  std::vector<HistogramBar> bars;
  for (int i = first; i <= last; ++i) {
    bars.push_back({std::exp2(i * step), std::exp2((i + 1) * step)});
  }
  const auto at = [&](Duration sample) -> HistogramBar& {
    const double us = std::max(Us(sample), 0.001);
    const int i = std::clamp(static_cast<int>(std::floor(std::log2(us) / step)), first, last);
    return bars[static_cast<size_t>(i - first)];
  };
  for (const Duration sample : samples) ++at(sample).count;
  for (const Duration sample : beside) ++at(sample).beside;
  return bars;
}

json ToJson(const BenchRun& run) {
  utsname system{};
  uname(&system);
  json report = {
      {"subject", run.subject},
      {"name", system.nodename},
      {"version", BATON_VERSION},
      {"at", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(time(nullptr)))},
      {"options", run.options},
      {"machine",
       {{"processors", std::thread::hardware_concurrency()}, {"kernel", system.release}}},
      {"figures", json::array()},
      {"values", json::array()},
  };
  for (const BenchFigure& figure : run.figures) {
    json f = QuantilesJson(figure.samples);
    f["name"] = figure.name;
    f["samples"] = figure.samples.size();
    f["parts"] = PartsJson(figure.samples);
    if (!figure.beside.empty()) {
      f["beside"] = QuantilesJson(figure.beside);
      f["beside"]["name"] = figure.beside_label;
      f["beside"]["parts"] = PartsJson(figure.beside);
      f["ratio_p50"] =
          Ratio(f.at("p50_us").get<double>(), f.at("beside").at("p50_us").get<double>());
    }
    f["histogram"] = json::array();
    for (const HistogramBar& bar : Histogram(figure.samples, figure.beside)) {
      f["histogram"].push_back({{"from_us", Short(bar.from)},
                                {"to_us", Short(bar.to)},
                                {"count", bar.count},
                                {"beside", bar.beside}});
    }
    report["figures"].push_back(std::move(f));
  }
  for (const BenchValue& value : run.values) {
    report["values"].push_back(
        {{"name", value.name}, {"value", value.value}, {"unit", value.unit}});
  }
  return report;
}

std::string ToText(const BenchRun& run) {
  std::string text;
  if (!run.figures.empty()) {
    text += fmt::format("{:<26} {:>9} {:>9} {:>9} {:>9}  samples\n", "in microseconds", "p50",
                        "p90", "p99", "of raw");
  }
  const auto line = [&](const std::string& label, const std::vector<Duration>& samples,
                        const std::string& ratio) {
    const Quantiles q = Summarize(samples);
    text += fmt::format("{:<26} {:>9.1f} {:>9.1f} {:>9.1f} {:>9}  {}\n", label, q.p50, q.p90, q.p99,
                        ratio, samples.size());
  };
  for (const BenchFigure& figure : run.figures) {
    const bool two = !figure.beside.empty();
    line(figure.label, figure.samples,
         two ? fmt::format("{:.2f} x",
                           Ratio(Summarize(figure.samples).p50, Summarize(figure.beside).p50))
             : "");
    if (two) line("  " + figure.beside_label, figure.beside, "");
  }
  if (!run.values.empty()) text += run.figures.empty() ? "" : "\n";
  for (const BenchValue& value : run.values) {
    text +=
        fmt::format("{:<40} {:>12} {}\n", value.label,
                    fmt::format("{:.{}f}", value.value, value.value < 1000 ? 2 : 0), value.unit);
  }
  for (const BenchFigure& figure : run.figures) text += HistogramText(figure);
  return text;
}

Result<void> AppendRun(const std::string& file, const json& run) {
  const std::string line = run.dump() + "\n";
  const UniqueFd fd(open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  // A single write, so that two runs that are saved at a time do not mix.
  if (!fd || write(fd.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    return Fail(ErrorCode::kInternal, "cannot add to " + file + ": " + std::strerror(errno));
  }
  return {};
}

}  // namespace baton::cli
