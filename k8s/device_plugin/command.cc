#include "k8s/command.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "k8s/api/client.h"
#include "k8s/api/event_recorder.h"
#include "k8s/device_plugin/hook_file.h"
#include "k8s/device_plugin/node_agent.h"
#include "k8s/device_plugin/plugin_server.h"
#include "k8s/dra/driver.h"
#include "k8s/keys/link_keys.h"
#include "k8s/types/annotations.h"
#include "k8s/types/inject.h"
#include "net/server.h"

namespace baton::k8s {
namespace {

struct PluginFlags {
  std::string node;
  std::string socket_dir{kSocketDir};
  std::string plugin_dir = "/var/lib/kubelet/device-plugins";
  uint32_t memory_unit_mib = kMemoryUnitMib;
  ClusterFlags cluster;
  uint32_t report_every_s = 10;
  std::string identity = "cgroup";
  bool no_plugin = false;
  bool whole_cards = false;
  std::string mps_memory_dir;
  bool dra = false;
  std::string kubelet_dir = "/var/lib/kubelet";
  std::string cdi_dir = "/var/run/cdi";
  TenancyFlags tenancy;
  std::string hook_source;
  std::string hook_dest{kHostHookDir};
  std::string pod_socket_dir{kSocketDir};
  std::string listen = "0.0.0.0:7481";
  std::string public_key_file;
  std::string central_key;
  std::string central_key_file;
};

// A folder in which everybody may make files, and remove their own: as /dev/shm is.
Result<void> MakeShared(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error) {
    std::filesystem::permissions(
        folder, std::filesystem::perms::all | std::filesystem::perms::sticky_bit, error);
  }
  if (!error) return {};
  return Fail(ErrorCode::kInternal,
              fmt::format("--mps-memory-dir: {}: {}", folder, error.message()));
}

Result<void> ServeNode(const PluginFlags& flags) {
  if (flags.node.empty()) {
    return Fail(ErrorCode::kInvalid,
                "which node is this? Set --node, or NODE_NAME by fieldRef spec.nodeName");
  }
  LinkKeysOptions keys_options;
  keys_options.public_key_file = flags.public_key_file;
  if (!flags.central_key.empty()) {
    auto name = ParseObjectName(flags.central_key);
    if (!name) return tl::unexpected(name.error());
    keys_options.central_key = *name;
  }
  auto tenancy = flags.tenancy.Parse();
  if (!tenancy) return tl::unexpected(tenancy.error());
  if (!flags.hook_source.empty()) {
    auto installed = InstallHook(flags.hook_source, flags.hook_dest);
    if (!installed) return tl::unexpected(installed.error());
    spdlog::info("the hook {} is in {}{}", flags.hook_source, flags.hook_dest,
                 *installed ? "" : " already");
  }
  auto config = flags.cluster.Find();
  if (!config) return tl::unexpected(config.error());
  ClientOptions client_options;
  client_options.user_agent = "baton-k8s device-plugin";
  client_options.field_manager = kNodeManager;
  auto client = Client::Make(std::move(*config), client_options);
  if (!client) return tl::unexpected(client.error());

  const StopSignals signals;  // before there are threads

  const std::vector<HookMount> mounts =
      HookMounts({.socket_dir = flags.pod_socket_dir, .host_hook_dir = flags.hook_dest});
  const std::string hook_file = flags.hook_dest + "/libbaton.so";
  std::optional<PluginServer> shares, memory, whole, mps;
  if (!flags.no_plugin && !flags.dra) {
    const auto of = [&](std::string_view resource, const char* endpoint) {
      PluginServerOptions options;
      options.folder = flags.plugin_dir;
      options.resource = resource;
      options.endpoint = endpoint;
      return options;
    };
    // Each container with GPUs has this resource, and not all have the other.
    PluginServerOptions of_shares = of(kShareResource, "baton-gpu-share.sock");
    of_shares.mounts = mounts;
    of_shares.hook_file = hook_file;
    shares.emplace(of_shares);
    memory.emplace(of(kMemoryResource, "baton-gpu-memory.sock"));
    if (flags.whole_cards) {
      PluginServerOptions of_whole = of(kWholeResource, "baton-gpu-whole.sock");
      // A pod that the binder placed says which GPUs it has. One that came by another way gets
      // none, also where its image asks for all.
      of_whole.environment = {{"NVIDIA_VISIBLE_DEVICES", "void"}};
      whole.emplace(of_whole);
    }
    if (!flags.mps_memory_dir.empty()) {
      if (auto made = MakeShared(flags.mps_memory_dir); !made) return made;
      PluginServerOptions of_mps = of(kMpsResource, "baton-gpu-mps.sock");
      of_mps.mounts = {{"/dev/shm", flags.mps_memory_dir, true}};
      mps.emplace(of_mps);
    }
  }
  EventRecorderOptions event_options;
  event_options.controller = "baton.dev/node";
  event_options.instance = flags.node;
  EventRecorder events(**client, event_options);
  NodeAgentOptions options;
  options.node = flags.node;
  options.socket_dir = flags.socket_dir;
  options.memory_unit_mib = flags.memory_unit_mib;
  options.report_every = std::chrono::seconds(flags.report_every_s);
  options.makes_mps = flags.no_plugin || !flags.mps_memory_dir.empty();
  options.by_cgroup = flags.identity == "cgroup";
  if (shares) options.mounts_hook = [&shares] { return shares->registrations() > 0; };
  std::optional<DraDriver> driver;
  if (flags.dra) {
    DraDriverOptions dra;
    dra.node = flags.node;
    dra.socket_dir = flags.socket_dir;
    dra.kubelet_dir = flags.kubelet_dir;
    dra.cdi_dir = flags.cdi_dir;
    dra.mounts = mounts;
    dra.hook_file = hook_file;
    dra.tenancy = *std::move(tenancy);
    driver.emplace(**client, std::move(dra));
    options.lent_to = "ResourceClaims have the GPUs of this node (--dra)";
    options.mounts_hook = [] { return false; };
    options.on_node = [&driver](const devmgr::Node& node, const std::vector<PresentPod>* pods) {
      driver->OnNode(node, pods);
    };
  }
  options.on_cards = [&](const std::vector<PluginCard>& cards) {
    if (!shares) return;
    shares->SetDevices(ShareDevices(cards));
    if (whole) whole->SetDevices(WholeDevices(cards));
    if (mps) mps->SetDevices(MpsDevices(cards));
    auto units = MemoryDevices(cards, flags.memory_unit_mib);
    if (units) {
      memory->SetDevices(std::move(*units));
    } else {
      spdlog::error("plugin: {} is not offered: {}", kMemoryResource, units.error().message);
      memory->SetDevices({});
    }
  };
  {
    // Before batond has a link, so whether it answers does not matter.
    std::optional<NodeLinkKeys> keys;
    if (!flags.central_key.empty()) {
      keys.emplace(**client, keys_options, flags.node, flags.central_key_file);
    }
    NodeAgent agent(**client, events, options);
    net::HttpOptions serve = net::ForPrograms(flags.listen);
    serve.connections_max = 32;
    serve.body_bytes_max = 1'024;
    net::HttpServer server(serve, nullptr,
                           [&](const net::HttpRequest& request) { return agent.Answer(request); });
    if (auto started = server.Start(); !started) {
      (*client)->Stop();
      return started;
    }
    spdlog::info("baton-k8s device-plugin serves node {}", flags.node);
    signals.Await();
    spdlog::info("stopping");
    (*client)->Stop();
  }
  return {};
}

}  // namespace

