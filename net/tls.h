// Certificates and keys of both ends of TLS, which is 1.2 or later.
#ifndef BATON_NET_TLS_H_
#define BATON_NET_TLS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/result.h"

struct ssl_st;
struct x509_st;

namespace boost::asio::ssl {
class context;
}

namespace baton::net {

// No certificate, key or bundle is larger (1 MiB).
inline constexpr size_t kPemMax = size_t{1} << 20;

// What a server shows to its clients: a certificate and its key. May be exchanged at any time: each
// handshake takes what is there when its connection begins, and connections that are there keep
// what they have. Thread safe.
class TlsIdentity {
 public:
  // PEM: the certificate, then those between it and its authority; and its key. kInvalid: what is
  // wrong with them; what was there stays.
  Result<void> Set(const std::string& certificates, const std::string& key);
  // Null before the first Set().
  std::shared_ptr<boost::asio::ssl::context> context() const;
  // Until when the certificate is good, in seconds since 1970; nothing before the first Set().
  std::optional<int64_t> expires() const;

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<boost::asio::ssl::context> context_;
};

// PEM, each by text or (where the text is empty) by file, at most kPemMax.
struct ClientTlsOptions {
  // The authorities that are trusted; none: the system's.
  std::string ca = {};
  std::string ca_file = {};
  // To verify and to send as SNI instead of the host; empty: the host.
  std::string server_name = {};
  bool insecure = false;  // do not verify
  // The client's own certificate, with those between it and its authority, and its key; or none.
  std::string certificate = {};
  std::string certificate_file = {};
  std::string key = {};
  std::string key_file = {};
};

// Whom a client trusts and what it shows. Thread safe once made.
class ClientTls {
 public:
  // Reads certificates and key. kNotFound, kInvalid, kInternal: which, and what is wrong.
  static Result<std::unique_ptr<ClientTls>> Make(const ClientTlsOptions& options);

  boost::asio::ssl::context& context() const { return *context_; }
  bool verifies() const { return verify_; }
  // Names to send and to verify, for a connection to `host`. False: OpenSSL refused.
  bool Prepare(ssl_st* tls, const std::string& host) const;

 private:
  ClientTls() = default;
  std::shared_ptr<boost::asio::ssl::context> context_;
  std::string server_name_;
  bool verify_ = true;
};

// The names and addresses that a certificate is for, as text: "localhost, 127.0.0.1". "nobody":
// it has none. Thread safe.
std::string NamesOf(x509_st* certificate);

// Until when a certificate is good, in seconds since 1970; nothing where it does not say so. Thread
// safe.
std::optional<int64_t> NotAfter(const x509_st* certificate);

}  // namespace baton::net

#endif  // BATON_NET_TLS_H_
