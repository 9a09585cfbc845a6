// Leader election by a Lease (coordination.k8s.io/v1), as client-go does it: one candidate holds
// it and renews it; the others take it once it was not renewed for its whole duration, measured
// by their own clocks from when they saw it change last.
//
// Who loses it must stop writing at once: leading() is false `renew_deadline` after the last
// renewal that succeeded, whether or not anything else still runs, which is earlier than anybody
// else may take it.
#ifndef BATON_K8S_API_LEADER_H_
#define BATON_K8S_API_LEADER_H_

#include <functional>
#include <memory>
#include <string>

#include "base/time.h"
#include "k8s/api/client.h"

namespace baton::k8s {

struct LeaderOptions {
  ObjectName lease;
  std::string identity;  // unique: the pod's name and something random
  Duration duration = std::chrono::seconds(15);
  Duration renew_deadline = std::chrono::seconds(10);  // < duration
  Duration retry = std::chrono::seconds(2);            // < renew_deadline
};

class Leader {
 public:
  // Both are called from the elector's own thread. `lost` is called at most once after `won`, and
  // then the election is over: a program that lost should end and start again.
  Leader(Client& client, LeaderOptions options, std::function<void()> won,
         std::function<void(const std::string& why)> lost);
  // Gives the lease back, so that the next one need not wait, and joins.
  ~Leader();

  // Any thread. To be asked before every write.
  bool leading() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::k8s

#endif  // BATON_K8S_API_LEADER_H_
