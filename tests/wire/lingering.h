// A connection whose last close() waits for as long as a test allows: what a tenant may pass over a
// unix socket.
#ifndef BATON_TESTS_WIRE_LINGERING_H_
#define BATON_TESTS_WIRE_LINGERING_H_

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <string>

#include "base/file.h"

namespace baton::wire {

class Lingering {
 public:
  static constexpr int kSeconds = 30;

  Lingering() {
    sockaddr_in here{};
    here.sin_family = AF_INET;
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof here;
    auto* const address = reinterpret_cast<sockaddr*>(&here);
    const UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    own_ = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (bind(listener.get(), address, size) != 0 || listen(listener.get(), 1) != 0 ||
        getsockname(listener.get(), address, &size) != 0 ||
        connect(own_.get(), address, size) != 0) {
      return;
    }
    other_ = UniqueFd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    // What the other end does not read keeps this one from being done.
    const std::string some(1 << 16, 'x');
    while (send(own_.get(), some.data(), some.size(), MSG_DONTWAIT) > 0) {
    }
    SetLinger(true);
    ready_ = static_cast<bool>(other_);
  }
  ~Lingering() {
    if (own_) SetLinger(false);
  }
  bool ready() const { return ready_; }
  int fd() const { return own_.get(); }
  // Whoever it was passed to has it alone.
  void Leave() { own_.Close(); }

 private:
  void SetLinger(bool on) {
    const linger how{on ? 1 : 0, kSeconds};
    setsockopt(own_.get(), SOL_SOCKET, SO_LINGER, &how, sizeof how);
  }

  UniqueFd own_, other_;
  bool ready_ = false;
};

}  // namespace baton::wire

#endif  // BATON_TESTS_WIRE_LINGERING_H_
