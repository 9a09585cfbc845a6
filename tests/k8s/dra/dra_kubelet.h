// The kubelet's side of DRA drivers: finds the driver by its socket in plugins_registry, and calls
// it, over gRPC.
#ifndef BATON_TESTS_K8S_DRA_DRA_KUBELET_H_
#define BATON_TESTS_K8S_DRA_DRA_KUBELET_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "k8s/api/object.h"

namespace baton::k8s {

class DraKubelet {
 public:
  // Makes the folders that a kubelet has there.
  explicit DraKubelet(std::string folder);

  struct Plugin {
    std::string type, name, endpoint;
    std::vector<std::string> versions;
  };
  // What the driver says of itself; told that it is registered. Nothing: it cannot be reached.
  std::optional<Plugin> Find() const;

  struct Device {
    std::vector<std::string> requests;
    std::string pool, name;
    std::vector<std::string> cdi;
    std::string share_id;  // "-": not said

    friend bool operator==(const Device&, const Device&) = default;
  };
  // Of one claim; the driver's own sentence where it refuses.
  Result<std::vector<Device>> Prepare(const ObjectName& claim, const std::string& uid) const;
  Result<void> Unprepare(const ObjectName& claim, const std::string& uid) const;
  // What it says first of the health of its devices: by name, 0 unknown, 1 healthy, 2 unhealthy.
  std::map<std::string, int> Health() const;
  // As a kubelet that starts does.
  void RemoveSockets() const;

 private:
  const std::string folder_;
};

}  // namespace baton::k8s

#endif  // BATON_TESTS_K8S_DRA_DRA_KUBELET_H_
