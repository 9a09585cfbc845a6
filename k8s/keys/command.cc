#include "k8s/command.h"

#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "k8s/api/client.h"
#include "k8s/keys/link_keys.h"

namespace baton::k8s {
namespace {

struct KeysFlags {
  std::string public_key_file;
  std::string central_key;
  std::string nodes_file;
  ClusterFlags cluster;
};

Result<void> ServeKeys(const KeysFlags& flags) {
  LinkKeysOptions options;
  options.public_key_file = flags.public_key_file;
  auto name = ParseObjectName(flags.central_key);
  if (!name) return tl::unexpected(name.error());
  options.central_key = *name;
  auto config = flags.cluster.Find();
  if (!config) return tl::unexpected(config.error());
  ClientOptions client_options;
  client_options.user_agent = "baton-k8s keys";
  auto client = Client::Make(std::move(*config), client_options);
  if (!client) return tl::unexpected(client.error());
  const StopSignals signals;  // before there are threads
  const CentralLinkKeys keys(**client, options, flags.nodes_file);
  spdlog::info("baton-k8s keys keeps {} and ConfigMap {}", flags.nodes_file, flags.central_key);
  signals.Await();
  spdlog::info("stopping");
  (*client)->Stop();
  return {};
}

}  // namespace

void AddKeys(CLI::App& program, int* exit_code) {
  auto flags = std::make_shared<KeysFlags>();
  CLI::App* command = program.add_subcommand(
      "keys",
      "Beside a central batond: publishes its public key, and lists those of the nodes for it.");
  command
      ->add_option("--public-key-file", flags->public_key_file,
                   "batond's public key, as 'baton keygen' wrote it")
      ->type_name("FILE")
      ->required();
  AddCentralKey(*command, &flags->central_key)->required();
  command
      ->add_option("--nodes-file", flags->nodes_file,
                   "File to keep, which batond reads as zmq.nodes_file")
      ->type_name("FILE")
      ->required();
  flags->cluster.Add(*command);
  command->footer(
      "Examples:\n"
      "  baton-k8s keys --public-key-file /var/lib/baton/central.key.pub "
      "--central-key baton-system/baton-central-key --nodes-file /var/lib/baton/nodes");
  OnCommand(*command, exit_code, [flags] { return ServeKeys(*flags); });
}

}  // namespace baton::k8s
