#include "k8s/api/tls.h"

#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <cerrno>
#include <fstream>
#include <system_error>

#include "k8s/api/openssl.h"
#include "k8s/api/url.h"

namespace baton::k8s {
namespace {

// `text`, or the file where it is empty; empty where there is neither.
Result<std::string> PemOf(const std::string& text, const std::string& file,
                          const std::string& what) {
  if (!text.empty() || file.empty()) {
    if (text.size() > kPemMax) return Fail(ErrorCode::kInvalid, what + " is larger than 1 MiB");
    return text;
  }
  return ReadTextFile(file, what, kPemMax);
}

}  // namespace

Result<std::string> ReadTextFile(const std::string& path, const std::string& what, size_t max) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) {
    const int code = errno;
    return Fail(code == ENOENT || code == ENOTDIR ? ErrorCode::kNotFound : ErrorCode::kDenied,
                what + " " + path + " cannot be read: " + std::generic_category().message(code));
  }
  if (!S_ISREG(status.st_mode)) return Fail(ErrorCode::kInvalid, what + " " + path + " is no file");
  std::ifstream file(path, std::ios::binary);
  std::string text(max + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad()) {
    return Fail(ErrorCode::kDenied, what + " " + path + " cannot be read; may this user read it?");
  }
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > max) {
    return Fail(ErrorCode::kInvalid,
                what + " " + path + " is larger than " + std::to_string(max) + " bytes");
  }
  return text;
}

Result<std::unique_ptr<ClientTls>> ClientTls::Make(const ClusterConfig& config) {
  std::unique_ptr<ClientTls> tls(new ClientTls);
  ERR_clear_error();
  tls->context_ = SSL_CTX_new(TLS_client_method());
  SSL_CTX* context = tls->context_;
  if (context == nullptr) {
    return Fail(ErrorCode::kInternal, "TLS cannot be set up: " + OpenSslReason());
  }
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_default_passwd_cb(context, NoPassword);
  tls->server_name_ = config.server_name;
  tls->verify_ = !config.insecure;
  SSL_CTX_set_verify(context, config.insecure ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, nullptr);

  auto ca = PemOf(config.ca, config.ca_file, "the certificate-authority");
  if (!ca) return tl::unexpected(ca.error());
  if (ca->empty()) {
    SSL_CTX_set_default_verify_paths(context);
  } else {
    const BioPtr bio = BioOf(*ca);
    int count = 0;
    while (const X509Ptr one = ReadCertificate(bio)) {
      X509_STORE_add_cert(SSL_CTX_get_cert_store(context), one.get());
      ++count;
    }
    if (count == 0) {
      return Fail(ErrorCode::kInvalid,
                  "the certificate-authority" +
                      (config.ca.empty() ? " " + config.ca_file : std::string()) +
                      " holds no certificate (PEM)");
    }
    ERR_clear_error();
  }

  auto certificate = PemOf(config.certificate, config.certificate_file, "the client certificate");
  if (!certificate) return tl::unexpected(certificate.error());
  auto key = PemOf(config.key, config.key_file, "the client key");
  if (!key) return tl::unexpected(key.error());
  if (certificate->empty() != key->empty()) {
    return Fail(ErrorCode::kInvalid,
                certificate->empty()
                    ? "there is a client key without its certificate; give both or none"
                    : "there is a client certificate without its key; give both or none");
  }
  if (!certificate->empty()) {
    const BioPtr chain = BioOf(*certificate);
    const X509Ptr leaf = ReadCertificate(chain);
    if (!leaf || SSL_CTX_use_certificate(context, leaf.get()) != 1) {
      return Fail(ErrorCode::kInvalid, "the client certificate cannot be used: " + OpenSslReason());
    }
    while (X509Ptr next = ReadCertificate(chain)) {
      if (SSL_CTX_add_extra_chain_cert(context, next.get()) == 1) (void)next.release();
    }
    ERR_clear_error();
    const KeyPtr pkey = ReadKey(BioOf(*key));
    if (!pkey || SSL_CTX_use_PrivateKey(context, pkey.get()) != 1 ||
        SSL_CTX_check_private_key(context) != 1) {
      return Fail(ErrorCode::kInvalid,
                  "the client key cannot be used (" + OpenSslReason() +
                      "); is it that of the certificate, PEM and without a password?");
    }
  }
  return tls;
}

ClientTls::~ClientTls() { SSL_CTX_free(context_); }

bool ClientTls::Prepare(ssl_st* tls, const std::string& host) const {
  const std::string& name = server_name_.empty() ? host : server_name_;
  if (IsAddress(name)) {
    // An address is never sent (RFC 6066), but verified against the certificate's addresses.
    return !verify_ || X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls), name.c_str()) == 1;
  }
  if (SSL_set_tlsext_host_name(tls, name.c_str()) != 1) return false;
  SSL_set_hostflags(tls, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  return !verify_ || SSL_set1_host(tls, name.c_str()) == 1;
}

}  // namespace baton::k8s
