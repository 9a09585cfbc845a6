#include "cli/contention.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <sstream>
#include <thread>

namespace baton::cli {
namespace {

// Three frames each stay below what a daemon reads of a pod.
constexpr Duration kAskEvery = std::chrono::microseconds(400);
constexpr Duration kPatience = std::chrono::seconds(5);
constexpr Duration kEchoEvery = std::chrono::milliseconds(1);
constexpr Duration kProgressEvery = std::chrono::milliseconds(250);

struct Runner {
  enum class At : uint8_t { kRests, kWaits, kHolds };
  At at = At::kRests;
  Instant since{};     // it waits
  Instant until{};     // it holds, or rests
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

class Arena {
 public:
  Arena(std::vector<Contender>& contenders, size_t gpus, Duration hold)
      : contenders_(contenders), hold_(hold), runners_(contenders.size()), gpus_(gpus) {
    for (const Contender& c : contenders_) fds_.push_back({c.tenant.fd(), POLLIN, 0});
  }

  // False: the daemon is gone.
  bool Turn(Instant until) {
    for (size_t i = 0; i < runners_.size(); ++i) {
      if (runners_[i].at != Runner::At::kWaits && runners_[i].until <= MonotonicNow() && !Act(i)) {
        return false;
      }
    }
    Instant next = until;
    for (const Runner& r : runners_) {
      if (r.at != Runner::At::kWaits) next = std::min(next, r.until);
    }
    const Duration left = std::max(Duration(0), next - MonotonicNow());
    const timespec timeout{left.count() / 1'000'000'000, left.count() % 1'000'000'000};
    if (ppoll(fds_.data(), fds_.size(), &timeout, nullptr) <= 0) return true;
    for (size_t i = 0; i < fds_.size(); ++i) {
      if (fds_[i].revents != 0 && !Hear(i)) return false;
    }
    return true;
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
    Tenant& tenant = contenders_[i].tenant;
    Gpu& gpu = gpus_[contenders_[i].gpu];
    const Instant now = MonotonicNow();
    if (runner.at == Runner::At::kHolds) {
      if (gpu.waiting > 0) gpu.returned_at = now;
      if (now < runner.next_ask) {
        runner.at = Runner::At::kRests;
        runner.until = runner.next_ask;
        return tenant.Return();
      }
    }
    // It returns what it held in the same breath.
    runner.at = Runner::At::kWaits;
    runner.since = now;
    runner.next_ask = now + kAskEvery;
    ++gpu.waiting;
    return tenant.Ask();
  }

  bool Hear(size_t i) {
    Runner& runner = runners_[i];
    Contender& contender = contenders_[i];
    Gpu& gpu = gpus_[contender.gpu];
    if ((fds_[i].revents & (POLLHUP | POLLERR)) != 0 || !contender.tenant.Serve()) return false;
    if (runner.at != Runner::At::kWaits || !contender.tenant.holding()) return true;
    const Instant now = MonotonicNow();
    waits.push_back(now - runner.since);
    if (gpu.returned_at != kNever) hand_offs.push_back(now - gpu.returned_at);
    gpu.returned_at = kNever;
    --gpu.waiting;
    ++gpu.grants;
    ++runner.grants;
    runner.at = Runner::At::kHolds;
    runner.until = now + hold_;
    return contender.tenant.Confirm();
  }

  std::vector<Contender>& contenders_;
  const Duration hold_;
  std::vector<Runner> runners_;
  std::vector<Gpu> gpus_;
  std::vector<pollfd> fds_;
};

}  // namespace

Result<Contention> Contend(std::vector<Contender>& contenders, size_t gpus, Duration hold,
                           Duration length, Echo& echo,
                           const std::function<void(double)>& progress) {
  prctl(PR_SET_TIMERSLACK, 1);
  const auto gone = [] {
    return Fail(ErrorCode::kUnavailable,
                "no token was granted within five seconds; is batond still there?");
  };
  Contention found;
  Arena arena(contenders, gpus, hold);
  const pid_t daemon = PeerOf(contenders.front().tenant.fd());

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
  const Instant from = begin + length / 10, to = from + length;
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
