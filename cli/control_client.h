// A client of the control socket (docs/protocol.md): one line of JSON out, one in.
#ifndef BATON_CLI_CONTROL_CLIENT_H_
#define BATON_CLI_CONTROL_CLIENT_H_

#include <chrono>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/result.h"
#include "base/time.h"

namespace baton::cli {

// "/run/baton" -> "/run/baton/control.sock", for those who may set.
std::string ControlSocket(const std::string& socket_dir);
// "/run/baton" -> the socket that hooks attach to.
std::string TenantSocket(const std::string& socket_dir);

// Connects a stream (SOCK_STREAM) or seqpacket (SOCK_SEQPACKET) unix socket, close-on-exec. Returns
// the descriptor, which the caller closes, or a sentence that says what to do about a socket that
// is missing, refused or forbidden.
Result<int> ConnectUnix(const std::string& path, int type);

// Sends `request` and waits for its answer. An answer {"ok": false} comes back as an Error with the
// daemon's sentence. The wait for the answer is bounded by `timeout`.
Result<nlohmann::json> Ask(const std::string& socket_dir, const nlohmann::json& request,
                           Duration timeout = std::chrono::seconds(5));

}  // namespace baton::cli

#endif  // BATON_CLI_CONTROL_CLIENT_H_
