#include "k8s/device_plugin/node_agent.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "k8s/api/reflector.h"
#include "k8s/api/timestamp.h"
#include "k8s/types/gpu_node.h"
#include "k8s/types/read.h"
#include "k8s/types/share_pod.h"
#include "wire/control_client.h"

namespace baton::k8s {
namespace {

using Kind = BatondCommand::Kind;

constexpr Duration kAgainMin = std::chrono::milliseconds(200);
constexpr Duration kAgainMax = std::chrono::seconds(30);
constexpr Duration kBatondPatience = std::chrono::seconds(5);
constexpr Duration kBatondAgainMax = std::chrono::seconds(2);
// Of a SharePod's status, as its definition has them.
constexpr size_t kReasonsMax = 64;
constexpr size_t kReasonMax = 4'096;

const char* ActionOf(Kind kind) {
  switch (kind) {
    case Kind::kCreate:
      return "GiveShare";
    case Kind::kSet:
      return "ChangeShare";
    default:
      return "TakeShare";
  }
}

// The SharePod's definition has no status.advice. An API server refuses to apply a field that a
// definition does not have: "...: .status.advice: field not declared in schema".
bool LacksAdvice(const ApiError& error) {
  return error.message.find(".status.advice: field not declared") != std::string::npos;
}

// The pod that a ticket names; see TicketOf(). Empty: it is none of ours.
std::string UidOfTicket(const std::string& ticket) {
  const size_t slash = ticket.rfind('/');
  return slash == std::string::npos ? "" : ticket.substr(0, slash);
}

}  // namespace

class NodeAgent::Impl {
 public:
  Impl(Client& client, EventRecorder& events, NodeAgentOptions options)
      : client_(client),
        events_(events),
        options_(std::move(options)),
        batond_path_(wire::ControlSocket(options_.socket_dir)) {
    ReflectorOptions of_node;
    of_node.list.field_selector = "spec.nodeName=" + options_.node;
    // The watch cache has pods by node; without it each list of each node reads all pods from etcd.
    of_node.list.from_cache = true;
    ReflectorSink sink;
    sink.changed = [this](Json pod) { Changed(std::move(pod)); };
    sink.gone = [this](const Json& pod) { Gone(pod); };
    sink.synced = [this] {
      const std::lock_guard lock(mutex_);
      synced_ = true;
      Wake();
    };
    sink.trouble = [](const std::string& why) { spdlog::warn("pods: {}", why); };
    pods_watch_.emplace(client_, resources::kPods, of_node, std::move(sink));
    keeper_ = std::thread([this] { Keep(); });
    reporter_ = std::thread([this] { Report(); });
  }
  ~Impl() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      Wake();
      told_.notify_all();
    }
    keeper_.join();
    reporter_.join();
    pods_watch_.reset();
  }

  net::HttpResponse Answer(const net::HttpRequest& request) const {
    if (request.method != "GET") return net::ErrorResponse(405, "use GET");
    if (request.path == "/healthz") return {200, "ok\n", "text/plain"};
    if (request.path == "/readyz") {
      const std::string why = WhyNotReady();
      if (why.empty()) return {200, "ok\n", "text/plain"};
      return {503, why + "\n", "text/plain"};
    }
    if (request.path == "/metrics") return {200, Metrics(), "text/plain; version=0.0.4"};
    return net::ErrorResponse(404, "unknown path; use /healthz, /readyz or /metrics");
  }

 private:
  // What is told of it itself. Any thread.
  struct Counters {
    std::atomic<bool> batond_answers = false;
    std::atomic<bool> standby = false;  // it only stands by
    std::atomic<uint64_t> in_step = 0;  // pods of batond that are as they should be
    std::atomic<uint64_t> refused = 0;  // that batond did not take, or whose pod cannot be read
    std::atomic<uint64_t> cards = 0;
    std::atomic<uint64_t> gpus = 0;           // that batond tells of, whatever their health
    std::atomic<uint64_t> commands = 0;       // that batond carried out
    std::atomic<uint64_t> batond_errors = 0;  // asked in vain, for whatever reason
    std::atomic<uint64_t> report_errors = 0;  // writes to the API server that failed
    std::atomic<int64_t> reported_s = 0;      // the last one that did not, since 1970
  };

  std::string WhyNotReady() const {
    // In a rollout the pod of before goes once this one is ready.
    if (counters_.standby) return "";
    if (!counters_.batond_answers) {
      return "batond at " + batond_path_ + " does not answer; its log says why";
    }
    if (counters_.gpus == 0) {
      return "no GPU found: NVML lists none on this node; see the log of batond, and "
             "node.runtimeClassName of the chart";
    }
    const std::lock_guard lock(mutex_);
    return synced_ ? "" : "the node's pods have not been listed yet; see this log";
  }

  std::string Metrics() const {
    std::string text;
    const auto add = [&](const char* name, const char* type, const char* help, auto value) {
      text += fmt::format(
          "# HELP baton_agent_{0} {1}\n# TYPE baton_agent_{0} {2}\nbaton_agent_{0} {3}\n", name,
          help, type, value);
    };
    bool synced = false;
    {
      const std::lock_guard lock(mutex_);
      synced = synced_;
    }
    add("synced", "gauge", "Whether the node's pods have been listed.", synced ? 1 : 0);
    add("batond_answers", "gauge", "Whether batond answered the last request.",
        counters_.batond_answers ? 1 : 0);
    add("cards", "gauge", "GPUs available to containers.", counters_.cards.load());
    add("pods_in_step", "gauge", "Containers with GPUs that batond has as they should be.",
        counters_.in_step.load());
    add("pods_refused", "gauge", "Those that batond refuses, or whose pod makes no sense.",
        counters_.refused.load());
    add("commands_total", "counter", "Changes that batond carried out.", counters_.commands.load());
    add("batond_errors_total", "counter", "Questions to batond that failed.",
        counters_.batond_errors.load());
    add("report_errors_total", "counter", "Writes to the API server that failed.",
        counters_.report_errors.load());
    add("last_report_timestamp_seconds", "gauge",
        "Unix time of the last successful write; 0 if none.", counters_.reported_s.load());
    return text;
  }

  // A write of the reporter's has succeeded, or failed.
  void CountReport(bool done) {
    if (!done) {
      ++counters_.report_errors;
      return;
    }
    counters_.reported_s = std::chrono::duration_cast<std::chrono::seconds>(
                               std::chrono::system_clock::now().time_since_epoch())
                               .count();
  }

  // One that batond did not take; tried again.
  struct Refusal {
    Json request;  // another one is tried at once
    Instant next;
    Duration pause = kAgainMin;
    bool for_room = false;
  };
  // What was told of a SharePod.
  struct Told {
    ShareReport report;
    ShareReport seen;  // the newest, told or not
    PauseWatch pauses;
    std::vector<std::string> names;  // batond's, of its pod
    Json advice = Json::array(), told_advice = Json::array();
    Json status;  // with its conditions, as we know them; null: the SharePod was not read yet
    Instant at{};
    std::string wrong;  // why the last write failed
  };
  using Pods = std::map<std::string, Json>;  // by uid

  void Changed(Json pod) {
    const std::string uid = UidOf(pod);
    if (uid.empty()) return;
    const std::lock_guard lock(mutex_);
    pods_[uid] = std::move(pod);
    Wake();
  }
  void Gone(const Json& pod) {
    const std::lock_guard lock(mutex_);
    pods_.erase(UidOf(pod));
    Wake();
  }
  // With mutex_.
  void Wake() {
    changed_ = true;
    wake_.notify_all();
  }

  void Keep() {
    Duration pause = kAgainMin;
    Instant next = MonotonicNow();
    while (true) {
      Pods pods;
      bool synced = false;
      {
        std::unique_lock lock(mutex_);
        while (!stopping_ && !(changed_ && away_.empty())) {
          const Duration left = next - MonotonicNow();
          if (left <= Duration(0)) break;
          wake_.wait_for(lock, left);
        }
        if (stopping_) return;
        changed_ = false;
        pods = pods_;
        synced = synced_;
      }
      bool answered = false;
      auto status =
          wire::Ask(options_.socket_dir, {{"command", "status"}}, kBatondPatience, &answered);
      counters_.batond_answers = status.has_value();
      counters_.standby = !status && answered && StandsBy();
      if (counters_.standby) {
        // The agent and the batond of before serve the node until this batond takes over.
        if (!std::exchange(away_, "").empty()) spdlog::info("batond at {} stands by", batond_path_);
        heard_at_ = MonotonicNow();
        next = MonotonicNow() + kAgainMin;
        continue;
      }
      if (!status) {
        ++counters_.batond_errors;
        if (std::exchange(away_, status.error().message) != status.error().message) {
          spdlog::warn("batond: {}; it is asked again", status.error().message);
        }
        if (MonotonicNow() - heard_at_ >= options_.away_after) TellAway();
        next = MonotonicNow() + pause;
        pause = std::min(pause * 2, kBatondAgainMax);
        continue;
      }
      if (!away_.empty()) spdlog::info("batond at {} answers", batond_path_);
      away_.clear();
      pause = kAgainMin;
      heard_at_ = MonotonicNow();
      next = MonotonicNow() + options_.report_every;
      heard_ = NodeOf(*status, options_.node);
      counters_.gpus = heard_->cards.size();
      TellCards(PluginCardsOf(*heard_));
      std::vector<PresentPod> present = PresentPods(*status);
      if (options_.on_node) options_.on_node(*heard_, &present);
      if (!options_.by_cgroup) LearnUids(present);
      std::erase_if(present, [](const PresentPod& pod) { return pod.pod.cgroup.empty(); });
      if (synced) next = std::min(next, PutRight(pods, present));
      Publish(std::move(*status), std::move(present), std::move(pods), synced);
    }
  }

  // Whether batond waits for another one to end.
  bool StandsBy() const {
    const auto pong = wire::Ask(options_.socket_dir, {{"command", "ping"}});
    return pong && TextAt(*pong, "mode") == "standby";
  }

  // Without cgroups, whose pod it is stands in its ticket only, which status does not tell.
  void LearnUids(std::vector<PresentPod>& present) {
    std::map<std::string, std::string> known;
    for (PresentPod& pod : present) {
      auto uid = uids_.find(pod.pod.name);
      if (uid != uids_.end()) {
        pod.pod.cgroup = uid->second;
      } else if (!pod.pod.name_space.empty() &&
                 pod.pod.name.starts_with(pod.pod.name_space + "/")) {
        if (auto told =
                wire::Ask(options_.socket_dir, {{"command", "pod"}, {"name", pod.pod.name}})) {
          pod.pod.cgroup = UidOfTicket(TextAt(*told, "ticket"));
        }
      }
      if (!pod.pod.cgroup.empty()) known[pod.pod.name] = pod.pod.cgroup;
    }
    uids_ = std::move(known);
  }

  // When something that is left is to be tried again; kNever: nothing is.
  Instant PutRight(const Pods& pods, const std::vector<PresentPod>& present) {
    std::map<std::string, BatondPod> desired, is;
    std::set<std::string> unreadable;
    for (const auto& [uid, pod] : pods) {
      auto wanted = DesiredPods(pod, options_.memory_unit_mib);
      if (!wanted) {
        // Whatever it has, it keeps.
        unreadable.insert(uid);
        Complain(uid, pod, "InvalidAnnotation", "ReadPod", wanted.error().message);
        continue;
      }
      for (BatondPod& one : *wanted) {
        // One of the same name may be leaving: its room is the newer one's.
        auto [at, fresh] = desired.emplace(one.name, one);
        if (!fresh && IsNewer(pods, one.cgroup, at->second.cgroup)) at->second = std::move(one);
      }
    }
    for (const PresentPod& pod : present) is.emplace(pod.pod.name, pod.pod);
    const auto commands =
        Difference(desired, is, [&](const std::string& uid) { return unreadable.count(uid) != 0; });
    std::set<std::string> busy;
    bool freed = false;
    for (const BatondCommand& command : commands) {
      if (stopping()) return kNever;
      Json request = RequestFor(command, options_.by_cgroup);
      auto refused = refusals_.find(command.pod.name);
      if (refused != refusals_.end() && refused->second.request == request &&
          refused->second.next > MonotonicNow() && !(freed && refused->second.for_room)) {
        busy.insert(command.pod.name);
        continue;
      }
      if (busy.count(command.pod.name) != 0) continue;  // its first command has failed
      bool answered = false;
      auto done = wire::Ask(options_.socket_dir, request, kBatondPatience, &answered);
      if (!done && command.kind == Kind::kDelete && done.error().code == ErrorCode::kNotFound) {
        done = Json::object();
      }
      if (done) {
        ++counters_.commands;
        refusals_.erase(command.pod.name);
        if (command.kind != Kind::kCreate) freed = true;
        if (command.kind == Kind::kDelete) {
          uids_.erase(command.pod.name);
        } else {
          uids_[command.pod.name] = command.pod.cgroup;
        }
        continue;
      }
      ++counters_.batond_errors;
      // That says nothing of this pod, and the others need not be tried.
      if (!answered) {
        spdlog::warn("{}: {}", command.pod.name, done.error().message);
        counters_.batond_answers = false;
        return MonotonicNow() + kAgainMin;
      }
      busy.insert(command.pod.name);
      Refusal& refusal = refusals_[command.pod.name];
      if (refusal.request != request) refusal = Refusal{};
      refusal.request = std::move(request);
      refusal.for_room = done.error().code == ErrorCode::kExhausted;
      refusal.next = MonotonicNow() + refusal.pause;
      refusal.pause = std::min(refusal.pause * 2, kAgainMax);
      if (const auto pod = pods.find(command.pod.cgroup); pod != pods.end()) {
        Complain(command.pod.name, pod->second, "ShareRefused", ActionOf(command.kind),
                 done.error().message);
      } else {
        spdlog::warn("{}: {}", command.pod.name, done.error().message);
      }
    }
    std::erase_if(refusals_, [&](const auto& entry) { return busy.count(entry.first) == 0; });
    std::erase_if(complaints_, [&](const auto& entry) {
      return busy.count(entry.first) == 0 && unreadable.count(entry.first) == 0;
    });
    // What failed for want of room before some was freed is not made to wait.
    if (freed) {
      for (auto& [name, refusal] : refusals_) {
        if (refusal.for_room) refusal.next = MonotonicNow();
      }
    }
    counters_.refused = busy.size() + unreadable.size();
    counters_.in_step =
        static_cast<uint64_t>(std::count_if(desired.begin(), desired.end(), [&](const auto& entry) {
          return busy.count(entry.first) == 0;
        }));
    Instant next = kNever;
    for (const auto& [name, refusal] : refusals_) next = std::min(next, refusal.next);
    return next;
  }

  bool stopping() const {
    const std::lock_guard lock(mutex_);
    return stopping_;
  }

  static bool IsNewer(const Pods& pods, const std::string& a, const std::string& b) {
    const auto made = [&](const std::string& uid) {
      const auto pod = pods.find(uid);
      return pod == pods.end() ? "" : TextAt(pod->second, "metadata/creationTimestamp");
    };
    return std::pair(made(a), a) > std::pair(made(b), b);
  }

  // Once for as long as it is so. `about`: the uid of the pod that is wrong, or the name of what
  // batond refused.
  void Complain(const std::string& about, const Json& pod, const char* reason, const char* action,
                const std::string& why) {
    if (std::exchange(complaints_[about], why) == why) return;
    spdlog::warn("pod {}: {}", NameOf(pod).Text(), why);
    events_.Record(pod, "Warning", reason, action, why);
  }

  // While batond is away nobody grants a token: pods that came would wait, and not say why.
  void TellAway() {
    if (!heard_) return;
    std::vector<PluginCard> cards = PluginCardsOf(*heard_);
    for (PluginCard& card : cards) card.healthy = false;
    TellCards(std::move(cards));
    if (options_.on_node) options_.on_node(*heard_, nullptr);
  }

  void TellCards(std::vector<PluginCard> cards) {
    if (cards_ == cards) return;
    counters_.cards = static_cast<uint64_t>(std::count_if(
        cards.begin(), cards.end(), [](const PluginCard& card) { return card.healthy; }));
    cards_ = cards;
    if (options_.on_cards) options_.on_cards(std::move(cards));
  }

  // What the reporter goes by.
  struct Picture {
    Json status;
    std::vector<PresentPod> present;
    Pods pods;
    bool synced = false;
  };
  void Publish(Json status, std::vector<PresentPod> present, Pods pods, bool synced) {
    const std::lock_guard lock(mutex_);
    picture_ = Picture{std::move(status), std::move(present), std::move(pods), synced};
    told_.notify_all();
  }

  void Report() {
    while (true) {
      std::optional<Picture> picture;
      {
        std::unique_lock lock(mutex_);
        told_.wait(lock, [this] { return stopping_ || picture_.has_value(); });
        if (stopping_) return;
        picture = std::exchange(picture_, std::nullopt);
      }
      devmgr::Node node = NodeOf(picture->status, options_.node);
      for (devmgr::Card& card : node.cards) {
        if (options_.lent_to.empty()) continue;
        card.cordoned = true;
        if (card.why.empty()) card.why = options_.lent_to;
      }
      TellNode(node, UseOf(PresentPods(picture->status)));
      if (!picture->synced) continue;
      TellShares(*picture);
      std::unique_lock lock(mutex_);
      // Not more often than asked for, and with the newest picture then.
      told_.wait_for(lock, std::min<Duration>(options_.report_every, std::chrono::seconds(1)),
                     [this] { return stopping_; });
      if (stopping_) return;
    }
  }

  void TellNode(const devmgr::Node& node, const GpuNodeUse& use) {
    const Instant now = MonotonicNow();
    const bool mounts = !options_.mounts_hook || options_.mounts_hook();
    const bool same = node_ && *node_ == node && node_use_ == use && mounts_ == mounts;
    if (same && now - node_at_ < options_.refresh_every) return;
    if (!same && node_wrong_ && now < node_next_) return;
    Json object = GpuNodeOf(node, use);
    SetMountsHook(object, mounts);
    Json identity = object;
    identity.erase("status");
    auto done =
        client_.Apply(resources::kGpuNodes, {"", options_.node}, identity, {}, true, kNodeManager);
    if (done) {
      done = client_.Apply(resources::kGpuNodes, {"", options_.node}, object, "status", true,
                           kNodeManager);
    }
    CountReport(done.has_value());
    if (!done) {
      node_next_ = now + options_.report_every;
      if (!std::exchange(node_wrong_, true) && !client_.stopped()) {
        spdlog::warn("cannot report the node's GPUs: {}", done.error().message);
      }
      return;
    }
    if (std::exchange(node_wrong_, false)) spdlog::info("the node's GPUs are reported");
    node_ = node;
    node_use_ = use;
    mounts_ = mounts;
    node_at_ = now;
  }

  void TellShares(const Picture& picture) {
    LookAtAdvice();
    std::map<std::string, std::vector<PresentPod>> by_uid;
    for (const PresentPod& pod : picture.present) by_uid[pod.pod.cgroup].push_back(pod);
    std::set<std::string> here;
    for (const auto& [uid, pod] : picture.pods) {
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
  void LookAtAdvice() {
    const Instant now = MonotonicNow();
    if (advised_at_ != Instant{} && now - advised_at_ < options_.advise_every) return;
    advised_at_ = now;
    if (auto said = wire::Ask(options_.socket_dir, {{"command", "advise"}}, kBatondPatience)) {
      advice_ = std::move(*said);
    }
  }

  // Why they get what they get, in batond's own sentences. None where it does not say: a relay's
  // batond speaks of all nodes, and not to one.
  Json ReasonsOf(const std::vector<std::string>& names) const {
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

  void TellShare(const Controller& owner, Told& told) {
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
      CountReport(false);
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
    Condition attached{
        "Attached", report.attached, report.attached ? "ProcessesAttached" : "NoProcess",
        report.attached ? "a process of the pod uses its share"
                        : "no running process of the pod uses CUDA with Baton's hook"};
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
    CountReport(true);
    told.wrong.clear();
    told.report = report;
    told.told_advice = object["status"].value("advice", Json::array());
  }

  Client& client_;
  EventRecorder& events_;
  const NodeAgentOptions options_;
  const std::string batond_path_;

  Counters counters_;

  mutable std::mutex mutex_;
  std::condition_variable wake_, told_;
  Pods pods_;                       // guarded by mutex_, as are these
  std::optional<Picture> picture_;  // the newest that was not reported on
  bool synced_ = false;
  bool changed_ = false;
  bool stopping_ = false;

  // Of the keeper.
  std::string away_;                   // why batond does not answer; empty: it does
  Instant heard_at_ = MonotonicNow();  // of batond, last
  std::map<std::string, Refusal> refusals_;
  std::map<std::string, std::string> complaints_;  // see Complain(), the last one
  std::map<std::string, std::string> uids_;        // of batond's pods by name, without cgroups
  std::optional<devmgr::Node> heard_;              // of batond, last
  std::optional<std::vector<PluginCard>> cards_;
  // Of the reporter.
  std::optional<devmgr::Node> node_;  // as told, and these with it
  GpuNodeUse node_use_;
  bool mounts_ = false;
  Instant node_at_{};
  Instant node_next_{};
  bool node_wrong_ = false;
  std::map<std::string, Told> told_shares_;  // by the pod's uid
  Json advice_;                              // batond's answer of
  Instant advised_at_{};
  Instant no_advice_until_{};  // the API server did not know status.advice

  std::optional<Reflector> pods_watch_;
  std::thread keeper_;
  std::thread reporter_;
};

NodeAgent::NodeAgent(Client& client, EventRecorder& events, NodeAgentOptions options)
    : impl_(std::make_unique<Impl>(client, events, std::move(options))) {}
NodeAgent::~NodeAgent() = default;
net::HttpResponse NodeAgent::Answer(const net::HttpRequest& request) const {
  return impl_->Answer(request);
}

}  // namespace baton::k8s
