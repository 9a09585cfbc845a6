// The binder at work against the stand-in API server: with each fault it converges, two of them
// never bind both, one that is killed loses and doubles nothing, and it is quick.
#include "k8s/binder/binder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "base/random.h"
#include "base/time.h"
#include "k8s/types/gpu_pod.h"
#include "net/server.h"
#include "tests/k8s/binder/objects.h"
#include "tests/k8s/binder/program.h"
#include "tests/k8s/stand_in/api_server.h"

namespace baton::k8s::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

BinderOptions Options() {
  BinderOptions options;
  options.watches.silence = seconds(1);
  options.watches.backoff_min = milliseconds(5);
  options.watches.backoff_max = milliseconds(200);
  options.core.retry_min = milliseconds(20);
  options.core.retry_max = seconds(1);
  return options;
}

std::unique_ptr<Client> ClientOf(const ApiServer& api) {
  ClientOptions options;
  options.timeout = seconds(3);
  options.attempt_timeout = seconds(1);
  options.backoff_min = milliseconds(5);
  options.backoff_max = milliseconds(100);
  options.seed = 1;
  auto client = Client::Make(api.config(), options);
  EXPECT_TRUE(client) << (client ? "" : client.error().message);
  return client ? *std::move(client) : nullptr;
}

// A binder in a thread.
class Running {
 public:
  explicit Running(const ApiServer& api, BinderOptions options = Options())
      : client_(ClientOf(api)),
        binder_(*client_, std::move(options)),
        thread_([this] { result_ = binder_.Run(); }) {}
  ~Running() { Stop(); }
  void Stop() {
    binder_.Stop();
    if (thread_.joinable()) thread_.join();
  }
  Binder& operator*() { return binder_; }
  Binder* operator->() { return &binder_; }
  const Result<void>& result() const { return result_; }  // after Stop()

 private:
  std::unique_ptr<Client> client_;
  Binder binder_;
  Result<void> result_;
  std::thread thread_;
};

void AddNodes(ApiServer& api, int nodes, size_t cards) {
  for (int n = 0; n < nodes; ++n) {
    const std::string name = fmt::format("node-{:02}", n);
    api.Put(resources::kNodes, NodeOf(name));
    api.Put(resources::kGpuNodes, CardsOn(name, cards));
  }
}

// They go through the API, so that they have all that it adds.
void AddShares(ApiServer& api, int from, int count, int percent = 30) {
  auto client = ClientOf(api);
  for (int i = from; i < from + count; ++i) {
    const std::string name = fmt::format("s{:04}", i);
    Json gpu{{"request", std::to_string(percent)}};
    if (i % 3 == 0) gpu["memory"] = "4Gi";
    const auto made = client->Create(resources::kSharePods, {kSpace, name}, ShareOf(name, gpu));
    EXPECT_TRUE(made || made.error().exists()) << made.error().message;
  }
}

size_t BoundPods(const ApiServer& api) {
  size_t bound = 0;
  for (const Json& pod : api.List(resources::kPods)) {
    bound += TextAt(pod, "spec/nodeName").empty() ? 0 : 1;
  }
  return bound;
}

size_t SharesInPhase(const ApiServer& api, const std::string& phase) {
  size_t count = 0;
  for (const Json& share : api.List(resources::kSharePods)) {
    count += TextAt(share, "status/phase") == phase ? 1 : 0;
  }
  return count;
}

std::string Wrong(const ApiServer& api) {
  return Overbooked(api.List(resources::kPods), api.List(resources::kGpuNodes));
}

// Each SharePod has one child, which is where its status says.
void ExpectAllRight(const ApiServer& api, size_t shares) {
  EXPECT_EQ(Wrong(api), "");
  EXPECT_EQ(api.List(resources::kPods).size(), shares);
  for (const Json& share : api.List(resources::kSharePods)) {
    const auto pod = api.Get(resources::kPods, NameOf(share));
    ASSERT_TRUE(pod) << NameOf(share).Text();
    EXPECT_EQ(TextAt(*pod, "spec/nodeName"), TextAt(share, "status/node"));
    EXPECT_EQ(TextAt((*pod)["metadata"]["ownerReferences"][0], "uid"), UidOf(share));
  }
}

