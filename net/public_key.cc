#include "net/public_key.h"

#include <cstdint>
#include <limits>

#include "base/file.h"

namespace baton::net {
namespace {

constexpr size_t kPublicKeyFileMax = 4096;

}  // namespace

bool IsPublicKey(std::string_view text) {
  constexpr std::string_view kDigits =
      "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";
  constexpr size_t kLength = 40, kGroup = 5;  // five digits are four bytes
  if (text.size() != kLength) return false;
  uint64_t value = 0;
  for (size_t i = 0; i < kLength; ++i) {
    const size_t digit = kDigits.find(text[i]);
    if (digit == kDigits.npos) return false;
    value = i % kGroup == 0 ? digit : value * kDigits.size() + digit;
    if (value > std::numeric_limits<uint32_t>::max()) return false;
  }
  return true;
}

Result<std::string> ReadPublicKey(const std::string& path) {
  auto text = ReadFile(path, kPublicKeyFileMax);
  if (!text) return text;
  text->erase(text->find_last_not_of(" \n") + 1);
  if (!IsPublicKey(*text)) {
    return Fail(ErrorCode::kInvalid, path + " holds no public key, which is 40 characters of Z85");
  }
  return text;
}

}  // namespace baton::net
