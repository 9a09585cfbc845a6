#include "k8s/webhook/certificates.h"

#include <arpa/inet.h>
#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>

#include "net/openssl.h"
#include "net/tls.h"

namespace baton::k8s {

namespace {

using net::BioOf;
using net::BioPtr;
using net::KeyPtr;
using net::OpenSslReason;
using net::ReadCertificate;
using net::X509Ptr;
using ExtensionPtr =
    std::unique_ptr<X509_EXTENSION, net::OpenSslFree<X509_EXTENSION, X509_EXTENSION_free>>;

constexpr Duration kClocksDiffer = std::chrono::minutes(1);

std::string Drained(const BioPtr& text) {
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(text.get(), &bytes);
  return size > 0 ? std::string(bytes, static_cast<size_t>(size)) : std::string();
}

std::string PemOf(X509* certificate) {
  const BioPtr text(BIO_new(BIO_s_mem()));
  if (text == nullptr || PEM_write_bio_X509(text.get(), certificate) != 1) return {};
  return Drained(text);
}

time_t SecondsOf(WallTime time) {
  return static_cast<time_t>(std::chrono::duration_cast<std::chrono::seconds>(time).count());
}

bool AddExtension(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const ExtensionPtr extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str()));
  return extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1;
}

bool AddName(X509_NAME* subject, const char* what, const std::string& name, int type) {
  return X509_NAME_add_entry_by_txt(subject, what, type,
                                    reinterpret_cast<const unsigned char*>(name.data()),
                                    static_cast<int>(name.size()), -1, 0) == 1;
}

// A certificate that is signed by `issuer` (null: by itself, an authority of `replica`).
X509Ptr MakeOne(const std::string& name, const std::string& names, const std::string& replica,
                EVP_PKEY* key, X509* issuer, EVP_PKEY* issuer_key, WallTime from, WallTime until) {
  X509Ptr made(X509_new());
  std::array<unsigned char, 16> serial;
  if (made == nullptr || RAND_bytes(serial.data(), serial.size()) != 1) return nullptr;
  serial[0] &= 0x7f;
  serial[0] |= 0x40;
  BIGNUM* number = BN_bin2bn(serial.data(), serial.size(), nullptr);
  const bool numbered =
      number != nullptr && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(made.get())) != nullptr;
  BN_free(number);
  X509_NAME* subject = X509_get_subject_name(made.get());
  X509* by = issuer == nullptr ? made.get() : issuer;
  const bool authority = issuer == nullptr;
  if (!numbered || X509_set_version(made.get(), 2) != 1 ||
      ASN1_TIME_set(X509_getm_notBefore(made.get()), SecondsOf(from)) == nullptr ||
      ASN1_TIME_set(X509_getm_notAfter(made.get()), SecondsOf(until)) == nullptr ||
      // Of the names that a subject may have this one has no bound on its length.
      (authority && !AddName(subject, "DC", replica, V_ASN1_IA5STRING)) ||
      !AddName(subject, "CN", name, MBSTRING_UTF8) ||
      X509_set_issuer_name(made.get(), X509_get_subject_name(by)) != 1 ||
      X509_set_pubkey(made.get(), key) != 1 ||
      !AddExtension(made.get(), by, NID_basic_constraints,
                    authority ? "critical,CA:TRUE,pathlen:0" : "critical,CA:FALSE") ||
      !AddExtension(made.get(), by, NID_key_usage,
                    authority ? "critical,keyCertSign,cRLSign" : "critical,digitalSignature") ||
      !AddExtension(made.get(), by, NID_subject_key_identifier, "hash") ||
      (!authority && (!AddExtension(made.get(), by, NID_authority_key_identifier, "keyid:always") ||
                      !AddExtension(made.get(), by, NID_ext_key_usage, "serverAuth") ||
                      !AddExtension(made.get(), by, NID_subject_alt_name, names))) ||
      X509_sign(made.get(), issuer_key, EVP_sha256()) == 0) {
    return nullptr;
  }
  return made;
}

struct Authority {
  std::string pem;
  std::string replica;  // empty: somebody else's
  WallTime not_after{0};
};

std::string ReplicaOf(X509* authority) {
  std::array<char, kReplicaMax + 1> name{};
  X509_NAME_get_text_by_NID(X509_get_subject_name(authority), NID_domainComponent, name.data(),
                            name.size());
  return name.data();
}

std::vector<Authority> Authorities(const std::string& bundle) {
  std::vector<Authority> all;
  if (bundle.size() > net::kPemMax) return all;
  const BioPtr text = BioOf(bundle);
  while (const X509Ptr certificate = ReadCertificate(text)) {
    const auto until = net::NotAfter(certificate.get());
    std::string pem = PemOf(certificate.get());
    if (!until || pem.empty()) continue;
    all.push_back({std::move(pem), ReplicaOf(certificate.get()), std::chrono::seconds(*until)});
  }
  ERR_clear_error();
  return all;
}

}  // namespace

