// A client of the control socket (docs/protocol.md): one line of JSON out, one in.
// Thread safe: no state.
#ifndef BATON_WIRE_CONTROL_CLIENT_H_
#define BATON_WIRE_CONTROL_CLIENT_H_

#include <chrono>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/result.h"
#include "base/time.h"

namespace baton::wire {

// "/run/baton" -> "/run/baton/control.sock", for those who may set.
std::string ControlSocket(const std::string& socket_dir);
// "/run/baton" -> "/run/baton/user.sock", for users whom the operator allows pods of their own.
std::string UserSocket(const std::string& socket_dir);
// "/run/baton" -> the socket that hooks attach to.
std::string TenantSocket(const std::string& socket_dir);

// Connects a stream (SOCK_STREAM) or seqpacket (SOCK_SEQPACKET) unix socket, close-on-exec. Returns
// the descriptor, which the caller closes, or a sentence that says what to do about a socket that
// is missing, refused or forbidden. `patience`: for a place in a full queue, and of each send
// afterwards; 0: none ends.
Result<int> ConnectUnix(const std::string& path, int type, Duration patience = Duration(0));

// Sends `request` to the control socket, or to the users' where that one may not be opened, and
// waits for its answer. An answer {"ok": false} comes back as an Error with the daemon's code and
// sentence. Sending and the wait for the answer take `timeout` at most each.
// `answered`, where given: whether an answer has come, for a daemon too may say kUnavailable.
Result<nlohmann::json> Ask(const std::string& socket_dir, const nlohmann::json& request,
                           Duration timeout = std::chrono::seconds(5), bool* answered = nullptr);

}  // namespace baton::wire

#endif  // BATON_WIRE_CONTROL_CLIENT_H_
