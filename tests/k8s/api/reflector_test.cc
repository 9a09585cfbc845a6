// Whatever happens between, what a reflector has told is in the end what the server has.
#include "k8s/api/reflector.h"

#include <fmt/format.h>

#include <map>
#include <mutex>

#include "base/random.h"
#include "tests/k8s/api/fixture.h"

namespace baton::k8s::testing {
namespace {

using resources::kPods;

ReflectorOptions QuickReflector() {
  ReflectorOptions options;
  options.silence = milliseconds(600);
  options.backoff_min = milliseconds(2);
  options.backoff_max = milliseconds(50);
  options.list.page = 7;
  return options;
}

// Keeps what it is told, and checks that it is told in an order that makes sense.
class Mirror {
 public:
  ReflectorSink Sink() {
    return {.changed =
                [this](Json object) {
                  const std::lock_guard lock(mutex_);
                  Json& known = objects_[NameOf(object)];
                  // Another one of the same name comes only after the first is gone.
                  if (!known.is_null()) {
                    EXPECT_EQ(UidOf(known), UidOf(object));
                    EXPECT_NE(ResourceVersionOf(known), ResourceVersionOf(object));
                  }
                  known = std::move(object);
                  ++changes_;
                },
            .gone =
                [this](Json object) {
                  const std::lock_guard lock(mutex_);
                  const auto at = objects_.find(NameOf(object));
                  ASSERT_NE(at, objects_.end());
                  EXPECT_EQ(UidOf(at->second), UidOf(object));
                  objects_.erase(at);
                  ++gone_;
                },
            .synced =
                [this] {
                  const std::lock_guard lock(mutex_);
                  ++synced_;
                },
            .trouble =
                [this](const std::string& why) {
                  const std::lock_guard lock(mutex_);
                  EXPECT_FALSE(why.empty());
                  troubles_.push_back(why);
                }};
  }
  // Whether it is as the server's.
  bool Same(const ApiServer& server, const Resource& resource = kPods) {
    const std::vector<Json> all = server.List(resource);
    const std::lock_guard lock(mutex_);
    if (all.size() != objects_.size()) return false;
    for (const Json& object : all) {
      const auto at = objects_.find(NameOf(object));
      if (at == objects_.end() || at->second != object) return false;
    }
    return true;
  }
  int synced() {
    const std::lock_guard lock(mutex_);
    return synced_;
  }
  int gone() {
    const std::lock_guard lock(mutex_);
    return gone_;
  }
  std::vector<std::string> troubles() {
    const std::lock_guard lock(mutex_);
    return troubles_;
  }

