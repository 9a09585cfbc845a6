#include "base/nesting.h"

#include <gtest/gtest.h>

#include <string>

namespace baton {
namespace {

TEST(Nesting, CountsListsAndObjectsThatAreOpen) {
  EXPECT_TRUE(JsonNestsWithin("", 0));
  EXPECT_TRUE(JsonNestsWithin("7", 0));
  EXPECT_FALSE(JsonNestsWithin("[]", 0));
  EXPECT_TRUE(JsonNestsWithin("[{}, {}, []]", 2));
  EXPECT_FALSE(JsonNestsWithin(R"([{}, {"a": []}, []])", 2));
  EXPECT_FALSE(JsonNestsWithin(std::string(1 << 20, '['), 100));
}

TEST(Nesting, BracketsInTextsDoNotCount) {
  EXPECT_TRUE(JsonNestsWithin(R"(["[[[{{{", "\"[["])", 1));
  EXPECT_FALSE(JsonNestsWithin(R"(["\\", [[]]])", 2));
}

}  // namespace
}  // namespace baton
