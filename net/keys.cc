#include "net/keys.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include "base/file.h"

namespace baton::net {
namespace {

constexpr size_t kKeyLength = 40;

// The value of `name = "..."` in the key file.
std::string Field(const std::string& text, std::string_view name) {
  size_t at = text.find(std::string(name) + " = \"");
  if (at == std::string::npos) return {};
  at = text.find('"', at) + 1;
  return text.substr(at, text.find('"', at) - at);
}

}  // namespace

Result<KeyPair> MakeKeyPair() {
  char public_key[kKeyLength + 1];
  char secret_key[kKeyLength + 1];
  if (zmq_curve_keypair(public_key, secret_key) != 0) {
    return Fail(ErrorCode::kInternal,
                "this libzmq was built without CURVE; install one with libsodium");
  }
  return KeyPair{public_key, secret_key};
}

Result<void> GenerateKeyPair(const std::string& path) {
  auto keys = MakeKeyPair();
  if (!keys) return tl::unexpected(keys.error());
  // O_EXCL: never over an existing key, and never through a link that somebody left there.
  UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd) {
    if (errno == EEXIST) {
      return Fail(ErrorCode::kExists, path + " exists already; remove it first or name another");
    }
    return Fail(ErrorCode::kInternal, "cannot create " + path + ": " + strerror(errno));
  }
  const std::string text =
      "# Baton's key pair for the link between a node and batond. Keep this file secret.\n"
      "public_key = \"" +
      keys->public_key + "\"\nsecret_key = \"" + keys->secret_key + "\"\n";
  if (write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    const int error = errno;
    unlink(path.c_str());
    return Fail(ErrorCode::kInternal, "cannot write " + path + ": " + strerror(error));
  }
  return ReplaceFile(path + ".pub", keys->public_key + "\n", 0644, false);
}

Result<KeyPair> ReadKeyPair(const std::string& path) {
  struct stat st;
  if (stat(path.c_str(), &st) == 0 && (st.st_mode & 077) != 0) {
    return Fail(ErrorCode::kDenied,
                path + " can be read by others than its owner; run: chmod 600 " + path);
  }
  auto text = ReadFile(path, 4096);
  if (!text) {
    return Fail(text.error().code, text.error().message + "; make one with: baton keygen " + path);
  }
  KeyPair keys{Field(*text, "public_key"), Field(*text, "secret_key")};
  if (!IsPublicKey(keys.public_key) || !IsPublicKey(keys.secret_key)) {
    return Fail(ErrorCode::kInvalid, path + " holds no key pair; make one with: baton keygen PATH");
  }
  return keys;
}

bool IsPublicKey(std::string_view text) {
  if (text.size() != kKeyLength) return false;
  uint8_t bytes[32];
  return zmq_z85_decode(bytes, std::string(text).c_str()) != nullptr;
}

}  // namespace baton::net
