// The operator's socket, and the users': one JSON object per line in, one per line out, in order;
// or requests of HTTP, where it is told what they mean. It only moves lines; what they mean is its
// handler's business. Both daemons have the operator's.
//
// The operator's file has mode 0600: who can open it may set. Bounded: connections, line length,
// answers that nobody reads; the users', for each of them too. Not thread safe: lives in one event
// loop.
#ifndef BATON_NODE_CONTROL_SOCKET_H_
#define BATON_NODE_CONTROL_SOCKET_H_

#include <utility>
// Boost.Asio 1.74 uses std::exchange without including <utility>.
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/result.h"
#include "net/message.h"
#include "node/process.h"
#include "node/rate.h"

namespace baton::node {

// A long text in pieces: nothing of it is copied twice.
class LongAnswer {
 public:
  LongAnswer() = default;
  LongAnswer(std::string text) { pieces_.push_back(std::move(text)); }  // NOLINT: one that is short
  void Add(std::string_view text);
  std::deque<std::string> TakePieces() { return std::move(pieces_); }
  size_t size() const;
  std::string Whole() const;

 private:
  std::deque<std::string> pieces_;
};

class ControlSocket {
 public:
  static constexpr size_t kLineMax = 1 << 20;
  static constexpr size_t kConnectionsMax = 64;

  // For whom a socket is that anybody may open.
  static constexpr size_t kConnectionsOfUsers = 512;
  static constexpr size_t kConnectionsOfUser = 8;
  static constexpr int64_t kRequestsPerSecond = 20;  // of a user; twice as many at once
  static constexpr size_t kRequestMax = 64 << 10;    // bytes

  // Takes the answer, without a newline; called once, at once or later.
  using Respond = std::function<void(LongAnswer)>;
  // Who asks, as the kernel says.
  struct Peer {
    uint32_t uid = 0;
    int32_t pid = 0;  // 0: not known
  };
  using Handler = std::function<void(const std::string& line, const Peer& peer, Respond)>;

  ControlSocket(boost::asio::io_context& io, Handler handler);
  ~ControlSocket();

  // Listens on `path` (mode 0600). kExists when a live daemon does.
  Result<void> Listen(const std::string& path);
  // The same for all users, or for the group `gid`; each user is bounded. The lock is at
  // `lock_path`, where they cannot take it.
  Result<void> ListenToUsers(const std::string& path, std::optional<uint32_t> gid,
                             const std::string& lock_path);
  // What requests of HTTP mean, which are taken from then on too: the line that says the same, or
  // the answer to one that there is not; and what is answered where that line was.
  struct Http {
    std::function<tl::expected<std::string, net::HttpResponse>(const net::HttpRequest&)> line_of;
    std::function<net::HttpResponse(const net::HttpRequest&, std::string answer)> response_to;
  };
  void Speak(Http http) { http_ = std::move(http); }
  void Stop();

 private:
  struct Connection;
  void Accept();
  // Takes it, or leaves it.
  void Open(UniqueFd& fd);
  void Read(const std::shared_ptr<Connection>& connection);
  void Serve(const std::shared_ptr<Connection>& connection);
  // Whether a whole one has come.
  bool HasRequest(Connection& connection) const;
  void Answer(const std::shared_ptr<Connection>& connection);
  void AnswerHttp(const std::shared_ptr<Connection>& connection);
  void Write(const std::shared_ptr<Connection>& connection);
  void WriteLater(const std::shared_ptr<Connection>& connection);
  void Close(const std::shared_ptr<Connection>& connection);

  boost::asio::io_context& io_;
  Handler handler_;
  Http http_;
  std::string path_;
  UniqueFd path_lock_;
  boost::asio::posix::stream_descriptor listener_;
  boost::asio::steady_timer accept_pause_;
  bool of_users_ = false;
  std::set<std::shared_ptr<Connection>> connections_;
  std::map<uint32_t, size_t> connections_of_;  // by uid
  Rates rates_{kRequestsPerSecond, 2 * kRequestsPerSecond};
  Throttle throttle_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace baton::node

#endif  // BATON_NODE_CONTROL_SOCKET_H_
