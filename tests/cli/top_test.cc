// What `baton top` shows, at any size of terminal.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/top_picture.h"

namespace baton::cli {
namespace {

using nlohmann::json;

constexpr uint64_t kGiB = uint64_t{1} << 30;

// `pods` on each of `gpus`: "pod-0" on the first, "pod-1" on the second, ...; each has had as many
// percent of the last second as its number.
json StatusOf(int gpus, int pods, int64_t busy_ns = 0, int64_t handoff_total_ns = 0) {
  json status{{"gpus", json::array()}, {"pods", json::array()}};
  for (int g = 0; g < gpus; ++g) {
    status["gpus"].push_back({{"uuid", "GPU-" + std::to_string(g)},
                              {"name", "NVIDIA H200"},
                              {"memory", 141 * kGiB},
                              {"holder", "pod-" + std::to_string(g)},
                              {"handoff_total_ns", handoff_total_ns},
                              {"queue", {"a", "b"}}});
  }
  for (int p = 0; p < gpus * pods; ++p) {
    status["pods"].push_back({{"name", "pod-" + std::to_string(p)},
                              {"team", p % 2 == 0 ? "research/vision" : "product"},
                              {"request", 4.0},
                              {"gpus",
                               {{{"uuid", "GPU-" + std::to_string(p % gpus)},
                                 {"achieved_1s", static_cast<double>(p)},
                                 {"busy_ns", busy_ns},
                                 {"memory_used", kGiB},
                                 {"phase", p < gpus ? "holding" : "waiting"}}}}});
  }
  return status;
}

size_t Columns(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::vector<TopLine> Picture(const json& status, TopView& view, size_t width = 100,
                             size_t height = 40) {
  return TopPicture(status, GpuParts(), view, width, height, true);
}
std::string TextOf(const std::vector<TopLine>& lines) {
  std::string text;
  for (const TopLine& line : lines) text += line.text + "\n";
  return text;
}
bool Has(const std::vector<TopLine>& lines, const std::string& part) {
  return TextOf(lines).find(part) != std::string::npos;
}

TEST(Top, HasALineForEachGpu) {
  TopView view;
  GpuParts parts;
  parts.Hear(StatusOf(2, 3, 0), Instant(std::chrono::seconds(1)));
  EXPECT_LT(parts.Busy("GPU-0"), 0);
  const json status = StatusOf(2, 3, 250'000'000, 6'000'000);
  parts.Hear(status, Instant(std::chrono::seconds(2)));
  const auto lines = TopPicture(status, parts, view, 100, 40, true);
  // 0 + 2 + 4 percent; three pods, 250 ms each; 6 ms of hand-offs.
  EXPECT_TRUE(
      Has(lines, "0    NVIDIA H200  █░░░░░░░░░  6.0%  75.0%      0.6%  3.0GiB/141.0GiB        2"))
      << TextOf(lines);
  EXPECT_TRUE(Has(lines, "1    NVIDIA H200  █░░░░░░░░░  9.0%")) << TextOf(lines);
}

TEST(Top, FitsEveryTerminalAndLeavesOutWhatMattersLeast) {
  const json status = StatusOf(12, 5);
  for (const size_t width : {200, 100, 80, 60, 40, 20}) {
    for (const size_t height : {50, 24, 10, 3}) {
      TopView view;
      const auto lines = Picture(status, view, width, height);
      EXPECT_LE(lines.size(), height);
      for (const TopLine& line : lines) EXPECT_LE(Columns(line.text), width) << line.text;
    }
  }
  TopView view;
  const auto narrow = Picture(StatusOf(2, 10), view, 60, 24);
  for (const char* part : {"POD", "REQUEST", "1s", "WAIT%", "PHASE", "waiting", "HELD"}) {
    EXPECT_TRUE(Has(narrow, part)) << part << "\n" << TextOf(narrow);
  }
  EXPECT_FALSE(Has(narrow, "TEAM")) << TextOf(narrow);
  EXPECT_TRUE(Has(Picture(StatusOf(2, 10), view, 140, 24), "TEAM"));
  EXPECT_TRUE(Has(Picture(StatusOf(40, 1), view, 100, 20), "... 32 more GPUs"));
}

TEST(Top, ScrollsToTheLastPodAndNoFurther) {
  const json status = StatusOf(1, 60);
  TopView view;
  view.sort = SortBy::kAchieved;
  EXPECT_TRUE(Has(Picture(status, view, 100, 20), "pod-59 "));
  EXPECT_FALSE(Has(Picture(status, view, 100, 20), "pod-0 "));
  view.OnKey("\033[F");
  auto lines = Picture(status, view, 100, 20);
  EXPECT_EQ(lines.size(), 20u);
  EXPECT_NE(lines.back().text.find("pod-0 "), std::string::npos) << TextOf(lines);
  view.OnKey("k");
  lines = Picture(status, view, 100, 20);
  EXPECT_NE(lines.back().text.find("pod-1 "), std::string::npos) << TextOf(lines);
  view.OnKey("\033[5~");
  view.OnKey("\033[6~");
  view.OnKey("\033[B");
  lines = Picture(status, view, 100, 20);
  EXPECT_NE(lines.back().text.find("pod-0 "), std::string::npos) << TextOf(lines);
  view.OnKey("\033[H");
  EXPECT_TRUE(Has(Picture(status, view, 100, 20), "pod-59 "));
}

TEST(Top, ShowsPodsThatHaveWhatWasTyped) {
  const json status = StatusOf(1, 20);
  TopView view;
  for (const char* key : {"/", "V", "i", "q", "\x7f", "s"}) EXPECT_TRUE(view.OnKey(key)) << key;
  EXPECT_EQ(view.filter, "Vis");
  auto lines = Picture(status, view);
  EXPECT_TRUE(Has(lines, "show pods with: Vis_"));
  view.OnKey("\n");
  lines = Picture(status, view);
  EXPECT_TRUE(Has(lines, "10 of 20 rows with 'Vis' by GPU")) << TextOf(lines);
  EXPECT_TRUE(Has(lines, "pod-18 "));
  EXPECT_FALSE(Has(lines, "pod-19 "));
  view.OnKey("\033");
  EXPECT_TRUE(Has(Picture(status, view), "pod-19 "));
}

TEST(Top, SortsByActivityAndExplainsItsKeys) {
  json status = StatusOf(1, 3);
  status["pods"][1]["gpus"][0]["waited_1s"] = 80.0;
  TopView view;
  view.OnKey("t");
  const std::string text = TextOf(Picture(status, view));
  EXPECT_NE(text.find("by activity"), std::string::npos);
  EXPECT_LT(text.find("pod-1 "), text.find("pod-2 ")) << text;
  EXPECT_LT(text.find("pod-2 "), text.find("pod-0 ")) << text;
  view.OnKey("?");
  EXPECT_TRUE(Has(Picture(status, view), "sort by activity"));
  EXPECT_EQ(TextOf(Picture(status, view, 80)), TextOf(Picture(status, view, 200)));
  EXPECT_TRUE(view.OnKey("?"));
  EXPECT_FALSE(Has(Picture(status, view), "sort by activity"));
  EXPECT_FALSE(view.OnKey("q"));
}

TEST(Top, WhatIsWrongWithAGpuIsSaidOnItsLine) {
  json status = StatusOf(1, 1);
  status["gpus"][0]["hung"] = true;
  status["gpus"][0]["cordoned"] = true;
  TopView view;
  const auto lines = Picture(status, view);
  EXPECT_TRUE(Has(lines, "does not drain, cordoned"));
  EXPECT_TRUE(std::any_of(lines.begin(), lines.end(), [](const TopLine& line) {
    return line.style == TopLine::Style::kWrong;
  }));
}

TEST(Top, HasNoColoursWhereNoneAreWanted) {
  for (const auto style :
       {TopLine::Style::kHolding, TopLine::Style::kWaiting, TopLine::Style::kWrong,
        TopLine::Style::kHeading, TopLine::Style::kFaint, TopLine::Style::kPlain}) {
    const std::string plain = Painted({"text", style}, false);
    EXPECT_NE(plain.find("text"), std::string::npos);
    EXPECT_EQ(plain.find("\033[3"), std::string::npos) << "a colour";
  }
  EXPECT_EQ(Painted({"text", TopLine::Style::kWaiting}, true), "\033[33mtext\033[0m");
}

TEST(Top, ATenantsNameCannotReachTheTerminal) {
  json status = StatusOf(1, 1);
  status["pods"][0]["name"] = "evil\033[2J";
  status["gpus"][0]["name"] = "evil\033[2J";
  TopView view;
  for (const char c : std::string("/\x1b")) view.OnKey(std::string(1, c));
  EXPECT_FALSE(Has(Picture(status, view), "\033"));
}

}  // namespace
}  // namespace baton::cli
