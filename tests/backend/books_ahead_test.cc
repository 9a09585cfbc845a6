// What the books say of what would be, and will be.
#include "tests/backend/kept_books.h"

namespace baton::backend {
namespace {

// As `baton simulate cluster` asks for it: pods that came and went, with what they asked for.
TEST_F(KeptBooks, TheWorkloadIsOfAllPodsThatCame) {
  Configure("[[pod]]\nname = \"filed\"\nrequest = 5\ngpus = [\"GPU-b\"]\n");
  FillLedger("research", 20);  // by a pod named "former", of which nothing else is known
  Start();
  const std::string ticket =
      Pod("gone", {{"request", 25}, {"limit", 50}, {"team", "ops"}, {"memory", 100u << 20}});
  Use("gone", ticket);
  ASSERT_TRUE(IsBooked("pod", "gone", Held("gone")));
  Pod("there", {{"request", 30}, {"gpus", {"GPU-b"}}});
  ASSERT_TRUE(Say({{"command", "delete_pod"}, {"name", "gone"}}).at("ok"));
  json answer;
  const auto line = [&](const std::string& pod) {
    const std::string pods = answer.value("pods", "");
    const size_t at = pods.find("\n" + pod + ",");
    return at == std::string::npos ? "" : pods.substr(at + 1, pods.find('\n', at + 1) - at - 1);
  };
  // The log is written a moment later.
  ASSERT_TRUE(Eventually([&] {
    answer = Say({{"command", "workload"}, {"last", "40h"}});
    // What came in the last millisecond is not of the window yet.
    return line("gone").find(",1,250,") != std::string::npos && !line("there").empty();
  })) << answer;
  EXPECT_NE(line("gone").find(",1,250,"), std::string::npos) << line("gone");
  EXPECT_NE(line("gone").find(",ops,0,500,,100MiB,time-slice,"), std::string::npos) << line("gone");
  EXPECT_NE(line("there").find(",1,300,"), std::string::npos) << line("there");
  EXPECT_NE(line("filed").find(",1,50,"), std::string::npos) << answer.at("pods");
  EXPECT_NE(line("former").find(",research,"), std::string::npos) << answer.at("pods");
  for (const char* gpu : {"GPU-a", "GPU-b", "GPU-x"}) {
    EXPECT_NE(answer.at("cluster").get<std::string>().find(gpu), std::string::npos) << gpu;
  }
  EXPECT_EQ(Say({{"command", "workload"}, {"from", "2026-01-01"}, {"to", "2026-01-02"}}).at("code"),
            "not_found");
}

// As the page draws it: what each had of one GPU, bucket by bucket, over a restart as well.
TEST_F(KeptBooks, TheHistoryOfAGpuIsOfItsPodsAlone) {
  FillLedger("research", 20, 0, 5);  // from 30 hours ago until a minute ago
  Configure();
  Start();
  Pod("elsewhere", {{"request", 30}, {"gpus", {"GPU-b"}}});
  Use("here", Pod("here", {{"request", 25}, {"gpus", {"GPU-a"}}}));
  ASSERT_TRUE(IsBooked("pod", "here", Held("here")));
  Restart();
  const auto history = [&](const std::string& gpu, const std::string& last) {
    return Say({{"command", "history"}, {"gpu", gpu}, {"last", last}});
  };
  const auto begins = [](const json& row) { return row.at("begin_s").get<int64_t>(); };
  EXPECT_EQ(Say({{"command", "history"}}).value("code", ""), "invalid") << "of which of two?";
  const json answer = history("GPU-a", "10m");
  ASSERT_TRUE(answer.value("ok", false)) << answer;
  EXPECT_EQ(answer.at("bucket_s"), 10);
  ASSERT_EQ(answer.at("rows").size(), 1u) << answer;
  const json& row = answer.at("rows")[0];
  EXPECT_EQ(row.at("pod"), "here");
  EXPECT_EQ(begins(row) % 10, 0);
  // Made anew under its name it is the same one.
  const int64_t held = Held("here");
  ASSERT_TRUE(Say({{"command", "delete_pod"}, {"name", "here"}}).value("ok", false));
  Use("here", Pod("here", {{"request", 25}, {"gpus", {"GPU-a"}}}));
  ASSERT_TRUE(IsBooked("pod", "here", held + Held("here")));
  EXPECT_EQ(history("GPU-a", "10m").at("rows").size(), 1u);
  // Where nothing was used: no row, and no error.
  EXPECT_EQ(history("GPU-b", "10m").at("rows"), json::array());
  EXPECT_EQ(history("GPU-none", "10m").at("rows"), json::array());
  // Of a longer window by the hour. All of it is there, and of the other GPU nothing.
  const json before = history("GPU-x", "2d");
  EXPECT_EQ(before.at("bucket_s"), 3600);
  ASSERT_EQ(before.at("rows").size(), 1u) << before;
  const json& former = before.at("rows")[0];
  EXPECT_EQ(former.at("pod"), "former");
  double hours = 0;
  for (const json& percent : former.at("held")) hours += percent.get<double>() / 100;
  EXPECT_NEAR(hours, 20, 0.0005 * static_cast<double>(former.at("held").size()));
  EXPECT_GE(former.at("held").size(), 30u);
  EXPECT_EQ(begins(former) % 3600, 0);
  // A part of it by the minute begins with that part.
  const json hour = history("GPU-x", "2h");
  EXPECT_EQ(hour.at("bucket_s"), 60);
  EXPECT_GE(begins(hour.at("rows").at(0)),
            ledger::WallNow().time_since_epoch().count() / 1000 - 7'300);
}

// a used all there was so far: it begins with little of what requests leave, and ends with half.
TEST_F(KeptBooks, TheForecastOfTeamsGoesByThePodsThatAreThere) {
  FillLedger("a", 20);
  Configure(Teams("half_life = \"1d\"\n[[team]]\nname = \"a\"\n[[team]]\nname = \"b\"\n"));
  Start();
  const auto forecast = [&](const std::string& length) {
    return Say({{"command", "standing"}, {"forecast", length}});
  };
  EXPECT_EQ(forecast("10d").value("code", ""), "not_found") << "nobody is there";
  Pod("pa", {{"team", "a"}, {"request", 10}, {"limit", 100}});
  Pod("pb", {{"team", "b"}, {"request", 10}, {"limit", 100}});
  EXPECT_EQ(forecast("soon").value("code", ""), "invalid");
  EXPECT_FALSE(Say({{"command", "standing"}}).contains("forecast"));
  const json answer = forecast("10d");
  ASSERT_TRUE(answer.value("ok", false)) << answer;
  EXPECT_FALSE(answer.at("rows").empty());
  const json& course = answer.at("forecast");
  EXPECT_EQ(course.at("teams"), json({"a", "b"}));
  const json& points = course.at("points");
  ASSERT_EQ(points.size(), 33u);
  EXPECT_EQ(points.front().at("at_s"), 0);
  EXPECT_NEAR(points.back().at("at_s").get<double>(), 10 * 86400, 600);
  // docs/teams.md: share = 1/2 - (1 - 2 r) x with x = 1/2 at first, and in the end 0.
  const auto gpus = [&](size_t n) { return points.at(n).at("gpus").at(0).get<double>(); };
  EXPECT_NEAR(gpus(0), 0.1, 0.01);
  EXPECT_NEAR(gpus(32), 0.5, 0.01);
  for (size_t n = 1; n < 33; ++n) EXPECT_GE(gpus(n), gpus(n - 1)) << n;
}

}  // namespace
}  // namespace baton::backend
