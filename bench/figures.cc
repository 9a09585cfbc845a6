// baton-bench: runs the benchmark programs beside it and brings their figures together.
#include <sys/wait.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace baton::bench {
namespace {

using nlohmann::json;

// One figure: which program has it, in which of its benchmarks, under which name. `beside` names
// what it is measured against, in the same unit.
struct Figure {
  const char* name;
  const char* unit;
  const char* subject;  // of the command line, and of the program bench_<subject>
  const char* benchmark;
  const char* counter;
  const char* beside_benchmark;  // null: none
  const char* beside_counter;
};

// items_per_second and real_time are Google Benchmark's own.
constexpr Figure kFigures[] = {
    {"token_rtt_unix_p50", "us", "token_rtt", "token_rtt/unix/one_cpu", "p50_us",
     "token_rtt/unix/one_cpu", "echo_p50_us"},
    {"token_rtt_unix_p99", "us", "token_rtt", "token_rtt/unix/one_cpu", "p99_us",
     "token_rtt/unix/one_cpu", "echo_p99_us"},
    {"token_rtt_zmq_p50", "us", "token_rtt", "token_rtt/zmq/one_cpu", "p50_us",
     "token_rtt/zmq/one_cpu", "echo_p50_us"},
    {"token_rtt_zmq_p99", "us", "token_rtt", "token_rtt/zmq/one_cpu", "p99_us",
     "token_rtt/zmq/one_cpu", "echo_p99_us"},
    {"token_rtt_central_p50", "us", "token_rtt", "token_rtt/central/one_cpu", "p50_us",
     "token_rtt/central/one_cpu", "echo_p50_us"},
    {"token_rtt_central_p99", "us", "token_rtt", "token_rtt/central/one_cpu", "p99_us",
     "token_rtt/central/one_cpu", "echo_p99_us"},
    {"token_rtt_unix_free_p50", "us", "token_rtt", "token_rtt/unix", "p50_us", "token_rtt/unix",
     "echo_p50_us"},
    {"token_rtt_zmq_free_p50", "us", "token_rtt", "token_rtt/zmq", "p50_us", "token_rtt/zmq",
     "echo_p50_us"},
    {"token_rtt_central_free_p50", "us", "token_rtt", "token_rtt/central", "p50_us",
     "token_rtt/central", "echo_p50_us"},
    {"handoff_unix_p50", "us", "handoff", "handoff/unix", "p50_us", "handoff/unix", "echo_p50_us"},
    {"handoff_unix_p99", "us", "handoff", "handoff/unix", "p99_us", "handoff/unix", "echo_p99_us"},
    {"handoff_central_p50", "us", "handoff", "handoff/central", "p50_us", "handoff/central",
     "echo_p50_us"},
    {"handoff_central_p99", "us", "handoff", "handoff/central", "p99_us", "handoff/central",
     "echo_p99_us"},
    {"handoff_unix_busy_p50", "us", "handoff", "handoff/unix/busy", "p50_us", "handoff/unix/busy",
     "echo_p50_us"},
    {"handoff_unix_busy_p90", "us", "handoff", "handoff/unix/busy", "p90_us", "handoff/unix/busy",
     "echo_p90_us"},
    {"handoff_central_busy_p50", "us", "handoff", "handoff/central/busy", "p50_us",
     "handoff/central/busy", "echo_p50_us"},
    {"handoff_central_busy_p90", "us", "handoff", "handoff/central/busy", "p90_us",
     "handoff/central/busy", "echo_p90_us"},
    {"handoff_unix_floor_p50", "us", "handoff", "handoff/unix", "p50_us", "handoff/unix",
     "floor_p50_us"},
    {"handoff_unix_floor_p99", "us", "handoff", "handoff/unix", "p99_us", "handoff/unix",
     "floor_p99_us"},
    {"handoff_central_floor_p50", "us", "handoff", "handoff/central", "p50_us", "handoff/central",
     "floor_p50_us"},
    {"handoff_unix_busy_floor_p90", "us", "handoff", "handoff/unix/busy", "p90_us",
     "handoff/unix/busy", "floor_p90_us"},
    {"launch_overhead_held", "ns", "launch_overhead", "launch_overhead/held", "overhead_ns",
     "launch_overhead/held", "bare_ns"},
    {"launch_overhead_held_16_kernels", "ns", "launch_overhead", "launch_overhead/held_16_kernels",
     "overhead_ns", "launch_overhead/held_16_kernels", "bare_ns"},
    {"decisions_64", "decisions/s", "decisions", "decisions/64/1", "items_per_second", nullptr,
     nullptr},
    {"decisions_1000x100", "decisions/s", "decisions", "decisions/1000/100", "items_per_second",
     "decisions/64/1", "items_per_second"},
    {"placement_1200_nodes_p99", "us", "placement", "placement/nodes/1200", "p99_us",
     "placement/nodes/1200", "walk_us"},
    {"placement_10000_nodes_p99", "us", "placement", "placement/nodes/10000", "p99_us",
     "placement/nodes/10000", "walk_us"},
    {"placement_adversarial_most", "us", "placement", "placement/adversarial/3", "max_us", nullptr,
     nullptr},
};

constexpr const char* kExamples = R"(Examples:
  baton-bench                         everything, as a table
  baton-bench token_rtt               one subject
  baton-bench --json                  and {"figures": [...]} on the last line

Each figure stands beside a raw one of the same run: a two-process echo of the same transport and
frame size, the launch without the hook, the decision among 64 pods, reading what is free on every
card. "ratio" is value / beside. "_floor" stands beside two processes that hand over by a word of
shared memory, where nobody decides and nothing is sent.
Round trips are taken with all their processes on one CPU: the kernel places a pair of processes now
on one CPU, now on two, which alone makes a factor of ten. "_free" is what comes without that.)";

