#include "net/tls.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <utility>
// Boost.Asio 1.74 uses std::exchange without including <utility>.
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ssl/context.hpp>

#include "base/file.h"
#include "net/openssl.h"

namespace baton::net {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

std::shared_ptr<asio::ssl::context> NewContext(asio::ssl::context::method method) {
  auto context = std::make_shared<asio::ssl::context>(method);
  SSL_CTX_set_min_proto_version(context->native_handle(), TLS1_2_VERSION);
  SSL_CTX_set_default_passwd_cb(context->native_handle(), NoPassword);
  return context;
}

// `whose`: "client " or nothing, in the error.
Result<void> UseCertificate(asio::ssl::context& context, const std::string& certificates,
                            const std::string& key, const std::string& whose) {
  error_code error;
  context.use_certificate_chain(asio::buffer(certificates), error);
  if (error) {
    return Fail(
        ErrorCode::kInvalid,
        fmt::format("cannot read the {}certificate: {}; it must be PEM", whose, error.message()));
  }
  context.use_private_key(asio::buffer(key), asio::ssl::context::pem, error);
  if (error || SSL_CTX_check_private_key(context.native_handle()) != 1) {
    return Fail(
        ErrorCode::kInvalid,
        fmt::format("the {}key is not the key of the certificate{}; it must be PEM, without a "
                    "password",
                    whose, error ? ": " + error.message() : ""));
  }
  return {};
}

// `text`, or the file where it is empty; empty where there is neither.
Result<std::string> PemOf(const std::string& text, const std::string& file,
                          const std::string& what) {
  if (text.empty() && !file.empty()) return ReadFile(file, kPemMax);
  if (text.size() > kPemMax) return Fail(ErrorCode::kInvalid, what + " is larger than 1 MiB");
  return text;
}

}  // namespace

Result<void> TlsIdentity::Set(const std::string& certificates, const std::string& key) {
  if (certificates.size() > kPemMax || key.size() > kPemMax) {
    return Fail(ErrorCode::kInvalid, "the certificate or its key is larger than 1 MiB");
  }
  auto context = NewContext(asio::ssl::context::tls_server);
  SSL_CTX* const native = context->native_handle();
  // Clients keep their connections; a resumption would save nothing.
  SSL_CTX_set_session_cache_mode(native, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(native, 0);
  SSL_CTX_set_options(native, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
  if (auto used = UseCertificate(*context, certificates, key, ""); !used) return used;
  const std::lock_guard lock(mutex_);
  context_ = std::move(context);
  return {};
}

std::shared_ptr<boost::asio::ssl::context> TlsIdentity::context() const {
  const std::lock_guard lock(mutex_);
  return context_;
}

Result<std::unique_ptr<ClientTls>> ClientTls::Make(const ClientTlsOptions& options) {
  auto ca = PemOf(options.ca, options.ca_file, "the certificate-authority");
  if (!ca) return tl::unexpected(ca.error());
  auto certificate = PemOf(options.certificate, options.certificate_file, "the client certificate");
  if (!certificate) return tl::unexpected(certificate.error());
  auto key = PemOf(options.key, options.key_file, "the client key");
  if (!key) return tl::unexpected(key.error());
  if (certificate->empty() != key->empty()) {
    return Fail(ErrorCode::kInvalid,
                certificate->empty()
                    ? "there is a client key without its certificate; give both or none"
                    : "there is a client certificate without its key; give both or none");
  }

  std::unique_ptr<ClientTls> tls(new ClientTls);
  tls->context_ = NewContext(asio::ssl::context::tls_client);
  tls->server_name_ = options.server_name;
  tls->verify_ = !options.insecure;
  asio::ssl::context& context = *tls->context_;
  error_code error;
  context.set_verify_mode(options.insecure ? asio::ssl::verify_none : asio::ssl::verify_peer,
                          error);
  if (ca->empty()) {
    context.set_default_verify_paths(error);
  } else if (context.add_certificate_authority(asio::buffer(*ca), error); error) {
    return Fail(ErrorCode::kInvalid, "the certificate-authority" +
                                         (options.ca.empty() ? " " + options.ca_file : "") +
                                         " holds no certificate (PEM)");
  }
  if (!certificate->empty()) {
    if (auto used = UseCertificate(context, *certificate, *key, "client "); !used) {
      return tl::unexpected(used.error());
    }
  }
  return tls;
}

bool ClientTls::Prepare(ssl_st* tls, const std::string& host) const {
  const std::string& name = server_name_.empty() ? host : server_name_;
  error_code no_address;
  if (asio::ip::make_address(name, no_address); !no_address) {
    // An address is never sent (RFC 6066), but verified against the certificate's addresses.
    return !verify_ || X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls), name.c_str()) == 1;
  }
  if (SSL_set_tlsext_host_name(tls, name.c_str()) != 1) return false;
  SSL_set_hostflags(tls, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  return !verify_ || SSL_set1_host(tls, name.c_str()) == 1;
}

std::optional<int64_t> TlsIdentity::expires() const {
  const auto used = context();
  const X509* certificate =
      used != nullptr ? SSL_CTX_get0_certificate(used->native_handle()) : nullptr;
  return certificate != nullptr ? NotAfter(certificate) : std::nullopt;
}

std::optional<int64_t> NotAfter(const X509* certificate) {
  tm when{};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &when) != 1) return std::nullopt;
  return timegm(&when);
}

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

}  // namespace baton::net
