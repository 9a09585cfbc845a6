// A receipt that was changed in any way is refused.
#include "receipt/envelope.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <sys/stat.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "base/file.h"
#include "net/openssl.h"
#include "tests/receipt/sample.h"
#include "tests/scale.h"
#include "tests/temp_folder.h"

namespace baton::receipt {
namespace {

using nlohmann::json;

class Envelope : public testing::Test {
 protected:
  SigningKey Key(const std::string& name = "receipt.key") {
    auto key = SigningKey::OpenOrMake(folder_ / name);
    EXPECT_TRUE(key) << key.error().message;
    return *key;
  }
  // The sentence with which the file is refused; empty: it is not.
  static std::string Refusal(const std::string& file) {
    const auto opened = Verify(file);
    return opened ? "" : opened.error().message;
  }
  static std::string Base64(const std::string& bytes) {
    std::string text(4 * ((bytes.size() + 2) / 3) + 1, '\0');
    text.resize(static_cast<size_t>(EVP_EncodeBlock(
        reinterpret_cast<unsigned char*>(text.data()),
        reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<int>(bytes.size()))));
    return text;
  }
  // A public key of another algorithm, as DER.
  static std::string OtherDer(const char* algorithm, const char* curve) {
    const net::KeyPtr key(curve != nullptr ? EVP_PKEY_Q_keygen(nullptr, nullptr, algorithm, curve)
                                           : EVP_PKEY_Q_keygen(nullptr, nullptr, algorithm));
    unsigned char* der = nullptr;
    const int size = i2d_PUBKEY(key.get(), &der);
    std::string bytes(reinterpret_cast<char*>(der), static_cast<size_t>(size));
    OPENSSL_free(der);
    return bytes;
  }

