// The pods: what each asks for, on which GPUs, and who may attach. Admission is decided here.
// Kept in one file that is replaced as a whole.
//
// Names come from users, ids from the registry; an id is never given out twice, not even over
// restarts, so accounts and tokens of a deleted pod are not its successor's. Ids stay below 2^32.
// Not thread safe.
#ifndef BATON_BACKEND_PODS_H_
#define BATON_BACKEND_PODS_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "backend/ledger/ledger.h"
#include "base/ids.h"
#include "base/result.h"
#include "policy/share.h"

namespace baton::backend {

struct Pod {
  PodId id;
  std::string name;
  policy::ShareSpec share;        // Validated()
  uint64_t memory_cap = 0;        // bytes on each GPU; 0: no cap
  std::string team;               // a path, such as research/vision
  std::string user;               // whose work it is, for the books
  std::string name_space;         // of Kubernetes, for the books
  std::vector<std::string> gpus;  // uuids
  std::string ticket;
  int64_t uid = -1;  // whose processes may attach; -1: anybody's
  // Its processes do not wait for each other across GPUs: each GPU's token by itself. Fixed.
  bool independent = false;
  bool throw_away = false;  // of bench_ticket: not stored, gone with its client
  std::string from_file;    // its [[pod]] as last applied; empty: not from the file

  // Takes the tokens of all its GPUs together (backend/gang_scheduler.h).
  bool gang() const { return gpus.size() > 1 && !independent; }
  ledger::Owner owner() const { return {name, name_space, team, user}; }
};

// A pod that was deleted and whose last use is not in the books yet.
struct DepartedPod {
  ledger::Owner owner;
  std::vector<std::string> gpus;
};

class Pods {
 public:
  // `overcommit`: millionths of a GPU that the requests on one GPU may add up to.
  explicit Pods(policy::Share overcommit) : overcommit_(overcommit) {}

  // Adds a pod whose name, share, gpus (at least one, uuids) and so on are set; gives it an id and,
  // where it has none, a ticket. kExists: the name is taken. kExhausted: a GPU has no room, with
  // who has it.
  Result<Pod*> Add(Pod pod);
  // Changes share and memory cap in place, where every GPU of the pod has the room.
  Result<void> SetShare(Pod& pod, const policy::ShareSpec& share);
  // `departs`: the books need to know of its last use; it is kept in departed().
  void Remove(PodId id, bool departs);
  const std::map<PodId, DepartedPod>& departed() const { return departed_; }
  void Forget(PodId id) { departed_.erase(id); }

  Pod* Find(PodId id);
  Pod* FindByName(std::string_view name);
  Pod* FindByTicket(std::string_view ticket);
  // Ordered by id.
  const std::map<PodId, Pod>& all() const { return pods_; }

  // Millionths of the GPU that are not requested; 0 when overbooked. Throw-away pods do not count.
  policy::Share Room(std::string_view gpu) const;

  // The contents of the file, and back. Load() replaces everything; kInvalid for a damaged text,
  // which changes nothing.
  std::string Save() const;
  Result<void> Load(const std::string& text);
  // Gives out no id up to `id`.
  void StartAbove(uint64_t id) { last_id_ = std::max(last_id_, id); }

 private:
  Result<void> Read(const std::string& text);
  Result<void> Admit(const Pod& pod, policy::Share request) const;

  const policy::Share overcommit_;
  uint64_t last_id_ = 0;
  std::map<PodId, Pod> pods_;
  std::map<PodId, DepartedPod> departed_;
  std::unordered_map<std::string, PodId> by_name_;
  std::unordered_map<std::string, PodId> by_ticket_;
};

}  // namespace baton::backend

#endif  // BATON_BACKEND_PODS_H_
