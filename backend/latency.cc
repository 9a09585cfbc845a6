#include "backend/latency.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "base/parse.h"
#include "policy/feasible.h"
#include "policy/guarantee.h"
#include "policy/rational.h"

namespace baton::backend {
namespace {

using policy::LatencyTask;

// The pods with latencies of one GPU.
struct Latencies {
  std::vector<LatencyTask> tasks;
  std::vector<const Pod*> pods;  // of which they are

  void Add(const Pod& pod, Duration hold, policy::ShareSum requested) {
    tasks.push_back({hold, policy::ScaledDown(pod.share.request, requested), pod.share.latency});
    pods.push_back(&pod);
  }
  std::string NamesBut(const Pod& pod) const {
    constexpr size_t kNamesMax = 3;
    std::vector<std::string> names;
    for (const Pod* other : pods) {
      if (other->id != pod.id || other->name != pod.name) names.push_back(other->name);
    }
    const size_t more = names.size() - std::min(names.size(), kNamesMax);
    names.resize(names.size() - more);
    return fmt::format("{}{}", fmt::join(names, ", "),
                       more == 0 ? "" : fmt::format(" and {} more", more));
  }
};

Duration ShortestToken(Duration handoff) { return policy::Guarantee::kLeastHandoffs * handoff; }

bool HasLatency(const Pod& pod) { return pod.share.latency != Duration(0) && pod.by_token(); }

// Up to the next millisecond: what would do instead.
std::string EnoughFor(const Pod& pod, const policy::MissedDeadline& missed) {
  const Duration enough = pod.share.latency + (missed.begins - missed.at);
  return FormatDuration(std::chrono::ceil<std::chrono::milliseconds>(enough));
}

}  // namespace

Result<void> CheckLatency(const Gpu& gpu, const Pods& pods, const Pod& pod) {
  if (!HasLatency(pod)) return {};
  // Nothing is measured of a pod that is not there yet. A hand-off takes no less than this.
  const Duration handoff = std::max<Duration>(gpu.least_handoff, std::chrono::microseconds(1));
  const Duration hold = ShortestToken(handoff) + handoff;
  std::vector<const Pod*> all{&pod};
  for (const auto& [id, on] : gpu.pods) {
    const Pod* other = pods.Find(id);
    if (other != nullptr && id != pod.id && other->by_token()) all.push_back(other);
  }
  policy::ShareSum requested;
  bool others = false;  // without a latency: one of them may just have begun
  for (const Pod* one : all) {
    requested += one->share.request;
    others = others || !HasLatency(*one);
  }
  Latencies latencies;
  for (const Pod* one : all) {
    if (HasLatency(*one)) latencies.Add(*one, hold, requested);
  }
  for (size_t i = 0; i < latencies.tasks.size(); ++i) {
    const auto missed = FirstMissed(latencies.tasks, i, others ? hold : Duration(0));
    if (!missed) continue;
    const Pod& late = *latencies.pods[i];
    const std::string beside = latencies.NamesBut(late);
    return Fail(
        ErrorCode::kExhausted,
        fmt::format("on {} the latency of {} ({}) cannot be met{}: with the shortest tokens "
                    "({} each with its hand-off) it would begin up to {} late; ask for {} "
                    "or more, or for another GPU",
                    gpu.info.uuid, late.name, FormatDuration(late.share.latency),
                    beside.empty() ? "" : " beside those of " + beside, FormatDuration(hold),
                    FormatDuration(missed->begins - missed->at), EnoughFor(late, *missed)));
  }
  return {};
}

Result<std::vector<std::string>> WithoutLatency(const std::vector<Gpu*>& gpus, const Pods& pods,
                                                const Pod& pod) {
  std::vector<std::string> without;
  if (!HasLatency(pod)) return without;
  std::optional<Error> why;
  bool any = false;
  for (const Gpu* gpu : gpus) {
    const std::vector<std::string>& named = pod.wishes.gpus;
    const std::string& uuid = gpu->info.uuid;
    if (!named.empty() && std::find(named.begin(), named.end(), uuid) == named.end()) continue;
    if (auto ok = CheckLatency(*gpu, pods, pod); !ok) {
      without.push_back(uuid);
      why = ok.error();
    } else {
      any = true;
    }
  }
  if (!any && why) return tl::unexpected(*why);
  return without;
}

LatencyNote NoteOfLatency(const Gpu& gpu, const Pods& pods, const Pod& pod,
                          std::span<const scheduler::PodStatus> all) {
  if (!HasLatency(pod)) return {};
  const Duration handoff = gpu.scheduler.handoff(), least = ShortestToken(handoff);
  policy::ShareSum requested;
  for (const scheduler::PodStatus& status : all) requested += status.spec.request;
  Latencies latencies;
  size_t task = all.size();
  Duration overrun{0}, blocking{0};
  const Pod* cause = nullptr;
  for (const scheduler::PodStatus& status : all) {
    const Pod* one = pods.Find(status.pod);
    if (one == nullptr) continue;
    if (HasLatency(*one)) {
      if (one->id == pod.id) task = latencies.tasks.size();
      const Duration hold = status.saturating ? least : std::max(least, status.burst);
      latencies.Add(*one, hold + handoff, requested);
    }
    if (one->id == pod.id) continue;
    blocking = least;
    if (status.overrun <= overrun) continue;
    overrun = status.overrun;
    cause = one;
  }
  if (task >= latencies.tasks.size()) return {};
  // One holds and drains, and the next one's token is sent ahead.
  const auto missed = FirstMissed(latencies.tasks, task, blocking + 2 * overrun);
  if (!missed) return {};
  if (cause != nullptr && !FirstMissed(latencies.tasks, task, blocking)) {
    return {fmt::format("the latency of {} ({}) may be missed on {}: when its token ends, {} needs "
                        "up to {} for the kernels it has launched, and no token ends a kernel; "
                        "make them shorter, ask for {} or more, or use another GPU",
                        pod.name, FormatDuration(pod.share.latency), gpu.info.uuid, cause->name,
                        FormatDuration(overrun), EnoughFor(pod, *missed)),
            cause->id};
  }
  const std::string beside = latencies.NamesBut(pod);
  return {fmt::format("the latency of {} ({}) may be missed on {}: {} with latencies hold the GPU "
                      "for too long at a time; ask for {} or more, or use another GPU",
                      pod.name, FormatDuration(pod.share.latency), gpu.info.uuid,
                      beside.empty() ? "it and other pods" : "it and " + beside + ", the pods",
                      EnoughFor(pod, *missed)),
          {}};
}

std::vector<std::string> LatencySentences(Gpu& gpu, const Pods& pods, const Pod& pod, Instant now) {
  std::vector<std::string> sentences;
  if (!HasLatency(pod)) return sentences;
  const std::vector<scheduler::PodStatus> all = gpu.scheduler.Status(now);
  for (const scheduler::PodStatus& status : all) {
    if (status.pod != pod.id || status.met.waits == 0) continue;
    const scheduler::LatencyMet& met = status.met;
    std::string sentence = fmt::format(
        "{} asks for a latency of {}: of its {} waits for the token of {} since batond started, "
        "{:.1f} % were no longer",
        pod.name, FormatDuration(pod.share.latency), met.waits, gpu.info.uuid, 100 * met.part());
    if (met.ahead != 0) {
      sentence +=
          fmt::format("; {} of the {} longer ones were beyond its request", met.ahead, met.late);
    }
    sentences.push_back(sentence + ".");
  }
  const LatencyNote note = NoteOfLatency(gpu, pods, pod, all);
  if (!note.text.empty()) sentences.push_back("T" + note.text.substr(1) + ".");
  return sentences;
}

void WarnOfLatencies(Gpu& gpu, const Pods& pods, Instant now, node::EventLog& log) {
  const auto has = [](const auto& entry) { return entry.second.told.latency != Duration(0); };
  auto at = std::find_if(gpu.pods.upper_bound(gpu.latency_looked), gpu.pods.end(), has);
  gpu.latency_looked = at == gpu.pods.end() ? PodId{} : at->first;
  if (at == gpu.pods.end()) return;
  const Pod* pod = pods.Find(at->first);
  if (pod == nullptr) return;
  const LatencyNote note = NoteOfLatency(gpu, pods, *pod, gpu.scheduler.Status(now));
  if (note.text.empty() || !at->second.latency_causes.insert(note.cause).second) return;
  log.Add(node::EventLog::Level::kWarning, "pod", note.text);
}

}  // namespace baton::backend
