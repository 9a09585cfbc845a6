#include "tests/k8s/binder/world.h"

#include <fmt/format.h>

#include <algorithm>

#include "k8s/cluster/objects.h"
#include "k8s/types/gpu_node.h"
#include "k8s/types/gpu_pod.h"
#include "tests/k8s/binder/objects.h"

namespace baton::k8s::testing {

namespace {

constexpr Watched KindAt(size_t k) { return static_cast<Watched>(k); }

ApiError ErrorOf(const Reply& reply) {
  const Json status = Json::parse(reply.body, nullptr, false);
  const std::string cause = TextAt(status, "details/causes/0/reason");
  return {reply.status,
          cause.empty() ? TextAt(status, "reason") : cause,
          TextAt(status, "message"),
          {}};
}

}  // namespace

World::World(uint64_t seed, CoreOptions options, WorldFaults given)
    : faults(given), random_(seed), options_(std::move(options)) {
  store_.graceful = true;
  store_.clock = [this] {
    return std::chrono::system_clock::time_point(std::chrono::seconds(now_.unix_s));
  };
  for (size_t k = 0; k < kWatchedKinds; ++k) {
    const Resource& resource = CoreFeed::ResourceOf(KindAt(k));
    if (store_.Find(resource.group, resource.plural) == nullptr) store_.Serve(resource, true);
  }
  now_ = {Instant(std::chrono::seconds(1'000)), 1'800'000'000};
  Restart();
}

void World::Restart(CoreOptions options) {
  options_ = std::move(options);
  Restart();
}

void World::Restart() {
  ways_.clear();
  leader_ = std::make_unique<CoreFeed>(store_, options_);
  leader_->core().Synced();
}

void World::AddStandby() {
  standby_ = std::make_unique<CoreFeed>(store_, options_);
  (void)standby_->core().Step(now_);
}

void World::TakeOver() {
  for (Way& way : ways_) {
    if (!way.result && random_.OneIn(2)) Carry(way);
  }
  ways_.clear();
  standby_->Deliver(Watched::kPod, SIZE_MAX);
  (void)standby_->core().Step(now_);
  leader_ = std::move(standby_);
  leader_->core().Synced();
  AddStandby();
}

void World::Step() {
  Effects effects = leader_->core().Step(now_);
  if (after_step) after_step(effects);
  for (Write& write : effects.writes) ways_.push_back({std::move(write), {}});
  for (Note& note : effects.notes) notes_.push_back(std::move(note));
}

WriteResult World::Execute(const Write& write) {
  WriteResult result;
  result.id = write.id;
  Kind& pods = Of(resources::kPods);
  Reply reply;
  switch (write.kind) {
    case WriteKind::kStatus:
      reply = store_.Update(Of(resources::kSharePods), write.name, write.body, "status", false);
      break;
    case WriteKind::kTeamStatus:
      reply = store_.Update(Of(resources::kTeams), write.name, write.body, "status", false);
      break;
    case WriteKind::kCreateChild:
      reply = CreatePod(write.body);
      break;
    case WriteKind::kBind:
      reply = store_.Bind(pods, write.name, write.body);
      if (const auto refusing = refusing_.find(TextAt(write.body, "target/name"));
          reply.status < 300 && refusing != refusing_.end()) {
        Fail(write.name.name, refusing->second);
      }
      break;
    case WriteKind::kPatchPod:
      reply = store_.Patch(pods, write.name, "application/merge-patch+json", write.body, "",
                           "baton", false);
      break;
    case WriteKind::kEvict:
      if (wrong_.empty()) wrong_ = EvictedWrongly(write.name.name);
      ++deletions_;
      reply = store_.Evict(pods, write.name, write.body, false);
      break;
    case WriteKind::kSelectNode:
      reply = store_.Patch(Of(kClaimsOfWorld), {write.name.name_space, write.claim},
                           "application/merge-patch+json", write.body, "", "baton", false);
      break;
    case WriteKind::kPodCondition:
      reply = store_.Patch(pods, write.name, "application/strategic-merge-patch+json", write.body,
                           "status", "baton", false);
      break;
    case WriteKind::kDeletePod:
      ++deletions_;
      reply = store_.Delete(
          pods, write.name,
          {{"preconditions",
            {{"uid", write.uid}, {"resourceVersion", TextAt(write.body, "resourceVersion")}}}},
          false);
      break;
  }
  result.done = reply.status < 300;
  if (result.done) {
    result.object = Json::parse(reply.body, nullptr, false);
  } else {
    result.error = ErrorOf(reply);
    const auto pod = Get(resources::kPods, write.name.name);
    result.missing = reply.status == 404 && (!pod || UidOf(*pod) != write.uid);
  }
  return result;
}

void World::Carry(Way& way) {
  ++writes_;
  const auto hits = [&](uint64_t one_in) { return one_in > 0 && random_.OneIn(one_in); };
  WriteResult result;
  result.id = way.write.id;
  auto refused = refused_.find({way.write.kind, way.write.name.name});
  if (refused == refused_.end()) refused = refused_.find({way.write.kind, ""});
  if (refused != refused_.end()) {
    result.error = refused->second;
  } else if (hits(faults.lost_writes)) {
    result.error = {0, "", "connection refused", {}};
  } else if (hits(faults.refusals)) {
    result.error = {500, "InternalError", "etcd is away", {}};
  } else if ((way.write.kind == WriteKind::kCreateChild || way.write.kind == WriteKind::kBind) &&
             hits(faults.denials)) {
    result.error = {403, "Forbidden", "a policy is against it", {}};
  } else if (hits(faults.conflicts) && way.write.kind == WriteKind::kStatus) {
    result.error = {409, "Conflict", "the object has been modified", {}};
  } else {
    result = Execute(way.write);
    if (hits(faults.lost_answers)) {
      const uint64_t id = result.id;
      result = WriteResult();
      result.id = id;
      result.error = {0, "", "connection reset", {}};
    }
    if (wrong_.empty()) wrong_ = Wrong();
  }
  way.result = std::move(result);
}

void World::Answer(size_t at) {
  leader_->core().Done(*std::move(ways_[at].result));
  ways_.erase(ways_.begin() + static_cast<std::ptrdiff_t>(at));
}

void World::Pass(Duration time) {
  now_.at += time;
  now_.unix_s += std::chrono::duration_cast<std::chrono::seconds>(time).count();
  Step();
}

void World::Tick() {
  const auto any = [&](size_t n) {
    return static_cast<size_t>(random_.Between(0, static_cast<int64_t>(n) - 1));
  };
  switch (random_.Between(0, 5)) {
    case 0:
    case 1:
      leader_->Deliver(KindAt(any(kWatchedKinds)), any(8) + 1);
      if (standby_ && random_.OneIn(2)) {
        standby_->Deliver(KindAt(any(kWatchedKinds)), any(8) + 1);
        (void)standby_->core().Step(now_);
      }
      break;
    case 2:
    case 3:
      if (!ways_.empty()) {
        const size_t at = any(ways_.size());
        ways_[at].result ? Answer(at) : Carry(ways_[at]);
      }
      break;
    default:
      Pass(std::chrono::milliseconds(random_.Spread(1, 500)));
      return;
  }
  if (random_.OneIn(2)) Step();
}

bool World::Settle(Duration at_most) {
  const Instant end = now_.at + at_most;
  for (;;) {
    bool quiet = true;
    for (size_t k = 0; k < kWatchedKinds; ++k) {
      if (!leader_->Behind(KindAt(k))) continue;
      quiet = false;
      leader_->Deliver(KindAt(k), SIZE_MAX);
    }
    for (size_t at = ways_.size(); at-- > 0;) {
      quiet = false;
      if (!ways_[at].result) Carry(ways_[at]);
      Answer(at);
    }
    Step();
    if (!ways_.empty() || !quiet) continue;
    // Timers that only say things again end too.
    const Instant next = leader_->core().next();
    if (next == kNever) return true;
    if (next > end) return false;
    if (next > now_.at) {
      Pass(next - now_.at);
    } else {
      Pass(std::chrono::milliseconds(1));
    }
  }
}

void World::AddNode(const std::string& name, size_t cards, uint32_t memory_mib, const Json& rest) {
  store_.Put(Of(resources::kNodes), NodeOf(name, rest));
  store_.Put(Of(resources::kGpuNodes), CardsOn(name, cards, memory_mib));
}

void World::RemoveNode(const std::string& name) { store_.Erase(Of(resources::kNodes), {"", name}); }

void World::Cordon(const std::string& name, bool cordoned) {
  Patch(resources::kNodes, name, {{"spec", {{"unschedulable", cordoned}}}});
}

void World::AddClass(const std::string& name, int32_t value, bool preempts) {
  store_.Put(Of(resources::kPriorityClasses),
             {{"metadata", {{"name", name}}},
              {"value", value},
              {"preemptionPolicy", preempts ? "PreemptLowerPriority" : "Never"}});
}

Reply World::CreatePod(Json pod) {
  const std::string name = TextAt(pod, "spec/priorityClassName");
  int64_t value = 0;
  if (!name.empty()) {
    const auto found = Get(resources::kPriorityClasses, name);
    if (!found) return Failure(403, "Forbidden", "no PriorityClass with name " + name);
    value = (*found)["value"].get<int64_t>();
    pod["spec"]["preemptionPolicy"] = (*found)["preemptionPolicy"];
  }
  if (const Json* said = k8s::Find(pod, "spec/priority"); said != nullptr && *said != value) {
    return Failure(403, "Forbidden",
                   "the integer value of priority must not be provided in pod spec");
  }
  pod["spec"]["priority"] = value;
  if (admit) admit(pod);
  return store_.Create(Of(resources::kPods), kSpace, std::move(pod), false);
}

std::string World::EvictedWrongly(const std::string& pod) {
  const auto found = Get(resources::kPods, pod);
  if (!found) return "";
  const int64_t priority = (*found)["spec"].value("priority", int64_t{0});
  int64_t highest = 0;
  for (const Json& known : All(resources::kPriorityClasses)) {
    highest = std::max(highest, known["value"].get<int64_t>());
  }
  const std::string team = TextAt(*found, "metadata/annotations/baton.dev~1team", "default");
  for (const Json& known : All(resources::kTeams)) {
    const std::string path = TextAt(known, "spec/team");
    const bool guarantees = k8s::Find(known, "spec/guarantee") != nullptr;
    if (guarantees && team != path && !team.starts_with(path + "/")) return "";
  }
  return priority < highest ? "" : pod + " has to go, and nobody has a higher priority";
}

void World::AddShare(const std::string& name, const Json& gpu, const Json& template_spec) {
  store_.Create(Of(resources::kSharePods), kSpace, ShareOf(name, gpu, template_spec), false);
}

void World::AddPod(const std::string& name, const Json& limits, const Json& annotations,
                   const Json& spec) {
  Json pod = PodOf(name, limits);
  if (annotations.is_object()) pod["metadata"]["annotations"] = annotations;
  if (spec.is_object()) pod["spec"].merge_patch(spec);
  CreatePod(std::move(pod));
}

void World::Patch(const Resource& resource, const std::string& name, const Json& patch) {
  store_.Patch(Of(resource), {resource.namespaced ? kSpace : "", name},
               "application/merge-patch+json", patch, "", "user", false);
}

void World::Delete(const Resource& resource, const std::string& name) {
  store_.Delete(Of(resource), {resource.namespaced ? kSpace : "", name}, Json::object(), false);
}

bool World::IsThere(const std::string& pod) {
  const auto found = Get(resources::kPods, pod);
  return found && !TextAt(*found, "spec/nodeName").empty() && TakesRoom(*found);
}

void World::Report(const std::string& pod, const Json& status) {
  store_.Patch(Of(resources::kPods), {kSpace, pod}, "application/strategic-merge-patch+json",
               {{"status", status}}, "status", "kubelet", false);
}

void World::SetPhase(const std::string& pod, const std::string& phase) {
  if (!IsThere(pod)) return;
  const Json object = *Get(resources::kPods, pod);
  Report(pod, {{"phase", phase}});
  if (phase != "Running" && k8s::Find(object, "metadata/deletionTimestamp") == nullptr) {
    completed_.insert(TextAt(object, "metadata/ownerReferences/0/uid"));
  }
}

void World::SetReady(const std::string& pod, bool ready) {
  Report(pod, {{"conditions",
                Json::array({{{"type", "Ready"}, {"status", ready ? "True" : "False"}}})}});
}

void World::Bind(const std::string& pod, const std::string& node, const Json& annotations) {
  store_.Bind(Of(resources::kPods), {kSpace, pod},
              {{"metadata", {{"annotations", annotations}}}, {"target", {{"name", node}}}});
}

void World::Fail(const std::string& pod, const std::string& reason, bool disrupted) {
  if (!IsThere(pod)) return;
  Json status{{"phase", "Failed"}, {"reason", reason}, {"message", "the kubelet says so"}};
  if (disrupted) {
    status["conditions"] = Json::array(
        {{{"type", "DisruptionTarget"}, {"status", "True"}, {"reason", "TerminationByKubelet"}}});
  }
  Report(pod, status);
}

void World::ShutDown(const std::string& pod) {
  if (random_.OneIn(2)) return Fail(pod, "Terminated", true);
  // Of a program that ends well when it is told to, the reason is lost.
  if (!IsThere(pod)) return;
  Report(
      pod,
      {{"phase", "Succeeded"},
       {"conditions",
        {{{"type", "DisruptionTarget"}, {"status", "True"}, {"reason", "TerminationByKubelet"}}}}});
}

void World::Put(const Resource& resource, Json object) {
  if (resource.namespaced) object["metadata"]["namespace"] = kSpace;
  store_.Put(Of(resource), std::move(object));
}

void World::RefuseOn(const std::string& node, const std::string& reason) {
  refusing_.erase(node);
  if (!reason.empty()) refusing_[node] = reason;
}

void World::Stop() {
  for (const Json& pod : All(resources::kPods)) {
    const std::string name = NameOf(pod).name;
    if (k8s::Find(pod, "metadata/deletionTimestamp") == nullptr || !IsThere(name)) continue;
    Report(name, {{"phase", random_.OneIn(2) ? "Succeeded" : "Failed"}});
  }
}

void World::Reap() {
  Stop();
  leader_->Deliver(Watched::kPod, SIZE_MAX);
  Step();
  for (const Json& pod : All(resources::kPods)) {
    if (k8s::Find(pod, "metadata/deletionTimestamp") != nullptr) {
      store_.Erase(Of(resources::kPods), NameOf(pod));
    }
  }
}

std::optional<Json> World::Get(const Resource& resource, const std::string& name) {
  const Kind& kind = Of(resource);
  const auto it = kind.objects.find({resource.namespaced ? kSpace : "", name});
  if (it == kind.objects.end()) return std::nullopt;
  return it->second->json;
}

std::vector<Json> World::All(const Resource& resource) {
  std::vector<Json> all;
  for (const auto& [name, object] : Of(resource).objects) all.push_back(object->json);
  return all;
}

void World::Refuse(WriteKind kind, ApiError error, const std::string& name) {
  refused_.erase({kind, name});
  if (error.status != 0) refused_.emplace(std::pair(kind, name), std::move(error));
}

bool World::IsBound(const std::string& pod) {
  const auto found = Get(resources::kPods, pod);
  return found && !TextAt(*found, "spec/nodeName").empty();
}

std::string World::Wrong() {
  const std::vector<Json> pods = All(resources::kPods);
  for (const Json& pod : pods) {
    const std::string node = TextAt(pod, "spec/nodeName");
    if (node.empty()) continue;
    const auto [it, fresh] = bound_.emplace(UidOf(pod), node);
    if (!fresh && it->second != node) return NameOf(pod).Text() + " was bound to two nodes";
  }
  if (std::string refused = Refused(pods, All(resources::kNodes)); !refused.empty()) return refused;
  return Overbooked(pods, All(resources::kGpuNodes));
}

}  // namespace baton::k8s::testing
