// What is said: a SharePod's status, a pod's conditions, Events.
#include <fmt/format.h>

#include <set>
#include <utility>

#include "base/utf8.h"
#include "k8s/api/timestamp.h"
#include "k8s/binder/core_impl.h"
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
  for (const Json& condition : status["conditions"]) {
    if (TextAt(condition, "type") == type) return true;
  }
  return false;
}

// The columns of kubectl.
void SetTexts(const GpuPod& gpu, Json& status) {
  std::string request;
  std::string limit;
  std::string memory;
  for (const ContainerGpus& container : gpu.containers) {
    const char* comma = request.empty() ? "" : ",";
    request += comma + PercentText(container.request);
    limit += comma + PercentText(container.limit);
    memory += comma + GpuMemoryText(container.memory);
  }
  if (gpu.containers.empty()) return;
  status["request"] = request;
  status["limit"] = limit;
  status["memory"] = memory;
}

}  // namespace

std::string Cut(std::string text) {
  text = ToUtf8(text);
  if (text.size() <= kMessageMax) return text;
  size_t at = kMessageMax;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) --at;
  text.resize(at);
  return text + " ...";
}

void Core::Impl::Tell(const Entry& entry, bool warning, std::string reason, std::string action,
                      const std::string& text) {
  if (entry.pod && !entry.pod->object.is_null()) {
    effects.notes.push_back(
        {About(entry.pod->object, "Pod", "v1"), warning, reason, action, Cut(text)});
  }
  if (entry.share) {
    effects.notes.push_back(
        {About(entry.share->object, "SharePod", resources::kSharePods.ApiVersion()), warning,
         std::move(reason), std::move(action), Cut(text)});
  }
}

void Core::Impl::Show(Entry& entry) {
  if (entry.why.kind.empty()) return;
  const bool kind = entry.why.kind != entry.shown.kind;
  if (!kind && entry.why.text == entry.shown.text) return;
  if (!kind && now.at < entry.shown_at + options.say_again) {
    timers.emplace(entry.shown_at + options.say_again, entry.key);
    return;
  }
  entry.shown = entry.why;
  entry.shown_at = now.at;
  if (!kind) return;
  if (entry.shown == entry.refusal) {
    Tell(entry, true, entry.shown.kind, "Binding", entry.shown.text);
  } else if (entry.shown.kind == "PodGone") {
    Tell(entry, true, entry.shown.kind, "Replacing", entry.shown.text);
  } else {
    Tell(entry, true, "FailedScheduling", "Scheduling", entry.shown.text);
  }
}

void Core::Impl::ShowOnPod(Entry& entry, const Pod& pod) {
  if (entry.shown.kind.empty()) return;
  const std::string message = Cut(entry.shown.kind + ": " + entry.shown.text);
  if (const Json* list = Find(pod.object, "status/conditions"); list && list->is_array()) {
    for (const Json& condition : *list) {
      if (TextAt(condition, "type") == "PodScheduled" && TextAt(condition, "message") == message) {
        return;
      }
    }
  }
  Json condition{{"type", "PodScheduled"},
                 {"status", "False"},
                 {"reason", "Unschedulable"},
                 {"message", message},
                 {"lastTransitionTime", Rfc3339(now.unix_s)}};
  Json body{{"metadata", {{"uid", pod.uid}}},
            {"status", {{"conditions", Json::array({std::move(condition)})}}}};
  Send(entry, WriteKind::kPodCondition, pod.uid, std::move(body));
}

void Core::Impl::MarkVictim(Entry& entry, const Pod& pod) {
  Json condition{{"type", "DisruptionTarget"},
                 {"status", "True"},
                 {"reason", "PreemptionByScheduler"},
                 {"message", Cut(options.scheduler + ": preempting to accommodate " +
                                 entry.evict_for + ", which has a higher priority")},
                 {"lastTransitionTime", Rfc3339(now.unix_s)}};
  Json body{{"metadata", {{"uid", pod.uid}}},
            {"status", {{"conditions", Json::array({std::move(condition)})}}}};
  Send(entry, WriteKind::kMarkVictim, pod.uid, std::move(body));
}

std::string Core::Impl::WhyGone(const Pod& gone) {
  std::string text = "its pod has ended";
  if (!gone.node.empty()) text += " on node " + gone.node;
  for (const char* field : {"status/reason", "status/message"}) {
    if (const std::string said = TextAt(gone.object, field); !said.empty()) text += ": " + said;
  }
  return text + "; another is made " + (gone.deleting ? "once its object is gone" : "soon");
}

