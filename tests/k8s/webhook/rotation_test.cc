#include "k8s/webhook/rotation.h"

#include <gtest/gtest.h>

#include <deque>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "base/random.h"
#include "k8s/api/base64.h"
#include "k8s/api/client.h"
#include "k8s/webhook/webhook.h"
#include "tests/k8s/stand_in/api_server.h"

namespace baton::k8s {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

const WallTime kStart = hours(24 * 365 * 50);

RotationOptions OfReplica(std::string name) {
  return {{"a.b.svc"}, std::move(name), hours(1), seconds(60)};
}

TEST(Rotation, RecentBundlesTrustTheServedCertificate) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const RotationOptions options = OfReplica("a");
    Rotation rotation(options);
    // Bundles as they were, with the time until which somebody may still go by each.
    std::deque<std::pair<WallTime, std::string>> bundles;
    std::string bundle;
    std::set<std::string> served;
    WallTime down_until{0};
    bool was_ready = false;
    for (WallTime now = kStart; now < kStart + hours(4); now += seconds(10)) {
      ASSERT_TRUE(rotation.Step(now));
      // The API server is away now and then, for up to five minutes.
      if (random.OneIn(120)) down_until = now + seconds(random.Between(10, 300));
      if (now >= down_until) {
        const std::string after = MergedBundle(bundle, rotation.wanted(), now);
        if (after != bundle) bundles.emplace_back(now + options.propagation, bundle);
        bundle = after;
        rotation.Published(now);
      }
      while (!bundles.empty() && bundles.front().first <= now) bundles.pop_front();
      was_ready |= rotation.ready(now);
      if (!was_ready) continue;
      EXPECT_TRUE(rotation.ready(now)) << "once ready, always";
      const ServingCertificate& serving = *rotation.serving();
      served.insert(serving.certificate);
      EXPECT_LT(now, serving.not_after);
      EXPECT_NE(bundle.find(serving.authority), std::string::npos);
      for (const auto& [until, old] : bundles) {
        EXPECT_NE(old.find(serving.authority), std::string::npos);
      }
      EXPECT_LE(BundleSize(bundle), 3u);
    }
    EXPECT_GE(served.size(), 5u);
  }
}

TEST(Rotation, ForwardClockJumpRotatesAtOnce) {
  Rotation rotation(OfReplica("a"));
  ASSERT_TRUE(rotation.Step(kStart));
  rotation.Published(kStart);
  const std::string before = rotation.serving()->certificate;
  const WallTime later = kStart + hours(100);
  ASSERT_TRUE(rotation.Step(later));
  ASSERT_TRUE(rotation.Step(later + seconds(1)));
  EXPECT_NE(rotation.serving()->certificate, before);
  EXPECT_LT(later, rotation.serving()->not_after);
}

TEST(Rotation, BackwardClockJumpKeepsPublishedBundles) {
  Rotation rotation(OfReplica("a"));
  ASSERT_TRUE(rotation.Step(kStart));
  rotation.Published(kStart);
  WallTime now = kStart + seconds(61);
  ASSERT_TRUE(rotation.Step(now));
  ASSERT_TRUE(rotation.ready(now));
  const std::string before = rotation.serving()->certificate;
  now -= seconds(100);  // within what clocks may differ
  ASSERT_TRUE(rotation.Step(now));
  EXPECT_TRUE(rotation.ready(now));
  EXPECT_EQ(rotation.serving()->certificate, before);
}

TEST(Rotation, NotYetValidCertificateIsReplaced) {
  Rotation rotation(OfReplica("a"));
  ASSERT_TRUE(rotation.Step(kStart));
  rotation.Published(kStart);
  const std::string before = rotation.serving()->certificate;
  WallTime now = kStart - hours(100);
  ASSERT_TRUE(rotation.Step(now));
  EXPECT_FALSE(rotation.ready(now)) << "nobody would trust it";
  rotation.Published(now);
  now += seconds(1);
  ASSERT_TRUE(rotation.Step(now));
  EXPECT_NE(rotation.serving()->certificate, before);
  EXPECT_GT(now, rotation.serving()->not_before);
  now += seconds(60);
  ASSERT_TRUE(rotation.Step(now));
  EXPECT_TRUE(rotation.ready(now));
}

