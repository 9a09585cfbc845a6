#include "k8s/api/leader.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <thread>

#include "base/check.h"
#include "k8s/api/backoff.h"
#include "k8s/api/timestamp.h"

namespace baton::k8s {

class Leader::Impl {
 public:
  Impl(Client& client, LeaderOptions options, std::function<void()> won,
       std::function<void(const std::string&)> lost)
      : client_(client),
        options_(std::move(options)),
        won_(std::move(won)),
        lost_(std::move(lost)),
        pause_(options_.retry, options_.retry, std::random_device{}()),
        thread_([this] { Run(); }) {
    BATON_CHECK(options_.retry < options_.renew_deadline &&
                options_.renew_deadline < options_.duration);
  }

  ~Impl() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
      if (own_) own_->Stop();
    }
    changed_.notify_all();
    thread_.join();
    if (held_) Release();
  }

  bool leading() const { return Nanos(MonotonicNow()) < until_.load(std::memory_order_acquire); }

 private:
  // What a look at the lease led to.
  struct Turn {
    bool ours = false;
    std::string other;  // who has it instead
    std::string why;    // neither: what went wrong
  };

  void Run();
  Turn Try();
  Turn Write(Json lease, bool create);
  void Release();
  bool Pause();
  bool Connect();
  bool ending() {
    const std::lock_guard lock(mutex_);
    return ending_ || client_.stopped();
  }
  // A lease's length in whole seconds, as the API has it: rather longer.
  int64_t Seconds() const {
    return std::max<int64_t>(1, std::chrono::ceil<std::chrono::seconds>(options_.duration).count());
  }

  Client& client_;
  const LeaderOptions options_;
  const std::function<void()> won_;
  const std::function<void(const std::string&)> lost_;
  // When leading() ends, in nanoseconds of the monotonic clock.
  std::atomic<int64_t> until_{INT64_MIN};

  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  // A client of its own: calls that wait for others' connections would be late.
  std::unique_ptr<Client> own_;

  // Of the thread.
  Backoff pause_;
  bool held_ = false;
  Json seen_;  // the lease as it was last
  std::string seen_version_;
  Instant seen_changed_{};
  Instant expires_{};  // another's lease, where nobody renews it
  std::thread thread_;
};

bool Leader::Impl::Connect() {
  if (own_) return true;
  ClientOptions options = client_.options();
  options.connections_max = 1;
  // Two attempts fit before the deadline, whatever the first one is lost in.
  options.attempt_timeout = std::max<Duration>(options_.renew_deadline / 3, Duration(1));
  options.timeout = options.attempt_timeout;
  options.backoff_max =
      std::max(options.backoff_min, std::min(options.backoff_max, options_.retry));
  options.seed = 0;
  auto made = Client::Make(client_.config(), options);
  const std::lock_guard lock(mutex_);
  if (made) own_ = std::move(*made);
  if (made && ending_) own_->Stop();
  return own_ != nullptr;
}

Leader::Impl::Turn Leader::Impl::Write(Json lease, bool create) {
  // Before the call: whoever sees what it wrote sees it later than this.
  const Instant began = MonotonicNow();
  const auto written = create ? own_->Create(resources::kLeases, options_.lease, lease)
                              : own_->Update(resources::kLeases, options_.lease, lease);
  if (!written) return {false, {}, written.error().message};
  seen_ = *written;
  seen_version_ = ResourceVersionOf(*written);
  seen_changed_ = began;
  until_.store(Nanos(began + options_.renew_deadline), std::memory_order_release);
  return {leading(), {}, "the API server was too slow"};
}

