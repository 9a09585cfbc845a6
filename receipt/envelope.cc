#include "receipt/envelope.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "net/openssl.h"

namespace baton::receipt {
namespace {

using net::KeyPtr;
using nlohmann::json;

constexpr size_t kKeyFileMax = 64 << 10;
constexpr int kPrivateMode = 0600;

const unsigned char* Bytes(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

std::string Sha256(std::string_view text) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256(Bytes(text), text.size(), digest.data());
  std::string hex;
  for (const unsigned char byte : digest) hex += fmt::format("{:02x}", byte);
  return hex;
}

std::string ToBase64(std::string_view bytes) {
  std::string text(4 * ((bytes.size() + 2) / 3) + 1, '\0');
  const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()), Bytes(bytes),
                                   static_cast<int>(bytes.size()));
  text.resize(static_cast<size_t>(size));
  return text;
}

// Nothing: it is not the base64 of anything.
std::optional<std::string> FromBase64(const std::string& text) {
  std::string bytes(3 * text.size() / 4 + 3, '\0');
  const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()), Bytes(text),
                                   static_cast<int>(text.size()));
  if (size < 0) return std::nullopt;
  // EVP_DecodeBlock() counts the padding.
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  if (static_cast<size_t>(size) < padding) return std::nullopt;
  bytes.resize(static_cast<size_t>(size) - padding);
  if (ToBase64(bytes) != text) return std::nullopt;
  return bytes;
}

// DSSE's pre-authentication encoding.
std::string WhatIsSigned(std::string_view type, std::string_view payload) {
  return fmt::format("DSSEv1 {} {} {} {}", type.size(), type, payload.size(), payload);
}

tl::unexpected<Error> Bad(std::string what) { return Fail(ErrorCode::kInvalid, std::move(what)); }

Result<std::string> DerOf(EVP_PKEY* key) {
  if (key == nullptr) return Bad("it is not a public key in PEM");
  if (EVP_PKEY_id(key) != EVP_PKEY_ED25519) {
    return Bad("the key is of another algorithm; receipts are signed with Ed25519 alone");
  }
  unsigned char* der = nullptr;
  const int size = i2d_PUBKEY(key, &der);
  BATON_CHECK(size > 0);
  std::string bytes(reinterpret_cast<char*>(der), static_cast<size_t>(size));
  OPENSSL_free(der);
  return bytes;
}

KeyPtr KeyOf(const std::string& der) {
  const unsigned char* at = Bytes(der);
  return KeyPtr(d2i_PUBKEY(nullptr, &at, static_cast<long>(der.size())));
}

// What is written to `bio`.
std::string TextOf(const net::BioPtr& bio) {
  char* text = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &text);
  return {text, static_cast<size_t>(size)};
}

std::string Envelope(std::string_view payload, const PublicKey& key, std::string_view signature) {
  const json envelope{
      {"payload", ToBase64(payload)},
      {"payloadType", kPayloadType},
      {"public_key", ToBase64(key.der())},
      {"signatures", {{{"keyid", key.Fingerprint()}, {"sig", ToBase64(signature)}}}}};
  return envelope.dump();
}

// The text member of an object; nothing: there is none.
std::optional<std::string> TextIn(const json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_string()) return std::nullopt;
  return found->get<std::string>();
}

Result<Opened> OpenEnvelope(std::string_view text) {
  // An envelope has seven of these, and base64 none. A file of nothing else would take a gigabyte
  // to read.
  const auto structure = std::count_if(text.begin(), text.end(),
                                       [](char c) { return c == ',' || c == '[' || c == '{'; });
  const json envelope = structure > 64 ? json() : json::parse(text, nullptr, false);
  if (!envelope.is_object()) {
    return Bad("the receipt is cut short or damaged: its envelope is not JSON");
  }
  const auto type = TextIn(envelope, "payloadType");
  if (!type) return Bad("the file is not a receipt: it has no payloadType");
  if (*type != kPayloadType) {
    return Bad(fmt::format("the file is signed, but not a receipt: its payloadType is {}",
                           type->substr(0, 64)));
  }
  const auto encoded = TextIn(envelope, "payload");
  const auto payload = encoded ? FromBase64(*encoded) : std::nullopt;
  if (!payload) return Bad("the receipt was changed or damaged: its payload is not base64");
  const auto encoded_key = TextIn(envelope, "public_key");
  const auto der = encoded_key ? FromBase64(*encoded_key) : std::nullopt;
  if (!der) return Bad("the receipt was changed or damaged: its public_key is not base64");
  auto key = PublicKey::FromDer(*der);
  if (!key) return Bad("the receipt's public_key: " + key.error().message);
  const auto signatures = envelope.find("signatures");
  if (signatures == envelope.end() || !signatures->is_array() || signatures->size() != 1) {
    return Bad("the receipt was changed or damaged: it must have one signature");
  }
  const json& one = signatures->front();
  const auto encoded_signature = one.is_object() ? TextIn(one, "sig") : std::nullopt;
  const auto signature = encoded_signature ? FromBase64(*encoded_signature) : std::nullopt;
  if (!signature) return Bad("the receipt was changed or damaged: its sig is not base64");
  if (!key->Verifies(WhatIsSigned(kPayloadType, *payload), *signature)) {
    return Bad(
        "the signature is wrong: the receipt was changed after it was signed, or was not signed by "
        "the key that it names");
  }
  // Nothing beside what is signed: no other member, no other spelling.
  if (Envelope(*payload, *key, *signature) != text) {
    return Bad("the receipt was changed: its envelope is not as batond writes it");
  }
  return Opened{*payload, *key};
}

}  // namespace

