#include "hook/listener.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "hook/gate.h"
#include "wire/codec.h"

namespace baton::hook {

Lock g_reading;

namespace {

// What the client thread leaves to the listener: a listener that is awake needs microseconds.
constexpr Duration kGrace = std::chrono::milliseconds(1);
// A Token is shorter; what is longer is something else.
constexpr size_t kTokenMax = 128;

std::atomic<uint32_t> listening{0};
std::atomic<int> kick{-1};  // wakes the listener
__thread bool t_listens __attribute__((tls_model("initial-exec"))) = false;

// As system calls: the C library's functions are points at which a thread of the program may be
// cancelled.
int Poll(pollfd* fds, unsigned count, Duration timeout, const uint64_t* blocked = nullptr) {
  timespec t = ToTimespec(timeout);  // the kernel writes what is left of it
  return static_cast<int>(syscall(SYS_ppoll, fds, count, &t, blocked, sizeof(*blocked)));
}

long Receive(int fd, char* frame, size_t room, int flags) {
  return syscall(SYS_recvfrom, fd, frame, room, flags | MSG_DONTWAIT, nullptr, nullptr);
}

bool ReadToken(int fd, wire::Token& token, int& file) {
  char bytes[kTokenMax];
  // Looked at first: another message stays for the client thread.
  const long size = Receive(fd, bytes, sizeof(bytes), MSG_PEEK | MSG_TRUNC);
  if (size <= 0 || size > static_cast<long>(sizeof(bytes))) return false;
  wire::Frame frame;
  if (frame.Parse(bytes, static_cast<size_t>(size)) != wire::DecodeStatus::kOk ||
      frame.type() != wire::Token::kType || !frame.Read(token)) {
    return false;
  }
  return ReceiveWithFile(fd, bytes, sizeof(bytes), file) == size;
}

}  // namespace

long ReceiveWithFile(int socket, char* frame, size_t room, int& file) {
  file = -1;
  iovec part = {frame, room};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = CMSG_LEN(sizeof(int));
  const long size = syscall(SYS_recvmsg, socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  const cmsghdr* rights = size >= 0 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (rights != nullptr && rights->cmsg_level == SOL_SOCKET && rights->cmsg_type == SCM_RIGHTS &&
      rights->cmsg_len == CMSG_LEN(sizeof(int))) {
    memcpy(&file, CMSG_DATA(rights), sizeof(file));
  }
  return size;
}

void SendWithFile(int socket, char* frame, size_t size, int file) {
  iovec part = {frame, size};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (file >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(rights), &file, sizeof(file));
  }
  sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void PrepareListening() { kick.store(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)); }

void ForgetListening() {
  const int fd = kick.exchange(-1);
  if (fd >= 0) close(fd);
  listening.store(0);
  t_listens = false;
  g_reading.Reset();
}

bool BeginListening() {
  uint32_t none = 0;
  t_listens = kick.load() >= 0 && listening.compare_exchange_strong(none, 1);
  return t_listens;
}

void EndListening() {
  t_listens = false;
  listening.store(0);
}

Heard Listen(const std::atomic<int>& socket, const Gate& gate, Duration timeout,
             const SignalsHeld& held, wire::Token& token, int& file) {
  const int fd = socket.load();
  pollfd fds[2] = {{kick.load(), POLLIN, 0}, {fd, POLLIN, 0}};
  if (gate.open.load(std::memory_order_seq_cst) != 0) return Heard::kNothing;
  if (Poll(fds, 2, timeout, &held.before()) <= 0) return Heard::kNothing;
  if (fds[0].revents != 0) {
    uint64_t count;
    const long n = syscall(SYS_read, fds[0].fd, &count, sizeof(count));
    (void)n;
  }
  if (fds[1].revents == 0) return Heard::kNothing;
  if (!g_reading.TryAcquire()) return Heard::kOther;
  // Only the holder of the lock closes it, so the number still means this socket.
  const bool token_came =
      socket.load() == fd && (fds[1].revents & POLLIN) != 0 && ReadToken(fd, token, file);
  g_reading.Release();
  return token_came ? Heard::kToken : Heard::kOther;
}

void WakeListener() {
  if (t_listens || listening.load(std::memory_order_seq_cst) == 0) return;
  const uint64_t one = 1;
  const long n = syscall(SYS_write, kick.load(), &one, sizeof(one));
  (void)n;  // full means that it is woken already
}

void LeaveToListener(int client_kick) {
  if (listening.load() == 0) return;
  pollfd fds[1] = {{client_kick, POLLIN, 0}};
  Poll(fds, 1, kGrace);
}

}  // namespace baton::hook
