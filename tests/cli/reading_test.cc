// Reading from a batond by its page's address.
#include <gtest/gtest.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "net/server.h"
#include "tests/cli/harness.h"

namespace baton::cli {
namespace {

using nlohmann::json;

// A page that says what it was asked.
class Reading : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"status", "report", "explain", "log", "advise"}) {
      server_.Route(std::string("/api/v1/") + name,
                    [this](const net::HttpRequest& request,
                           const net::HttpServer::Respond& respond) { respond(Answer(request)); });
    }
    ASSERT_TRUE(server_.Start());
    loop_ = std::thread([this] { io_.run(); });
  }
  void TearDown() override {
    server_.Stop();
    working_.reset();
    io_.stop();
    loop_.join();
  }

  std::string url() const { return "http://127.0.0.1:" + std::to_string(server_.port()); }

  net::HttpResponse Answer(const net::HttpRequest& request) {
    std::string asked = request.path;
    bool nobody = false;
    for (const auto& [name, value] : request.query) {
      asked += " " + name + "=" + value;
      nobody = nobody || value == "nobody";
    }
    {
      const std::lock_guard lock(mutex_);
      asked_.push_back(asked);
    }
    net::HttpResponse response;
    if (request.path == "/api/v1/explain") {
      if (nobody) return net::ErrorResponse({ErrorCode::kInvalid, "there is no pod nobody"});
      response.body = json{{"sentences", {"because"}}}.dump();
    } else if (request.path == "/api/v1/log") {
      return net::ErrorResponse(401, "a token is needed");
    } else if (request.path == "/api/v1/advise") {
      response.body = "<html>";
    } else {
      response.body =
          json{{"version", "9.9"}, {"gpus", json::array()}, {"pods", json::array()}}.dump();
    }
    return response;
  }
  std::vector<std::string> asked() {
    const std::lock_guard lock(mutex_);
    return std::exchange(asked_, {});
  }

  static net::HttpOptions OnLoopback() {
    net::HttpOptions options;
    options.listen = "127.0.0.1:0";
    return options;
  }
  boost::asio::io_context io_;
  std::optional<boost::asio::executor_work_guard<boost::asio::io_context::executor_type>> working_{
      io_.get_executor()};
  net::HttpServer server_{io_, OnLoopback()};
  std::mutex mutex_;
  std::vector<std::string> asked_;
  std::thread loop_;
};

TEST_F(Reading, AsksThePageWithItsOwnWords) {
  Outcome got = RunBaton({"explain", "pod", "a b&c=d", "--url", url()});
  EXPECT_EQ(got.status, 0) << got.err;
  EXPECT_EQ(got.out, "because\n");
  EXPECT_EQ(asked(), std::vector<std::string>{"/api/v1/explain pod=a b&c=d"});
  got = RunBaton({"status", "--json"}, {{"BATON_URL", url()}});
  EXPECT_EQ(got.status, 0) << got.err;
  EXPECT_EQ(json::parse(got.out).at("version"), "9.9");
  got = RunBaton({"report", "--by", "day,team", "--last", "7d", "--json", "--url", url() + "/"});
  EXPECT_EQ(got.status, 0) << got.err;
  EXPECT_EQ(asked().back(), "/api/v1/report by=day,team last=7d") << "what is empty is not asked";
}

TEST_F(Reading, SaysWhatThePageRefuses) {
  Outcome got = RunBaton({"explain", "pod", "nobody", "--url", url()});
  EXPECT_EQ(got.status, 2) << "invalid there is invalid here";
  EXPECT_EQ(got.err, "baton: there is no pod nobody\n");
  got = RunBaton({"log", "--url", url()});
  EXPECT_EQ(got.status, 1);
  EXPECT_NE(got.err.find("--token-file"), std::string::npos) << got.err;
  got = RunBaton({"advise", "--url", url()});
  EXPECT_EQ(got.status, 1);
  EXPECT_NE(got.err.find("is no batond's page"), std::string::npos) << got.err;
  got = RunBaton({"status", "--url", "gpu-node-1:7412"});
  EXPECT_EQ(got.status, 2);
  EXPECT_NE(got.err.find("https://"), std::string::npos) << got.err;
  got = RunBaton({"status", "--url", url(), "--socket-dir", "/tmp"});
  EXPECT_EQ(got.status, 2);
  got = RunBaton({"status", "--token-file", "/tmp/token"});
  EXPECT_EQ(got.status, 2);
  EXPECT_NE(got.err.find("--url"), std::string::npos) << got.err;
}

TEST_F(Reading, AFolderOfSocketsGoesBeforeTheVariable) {
  FakeDaemon daemon([](const json&) {
    return json{{"ok", true}, {"version", "1.2"}, {"gpus", json::array()}, {"pods", json::array()}};
  });
  const Environment by_page = {{"BATON_URL", url()}};
  const Outcome got = RunBaton({"status", "--json", "--socket-dir", daemon.socket_dir()}, by_page);
  EXPECT_EQ(got.status, 0) << got.err;
  EXPECT_EQ(json::parse(got.out).at("version"), "1.2");
  EXPECT_TRUE(asked().empty());
  // What changes something goes to the sockets.
  const Environment both = {{"BATON_URL", url()}, {"BATON_SOCKET_DIR", daemon.socket_dir()}};
  RunBaton({"rm", "train"}, both);
  EXPECT_EQ(daemon.requests().back().at("command"), "delete_pod");
  EXPECT_TRUE(asked().empty());
}

}  // namespace
}  // namespace baton::cli
