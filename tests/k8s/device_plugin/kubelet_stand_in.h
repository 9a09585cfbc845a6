// The kubelet's side of device plugins: takes registrations at kubelet.sock, watches each plugin's
// devices on a thread of its own, and asks it as a kubelet does when a container is about to start.
#ifndef BATON_TESTS_K8S_DEVICE_PLUGIN_KUBELET_STAND_IN_H_
#define BATON_TESTS_K8S_DEVICE_PLUGIN_KUBELET_STAND_IN_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace baton::k8s {

class KubeletStandIn {
 public:
  explicit KubeletStandIn(std::string folder);
  ~KubeletStandIn();

  // As a kubelet does: removes all sockets in the folder, then listens on its own.
  void Start();
  // It goes as one that is killed: its socket's file stays.
  void Stop();

  struct Plugin {
    std::string version;
    std::string endpoint;
    bool prefers = false;                        // offers GetPreferredAllocation
    bool watched = false;                        // a list has come, and the stream is open
    std::map<std::string, std::string> devices;  // id: health
    size_t list_bytes = 0;
    int lists = 0;
  };
  // By resource, of those that registered since Start().
  std::map<std::string, Plugin> plugins() const;
  // How many are healthy.
  size_t Allocatable(const std::string& resource) const;

  Result<std::vector<std::string>> Prefer(const std::string& resource,
                                          const std::vector<std::string>& available,
                                          const std::vector<std::string>& must, int size);
  struct Allocation {
    std::map<std::string, std::string> annotations;
    std::map<std::string, std::string> environment;
    std::map<std::string, std::string>
        mounts;        // path in the container: path on the node; read-only
    size_t other = 0;  // devices, writable mounts
  };
  Result<Allocation> Allocate(const std::string& resource, const std::vector<std::string>& ids);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::k8s

#endif  // BATON_TESTS_K8S_DEVICE_PLUGIN_KUBELET_STAND_IN_H_
