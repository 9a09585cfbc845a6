// What this machine denied a measurement: time in which threads of this program, or of what it
// started, were ready to run while others had the processors. A share that is missing for that
// reason is not Baton's to answer for.
#ifndef BATON_BENCH_DENIED_TIME_H_
#define BATON_BENCH_DENIED_TIME_H_

#include <sys/types.h>

#include <map>

#include "base/time.h"

namespace baton::bench {

// How processors were used for a while.
struct ProcessorUse {
  Duration waited{0};  // of the measured threads: ready to run, and did not
  Duration ran{0};     // of the measured threads
  Duration busy{0};    // of all processors that they may use, whoever ran; with what was stolen
  Duration stolen{0};  // by the hypervisor, for other machines
};

// What was denied by others: of the time waited the part that others had of the busy processors,
// for threads that wait for each other are the measured work's own matter; and what was stolen.
Duration DeniedByOthers(const ProcessorUse& use);

// The points by which a share may fall short for that: as much as `idle` points of the device are,
// by its own record, and no more than `denied` points.
double ExcusedPoints(double idle, double denied);
// A measurement that is excused more points says nothing about Baton.
inline constexpr double kDisturbedPoints = 10;

// From its construction on, for this process and all its descendants. By the kernel's counters
// (/proc/PID/task/TID/schedstat, /proc/stat): where they are missing nothing was denied. A thread
// that ends takes its count along.
class DeniedTime {
 public:
  DeniedTime();
  // The sum over all threads.
  Duration SoFar() const;
  // The same in percent of the time since then, 100 at most: the points of a share that a thread
  // which ran nothing meanwhile may have lost.
  double Percent() const;

 private:
  struct Thread {
    Duration ran{0};
    Duration waited{0};
  };
  struct Processors {
    int count = 0;
    Duration idle{0};
    Duration stolen{0};
  };
  static std::map<pid_t, Thread> ReadThreads();
  static Processors ReadProcessors();

  const Instant since_;
  const std::map<pid_t, Thread> threads_;
  const Processors processors_;
};

}  // namespace baton::bench

#endif  // BATON_BENCH_DENIED_TIME_H_
