// Listening on a unix socket whose file may be left over from a daemon that died, and when messages
// arrived at one.
#ifndef BATON_NODE_LISTEN_UNIX_H_
#define BATON_NODE_LISTEN_UNIX_H_

#include <sys/socket.h>
#include <sys/types.h>
#include <time.h>

#include <string>
#include <string_view>

#include "base/file.h"
#include "base/result.h"
#include "base/time.h"

namespace baton::node {

// A unix socket of `type` bound to `path` and listening, non-blocking, with file mode `mode`. The
// lock on `lock_path` that it takes into `lock` is what tells a live daemon from a dead one's
// socket: kExists when somebody has it.
Result<UniqueFd> ListenUnix(const std::string& path, int type, mode_t mode,
                            const std::string& lock_path, UniqueFd& lock);

// Has the kernel stamp each message that arrives at the socket.
void StampMessages(int socket);
// Room for the stamp, as msg_control; and how long the message that recvmsg() gave lay in the
// socket. 0 without a stamp.
inline constexpr size_t kStampRoom = CMSG_SPACE(sizeof(timespec));
// Sends a frame, with a descriptor where `file` is not below 0. False: the socket is full. Other
// errors show up as end-of-file on the reading side.
bool TrySend(int socket, std::string_view frame, int file);
Duration AgeOf(const msghdr& message);

}  // namespace baton::node

#endif  // BATON_NODE_LISTEN_UNIX_H_
