#include "node/absence.h"

namespace baton::node {
namespace {

// This daemon was stopped when it has not run for kAbsence; what came meanwhile is read within
// kCatchUp.
constexpr Duration kPulse = std::chrono::milliseconds(100);
constexpr Duration kAbsence = std::chrono::milliseconds(400);
constexpr Duration kCatchUp = std::chrono::milliseconds(200);

}  // namespace

void Absence::Start() {
  ran_at_ = MonotonicNow();
  Notice();
}

void Absence::Notice() {
  const Instant now = MonotonicNow();
  Unread(now, Duration(0));
  ran_at_ = now;
  timer_.expires_after(kPulse);
  timer_.async_wait([this, here = std::weak_ptr(here_)](boost::system::error_code error) {
    if (!error && !here.expired()) Notice();
  });
}

Duration Absence::Unread(Instant now, Duration age) {
  if (now - ran_at_ > kAbsence) {
    away_from_ = ran_at_;
    back_at_ = ran_at_ = now;
  }
  const Instant came = now - age;
  const bool meanwhile = came >= away_from_ && came < back_at_ && now - back_at_ < kCatchUp;
  return meanwhile ? now - came : Duration(0);
}

}  // namespace baton::node
