// OpenSSL's objects, owned; and its texts. Thread safe: no state.
#ifndef BATON_NET_OPENSSL_H_
#define BATON_NET_OPENSSL_H_

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <memory>
#include <string>

namespace baton::net {

template <class T, void (*kFree)(T*)>
struct OpenSslFree {
  void operator()(T* object) const { kFree(object); }
};
using X509Ptr = std::unique_ptr<X509, OpenSslFree<X509, X509_free>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, OpenSslFree<EVP_PKEY, EVP_PKEY_free>>;
using BioPtr = std::unique_ptr<BIO, OpenSslFree<BIO, BIO_free_all>>;

// To be read from `text`, which outlives it.
inline BioPtr BioOf(const std::string& text) {
  return BioPtr(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// An encrypted key has nobody who could be asked.
inline int NoPassword(char*, int, int, void*) { return -1; }

// The next certificate; null: there is none that can be read.
inline X509Ptr ReadCertificate(const BioPtr& pem) {
  return X509Ptr(PEM_read_bio_X509(pem.get(), nullptr, NoPassword, nullptr));
}
inline KeyPtr ReadKey(const BioPtr& pem) {
  return KeyPtr(PEM_read_bio_PrivateKey(pem.get(), nullptr, NoPassword, nullptr));
}

// What went wrong last in this thread, which is forgotten by it.
inline std::string OpenSslReason() {
  const char* reason = ERR_reason_error_string(ERR_peek_last_error());
  ERR_clear_error();
  return reason != nullptr ? reason : "unknown error";
}

}  // namespace baton::net

#endif  // BATON_NET_OPENSSL_H_
