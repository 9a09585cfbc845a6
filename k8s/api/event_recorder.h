// Events on objects (events.k8s.io/v1) without floods: the same event on the same object becomes a
// series with a count, each object has a budget, and what does not fit into the queue is dropped
// and counted. Never blocks its caller.
#ifndef BATON_K8S_API_EVENT_RECORDER_H_
#define BATON_K8S_API_EVENT_RECORDER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/time.h"
#include "k8s/api/client.h"

namespace baton::k8s {

struct EventRecorderOptions {
  std::string controller = "baton.dev/binder";  // reportingController
  std::string instance = {};                    // reportingInstance: the pod's name
  // A token bucket per object: so many at once, then one per interval. As client-go's.
  uint32_t burst = 25;
  Duration interval = std::chrono::minutes(5);
  // The same (object, type, reason, message) within it only counts up.
  Duration same = std::chrono::minutes(10);
  size_t queue = 1'000;
  std::function<bool()> may_write = {};  // asked before each write; null: always
};

class EventRecorder {
 public:
  EventRecorder(Client& client, EventRecorderOptions options);
  // Writes what is queued for at most a second, then drops it.
  ~EventRecorder();

  // `about`: the object as the API server sent it. `type`: "Normal" or "Warning". `reason`:
  // CamelCase. `action`: what was tried, CamelCase. `note`: a sentence; cut at 1 024 bytes. Any
  // thread.
  void Record(const Json& about, const std::string& type, const std::string& reason,
              const std::string& action, const std::string& note);
  uint64_t dropped() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::k8s

#endif  // BATON_K8S_API_EVENT_RECORDER_H_
