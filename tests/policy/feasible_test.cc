// Which latencies can be met together, against runs of the same tasks.
#include "policy/feasible.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace baton::policy {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

LatencyTask Task(int hold_ms, int percent, int latency_ms) {
  return {milliseconds(hold_ms), Share(percent * 10'000), milliseconds(latency_ms)};
}

// A job: it comes, is to begin, and holds so long.
struct Job {
  int64_t comes, deadline, hold;
  size_t task;
};

// Who begins later than its deadline, where the earliest deadline goes first and none is stopped;
// of equal ones `last` goes last. The GPU is taken until `blocked`.
std::vector<bool> WhoIsLate(std::vector<Job> jobs, size_t tasks, int64_t blocked, size_t last) {
  std::vector<bool> late(tasks, false);
  int64_t now = blocked;
  while (!jobs.empty()) {
    auto best = jobs.end();
    int64_t soonest = INT64_MAX;
    for (auto job = jobs.begin(); job != jobs.end(); ++job) {
      soonest = std::min(soonest, job->comes);
      // Who comes just after the blocking hold has begun, comes at 0.
      if (job->comes > now) continue;
      const auto key = [&](const Job& j) { return std::pair(j.deadline, j.task == last); };
      if (best == jobs.end() || key(*job) < key(*best)) best = job;
    }
    if (best == jobs.end()) {
      now = soonest;
      continue;
    }
    if (now > best->deadline) late[best->task] = true;
    now += best->hold;
    jobs.erase(best);
  }
  return late;
}

int64_t PeriodOf(const LatencyTask& task) {
  return Nanos(task.hold) * kMillion / task.rate.millionths();
}

// Each task's jobs from `from` on, as close as they may be, or with pauses.
std::vector<Job> JobsOf(const std::vector<LatencyTask>& tasks, const std::vector<int64_t>& from,
                        int64_t until, std::mt19937_64* pauses) {
  std::vector<Job> jobs;
  for (size_t i = 0; i < tasks.size(); ++i) {
    for (int64_t at = from[i]; at <= until; at += PeriodOf(tasks[i])) {
      jobs.push_back({at, at + Nanos(tasks[i].latency), Nanos(tasks[i].hold), i});
      if (pauses != nullptr) at += static_cast<int64_t>((*pauses)() % 4) * 1'000'000;
    }
  }
  return jobs;
}

std::vector<LatencyTask> Drawn(std::mt19937_64& random, bool alike) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint64_t>(n)); };
  std::vector<LatencyTask> tasks(static_cast<size_t>(1 + below(4)));
  const int hold = 1 + below(4);
  int left = 20;  // twentieths of the GPU
  for (size_t i = 0; i < tasks.size(); ++i) {
    const int most = left - static_cast<int>(tasks.size() - i - 1);
    const int part = 1 + below(std::max(1, most * 2 / 3));
    left -= part;
    tasks[i] = Task(alike ? hold : 1 + below(4), part * 5, 1 + below(20));
  }
  return tasks;
}

TEST(Feasible, APodAloneBeginsAtOnceAndOneBesideAnotherAfterWhatThatOneKeeps) {
  const std::vector<LatencyTask> tasks{Task(1, 10, 10)};
  EXPECT_FALSE(FirstMissed(tasks, 0, Duration(0)));
  EXPECT_FALSE(FirstMissed(tasks, 0, milliseconds(10)));
  const auto missed = FirstMissed(tasks, 0, milliseconds(11));
  ASSERT_TRUE(missed);
  EXPECT_EQ(missed->at, milliseconds(10));
  EXPECT_EQ(missed->begins, milliseconds(11));
}

