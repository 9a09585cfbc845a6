// One client's connection, plain or TLS: reads requests one after the other, writes answers or a
// stream of events, and keeps every limit. What a request means is its listener's business.
//
// Not thread safe: lives in one event loop.
#ifndef BATON_BACKEND_HTTP_CONNECTION_H_
#define BATON_BACKEND_HTTP_CONNECTION_H_

#include <utility>
// Boost.Asio 1.74 uses std::exchange without including <utility>.
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/http/message.h"
#include "backend/http/options.h"

namespace baton::http {

class Connection;

class ConnectionListener {
 public:
  virtual ~ConnectionListener() = default;
  // The header of a GET or HEAD. To be answered by Send() or OpenStream(), at once or later.
  virtual void OnRequest(Connection& connection) = 0;
  // Called once, by whatever ends the connection.
  virtual void OnClosed(Connection& connection) = 0;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Header = boost::beast::http::request_header<>;

  // `tls`: null for a plain connection. All three outlive the connection's loop.
  Connection(boost::asio::ip::tcp::socket socket, boost::asio::ssl::context* tls,
             const HttpOptions& options, ConnectionListener& listener);

  void Start();
  void Close();

  // Of the request that waits for its answer.
  const Header& header() const { return parser_->get(); }
  bool head() const;
  // Counts the requests: an answer to an earlier one is late.
  uint64_t serial() const { return serial_; }
  bool awaits_answer() const { return open_ && state_ == State::kAnswering; }

  // Both need awaits_answer().
  void Send(const HttpResponse& response, std::shared_ptr<const std::string> body);
  void OpenStream();

  // One or more whole events. Drops a reader that is too far behind.
  void Push(const std::shared_ptr<const std::string>& events);

  // Called now and then: ends what is over its time, and keeps streams alive.
  void Look(Instant now);
  // Since when this connection has been waiting for a request; nothing when it is not.
  std::optional<Instant> silent_since() const;

 private:
  enum class State : uint8_t { kReading, kAnswering, kWriting, kStreaming, kLingering };

  // `then` is not called once the connection is closed; an error closes it.
  void ReadSome(std::function<void(size_t)> then);
  void WriteAll(std::string_view header, std::string_view body, std::function<void()> then);
  void Enter(State state, Duration timeout);
  void Read();
  void Parse();
  void Refuse(int status, std::string_view sentence);
  void Next();
  void WriteEvents();
  void Discard(size_t left);
  void Linger();

  boost::asio::ip::tcp::socket socket_;
  std::unique_ptr<boost::asio::ssl::stream<boost::asio::ip::tcp::socket&>> tls_;
  const HttpOptions& options_;
  ConnectionListener& listener_;
  bool open_ = true;
  State state_ = State::kReading;
  Instant since_{};
  Instant deadline_ = kNever;
  std::vector<char> in_;
  size_t in_size_ = 0;
  std::optional<boost::beast::http::request_parser<boost::beast::http::empty_body>> parser_;
  size_t header_size_ = 0;  // of the request, as far as it is parsed
  uint64_t serial_ = 0;
  bool keep_alive_ = false;
  std::string out_header_;
  std::shared_ptr<const std::string> out_body_;
  std::deque<std::shared_ptr<const std::string>> events_;
  bool writing_ = false;
};

}  // namespace baton::http

#endif  // BATON_BACKEND_HTTP_CONNECTION_H_
