// HTTP as text: what is a request, and where it ends.
#include "net/http_text.h"

#include <gtest/gtest.h>

#include <string>

#include "base/random.h"

namespace baton::net {
namespace {

constexpr size_t kMax = 64 << 10;

TEST(HttpText, LinesOfJsonAreNoRequests) {
  EXPECT_TRUE(BeginsRequest("GET /api/v1/leases HTTP/1.1\r"));
  EXPECT_TRUE(BeginsRequest("POST / HTTP/1.0"));
  EXPECT_FALSE(BeginsRequest(R"({"command": "leases"})"));
  EXPECT_FALSE(BeginsRequest(R"({"name": "x HTTP/1.1"})"));
  EXPECT_FALSE(BeginsRequest(""));
}

TEST(HttpText, ARequestIsReadOnceItIsWhole) {
  const std::string whole =
      "PUT /api/v1/leases/a%20b?wait=5 HTTP/1.1\r\nHost: x\r\nContent-Length: 15\r\n\r\n"
      "{\"seconds\": 60}";
  for (size_t size = 0; size < whole.size(); ++size) {
    const RequestText read = ReadRequest(whole.substr(0, size), kMax);
    EXPECT_EQ(read.size, 0u) << size;
    EXPECT_FALSE(read.refusal) << size;
    EXPECT_GT(read.needs, size) << "it would be looked at in vain";
    EXPECT_LE(read.needs, whole.size()) << "it would be waited for in vain";
  }
  const RequestText read = ReadRequest(whole + "GET / HTTP/1.1\r\n", kMax);
  EXPECT_EQ(read.size, whole.size());
  EXPECT_EQ(read.request.method, "PUT");
  EXPECT_EQ(read.request.path, "/api/v1/leases/a b");
  EXPECT_EQ(read.request.query.at("wait"), "5");
  EXPECT_EQ(read.request.body, "{\"seconds\": 60}");
  EXPECT_TRUE(read.keep_alive);
  EXPECT_FALSE(ReadRequest("GET / HTTP/1.1\r\nConnection: close\r\n\r\n", kMax).keep_alive);
  EXPECT_FALSE(ReadRequest("GET / HTTP/1.0\r\n\r\n", kMax).keep_alive);
}

TEST(HttpText, WhatCannotBeReadEndsTheConnection) {
  const auto refusal = [](const std::string& text) {
    const RequestText read = ReadRequest(text, kMax);
    EXPECT_FALSE(read.refusal && read.keep_alive);
    return read.refusal ? read.refusal->status : 0;
  };
  EXPECT_EQ(refusal("GET / HTTP/1.1\r\nX: " + std::string(9'000, 'x')), 431);
  EXPECT_EQ(refusal("GET / HTTP/1.1\r\nno field\r\n\r\n"), 400);
  EXPECT_EQ(refusal("GET noslash HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(refusal("GET /../x HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(refusal("POST / HTTP/1.1\r\nContent-Length: 70000\r\n\r\n"), 413);
  EXPECT_EQ(refusal("POST / HTTP/1.1\r\nContent-Length: 18446744073709551615\r\n\r\n"), 413);
  EXPECT_EQ(refusal("POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n"), 400);
  EXPECT_EQ(refusal("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"), 411);
  EXPECT_EQ(refusal("GET / HTTP/1.1\r\n\r\n"), 0);
}

TEST(HttpText, RandomBytesAreHarmless) {
  const std::string whole =
      "POST /api?a=b&c=%64 HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody";
  for (uint64_t seed = 1; seed <= 20'000; ++seed) {
    Random random(seed);
    std::string text = whole;
    for (uint64_t n = random.Between(0, 4); n > 0; --n) {
      const auto at = static_cast<size_t>(random.Between(0, static_cast<int64_t>(text.size()) - 1));
      text[at] = static_cast<char>(random.Between(0, 255));
    }
    const RequestText read = ReadRequest(text, 128);
    EXPECT_LE(read.size, text.size()) << seed;
    EXPECT_TRUE(read.size > 0 || read.refusal || read.needs > text.size()) << seed;
  }
}

TEST(HttpText, AnAnswerSaysItsLength) {
  HttpResponse response{202, "{}\n"};
  response.fields.emplace_back("Location", "/x");
  EXPECT_EQ(ResponseText(response, false),
            "HTTP/1.1 202 Accepted\r\nContent-Type: application/json\r\nContent-Length: 3\r\n"
            "Cache-Control: no-store\r\nLocation: /x\r\nConnection: close\r\n\r\n{}\n");
}

}  // namespace
}  // namespace baton::net
