#include "net/connection.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/status.hpp>

namespace baton::net {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast::http;
using boost::system::error_code;

// What a client may still send while an answer that ends the connection is on its way, so that the
// kernel does not throw the answer away.
constexpr size_t kDiscardMax = 64 << 10;
constexpr Duration kLinger = std::chrono::seconds(1);
// Bodies up to here are not counted (HttpOptions::bodies_bytes_max).
constexpr size_t kSmallBody = 64 << 10;

// The page and its data come from here only, and nobody may frame it or guess at types.
constexpr std::string_view kSecurityFields =
    "Content-Security-Policy: default-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'\r\n"
    "Cross-Origin-Resource-Policy: same-origin\r\n"
    "Referrer-Policy: no-referrer\r\n"
    "X-Content-Type-Options: nosniff\r\n"
    "X-Frame-Options: DENY\r\n";

std::string StatusAndFields(const HttpResponse& response) {
  const auto reason = beast::obsolete_reason(static_cast<beast::status>(response.status));
  std::string text = fmt::format("HTTP/1.1 {} {}\r\nDate: {:%a, %d %b %Y %H:%M:%S} GMT\r\n{}",
                                 response.status, std::string_view(reason.data(), reason.size()),
                                 fmt::gmtime(time(nullptr)), kSecurityFields);
  bool cache_said = false;
  for (const auto& [name, value] : response.fields) {
    text += fmt::format("{}: {}\r\n", name, value);
    cache_said = cache_said || name == "Cache-Control";
  }
  if (!cache_said) text += "Cache-Control: no-store\r\n";
  return text;
}

}  // namespace

Connection::Connection(asio::ip::tcp::socket socket, asio::ssl::context* tls,
                       ConnectionTerms& terms)
    : socket_(std::move(socket)), terms_(terms), options_(terms.options) {
  if (tls != nullptr) {
    tls_ = std::make_unique<asio::ssl::stream<asio::ip::tcp::socket&>>(socket_, *tls);
  }
}

// One type of handler each: the templates behind them are many, and compiled once.
void Connection::ReadSome(std::function<void(size_t)> then) {
  auto checked = [self = shared_from_this(), then = std::move(then)](error_code error, size_t n) {
    if (!self->open_) return;
    if (self->late_ && self->begun()) {
      return self->Refuse(408, "the request did not come to its end in time");
    }
    if (error) return self->Close();
    then(n);
  };
  const asio::mutable_buffer buffer(in_.data() + in_size_, in_.size() - in_size_);
  // After the end of TLS what comes is thrown away as it is.
  if (tls_ && state_ != State::kLingering) {
    tls_->async_read_some(buffer, std::move(checked));
  } else {
    socket_.async_read_some(buffer, std::move(checked));
  }
}

void Connection::WriteAll(std::string_view header, std::string_view body,
                          std::function<void()> then) {
  auto checked = [self = shared_from_this(), then = std::move(then)](error_code error, size_t) {
    if (!self->open_) return;
    if (error) return self->Close();
    then();
  };
  const std::array<asio::const_buffer, 2> buffers{asio::const_buffer(header.data(), header.size()),
                                                  asio::const_buffer(body.data(), body.size())};
  if (tls_) {
    asio::async_write(*tls_, buffers, std::move(checked));
  } else {
    asio::async_write(socket_, buffers, std::move(checked));
  }
}

void Connection::Enter(State state, Duration timeout) {
  state_ = state;
  since_ = MonotonicNow();
  deadline_ = since_ + timeout;
}

void Connection::Start() {
  error_code ignored;
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  Enter(State::kReading, tls_ ? options_.request_timeout : options_.first_timeout);
  if (!tls_) return Read();
  tls_->async_handshake(asio::ssl::stream_base::server, [self = shared_from_this()](error_code e) {
    if (e) self->terms_.listener.OnRefused(true);
    if (!self->open_) return;
    if (e) return self->Close();
    self->Enter(State::kReading, self->options_.first_timeout);
    self->Read();
  });
}

void Connection::Close() {
  if (!open_) return;
  open_ = false;
  error_code ignored;
  if (state_ == State::kWriting || writing_) {
    // What nobody reads is not kept in the kernel either.
    socket_.set_option(asio::socket_base::linger(true, 0), ignored);
  }
  socket_.close(ignored);
  Release();
  terms_.listener.OnClosed(*this);
}

