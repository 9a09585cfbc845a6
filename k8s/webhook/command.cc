#include "k8s/command.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "base/parse.h"
#include "k8s/api/client.h"
#include "k8s/types/flavors.h"
#include "k8s/webhook/api_facts.h"
#include "k8s/webhook/webhook.h"

namespace baton::k8s {

namespace {

struct WebhookFlags {
  std::string listen = "0.0.0.0:8443";
  std::string metrics;
  std::string service;
  std::vector<std::string> names;
  std::string replica;
  std::string configuration;
  std::string certificate_file;
  std::string key_file;
  std::string teams;
  std::string validity = "7d";
  std::string propagation = "20s";
  std::string linger = "5s";
  ClusterFlags cluster;
  InjectOptions inject;
  std::vector<std::string> flavors;
  TenancyFlags tenancy;
  ForeignOptions foreign;
  BatchOptions batch;
  bool check_quotas = false;
  std::string own_namespace;
};

Result<void> RunWebhook(const WebhookFlags& flags) {
  WebhookOptions options;
  options.serve.listen = flags.listen;
  options.metrics_listen = flags.metrics;
  options.teams_file = flags.teams;
  options.certificate_file = flags.certificate_file;
  options.key_file = flags.key_file;
  options.admission.inject = flags.inject;
  auto flavors = ParseFlavors(flags.flavors);
  if (!flavors) return tl::unexpected(flavors.error());
  options.admission.inject.flavors = *std::move(flavors);
  options.admission.foreign = flags.foreign;
  options.admission.batch = flags.batch;

  const size_t dot = flags.service.find('.');
  if (dot == std::string::npos || dot == 0 || dot + 1 == flags.service.size()) {
    return Fail(ErrorCode::kInvalid, fmt::format("--service '{}' is no NAME.NAMESPACE; write such "
                                                 "as baton-webhook.baton-system",
                                                 flags.service.substr(0, 128)));
  }
  const std::string name = flags.service.substr(0, dot);
  const std::string name_space = flags.service.substr(dot + 1);
  options.admission.own_namespace = flags.own_namespace.empty() ? name_space : flags.own_namespace;
  options.rotation.names = {name + "." + name_space + ".svc", name + "." + name_space, name,
                            name + "." + name_space + ".svc.cluster.local"};
  for (const std::string& more : flags.names) options.rotation.names.push_back(more);
  options.rotation.replica = flags.replica.empty() ? OwnIdentity() : flags.replica;
  auto validity = ParseDuration(flags.validity);
  if (!validity) return tl::unexpected(validity.error());
  auto propagation = ParseDuration(flags.propagation);
  if (!propagation) return tl::unexpected(propagation.error());
  if (*propagation <= Duration(0) || *validity < *propagation * 10) {
    return Fail(ErrorCode::kInvalid,
                "--validity must be at least ten times --propagation, and that more than nothing");
  }
  auto linger = ParseDuration(flags.linger);
  if (!linger) return tl::unexpected(linger.error());
  options.rotation.validity = *validity;
  options.rotation.propagation = *propagation;
  const bool files = !flags.certificate_file.empty() || !flags.key_file.empty();
  if (files == !flags.configuration.empty()) {
    return Fail(ErrorCode::kInvalid,
                "set either --configuration (it makes its own certificates) or --cert-file and "
                "--key-file (somebody else does, and keeps caBundle)");
  }

  auto tenancy = flags.tenancy.Parse();
  if (!tenancy) return tl::unexpected(tenancy.error());
  options.admission.tenancy = *std::move(tenancy);

  const StopSignals signals;  // before there are threads

  std::unique_ptr<Client> asking;
  std::shared_ptr<ApiFacts> facts;
  if (flags.check_quotas || options.admission.tenancy.IsOn() || flags.batch.ReadsGroups()) {
    auto config = flags.cluster.Find();
    if (!config) return tl::unexpected(config.error());
    ClientOptions client_options;
    client_options.user_agent = "baton-k8s webhook";
    // The API server waits for the review no longer than this, twice over.
    client_options.timeout = std::chrono::seconds(2);
    client_options.attempt_timeout = std::chrono::seconds(2);
    auto made = Client::Make(std::move(*config), client_options);
    if (!made) return tl::unexpected(made.error());
    asking = std::move(*made);
    facts = std::make_shared<ApiFacts>(*asking);
    options.admission.facts = facts;
    options.admission.check_quotas = flags.check_quotas;
  }

  std::unique_ptr<Client> client;
  if (!files) {
    auto config = flags.cluster.Find();
    if (!config) return tl::unexpected(config.error());
    ClientOptions client_options;
    client_options.user_agent = "baton-k8s webhook";
    auto made = Client::Make(std::move(*config), client_options);
    if (!made) return tl::unexpected(made.error());
    client = std::move(*made);
    options.publish = PublishToConfigurations(*client, flags.configuration);
  }
  auto webhook = Webhook::Start(std::move(options));
  if (!webhook) return tl::unexpected(webhook.error());
  spdlog::info("baton-k8s webhook answers on port {}", (*webhook)->port());
  signals.Await();
  spdlog::info("stopping");
  // API servers hear of it a moment later; a second signal ends the wait.
  (*webhook)->Leave();
  signals.Await(*linger);
  if (client != nullptr) client->Stop();
  if (asking != nullptr) asking->Stop();
  (*webhook)->Stop();
  return {};
}

}  // namespace

void AddWebhook(CLI::App& program, int* exit_code) {
  auto flags = std::make_shared<WebhookFlags>();
  CLI::App* command = program.add_subcommand(
      "webhook",
      "Admission webhook: validates pods and SharePods, and injects the hook into pods.");
  command->add_option("--listen", flags->listen, "Address and port of HTTPS")
      ->capture_default_str();
  command->add_option("--metrics", flags->metrics,
                      "Address and port of plain HTTP for /metrics, /healthz and /readyz; HTTPS "
                      "serves them too");
  command->add_option("--service", flags->service, "NAME.NAMESPACE of the webhook's Service")
      ->required();
  command->add_option("--name", flags->names,
                      "Additional name or address in the certificate; can be repeated");
  command
      ->add_option("--replica", flags->replica,
                   "Name, unique among the replicas; a restarted replica removes its old entries "
                   "from caBundle. Default: host name and a number")
      ->envname("POD_NAME");
  command->add_option("--configuration", flags->configuration,
                      "Name of the MutatingWebhookConfiguration and ValidatingWebhookConfiguration "
                      "whose caBundle it maintains");
  command
      ->add_option(
          "--cert-file", flags->certificate_file,
          "Certificate (PEM) to serve instead of a self-made one; reloaded when it changes")
      ->type_name("FILE");
  command->add_option("--key-file", flags->key_file, "Key (PEM) of --cert-file")->type_name("FILE");
  command
      ->add_option("--teams", flags->teams,
                   "File of teams as batond's; other teams are rejected. Reloaded when it changes")
      ->type_name("FILE");
  command
      ->add_option("--validity", flags->validity,
                   "Lifetime of a self-made certificate; it is replaced after two thirds of that")
      ->capture_default_str();
  command
      ->add_option("--propagation", flags->propagation,
                   "Time after which all API servers use a newly written caBundle")
      ->capture_default_str();
  command
      ->add_option("--linger", flags->linger,
                   "How long to keep answering after SIGTERM, until API servers stop asking")
      ->capture_default_str();
  AddMemoryUnit(*command, &flags->inject.memory_unit_mib);
  AddPodFolders(*command, &flags->inject.socket_dir, &flags->inject.host_hook_dir);
  AddPodDefaults(*command, &flags->inject);
  AddFlavors(*command, &flags->flavors);
  flags->tenancy.Add(*command);
  command->add_flag("--hami-names", flags->foreign.hami,
                    "Understand HAMi's names in new pods: nvidia.com/gpumem, nvidia.com/gpucores "
                    "and so on (docs/migrating.md)");
  command->add_flag("--volcano-names", flags->foreign.volcano,
                    "Likewise Volcano's: volcano.sh/vgpu-number, volcano.sh/vgpu-memory");
  command->add_flag("--kai-names", flags->foreign.kai,
                    "Likewise KAI's and Run:ai's: gpu-fraction, gpu-memory");
  command
      ->add_option("--time-slicing-replicas", flags->foreign.replicas,
                   "Likewise nvidia.com/gpu.shared, as one of so many equal parts of a GPU")
      ->type_name("REPLICAS")
      ->check(CLI::Range(kReplicasMin, kReplicasMax));
  command->add_flag("--kueue-queues", flags->batch.kueue,
                    "The queue of a new pod or SharePod that names no team is its team, by Kueue's "
                    "label kueue.x-k8s.io/queue-name (docs/teams.md)");
  command->add_flag("--volcano-queues", flags->batch.volcano,
                    "Likewise by Volcano's annotation scheduling.volcano.sh/queue-name or its "
                    "PodGroup; and PodGroups are gangs");
  command->add_flag("--kai-queues", flags->batch.kai,
                    "Likewise by KAI's label kai.scheduler/queue");
  command->add_flag("--coscheduling-groups", flags->batch.coscheduling,
                    "PodGroups of the coscheduling plugin are gangs: label "
                    "scheduling.x-k8s.io/pod-group");
  command->add_flag("--check-quotas", flags->check_quotas,
                    "Reject live changes of shares and memory that exceed a ResourceQuota of the "
                    "namespace");
  command
      ->add_option("--namespace", flags->own_namespace,
                   "Baton's own namespace, whose pods are not changed; default: that of --service")
      ->envname("POD_NAMESPACE");
  flags->cluster.Add(*command);
  command->footer(
      "Examples:\n"
      "  baton-k8s webhook --service baton-webhook.baton-system --configuration baton\n"
      "  baton-k8s webhook --service baton-webhook.baton-system \\\n"
      "    --cert-file /certs/tls.crt --key-file /certs/tls.key --teams /etc/baton/teams.toml\n"
      "  baton-k8s webhook --service baton-webhook.baton-system --configuration baton \\\n"
      "    --hami-names --time-slicing-replicas 4 --kueue-queues");
  OnCommand(*command, exit_code, [flags] { return RunWebhook(*flags); });
}

}  // namespace baton::k8s
