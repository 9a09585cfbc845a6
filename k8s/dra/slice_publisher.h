// Keeps the node's ResourceSlice in the API server as it should be: written where something
// changes, and again where somebody has deleted it, as a kubelet does that restarts. An API server
// drops fields of features that are off: at the start, and each `retry_dropped`, it is asked (by a
// dry run) whether it would keep more of them by now.
#ifndef BATON_K8S_DRA_SLICE_PUBLISHER_H_
#define BATON_K8S_DRA_SLICE_PUBLISHER_H_

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/time.h"
#include "k8s/api/client.h"

namespace baton::k8s {

// Thread safe.
class SlicePublisher {
 public:
  // Starts its threads. Nothing is written before the first SetDevices(). `client` outlives it.
  SlicePublisher(Client& client, std::string node,
                 Duration retry_dropped = std::chrono::minutes(5));
  // Ends and joins; the slice stays. Call Client::Stop() before it where that should be soon.
  ~SlicePublisher();

  // As DraDevicesOf() has them. An API server that knows no taints is told of those without one.
  void SetDevices(Json devices);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::k8s

#endif  // BATON_K8S_DRA_SLICE_PUBLISHER_H_
