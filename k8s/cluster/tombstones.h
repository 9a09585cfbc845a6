// Uids of deleted objects. A late report of one (a write's answer, a list that was made earlier)
// must not bring it back.
#ifndef BATON_K8S_CLUSTER_TOMBSTONES_H_
#define BATON_K8S_CLUSTER_TOMBSTONES_H_

#include <cstddef>
#include <deque>
#include <set>
#include <string>

namespace baton::k8s {

class Tombstones {
 public:
  bool Has(const std::string& uid) const { return uids_.contains(uid); }
  void Add(const std::string& uid) {
    if (uid.empty() || !uids_.insert(uid).second) return;
    in_order_.push_back(uid);
    if (in_order_.size() <= kMax) return;
    uids_.erase(in_order_.front());
    in_order_.pop_front();
  }

 private:
  static constexpr size_t kMax = 20'000;  // then the oldest is dropped
  std::set<std::string> uids_;
  std::deque<std::string> in_order_;
};

}  // namespace baton::k8s

#endif  // BATON_K8S_CLUSTER_TOMBSTONES_H_