bool Connection::Finish() {
  finishing_ = true;
  keep_alive_ = false;
  if (begun() || state_ == State::kAnswering || state_ == State::kWriting) return true;
  // One that lingers has its answer, and ends by itself.
  if (state_ != State::kLingering) Close();
  return false;
}

bool Connection::head() const { return header().method() == beast::verb::head; }

std::optional<Instant> Connection::silent_since() const {
  if (state_ != State::kReading) return std::nullopt;
  return since_;
}

// A request is being read.
bool Connection::begun() const {
  return state_ == State::kReadingBody || (state_ == State::kReading && parser_);
}

void Connection::Read() {
  // A byte more than the limit: what fills it is too long.
  if (in_.empty()) in_.resize(options_.header_bytes_max + 1);
  std::copy_n(in_.begin() + static_cast<ptrdiff_t>(in_begin_), in_size_, in_.begin());
  in_begin_ = 0;
  ReadSome([this](size_t n) {
    in_size_ += n;
    Parse();
  });
}

void Connection::Parse() {
  if (!parser_) {
    // The first byte starts the clock; later ones do not set it back.
    Enter(State::kReading, options_.request_timeout);
    late_ = false;
    parser_.emplace();
    parser_->header_limit(options_.header_bytes_max);
    if (options_.for_programs) parser_->body_limit(options_.body_bytes_max);
    parser_->eager(false);
    header_size_ = 0;
  }
  while (in_size_ > 0) {
    const bool header = !parser_->is_header_done();
    error_code error;
    size_t used = 0;
    try {
      used = parser_->put(asio::buffer(in_.data() + in_begin_, in_size_), error);
    } catch (const std::exception&) {  // no memory
      error = beast::error::body_limit;
    }
    in_begin_ += used;
    in_size_ -= used;
    const bool more = error == beast::error::need_more || (!error && used == 0);
    // The parser takes line by line, and knows of a limit for what it is given at once only.
    if (header) header_size_ += used;
    if (error == beast::error::header_limit ||
        (header && header_size_ + (more ? in_size_ : 0) > options_.header_bytes_max)) {
      return Refuse(431,
                    fmt::format("the header is longer than {} bytes", options_.header_bytes_max));
    }
    if (error == beast::error::body_limit) {
      return Refuse(413, fmt::format("the body is longer than {} bytes", options_.body_bytes_max));
    }
    if (error && !more) return Refuse(400, "this is no HTTP request: " + error.message());
    if (more && in_size_ == in_.size()) return Refuse(400, "a line of the request has no end");
    if (more) break;
    if (header && parser_->is_header_done() && !TakeHeader()) return;
    if (parser_->is_done()) {
      Enter(State::kAnswering, options_.answer_timeout);
      return terms_.listener.OnRequest(*this);
    }
  }
  Read();
}

// Whether reading goes on.
bool Connection::TakeHeader() {
  ++serial_;
  const bool body = !parser_->is_done();
  const auto refuse = [this](int status, std::string_view sentence) {
    Refuse(status, sentence);
    return false;
  };
  if (!options_.for_programs) {
    const auto method = header().method();
    if (method != beast::verb::get && method != beast::verb::head) {
      return refuse(405, "this server only answers GET and HEAD; changes go through 'baton set'");
    }
    if (body) return refuse(413, "a request to this server has no body");
    if (header().count(beast::field::host) > 1 ||
        (header().version() >= 11 && header().count(beast::field::host) == 0)) {
      return refuse(400, "a request must name one Host");
    }
  }
  keep_alive_ = parser_->keep_alive() && !finishing_;
  if (!body) return true;
  if (!Reserve()) return refuse(503, "too many large requests at once; ask again in a moment");
  state_ = State::kReadingBody;
  if (!boost::beast::iequals(header()[beast::field::expect], "100-continue")) return true;
  WriteAll("HTTP/1.1 100 Continue\r\n\r\n", "", [this] { Parse(); });
  return false;
}

bool Connection::Reserve() {
  // One in chunks may become as long as any.
  const auto length = parser_->content_length();
  const size_t body = length ? static_cast<size_t>(*length) : options_.body_bytes_max;
  if (body <= kSmallBody) return true;
  if (terms_.bodies_bytes + body > options_.bodies_bytes_max) return false;
  terms_.bodies_bytes += reserved_ = body;
  return true;
}

