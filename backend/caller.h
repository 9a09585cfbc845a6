// Who asks something of the control socket, of user.sock, or through a relay.
#ifndef BATON_BACKEND_CALLER_H_
#define BATON_BACKEND_CALLER_H_

#include <optional>
#include <string>

#include "node/control_socket.h"
#include "spec/users.h"

namespace baton::backend {

struct Caller {
  // Whose pods and GPUs it may see and change; "*": all.
  std::string node = "*";
  // Of user.sock: a user of the machine, who may change pods of one's own alone.
  std::optional<spec::User> user = {};
  node::ControlSocket::Peer peer = {};  // of control.sock
};

}  // namespace baton::backend

#endif  // BATON_BACKEND_CALLER_H_
