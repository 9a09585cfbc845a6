// A client of batond that does exactly what a test says: frames in, frames out, over the unix
// socket, without any of the hook's own judgement.
#ifndef BATON_TESTS_BACKEND_SCRIPTED_CLIENT_H_
#define BATON_TESTS_BACKEND_SCRIPTED_CLIENT_H_

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "wire/codec.h"
#include "wire/messages.h"

namespace baton::backend {

class ScriptedClient {
 public:
  // How long a test waits for what must come.
  static constexpr int kPatienceMs = 10'000;

  explicit ScriptedClient(const std::string& path, uint64_t incarnation = 0)
      : incarnation_(incarnation != 0 ? incarnation : reinterpret_cast<uintptr_t>(this)) {
    Connect(path);
  }
  ~ScriptedClient() { Close(); }
  ScriptedClient(const ScriptedClient&) = delete;
  ScriptedClient& operator=(const ScriptedClient&) = delete;

  bool Connect(const std::string& path) {
    Close();
    fd_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    if (connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) Close();
    return fd_ >= 0;
  }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  bool connected() const { return fd_ >= 0; }
  int fd() const { return fd_; }

  bool SendRaw(const std::string& bytes) {
    return send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }
  template <class Message>
  bool Send(const Message& message) {
    char buffer[wire::kTenantFrameMax];
    const size_t size = wire::Encode(message, buffer, sizeof buffer);
    return SendRaw({buffer, size});
  }

  bool SayHello(const std::string& ticket) {
    wire::Hello hello;
    hello.ticket.Set(ticket);
    hello.incarnation = incarnation_;
    hello.command.Set("scripted");
    return Send(hello);
  }
  bool SendAttach(uint8_t index, const std::string& uuid) {
    wire::Attach attach;
    attach.gpu = index;
    attach.uuid.Set(uuid);
    return Send(attach);
  }
  // Hello and Attach, as GPU 0 unless told, with their answers taken. A reconnecting client says
  // the same.
  bool Join(const std::string& ticket, const std::string& uuid, uint8_t index = 0) {
    state.gpu = index;
    return SayHello(ticket) && Await<wire::Welcome>() && SendAttach(index, uuid) &&
           (attached = Await<wire::Attached>()).has_value();
  }
  bool Report(wire::Phase phase) {
    state.phase = phase;
    ++state.seq;
    return Send(state);
  }
  // Asks for the token, or gives it back.
  bool Ask() { return Report(wire::Phase::kWaiting); }
  bool GiveBack() { return Report(wire::Phase::kIdle); }
  // The next Token with a quota that is newer than the last; takes over its epoch and revision.
  std::optional<wire::Token> AwaitGrant() {
    while (auto token = Await<wire::Token>()) {
      if (token->quota_ns != 0) return token;
    }
    return std::nullopt;
  }

  // Asks, and says again that it waits whenever it is told to close its gate, until it is granted.
  bool AskUntilGranted() {
    if (!Ask()) return false;
    while (const auto token = Await<wire::Token>()) {
      if (token->quota_ns != 0) return true;
      if (!Ask()) return false;
    }
    return false;
  }
  // What a thief would do: closes its socket while it holds, comes back after `away`, by another
  // index perhaps, and says that it waits and has held nothing.
  bool HoldUnseen(const std::string& path, const std::string& ticket, const std::string& uuid,
                  int away_ms, uint8_t index = 0) {
    Close();
    poll(nullptr, 0, away_ms);
    state.held_ns = 0;
    if (!Connect(path) || !Join(ticket, uuid, index)) return false;
    HasGrantNow();  // what was sent to close the gate
    return GiveBack();
  }

  // Receives until a `Message` comes; others are dropped, but Tokens are noted. Nothing when the
  // connection ends or patience does.
  template <class Message>
  std::optional<Message> Await() {
    while (true) {
      const auto bytes = Receive(kPatienceMs);
      if (bytes.empty()) return std::nullopt;
      wire::Frame frame;
      if (frame.Parse(bytes.data(), bytes.size()) != wire::DecodeStatus::kOk) return std::nullopt;
      wire::Token token;
      if (frame.Read(token)) {
        Note(token);
        if (returning_) GiveBack();
      }
      Message message;
      if (frame.Read(message)) return message;
    }
  }
  // Gives the token back, again whenever a newer revision of the grant comes, until a `Message`
  // comes.
  template <class Message>
  std::optional<Message> GiveBackUntil() {
    GiveBack();
    returning_ = true;
    const auto message = Await<Message>();
    returning_ = false;
    return message;
  }
  // Whether a Token without a quota comes.
  bool AwaitGateClosed() {
    while (const auto token = Await<wire::Token>()) {
      if (token->quota_ns == 0) return true;
    }
    return false;
  }
  // Whether a grant lies in the socket now. Drops everything else.
  bool HasGrantNow() {
    while (true) {
      const auto bytes = Receive(0);
      if (bytes.empty()) return false;
      wire::Frame frame;
      wire::Token token;
      if (frame.Parse(bytes.data(), bytes.size()) == wire::DecodeStatus::kOk && frame.Read(token)) {
        Note(token);
        if (token.quota_ns != 0) return true;
      }
    }
  }
  // Whether the peer closes the connection, after whatever it still says.
  bool AwaitClosed() {
    while (true) {
      pollfd p{fd_, POLLIN, 0};
      if (poll(&p, 1, kPatienceMs) <= 0) return false;
      char buffer[wire::kTenantFrameMax];
      if (recv(fd_, buffer, sizeof buffer, 0) <= 0) return true;
    }
  }

  // The next frame as it came; empty: none did.
  std::vector<char> Receive(int patience_ms) {
    pollfd p{fd_, POLLIN, 0};
    if (fd_ < 0 || poll(&p, 1, patience_ms) <= 0) return {};
    std::vector<char> bytes(wire::kTenantFrameMax);
    const ssize_t size = recv(fd_, bytes.data(), bytes.size(), 0);
    bytes.resize(size > 0 ? static_cast<size_t>(size) : 0);
    return bytes;
  }

  wire::State state;
  std::optional<wire::Attached> attached;

 private:
  void Note(const wire::Token& token) {
    if (token.epoch < state.epoch || (token.epoch == state.epoch && token.rev <= state.rev)) return;
    state.epoch = token.epoch;
    state.rev = token.rev;
  }
  int fd_ = -1;
  bool returning_ = false;
  const uint64_t incarnation_;
};

}  // namespace baton::backend

#endif  // BATON_TESTS_BACKEND_SCRIPTED_CLIENT_H_
