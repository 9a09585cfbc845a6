// bench_pods: what thousands of pods cost batond: its start, a pod more or less, and what tokens
// wait for meanwhile. scripts/bench pods builds and starts it.
#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "bench/cluster.h"
#include "bench/process.h"
#include "cli/tenant_link.h"
#include "wire/control_client.h"

namespace baton::bench {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kExitUsage = 2;
constexpr Duration kPatience = std::chrono::minutes(5);
constexpr int kChanges = 100;

constexpr char kAbout[] = R"(Examples:
  scripts/bench pods                     10 000 pods on 16 GPUs
  scripts/bench pods --pods 1000 --batond /tmp/before/batond

Without GPUs: those of the configuration are names. Each row is in milliseconds:
  start, [[pod]]      from nothing until batond answers, with all pods in its configuration
  memory of a pod     of the daemon's, beside that of one without pods
  start, files        the same after it was killed, with the pods that were created by requests
  create, delete      a request and its answer: the median and the longest of 100, with all pods
                      there
  token               asking for a token until it is there, on a GPU of its own, as often as can be:
                      the median, the 99th percentile and the longest while nothing else happens,
                      while status and the virtual GPUs are listed, and while pods come and go
)";

struct Options {
  int pods = 10'000;
  int gpus = 16;
  double seconds = 3;
  std::string batond;
};

double Ms(Duration span) { return static_cast<double>(Nanos(span)) / 1e6; }

// Sends a line and reads the answer's, without looking at it: its size.
Result<size_t> AskRaw(const std::string& dir, const std::string& line) {
  auto connected = wire::ConnectUnix(wire::ControlSocket(dir), SOCK_STREAM);
  if (!connected) return tl::unexpected(connected.error());
  const UniqueFd fd(*connected);
  const std::string request = line + "\n";
  if (write(fd.get(), request.data(), request.size()) < 0) {
    return Fail(ErrorCode::kUnavailable, "batond does not read its socket");
  }
  std::vector<char> buffer(size_t{1} << 20);
  for (size_t total = 0;;) {
    const ssize_t n = read(fd.get(), buffer.data(), buffer.size());
    if (n <= 0) return Fail(ErrorCode::kUnavailable, "batond left without an answer");
    total += static_cast<size_t>(n);
    if (buffer[static_cast<size_t>(n) - 1] == '\n') return total;
  }
}

