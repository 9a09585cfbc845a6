#include "base/utf8.h"

namespace baton {

size_t Utf8Length(std::string_view text) {
  if (text.empty()) return 0;
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // The second byte tells what is overlong, a surrogate, or beyond U+10FFFF.
  const unsigned char second = byte(1);
  if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) ||
      (first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f)) {
    return 0;
  }
  return length;
}

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = Utf8Length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string ToUtf8(std::string_view text) {
  std::string clean;
  clean.reserve(text.size());
  while (!text.empty()) {
    const size_t length = Utf8Length(text);
    if (length == 0) {
      clean += "\xef\xbf\xbd";
      text.remove_prefix(1);
    } else {
      clean += text.substr(0, length);
      text.remove_prefix(length);
    }
  }
  return clean;
}

std::string CutUtf8(std::string_view text, size_t bytes) {
  std::string clean = ToUtf8(text);
  if (clean.size() <= bytes) return clean;
  while (bytes > 0 && (static_cast<unsigned char>(clean[bytes]) & 0xc0) == 0x80) --bytes;
  clean.resize(bytes);
  return clean;
}

namespace {

// `character`: one that is well formed.
bool Shows(std::string_view character) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(character[i]); };
  if (character.size() == 1) return byte(0) >= 0x20 && byte(0) != 0x7f;
  if (character.size() == 2) {
    return !(byte(0) == 0xc2 && byte(1) < 0xa0) && !(byte(0) == 0xd8 && byte(1) == 0x9c);
  }
  if (byte(0) != 0xe2) return true;
  const unsigned low = (byte(1) & 0x3fu) << 6 | (byte(2) & 0x3fu);  // below U+2000
  return !((low >= 0x0e && low <= 0x0f) || (low >= 0x28 && low <= 0x2e) ||
           (low >= 0x66 && low <= 0x69));
}

}  // namespace

bool IsPrintable(std::string_view text) {
  while (!text.empty()) {
    const size_t length = Utf8Length(text);
    if (length == 0 || !Shows(text.substr(0, length))) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string ToPrintable(std::string_view text) {
  std::string clean;
  clean.reserve(text.size());
  while (!text.empty()) {
    const size_t length = Utf8Length(text);
    const std::string_view character = text.substr(0, length);
    clean += length == 0 ? "\xef\xbf\xbd" : Shows(character) ? character : "?";
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return clean;
}

}  // namespace baton
