// A world as data: which pods come, what work they bring, and which faults hit them when. A plan is
// drawn from a seed, or written by hand; it can be printed, shrunk and run again (world/engine.h),
// and the same plan gives the same run to the bit.
#ifndef BATON_WORLD_PLAN_H_
#define BATON_WORLD_PLAN_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "policy/share.h"

namespace baton::world {

// Kinds of faults, or'ed together where several are meant.
enum Fault : uint32_t {
  kFrames = 1,    // frames dropped, delayed, repeated, reordered
  kKills = 2,     // processes killed, and started again
  kStops = 4,     // processes stopped for a while
  kRestarts = 8,  // the daemon restarted
  kCuts = 16,     // links cut for a while
  kResizes = 32,  // shares changed; pods that come late or leave early
  kHangs = 64,    // a kernel that never ends; its process is killed after drain_timeout
  kAllFaults = 127,
  // The relay restarted, where there is one. Not among all: with others at once some of what a pod
  // uses may still not be charged (docs/results/policy.md).
  kRelays = 128,
};

// "all", "none", or a comma-separated list of: frames kills stops restarts cuts resizes hangs, and
// relays, which all does not stand for.
Result<uint32_t> ParseFaults(std::string_view text);
std::string FormatFaults(uint32_t faults);

// A pod and its work, the same on each of its GPUs.
struct PodPlan {
  uint32_t id = 0;  // above 0, and its own
  std::string name{};
  policy::ShareSpec spec{};  // Validated()
  uint32_t processes = 1;    // on each of its GPUs
  std::vector<uint32_t> gpus{0};

  Duration kernel = std::chrono::milliseconds(1);  // mean length
  // Every so many kernels comes one of this length instead. 0: none.
  uint32_t long_every = 0;
  Duration long_kernel{0};
  Duration burst{0};      // GPU time of one burst of a process; 0: it always has more to do
  Duration pause{0};      // from the end of a burst to the next one ...
  bool periodic = false;  // ... or from beginning to beginning, where the work is done by then
  // Kernels and pauses vary by up to this much about their mean, in percent: 0 to 90.
  uint32_t jitter = 30;
  // Every so many kernels comes a collective: it ends only when those of the pod's processes on all
  // its GPUs have come to run. 0: none.
  uint32_t collective = 0;
  Duration collective_kernel{0};  // from then on; 0: as long as another kernel
  // Of each process: threads that launch, each into a stream of its own, with collectives of its
  // own.
  uint32_t threads = 1;
  // One thread launches on all of the pod's GPUs: one kernel on each, in turn.
  bool in_turn = false;
  // Processes that wait for each other draw their kernels each for itself: the work is not spread
  // evenly over them.
  bool uneven = false;
  // Pods with the same number above 0 are one gang, each on GPUs of its own: their processes wait
  // for each other, and they are granted all their GPUs or none. They come and go together.
  uint32_t gang = 0;
  // Its processes have no work: they send whatever may gain them time (world/adversary.h).
  bool hostile = false;

  // The longest that one of its kernels takes.
  Duration LongestKernel() const;
  // Its processes on several GPUs could not go on by themselves.
  bool WaitsForPeers() const { return collective != 0 || in_turn || gang != 0; }

  Duration arrives{0};
  Duration leaves = Duration::max();
};

struct FaultPlan {
  Fault kind = kKills;
  Duration at{0};
  uint32_t pod = 0;          // kKills, kStops, kHangs: which pod's process; kResizes: which pod
  uint32_t process = 0;      // which of its living processes, modulo their number
  Duration length{0};        // of a stop, a restart of daemon or relay, a cut, or bad frames
  uint32_t one_in = 200;     // kFrames: so many frames is lost, one repeated, one late
  bool noticed = false;      // kCuts: the daemon knows of it
  policy::ShareSpec spec{};  // kResizes
};

struct Plan {
  uint64_t seed = 1;  // of kernel lengths, pauses and delays
  uint32_t gpus = 1;
  bool relay = false;  // processes are connected to a relay, and that to the daemon
  bool late = false;   // now and then threads of processes wake up late
  Duration length = std::chrono::minutes(5);
  Duration calm_from{0};  // no faults from here on: everybody who waits must be served
  std::vector<PodPlan> pods;
  std::vector<FaultPlan> faults;  // by `at`
};

inline constexpr uint32_t kPodsMax = 512;
inline constexpr uint32_t kPlanGpusMax = 64;
inline constexpr uint32_t kThreadsMax = 16;
inline constexpr Duration kLengthMin = std::chrono::seconds(1);
inline constexpr Duration kPlanTimeMax = std::chrono::hours(10'000);  // of any time in a plan

struct DrawOptions {
  uint64_t seed = 1;
  uint32_t pods = 0;                          // 2 to kPodsMax; 0: drawn from the seed
  Duration length = std::chrono::minutes(5);  // at least kLengthMin
  uint32_t faults = kAllFaults;
  // One to three hostile pods beside pods that always have work. What else is drawn is others.
  bool hostile = false;
  bool relay = false;
  // One pod of three with a request has a latency. What else is drawn is as without them.
  bool latencies = false;
  // Faults stop this long before the end, or at half time if that is later.
  Duration calm = std::chrono::seconds(30);
};
// The plan of this seed; it always passes CheckPlan().
Plan Draw(const DrawOptions& options);

// What holds of a plan that can be run; kInvalid with a sentence otherwise.
Result<void> CheckPlan(const Plan& plan);

// For people: a line for each pod and each fault.
std::string Describe(const Plan& plan);
// As JSON, exact; ReadPlan() takes it back. `name` stands for the file in errors.
std::string WritePlan(const Plan& plan);
Result<Plan> ReadPlan(const std::string& text, const std::string& name);

}  // namespace baton::world

#endif  // BATON_WORLD_PLAN_H_
