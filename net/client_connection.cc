#include "net/client_connection.h"

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <utility>
// Boost.Asio 1.74 uses std::exchange without including <utility>.
#include <algorithm>
#include <atomic>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <charconv>
#include <future>
#include <optional>
#include <thread>
#include <vector>

#include "net/openssl.h"

namespace baton::net {
namespace {

namespace asio = boost::asio;
namespace bhttp = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr uint32_t kAnswerHeaderMax = 64 << 10;
// Nothing that the parser leaves lying is longer: a header, or the beginning of a chunk.
constexpr size_t kUnparsedMax = 128 << 10;
constexpr size_t kPieceMax = 32 << 10;
constexpr size_t kAddressesMax = 16;

// What the system, TLS or HTTP said, as a sentence.
std::string Sentence(const error_code& error, const std::string& server) {
  namespace codes = asio::error;
  const auto is = [&error](auto... any) { return ((error == any) || ...); };
  if (is(codes::connection_refused)) return "connection refused; is " + server + " there?";
  if (is(codes::eof, codes::connection_reset, codes::broken_pipe,
         asio::ssl::error::stream_truncated, bhttp::error::end_of_stream,
         bhttp::error::partial_message)) {
    return "the connection was cut";
  }
  if (is(codes::host_unreachable, codes::network_unreachable)) return "there is no route to it";
  if (is(boost::system::errc::too_many_files_open,
         boost::system::errc::too_many_files_open_in_system)) {
    return "too many open files; raise the limit (ulimit -n)";
  }
  if (error.category() != make_error_code(bhttp::error::end_of_stream).category()) {
    return error.message();
  }
  return "the answer is no good HTTP: " +
         (is(bhttp::error::body_limit)        ? "it is larger than what was allowed for it"
          : is(bhttp::error::buffer_overflow) ? "it has a line without an end"
                                              : error.message());
}

HttpResult<std::vector<tcp::endpoint>> Resolve(const HttpUrl& url, Instant deadline,
                                               const std::atomic<bool>& aborted) {
  error_code error;
  if (const auto address = asio::ip::make_address(url.host, error); !error) {
    return std::vector<tcp::endpoint>{{address, url.port}};
  }
  using Found = std::pair<error_code, tcp::resolver::results_type>;
  std::packaged_task<Found()> lookup([host = url.host, port = std::to_string(url.port)] {
    Found found;
    asio::io_context io;
    found.second =
        tcp::resolver(io).resolve(host, port, tcp::resolver::numeric_service, found.first);
    return found;
  });
  auto future = lookup.get_future();
  try {
    std::thread(std::move(lookup)).detach();
  } catch (const std::system_error& thrown) {
    return tl::unexpected(HttpError{HttpEnd::kBroken, thrown.what()});
  }
  // Abort() knows nothing of the lookup; this looks often enough.
  while (future.wait_for(std::chrono::milliseconds(20)) != std::future_status::ready) {
    if (aborted) return tl::unexpected(HttpError{HttpEnd::kAborted, "stopped"});
    if (MonotonicNow() >= deadline) {
      return tl::unexpected(
          HttpError{HttpEnd::kTimeout, "looking up the name '" + url.host + "' took too long"});
    }
  }
  const Found found = future.get();
  if (found.first || found.second.empty()) {
    return tl::unexpected(
        HttpError{HttpEnd::kBroken,
                  fmt::format("the name '{}' was not found ({}); is it right, and does DNS work?",
                              url.host, found.first.message())});
  }
  std::vector<tcp::endpoint> endpoints(found.second.begin(), found.second.end());
  endpoints.resize(std::min(endpoints.size(), kAddressesMax));
  return endpoints;
}

}  // namespace

// A socket as the blocking algorithms of Beast want one (SyncReadStream, SyncWriteStream), of which
// each step is an asynchronous one with a deadline.
struct ClientConnection::Socket {
  // Runs the operation that `start` starts with a handler. Returns how many bytes it moved.
  template <class Start>
  size_t Run(const Start& start, error_code& error) {
    bool done = false;
    size_t size = 0;
    // In this order: an Abort() after restart() ends the run, one before it is seen here.
    io.restart();
    if (aborted) {
      error = asio::error::operation_aborted;
      return 0;
    }
    start([&](error_code result, size_t moved = 0) {
      done = true;
      error = result;
      size = moved;
    });
    // At most a day, so that the sum stays in range.
    io.run_for(std::min<Duration>(deadline - MonotonicNow(), std::chrono::hours(24)));
    if (done) return size;
    error_code ignored;
    plain.close(ignored);
    while (!done) {
      io.restart();
      io.run();
    }
    error = aborted ? asio::error::operation_aborted : asio::error::timed_out;
    return 0;
  }

