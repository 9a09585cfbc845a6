#include "k8s/binder/status.h"

#include <set>

#include "base/utf8.h"
#include "k8s/api/timestamp.h"
#include "k8s/types/share_pod.h"

namespace baton::k8s {
namespace {

// What an Event needs to know of what it is about.
Json About(const Json& object, const char* kind, const std::string& version) {
  return {{"apiVersion", version},
          {"kind", kind},
          {"metadata",
           {{"name", TextAt(object, "metadata/name")},
            {"namespace", TextAt(object, "metadata/namespace")},
            {"uid", UidOf(object)},
            {"resourceVersion", ResourceVersionOf(object)}}}};
}

std::string Rfc3339(int64_t unix_s) {
  return Timestamp(std::chrono::system_clock::time_point(std::chrono::seconds(unix_s)));
}

std::string_view PhaseOf(const Pod& pod) {
  if (pod.end == PodEnd::kFinished) return pod.phase == "Failed" ? "Failed" : "Succeeded";
  return pod.phase == "Running" ? "Running" : "Bound";
}

bool HasCondition(const Json& status, std::string_view type) {
  const Json* list = Find(status, "conditions");
  if (list == nullptr) return false;
  for (const Json& condition : *list) {
    if (TextAt(condition, "type") == type) return true;
  }
  return false;
}

Json ConditionPatch(const Pod& pod, Json condition) {
  return {{"metadata", {{"uid", pod.uid}}},
          {"status", {{"conditions", Json::array({std::move(condition)})}}}};
}

// The columns of kubectl.
void SetTexts(const GpuPod& gpu, Json& status) {
  std::string request;
  std::string limit;
  std::string memory;
  for (const ContainerGpus& container : gpu.containers) {
    const char* comma = request.empty() ? "" : ",";
    request += comma + policy::PercentText(container.request);
    limit += comma + policy::PercentText(container.limit);
    memory += comma + GpuMemoryText(container.memory);
  }
  if (gpu.containers.empty()) return;
  status["request"] = request;
  status["limit"] = limit;
  status["memory"] = memory;
}

Json SizesOf(const Json& status) {
  Json sizes = Json::object();
  for (const char* field : {"request", "limit", "memory"}) {
    if (const Json* found = Find(status, field)) sizes[field] = *found;
  }
  return sizes;
}

void SetPlacement(const SharePodFacts& facts, const GpuPod& gpu, Json& status) {
  if (!facts.placement) {
    for (const char* field : {"placement", "node", "gpu"}) status.erase(field);
    return;
  }
  const std::string text = PlacementText(gpu, *facts.placement);
  // Which index a GPU has cannot be said again once its node is away.
  if (TextAt(status, "placement") == text) return;
  status["placement"] = text;
  status["node"] = facts.placement->node;
  status["gpu"] = GpuIndexes(*facts.placement, facts.cluster);
}

}  // namespace

std::string Cut(std::string text) {
  text = ToUtf8(text);
  if (text.size() <= kMessageMax) return text;
  return CutUtf8(text, kMessageMax) + " ...";
}

std::string GpuIndexes(const devmgr::Placement& placement, const devmgr::Cluster& cluster) {
  std::string text;
  const devmgr::Node* node = cluster.FindNode(placement.node);
  std::set<std::string> seen;
  for (const devmgr::Vgpu& vgpu : placement.vgpus) {
    if (!seen.insert(vgpu.card).second) continue;
    size_t index = 0;
    while (node != nullptr && index < node->cards.size() && node->cards[index].uuid != vgpu.card) {
      ++index;
    }
    const bool known = node != nullptr && index < node->cards.size();
    text += (text.empty() ? "" : ",") + (known ? std::to_string(index) : vgpu.card);
  }
  return text;
}

std::string WhyGone(const Pod& gone) {
  std::string text = "the pod has ended";
  if (!gone.node.empty()) text += " on node " + gone.node;
  for (const char* field : {"status/reason", "status/message"}) {
    if (const std::string said = TextAt(gone.object, field); !said.empty()) text += ": " + said;
  }
  return text + "; Baton will create another one" +
         (gone.deleting ? " once this one is deleted" : "");
}

Json SharePodStatus(const SharePodFacts& facts, int64_t unix_s) {
  const Share& share = facts.share;
  const Pod* child = facts.child;
  const Json* before = Find(share.object, "status");
  Json status = before != nullptr && before->is_object() ? *before : Json::object();
  const std::string time = Rfc3339(unix_s);
  const auto set = [&](const char* type, bool is, std::string reason, std::string message) {
    SetCondition(status, {type, is, std::move(reason), Cut(std::move(message))}, share.generation,
                 time);
  };
  const bool bound = child != nullptr && !child->node.empty();
  const bool finished = child != nullptr && child->end == PodEnd::kFinished;
  // What it has, where that is not what it asks for.
  const bool kept = child != nullptr && (finished || !share.wrong.empty() || !facts.resize.empty());
  const GpuPod& gpu = kept ? child->gpu : share.gpu;
  if (facts.placement || !finished) SetPlacement(facts, gpu, status);
  const Json sizes = SizesOf(status);
  SetTexts(gpu, status);
  const bool resized = bound && share.was_bound && !sizes.empty() && SizesOf(status) != sizes;
  status["observedGeneration"] = share.generation;
  if (finished || bound) {
    status["phase"] = PhaseOf(*child);
    set("Placed", true, "Placed", "on node " + child->node);
    set("Bound", true, "Bound", "on node " + child->node);
    if (finished) {
      set("Running", false, std::string(PhaseOf(*child)), TextAt(child->object, "status/message"));
    } else if (child->deleting) {
      set("Running", false, "Terminating", "the pod is terminating");
    } else {
      const bool runs = child->phase == "Running";
      set("Running", runs, runs ? (child->ready ? "Ready" : "NotReady") : "Starting",
          runs ? "" : TextAt(child->object, "status/message"));
    }
  } else if (facts.assumed) {
    status["phase"] = "Placed";
    set("Placed", true, "Placed", "on node " + facts.placement->node);
    set("Bound", false, "NotYet", "the pod will be bound next");
    set("Running", false, "NotBound", "");
  } else {
    status["phase"] = "Pending";
    set("Placed", false, facts.reason.kind.empty() ? "Waiting" : facts.reason.kind,
        facts.reason.text);
    set("Bound", false, share.was_bound ? "PodGone" : "NotPlaced",
        share.was_bound ? "the pod is gone; Baton will create another one when there is room" : "");
    set("Running", false, "NotBound", "");
  }
  const bool ready = bound && !finished && !child->deleting && child->ready;
  set("Ready", ready,
      ready      ? "PodReady"
      : finished ? std::string(PhaseOf(*child))
      : bound    ? "PodNotReady"
                 : "NotBound",
      "");
  // What its node said of a pod that has gone.
  if (!finished && !bound) {
    for (const char* field : {"achieved", "reasons", "advice"}) status.erase(field);
    if (HasCondition(status, "Attached")) {
      SetCondition(status, {"Attached", false, "NotBound", ""}, std::nullopt, time);
    }
    RemoveCondition(status, "Paused");
  }
  // What was said of the size of one that has finished stays.
  if (finished) return status;
  if (!facts.resize.empty()) {
    const bool valid = share.wrong.empty();
    set("Resized", false, valid ? "NoRoom" : "Invalid",
        facts.resize + (valid ? "; the pod keeps its current size until there is room" : ""));
  } else if (resized || HasCondition(status, "Resized")) {
    set("Resized", true, "Resized", "");
  }
  return status;
}

std::optional<Json> UnschedulablePatch(const Pod& pod, const Reason& reason, int64_t unix_s) {
  const std::string message = Cut(reason.kind + ": " + reason.text);
  if (const Json* list = Find(pod.object, "status/conditions"); list && list->is_array()) {
    for (const Json& condition : *list) {
      if (TextAt(condition, "type") == "PodScheduled" && TextAt(condition, "message") == message) {
        return std::nullopt;
      }
    }
  }
  return ConditionPatch(pod,
                        {{"type", "PodScheduled"},
                         {"status", "False"},
                         {"reason", reason.kind == kTeamCeiling ? kTeamCeiling : "Unschedulable"},
                         {"message", message},
                         {"lastTransitionTime", Rfc3339(unix_s)}});
}

void EventQueue::Add(const Entry& entry, bool warning, const std::string& reason,
                     const std::string& action, const std::string& text) {
  if (entry.pod && !entry.pod->object.is_null()) {
    notes_.push_back({About(entry.pod->object, "Pod", "v1"), warning, reason, action, Cut(text)});
  }
  if (entry.share) {
    notes_.push_back({About(entry.share->object, "SharePod", resources::kSharePods.ApiVersion()),
                      warning, reason, action, Cut(text)});
  }
}

}  // namespace baton::k8s
