// bench_grants: how many tokens a second batond grants where thousands of pods want those of many
// GPUs, and how long a hand-off takes at half of that. scripts/bench grants builds and starts it.
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "bench/lone_batond.h"
#include "bench/relays.h"
#include "cli/contention.h"
#include "cli/measure.h"
#include "wire/control_client.h"

namespace baton::bench {
namespace {

using nlohmann::json;

constexpr int kExitUsage = 2;
constexpr rlim_t kFilesOfAClient = 2;  // in batond
constexpr rlim_t kFilesBeside = 300;

constexpr size_t kGpusOfNode = 16;  // at most
// A hand-off takes so much of the time at half of the load that it takes at all of it; the rest of
// a turn that is twice as long is held.
constexpr double kLightly = 0.3;
constexpr double kRequestMost = 0.5, kRequestsOfGpu = 80;  // percent

constexpr char kAbout[] = R"(Examples:
  scripts/bench grants                    1 000 pods on 16 GPUs, over the unix socket
  scripts/bench grants --pods 128 --seconds 10
  scripts/bench grants --nodes 7 --gpus 100 --pods 10000
                                          over ZeroMQ with CURVE, as from 7 nodes

Without GPUs: those of the configuration are names, and one program plays all pods, with --nodes
their nodes' relays too. Rows:
  all they can    every pod asks again at once: one State for a grant says that it has had the
                  token, and wants it again
  half of that    the pods hold the token for a while, so that there are about half as many grants
  ... and pods    the same, while other pods are created, listed and deleted
Each with the grants a second; how long a hand-off takes, from a return, while others wait, until
the next one has the token, in milliseconds: median, 99th percentile, longest; and the processors
that batond and this program use.
)";

struct Options {
  size_t pods = 1000;
  size_t gpus = 16;
  size_t nodes = 0;  // 0: all are on batond's own
  double seconds = 5;
};

std::string Uuid(size_t gpu) { return fmt::format("GPU-{}", gpu); }

// As many open files as both programs need.
bool RaiseFileLimit(size_t clients) {
  const rlim_t wanted = kFilesOfAClient * clients + kFilesBeside;
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::max(limit.rlim_cur, wanted);
  limit.rlim_max = std::max(limit.rlim_max, wanted);
  return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

std::string OwnGpus(const Options& options) {
  std::string text = "[http]\nlisten = \"\"\n";
  for (size_t gpu = 0; gpu < options.gpus; ++gpu) {
    text += fmt::format("[[gpu]]\nuuid = \"{}\"\nmemory = \"80GiB\"\n", Uuid(gpu));
  }
  return text;
}

class Grants {
 public:
  explicit Grants(const Options& options) : options_(options) {}
  ~Grants();
  Result<void> Run();

 private:
  Result<void> StartBatond();
  // GPU g is on node g % nodes.
  Result<void> StartNodes();
  Result<std::unique_ptr<cli::Transport>> Connect(size_t gpu);
  Result<json> Create(const std::string& name, size_t gpu) const {
    const double each =
        kRequestsOfGpu * static_cast<double>(options_.gpus) / static_cast<double>(options_.pods);
    return wire::Ask(batond_->socket_dir(),
                     {{"command", "create_pod"},
                      {"name", name},
                      {"request", std::min(kRequestMost, each)},
                      {"gpus", {Uuid(gpu)}}},
                     std::chrono::seconds(10));
  }
  Result<void> AttachAll();
  // Grants a second.
  Result<double> Measure(const char* name, Duration hold);
  // Creates, lists and deletes pods until it is over.
  void Disturb(const std::atomic<bool>& over) const;

  const Options& options_;
  std::string keys_;  // a folder with batond's
  std::unique_ptr<LoneBatond> batond_;
  std::unique_ptr<Relays> relays_;
  std::vector<cli::Contender> contenders_;
  std::unique_ptr<cli::UnixEcho> echo_;
};

Grants::~Grants() {
  std::error_code ignored;
  if (!keys_.empty()) std::filesystem::remove_all(keys_, ignored);
}

Result<std::unique_ptr<cli::Transport>> Grants::Connect(size_t gpu) {
  if (relays_ != nullptr) return relays_->NewClient(gpu % options_.nodes);
  return cli::ConnectTenant(wire::TenantSocket(batond_->socket_dir()));
}

Result<void> Grants::AttachAll() {
  for (size_t i = 0; i < options_.pods; ++i) {
    const size_t gpu = i % options_.gpus;
    const Result<json> pod = Create(fmt::format("pod-{}", i), gpu);
    if (!pod) return tl::unexpected(pod.error());
    auto transport = Connect(gpu);
    if (!transport) return tl::unexpected(transport.error());
    auto tenant = cli::Tenant::Attach(std::move(*transport), pod->at("ticket"), Uuid(gpu));
    if (!tenant) return tl::unexpected(tenant.error());
    contenders_.push_back({std::move(*tenant), gpu});
  }
  return {};
}

Result<double> Grants::Measure(const char* name, Duration hold) {
  const cli::ContentionPlan plan{.gpus = options_.gpus,
                                 .hold = hold,
                                 .confirms = false,
                                 .length = Duration(static_cast<int64_t>(options_.seconds * 1e9)),
                                 .arrivals = relays_.get(),
                                 .daemon = batond_->pid()};
  auto found = cli::Contend(contenders_, plan, *echo_, [](double) {});
  if (!found) return tl::unexpected(found.error());
  std::vector<Duration>& took = found->hand_offs;
  std::sort(took.begin(), took.end());
  const auto at = [&](double q) {
    if (took.empty()) return 0.0;
    const auto i = static_cast<size_t>(q * static_cast<double>(took.size() - 1));
    return static_cast<double>(Nanos(took[i])) / 1e6;
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

Result<void> Grants::StartBatond() {
  auto started = LoneBatond::Start(
      OwnGpus(options_),
      fmt::format("clients_max = {0}\nclients_per_uid = {0}\nconnects_per_second = 10000\n",
                  options_.pods + 16));
  if (!started) return tl::unexpected(started.error());
  batond_ = std::move(*started);
  return {};
}

Result<void> Grants::StartNodes() {
  const Result<std::string> address = FreeAddress();
  if (!address) return tl::unexpected(address.error());
  std::string folder = std::filesystem::temp_directory_path() / "baton-bench-keys-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) {
    return Fail(ErrorCode::kInternal, "cannot make a folder like " + folder);
  }
  keys_ = folder;
  const std::string key = folder + "/batond.key";
  if (auto made = net::GenerateKeyPair(key); !made) return made;
  const Result<net::KeyPair> own = net::ReadKeyPair(key);
  if (!own) return tl::unexpected(own.error());
  std::vector<RelayNode> nodes(options_.nodes);
  std::string listed;
  for (size_t n = 0; n < nodes.size(); ++n) {
    const Result<net::KeyPair> keys = net::MakeKeyPair();
    if (!keys) return tl::unexpected(keys.error());
    nodes[n] = {fmt::format("node-{}", n), *keys, {}};
    listed += fmt::format("{} = \"{}\"\n", nodes[n].name, keys->public_key);
  }
  for (size_t gpu = 0; gpu < options_.gpus; ++gpu) {
    nodes[gpu % nodes.size()].gpus.push_back(Uuid(gpu));
  }
  auto started = LoneBatond::Start(
      fmt::format("local_gpus = \"no\"\n[http]\nlisten = \"\"\n[zmq]\nlisten = \"{}\"\n"
                  "secret_key_file = \"{}\"\n[zmq.nodes]\n{}",
                  *address, key, listed));
  if (!started) return tl::unexpected(started.error());
  batond_ = std::move(*started);
  auto relays = Relays::Connect(*address, own->public_key, nodes);
  if (!relays) return tl::unexpected(relays.error());
  relays_ = std::move(*relays);
  return {};
}

Result<void> Grants::Run() {
  if (options_.nodes == 0 && !RaiseFileLimit(options_.pods)) {
    return Fail(ErrorCode::kDenied,
                fmt::format("{} pods need {} open files; raise the limit (ulimit -Hn), or ask for "
                            "fewer --pods",
                            options_.pods, kFilesOfAClient * options_.pods + kFilesBeside));
  }
  auto echo = cli::UnixEcho::Start();
  if (!echo) return tl::unexpected(echo.error());
  echo_ = std::move(*echo);
  if (auto started = options_.nodes == 0 ? StartBatond() : StartNodes(); !started) return started;
  if (auto attached = AttachAll(); !attached) return attached;
  fmt::print("{:<16} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}\n",
             fmt::format("{} x {}", options_.pods, options_.gpus), "grants/s", "p50", "p99", "most",
             "daemon", "pods");
  const auto all = Measure("all they can", Duration(0));
  if (!all) return tl::unexpected(all.error());
  const double turn_ns = 1e9 * static_cast<double>(options_.gpus) / *all;
  const Duration hold(static_cast<int64_t>((2 - kLightly) * turn_ns));
  if (auto half = Measure("half of that", hold); !half) return tl::unexpected(half.error());
  std::atomic<bool> over{false};
  std::thread other([&] { Disturb(over); });
  const auto beside = Measure("... and pods", hold);
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
      ->check(CLI::Range(size_t{2}, size_t{20'000}));
  app.add_option("--gpus", options.gpus, "On how many GPUs, at most 16 of a node [16]")
      ->check(CLI::Range(size_t{1}, size_t{1'600}));
  app.add_option("--nodes", options.nodes,
                 "Nodes that they are on, over ZeroMQ; 0: all are batond's own [0]")
      ->check(CLI::Range(size_t{0}, size_t{100}));
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
  if (options.gpus > kGpusOfNode * std::max<size_t>(1, options.nodes) ||
      options.gpus < options.nodes) {
    fmt::print(stderr, "bench grants: {} GPUs need {} to {} --nodes\n", options.gpus,
               (options.gpus + kGpusOfNode - 1) / kGpusOfNode, options.gpus);
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