// With the central batond's standing, and the Teams of the API server.
TEST(Binder, NextIsTheTeamThatHasUsedLeast) {
  ApiServer api;
  AddNodes(api, 1, 1);
  api.Put(resources::kTeams,
          {{"metadata", {{"name", "b"}}}, {"spec", {{"team", "b"}, {"weight", 2}}}});
  net::HttpServer central(
      net::ForPrograms("127.0.0.1:0"), nullptr, [](const net::HttpRequest&) -> net::HttpResponse {
        const auto row = [](const char* team, double hours) {
          return Json{{"team", team}, {"user", ""}, {"raw_shares", 1}, {"raw_usage_hours", hours}};
        };
        return {200, Json{{"rows", {row("a", 100), row("b", 300)}}}.dump(), "application/json"};
      });
  ASSERT_TRUE(central.Start());
  BinderOptions options = Options();
  options.standing.emplace();
  options.standing->url = fmt::format("http://127.0.0.1:{}", central.port());
  Running binder(api, options);
  ASSERT_TRUE(api.WaitFor(
      [&] {
        return binder->Metrics().find("\nbaton_binder_standing_age_seconds ") != std::string::npos;
      },
      seconds(20)));
  auto client = ClientOf(api);
  const auto add = [&](const std::string& name, const char* team) {
    EXPECT_TRUE(client->Create(resources::kSharePods, {kSpace, name},
                               ShareOf(name, {{"request", "60"}, {"team", team}})));
  };
  add("first", "c");
  ASSERT_TRUE(api.WaitFor([&] { return SharesInPhase(api, "Bound") == 1; }, seconds(20)));
  add("b", "b");  // 300 by 2
  add("a", "a");  // 100 by 1, which is less
  ASSERT_TRUE(api.WaitFor([&] { return SharesInPhase(api, "Pending") == 2; }, seconds(20)));
  api.Remove(resources::kSharePods, {kSpace, "first"});
  ASSERT_TRUE(api.WaitFor(
      [&] {
        for (const Json& pod : api.List(resources::kPods)) {
          if (Find(pod, "metadata/deletionTimestamp") != nullptr)
            api.Remove(resources::kPods, NameOf(pod));
        }
        return BoundPods(api) == 1 && SharesInPhase(api, "Bound") == 1;
      },
      seconds(20)));
  EXPECT_EQ(TextAt(*api.Get(resources::kSharePods, {kSpace, "a"}), "status/phase"), "Bound");
  EXPECT_EQ(TextAt(*api.Get(resources::kTeams, {"", "b"}), "status/conditions/0/status"), "True");
}

TEST(Binder, PlacesThreeHundredSharePodsOnFiftyNodes) {
  ApiServer api;
  AddNodes(api, 50, 8);
  Running binder(api);
  AddShares(api, 0, 300, 30);
  ASSERT_TRUE(api.WaitFor([&] { return SharesInPhase(api, "Bound") == 300; }, seconds(50)));
  ExpectAllRight(api, 300);
  // What ends or is deleted is gone from the books.
  auto client = ClientOf(api);
  for (const Json& share : api.List(resources::kSharePods)) {
    api.Remove(resources::kSharePods, NameOf(share));
  }
  ASSERT_TRUE(api.WaitFor([&] {
    for (const Json& pod : api.List(resources::kPods)) {
      if (Find(pod, "metadata/deletionTimestamp") != nullptr) {
        api.Remove(resources::kPods, NameOf(pod));
      }
    }
    return api.List(resources::kPods).empty();
  }));
  ASSERT_TRUE(api.WaitFor([&] { return binder->counts().placed == 0; }));
  binder.Stop();
  EXPECT_TRUE(binder.result());
}

// Nothing tells of that pod once more.
TEST(Binder, BindsAPodAfterANotFoundThatIsNotAboutIt) {
  ApiServer api;
  AddNodes(api, 1, 2);
  for (const char* verb : {"create", "get"}) {
    api.AddFault({.kind = FaultKind::kAnswer, .verb = verb, .path = "/pods/p", .status = 404});
  }
  Running binder(api);
  api.Put(resources::kPods, PodOf("p", {{"baton.dev/gpu-share", "30"}}));
  EXPECT_TRUE(api.WaitFor([&] { return BoundPods(api) == 1; }));
  EXPECT_EQ(api.faults_met(), 2u);
}