// A container that crashes is started again in its pod, each time with a new authority. Were they
// all kept, they would drive out the one by which the replica beside it is trusted.
TEST(Rotation, RestartsKeepOtherReplicasInTheBundle) {
  constexpr uint64_t kSeed = 1;
  SCOPED_TRACE(kSeed);
  Random random(kSeed);
  std::string bundle;
  WallTime now = kStart;
  const auto publish = [&](Rotation& rotation) {
    bundle = MergedBundle(bundle, rotation.wanted(), now);
    rotation.Published(now);
  };
  Rotation stays(OfReplica("baton-webhook-1"));
  ASSERT_TRUE(stays.Step(now));
  publish(stays);
  for (int start = 0; start < 100; ++start) {
    // The other one's name begins with its: a name counts as a whole.
    Rotation crashes(OfReplica("baton-webhook-10"));
    // Soon, as often as there is room in the bundle and more; then anywhere in its first rotation.
    const auto lives = start < 80 ? 10 : random.Between(10, 3'000);
    const WallTime end = now + seconds(lives);
    for (; now < end; now += seconds(10)) {
      for (Rotation* rotation : {&crashes, &stays}) {
        const uint64_t before = rotation->version();
        ASSERT_TRUE(rotation->Step(now));
        // Nobody puts back what another took out.
        if (rotation->version() != before) publish(*rotation);
        for (const std::string& authority : rotation->wanted()) {
          ASSERT_NE(bundle.find(authority), std::string::npos) << "start " << start;
        }
      }
    }
    ASSERT_EQ(BundleSize(bundle), crashes.wanted().size() + stays.wanted().size());
  }
}

TEST(Bundle, KeepsOthersDropsTheExpiredAndStaysBounded) {
  const auto make = [](const char* replica, WallTime now) {
    return MakeServingCertificate({"a.b.svc", "127.0.0.1"}, replica, now, hours(1))
        .value()
        .authority;
  };
  const std::string ours = make("a", kStart);
  const std::string next = make("a", kStart);
  const std::string theirs = make("b", kStart);
  const std::string old = make("b", kStart - hours(2));
  EXPECT_EQ(MergedBundle("", {ours}, kStart), ours);
  EXPECT_EQ(MergedBundle("# words\n" + theirs + old + "nonsense", {ours}, kStart), theirs + ours);
  EXPECT_EQ(MergedBundle(theirs + ours, {ours}, kStart), theirs + ours) << "nothing to do";
  EXPECT_EQ(MergedBundle(theirs + ours, {ours, next}, kStart), theirs + ours + next);
  EXPECT_EQ(MergedBundle(ours + theirs + next, {next}, kStart), theirs + next);
  EXPECT_EQ(MergedBundle(theirs + ours, {}, kStart), theirs + ours);
  std::string many;
  for (int i = 0; i < 70; ++i) many += make(std::to_string(i).c_str(), kStart + seconds(i));
  const std::string merged = MergedBundle(many, {ours}, kStart + minutes(5));
  EXPECT_EQ(BundleSize(merged), kBundleMax);
  EXPECT_NE(merged.find(ours), std::string::npos) << "ours expires first, and stays";
}

TEST(Bundle, InvalidNamesGetNoCertificate) {
  EXPECT_FALSE(MakeServingCertificate({}, "a", kStart, hours(1)));
  for (const char* name : {"", "a,DNS:b", "a b", "x\n"}) {
    EXPECT_FALSE(MakeServingCertificate({name}, "a", kStart, hours(1))) << name;
  }
  const std::string longest(253, 'a');
  EXPECT_TRUE(MakeServingCertificate({longest, "::1"}, longest, kStart, hours(1)));
  for (const std::string& replica : {std::string(), std::string("a b"), longest + "a"}) {
    EXPECT_FALSE(MakeServingCertificate({"a"}, replica, kStart, hours(1))) << replica;
  }
}

Json Configuration(const Resource& resource) {
  return {{"apiVersion", resource.ApiVersion()},
          {"kind", resource.kind},
          {"metadata", {{"name", "baton"}}},
          {"webhooks",
           {{{"name", "pods.baton.dev"}, {"clientConfig", {{"service", {{"name", "w"}}}}}},
            {{"name", "sharepods.baton.dev"},
             {"clientConfig", {{"service", {{"name", "w"}}}, {"caBundle", "bm9uc2Vuc2U="}}}}}}};
}

class Publishing : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const Resource* resource :
         {&resources::kMutatingWebhooks, &resources::kValidatingWebhooks}) {
      server_.Put(*resource, Configuration(*resource));
    }
    ClientOptions options;
    options.backoff_min = std::chrono::milliseconds(1);
    options.backoff_max = std::chrono::milliseconds(10);
    client_ = Client::Make(server_.config(), options).value();
  }
  std::vector<std::string> Bundles() {
    std::vector<std::string> bundles;
    for (const Resource* resource :
         {&resources::kMutatingWebhooks, &resources::kValidatingWebhooks}) {
      const auto object = server_.Get(*resource, {{}, "baton"});
      for (const Json& webhook : (*object)["webhooks"]) {
        bundles.push_back(FromBase64(TextAt(webhook, "clientConfig/caBundle")));
      }
    }
    return bundles;
  }

  testing::ApiServer server_;
  std::unique_ptr<Client> client_;
};

