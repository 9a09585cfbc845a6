// Writes that have been sent and not answered: at most one per name, so writes of one object never
// overtake each other. And what is uncertain after one: a Binding may have been carried out until
// somebody has said that it was not.
//
// Not thread safe.
#ifndef BATON_K8S_BINDER_IN_FLIGHT_H_
#define BATON_K8S_BINDER_IN_FLIGHT_H_

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "devmgr/placement/request.h"
#include "k8s/binder/core.h"

namespace baton::k8s {

class InFlight {
 public:
  // CHECKs that nothing of the name is in flight.
  void Send(const ObjectName& name, WriteKind kind, std::string uid, Json body);
  void SendBinding(const ObjectName& name, std::string uid, devmgr::Placement to, Json body);
  // Of a claim of the name's pod: where its volume is to be made.
  void SendSelectedNode(const ObjectName& name, const std::string& claim, const std::string& node);
  // The answer to a write has come. Returns the write without its body; nothing: it is not in
  // flight.
  std::optional<Write> Finish(uint64_t id);

  bool Has(const std::string& key) const { return ids_.contains(key); }
  size_t size() const { return writes_.size(); }
  // The writes of Send() since the last call.
  std::vector<Write> TakeSent() { return std::exchange(sent_, {}); }

  // The pod that may be bound by a Binding that was sent; empty: none.
  const std::string& MayBeBound(const std::string& key) const;
  // Where the last Binding of the name goes.
  const devmgr::Placement& BindingTo(const std::string& key) const;
  // The pod is on its node, as was seen or answered. True: a Binding of ours did that, and this is
  // the first time that it is said.
  bool SetCarriedOut(const std::string& key, const std::string& uid);
  // No Binding of the name was carried out, or what it did has been seen.
  void ClearBinding(const std::string& key);

  // A Binding or patch of the pod got no answer: it may have been carried out.
  bool IsInDoubt(const std::string& key, const std::string& uid) const;
  void SetInDoubt(const std::string& key, const std::string& uid);
  void ClearDoubt(const std::string& key);

  // The pod is gone.
  void ForgetPod(const std::string& key, const std::string& uid);
  // Nothing is left of the name.
  void Forget(const std::string& key) { pods_.erase(key); }

 private:
  Write& Open(const ObjectName& name, WriteKind kind, std::string uid);

  struct PodState {
    std::string bind_uid;
    std::string sent_uid;  // of the last Binding that was sent
    std::string told_uid;  // see SetCarriedOut()
    devmgr::Placement bind_to;
    std::string doubt_uid;
  };
  std::map<uint64_t, Write> writes_;
  std::map<std::string, uint64_t> ids_;  // by key
  std::map<std::string, PodState> pods_;
  std::vector<Write> sent_;
  uint64_t last_id_ = 0;
};

}  // namespace baton::k8s

#endif  // BATON_K8S_BINDER_IN_FLIGHT_H_
