#include "k8s/binder/binder.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <ctime>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "k8s/binder/gpu_metrics.h"
#include "k8s/cluster/object_cache.h"
#include "k8s/cluster/objects.h"

namespace baton::k8s {
namespace {

// How soon a standby sees that it has won.
constexpr Duration kStandbyLook = std::chrono::milliseconds(20);

constexpr Duration kMetricsPatience = std::chrono::seconds(2);

const Resource kClaims{"", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", true};

}  // namespace

class Binder::Impl {
 public:
  Impl(Client& client, BinderOptions options)
      : client_(client), options_(std::move(options)), core_(options_.core) {}

  ~Impl() { Stop(); }

  Result<void> Run() {
    Result<void> result = Work();
    {
      std::lock_guard lock(mutex_);
      ended_ = true;
    }
    writes_changed_.notify_all();
    if (!result) client_.Stop();
    reflectors_.clear();
    {
      std::lock_guard lock(counts_mutex_);
      standing_.reset();
    }
    for (std::thread& writer : writers_) writer.join();
    writers_.clear();
    events_.reset();
    std::unique_ptr<Leader> leader;
    {
      std::lock_guard lock(leader_mutex_);
      leader.swap(leader_);
    }
    leader.reset();  // gives the lease back
    client_.Stop();
    return result;
  }

