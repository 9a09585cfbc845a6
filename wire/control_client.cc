#include "wire/control_client.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/file.h"
#include "base/nesting.h"

namespace baton::wire {
namespace {

constexpr size_t kAnswerMax = 64u << 20;  // bytes; a status of 100 000 pods is below this
constexpr size_t kDepthMax = 32;          // of lists and objects in it

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
std::string UserSocket(const std::string& socket_dir) { return socket_dir + "/user.sock"; }
std::string TenantSocket(const std::string& socket_dir) { return socket_dir + "/baton.sock"; }

Result<int> ConnectUnix(const std::string& path, int type, Duration patience) {
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
  const timeval limit{static_cast<time_t>(Nanos(patience) / 1'000'000'000),
                      static_cast<suseconds_t>(Nanos(patience) / 1'000 % 1'000'000)};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
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
                  "not allowed to open " + path +
                      "; run this with sudo, or have the operator allow it ([users] in batond's "
                      "configuration)");
    default:
      return Fail(ErrorCode::kUnavailable,
                  "cannot connect to " + path + ": " + std::strerror(error));
  }
}

Result<nlohmann::json> Ask(const std::string& socket_dir, const nlohmann::json& request,
                           Duration timeout, bool* answered) {
  if (answered != nullptr) *answered = false;
  Result<int> connected = ConnectUnix(ControlSocket(socket_dir), SOCK_STREAM, timeout);
  if (!connected && connected.error().code == ErrorCode::kDenied) {
    const std::string users = UserSocket(socket_dir);
    if (access(users.c_str(), F_OK) == 0) connected = ConnectUnix(users, SOCK_STREAM, timeout);
  }
  if (!connected) return tl::unexpected(connected.error());
  const UniqueFd fd(*connected);
  const Result<std::string> line = Exchange(
      fd.get(), request.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n",
      timeout);
  if (!line) return tl::unexpected(line.error());
  if (answered != nullptr) *answered = true;
  nlohmann::json answer;
  if (JsonNestsWithin(*line, kDepthMax)) {
    answer = nlohmann::json::parse(*line, nullptr, /*allow_exceptions=*/false);
  }
  const auto ok = answer.is_object() ? answer.find("ok") : answer.end();
  if (!answer.is_object() || ok == answer.end() || !ok->is_boolean()) {
    return Fail(ErrorCode::kInternal,
                ControlSocket(socket_dir) + " does not speak batond's control protocol");
  }
  if (ok->get<bool>()) return answer;
  const auto text = [&](const char* key, const char* otherwise) {
    const auto found = answer.find(key);
    return found != answer.end() && found->is_string() ? found->get<std::string>() : otherwise;
  };
  return Fail(ErrorCodeNamed(text("code", "")), text("error", "batond refused without a reason"));
}

}  // namespace baton::wire