std::string Core::Impl::CardsText(const Placement& placement) const {
  std::string text;
  const devmgr::Node* node = view.cluster().FindNode(placement.node);
  std::set<std::string> seen;
  for (const devmgr::Vgpu& vgpu : placement.vgpus) {
    if (!seen.insert(vgpu.card).second) continue;
    size_t index = 0;
    while (node != nullptr && index < node->cards.size() && node->cards[index].uuid != vgpu.card) {
      ++index;
    }
    text += text.empty() ? ", GPU " : ",";
    text += node != nullptr && index < node->cards.size() ? std::to_string(index) : vgpu.card;
  }
  return text;
}

Json Core::Impl::StatusOf(const Entry& entry, const Share& share, const Pod* child) const {
  const Json* before = Find(share.object, "status");
  Json status = before != nullptr && before->is_object() ? *before : Json::object();
  const std::string time = Rfc3339(now.unix_s);
  const auto say = [&](const char* type, bool is, std::string reason, std::string message) {
    SetCondition(status, {type, is, std::move(reason), Cut(std::move(message))}, share.generation,
                 time);
  };
  const bool bound = child != nullptr && !child->node.empty();
  const bool finished = child != nullptr && child->end == PodEnd::kFinished;
  // What it has, where that is not what it asks for.
  const bool kept = child != nullptr && (finished || !share.wrong.empty() || !entry.resize.empty());
  const GpuPod& gpu = kept ? child->gpu : share.gpu;
  std::optional<Placement> place;
  if (view.IsBooked(entry.key) && (bound || entry.refusal.kind.empty())) {
    place = PlaceOf(entry);
  } else if (bound) {
    place = child->placement;
  }
  if (place) {
    const std::string text = PlacementText(gpu, *place);
    // Which index a card has is not said again once its node is away.
    if (TextAt(status, "placement") != text) {
      status["placement"] = text;
      status["node"] = place->node;
      const std::string cards = CardsText(*place);
      status["gpu"] = cards.size() > 6 ? cards.substr(6) : "";
    }
  } else if (!finished) {
    for (const char* field : {"placement", "node", "gpu"}) status.erase(field);
  }
  SetTexts(gpu, status);
  status["observedGeneration"] = share.generation;
  if (finished || bound) {
    status["phase"] = PhaseOf(*child);
    say("Placed", true, "Placed", "on node " + child->node);
    say("Bound", true, "Bound", "on node " + child->node);
    if (finished) {
      say("Running", false, std::string(PhaseOf(*child)), TextAt(child->object, "status/message"));
    } else if (child->deleting) {
      say("Running", false, "Terminating", "the pod is about to end");
    } else {
      const bool runs = child->phase == "Running";
      say("Running", runs, runs ? (child->ready ? "Ready" : "NotReady") : "Starting",
          runs ? "" : TextAt(child->object, "status/message"));
    }
  } else if (IsAssumed(entry) && entry.refusal.kind.empty()) {
    status["phase"] = "Placed";
    say("Placed", true, "Placed", "on node " + place->node);
    say("Bound", false, "NotYet", "its pod is about to be bound");
    say("Running", false, "NotBound", "");
  } else {
    status["phase"] = "Pending";
    say("Placed", false, entry.shown.kind.empty() ? "Waiting" : entry.shown.kind, entry.shown.text);
    say("Bound", false, share.was_bound ? "PodGone" : "NotPlaced",
        share.was_bound ? "its pod has gone; another is made where there is room" : "");
    say("Running", false, "NotBound", "");
  }
  // What its node said of a pod that has gone.
  if (!finished && !bound) {
    for (const char* field : {"achieved", "reasons"}) status.erase(field);
    if (HasCondition(status, "Attached")) {
      SetCondition(status, {"Attached", false, "NotBound", ""}, std::nullopt, time);
    }
  }
  if (finished) {
    // What was said of its size stays.
  } else if (!entry.resize.empty()) {
    const bool valid = share.wrong.empty();
    say("Resized", false, valid ? "NoRoom" : "Invalid",
        entry.resize + (valid ? "; it keeps what it has until there is room" : ""));
  } else if (Find(status, "conditions") != nullptr && HasCondition(status, "Resized")) {
    say("Resized", true, "Resized", "");
  }
  return status;
}

}  // namespace baton::k8s
