#include "tests/net/client.h"

#include <arpa/inet.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace baton::net {

Client::Client(uint16_t port, bool tls, int receive_buffer) {
  fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (receive_buffer > 0) {
    setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
  }
  const timeval patience{kPatienceMs / 1000, 0};
  setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  bool ok = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  if (ok && tls) {
    context_ = SSL_CTX_new(TLS_client_method());
    tls_ = SSL_new(context_);
    SSL_set_fd(tls_, fd_);
    ok = SSL_connect(tls_) == 1;
  }
  if (ok) return;
  close(fd_);
  fd_ = -1;
}

Client::~Client() {
  SSL_free(tls_);
  SSL_CTX_free(context_);
  if (fd_ >= 0) close(fd_);
}

bool Client::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = tls_ != nullptr
                          ? SSL_write(tls_, bytes.data(), static_cast<int>(bytes.size()))
                          : send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

bool Client::More() {
  char buffer[65536];
  const ssize_t n =
      tls_ != nullptr ? SSL_read(tls_, buffer, sizeof buffer) : recv(fd_, buffer, sizeof buffer, 0);
  if (n <= 0) return false;
  rest.append(buffer, static_cast<size_t>(n));
  return true;
}

std::string Client::ReadUntil(std::string_view text) {
  size_t at;
  while ((at = rest.find(text)) == std::string::npos) {
    if (!More()) return std::exchange(rest, "");
  }
  const std::string read = rest.substr(0, at + text.size());
  rest.erase(0, read.size());
  return read;
}

bool Client::AwaitEnd() {
  pollfd waited{fd_, POLLIN, 0};
  while (poll(&waited, 1, kPatienceMs) > 0) {
    if (!More()) return true;
  }
  return false;
}

Answer Client::Read(bool head) {
  Answer answer;
  const std::string header = ReadUntil("\r\n\r\n");
  if (header.size() < 13 || header.substr(0, 9) != "HTTP/1.1 ") return answer;
  answer.status = std::stoi(header.substr(9, 3));
  size_t at = header.find("\r\n") + 2;
  while (at < header.size() - 2) {
    const size_t end = header.find("\r\n", at);
    const size_t colon = header.find(": ", at);
    std::string name = header.substr(at, colon - at);
    std::transform(name.begin(), name.end(), name.begin(), ::tolower);
    answer.fields[name] = header.substr(colon + 2, end - colon - 2);
    at = end + 2;
  }
  if (head || answer.fields.count("content-length") == 0) return answer;
  const size_t length = std::stoul(answer.fields["content-length"]);
  while (rest.size() < length && More()) {
  }
  answer.body = rest.substr(0, length);
  rest.erase(0, answer.body.size());
  if (answer.body.size() < length) answer.status = 0;
  return answer;
}

Answer Client::Get(const std::string& target, const std::string& fields) {
  if (!Send("GET " + target + " HTTP/1.1\r\nHost: localhost\r\n" + fields + "\r\n")) return {};
  return Read();
}

Answer Get(uint16_t port, const std::string& target, const std::string& fields) {
  return Client(port).Get(target, fields);
}

}  // namespace baton::net
