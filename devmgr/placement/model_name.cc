#include "devmgr/placement/model_name.h"

#include <algorithm>
#include <cctype>

namespace baton::devmgr {

bool MeansModel(std::string_view text, std::string_view model) {
  // Words of letters and digits; each must be the whole of one of the name's, in order.
  const auto next = [](std::string_view& rest) {
    const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
    while (!rest.empty() && !is_word(rest.front())) rest.remove_prefix(1);
    size_t length = 0;
    while (length < rest.size() && is_word(rest[length])) ++length;
    const std::string_view word = rest.substr(0, length);
    rest.remove_prefix(length);
    return word;
  };
  const auto same = [](std::string_view a, std::string_view b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
      return std::tolower(static_cast<unsigned char>(x)) ==
             std::tolower(static_cast<unsigned char>(y));
    });
  };
  std::string_view wanted = next(text);
  if (wanted.empty()) return false;
  while (!wanted.empty()) {
    const std::string_view word = next(model);
    if (word.empty()) return false;
    if (same(wanted, word)) wanted = next(text);
  }
  return true;
}

}  // namespace baton::devmgr
