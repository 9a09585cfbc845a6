// What `baton top` and `baton status` make of a status answer.
#include "cli/pod_table.h"

#include <gtest/gtest.h>

#include "tests/cli/harness.h"

namespace baton::cli {
namespace {

using nlohmann::json;

PodRow Row(std::string gpu, std::string pod, double request, double achieved) {
  PodRow row;
  row.gpu = std::move(gpu);
  row.pod = std::move(pod);
  row.request = request;
  row.achieved_1s = achieved;
  return row;
}

std::vector<std::string> Names(const std::vector<PodRow>& rows) {
  std::vector<std::string> names;
  for (const PodRow& row : rows) names.push_back(row.pod);
  return names;
}

TEST(PodTable, SortsNamesUpAndAmountsDown) {
  std::vector<PodRow> rows{Row("1", "a", 10, 50), Row("0", "c", 30, 20), Row("0", "b", 30, 30)};
  Sort(rows, SortBy::kGpu);
  EXPECT_EQ(Names(rows), (std::vector<std::string>{"b", "c", "a"}));
  Sort(rows, SortBy::kPod);
  EXPECT_EQ(Names(rows), (std::vector<std::string>{"a", "b", "c"}));
  Sort(rows, SortBy::kRequest);
  EXPECT_EQ(Names(rows), (std::vector<std::string>{"b", "c", "a"}));
  Sort(rows, SortBy::kAchieved);
  EXPECT_EQ(Names(rows), (std::vector<std::string>{"a", "b", "c"}));
}

TEST(PodTable, ColumnsAlignAndLinesAreCutToTheWidth) {
  const std::vector<std::string> table =
      Table({Row("GPU-1", "short", 5, 5), Row("GPU-1", "a-much-longer-name", 100, 99.9)}, 0);
  ASSERT_EQ(table.size(), 3u);
  EXPECT_EQ(table[1].find("5.0"), table[2].find("100.0") + 2) << table[1] << "\n" << table[2];
  for (const std::string& line : Table({Row("GPU-1", "short", 5, 5)}, 20)) {
    EXPECT_LE(line.size(), 20u);
  }
}

TEST(PodTable, ATenantsNameCannotReachTheTerminal) {
  const std::vector<std::string> table = Table({Row("0", "evil\033[2J", 1, 1)}, 0);
  EXPECT_EQ(table[1].find('\033'), std::string::npos);
}

TEST(PodTable, CutsBetweenCharacters) {
  const std::vector<std::string> table = Table({Row("äöü", "pod", 1, 1)}, 2);
  EXPECT_EQ(table[1], "äö");
}

}  // namespace
}  // namespace baton::cli
