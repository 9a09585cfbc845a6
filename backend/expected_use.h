// What pods are expected to execute, by what the ledger says of them: placement prefers GPUs that
// have time for them (devmgr/placement/policy.h).
#ifndef BATON_BACKEND_EXPECTED_USE_H_
#define BATON_BACKEND_EXPECTED_USE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "backend/pods.h"
#include "base/result.h"
#include "devmgr/placement/cluster.h"
#include "ledger/ledger.h"
#include "policy/share.h"

namespace baton::backend {

// By the name of a pod, and by WorkloadOf() it: what a pod would use of its busiest GPU without the
// others, in the mean over the last six hours by the minute, 20 minutes at least; else over the
// last week by the hour, an hour at least. From its first use to its last one, but a pod of
// `present` to now. For the ledger's thread: it reads up to 360 buckets of each pod on a GPU.
// Errors: the ledger's.
using UsesByName = std::map<std::string, policy::Share, std::less<>>;
Result<UsesByName> UsesByLedger(ledger::Ledger& ledger, ledger::WallTime now,
                                const std::set<std::string>& present);

// The same over these buckets but for the first and the last one, which the pod may have been there
// for a part of; nothing: there are fewer than `least` between. `until_s`: when its last bucket
// began, in seconds since 1970; 0: when it used its GPU last. Pure.
std::optional<double> MeanAlone(const ledger::Activity& activity, int64_t least, int64_t until_s);

// What pods of one program are called, whose names get a number where one is taken: "train" for
// "train-2".
std::string_view WorkloadOf(std::string_view pod);

// Of the event loop.
class ExpectedUse {
 public:
  explicit ExpectedUse(devmgr::Cluster& cluster) : cluster_(cluster) {}

  // From here on this is what is known.
  void Set(UsesByName uses, const Pods& pods);
  // For PodRequest::expected_use: at most the pod's limit. Of a pod of idle priority that nothing
  // is known of, half of a GPU, once anything is known. Nothing: what it requests is expected. That
  // is so for pods that do not share by tokens: their parts are apart.
  std::optional<policy::Share> Of(const Pod& pod) const;
  // Millionths of the GPU beyond the requests on it: devmgr::Card::beyond. Nothing: nothing is
  // known of its pods.
  std::optional<int64_t> BeyondOn(std::string_view uuid) const;
  // A sentence for people on where a pod of this request goes; empty: nothing is known.
  std::string Explain(const devmgr::PodRequest& request, const devmgr::Placement& where,
                      const devmgr::UseChoice& choice) const;

 private:
  devmgr::Cluster& cluster_;
  UsesByName uses_;
};

}  // namespace baton::backend

#endif  // BATON_BACKEND_EXPECTED_USE_H_