TEST(Feasible, WhoHasTheLongerLatencyWaitsForTheOthers) {
  // At once: 3 ms within 3 ms, but not within 2 ms.
  const std::vector<LatencyTask> three(4, Task(1, 20, 3));
  for (size_t i = 0; i < 4; ++i) EXPECT_FALSE(FirstMissed(three, i, Duration(0)));
  const std::vector<LatencyTask> two(4, Task(1, 20, 2));
  EXPECT_TRUE(FirstMissed(two, 0, Duration(0)));
  // That some are late makes nobody late who may wait until they have been served.
  const std::vector<LatencyTask> patient{Task(1, 20, 1), Task(1, 20, 1), Task(1, 20, 1),
                                         Task(1, 20, 1), Task(1, 10, 20)};
  EXPECT_TRUE(FirstMissed(patient, 0, Duration(0)));
  EXPECT_FALSE(FirstMissed(patient, 4, Duration(0)));
  // A short one is not kept by those who may wait longer, but by the one that has begun.
  const std::vector<LatencyTask> mixed{Task(1, 10, 2), Task(5, 40, 20), Task(5, 40, 20)};
  EXPECT_FALSE(FirstMissed(mixed, 0, milliseconds(2)));
  EXPECT_TRUE(FirstMissed(mixed, 0, milliseconds(3)));
  EXPECT_FALSE(FirstMissed(mixed, 1, milliseconds(3)));
}

TEST(Feasible, LaterDeadlinesCountWhereTheRequestsTakeMostOfTheGpu) {
  // The first deadlines are kept: 4 + 4 ms begin by 4 ms; at 11 ms the third job is in the way.
  const std::vector<LatencyTask> tasks{Task(4, 90, 7), Task(4, 10, 11)};
  const auto missed = FirstMissed(tasks, 1, milliseconds(4));
  ASSERT_TRUE(missed);
  EXPECT_GT(missed->at, milliseconds(10));
}

// Whatever comes when, nobody is late of whom it is said.
TEST(Feasible, WhoIsSaidToBeInTimeIsSoInEveryRun) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  int in_time = 0;
  for (int n = 0; n < 3'000; ++n) {
    const auto tasks = Drawn(random, false);
    const auto blocking = static_cast<int64_t>(random() % 6) * 1'000'000;
    std::vector<int64_t> from(tasks.size());
    for (int64_t& at : from) at = n % 3 == 0 ? 0 : static_cast<int64_t>(random() % 12) * 1'000'000;
    const auto jobs = JobsOf(tasks, from, 150'000'000, n % 2 == 0 ? nullptr : &random);
    for (size_t i = 0; i < tasks.size(); ++i) {
      // Who has a later deadline than it may have begun as well.
      Duration most(blocking);
      for (const LatencyTask& other : tasks) most = std::max(most, other.hold);
      if (FirstMissed(tasks, i, most)) continue;
      ++in_time;
      EXPECT_FALSE(WhoIsLate(jobs, tasks.size(), blocking, i)[i]) << "case " << n << ", task " << i;
    }
  }
  EXPECT_GT(in_time, 300) << "or nothing was tried";
}

// Where all hold alike, what is said to be missed is: somebody is late in the run in which all
// have come at once and the one in question so that its deadline is the one that is missed.
TEST(Feasible, WhatIsSaidToBeMissedIsMissed) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  int missed = 0;
  for (int n = 0; n < 3'000; ++n) {
    const auto tasks = Drawn(random, true);
    const auto blocking = static_cast<int64_t>(random() % 6) * 1'000'000;
    for (size_t i = 0; i < tasks.size(); ++i) {
      const auto at = FirstMissed(tasks, i, Duration(blocking));
      if (!at) continue;
      ++missed;
      std::vector<int64_t> from(tasks.size(), 0);
      from[i] = (Nanos(at->at) - Nanos(tasks[i].latency)) % PeriodOf(tasks[i]);
      const auto late =
          WhoIsLate(JobsOf(tasks, from, Nanos(at->at), nullptr), tasks.size(), blocking, i);
      EXPECT_NE(std::find(late.begin(), late.end(), true), late.end())
          << "case " << n << ", task " << i;
    }
  }
  EXPECT_GT(missed, 300) << "or nothing was tried";
}

TEST(Feasible, TheWholeGpuAndTheSmallestRequestsAreAnswered) {
  std::vector<LatencyTask> tasks(10, {milliseconds(1), Share(100'000), milliseconds(10)});
  EXPECT_FALSE(FirstMissed(tasks, 0, milliseconds(1)));
  tasks.assign(1'000, {Duration(1'000), kShareMin, milliseconds(1)});
  EXPECT_FALSE(FirstMissed(tasks, 999, Duration(0)));
  EXPECT_TRUE(FirstMissed(tasks, 999, microseconds(2)));
}

}  // namespace
}  // namespace baton::policy