class Bench {
 public:
  explicit Bench(const Options& options) : options_(options) {
    std::string pattern = fs::temp_directory_path() / "baton-bench-XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~Bench() {
    process_.reset();
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  Result<void> Run();

 private:
  void Configure(int pods) const;
  Result<Duration> Start();
  void Kill() {
    process_->Signal(SIGKILL);
    process_->Wait(std::chrono::seconds(30));
  }
  double Kib() const;
  void PrintMemory(double without) const {
    fmt::print("{:<32} {:9.1f}\n", "memory of a pod, KiB", (Kib() - without) / options_.pods);
  }
  Result<std::vector<Duration>> Changes(int count, const char* name);
  Result<void> Tokens(const char* name, const std::function<Result<void>()>& beside);
  std::string PodLine(int pod) const {
    return fmt::format(R"({{"command":"create_pod","name":"pod-{}","request":0.1,"team":"a/b",)"
                       R"("user":"ada","namespace":"ml","gpus":["GPU-{}"]}})",
                       pod, pod % options_.gpus);
  }

  const Options& options_;
  std::string folder_;
  std::optional<Process> process_;
};

void Bench::Configure(int pods) const {
  std::ofstream file(folder_ + "/batond.toml");
  file << fmt::format(
      "[server]\nsocket_dir = \"{0}\"\nstate_dir = \"{0}/state\"\nlock_dir = \"{0}/lock\"\n"
      "[http]\nlisten = \"\"\n",
      folder_);
  for (int gpu = 0; gpu < options_.gpus; ++gpu) {
    file << fmt::format("[[gpu]]\nuuid = \"GPU-{}\"\nmemory = \"80GiB\"\n", gpu);
  }
  for (int pod = 0; pod < pods; ++pod) {
    file << fmt::format(
        "[[pod]]\nname = \"pod-{}\"\nrequest = 0.1\nteam = \"a/b\"\nuser = \"ada\"\n"
        "namespace = \"ml\"\ngpus = [\"GPU-{}\"]\n",
        pod, pod % options_.gpus);
  }
}

Result<Duration> Bench::Start() {
  SpawnOptions spawn;
  const fs::path beside = fs::read_symlink("/proc/self/exe").parent_path() / "batond";
  spawn.command = {options_.batond.empty() ? beside.string() : options_.batond, "--config",
                   folder_ + "/batond.toml"};
  spawn.stdout_path = spawn.stderr_path = folder_ + "/log";
  const Instant begun = MonotonicNow();
  auto process = Process::Spawn(spawn);
  if (!process) return tl::unexpected(process.error());
  process_ = std::move(*process);
  const bool ready = WaitUntil(
      [&] {
        return wire::Ask(folder_, {{"command", "ping"}}, kPatience).has_value() ||
               !process_->running();
      },
      kPatience);
  if (!ready || !process_->running()) {
    return Fail(ErrorCode::kUnavailable, "batond did not start; see " + folder_ + "/log");
  }
  return MonotonicNow() - begun;
}

double Bench::Kib() const {
  std::ifstream status(fmt::format("/proc/{}/status", process_->pid()));
  for (std::string word; status >> word;) {
    double kib = 0;
    if (word == "VmRSS:" && status >> kib) return kib;
  }
  return 0;
}

// Creates or deletes pods of their own.
Result<std::vector<Duration>> Bench::Changes(int count, const char* name) {
  std::vector<Duration> took;
  for (int i = 0; i < count; ++i) {
    const std::string line =
        *name == 'c'
            ? PodLine(options_.pods + i)
            : fmt::format(R"({{"command":"delete_pod","name":"pod-{}"}})", options_.pods + i);
    const Instant begun = MonotonicNow();
    if (auto answer = AskRaw(folder_, line); !answer) return tl::unexpected(answer.error());
    took.push_back(MonotonicNow() - begun);
  }
  std::sort(took.begin(), took.end());
  fmt::print("{:<32} {:9.2f} {:>9} {:9.2f}\n", name, Ms(took[took.size() / 2]), "",
             Ms(took.back()));
  return took;
}

Result<void> Bench::Tokens(const char* name, const std::function<Result<void>()>& beside) {
  const auto ticket = wire::Ask(folder_, {{"command", "bench_ticket"}}, kPatience);
  if (!ticket) return tl::unexpected(ticket.error());
  auto transport = cli::ConnectTenant(wire::TenantSocket(folder_));
  if (!transport) return tl::unexpected(transport.error());
  auto tenant =
      cli::Tenant::Attach(std::move(*transport), ticket->at("ticket"), ticket->at("gpus").at(0));
  if (!tenant) return tl::unexpected(tenant.error());
  std::atomic<bool> over{false};
  Result<void> other;
  size_t times = 0;
  std::thread thread([&] {
    for (; !over && beside && other; ++times) other = beside();
  });
  std::vector<Duration> took;
  std::optional<Error> error;
  const Instant until = MonotonicNow() + Duration(static_cast<int64_t>(options_.seconds * 1e9));
  while (MonotonicNow() < until && !error) {
    const auto trip = tenant->RoundTrip();
    if (!trip) error = trip.error();
    if (trip) took.push_back(*trip);
    usleep(200);
  }
  over = true;
  thread.join();
  if (error) return tl::unexpected(*error);
  if (!other) return other;
  std::sort(took.begin(), took.end());
  fmt::print("{:<32} {:9.2f} {:9.2f} {:9.2f}   {} times\n", name, Ms(took[took.size() / 2]),
             Ms(took[took.size() * 99 / 100]), Ms(took.back()), times);
  return {};
}

Result<void> Bench::Run() {
  const auto print = [](const char* name, Duration took) {
    fmt::print("{:<32} {:9.0f}\n", name, Ms(took));
    fflush(stdout);
  };
  fmt::print("{:<32} {:>9} {:>9} {:>9}\n", fmt::format("{} pods, ms", options_.pods), "median",
             "p99", "most");
  Configure(0);
  auto started = Start();
  if (!started) return tl::unexpected(started.error());
  const double without = Kib();
  Kill();
  Configure(options_.pods);
  if (started = Start(); !started) return tl::unexpected(started.error());
  print("start, [[pod]]", *started);
  PrintMemory(without);
  Kill();
  fs::remove_all(folder_ + "/state");
  Configure(0);
  if (started = Start(); !started) return tl::unexpected(started.error());
  const Instant begun = MonotonicNow();
  for (int pod = 0; pod < options_.pods; ++pod) {
    if (auto made = AskRaw(folder_, PodLine(pod)); !made) return tl::unexpected(made.error());
  }
  print("creating all of them by requests", MonotonicNow() - begun);
  Kill();
  if (started = Start(); !started) return tl::unexpected(started.error());
  print("start, files", *started);
  PrintMemory(without);
  for (const char* change : {"create", "delete"}) {
    if (auto took = Changes(kChanges, change); !took) return tl::unexpected(took.error());
  }
  const auto ask = [this](const char* line) -> Result<void> {
    auto answer = AskRaw(folder_, line);
    return answer ? Result<void>() : tl::unexpected(answer.error());
  };
  if (auto ok = Tokens("token", nullptr); !ok) return ok;
  if (auto ok = Tokens("token, status", [&] { return ask(R"({"command":"status"})"); }); !ok) {
    return ok;
  }
  if (auto ok = Tokens("token, vgpus", [&] { return ask(R"({"command":"vgpus"})"); }); !ok) {
    return ok;
  }
  return Tokens("token, create and delete", [&]() -> Result<void> {
    if (auto made = ask(PodLine(-1).c_str()); !made) return made;
    return ask(R"({"command":"delete_pod","name":"pod--1"})");
  });
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app{"What thousands of pods cost batond.", "scripts/bench pods"};
  app.footer(kAbout);
  app.add_option("--pods", options.pods, "How many [10000]")->check(CLI::Range(1, 100'000));
  app.add_option("--gpus", options.gpus, "On how many GPUs [16]")->check(CLI::Range(1, 16));
  app.add_option("--seconds", options.seconds, "How long tokens are asked for, each time [3]")
      ->check(CLI::Range(0.5, 60.0));
  app.add_option("--batond", options.batond, "The program [the one beside this]");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "bench pods: {} (see scripts/bench pods --help)\n", error.what());
    return kExitUsage;
  }
  Bench bench(options);
  const auto ran = bench.Run();
  if (ran) return 0;
  fmt::print(stderr, "bench pods: {}\n", ran.error().message);
  return 1;
}

}  // namespace
}  // namespace baton::bench

int main(int argc, char** argv) { return baton::bench::Main(argc, argv); }
