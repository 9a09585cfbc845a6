#include "k8s/api/stream.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <system_error>
#include <thread>
#include <vector>

namespace baton::k8s {
namespace {

tl::unexpected<StreamError> Broken(std::string why) {
  return tl::unexpected(StreamError{StreamEnd::kBroken, std::move(why)});
}

std::string ErrnoText(int code) {
  if (code == ECONNREFUSED) return "connection refused; is the API server there?";
  if (code == ECONNRESET || code == EPIPE) return "the connection was cut";
  if (code == EHOSTUNREACH || code == ENETUNREACH) return "there is no route to it";
  if (code == EMFILE || code == ENFILE) return "too many open files; raise the limit (ulimit -n)";
  return std::generic_category().message(code);
}

// OpenSSL's own BIO of a socket would raise SIGPIPE where the peer is gone.
int BioWrite(BIO* bio, const char* bytes, int size) {
  const int fd = static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio)));
  BIO_clear_retry_flags(bio);
  const ssize_t sent = send(fd, bytes, static_cast<size_t>(size), MSG_NOSIGNAL);
  if (sent < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}
int BioRead(BIO* bio, char* bytes, int size) {
  const int fd = static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio)));
  BIO_clear_retry_flags(bio);
  const ssize_t got = recv(fd, bytes, static_cast<size_t>(size), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(bio);
  return static_cast<int>(got);
}
long BioControl(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

BIO_METHOD* SocketMethod() {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "baton socket");
    if (made != nullptr) {
      BIO_meth_set_write(made, BioWrite);
      BIO_meth_set_read(made, BioRead);
      BIO_meth_set_ctrl(made, BioControl);
    }
    return made;
  }();
  return method;
}

std::string TlsErrorText() {
  const unsigned long code = ERR_peek_error();
  if (code == 0) return "the connection was cut";
  const char* reason = ERR_reason_error_string(code);
  return reason != nullptr ? reason : "TLS error";
}

// The names in a certificate: what to compare with.
std::string NamesOf(X509* certificate) {
  std::string names;
  auto* all = static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
  for (int i = 0; all != nullptr && i < sk_GENERAL_NAME_num(all) && names.size() < 300; ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(all, i);
    std::string text;
    if (name->type == GEN_DNS) {
      text.assign(reinterpret_cast<const char*>(ASN1_STRING_get0_data(name->d.dNSName)),
                  static_cast<size_t>(ASN1_STRING_length(name->d.dNSName)));
    } else if (name->type == GEN_IPADD) {
      char buffer[INET6_ADDRSTRLEN] = "";
      const int length = ASN1_STRING_length(name->d.iPAddress);
      if (length != 4 && length != 16) continue;
      inet_ntop(length == 4 ? AF_INET : AF_INET6, ASN1_STRING_get0_data(name->d.iPAddress), buffer,
                sizeof(buffer));
      text = buffer;
    }
    for (char& c : text) {
      if (c < ' ' || c > '~') c = '?';
    }
    if (!text.empty()) names += (names.empty() ? "" : ", ") + text;
  }
  GENERAL_NAMES_free(all);
  return names.empty() ? "nobody" : names;
}

// Notes whose certificate it is that does not pass: after the handshake it is no more to be had.
int OnVerified(int good, X509_STORE_CTX* store) {
  if (good == 1) return 1;
  auto* tls =
      static_cast<SSL*>(X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()));
  X509* leaf = X509_STORE_CTX_get0_cert(store);
  auto* names = tls != nullptr ? static_cast<std::string*>(SSL_get_app_data(tls)) : nullptr;
  if (names != nullptr && leaf != nullptr) *names = NamesOf(leaf);
  return 0;
}

struct Lookup {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  int error = 0;
  std::vector<sockaddr_storage> addresses;
};

}  // namespace

Stream::Stream(int fd) { Take(fd); }

Stream::~Stream() {
  SSL_free(tls_);
  if (fd_ >= 0) close(fd_);
}

bool Stream::Take(int fd) {
  const std::lock_guard lock(mutex_);
  if (fd_ >= 0) close(fd_);
  fd_ = fd;
  return !aborted_;
}

void Stream::Abort() {
  const std::lock_guard lock(mutex_);
  aborted_ = true;
  if (fd_ >= 0) shutdown(fd_, SHUT_RDWR);
}

StreamResult<void> Stream::Wait(short events, Instant deadline) const {
  while (true) {
    if (aborted_) return tl::unexpected(StreamError{StreamEnd::kAborted, "stopped"});
    const Duration left = deadline - MonotonicNow();
    if (left <= Duration(0)) {
      return tl::unexpected(StreamError{StreamEnd::kTimeout, "it took too long"});
    }
    // At most an hour at once, so that the number fits.
    const auto ms = std::min<int64_t>(Nanos(left) / 1'000'000 + 1, 3'600'000);
    pollfd wanted{fd_, events, 0};
    const int ready = poll(&wanted, 1, static_cast<int>(ms));
    if (ready < 0 && errno != EINTR) return Broken(ErrnoText(errno));
    if (ready > 0) {
      if (aborted_) return tl::unexpected(StreamError{StreamEnd::kAborted, "stopped"});
      return {};
    }
  }
}

