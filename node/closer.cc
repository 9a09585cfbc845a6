#include "node/closer.h"

#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "base/no_signals.h"

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

namespace baton::node {
namespace {

constexpr size_t kThreadsMax = 256;
// The kernel ends its wait for a socket that lingers when there is a signal for the thread.
constexpr int kWakeUp = SIGURG;
constexpr timespec kWaitMax{0, 10'000'000};

struct Closing {
  std::vector<UniqueFd> files;
  std::string owner;  // who passed them; empty: nobody did
};

struct Closer {
  std::mutex mutex;
  std::condition_variable more;
  std::deque<Closing> work;
  size_t threads = 0, idle = 0;
  std::map<std::string, size_t> unclosed;  // messages, by owner
  std::atomic<size_t> unclosed_of_all{0};

  void Add(Closing closing);
  void Run();
  void Start();
};

// Never destroyed: its threads end with the process.
Closer& TheCloser() {
  static auto* const closer = new Closer;
  return *closer;
}

// With the mutex.
void Closer::Start() {
  if (threads == kThreadsMax) return;
  const NoSignals none;
  try {
    std::thread([this] { Run(); }).detach();
    ++threads;
  } catch (const std::system_error&) {
    // No more threads now: those that there are do it, or the next one that is started.
  }
}

void Closer::Add(Closing closing) {
  const std::lock_guard lock(mutex);
  if (!closing.owner.empty()) {
    ++unclosed[closing.owner];
    ++unclosed_of_all;
  }
  work.push_back(std::move(closing));
  if (idle > 0) {
    more.notify_one();
  } else if (threads == 0) {
    Start();
  }
}

void Closer::Run() {
  struct sigaction nothing {};
  nothing.sa_handler = [](int) {};
  nothing.sa_flags = SA_RESTART;
  sigaction(kWakeUp, &nothing, nullptr);
  sigset_t wake_up;
  sigemptyset(&wake_up);
  sigaddset(&wake_up, kWakeUp);
  pthread_sigmask(SIG_UNBLOCK, &wake_up, nullptr);
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = kWakeUp;
  event.sigev_notify_thread_id = static_cast<pid_t>(syscall(SYS_gettid));
  timer_t timer{};
  const bool timed = timer_create(CLOCK_MONOTONIC, &event, &timer) == 0;
  const auto wake_every = [&](timespec time) {
    const itimerspec each{time, time};
    if (timed) timer_settime(timer, 0, &each, nullptr);
  };
  std::unique_lock lock(mutex);
  // One waits for work while the others close.
  for (; idle == 0; lock.lock()) {
    ++idle;
    more.wait(lock, [this] { return !work.empty(); });
    --idle;
    Closing closing = std::move(work.front());
    work.pop_front();
    if (idle == 0) Start();
    lock.unlock();
    wake_every(kWaitMax);
    closing.files.clear();
    wake_every({});
    if (closing.owner.empty()) continue;
    const std::lock_guard counts(mutex);
    --unclosed_of_all;
    const auto of = unclosed.find(closing.owner);
    if (--of->second == 0) unclosed.erase(of);
  }
  --threads;
  if (timed) timer_delete(timer);
}

}  // namespace

void CloseElsewhere(UniqueFd socket) {
  if (!socket) return;
  shutdown(socket.get(), SHUT_RDWR);
  Closing closing;
  closing.files.push_back(std::move(socket));
  TheCloser().Add(std::move(closing));
}

void CloseElsewhere(boost::asio::posix::stream_descriptor& socket) {
  if (socket.is_open()) CloseElsewhere(UniqueFd(socket.release()));
}

bool ClosesTooSlowly(const std::string& owner) {
  Closer& closer = TheCloser();
  if (closer.unclosed_of_all.load(std::memory_order_relaxed) < kUnclosedMax) return false;
  const std::lock_guard lock(closer.mutex);
  const auto of = closer.unclosed.find(owner);
  return of != closer.unclosed.end() && of->second >= kUnclosedMax;
}

PassedFiles::PassedFiles(const msghdr& message, const std::string& owner) : owner_(owner) {
  auto* all = const_cast<msghdr*>(&message);
  for (cmsghdr* c = CMSG_FIRSTHDR(all); c != nullptr; c = CMSG_NXTHDR(all, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    for (size_t at = CMSG_LEN(0); at + sizeof(int) <= c->cmsg_len; at += sizeof(int)) {
      int fd;
      memcpy(&fd, reinterpret_cast<const char*>(c) + at, sizeof fd);
      files_.emplace_back(fd);
    }
  }
}

PassedFiles::~PassedFiles() {
  std::erase_if(files_, [](const UniqueFd& file) { return !file; });
  if (!files_.empty()) TheCloser().Add({std::move(files_), owner_});
}

}  // namespace baton::node
