#include "ledger/stored_text.h"

#include <algorithm>

#include "base/utf8.h"

namespace baton::ledger {
namespace {

// As Utf8Length(), but 0 for NUL, which no database takes.
size_t CharacterLength(std::string_view text) {
  return text.empty() || text.front() == '\0' ? 0 : Utf8Length(text);
}

}  // namespace

bool IsClean(std::string_view text, size_t most) {
  if (text.size() > most) return false;
  for (size_t length; !text.empty(); text.remove_prefix(length)) {
    length = CharacterLength(text);
    if (length == 0) return false;
  }
  return true;
}

std::string Clean(std::string_view text, size_t most) {
  std::string clean;
  while (!text.empty()) {
    const size_t length = CharacterLength(text);
    if (clean.size() + std::max<size_t>(length, 1) > most) break;
    if (length == 0) {
      clean += '?';
    } else {
      clean += text.substr(0, length);
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return clean;
}

}  // namespace baton::ledger
