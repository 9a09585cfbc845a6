#include "node/listen_unix.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>

namespace baton::node {

Result<UniqueFd> ListenUnix(const std::string& path, int type, mode_t mode,
                            const std::string& lock_path, UniqueFd& lock) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return Fail(ErrorCode::kInvalid, "the socket's path is longer than 107 characters: " + path +
                                         "; choose a shorter socket_dir");
  }
  memcpy(address.sun_path, path.c_str(), path.size() + 1);
  lock = UniqueFd(open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock) {
    return Fail(ErrorCode::kInternal, "cannot create " + lock_path + ": " + strerror(errno) +
                                          "; check the rights on its folder");
  }
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    lock.Close();
    return Fail(ErrorCode::kExists, "another daemon already listens on " + path +
                                        "; stop it, or choose another socket_dir");
  }
  UniqueFd fd(socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return Fail(ErrorCode::kInternal, std::string("socket: ") + strerror(errno));
  // Whoever left this file is dead, or would hold the lock.
  unlink(path.c_str());
  const mode_t before = umask(0777);  // nobody connects before the mode is set
  const int bound = bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
  const int error = errno;
  umask(before);
  if (bound != 0) return Fail(ErrorCode::kInternal, "cannot bind " + path + ": " + strerror(error));
  if (chmod(path.c_str(), mode) != 0 || listen(fd.get(), 1024) != 0) {
    return Fail(ErrorCode::kInternal, "cannot listen on " + path + ": " + strerror(errno));
  }
  return fd;
}

void StampMessages(int socket) {
  const int on = 1;
  setsockopt(socket, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
}

Duration AgeOf(const msghdr& message) {
  // The macros want it without const.
  auto* all = const_cast<msghdr*>(&message);
  for (cmsghdr* c = CMSG_FIRSTHDR(all); c != nullptr; c = CMSG_NXTHDR(all, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_TIMESTAMPNS) continue;
    timespec stamped, now;
    memcpy(&stamped, CMSG_DATA(c), sizeof stamped);
    clock_gettime(CLOCK_REALTIME, &now);
    const auto age = std::chrono::seconds(now.tv_sec - stamped.tv_sec) +
                     std::chrono::nanoseconds(now.tv_nsec - stamped.tv_nsec);
    return std::max<Duration>(age, Duration(0));
  }
  return Duration(0);
}

bool TrySend(int socket, std::string_view frame, int file) {
  constexpr int kFlags = MSG_DONTWAIT | MSG_NOSIGNAL;
  if (file < 0) {
    return send(socket, frame.data(), frame.size(), kFlags) >= 0 || errno != EAGAIN;
  }
  iovec part{const_cast<char*>(frame.data()), frame.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(rights), &file, sizeof file);
  return sendmsg(socket, &message, kFlags) >= 0 || errno != EAGAIN;
}

}  // namespace baton::node
