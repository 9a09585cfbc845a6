#include "k8s/command.h"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "k8s/api/client.h"
#include "k8s/api/cluster_config.h"
#include "k8s/extender/extender.h"
#include "k8s/serve/server.h"

namespace baton::k8s {
namespace {

struct ExtenderFlags {
  std::string kubeconfig;
  std::string context;
  std::string policy = "remainder";
  std::string listen = "0.0.0.0:8888";
  std::string scheduler{kScheduler};
  uint32_t memory_unit_mib = kMemoryUnitMib;
};

Result<void> Extend(const ExtenderFlags& flags) {
  ExtenderOptions options;
  const auto rule = devmgr::ParseRule(flags.policy);
  if (!rule) return tl::unexpected(rule.error());
  options.policy.nodes = options.policy.cards = *rule;
  options.memory_unit_mib = flags.memory_unit_mib;
  options.scheduler = flags.scheduler;
  auto config = FindClusterConfig(flags.kubeconfig, flags.context);
  if (!config) return tl::unexpected(config.error());
  ClientOptions client_options;
  client_options.user_agent = "baton-k8s extender";
  client_options.timeout = std::chrono::seconds(4);  // kube-scheduler's patience is 5 s
  auto client = Client::Make(*std::move(config), client_options);
  if (!client) return tl::unexpected(client.error());

  // Before there are threads, which inherit it.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  Extender extender(**client, std::move(options));
  ServeOptions serve;
  serve.listen = flags.listen;
  serve.body_bytes_max = 64 << 20;  // whole nodes, where the scheduler sends them
  serve.bodies_bytes_max = 128 << 20;
  auto server = Server::Start(
      serve, nullptr, [&](const ServeRequest& request) { return extender.Answer(request); });
  if (!server) return tl::unexpected(server.error());
  spdlog::info("baton-k8s extender listens on port {}", (*server)->port());
  int signal = 0;
  while (sigwait(&signals, &signal) != 0) {
  }
  spdlog::info("stopping");
  (*server)->Stop();
  return {};
}

}  // namespace

void AddExtender(CLI::App& program, int* exit_code) {
  auto flags = std::make_shared<ExtenderFlags>();
  CLI::App* command = program.add_subcommand(
      "extender", "Answers kube-scheduler and Volcano where a pod's GPUs fit, and binds it.");
  command
      ->add_option("--kubeconfig", flags->kubeconfig,
                   "Where the API server is; in a pod its service account says")
      ->type_name("FILE");
  command->add_option("--context", flags->context, "Of the kubeconfig; its current one by default");
  command->add_option("--listen", flags->listen, "For the scheduler's questions, over plain HTTP")
      ->type_name("ADDRESS:PORT")
      ->capture_default_str();
  command
      ->add_option("--policy", flags->policy,
                   "By what places are chosen: remainder, fgd, binpack, spread, first-fit, random")
      ->capture_default_str();
  command
      ->add_option("--memory-unit", flags->memory_unit_mib,
                   "MiB in a unit of baton.dev/gpu-memory; the same for all of baton-k8s")
      ->check(CLI::Range(1u, 1u << 20))
      ->capture_default_str();
  command
      ->add_option("--scheduler-name", flags->scheduler, "The binder's pods, which are left to it")
      ->capture_default_str();
  command->footer(
      "Examples:\n"
      "  baton-k8s extender --listen 0.0.0.0:8888\n"
      "  baton-k8s extender --kubeconfig ~/.kube/config --listen 127.0.0.1:8888\n"
      "In kube-scheduler's configuration: extenders: [{urlPrefix: http://HOST:8888, filterVerb:\n"
      "filter, prioritizeVerb: prioritize, bindVerb: bind, weight: 100, nodeCacheCapable: true}]");
  command->callback([flags, exit_code] {
    if (auto done = Extend(*flags); !done) {
      fmt::print(stderr, "baton-k8s extender: {}\n", done.error().message);
      *exit_code = 1;
    }
  });
}

}  // namespace baton::k8s