  template <class Buffers>
  size_t read_some(const Buffers& buffers, error_code& error) {
    const size_t size = Run(
        [&](auto done) {
          if (tls) {
            tls->async_read_some(buffers, std::move(done));
          } else {
            plain.async_read_some(buffers, std::move(done));
          }
        },
        error);
    heard = heard || size > 0;
    return size;
  }
  template <class Buffers>
  size_t write_some(const Buffers& buffers, error_code& error) {
    return Run(
        [&](auto done) {
          if (tls) {
            tls->async_write_some(buffers, std::move(done));
          } else {
            plain.async_write_some(buffers, std::move(done));
          }
        },
        error);
  }
  // Beast asks for these, and does not call them.
  template <class Buffers>
  size_t read_some(const Buffers& buffers) {
    error_code error;
    const size_t size = read_some(buffers, error);
    if (error) throw boost::system::system_error(error);
    return size;
  }

  // Asio by itself would leave the socket to child processes.
  void Connect(const tcp::endpoint& to, error_code& error) {
    plain.close(error);
    const int fd = ::socket(to.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP);
    if (fd < 0) {
      error = error_code(errno, boost::system::system_category());
      return;
    }
    plain.assign(to.protocol(), fd, error);
    if (error) return;
    Run([&](auto done) { plain.async_connect(to, std::move(done)); }, error);
    error_code ignored;
    plain.set_option(asio::ip::tcp::no_delay(true), ignored);
    plain.set_option(asio::socket_base::keep_alive(true), ignored);
  }

  HttpResult<void> Handshake(const ClientTls& with, const std::string& host);

  // Takes a part of an answer: a header, the beginning of a chunk, or what is there of its body.
  // Not more (the parser is not eager), since to want more than is there would wait for it.
  size_t Parse(error_code& error) {
    try {
      return bhttp::read_some(*this, unparsed, *parser, error);
    } catch (const std::exception&) {
      error = make_error_code(boost::system::errc::not_enough_memory);
      return 0;
    }
  }

  tl::unexpected<HttpError> Fail(const error_code& error, bool sent) const {
    HttpError result{HttpEnd::kBroken, Sentence(error, server), sent};
    if (aborted) {
      result.end = HttpEnd::kAborted;
      result.why = "stopped";
    } else if (error == asio::error::timed_out) {
      result.end = HttpEnd::kTimeout;
      result.why = "it took too long";
    }
    return tl::unexpected(std::move(result));
  }

  void Abort() {
    aborted = true;
    io.stop();
  }

