#include "cli/control_client.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

namespace baton::cli {
namespace {

constexpr size_t kAnswerMax = 64u << 20;  // bytes; a status of 100 000 pods is below this

class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

ErrorCode CodeFrom(std::string_view name) {
  static constexpr std::pair<std::string_view, ErrorCode> kNames[] = {
      {"invalid", ErrorCode::kInvalid},   {"not_found", ErrorCode::kNotFound},
      {"exists", ErrorCode::kExists},     {"exhausted", ErrorCode::kExhausted},
      {"denied", ErrorCode::kDenied},     {"unavailable", ErrorCode::kUnavailable},
      {"internal", ErrorCode::kInternal},
  };
  for (const auto& [known, code] : kNames) {
    if (known == name) return code;
  }
  return ErrorCode::kInternal;
}

Result<std::string> Exchange(int fd, const std::string& line, Duration timeout) {
  for (size_t sent = 0; sent < line.size();) {
    const ssize_t n = send(fd, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      return Fail(ErrorCode::kUnavailable,
                  std::string("batond closed the connection: ") + std::strerror(errno));
    }
    sent += static_cast<size_t>(n);
  }
  const Instant deadline = MonotonicNow() + timeout;
  std::string answer;
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - MonotonicNow()).count();
    pollfd readable{fd, POLLIN, 0};
    const int ready = left <= 0 ? 0 : poll(&readable, 1, static_cast<int>(left));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      return Fail(ErrorCode::kUnavailable,
                  "batond did not answer in time; is it stopped, or its machine overloaded?");
    }
    char buffer[65536];
    const ssize_t n = recv(fd, buffer, sizeof buffer, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      return Fail(ErrorCode::kUnavailable,
                  "batond closed the connection without an answer; its log says why");
    }
    answer.append(buffer, static_cast<size_t>(n));
    if (answer.back() == '\n') return answer;
    if (answer.size() > kAnswerMax) {
      return Fail(ErrorCode::kInternal, "batond's answer is longer than 64 MiB");
    }
  }
}

}  // namespace

std::string ControlSocket(const std::string& socket_dir) { return socket_dir + "/control.sock"; }
std::string TenantSocket(const std::string& socket_dir) { return socket_dir + "/baton.sock"; }

Result<int> ConnectUnix(const std::string& path, int type) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return Fail(ErrorCode::kInvalid, "the socket's path '" + path +
                                         "' is longer than the 107 bytes that unix allows; choose "
                                         "a shorter --socket-dir");
  }
  path.copy(address.sun_path, path.size());
  const int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
  if (fd < 0) return Fail(ErrorCode::kInternal, std::string("socket: ") + std::strerror(errno));
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
  const int error = errno;
  close(fd);
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return Fail(ErrorCode::kUnavailable,
                  "no batond at " + path +
                      "; start one with 'batond --config FILE', or set BATON_SOCKET_DIR to where "
                      "it keeps its sockets");
    case ECONNREFUSED:
      return Fail(ErrorCode::kUnavailable, "nobody listens at " + path +
                                               ": batond ended; start it again, its log says why "
                                               "it ended");
    case EACCES:
    case EPERM:
      return Fail(ErrorCode::kDenied,
                  "not allowed to open " + path + "; run this as batond's user, or with sudo");
    default:
      return Fail(ErrorCode::kUnavailable,
                  "cannot connect to " + path + ": " + std::strerror(error));
  }
}

Result<nlohmann::json> Ask(const std::string& socket_dir, const nlohmann::json& request,
                           Duration timeout) {
  const Result<int> connected = ConnectUnix(ControlSocket(socket_dir), SOCK_STREAM);
  if (!connected) return tl::unexpected(connected.error());
  const Fd fd(*connected);
  const Result<std::string> line = Exchange(
      fd.get(), request.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n",
      timeout);
  if (!line) return tl::unexpected(line.error());
  nlohmann::json answer = nlohmann::json::parse(*line, nullptr, /*allow_exceptions=*/false);
  if (!answer.is_object()) {
    return Fail(ErrorCode::kInternal,
                ControlSocket(socket_dir) + " does not speak batond's control protocol");
  }
  if (answer.value("ok", false)) return answer;
  return Fail(CodeFrom(answer.value("code", "internal")),
              answer.value("error", "batond refused without a reason"));
}

}  // namespace baton::cli
