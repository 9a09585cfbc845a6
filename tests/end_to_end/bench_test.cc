// `baton bench` against running daemons, directly and through a relay.
#include <nlohmann/json.hpp>

#include "tests/end_to_end/fixture.h"

namespace baton::bench {
namespace {

using nlohmann::json;

class Bench : public EndToEnd {
 protected:
  json Run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "bench");
    arguments.emplace_back("--json");
    std::string out, err;
    const ExitStatus status = Must(cluster().Baton(0, arguments, &out, &err));
    EXPECT_EQ(status, 0) << err;
    return json::parse(out);
  }
  static const json& Named(const json& all, const std::string& name) {
    for (const json& one : all) {
      if (one.at("name") == name) return one;
    }
    throw std::runtime_error("no " + name + " in " + all.dump());
  }
};

class BenchOver : public Bench, public testing::WithParamInterface<Transport> {};

// Of each GPU the pods have the same share, and nothing stays behind.
TEST_P(BenchOver, PodsThatContendGetTheSameAndLeaveNothingBehind) {
  ClusterOptions options;
  options.transport = GetParam();
  StartCluster(options);
  Windows(
      [&] {
        return Run(
            {"contention", "--pods", "9", "--gpus", "3", "--length", "1s", "--hold", "300us"});
      },
      [](const json& run) {
        EXPECT_GT(Named(run.at("values"), "grants").at("value"), 100.0) << run.dump();
        // 1 s / 3 pods / a token of some 0.5 ms: hundreds each.
        EXPECT_LT(Named(run.at("values"), "share_error").at("value"), 3.0) << run.dump();
        const json& hand_off = Named(run.at("figures"), "hand_off");
        EXPECT_GT(hand_off.at("samples"), 100) << run.dump();
        EXPECT_GT(hand_off.at("beside").at("p50_us"), 0.0) << run.dump();
        // A wait is at least two others' holds, but for the first.
        EXPECT_GT(Named(run.at("figures"), "wait").at("p50_us"), 600.0) << run.dump();
      });
  Must(cluster().WaitForStatus(
      0, [](const json& status) { return status.at("pods").empty(); }, "pods stay behind"));
}

TEST_P(BenchOver, TheTokensRoundTripIsMeasuredBesideTheRawMedium) {
  ClusterOptions options;
  options.transport = GetParam();
  StartCluster(options);
  const json run = Run({"token", "--count", "300", "--save", cluster().File("runs")});
  for (const char* figure : {"round_trip", "hand_off"}) {
    const json& f = Named(run.at("figures"), figure);
    EXPECT_EQ(f.at("samples"), 300);
    EXPECT_GT(f.at("p50_us"), f.at("beside").at("p50_us").get<double>() / 10);
    EXPECT_DOUBLE_EQ(run.at(figure).at("p50_us"), f.at("p50_us"));
  }
  // What was saved can be compared, with itself: nothing differs.
  std::string out;
  Must(cluster().Baton(
      0, {"bench", "compare", cluster().File("runs"), cluster().File("runs"), "--json"}, &out));
  const json compared = json::parse(out);
  EXPECT_EQ(compared.at("rows").size(), 8u);
  for (const json& row : compared.at("rows")) {
    EXPECT_FALSE(row.at("worse")) << row.dump();
    EXPECT_FALSE(row.at("better")) << row.dump();
  }
}

INSTANTIATE_TEST_SUITE_P(All, BenchOver, testing::Values(Transport::kUnix, Transport::kCentral),
                         [](const auto& i) {
                           return i.param == Transport::kUnix ? "Unix" : "Central";
                         });

}  // namespace
}  // namespace baton::bench
