// Texts as databases take them. Within the ledger only.
#ifndef BATON_LEDGER_STORED_TEXT_H_
#define BATON_LEDGER_STORED_TEXT_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace baton::ledger {

inline constexpr size_t kNameMax = 512;

// Whether a database stores the text as it is: UTF-8 without NUL, of at most so many bytes.
bool IsClean(std::string_view text, size_t most = kNameMax);
// The text with "?" for what a database does not take, cut at a character.
std::string Clean(std::string_view text, size_t most = kNameMax);

}  // namespace baton::ledger

#endif  // BATON_LEDGER_STORED_TEXT_H_