void Connection::Release() {
  terms_.bodies_bytes -= reserved_;
  reserved_ = 0;
}

// Answers what is no good request, and ends the connection: where the next one begins is unknown.
void Connection::Refuse(int status, std::string_view sentence) {
  terms_.listener.OnRefused(false);
  keep_alive_ = false;
  Enter(State::kAnswering, options_.answer_timeout);
  HttpResponse response = options_.for_programs
                              ? ErrorResponse(status, sentence)
                              : ErrorResponse(status, ErrorCode::kInvalid, sentence);
  if (status == 405) response.fields.emplace_back("Allow", "GET, HEAD");
  Send(response, std::make_shared<const std::string>(response.body));
}

void Connection::Send(const HttpResponse& response, std::shared_ptr<const std::string> body) {
  const bool without_body = response.status == 304 || response.status == 204;
  out_header_ = StatusAndFields(response);
  if (!without_body) {
    out_header_ += fmt::format("Content-Type: {}\r\nContent-Length: {}\r\n", response.content_type,
                               body->size());
  }
  if (!keep_alive_) {
    out_header_ += "Connection: close\r\n";
  } else if (header().version() < 11) {
    out_header_ += "Connection: keep-alive\r\n";
  }
  out_header_ += "\r\n";
  out_body_ = std::move(body);
  const bool header_only = without_body || head();
  Enter(State::kWriting, options_.write_timeout);
  WriteAll(out_header_, header_only ? std::string_view() : *out_body_, [this] {
    out_body_.reset();
    Next();
  });
}

void Connection::Next() {
  parser_.reset();
  Release();
  if (!keep_alive_) return Linger();
  if (in_size_ > 0) return Parse();
  Enter(State::kReading, options_.idle_timeout);
  Read();
}

// The answer arrives before the end does: closing a socket with unread bytes would throw away what
// is still on its way to the client.
void Connection::Linger() {
  Enter(State::kLingering, kLinger);
  if (!tls_) return EndSending();
  tls_->async_shutdown([self = shared_from_this()](error_code) {
    if (self->open_) self->EndSending();
  });
}

void Connection::EndSending() {
  error_code ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  Discard(std::max<size_t>(kDiscardMax, options_.for_programs ? options_.body_bytes_max : 0));
}

void Connection::Discard(size_t left) {
  in_begin_ = in_size_ = 0;
  ReadSome([this, left](size_t n) {
    if (n >= left) return Close();
    Discard(left - n);
  });
}

void Connection::OpenStream() {
  const bool header_only = head();
  out_header_ = StatusAndFields(HttpResponse{}) +
                "Content-Type: text/event-stream\r\nConnection: close\r\n\r\n";
  keep_alive_ = false;
  if (header_only) {
    Enter(State::kWriting, options_.write_timeout);
    return WriteAll(out_header_, "", [this] { Next(); });
  }
  Enter(State::kStreaming, options_.write_timeout);
  Discard(kDiscardMax);  // sees the reader leave
  Push(std::make_shared<const std::string>(std::move(out_header_)));
}

void Connection::Push(const std::shared_ptr<const std::string>& events) {
  if (!open_ || state_ != State::kStreaming) return;
  if (events_.size() >= options_.stream_backlog) return Close();
  events_.push_back(events);
  if (!writing_) WriteEvents();
}

void Connection::WriteEvents() {
  Enter(State::kStreaming, options_.write_timeout);
  writing_ = true;
  WriteAll(*events_.front(), "", [this] {
    events_.pop_front();
    writing_ = false;
    since_ = MonotonicNow();
    if (!events_.empty()) WriteEvents();
  });
}

void Connection::Look(Instant now) {
  if (state_ == State::kStreaming && !writing_) {
    static const auto kComment = std::make_shared<const std::string>(":\n\n");
    if (now - since_ >= options_.heartbeat) Push(kComment);
    return;
  }
  if (now < deadline_) return;
  if (state_ == State::kAnswering) {
    keep_alive_ = false;
    const HttpResponse late =
        ErrorResponse(504, ErrorCode::kUnavailable, "the answer took too long; try again");
    return Send(late, std::make_shared<const std::string>(late.body));
  }
  if (!begun()) return Close();
  late_ = true;  // is said as soon as the read has ended
  error_code ignored;
  socket_.cancel(ignored);
}

}  // namespace baton::net
