// Words of batch schedulers (Kueue, Volcano, KAI, the coscheduling plugin) on new pods and
// SharePods: a queue becomes the team, a pod group the gang. Each scheduler's are understood where
// the operator switches it on. Asks nothing but the facts that it is given; never throws.
#ifndef BATON_K8S_WEBHOOK_BATCH_H_
#define BATON_K8S_WEBHOOK_BATCH_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "k8s/webhook/facts.h"

namespace baton::k8s {

struct BatchOptions {
  bool kueue = false;
  bool volcano = false;
  bool kai = false;
  bool coscheduling = false;

  // PodGroups are read from the API server.
  bool ReadsGroups() const { return volcano || coscheduling; }
};

// What Baton's own words leave open.
struct BatchQuestion {
  std::string name_space;
  // metadata, of the object itself first; null: none. They outlive the call.
  std::vector<const Json*> metadata;
  bool team = false;
  bool gang = false;
};

// Empty: nothing is said.
struct BatchAnswer {
  std::string team;        // a path: "." in the queue's name stands for "/"
  std::string team_field;  // where it is said, for sentences
  std::string gang;
  uint32_t gang_size = 0;              // 2 to kGangSizeMax where there is a gang
  std::vector<std::string> sentences;  // for users: what was understood
};

// Of several queues Kueue's comes first, then Volcano's (of its PodGroup, then of the pod), then
// KAI's. `facts`: null where no PodGroup can be read, and then none is looked for.
//
// kInvalid names the field: a name that no queue or PodGroup can have, a PodGroup that does not
// exist or is too large. kUnavailable.
Result<BatchAnswer> ReadBatchWords(const BatchOptions& options, ClusterFacts* facts,
                                   const BatchQuestion& question);

}  // namespace baton::k8s

#endif  // BATON_K8S_WEBHOOK_BATCH_H_
