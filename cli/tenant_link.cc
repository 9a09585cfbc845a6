#include "cli/tenant_link.h"

#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <tuple>
#include <utility>

#include "wire/codec.h"
#include "wire/control_client.h"

namespace baton::cli {
namespace {

class UnixTransport : public Transport {
 public:
  explicit UnixTransport(int fd) : fd_(fd) {}
  ~UnixTransport() override { close(fd_); }
  size_t Send(const char* frame, size_t size) override {
    ssize_t sent;
    do {
      sent = send(fd_, frame, size, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent == static_cast<ssize_t>(size) ? size : 0;
  }
  size_t Receive(char* frame, bool wait) override {
    ssize_t got;
    do {
      got = recv(fd_, frame, wire::kTenantFrameMax, wait ? 0 : MSG_DONTWAIT);
    } while (got < 0 && errno == EINTR);
    return got > 0 ? static_cast<size_t>(got) : 0;
  }
  int fd() const override { return fd_; }

 private:
  int fd_;
};

template <class Message>
bool SendMessage(Transport& transport, const Message& message) {
  char frame[wire::kTenantFrameMax];
  const size_t size = wire::Encode(message, frame, sizeof frame);
  return size != 0 && transport.Send(frame, size) != 0;
}

tl::unexpected<Error> Gone() {
  return Fail(ErrorCode::kUnavailable,
              "no answer within five seconds; does another pod hold the "
              "GPU's token, or is batond stopped?");
}

// Receives until a `Message` comes.
template <class Message>
Result<Message> Await(Transport& transport) {
  char buffer[wire::kTenantFrameMax];
  for (;;) {
    const size_t size = transport.Receive(buffer, /*wait=*/true);
    if (size == 0) return Gone();
    wire::Frame frame;
    if (frame.Parse(buffer, size) != wire::DecodeStatus::kOk) {
      return Fail(ErrorCode::kInternal, "batond sent a frame that this version cannot read");
    }
    Message message;
    if (frame.Read(message)) return message;
    wire::Error error;
    if (frame.Read(error)) return Fail(ErrorCode::kDenied, std::string(error.text.view()));
  }
}

}  // namespace

Result<std::unique_ptr<Transport>> ConnectTenant(const std::string& path) {
  const Result<int> fd = wire::ConnectUnix(path, SOCK_SEQPACKET);
  if (!fd) return tl::unexpected(fd.error());
  const timeval patience{5, 0};
  setsockopt(*fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  return std::make_unique<UnixTransport>(*fd);
}

Result<Tenant> Tenant::Attach(std::unique_ptr<Transport> transport, const std::string& ticket,
                              const std::string& uuid) {
  Tenant tenant(std::move(transport));
  wire::Hello hello;
  hello.ticket.Set(ticket);
  if (getrandom(&hello.incarnation, sizeof hello.incarnation, 0) < 0) hello.incarnation = getpid();
  hello.command.Set("baton bench");
  hello.hook_version.Set(BATON_VERSION);
  if (!SendMessage(*tenant.transport_, hello)) return Gone();
  const Result<wire::Welcome> welcome = Await<wire::Welcome>(*tenant.transport_);
  if (!welcome) return tl::unexpected(welcome.error());
  wire::Attach attach;
  attach.uuid.Set(uuid);
  if (!SendMessage(*tenant.transport_, attach)) return Gone();
  const Result<wire::Attached> attached = Await<wire::Attached>(*tenant.transport_);
  if (!attached) return tl::unexpected(attached.error());
  if (!attached->gated) {
    return Fail(ErrorCode::kUnavailable,
                "batond runs in mode observe and grants no tokens; there is nothing to measure");
  }
  return tenant;
}

size_t Tenant::SendState(wire::Phase phase) {
  state_.phase = phase;
  ++state_.seq;
  char frame[wire::kTenantFrameMax];
  const size_t size = wire::Encode(state_, frame, sizeof frame);
  return transport_->Send(frame, size);
}

bool Tenant::Ask() {
  frame_size_ = SendState(wire::Phase::kWaiting);
  return frame_size_ != 0;
}

bool Tenant::OnFrame(const char* data, size_t size) {
  wire::Frame frame;
  wire::Token token;
  if (frame.Parse(data, size) != wire::DecodeStatus::kOk || !frame.Read(token)) return true;
  if (std::tie(token.epoch, token.rev) <= std::tie(state_.epoch, state_.rev)) return true;
  state_.epoch = token.epoch;
  state_.rev = token.rev;
  if (state_.phase == wire::Phase::kWaiting && token.quota_ns > 0) {
    state_.phase = wire::Phase::kHolding;
  } else if (state_.phase != wire::Phase::kHolding) {
    return SendState(state_.phase) != 0;
  }
  return true;
}

bool Tenant::AwaitToken() {
  char buffer[wire::kTenantFrameMax];
  while (!holding()) {
    const size_t size = transport_->Receive(buffer, /*wait=*/true);
    if (size == 0 || !OnFrame(buffer, size)) return false;
  }
  return true;
}

bool Tenant::Serve() {
  char buffer[wire::kTenantFrameMax];
  while (const size_t size = transport_->Receive(buffer, /*wait=*/false)) {
    if (!OnFrame(buffer, size)) return false;
  }
  return true;
}

bool Tenant::Confirm() {
  ++state_.launches;
  return SendState(wire::Phase::kHolding) != 0;
}

bool Tenant::Return() { return SendState(wire::Phase::kIdle) != 0; }

Result<Duration> Tenant::RoundTrip() {
  const Instant asked = MonotonicNow();
  if (!Ask() || !AwaitToken()) return Gone();
  const Duration took = MonotonicNow() - asked;
  if (!Confirm() || !Return()) return Gone();
  return took;
}

}  // namespace baton::cli
