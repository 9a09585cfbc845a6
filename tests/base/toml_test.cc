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

// Each part of a key is a table in a table, and who walks through them recurses.
TEST(Toml, DepthIsBounded) {
  const auto times = [](size_t n, const std::string& text) {
    std::string all;
    for (size_t i = 0; i < n; ++i) all += text;
    return all;
  };
  constexpr size_t kMany = 100'000;
  const std::string header = "[a" + times(kMany, ".a") + "]\n";
  for (const std::string& deep :
       {header, "[" + header, "a" + times(kMany, ".a") + " = 1\n",
        "a" + times(kMany, " . \"a\"") + " = 1\n", "a" + times(kMany, ".'.'") + " = 1\n",
        "x = {a" + times(kMany, ".a") + " = 1}\n", "x = " + times(kMany, "["),
        "x = " + times(kMany, "{a = "),
        // Strings and comments, which end where toml++ sees their end.
        "x = \"\"\"\"\"\"\n" + header, "x = \"\"\"\n\"\"\"\"\"\n" + header,
        "x = \"\\\"\"\n# \"\n" + header, "x = '\\'\n" + header, "x = '''\n''''\n" + header}) {
    const auto refused = ParseToml(deep, "f");
    ASSERT_FALSE(refused) << deep.substr(0, 40);
    EXPECT_LT(refused.error().message.size(), 300u) << refused.error().message;
  }
  EXPECT_EQ(ParseToml("a = 1\n[a" + times(40, ".a") + "]\n", "f").error().message,
            "f:2: a key has more than 32 parts");
  EXPECT_TRUE(ParseToml("a" + times(31, ".a") + " = 1\n", "f"));
  // Dots elsewhere are no parts of keys.
  const std::string dots(100, '.');
  const auto read =
      ParseToml("a = \"" + dots + "\"\nb = '" + dots + "' # " + dots + "\nc = [" +
                    times(100, "1.5, ") + "]\nd = \"\"\"\n" + dots + "\n\"\"\"\"\n[e.f]\n",
                "f");
  EXPECT_TRUE(read) << read.error().message;
}

TEST(Toml, TextIsReadBack) {
  for (const std::string text : {"", "a\"b\\c", "\x01\n\t\x1f\x7f", "\u00e9\u202e"}) {
    const auto read = ParseToml("a = " + TomlText(text), "f");
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ((*read)["a"].value<std::string>(), text);
  }
}

}  // namespace
}  // namespace baton
