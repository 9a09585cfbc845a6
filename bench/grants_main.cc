// bench_grants: how many tokens a second batond grants where thousands of pods want those of many
// GPUs, and what a grant waits for at half of that. scripts/bench grants builds and starts it.
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "bench/lone_batond.h"
#include "cli/contention.h"
#include "cli/measure.h"
#include "wire/control_client.h"

namespace baton::bench {
namespace {

using nlohmann::json;

constexpr int kExitUsage = 2;
constexpr rlim_t kFilesOfAClient = 2;  // in batond
constexpr rlim_t kFilesBeside = 300;

constexpr char kAbout[] = R"(Examples:
  scripts/bench grants                    1 000 pods on 16 GPUs
  scripts/bench grants --pods 128 --seconds 10

Without GPUs: those of the configuration are names, and one program plays all pods. Rows:
  all they can    every pod asks again at once: one State for a grant says that it has had the
                  token, and wants it again
  half of that    the pods rest in between, so that there are half as many grants, of two States
  ... and pods    the same, while other pods are created, listed and deleted
Each with the grants a second, and how long a pod waits for one, in milliseconds: median, 99th
percentile, longest.
)";

struct Options {
  size_t pods = 1000;
  size_t gpus = 16;
  double seconds = 5;
};

// As many open files as both programs need.
bool RaiseFileLimit(size_t clients) {
  const rlim_t wanted = kFilesOfAClient * clients + kFilesBeside;
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::max(limit.rlim_cur, wanted);
  limit.rlim_max = std::max(limit.rlim_max, wanted);
  return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

std::string Configuration(const Options& options) {
  std::string text = "[http]\nlisten = \"\"\n";
  for (size_t gpu = 0; gpu < options.gpus; ++gpu) {
    text += fmt::format("[[gpu]]\nuuid = \"GPU-{}\"\nmemory = \"80GiB\"\n", gpu);
  }
  return text;
}

class Grants {
 public:
  explicit Grants(const Options& options) : options_(options) {}
  Result<void> Run();

 private:
  Result<json> Create(const std::string& name, size_t gpu) const {
    return wire::Ask(batond_->socket_dir(),
                     {{"command", "create_pod"},
                      {"name", name},
                      {"request", 0.5},
                      {"gpus", {fmt::format("GPU-{}", gpu)}}},
                     std::chrono::seconds(10));
  }
  Result<void> AttachAll();
  // Grants a second.
  Result<double> Measure(const char* name, Duration ask_every);
  // Creates, lists and deletes pods until it is over.
  void Disturb(const std::atomic<bool>& over) const;

  const Options& options_;
  std::unique_ptr<LoneBatond> batond_;
  std::vector<cli::Contender> contenders_;
  std::unique_ptr<cli::UnixEcho> echo_;
};

Result<void> Grants::AttachAll() {
  for (size_t i = 0; i < options_.pods; ++i) {
    const size_t gpu = i % options_.gpus;
    const Result<json> pod = Create(fmt::format("pod-{}", i), gpu);
    if (!pod) return tl::unexpected(pod.error());
    auto transport = cli::ConnectTenant(wire::TenantSocket(batond_->socket_dir()));
    if (!transport) return tl::unexpected(transport.error());
    auto tenant =
        cli::Tenant::Attach(std::move(*transport), pod->at("ticket"), fmt::format("GPU-{}", gpu));
    if (!tenant) return tl::unexpected(tenant.error());
    contenders_.push_back({std::move(*tenant), gpu});
  }
  return {};
}

Result<double> Grants::Measure(const char* name, Duration ask_every) {
  auto found = cli::Contend(
      contenders_, options_.gpus, Duration(0),
      Duration(static_cast<int64_t>(options_.seconds * 1e9)), *echo_, [](double) {}, ask_every);
  if (!found) return tl::unexpected(found.error());
  std::sort(found->waits.begin(), found->waits.end());
  const auto at = [&](double q) {
    const auto i = static_cast<size_t>(q * static_cast<double>(found->waits.size() - 1));
    return static_cast<double>(Nanos(found->waits[i])) / 1e6;
  };
  const double rate =
      static_cast<double>(found->grants) / (static_cast<double>(Nanos(found->length)) / 1e9);
  fmt::print("{:<16} {:9.0f} {:9.2f} {:9.2f} {:9.2f} {:9.2f} {:9.2f}\n", name, rate, at(0.5),
             at(0.99), at(1), found->daemon_processor.value_or(0), found->own_processor);
  fflush(stdout);
  return rate;
}

void Grants::Disturb(const std::atomic<bool>& over) const {
  for (int i = 0; !over; ++i) {
    const std::string name = fmt::format("visitor-{}", i);
    if (!Create(name, 0)) return;
    if (i % 10 == 0) {
      (void)wire::Ask(batond_->socket_dir(), {{"command", "status"}}, std::chrono::seconds(10));
    }
    (void)wire::Ask(batond_->socket_dir(), {{"command", "delete_pod"}, {"name", name}},
                    std::chrono::seconds(10));
    usleep(20'000);
  }
}

Result<void> Grants::Run() {
  if (!RaiseFileLimit(options_.pods)) {
    return Fail(ErrorCode::kDenied,
                fmt::format("{} pods need {} open files; raise the limit (ulimit -Hn), or ask for "
                            "fewer --pods",
                            options_.pods, kFilesOfAClient * options_.pods + kFilesBeside));
  }
  auto echo = cli::UnixEcho::Start();
  if (!echo) return tl::unexpected(echo.error());
  echo_ = std::move(*echo);
  auto started = LoneBatond::Start(
      Configuration(options_),
      fmt::format("clients_max = {0}\nclients_per_uid = {0}\nconnects_per_second = 10000\n",
                  options_.pods + 16));
  if (!started) return tl::unexpected(started.error());
  batond_ = std::move(*started);
  if (auto attached = AttachAll(); !attached) return attached;
  fmt::print("{:<16} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}\n",
             fmt::format("{} x {}", options_.pods, options_.gpus), "grants/s", "p50", "p99", "most",
             "daemon", "pods");
  const auto all = Measure("all they can", cli::kAskEvery);
  if (!all) return tl::unexpected(all.error());
  const Duration rest(static_cast<int64_t>(2e9 * static_cast<double>(options_.pods) / *all));
  if (auto half = Measure("half of that", rest); !half) return tl::unexpected(half.error());
  std::atomic<bool> over{false};
  std::thread other([&] { Disturb(over); });
  const auto beside = Measure("... and pods", rest);
  over = true;
  other.join();
  if (!beside) return tl::unexpected(beside.error());
  return {};
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app{"How many tokens a second batond grants.", "scripts/bench grants"};
  app.footer(kAbout);
  app.add_option("--pods", options.pods, "How many [1000]")
      ->check(CLI::Range(size_t{2}, size_t{3200}));
  app.add_option("--gpus", options.gpus, "On how many GPUs [16]")
      ->check(CLI::Range(size_t{1}, size_t{16}));
  app.add_option("--seconds", options.seconds, "How long each row takes [5]")
      ->check(CLI::Range(0.5, 600.0));
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "bench grants: {} (see scripts/bench grants --help)\n", error.what());
    return kExitUsage;
  }
  Grants grants(options);
  const auto ran = grants.Run();
  if (ran) return 0;
  fmt::print(stderr, "bench grants: {}\n", ran.error().message);
  return 1;
}

}  // namespace
}  // namespace baton::bench

int main(int argc, char** argv) { return baton::bench::Main(argc, argv); }
