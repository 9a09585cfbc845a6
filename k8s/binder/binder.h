// The binder at work: watches feed the core, what it decides is written by a few threads, and only
// while the lease is held.
//
// One that waits for the lease watches too, where it knows its own pod. What its watches have told
// when it wins may be older than the last writes of the leader before. So it writes to its own pod
// first, and decides nothing before the watch of pods has shown that: it has shown all that was
// written to pods before then. Of what else a leader writes nothing gives room away: whoever goes
// by an older SharePod meets a conflict. Without a pod of its own watches begin when the lease is
// won.
#ifndef BATON_K8S_BINDER_BINDER_H_
#define BATON_K8S_BINDER_BINDER_H_

#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/time.h"
#include "k8s/api/client.h"
#include "k8s/api/event_recorder.h"
#include "k8s/api/leader.h"
#include "k8s/api/reflector.h"
#include "k8s/binder/core.h"
#include "k8s/binder/standing.h"

namespace baton::k8s {

struct BinderOptions {
  CoreOptions core;
  std::optional<LeaderOptions> leader;  // nothing: no election, it leads from the start
  EventRecorderOptions events;
  ReflectorOptions watches;  // of each; `name_space` is of SharePods and pods that it binds: all
  uint32_t writers = 12;     // threads
  std::optional<ObjectName> self;  // its own pod
  // Where to ask what teams have used; nothing: what runs now is all that counts between them.
  std::optional<StandingOptions> standing;
};

class Binder {
 public:
  // `client` outlives it, and is stopped at the end of Run().
  Binder(Client& client, BinderOptions options);
  ~Binder();

  // Works until Stop(), which is success. kUnavailable: the lease was lost; nothing is written any
  // more, and the program should end.
  Result<void> Run();
  // From any thread.
  void Stop();

  // From any thread. Whether the lease is held, and whether it knows the cluster.
  bool leading() const;
  bool synced() const;
  CoreCounts counts() const;
  // In Prometheus' text format.
  std::string Metrics() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::k8s

#endif  // BATON_K8S_BINDER_BINDER_H_
