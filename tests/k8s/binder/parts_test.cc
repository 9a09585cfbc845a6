// The parts of the binder's core, each alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "k8s/binder/in_flight.h"
#include "k8s/binder/preemptions.h"
#include "k8s/binder/reasons.h"
#include "k8s/binder/replacements.h"
#include "k8s/binder/retries.h"
#include "k8s/cluster/tombstones.h"
#include "k8s/cluster/work_queue.h"
#include "tests/k8s/binder/objects.h"

namespace baton::k8s::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Instant kStart{seconds(1'000)};
const std::string kKey = "team/p";
const ObjectName kPodName{kSpace, "p"};

Json PodAt(const std::string& name, const std::string& node) {
  Json pod = PodOf(name, {{"baton.dev/gpu-share", "30"}});
  pod["metadata"]["uid"] = name + "-uid";
  if (!node.empty()) pod["spec"]["nodeName"] = node;
  return pod;
}

TEST(WorkQueue, NamesComeOnceAndLaterOnesWhenDue) {
  WorkQueue queue;
  queue.Add("b");
  queue.Add("a");
  queue.Add("b");
  queue.AddAt(kStart, "c");
  EXPECT_EQ(queue.Take(), (std::set<std::string>{"a", "b"}));
  EXPECT_EQ(queue.next(), kStart);
  queue.AddDue(kStart - milliseconds(1));
  EXPECT_TRUE(queue.Take().empty());
  queue.AddDue(kStart);
  EXPECT_EQ(queue.Take(), std::set<std::string>{"c"});
  EXPECT_EQ(queue.next(), kNever);
}

TEST(Tombstones, ForgetTheOldestWhenFull) {
  Tombstones tombstones;
  for (int i = 0; i <= 20'000; ++i) tombstones.Add(std::to_string(i));
  EXPECT_FALSE(tombstones.Has("0"));
  EXPECT_TRUE(tombstones.Has("1"));
  EXPECT_TRUE(tombstones.Has("20000"));
  tombstones.Add("");
  EXPECT_FALSE(tombstones.Has(""));
}

TEST(Retries, PausesDoubleUpToTheMaximumAndSuccessResetsThem) {
  const CoreOptions options{};
  Retries retries(options);
  Duration before{0};
  for (int i = 0; i < 20; ++i) {
    retries.Later(kKey, kStart, Duration(0));
    const Duration pause = retries.at(kKey) - kStart;
    EXPECT_TRUE(pause == options.retry_max || pause == std::max(options.retry_min, 2 * before));
    before = pause;
  }
  EXPECT_EQ(before, options.retry_max);
  retries.Succeeded(kKey);
  EXPECT_EQ(retries.at(kKey), kAlways);
  retries.Later(kKey, kStart, seconds(5));
  EXPECT_EQ(retries.at(kKey), kStart + seconds(5)) << "as the server wishes";
}

TEST(Retries, NewerVersionEndsOnlyAWaitForIt) {
  const CoreOptions options{};
  Retries retries(options);
  retries.Later(kKey, kStart, Duration(0));
  retries.NewerSeen(kKey);
  EXPECT_GT(retries.at(kKey), kStart);
  retries.WaitForNewer(kKey, kStart);
  retries.NewerSeen(kKey);
  EXPECT_EQ(retries.at(kKey), kAlways);
}

TEST(Retries, FailuresAreClassifiedByWriteAndStatus) {
  struct Case {
    WriteKind kind;
    int status;
    const char* reason;
    AfterFailure after;
  };
  for (const Case& c : std::vector<Case>{
           {WriteKind::kBind, 0, "", AfterFailure::kRetry},
           {WriteKind::kCreateChild, 503, "", AfterFailure::kRetry},
           {WriteKind::kStatus, 409, "Conflict", AfterFailure::kWaitForNewer},
           {WriteKind::kCreateChild, 409, "Conflict", AfterFailure::kRetry},
           {WriteKind::kCreateChild, 409, "AlreadyExists", AfterFailure::kWaitForNewer},
           {WriteKind::kCreateChild, 404, "NotFound", AfterFailure::kReject},
           {WriteKind::kDeletePod, 404, "NotFound", AfterFailure::kWaitForNewer},
           {WriteKind::kCreateChild, 403, "Forbidden", AfterFailure::kReject},
           {WriteKind::kBind, 422, "Invalid", AfterFailure::kReject},
           {WriteKind::kPatchPod, 403, "Forbidden", AfterFailure::kReject},
           {WriteKind::kStatus, 403, "Forbidden", AfterFailure::kRetry},
           {WriteKind::kDeletePod, 403, "Forbidden", AfterFailure::kRetry},
       }) {
    EXPECT_EQ(Classify(c.kind, {c.status, c.reason, "", {}}), c.after)
        << static_cast<int>(c.kind) << " " << c.status << " " << c.reason;
  }
}

TEST(Retries, EvictionIsRefusedOnlyWhereAskingAgainIsInVain) {
  const auto refuses = [](int status, const char* reason, uint32_t failures) {
    return RefusesEviction({status, reason, "", {}}, failures);
  };
  EXPECT_TRUE(refuses(429, kDisruptionBudget, 1));
  EXPECT_TRUE(refuses(403, "Forbidden", 1));
  EXPECT_TRUE(refuses(422, "Invalid", 1));
  EXPECT_TRUE(refuses(500, "InternalError", 20));
  EXPECT_FALSE(refuses(500, "InternalError", 1)) << "it may be over soon";
  EXPECT_FALSE(refuses(429, "TooManyRequests", 20));
  EXPECT_FALSE(refuses(401, "Unauthorized", 20));
  EXPECT_FALSE(refuses(0, "NoAnswer", 20));
  EXPECT_FALSE(refuses(404, "NotFound", 1));
  EXPECT_FALSE(refuses(409, "Conflict", 1));
}

TEST(InFlight, OneWriteAtATimeAndABindingStaysPossible) {
  InFlight in_flight;
  in_flight.SendBinding(kPodName, "u", {"n1", {}}, Json::object());
  EXPECT_TRUE(in_flight.Has(kKey));
  const std::vector<Write> sent = in_flight.TakeSent();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_TRUE(in_flight.TakeSent().empty());
  const auto write = in_flight.Finish(sent[0].id);
  ASSERT_TRUE(write);
  EXPECT_EQ(write->kind, WriteKind::kBind);
  EXPECT_FALSE(in_flight.Finish(sent[0].id)) << "it has been answered";
  EXPECT_FALSE(in_flight.Has(kKey));
  // Until somebody says otherwise.
  EXPECT_EQ(in_flight.MayBeBound(kKey), "u");
  EXPECT_EQ(in_flight.BindingTo(kKey).node, "n1");
  in_flight.ForgetPod(kKey, "another");
  EXPECT_EQ(in_flight.MayBeBound(kKey), "u");
  in_flight.ForgetPod(kKey, "u");
  EXPECT_EQ(in_flight.MayBeBound(kKey), "");
}

TEST(Reasons, AnotherKindIsShownAtOnceAnotherTextLater) {
  WorkQueue queue;
  Reasons reasons(seconds(10), queue);
  reasons.Set(kKey, {"Unschedulable", "a"});
  EXPECT_TRUE(reasons.Show(kKey, kStart));
  reasons.Set(kKey, {"Unschedulable", "b"});
  EXPECT_FALSE(reasons.Show(kKey, kStart + seconds(1)));
  EXPECT_EQ(reasons.shown(kKey).text, "a");
  EXPECT_EQ(queue.next(), kStart + seconds(10));
  EXPECT_FALSE(reasons.Show(kKey, kStart + seconds(10)));
  EXPECT_EQ(reasons.shown(kKey).text, "b");
  reasons.Set(kKey, {"Invalid", "c"});
  EXPECT_TRUE(reasons.Show(kKey, kStart + seconds(11)));
}

TEST(Replacements, WaitDoublesUntilAPodHasLasted) {
  const CoreOptions options{};
  Replacements replacements(options);
  EXPECT_EQ(replacements.DeleteAt(kKey, "1", kStart), kStart + options.retry_min);
  EXPECT_EQ(replacements.DeleteAt(kKey, "1", kStart + seconds(9)), kStart + options.retry_min);
  EXPECT_EQ(replacements.DeleteAt(kKey, "2", kStart), kStart + 2 * options.retry_min);
  replacements.OnBound(kKey, kStart);
  const Instant later = kStart + options.retry_max;
  EXPECT_EQ(replacements.DeleteAt(kKey, "3", later), later + options.retry_min);
}

TEST(Preemptions, VictimsAreBoundPodsAndAreFreeOnceItStops) {
  const CoreOptions options{};
  WorkQueue queue;
  ObjectCache objects(options, queue);
  std::vector<std::string> troubles;
  ASSERT_TRUE(objects.SetPod(PodAt("a", "n1"), &troubles).entry);
  ASSERT_TRUE(objects.SetPod(PodAt("b", ""), &troubles).entry);
  Preemptions preemptions(objects, queue, 1);
  devmgr::Displacement displacement;
  displacement.node = "n1";
  displacement.pods = {"team/b"};
  EXPECT_FALSE(preemptions.Start("team/high", displacement, false)) << "it is on no node yet";
  displacement.pods = {"team/a"};
  ASSERT_TRUE(preemptions.Start("team/high", displacement, false));
  EXPECT_FALSE(preemptions.HasRoomFor(displacement)) << "one victim at a time";
  EXPECT_TRUE(preemptions.IsVictim("team/a", "a-uid"));
  EXPECT_EQ(preemptions.PreemptorOf("team/a"), "team/high");
  EXPECT_TRUE(preemptions.Ended({"team/high"}).empty());
  EXPECT_EQ(preemptions.Ended({}), std::vector<std::string>{"team/high"}) << "it waits no more";
  preemptions.Stop("team/high");
  EXPECT_FALSE(preemptions.IsVictim("team/a", "a-uid"));
}

TEST(ObjectCache, OldVersionsAndDeletedObjectsAreIgnored) {
  const CoreOptions options{};
  WorkQueue queue;
  ObjectCache objects(options, queue);
  std::vector<std::string> troubles;
  const auto pod = [](const char* version, const char* node) {
    Json json = PodAt("p", node);
    json["metadata"]["resourceVersion"] = version;
    return json;
  };
  ASSERT_TRUE(objects.SetPod(pod("10", ""), &troubles).entry);
  EXPECT_FALSE(objects.SetPod(pod("9", ""), &troubles).entry) << "an older version";
  ASSERT_TRUE(objects.SetPod(pod("11", "n1"), &troubles).entry);
  EXPECT_FALSE(objects.SetPod(pod("12", ""), &troubles).entry) << "from before its Binding";
  Json next = pod("13", "");
  next["metadata"]["uid"] = "next";
  EXPECT_EQ(objects.SetPod(next, &troubles).replaced_uid, "p-uid");
  EXPECT_FALSE(objects.SetPod(pod("14", ""), &troubles).entry) << "it was replaced";
  EXPECT_FALSE(objects.RemovePod(pod("14", "")));
  ASSERT_TRUE(objects.RemovePod(next));
  EXPECT_FALSE(objects.SetPod(next, &troubles).entry) << "it was deleted";
}

}  // namespace
}  // namespace baton::k8s::testing
