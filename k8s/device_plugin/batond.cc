#include "k8s/device_plugin/batond.h"

#include <errno.h>
#include <fmt/format.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <utility>

namespace baton::k8s {
namespace {

constexpr size_t kAnswerMax = size_t{64} << 20;

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

ErrorCode CodeNamed(const std::string& name) {
  for (const ErrorCode code :
       {ErrorCode::kInvalid, ErrorCode::kNotFound, ErrorCode::kExists, ErrorCode::kExhausted,
        ErrorCode::kDenied, ErrorCode::kUnavailable}) {
    if (name == ErrorCodeName(code)) return code;
  }
  return ErrorCode::kInternal;
}

}  // namespace

Result<Json> Batond::Ask(const Json& request, bool* answered) const {
  if (answered != nullptr) *answered = false;
  const auto away = [&](const std::string& why) {
    return Fail(ErrorCode::kUnavailable, fmt::format("batond at {}: {}", path_, why));
  };
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path_.size() >= sizeof address.sun_path) {
    return Fail(ErrorCode::kInvalid, path_ + " is longer than the 107 bytes of a socket's path");
  }
  path_.copy(address.sun_path, path_.size());
  const Socket socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) return away(strerror(errno));
  // Where its queue is full, too.
  const timeval patience{static_cast<time_t>(Nanos(timeout_) / 1'000'000'000),
                         static_cast<suseconds_t>(Nanos(timeout_) / 1000 % 1'000'000)};
  setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return away(std::string(strerror(errno)) + "; it starts, or its log says why it ended");
  }
  const std::string line = request.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  for (size_t sent = 0; sent < line.size();) {
    const ssize_t n = send(socket.get(), line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return away(strerror(errno));
    sent += static_cast<size_t>(n);
  }
  const Instant deadline = MonotonicNow() + timeout_;
  std::string text;
  while (text.empty() || text.back() != '\n') {
    const int64_t left_ms = Nanos(deadline - MonotonicNow()) / 1'000'000;
    pollfd readable{socket.get(), POLLIN, 0};
    const int ready = left_ms <= 0 ? 0 : poll(&readable, 1, static_cast<int>(left_ms));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return away("it did not answer in time");
    char buffer[65536];
    const ssize_t n = recv(socket.get(), buffer, sizeof buffer, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return away("it closed the connection; its log says why");
    text.append(buffer, static_cast<size_t>(n));
    if (text.size() > kAnswerMax) return away("its answer is too long");
  }
  if (answered != nullptr) *answered = true;
  Json answer = Json::parse(text, nullptr, false);
  const auto ok = answer.is_object() ? answer.find("ok") : answer.end();
  if (!answer.is_object() || ok == answer.end() || !ok->is_boolean()) {
    return Fail(ErrorCode::kInternal, path_ + " does not speak batond's control protocol");
  }
  if (ok->get<bool>()) return answer;
  return Fail(CodeNamed(TextAt(answer, "code")),
              TextAt(answer, "error", "batond refused without a reason"));
}

}  // namespace baton::k8s