Result<PublicKey> PublicKey::FromPem(const std::string& pem) {
  const KeyPtr key(PEM_read_bio_PUBKEY(net::BioOf(pem).get(), nullptr, net::NoPassword, nullptr));
  ERR_clear_error();
  auto der = DerOf(key.get());
  if (!der) return tl::unexpected(der.error());
  return PublicKey(std::move(*der));
}

Result<PublicKey> PublicKey::FromDer(std::string_view der) {
  const KeyPtr key = KeyOf(std::string(der));
  ERR_clear_error();
  if (key == nullptr) return Bad("it is not a public key");
  auto written = DerOf(key.get());
  if (!written) return tl::unexpected(written.error());
  if (*written != der) return Bad("it is not a public key as it is written");
  return PublicKey(std::move(*written));
}

std::string PublicKey::Fingerprint() const { return "sha256:" + Sha256(der_); }

std::string PublicKey::Pem() const {
  const net::BioPtr bio(BIO_new(BIO_s_mem()));
  BATON_CHECK(PEM_write_bio_PUBKEY(bio.get(), KeyOf(der_).get()) == 1);
  return TextOf(bio);
}

bool PublicKey::Verifies(std::string_view message, std::string_view signature) const {
  const KeyPtr key = KeyOf(der_);
  const std::unique_ptr<EVP_MD_CTX, net::OpenSslFree<EVP_MD_CTX, EVP_MD_CTX_free>> context(
      EVP_MD_CTX_new());
  const bool good =
      EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key.get()) == 1 &&
      EVP_DigestVerify(context.get(), Bytes(signature), signature.size(), Bytes(message),
                       message.size()) == 1;
  ERR_clear_error();
  return good;
}

Result<SigningKey> SigningKey::OpenOrMake(const std::string& path) {
  Result<std::string> pem = ReadFile(path, kKeyFileMax, O_NOFOLLOW);
  KeyPtr key;
  if (pem) {
    key = net::ReadKey(net::BioOf(*pem));
    if (key == nullptr) {
      return Bad(fmt::format(
          "{}: {}; the key of receipts must be a private key of Ed25519 in PEM; move the file "
          "away, and a new key is made",
          path, net::OpenSslReason()));
    }
  } else if (pem.error().code != ErrorCode::kNotFound) {
    return tl::unexpected(pem.error());
  } else {
    EVP_PKEY* made = EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519");
    if (made == nullptr) {
      return Fail(ErrorCode::kInternal, "cannot make a key for receipts: " + net::OpenSslReason());
    }
    key.reset(made);
    const net::BioPtr bio(BIO_new(BIO_s_mem()));
    BATON_CHECK(PEM_write_bio_PrivateKey(bio.get(), made, nullptr, nullptr, 0, nullptr, nullptr) ==
                1);
    if (auto written = ReplaceFile(path, TextOf(bio), kPrivateMode, true); !written) {
      return tl::unexpected(written.error());
    }
  }
  auto der = DerOf(key.get());
  if (!der) return Bad(path + ": " + der.error().message);
  auto public_key = PublicKey::FromDer(*der);
  if (!public_key) return tl::unexpected(public_key.error());
  return SigningKey(std::shared_ptr<EVP_PKEY>(std::move(key)), std::move(*public_key));
}

std::string SigningKey::Seal(std::string_view payload) const {
  const std::string message = WhatIsSigned(kPayloadType, payload);
  const std::unique_ptr<EVP_MD_CTX, net::OpenSslFree<EVP_MD_CTX, EVP_MD_CTX_free>> context(
      EVP_MD_CTX_new());
  std::string signature(64, '\0');
  size_t size = signature.size();
  const bool made =
      EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr,
                         static_cast<EVP_PKEY*>(key_.get())) == 1 &&
      EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()), &size,
                     Bytes(message), message.size()) == 1;
  BATON_CHECK(made && size == signature.size());
  return Envelope(payload, public_, signature);
}

std::string PageHash(std::string_view page) { return Sha256(page); }

std::string WithEnvelope(std::string_view page, std::string_view envelope) {
  const size_t begin = page.find(kEnvelopeBegin);
  BATON_CHECK(begin != std::string_view::npos);
  const size_t at = begin + kEnvelopeBegin.size();
  return fmt::format("{}{}{}", page.substr(0, at), envelope, page.substr(at));
}

Result<Opened> Verify(std::string_view file) {
  if (file.starts_with("{")) {
    if (!file.ends_with("}\n"))
      return Bad("the receipt is cut short or damaged: its end is missing");
    return OpenEnvelope(file.substr(0, file.size() - 1));
  }
  const size_t begin = file.find(kEnvelopeBegin);
  if (begin == std::string_view::npos) {
    return Bad("the file is not a receipt: it has no signed envelope, as JSON or in a page");
  }
  const size_t at = begin + kEnvelopeBegin.size();
  const size_t end = file.find(kEnvelopeEnd, at);
  if (end == std::string_view::npos)
    return Bad("the receipt is cut short: its envelope has no end");
  auto opened = OpenEnvelope(file.substr(at, end - at));
  if (!opened) return opened;
  const json payload = json::parse(opened->payload, nullptr, false);
  const std::string page = fmt::format("{}{}", file.substr(0, at), file.substr(end));
  if (!payload.is_object() || TextIn(payload, "page_sha256") != PageHash(page)) {
    return Bad(
        "the page was changed: what it shows is not what was signed (the figures within the "
        "signature are intact)");
  }
  return opened;
}

}  // namespace baton::receipt
