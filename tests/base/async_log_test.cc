#include "base/async_log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <regex>
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
  AsyncLog log(ends_[1], "program", "%l %v");
  for (int i = 0; i < 100; ++i) spdlog::info("line {}", i);
  spdlog::warn("the end");
  const std::string text = ReadUntil("the end\n");
  EXPECT_EQ(text.substr(0, 24), "info line 0\ninfo line 1\n");
  EXPECT_TRUE(text.ends_with("info line 99\nwarning the end\n"));
}

TEST_F(AsyncLogTest, NobodyWaitsForAReaderThatStandsStillAndItIsToldWhatItMissed) {
  AsyncLog log(ends_[1], "program", "%l %v");
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
    AsyncLog log(ends_[1], "program", "%v");
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
    AsyncLog log(ends_[1], "program", "%v");
    for (int i = 0; i < 2'000; ++i) spdlog::info(std::string(1'000, '.'));
  }
  EXPECT_GE(MonotonicNow() - begin, AsyncLog::kPatience);
  EXPECT_FALSE(WriteBefore(ends_[1], "text", 4, MonotonicNow()));
}

}  // namespace
}  // namespace baton
