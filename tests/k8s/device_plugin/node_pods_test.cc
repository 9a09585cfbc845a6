// What batond's pods should be, and what is done about those that are otherwise.
#include "k8s/device_plugin/node_pods.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

namespace baton::k8s {
namespace {

using Kind = BatondCommand::Kind;

const std::string kUid = "0f5e3b1c-9d2a-4c3b-8e1f-a0b1c2d3e4f5";

// A pod that is bound: one container with 30 to 60 % of one GPU.
Json BoundPod(const std::string& name = "notebook") {
  return Json::parse(R"({
    "metadata": {"name": ")" +
                     name + R"(", "namespace": "vision", "uid": ")" + kUid + R"(",
      "annotations": {"baton.dev/request": "30", "baton.dev/limit": "60", "baton.dev/memory": "4Gi",
        "baton.dev/team": "research/vision", "baton.dev/priority": "high",
        "baton.dev/placement": "{\"v\":1,\"node\":\"n1\",\"containers\":[{\"name\":\"main\",\"vgpus\":[{\"card\":\"GPU-a\",\"mode\":\"time-slice\",\"share\":300000,\"memoryMiB\":4096,\"layout\":0,\"slot\":0}]}]}"}},
    "spec": {"nodeName": "n1",
      "initContainers": [{"name": "init", "image": "x"}],
      "containers": [{"name": "main", "image": "x", "resources": {"limits": {"baton.dev/gpu-share": "30", "baton.dev/gpu-memory": "16"}}}]},
    "status": {"phase": "Pending"}})");
}

TEST(DesiredPods, FollowTheAnnotations) {
  const auto pods = DesiredPods(BoundPod(), 256);
  ASSERT_TRUE(pods) << pods.error().message;
  ASSERT_EQ(pods->size(), 1u);
  const BatondPod& pod = pods->front();
  EXPECT_EQ(pod.name, "vision/notebook");
  EXPECT_EQ(pod.cgroup, kUid);
  EXPECT_EQ(pod.ticket, kUid + "/main");
  EXPECT_EQ(pod.share.request, policy::Share(300'000));
  EXPECT_EQ(pod.share.limit, policy::Share(600'000));
  EXPECT_EQ(pod.memory_cap, uint64_t{4} << 30);
  EXPECT_EQ(pod.share.priority, policy::Priority::kHigh);
  EXPECT_EQ(pod.team, "research/vision");
  EXPECT_EQ(pod.wishes.gpus, std::vector<std::string>{"GPU-a"});
  EXPECT_EQ(pod.wishes.mode, "time-slice");
  EXPECT_EQ(pod.asked_at, 0);
}

// So the books know how long it waited for its place. Pods of before that was said stay as they
// are.
TEST(DesiredPods, SayWhenTheyWereAskedFor) {
  Json bound = BoundPod();
  bound["metadata"]["creationTimestamp"] = "2026-11-16T00:00:00Z";
  const BatondPod wanted = DesiredPods(bound, 256)->front();
  EXPECT_EQ(wanted.asked_at, 1'794'787'200);
  EXPECT_EQ(RequestFor({Kind::kCreate, wanted}, true).at("asked_at"), 1'794'787'200);
  BatondPod before = wanted;
  before.asked_at = 0;
  EXPECT_TRUE(Difference({{wanted.name, wanted}}, {{before.name, before}}, [](const std::string&) {
                return false;
              }).empty());
  bound["metadata"]["creationTimestamp"] = "yesterday";
  EXPECT_EQ(DesiredPods(bound, 256)->front().asked_at, 0);
}

TEST(DesiredPods, OfIdlePriorityHaveRoomAndNoRequest) {
  Json bound = BoundPod();
  bound["metadata"]["annotations"]["baton.dev/priority"] = "idle";
  const auto pods = DesiredPods(bound, 256);
  ASSERT_TRUE(pods) << pods.error().message;
  EXPECT_EQ(pods->front().share.request, policy::Share(0));
  EXPECT_EQ(pods->front().share.limit, policy::Share(600'000));
  const Json request = RequestFor({Kind::kSet, pods->front()}, true);
  EXPECT_EQ(request.at("priority"), "idle");
  EXPECT_TRUE(request.at("request").is_null()) << request.dump();
}

TEST(DesiredPods, WithALatencyAskForItAndTakeItAway) {
  Json bound = BoundPod();
  bound["metadata"]["annotations"]["baton.dev/latency"] = "20ms";
  const auto with = DesiredPods(bound, 256), without = DesiredPods(BoundPod(), 256);
  ASSERT_TRUE(with && without);
  EXPECT_EQ(RequestFor({Kind::kCreate, with->front()}, true).at("latency"), "20ms");
  // A batond of before does not know the field.
  EXPECT_FALSE(RequestFor({Kind::kCreate, without->front()}, true).contains("latency"));
  const std::string& name = with->front().name;
  const auto nobody = [](const std::string&) { return false; };
  const auto ends = Difference({{name, without->front()}}, {{name, with->front()}}, nobody);
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(ends[0].kind, Kind::kSet);
  EXPECT_EQ(RequestFor(ends[0], true).at("latency"), "none");
  const auto begins = Difference({{name, with->front()}}, {{name, without->front()}}, nobody);
  ASSERT_EQ(begins.size(), 1u);
  EXPECT_EQ(RequestFor(begins[0], true).at("latency"), "20ms");
}

TEST(DesiredPods, WithSwapHaveTheirCapAndTheirMemoryRequest) {
  Json bound = BoundPod();
  Json& annotations = bound["metadata"]["annotations"];
  annotations["baton.dev/swap"] = "true";
  annotations["baton.dev/memory-request"] = "1Gi";
  const auto pods = DesiredPods(bound, 256);
  ASSERT_TRUE(pods) << pods.error().message;
  EXPECT_TRUE(pods->front().swap);
  EXPECT_EQ(pods->front().memory_cap, uint64_t{4} << 30);
  const Json request = RequestFor({Kind::kCreate, pods->front()}, true);
  EXPECT_EQ(request.at("swap"), true);
  EXPECT_EQ(request.at("memory_request"), 1 << 30);
  // A request that is said no more ends.
  annotations.erase("baton.dev/memory-request");
  const Json set = RequestFor({Kind::kSet, DesiredPods(bound, 256)->front()}, true);
  EXPECT_EQ(set.at("memory_request"), 0);
  EXPECT_FALSE(set.contains("swap"));
}

// An annotation alone gives nothing: what is in force is what the binder has written.
TEST(DesiredPods, HaveWhatTheBinderGaveThem) {
  Json bound = BoundPod();
  bound["metadata"]["annotations"]["baton.dev/request"] = "60";
  bound["metadata"]["annotations"]["baton.dev/memory"] = "100%";
  const auto pods = DesiredPods(bound, 256);
  ASSERT_TRUE(pods) << pods.error().message;
  EXPECT_EQ(pods->front().share.request, policy::Share(300'000));
  EXPECT_EQ(pods->front().memory_cap, uint64_t{4} << 30);
  EXPECT_EQ(pods->front().memory_part, policy::Share(0));
  // A container that has ended has nothing.
  std::string placement = bound["metadata"]["annotations"]["baton.dev/placement"];
  placement.replace(placement.find("300000"), 6, "0");
  bound["metadata"]["annotations"]["baton.dev/placement"] = placement;
  EXPECT_TRUE(DesiredPods(bound, 256).value().empty());
}

// Nobody is waited for: they were placed together.
TEST(DesiredPods, OfAGangHaveItsNameWithinTheirNamespace) {
  Json bound = BoundPod();
  bound["metadata"]["annotations"]["baton.dev/gang"] = "job";
  bound["metadata"]["annotations"]["baton.dev/gang-size"] = "2";
  const auto pods = DesiredPods(bound, 256);
  ASSERT_TRUE(pods) << pods.error().message;
  EXPECT_EQ(pods->front().gang, "vision/job");
  EXPECT_EQ(pods->front().gang_size, 0u);
  BatondPod before = pods->front();
  before.gang.clear();
  EXPECT_TRUE(Difference({{before.name, pods->front()}}, {{before.name, before}},
                         [](const std::string&) { return false; })
                  .empty())
      << "one that runs since before an upgrade is not made again";
}

// Their programs have no hook, and their GPUs are booked without it. A pod that was made before
// that could be said is made again.
TEST(DesiredPods, OfWholeGpusHaveNoHook) {
  Json pod = BoundPod();
  Json& annotations = pod["metadata"]["annotations"];
  annotations.erase("baton.dev/priority");
  std::string placement = annotations["baton.dev/placement"];
  placement.replace(placement.find("time-slice"), 10, "exclusive");
  annotations["baton.dev/placement"] = placement;
  Json& resources = pod["spec"]["containers"][0]["resources"];
  resources = {{"limits", {{"nvidia.com/gpu", "1"}}}};
  for (const char* size : {"request", "limit", "memory"}) {
    annotations.erase(fmt::format("baton.dev/{}", size));
  }
  const auto pods = DesiredPods(pod, 256);
  ASSERT_TRUE(pods) << pods.error().message;
  ASSERT_EQ(pods->size(), 1u);
  EXPECT_EQ(RequestFor({Kind::kCreate, pods->front()}, true).at("without_hook"), true);
  EXPECT_FALSE(RequestFor({Kind::kCreate, DesiredPods(BoundPod(), 256)->front()}, true)
                   .contains("without_hook"));
  BatondPod before = pods->front();
  before.without_hook = false;
  const auto again = Difference({{before.name, pods->front()}}, {{before.name, before}},
                                [](const std::string&) { return false; });
  ASSERT_EQ(again.size(), 2u);
  EXPECT_EQ(again[0].kind, Kind::kDelete);
  EXPECT_EQ(again[1].kind, Kind::kCreate);
}

TEST(DesiredPods, ExcludeUnplacedAndFinishedPods) {
  Json pod = BoundPod();
  pod["metadata"]["annotations"].erase("baton.dev/placement");
  EXPECT_TRUE(DesiredPods(pod, 256).value().empty());
  for (const char* phase : {"Succeeded", "Failed"}) {
    pod = BoundPod();
    pod["status"]["phase"] = phase;
    EXPECT_TRUE(DesiredPods(pod, 256).value().empty());
  }
  EXPECT_TRUE(DesiredPods(Json::object(), 256).value().empty());
}

// A part of a GPU is made before its pod comes, where the binder says so, and is what it says.
TEST(DesiredPods, OfPartsAreThereBeforeTheirPodIs) {
  Json pod = BoundPod();
  Json& annotations = pod["metadata"]["annotations"];
  annotations["baton.dev/mode"] = "mig";
  annotations.erase("baton.dev/priority");
  std::string placement = annotations["baton.dev/placement"];
  placement.replace(placement.find("time-slice"), 10, "mig");
  placement.replace(placement.find("300000"), 6, "428571");
  placement.replace(placement.find("4096"), 4, "19968");
  placement.replace(placement.find("\"slot\":0"), 8, "\"slot\":772");
  annotations["baton.dev/placement"] = placement;
  pod["spec"].erase("nodeName");
  EXPECT_TRUE(DesiredPods(pod, 256, "n1").value().empty()) << "nobody has asked for it";
  pod["metadata"]["labels"]["baton.dev/makes-devices"] = "n1";
  EXPECT_TRUE(DesiredPods(pod, 256, "n2").value().empty());
  const auto made = DesiredPods(pod, 256, "n1");
  ASSERT_TRUE(made) << made.error().message;
  ASSERT_EQ(made->size(), 1u);
  const Json request = RequestFor({Kind::kCreate, made->front()}, true);
  EXPECT_EQ(request.at("slots"), Json::array({772}));
  EXPECT_EQ(request.at("mode"), "mig");
  EXPECT_EQ(request.at("request"), 42.8571);
  EXPECT_EQ(request.at("memory"), uint64_t{19968} << 20);
  // It is the same afterwards, whatever the annotations say by then.
  pod["spec"]["nodeName"] = "n1";
  annotations["baton.dev/request"] = "10";
  annotations["baton.dev/limit"] = "20";
  const auto bound = DesiredPods(pod, 256, "n1");
  ASSERT_TRUE(bound) << bound.error().message;
  EXPECT_EQ(RequestFor({Kind::kCreate, bound->front()}, true), request);
  // One that takes turns is told of when it is there.
  Json turns = BoundPod();
  turns["spec"].erase("nodeName");
  turns["metadata"]["labels"]["baton.dev/makes-devices"] = "n1";
  EXPECT_TRUE(DesiredPods(turns, 256, "n1").value().empty());
}

TEST(DesiredPods, AreToldOfByWhatWasMadeForThem) {
  BatondPod wanted;
  wanted.name = "vision/notebook";
  wanted.cgroup = kUid;
  wanted.ticket = kUid + "/main";
  wanted.wishes.gpus = {"GPU-a"};
  const Json row{{"name", wanted.name},
                 {"cgroup", kUid},
                 {"asked", {{"name", wanted.name}, {"cgroup", kUid}, {"request", 42.8571}}},
                 {"gpus", Json::array({{{"uuid", "GPU-a"}, {"device", "MIG-1"}}})}};
  const auto present = PresentPods({{"pods", Json::array({row})}});
  EXPECT_EQ(MadeFor(present, {{wanted.name, wanted}}), (MadeDevices{{wanted.ticket, {"MIG-1"}}}));
  // It has its part all the time, and nobody attaches.
  EXPECT_TRUE(ReportOf(present).attached);
  EXPECT_EQ(ReportOf(present).achieved, 42.8571);
  // Of the GPU's instances the binder is told what is somebody else's.
  devmgr::Node node;
  node.cards.resize(1);
  node.cards[0].instances = {{0, "3g.20gb", "MIG-1", 0, 4}, {0, "1g.5gb", "MIG-2", 4, 1}};
  LeaveOut({{wanted.ticket, {"MIG-1"}}}, node);
  ASSERT_EQ(node.cards[0].instances.size(), 1u);
  EXPECT_EQ(node.cards[0].instances[0].uuid, "MIG-2");
  // One that was decided again for another part gets that.
  wanted.slots = {772};
  EXPECT_TRUE(MadeFor(present, {{wanted.name, wanted}}).empty());
  Json at = row;
  at["gpus"][0]["slot"] = 772u;
  const auto there = PresentPods({{"pods", Json::array({at})}});
  EXPECT_EQ(MadeFor(there, {{wanted.name, wanted}}), (MadeDevices{{wanted.ticket, {"MIG-1"}}}));
  BatondPod is = wanted;
  is.slots = {768};
  const auto nobody = [](const std::string&) { return false; };
  const auto again = Difference({{wanted.name, wanted}}, {{wanted.name, is}}, nobody);
  ASSERT_EQ(again.size(), 2u);
  EXPECT_EQ(again[0].kind, Kind::kDelete);
  EXPECT_EQ(again[1].kind, Kind::kCreate);
  wanted.slots.clear();
  // Another pod of the name is no owner of it.
  wanted.cgroup = "other";
  EXPECT_TRUE(MadeFor(present, {{wanted.name, wanted}}).empty());
}

TEST(DesiredPods, RefuseModesThatThereAreNot) {
  Json pod = BoundPod();
  std::string placement = pod["metadata"]["annotations"]["baton.dev/placement"];
  placement.replace(placement.find("time-slice"), 10, "tiles");
  pod["metadata"]["annotations"]["baton.dev/placement"] = placement;
  const auto refused = DesiredPods(pod, 256);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("'tiles'"), std::string::npos) << refused.error().message;
  pod["metadata"]["annotations"]["baton.dev/placement"] = "{";
  EXPECT_FALSE(DesiredPods(pod, 256));
  pod = BoundPod();
  pod["spec"]["nodeName"] = "n2";
  EXPECT_FALSE(DesiredPods(pod, 256)) << "GPUs of another node";
  pod = BoundPod();
  pod["metadata"]["annotations"]["baton.dev/request"] = "130";
  EXPECT_FALSE(DesiredPods(pod, 256));
}

TEST(DesiredPods, HaveNamesThatBatondAccepts) {
  Json pod = BoundPod(std::string(253, 'n'));
  const auto one = DesiredPods(pod, 256);
  ASSERT_TRUE(one) << one.error().message;
  EXPECT_EQ(one->front().name.size(), 128u);
  pod["metadata"]["uid"] = "11111111-2222-3333-4444-555555555555";
  const auto other = DesiredPods(pod, 256);
  ASSERT_TRUE(other);
  EXPECT_NE(one->front().name, other->front().name);
}

Json StatusRow() {
  return Json::parse(R"({"name": "vision/notebook", "cgroup": ")" + kUid +
                     R"(", "request": 30.0, "limit": 60.0, "memory": 4294967296,
      "memory_percent": 0.0, "mode": "time-slice", "priority": "high", "team": "research/vision",
      "user": "", "namespace": "vision", "achieved_60s": 59.5, "held_ns": 3500000000,
      "gpus": [{"uuid": "GPU-a"}], "clients": [{"connected": false}, {"connected": true}]})");
}

std::map<std::string, BatondPod> ByName(const std::vector<BatondPod>& pods) {
  std::map<std::string, BatondPod> all;
  for (const BatondPod& pod : pods) all[pod.name] = pod;
  return all;
}
const auto kKeepNone = [](const std::string&) { return false; };

TEST(Difference, IsEmptyIfTheStatusIsAsDesired) {
  const auto present = PresentPods({{"pods", Json::array({StatusRow()})}});
  ASSERT_EQ(present.size(), 1u);
  EXPECT_TRUE(present[0].attached);
  EXPECT_EQ(present[0].achieved, 59.5);
  const auto wanted = DesiredPods(BoundPod(), 256);
  EXPECT_TRUE(Difference(ByName(*wanted), ByName({present[0].pod}), kKeepNone).empty());
}

// Whatever percentage in steps of 0.1 was asked for comes back from the number in status.
TEST(Difference, IsEmptyForEveryPercentage) {
  for (policy::Share share = policy::kShareMin; share <= policy::kWhole;
       share += policy::kShareMin) {
    Json row = StatusRow();
    row["request"] = policy::Percent(share);
    row["limit"] = policy::Percent(share);
    BatondPod pod = PresentPods({{"pods", Json::array({row})}})[0].pod;
    ASSERT_EQ(pod.share.request, share);
    const Json request = RequestFor({Kind::kSet, pod}, true);
    ASSERT_EQ(request.at("request").get<double>(), policy::Percent(share));
  }
}

TEST(Difference, UpdatesOrReplacesPods) {
  const auto wanted = ByName(*DesiredPods(BoundPod(), 256));
  const BatondPod& pod = wanted.begin()->second;
  const auto kinds = [&](const BatondPod& is) {
    std::vector<Kind> all;
    for (const auto& command : Difference(wanted, ByName({is}), kKeepNone)) {
      all.push_back(command.kind);
    }
    return all;
  };
  using Kinds = std::vector<Kind>;
  BatondPod is = pod;
  is.ticket.clear();
  EXPECT_EQ(kinds(is), Kinds{});
  const auto changed = [&](auto change) {
    BatondPod other = pod;
    change(other);
    return kinds(other);
  };
  EXPECT_EQ(changed([](BatondPod& p) { p.share.request = policy::Share(100'000); }),
            Kinds{Kind::kSet});
  EXPECT_EQ(changed([](BatondPod& p) { p.share.limit = policy::Share(100'000); }),
            Kinds{Kind::kSet});
  EXPECT_EQ(changed([](BatondPod& p) { p.memory_cap = 0; }), Kinds{Kind::kSet});
  EXPECT_EQ(changed([](BatondPod& p) { p.team = "x"; }), Kinds{Kind::kSet});
  EXPECT_EQ(changed([](BatondPod& p) { p.share.priority = policy::Priority::kNormal; }),
            Kinds{Kind::kSet});
  const Kinds anew{Kind::kDelete, Kind::kCreate};
  EXPECT_EQ(changed([](BatondPod& p) { p.wishes.gpus = {"GPU-b"}; }), anew);
  EXPECT_EQ(changed([](BatondPod& p) { p.cgroup = "another"; }), anew);
  EXPECT_EQ(changed([](BatondPod& p) { p.wishes.mode = "exclusive"; }), anew);
  EXPECT_EQ(changed([](BatondPod& p) { p.wishes.gpus.clear(); }), Kinds{}) << "its GPU is away";
  EXPECT_EQ(Difference(wanted, {}, kKeepNone).front().kind, Kind::kCreate);
  EXPECT_EQ(Difference({}, wanted, kKeepNone).front().kind, Kind::kDelete);
  EXPECT_TRUE(Difference({}, wanted, [](const std::string&) { return true; }).empty())
      << "what cannot be read keeps what it has";
}

// 60, 30 and 10 become 20, 30 and 50: never more than 100 on the way.
TEST(Difference, FreesRoomBeforeUsingIt) {
  std::map<std::string, BatondPod> is, wanted;
  const auto add = [](auto& pods, const char* name, uint32_t request) {
    BatondPod pod;
    pod.name = name;
    pod.cgroup = name;
    pod.share.request = policy::Share(request);
    pods[name] = pod;
  };
  add(is, "c", 600'000), add(is, "b", 300'000), add(is, "a", 100'000), add(is, "gone", 1'000);
  add(wanted, "c", 200'000), add(wanted, "b", 300'000), add(wanted, "a", 450'000);
  add(wanted, "new", 50'000);
  const auto commands = Difference(wanted, is, kKeepNone);
  ASSERT_EQ(commands.size(), 4u);
  EXPECT_EQ(commands[0].pod.name, "gone");
  EXPECT_EQ(commands[1].pod.name, "c");
  EXPECT_EQ(commands[2].pod.name, "a");
  EXPECT_EQ(commands[3].pod.name, "new");
}

// Random pictures: what the commands give, applied, is what is wanted.
TEST(Difference, IsEmptyAfterItWasApplied) {
  std::mt19937 random(7);
  const auto pick = [&](unsigned n) { return static_cast<unsigned>(random() % n); };
  const auto some = [&] {
    std::map<std::string, BatondPod> pods;
    for (int i = 0; i < 6; ++i) {
      if (pick(3) == 0) continue;
      BatondPod pod;
      pod.name = "p" + std::to_string(i);
      pod.cgroup = std::to_string(pick(2));
      pod.share.request = policy::kWhole / 10 * (1 + pick(3));
      pod.wishes.gpus = {"GPU-" + std::to_string(pick(2))};
      pods[pod.name] = pod;
    }
    return pods;
  };
  for (int round = 0; round < 500; ++round) {
    auto is = some();
    const auto wanted = some();
    for (const auto& command : Difference(wanted, is, kKeepNone)) {
      const std::string& name = command.pod.name;
      if (command.kind == Kind::kDelete) {
        ASSERT_EQ(is.erase(name), 1u);
      } else {
        ASSERT_EQ(is.count(name), command.kind == Kind::kSet ? 1u : 0u);
        is[name] = command.pod;
      }
    }
    ASSERT_EQ(is, wanted);
  }
}

TEST(Requests, UseTheControlSocketsFields) {
  BatondPod pod = DesiredPods(BoundPod(), 256)->front();
  const Json create = RequestFor({Kind::kCreate, pod}, true);
  EXPECT_EQ(create.at("command"), "create_pod");
  EXPECT_EQ(create.at("cgroup"), kUid);
  EXPECT_EQ(create.at("ticket"), kUid + "/main");
  EXPECT_EQ(create.at("memory"), uint64_t{4} << 30);
  EXPECT_FALSE(RequestFor({Kind::kCreate, pod}, false).contains("cgroup"));
  pod.memory_cap = 0;
  pod.memory_part = policy::Share(255'000);
  EXPECT_EQ(RequestFor({Kind::kSet, pod}, true).at("memory"), "25.5%");
  EXPECT_FALSE(RequestFor({Kind::kSet, pod}, true).contains("gpus"));
}

TEST(NodeOf, ReportsTheNodesGpus) {
  const devmgr::Node node = NodeOf(Json::parse(R"({"gpus": [
      {"uuid": "GPU-a", "name": "NVIDIA H200", "memory": 150754820096,
       "memory_reserve": 1073741824, "present": true, "health": "healthy", "why": "", "vendor": "nvidia", "numa": 1, "island": 0, "pcie": -1,
       "bus": "0000:17:00.0", "mig_capable": true, "mig_enabled": false, "cordoned": true,
       "use_beyond_requests": 61.9},
      {"uuid": "GPU-b", "name": "x", "memory": 1048576, "present": true, "health": "failed",
       "why": "XID 79", "numa": 1e300, "pcie": "no", "use_beyond_requests": -1e300},
      {"uuid": "GPU-c", "present": false},
      {"uuid": "BENCH-0", "present": true}, 5, {"uuid": 7}]})"),
                                   "n1");
  ASSERT_EQ(node.cards.size(), 3u);
  EXPECT_EQ(node.name, "n1");
  EXPECT_EQ(node.cards[0].memory_mib, 143'771u - 1'024u);  // what caps may add up to
  EXPECT_EQ(node.cards[0].numa, 1);
  EXPECT_EQ(node.cards[0].island, 0);
  EXPECT_TRUE(node.cards[0].cordoned);
  EXPECT_EQ(node.cards[1].health, devmgr::Health::kFailed);
  EXPECT_EQ(node.cards[1].why, "XID 79");
  EXPECT_EQ(node.cards[1].numa, -1);
  EXPECT_EQ(node.cards[0].beyond, 600'000) << "in steps of 5 %, so that it is seldom written";
  EXPECT_EQ(node.cards[1].beyond, -devmgr::Card::kBeyondMax);
  EXPECT_EQ(node.cards[2].beyond, 0) << "of a batond that does not say";
  EXPECT_EQ(node.cards[2].health, devmgr::Health::kMissing);
}

TEST(Reports, CombineGpusAndListNotableReasons) {
  PresentPod a, b;
  a.pod.wishes.gpus = {"GPU-a"};
  a.achieved = 30;
  a.held_ns = 1'600'000'000;
  b.pod.wishes.gpus = {"GPU-a", "GPU-b"};
  b.achieved = 50;
  b.held_ns = 1'600'000'000;
  b.attached = true;
  const ShareReport report = ReportOf({a, b});
  EXPECT_EQ(report.achieved, 40);
  EXPECT_EQ(report.held_ns, 3'200'000'000u);
  EXPECT_FALSE(report.idle || report.paused);
  EXPECT_TRUE(report.attached);
  ShareReport next = report;
  next.held_ns = 100'000'000'000;
  next.achieved = 40.1;
  EXPECT_FALSE(WorthTelling(report, next));
  next.achieved = 40.25;
  EXPECT_TRUE(WorthTelling(report, next));
  next = report;
  next.attached = false;
  EXPECT_TRUE(WorthTelling(report, next));
  b.pod.share.priority = policy::Priority::kIdle;
  b.paused = true;
  next = ReportOf({a, b});
  EXPECT_TRUE(next.idle && next.paused);
  EXPECT_TRUE(WorthTelling(report, next));
}

TEST(Advice, IsForSharePodsInTheirSpelling) {
  const Json answer = Json::parse(R"({"rows": [
      {"pod": "vision/a", "what": "memory", "why": "it is high", "set": {"memory": 4831838208}},
      {"pod": "vision/a", "what": "request", "why": "it is low", "set": {"request": 12.5}},
      {"pod": "vision/a2", "what": "request", "why": "", "set": {"request": 1}},
      {"pod": "vision/b/eval", "what": "limit", "why": "", "set": {"limit": 80.0}}]})");
  EXPECT_EQ(AdviceOf(answer, {"vision/a"}), Json::parse(R"([{"request": "12.5", "memory": "4608Mi",
      "summary": "request 12.5, memory 4608Mi",
      "reasons": ["memory: it is high", "request: it is low"]}])"));
  EXPECT_EQ(AdviceOf(answer, {"vision/b/trainer", "vision/b/eval"}),
            Json::parse(R"([{"container": "eval", "limit": "80", "summary": "eval: limit 80",
                             "reasons": ["limit: "]}])"));
  EXPECT_EQ(AdviceOf(answer, {"vision/c"}), Json::array());
  for (const char* text : {"null", "[]", R"({"rows": 5})", R"({"rows": [5, {"pod": "a"}]})",
                           R"({"rows": [{"pod": "a", "set": {"request": "x", "memory": -5}}]})"}) {
    EXPECT_EQ(AdviceOf(Json::parse(text), {"a"}), Json::array()) << text;
  }
}

// What a person would say: neither each moment in which a pod waits for a short request, nor each
// in which it comes to run.
TEST(PauseWatch, ChangesAfterSomeSecondsOnly) {
  constexpr Duration kEnough = std::chrono::seconds(5);
  const auto at = [](int s) { return Instant{} + std::chrono::seconds(100 + s); };
  PauseWatch watch;
  EXPECT_FALSE(watch.Look(true, 0, at(0), kEnough));
  EXPECT_FALSE(watch.Look(true, 0, at(4), kEnough)) << "not long enough";
  EXPECT_FALSE(watch.Look(false, 0, at(5), kEnough)) << "it had no work for a moment";
  EXPECT_FALSE(watch.Look(true, 0, at(6), kEnough));
  EXPECT_TRUE(watch.Look(true, 0, at(16), kEnough));
  EXPECT_TRUE(watch.paused());
  EXPECT_TRUE(watch.Look(false, 1, at(26), kEnough)) << "seen otherwise once";
  EXPECT_TRUE(watch.Look(true, 1, at(36), kEnough)) << "that was a moment";
  EXPECT_TRUE(watch.Look(true, 2, at(46), kEnough)) << "it ran, and waits again";
  EXPECT_FALSE(watch.Look(true, 3, at(56), kEnough)) << "it runs now and then";
  for (int s = 66; s < 200; s += 10) {
    EXPECT_FALSE(watch.Look(true, static_cast<uint64_t>(s), at(s), kEnough))
        << "whenever it is looked at it waits, but it ran meanwhile";
  }
  EXPECT_FALSE(watch.Look(true, 196, at(200), kEnough));
  EXPECT_TRUE(watch.Look(true, 196, at(206), kEnough));
  PauseWatch known(true);
  EXPECT_TRUE(known.Look(false, 7, at(0), kEnough))
      << "another agent's word counts until it is old";
  EXPECT_FALSE(known.Look(false, 7, at(5), kEnough));
}

TEST(Reports, CoverSharePodsThatControlTheirPods) {
  Json pod = BoundPod();
  EXPECT_TRUE(SharePodOf(pod).name.name.empty());
  pod["metadata"]["ownerReferences"] = Json::parse(R"([
      {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "1", "controller": false},
      {"apiVersion": "baton.dev/v1alpha1", "kind": "SharePod", "name": "s", "uid": "2"}])");
  EXPECT_TRUE(SharePodOf(pod).name.name.empty()) << "it does not control it";
  pod["metadata"]["ownerReferences"][1]["controller"] = true;
  EXPECT_EQ(SharePodOf(pod).name.Text(), "vision/s");
  EXPECT_EQ(SharePodOf(pod).uid, "2");
}

// Whatever batond or the API says, nothing throws.
TEST(NodePods, SurviveRandomObjects) {
  for (const char* text : {"null", "5", "[]", R"({"pods": 5, "gpus": {}})",
                           R"({"pods": [null, 5, {"name": 5}, {"name": "x", "gpus": 5}]})",
                           R"({"metadata": {"ownerReferences": [5, {}]}, "status": 7})"}) {
    const Json object = Json::parse(text);
    PresentPods(object);
    NodeOf(object, "n");
    SharePodOf(object);
    (void)DesiredPods(object, 256);
  }
}

}  // namespace
}  // namespace baton::k8s
