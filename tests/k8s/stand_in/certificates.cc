#include "tests/k8s/stand_in/certificates.h"

#include <openssl/evp.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <memory>

#include "base/check.h"
#include "net/openssl.h"

namespace baton::k8s::testing {
namespace {

using net::BioOf;
using net::BioPtr;
using net::KeyPtr;
using net::X509Ptr;

std::string TextOf(BIO* bio) {
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(bio, &bytes);
  return {bytes, static_cast<size_t>(size)};
}

void Extend(X509* certificate, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str());
  BATON_CHECK(extension != nullptr);
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

// `issuer` null: signs itself.
KeyPair Make(const KeyPair* authority, const std::string& common_name, const std::string& names,
             long valid_s) {
  const KeyPtr key(EVP_EC_gen("P-256"));
  const X509Ptr certificate(X509_new());
  BATON_CHECK(key && certificate);
  X509_set_version(certificate.get(), 2);
  uint64_t serial = 0;
  RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof(serial));
  ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate.get()), serial >> 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -86'400);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), valid_s);
  X509_set_pubkey(certificate.get(), key.get());
  X509_NAME* subject = X509_get_subject_name(certificate.get());
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(common_name.c_str()), -1, -1,
                             0);
  X509Ptr issuer;
  KeyPtr issuer_key;
  if (authority != nullptr) {
    issuer = net::ReadCertificate(BioOf(authority->certificate));
    issuer_key = net::ReadKey(BioOf(authority->key));
    BATON_CHECK(issuer && issuer_key);
  }
  X509* signer = issuer ? issuer.get() : certificate.get();
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(signer));
  Extend(certificate.get(), signer, NID_basic_constraints,
         issuer ? "critical,CA:FALSE" : "critical,CA:TRUE");
  Extend(certificate.get(), signer, NID_subject_key_identifier, "hash");
  if (issuer) {
    Extend(certificate.get(), signer, NID_authority_key_identifier, "keyid");
    Extend(certificate.get(), signer, NID_ext_key_usage, "serverAuth,clientAuth");
  }
  if (!names.empty()) Extend(certificate.get(), signer, NID_subject_alt_name, names);
  BATON_CHECK(
      X509_sign(certificate.get(), issuer_key ? issuer_key.get() : key.get(), EVP_sha256()) > 0);
  KeyPair pair;
  const BioPtr out(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(out.get(), certificate.get());
  pair.certificate = TextOf(out.get());
  const BioPtr key_out(BIO_new(BIO_s_mem()));
  PEM_write_bio_PrivateKey(key_out.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  pair.key = TextOf(key_out.get());
  return pair;
}

}  // namespace

KeyPair MakeAuthority(const std::string& name) { return Make(nullptr, name, {}, 86'400); }

KeyPair MakeCertificate(const KeyPair& authority, const std::string& common_name,
                        const std::string& names, long valid_s) {
  return Make(&authority, common_name, names, valid_s);
}

}  // namespace baton::k8s::testing
