#define TOML_IMPLEMENTATION
#include "base/toml.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/utf8.h"

namespace baton {
namespace {

// Of a key such as a.b.c.
constexpr size_t kKeyPartsMax = 32;

tl::unexpected<Error> Bad(std::string_view name, size_t line, const std::string& why) {
  return Fail(ErrorCode::kInvalid, std::string(name) + ":" + std::to_string(line) + ": " + why);
}

// The bytes of `text`, which begins with a quote, that are a string. Where it has no end, all.
size_t StringLength(std::string_view text) {
  const char quote = text[0];
  const bool escapes = quote == '"';
  const bool several = text.size() > 2 && text[1] == quote && text[2] == quote;
  for (size_t at = several ? 3 : 1; at < text.size(); ++at) {
    if (text[at] == '\\' && escapes) {
      ++at;
    } else if (!several && (text[at] == quote || text[at] == '\n')) {
      return at + 1;
    } else if (several && text.substr(at, 3) == std::string_view(text.data(), 3)) {
      // Up to two more quotes are the string's own.
      for (at += 3; at < text.size() && text[at] == quote;) ++at;
      return at;
    }
  }
  return text.size();
}

// The line with a key of more parts than kKeyPartsMax; 0: none. toml++ makes a table of each part,
// and then recurses through them. Whatever is no TOML only needs to be read the same way up to the
// place where it stops being so.
size_t LineOfLongKey(std::string_view text) {
  size_t line = 1;
  size_t dots = 0;  // since the last character that no key continues over
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    size_t length = 1;
    if (c == '"' || c == '\'') {
      length = StringLength(text.substr(at));
    } else if (c == '#') {
      length = std::min(text.find('\n', at), text.size()) - at;
    } else if (c == '.') {
      if (++dots >= kKeyPartsMax) return line;
    } else if (std::string_view("=,[]{}\n").find(c) != std::string_view::npos) {
      dots = 0;
    }
    line += static_cast<size_t>(std::count(&text[at], &text[at] + length, '\n'));
    at += length;
  }
  return 0;
}

}  // namespace

Result<toml::table> ParseToml(std::string_view text, std::string_view name) {
  if (const size_t line = LineOfLongKey(text); line != 0) {
    return Bad(name, line, "a key has more than " + std::to_string(kKeyPartsMax) + " parts");
  }
  toml::parse_result parsed = toml::parse(text, name);
  if (parsed) return std::move(parsed).table();
  // The description quotes the text.
  constexpr size_t kMax = 200;
  return Bad(name, parsed.error().source().begin.line,
             ToPrintable(parsed.error().description().substr(0, kMax)));
}

nlohmann::json JsonOf(const toml::node& node) {
  if (const auto text = node.value_exact<std::string>()) return *text;
  if (const auto whole = node.value_exact<int64_t>()) return *whole;
  if (const auto number = node.value_exact<double>()) return *number;
  if (const auto flag = node.value_exact<bool>()) return *flag;
  if (const toml::array* array = node.as_array()) {
    nlohmann::json list = nlohmann::json::array();
    for (const toml::node& entry : *array) list.push_back(JsonOf(entry));
    return list;
  }
  if (const toml::table* table = node.as_table()) {
    nlohmann::json object = nlohmann::json::object();
    for (auto&& [key, value] : *table) object[std::string(key.str())] = JsonOf(value);
    return object;
  }
  return {};
}

std::string TomlText(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
      out += escape;
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

}  // namespace baton
