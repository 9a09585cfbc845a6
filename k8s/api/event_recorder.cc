#include "k8s/api/event_recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <tuple>

#include "base/utf8.h"
#include "k8s/api/timestamp.h"

namespace baton::k8s {
namespace {

// What is remembered of objects and of events; the oldest are forgotten first.
constexpr size_t kRemembered = 4'096;
constexpr size_t kNoteMax = 1'024;
constexpr size_t kWordMax = 128;
constexpr Duration kLastWords = std::chrono::seconds(1);

}  // namespace

class EventRecorder::Impl {
 public:
  Impl(Client& client, EventRecorderOptions options)
      : client_(client), options_(std::move(options)), thread_([this] { Run(); }) {}
  ~Impl();

  void Record(const Json& about, const std::string& type, const std::string& reason,
              const std::string& action, const std::string& note);
  uint64_t dropped() const { return dropped_; }

 private:
  using Key = std::tuple<std::string, std::string, std::string, std::string>;
  struct Series {
    Json event;          // as it is written
    uint64_t count = 1;  // how often it happened
    uint64_t told = 0;   // how often the API server knows of
    bool queued = false;
    Instant last{};  // when it happened last
    std::chrono::system_clock::time_point last_time;
  };
  struct Budget {
    double tokens = 0;
    Instant at{};
  };
  // A copy of what is to be written, so that nothing is locked meanwhile.
  struct Work {
    Json event;
    bool create = false;
    uint64_t count = 1;
    std::chrono::system_clock::time_point last_time;
  };

  void Run();
  void Queue(const Key& key, Series& series);
  void CloseOld(Instant now);
  bool Affords(const std::string& object, Instant now);
  bool Write(const Work& work);

