// The report "advise": requests, limits and memory caps of pods that are far from their use, and
// pods that have a whole GPU and would do with a part, by the books.
#ifndef BATON_BACKEND_ADVISE_H_
#define BATON_BACKEND_ADVISE_H_

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "backend/reports.h"

namespace baton::backend {

// What is looked at of a pod that exists now.
struct AdvisedPod {
  policy::ShareSpec share;
  uint64_t memory_cap = 0;      // bytes on each GPU; 0: none
  uint64_t memory_request = 0;  // bytes
  uint64_t gpu_memory = 0;      // bytes, of its smallest GPU; 0: not known
  bool exclusive = false;       // its mode gives it whole GPUs
  bool kubernetes = false;      // its agent keeps it as Kubernetes says
  bool held_known = true;       // else nobody gave it tokens, so `held` says nothing of its use
};

// The rows on one pod: an array of AdviceRow (docs/api/openapi.json), empty where all fits. `use`:
// the most that it used of any of its GPUs. Pure.
nlohmann::json AdviceOn(const AdvisedPod& pod, const ledger::Profile& use);

// Whether the pod was seen for long enough for its use to say something. Pure.
bool SeenForLong(const ledger::Profile& use);
// What a pod that asked for this should request instead, by its use; nothing: it fits, or it is of
// idle priority. Pure.
std::optional<policy::Share> AdvisedRequest(const ledger::Profile& use,
                                            const policy::ShareSpec& asked);

// As Report::ask.
Result<ReportAnswer> AskAdvise(const std::map<std::string, std::string>& field,
                               const ReportView& view);

}  // namespace baton::backend

#endif  // BATON_BACKEND_ADVISE_H_
