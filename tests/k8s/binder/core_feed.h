// A core and its watches of a store: each kind's changes arrive in their order, as late as the
// caller has it. Not thread safe.
#ifndef BATON_TESTS_K8S_BINDER_CORE_FEED_H_
#define BATON_TESTS_K8S_BINDER_CORE_FEED_H_

#include <array>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "k8s/binder/core.h"
#include "tests/k8s/stand_in/store.h"

namespace baton::k8s::testing {

extern const Resource kClaimsOfWorld, kVolumesOfWorld, kStorageClassesOfWorld;

class CoreFeed {
 public:
  // Lists everything. The core decides nothing before Core::Synced(). `store` outlives it and
  // serves all kinds.
  CoreFeed(Store& store, const CoreOptions& options);

  // Of all kinds that the core watches, in the order of Watched.
  static const Resource& ResourceOf(Watched kind);

  Core& core() { return core_; }
  const Core& core() const { return core_; }
  bool Behind(Watched kind) const;
  // At most so many changes.
  void Deliver(Watched kind, size_t most);
  // The watch broke and the kind is listed anew: what came and went meanwhile was never there.
  void Relist(Watched kind);
  // What was told and not withdrawn.
  const std::map<ObjectName, Json>& Told(Watched kind) const {
    return told_[static_cast<size_t>(kind)];
  }
  // A SharePod with that uid was told once.
  bool EverToldShare(const std::string& uid) const { return shares_.contains(uid); }

 private:
  Kind& Of(Watched kind) const;
  void Tell(Watched kind, Json object);

  Store& store_;
  Core core_;
  std::array<uint64_t, kWatchedKinds> seen_{};  // version up to which changes were told
  std::array<std::map<ObjectName, Json>, kWatchedKinds> told_;
  std::set<std::string> shares_;  // uids
};

}  // namespace baton::k8s::testing

#endif  // BATON_TESTS_K8S_BINDER_CORE_FEED_H_