StreamResult<void> Stream::Connect(const std::string& host, uint16_t port, Instant deadline) {
  std::vector<sockaddr_storage> addresses(1);
  auto* four = reinterpret_cast<sockaddr_in*>(addresses.data());
  auto* six = reinterpret_cast<sockaddr_in6*>(addresses.data());
  if (inet_pton(AF_INET, host.c_str(), &four->sin_addr) == 1) {
    four->sin_family = AF_INET;
  } else if (inet_pton(AF_INET6, host.c_str(), &six->sin6_addr) == 1) {
    six->sin6_family = AF_INET6;
  } else {
    const auto lookup = std::make_shared<Lookup>();
    try {
      std::thread([lookup, host] {
        addrinfo hints{};
        hints.ai_socktype = SOCK_STREAM;
        addrinfo* found = nullptr;
        const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
        const std::lock_guard lock(lookup->mutex);
        for (addrinfo* one = found; one != nullptr && lookup->addresses.size() < 16;
             one = one->ai_next) {
          std::memcpy(&lookup->addresses.emplace_back(), one->ai_addr, one->ai_addrlen);
        }
        if (found != nullptr) freeaddrinfo(found);
        lookup->error = error;
        lookup->done = true;
        lookup->changed.notify_all();
      }).detach();
    } catch (const std::system_error& error) {
      return Broken(error.what());
    }
    std::unique_lock lock(lookup->mutex);
    // Abort() knows nothing of the lookup; this looks often enough.
    while (!lookup->done) {
      if (aborted_) return tl::unexpected(StreamError{StreamEnd::kAborted, "stopped"});
      if (MonotonicNow() >= deadline) {
        return tl::unexpected(
            StreamError{StreamEnd::kTimeout, "looking up the name '" + host + "' took too long"});
      }
      lookup->changed.wait_for(lock, std::chrono::milliseconds(20));
    }
    if (lookup->error != 0 || lookup->addresses.empty()) {
      return Broken(fmt::format("the name '{}' was not found ({}); is it right, and does DNS work?",
                                host, gai_strerror(lookup->error)));
    }
    addresses = lookup->addresses;
  }
  StreamResult<void> result;
  for (size_t i = 0; i < addresses.size(); ++i) {
    // One that does not answer leaves time for the others.
    const Instant now = MonotonicNow();
    const Instant until = now + (deadline - now) / static_cast<int64_t>(addresses.size() - i);
    sockaddr_storage& address = addresses[i];
    if (address.ss_family == AF_INET) {
      reinterpret_cast<sockaddr_in*>(&address)->sin_port = htons(port);
    } else {
      reinterpret_cast<sockaddr_in6*>(&address)->sin6_port = htons(port);
    }
    result = ConnectTo(
        &address, address.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6), until);
    if (result || result.error().end == StreamEnd::kAborted) break;
  }
  return result;
}

