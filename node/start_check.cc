#include "node/start_check.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>
#include <zmq.h>

#include <fstream>
#include <memory>

#include "base/file.h"
#include "net/keys.h"
#include "node/gpu_lock.h"

namespace baton::node {
namespace {

constexpr size_t kNodeNameMax = 64;

struct CloseContext {
  void operator()(void* context) const { zmq_ctx_term(context); }
};
struct CloseSocket {
  void operator()(void* socket) const { zmq_close(socket); }
};

// Binds or connects a socket of its own for a moment.
Result<void> TryEndpoint(const std::string& endpoint, int type, int (*attach)(void*, const char*)) {
  const std::unique_ptr<void, CloseContext> context(zmq_ctx_new());
  const std::unique_ptr<void, CloseSocket> socket(zmq_socket(context.get(), type));
  const int none = 0, on = 1;
  zmq_setsockopt(socket.get(), ZMQ_LINGER, &none, sizeof none);
  zmq_setsockopt(socket.get(), ZMQ_IPV6, &on, sizeof on);
  if (attach(socket.get(), endpoint.c_str()) == 0) return {};
  return Fail(
      errno == EADDRINUSE ? ErrorCode::kExists : ErrorCode::kInvalid,
      endpoint + ": " + zmq_strerror(errno) + "; write an address such as tcp://127.0.0.1:7411");
}

}  // namespace

Result<void> CheckFolder(const std::string& path) {
  std::string there = path;
  struct stat st = {};
  while (stat(there.c_str(), &st) != 0) {
    if (errno != ENOENT) {
      return Fail(ErrorCode::kDenied, "cannot look into " + there + ": " + strerror(errno));
    }
    const size_t slash = there.find_last_of('/');
    there = slash == std::string::npos ? "." : slash == 0 ? "/" : there.substr(0, slash);
  }
  if (!S_ISDIR(st.st_mode)) return Fail(ErrorCode::kDenied, there + " is not a folder");
  if (faccessat(AT_FDCWD, there.c_str(), W_OK | X_OK, AT_EACCESS) == 0) return {};
  return Fail(ErrorCode::kDenied, "cannot make files in " + there + ": " + strerror(errno));
}

bool IsLocked(const std::string& path) {
  struct stat st;
  if (stat(path.c_str(), &st) != 0) return false;
  const std::string file =
      fmt::format(" {:02x}:{:02x}:{} ", major(st.st_dev), minor(st.st_dev), st.st_ino);
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    const bool waits = line.find("->") != std::string::npos;
    if (!waits && line.find("FLOCK") != std::string::npos && line.find(file) != std::string::npos) {
      return true;
    }
  }
  return false;
}

Result<void> CheckSocketPath(const std::string& path) {
  if (path.size() < sizeof(sockaddr_un::sun_path)) return {};
  return Fail(ErrorCode::kInvalid, "the socket's path is longer than 107 characters: " + path +
                                       "; choose a shorter folder");
}

bool IsServed(const std::string& control_socket) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (control_socket.size() >= sizeof address.sun_path) return false;
  memcpy(address.sun_path, control_socket.c_str(), control_socket.size() + 1);
  const UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return fd && connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
}

Result<void> CheckListen(const std::string& endpoint) {
  // To bind a unix socket would take its file from who listens there.
  if (endpoint.starts_with("ipc://")) return {};
  return TryEndpoint(endpoint, ZMQ_ROUTER, zmq_bind);
}

Result<void> CheckConnect(const std::string& endpoint) {
  return TryEndpoint(endpoint, ZMQ_DEALER, zmq_connect);
}

void CheckSockets(const config::Options& options, const std::string& socket_dir,
                  Complaints& complaints) {
  const std::string& control = options.server.control_dir;
  complaints.Add("server.socket_dir", CheckFolder(socket_dir));
  if (!control.empty()) complaints.Add("server.control_dir", CheckFolder(control));
  complaints.Add("server.lock_dir", CheckLockDir(options.server.lock_dir));
}

std::vector<Error> CheckFrontend(const config::Options& options, bool machine) {
  Complaints complaints;
  const std::string& dir =
      options.node.socket_dir.empty() ? options.server.socket_dir : options.node.socket_dir;
  const std::string& control =
      options.server.control_dir.empty() ? dir : options.server.control_dir;
  if (options.node.name.size() > kNodeNameMax) {
    complaints.Add("node.name", Fail(ErrorCode::kInvalid, "it is longer than 64 characters"));
  }
  complaints.Add("node.socket_dir", CheckSocketPath(dir + "/baton.sock"));
  complaints.Add("server.control_dir", CheckSocketPath(control + "/control.sock"));
  if (!machine) return complaints.Take();
  CheckSockets(options, dir, complaints);
  complaints.Add("zmq.connect", CheckConnect(options.zmq.connect));
  if (!options.zmq.server_public_key.empty() || !options.zmq.server_public_key_file.empty()) {
    const auto keys = net::ReadKeyPair(options.zmq.secret_key_file);
    if (!keys) complaints.Add("zmq.secret_key_file", tl::unexpected(keys.error()));
  }
  return complaints.Take();
}

}  // namespace baton::node
