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

}  // namespace baton

#endif  // BATON_BASE_UTF8_H_