  Client& client_;
  const EventRecorderOptions options_;
  std::atomic<uint64_t> dropped_{0};

  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;  // what is queued is written, and nothing more
  bool over_ = false;    // not even that
  bool idle_ = true;
  uint64_t serial_ = 0;
  std::map<Key, Series> series_;
  std::map<std::string, Budget> budgets_;
  std::deque<Key> queue_;
  // A client of its own: events never wait before what matters more, nor it for them.
  std::unique_ptr<Client> own_;
  std::thread thread_;
};

EventRecorder::Impl::~Impl() {
  {
    std::unique_lock lock(mutex_);
    // The counts that were not told yet.
    for (auto& [key, series] : series_) {
      if (series.count > series.told) Queue(key, series);
    }
    ending_ = true;
    changed_.notify_all();
    changed_.wait_for(lock, kLastWords, [this] { return queue_.empty() && idle_; });
    dropped_ += queue_.size();
    queue_.clear();
    over_ = true;
    if (own_) own_->Stop();
  }
  thread_.join();
}

bool EventRecorder::Impl::Affords(const std::string& object, Instant now) {
  if (budgets_.size() >= kRemembered && !budgets_.contains(object)) {
    // Those that are full again know nothing.
    std::erase_if(budgets_, [&](const auto& entry) {
      return now - entry.second.at >= options_.interval * options_.burst;
    });
    if (budgets_.size() >= kRemembered) {
      budgets_.erase(
          std::min_element(budgets_.begin(), budgets_.end(),
                           [](const auto& a, const auto& b) { return a.second.at < b.second.at; }));
    }
  }
  const auto [at, fresh] = budgets_.try_emplace(object);
  Budget& budget = at->second;
  if (fresh) {
    budget.tokens = options_.burst;
  } else if (options_.interval > Duration(0)) {
    budget.tokens = std::min<double>(
        options_.burst, budget.tokens + static_cast<double>(Nanos(now - budget.at)) /
                                            static_cast<double>(Nanos(options_.interval)));
  }
  budget.at = now;
  if (budget.tokens < 1) return false;
  budget.tokens -= 1;
  return true;
}

void EventRecorder::Impl::Queue(const Key& key, Series& series) {
  if (series.queued) return;
  if (queue_.size() >= options_.queue) {
    ++dropped_;
    return;
  }
  series.queued = true;
  queue_.push_back(key);
  changed_.notify_all();
}

// Tells the last count of series that have ended, and forgets them.
void EventRecorder::Impl::CloseOld(Instant now) {
  for (auto at = series_.begin(); at != series_.end();) {
    Series& series = at->second;
    if (series.queued || now - series.last < options_.same) {
      ++at;
    } else if (series.told > 0 && series.count > series.told && queue_.size() < options_.queue) {
      Queue(at->first, series);
      ++at;
    } else {
      at = series_.erase(at);
    }
  }
}

void EventRecorder::Impl::Record(const Json& about, const std::string& type,
                                 const std::string& reason, const std::string& action,
                                 const std::string& note) {
  const ObjectName name = NameOf(about);
  if (name.name.empty()) {
    ++dropped_;
    return;
  }
  const Instant now = MonotonicNow();
  const auto time = std::chrono::system_clock::now();
  const std::string object = TextAt(about, "kind") + " " + name.Text() + " " + UidOf(about);
  const std::string text = CutUtf8(note, kNoteMax);
  const Key key{object, type, reason, text};
  const std::lock_guard lock(mutex_);
  if (ending_) return;
  if (const auto known = series_.find(key);
      known != series_.end() && now - known->second.last < options_.same) {
    Series& series = known->second;
    ++series.count;
    series.last = now;
    series.last_time = time;
    // Ever more seldom, as it happens ever more often: 2, 4, 8...
    if ((series.count & (series.count - 1)) == 0) Queue(key, series);
    return;
  }
  if (!Affords(object, now) || queue_.size() >= options_.queue) {
    ++dropped_;
    return;
  }
  if (series_.size() >= kRemembered) {
    CloseOld(now);
    if (series_.size() >= kRemembered) {
      ++dropped_;
      return;
    }
  }
  const std::string& instance = options_.instance.empty() ? options_.controller : options_.instance;
  const int64_t nanos = std::chrono::nanoseconds(time.time_since_epoch()).count();
  Series series;
  series.last = now;
  series.last_time = time;
  series.event = {
      {"apiVersion", resources::kEvents.ApiVersion()},
      {"kind", resources::kEvents.kind},
      {"metadata",
       {{"name", fmt::format("{}.{:x}{:02x}", CutUtf8(name.name, 200), nanos, serial_++ & 0xff)},
        {"namespace", name.name_space.empty() ? "default" : name.name_space}}},
      {"eventTime", MicroTimestamp(time)},
      {"type", type},
      {"reason", CutUtf8(reason, kWordMax)},
      {"action", CutUtf8(action.empty() ? reason : action, kWordMax)},
      {"note", text},
      {"reportingController", options_.controller},
      {"reportingInstance", CutUtf8(instance, kWordMax)},
      {"regarding",
       {{"apiVersion", TextAt(about, "apiVersion")},
        {"kind", TextAt(about, "kind")},
        {"name", name.name},
        {"uid", UidOf(about)},
        {"resourceVersion", ResourceVersionOf(about)}}},
  };
  if (!name.name_space.empty()) series.event["regarding"]["namespace"] = name.name_space;
  Queue(key, series_.insert_or_assign(key, std::move(series)).first->second);
}

bool EventRecorder::Impl::Write(const Work& work) {
  if (options_.may_write && !options_.may_write()) return false;
  if (!own_) {
    ClientOptions options = client_.options();
    options.connections_max = 1;
    options.timeout = std::min<Duration>(options.timeout, std::chrono::seconds(5));
    options.attempt_timeout = std::min(options.attempt_timeout, options.timeout);
    options.seed = 0;
    auto made = Client::Make(client_.config(), options);
    if (!made) return false;
    const std::lock_guard lock(mutex_);
    own_ = std::move(*made);
    if (over_) own_->Stop();
  }
  const ObjectName name = NameOf(work.event);
  if (work.create) return own_->Create(resources::kEvents, name, work.event).has_value();
  const Json patch{
      {"series", {{"count", work.count}, {"lastObservedTime", MicroTimestamp(work.last_time)}}}};
  const auto patched = own_->Patch(resources::kEvents, name, PatchKind::kMerge, patch);
  if (patched) return true;
  // API servers forget events after an hour.
  if (!patched.error().not_found()) return false;
  Json again = work.event;
  again.update(patch);
  return own_->Create(resources::kEvents, name, again).has_value();
}

void EventRecorder::Impl::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    if (queue_.empty()) {
      if (ending_) return;
      changed_.wait_for(
          lock, std::min<Duration>(std::max<Duration>(options_.same, std::chrono::milliseconds(10)),
                                   std::chrono::seconds(10)));
      CloseOld(MonotonicNow());
      continue;
    }
    const Key key = std::move(queue_.front());
    queue_.pop_front();
    const auto at = series_.find(key);
    if (at == series_.end()) continue;
    at->second.queued = false;
    Work work{at->second.event, at->second.told == 0, at->second.count, at->second.last_time};
    // One that was created says nothing of how often it happened.
    const uint64_t tells = work.create ? 1 : work.count;
    idle_ = false;
    lock.unlock();
    const bool written = Write(work);
    lock.lock();
    idle_ = true;
    const auto after = series_.find(key);
    if (!written) {
      ++dropped_;
      // The next time it happens it is new again.
      if (after != series_.end() && work.create) series_.erase(after);
    } else if (after != series_.end()) {
      after->second.told = tells;
      if (tells < after->second.count && (ending_ || work.create)) Queue(key, after->second);
    }
    changed_.notify_all();
  }
}

EventRecorder::EventRecorder(Client& client, EventRecorderOptions options)
    : impl_(std::make_unique<Impl>(client, std::move(options))) {}
EventRecorder::~EventRecorder() = default;
void EventRecorder::Record(const Json& about, const std::string& type, const std::string& reason,
                           const std::string& action, const std::string& note) {
  impl_->Record(about, type, reason, action, note);
}
uint64_t EventRecorder::dropped() const { return impl_->dropped(); }

}  // namespace baton::k8s
