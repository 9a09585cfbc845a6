// Children that their node ended or refused, and that are deleted so that another can be made. Each
// in a row waits twice as long: a node may refuse all that come, for ever.
//
// Not thread safe.
#ifndef BATON_K8S_BINDER_REPLACEMENTS_H_
#define BATON_K8S_BINDER_REPLACEMENTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/time.h"
#include "k8s/binder/retries.h"

namespace baton::k8s {

class Replacements {
 public:
  explicit Replacements(const CoreOptions& options) : options_(options) {}

  // Its pod was first seen on its node.
  void OnBound(const std::string& key, Instant now) { names_[key].bound_at = now; }
  // The pod with this uid is lost: when it may be deleted. The same for each call.
  Instant DeleteAt(const std::string& key, const std::string& uid, Instant now) {
    Name& name = names_[key];
    if (name.lost_uid != uid) {
      name.lost_uid = uid;
      // One that lasted begins a new row.
      if (name.bound_at && now - *name.bound_at >= options_.retry_max) name.losses = 0;
      name.delete_at = now + BackoffAfter(name.losses++, options_);
    }
    return name.delete_at;
  }

  // The pod's object is gone.
  void ForgetPod(const std::string& key) {
    if (const auto it = names_.find(key); it != names_.end()) it->second.bound_at.reset();
  }
  // Nothing is left of the name, or its SharePod is another.
  void Forget(const std::string& key) { names_.erase(key); }

 private:
  struct Name {
    std::optional<Instant> bound_at;
    std::string lost_uid;
    Instant delete_at = kAlways;
    uint32_t losses = 0;  // in a row
  };
  const CoreOptions& options_;
  std::map<std::string, Name> names_;
};

}  // namespace baton::k8s

#endif  // BATON_K8S_BINDER_REPLACEMENTS_H_