  const TempFolder folder_;
};

TEST_F(Envelope, OpensAsItWasSealed) {
  const SigningKey key = Key();
  const SignedSample sample = Sign(SampleReceipt(), key);
  for (const std::string& file : {sample.json, sample.html}) {
    const auto opened = Verify(file);
    ASSERT_TRUE(opened) << opened.error().message;
    EXPECT_EQ(opened->key.Fingerprint(), key.public_key().Fingerprint());
    EXPECT_EQ(json::parse(opened->payload).at("total").at("cost"), 40.6666667);
  }
}

// As another program that knows DSSE and Ed25519 would verify it.
TEST_F(Envelope, IsSignedByTheFormulaOfDsse) {
  const SigningKey key = Key();
  const json envelope = json::parse(key.Seal("{\"a\":1}"));
  EXPECT_EQ(envelope.at("payload"), "eyJhIjoxfQ==");
  EXPECT_EQ(envelope.at("payloadType"), "application/vnd.baton.receipt+json");
  std::string signature(66, '\0');
  const std::string text = envelope.at("signatures").at(0).at("sig");
  ASSERT_EQ(EVP_DecodeBlock(reinterpret_cast<unsigned char*>(signature.data()),
                            reinterpret_cast<const unsigned char*>(text.data()),
                            static_cast<int>(text.size())),
            66);
  signature.resize(64);
  EXPECT_TRUE(key.public_key().Verifies("DSSEv1 34 application/vnd.baton.receipt+json 7 {\"a\":1}",
                                        signature));
  EXPECT_FALSE(key.public_key().Verifies("{\"a\":1}", signature));
}

TEST_F(Envelope, WithAChangedFigureIsRefused) {
  const SignedSample sample = Sign(SampleReceipt(), Key());
  json envelope = json::parse(sample.json);
  json payload = json::parse(Verify(sample.json)->payload);
  payload["total"]["cost"] = 4.06;
  envelope["payload"] = Base64(payload.dump());
  EXPECT_NE(Refusal(envelope.dump() + "\n").find("the signature is wrong"), std::string::npos);
}

TEST_F(Envelope, WithAnotherKeyIsRefused) {
  const SignedSample sample = Sign(SampleReceipt(), Key());
  const SigningKey other = Key("other.key");
  json envelope = json::parse(sample.json);
  envelope["public_key"] = Base64(other.public_key().der());
  EXPECT_NE(Refusal(envelope.dump() + "\n").find("the signature is wrong"), std::string::npos);
  envelope["signatures"][0]["keyid"] = other.public_key().Fingerprint();
  EXPECT_NE(Refusal(envelope.dump() + "\n").find("the signature is wrong"), std::string::npos);
}

TEST_F(Envelope, OfAnotherAlgorithmIsRefused) {
  const SignedSample sample = Sign(SampleReceipt(), Key());
  for (const std::string& der : {OtherDer("EC", "P-256"), OtherDer("ED448", nullptr)}) {
    json envelope = json::parse(sample.json);
    envelope["public_key"] = Base64(der);
    EXPECT_NE(Refusal(envelope.dump() + "\n").find("of another algorithm"), std::string::npos)
        << Refusal(envelope.dump() + "\n");
  }
}

TEST_F(Envelope, ThatSaysMoreThanWhatIsSignedIsRefused) {
  const SignedSample sample = Sign(SampleReceipt(), Key());
  const auto with = [&](const auto& change) {
    json envelope = json::parse(sample.json);
    change(envelope);
    return Refusal(envelope.dump() + "\n");
  };
  EXPECT_NE(with([](json& e) { e["total"] = 1; }).find("not as batond writes it"),
            std::string::npos);
  EXPECT_NE(with([](json& e) { e["signatures"][0]["keyid"] = "sha256:00"; }).find("not as batond"),
            std::string::npos);
  EXPECT_NE(
      with([](json& e) { e["signatures"].push_back(e["signatures"][0]); }).find("one signature"),
      std::string::npos);
  EXPECT_NE(with([](json& e) { e["payloadType"] = "text/plain"; }).find("its payloadType is"),
            std::string::npos);
  EXPECT_NE(with([](json& e) { e.erase("public_key"); }).find("public_key"), std::string::npos);
  EXPECT_NE(Refusal(" " + sample.json), "");
  EXPECT_NE(Refusal(sample.json + "\n"), "");
  EXPECT_NE(Refusal(json::parse(sample.json).dump(2) + "\n"), "") << "in another layout";
}

TEST_F(Envelope, OfAPageThatShowsSomethingElseIsRefused) {
  const SigningKey key = Key();
  const SignedSample sample = Sign(SampleReceipt(), key);
  std::string page = sample.html;
  const size_t at = page.find("40.67");
  ASSERT_NE(at, std::string::npos);
  page.replace(at, 5, "14.67");
  EXPECT_NE(Refusal(page).find("the page was changed"), std::string::npos) << Refusal(page);
  // The envelope of another receipt by the same key.
  json cheap = SampleReceipt();
  cheap["total"]["cost"] = 1;
  std::string envelope = Sign(cheap, key).json;
  envelope.pop_back();
  page = sample.html;
  const size_t begin = page.find(kEnvelopeBegin) + kEnvelopeBegin.size();
  page.replace(begin, page.find(kEnvelopeEnd, begin) - begin, envelope);
  EXPECT_NE(Refusal(page).find("the page was changed"), std::string::npos);
  // What is added behind the end, and an envelope before the page's own.
  EXPECT_NE(Refusal(sample.html + "<p>Paid</p>"), "");
  EXPECT_NE(
      Refusal(std::string(kEnvelopeBegin) + envelope + std::string(kEnvelopeEnd) + sample.html),
      "");
}

TEST_F(Envelope, CutShortAnywhereIsRefused) {
  const SignedSample sample = Sign(SampleReceipt(), Key());
  for (const std::string& file : {sample.json, sample.html}) {
    for (size_t size = 0; size < file.size(); size += size + 300 < file.size() ? 13 : 1) {
      ASSERT_NE(Refusal(file.substr(0, size)), "") << size;
    }
  }
}

TEST_F(Envelope, WithAnyByteChangedIsRefused) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 draw(seed);
  const SignedSample sample = Sign(SampleReceipt(), Key());
  for (const std::string& file : {sample.json, sample.html}) {
    const size_t step = kSanitized ? 24 : 7;
    for (size_t at = draw() % step; at < file.size(); at += 1 + draw() % step) {
      std::string changed = file;
      changed[at] = static_cast<char>(changed[at] ^ (1 << draw() % 8));
      ASSERT_NE(Refusal(changed), "") << at;
      changed.erase(at, 1);
      ASSERT_NE(Refusal(changed), "") << at;
    }
  }
}

TEST_F(Envelope, WhatIsNoReceiptIsRefused) {
  for (const char* file :
       {"", "{", "{}\n", "{\"payload\":1}\n", "[]\n", "<html></html>", "%PDF-1.7"}) {
    EXPECT_NE(Refusal(file), "") << file;
  }
}

TEST_F(Envelope, KeyIsMadeOnceAndForItsOwnerAlone) {
  const std::string path = folder_ / "receipt.key";
  const std::string fingerprint = Key().public_key().Fingerprint();
  struct stat status {};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600u);
  EXPECT_EQ(Key().public_key().Fingerprint(), fingerprint);
  EXPECT_EQ(fingerprint.size(), std::string("sha256:").size() + 64);
  const auto read = PublicKey::FromPem("Fingerprint: x\n" + Key().public_key().Pem());
  ASSERT_TRUE(read);
  EXPECT_EQ(read->Fingerprint(), fingerprint);
}

TEST_F(Envelope, KeyThatIsNoneIsRefusedAndStays) {
  const std::string path = folder_ / "receipt.key";
  const net::KeyPtr rsa(EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", "P-256"));
  const net::BioPtr bio(BIO_new(BIO_s_mem()));
  ASSERT_EQ(PEM_write_bio_PrivateKey(bio.get(), rsa.get(), nullptr, nullptr, 0, nullptr, nullptr),
            1);
  char* text = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &text);
  for (const std::string& content :
       {std::string("none"), std::string(text, static_cast<size_t>(size))}) {
    std::ofstream(path) << content;
    const auto key = SigningKey::OpenOrMake(path);
    ASSERT_FALSE(key);
    EXPECT_EQ(key.error().code, ErrorCode::kInvalid);
    EXPECT_NE(key.error().message.find(path), std::string::npos);
    EXPECT_EQ(*ReadFile(path, 4096), content);
  }
  EXPECT_FALSE(PublicKey::FromPem("none"));
}

}  // namespace
}  // namespace baton::receipt
