#include "bench/flooder.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/time.h"
#include "wire/codec.h"
#include "wire/messages.h"

namespace baton::bench {
namespace {

constexpr std::pair<std::string_view, Flood> kNames[] = {{"none", Flood::kNone},
                                                         {"spin", Flood::kSpin},
                                                         {"attaches", Flood::kAttaches},
                                                         {"states", Flood::kStates},
                                                         {"connects", Flood::kConnects}};

class Connection {
 public:
  // Not open when it was refused.
  explicit Connection(const char* path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    fd_ = UniqueFd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) fd_.Close();
  }
  bool open() const { return fd_.get() >= 0; }
  int fd() const { return fd_.get(); }

  // Never waits. False: there is no room, or it is over.
  template <class Message>
  bool Send(const Message& message) {
    char buffer[wire::kTenantFrameMax];
    const size_t size = wire::Encode(message, buffer, sizeof buffer);
    return send(fd_.get(), buffer, size, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(size);
  }
  // Takes what has come. False: it is over.
  bool Drain() {
    char buffer[wire::kTenantFrameMax];
    for (;;) {
      const ssize_t size = recv(fd_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
      if (size <= 0) return size < 0 && errno == EAGAIN;
    }
  }

 private:
  UniqueFd fd_;
};

wire::Hello HelloOf(const char* ticket, uint64_t incarnation) {
  wire::Hello hello;
  hello.ticket.Set(ticket);
  hello.incarnation = incarnation;
  hello.command.Set("flood");
  return hello;
}

}  // namespace

Result<Flood> ParseFlood(std::string_view name) {
  for (const auto& [known, flood] : kNames) {
    if (known == name) return flood;
  }
  return Fail(ErrorCode::kInvalid, "'" + std::string(name) +
                                       "' is no flood; there are none, spin, attaches, states and "
                                       "connects");
}

Result<void> RunFlood(Flood flood, int connections, const std::string& uuid) {
  const char* path = getenv("BATON_SOCKET");
  const char* ticket = getenv("BATON_TICKET");
  if (path == nullptr || ticket == nullptr) {
    return Fail(ErrorCode::kInvalid, "BATON_SOCKET and BATON_TICKET are not set; `baton run` does");
  }
  auto incarnation = static_cast<uint64_t>(Nanos(MonotonicNow().time_since_epoch()));
  while (flood == Flood::kNone) pause();
  if (flood == Flood::kSpin) {
    for (volatile uint64_t spins = 0;;) spins = spins + 1;
  }
  while (flood == Flood::kConnects) {
    Connection connection(path);
    if (connection.open()) connection.Send(HelloOf(ticket, ++incarnation));
  }
  wire::Attach attach;
  attach.gpu = 0;
  attach.uuid.Set(uuid);
  wire::State state;
  state.phase = wire::Phase::kIdle;
  std::vector<Connection> all;
  for (;;) {
    while (all.size() < static_cast<size_t>(connections)) {
      Connection connection(path);
      if (!connection.open()) break;
      connection.Send(HelloOf(ticket, ++incarnation));
      connection.Send(attach);
      all.push_back(std::move(connection));
    }
    bool sent = false;
    for (size_t i = 0; i < all.size();) {
      ++state.seq;
      while (flood == Flood::kAttaches ? all[i].Send(attach) : all[i].Send(state)) {
        sent = true;
        ++state.seq;
      }
      if (all[i].Drain()) {
        ++i;
      } else {
        all.erase(all.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
    if (sent) continue;
    std::vector<pollfd> room;
    for (const Connection& connection : all) room.push_back({connection.fd(), POLLIN | POLLOUT, 0});
    poll(room.data(), room.size(), 10);
  }
}

}  // namespace baton::bench
