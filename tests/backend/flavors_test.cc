// Flavors, as the operator writes them and pods name them.
#include "tests/backend/batond_fixture.h"

namespace baton::backend {
namespace {

class Offered : public Batond {
 protected:
  void SetUp() override {
    Offer("small = {request = 10, memory = \"4GiB\"}\nmedium = {limit = 30, memory = \"16GiB\"}\n");
    ASSERT_TRUE(daemon_.Start()) << daemon_.Log();
  }
  void Offer(const std::string& flavors) {
    Configure("[[gpu]]\nuuid = \"GPU-c\"\nmemory = \"80GiB\"\n[flavors]\n" + flavors +
              "[[pod]]\nname = \"filed\"\nflavor = \"small\"\ngpus = [\"GPU-c\"]\n");
  }
  json Row(const std::string& pod) {
    const json asked = PodStatus(pod).at("asked");
    return {asked.at("request"), asked.at("limit"), asked.at("memory")};
  }
  uint64_t Fits(const std::string& name) {
    const json answer = Say({{"command", "flavors"}});
    for (const json& flavor : answer.at("flavors")) {
      if (flavor.at("name") == name) return flavor.at("fit");
    }
    return UINT64_MAX;
  }
};

constexpr uint64_t kGiB = uint64_t{1} << 30;

TEST_F(Offered, GiveAPodItsSizeAndLetItSayMore) {
  EXPECT_EQ(Row("filed"), json({10.0, 100.0, 4 * kGiB}));
  const auto make = [&](const std::string& name, json more) {
    more.update({{"command", "create_pod"}, {"name", name}, {"gpus", {"GPU-c"}}});
    return Say(more);
  };
  ASSERT_TRUE(make("a", {{"flavor", "medium"}}).value("ok", false));
  EXPECT_EQ(Row("a"), json({30.0, 30.0, 16 * kGiB}));
  ASSERT_TRUE(make("b", {{"flavor", "small"}, {"memory", 8 * kGiB}}).value("ok", false));
  EXPECT_EQ(Row("b"), json({10.0, 100.0, 8 * kGiB}));
  const json refused = make("c", {{"flavor", "smal"}});
  EXPECT_EQ(refused.value("error", ""), "there is no flavor 'smal'; did you mean 'small'?");
  EXPECT_EQ(refused.value("code", ""), "not_found");
  const json below = make("c", {{"flavor", "small"}, {"limit", 5}});
  EXPECT_NE(below.value("error", "").find("below the request"), std::string::npos) << below;
  // In place.
  ASSERT_TRUE(
      Say({{"command", "set_pod"}, {"name", "b"}, {"flavor", "medium"}}).value("ok", false));
  EXPECT_EQ(Row("b"), json({30.0, 30.0, 16 * kGiB}));
  const json why = Say({{"command", "explain_placement"}, {"flavor", "medium"}});
  EXPECT_EQ(why.value("fits", false), true) << why;
}

TEST_F(Offered, SayHowManyOfThemFit) {
  const uint64_t small = Fits("small"), medium = Fits("medium");
  // Nobody knows the memory of the first two, so time is what bounds there: 10 and 3 on each. On
  // the third 10 % and 4 GiB are taken.
  EXPECT_EQ(small, 10u + 10u + 9u);
  EXPECT_EQ(medium, 3u + 3u + 3u);
  for (uint64_t i = 0; i < small; ++i) {
    ASSERT_TRUE(
        Say({{"command", "create_pod"}, {"name", "p" + std::to_string(i)}, {"flavor", "small"}})
            .value("ok", false))
        << i;
  }
  EXPECT_EQ(Fits("small"), 0u);
  EXPECT_EQ(
      Say({{"command", "create_pod"}, {"name", "more"}, {"flavor", "small"}}).value("code", ""),
      "exhausted");
  ASSERT_TRUE(Say({{"command", "cordon"}, {"gpus", {"GPU-a"}}}).value("ok", false));
  ASSERT_TRUE(Say({{"command", "delete_pod"}, {"name", "filed"}}).value("ok", false));
  EXPECT_EQ(Fits("small"), 1u);
}

// Beside flavors, what else a pod says of its place.
TEST_F(Offered, APodStaysOffTheGpusThatItDoesNotWant) {
  const auto explain = [&](json more) {
    more.update({{"command", "explain_placement"}, {"flavor", "small"}});
    return Say(more);
  };
  const auto place = [&](json more) -> std::string {
    return explain(std::move(more)).at("where").at("gpus").at(0).at("uuid");
  };
  EXPECT_EQ(place({{"not_gpus", {"GPU-a", "GPU-c"}}}), "GPU-b");
  EXPECT_EQ(place({{"not_gpus", {0, 1, "GPU-gone"}}}), "GPU-c");
  const json nowhere = explain({{"not_gpus", {0, 1, 2}}});
  EXPECT_EQ(nowhere.value("fits", true), false);
  EXPECT_NE(nowhere.dump().find("the pod does not want it"), std::string::npos) << nowhere;
  EXPECT_EQ(explain({{"not_gpus", {7}}}).value("code", ""), "not_found");
  // "filed" is on GPU-c.
  EXPECT_EQ(place({{"gpu_policy", "binpack"}}), "GPU-c");
  EXPECT_NE(place({{"gpu_policy", "spread"}}), "GPU-c");
  EXPECT_EQ(explain({{"gpu_policy", "fgd"}}).value("code", ""), "invalid");
}

TEST_F(Offered, FollowTheFileWhenItIsReadAgain) {
  Offer("small = {request = 20, memory = \"4GiB\"}\n");
  daemon_.Signal(SIGHUP);
  ASSERT_TRUE(Eventually([&] {
    return Row("filed") == json({20.0, 100.0, 4 * kGiB});
  })) << "a pod of the file is of the file's flavor";
  EXPECT_EQ(Fits("medium"), UINT64_MAX);
}

}  // namespace
}  // namespace baton::backend