 private:
  std::mutex mutex_;
  std::map<ObjectName, Json> objects_;
  int changes_ = 0;
  int gone_ = 0;
  int synced_ = 0;
  std::vector<std::string> troubles_;
};

std::string PodName(int64_t number) { return fmt::format("p{}", number); }

// Changes a few pods at random, past the API.
void Stir(ApiServer& server, Random& random, int steps) {
  for (int i = 0; i < steps; ++i) {
    const std::string name = PodName(random.Between(0, 19));
    if (random.OneIn(3)) {
      server.Remove(kPods, {"default", name});
      if (random.OneIn(2)) server.Put(kPods, AnnotatedPod(name));  // another one of that name
    } else {
      auto pod = server.Get(kPods, {"default", name});
      Json next = pod ? *pod : AnnotatedPod(name);
      next["metadata"]["annotations"]["n"] = std::to_string(random.Next());
      server.Put(kPods, next);
    }
  }
}

TEST(ReflectorTest, ReportsTheListAndThenEveryChange) {
  ApiServer server;
  const auto client = ClientOf(server.config());
  for (int i = 0; i < 20; ++i) server.Put(kPods, AnnotatedPod(PodName(i)));
  Mirror mirror;
  const Reflector reflector(*client, kPods, QuickReflector(), mirror.Sink());
  ASSERT_TRUE(server.WaitFor([&] { return mirror.Same(server) && mirror.synced() == 1; }));
  Random random(1);
  Stir(server, random, 200);
  EXPECT_TRUE(server.WaitFor([&] { return mirror.Same(server); }));
  EXPECT_EQ(mirror.synced(), 1);
  EXPECT_TRUE(mirror.troubles().empty());
}

TEST(ReflectorTest, ManagedFieldsAreRemoved) {
  ApiServer server;
  const auto client = ClientOf(server.config());
  const auto put = [&](const char* name) {
    Json pod = AnnotatedPod(name);
    pod["metadata"]["managedFields"] = Json::array({{{"manager", "kubectl"}}});
    server.Put(kPods, pod);
  };
  put("listed");
  std::mutex mutex;
  std::map<std::string, Json> told;
  ReflectorSink sink;
  sink.changed = [&](Json pod) {
    const std::string name = NameOf(pod).name;
    const std::lock_guard lock(mutex);
    told[name] = std::move(pod);
  };
  const Reflector reflector(*client, kPods, QuickReflector(), std::move(sink));
  const auto seen = [&](const char* name) {
    return server.WaitFor([&] {
      const std::lock_guard lock(mutex);
      return told.contains(name);
    });
  };
  ASSERT_TRUE(seen("listed"));
  put("watched");
  ASSERT_TRUE(seen("watched"));
  const std::lock_guard lock(mutex);
  for (const auto& [name, pod] : told) {
    EXPECT_FALSE(pod["metadata"].contains("managedFields")) << name;
    EXPECT_EQ(pod["spec"], AnnotatedPod(name)["spec"]) << name;
  }
}

// What nobody reads need not be kept, and need not be read from etcd.
TEST(ReflectorTest, ListsComeFromTheCacheAndAreProjectedWhereThatIsAskedFor) {
  ApiServer server;
  const auto client = ClientOf(server.config());
  for (int i = 0; i < 20; ++i) server.Put(kPods, AnnotatedPod(PodName(i)));
  ReflectorOptions options = QuickReflector();
  options.list.from_cache = true;
  options.list.project = [](Json& pod) { pod.erase("spec"); };
  std::mutex mutex;
  std::map<std::string, Json> told;
  ReflectorSink sink;
  sink.changed = [&](Json pod) {
    const std::string name = NameOf(pod).name;
    const std::lock_guard lock(mutex);
    told[name] = std::move(pod);
  };
  const Reflector reflector(*client, kPods, options, std::move(sink));
  const auto seen = [&](size_t count) {
    return server.WaitFor([&] {
      const std::lock_guard lock(mutex);
      return told.size() == count;
    });
  };
  ASSERT_TRUE(seen(20));
  EXPECT_EQ(server.count("cached list pods"), server.count("list pods")) << "in one page";
  EXPECT_EQ(server.count("list pods"), 1u);
  server.Put(kPods, AnnotatedPod("late"));
  ASSERT_TRUE(seen(21));
  const std::lock_guard lock(mutex);
  for (const auto& [name, pod] : told) EXPECT_FALSE(pod.contains("spec")) << name;
}

TEST(ReflectorTest, ExpiredVersionIsRelistedWithDeletions) {
  ApiServer server;
  const auto client = ClientOf(server.config());
  for (int i = 0; i < 3; ++i) server.Put(kPods, AnnotatedPod(PodName(i)));
  Mirror mirror;
  const Reflector reflector(*client, kPods, QuickReflector(), mirror.Sink());
  ASSERT_TRUE(
      server.WaitFor([&] { return mirror.Same(server) && server.count("watch pods") == 1; }));
  // While the watch is away: one is gone, one is another of the same name, one is new.
  server.AddFault({.kind = FaultKind::kAnswer, .verb = "watch", .times = 0, .status = 503});
  server.CutConnections();
  ASSERT_TRUE(server.WaitFor([&] { return server.faults_met() > 0; }));
  server.Remove(kPods, {"default", PodName(0)});
  server.Remove(kPods, {"default", PodName(1)});
  server.Put(kPods, AnnotatedPod(PodName(1)));
  server.Put(kPods, AnnotatedPod(PodName(7)));
  server.Compact();
  server.ClearFaults();
  EXPECT_TRUE(server.WaitFor([&] { return mirror.synced() == 2 && mirror.Same(server); }));
  EXPECT_EQ(mirror.gone(), 2);
  EXPECT_EQ(mirror.troubles().size(), 1u);
}

TEST(ReflectorTest, SilentWatchIsReplaced) {
  ApiServer server;
  const auto client = ClientOf(server.config());
  server.AddFault({.kind = FaultKind::kStallWatch, .times = 2});
  Mirror mirror;
  const Reflector reflector(*client, kPods, QuickReflector(), mirror.Sink());
  ASSERT_TRUE(server.WaitFor([&] { return mirror.synced() == 1; }));
  server.Put(kPods, AnnotatedPod("a"));
  EXPECT_TRUE(server.WaitFor([&] { return mirror.Same(server); }));
  // It went on where it was.
  EXPECT_EQ(mirror.synced(), 1);
}

TEST(ReflectorTest, WaitsForAKindThatIsNotServedYet) {
  ApiServer server;
  const auto client = ClientOf(server.config());
  server.Unserve(resources::kSharePods);
  Mirror mirror;
  const Reflector reflector(*client, resources::kSharePods, QuickReflector(), mirror.Sink());
  ASSERT_TRUE(server.WaitFor([&] { return !mirror.troubles().empty(); }));
  EXPECT_NE(mirror.troubles()[0].find("404"), std::string::npos) << mirror.troubles()[0];
  server.Serve(resources::kSharePods);
  server.Put(resources::kSharePods, {{"metadata", {{"name", "s"}}}});
  EXPECT_TRUE(server.WaitFor([&] { return mirror.Same(server, resources::kSharePods); }));
  EXPECT_EQ(mirror.troubles().size(), 1u);  // once, however often it was tried
  // Its definition goes, and comes back.
  server.Unserve(resources::kSharePods);
  ASSERT_TRUE(server.WaitFor([&] { return mirror.troubles().size() == 2; }));
  server.Serve(resources::kSharePods);
  EXPECT_TRUE(server.WaitFor([&] { return mirror.Same(server, resources::kSharePods); }));
}

TEST(ReflectorTest, SelectorsAreApplied) {
  ApiServer server;
  const auto client = ClientOf(server.config());
  ReflectorOptions options = QuickReflector();
  options.list.field_selector = "spec.nodeName=n1";
  Mirror mirror;
  const Reflector reflector(*client, kPods, options, mirror.Sink());
  ASSERT_TRUE(server.WaitFor([&] { return mirror.synced() == 1; }));
  Json pod = server.Put(kPods, AnnotatedPod("a"));
  server.Put(kPods, AnnotatedPod("b"));
  pod["spec"]["nodeName"] = "n1";
  server.Put(kPods, pod);
  server.Remove(kPods, {"default", "b"});
  EXPECT_TRUE(server.WaitFor([&] { return mirror.Same(server); }));
  server.Remove(kPods, {"default", "a"});
  EXPECT_TRUE(server.WaitFor([&] { return mirror.gone() == 1; }));
}

TEST(ReflectorTest, StopsSoonWhateverItWaitsFor) {
  ApiServer server;
  const auto client = ClientOf(server.config());
  ReflectorOptions options = QuickReflector();
  options.silence = std::chrono::minutes(10);
  const Instant begin = MonotonicNow();
  {  // a list
    server.AddFault({.kind = FaultKind::kHang, .verb = "list", .times = 0});
    Mirror mirror;
    const Reflector reflector(*client, kPods, options, mirror.Sink());
    ASSERT_TRUE(server.WaitFor([&] { return server.faults_met() > 0; }));
  }
  server.ClearFaults();
  {  // a watch
    Mirror mirror;
    const Reflector reflector(*client, kPods, options, mirror.Sink());
    ASSERT_TRUE(server.WaitFor([&] { return server.count("watch pods") > 0; }));
  }
  {  // the time until it may ask again
    server.AddFault({.kind = FaultKind::kAnswer, .times = 0, .status = 403});
    options.backoff_min = options.backoff_max = std::chrono::minutes(10);
    Mirror mirror;
    const Reflector reflector(*client, kPods, options, mirror.Sink());
    ASSERT_TRUE(server.WaitFor([&] { return !mirror.troubles().empty(); }));
  }
  // Each of them lasts ten minutes or for ever.
  EXPECT_LT(MonotonicNow() - begin, options.silence / 2);
}

// Each fault by itself, again and again, while pods come, change and go.
class ReflectorUnderFault : public ::testing::TestWithParam<FaultKind> {};

TEST_P(ReflectorUnderFault, Converges) {
  const uint64_t seed = static_cast<uint64_t>(Nanos(MonotonicNow()));
  std::printf("seed %lu\n", seed);
  Random random(seed);
  ApiServer server({.bookmarks = milliseconds(20), .history_max = 40, .seed = seed});
  ClientOptions options = Quick();
  options.attempt_timeout = milliseconds(100);
  options.timeout = milliseconds(300);
  const auto client = ClientOf(server.config(), options);
  ReflectorOptions reflector_options = QuickReflector();
  reflector_options.silence = milliseconds(100);
  Mirror mirror;
  const Reflector reflector(*client, kPods, reflector_options, mirror.Sink());
  const int statuses[] = {401, 403, 404, 409, 410, 429, 500, 503};
  for (int round = 0; round < 12; ++round) {
    const int64_t count = random.Between(1, 3);
    for (int64_t i = 0; i < count; ++i) {
      server.AddFault({.kind = GetParam(),
                       .times = static_cast<uint32_t>(random.Between(1, 3)),
                       .one_in = static_cast<uint32_t>(random.Between(1, 3)),
                       .status = statuses[random.Between(0, 7)],
                       .delay = milliseconds(random.Between(1, 150)),
                       .events = static_cast<uint32_t>(random.Between(0, 4))});
    }
    if (random.OneIn(3)) server.Compact();
    if (random.OneIn(3)) server.CutConnections();
    Stir(server, random, static_cast<int>(random.Between(1, 60)));
    std::this_thread::sleep_for(milliseconds(random.Between(0, 40)));
  }
  // On a busy machine the reflector may have met none of them yet.
  for (int i = 0; i < 500 && server.faults_met() == 0; ++i) {
    Stir(server, random, 1);
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_GT(server.faults_met(), 0u);
  server.ClearFaults();
  EXPECT_TRUE(server.WaitFor([&] { return mirror.Same(server); }));
}

std::string FaultName(const ::testing::TestParamInfo<FaultKind>& param) {
  static const char* const kNames[] = {"Answer",   "Slow",     "Hang",       "CutBefore",
                                       "CutAfter", "HalfBody", "Malformed",  "WrongType",
                                       "CutWatch", "EndWatch", "StallWatch", "LateAnswer"};
  return kNames[static_cast<int>(param.param)];
}

INSTANTIATE_TEST_SUITE_P(All, ReflectorUnderFault,
                         ::testing::Values(FaultKind::kAnswer, FaultKind::kSlow, FaultKind::kHang,
                                           FaultKind::kCutBefore, FaultKind::kCutAfter,
                                           FaultKind::kHalfBody, FaultKind::kMalformed,
                                           FaultKind::kWrongType, FaultKind::kCutWatch,
                                           FaultKind::kEndWatch, FaultKind::kStallWatch,
                                           FaultKind::kLateAnswer),
                         FaultName);

}  // namespace
}  // namespace baton::k8s::testing