void AddDevicePlugin(CLI::App& program, int* exit_code) {
  auto flags = std::make_shared<PluginFlags>();
  CLI::App* command = program.add_subcommand(
      "device-plugin",
      "Node agent: reports the node's GPUs to the kubelet and the API, and its pods to batond.");
  command->add_option("--node", flags->node, "Name of the node")->envname("NODE_NAME");
  command
      ->add_option("--socket-dir", flags->socket_dir,
                   "Folder of the control.sock of batond or baton-frontend")
      ->capture_default_str();
  command->add_option("--plugin-dir", flags->plugin_dir, "The kubelet's device plugin folder")
      ->capture_default_str();
  AddMemoryUnit(*command, &flags->memory_unit_mib);
  flags->cluster.Add(*command);
  command
      ->add_option("--report-every", flags->report_every_s,
                   "Interval in seconds of polling batond and writing SharePod status")
      ->check(CLI::Range(1u, 3600u))
      ->capture_default_str();
  command
      ->add_option("--identity", flags->identity,
                   "cgroup: only a pod's own processes may use its share; ticket: whoever has its "
                   "ticket, where no kubelet starts the pods")
      ->check(CLI::IsMember({"cgroup", "ticket"}))
      ->capture_default_str();
  CLI::Option* no_plugin = command->add_flag(
      "--no-plugin", flags->no_plugin,
      "Do not register with the kubelet; whoever starts the pods mounts the hook");
  CLI::Option* whole_cards =
      command
          ->add_flag(
              "--whole-cards", flags->whole_cards,
              "Also offer whole GPUs, as nvidia.com/gpu, to pods that Baton's binder places: "
              "in place of NVIDIA's device plugin, which must not run on the node then")
          ->excludes(no_plugin);
  command
      ->add_option("--mps-memory-dir", flags->mps_memory_dir,
                   "Offer GPUs to pods of mode mps: folder of the node that is /dev/shm for batond "
                   "and for these pods, by which MPS's clients and daemons reach each other")
      ->type_name("FOLDER")
      ->excludes(no_plugin);
  CLI::Option* dra = command->add_flag(
      "--dra", flags->dra,
      "Give the node's GPUs to ResourceClaims of Kubernetes 1.34 or later, as the "
      "driver gpu.baton.dev, instead of to pods that request baton.dev/gpu-share");
  dra->excludes(whole_cards);
  command
      ->add_option("--kubelet-dir", flags->kubelet_dir,
                   "With --dra: the kubelet's folder, at the same path as on the node")
      ->needs(dra)
      ->capture_default_str();
  command
      ->add_option("--cdi-dir", flags->cdi_dir,
                   "With --dra: folder in which the container's runtime looks for CDI specs")
      ->needs(dra)
      ->capture_default_str();
  flags->tenancy.Add(*command);
  command->add_option("--hook-source", flags->hook_source, "libbaton.so to copy into --hook-dest")
      ->type_name("FILE");
  command
      ->add_option(
          "--hook-dest", flags->hook_dest,
          "Folder of libbaton.so, which the kubelet mounts into pods; it must have the same "
          "path on the node")
      ->capture_default_str();
  command
      ->add_option("--pod-socket-dir", flags->pod_socket_dir,
                   "Folder of baton.sock on the node, which the kubelet mounts into pods")
      ->capture_default_str();
  AddListen(*command, &flags->listen);
  CLI::Option* public_key = command->add_option("--public-key-file", flags->public_key_file,
                                                "The node's public key, to publish");
  CLI::Option* central_key_file =
      command->add_option("--central-key-file", flags->central_key_file,
                          "File to keep the central batond's public key in, which batond or "
                          "baton-frontend reads as server_public_key_file");
  CLI::Option* central_key = AddCentralKey(*command, &flags->central_key);
  for (CLI::Option* file : {public_key, central_key_file}) {
    file->type_name("FILE")->needs(central_key);
    central_key->needs(file);
  }
  command->footer(
      "Examples:\n"
      "  baton-k8s device-plugin --node \"$NODE_NAME\" "
      "--hook-source /usr/lib/baton/libbaton.so\n"
      "  baton-k8s device-plugin --node \"$NODE_NAME\" --dra --restrict high-priority\n"
      "  baton-k8s device-plugin --node n1 --no-plugin --identity ticket --kubeconfig kubeconfig");
  OnCommand(*command, exit_code, [flags] { return ServeNode(*flags); });
}

}  // namespace baton::k8s
