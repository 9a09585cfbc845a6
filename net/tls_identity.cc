#include "net/tls_identity.h"

#include <fmt/format.h>
#include <openssl/ssl.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/ssl/context.hpp>

namespace baton::net {

Result<void> TlsIdentity::Set(const std::string& certificates, const std::string& key) {
  namespace asio = boost::asio;
  constexpr size_t kPemMax = size_t{1} << 20;
  if (certificates.size() > kPemMax || key.size() > kPemMax) {
    return Fail(ErrorCode::kInvalid, "the certificate or its key is larger than 1 MiB");
  }
  auto context = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_server);
  SSL_CTX* const native = context->native_handle();
  SSL_CTX_set_min_proto_version(native, TLS1_2_VERSION);
  // Clients keep their connections; a resumption would save nothing.
  SSL_CTX_set_session_cache_mode(native, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(native, 0);
  SSL_CTX_set_options(native, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
  // An encrypted key has nobody who could be asked.
  SSL_CTX_set_default_passwd_cb(native, [](char*, int, int, void*) { return -1; });
  boost::system::error_code error;
  context->use_certificate_chain(asio::buffer(certificates), error);
  if (error) {
    return Fail(ErrorCode::kInvalid,
                fmt::format("cannot read the certificate: {}; it must be PEM", error.message()));
  }
  context->use_private_key(asio::buffer(key), asio::ssl::context::pem, error);
  if (error || SSL_CTX_check_private_key(native) != 1) {
    return Fail(
        ErrorCode::kInvalid,
        fmt::format("the key is not the key of the certificate{}; it must be PEM, without a "
                    "password",
                    error ? ": " + error.message() : ""));
  }
  const std::lock_guard lock(mutex_);
  context_ = std::move(context);
  return {};
}

std::shared_ptr<boost::asio::ssl::context> TlsIdentity::context() const {
  const std::lock_guard lock(mutex_);
  return context_;
}

}  // namespace baton::net
