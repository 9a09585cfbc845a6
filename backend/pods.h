// The pods: what each asks for, where it is, and who may attach. Kept in one file that is replaced
// as a whole: the only thing that is stored of pods, of the vGPU map (backend/vgpus.h) and of
// cordons.
//
// Names come from users, ids from the registry; an id is never given out twice, not even over
// restarts, so accounts and tokens of a deleted pod are not its successor's. Ids stay below 2^32.
// Not thread safe.
#ifndef BATON_BACKEND_PODS_H_
#define BATON_BACKEND_PODS_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "backend/ledger/ledger.h"
#include "base/ids.h"
#include "base/result.h"
#include "devmgr/sharing_mode.h"
#include "policy/share.h"

namespace baton::backend {

inline constexpr std::string_view kTimeSlice = "time-slice";

// What a pod asks of cards beside room; see devmgr::PodRequest.
struct CardWishes {
  std::string mode;  // empty: by turns, else an instance of a card on which MIG is on
  std::vector<std::string> models;
  std::vector<std::string> not_models;
  std::vector<std::string> gpus;  // uuids: only these
  std::string affinity;
  std::string anti_affinity;
  std::string exclusion;

  friend bool operator==(const CardWishes&, const CardWishes&) = default;
};

// A virtual GPU of a pod: its part of one card.
struct PodVgpu {
  devmgr::Fit fit;
  std::string device;        // what the mode's driver has made; empty: nothing
  uint64_t memory_peak = 0;  // bytes that the pod was seen to use there at once
  // Cards on which it was before: what it used there counts on.
  std::vector<std::string> before;
};

struct Pod {
  PodId id;
  std::string name;
  policy::ShareSpec share;        // Validated()
  uint64_t memory_cap = 0;        // bytes on each GPU; 0: memory_part says
  policy::Share memory_part = 0;  // of each GPU's memory; 0: no cap
  std::string team;               // a path, such as research/vision
  std::string user;               // whose work it is, for the books
  std::string name_space;         // of Kubernetes, for the books
  CardWishes wishes;
  std::vector<std::string> gpus;  // uuids
  std::vector<PodVgpu> vgpus;     // for each of them
  std::string mode{kTimeSlice};   // how all of them are divided
  std::string ticket;
  int64_t uid = -1;  // whose processes may attach; -1: anybody's
  // Uid of a Kubernetes pod: only processes that the kubelet put into it may attach. Empty: any.
  std::string cgroup;
  // Its processes do not wait for each other across GPUs: each GPU's token by itself. Fixed.
  bool independent = false;
  bool throw_away = false;  // of bench_ticket: not stored, gone with its client
  std::string from_file;    // its [[pod]] as last applied; empty: not from the file

  // Its launches wait for the token. In the other modes the hardware, or MPS, divides the card.
  bool by_token() const { return mode != "mig" && mode != "mps"; }
  // Takes the tokens of all its GPUs together (backend/gang_scheduler.h).
  bool gang() const { return gpus.size() > 1 && !independent && by_token(); }
  bool Has(std::string_view gpu) const {
    return std::find(gpus.begin(), gpus.end(), gpu) != gpus.end();
  }
  // Bytes that it may have on this GPU; 0: no cap.
  uint64_t CapOn(std::string_view gpu) const;
  // Cards on which something of it may be in the accounts: where it is, and was.
  std::vector<std::string> Accounted() const;
  ledger::Owner owner() const { return {name, name_space, team, user}; }
};

// A pod that was deleted and whose last use is not in the books yet.
struct DepartedPod {
  ledger::Owner owner;
  std::vector<std::string> gpus;
};

class Pods {
 public:
  // Adds a pod whose name, share, gpus (at least one, uuids) and so on are set; gives it an id and,
  // where it has none, a ticket. kExists: the name or the ticket is taken.
  Result<Pod*> Add(Pod pod);
  // `departs`: the books need to know of its last use; it is kept in departed().
  void Remove(PodId id, bool departs);
  const std::map<PodId, DepartedPod>& departed() const { return departed_; }
  void Forget(PodId id) { departed_.erase(id); }

  Pod* Find(PodId id);
  const Pod* Find(PodId id) const { return const_cast<Pods*>(this)->Find(id); }
  Pod* FindByName(std::string_view name);
  Pod* FindByTicket(std::string_view ticket);
  // Ordered by id.
  const std::map<PodId, Pod>& all() const { return pods_; }

  // Uuids of cards that get no more pods, as their operator said.
  const std::set<std::string>& cordoned() const { return cordoned_; }
  void SetCordoned(const std::string& gpu, bool cordoned);

  // The contents of the file, and back. Load() replaces everything; kInvalid for a damaged text,
  // which changes nothing.
  std::string Save() const;
  Result<void> Load(const std::string& text);
  // Gives out no id up to `id`.
  void StartAbove(uint64_t id) { last_id_ = std::max(last_id_, id); }

 private:
  Result<void> Read(const std::string& text);

  uint64_t last_id_ = 0;
  std::map<PodId, Pod> pods_;
  std::map<PodId, DepartedPod> departed_;
  std::unordered_map<std::string, PodId> by_name_;
  std::unordered_map<std::string, PodId> by_ticket_;
  std::set<std::string> cordoned_;
};

}  // namespace baton::backend

#endif  // BATON_BACKEND_PODS_H_