std::vector<std::string> Subjects() {
  std::vector<std::string> subjects;
  for (const Figure& figure : kFigures) {
    if (subjects.empty() || subjects.back() != figure.subject) subjects.push_back(figure.subject);
  }
  return subjects;
}

// Runs the subject's program. Its benchmarks, by name; empty when it failed, which it has said.
json RunProgram(const std::string& subject) {
  const std::filesystem::path folder =
      std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const std::string program = folder / ("bench_" + subject);
  std::fprintf(stderr, "measuring %s ...\n", subject.c_str());
  FILE* pipe = popen(("'" + program + "' --benchmark_format=json").c_str(), "r");
  if (pipe == nullptr) return {};
  std::string output;
  std::array<char, 4096> buffer;
  for (size_t n; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    output.append(buffer.data(), n);
  }
  const int status = pclose(pipe);
  const json report = json::parse(output, nullptr, false);
  if (status != 0 || !report.is_object()) {
    std::fprintf(stderr, "baton-bench: %s failed (status %d)\n", program.c_str(),
                 WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    return {};
  }
  json benchmarks;
  for (const json& run : report.value("benchmarks", json::array())) {
    if (run.value("error_occurred", false)) {
      std::fprintf(stderr, "baton-bench: %s: %s\n", run.value("name", "?").c_str(),
                   run.value("error_message", "?").c_str());
      continue;
    }
    // "decisions/64/1", without what Google Benchmark appends ("/iterations:1/manual_time").
    std::string name = run.value("run_name", run.value("name", ""));
    name = name.substr(0, name.find("/iterations"));
    benchmarks[name] = run;
  }
  return benchmarks;
}

json Number(const json& benchmarks, const char* benchmark, const char* counter) {
  if (benchmark == nullptr || !benchmarks.contains(benchmark)) return nullptr;
  return benchmarks[benchmark].value(counter, json());
}

// Four significant digits: more would be noise.
std::string Text(const json& number) {
  if (!number.is_number()) return "-";
  std::array<char, 32> buffer;
  const double value = number;
  std::snprintf(buffer.data(), buffer.size(), value >= 1000 ? "%.0f" : "%.4g", value);
  return buffer.data();
}

int Main(int argc, char** argv) {
  CLI::App app("Measures what Baton costs, each figure beside a raw one of the same run.");
  std::vector<std::string> subjects;
  bool as_json = false;
  app.add_option("SUBJECT", subjects,
                 "token_rtt, handoff, launch_overhead, decisions, placement; all")
      ->check(CLI::IsMember(Subjects()).description(""))
      ->type_name("");
  app.add_flag("--json", as_json, "Print the figures as one JSON object, on the last line");
  app.footer(kExamples);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "baton-bench: %s\n", error.what());
    return 2;
  }
  if (subjects.empty()) subjects = Subjects();

  json figures = json::array();
  bool complete = true;
  std::printf("%-32s %12s %-12s %12s %8s\n", "", "value", "unit", "beside", "ratio");
  for (const std::string& subject : subjects) {
    const json benchmarks = RunProgram(subject);
    for (const Figure& figure : kFigures) {
      if (figure.subject != subject) continue;
      const json value = Number(benchmarks, figure.benchmark, figure.counter);
      const json beside = Number(benchmarks, figure.beside_benchmark, figure.beside_counter);
      if (!value.is_number()) {
        complete = false;
        continue;
      }
      json ratio;
      if (beside.is_number() && beside != 0.0) ratio = value.get<double>() / beside.get<double>();
      figures.push_back({{"name", figure.name},
                         {"value", value},
                         {"unit", figure.unit},
                         {"beside", beside},
                         {"ratio", ratio}});
      std::printf("%-32s %12s %-12s %12s %8s\n", figure.name, Text(value).c_str(), figure.unit,
                  Text(beside).c_str(), Text(ratio).c_str());
      std::fflush(stdout);
    }
  }
  if (as_json) std::puts(json{{"figures", figures}}.dump().c_str());
  return complete ? 0 : 1;
}

}  // namespace
}  // namespace baton::bench

int main(int argc, char** argv) { return baton::bench::Main(argc, argv); }
