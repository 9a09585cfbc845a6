#include "k8s/dra/slice_publisher.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "base/hash.h"
#include "base/time.h"
#include "k8s/api/backoff.h"
#include "k8s/api/reflector.h"
#include "k8s/dra/slices.h"
#include "k8s/types/read.h"

namespace baton::k8s {
namespace {

constexpr Duration kSliceAgainMin = std::chrono::seconds(1);
constexpr Duration kSliceAgainMax = std::chrono::seconds(30);
constexpr const char* kShared = "allowMultipleAllocations";
constexpr const char* kSliceManager = "baton-dra";  // of the fields written here
// The mark of a slice without the devices whose taint the API server does not know.
constexpr std::string_view kTaintsDropped = "taints-dropped:";

std::string MarkOf(const Json& devices) { return fmt::format("{:016x}", HashOf(devices.dump())); }

size_t CountIn(const Json& devices, const char* field) {
  return static_cast<size_t>(std::count_if(devices.begin(), devices.end(), [&](const Json& one) {
    const Json* value = Find(one, field);
    return value != nullptr && !value->empty();
  }));
}

}  // namespace

class SlicePublisher::Impl {
 public:
  Impl(Client& client, std::string node, Duration retry_dropped)
      : client_(client), node_(std::move(node)), retry_dropped_(retry_dropped) {
    ReflectorOptions options;
    options.list.field_selector = "metadata.name=" + SliceNameOf(node_);
    ReflectorSink sink;
    sink.changed = [this](const Json& slice) { Saw(slice); };
    sink.gone = [this](const Json& slice) {
      const std::lock_guard lock(mutex_);
      gone_ = UidOf(slice);
      mark_.clear();
      shared_ = 0;
      Wake();
    };
    sink.synced = [this] {
      const std::lock_guard lock(mutex_);
      synced_ = true;
      Wake();
    };
    sink.trouble = [](const std::string& why) { LogTrouble("ResourceSlices", why); };
    watch_.emplace(client_, resources::kResourceSlices, options, std::move(sink));
    thread_ = std::thread([this] { Run(); });
  }
  ~Impl() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      Wake();
    }
    thread_.join();
    watch_.reset();
  }

  void SetDevices(Json devices) {
    const std::lock_guard lock(mutex_);
    if (devices_ == devices) return;
    devices_ = std::move(devices);
    Wake();
  }

 private:
  // With mutex_.
  void Wake() {
    changed_ = true;
    wake_.notify_all();
  }

  void Saw(const Json& slice) {
    const std::lock_guard lock(mutex_);
    const std::string version = ResourceVersionOf(slice);
    // The answer to a write may be read after the watch has told that the slice was deleted.
    if (UidOf(slice) == gone_ || IsOlderVersion(version, version_)) return;
    version_ = version;
    mark_ = SliceMarkOf(slice);
    shared_ = CountIn(ListAt(slice, "spec/devices"), kShared);
    generation_ = std::max(generation_, SliceGenerationOf(slice));
    Wake();
  }

  void Run() {
    Backoff backoff(kSliceAgainMin, kSliceAgainMax, HashOf(node_));
    std::string last;
    bool lacks = false;  // something of the slice that is there was dropped
    Instant next_look = MonotonicNow();
    std::unique_lock lock(mutex_);
    while (true) {
      const auto is_due = [&] { return stopping_ || (changed_ && synced_ && devices_); };
      if (lacks) {
        wake_.wait_for(lock, std::max(next_look - MonotonicNow(), Duration(0)), is_due);
      } else {
        wake_.wait(lock, is_due);
      }
      if (stopping_) return;
      changed_ = false;
      const Json devices = *devices_;
      const std::string mark = MarkOf(devices);
      const bool without_tainted = mark_ == std::string(kTaintsDropped) + mark;
      const bool written = mark_ == mark || without_tainted;
      lacks = written && (without_tainted || shared_ < CountIn(devices, kShared));
      if (written && !(lacks && MonotonicNow() >= next_look)) continue;
      lock.unlock();
      const std::string wrong = Write(devices, mark, written);
      if (std::exchange(last, wrong) != wrong && !client_.stopped()) {
        if (wrong.empty()) {
          spdlog::info("dra: the node's ResourceSlice is written");
        } else {
          spdlog::warn("dra: the node's ResourceSlice cannot be written: {}", wrong);
        }
      }
      lock.lock();
      changed_ = true;
      if (wrong.empty()) {
        backoff.Reset();
        next_look = MonotonicNow() + retry_dropped_;
        continue;
      }
      wake_.wait_for(lock, backoff.Next(), [&] { return stopping_; });
    }
  }

  // Why it could not be written; empty: it was. `written`: it is, and is written again only where
  // the API server keeps more of it by now.
  std::string Write(const Json& devices, const std::string& mark, bool written) {
    // A Node that was made anew has another uid.
    const auto node = client_.Get(resources::kNodes, {"", node_});
    if (!node) return node.error().message;
    const std::string uid = UidOf(*node);
    Json offered = devices;
    std::string as = mark;
    if (written || CountIn(devices, "taints") > 0) {
      // Without its taint a GPU is not to be seen for a moment: claims would get shares of it.
      const auto would = client_.DryApply(resources::kResourceSlices, {"", SliceNameOf(node_)},
                                          Slice(uid, devices, mark), kSliceManager);
      if (!would) return WhyNot(would.error());
      const Json& kept = ListAt(*would, "spec/devices");
      if (CountIn(kept, "taints") < CountIn(devices, "taints")) {
        offered = WithoutTainted(devices);
        as = std::string(kTaintsDropped) + mark;
      }
      const std::lock_guard lock(mutex_);
      const bool more = CountIn(kept, kShared) > 0 && shared_ < CountIn(offered, kShared);
      if (written && as == mark_ && !more) {
        TellShared(kept);
        return "";
      }
    }
    const auto slice = Apply(uid, offered, as);
    if (!slice) return WhyNot(slice.error());
    TellShared(ListAt(*slice, "spec/devices"));
    return "";
  }

  void TellShared(const Json& kept) {
    const bool shared = CountIn(kept, kShared) > 0 || kept.empty();
    if (std::exchange(told_whole_, !shared) || shared) return;
    spdlog::warn(
        "dra: the API server has no consumable capacity (feature gate DRAConsumableCapacity): a "
        "claim gets a GPU as a whole");
  }

  // The next one.
  Json Slice(const std::string& uid, const Json& devices, const std::string& mark) {
    const std::lock_guard lock(mutex_);
    return ResourceSliceOf(node_, uid, devices, generation_ + 1, mark);
  }

  ApiResult<Json> Apply(const std::string& uid, const Json& devices, const std::string& mark) {
    auto slice = client_.Apply(resources::kResourceSlices, {"", SliceNameOf(node_)},
                               Slice(uid, devices, mark), {}, true, kSliceManager);
    if (slice) Saw(*slice);
    return slice;
  }

  static std::string WhyNot(const ApiError& error) {
    if (!error.not_found()) return error.message;
    return error.message + "; ResourceSlices of resource.k8s.io/v1 need Kubernetes 1.34 or later";
  }

  Client& client_;
  const std::string node_;
  const Duration retry_dropped_;
  bool told_whole_ = false;  // of its thread

  std::mutex mutex_;  // of what follows
  std::condition_variable wake_;
  std::optional<Json> devices_;
  // Of the slice that is there; empty: there is none.
  std::string mark_;
  size_t shared_ = 0;  // its devices that several claims may have
  std::string version_;
  std::string gone_;         // uid of the last one that was deleted
  uint64_t generation_ = 0;  // the greatest that was seen or written
  bool synced_ = false;
  bool changed_ = false;
  bool stopping_ = false;

  std::optional<Reflector> watch_;
  std::thread thread_;
};

SlicePublisher::SlicePublisher(Client& client, std::string node, Duration retry_dropped)
    : impl_(std::make_unique<Impl>(client, std::move(node), retry_dropped)) {}
SlicePublisher::~SlicePublisher() = default;
void SlicePublisher::SetDevices(Json devices) { impl_->SetDevices(std::move(devices)); }

}  // namespace baton::k8s
