// One leads; never two, whatever the API server does.
#include "k8s/api/leader.h"

#include <fmt/format.h>

#include <atomic>
#include <thread>

#include "base/random.h"
#include "tests/k8s/api/fixture.h"

namespace baton::k8s::testing {
namespace {

using resources::kLeases;

const ObjectName kLease{"baton-system", "binder"};

// `length` in seconds: the API knows no others.
LeaderOptions Candidate(const std::string& identity, int length) {
  LeaderOptions options;
  options.lease = kLease;
  options.identity = identity;
  options.duration = seconds(length);
  options.renew_deadline = milliseconds(600) * length;
  options.retry = milliseconds(60);
  return options;
}

struct Seen {
  std::atomic<int> won{0};
  std::atomic<int> lost{0};
};

std::unique_ptr<Leader> RunFor(Client& client, const std::string& identity, Seen& seen,
                               int length = 1) {
  return std::make_unique<Leader>(
      client, Candidate(identity, length), [&seen] { ++seen.won; },
      [&seen](const std::string& why) {
        EXPECT_FALSE(why.empty());
        ++seen.lost;
      });
}

TEST(LeaderTest, FirstCandidateLeadsAndReleasesTheLease) {
  ApiServer server;
  const auto client = ClientOf(server.config());
  Seen one, two;
  // Long enough that nobody loses it on a busy machine.
  auto first = RunFor(*client, "one", one, 10);
  ASSERT_TRUE(server.WaitFor([&] { return first->leading(); }));
  auto second = RunFor(*client, "two", two, 10);
  const auto reads = server.count("get leases");
  ASSERT_TRUE(server.WaitFor([&] { return server.count("get leases") > reads + 6; }));
  EXPECT_FALSE(second->leading());
  EXPECT_EQ(two.won, 0);
  const Json lease = *server.Get(kLeases, kLease);
  EXPECT_EQ(TextAt(lease, "spec/holderIdentity"), "one");
  EXPECT_EQ(lease["spec"]["leaseDurationSeconds"], 10);
  first.reset();
  EXPECT_EQ(one.lost, 0);  // who gives back has not lost
  ASSERT_TRUE(server.WaitFor([&] { return second->leading(); }));
  EXPECT_EQ((*server.Get(kLeases, kLease))["spec"]["leaseTransitions"], 1);
  // Another client that is stopped ends the second's candidacy, which still gives it back.
  client->Stop();
  second.reset();
  EXPECT_EQ(TextAt(*server.Get(kLeases, kLease), "spec/holderIdentity"), "");
}

TEST(LeaderTest, LeaderStepsDownBeforeItsLeaseExpires) {
  ApiServer server;
  const auto client = ClientOf(server.config());
  Seen one;
  auto first = RunFor(*client, "one", one);
  ASSERT_TRUE(server.WaitFor([&] { return one.won == 1; }));
  server.Stall(true);
  ASSERT_TRUE(server.WaitFor([&] { return one.lost == 1; }));
  EXPECT_FALSE(first->leading());
  server.Stall(false);
  // It is over for this one, even if the server is back.
  const auto writes = server.count("update leases");
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_LE(server.count("update leases"), writes + 1);  // one was under way
  EXPECT_FALSE(first->leading());
  EXPECT_EQ(one.won, 1);
}

TEST(LeaderTest, StolenLeaseIsLost) {
  ApiServer server;
  const auto client = ClientOf(server.config());
  Seen one;
  auto first = RunFor(*client, "one", one);
  ASSERT_TRUE(server.WaitFor([&] { return one.won == 1; }));
  ASSERT_TRUE(client->Patch(kLeases, kLease, PatchKind::kMerge,
                            {{"spec", {{"holderIdentity", "somebody"}}}}));
  EXPECT_TRUE(server.WaitFor([&] { return one.lost == 1; }));
  EXPECT_FALSE(first->leading());
  first.reset();
  EXPECT_EQ(TextAt(*server.Get(kLeases, kLease), "spec/holderIdentity"), "somebody");
}

TEST(LeaderTest, MalformedLeaseIsTakenOver) {
  ApiServer server;
  const auto client = ClientOf(server.config());
  for (const Json& spec :
       {Json(), Json("text"), Json{{"holderIdentity", 7}, {"leaseTransitions", "x"}},
        Json{{"holderIdentity", "dead"}, {"leaseDurationSeconds", -5}, {"renewTime", {}}}}) {
    server.Put(kLeases, {{"metadata", {{"name", kLease.name}, {"namespace", kLease.name_space}}},
                         {"spec", spec}});
    Seen one;
    auto first = RunFor(*client, "one", one);
    EXPECT_TRUE(server.WaitFor([&] { return first->leading(); })) << spec;
  }
}

// Three candidates, an API server that stalls, refuses, cuts and loses answers: no two of them ever
// lead at one moment, and when it is well again one does.
TEST(LeaderTest, AtMostOneLeadsAtATime) {
  const uint64_t seed = static_cast<uint64_t>(Nanos(MonotonicNow()));
  std::printf("seed %lu\n", seed);
  Random random(seed);
  ApiServer server({.seed = seed});
  const auto client = ClientOf(server.config());
  constexpr int kMany = 3;
  Seen seen[kMany];
  std::unique_ptr<Leader> leaders[kMany];
  std::mutex mutex;  // of `leaders`
  for (int i = 0; i < kMany; ++i) leaders[i] = RunFor(*client, fmt::format("c{}", i), seen[i]);
  std::atomic<bool> ending{false};
  std::atomic<int> looks{0};
  std::thread watcher([&] {
    while (!ending) {
      {
        const std::lock_guard lock(mutex);
        int leading = 0;
        std::string who;
        for (int i = 0; i < kMany; ++i) {
          if (leaders[i] && leaders[i]->leading()) {
            ++leading;
            who += fmt::format(" c{}", i);
          }
        }
        ASSERT_LE(leading, 1) << who;
        if (leading == 1) ++looks;
      }
      std::this_thread::sleep_for(milliseconds(1));
    }
  });
  for (int round = 0; round < 12; ++round) {
    switch (random.Between(0, 5)) {
      case 0:
        server.Stall(true);
        std::this_thread::sleep_for(milliseconds(random.Between(50, 900)));
        server.Stall(false);
        break;
      case 1:
        server.AddFault({.kind = FaultKind::kAnswer,
                         .verb = "update",
                         .times = static_cast<uint32_t>(random.Between(1, 8)),
                         .status = 409});
        break;
      case 2:
        server.AddFault({.kind = FaultKind::kCutAfter,
                         .verb = "update",
                         .times = static_cast<uint32_t>(random.Between(1, 8))});
        break;
      case 3:
        server.AddFault({.kind = FaultKind::kSlow,
                         .path = "/leases",
                         .times = static_cast<uint32_t>(random.Between(1, 8)),
                         .delay = milliseconds(random.Between(50, 700))});
        break;
      case 4:
        server.AddFault({.kind = FaultKind::kLateAnswer,
                         .path = "/leases",
                         .times = static_cast<uint32_t>(random.Between(1, 8)),
                         .delay = milliseconds(random.Between(50, 700))});
        break;
      default:
        server.AddFault({.kind = FaultKind::kHang,
                         .verb = "update",
                         .times = static_cast<uint32_t>(random.Between(1, 4))});
    }
    std::this_thread::sleep_for(milliseconds(random.Between(50, 400)));
    // Who has lost begins again, as its program would.
    for (int i = 0; i < kMany; ++i) {
      if (seen[i].lost == 0) continue;
      std::unique_ptr<Leader> old;
      {
        const std::lock_guard lock(mutex);
        old = std::move(leaders[i]);
      }
      old.reset();
      seen[i].lost = 0;
      auto fresh = RunFor(*client, fmt::format("c{}", i), seen[i]);
      const std::lock_guard lock(mutex);
      leaders[i] = std::move(fresh);
    }
  }
  server.ClearFaults();
  EXPECT_TRUE(server.WaitFor([&] {
    const std::lock_guard lock(mutex);
    return std::any_of(std::begin(leaders), std::end(leaders),
                       [](const auto& leader) { return leader->leading(); });
  }));
  // The watcher has to see it as well.
  for (int ms = 0; ms < 5'000 && looks == 0; ++ms) std::this_thread::sleep_for(milliseconds(1));
  ending = true;
  watcher.join();
  EXPECT_GT(looks, 0);
}

}  // namespace
}  // namespace baton::k8s::testing
