#include "k8s/command.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "devmgr/policy.h"
#include "k8s/api/client.h"
#include "k8s/binder/binder.h"
#include "k8s/serve/server.h"

namespace baton::k8s {
namespace {

struct BinderFlags {
  ClusterFlags cluster;
  std::string name_space;
  std::string identity;
  std::string scheduler{kScheduler};
  PolicyFlag policy;
  std::string listen = "0.0.0.0:7480";
  std::string lease = "baton-binder";
  InjectOptions inject;
  uint32_t writers = 12;
  uint32_t lease_s = 15;
  bool no_election = false;
};

ServeAnswer Answer(const ServeRequest& request, const Binder& binder) {
  if (request.method != "GET") return ServeError(405, "only GET is answered here");
  if (request.path == "/healthz") return {200, "ok\n", "text/plain"};
  if (request.path == "/readyz") {
    // One that waits for the lease is ready: it takes over when it can.
    if (!binder.leading() || binder.synced()) return {200, "ok\n", "text/plain"};
    return {503, "it does not know the cluster yet\n", "text/plain"};
  }
  if (request.path == "/metrics") return {200, binder.Metrics(), "text/plain; version=0.0.4"};
  return ServeError(404, "there are /healthz, /readyz and /metrics");
}

Result<void> Bind(const BinderFlags& flags) {
  BinderOptions options;
  auto policy = flags.policy.Parse();
  if (!policy) return tl::unexpected(policy.error());
  options.core.policy = *policy;
  options.core.scheduler = flags.scheduler;
  options.core.memory_unit_mib = flags.inject.memory_unit_mib;
  options.core.inject = flags.inject;
  options.writers = flags.writers;
  auto config = flags.cluster.Find();
  if (!config) return tl::unexpected(config.error());
  const std::string identity = flags.identity.empty() ? OwnIdentity() : flags.identity;
  options.events.instance = identity;
  if (!flags.no_election) {
    LeaderOptions leader;
    leader.lease = {flags.name_space.empty() ? config->name_space : flags.name_space, flags.lease};
    leader.identity = identity;
    leader.duration = std::chrono::seconds(flags.lease_s);
    leader.renew_deadline = leader.duration * 2 / 3;
    leader.retry = leader.duration * 2 / 15;
    options.leader = leader;
  }
  ClientOptions client_options;
  client_options.user_agent = "baton-k8s binder";
  client_options.timeout = std::chrono::seconds(10);
  client_options.attempt_timeout = std::chrono::seconds(5);
  // The writers', the election's and the events'.
  client_options.connections_max = flags.writers + 4;
  auto client = Client::Make(*std::move(config), client_options);
  if (!client) return tl::unexpected(client.error());

  const StopSignals signals;  // before there are threads

  Binder binder(**client, std::move(options));
  std::unique_ptr<Server> server;
  if (!flags.listen.empty()) {
    ServeOptions serve;
    serve.listen = flags.listen;
    auto started = Server::Start(
        serve, nullptr, [&](const ServeRequest& request) { return Answer(request, binder); });
    if (!started) return tl::unexpected(started.error());
    server = *std::move(started);
  }
  std::atomic<bool> over = false;
  std::thread stopper([&] {
    while (!over) {
      if (!signals.Await(std::chrono::milliseconds(100))) continue;
      spdlog::info("stopping");
      binder.Stop();
      return;
    }
  });
  auto result = binder.Run();
  over = true;
  stopper.join();
  if (server) server->Stop();
  return result;
}

}  // namespace

void AddBinder(CLI::App& program, int* exit_code) {
  auto flags = std::make_shared<BinderFlags>();
  CLI::App* command = program.add_subcommand(
      "binder", "Places SharePods and pods that ask for GPUs, and binds them to their nodes.");
  flags->cluster.Add(*command);
  command
      ->add_option("--namespace", flags->name_space,
                   "Of the lease by which one of several binders leads; its own by default")
      ->envname("POD_NAMESPACE");
  command->add_option("--lease", flags->lease, "Its name")->capture_default_str();
  command
      ->add_option("--lease-seconds", flags->lease_s,
                   "How long a binder that went silent keeps the others waiting")
      ->check(CLI::Range(3u, 300u))
      ->capture_default_str();
  command->add_option("--identity", flags->identity,
                      "Unique among the binders; the host's name and a number by default");
  command->add_flag("--no-leader-election", flags->no_election,
                    "Lead at once: only where there is surely no other binder");
  AddMemoryUnit(*command, &flags->inject.memory_unit_mib);
  AddPodFolders(*command, &flags->inject.socket_dir, &flags->inject.host_hook_dir);
  command
      ->add_option("--scheduler-name", flags->scheduler, "Pods with this schedulerName are placed")
      ->capture_default_str();
  flags->policy.Add(*command);
  AddListen(*command, &flags->listen);
  command->add_option("--writers", flags->writers, "Writes that are on their way at once")
      ->check(CLI::Range(1u, 64u))
      ->capture_default_str();
  command->footer(
      "Examples:\n"
      "  baton-k8s binder                                        # in a pod\n"
      "  baton-k8s binder --kubeconfig ~/.kube/config --namespace baton-system\n"
      "  baton-k8s binder --kubeconfig kubeconfig --no-leader-election --policy binpack");
  OnCommand(*command, exit_code, [flags] { return Bind(*flags); });
}

}  // namespace baton::k8s
