#include "cli/contention.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <functional>
#include <queue>
#include <sstream>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/file.h"

namespace baton::cli {
namespace {

constexpr Duration kPatience = std::chrono::seconds(5);
constexpr Duration kEchoEvery = std::chrono::milliseconds(1);
constexpr Duration kProgressEvery = std::chrono::milliseconds(250);

struct Runner {
  enum class At : uint8_t { kRests, kWaits, kHolds };
  At at = At::kRests;
  Instant since{};     // it waits
  Instant next_ask{};  // not before
  uint64_t grants = 0;
};

struct Gpu {
  size_t waiting = 0;
  Instant returned_at = kNever;  // while others waited, and nobody has been granted since
  uint64_t grants = 0;
};

double OwnProcessor() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// The process at the other end of a unix socket; 0: not known here.
pid_t PeerOf(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? peer.pid : 0;
}

std::optional<double> ProcessorOf(pid_t pid) {
  if (pid <= 0) return std::nullopt;
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t name_ends = text.rfind(')');
  if (name_ends == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_ends + 1));
  std::string skipped;
  for (int i = 3; i < 14; ++i) fields >> skipped;
  uint64_t user = 0, kernel = 0;
  if (!(fields >> user >> kernel)) return std::nullopt;
  return static_cast<double>(user + kernel) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

class ByDescriptor : public Arrivals {
 public:
  explicit ByDescriptor(const std::vector<Contender>& contenders)
      : epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    for (size_t i = 0; i < contenders.size(); ++i) {
      epoll_event event{};
      event.events = EPOLLIN;
      event.data.u64 = i;
      BATON_CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, contenders[i].tenant.fd(), &event) == 0);
    }
  }
  bool Await(Instant until, const Hear& hear) override {
    const Duration left = std::max(Duration(0), until - MonotonicNow());
    const timespec timeout{left.count() / 1'000'000'000, left.count() % 1'000'000'000};
    pollfd ready{epoll_.get(), POLLIN, 0};
    if (ppoll(&ready, 1, &timeout, nullptr) <= 0) return true;
    epoll_event events[256];
    const int count = epoll_wait(epoll_.get(), events, std::size(events), 0);
    for (int i = 0; i < count; ++i) {
      const bool gone = (events[i].events & (EPOLLHUP | EPOLLERR)) != 0;
      if (!hear(events[i].data.u64, gone)) return false;
    }
    return true;
  }

 private:
  UniqueFd epoll_;
};

class Arena {
 public:
  Arena(std::vector<Contender>& contenders, const ContentionPlan& plan, Arrivals& arrivals)
      : contenders_(contenders),
        plan_(plan),
        arrivals_(arrivals),
        runners_(contenders.size()),
        gpus_(plan.gpus) {
    const Instant begin = MonotonicNow();
    for (size_t i = 0; i < contenders_.size(); ++i) {
      // Not all of them at once.
      const auto part = static_cast<int64_t>(i) * Nanos(plan_.ask_every) /
                        static_cast<int64_t>(contenders_.size());
      due_.emplace(begin + Duration(part), i);
    }
  }

  // False: the daemon is gone.
  bool Turn(Instant until) {
    while (!due_.empty() && due_.top().first <= MonotonicNow()) {
      const size_t i = due_.top().second;
      due_.pop();
      if (!Act(i)) return false;
    }
    const Instant next = due_.empty() ? until : std::min(until, due_.top().first);
    return arrivals_.Await(next, [this](size_t i, bool gone) { return Hear(i, gone); });
  }

  void Forget() {
    waits.clear();
    hand_offs.clear();
    for (Runner& r : runners_) r.grants = 0;
    for (Gpu& g : gpus_) g.grants = 0;
  }

  double LargestError() const {
    std::vector<size_t> pods(gpus_.size());
    for (const Contender& c : contenders_) ++pods[c.gpu];
    double largest = 0;
    for (size_t i = 0; i < runners_.size(); ++i) {
      const Gpu& gpu = gpus_[contenders_[i].gpu];
      if (gpu.grants == 0) continue;
      const double part =
          100.0 * static_cast<double>(runners_[i].grants) / static_cast<double>(gpu.grants);
      const double due = 100.0 / static_cast<double>(pods[contenders_[i].gpu]);
      largest = std::max(largest, std::abs(part - due));
    }
    return largest;
  }

  std::vector<Duration> waits;
  std::vector<Duration> hand_offs;