TEST_F(Publishing, ConcurrentReplicasAllGetPublished) {
  constexpr int kReplicas = 4;
  std::vector<std::string> authorities;
  for (int i = 0; i < kReplicas; ++i) {
    authorities.push_back(
        MakeServingCertificate({"a"}, std::to_string(i), WallNow(), hours(1)).value().authority);
  }
  server_.AddFault({.verb = "update", .times = 3, .status = 409, .reason = "Conflict"});
  std::vector<std::thread> threads;
  for (int i = 0; i < kReplicas; ++i) {
    threads.emplace_back([&, i] {
      const auto publish = PublishToConfigurations(*client_, "baton");
      // As the webhook does: again after a failure.
      Result<void> done;
      for (int tries = 0; tries < 20; ++tries) {
        done = publish({authorities[static_cast<size_t>(i)]});
        if (done) break;
      }
      EXPECT_TRUE(done) << done.error().message;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& bundle : Bundles()) {
    EXPECT_EQ(BundleSize(bundle), static_cast<size_t>(kReplicas));
    for (const std::string& authority : authorities) {
      EXPECT_NE(bundle.find(authority), std::string::npos);
    }
  }
  const uint64_t before = server_.version();
  ASSERT_TRUE(PublishToConfigurations(*client_, "baton")({authorities[0]}));
  EXPECT_EQ(server_.version(), before) << "what is there already is not written";
}

TEST_F(Publishing, MissingConfigurationIsExplained) {
  const auto done = PublishToConfigurations(*client_, "notours")({});
  ASSERT_FALSE(done);
  EXPECT_NE(done.error().message.find("install the chart, or correct --configuration"),
            std::string::npos);
}

TEST_F(Publishing, RemovedAuthorityIsPutBack) {
  WebhookOptions options;
  options.serve.listen = "127.0.0.1:0";
  options.rotation.replica = "a";
  options.rotation.propagation = std::chrono::milliseconds(80);
  options.publish_every = std::chrono::milliseconds(50);
  options.publish = PublishToConfigurations(*client_, "baton");
  auto webhook = Webhook::Start(options);
  ASSERT_TRUE(webhook) << webhook.error().message;
  const auto published = [&] {
    for (const std::string& bundle : Bundles()) {
      if (BundleSize(bundle) != 1) return false;
    }
    return true;
  };
  EXPECT_TRUE(server_.WaitFor(published));
  EXPECT_TRUE(server_.WaitFor([&] { return (*webhook)->ready(); }));
  server_.Put(resources::kMutatingWebhooks, Configuration(resources::kMutatingWebhooks));
  EXPECT_TRUE(server_.WaitFor(published));
}

}  // namespace
}  // namespace baton::k8s
