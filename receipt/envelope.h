// A receipt as a file that cannot be changed unnoticed: a DSSE envelope, signed with Ed25519.
//
//   {"payload": base64, "payloadType": ..., "public_key": base64 (DER), "signatures": [{keyid,
//   sig}]}
//
// The format and what is signed, PAE(type, payload) = "DSSEv1 LEN(type) type LEN(payload) payload",
// are those of DSSE (github.com/secure-systems-lab/dsse, protocol.md), with the public key beside
// it so that the file shows by itself which key signed it. As a page for people the same envelope
// stands in an HTML file, and the payload has the SHA-256 of the rest of that file ("page_sha256"),
// so that what people read is signed too.
//
// Thread safe: no state but that of the objects.
#ifndef BATON_RECEIPT_ENVELOPE_H_
#define BATON_RECEIPT_ENVELOPE_H_

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace baton::receipt {

inline constexpr std::string_view kPayloadType = "application/vnd.baton.receipt+json";
// Bytes of a receipt's file.
inline constexpr size_t kFileMax = 64 << 20;

// A public key of Ed25519.
class PublicKey {
 public:
  // kInvalid: it is not in PEM, or of another algorithm.
  static Result<PublicKey> FromPem(const std::string& pem);
  // The same of DER (SubjectPublicKeyInfo).
  static Result<PublicKey> FromDer(std::string_view der);

  // "sha256:" and 64 hex digits: the SHA-256 of der(), as `openssl pkey -pubin -outform DER |
  // sha256sum` says it.
  std::string Fingerprint() const;
  std::string Pem() const;
  const std::string& der() const { return der_; }
  bool Verifies(std::string_view message, std::string_view signature) const;

 private:
  explicit PublicKey(std::string der) : der_(std::move(der)) {}
  std::string der_;
};

// The private key that a daemon signs with.
class SigningKey {
 public:
  // Reads the key's file (PEM), or makes key and file (mode 0600) where there is none. kInvalid:
  // the file has no key of Ed25519. kUnavailable, kInternal: it cannot be read or written.
  static Result<SigningKey> OpenOrMake(const std::string& path);

  const PublicKey& public_key() const { return public_; }
  // The envelope of a payload: one line of JSON without a line's end.
  std::string Seal(std::string_view payload) const;

 private:
  SigningKey(std::shared_ptr<void> key, PublicKey public_key)
      : key_(std::move(key)), public_(std::move(public_key)) {}
  std::shared_ptr<void> key_;  // EVP_PKEY
  PublicKey public_;
};

// Where a page leaves room for the envelope.
inline constexpr std::string_view kEnvelopeBegin =
    "<script type=\"application/json\" id=\"signed-receipt\">";
inline constexpr std::string_view kEnvelopeEnd = "</script>";

// The SHA-256 of a page in hex: of the page with room for the envelope, which is empty.
std::string PageHash(std::string_view page);
// The page with the envelope in it. The page has kEnvelopeBegin followed by kEnvelopeEnd once.
std::string WithEnvelope(std::string_view page, std::string_view envelope);

struct Opened {
  std::string payload;  // as it was signed
  PublicKey key;        // by whom; whether that key is to be trusted, only the reader can know
};
// Reads a receipt's file, JSON (the envelope and a line's end) or HTML, and verifies that nothing
// of it was changed: neither the payload nor any other byte. kInvalid says what is wrong.
Result<Opened> Verify(std::string_view file);

}  // namespace baton::receipt

#endif  // BATON_RECEIPT_ENVELOPE_H_
