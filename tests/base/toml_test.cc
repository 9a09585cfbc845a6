#include "base/toml.h"

#include <gtest/gtest.h>

#include <string>

namespace baton {
namespace {

std::string Utf8(char32_t c) {
  const auto tail = [c](int shift) { return static_cast<char>(0x80 | ((c >> shift) & 0x3f)); };
  if (c < 0x800) return {static_cast<char>(0xc0 | (c >> 6)), tail(0)};
  if (c < 0x10000) return {static_cast<char>(0xe0 | (c >> 12)), tail(6), tail(0)};
  return {static_cast<char>(0xf0 | (c >> 18)), tail(12), tail(6), tail(0)};
}

TEST(Toml, AnErrorNamesFileAndLineInOneLine) {
  const auto broken = ParseToml("a = 1\nb = \x01\n", "f.toml");
  ASSERT_FALSE(broken);
  EXPECT_EQ(broken.error().code, ErrorCode::kInvalid);
  EXPECT_EQ(broken.error().message.rfind("f.toml:2: ", 0), 0u) << broken.error().message;
  EXPECT_EQ(broken.error().message.find_first_of("\n\x01"), std::string::npos);
  EXPECT_FALSE(ParseToml("[=", "f"));
  const auto read = ParseToml("a = 1", "f");
  ASSERT_TRUE(read);
  EXPECT_EQ((*read)["a"].value<int>(), 1);
}

// Everywhere where the parser asks whether a character is white space: under the sanitizers a
// character that it has no answer for ends the program.
TEST(Toml, EveryCharacterMayStandOutsideOfQuotes) {
  for (char32_t c = 0x80; c < 0x110000; c += c < 0x10000 ? 1 : 251) {
    if (c >= 0xd800 && c < 0xe000) continue;
    const std::string character = Utf8(c);
    const auto quoted = ParseToml("a = \"" + character + "\" # " + character, "f");
    ASSERT_TRUE(quoted) << std::hex << static_cast<uint32_t>(c) << quoted.error().message;
    ASSERT_EQ((*quoted)["a"].value<std::string>(), character);
    // A value is missing, whether the character is white space or not.
    ASSERT_FALSE(ParseToml("a = " + character, "f")) << std::hex << static_cast<uint32_t>(c);
  }
}

}  // namespace
}  // namespace baton
