// The daemon's map of virtual GPUs: what it books, refuses, and books again.
#include "backend/vgpus.h"

#include <gtest/gtest.h>

#include <random>

#include "config/options.h"

namespace baton::backend {
namespace {

using devmgr::Card;

Card CardOf(const std::string& uuid, uint32_t memory_mib = 40'960) {
  Card card;
  card.uuid = uuid;
  card.model = "NVIDIA A100-SXM4-40GB";
  card.memory_mib = memory_mib;
  card.mig_capable = true;
  return card;
}

class VgpuMap : public testing::Test {
 protected:
  static constexpr policy::Share kPercent{10'000};

  static Vgpus Make(policy::Share overcommit = policy::kWhole,
                    devmgr::PlacementPolicy policy = {}) {
    return Vgpus(policy, overcommit, devmgr::MigTemplates::BuiltIn(), "here");
  }
  static Pod Ask(const std::string& name, policy::Share request, uint64_t memory = 0) {
    static uint64_t last = 0;
    Pod pod;
    pod.id = PodId{++last};
    pod.name = name;
    pod.share = *spec::ShareFrom(request, {}, policy::Priority::kNormal);
    pod.memory_cap = memory;
    return pod;
  }
  static ErrorCode CodeOf(const Result<void>& result) {
    return result ? ErrorCode{} : result.error().code;
  }
};

TEST_F(VgpuMap, RequestsOnOneGpuAddUpToTheOvercommitAndNoFurther) {
  for (const policy::Share overcommit : {policy::kWhole / 2, policy::kWhole, policy::kWhole * 3}) {
    Vgpus map = Make(overcommit);
    ASSERT_TRUE(map.cards().Add("", CardOf("GPU-0")));
    const int fit = static_cast<int>(overcommit / (kPercent * 25));
    for (int i = 0; i < fit; ++i) {
      Pod pod = Ask("p" + std::to_string(i), kPercent * 25);
      ASSERT_TRUE(map.Place(pod, 1, "*")) << i << " of " << fit;
      EXPECT_EQ(pod.gpus, std::vector<std::string>{"GPU-0"});
    }
    Pod more = Ask("more", kPercent * 10);
    const auto refused = map.Place(more, 1, "*");
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kExhausted);
  }
}

TEST_F(VgpuMap, CapsLeaveTheReserveFree) {
  constexpr uint64_t kGib = uint64_t{1} << 30;
  Vgpus map = Make();
  map.cards().SetReserve(1'024);
  ASSERT_TRUE(map.cards().Add("", CardOf("GPU-0")));  // of 40 GiB
  Pod half = Ask("half", kPercent * 10, 20 * kGib);
  ASSERT_TRUE(map.Place(half, 1, "*"));
  Pod other = Ask("other", kPercent * 10, 20 * kGib);
  const auto refused = map.Place(other, 1, "*");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("1024 are kept for contexts"), std::string::npos)
      << refused.error().message;
  other.memory_cap = 19 * kGib;
  EXPECT_TRUE(map.Place(other, 1, "*"));
  // Nor by growing.
  EXPECT_FALSE(map.Resize(half, half.share, 21 * kGib, policy::Share(0), 0));
  EXPECT_TRUE(map.Resize(half, half.share, 20 * kGib, policy::Share(0), 0));
}

// Parts are parts of what pods may have, so two halves fit.
TEST_F(VgpuMap, CapsInPercentAreOfWhatTheReserveLeaves) {
  Vgpus map = Make();
  map.cards().SetReserve(1'024);
  ASSERT_TRUE(map.cards().Add("", CardOf("GPU-0")));
  for (const char* name : {"one", "two"}) {
    Pod pod = Ask(name, kPercent * 50);
    pod.memory_part = policy::kWhole / 2;
    ASSERT_TRUE(map.Place(pod, 1, "*"));
    EXPECT_EQ(pod.vgpus.at(0).fit.memory_mib, (40'960u - 1'024u) / 2);
  }
}

// A daemon that starts with more of a reserve than its pods leave keeps them; one that has a GPU
// for itself has all of it.
TEST_F(VgpuMap, TheReserveTakesNothingFromWhoIsThere) {
  Vgpus without = Make();
  ASSERT_TRUE(without.cards().Add("", CardOf("GPU-0")));
  Pod before = Ask("before", kPercent * 10, uint64_t{36} << 30);
  ASSERT_TRUE(without.Place(before, 1, "*"));
  Vgpus map = Make();
  map.cards().SetReserve(30'000);
  ASSERT_TRUE(map.cards().Add("", CardOf("GPU-0")));
  ASSERT_TRUE(map.cards().Add("", CardOf("GPU-1")));
  EXPECT_TRUE(map.Reserve(before));
  Pod whole = Ask("whole", policy::kWhole);
  whole.wishes.mode = spec::kExclusive;
  ASSERT_TRUE(map.Place(whole, 1, "*"));
  EXPECT_EQ(whole.gpus, std::vector<std::string>{"GPU-1"});
}

// Another vendor's GPU: as a whole, to who names it or its model, and without what cannot be kept.
TEST_F(VgpuMap, OtherVendorsGpusGoAsAWholeToWhoNamesThem) {
  Vgpus map = Make();
  Card card = CardOf("MI-0", 196'608);
  card.model = "AMD Instinct MI300X";
  card.vendor = "amd";
  card.mig_capable = false;
  card.environment = {{"ROCR_VISIBLE_DEVICES", "0"}};
  ASSERT_TRUE(map.cards().Add("", CardOf("GPU-0")));
  ASSERT_TRUE(map.cards().Add("", card));
  card.uuid = "MI-1";
  card.environment = {{"ROCR_VISIBLE_DEVICES", "1"}};
  ASSERT_TRUE(map.cards().Add("", card));
  const auto whole = [&](const std::string& name) {
    Pod pod = Ask(name, policy::kWhole);
    pod.wishes.mode = spec::kExclusive;
    return pod;
  };
  const auto why = [&](Pod pod, uint32_t count = 1) {
    const auto placed = map.Place(pod, count, "*");
    return placed ? "" : placed.error().message;
  };
  // Nobody by chance.
  Pod cuda = whole("cuda");
  ASSERT_TRUE(map.Place(cuda, 1, "*"));
  EXPECT_EQ(cuda.gpus, std::vector<std::string>{"GPU-0"});
  EXPECT_FALSE(cuda.allocated);
  EXPECT_NE(why(whole("more")).find("MI-0: it is of vendor amd: only pods that name it"),
            std::string::npos)
      << why(whole("more"));
  // Nor in part, nor with what needs the hook.
  Pod part = Ask("part", kPercent * 30);
  part.wishes.gpus = {"MI-0"};
  EXPECT_NE(why(part).find("ask for mode exclusive"), std::string::npos) << why(part);
  part.wishes.gpus.clear();
  part.wishes.models = {"mi300x"};
  EXPECT_NE(why(part).find("ask for mode exclusive"), std::string::npos) << why(part);
  part.wishes.models = {"mi300x", "a100"};
  EXPECT_EQ(why(part).find("ask for mode"), std::string::npos) << "on an A100 it would do";
  Pod capped = whole("capped");
  capped.wishes.models = {"mi300x"};
  capped.memory_cap = uint64_t{1} << 30;
  EXPECT_NE(why(capped).find("neither a limit nor a memory cap"), std::string::npos) << why(capped);
  Pod gang = whole("gang");
  gang.wishes.gpus = {"MI-0"};
  gang.gang = "train";
  EXPECT_NE(why(gang).find("leave gang out"), std::string::npos) << why(gang);
  Pod mixed = whole("mixed");
  mixed.wishes.gpus = {"GPU-0", "MI-0"};
  EXPECT_NE(why(mixed, 2).find("make one pod for each"), std::string::npos) << why(mixed, 2);
  // By its model, and by its uuid.
  Pod both = whole("both");
  both.wishes.models = {"mi300x"};
  ASSERT_TRUE(map.Place(both, 2, "*")) << why(both, 2);
  EXPECT_EQ(both.gpus, (std::vector<std::string>{"MI-0", "MI-1"}));
  EXPECT_TRUE(both.allocated);
  EXPECT_FALSE(both.by_token());
  EXPECT_FALSE(both.has_devices());
  EXPECT_FALSE(both.in_gang()) << "its processes wait for no token";
  EXPECT_EQ(map.EnvironmentOf(both), (devmgr::Environment{{"ROCR_VISIBLE_DEVICES", "0,1"}}));
  EXPECT_EQ(CodeOf(map.Resize(both, *spec::ShareFrom({}, kPercent * 30, policy::Priority::kNormal),
                              0, {})),
            ErrorCode::kInvalid);
  map.Remove(both);
  // What was stored of it is enough to know.
  both.allocated = false;
  EXPECT_TRUE(map.Reserve(both));
  EXPECT_TRUE(both.allocated);
}

TEST_F(VgpuMap, WithAnOvercommitReasonsAreInPercentOfAGpu) {
  Vgpus map = Make(policy::kWhole * 2);
  ASSERT_TRUE(map.cards().Add("", CardOf("GPU-0")));
  for (const char* name : {"a", "b"}) {
    Pod pod = Ask(name, kPercent * 90);
    ASSERT_TRUE(map.Place(pod, 1, "*"));
  }
  Pod pod = Ask("c", kPercent * 50);
  const auto refused = map.Place(pod, 1, "*");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("GPU-0: of 200 % 20 % are free, 50 % wanted"),
            std::string::npos)
      << refused.error().message;
}

TEST_F(VgpuMap, MemoryCapsDoNotAddUpToMoreThanTheGpuHas) {
  Vgpus map = Make();
  ASSERT_TRUE(map.cards().Add("", CardOf("GPU-0", 1'000)));
  Pod a = Ask("a", kPercent * 10, uint64_t{600} << 20);
  Pod b = Ask("b", kPercent * 10, (uint64_t{400} << 20) + 1);
  ASSERT_TRUE(map.Place(a, 1, "*"));
  EXPECT_EQ(CodeOf(map.Place(b, 1, "*")), ErrorCode::kExhausted);
  b.memory_cap = 0;
  b.memory_part = policy::Share(400'000);
  ASSERT_TRUE(map.Place(b, 1, "*"));
  EXPECT_EQ(b.CapOn("GPU-0"), uint64_t{400} << 20);
  Pod c = Ask("c", kPercent * 10);
  EXPECT_TRUE(map.Place(c, 1, "*")) << "without a cap nothing is set aside";
}

TEST_F(VgpuMap, MemoryThatIsInUseWithoutAReservationIsGivenToNobody) {
  Vgpus map = Make();
  ASSERT_TRUE(map.cards().Add("", CardOf("GPU-0", 1'000)));
  Pod a = Ask("a", kPercent * 10, uint64_t{600} << 20);
  ASSERT_TRUE(map.Place(a, 1, "*"));
  map.cards().SetTaken({{"GPU-0", 300}});
  Pod b = Ask("b", kPercent * 10, uint64_t{101} << 20);
  const auto refused = map.Place(b, 1, "*");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find(
                "of 1000 MiB 100 are free, 101 wanted (300 are in use without a reservation)"),
            std::string::npos)
      << refused.error().message;
  EXPECT_EQ(CodeOf(map.Resize(a, a.share, uint64_t{701} << 20, {})), ErrorCode::kExhausted);
  EXPECT_TRUE(map.Resize(a, a.share, uint64_t{700} << 20, {}));

  // More than is left: what was reserved stays so, here and over a restart.
  map.cards().SetTaken({{"GPU-0", 900}});
  EXPECT_TRUE(map.Resize(a, *spec::ShareFrom(kPercent * 20, {}, policy::Priority::kNormal),
                         uint64_t{700} << 20, {}));
  EXPECT_EQ(map.WhyUnreserved(a.id), "");
  Vgpus again = Make();
  ASSERT_TRUE(again.cards().Add("", CardOf("GPU-0", 1'000)));
  again.cards().SetTaken({{"GPU-0", 900}});
  EXPECT_TRUE(again.Reserve(a));
  Pod c = Ask("c", kPercent * 10);
  EXPECT_TRUE(map.Place(c, 1, "*")) << "without a cap nothing is set aside";

  Vgpus alone = Make();
  ASSERT_TRUE(alone.cards().Add("", CardOf("GPU-0", 1'000)));
  alone.cards().SetTaken({{"GPU-0", 1}});
  Pod whole = Ask("whole", kPercent * 10);
  whole.wishes.mode = spec::kExclusive;
  EXPECT_EQ(CodeOf(alone.Place(whole, 1, "*")), ErrorCode::kExhausted);
  alone.cards().SetTaken({});
  EXPECT_TRUE(alone.Place(whole, 1, "*"));
}

TEST_F(VgpuMap, APartOfMemoryThatNobodyKnowsIsRefused) {
  Vgpus map = Make();
  ASSERT_TRUE(map.cards().Add("", CardOf("GPU-0", 0)));
  Pod a = Ask("a", kPercent * 10);
  a.memory_part = policy::Share(250'000);
  EXPECT_EQ(CodeOf(map.Place(a, 1, "*")), ErrorCode::kInvalid);
  a.memory_part = {};
  a.memory_cap = uint64_t{4} << 30;
  EXPECT_TRUE(map.Place(a, 1, "*"));
}

TEST_F(VgpuMap, NamedGpusComeInTheOrderInWhichTheyAreNamed) {
  Vgpus map = Make();
  for (const char* uuid : {"GPU-0", "GPU-1", "GPU-2"}) {
    ASSERT_TRUE(map.cards().Add("", CardOf(uuid)));
  }
  Pod a = Ask("a", kPercent * 10);
  a.wishes.gpus = {"GPU-2", "GPU-0"};
  ASSERT_TRUE(map.Place(a, 2, "*"));
  EXPECT_EQ(a.gpus, (std::vector<std::string>{"GPU-2", "GPU-0"}));
  ASSERT_EQ(map.EnvironmentOf(a).size(), 1u);
  EXPECT_EQ(map.EnvironmentOf(a)[0].second, "GPU-2,GPU-0");
}

TEST_F(VgpuMap, WithoutAModeAPodIsNeitherAloneOnAGpuNorInSomebodysMps) {
  Vgpus map = Make();
  ASSERT_TRUE(map.cards().Add("", CardOf("GPU-0")));
  ASSERT_TRUE(map.cards().Add("", CardOf("GPU-1")));
  Pod mps = Ask("mps", kPercent * 10);
  mps.wishes.mode = "mps";
  mps.wishes.gpus = {"GPU-0"};
  ASSERT_TRUE(map.Place(mps, 1, "*"));
  for (const char* name : {"a", "b", "c"}) {
    Pod pod = Ask(name, kPercent * 30);
    ASSERT_TRUE(map.Place(pod, 1, "*"));
    EXPECT_EQ(pod.gpus[0], "GPU-1");
    EXPECT_EQ(pod.mode, "time-slice");
  }
  Pod whole = Ask("whole", kPercent * 10);
  whole.wishes.mode = "exclusive";
  EXPECT_EQ(CodeOf(map.Place(whole, 1, "*")), ErrorCode::kExhausted);
}

TEST_F(VgpuMap, OnAGpuWithMigAPodGetsAnInstance) {
  Vgpus map = Make(policy::kWhole * 2);
  Card card = CardOf("GPU-0");
  card.mig_enabled = true;
  ASSERT_TRUE(map.cards().Set("", {card}));
  Pod a = Ask("a", kPercent * 40);
  ASSERT_TRUE(map.Place(a, 1, "*"));
  EXPECT_EQ(a.mode, "mig");
  EXPECT_FALSE(a.by_token());
  // Nothing of the hardware is lent: an overcommit does not make instances smaller.
  EXPECT_GE(a.vgpus[0].fit.share, kPercent * 40);
  a.vgpus[0].device = "MIG-1";
  EXPECT_EQ(map.EnvironmentOf(a)[0].second, "MIG-1");
  // Instances are made where batond is.
  Pod b = Ask("b", kPercent * 10);
  b.wishes.mode = "mig";
  EXPECT_EQ(CodeOf(map.Place(b, 1, "n1")), ErrorCode::kNotFound);
}

TEST_F(VgpuMap, AVirtualGpuThatDoesNotGrowStaysAsItWas) {
  Vgpus map = Make();
  ASSERT_TRUE(map.cards().Add("", CardOf("GPU-0")));
  Pod a = Ask("a", kPercent * 50);
  Pod b = Ask("b", kPercent * 40);
  ASSERT_TRUE(map.Place(a, 1, "*"));
  ASSERT_TRUE(map.Place(b, 1, "*"));
  const devmgr::CardUse before = *map.cards().UseOf("GPU-0");
  const auto grow =
      map.Resize(a, *spec::ShareFrom(kPercent * 61, {}, policy::Priority::kNormal), 0, {});
  ASSERT_FALSE(grow);
  EXPECT_EQ(grow.error().code, ErrorCode::kExhausted);
  EXPECT_EQ(*map.cards().UseOf("GPU-0"), before);
  EXPECT_EQ(a.share.request, kPercent * 50);
  EXPECT_TRUE(map.Resize(a, *spec::ShareFrom(kPercent * 60, {}, policy::Priority::kNormal), 0, {}));
  EXPECT_EQ(map.cards().UseOf("GPU-0")->share, policy::kWhole);
}

TEST_F(VgpuMap, WhoHasNoPlaceAnyMoreKeepsOthersAwayUntilItHasOne) {
  Pod a = Ask("a", kPercent * 60), b = Ask("b", kPercent * 60);
  {
    Vgpus map = Make(policy::kWhole * 2);
    ASSERT_TRUE(map.cards().Add("", CardOf("GPU-0")));
    ASSERT_TRUE(map.Place(a, 1, "*") && map.Place(b, 1, "*"));
  }
  Vgpus map = Make();  // without the overcommit of before
  EXPECT_FALSE(map.Reserve(a) || map.Reserve(b)) << "no GPU is there yet";
  std::map<PodId, Pod*> pods = {{a.id, &a}, {b.id, &b}};
  const auto find = [&](PodId id) { return pods.count(id) != 0 ? pods[id] : nullptr; };
  ASSERT_TRUE(map.cards().Add("", CardOf("GPU-0")));
  map.ReserveAgain(find);
  EXPECT_EQ(map.WhyUnreserved(a.id), "");
  EXPECT_NE(map.WhyUnreserved(b.id), "");
  Pod c = Ask("c", kPercent * 10);
  const auto refused = map.Place(c, 1, "*");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("pod b is on it"), std::string::npos)
      << refused.error().message;
  map.Remove(a);
  pods.erase(a.id);
  map.ReserveAgain(find);
  EXPECT_TRUE(map.unreserved().empty());
  EXPECT_TRUE(map.Place(c, 1, "*"));
}

TEST_F(VgpuMap, NothingComesToGpusThatFailOrCannotBeReached) {
  Vgpus map = Make();
  ASSERT_TRUE(map.cards().Add("n1", CardOf("GPU-0")));
  ASSERT_TRUE(map.cards().Add("n2", CardOf("GPU-1")));
  map.cards().SetReachable("n1", false);
  Pod a = Ask("a", kPercent * 10);
  ASSERT_TRUE(map.Place(a, 1, "*"));
  EXPECT_EQ(a.gpus[0], "GPU-1");
  Card failed = CardOf("GPU-1");
  failed.health = devmgr::Health::kFailed;
  failed.why = "XID 79";
  const auto events = map.cards().Set("n2", {failed});
  ASSERT_TRUE(events);
  ASSERT_EQ(events->size(), 1u);
  EXPECT_EQ((*events)[0].kind, devmgr::InventoryEvent::Kind::kFailed);
  EXPECT_EQ(map.PodsOn("GPU-1"), std::vector<std::string>{"a"});
  Pod b = Ask("b", kPercent * 10);
  const auto refused = map.Place(b, 1, "*");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "no room for b (GPU-0: missing: the link to its node is cut; GPU-1: failed: "
            "XID 79, with a 10 %); request less, remove a pod, or see 'baton explain placement'");
  // It vanishes, and with it nothing of what is known.
  ASSERT_TRUE(map.cards().Set("n2", {}));
  EXPECT_EQ(map.cards().Find("GPU-1")->health, devmgr::Health::kMissing);
  ASSERT_TRUE(map.cards().Set("n2", {CardOf("GPU-1")}));
  EXPECT_TRUE(map.Place(b, 1, "*"));
}

TEST_F(VgpuMap, ASeventeenthGpuIsRefused) {
  Vgpus map = Make();
  for (int i = 0; i < 16; ++i) {
    ASSERT_TRUE(map.cards().Add("", CardOf("GPU-" + std::to_string(i))));
  }
  EXPECT_EQ(CodeOf(map.cards().Add("", CardOf("GPU-16"))), ErrorCode::kExhausted);
  EXPECT_EQ(CodeOf(map.cards().Add("n1", CardOf("GPU-16"))), ErrorCode{});
}

// Whatever is asked, in whatever order: no GPU has more than it has, and who was refused has
// changed nothing. At the end everything is free.
TEST_F(VgpuMap, NoGpuIsEverGivenTwice) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  Vgpus map = Make();
  for (const char* node : {"", "n1"}) {
    for (int i = 0; i < 4; ++i) {
      ASSERT_TRUE(map.cards().Add(node, CardOf("GPU-" + std::string(node) + std::to_string(i))));
    }
  }
  std::map<std::string, Pod> pods;
  for (int step = 0; step < 2'000; ++step) {
    const std::string name = "p" + std::to_string(below(40));
    const auto it = pods.find(name);
    if (it == pods.end()) {
      Pod pod = Ask(name, kPercent * (1 + below(100)), uint64_t{below(20'000)} << 20);
      if (below(3) == 0) pod.wishes.gpus = {"GPU-" + std::to_string(below(4))};
      if (map.Place(pod, pod.wishes.gpus.empty() ? 1 + below(3) : 1, "*")) pods[name] = pod;
    } else if (below(3) == 0) {
      map.Remove(it->second);
      pods.erase(it);
    } else if (below(2) == 0) {
      static_cast<void>(map.Resize(
          it->second, *spec::ShareFrom(kPercent * (1 + below(100)), {}, policy::Priority::kNormal),
          uint64_t{below(20'000)} << 20, {}));
    } else if (it->second.gpus.size() == 1) {
      static_cast<void>(map.Move(it->second, {"GPU-n1" + std::to_string(below(4))}));
    }
    std::map<std::string, std::pair<uint64_t, uint64_t>> used;
    for (const auto& [n, pod] : pods) {
      for (const std::string& gpu : pod.gpus) {
        used[gpu].first += pod.share.request.millionths();
        used[gpu].second += pod.memory_cap >> 20;
      }
    }
    for (const auto& [gpu, use] : used) {
      ASSERT_LE(use.first, policy::kMillion) << gpu;
      ASSERT_LE(use.second, 40'960u) << gpu;
      ASSERT_EQ(map.cards().UseOf(gpu)->share.millionths(), use.first) << gpu;
      ASSERT_EQ(map.cards().UseOf(gpu)->memory_mib, use.second) << gpu;
    }
  }
  for (const auto& [name, pod] : pods) map.Remove(pod);
  for (const char* uuid : {"GPU-0", "GPU-n13"})
    EXPECT_EQ(*map.cards().UseOf(uuid), devmgr::CardUse{});
}

TEST_F(VgpuMap, APodGoesWhereWhatIsKnownOfUseLeavesTime) {
  Vgpus map = Make();
  ASSERT_TRUE(map.cards().Add("", CardOf("GPU-0")));
  ASSERT_TRUE(map.cards().Add("", CardOf("GPU-1")));
  Pods pods;
  const auto on = [&](const std::string& name, const char* gpu) {
    Pod pod = Ask(name, kPercent * 30);
    pod.wishes.gpus = {gpu};
    EXPECT_TRUE(map.Place(pod, 1, "*"));
    return pod;
  };
  const Pod busy = on("busy", "GPU-0");
  const Pod quiet = on("quiet", "GPU-1");
  const auto said = [&](const Pod& pod) {
    const auto explanation = map.Explain(pod, 1, "*");
    EXPECT_TRUE(explanation && explanation->where);
    return std::pair(explanation->where->vgpus[0].card, explanation->use);
  };
  Pod train = Ask("train-2", kPercent * 30);
  EXPECT_EQ(said(train), std::pair(std::string("GPU-0"), std::string()));
  EXPECT_FALSE(map.expected_use().BeyondOn("GPU-0"));

  // Of the new one as of the one whose name it would have.
  map.expected_use().Set({{"train", policy::kWhole}}, pods);
  EXPECT_EQ(said(train).second,
            "By what pods used before, the pods on GPU-0 would use 130 % of it with this one.");
  EXPECT_EQ(said(Ask("other", kPercent * 30)).second, "");
  Pod limited = Ask("train", kPercent * 30);
  limited.share.limit = kPercent * 40;
  EXPECT_EQ(map.expected_use().Of(limited), kPercent * 40) << "never more than its limit";
  limited.wishes.mode = spec::kExclusive;
  EXPECT_EQ(map.expected_use().Of(limited), std::nullopt);
  Pod idle = Ask("idle", kPercent);
  idle.share.request = policy::Share(0);
  idle.share.limit = policy::kWhole;
  idle.share.priority = policy::Priority::kIdle;
  EXPECT_EQ(map.expected_use().Of(idle), kPercent * 50) << "nothing is known of it";

  map.expected_use().Set({}, pods);
  EXPECT_EQ(map.expected_use().Of(idle), std::nullopt);
  EXPECT_EQ(said(train), std::pair(std::string("GPU-0"), std::string()));
}

TEST(ExpectedUseOfPods, IsTheMeanOfWholeBucketsWithoutTheOthers) {
  ledger::Activity activity;
  activity.seconds = 60;
  const auto add = [&](int64_t minute, float held, float waited) {
    activity.buckets.push_back({minute * 60, held, held, waited, 0});
  };
  add(10, 0.1F, 0);  // it came in it
  add(11, 0.5F, 0);
  add(12, 0.25F, 0.5F);  // half of the time alone
  add(15, 0.9F, 0);      // and left
  EXPECT_EQ(MeanAlone(activity, 5, 0), std::nullopt);
  EXPECT_NEAR(MeanAlone(activity, 4, 0).value(), 0.25, 1e-6);
  EXPECT_NEAR(MeanAlone(activity, 4, 21 * 60 + 5).value(), 1.9 / 10, 1e-6) << "idle since";
  activity.buckets.back() = {15 * 60, 3.5F, 3.5F, 0, 0};
  EXPECT_NEAR(MeanAlone(activity, 4, 0).value(), 3.5 / 4, 1e-6)
      << "booked at once, when a daemon was back: of the last bucket is only what it has";
  EXPECT_EQ(WorkloadOf("train-12"), "train");
  EXPECT_EQ(WorkloadOf("train"), "train");
  EXPECT_EQ(WorkloadOf("train12"), "train12");
  EXPECT_EQ(WorkloadOf("train-"), "train-");
  EXPECT_EQ(WorkloadOf("12"), "12");
  EXPECT_EQ(WorkloadOf("-1"), "-1");
}

}  // namespace
}  // namespace baton::backend
