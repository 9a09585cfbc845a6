// What the binder takes of the central batond's standing.
#include "k8s/binder/standing.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <nlohmann/json.hpp>

#include "net/server.h"

namespace baton::k8s {
namespace {

nlohmann::json RowOf(const std::string& team, const std::string& user, uint64_t shares,
                     double hours) {
  return {{"team", team}, {"user", user}, {"raw_shares", shares}, {"raw_usage_hours", hours}};
}

std::string StandingBody(double vision_hours = 30) {
  return nlohmann::json{
      {"half_life_s", 604'800},
      {"k", 1},
      {"rows",
       {RowOf("", "", 1, 100), RowOf("ops", "", 2, 20), RowOf("ops", "user-a", 1, 20),
        RowOf("research", "", 3, 80), RowOf("research/vision", "", 5, vision_hours)}}}
      .dump();
}

TEST(Standing, WeightsAndUseOfEachTeamWithoutThoseBelowIt) {
  const auto standings = ReadStanding(StandingBody());
  ASSERT_TRUE(standings);
  EXPECT_EQ(
      *standings,
      (devmgr::Standings{{"ops", {2, 20}}, {"research", {3, 50}}, {"research/vision", {5, 30}}}));
  for (const char* text :
       {"", "[]", "{}", R"({"rows": 1})", R"({"rows": [1]})",
        R"({"rows": [{"team": "a/", "raw_shares": 1, "raw_usage_hours": 1}]})",
        R"({"rows": [{"team": "a", "raw_shares": -1, "raw_usage_hours": 1}]})"}) {
    EXPECT_FALSE(ReadStanding(text)) << text;
  }
  // What a damaged answer says does no harm.
  const auto odd = ReadStanding(
      R"({"rows": [{"team": "a", "raw_shares": 0, "raw_usage_hours": -1},
                   {"team": "a/b", "raw_shares": 99999999999, "raw_usage_hours": 7}]})");
  ASSERT_TRUE(odd);
  EXPECT_EQ(*odd, (devmgr::Standings{{"a", {1, 0}}, {"a/b", {1'000'000, 7}}}));
}

TEST(Standing, CountsUntilItIsTooOld) {
  std::atomic<bool> away = false;
  net::HttpServer server(net::ForPrograms("127.0.0.1:0"), nullptr,
                         [&](const net::HttpRequest& request) -> net::HttpResponse {
                           if (request.path != "/api/v1/standing") return {404, "", "text/plain"};
                           if (away) return net::ErrorResponse(503, "the ledger is away");
                           return {200, StandingBody(), "application/json"};
                         });
  ASSERT_TRUE(server.Start());
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<devmgr::Standings> told;
  const auto next = [&]() -> devmgr::Standings {
    std::unique_lock lock(mutex);
    EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(30), [&] { return !told.empty(); }));
    if (told.empty()) return {};
    devmgr::Standings first = told.front();
    told.pop_front();
    return first;
  };
  StandingOptions options;
  options.url = "http://127.0.0.1:" + std::to_string(server.port());
  options.every = std::chrono::milliseconds(5);
  options.age_max = std::chrono::milliseconds(100);
  auto source = StandingSource::Start(options, [&](devmgr::Standings standings) {
    {
      const std::lock_guard lock(mutex);
      told.push_back(std::move(standings));
    }
    changed.notify_all();
  });
  ASSERT_TRUE(source) << source.error().message;
  EXPECT_EQ(next().size(), 3u);
  EXPECT_TRUE((*source)->age_s().has_value());
  away = true;
  // Those that were on their way, and then nothing of the past.
  while (!next().empty()) {
  }
  away = false;
  EXPECT_EQ(next().size(), 3u);
}

TEST(Standing, PlainHttpToAnotherMachineIsRefused) {
  StandingOptions options;
  options.url = "http://10.0.0.1:7412";
  EXPECT_FALSE(StandingSource::Start(options, [](devmgr::Standings) {}));
}

}  // namespace
}  // namespace baton::k8s
