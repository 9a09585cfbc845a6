#include "node/absence.h"

#include "node/listen_unix.h"

namespace baton::node {
namespace {

// This daemon was stopped when it has not run for kAbsence; what came meanwhile is read within
// kCatchUp.
constexpr Duration kPulse = std::chrono::milliseconds(100);
constexpr Duration kAbsence = std::chrono::milliseconds(400);
constexpr Duration kCatchUp = std::chrono::milliseconds(200);
// Between two looks at the clock without a stop in between.
constexpr Duration kAtOnce = std::chrono::milliseconds(10);
constexpr int kLooksMax = 8;

}  // namespace

void Absence::Start() {
  ran_at_ = MonotonicNow();
  Notice();
}

void Absence::Notice() {
  const Instant now = MonotonicNow();
  Look(now);
  ran_at_ = now;
  timer_.expires_after(kPulse);
  timer_.async_wait([this, here = std::weak_ptr(here_)](boost::system::error_code error) {
    if (!error && !here.expired()) Notice();
  });
}

void Absence::Look(Instant now) {
  if (now - ran_at_ <= kAbsence) return;
  away_from_ = ran_at_;
  back_at_ = ran_at_ = now;
}

Instant Absence::Heard(const msghdr& message) {
  Instant now = MonotonicNow();
  Look(now);
  if (now - back_at_ >= kCatchUp) return now;
  // The stamp is of another clock, and a stop may come between looks at the two.
  Duration age = AgeOf(message);
  for (int looks = 1; MonotonicNow() - now > kAtOnce && looks < kLooksMax; ++looks) {
    now = MonotonicNow();
    Look(now);
    age = AgeOf(message);
  }
  const Instant came = now - age;
  return came >= away_from_ && came < back_at_ ? came : now;
}

}  // namespace baton::node
