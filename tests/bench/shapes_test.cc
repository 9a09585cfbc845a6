// That scripts/bench shapes works; what it measures is for a quiet machine.
#include "bench/shapes.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "bench/process.h"

namespace baton::bench {
namespace {

using nlohmann::json;

struct Outcome {
  std::optional<ExitStatus> status;
  std::string out, err;
};

std::string TextOf(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

Outcome RunBench(const std::vector<std::string>& arguments) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("baton-shapes-test-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  SpawnOptions spawn;
  spawn.command = {std::string(BATON_BUILD) + "/bin/bench_shapes"};
  spawn.command.insert(spawn.command.end(), arguments.begin(), arguments.end());
  spawn.stdout_path = folder / "out";
  spawn.stderr_path = folder / "err";
  Outcome outcome;
  auto process = Process::Spawn(spawn);
  if (process) outcome.status = process->Wait(std::chrono::seconds(50));
  outcome.out = TextOf(spawn.stdout_path);
  outcome.err = TextOf(spawn.stderr_path);
  std::filesystem::remove_all(folder);
  return outcome;
}

TEST(Shapes, OneIsMeasuredInEveryWay) {
  const Outcome outcome =
      RunBench({"--only", "8 streams, 1 ms", "--seconds", "0.3", "--again", "0", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.out << outcome.err;
  const json report = json::parse(outcome.out, nullptr, false);
  ASSERT_TRUE(report.is_object()) << outcome.out;
  ASSERT_EQ(report.at("shapes").size(), 1u) << report;
  const json& shape = report.at("shapes").at(0);
  EXPECT_EQ(shape.at("name"), "8 streams, 1 ms");
  EXPECT_EQ(report.at("overlaps"), 0) << report;
  // How close to the bounds says something about Baton only where nothing else runs.
  EXPECT_GT(shape.at("bare").at(0), 20) << report;
  EXPECT_GT(shape.at("alone"), 20) << report;
  EXPECT_GT(shape.at("held").at(0), 5) << report;
  EXPECT_LT(shape.at("held").at(1), 95) << report;
  EXPECT_GT(shape.at("rate").at(0), 5) << report;
  for (const char* bound : {"alone", "held", "rate", "busy"}) {
    EXPECT_TRUE(shape.at("bounds").contains(bound)) << report;
  }
  EXPECT_NE(outcome.err.find("1/1"), std::string::npos) << "progress: " << outcome.err;
}

TEST(Shapes, AreListedByNameAndFlags) {
  const Outcome all = RunBench({"--list"});
  ASSERT_EQ(all.status, 0) << all.err;
  EXPECT_EQ(static_cast<size_t>(std::count(all.out.begin(), all.out.end(), '\n')),
            std::size(kShapes));
  const Outcome graphs = RunBench({"--list", "--only", "--graph"});
  ASSERT_EQ(graphs.status, 0) << graphs.err;
  EXPECT_GE(std::count(graphs.out.begin(), graphs.out.end(), '\n'), 5) << graphs.out;
  EXPECT_EQ(graphs.out.find("in step"), std::string::npos) << graphs.out;
}

TEST(Shapes, HaveNamesOfTheirOwn) {
  std::set<std::string> names, flags;
  for (const Shape& shape : kShapes) {
    EXPECT_TRUE(names.insert(shape.name).second) << shape.name;
    EXPECT_TRUE(flags.insert(shape.flags).second) << shape.flags;
  }
  EXPECT_GE(names.size(), 60u);
}

TEST(Shapes, AWrongCommandLineIsRefusedWithItsReason) {
  const Outcome outcome = RunBench({"--only", "no such shape"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(outcome.err.find("no shape has \"no such shape\"; see --list"), std::string::npos)
      << outcome.err;
}

}  // namespace
}  // namespace baton::bench