TEST(Binder, ConvergesDespiteApiServerFaults) {
  struct Case {
    const char* name;
    std::vector<Fault> faults;
    bool compact = false;
  };
  const auto fault = [](FaultKind kind, const char* verb, uint32_t times, uint32_t one_in,
                        int status = 500) {
    Fault made;
    made.kind = kind;
    made.verb = verb;
    made.times = times;
    made.one_in = one_in;
    made.status = status;
    return made;
  };
  std::vector<Case> cases = {
      {"conflicts", {fault(FaultKind::kAnswer, "update", 30, 2, 409)}},
      {"watches that are gone", {fault(FaultKind::kAnswer, "watch", 12, 1, 410)}},
      {"compaction", {fault(FaultKind::kEndWatch, "watch", 20, 1)}, true},
      {"too many requests", {fault(FaultKind::kAnswer, "create", 40, 2, 429)}},
      {"internal errors", {fault(FaultKind::kAnswer, "", 60, 3, 500)}},
      {"unavailable", {fault(FaultKind::kAnswer, "", 60, 3, 503)}},
      {"expired token", {fault(FaultKind::kAnswer, "", 10, 2, 401)}},
      {"cut watches", {fault(FaultKind::kCutWatch, "watch", 20, 1)}},
      {"stalled watches", {fault(FaultKind::kStallWatch, "watch", 5, 1)}},
      {"cut before", {fault(FaultKind::kCutBefore, "", 60, 3)}},
      {"cut after", {fault(FaultKind::kCutAfter, "", 60, 3)}},
      {"half an answer", {fault(FaultKind::kHalfBody, "", 60, 3)}},
      {"no JSON", {fault(FaultKind::kMalformed, "", 40, 3)}},
      {"a page of HTML", {fault(FaultKind::kWrongType, "", 40, 3)}},
      {"slow", {fault(FaultKind::kSlow, "", 100, 3)}},
  };
  for (Case& one : cases) {
    SCOPED_TRACE(one.name);
    ApiServer api;
    AddNodes(api, 4, 4);
    AddShares(api, 0, 10);
    for (Fault& made : one.faults) {
      made.delay = milliseconds(150);
      made.events = 3;
      api.AddFault(made);
    }
    Running binder(api);
    ASSERT_TRUE(api.WaitFor([&] { return BoundPods(api) >= 1; }));
    if (one.compact) api.Compact();
    // Past the API, which would meet the faults.
    for (int i = 10; i < 40; ++i) {
      Json share = ShareOf(fmt::format("s{:04}", i), {{"request", "30"}});
      share["metadata"]["generation"] = 1;
      api.Put(resources::kSharePods, share);
    }
    if (one.compact) api.Compact();
    EXPECT_TRUE(api.WaitFor([&] { return SharesInPhase(api, "Bound") == 40; }, seconds(15)))
        << SharesInPhase(api, "Bound") << " bound; " << api.faults_met() << " faults met";
    EXPECT_GT(api.faults_met(), 0u);
    ExpectAllRight(api, 40);
    if (HasFailure()) return;
  }
}

TEST(Binder, WaitsForItsCustomResources) {
  ApiServer api;
  api.Unserve(resources::kSharePods);
  AddNodes(api, 1, 1);
  Running binder(api);
  api.Put(resources::kPods, PodOf("p", {{"baton.dev/gpu-share", "10"}}));
  ASSERT_TRUE(api.WaitFor([&] { return api.count("list sharepods") > 1; }));
  EXPECT_FALSE(binder->synced());
  api.Serve(resources::kSharePods);
  EXPECT_TRUE(api.WaitFor([&] { return BoundPods(api) == 1; }));
}

