// Closing what others made: files that somebody passed over a unix socket, and sockets in whose
// queues such files may lie. Whoever closes the last reference to a socket that lingers waits for
// as long as its maker likes, and whoever closes a file of a user's own file system waits for that
// user's program. So no event loop does it: threads do, as many as wait, and their waits for
// sockets are cut short.
//
// Thread safe. Never waits.
#ifndef BATON_NODE_CLOSER_H_
#define BATON_NODE_CLOSER_H_

#include <utility>
// Boost.Asio 1.74 uses std::exchange without including <utility>.
#include <sys/socket.h>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <cstddef>
#include <string>
#include <vector>

#include "base/file.h"

namespace baton::node {

// A connection, of which the peer sees the end at once. Nothing where it is none.
void CloseElsewhere(UniqueFd socket);
void CloseElsewhere(boost::asio::posix::stream_descriptor& socket);

// So many messages of an owner's (Admission::OwnerOf) may have brought files that are not closed
// yet. Of one who has more nothing is read, or each would cost a thread and descriptors.
inline constexpr size_t kUnclosedMax = 4;
bool ClosesTooSlowly(const std::string& owner);

// As many files as the kernel lets a message have, and room for them as msg_control: those for
// which there is none are closed by who receives the message.
inline constexpr size_t kFilesMax = 253;
inline constexpr size_t kFilesRoom = CMSG_SPACE(kFilesMax * sizeof(int));

// The files that came with a message of the owner's. What nobody has taken is closed elsewhere.
class PassedFiles {
 public:
  PassedFiles(const msghdr& message, const std::string& owner);
  ~PassedFiles();
  PassedFiles(const PassedFiles&) = delete;
  PassedFiles& operator=(const PassedFiles&) = delete;

  bool any() const { return !files_.empty(); }
  // To be taken from; empty: there was none.
  UniqueFd& first() { return files_.empty() ? none_ : files_.front(); }

 private:
  std::vector<UniqueFd> files_;
  UniqueFd none_;
  const std::string& owner_;
};

}  // namespace baton::node

#endif  // BATON_NODE_CLOSER_H_
