// What an agent writes into the status of SharePods whose pods are on its node: the share that each
// got, whether a process of it is attached, whether it is paused, and batond's reasons and advice.
#ifndef BATON_K8S_DEVICE_PLUGIN_SHARE_REPORTER_H_
#define BATON_K8S_DEVICE_PLUGIN_SHARE_REPORTER_H_

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/time.h"
#include "k8s/api/client.h"
#include "k8s/device_plugin/node_agent.h"
#include "k8s/device_plugin/node_pods.h"

namespace baton::k8s {

// Not thread safe.
class ShareReporter {
 public:
  // `client` and `options` outlive it. `count`: a write has succeeded, or failed.
  ShareReporter(Client& client, const NodeAgentOptions& options, std::function<void(bool)> count)
      : client_(client), options_(options), count_(std::move(count)) {}

  // `present`: the pods of batond; `pods`: those of Kubernetes on the node, by uid. Writes what is
  // worth a write.
  void Tell(const std::vector<PresentPod>& present, const std::map<std::string, Json>& pods);

 private:
  // What was told of a SharePod.
  struct Told {
    ShareReport report;
    ShareReport seen;  // the newest, told or not
    PauseWatch pauses;
    std::vector<std::string> names;  // batond's, of its pod
    Json advice = Json::array(), told_advice = Json::array();
    Json status;  // with its conditions, as we know them; null: the SharePod was not read yet
    Instant at{};
    std::string wrong;  // why the last write failed
  };

  void LookAtAdvice();
  Json ReasonsOf(const std::vector<std::string>& names) const;
  void TellShare(const Controller& owner, Told& told);

  Client& client_;
  const NodeAgentOptions& options_;
  const std::function<void(bool)> count_;
  std::map<std::string, Told> told_shares_;  // by the pod's uid
  Json advice_;                              // batond's answer of
  Instant advised_at_{};
  Instant no_advice_until_{};  // the API server did not know status.advice
};

}  // namespace baton::k8s

#endif  // BATON_K8S_DEVICE_PLUGIN_SHARE_REPORTER_H_