 private:
  // What is due for one that rests or holds.
  bool Act(size_t i) {
    Runner& runner = runners_[i];
    const Instant now = MonotonicNow();
    if (runner.at == Runner::At::kHolds) {
      Gpu& gpu = gpus_[contenders_[i].gpu];
      if (gpu.waiting > 0) gpu.returned_at = now;
      if (now < runner.next_ask) {
        runner.at = Runner::At::kRests;
        due_.emplace(runner.next_ask, i);
        return contenders_[i].tenant.Return();
      }
    }
    return Ask(i, now);
  }

  // It returns what it held in the same breath.
  bool Ask(size_t i, Instant now) {
    Runner& runner = runners_[i];
    runner.at = Runner::At::kWaits;
    runner.since = now;
    runner.next_ask = now + plan_.ask_every;
    ++gpus_[contenders_[i].gpu].waiting;
    return contenders_[i].tenant.Ask();
  }

  bool Hear(size_t i, bool gone) {
    Runner& runner = runners_[i];
    Contender& contender = contenders_[i];
    Gpu& gpu = gpus_[contender.gpu];
    if (gone || !contender.tenant.Serve()) return false;
    if (runner.at != Runner::At::kWaits || !contender.tenant.holding()) return true;
    const Instant now = MonotonicNow();
    waits.push_back(now - runner.since);
    if (gpu.returned_at != kNever) hand_offs.push_back(now - gpu.returned_at);
    gpu.returned_at = kNever;
    --gpu.waiting;
    ++gpu.grants;
    ++runner.grants;
    runner.at = Runner::At::kHolds;
    if (plan_.hold == Duration(0)) return Act(i);  // what it returns says that it has held
    due_.emplace(now + plan_.hold, i);
    return !plan_.confirms || contender.tenant.Confirm();
  }

  std::vector<Contender>& contenders_;
  const ContentionPlan& plan_;
  Arrivals& arrivals_;
  std::vector<Runner> runners_;
  std::vector<Gpu> gpus_;
  using Due = std::pair<Instant, size_t>;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;  // of those that do not wait
};

}  // namespace

Result<Contention> Contend(std::vector<Contender>& contenders, const ContentionPlan& plan,
                           Echo& echo, const std::function<void(double)>& progress) {
  prctl(PR_SET_TIMERSLACK, 1);
  const auto gone = [] {
    return Fail(ErrorCode::kUnavailable,
                "no token was granted within five seconds; is batond still there?");
  };
  Contention found;
  std::optional<ByDescriptor> by_descriptor;
  if (plan.arrivals == nullptr) by_descriptor.emplace(contenders);
  Arena arena(contenders, plan, plan.arrivals != nullptr ? *plan.arrivals : *by_descriptor);
  const pid_t daemon = plan.daemon != 0 ? plan.daemon : PeerOf(contenders.front().tenant.fd());

  std::atomic<bool> measuring{false}, done{false};
  std::thread echoes([&] {
    while (!done.load()) {
      std::this_thread::sleep_for(kEchoEvery);
      const Result<Duration> took = echo.RoundTrip(contenders.front().tenant.frame_size());
      if (took && measuring.load()) found.echoes.push_back(*took);
    }
  });
  struct Joined {
    std::atomic<bool>& done;
    std::thread& thread;
    ~Joined() {
      done.store(true);
      if (thread.joinable()) thread.join();
    }
  } joined{done, echoes};

  const Instant begin = MonotonicNow();
  const Instant from = begin + plan.length / 10, to = from + plan.length;
  Instant heard = begin, said = begin, measured_from{};
  double own = 0;
  std::optional<double> daemons;
  for (Instant now = begin; now < to; now = MonotonicNow()) {
    if (measured_from == Instant{} && now >= from) {
      arena.Forget();
      measured_from = now;
      own = OwnProcessor();
      daemons = ProcessorOf(daemon);
      measuring.store(true);
    }
    const size_t grants = arena.waits.size();
    if (!arena.Turn(std::min(to, now + kProgressEvery))) return gone();
    if (arena.waits.size() != grants) heard = MonotonicNow();
    if (MonotonicNow() - heard > kPatience) return gone();
    if (now - said >= kProgressEvery) {
      said = now;
      progress(static_cast<double>(Nanos(now - begin)) / static_cast<double>(Nanos(to - begin)));
    }
  }
  found.length = MonotonicNow() - measured_from;
  const double seconds = static_cast<double>(Nanos(found.length)) / 1e9;
  found.own_processor = (OwnProcessor() - own) / seconds;
  if (const std::optional<double> now = ProcessorOf(daemon); now && daemons) {
    found.daemon_processor = (*now - *daemons) / seconds;
  }
  done.store(true);
  echoes.join();
  found.waits = std::move(arena.waits);
  found.hand_offs = std::move(arena.hand_offs);
  found.grants = found.waits.size();
  found.largest_error = arena.LargestError();
  progress(1);
  return found;
}

}  // namespace baton::cli
