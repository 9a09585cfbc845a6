// The page of a receipt: what it says, and that nothing in it runs or is fetched.
#include "receipt/page.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <regex>

#include "receipt/envelope.h"
#include "tests/receipt/sample.h"

namespace baton::receipt {
namespace {

using nlohmann::json;

size_t Count(const std::string& text, const std::string& what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

TEST(ReceiptPage, SaysWhatTheReceiptSays) {
  const std::string page = Page(SampleReceipt());
  for (const char* text :
       {"Pod vision/train", "2026-11-01T00:00:00Z", "node1", "18.000", "15.367", "16.267", "40.67",
        "17.50", "23.17", "30 %", "60 %", "4GiB", "alice",
        "outage: the GPU or batond was not there", "costs in EUR", "sha256:00", "3.75 GiB"}) {
    EXPECT_NE(page.find(text), std::string::npos) << text;
  }
  EXPECT_EQ(page.find("not known"), std::string::npos) << "there is nothing of it";
}

TEST(ReceiptPage, RunsAndFetchesNothing) {
  const std::string page = Page(SampleReceipt());
  EXPECT_EQ(Count(page, "<script"), 1u);
  EXPECT_EQ(Count(page, std::string(kEnvelopeBegin) + std::string(kEnvelopeEnd)), 1u);
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
  for (const char* text : {"src=", "href=", "url(", "@import", "http://", "https://"}) {
    EXPECT_EQ(page.find(text), std::string::npos) << text;
  }
}

// What turns the direction of the text around it would show a name, or a sentence with it, as
// another.
TEST(ReceiptPage, ShowsNamesInTheOrderOfTheirLetters) {
  json receipt = SampleReceipt();
  receipt["name"] = receipt["lines"][0]["key"] = "a\u202egpj";
  receipt["asked"][0]["pod"] = "\u2067b";
  receipt["notes"] = {"of c\u202ed 12.5"};
  const std::string page = Page(receipt);
  for (const char* turn : {"\u202e", "\u2067"}) EXPECT_EQ(Count(page, turn), 0u);
  for (const char* shown : {"a?gpj", "?b", "of c?d 12.5"})
    EXPECT_GT(Count(page, shown), 0u) << shown;
}

TEST(ReceiptPage, ShowsHostileNamesAsText) {
  json receipt = SampleReceipt();
  const std::string hostile =
      "</script><script>alert(1)</script>&\"'" + std::string(kEnvelopeBegin);
  for (const char* field : {"name", "issued_by", "currency", "time_zone", "key"}) {
    receipt[field] = hostile;
  }
  receipt["notes"] = {hostile};
  for (const char* field : {"pod", "who", "memory"}) receipt["asked"][0][field] = hostile;
  receipt["asked"][0]["gpus"] = {hostile};
  receipt["lines"][0]["key"] = hostile;
  const std::string page = Page(receipt);
  EXPECT_EQ(Count(page, "<script"), 1u);
  EXPECT_EQ(Count(page, "</script>"), 1u);
  // Each element that is opened is closed.
  std::map<std::string, int> open;
  const std::regex element("<(/?)([a-z0-9]+)[^>]*>");
  for (std::sregex_iterator at(page.begin(), page.end(), element), end; at != end; ++at) {
    open[(*at)[2]] += (*at)[1].length() == 0 ? 1 : -1;
  }
  open.erase("meta");
  for (const auto& [name, count] : open) EXPECT_EQ(count, 0) << name;
}

TEST(ReceiptPage, OfNobodyHasNoLines) {
  json receipt = SampleReceipt();
  receipt["asked"] = receipt["lines"] = json::array();
  EXPECT_NE(Page(receipt).find("Nothing is known of it"), std::string::npos);
}

}  // namespace
}  // namespace baton::receipt
