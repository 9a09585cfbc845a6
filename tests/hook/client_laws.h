// A client machine whose edge is the test: events, what it sees of the GPU, and time.
#ifndef BATON_TESTS_HOOK_CLIENT_LAWS_H_
#define BATON_TESTS_HOOK_CLIENT_LAWS_H_

#include <gtest/gtest.h>

#include <algorithm>

#include "hook/client_machine.h"

namespace baton::hook {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using wire::Phase;

inline constexpr Duration kQuota = milliseconds(20);

class ClientLaws : public testing::Test {
 protected:
  explicit ClientLaws(wire::AwayMode away = wire::AwayMode::kWait) {
    ClientOptions options;
    options.away = away;
    machine_ = ClientMachine(options, now_);
  }

  Effects Do(EventKind kind) {
    Event event;
    event.kind = kind;
    return Do(event);
  }
  Effects Do(const Event& event) {
    last_ = machine_.Step(now_, event, seen_);
    return last_;
  }
  Effects Attach(bool gated = true, bool gang = false) {
    Event event;
    event.kind = EventKind::kAttached;
    event.attached.gated = gated;
    event.attached.gang = gang;
    event.attached.idle_ns = 2'000'000;
    event.attached.backlog_ns = 3'000'000;
    event.attached.heartbeat_ns = 100'000'000;
    event.attached.open_after_ns = 1'000'000'000;
    return Do(event);
  }
  Effects Token(uint64_t epoch, uint64_t rev, Duration quota, bool contended = true) {
    Event event;
    event.kind = EventKind::kToken;
    event.token.epoch = epoch;
    event.token.rev = rev;
    event.token.quota_ns = static_cast<uint64_t>(quota.count());
    event.token.contended = contended;
    return Do(event);
  }
  Effects Park() {
    ++seen_.parked;
    return Do(EventKind::kParked);
  }
  // Time passes; the edge wakes whenever the machine asked for it, and launches keep coming if
  // `busy`. Ends early when the phase changes.
  Effects Pass(Duration d, bool busy = false) {
    const Instant end = now_ + d;
    const Phase before = machine_.phase();
    while (now_ < end && machine_.phase() == before) {
      const Instant wake = std::max(last_.wake, now_ + microseconds(1));
      now_ = std::min(end, busy ? std::min(wake, now_ + microseconds(500)) : wake);
      if (busy) ++seen_.launches;
      Do(EventKind::kTimer);
    }
    return last_;
  }
  void Hold(Duration quota = kQuota, bool contended = true) {
    Attach();
    Park();
    seen_.parked = 0;
    Token(1, 1, quota, contended);
    ASSERT_EQ(machine_.phase(), Phase::kHolding);
  }

  Instant now_ = InstantFromNanos(1'000'000'000'000);
  Observation seen_;
  ClientMachine machine_;
  Effects last_;
};

}  // namespace baton::hook

#endif  // BATON_TESTS_HOOK_CLIENT_LAWS_H_
