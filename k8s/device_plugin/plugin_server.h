// A device plugin for one resource: a gRPC server on a socket of its own, which the kubelet is told
// of, again whenever the kubelet has restarted (it removes all sockets then, and makes its own
// anew).
#ifndef BATON_K8S_DEVICE_PLUGIN_PLUGIN_SERVER_H_
#define BATON_K8S_DEVICE_PLUGIN_PLUGIN_SERVER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/time.h"
#include "k8s/device_plugin/device_list.h"
#include "k8s/types/inject.h"

namespace baton::k8s {

struct PluginServerOptions {
  std::string folder = "/var/lib/kubelet/device-plugins";
  std::string resource;                           // "baton.dev/gpu-share"
  std::string endpoint;                           // the socket's file name
  Duration look_every = std::chrono::seconds(1);  // whether the kubelet has restarted
  // What the kubelet mounts into each container that gets the resource. Where `hook_file` is said,
  // the hook must be in it, as this process sees it: else no container gets the resource.
  std::vector<HookMount> mounts{};
  std::string hook_file{};
  // Set in each container that gets the resource, unless its pod sets it otherwise.
  std::map<std::string, std::string> environment{};
};

// Thread safe.
class PluginServer {
 public:
  // Starts a thread. Nothing is served before the first SetDevices().
  explicit PluginServer(PluginServerOptions options);
  ~PluginServer();

  // The kubelet is told at once, where it watches and something is different.
  void SetDevices(std::vector<PluginDevice> devices);
  // How often the kubelet was told of this plugin with success.
  uint64_t registrations() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::k8s

#endif  // BATON_K8S_DEVICE_PLUGIN_PLUGIN_SERVER_H_