Leader::Impl::Turn Leader::Impl::Try() {
  if (!Connect()) return {false, {}, "a client for the lease could not be made"};
  const auto now = std::chrono::system_clock::now();
  const auto read = own_->Get(resources::kLeases, options_.lease);
  if (!read && !read.error().not_found()) return {false, {}, read.error().message};
  if (!read) {
    return Write(
        {{"apiVersion", resources::kLeases.ApiVersion()},
         {"kind", resources::kLeases.kind},
         {"metadata", {{"name", options_.lease.name}, {"namespace", options_.lease.name_space}}},
         {"spec",
          {{"holderIdentity", options_.identity},
           {"leaseDurationSeconds", Seconds()},
           {"acquireTime", MicroTimestamp(now)},
           {"renewTime", MicroTimestamp(now)},
           {"leaseTransitions", 0}}}},
        true);
  }
  if (ResourceVersionOf(*read) != seen_version_) {
    seen_ = *read;
    seen_version_ = ResourceVersionOf(*read);
    seen_changed_ = MonotonicNow();
  }
  const std::string holder = TextAt(seen_, "spec/holderIdentity");
  if (!holder.empty() && holder != options_.identity) {
    // Theirs may be longer than ours.
    Duration length = options_.duration;
    if (const Json* seconds = Find(seen_, "spec/leaseDurationSeconds");
        seconds != nullptr && seconds->is_number_integer()) {
      length = std::max<Duration>(
          length, std::chrono::seconds(std::clamp<int64_t>(seconds->get<int64_t>(), 0, 86'400)));
    }
    expires_ = seen_changed_ + length;
    if (held_ || MonotonicNow() < expires_) return {false, holder, {}};
  }
  Json lease = seen_;
  Json& spec = lease["spec"];
  if (!spec.is_object()) spec = Json::object();
  if (holder != options_.identity) {
    const Json* before = Find(spec, "leaseTransitions");
    const bool counted = before != nullptr && before->is_number_unsigned();
    spec["leaseTransitions"] = counted ? (before->get<uint64_t>() + 1) % INT32_MAX : 1;
    spec["acquireTime"] = MicroTimestamp(now);
  }
  spec["holderIdentity"] = options_.identity;
  spec["leaseDurationSeconds"] = Seconds();
  spec["renewTime"] = MicroTimestamp(now);
  return Write(std::move(lease), false);
}

bool Leader::Impl::Pause() {
  Instant until = MonotonicNow() + pause_.Next();
  // Who waits for a lease to run out looks at that moment.
  if (expires_ > MonotonicNow()) until = std::min(until, expires_);
  std::unique_lock lock(mutex_);
  // Stop() of the client wakes nobody here: it is looked at often enough.
  while (!ending_ && !client_.stopped() && MonotonicNow() < until) {
    changed_.wait_for(lock, std::min<Duration>(std::max(until - MonotonicNow(), Duration(1)),
                                               std::chrono::milliseconds(50)));
  }
  return !ending_ && !client_.stopped();
}

void Leader::Impl::Run() {
  while (!ending()) {
    const Turn turn = Try();
    if (turn.ours && !held_) {
      held_ = true;
      if (won_) won_();
    } else if (held_ && !turn.ours) {
      // An answer that failed is no loss yet; another holder, or the deadline, is.
      if (!turn.other.empty() || !leading()) {
        until_ = INT64_MIN;
        held_ = false;
        if (ending()) return;
        if (lost_) {
          lost_(turn.other.empty() ? fmt::format("the lease {} could not be renewed in time: {}",
                                                 options_.lease.Text(), turn.why)
                                   : fmt::format("the lease {} was taken by '{}'",
                                                 options_.lease.Text(), turn.other));
        }
        return;
      }
    }
    if (!Pause()) return;
  }
}

void Leader::Impl::Release() {
  // First nothing is written any more, then another may.
  until_ = INT64_MIN;
  ClientOptions options = client_.options();
  options.timeout = options.attempt_timeout = std::chrono::seconds(1);
  options.seed = 0;
  const auto client = Client::Make(client_.config(), options);
  if (!client) return;
  Json& spec = seen_["spec"];
  spec["holderIdentity"] = "";
  spec["leaseDurationSeconds"] = 1;
  spec["renewTime"] = MicroTimestamp(std::chrono::system_clock::now());
  // Where this fails the next one waits for the lease to run out.
  (void)(*client)->Update(resources::kLeases, options_.lease, seen_);
}

Leader::Leader(Client& client, LeaderOptions options, std::function<void()> won,
               std::function<void(const std::string& why)> lost)
    : impl_(std::make_unique<Impl>(client, std::move(options), std::move(won), std::move(lost))) {}
Leader::~Leader() = default;
bool Leader::leading() const { return impl_->leading(); }

}  // namespace baton::k8s
