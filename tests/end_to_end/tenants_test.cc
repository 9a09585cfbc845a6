// What a pod does, in good faith or not, costs the others nothing.
#include <atomic>
#include <thread>

#include "tests/backend/scripted_client.h"
#include "tests/end_to_end/fixture.h"
#include "wire/control_client.h"

namespace baton::bench {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct Place {
  Transport transport;
  const char* scheduler;  // lines of the daemon's configuration
  const char* name;
  friend void PrintTo(const Place& place, std::ostream* out) { *out << place.name; }
};

using Tenant = EndToEnd;

class Tenants : public EndToEnd, public ::testing::WithParamInterface<Place> {
 protected:
  void SetUp() override {
    StartCluster({.transport = GetParam().transport, .scheduler = GetParam().scheduler});
  }
  // The ticket of a new pod on the GPU.
  std::string MakePod(const std::string& name, int percent) {
    const nlohmann::json made =
        Must(wire::Ask(cluster().SocketDir(0), {{"command", "create_pod"},
                                                {"name", name},
                                                {"limit", percent},
                                                {"gpus", {device().uuid}}}));
    return made.at("ticket");
  }
};

// It closes its socket at each grant, comes back after a while and says that it has held nothing.
TEST_P(Tenants, AThiefPaysForWhatItHolds) {
  constexpr int kAwayMs = 150;
  const std::string ticket = MakePod("thief", 20);
  const std::string socket = wire::TenantSocket(cluster().SocketDir(0));
  std::atomic<bool> stop{false};
  std::atomic<int> holds{0};
  std::jthread thief([&, uuid = device().uuid] {
    backend::ScriptedClient client(socket);
    bool joined = client.Join(ticket, uuid);
    while (!stop) {
      // On a machine that is busy enough the link may be cut for a while.
      if (!joined || !client.AskUntilGranted()) {
        joined = client.Connect(socket) && client.Join(ticket, uuid);
        continue;
      }
      const auto index = static_cast<uint8_t>(holds % 2);
      joined = client.HoldUnseen(socket, ticket, uuid, kAwayMs, index);
      ++holds;
    }
  });
  Start(Burn("honest", "80", "100"));
  PassTime(seconds(1));
  Windows([&] { return SharesOver(seconds(5) * Scale(), device()).at("honest"); },
          [&](double honest) {
            Figure("honest_80_beside_thief", honest, "%");
            EXPECT_GE(honest, 75 - Excused(80 - honest));
          });
  stop = true;
  const int held = holds - 1;  // the last one may not be over
  const nlohmann::json status = Must(cluster().Status());
  for (const nlohmann::json& pod : status.at("pods")) {
    if (pod.at("name") != "thief") continue;
    EXPECT_GE(pod.at("held_ns").get<int64_t>(), held * INT64_C(1'000'000) * kAwayMs);
  }
  EXPECT_GE(held, 2);
}

INSTANTIATE_TEST_SUITE_P(Places, Tenants,
                         ::testing::Values(Place{Transport::kUnix, "", "Unix"},
                                           Place{Transport::kUnix, "drain_action = \"kill\"\n",
                                                 "UnixThatKills"},
                                           Place{Transport::kCentral, "", "Central"}),
                         [](const auto& place) { return place.param.name; });

// Another thread has launched a little, less than a mark is due for, where the capture begins or
// into a default stream.
TEST_F(Tenant, AStreamCaptureHoldsNobodyUp) {
  StartCluster({.transport = Transport::kUnix});
  Start(Burn("other", "50", "100"));
  for (const char* where : {"default", "captured"}) {
    PodOptions capturing;
    capturing.name = where;
    capturing.request = "50";
    capturing.command = {CAPTURING, where, "1500"};
    Pod& pod = Start(capturing);
    ASSERT_EQ(pod.Wait(seconds(20)), 0) << pod.Stderr();
    const nlohmann::json said = pod.Report();
    const Instant from(Duration(said.at("from_ns").get<int64_t>()));
    const Instant to(Duration(said.at("to_ns").get<int64_t>()));
    EXPECT_GE(to - from, milliseconds(1500));
    const double busy = SharesIn(from, to, device()).at("other");
    Figure(std::string("other_during_capture_") + where, busy, "%");
    EXPECT_GE(busy, 75) << where;
  }
}

// The longest time between `from` and `to` in which the pod ran nothing.
Duration LongestGap(const std::vector<sim::KernelRecord>& records, Instant from, Instant to) {
  Instant last = from;
  Duration longest{0};
  for (const sim::KernelRecord& record : records) {
    const Instant start(Duration(record.start_ns)), end(Duration(record.end_ns));
    if (end < from || start > to) continue;
    longest = std::max(longest, start - last);
    last = std::max(last, end);
  }
  return std::max(longest, to - last);
}

// A GPU that waits for the host is nobody's: the other pod waits no longer than at any other time,
// and what is behind the wait runs while the token is held.
TEST_F(Tenant, AGpuThatWaitsForTheHostHoldsNobodyUp) {
  StartCluster({.transport = Transport::kUnix});
  const Pod& other = Start(Burn("other", "50", "100"));
  for (const char* what : {"function", "value"}) {
    PodOptions waiting;
    waiting.name = what;
    waiting.request = "50";
    waiting.command = {WAITING, what, "1500"};
    Pod& pod = Start(waiting);
    ASSERT_EQ(pod.Wait(seconds(20)), 0) << pod.Stderr();
    const nlohmann::json said = pod.Report();
    const Instant from(Duration(said.at("from_ns").get<int64_t>()));
    const Instant to(Duration(said.at("to_ns").get<int64_t>()));
    const double busy = SharesIn(from, to, device()).at("other");
    const Duration gap = LongestGap(RecordsOf(other, device()), from, to);
    Figure(std::string("other_during_wait_for_") + what, busy, "%");
    Figure(std::string("longest_gap_during_wait_for_") + what,
           static_cast<double>(Nanos(gap)) / 1e6, "ms");
    EXPECT_GE(busy, 75) << what;
  }
  EXPECT_EQ(Overlaps(device()), 0u);
}

// What was there before has ended, and what is there now has no need of the GPU.
TEST_F(Tenant, AHolderThatBecomesAnotherProgramHoldsNobodyUp) {
  StartCluster({.transport = Transport::kUnix});
  const Pod& other = Start(Burn("other", "50", "100"));
  PodOptions script;
  script.name = "script";
  script.request = "50";
  script.command = {WAITING, "exec", "1500"};
  Pod& pod = Start(script);
  ASSERT_EQ(pod.Wait(seconds(20)), 0) << pod.Stderr();
  const nlohmann::json said = pod.Report();
  const Instant from(Duration(said.at("from_ns").get<int64_t>()));
  const Instant to(Duration(said.at("to_ns").get<int64_t>()));
  const Duration gap = LongestGap(RecordsOf(other, device()), from, to);
  Figure("longest_gap_after_exec", static_cast<double>(Nanos(gap)) / 1e6, "ms");
  EXPECT_LT(gap, milliseconds(500));
  EXPECT_EQ(Overlaps(device()), 0u);
}

}  // namespace
}  // namespace baton::bench
