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
#include "k8s/device_plugin/share_reporter.h"
#include "k8s/types/gpu_node.h"
#include "k8s/types/read.h"
#include "spec/modes.h"
#include "wire/control_client.h"

namespace baton::k8s {
namespace {

using Kind = BatondCommand::Kind;

constexpr Duration kAgainMin = std::chrono::milliseconds(200);
constexpr Duration kAgainMax = std::chrono::seconds(30);
constexpr Duration kBatondPatience = std::chrono::seconds(5);
constexpr Duration kDriverPatience = std::chrono::seconds(30);  // where batond waits for a driver
constexpr Duration kBatondAgainMax = std::chrono::seconds(2);

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

// The definition of GpuNodes is of a version before there were devices. An API server refuses to
// apply a field that it does not have.
bool LacksDevices(const ApiError& error) {
  return error.message.find("field not declared") != std::string::npos &&
         (error.message.find(".status.devices") != std::string::npos ||
          error.message.find(".instances") != std::string::npos);
}

// It may write no owner into an object that is there (admission plugin
// OwnerReferencesPermissionEnforcement), for it may not delete it.
bool MayNotSetOwner(const ApiError& error) {
  return error.status == 403 && error.message.find("cannot set an ownerRef") != std::string::npos;
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
        batond_path_(wire::ControlSocket(options_.socket_dir)),
        shares_(client_, options_, [this](bool done) { CountReport(done); }) {
    ReflectorOptions of_node;
    of_node.list.field_selector = "spec.nodeName=" + options_.node;
    // The watch cache has pods by node; without it each list of each node reads all pods from etcd.
    of_node.list.from_cache = true;
    ReflectorSink sink;
    sink.changed = [this](Json pod) { Changed(pods_, std::move(pod)); };
    sink.gone = [this](const Json& pod) { Gone(pods_, pod); };
    sink.synced = [this] { Synced(synced_); };
    sink.trouble = [](const std::string& why) { spdlog::warn("pods: {}", why); };
    pods_watch_.emplace(client_, resources::kPods, of_node, std::move(sink));
    if (options_.makes_mps) WatchComing();
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
    coming_watch_.reset();
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

  // The pods that wait for what is made for them here; from now on, for good.
  void WatchComing() {
    {
      const std::lock_guard lock(mutex_);
      coming_synced_ = false;
    }
    ReflectorOptions coming;
    coming.list.label_selector =
        fmt::format("{}={}", PodKey(keys::kMakesDevices), LabelOfNode(options_.node));
    coming.list.from_cache = true;
    ReflectorSink sink;
    sink.changed = [this](Json pod) { Changed(coming_, std::move(pod)); };
    sink.gone = [this](const Json& pod) { Gone(coming_, pod); };
    sink.synced = [this] { Synced(coming_synced_); };
    sink.trouble = [](const std::string& why) { spdlog::warn("pods: {}", why); };
    coming_watch_.emplace(client_, resources::kPods, coming, std::move(sink));
  }

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
    return synced_ && coming_synced_ ? ""
                                     : "the node's pods have not been listed yet; see this log";
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
      synced = synced_ && coming_synced_;
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
  using Pods = std::map<std::string, Json>;  // by uid

  void Changed(Pods& pods, Json pod) {
    const std::string uid = UidOf(pod);
    if (uid.empty()) return;
    const std::lock_guard lock(mutex_);
    pods[uid] = std::move(pod);
    Wake();
  }
  void Gone(Pods& pods, const Json& pod) {
    const std::lock_guard lock(mutex_);
    pods.erase(UidOf(pod));
    Wake();
  }
  void Synced(bool& synced) {
    const std::lock_guard lock(mutex_);
    synced = true;
    Wake();
  }
  // The node's pods, and those that are about to be. With mutex_.
  Pods All() const {
    Pods all = pods_;
    for (const auto& [uid, pod] : coming_) {
      const std::string node = TextAt(pod, "spec/nodeName");
      if (node.empty() || node == options_.node) all.emplace(uid, pod);
    }
    return all;
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
        pods = All();
        synced = synced_ && coming_synced_;
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
      const bool mig = std::any_of(heard_->cards.begin(), heard_->cards.end(),
                                   [](const devmgr::Card& card) { return card.mig_enabled; });
      if (mig && !coming_watch_) {
        WatchComing();
        synced = false;
      }
      TellCards(PluginCardsOf(*heard_));
      std::vector<PresentPod> present = PresentPods(*status);
      if (options_.on_node) options_.on_node(*heard_, &present);
      if (!options_.by_cgroup) LearnUids(present);
      std::erase_if(present, [](const PresentPod& pod) { return pod.pod.cgroup.empty(); });
      MadeDevices made;
      if (synced) next = std::min(next, PutRight(pods, present, made));
      Publish({std::move(*status), std::move(present), std::move(pods), std::move(made), synced});
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

  // When something that is left is to be tried again; kNever: nothing is. `made`: what there is for
  // those that should be there.
  Instant PutRight(const Pods& pods, const std::vector<PresentPod>& present, MadeDevices& made) {
    std::map<std::string, BatondPod> desired, is;
    std::set<std::string> unreadable;
    for (const auto& [uid, pod] : pods) {
      auto wanted = DesiredPods(pod, options_.memory_unit_mib, options_.node);
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
    made = MadeFor(present, desired);
    const auto commands =
        Difference(desired, is, [&](const std::string& uid) { return unreadable.count(uid) != 0; });
    std::set<std::string> busy;
    bool freed = false, divides = false;
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
      const bool devices = !spec::ByToken(command.pod.wishes.mode);
      bool answered = false;
      auto done = wire::Ask(options_.socket_dir, request,
                            devices ? kDriverPatience : kBatondPatience, &answered);
      if (!done && command.kind == Kind::kDelete && done.error().code == ErrorCode::kNotFound) {
        done = Json::object();
      }
      if (done) {
        ++counters_.commands;
        divides |= devices;
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
    // A binder waits to hear of what was made, and of room.
    Instant next = divides ? MonotonicNow() : kNever;
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
    MadeDevices made;
    bool synced = false;
  };
  void Publish(Picture picture) {
    const std::lock_guard lock(mutex_);
    picture_ = std::move(picture);
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
      // What was made is not known before all pods are.
      const MadeDevices& made = picture->synced ? picture->made : made_;
      LeaveOut(made, node);
      TellNode(node, UseOf(PresentPods(picture->status)), made);
      if (!picture->synced) continue;
      shares_.Tell(picture->present, picture->pods);
      std::unique_lock lock(mutex_);
      // Not more often than asked for, and with the newest picture then.
      told_.wait_for(lock, std::min<Duration>(options_.report_every, std::chrono::seconds(1)),
                     [this] { return stopping_; });
      if (stopping_) return;
    }
  }

  void TellNode(const devmgr::Node& node, const GpuNodeUse& use, const MadeDevices& made) {
    const Instant now = MonotonicNow();
    const bool mounts = !options_.mounts_hook || options_.mounts_hook();
    const bool same =
        node_ && *node_ == node && node_use_ == use && made_ == made && mounts_ == mounts;
    if (same && now - node_at_ < options_.refresh_every) return;
    if (!same && (node_wrong_ || old_crd_) && now < node_next_) return;
    Json object = GpuNodeOf(node, use);
    SetMountsHook(object, mounts);
    SetDevices(object, made);
    auto done = Identify(object, now);
    const auto apply = [&] {
      return client_.Apply(resources::kGpuNodes, {"", options_.node}, object, "status", true,
                           kNodeManager);
    };
    if (done) done = apply();
    const bool lacks = !done && LacksDevices(done.error());
    if (!std::exchange(old_crd_, lacks) && lacks) {
      spdlog::warn(
          "the CustomResourceDefinition of GpuNodes is of an older version and has no "
          "status.devices; pods of modes mig and mps are not bound here until it is updated");
    }
    if (lacks) {
      object["status"].erase("devices");
      for (Json& card : object["status"]["cards"]) card.erase("instances");
      done = apply();
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
    // What was not told is told once it can be.
    made_ = lacks ? MadeDevices() : made;
    if (lacks) node_next_ = now + options_.report_every;
    mounts_ = mounts;
    node_at_ = now;
  }

  // Writes all of the GpuNode but its status.
  ApiResult<Json> Identify(const Json& object, Instant now) {
    if (const auto found = FindOwner(now); !found) return tl::unexpected(found.error());
    Json identity = object;
    identity.erase("status");
    const auto apply = [&] {
      return client_.Apply(resources::kGpuNodes, {"", options_.node}, identity, {}, true,
                           kNodeManager);
    };
    if (may_own_) SetOwnerNode(identity, owner_);
    auto done = apply();
    if (done || !MayNotSetOwner(done.error())) return done;
    if (!std::exchange(told_ownerless_, true)) {
      spdlog::warn("the GpuNode will stay when its Node is deleted: {}", done.error().message);
    }
    may_own_ = false;
    identity["metadata"].erase("ownerReferences");
    return apply();
  }

  // Looks the Node up at times, for one that was made anew has another uid: the garbage collector
  // deletes the GpuNode with the Node before. One that is not there, or may not be looked at by the
  // role of an earlier chart, is as it was.
  ApiResult<void> FindOwner(Instant now) {
    if (owner_at_ && now - *owner_at_ < options_.refresh_every) return {};
    const auto found = client_.Get(resources::kNodes, {"", options_.node});
    const bool kept_from = !found && found.error().status == 403;
    if (!found && !kept_from && !found.error().not_found()) return tl::unexpected(found.error());
    if (found) owner_ = UidOf(*found);
    if (kept_from && !std::exchange(told_ownerless_, true)) {
      spdlog::warn("the GpuNode will stay when its Node is deleted: {}", found.error().message);
    }
    owner_at_ = now;
    may_own_ = true;
    return {};
  }

  Client& client_;
  EventRecorder& events_;
  const NodeAgentOptions options_;
  const std::string batond_path_;

  Counters counters_;

  mutable std::mutex mutex_;
  std::condition_variable wake_, told_;
  Pods pods_;                       // bound here; guarded by mutex_, as are these
  Pods coming_;                     // with the label of this node
  std::optional<Picture> picture_;  // the newest that was not reported on
  bool synced_ = false;             // pods_ is complete
  bool coming_synced_ = true;       // likewise; so it is while nobody looks for them
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
  MadeDevices made_;
  std::string owner_;                // the Node's uid; empty: it is not known
  std::optional<Instant> owner_at_;  // when it was looked up
  bool may_own_ = true;
  bool told_ownerless_ = false;
  bool mounts_ = false;
  bool old_crd_ = false;
  Instant node_at_{};
  Instant node_next_{};
  bool node_wrong_ = false;
  ShareReporter shares_;

  std::optional<Reflector> pods_watch_, coming_watch_;
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
