// Events are told, and never flood.
#include "k8s/api/event_recorder.h"

#include <fmt/format.h>

#include <atomic>
#include <thread>

#include "tests/k8s/api/fixture.h"

namespace baton::k8s::testing {
namespace {

using resources::kEvents;
using resources::kPods;

TEST(EventRecorderTest, EventHasAllRequiredFields) {
  ApiServer server;
  const auto client = ClientOf(server.config());
  const Json pod = server.Put(kPods, AnnotatedPod("a"));
  const Json node = server.Put(resources::kNodes, {{"metadata", {{"name", "n1"}}}});
  {
    EventRecorder recorder(*client, {.instance = "binder-0"});
    recorder.Record(pod, "Warning", "NoRoom", "Place",
                    "no GPU has 30 % free \xff" + std::string(2'000, 'x'));
    recorder.Record(node, "Normal", "Seen", "Watch", "here");
    recorder.Record(Json::array(), "Normal", "Seen", "Watch", "about nothing");
    EXPECT_EQ(recorder.dropped(), 1u);
  }
  const auto events = server.List(kEvents);
  ASSERT_EQ(events.size(), 2u);
  const Json& event = TextAt(events[0], "reason") == "NoRoom" ? events[0] : events[1];
  EXPECT_EQ(TextAt(event, "metadata/namespace"), "default");
  EXPECT_EQ(TextAt(event, "type"), "Warning");
  EXPECT_EQ(TextAt(event, "action"), "Place");
  EXPECT_EQ(TextAt(event, "reportingController"), "baton.dev/binder");
  EXPECT_EQ(TextAt(event, "reportingInstance"), "binder-0");
  EXPECT_EQ(TextAt(event, "regarding/kind"), "Pod");
  EXPECT_EQ(TextAt(event, "regarding/uid"), UidOf(pod));
  EXPECT_EQ(TextAt(event, "note").size(), 1'024u);
  const std::string time = TextAt(event, "eventTime");  // 2026-01-31T09:30:00.000000Z
  ASSERT_EQ(time.size(), 27u) << time;
  EXPECT_EQ(time[19], '.');
  EXPECT_EQ(time[26], 'Z');
}

TEST(EventRecorderTest, RepeatedEventIsASeriesWithACount) {
  ApiServer server;
  const auto client = ClientOf(server.config());
  const Json pod = server.Put(kPods, AnnotatedPod("a"));
  {
    EventRecorder recorder(*client, {});
    for (int i = 0; i < 1'000; ++i) recorder.Record(pod, "Warning", "NoRoom", "Place", "why");
  }
  const auto events = server.List(kEvents);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0]["series"]["count"], 1'000);
  EXPECT_EQ(TextAt(events[0], "series/lastObservedTime").size(), 27u);
  // Ever more seldom: at powers of two, and the last.
  EXPECT_LE(server.count("patch events"), 11u);
}

TEST(EventRecorderTest, EventsOfAnObjectAreRateLimited) {
  ApiServer server;
  const auto client = ClientOf(server.config());
  const Json a = server.Put(kPods, AnnotatedPod("a"));
  const Json b = server.Put(kPods, AnnotatedPod("b"));
  {
    EventRecorder recorder(*client, {.burst = 5});
    for (int i = 0; i < 100; ++i) {
      recorder.Record(a, "Warning", "NoRoom", "Place", fmt::format("another {}", i));
    }
    EXPECT_EQ(recorder.dropped(), 95u);
    recorder.Record(b, "Warning", "NoRoom", "Place", "its own budget");
  }
  EXPECT_EQ(server.List(kEvents).size(), 6u);
}

TEST(EventRecorderTest, NeverBlocksAndStopsSoon) {
  ApiServer server;
  const auto client = ClientOf(server.config());
  server.AddFault({.kind = FaultKind::kHang, .path = "/events", .times = 0});
  const Instant begin = MonotonicNow();
  {
    EventRecorder recorder(*client, {.queue = 10});
    for (int i = 0; i < 200; ++i) {
      recorder.Record(AnnotatedPod(fmt::format("p{}", i)), "Normal", "Placed", "Place", "there");
    }
    EXPECT_GE(recorder.dropped(), 180u);
  }
  EXPECT_LT(MonotonicNow() - begin, seconds(15));  // a second, where nobody disturbs
}

TEST(EventRecorderTest, FollowerWritesNoEvents) {
  ApiServer server;
  const auto client = ClientOf(server.config());
  std::atomic<bool> leading{false};
  EventRecorder recorder(*client, {.may_write = [&] { return leading.load(); }});
  recorder.Record(AnnotatedPod("a"), "Normal", "Placed", "Place", "there");
  ASSERT_TRUE(server.WaitFor([&] { return recorder.dropped() == 1; }));
  leading = true;
  recorder.Record(AnnotatedPod("a"), "Normal", "Placed", "Place", "there");
  EXPECT_TRUE(server.WaitFor([&] { return server.List(kEvents).size() == 1; }));
}

TEST(EventRecorderTest, ExpiredSeriesStartsAgain) {
  ApiServer server;
  const auto client = ClientOf(server.config());
  EventRecorder recorder(*client, {});
  recorder.Record(AnnotatedPod("a"), "Normal", "Placed", "Place", "there");
  ASSERT_TRUE(server.WaitFor([&] { return server.List(kEvents).size() == 1; }));
  server.Remove(kEvents, NameOf(server.List(kEvents)[0]));
  recorder.Record(AnnotatedPod("a"), "Normal", "Placed", "Place", "there");
  ASSERT_TRUE(server.WaitFor([&] { return server.List(kEvents).size() == 1; }));
  EXPECT_EQ(server.List(kEvents)[0]["series"]["count"], 2);
}

TEST(EventRecorderTest, FaultLosesAtMostOneEvent) {
  ApiServer server;
  const auto client = ClientOf(server.config());
  EventRecorder recorder(*client, {});
  server.AddFault({.kind = FaultKind::kAnswer, .path = "/events", .status = 500});
  recorder.Record(AnnotatedPod("a"), "Normal", "Placed", "Place", "lost");
  ASSERT_TRUE(server.WaitFor([&] { return recorder.dropped() == 1; }));
  server.AddFault(
      {.kind = FaultKind::kAnswer, .path = "/events", .status = 429, .retry_after_s = 1});
  recorder.Record(AnnotatedPod("b"), "Normal", "Placed", "Place", "repeated");
  EXPECT_TRUE(server.WaitFor([&] { return server.List(kEvents).size() == 1; }));
}

}  // namespace
}  // namespace baton::k8s::testing
