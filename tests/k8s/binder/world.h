// A cluster in which the binder's core decides, without I/O and without time passing by itself:
// the stand-in's store is the API, its history feeds the core at random lags, and writes get lost,
// refused and doubted as chance has it. After every write everything is added up.
#ifndef BATON_TESTS_K8S_BINDER_WORLD_H_
#define BATON_TESTS_K8S_BINDER_WORLD_H_

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/random.h"
#include "k8s/binder/core.h"
#include "tests/k8s/binder/core_feed.h"
#include "tests/k8s/stand_in/store.h"

namespace baton::k8s::testing {

struct WorldFaults {
  // One in so many writes; 0: none.
  uint64_t lost_answers = 0;  // done, but nobody knows
  uint64_t lost_writes = 0;   // not done, and nobody knows
  uint64_t conflicts = 0;     // 409 though there is none
  uint64_t refusals = 0;      // 500
  uint64_t denials = 0;       // 403 to children and Bindings
};

class World {
 public:
  World(uint64_t seed, CoreOptions options, WorldFaults faults = {});

  // What users do.

  void AddNode(const std::string& name, size_t cards, uint32_t memory_mib = 80'000,
               const Json& rest = {});
  void RemoveNode(const std::string& name);
  void Cordon(const std::string& name, bool cordoned);
  // A PriorityClass.
  void AddClass(const std::string& name, int32_t value, bool preempts = true);
  // Any object of the world's namespace, made or replaced.
  void Put(const Resource& resource, Json object);
  // `gpu`: spec.gpu; `template_spec` is merged into the template's spec.
  void AddShare(const std::string& name, const Json& gpu, const Json& template_spec = {});
  void AddPod(const std::string& name, const Json& limits, const Json& annotations = {},
              const Json& spec = {});
  void Patch(const Resource& resource, const std::string& name, const Json& patch);
  // As a user does: with grace.
  void Delete(const Resource& resource, const std::string& name);

  // What kubelets do.

  // A bound pod runs, or ends by itself.
  void SetPhase(const std::string& pod, const std::string& phase);
  void SetReady(const std::string& pod, bool ready);
  // A strategic patch of its status.
  void SetStatus(const std::string& pod, const Json& status) { Report(pod, status); }
  // Another scheduler binds it, with these annotations.
  void Bind(const std::string& pod, const std::string& node, const Json& annotations);
  // It is refused, or ended: it fails with that reason, and stays. `disrupted`: with the condition
  // DisruptionTarget.
  void Fail(const std::string& pod, const std::string& reason, bool disrupted = false);
  // As its node shuts down: its programs end as they like to, and it stays.
  void ShutDown(const std::string& pod);
  // From now on every pod that is bound there is refused with that reason; empty: no more.
  void RefuseOn(const std::string& node, const std::string& reason);
  // Of what is being deleted the programs end: reported as the end of the pod, which stays until
  // Reap().
  void Stop();
  // What is being deleted has ended and goes. The core sees the one before the other.
  void Reap();

  // Time.

  // Something that could happen next, by chance: an event arrives, a write is carried out, an
  // answer arrives, time passes.
  void Tick();
  // Everything that is under way arrives, and time passes, until nothing more happens; at most so
  // long. False: it does not come to rest.
  bool Settle(Duration at_most = std::chrono::minutes(30));
  // What the core knew is lost, with the answers to what it wrote; what was not carried out never
  // is.
  void Restart();
  void Restart(CoreOptions options);  // with others
  // Another core watches too, from now on, and decides nothing.
  void AddStandby();
  // The standby leads from now on: of what the leader wrote some is carried out before that. As
  // the binder's fence has it, the standby has seen all that was written of pods by then. Another
  // standby is added.
  void TakeOver();
  // The watch of that kind breaks.
  void Relist(Watched kind) { leader_->Relist(kind); }
  void Pass(Duration time);

  Core& core() { return leader_->core(); }
  // The core that leads, and what it was told.
  const CoreFeed& leader() const { return *leader_; }
  const CoreNow& now() const { return now_; }
  // Called after each step of the core that leads.
  std::function<void(const Effects&)> after_step;
  Store& store() { return store_; }
  Random& random() { return random_; }

  std::optional<Json> Get(const Resource& resource, const std::string& name);
  std::vector<Json> All(const Resource& resource);
  bool IsBound(const std::string& pod);
  // What the API server answers such writes with from now on, of that name or, empty, of any;
  // status 0: it carries them out.
  void Refuse(WriteKind kind, ApiError error, const std::string& name = "");
  // What it makes of a pod that is created: admission.
  std::function<void(Json& pod)> admit;
  // What is wrong with the cluster as the API has it; empty: nothing. Overbooked GPUs, pods on two
  // nodes, pods of the highest class that had to go for others.
  std::string Wrong();
  // The first sentence that was ever wrong.
  const std::string& wrong() const { return wrong_; }
  const std::vector<Note>& notes() const { return notes_; }
  // Whether a pod of that SharePod (by uid) ended by itself, whatever came after.
  bool Completed(const std::string& uid) const { return completed_.contains(uid); }
  uint64_t writes() const { return writes_; }
  size_t deleted() const { return deletions_; }  // by the core
  WorldFaults faults;

 private:
  struct Way {
    Write write;
    std::optional<WriteResult> result;  // it was carried out
  };

  Kind& Of(const Resource& resource) { return *store_.Find(resource.group, resource.plural); }
  void Carry(Way& way);
  WriteResult Execute(const Write& write);
  // As the API server admits a pod: with the priority of its class, and no other.
  Reply CreatePod(Json pod);
  // A pod is told to go for another, though no class is above its own, and no team but its own is
  // guaranteed anything: a sentence. Empty: one is.
  std::string EvictedWrongly(const std::string& pod);
  // The pod has a node, and has not ended.
  bool IsThere(const std::string& pod);
  void Report(const std::string& pod, const Json& status);
  void Answer(size_t at);
  void Step();

  Store store_;
  Random random_;
  CoreOptions options_;
  std::unique_ptr<CoreFeed> leader_;
  std::unique_ptr<CoreFeed> standby_;  // null: there is none
  CoreNow now_;
  std::map<std::pair<WriteKind, std::string>, ApiError> refused_;
  std::vector<Way> ways_;
  std::vector<Note> notes_;
  uint64_t writes_ = 0;
  size_t deletions_ = 0;
  std::map<std::string, std::string> bound_;     // nodes by uid, for ever
  std::map<std::string, std::string> refusing_;  // reasons by node
  std::set<std::string> completed_;
  std::string wrong_;
};

}  // namespace baton::k8s::testing

#endif  // BATON_TESTS_K8S_BINDER_WORLD_H_
