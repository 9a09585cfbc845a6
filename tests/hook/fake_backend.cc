#include "tests/hook/fake_backend.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <utility>

#include "base/check.h"
#include "tests/wire/passed_files.h"
#include "wire/codec.h"

namespace baton::hook {
namespace {
constexpr auto kPatience = std::chrono::seconds(10);
}

FakeBackend::FakeBackend(std::string path) : path_(std::move(path)) {
  limits_.idle_ns = 2'000'000;
  limits_.backlog_ns = 2'000'000;
  limits_.heartbeat_ns = 50'000'000;
  limits_.open_after_ns = 100'000'000;
  unlink(path_.c_str());
  listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  BATON_CHECK(path_.size() < sizeof(address.sun_path));
  path_.copy(address.sun_path, path_.size());
  BATON_CHECK(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  BATON_CHECK(listen(listener_, 64) == 0);
  BATON_CHECK(pipe(wake_) == 0);
  thread_ = std::thread([this] { Run(); });
}

FakeBackend::~FakeBackend() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  BATON_CHECK(write(wake_[1], "x", 1) == 1);
  thread_.join();
  close(listener_);
  close(wake_[0]);
  close(wake_[1]);
  unlink(path_.c_str());
}

void FakeBackend::Run() {
  for (;;) {
    int peer;
    {
      std::lock_guard lock(mutex_);
      if (stop_) break;
      peer = peer_;
    }
    pollfd fds[3] = {{wake_[0], POLLIN, 0}, {listener_, POLLIN, 0}, {peer, POLLIN, 0}};
    poll(fds, 3, -1);
    char bytes[wire::kTenantFrameMax];
    if (fds[0].revents != 0) BATON_CHECK(read(wake_[0], bytes, 1) == 1);
    if ((fds[1].revents & POLLIN) != 0) {
      const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      std::lock_guard lock(mutex_);
      if (peer_ >= 0) close(peer_);
      peer_ = fd;
      continue;
    }
    if (peer >= 0 && fds[2].revents != 0) {
      UniqueFd file;
      const ssize_t n = wire::ReceiveWithFile(peer, bytes, sizeof(bytes), file);
      std::lock_guard lock(mutex_);
      if (file) words_.push_back(std::move(file));
      if (peer != peer_) continue;
      if (n > 0) {
        OnFrame(bytes, static_cast<size_t>(n));
      } else if (n == 0 || errno == ECONNRESET) {
        close(peer_);
        peer_ = -1;
        gone_ = true;
      }
      changed_.notify_all();
    }
  }
  if (peer_ >= 0) close(peer_);
}

template <class Message>
void FakeBackend::Send(const Message& message) {
  char frame[wire::kTenantFrameMax];
  const size_t n = wire::Encode(message, frame, sizeof(frame));
  if (peer_ >= 0) (void)!send(peer_, frame, n, MSG_NOSIGNAL);
}

void FakeBackend::OnFrame(const char* data, size_t size) {
  wire::Frame frame;
  BATON_CHECK(frame.Parse(data, size) == wire::DecodeStatus::kOk);
  wire::Attach attach;
  wire::State state;
  wire::Memory memory;
  if (frame.Read(hello_)) {
    ++hellos_;
    incarnations_.insert(hello_.incarnation);
    gone_ = false;
    if (refuse_tickets_) {
      wire::Error error;
      error.kind = wire::ErrorKind::kUnknownPod;
      error.text = std::string_view("this ticket names no pod");
      return Send(error);
    }
    wire::Welcome welcome;
    welcome.client = 1;
    welcome.pod = std::string_view("test");
    Send(welcome);
  } else if (frame.Read(attach)) {
    uuid_ = attach.uuid.view();
    if (refuse_gpus_) {
      wire::Error error;
      error.kind = wire::ErrorKind::kUnknownGpu;
      return Send(error);
    }
    wire::Attached attached = limits_;
    attached.gpu = attach.gpu;
    attached.memory_cap = memory_cap_;
    Send(attached);
  } else if (frame.Read(state)) {
    states_.push_back(state);
    if (auto_quota_ns_ && state.phase == wire::Phase::kWaiting && state.epoch >= epoch_) {
      wire::Token token;
      token.gpu = state.gpu;
      token.epoch = epoch_ = state.epoch + 1;
      token.rev = 1;
      token.quota_ns = *auto_quota_ns_;
      token.contended = true;
      Send(token);
    }
  } else if (frame.Read(memory)) {
    wire::MemoryReply reply;
    reply.gpu = memory.gpu;
    reply.request = memory.request;
    reply.granted = memory.total <= memory_total_ || memory_cap_ == 0 ||
                    memory.total + memory_of_others_ <= memory_cap_;
    if (reply.granted) memory_total_ = memory.total;
    memory_refusals_ += !reply.granted || memory.refused != 0;
    reply.memory_cap = memory_cap_;
    reply.pod_used = memory_total_ + memory_of_others_;
    Send(reply);
  }
}

void FakeBackend::SetIdle(uint64_t ns) {
  std::lock_guard lock(mutex_);
  limits_.idle_ns = ns;
}
void FakeBackend::SetBacklog(uint64_t ns) {
  std::lock_guard lock(mutex_);
  limits_.backlog_ns = ns;
}

void FakeBackend::SetMemoryCap(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  memory_cap_ = bytes;
}

void FakeBackend::SetMemoryOfOthers(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  memory_of_others_ = bytes;
}

void FakeBackend::RefuseTickets() {
  std::lock_guard lock(mutex_);
  refuse_tickets_ = true;
}

void FakeBackend::RefuseGpus() {
  std::lock_guard lock(mutex_);
  refuse_gpus_ = true;
}

void FakeBackend::SetAutoQuota(std::optional<uint64_t> ns) {
  std::lock_guard lock(mutex_);
  auto_quota_ns_ = ns;
}

std::optional<wire::State> FakeBackend::WaitState(
    const std::function<bool(const wire::State&)>& match) {
  std::unique_lock lock(mutex_);
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  for (;;) {
    while (!states_.empty()) {
      const wire::State state = states_.front();
      states_.pop_front();
      if (match(state)) return state;
    }
    if (changed_.wait_until(lock, deadline) == std::cv_status::timeout) return std::nullopt;
  }
}

std::optional<wire::State> FakeBackend::WaitPhase(wire::Phase phase) {
  return WaitState([phase](const wire::State& s) { return s.phase == phase; });
}

void FakeBackend::SendToken(uint64_t epoch, uint64_t rev, uint64_t quota_ns, bool contended) {
  std::lock_guard lock(mutex_);
  wire::Token token;
  token.epoch = epoch_ = epoch;
  token.rev = rev;
  token.quota_ns = quota_ns;
  token.contended = contended;
  Send(token);
}

void FakeBackend::SendAhead(const wire::Token& token, int words) {
  std::lock_guard lock(mutex_);
  char frame[wire::kTenantFrameMax];
  const size_t size = wire::Encode(token, frame, sizeof(frame));
  if (peer_ >= 0) wire::SendWithFiles(peer_, {frame, size}, {words});
}

void FakeBackend::SendRaw(const std::string& frame) {
  std::lock_guard lock(mutex_);
  if (peer_ >= 0) (void)!send(peer_, frame.data(), frame.size(), MSG_NOSIGNAL);
}

void FakeBackend::SendError(wire::ErrorKind kind, const std::string& text) {
  std::lock_guard lock(mutex_);
  wire::Error error;
  error.kind = kind;
  error.text = std::string_view(text);
  Send(error);
}

void FakeBackend::Drop() {
  std::lock_guard lock(mutex_);
  if (peer_ >= 0) shutdown(peer_, SHUT_RDWR);
}

uint64_t FakeBackend::granted() {
  std::lock_guard lock(mutex_);
  return epoch_;
}

int FakeBackend::hellos() {
  std::lock_guard lock(mutex_);
  return hellos_;
}

wire::Hello FakeBackend::hello() {
  std::lock_guard lock(mutex_);
  return hello_;
}

size_t FakeBackend::incarnations() {
  std::lock_guard lock(mutex_);
  return incarnations_.size();
}

std::string FakeBackend::uuid() {
  std::lock_guard lock(mutex_);
  return uuid_;
}

uint64_t FakeBackend::memory_total() {
  std::lock_guard lock(mutex_);
  return memory_total_;
}

int FakeBackend::memory_refusals() {
  std::lock_guard lock(mutex_);
  return memory_refusals_;
}

std::vector<UniqueFd> FakeBackend::TakeWords() {
  std::lock_guard lock(mutex_);
  return std::exchange(words_, {});
}

bool FakeBackend::WaitHellos(int count) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, kPatience, [&] { return hellos_ >= count; });
}

bool FakeBackend::WaitGone() {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, kPatience, [&] { return gone_; });
}

}  // namespace baton::hook