  asio::io_context io{1};
  tcp::socket plain{io};
  std::optional<asio::ssl::stream<tcp::socket&>> tls;
  std::atomic<bool> aborted{false};
  Instant deadline{};  // of what runs
  std::string server;  // what errors call it
  // Of a certificate that does not pass: after the handshake it is no more to be had.
  std::string names;
  std::optional<bhttp::response_parser<bhttp::buffer_body>> parser;
  boost::beast::flat_buffer unparsed{kUnparsedMax};
  bool heard = false;
};

HttpResult<void> ClientConnection::Socket::Handshake(const ClientTls& with,
                                                     const std::string& host) {
  tls.emplace(plain, with.context());
  if (!with.Prepare(tls->native_handle(), host)) {
    return tl::unexpected(
        HttpError{HttpEnd::kBroken, "TLS could not be set up: " + OpenSslReason()});
  }
  error_code error;
  tls->set_verify_callback(
      [this](bool good, asio::ssl::verify_context& context) {
        if (!good) names = NamesOf(X509_STORE_CTX_get0_cert(context.native_handle()));
        return good;
      },
      error);
  Run([&](auto done) { tls->async_handshake(asio::ssl::stream_base::client, std::move(done)); },
      error);
  if (!error) return {};
  auto failed = Fail(error, false);
  HttpError& result = failed.value();
  const long verdict = SSL_get_verify_result(tls->native_handle());
  if (result.end == HttpEnd::kTimeout) {
    result.why = "the TLS handshake took too long";
  } else if (result.end == HttpEnd::kBroken && (verdict == X509_V_OK || !with.verifies())) {
    result.why = "the TLS handshake failed: " + result.why;
  } else if (result.end == HttpEnd::kBroken) {
    result.end = HttpEnd::kUntrusted;
    result.why =
        verdict == X509_V_ERR_HOSTNAME_MISMATCH || verdict == X509_V_ERR_IP_ADDRESS_MISMATCH
            ? "the certificate shown is for " + names +
                  ", not for that host; use one of these names, or set tls-server-name to one"
            : fmt::format(
                  "the certificate shown is not to be trusted ({}); is the configured "
                  "certificate-authority that of this server?",
                  X509_verify_cert_error_string(verdict));
  }
  return failed;
}

ClientConnection::ClientConnection() : socket_(std::make_unique<Socket>()) {}
ClientConnection::~ClientConnection() = default;

HttpResult<void> ClientConnection::Open(const HttpUrl& url, const ClientTls* tls,
                                        Instant deadline) {
  socket_->server = url.server;
  auto endpoints = Resolve(url, deadline, socket_->aborted);
  if (!endpoints) return tl::unexpected(endpoints.error());
  error_code error;
  for (size_t i = 0; i < endpoints->size(); ++i) {
    // One that does not answer leaves time for the others.
    const Instant now = MonotonicNow();
    socket_->deadline = now + (deadline - now) / static_cast<int64_t>(endpoints->size() - i);
    socket_->Connect((*endpoints)[i], error);
    if (!error || socket_->aborted) break;
  }
  if (error) {
    auto failed = socket_->Fail(error, false);
    if (failed.value().end == HttpEnd::kTimeout) {
      failed.value().why = "nobody answers at that address; does a firewall stand between?";
    }
    return failed;
  }
  socket_->deadline = deadline;
  return tls != nullptr ? socket_->Handshake(*tls, url.host) : HttpResult<void>();
}

HttpResult<HttpAnswer> ClientConnection::ReadHeader(std::string_view request, uint64_t body_max,
                                                    Instant deadline) {
  socket_->deadline = deadline;
  socket_->heard = false;
  socket_->unparsed.clear();
  auto& parser = socket_->parser;
  parser.reset();
  error_code error;
  asio::write(*socket_, asio::buffer(request.data(), request.size()), error);
  // Who refuses a request may answer before it has read all of it, and hang up.
  error_code unsent;
  if (error == asio::error::broken_pipe || error == asio::error::connection_reset) {
    unsent = std::exchange(error, error_code());
  }
  // Interim answers (100, 103) come before the real one.
  for (int interim = 0; interim < 8 && !error; ++interim) {
    parser.emplace();
    parser->header_limit(kAnswerHeaderMax);
    // Not boost::none: Beast of 1.74 then refuses every length that is announced.
    parser->body_limit(body_max);
    // The parser takes line by line, and knows of a limit for what it is given at once only.
    for (size_t size = 0; !error && !parser->is_header_done();) {
      size += socket_->Parse(error);
      if (size > kAnswerHeaderMax && !error) error = bhttp::error::header_limit;
    }
    if (error || parser->get().result_int() / 100 == 1) continue;
    if (parser->get().result_int() < 100) {  // 0 would mean that no answer came
      return tl::unexpected(
          HttpError{HttpEnd::kBroken, "the answer is no good HTTP: its status is below 100", true});
    }
    HttpAnswer answer;
    answer.status = static_cast<int>(parser->get().result_int());
    const auto after = parser->get()[bhttp::field::retry_after];
    uint32_t seconds = 0;
    const auto [end, bad] = std::from_chars(after.data(), after.data() + after.size(), seconds);
    if (bad == std::errc() && end == after.data() + after.size()) {
      answer.retry_after = std::chrono::seconds(std::min(seconds, 86'400u));
    }
    return answer;
  }
  if (error) return socket_->Fail(unsent ? unsent : error, true);
  return tl::unexpected(HttpError{
      HttpEnd::kBroken, "the answer is no good HTTP: it never gets beyond interim answers", true});
}

HttpResult<HttpAnswer> ClientConnection::Begin(std::string_view request, Instant deadline) {
  return ReadHeader(request, UINT64_MAX, deadline);
}

HttpResult<std::string> ClientConnection::Next(Instant deadline) {
  socket_->deadline = deadline;
  auto& parser = *socket_->parser;
  auto& body = parser.get().body();
  std::string piece(kPieceMax, '\0');
  body.data = piece.data();
  body.size = piece.size();
  error_code error;
  while (!error && body.size == piece.size() && !parser.is_done()) socket_->Parse(error);
  // need_buffer: the piece is full.
  if (error && error != bhttp::error::need_buffer) return socket_->Fail(error, true);
  piece.resize(piece.size() - body.size);
  return piece;
}

HttpResult<HttpAnswer> ClientConnection::Ask(std::string_view request, size_t body_max,
                                             Instant deadline) {
  auto answer = ReadHeader(request, body_max, deadline);
  while (answer) {
    auto piece = Next(deadline);
    if (!piece) return tl::unexpected(std::move(piece.error()));
    if (piece->empty()) break;
    answer->body += *piece;
  }
  return answer;
}

bool ClientConnection::reusable() const {
  const auto& parser = socket_->parser;
  return parser && parser->is_done() && parser->keep_alive() && socket_->unparsed.size() == 0;
}

bool ClientConnection::heard() const { return socket_->heard; }

bool ClientConnection::Alive() const {
  tcp_info state{};
  socklen_t length = sizeof(state);
  return !aborted() &&
         getsockopt(socket_->plain.native_handle(), IPPROTO_TCP, TCP_INFO, &state, &length) == 0 &&
         state.tcpi_state == TCP_ESTABLISHED;
}

void ClientConnection::Abort() { socket_->Abort(); }
bool ClientConnection::aborted() const { return socket_->aborted; }

}  // namespace baton::net