LeaderOptions Election(const std::string& identity) {
  LeaderOptions leader;
  leader.lease = {"kube-system", "baton-binder"};
  leader.identity = identity;
  leader.duration = milliseconds(1'500);
  leader.renew_deadline = milliseconds(1'000);
  leader.retry = milliseconds(200);
  return leader;
}

TEST(Binder, SecondBinderTakesOver) {
  ApiServer api;
  AddNodes(api, 10, 4);
  BinderOptions a = Options();
  a.leader = Election("a");
  BinderOptions b = Options();
  b.leader = Election("b");
  auto first = std::make_unique<Running>(api, a);
  ASSERT_TRUE(api.WaitFor([&] { return (*first)->leading(); }));
  Running second(api, b);
  AddShares(api, 0, 20);
  ASSERT_TRUE(api.WaitFor([&] { return SharesInPhase(api, "Bound") == 20; }));
  EXPECT_FALSE(second->leading());
  EXPECT_FALSE(second->synced());
  EXPECT_EQ(second->counts().bound, 0u);
  // The first goes; it gives the lease back.
  first.reset();
  AddShares(api, 20, 20);
  ASSERT_TRUE(api.WaitFor([&] { return SharesInPhase(api, "Bound") == 40; }));
  EXPECT_TRUE(second->leading());
  ExpectAllRight(api, 40);
}

TEST(Binder, LostLeaseEndsAllWrites) {
  ApiServer api;
  AddNodes(api, 1, 4);
  BinderOptions options = Options();
  options.leader = Election("a");
  Running binder(api, options);
  ASSERT_TRUE(api.WaitFor([&] { return binder->synced(); }));
  Fault away;
  away.path = "/leases";
  away.times = 0;
  away.status = 503;
  api.AddFault(away);
  ASSERT_TRUE(api.WaitFor([&] { return !binder->leading(); }));
  AddShares(api, 0, 3);
  const bool ended = api.WaitFor([&] { return BoundPods(api) > 0; }, milliseconds(500));
  EXPECT_FALSE(ended);
  binder.Stop();
  ASSERT_FALSE(binder.result());
  EXPECT_NE(binder.result().error().message.find("lease"), std::string::npos);
}

// Figures for people: bound per second, from the first that comes to the last that is bound.
#ifdef BATON_SANITIZED
constexpr int kMany = 100;
constexpr double kLeastPerSecond = 10;  // 80 where nothing else runs, a third of it beside others
#else
constexpr int kMany = 1'000;
constexpr double kLeastPerSecond = 50;
#endif

// Has so many bound that come at once, and looks at what is there then. How fast they are is judged
// in the first of three rounds that nobody disturbs.
void BindsAThousand(const char* what, const std::function<void(ApiServer&, int)>& put,
                    const std::function<void(ApiServer&)>& look) {
  double rate = 0;
  for (int round = 0; round < 3 && rate < 200; ++round) {
    ApiServer api;
    AddNodes(api, 50, 8);
    Running binder(api);
    ASSERT_TRUE(api.WaitFor([&] { return binder->synced(); }));
    const Instant start = MonotonicNow();
    for (int i = 0; i < kMany; ++i) put(api, i);
    ASSERT_TRUE(api.WaitFor([&] { return binder->counts().bound >= kMany; }, seconds(50)));
    rate = kMany / std::chrono::duration<double>(MonotonicNow() - start).count();
    EXPECT_GT(rate, kLeastPerSecond);
    const std::string metrics = binder->Metrics();
    const auto figure = [&](const std::string& name) {
      const size_t at = metrics.find("\nbaton_binder_" + name + " ");
      return metrics.substr(at + 15 + name.size(),
                            metrics.find('\n', at + 1) - at - 15 - name.size());
    };
    std::printf("bound %d %s: %.0f/s; the core took %s s in %s steps, %s s at most\n", kMany, what,
                rate, figure("step_seconds_total").c_str(), figure("steps_total").c_str(),
                figure("step_seconds_max").c_str());
    look(api);
  }
#ifdef NDEBUG
  EXPECT_GE(rate, 200);
#endif
}

// Of a line of metrics, without the names of its labels' values.
std::map<std::string, double> Figures(const std::string& metrics, const std::string& name) {
  std::map<std::string, double> figures;
  std::istringstream lines(metrics);
  for (std::string line; std::getline(lines, line);) {
    const std::string begin = "baton_binder_" + name + "{";
    if (!line.starts_with(begin)) continue;
    const size_t end = line.rfind("} ");
    figures[line.substr(begin.size(), end - begin.size())] = std::stod(line.substr(end + 2));
  }
  return figures;
}

TEST(Binder, MetricsTellWhatIsGivenOfEachGpuAndWhyPodsWait) {
  ApiServer api;
  AddNodes(api, 1, 2);
  AddShares(api, 0, 1);  // 30 %, 4 GiB
  Running binder(api);
  ASSERT_TRUE(api.WaitFor([&] { return SharesInPhase(api, "Bound") == 1; }));
  const auto sum = [&](const char* name) {
    double total = 0;
    for (const auto& [labels, value] : Figures(binder->Metrics(), name)) total += value;
    return total;
  };
  const std::string metrics = binder->Metrics();
  const auto allocated = Figures(metrics, "gpu_allocated_ratio");
  ASSERT_EQ(allocated.size(), 2u) << metrics;
  for (const auto& [labels, ratio] : allocated) {
    EXPECT_NE(labels.find("device_uuid=\""), std::string::npos) << labels;
    EXPECT_NE(labels.find("node=\"node-00\""), std::string::npos) << labels;
    EXPECT_NE(labels.find("model=\""), std::string::npos) << labels;
    const double free = Figures(metrics, "gpu_free_ratio").at(labels);
    EXPECT_DOUBLE_EQ(ratio + free, 1);
    EXPECT_DOUBLE_EQ(Figures(metrics, "gpu_allocated_memory_bytes").at(labels) +
                         Figures(metrics, "gpu_free_memory_bytes").at(labels),
                     Figures(metrics, "gpu_memory_bytes").at(labels));
  }
  EXPECT_DOUBLE_EQ(sum("gpu_allocated_ratio"), 0.3);
  EXPECT_DOUBLE_EQ(sum("gpu_allocated_memory_bytes"), 4.0 * (1 << 30));
  EXPECT_EQ(Figures(metrics, "pending_pods"), (std::map<std::string, double>{}));
  // A GPU that gets no new pods has nothing for them; what is there stays there.
  Json gpu_node = *api.Get(resources::kGpuNodes, {"", "node-00"});
  for (Json& card : gpu_node["status"]["cards"]) card["cordoned"] = true;
  api.Put(resources::kGpuNodes, gpu_node);
  EXPECT_TRUE(api.WaitFor([&] { return sum("gpu_free_ratio") == 0; }));
  EXPECT_EQ(sum("gpu_free_memory_bytes"), 0);
  EXPECT_DOUBLE_EQ(sum("gpu_allocated_ratio"), 0.3);
  AddShares(api, 3, 2);
  Json gang{{"request", "10"}, {"gang", {{"name", "g"}, {"size", 2}}}};
  ASSERT_TRUE(
      ClientOf(api)->Create(resources::kSharePods, {kSpace, "alone"}, ShareOf("alone", gang)));
  std::map<std::string, double> pending;
  EXPECT_TRUE(api.WaitFor([&] {
    pending = Figures(binder->Metrics(), "pending_pods");
    return pending == std::map<std::string, double>{{"reason=\"Unschedulable\"", 2},
                                                    {"reason=\"WaitingForGang\"", 1}};
  })) << ::testing::PrintToString(pending);
}

TEST(Binder, BindsAThousandPodsThatComeAtOnce) {
  BindsAThousand(
      "pods",
      [](ApiServer& api, int i) {
        api.Put(resources::kPods, PodOf(fmt::format("p{:04}", i), {{"baton.dev/gpu-share", "30"}}));
      },
      [](ApiServer& api) {
        EXPECT_EQ(BoundPods(api), size_t{kMany});
        EXPECT_EQ(Wrong(api), "");
      });
}

TEST(Binder, BindsAThousandSharePodsThatComeAtOnce) {
  BindsAThousand(
      "SharePods",
      [](ApiServer& api, int i) {
        Json share = ShareOf(fmt::format("s{:04}", i), {{"request", "30"}, {"memory", "8Gi"}});
        share["metadata"]["generation"] = 1;
        api.Put(resources::kSharePods, share);
      },
      [](ApiServer& api) {
        ASSERT_TRUE(api.WaitFor([&] { return SharesInPhase(api, "Bound") == kMany; }));
        ExpectAllRight(api, kMany);
      });
}

TEST(BinderProgram, SurvivesKillAtAnyMoment) {
  ApiServer api;
  AddNodes(api, 10, 8);
  const Kubeconfig file(api.url());
  const std::vector<std::string> arguments = {
      "binder", "--kubeconfig", file.path(), "--no-leader-election", "--listen", ""};
  const uint64_t seed = 20'261'121;
  Random random(seed);
  std::printf("seed %lu\n", static_cast<unsigned long>(seed));
  for (int kills = 0; kills < 20; ++kills) {
    AddShares(api, kills * 10, 10, 25);
    Program program(arguments);
    std::this_thread::sleep_for(milliseconds(random.Between(20, 250)));
    program.End(SIGKILL);
    ASSERT_EQ(Wrong(api), "");
  }
  // The last one has some of its own to bind: it is told to end when it is seen to work.
  Program program(arguments);
  AddShares(api, 200, 10, 25);
  ASSERT_TRUE(api.WaitFor([&] { return SharesInPhase(api, "Bound") == 210; }, seconds(30)))
      << SharesInPhase(api, "Bound");
  ExpectAllRight(api, 210);
  // Each child was made once.
  EXPECT_EQ(api.List(resources::kPods).size(), 210u);
  const int status = program.End(SIGTERM);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace baton::k8s::testing
