// The pods: what each asks for, where it is, and who may attach. Stored by PodsFile
// (backend/pods_file.h): nothing else is stored of pods, of the vGPU map (backend/vgpus.h) and of
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

#include "base/ids.h"
#include "base/result.h"
#include "devmgr/modes/sharing_mode.h"
#include "ledger/ledger.h"
#include "policy/share.h"
#include "spec/modes.h"
#include "spec/pod_request.h"

namespace baton::backend {

// A virtual GPU of a pod: its part of one GPU.
struct PodVgpu {
  devmgr::Fit fit;
  std::string device;        // what the mode's driver has made; empty: nothing
  uint64_t memory_peak = 0;  // bytes that the pod was seen to use there at once
  // GPUs on which it was before: what it used there counts on.
  std::vector<std::string> before;
};

// That a pod ends by itself (backend/leases.h).
struct PodLease {
  std::string id;        // empty: it is none
  int64_t until_ms = 0;  // since 1970: when it ends, by the wall clock
  uint32_t term_s = 0;   // of its last grant or renewal; it never has longer than that to go

  friend bool operator==(const PodLease&, const PodLease&) = default;
};

// What was asked, and what it has. `share` is Validated(), `wishes.gpus` are uuids.
struct Pod : spec::PodRequest {
  PodId id;
  std::vector<std::string> gpus;       // uuids
  std::vector<PodVgpu> vgpus;          // for each of them
  std::string mode{spec::kTimeSlice};  // how all of them are divided
  // Of one that is created, by MIG: on each of the GPUs that it names the part that it is to have,
  // Fit::slot. Not stored.
  std::vector<uint32_t> slots;
  bool throw_away = false;  // of bench_ticket: not stored, gone with its client
  bool gang_met = false;    // all pods of its gang have been there at once
  // Shares a GPU with a pod of its gang that was there before. Their tokens cannot come together:
  // its own come by themselves.
  bool beside_own = false;
  std::string
      from_file;  // the fingerprint of its [[pod]] as last applied; empty: not from the file

  PodLease lease;

  // It holds its GPUs from its creation to its deletion: they are another vendor's, or it has no
  // hook. Not stored: set with its fits.
  bool allocated = false;

  // Its launches wait for the token. In the other modes the hardware, or MPS, divides the GPU.
  bool by_token() const { return spec::ByToken(mode) && !allocated; }
  // Its parts are made by a driver.
  bool has_devices() const { return !spec::ByToken(mode); }
  // Takes the tokens of all its GPUs together, or with those of its gang's other pods
  // (scheduler/gang_scheduler.h).
  bool in_gang() const { return Together(gpus.size()) && by_token() && !beside_own; }
  bool Has(std::string_view gpu) const {
    return std::find(gpus.begin(), gpus.end(), gpu) != gpus.end();
  }
  // Bytes that it may have on this GPU; 0: no cap.
  uint64_t CapOn(std::string_view gpu) const;
  // GPUs on which something of it may be in the accounts: where it is, and was.
  std::vector<std::string> Accounted() const;
  ledger::Owner owner() const { return {name, name_space, team, user}; }
};

// A pod that was deleted and whose last use is not in the books yet.
struct DepartedPod {
  ledger::Owner owner;
  std::vector<std::string> gpus;
  Instant at{};  // when; not stored: when it was restored
};

// All that is stored.
struct PodsImage {
  uint64_t last_id = 0;
  std::map<PodId, Pod> pods;
  std::map<PodId, DepartedPod> departed;
  std::set<std::string> cordoned;
};

// What is not stored yet, by id: whether a pod is there now says whether it has come or gone.
struct PodsChanges {
  std::set<PodId> pods;
  std::set<PodId> departed;
  bool cordoned = false;
  std::set<PodId> peaks;  // of these only memory_peak: there is no hurry
};

class Pods {
 public:
  // Adds a pod whose name, share, gpus (at least one, uuids) and so on are set; gives it an id and,
  // where it has none, a ticket. kExists: the name or the ticket is taken.
  Result<Pod*> Add(Pod pod);
  // `departs`: the books need to know of its last use; it is kept in departed().
  void Remove(PodId id, bool departs);
  const std::map<PodId, DepartedPod>& departed() const { return departed_; }
  void Forget(PodId id);

  // The pods whose tokens come together with this one's, ordered by id; itself alone where its gang
  // has no name, nobody where it is in none.
  std::vector<const Pod*> GangOf(const Pod& pod) const;
  // All pods that name the gang, ordered by id, whether their tokens come together or not.
  std::vector<const Pod*> NamedGang(const std::string& gang) const;
  // Pods that its gang waits for before any of them launches.
  size_t MissingOf(const Pod& pod) const;
  // The pod has come, or its GPUs are others: what follows for it and its gang.
  void JoinGang(Pod& pod);

  Pod* Find(PodId id);
  const Pod* Find(PodId id) const { return const_cast<Pods*>(this)->Find(id); }
  Pod* FindByName(std::string_view name);
  Pod* FindByTicket(std::string_view ticket);
  // Ordered by id.
  const std::map<PodId, Pod>& all() const { return pods_; }
  const std::map<std::string, PodId, std::less<>>& by_name() const { return by_name_; }

  // Uuids of GPUs that get no more pods, as their operator said.
  const std::set<std::string>& cordoned() const { return cordoned_; }
  void SetCordoned(const std::string& gpu, bool cordoned);

  // Replaces everything, or changes nothing: kInvalid where two pods have one name or ticket, or
  // an id is out of range. Nothing of it counts as changed.
  Result<void> Restore(PodsImage image);
  uint64_t last_id() const { return last_id_; }
  // Gives out no id up to `id`.
  void StartAbove(uint64_t id) { last_id_ = std::max(last_id_, id); }

  // Whoever changes a pod says so. What Pods changes itself is noted already.
  void Changed(PodId id);
  void PeakChanged(PodId id) { changes_.peaks.insert(id); }
  PodsChanges& changes() { return changes_; }

 private:
  Pod& Enter(Pod pod);

  uint64_t last_id_ = 0;
  std::map<PodId, Pod> pods_;
  std::map<PodId, DepartedPod> departed_;
  std::map<std::string, PodId, std::less<>> by_name_;
  std::unordered_map<std::string, PodId> by_ticket_;
  std::map<std::string, std::set<PodId>, std::less<>> by_gang_;  // of those that name one
  std::set<std::string> cordoned_;
  PodsChanges changes_;
};

}  // namespace baton::backend

#endif  // BATON_BACKEND_PODS_H_
