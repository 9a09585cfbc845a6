// Text from outside, before it goes where only UTF-8 may. Thread safe.
#ifndef BATON_BASE_UTF8_H_
#define BATON_BASE_UTF8_H_

#include <string>
#include <string_view>

namespace baton {

// Bytes at the beginning of `text` that are one well-formed character (RFC 3629: no overlong forms,
// no surrogates); 0 when there is none.
size_t Utf8Length(std::string_view text);
bool IsUtf8(std::string_view text);
// The same text with each byte that is not part of a character replaced by U+FFFD.
std::string ToUtf8(std::string_view text);
// The beginning of that text: whole characters, at most `bytes` bytes.
std::string CutUtf8(std::string_view text, size_t bytes);

// Whether a terminal shows the text as it is, in one line: well formed, without control characters
// (U+0000 to U+001F, U+007F to U+009F), separators of lines (U+2028, U+2029), and characters that
// reorder what stands beside them (U+061C, U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069).
bool IsPrintable(std::string_view text);
// The same text with '?' for each of these characters, and U+FFFD as ToUtf8() has it.
std::string ToPrintable(std::string_view text);

}  // namespace baton

#endif  // BATON_BASE_UTF8_H_
