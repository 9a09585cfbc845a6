#include "net/keys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include <optional>
#include <sstream>

#include "base/file.h"

namespace baton::net {
namespace {

constexpr size_t kKeyLength = 40;  // of a key as text
constexpr size_t kFileMax = 4096;
constexpr size_t kNodesFileMax = size_t{4} << 20;

// The value of `name = "..."` in the key file.
std::string Field(const std::string& text, std::string_view name) {
  size_t at = text.find(std::string(name) + " = \"");
  if (at == std::string::npos) return {};
  at = text.find('"', at) + 1;
  return text.substr(at, text.find('"', at) - at);
}

// Writes a file of another name and gives it this one by `name`: link(2) (kExists: there is one
// already) or rename(2). Unlike with ReplaceFile() that other name is no other process's: several
// may make keys at once.
Result<void> WriteWhole(const std::string& path, const std::string& text, mode_t mode,
                        int (*name)(const char*, const char*)) {
  std::string fresh = path + ".XXXXXX";
  const UniqueFd fd(mkostemp(fresh.data(), O_CLOEXEC));
  if (!fd) return Fail(ErrorCode::kInternal, "cannot create " + path + ": " + strerror(errno));
  const bool written =
      WriteAll(fd.get(), text) && fchmod(fd.get(), mode) == 0 && fsync(fd.get()) == 0;
  const bool named = written && name(fresh.c_str(), path.c_str()) == 0;
  const int error = errno;
  unlink(fresh.c_str());
  if (named) return {};
  if (written && error == EEXIST) {
    return Fail(ErrorCode::kExists, path + " exists already; remove it first or name another");
  }
  return Fail(ErrorCode::kInternal, "cannot write " + path + ": " + strerror(error));
}

std::optional<KeyPair> KeysIn(const std::string& text) {
  KeyPair keys{Field(text, "public_key"), Field(text, "secret_key")};
  if (!IsPublicKey(keys.public_key) || !IsPublicKey(keys.secret_key)) return std::nullopt;
  return keys;
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
  const std::string text =
      "# Baton's key pair for the link between a node and batond. Keep this file secret.\n"
      "public_key = \"" +
      keys->public_key + "\"\nsecret_key = \"" + keys->secret_key + "\"\n";
  // Never over an existing key, and never through a link that somebody left there.
  if (auto made = WriteWhole(path, text, 0600, link); !made) return made;
  return WriteWhole(path + ".pub", keys->public_key + "\n", 0644, rename);
}

Result<bool> KeepKeyPair(const std::string& path) {
  auto text = ReadFile(path, kFileMax);
  const bool missing = !text && text.error().code == ErrorCode::kNotFound;
  if (!text && !missing) return tl::unexpected(text.error());
  if (text && !KeysIn(*text)) {
    if (auto aside = MoveAside(path); !aside) return tl::unexpected(aside.error());
  }
  bool made = false;
  if (!text || !KeysIn(*text)) {
    auto done = GenerateKeyPair(path);
    if (!done && done.error().code != ErrorCode::kExists) return tl::unexpected(done.error());
    made = done.has_value();
    if (text = ReadFile(path, kFileMax); !text) return tl::unexpected(text.error());
  }
  const auto keys = KeysIn(*text);
  if (!keys) return Fail(ErrorCode::kInvalid, path + " holds no key pair");
  if (const auto told = ReadPublicKey(path + ".pub"); !told || *told != keys->public_key) {
    auto written = WriteWhole(path + ".pub", keys->public_key + "\n", 0644, rename);
    if (!written) return tl::unexpected(written.error());
  }
  return made;
}

Result<KeyPair> ReadKeyPair(const std::string& path) {
  struct stat st;
  if (stat(path.c_str(), &st) == 0 && (st.st_mode & 077) != 0) {
    return Fail(ErrorCode::kDenied,
                path + " can be read by others than its owner; run: chmod 600 " + path);
  }
  auto text = ReadFile(path, kFileMax);
  if (!text) {
    return Fail(text.error().code, text.error().message + "; make one with: baton keygen " + path);
  }
  const auto keys = KeysIn(*text);
  if (!keys) {
    return Fail(ErrorCode::kInvalid, path + " holds no key pair; make one with: baton keygen PATH");
  }
  return *keys;
}

std::string ServerKey(const std::string& key, const std::string& file) {
  return file.empty() ? key : ReadPublicKey(file).value_or("");
}

Result<std::map<std::string, std::string>> ReadNodeKeys(const std::string& path) {
  const auto text = ReadFile(path, kNodesFileMax);
  if (!text) return tl::unexpected(text.error());
  std::map<std::string, std::string> nodes;
  std::istringstream lines(*text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.empty() || line.front() == '#') continue;
    std::istringstream words(line);
    std::string name, key, more;
    words >> name >> key;
    if (!IsPublicKey(key) || words >> more) {
      return Fail(ErrorCode::kInvalid, path + ":" + std::to_string(number) +
                                           ": a line is the name of a node, a space and its public "
                                           "key, 40 characters of Z85");
    }
    nodes[name] = key;
  }
  return nodes;
}

}  // namespace baton::net