StreamResult<void> Stream::ConnectTo(const void* address, unsigned size, Instant deadline) {
  const auto* to = static_cast<const sockaddr*>(address);
  const int fd = socket(to->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return Broken(ErrnoText(errno));
  if (!Take(fd)) return tl::unexpected(StreamError{StreamEnd::kAborted, "stopped"});
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  if (connect(fd, to, size) == 0) return {};
  if (errno != EINPROGRESS) return Broken(ErrnoText(errno));
  if (auto waited = Wait(POLLOUT, deadline); !waited) {
    if (waited.error().end == StreamEnd::kTimeout) {
      waited.error().why = "nobody answers at that address; does a firewall stand between?";
    }
    return waited;
  }
  int error = 0;
  socklen_t length = sizeof(error);
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
  if (error != 0) return Broken(ErrnoText(error));
  return {};
}

StreamResult<void> Stream::AfterTls(int result, Instant deadline) {
  switch (SSL_get_error(tls_, result)) {
    case SSL_ERROR_WANT_READ:
      return Wait(POLLIN, deadline);
    case SSL_ERROR_WANT_WRITE:
      return Wait(POLLOUT, deadline);
    default:
      if (aborted_) return tl::unexpected(StreamError{StreamEnd::kAborted, "stopped"});
      return Broken(TlsErrorText());
  }
}

StreamResult<void> Stream::Handshake(ssl_ctx_st* context, bool server, Instant deadline,
                                     const std::function<bool(ssl_st*)>& prepare) {
  ERR_clear_error();
  tls_ = SSL_new(context);
  BIO* bio = SocketMethod() != nullptr ? BIO_new(SocketMethod()) : nullptr;
  if (tls_ == nullptr || bio == nullptr) {
    BIO_free(bio);
    return Broken("TLS could not be set up: " + TlsErrorText());
  }
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<intptr_t>(fd_)));
  BIO_set_init(bio, 1);
  SSL_set_bio(tls_, bio, bio);
  if (server) {
    SSL_set_accept_state(tls_);
  } else {
    SSL_set_connect_state(tls_);
  }
  if (prepare && !prepare(tls_)) return Broken("TLS could not be set up: " + TlsErrorText());
  std::string names;
  if (const int mode = SSL_get_verify_mode(tls_); mode != SSL_VERIFY_NONE) {
    SSL_set_app_data(tls_, &names);
    SSL_set_verify(tls_, mode, OnVerified);
  }
  while (true) {
    ERR_clear_error();
    const int result = SSL_do_handshake(tls_);
    if (result == 1) {
      SSL_set_app_data(tls_, nullptr);
      return {};
    }
    if (const long verdict = SSL_get_verify_result(tls_); verdict != X509_V_OK) {
      if (verdict == X509_V_ERR_HOSTNAME_MISMATCH || verdict == X509_V_ERR_IP_ADDRESS_MISMATCH) {
        return tl::unexpected(StreamError{StreamEnd::kUntrusted,
                                          "the certificate shown is for " + names +
                                              ", not for that host; use one of these names, or set "
                                              "tls-server-name to one"});
      }
      return tl::unexpected(StreamError{
          StreamEnd::kUntrusted,
          fmt::format("the certificate shown is not to be trusted ({}); is the configured "
                      "certificate-authority that of this server?",
                      X509_verify_cert_error_string(verdict))});
    }
    if (auto waited = AfterTls(result, deadline); !waited) {
      if (waited.error().end == StreamEnd::kBroken) {
        waited.error().why = "the TLS handshake failed: " + waited.error().why;
      } else if (waited.error().end == StreamEnd::kTimeout) {
        waited.error().why = "the TLS handshake took too long";
      }
      return waited;
    }
  }
}

StreamResult<size_t> Stream::Read(char* into, size_t size, Instant deadline) {
  while (true) {
    if (aborted_) return tl::unexpected(StreamError{StreamEnd::kAborted, "stopped"});
    if (tls_ == nullptr) {
      const ssize_t got = recv(fd_, into, size, 0);
      if (got >= 0) {
        if (got == 0 && aborted_) {
          return tl::unexpected(StreamError{StreamEnd::kAborted, "stopped"});
        }
        return static_cast<size_t>(got);
      }
      if (errno != EAGAIN && errno != EINTR) {
        const int code = errno;
        if (aborted_) return tl::unexpected(StreamError{StreamEnd::kAborted, "stopped"});
        return Broken(ErrnoText(code));
      }
      if (auto waited = Wait(POLLIN, deadline); !waited) return tl::unexpected(waited.error());
      continue;
    }
    ERR_clear_error();
    size_t got = 0;
    const int result = SSL_read_ex(tls_, into, size, &got);
    if (result == 1) return got;
    if (SSL_get_error(tls_, result) == SSL_ERROR_ZERO_RETURN) return size_t{0};
    if (auto waited = AfterTls(result, deadline); !waited) return tl::unexpected(waited.error());
  }
}

StreamResult<void> Stream::Write(std::string_view bytes, Instant deadline) {
  while (!bytes.empty()) {
    if (aborted_) return tl::unexpected(StreamError{StreamEnd::kAborted, "stopped"});
    if (tls_ == nullptr) {
      const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent > 0) {
        bytes.remove_prefix(static_cast<size_t>(sent));
        continue;
      }
      if (sent < 0 && errno != EAGAIN && errno != EINTR) {
        const int code = errno;
        if (aborted_) return tl::unexpected(StreamError{StreamEnd::kAborted, "stopped"});
        return Broken(ErrnoText(code));
      }
      if (auto waited = Wait(POLLOUT, deadline); !waited) return waited;
      continue;
    }
    ERR_clear_error();
    size_t sent = 0;
    const int result = SSL_write_ex(tls_, bytes.data(), bytes.size(), &sent);
    if (result == 1) {
      bytes.remove_prefix(sent);
      continue;
    }
    if (auto waited = AfterTls(result, deadline); !waited) return waited;
  }
  return {};
}

bool Stream::Alive() const {
  tcp_info state{};
  socklen_t length = sizeof(state);
  return fd_ >= 0 && !aborted_ && getsockopt(fd_, IPPROTO_TCP, TCP_INFO, &state, &length) == 0 &&
         state.tcpi_state == TCP_ESTABLISHED;
}

}  // namespace baton::k8s
