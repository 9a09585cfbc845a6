#include "node/control_socket.h"

#include <errno.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cstring>
#include <utility>

#include "base/file.h"
#include "net/http_text.h"
#include "node/closer.h"
#include "node/listen_unix.h"

namespace baton::node {
namespace {

using boost::asio::posix::stream_descriptor;
using ErrorCodeAsio = boost::system::error_code;

constexpr size_t kPiece = 64 << 10;  // bytes
// Between two looks at others.
constexpr size_t kSentAtOnce = 256 << 10;

}  // namespace

void LongAnswer::Add(std::string_view text) {
  if (pieces_.empty() || pieces_.back().size() + text.size() > kPiece) {
    pieces_.emplace_back().reserve(std::max(kPiece, text.size()));
  }
  pieces_.back() += text;
}

size_t LongAnswer::size() const {
  size_t size = 0;
  for (const std::string& piece : pieces_) size += piece.size();
  return size;
}

std::string LongAnswer::Whole() const {
  std::string whole;
  whole.reserve(size());
  for (const std::string& piece : pieces_) whole += piece;
  return whole;
}

struct ControlSocket::Connection {
  explicit Connection(boost::asio::io_context& io) : socket(io) {}
  stream_descriptor socket;
  Peer peer;
  std::string owner;           // as Admission has it
  std::shared_ptr<Rate> rate;  // null: as many requests as it likes
  std::string in;
  std::deque<std::string> out;
  size_t sent = 0;  // bytes of the first of them
  bool open = true;
  bool busy = false;                       // a request is being answered
  bool at_end = false;                     // the peer has said everything
  std::optional<net::RequestText> http{};  // what is being answered, where it is no line
  size_t needs = 0;                        // bytes before which it is not looked at again
  bool closes = false;                     // once that is out
};

ControlSocket::ControlSocket(boost::asio::io_context& io, Handler handler)
    : io_(io), handler_(std::move(handler)), listener_(io), accept_pause_(io), throttle_(io) {}

ControlSocket::~ControlSocket() {
  *alive_ = false;
  Stop();
}

Result<void> ControlSocket::Listen(const std::string& path) {
  auto fd = ListenUnix(path, SOCK_STREAM, 0600, path + ".lock", path_lock_);
  if (!fd) return tl::unexpected(fd.error());
  path_ = path;
  listener_.assign(fd->Release());
  Accept();
  return {};
}

Result<void> ControlSocket::ListenToUsers(const std::string& path, std::optional<uint32_t> gid,
                                          const std::string& lock_path) {
  const mode_t mode = gid ? 0660 : 0666;
  auto fd = ListenUnix(path, SOCK_STREAM, gid ? 0600 : mode, lock_path, path_lock_);
  if (!fd) return tl::unexpected(fd.error());
  if (gid &&
      (chown(path.c_str(), static_cast<uid_t>(-1), *gid) != 0 || chmod(path.c_str(), mode) != 0)) {
    return Fail(ErrorCode::kInternal,
                "cannot give " + path + " to its group: " + std::strerror(errno));
  }
  path_ = path;
  of_users_ = true;
  listener_.assign(fd->Release());
  Accept();
  return {};
}

void ControlSocket::Stop() {
  ErrorCodeAsio ignored;
  listener_.close(ignored);
  accept_pause_.cancel();
  throttle_.Stop();
  while (!connections_.empty()) Close(*connections_.begin());
  if (!path_.empty()) unlink(path_.c_str());
  path_.clear();
  path_lock_.Close();
}

void ControlSocket::Accept() {
  listener_.async_wait(stream_descriptor::wait_read, [this, alive = alive_](ErrorCodeAsio error) {
    if (error || !*alive) return;
    UniqueFd fd(accept4(listener_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
      // Out of descriptors: those who wait are served when others have left.
      accept_pause_.expires_after(std::chrono::milliseconds(100));
      accept_pause_.async_wait([this, alive](ErrorCodeAsio e) {
        if (!e && *alive) Accept();
      });
      return;
    }
    if (connections_.size() < (of_users_ ? kConnectionsOfUsers : kConnectionsMax)) Open(fd);
    CloseElsewhere(std::move(fd));  // where it is not taken
    Accept();
  });
}

void ControlSocket::Open(UniqueFd& fd) {
  if (!fd) return;
  auto connection = std::make_shared<Connection>(io_);
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return;
  connection->peer = {peer.uid, peer.pid};
  connection->owner = fmt::format("user {}", peer.uid);
  if (of_users_) {
    if (ClosesTooSlowly(connection->owner)) return;
    if (connections_of_[peer.uid] >= kConnectionsOfUser) return;
    connection->rate = rates_.Of(std::to_string(peer.uid), MonotonicNow());
  }
  ++connections_of_[connection->peer.uid];
  connection->socket.assign(fd.Release());
  connections_.insert(connection);
  Read(connection);
}

void ControlSocket::Read(const std::shared_ptr<Connection>& connection) {
  connection->socket.async_wait(
      stream_descriptor::wait_read, [this, alive = alive_, connection](ErrorCodeAsio error) {
        if (error || !*alive || !connection->open) return;
        char buffer[16384];
        iovec part{buffer, sizeof buffer};
        alignas(cmsghdr) char control[kFilesRoom];
        msghdr message{};
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        const ssize_t n =
            recvmsg(connection->socket.native_handle(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return Read(connection);
        if (n < 0) return Close(connection);
        // Nobody has a reason to pass any here.
        if (PassedFiles(message, connection->owner).any()) return Close(connection);
        if (n == 0) connection->at_end = true;
        connection->in.append(buffer, static_cast<size_t>(n));
        Serve(connection);
      });
}

// Answers the requests that are complete, one after the other; then reads on.
void ControlSocket::Serve(const std::shared_ptr<Connection>& connection) {
  if (!connection->open || connection->busy) return;
  if (!HasRequest(*connection)) {
    if (connection->in.size() > (of_users_ ? kRequestMax : kLineMax)) return Close(connection);
    if (!connection->at_end) return Read(connection);
    if (connection->out.empty()) Close(connection);
    return;
  }
  connection->busy = true;
  if (connection->rate == nullptr) return Answer(connection);
  if (connection->rate->May(MonotonicNow())) {
    connection->rate->Spend(1);
    return Answer(connection);
  }
  throttle_.Add(connection->rate, [this, connection] {
    if (connection->open) {
      connection->rate->Spend(1);
      Answer(connection);
    }
    return false;
  });
}

bool ControlSocket::HasRequest(Connection& connection) const {
  const std::string_view in = connection.in;
  const size_t end = in.find('\n');
  if (end == std::string_view::npos) return false;
  if (!http_.line_of || !net::BeginsRequest(in.substr(0, end))) return true;
  if (in.size() < connection.needs) return false;
  net::RequestText read = net::ReadRequest(in, kRequestMax);
  connection.needs = read.needs;
  if (read.size == 0 && !read.refusal) return false;
  connection.needs = 0;
  connection.http = std::move(read);
  return true;
}

void ControlSocket::AnswerHttp(const std::shared_ptr<Connection>& connection) {
  const net::RequestText read = *std::exchange(connection->http, std::nullopt);
  connection->in.erase(0, read.refusal ? std::string::npos : read.size);
  const auto send = [this, connection, keep = read.keep_alive](const net::HttpResponse& response) {
    connection->out.push_back(net::ResponseText(response, keep));
    connection->closes = !keep;
    Write(connection);
  };
  if (read.refusal) return send(*read.refusal);
  const auto line = http_.line_of(read.request);
  if (!line) return send(line.error());
  handler_(
      *line, connection->peer,
      [this, alive = alive_, connection, send, request = read.request](const LongAnswer& answer) {
        if (!*alive || !connection->open) return;
        send(http_.response_to(request, answer.Whole()));
      });
}

// The first request, which is complete.
void ControlSocket::Answer(const std::shared_ptr<Connection>& connection) {
  if (connection->http) return AnswerHttp(connection);
  const size_t end = connection->in.find('\n');
  const std::string line = connection->in.substr(0, end);
  connection->in.erase(0, end + 1);
  handler_(line, connection->peer, [this, alive = alive_, connection](LongAnswer answer) {
    if (!*alive || !connection->open) return;
    connection->out = answer.TakePieces();
    connection->out.emplace_back("\n");
    Write(connection);
  });
}

// The next request is taken once the answer to this one is out: who does not read is not served.
void ControlSocket::Write(const std::shared_ptr<Connection>& connection) {
  for (size_t sent = 0; !connection->out.empty();) {
    const std::string& piece = connection->out.front();
    const ssize_t n = send(connection->socket.native_handle(), piece.data() + connection->sent,
                           piece.size() - connection->sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno != EAGAIN) return Close(connection);
    if (n < 0) return WriteLater(connection);
    sent += static_cast<size_t>(n);
    connection->sent += static_cast<size_t>(n);
    if (connection->sent == piece.size()) {
      connection->out.pop_front();
      connection->sent = 0;
    }
    if (sent > kSentAtOnce) return WriteLater(connection);
  }
  boost::asio::post(io_, [this, alive = alive_, connection] {
    connection->busy = false;
    if (!*alive) return;
    connection->closes ? Close(connection) : Serve(connection);
  });
}

void ControlSocket::WriteLater(const std::shared_ptr<Connection>& connection) {
  connection->socket.async_wait(stream_descriptor::wait_write,
                                [this, alive = alive_, connection](ErrorCodeAsio error) {
                                  if (!error && *alive && connection->open) Write(connection);
                                });
}

void ControlSocket::Close(const std::shared_ptr<Connection>& connection) {
  // The last reference may be the one in the set.
  // NOLINTNEXTLINE(performance-unnecessary-copy-initialization)
  const auto keep = connection;
  keep->open = false;
  CloseElsewhere(keep->socket);
  if (connections_.erase(keep) == 0) return;
  const auto of = connections_of_.find(keep->peer.uid);
  if (--of->second == 0) connections_of_.erase(of);
}

}  // namespace baton::node
