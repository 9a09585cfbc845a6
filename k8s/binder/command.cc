#include "k8s/command.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "base/file.h"
#include "base/parse.h"
#include "devmgr/placement/policy.h"
#include "k8s/api/client.h"
#include "k8s/binder/binder.h"
#include "k8s/types/flavors.h"
#include "net/server.h"

namespace baton::k8s {
namespace {

struct BinderFlags {
  ClusterFlags cluster;
  std::string name_space;
  std::string pod;
  std::string identity;
  std::string scheduler{kScheduler};
  PolicyFlag policy;
  std::string listen = "0.0.0.0:7480";
  std::string lease = "baton-binder";
  InjectOptions inject;
  std::vector<std::string> flavors;
  uint32_t writers = 12;
  uint32_t lease_s = 15;
  bool no_election = false;
  StandingOptions standing;
  std::string mig_templates;
  std::string standing_every = "30s";
  std::string standing_age_max = "10m";
};

constexpr size_t kTemplatesMax = 1 << 20;  // bytes

net::HttpResponse Answer(const net::HttpRequest& request, const Binder& binder) {
  if (request.method != "GET") return net::ErrorResponse(405, "use GET");
  if (request.path == "/healthz") return {200, "ok\n", "text/plain"};
  if (request.path == "/readyz") {
    // One that waits for the lease is ready: it takes over when it can.
    if (!binder.leading() || binder.synced()) return {200, "ok\n", "text/plain"};
    return {503, "the cluster has not been listed yet\n", "text/plain"};
  }
  if (request.path == "/metrics") return {200, binder.Metrics(), "text/plain; version=0.0.4"};
  return net::ErrorResponse(404, "unknown path; use /healthz, /readyz or /metrics");
}

Result<void> Bind(const BinderFlags& flags) {
  BinderOptions options;
  auto policy = flags.policy.Parse();
  if (!policy) return tl::unexpected(policy.error());
  options.core.policy = *policy;
  options.core.scheduler = flags.scheduler;
  options.core.memory_unit_mib = flags.inject.memory_unit_mib;
  options.core.inject = flags.inject;
  auto flavors = ParseFlavors(flags.flavors);
  if (!flavors) return tl::unexpected(flavors.error());
  options.core.inject.flavors = *std::move(flavors);
  if (!flags.mig_templates.empty()) {
    const auto text = ReadFile(flags.mig_templates, kTemplatesMax);
    if (!text) return tl::unexpected(text.error());
    auto templates = devmgr::MigTemplates::BuiltIn().With(*text, flags.mig_templates);
    if (!templates) return tl::unexpected(templates.error());
    options.core.mig_templates =
        std::make_shared<const devmgr::MigTemplates>(*std::move(templates));
  }
  options.writers = flags.writers;
  if (!flags.standing.url.empty()) {
    options.standing = flags.standing;
    for (const auto& [text, value] : {std::pair{flags.standing_every, &options.standing->every},
                                      {flags.standing_age_max, &options.standing->age_max}}) {
      auto period = ParseDuration(text);
      if (!period) return tl::unexpected(period.error());
      *value = std::max<Duration>(*period, std::chrono::seconds(1));
    }
  }
  auto config = flags.cluster.Find();
  if (!config) return tl::unexpected(config.error());
  const std::string identity = flags.identity.empty() ? OwnIdentity() : flags.identity;
  options.events.instance = identity;
  if (!flags.pod.empty() && !flags.name_space.empty()) {
    options.self = ObjectName{flags.name_space, flags.pod};
  }
  if (!flags.no_election) {
    LeaderOptions leader;
    leader.lease = {flags.name_space.empty() ? config->name_space : flags.name_space, flags.lease};
    leader.identity = identity;
    leader.duration = std::chrono::seconds(flags.lease_s);
    leader.renew_deadline = leader.duration * 2 / 3;
    leader.retry = leader.duration / 15;
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
  net::HttpServer server(net::ForPrograms(flags.listen), nullptr,
                         [&](const net::HttpRequest& request) { return Answer(request, binder); });
  if (auto started = server.Start(); !started) return started;
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
  server.Stop();
  return result;
}

}  // namespace

void AddBinder(CLI::App& program, int* exit_code) {
  auto flags = std::make_shared<BinderFlags>();
  CLI::App* command =
      program.add_subcommand("binder", "Schedules SharePods and pods that request GPUs.");
  flags->cluster.Add(*command);
  command
      ->add_option("--namespace", flags->name_space,
                   "Namespace of the leader election lease; default: the binder's own")
      ->envname("POD_NAMESPACE");
  command->add_option("--lease", flags->lease, "Name of the lease")->capture_default_str();
  command
      ->add_option(
          "--pod", flags->pod,
          "Name of the binder's own pod in --namespace. A binder that knows it watches the "
          "cluster while it waits for the lease, so it takes over at once")
      ->envname("POD_NAME");
  command
      ->add_option("--lease-seconds", flags->lease_s,
                   "How long the others wait after the leader has gone silent")
      ->check(CLI::Range(3u, 300u))
      ->capture_default_str();
  command->add_option("--identity", flags->identity,
                      "Identity, unique among the binders; default: host name and a number");
  command->add_flag("--no-leader-election", flags->no_election,
                    "Lead without election; only if no other binder can run");
  AddMemoryUnit(*command, &flags->inject.memory_unit_mib);
  AddPodFolders(*command, &flags->inject.socket_dir, &flags->inject.host_hook_dir);
  AddPodDefaults(*command, &flags->inject);
  AddFlavors(*command, &flags->flavors);
  command
      ->add_option("--scheduler-name", flags->scheduler, "Schedules pods with this schedulerName")
      ->capture_default_str();
  flags->policy.Add(*command);
  command
      ->add_option("--mig-templates", flags->mig_templates,
                   "How GPUs are divided by MIG: the same file as placement.mig_templates of "
                   "batond on the nodes. Default: as built in")
      ->type_name("FILE");
  AddListen(*command, &flags->listen);
  command->add_option("--writers", flags->writers, "Concurrent writes to the API server")
      ->check(CLI::Range(1u, 64u))
      ->capture_default_str();
  command
      ->add_option("--standing-url", flags->standing.url,
                   "Address of the central batond's page and API: what teams have used, by its "
                   "books, decides whose pods are next. Default: only what runs now does")
      ->type_name("URL");
  command->add_option("--standing-token-file", flags->standing.token_file, "Token of that API")
      ->type_name("FILE");
  command
      ->add_option("--standing-ca-file", flags->standing.ca_file,
                   "Certificates (PEM) by which that API is trusted; default: the system's")
      ->type_name("FILE");
  command->add_option("--standing-every", flags->standing_every, "How often to ask")
      ->capture_default_str();
  command
      ->add_option("--standing-max-age", flags->standing_age_max,
                   "While no answer comes the last one counts for this long")
      ->capture_default_str();
  command->footer(
      "Examples:\n"
      "  baton-k8s binder                                        # in a pod\n"
      "  baton-k8s binder --kubeconfig ~/.kube/config --namespace baton-system\n"
      "  baton-k8s binder --kubeconfig kubeconfig --no-leader-election --policy binpack");
  OnCommand(*command, exit_code, [flags] { return Bind(*flags); });
}

}  // namespace baton::k8s
