// The queue for leases, and what becomes of a lease that others change.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "backend/leases.h"
#include "tests/backend/memory_disk.h"
#include "tests/temp_folder.h"

namespace baton::backend {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

class LeaseQueue : public testing::Test {
 protected:
  LeaseQueue() {
    options_.server.state_dir = folder_.path();
    EXPECT_TRUE(file_.Load());
    arbiter_ = std::make_unique<Arbiter>(io_, options_, file_, vgpus_, usage_, log_);
    leases_ = std::make_unique<Leases>(io_, options_, *arbiter_, file_, std::chrono::seconds(60));
    EXPECT_TRUE(arbiter_->AddGpu({"GPU-a", "H200", uint64_t{141} << 30}, ""));
  }
  // What is answered at once; an error's sentence where it is refused.
  json Create(double percent, uint32_t term_s, const std::string& name = "",
              const Caller& caller = {}) {
    Pod pod;
    pod.name = name;
    pod.share = *spec::ShareFrom(policy::ShareOf(percent / 100), {}, policy::Priority::kNormal);
    json told;
    leases_->Create(pod, caller, term_s, true, [&told](Result<json> answer) {
      told = answer ? *answer : json{{"state", "refused"}, {"error", answer.error().message}};
    });
    return told;
  }
  json Told(const json& lease) {
    json told;
    leases_->Tell(lease.at("lease"), {}, Duration(0), [&told](Result<json> answer) {
      told = answer ? *answer : json{{"error", answer.error().message}};
    });
    return told;
  }
  // Lets things happen until the lease is in this state.
  bool Becomes(const std::string& state, const json& lease) {
    for (int i = 0; i < 2'000; ++i) {
      io_.restart();
      io_.run_for(milliseconds(5));
      if (Told(lease).value("state", "") == state) return true;
    }
    return false;
  }
  void Delete(const json& lease) {
    arbiter_->lifecycle().DeletePod(*pods_.FindByName(lease.at("name").get<std::string>()),
                                    [](const Result<void>& gone) { EXPECT_TRUE(gone); });
  }

