// What a measurement was denied, by made-up figures and beside a program that takes its processor.
#include "bench/denied_time.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

namespace baton::bench {
namespace {

using std::chrono::milliseconds;

TEST(DeniedByOthers, IsAllThatWasWaitedWhereOthersHadTheProcessors) {
  // It waited for 300 ms and ran for hardly any; two processors were busy for a second each.
  const Duration denied = DeniedByOthers({.waited = milliseconds(300),
                                          .ran = milliseconds(20),
                                          .busy = milliseconds(2000),
                                          .stolen = milliseconds(0)});
  EXPECT_EQ(denied, milliseconds(297));
}

TEST(DeniedByOthers, IsNothingWhereThreadsWaitForEachOther) {
  EXPECT_EQ(DeniedByOthers({.waited = milliseconds(300),
                            .ran = milliseconds(1000),
                            .busy = milliseconds(1000),
                            .stolen = milliseconds(0)}),
            Duration(0));
  // The counters of processors are coarser.
  EXPECT_EQ(DeniedByOthers({.waited = milliseconds(300),
                            .ran = milliseconds(1000),
                            .busy = milliseconds(990),
                            .stolen = milliseconds(0)}),
            Duration(0));
}

TEST(DeniedByOthers, IsThePartThatOthersHad) {
  EXPECT_EQ(DeniedByOthers({.waited = milliseconds(400),
                            .ran = milliseconds(500),
                            .busy = milliseconds(2000),
                            .stolen = milliseconds(0)}),
            milliseconds(300));
}

TEST(DeniedByOthers, IsWhatWasStolenEvenIfNobodyWaited) {
  EXPECT_EQ(DeniedByOthers({.waited = milliseconds(0),
                            .ran = milliseconds(0),
                            .busy = milliseconds(0),
                            .stolen = milliseconds(40)}),
            milliseconds(40));
}

void Spin(std::chrono::milliseconds time) {
  const Instant until = MonotonicNow() + time;
  while (MonotonicNow() < until) {
  }
}

TEST(DeniedTime, IsMeasuredBesideAProgramThatTakesTheSameProcessor) {
  if (access("/proc/self/schedstat", R_OK) != 0) {
    GTEST_SKIP() << "this kernel does not count what threads wait";
  }
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  // Not a descendant of this process: its parent ends at once.
  int told[2];
  ASSERT_EQ(pipe(told), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    const pid_t hog = fork();
    if (hog == 0) {
      alarm(20);
      for (;;) {
      }
    }
    _exit(write(told[1], &hog, sizeof hog) != sizeof hog);
  }
  pid_t hog = 0;
  ASSERT_EQ(read(told[0], &hog, sizeof hog), static_cast<ssize_t>(sizeof hog));
  ASSERT_EQ(waitpid(parent, nullptr, 0), parent);
  const DeniedTime denied;
  Spin(milliseconds(400));
  const double percent = denied.Percent();
  kill(hog, SIGKILL);
  close(told[0]);
  close(told[1]);
  sched_setaffinity(0, sizeof before, &before);
  // Of two that always want the processor each has half. It is others who had it, so half of the
  // half counts here; when there is more work on this machine it is more.
  EXPECT_GT(percent, 10);
  EXPECT_LE(percent, 100);
}

}  // namespace
}  // namespace baton::bench
