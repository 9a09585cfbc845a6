#include "k8s/command.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "k8s/api/client.h"
#include "k8s/extender/extender.h"
#include "net/server.h"

namespace baton::k8s {
namespace {

struct ExtenderFlags {
  ClusterFlags cluster;
  PolicyFlag policy;
  std::string listen = "0.0.0.0:8888";
  std::string scheduler{kScheduler};
  uint32_t memory_unit_mib = kMemoryUnitMib;
};

Result<void> Extend(const ExtenderFlags& flags) {
  ExtenderOptions options;
  auto policy = flags.policy.Parse();
  if (!policy) return tl::unexpected(policy.error());
  options.policy = *policy;
  options.memory_unit_mib = flags.memory_unit_mib;
  options.scheduler = flags.scheduler;
  auto config = flags.cluster.Find();
  if (!config) return tl::unexpected(config.error());
  ClientOptions client_options;
  client_options.user_agent = "baton-k8s extender";
  client_options.timeout = std::chrono::seconds(4);  // kube-scheduler's patience is 5 s
  auto client = Client::Make(*std::move(config), client_options);
  if (!client) return tl::unexpected(client.error());

  const StopSignals signals;  // before there are threads

  Extender extender(**client, std::move(options));
  net::HttpOptions serve = net::ForPrograms(flags.listen);
  serve.workers = 64;               // as many bindings wait for the API server at once
  serve.body_bytes_max = 64 << 20;  // whole nodes, where the scheduler sends them
  serve.bodies_bytes_max = 128 << 20;
  net::HttpServer server(serve, nullptr,
                         [&](const net::HttpRequest& request) { return extender.Answer(request); });
  if (auto started = server.Start(); !started) return started;
  spdlog::info("baton-k8s extender listens on port {}", server.port());
  signals.Await();
  spdlog::info("stopping");
  server.Stop();
  return {};
}

}  // namespace

void AddExtender(CLI::App& program, int* exit_code) {
  auto flags = std::make_shared<ExtenderFlags>();
  CLI::App* command = program.add_subcommand(
      "extender",
      "Scheduler extender: tells kube-scheduler and Volcano where a pod's GPUs fit, and binds it.");
  flags->cluster.Add(*command);
  command
      ->add_option("--listen", flags->listen, "Address and port for the scheduler, over plain HTTP")
      ->type_name("ADDRESS:PORT")
      ->capture_default_str();
  flags->policy.Add(*command);
  AddMemoryUnit(*command, &flags->memory_unit_mib);
  command
      ->add_option("--scheduler-name", flags->scheduler,
                   "schedulerName of the binder's pods, which the extender leaves alone")
      ->capture_default_str();
  command->footer(
      "Examples:\n"
      "  baton-k8s extender --listen 0.0.0.0:8888\n"
      "  baton-k8s extender --kubeconfig ~/.kube/config --listen 127.0.0.1:8888\n"
      "In kube-scheduler's configuration: extenders: [{urlPrefix: http://HOST:8888, filterVerb:\n"
      "filter, prioritizeVerb: prioritize, bindVerb: bind, weight: 100, nodeCacheCapable: true}]");
  OnCommand(*command, exit_code, [flags] { return Extend(*flags); });
}

}  // namespace baton::k8s
