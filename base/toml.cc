#define TOML_IMPLEMENTATION
#include "base/toml.h"

#include <string>
#include <utility>

#include "base/utf8.h"

namespace baton {

Result<toml::table> ParseToml(std::string_view text, std::string_view name) {
  toml::parse_result parsed = toml::parse(text, name);
  if (parsed) return std::move(parsed).table();
  // The description quotes the text.
  constexpr size_t kMax = 200;
  std::string why(parsed.error().description().substr(0, kMax));
  for (char& c : why) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return Fail(ErrorCode::kInvalid, std::string(name) + ":" +
                                       std::to_string(parsed.error().source().begin.line) + ": " +
                                       ToUtf8(why));
}

}  // namespace baton
