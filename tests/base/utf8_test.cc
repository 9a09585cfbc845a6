#include "base/utf8.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(Utf8, WhatATerminalActsOnIsNotPrintable) {
  for (const char* text : {"\x1b[2J", "a\nb", "\x7f", "\xc2\x80", "\xc2\x9bm", "\xc2\x9f", "\u061c",
                           "\u200e", "\u200f", "\u2028", "\u2029", "\u202a", "\u202egnp.exe",
                           "\u2066", "\u2069", "\xff", "\xc3"}) {
    EXPECT_FALSE(IsPrintable(text)) << text;
    EXPECT_TRUE(IsPrintable(ToPrintable(text))) << text;
  }
  EXPECT_EQ(ToPrintable("a\xc2\x9b\u202e.b\xff"), "a??.b\ufffd");
}

TEST(Utf8, WordsOfAllScriptsArePrintable) {
  for (const char* text :
       {"", "train", "\u00a0\u00e9", "\u0416", "\u05e9\u05dc\u05d5\u05dd", "\u061b\u061d",
        "\u200d\u2010", "\u2027\u202f", "\u2065\u206a", "\u6f22\u5b57", "\U0001f600"}) {
    EXPECT_TRUE(IsPrintable(text)) << text;
    EXPECT_EQ(ToPrintable(text), text);
  }
}

TEST(Utf8, IsCutBetweenCharacters) {
  EXPECT_EQ(CutUtf8("a\u00e9\u6f22", 9), "a\u00e9\u6f22");
  EXPECT_EQ(CutUtf8("a\u00e9\u6f22", 5), "a\u00e9");
  EXPECT_EQ(CutUtf8("a\u00e9\u6f22", 3), "a\u00e9");
  EXPECT_EQ(CutUtf8("a\u00e9\u6f22", 2), "a");
  EXPECT_EQ(CutUtf8("\u00e9", 0), "");
  EXPECT_EQ(CutUtf8("ab\xff"
                    "c",
                    5),
            "ab\ufffd")
      << "what stands for a byte is a character too";
}

}  // namespace
}  // namespace baton
