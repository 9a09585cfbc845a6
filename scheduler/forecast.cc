#include "scheduler/forecast.h"

#include <algorithm>

#include "policy/rational.h"

namespace baton::scheduler {
namespace {

// Until the first grants have been measured.
constexpr Duration kGrantGuess = std::chrono::microseconds(100);
// A hook notices the end of its work, and its threads wake up, within about this.
constexpr Duration kWakeUp = std::chrono::microseconds(50);

}  // namespace

Forecast::Forecast(const SchedulerOptions& options, Roster& roster)
    : options_(options),
      roster_(roster),
      grant_ns_(Nanos(kGrantGuess)),
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
  if (Unknown(index)) return options_.quota_min;
  const Duration longest = std::max(BaseQuota(), Duration(pod.service_ns));
  if (pod.saturating || pod.burst_ns == 0) return longest;
  return std::min(longest, Duration(std::max<int64_t>(1, pod.burst_ns)));
}

void Forecast::NoteConfirmed(Duration took) {
  const int64_t sample = std::min(Nanos(took), Nanos(options_.quota_max));
  grant_ns_ += (sample - grant_ns_) / 16;
  base_quota_ = ReckonBaseQuota();
}

Duration Forecast::handoff() const { return Duration(2 * grant_ns_) + kWakeUp; }

}  // namespace baton::scheduler
