#include <openssl/ssl.h>

#include "k8s/api/openssl.h"
#include "k8s/serve/server.h"

namespace baton::k8s {

namespace {

tl::unexpected<Error> Wrong(const std::string& what) {
  return Fail(ErrorCode::kInvalid, what + " (" + OpenSslReason() + ")");
}

}  // namespace

Result<void> TlsIdentity::Set(const std::string& certificates, const std::string& key) {
  if (certificates.size() > kPemMax || key.size() > kPemMax) {
    return Fail(ErrorCode::kInvalid, "the certificate or its key is larger than 1 MiB");
  }
  ERR_clear_error();
  const std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  if (context == nullptr) return Wrong("TLS could not be set up");
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  // The API server keeps its connections; a resumption would save nothing.
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context.get(), 0);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE |
                                      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                      SSL_MODE_RELEASE_BUFFERS);

  const BioPtr chain = BioOf(certificates);
  const X509Ptr own = ReadCertificate(chain);
  if (own == nullptr || SSL_CTX_use_certificate(context.get(), own.get()) != 1) {
    return Wrong("the certificate is no PEM");
  }
  while (X509Ptr next = ReadCertificate(chain)) {
    if (SSL_CTX_add0_chain_cert(context.get(), next.get()) != 1) {
      return Wrong("the certificate's chain is no good");
    }
    (void)next.release();
  }
  ERR_clear_error();
  const KeyPtr read = ReadKey(BioOf(key));
  if (read == nullptr || SSL_CTX_use_PrivateKey(context.get(), read.get()) != 1) {
    return Wrong("the key is no PEM, has a password, or is not that of the certificate");
  }
  if (SSL_CTX_check_private_key(context.get()) != 1) {
    return Wrong("the key is not that of the certificate");
  }
  const std::lock_guard lock(mutex_);
  context_ = context;
  return {};
}

std::shared_ptr<ssl_ctx_st> TlsIdentity::context() const {
  const std::lock_guard lock(mutex_);
  return context_;
}

}  // namespace baton::k8s
