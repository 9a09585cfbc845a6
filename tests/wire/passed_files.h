// Frames with descriptors beside them, as a test sends and receives them.
#ifndef BATON_TESTS_WIRE_PASSED_FILES_H_
#define BATON_TESTS_WIRE_PASSED_FILES_H_

#include <sys/socket.h>

#include <cstring>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace baton::wire {

inline bool SendWithFiles(int socket, std::string_view frame, const std::vector<int>& files) {
  iovec part{const_cast<char*>(frame.data()), frame.size()};
  std::vector<char> control(CMSG_SPACE(files.size() * sizeof(int)));
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(files.size() * sizeof(int));
  memcpy(CMSG_DATA(rights), files.data(), files.size() * sizeof(int));
  return sendmsg(socket, &message, MSG_NOSIGNAL) > 0;
}

// As recv() with MSG_DONTWAIT; `file`: the first descriptor that came along.
inline ssize_t ReceiveWithFile(int socket, char* frame, size_t room, UniqueFd& file) {
  iovec part{frame, room};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t size = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  const cmsghdr* rights = size > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (rights != nullptr && rights->cmsg_type == SCM_RIGHTS) {
    int fd = -1;
    memcpy(&fd, CMSG_DATA(rights), sizeof fd);
    file = UniqueFd(fd);
  }
  return size;
}

}  // namespace baton::wire

#endif  // BATON_TESTS_WIRE_PASSED_FILES_H_
