// One client's connection, plain or TLS: reads requests one after the other, writes answers or a
// stream of events, and keeps every limit. What a request means is its listener's business.
//
// Not thread safe: lives in one event loop.
#ifndef BATON_NET_CONNECTION_H_
#define BATON_NET_CONNECTION_H_

#include <utility>
// Boost.Asio 1.74 uses std::exchange without including <utility>.
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "net/message.h"
#include "net/options.h"

namespace baton::net {

class Connection;

class ConnectionListener {
 public:
  virtual ~ConnectionListener() = default;
  // The whole of a request: a GET or HEAD without a body where people ask. To be answered by Send()
  // or OpenStream(), at once or later.
  virtual void OnRequest(Connection& connection) = 0;
  // A request that was refused: no good HTTP, too large or too slow; and a TLS handshake that
  // failed.
  virtual void OnRefused(bool handshake) = 0;
  // Called once, by whatever ends the connection.
  virtual void OnClosed(Connection& connection) = 0;
};

// What the connections of a server have in common. Outlives their loop.
struct ConnectionTerms {
  const HttpOptions& options;
  ConnectionListener& listener;
  size_t bodies_bytes = 0;  // in use, of options.bodies_bytes_max
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Header = boost::beast::http::request_header<>;

  // `tls`: null for a plain connection.
  Connection(boost::asio::ip::tcp::socket socket, boost::asio::ssl::context* tls,
             ConnectionTerms& terms);

  void Start();
  void Close();
  // Closes once the request that has begun, if any, is answered. True: one has.
  bool Finish();

  // Of the request that waits for its answer.
  const Header& header() const { return parser_->get(); }
  bool head() const;
  std::string TakeBody() { return std::move(parser_->get().body()); }
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
  enum class State : uint8_t {
    kReading,  // a handshake, nothing, or a header
    kReadingBody,
    kAnswering,
    kWriting,
    kStreaming,
    kLingering,
  };
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;

  // `then` is not called once the connection is closed; an error closes it.
  void ReadSome(std::function<void(size_t)> then);
  void WriteAll(std::string_view header, std::string_view body, std::function<void()> then);
  void Enter(State state, Duration timeout);
  bool begun() const;
  void Read();
  void Parse();
  bool TakeHeader();
  bool Reserve();
  void Release();
  void Refuse(int status, std::string_view sentence);
  void Next();
  void WriteEvents();
  void Discard(size_t left);
  void Linger();
  void EndSending();

  boost::asio::ip::tcp::socket socket_;
  std::unique_ptr<boost::asio::ssl::stream<boost::asio::ip::tcp::socket&>> tls_;
  ConnectionTerms& terms_;
  const HttpOptions& options_;
  bool open_ = true;
  bool late_ = false;       // the request did not come to its end in time
  bool finishing_ = false;  // no further request is read
  State state_ = State::kReading;
  Instant since_{};
  Instant deadline_ = kNever;
  std::vector<char> in_;
  size_t in_begin_ = 0;  // of what was read and is not parsed
  size_t in_size_ = 0;
  std::optional<Parser> parser_;
  size_t header_size_ = 0;  // of the request, as far as it is parsed
  size_t reserved_ = 0;     // of terms_.bodies_bytes, by the request
  uint64_t serial_ = 0;
  bool keep_alive_ = false;
  std::string out_header_;
  std::shared_ptr<const std::string> out_body_;
  std::deque<std::shared_ptr<const std::string>> events_;
  bool writing_ = false;
};

}  // namespace baton::net

#endif  // BATON_NET_CONNECTION_H_
