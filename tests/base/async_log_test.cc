#include "base/async_log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>

namespace baton {
namespace {

class AsyncLogTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(pipe2(ends_, O_CLOEXEC), 0); }
  void TearDown() override {
    close(ends_[0]);
    if (ends_[1] >= 0) close(ends_[1]);
  }
  // Everything until `last` has been read, or nothing has come for ten seconds.
  std::string ReadUntil(const std::string& last) {
    std::string text;
    pollfd there{ends_[0], POLLIN, 0};
    while (text.find(last) == std::string::npos && poll(&there, 1, 10'000) == 1) {
      char buffer[4096];
      const ssize_t n = read(ends_[0], buffer, sizeof buffer);
      if (n <= 0) break;
      text.append(buffer, static_cast<size_t>(n));
    }
    return text;
  }

  int ends_[2] = {-1, -1};
};

TEST_F(AsyncLogTest, WhatIsLoggedIsWrittenInOrder) {
  AsyncLog log(ends_[1], "program", LogFormat::kText);
  for (int i = 0; i < 100; ++i) spdlog::info("line {}", i);
  spdlog::warn("the end");
  const std::string text = ReadUntil("the end\n");
  const std::string time = "\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d\\.\\d{3}[+-]\\d\\d:\\d\\d ";
  EXPECT_TRUE(
      std::regex_search(text, std::regex("^" + time + "info line 0\n" + time + "info line 1\n")))
      << text;
  EXPECT_TRUE(
      std::regex_search(text, std::regex(time + "info line 99\n" + time + "warning the end\n$")))
      << text;
}

TEST_F(AsyncLogTest, AsJsonEachLineIsOneObject) {
  AsyncLog log(ends_[1], "program", LogFormat::kJson);
  const std::string text = "daemon: a \"quote\",\na line more and \xff, no UTF-8";
  spdlog::info("{}", text);
  spdlog::warn("the end");
  std::istringstream lines(ReadUntil("the end\"}\n") + ComplaintLine(LogFormat::kJson, "p", "no"));
  const char* const levels[] = {"info", "warning", "error"};
  const char* const messages[] = {"daemon: a \"quote\",\na line more and \xEF\xBF\xBD, no UTF-8",
                                  "the end", "no"};
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    ASSERT_LT(count, 3) << line;
    const auto object = nlohmann::json::parse(line, nullptr, false);
    ASSERT_TRUE(object.is_object()) << line;
    EXPECT_EQ(object.size(), 3u) << line;
    EXPECT_EQ(object.at("level"), levels[count]);
    EXPECT_EQ(object.at("message"), messages[count]);
    EXPECT_TRUE(std::regex_match(
        object.at("time").get<std::string>(),
        std::regex("\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d\\.\\d{3}[+-]\\d\\d:\\d\\d")))
        << line;
  }
  EXPECT_EQ(count, 3);
}

TEST(ComplaintLine, AsTextBeginsWithTheProgramsName) {
  EXPECT_EQ(ComplaintLine(LogFormat::kText, "batond", "no GPU"), "batond: no GPU\n");
}

TEST_F(AsyncLogTest, NobodyWaitsForAReaderThatStandsStillAndItIsToldWhatItMissed) {
  AsyncLog log(ends_[1], "program", LogFormat::kText);
  // More than the pipe and the queue take.
  constexpr int kLines = 20'000;
  for (int i = 1; i <= kLines; ++i) spdlog::info("line {} {}", i, std::string(200, '.'));
  const std::string text = ReadUntil("line " + std::to_string(kLines) + " ");
  std::smatch lost;
  ASSERT_TRUE(std::regex_search(text, lost, std::regex("warning (\\d+) lines lost here")));
  int lines = 0;
  for (size_t at = 0; (at = text.find("info line ", at)) != std::string::npos; ++at) ++lines;
  EXPECT_GE(lines, static_cast<int>(AsyncLog::kQueueMax));
  // It may have gone on more than once, and each time says what was lost since.
  int all = lines;
  const std::regex each("(\\d+) lines lost");
  for (std::sregex_iterator it(text.begin(), text.end(), each), end; it != end; ++it) {
    all += std::stoi((*it)[1]);
  }
  EXPECT_EQ(all, kLines);
}

TEST_F(AsyncLogTest, TheEndWritesWhatIsQueued) {
  {
    AsyncLog log(ends_[1], "program", LogFormat::kText);
    for (int i = 0; i < 500; ++i) spdlog::info("line {}", i);
  }
  spdlog::info("after the end");
  close(ends_[1]);
  ends_[1] = -1;
  EXPECT_TRUE(ReadUntil("never").ends_with("line 499\n"));
}

TEST_F(AsyncLogTest, TheEndComesThoughNobodyReads) {
  const Instant begin = MonotonicNow();
  {
    AsyncLog log(ends_[1], "program", LogFormat::kText);
    for (int i = 0; i < 2'000; ++i) spdlog::info(std::string(1'000, '.'));
  }
  EXPECT_GE(MonotonicNow() - begin, AsyncLog::kPatience);
  EXPECT_FALSE(WriteBefore(ends_[1], "text", 4, MonotonicNow()));
}

}  // namespace
}  // namespace baton
