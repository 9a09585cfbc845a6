#include "scheduler/forecast.h"

#include <algorithm>

#include "policy/rational.h"

namespace baton::scheduler {
namespace {

// Until the first grants have been measured.
constexpr Duration kGrantGuess = std::chrono::microseconds(100);
// No GPU needs longer to come to another process; a client may say what it likes.
constexpr Duration kSwitchMost = std::chrono::milliseconds(1);

// Drains differ, and threads wake up late.
constexpr Duration kHandoverMargin = std::chrono::microseconds(500);

// The 16th part of what is new counts.
void Smooth(int64_t& mean, Duration sample, Duration most) {
  mean += (std::min(Nanos(sample), Nanos(most)) - mean) / 16;
}

}  // namespace

Forecast::Forecast(const SchedulerOptions& options, Roster& roster)
    : options_(options),
      roster_(roster),
      grant_ns_(Nanos(kGrantGuess)),
      handoff_ns_(2 * Nanos(kGrantGuess)),
      base_quota_(ReckonBaseQuota()) {}

void Forecast::Learn(uint32_t index, Duration held, Duration longest) {
  Pod& pod = roster_.pod(index);
  pod.saturating = pod.wanting > 0;
  // A hold beyond this was an accident (a stopped process, a hung kernel); who had one is not to be
  // treated for long as if every hold of it were such.
  const int64_t most = 10 * Nanos(options_.quota_max);
  const int64_t measured = std::min(Nanos(held), most);
  pod.service_ns = std::max(std::min(Nanos(longest), most), pod.service_ns - pod.service_ns / 8);
  if (!pod.saturating) {
    // Up at once, down slowly: a burst cut in two costs a hand-off and a wait.
    pod.burst_ns = std::max(measured, (3 * pod.burst_ns + measured) / 4);
    pod.usual_ns = pod.usual_ns == 0 ? measured : (3 * pod.usual_ns + measured) / 4;
  }
}

void Forecast::LearnOverrun(uint32_t index, Duration overrun) {
  Pod& pod = roster_.pod(index);
  const int64_t most = 10 * Nanos(options_.quota_max);  // as in Learn()
  // A long kernel among short ones is remembered for some hundred tokens.
  pod.overrun_ns =
      std::max({std::min(Nanos(overrun), most), pod.overrun_ns - pod.overrun_ns / 64, int64_t{1}});
}

Duration Forecast::Handover(uint32_t index) const {
  const int64_t overrun_ns = roster_.pod(index).overrun_ns;
  const Duration drain = overrun_ns == 0 ? options_.backlog : Duration(overrun_ns);
  return drain + drain / 4 + handoff() + 2 * grant() + kHandoverMargin;
}

Duration Forecast::ReckonBaseQuota() const {
  const policy::Share fraction = std::max(options_.handoff_fraction, policy::Share(1));
  return std::clamp(Duration(policy::TimeToServe(Nanos(handoff()), fraction)), options_.quota_min,
                    options_.quota_max);
}

bool Forecast::Unknown(uint32_t index) const {
  const Pod& pod = roster_.pod(index);
  return pod.grants == 0 && pod.service_ns == 0 && !pod.gang;
}

Duration Forecast::Burst(uint32_t index) const {
  const Pod& pod = roster_.pod(index);
  if (Unknown(index)) return std::min(options_.quota_min, pod.token_most);
  // Who is predicted to hold for longer than its limit allows comes too seldom to have its request.
  const Duration token = std::min(BaseQuota(), pod.token_most);
  const Duration longest = std::max(token, Duration(pod.service_ns));
  if (pod.saturating || pod.burst_ns == 0) return longest;
  return std::min(longest, Duration(std::max<int64_t>(1, pod.burst_ns)));
}

void Forecast::NoteWay(Duration took) { Smooth(grant_ns_, took, options_.quota_max); }

void Forecast::NoteHandoff(Duration took) {
  if (took <= Duration(0)) return;
  handoff_total_ += took;
  Smooth(handoff_ns_, took, 2 * options_.quota_max);
  base_quota_ = ReckonBaseQuota();
}

void Forecast::NoteSwitch(Duration took) {
  if (took <= Duration(0)) return;
  Smooth(switch_ns_, took, kSwitchMost);
  base_quota_ = ReckonBaseQuota();
}

}  // namespace baton::scheduler