  const TempFolder folder_;
  config::Options options_;
  boost::asio::io_context io_;
  node::EventLog log_;
  Pods pods_;
  std::shared_ptr<MemoryDisk> disk_ = std::make_shared<MemoryDisk>();
  PodsFile file_{disk_, pods_, log_};
  UsageBook usage_;
  Vgpus vgpus_{options_.placement.policy, options_.overcommit, devmgr::MigTemplates::BuiltIn(),
               "here"};
  std::unique_ptr<Arbiter> arbiter_;
  std::unique_ptr<Leases> leases_;
};

TEST_F(LeaseQueue, IsLeftByThoseWhoAskNoMore) {
  leases_ = std::make_unique<Leases>(io_, options_, *arbiter_, file_, std::chrono::seconds(2));
  const json first = Create(80, 600);
  const json left = Create(40, 600), asks = Create(40, 600);
  ASSERT_EQ(left.at("state"), "queued");
  EXPECT_EQ(asks.at("before"), 1);
  for (const Instant end = MonotonicNow() + milliseconds(2'300); MonotonicNow() < end;) {
    io_.restart();
    io_.run_for(milliseconds(5));
    ASSERT_EQ(Told(asks).at("state"), "queued");
  }
  // The look at the queue is once a second at least, sooner where a pod goes.
  Delete(first);
  EXPECT_TRUE(Becomes("granted", asks));
  EXPECT_EQ(Told(left).value("why", ""), "nobody asked about it while it was queued");
  EXPECT_EQ(pods_.all().size(), 1u);
}

TEST_F(LeaseQueue, IsServedInOrderAndEstimatesByTheLeasesThatEnd) {
  const json a = Create(50, 300), b = Create(50, 600);
  const json small = Create(40, 60), large = Create(90, 60);
  ASSERT_EQ(large.at("state"), "queued") << large;
  EXPECT_NEAR(small.at("seconds").get<double>(), 300, 5);
  EXPECT_NEAR(large.at("seconds").get<double>(), 600, 5) << "both must end for it";
  // A renewal of what is waited for moves the estimate.
  EXPECT_TRUE(leases_->Renew(a.at("lease"), {}, 900));
  EXPECT_NEAR(Told(small).at("seconds").get<double>(), 600, 5);
  EXPECT_NEAR(Told(large).at("seconds").get<double>(), 900, 5);
  Delete(b);
  EXPECT_TRUE(Becomes("granted", small));
  EXPECT_EQ(Told(b).value("why", ""), "it was revoked: its pod was deleted");
}

TEST_F(LeaseQueue, HasAnEnd) {
  Create(80, 600);
  for (size_t i = 0; i < Leases::kQueueMax; ++i) ASSERT_EQ(Create(40, 60).at("state"), "queued");
  const json refused = Create(40, 60);
  EXPECT_EQ(refused.at("state"), "refused");
  EXPECT_NE(refused.at("error").get<std::string>().find("wait for room already"),
            std::string::npos);
}

TEST_F(LeaseQueue, HasFewPlacesForAUser) {
  Create(80, 600);
  const Caller user{.user = spec::User{1000, "user", {}}}, other{.user = spec::User{1001, "o", {}}};
  for (size_t i = 0; i < Leases::kQueueOfUser; ++i) {
    ASSERT_EQ(Create(40, 60, "", user).at("state"), "queued");
  }
  EXPECT_EQ(Create(40, 60, "", user).at("state"), "refused");
  EXPECT_EQ(Create(40, 60, "", other).at("state"), "queued");
}

// Each holds a connection, and a renewal needs one too.
TEST_F(LeaseQueue, FewQuestionsOfAUserWait) {
  const Caller user{.user = spec::User{1000, "user", {}}}, other{.user = spec::User{1001, "o", {}}};
  const json lease = Create(10, 600, "", user), others = Create(10, 600, "", other);
  size_t answered = 0;
  const auto ask = [&](const json& of, const Caller& caller) {
    leases_->Tell(of.at("lease"), caller, std::chrono::seconds(60),
                  [&](const Result<json>& answer) { answered += answer ? 1 : 100; });
  };
  for (size_t i = 0; i < Leases::kWaitersOfUser; ++i) ask(lease, user);
  EXPECT_EQ(answered, 0u);
  ask(lease, user);
  EXPECT_EQ(answered, 1u);
  ask(others, other);
  EXPECT_EQ(answered, 1u);
}

TEST_F(LeaseQueue, IsNotForWhatNoLeaseIsInTheWayOf) {
  Create(10, 600);
  Pod pod;
  pod.name = "stays";
  pod.share = *spec::ShareFrom(policy::ShareOf(0.5), {}, policy::Priority::kNormal);
  arbiter_->lifecycle().CreatePod(pod, 1, "*", [](const Result<Pod*>& made) { EXPECT_TRUE(made); });
  EXPECT_EQ(Create(60, 60).at("state"), "refused");
  EXPECT_EQ(Create(45, 60).at("state"), "queued");
  // The name is another's.
  EXPECT_EQ(Create(5, 60, "stays").at("state"), "refused");
}

TEST_F(LeaseQueue, APodThatTheConfigurationTakesOverStays) {
  const json lease = Create(10, 1, "kept");
  std::vector<config::ConfiguredPod> configured(1);
  configured[0].request.name = "kept";
  configured[0].request.share =
      *spec::ShareFrom(policy::ShareOf(0.1), {}, policy::Priority::kNormal);
  configured[0].fingerprint = "as it is";
  arbiter_->lifecycle().ApplyConfiguredPods(configured);
  EXPECT_TRUE(Becomes("ended", lease));
  EXPECT_EQ(Told(lease).value("why", ""), "the configuration has taken its pod over");
  EXPECT_NE(pods_.FindByName("kept"), nullptr);
  EXPECT_EQ(leases_->List("*").at("leases").size(), 0u);
}

// Makes devices at once, and is never done with destroying them.
class SlowMaker : public DeviceMaker {
 public:
  void Create(std::vector<DeviceJob> jobs,
              std::function<void(Result<std::vector<std::string>>)> done) override {
    done(std::vector<std::string>(jobs.size(), "device"));
  }
  void Destroy(std::vector<DeviceJob>, std::function<void(Result<void>)>) override {}
  void Forgive(const std::string&) override {}
  void Run(std::function<std::function<void()>()>) override {}
};

TEST_F(LeaseQueue, WhoIsTooLateIsToldSoWhileDevicesAreDestroyed) {
  SlowMaker maker;
  arbiter_->lifecycle().SetDeviceMaker(&maker);
  Pod pod;
  pod.wishes.mode = spec::kMps;
  pod.share = *spec::ShareFrom(policy::ShareOf(0.1), {}, policy::Priority::kNormal);
  json lease;
  leases_->Create(pod, {}, 1, true, [&lease](const Result<json>& answer) { lease = *answer; });
  ASSERT_EQ(lease.at("state"), "granted") << lease;
  io_.run_for(milliseconds(1'200));
  const auto renewed = leases_->Renew(lease.at("lease"), {}, 60);
  ASSERT_FALSE(renewed);
  EXPECT_NE(renewed.error().message.find("its time is over"), std::string::npos)
      << renewed.error().message;
}

TEST_F(LeaseQueue, AWallClockThatJumpsLengthensNoLease) {
  const json lease = Create(10, 60, "jumped");
  Pod* pod = pods_.FindByName("jumped");
  pod->lease.until_ms += int64_t{365} * 86'400'000;
  leases_ = std::make_unique<Leases>(io_, options_, *arbiter_, file_);
  leases_->Restore();
  EXPECT_LE(Told(lease).at("seconds").get<double>(), 60);
  const int64_t wall_ms =
      std::chrono::duration_cast<milliseconds>(std::chrono::system_clock::now().time_since_epoch())
          .count();
  EXPECT_LE(pod->lease.until_ms, wall_ms + 60'000) << "else each restart gives a whole term again";
  pod->lease.until_ms = 0;
  leases_ = std::make_unique<Leases>(io_, options_, *arbiter_, file_);
  leases_->Restore();
  EXPECT_EQ(pods_.FindByName("jumped"), nullptr);
}

}  // namespace
}  // namespace baton::backend
