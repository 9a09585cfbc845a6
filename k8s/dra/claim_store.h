// The claims that are prepared on this node: in batond as pods, for the container's runtime as CDI
// specs, and on disk, which comes first and goes last. So whatever ends in between, what there is
// of a claim is known, and is completed or removed when the kubelet asks again.
#ifndef BATON_K8S_DRA_CLAIM_STORE_H_
#define BATON_K8S_DRA_CLAIM_STORE_H_

#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "devmgr/inventory.h"
#include "k8s/api/client.h"
#include "k8s/device_plugin/node_pods.h"
#include "k8s/dra/claims.h"

namespace baton::k8s {

struct ClaimStoreOptions {
  std::string node;
  std::string socket_dir;         // of control.sock
  std::string state_dir;          // of this; outlives a reboot
  std::string cdi_dir;            // where the runtime looks for CDI specs; need not
  std::vector<HookMount> mounts;  // of each container with a share
  std::string hook_file;          // must be there, as this process sees it
  TenancyOptions tenancy = {};
};

// Thread safe.
class ClaimStore {
 public:
  // Makes the folders and reads what is prepared. What cannot be read is put aside, and said in the
  // log. `client` outlives it.
  ClaimStore(Client& client, ClaimStoreOptions options);

  // What the scheduler has allocated of the claim, as pods of batond, and CDI devices for them; the
  // same again where it was prepared before. Blocks on the API server and batond. kNotFound,
  // kInvalid: of the claim; kExhausted, kUnavailable and so on: of batond. What was begun is taken
  // back where it can be, and else stays: the kubelet tries again, or has it unprepared.
  Result<DraClaim> Prepare(const ObjectName& name, const std::string& uid);
  // Nothing of it is left afterwards. Well too where it was not prepared.
  Result<void> Unprepare(const std::string& uid);

  // What batond tells of the node. Makes again what of the claims is missing there or of their CDI
  // specs. The GPUs that pods have which no claim is for (uuids). Nothing, and nothing was done: a
  // claim is being prepared.
  std::optional<std::set<std::string>> Look(const devmgr::Node& node,
                                            const std::vector<PresentPod>& present);
  // Unprepares the claims that the API server knows no more, or that are allocated no more: no pod
  // has them, for a claim with one stays.
  void RemoveGone();

 private:
  // All with mutex_.
  std::string StatePath(const std::string& uid) const;
  std::string CdiPath(const std::string& uid) const;
  Result<void> Save(const DraClaim& claim) const;
  Result<void> WriteCdi(const DraClaim& claim) const;
  bool IsNameTaken(const std::string& name) const;
  Result<void> CreateAtBatond(const BatondPod& pod) const;
  Result<void> DeleteAtBatond(const BatondPod& pod) const;
  // What is there already stays; the claim's, by its ticket.
  Result<void> MakePods(DraClaim& claim) const;
  Result<void> Remove(const std::string& uid);

  Client& client_;
  const ClaimStoreOptions options_;
  std::mutex mutex_;
  std::map<std::string, DraClaim> claims_;   // by uid, as on disk
  std::map<std::string, std::string> gpus_;  // uuids by the names of devices, as last told
  std::string complaint_;                    // of Look(), the last one
};

}  // namespace baton::k8s

#endif  // BATON_K8S_DRA_CLAIM_STORE_H_
