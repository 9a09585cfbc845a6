// When a name whose write failed is tried again, and what the API server has rejected.
//
// Two ways to wait. After a failure without a reason of its own the name waits and is tried again,
// or at once when a newer version of it is seen. A rejection (a quota, a policy, a field) gives the
// pod's room back to others until it is tried again, and is what the pod's conditions say
// meanwhile. Both double their wait each time, between retry_min and retry_max.
//
// Not thread safe.
#ifndef BATON_K8S_BINDER_RETRIES_H_
#define BATON_K8S_BINDER_RETRIES_H_

#include <cstdint>
#include <map>
#include <string>

#include "base/time.h"
#include "k8s/binder/core.h"
#include "k8s/binder/reasons.h"
#include "k8s/cluster/work_queue.h"

namespace baton::k8s {

// retry_min doubled `failures` times, at most retry_max.
Duration BackoffAfter(uint32_t failures, const CoreOptions& options);

// What to do after a write that failed.
enum class AfterFailure : uint8_t {
  kRetry,         // the same again, later
  kWaitForNewer,  // the cache is behind: a newer version tells more
  kReject,        // the API server does not take it as it is
};
AfterFailure Classify(WriteKind kind, const ApiError& error);
// The API server keeps the pod where it is: a budget, two of them, a policy. `failures`: of writes
// of the name, one after the other, with this one. What may be a fault of the API server's own is
// such a refusal only where it stays.
bool RefusesEviction(const ApiError& error, uint32_t failures);
// Nobody knows whether the write was carried out, or the next one may succeed.
bool IsUncertain(const ApiError& error);

class Retries {
 public:
  explicit Retries(const CoreOptions& options) : options_(options) {}

  // Nothing is tried before; kAlways: at once.
  Instant at(const std::string& key) const;
  void Later(const std::string& key, Instant now, Duration at_least);
  // How many have failed since one succeeded.
  uint32_t failures(const std::string& key) const;
  void WaitForNewer(const std::string& key, Instant now);
  void SetAt(const std::string& key, Instant at) { names_[key].at = at; }
  void Now(const std::string& key);
  // A newer version of the name is there.
  void NewerSeen(const std::string& key);
  void Succeeded(const std::string& key);

  void Reject(const std::string& key, Reason reason, Instant now);
  // It was taken, or is different now.
  void Accept(const std::string& key);
  bool IsRejected(const std::string& key) const { return !rejection(key).kind.empty(); }
  const Reason& rejection(const std::string& key) const;
  // A rejected name is tried again then.
  Instant rejected_until(const std::string& key) const;

  // What is to be placed is gone: counting begins anew.
  void ForgetWaiter(const std::string& key);
  // Nothing is left of the name.
  void Forget(const std::string& key) { names_.erase(key); }

 private:
  struct Name {
    Instant at = kAlways;
    uint32_t failures = 0;
    bool waits_for_newer = false;
    Reason rejection;
    uint32_t rejections = 0;
    Instant rejected_until = kAlways;
  };
  const CoreOptions& options_;
  std::map<std::string, Name> names_;
};

}  // namespace baton::k8s

#endif  // BATON_K8S_BINDER_RETRIES_H_