WallTime WallNow() {
  return std::chrono::duration_cast<Duration>(std::chrono::system_clock::now().time_since_epoch());
}

Result<ServingCertificate> MakeServingCertificate(const std::vector<std::string>& names,
                                                  const std::string& replica, WallTime now,
                                                  Duration validity) {
  const auto refused = [](const char* what) {
    return Fail(ErrorCode::kInternal,
                std::string("OpenSSL could not make ") + what + ": " + OpenSslReason());
  };
  std::string list;
  for (const std::string& name : names) {
    in6_addr address;
    const bool is_address = inet_pton(AF_INET, name.c_str(), &address) == 1 ||
                            inet_pton(AF_INET6, name.c_str(), &address) == 1;
    const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             c == '.' || c == '-' || c == ':';
    });
    if (name.empty() || name.size() > 253 || !plain) {
      return Fail(ErrorCode::kInvalid, "'" + name.substr(0, 64) + "' is no name of a server");
    }
    list += std::string(list.empty() ? "" : ",") + (is_address ? "IP:" : "DNS:") + name;
  }
  if (names.empty()) return Fail(ErrorCode::kInvalid, "a certificate needs a name");
  if (replica.empty() || replica.size() > kReplicaMax ||
      !std::all_of(replica.begin(), replica.end(), [](char c) { return c > ' ' && c <= '~'; })) {
    return Fail(ErrorCode::kInvalid, "'" + replica.substr(0, 64) + "' is no name of a replica");
  }
  ERR_clear_error();
  const KeyPtr authority_key(EVP_EC_gen("P-256"));
  const KeyPtr key(EVP_EC_gen("P-256"));
  std::array<unsigned char, 8> random;
  if (authority_key == nullptr || key == nullptr || RAND_bytes(random.data(), random.size()) != 1) {
    return refused("a key");
  }
  // Of its own name, so that authorities of several replicas are not mistaken for each other.
  std::string authority_name = "baton webhook ";
  for (const unsigned char byte : random) {
    constexpr std::string_view kHex = "0123456789abcdef";
    authority_name += kHex[byte >> 4];
    authority_name += kHex[byte & 15];
  }
  ServingCertificate made;
  made.not_before = now - kClocksDiffer;
  made.not_after = now + validity;
  const X509Ptr authority = MakeOne(authority_name, {}, replica, authority_key.get(), nullptr,
                                    authority_key.get(), made.not_before, made.not_after);
  if (authority == nullptr) return refused("an authority");
  const X509Ptr certificate =
      MakeOne(names.front().substr(0, 64), list, {}, key.get(), authority.get(),
              authority_key.get(), made.not_before, made.not_after);
  if (certificate == nullptr) return refused("a certificate");
  made.authority = PemOf(authority.get());
  made.certificate = PemOf(certificate.get());
  const BioPtr text(BIO_new(BIO_s_mem()));
  if (text == nullptr ||
      PEM_write_bio_PrivateKey(text.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) != 1) {
    return refused("a key's text");
  }
  made.key = Drained(text);
  if (made.authority.empty() || made.certificate.empty()) return refused("a certificate's text");
  return made;
}

std::string MergedBundle(const std::string& bundle, const std::vector<std::string>& wanted,
                         WallTime now) {
  const auto contains = [](const std::vector<Authority>& list, const std::string& pem) {
    return std::any_of(list.begin(), list.end(), [&](const Authority& a) { return a.pem == pem; });
  };
  std::vector<Authority> ours;
  for (const std::string& pem : wanted) {
    for (Authority& authority : Authorities(pem)) ours.push_back(std::move(authority));
  }
  const auto retired = [&](const Authority& authority) {
    return !authority.replica.empty() && !contains(ours, authority.pem) &&
           std::any_of(ours.begin(), ours.end(),
                       [&](const Authority& a) { return a.replica == authority.replica; });
  };
  std::vector<Authority> kept;
  for (Authority& authority : Authorities(bundle)) {
    if (contains(kept, authority.pem) || retired(authority) || authority.not_after <= now) continue;
    kept.push_back(std::move(authority));
  }
  for (const Authority& authority : ours) {
    if (!contains(kept, authority.pem)) kept.push_back(authority);
  }
  while (kept.size() > kBundleMax) {
    auto first = kept.end();
    for (auto at = kept.begin(); at != kept.end(); ++at) {
      if (contains(ours, at->pem)) continue;
      if (first == kept.end() || at->not_after < first->not_after) first = at;
    }
    if (first == kept.end()) break;
    kept.erase(first);
  }
  std::string merged;
  for (const Authority& authority : kept) merged += authority.pem;
  return merged;
}

size_t BundleSize(const std::string& bundle) { return Authorities(bundle).size(); }

}  // namespace baton::k8s
