// The server's end of a connection, plain or TLS, whose calls block. One thread at a time, but for
// Abort().
#ifndef BATON_TESTS_K8S_STAND_IN_SERVER_END_H_
#define BATON_TESTS_K8S_STAND_IN_SERVER_END_H_

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <utility>
// Boost.Asio 1.74 uses std::exchange without including <utility>.
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <optional>
#include <string_view>

namespace baton::k8s::testing {

class ServerEnd {
 public:
  // An accepted socket. Takes it.
  explicit ServerEnd(int fd) : socket_(io_, boost::asio::ip::tcp::v4(), fd) {}

  // `context` outlives this.
  bool Handshake(boost::asio::ssl::context& context) {
    tls_.emplace(socket_, context);
    boost::system::error_code error;
    tls_->handshake(boost::asio::ssl::stream_base::server, error);
    return !error;
  }
  // At least one byte; 0: the peer has ended the connection.
  size_t Read(char* into, size_t size) {
    boost::system::error_code error;
    const auto buffer = boost::asio::buffer(into, size);
    return tls_ ? tls_->read_some(buffer, error) : socket_.read_some(buffer, error);
  }
  bool Write(std::string_view text) {
    boost::system::error_code error;
    const auto buffer = boost::asio::buffer(text.data(), text.size());
    if (tls_) {
      boost::asio::write(*tls_, buffer, error);
    } else {
      boost::asio::write(socket_, buffer, error);
    }
    return !error;
  }
  bool Alive() {
    tcp_info state{};
    socklen_t length = sizeof(state);
    return getsockopt(socket_.native_handle(), IPPROTO_TCP, TCP_INFO, &state, &length) == 0 &&
           state.tcpi_state == TCP_ESTABLISHED;
  }
  void Abort() { shutdown(socket_.native_handle(), SHUT_RDWR); }

 private:
  boost::asio::io_context io_{1};
  boost::asio::ip::tcp::socket socket_;
  std::optional<boost::asio::ssl::stream<boost::asio::ip::tcp::socket&>> tls_;
};

}  // namespace baton::k8s::testing

#endif  // BATON_TESTS_K8S_STAND_IN_SERVER_END_H_
