#include "spec/flavors.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace baton::spec {
namespace {

Flavors Offered() {
  Flavors flavors;
  EXPECT_TRUE(AddFlavor(flavors, "small", {{"request", 10}, {"memory", "4GiB"}}));
  EXPECT_TRUE(AddFlavor(flavors, "strict", {{"limit", 20}}));
  EXPECT_TRUE(AddFlavor(flavors, "quarter", {{"request", 25}, {"limit", 50}, {"memory", "25%"}}));
  return flavors;
}

Json Filled(const Json& fields) {
  const auto filled = FillIn(Offered(), fields);
  EXPECT_TRUE(filled) << filled.error().message;
  return filled.value_or(Json());
}

TEST(Flavors, FillInWhatAPodDoesNotSay) {
  EXPECT_EQ(Filled({{"name", "a"}, {"flavor", "small"}}),
            Json({{"name", "a"}, {"request", 10.0}, {"limit", 100.0}, {"memory", 4294967296}}));
  EXPECT_EQ(Filled({{"flavor", "strict"}}), Json({{"request", 20.0}, {"limit", 20.0}}));
  EXPECT_EQ(Filled({{"flavor", "quarter"}}),
            Json({{"request", 25.0}, {"limit", 50.0}, {"memory", "25%"}}));
}

TEST(Flavors, WhatAPodSaysItselfCounts) {
  EXPECT_EQ(Filled({{"flavor", "small"}, {"memory", "8GiB"}, {"limit", 30}}),
            Json({{"request", 10.0}, {"limit", 30}, {"memory", "8GiB"}}));
  EXPECT_EQ(Filled({{"flavor", "small"}, {"memory", 0}}).at("memory"), 0) << "no cap";
  EXPECT_EQ(Filled({{"flavor", "small"}, {"memory", nullptr}}).at("memory"), 4294967296);
  EXPECT_FALSE(Filled({{"flavor", "small"}, {"priority", "idle"}}).contains("request"));
  // None is named.
  for (const Json& fields : {Json{{"request", 30}}, Json::object(), Json(5)}) {
    EXPECT_EQ(Filled(fields), fields);
  }
  EXPECT_EQ(Filled({{"flavor", ""}, {"request", 30}}), Json({{"request", 30}}));
}

TEST(Flavors, OneThatIsNotOfferedIsNamedWithTheNearest) {
  const auto why = [](const Flavors& flavors, const Json& fields) {
    const auto filled = FillIn(flavors, fields);
    return filled ? "" : filled.error().message;
  };
  EXPECT_EQ(why(Offered(), {{"flavor", "smal"}}),
            "there is no flavor 'smal'; did you mean 'small'?");
  EXPECT_EQ(why(Offered(), {{"flavor", "xxl"}}),
            "there is no flavor 'xxl'; there are quarter, small, strict");
  EXPECT_EQ(why({}, {{"flavor", "small"}}), "there is no flavor 'small': the operator offers none");
  EXPECT_EQ(why(Offered(), {{"flavor", 5}}), "flavor must be text");
}

TEST(Flavors, ThatAreWrongAreRefused) {
  const auto why = [](const char* name, const Json& fields) {
    Flavors flavors = Offered();
    const auto added = AddFlavor(flavors, name, fields);
    return added ? "" : added.error().message;
  };
  EXPECT_EQ(why("ok", {{"request", 10}}), "");
  EXPECT_NE(why("small", {{"request", 10}}).find("listed twice"), std::string::npos);
  EXPECT_NE(why("a b", {{"request", 10}}).find("letters, digits"), std::string::npos);
  EXPECT_NE(why("", {{"request", 10}}).find("letters, digits"), std::string::npos);
  EXPECT_NE(why("x", {{"request", 130}}).find("flavor x: request: "), std::string::npos);
  EXPECT_NE(why("x", {{"request", 50}, {"limit", 20}}).find("below the request"),
            std::string::npos);
  EXPECT_NE(why("x", {{"memory", "4GiB"}}).find("needs a request or a limit"), std::string::npos);
  EXPECT_NE(why("x", {{"request", 10}, {"team", "t"}}).find("has no team"), std::string::npos);
  EXPECT_NE(why("x", 10).find("write such as"), std::string::npos);
  Flavors many;
  for (size_t i = 0; i < kFlavorsMax; ++i) {
    ASSERT_TRUE(AddFlavor(many, "f" + std::to_string(i), {{"request", 10}}));
  }
  EXPECT_FALSE(AddFlavor(many, "more", {{"request", 10}}));
}

}  // namespace
}  // namespace baton::spec
