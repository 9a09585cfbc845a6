// `baton simulate`, run in the test's process on a workload that the test writes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/harness.h"

namespace baton::cli {

class Simulate : public testing::Test {
 protected:
  std::string Write(const std::string& text) const {
    std::string path = folder_.path() + "/workload.toml";
    std::ofstream(path) << text;
    return path;
  }
  Outcome Run(const std::string& text, std::vector<std::string> flags = {}) const {
    std::vector<std::string> arguments{"simulate", Write(text)};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return RunBaton(arguments);
  }
  nlohmann::json Json(const std::string& text, std::vector<std::string> flags = {}) const {
    flags.push_back("--json");
    const Outcome outcome = Run(text, flags);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out);
  }
  // What follows "baton: FILE" in the one line on stderr.
  std::string Complaint(const std::string& text) const {
    const Outcome outcome = Run(text);
    EXPECT_NE(outcome.status, 0);
    EXPECT_EQ(outcome.out, "");
    const std::string start = "baton: " + folder_.path() + "/workload.toml";
    EXPECT_EQ(outcome.err.find(start), 0u) << outcome.err;
    return outcome.err.substr(std::min(start.size(), outcome.err.size()));
  }

  TempFolder folder_;
};

}  // namespace baton::cli
