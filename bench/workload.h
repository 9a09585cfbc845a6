// What one process of baton-burn does: threads that launch kernels of a known length in bursts, and
// count what was completed inside the measured window.
#ifndef BATON_BENCH_WORKLOAD_H_
#define BATON_BENCH_WORKLOAD_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "bench/collective.h"
#include "bench/driver.h"

namespace baton::bench {

enum class Spread { kUniform, kLognormal };

// When a thread waits for what it launched.
enum class Sync {
  kNone,      // only at the ends of the warm-up and of the run
  kLaunch,    // after each launch
  kBurst,     // after each burst
  kInFlight,  // for the launch `in_flight` launches ago: a program that always queues ahead
};

// With what it waits.
enum class SyncBy { kStream, kEvent, kContext };

struct Workload {
  Resolve resolve = Resolve::kDlsym;
  bool per_thread = false;         // launch to the thread's own default stream
  std::vector<int> devices = {0};  // each has its own threads

  Duration kernel = std::chrono::milliseconds(1);  // mean length of a kernel, 1 us to 1 h
  double spread = 0;  // uniform: ± this part of the length, 0 to 1; lognormal: sigma of the log
  Spread spread_shape = Spread::kUniform;
  uint64_t seed = 1;

  int burst = 10;           // launches per burst, at least 1
  Duration pause{};         // from the end of a burst to the start of the next
  Duration period{};        // if not zero: bursts start this far apart (when not late)
  int graph = 0;            // kernels per graph; 0: single launches
  uint64_t copy_bytes = 0;  // copied host to device before each burst
  Sync sync = Sync::kInFlight;
  int in_flight = 8;  // for Sync::kInFlight, at least 1
  SyncBy sync_by = SyncBy::kStream;
  bool spin = false;  // the driver's waits spin instead of sleeping

  int threads = 1;            // per device
  int streams = 1;            // per thread; 0: the default stream
  uint64_t memory_bytes = 0;  // on each device, held for the whole run

  // After every so many launches each thread's stream meets those of its peers. 0: never. Else one
  // thread per device, and at most one stream.
  int collective = 0;
  Collective* ranks = nullptr;                   // if collective > 0; outlives the run
  int rank = 0;                                  // of the first device's thread; the next follow
  Duration patience = std::chrono::seconds(20);  // for one collective
  // Called when a collective takes longer, with the reason. The threads that wait in it cannot be
  // ended, so it must end the process, by _exit.
  std::function<void(const std::string& reason)> stalled;

  Duration warmup{};          // not measured
  Instant start_at = kNever;  // if set: the measured window starts here, and warmup is ignored
  Duration length = std::chrono::seconds(10);  // of the measured window
  uint64_t bursts_max = 0;                     // per thread in the window; 0: no bound
  Duration fault_after{};  // if not zero: an illegal store this long after the window's start
  bool verify = false;     // each burst also counts on the device; checked at the end
};

// What was completed in the window, by all threads of a process.
struct Tally {
  uint64_t launches = 0;
  uint64_t bursts = 0;
  std::map<int, int64_t> work_ns;  // by device: sum of the lengths of the kernels completed
  int64_t elapsed_ns = 0;          // length of the window as it came out
  // Per burst waited for: submission to completion minus its kernels' lengths, so: the time it
  // waited for the GPU, with the driver's own overhead. Empty unless Sync::kBurst or kLaunch.
  std::vector<int64_t> waits_ns;
  bool verified = false;  // `verify` was asked for, and every counter was right
  std::string error;      // the first thing that went wrong; empty: nothing
};

// Live counters, for progress reports from another thread.
struct Progress {
  std::atomic<uint64_t> launches{0};
  std::atomic<int64_t> work_ns{0};
};

// Runs until the window is over, `stop` is set, or something fails. What was completed before a
// failure is in the tally. kNotFound: there is no driver.
Result<Tally> RunWorkload(const Workload& workload, const std::atomic<bool>& stop,
                          Progress* progress);

}  // namespace baton::bench

#endif  // BATON_BENCH_WORKLOAD_H_
