#include "k8s/device_plugin/share_reporter.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "k8s/api/timestamp.h"
#include "k8s/types/read.h"
#include "k8s/types/share_pod.h"
#include "wire/control_client.h"

namespace baton::k8s {
namespace {

constexpr Duration kAnswerPatience = std::chrono::seconds(5);
// Of a SharePod's status, as its definition has them.
constexpr size_t kReasonsMax = 64;
constexpr size_t kReasonMax = 4'096;

// The SharePod's definition has no status.advice. An API server refuses to apply a field that a
// definition does not have: "...: .status.advice: field not declared in schema".
bool LacksAdvice(const ApiError& error) {
  return error.message.find(".status.advice: field not declared") != std::string::npos;
}

}  // namespace

void ShareReporter::Tell(const std::vector<PresentPod>& present,
                         const std::map<std::string, Json>& pods) {
  LookAtAdvice();
  std::map<std::string, std::vector<PresentPod>> by_uid;
  for (const PresentPod& pod : present) by_uid[pod.pod.cgroup].push_back(pod);
  std::set<std::string> here;
  for (const auto& [uid, pod] : pods) {
    const Controller owner = SharePodOf(pod);
    if (owner.name.name.empty()) continue;
    here.insert(uid);
    const std::string phase = TextAt(pod, "status/phase");
    const bool ended = phase == "Succeeded" || phase == "Failed";
    const auto has = by_uid.find(uid);
    if (has == by_uid.end() && !(ended && told_shares_.count(uid) != 0)) continue;
    Told& told = told_shares_[uid];
    if (has != by_uid.end()) {
      told.seen = ReportOf(has->second);
      told.seen.paused = told.pauses.Look(told.seen.paused, told.seen.held_ns, MonotonicNow(),
                                          options_.paused_after);
      told.names.clear();
      for (const PresentPod& present : has->second) told.names.push_back(present.pod.name);
      told.advice = AdviceOf(advice_, told.names);
    }
    if (ended) {
      told.seen.achieved = 0;
      told.seen.attached = false;
      told.seen.idle = false;
      told.seen.paused = false;
      told.seen.ended = true;
    }
    TellShare(owner, told);
  }
  std::erase_if(told_shares_, [&](const auto& entry) { return here.count(entry.first) == 0; });
}

// A relay's batond does not say it to one node.
void ShareReporter::LookAtAdvice() {
  const Instant now = MonotonicNow();
  if (advised_at_ != Instant{} && now - advised_at_ < options_.advise_every) return;
  advised_at_ = now;
  if (auto said = wire::Ask(options_.socket_dir, {{"command", "advise"}}, kAnswerPatience)) {
    advice_ = std::move(*said);
  }
}

// Why they get what they get, in batond's own sentences. None where it does not say: a relay's
// batond speaks of all nodes, and not to one.
Json ShareReporter::ReasonsOf(const std::vector<std::string>& names) const {
  Json reasons = Json::array();
  for (const std::string& name : names) {
    const auto said = wire::Ask(options_.socket_dir, {{"command", "explain"}, {"pod", name}});
    const Json* sentences = said ? Find(*said, "sentences") : nullptr;
    if (sentences == nullptr || !sentences->is_array()) continue;
    for (const Json& sentence : *sentences) {
      const bool good =
          sentence.is_string() && sentence.get_ref<const std::string&>().size() <= kReasonMax;
      if (good && reasons.size() < kReasonsMax) reasons.push_back(sentence);
    }
  }
  return reasons;
}

void ShareReporter::TellShare(const Controller& owner, Told& told) {
  const Instant now = MonotonicNow();
  const ShareReport& report = told.seen;
  const bool first = told.status.is_null();
  const Json advice = now < no_advice_until_ ? Json::array() : told.advice;
  if (told.at != Instant{} && now - told.at < options_.report_every) return;
  if (!first) {
    const bool worth = WorthTelling(told.report, report) || advice != told.told_advice;
    const bool stale = told.report != report && now - told.at >= options_.refresh_every;
    if (!worth && !stale && told.wrong.empty()) return;
  }
  told.at = now;
  const auto wrong = [&](const std::string& why) {
    count_(false);
    if (std::exchange(told.wrong, why) != why && !client_.stopped()) {
      spdlog::warn("SharePod {}: its status cannot be written: {}", owner.name.Text(), why);
    }
  };
  if (first) {
    // What an agent before this one has told, and since when.
    auto share_pod = client_.Get(resources::kSharePods, owner.name);
    if (!share_pod) return wrong(share_pod.error().message);
    if (UidOf(*share_pod) != owner.uid) return wrong("it is another one of the same name");
    told.status = {{"conditions", Json::array()}};
    for (const Json& condition : ListAt(*share_pod, "status/conditions")) {
      const std::string type = TextAt(condition, "type");
      if (type != "Attached" && type != "Paused") continue;
      told.status["conditions"].push_back(condition);
      if (type == "Paused" && TextAt(condition, "status") == "True") {
        told.pauses = PauseWatch(true);
        told.seen.paused = told.seen.idle;
      }
    }
  }
  Condition attached{"Attached", report.attached,
                     report.attached ? "ProcessesAttached" : "NoProcess",
                     report.attached ? "a process of the pod uses its share"
                                     : "no running process of the pod uses CUDA with Baton's hook"};
  if (report.part) {
    attached.reason = "PartMade";
    attached.message = "the pod has its part of the GPU; whether a process uses it is not known";
  }
  if (report.ended) {
    attached.reason = "PodEnded";
    attached.message = "the pod has ended";
  }
  // Of no generation: a process is there or not, whatever the spec says by now.
  const std::string time = Timestamp(std::chrono::system_clock::now());
  SetCondition(told.status, attached, std::nullopt, time);
  if (report.idle) {
    SetCondition(told.status,
                 {"Paused", report.paused, report.paused ? "OthersHaveWork" : "NotPaused",
                  report.paused ? "the pod is of idle priority and waits: other pods on its GPU "
                                  "have work"
                                : ""},
                 std::nullopt, time);
  } else {
    RemoveCondition(told.status, "Paused");
  }
  Json status = told.status;
  status["achieved"] = fmt::format("{:.1f}", report.achieved);
  status["gpuSeconds"] = report.held_ns / 1'000'000'000;
  if (Json reasons = report.ended ? Json::array() : ReasonsOf(told.names); !reasons.empty()) {
    status["reasons"] = std::move(reasons);
  }
  if (!advice.empty()) status["advice"] = advice;
  Json object{
      {"apiVersion", resources::kSharePods.ApiVersion()},
      {"kind", resources::kSharePods.kind},
      {"metadata",
       {{"name", owner.name.name}, {"namespace", owner.name.name_space}, {"uid", owner.uid}}},
      {"status", std::move(status)}};
  const auto apply = [&] {
    return client_.Apply(resources::kSharePods, owner.name, object, "status", true, kNodeManager);
  };
  auto done = apply();
  if (!done && LacksAdvice(done.error()) && object["status"].erase("advice") > 0) {
    if (done = apply(); done) {
      if (no_advice_until_ == Instant{}) {
        spdlog::warn(
            "the CustomResourceDefinition of SharePods is of an older version and has no "
            "status.advice; no advice is written until it is updated");
      }
      no_advice_until_ = now + options_.advise_every;
    }
  }
  if (!done) return wrong(done.error().message);
  count_(true);
  told.wrong.clear();
  told.report = report;
  told.told_advice = object["status"].value("advice", Json::array());
}

}  // namespace baton::k8s