  void Stop() {
    {
      std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_all();
  }

  bool leading() const {
    if (!options_.leader) return won_;
    std::lock_guard lock(leader_mutex_);
    return won_ && !lost_ && leader_ != nullptr && leader_->leading();
  }
  bool synced() const { return all_synced_; }

  CoreCounts counts() const {
    std::lock_guard lock(counts_mutex_);
    return counts_;
  }

  std::string Metrics() {
    const CoreCounts c = counts();
    std::string text;
    const auto add = [&](const char* name, const char* type, const char* help, auto value) {
      text += fmt::format(
          "# HELP baton_binder_{0} {1}\n# TYPE baton_binder_{0} {2}\n"
          "baton_binder_{0} {3}\n",
          name, help, type, value);
    };
    add("leading", "gauge", "Whether this replica holds the lease.", leading() ? 1 : 0);
    add("synced", "gauge", "Whether all kinds have been listed.", synced() ? 1 : 0);
    add("waiting_pods", "gauge", "Pods and SharePods that wait for room.", c.waiting);
    add("placed_pods", "gauge", "Pods and SharePods that have a place.", c.placed);
    add("unbooked_pods", "gauge", "Bound pods whose GPUs could not be reserved.", c.unbooked);
    add("writes_in_flight", "gauge", "Writes that were sent and not answered.", c.in_flight);
    add("rounds_total", "counter", "Scheduling rounds.", c.rounds);
    add("decisions_total", "counter", "Placement decisions.", c.decided);
    add("bindings_total", "counter", "Bindings.", c.bound);
    add("displaced_total", "counter",
        "Pods preempted for a higher PriorityClass or a team's guarantee.", c.displaced);
    add("conflicts_total", "counter", "Writes that failed with a conflict.", c.conflicts);
    add("failures_total", "counter", "Writes that failed otherwise.", c.failures);
    {
      std::lock_guard lock(counts_mutex_);
      const auto age = standing_ ? standing_->age_s() : std::nullopt;
      if (age) {
        add("standing_age_seconds", "gauge",
            "Time since the central batond said what teams have used.", *age);
      }
    }
    add("steps_total", "counter", "Steps of the binder's core.", steps_.load());
    add("step_seconds_total", "counter", "Total time of the steps.",
        static_cast<double>(step_ns_.load()) / 1e9);
    add("step_seconds_max", "gauge", "Longest step.",
        static_cast<double>(step_ns_max_.load()) / 1e9);
    return text + ClusterMetrics();
  }

 private:
  struct Kind {
    Watched kind;
    Resource resource;
    // Without it less can be decided, but something can.
    bool optional;
  };

  static std::vector<Kind> AllKinds() {
    return {
        {Watched::kNode, resources::kNodes, false},
        {Watched::kGpuNode, resources::kGpuNodes, false},
        {Watched::kPod, resources::kPods, false},
        {Watched::kSharePod, resources::kSharePods, false},
        {Watched::kPriorityClass, resources::kPriorityClasses, true},
        {Watched::kClaim, kClaims, true},
        {Watched::kVolume, {"", "v1", "persistentvolumes", "PersistentVolume", false}, true},
        {Watched::kStorageClass,
         {"storage.k8s.io", "v1", "storageclasses", "StorageClass", false},
         true},
        {Watched::kQuota, resources::kResourceQuotas, true},
        {Watched::kTeam, resources::kTeams, true},
    };
  }

  // Of the core's thread, which is asked for them; none where it has not answered in time.
  std::string ClusterMetrics() {
    if (!synced()) return "";
    const auto said = std::make_shared<std::promise<std::string>>();
    std::future<std::string> text = said->get_future();
    Push([said, flavors = options_.core.inject.flavors](Core& core) {
      said->set_value(GpuMetrics(core.cluster()) + FlavorMetrics(core.cluster(), flavors) +
                      PendingMetrics(core.Pending()));
    });
    return text.wait_for(kMetricsPatience) == std::future_status::ready ? text.get() : "";
  }

  Result<void> Work() {
    if (options_.leader) {
      auto leader = std::make_unique<Leader>(
          client_, *options_.leader,
          [this] {
            spdlog::info("leading: acquired lease {}", options_.leader->lease.Text());
            won_ = true;
            changed_.notify_all();
          },
          [this](const std::string& why) {
            {
              std::lock_guard lock(mutex_);
              lost_why_ = why;
            }
            lost_ = true;
            changed_.notify_all();
          });
      {
        std::lock_guard lock(leader_mutex_);
        leader_ = std::move(leader);
      }
      spdlog::info("waiting for lease {} as {}", options_.leader->lease.Text(),
                   options_.leader->identity);
    } else {
      won_ = true;
    }
    const bool warm = options_.self && options_.leader;
    if (warm) Watch();
    if (!warm) {
      std::unique_lock lock(mutex_);
      // `won_` is set by another thread without the lock, so it is looked at now and then too.
      while (!stopped_ && !lost_ && !won_) {
        changed_.wait_for(lock, std::chrono::milliseconds(100));
      }
      if (stopped_) return {};
    }
    if (!warm) {
      StartWriting();
      Watch();
    }
    if (options_.standing) {
      auto standing = StandingSource::Start(*options_.standing, [this](devmgr::Standings told) {
        Push([told = std::move(told)](Core& core) { core.SetStandings(told); });
      });
      if (!standing) return tl::unexpected(standing.error());
      std::lock_guard lock(counts_mutex_);
      standing_ = *std::move(standing);
    }
    Instant next = kNever;
    bool fenced = !warm;
    for (;;) {
      if (!fenced && won_ && !lost_ && Fence()) {
        fenced = true;
        next = MonotonicNow();  // there may be nothing new to hear of
      }
      std::deque<std::function<void(Core&)>> inputs;
      {
        std::unique_lock lock(mutex_);
        while (!stopped_ && !lost_ && inputs_.empty() && MonotonicNow() < next) {
          const Duration rest =
              next == kNever ? Duration(std::chrono::seconds(1)) : Duration(next - MonotonicNow());
          const Duration most = fenced ? Duration(std::chrono::seconds(1)) : kStandbyLook;
          changed_.wait_for(lock, std::clamp<Duration>(rest, Duration(0), most));
          if (!fenced && won_) break;
          if (fenced && options_.leader && !leading()) break;
        }
        if (stopped_) return {};
        if (lost_ || (won_ && options_.leader && !leading())) {
          return Fail(ErrorCode::kUnavailable,
                      "lost the lease; writes have stopped: " +
                          (lost_why_.empty() ? "it was not renewed in time" : lost_why_));
        }
        inputs.swap(inputs_);
      }
      for (auto& input : inputs) input(core_);
      TellSynced(fenced);
      const Instant start = MonotonicNow();
      Effects effects = core_.Step({start, std::time(nullptr)});
      Dispatch(std::move(effects));
      next = core_.next();
      const uint64_t took = static_cast<uint64_t>(Nanos(MonotonicNow() - start));
      ++steps_;
      step_ns_ += took;
      if (took > step_ns_max_) step_ns_max_ = took;
      {
        std::lock_guard lock(counts_mutex_);
        counts_ = core_.counts();
      }
      for (const std::string& trouble : core_.TakeTroubles()) spdlog::warn("{}", trouble);
    }
  }

  // Whether the watch of pods has shown what this binder wrote to its own pod after it had won.
  bool Fence() {
    if (fence_.empty()) {
      if (MonotonicNow() < fence_again_) return false;
      StartWriting();
      const auto done = client_.Patch(
          resources::kPods, *options_.self, PatchKind::kMerge,
          {{"metadata", {{"annotations", {{"baton.dev/leads-as", options_.leader->identity}}}}}});
      if (!done) {
        spdlog::warn("cannot write to the binder's own pod {}: {}; trying again",
                     options_.self->Text(), done.error().message);
        fence_again_ = MonotonicNow() + std::chrono::seconds(1);
        return false;
      }
      fence_ = ResourceVersionOf(*done);
    }
    return self_seen_ == fence_ || IsOlderVersion(fence_, self_seen_);
  }

  // Of the core's thread.
  void TellSynced(bool fenced) {
    if (all_synced_ || !fenced) return;
    for (const bool one : synced_kinds_) {
      if (!one) return;
    }
    spdlog::info("cluster known; scheduling starts");
    all_synced_ = true;
    core_.Synced();
  }

  void StartWriting() {
    if (events_) return;
    EventRecorderOptions events = options_.events;
    events.may_write = [this] { return leading(); };
    events_ = std::make_unique<EventRecorder>(client_, std::move(events));
    for (uint32_t i = 0; i < options_.writers; ++i) writers_.emplace_back([this] { WriteAll(); });
  }

  void Watch() {
    for (Kind& entry : kinds_) {
      const Watched kind = entry.kind;
      ReflectorSink sink;
      sink.changed = [this, kind](Json object) {
        Push([this, kind, object = std::make_shared<Json>(std::move(object))](Core& core) {
          if (kind == Watched::kPod && options_.self && NameOf(*object) == *options_.self) {
            self_seen_ = ResourceVersionOf(*object);
          }
          core.Changed(kind, std::move(*object));
        });
      };
      sink.gone = [this, kind](Json object) {
        Push([kind, object = std::make_shared<Json>(std::move(object))](Core& core) {
          core.Gone(kind, *object);
        });
      };
      sink.synced = [this, kind] { Synced(kind); };
      sink.trouble = [this, kind, entry](const std::string& why) {
        const bool custom = entry.resource.group == resources::kSharePods.group &&
                            why.find("404") != std::string::npos;
        LogTrouble(entry.resource.plural,
                   why + (custom ? "; apply Baton's CustomResourceDefinitions" : ""));
        if (entry.optional && IsAbsent(why)) Synced(kind);
      };
      ReflectorOptions watch = options_.watches;
      if (kind == Watched::kPod) watch.list.project = ProjectPod;
      if (kind == Watched::kNode) watch.list.project = ProjectNode;
      reflectors_.push_back(
          std::make_unique<Reflector>(client_, entry.resource, watch, std::move(sink)));
    }
  }

  void Push(std::function<void(Core&)> input) {
    {
      std::lock_guard lock(mutex_);
      inputs_.push_back(std::move(input));
    }
    changed_.notify_all();
  }

  void Synced(Watched kind) {
    Push([this, kind](Core&) { synced_kinds_[static_cast<size_t>(kind)] = true; });
  }

  void Dispatch(Effects effects) {
    for (Note& note : effects.notes) {
      events_->Record(note.about, note.warning ? "Warning" : "Normal", note.reason, note.action,
                      note.text);
    }
    if (effects.writes.empty()) return;
    {
      std::lock_guard lock(mutex_);
      for (Write& write : effects.writes) writes_.push_back(std::move(write));
    }
    writes_changed_.notify_all();
  }

  void WriteAll() {
    for (;;) {
      Write write;
      {
        std::unique_lock lock(mutex_);
        writes_changed_.wait(lock, [&] { return ended_ || !writes_.empty(); });
        if (ended_) return;
        write = std::move(writes_.front());
        writes_.pop_front();
      }
      WriteResult result;
      result.id = write.id;
      if (leading()) {
        auto done = Carry(write);
        result.done = done.has_value();
        if (done) {
          result.object = *std::move(done);
          const bool pod = write.kind != WriteKind::kStatus &&
                           write.kind != WriteKind::kTeamStatus &&
                           write.kind != WriteKind::kSelectNode;
          if (pod) ProjectPod(result.object);
        } else {
          result.error = done.error();
          result.missing = result.error.not_found() && IsMissing(write);
        }
      } else {
        result.error.message = "the lease is not held";
      }
      Push([result = std::make_shared<WriteResult>(std::move(result))](Core& core) {
        core.Done(std::move(*result));
      });
    }
  }

  bool IsMissing(const Write& write) {
    const auto pod = client_.Get(resources::kPods, write.name);
    if (pod) return UidOf(*pod) != write.uid;
    return pod.error().not_found() && pod.error().about == "pods/" + write.name.name;
  }

  ApiResult<Json> Carry(const Write& write) {
    switch (write.kind) {
      case WriteKind::kStatus:
        return client_.Update(resources::kSharePods, write.name, write.body, "status");
      case WriteKind::kTeamStatus:
        return client_.Update(resources::kTeams, write.name, write.body, "status");
      case WriteKind::kCreateChild:
        return client_.Create(resources::kPods, write.name, write.body);
      case WriteKind::kBind:
        return client_.Create(resources::kPods, write.name, write.body, "binding");
      case WriteKind::kPatchPod:
        return client_.Patch(resources::kPods, write.name, PatchKind::kMerge, write.body);
      case WriteKind::kPodCondition:
        return client_.Patch(resources::kPods, write.name, PatchKind::kStrategic, write.body,
                             "status");
      case WriteKind::kEvict:
        return client_.Create(resources::kPods, write.name, write.body, "eviction");
      case WriteKind::kSelectNode:
        return client_.Patch(kClaims, {write.name.name_space, write.claim}, PatchKind::kMerge,
                             write.body);
      case WriteKind::kDeletePod:
        return client_.Delete(resources::kPods, write.name, write.uid, -1,
                              TextAt(write.body, "resourceVersion"));
    }
    return Json();
  }

  Client& client_;
  const BinderOptions options_;
  Core core_;  // of Run()'s thread
  std::vector<Kind> kinds_ = AllKinds();
  std::array<bool, kWatchedKinds> synced_kinds_{};
  std::string self_seen_;  // the version of its own pod that the watch has shown
  std::string fence_;      // that of what it wrote when it had won
  Instant fence_again_{};  // after it could not
  mutable std::mutex leader_mutex_;
  std::unique_ptr<Leader> leader_;
  std::unique_ptr<EventRecorder> events_;
  std::vector<std::unique_ptr<Reflector>> reflectors_;
  std::vector<std::thread> writers_;
  std::atomic<bool> won_ = false;
  std::atomic<bool> lost_ = false;
  std::atomic<bool> all_synced_ = false;
  std::atomic<uint64_t> steps_ = 0;
  std::atomic<uint64_t> step_ns_ = 0;
  std::atomic<uint64_t> step_ns_max_ = 0;

  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::condition_variable writes_changed_;
  std::deque<std::function<void(Core&)>> inputs_;
  std::deque<Write> writes_;
  std::string lost_why_;
  bool stopped_ = false;
  bool ended_ = false;

  mutable std::mutex counts_mutex_;  // of what follows
  CoreCounts counts_;
  std::unique_ptr<StandingSource> standing_;
};

Binder::Binder(Client& client, BinderOptions options)
    : impl_(std::make_unique<Impl>(client, std::move(options))) {}
Binder::~Binder() = default;

Result<void> Binder::Run() { return impl_->Run(); }
void Binder::Stop() { impl_->Stop(); }
bool Binder::leading() const { return impl_->leading(); }
bool Binder::synced() const { return impl_->synced(); }
CoreCounts Binder::counts() const { return impl_->counts(); }
std::string Binder::Metrics() const { return impl_->Metrics(); }

}  // namespace baton::k8s
