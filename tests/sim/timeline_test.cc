// The timeline alone, in virtual time: every instant here is exact.
#include "sim/timeline.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <random>
#include <vector>

namespace baton::sim {
namespace {

constexpr int64_t kUs = 1000, kMs = 1'000'000;
constexpr uint64_t kRecords = 4096;

class TimelineTest : public testing::Test {
 protected:
  TimelineTest() {
    const size_t bytes = sizeof(DeviceFile) + kRecords * sizeof(Record);
    // Shared, so that a killed child leaves its half-done work to be seen.
    file_ = static_cast<DeviceFile*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                          MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    bytes_ = bytes;
    file_->slice_ns = 2 * kMs;
    file_->memory_bytes = 1000;
    file_->record_capacity = kRecords;
    file_->records_offset = sizeof(DeviceFile);
    timeline_ = new Timeline(file_);
    timeline_->AdvanceTo(0);
  }
  ~TimelineTest() override {
    delete timeline_;
    munmap(file_, bytes_);
  }

  int NewContext(uint64_t pid) { return timeline_->CreateContext(timeline_->AttachProcess(pid)); }

  Submitted Launch(int context, int64_t duration, std::vector<Submitted> deps = {},
                   uint64_t flags = 0, OpKind kind = OpKind::kKernel) {
    OpRequest request;
    request.kind = kind;
    request.duration = duration;
    request.flags = flags;
    for (const Submitted& dep : deps) {
      request.deps[request.dep_count] = dep.ref;
      request.dep_sequences[request.dep_count++] = dep.sequence;
    }
    return timeline_->Submit(context, slots_[context]++ % kOpsPerContext, request);
  }

  struct Span {
    int64_t start, end;
    bool operator==(const Span&) const = default;
  };
  // Start and end of everything that the context has finished, by operation.
  std::map<OpRef, Completion> Finished(int context) {
    std::map<OpRef, Completion> all;
    Completion c;
    while (timeline_->Collect(context, &c)) all[c.ref] = c;
    return all;
  }
  static Span SpanOf(const Completion& c) { return {c.started_at, c.ended_at}; }

  DeviceFile* file_;
  size_t bytes_;
  Timeline* timeline_;
  std::map<int, int> slots_;
};

TEST_F(TimelineTest, KernelsEndAtTheirExactInstantsHoweverLateOneLooks) {
  const int c = NewContext(1);
  const Submitted a = Launch(c, 100 * kUs), b = Launch(c, 50 * kUs, {a});
  timeline_->AdvanceTo(1000 * kMs);
  auto finished = Finished(c);
  EXPECT_EQ((Span{0, 100 * kUs}), SpanOf(finished[a.ref]));
  EXPECT_EQ((Span{100 * kUs, 150 * kUs}), SpanOf(finished[b.ref]));
}

TEST_F(TimelineTest, LookingOftenChangesNothing) {
  const int c = NewContext(1), d = NewContext(2);
  std::vector<Submitted> all;
  for (int i = 0; i < 20; ++i) all.push_back(Launch(i % 2 ? c : d, (i + 1) * 300 * kUs));
  for (int64_t t = 0; t <= 100 * kMs; t += 37 * kUs) timeline_->AdvanceTo(t);
  auto often_c = Finished(c), often_d = Finished(d);
  // The same once more, seen in one look. Instants are relative to the submission.
  const int64_t base = 100 * kMs + 37 * kUs;
  timeline_->AdvanceTo(base);
  std::vector<Submitted> again;
  for (int i = 0; i < 20; ++i) again.push_back(Launch(i % 2 ? c : d, (i + 1) * 300 * kUs));
  timeline_->AdvanceTo(base + 100 * kMs);
  auto once_c = Finished(c), once_d = Finished(d);
  for (size_t i = 0; i < all.size(); ++i) {
    const Completion& before = (i % 2 ? often_c : often_d)[all[i].ref];
    const Completion& after = (i % 2 ? once_c : once_d)[again[i].ref];
    EXPECT_EQ(before.started_at + base, after.started_at) << i;
    EXPECT_EQ(before.ended_at + base, after.ended_at) << i;
  }
}

TEST_F(TimelineTest, ContextsShareTheEngineBySlices) {
  const int c = NewContext(1), d = NewContext(2);
  const Submitted a = Launch(c, 5 * kMs), b = Launch(d, 3 * kMs);
  timeline_->AdvanceTo(100 * kMs);
  // a runs 0-2, 4-6, 7-8; b runs 2-4, 6-7.
  EXPECT_EQ((Span{0, 8 * kMs}), SpanOf(Finished(c)[a.ref]));
  EXPECT_EQ((Span{2 * kMs, 7 * kMs}), SpanOf(Finished(d)[b.ref]));
  EXPECT_EQ(8 * kMs, file_->busy_total.Signed());
  ASSERT_EQ(2u, file_->record_count);
  EXPECT_EQ(3 * kMs, file_->Records()[0].busy_ns);
  EXPECT_EQ(5 * kMs, file_->Records()[1].busy_ns);
}

TEST_F(TimelineTest, ANewcomerWaitsForTheRestOfTheRunningSlice) {
  const int c = NewContext(1), d = NewContext(2);
  Launch(c, 50 * kMs);
  timeline_->AdvanceTo(7 * kMs);
  const Submitted b = Launch(d, kMs);
  timeline_->AdvanceTo(100 * kMs);
  EXPECT_EQ((Span{8 * kMs, 9 * kMs}), SpanOf(Finished(d)[b.ref]));
}

TEST_F(TimelineTest, ASwitchToAnotherContextTakesItsTime) {
  file_->switch_ns = 100 * kUs;
  const int c = NewContext(1), d = NewContext(2);
  const Submitted a = Launch(c, 300 * kUs);  // nobody was there before
  const Submitted b = Launch(d, 200 * kUs);
  timeline_->AdvanceTo(10 * kMs);
  const Submitted again = Launch(d, kMs);  // it is there still
  const Submitted back = Launch(c, kMs);
  timeline_->AdvanceTo(100 * kMs);
  auto of_c = Finished(c), of_d = Finished(d);
  EXPECT_EQ((Span{0, 300 * kUs}), SpanOf(of_c[a.ref]));
  EXPECT_EQ((Span{400 * kUs, 600 * kUs}), SpanOf(of_d[b.ref]));
  EXPECT_EQ((Span{10 * kMs, 11 * kMs}), SpanOf(of_d[again.ref]));
  EXPECT_EQ((Span{11 * kMs + 100 * kUs, 12 * kMs + 100 * kUs}), SpanOf(of_c[back.ref]));
  EXPECT_EQ(2'500 * kUs, file_->busy_total.Signed());
}

TEST_F(TimelineTest, SlicesBeginWhenTheSwitchIsOver) {
  file_->switch_ns = 100 * kUs;
  const int c = NewContext(1), d = NewContext(2);
  const Submitted a = Launch(c, 5 * kMs), b = Launch(d, 3 * kMs);
  timeline_->AdvanceTo(100 * kMs);
  // a runs 0-2, 4.2-6.2, 7.4-8.4; b runs 2.1-4.1, 6.3-7.3.
  EXPECT_EQ((Span{0, 8'400 * kUs}), SpanOf(Finished(c)[a.ref]));
  EXPECT_EQ((Span{2'100 * kUs, 7'300 * kUs}), SpanOf(Finished(d)[b.ref]));
  EXPECT_EQ(8 * kMs, file_->busy_total.Signed());
}

TEST_F(TimelineTest, AnEventWaitsForTheSwitchToItsContext) {
  file_->switch_ns = 100 * kUs;
  const int c = NewContext(1), d = NewContext(2);
  Launch(c, 300 * kUs);
  const Submitted before = Launch(d, 0, {}, 0, OpKind::kMarker);
  const Submitted kernel = Launch(d, 200 * kUs, {before});
  const Submitted after = Launch(d, 0, {kernel}, 0, OpKind::kMarker);
  for (int64_t t = 0; t <= kMs; t += 7 * kUs) timeline_->AdvanceTo(t);
  auto finished = Finished(d);
  EXPECT_EQ(400 * kUs, finished[before.ref].ended_at);
  EXPECT_EQ((Span{400 * kUs, 600 * kUs}), SpanOf(finished[kernel.ref]));
  EXPECT_EQ(600 * kUs, finished[after.ref].ended_at);
  EXPECT_EQ(2u, file_->record_count);  // of kernels
  const Submitted there = Launch(d, 0, {}, 0, OpKind::kMarker);
  EXPECT_EQ(kMs - kMs % (7 * kUs), Finished(d)[there.ref].ended_at);
}

// Whoever looks when: the counter says what was taken up to the last 100 ms.
TEST_F(TimelineTest, TheEnergyCounterMovesInSteps) {
  const int c = timeline_->CreateContext(timeline_->AttachProcess(1), 575);
  const int d = timeline_->CreateContext(timeline_->AttachProcess(2), 175);
  const auto idle = [](int64_t ms) { return kIdleWatts * static_cast<uint64_t>(ms); };
  timeline_->AdvanceTo(150 * kMs);
  Launch(c, 100 * kMs);  // 500 W beyond idle until 250 ms
  for (const auto& [at_ms, beyond_mj] :
       std::vector<std::pair<int64_t, uint64_t>>{{199, 0}, {200, 25'000}, {249, 25'000}}) {
    timeline_->AdvanceTo(at_ms * kMs);
    EXPECT_EQ(CountedMillijoules(*file_), idle(at_ms / 100 * 100) + beyond_mj) << at_ms;
  }
  timeline_->AdvanceTo(260 * kMs);
  Launch(d, 20 * kMs);  // 100 W beyond idle, within one step
  timeline_->AdvanceTo(290 * kMs);
  EXPECT_EQ(CountedMillijoules(*file_), idle(200) + 25'000);
  timeline_->AdvanceTo(400 * kMs);
  EXPECT_EQ(CountedMillijoules(*file_), idle(400) + 52'000);
  Launch(d, 150 * kMs);  // begins at the edge of a step
  for (int64_t at = 401; at < 500; at += 7) {
    timeline_->AdvanceTo(at * kMs);
    EXPECT_EQ(CountedMillijoules(*file_), idle(400) + 52'000) << at;
  }
  timeline_->AdvanceTo(1000 * kMs);
  EXPECT_EQ(CountedMillijoules(*file_), idle(1000) + 67'000);
}

TEST_F(TimelineTest, AnIdleContextGivesTheEngineUpAtOnce) {
  const int c = NewContext(1), d = NewContext(2);
  Launch(c, 300 * kUs);
  const Submitted b = Launch(d, kMs);
  timeline_->AdvanceTo(100 * kMs);
  EXPECT_EQ((Span{300 * kUs, 1300 * kUs}), SpanOf(Finished(d)[b.ref]));
}

TEST_F(TimelineTest, KernelsThatTakeTheWholeGpuRunOneAtATimeAndSmallOnesBesideThem) {
  const int c = NewContext(1);
  const Submitted a = Launch(c, kMs, {}, kConcurrent), b = Launch(c, kMs, {}, kConcurrent),
                  x = Launch(c, 3 * kMs), z = Launch(c, kMs, {}, kConcurrent), y = Launch(c, kMs),
                  last = Launch(c, kMs, {}, kConcurrent);
  EXPECT_EQ(3 * kMs, timeline_->EarliestEnd(x.ref));
  EXPECT_EQ(4 * kMs, timeline_->EarliestEnd(y.ref));
  timeline_->AdvanceTo(100 * kMs);
  auto finished = Finished(c);
  EXPECT_EQ((Span{0, kMs}), SpanOf(finished[a.ref]));
  EXPECT_EQ((Span{0, kMs}), SpanOf(finished[b.ref]));
  EXPECT_EQ((Span{0, 3 * kMs}), SpanOf(finished[x.ref]));
  EXPECT_EQ((Span{0, kMs}), SpanOf(finished[z.ref]));
  EXPECT_EQ((Span{3 * kMs, 4 * kMs}), SpanOf(finished[y.ref]));
  // Nothing starts before what became ready before it.
  EXPECT_EQ((Span{3 * kMs, 4 * kMs}), SpanOf(finished[last.ref]));
  EXPECT_EQ(4 * kMs, file_->busy_total.Signed());
}

TEST_F(TimelineTest, AKernelThatWaitsForAnotherDoesNotKeepItFromRunning) {
  const int c = NewContext(1);
  const Submitted waits = Launch(c, kUs, {}, kConcurrent | kGated), x = Launch(c, kMs);
  timeline_->AdvanceTo(2 * kMs);
  EXPECT_EQ((Span{0, kMs}), SpanOf(Finished(c)[x.ref]));
  timeline_->Release(waits.ref);
  timeline_->AdvanceTo(3 * kMs);
  EXPECT_EQ((Span{0, 2 * kMs + kUs}), SpanOf(Finished(c)[waits.ref]));
}

TEST_F(TimelineTest, CopiesRunBesideKernelsOnAnEngineForEachDirection) {
  const int c = NewContext(1);
  const Submitted k = Launch(c, 5 * kMs), in = Launch(c, kMs, {}, 0, OpKind::kCopyIn),
                  in2 = Launch(c, kMs, {}, 0, OpKind::kCopyIn),
                  out = Launch(c, kMs, {}, 0, OpKind::kCopyOut);
  timeline_->AdvanceTo(100 * kMs);
  auto finished = Finished(c);
  EXPECT_EQ((Span{0, 5 * kMs}), SpanOf(finished[k.ref]));
  EXPECT_EQ((Span{0, kMs}), SpanOf(finished[in.ref]));
  EXPECT_EQ((Span{kMs, 2 * kMs}), SpanOf(finished[in2.ref]));
  EXPECT_EQ((Span{0, kMs}), SpanOf(finished[out.ref]));
}

TEST_F(TimelineTest, AGateHoldsWhatFollowsUntilItIsReleased) {
  const int c = NewContext(1);
  const Submitted gate = Launch(c, 0, {}, 0, OpKind::kGate), k = Launch(c, kMs, {gate});
  timeline_->AdvanceTo(10 * kMs);
  EXPECT_TRUE(Finished(c).empty());
  EXPECT_EQ(kForever, timeline_->EarliestEnd(gate.ref));
  timeline_->Release(gate.ref);
  timeline_->AdvanceTo(20 * kMs);
  EXPECT_EQ((Span{10 * kMs, 11 * kMs}), SpanOf(Finished(c)[k.ref]));
}

TEST_F(TimelineTest, AMarkerEndsWithTheLastOfWhatItJoins) {
  const int c = NewContext(1);
  const Submitted k = Launch(c, 3 * kMs), copy = Launch(c, 4 * kMs, {}, 0, OpKind::kCopyOut),
                  marker = Launch(c, 0, {k, copy}, 0, OpKind::kMarker);
  timeline_->AdvanceTo(100 * kMs);
  EXPECT_EQ(4 * kMs, Finished(c)[marker.ref].ended_at);
}

TEST_F(TimelineTest, AFaultTakesDownItsOwnContextAlone) {
  const int c = NewContext(1), d = NewContext(2);
  const Submitted bad = Launch(c, kMs, {}, kFaults), after = Launch(c, kMs, {bad}),
                  other = Launch(d, kMs);
  timeline_->AdvanceTo(100 * kMs);
  auto finished = Finished(c);
  EXPECT_TRUE(finished[bad.ref].flags & kFaulted);
  EXPECT_TRUE(finished[after.ref].flags & kDropped);
  EXPECT_EQ(700u, file_->contexts[c].error);
  EXPECT_TRUE(Finished(d)[other.ref].flags & kCompleted);
  EXPECT_EQ(0u, file_->contexts[d].error);
}

TEST_F(TimelineTest, AHungKernelKeepsOnlyItsSlices) {
  const int c = NewContext(1), d = NewContext(2);
  Launch(c, kForever);
  const Submitted b = Launch(d, 6 * kMs);
  timeline_->AdvanceTo(100 * kMs);
  EXPECT_EQ((Span{2 * kMs, 12 * kMs}), SpanOf(Finished(d)[b.ref]));
  EXPECT_TRUE(Finished(c).empty());
}

TEST_F(TimelineTest, ADeadProcessRunsItsKernelOutAndNothingMore) {
  const int process = timeline_->AttachProcess(77), c = timeline_->CreateContext(process);
  const int d = NewContext(2);
  ASSERT_TRUE(timeline_->ChargeMemory(process, 600));
  const Submitted a = Launch(c, 10 * kMs);
  Launch(c, 10 * kMs, {a});
  timeline_->AdvanceTo(kMs);
  timeline_->ProcessDied(process);
  EXPECT_EQ(static_cast<uint64_t>(SlotState::kDying), file_->processes[process].state);
  EXPECT_EQ(600u, file_->memory_used);
  const Submitted b = Launch(d, kMs);
  timeline_->AdvanceTo(100 * kMs);
  EXPECT_EQ(static_cast<uint64_t>(SlotState::kFree), file_->processes[process].state);
  EXPECT_EQ(0u, file_->memory_used);
  ASSERT_EQ(2u, file_->record_count);
  EXPECT_TRUE(Finished(d)[b.ref].flags & kCompleted);
  const Record& last = file_->Records()[1];
  EXPECT_EQ(77u, last.pid);
  EXPECT_EQ(11 * kMs, last.end_ns);
  EXPECT_TRUE(last.flags & kKilled);
}

TEST_F(TimelineTest, AHungKernelOfADeadProcessIsCut) {
  const int process = timeline_->AttachProcess(77), c = timeline_->CreateContext(process);
  Launch(c, kForever);
  timeline_->AdvanceTo(5 * kMs);
  timeline_->ProcessDied(process);
  EXPECT_EQ(static_cast<uint64_t>(SlotState::kFree), file_->processes[process].state);
  ASSERT_EQ(1u, file_->record_count);
  EXPECT_EQ(5 * kMs, file_->Records()[0].end_ns);
}

TEST_F(TimelineTest, ADeadProcessMayHaveMoreQueuedThanTheUndoLogHolds) {
  const int process = timeline_->AttachProcess(77);
  ASSERT_TRUE(timeline_->ChargeMemory(process, 600));
  for (int i = 0; i < 8; ++i) {
    const int c = timeline_->CreateContext(process);
    Submitted last = Launch(c, kForever);
    for (int k = 1; k < kOpsPerContext; ++k) last = Launch(c, kMs, {last});
  }
  timeline_->ProcessDied(process);
  EXPECT_EQ(static_cast<uint64_t>(SlotState::kFree), file_->processes[process].state);
  EXPECT_EQ(0u, file_->memory_used);
  EXPECT_EQ(0u, file_->current);
}

TEST_F(TimelineTest, ALookerKilledOverADeadProcessLeavesTheRestToTheNext) {
  int killed = 0;
  for (int64_t n = 1; n < 3000; ++n) {
    const int process = timeline_->AttachProcess(77);
    ASSERT_TRUE(timeline_->ChargeMemory(process, 600));
    for (int i = 0; i < 3; ++i) {
      const int c = timeline_->CreateContext(process);
      slots_[c] = 0;
      Launch(c, kMs, {Launch(c, kForever)});
    }
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      Undo::KillAtWriteForTest(n);
      timeline_->ProcessDied(process);
      _exit(0);
    }
    int status;
    ASSERT_EQ(child, waitpid(child, &status, 0));
    timeline_->Recover();
    timeline_->ProcessDied(process);
    ASSERT_EQ(static_cast<uint64_t>(SlotState::kFree), file_->processes[process].state) << n;
    ASSERT_EQ(0u, file_->memory_used) << n;
    ASSERT_EQ(0u, file_->active_count) << n;
    ASSERT_EQ(0u, file_->current) << n;
    if (WIFEXITED(status)) break;
    ++killed;
  }
  EXPECT_GT(killed, 30);
}

TEST_F(TimelineTest, MemoryIsOneCapacityForAll) {
  const int a = timeline_->AttachProcess(1), b = timeline_->AttachProcess(2);
  EXPECT_TRUE(timeline_->ChargeMemory(a, 700));
  EXPECT_FALSE(timeline_->ChargeMemory(b, 301));
  EXPECT_TRUE(timeline_->ChargeMemory(b, 300));
  timeline_->ReleaseMemory(a, 700);
  EXPECT_TRUE(timeline_->ChargeMemory(b, 700));
}

TEST_F(TimelineTest, InjectedFaultsMeetTheRunningOrTheNextKernel) {
  const int c = NewContext(5), d = NewContext(6);
  EXPECT_FALSE(timeline_->Inject(99, Injection::kHang));
  Launch(c, 10 * kMs);
  timeline_->AdvanceTo(kMs);
  EXPECT_TRUE(timeline_->Inject(5, Injection::kIllegalAddress));
  EXPECT_EQ(700u, file_->contexts[c].error);
  EXPECT_TRUE(timeline_->Inject(6, Injection::kIllegalAddress));
  EXPECT_EQ(0u, file_->contexts[d].error);
  Launch(d, kMs);
  timeline_->AdvanceTo(2 * kMs);
  EXPECT_EQ(700u, file_->contexts[d].error);
}

TEST_F(TimelineTest, TheGpuNeverRestsWhileThereIsWork) {
  std::vector<int> contexts;
  for (uint64_t pid = 1; pid <= 5; ++pid) contexts.push_back(NewContext(pid));
  std::mt19937_64 random(7);
  int64_t work = 0, now = 0;
  std::map<int, Submitted> last;
  for (int i = 0; i < 2000; ++i) {
    const int c = contexts[random() % contexts.size()];
    const int64_t duration = 1 + static_cast<int64_t>(random() % (3 * kMs));
    last[c] = last.count(c) ? Launch(c, duration, {last[c]}) : Launch(c, duration);
    work += duration;
    now += static_cast<int64_t>(random() % kMs);
    timeline_->AdvanceTo(now);
    Finished(c);
  }
  timeline_->AdvanceTo(now + 2 * work);
  EXPECT_EQ(work, file_->busy_total.Signed());
  int64_t busy = 0;
  for (uint64_t i = 0; i < file_->record_count; ++i) busy += file_->Records()[i].busy_ns;
  EXPECT_EQ(work, busy);
}

// A process may die at any write to the shared state. Whoever comes next must find it whole.
TEST_F(TimelineTest, AKillAtAnyWriteLeavesAStateThatGoesOn) {
  const int survivor = NewContext(1);
  int killed = 0;
  for (int64_t n = 1; n < 3000; ++n) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      Undo::KillAtWriteForTest(n);
      const int process = timeline_->AttachProcess(1000 + static_cast<uint64_t>(n));
      const int c = timeline_->CreateContext(process);
      timeline_->ChargeMemory(process, 100);
      slots_[c] = 0;
      const int64_t now = file_->now.Signed();
      const Submitted a = Launch(c, kMs), copy = Launch(c, kMs, {a}, 0, OpKind::kCopyIn),
                      gate = Launch(c, 0, {copy}, 0, OpKind::kGate);
      Launch(c, kMs, {gate, a});
      timeline_->AdvanceTo(now + 4 * kMs);
      timeline_->Release(gate.ref);
      timeline_->AdvanceTo(now + 6 * kMs);
      Finished(c);
      Launch(c, kMs, {}, kFaults);
      Launch(c, 5 * kMs);
      timeline_->AdvanceTo(now + 10 * kMs);
      timeline_->DestroyContext(c);
      _exit(0);
    }
    int status;
    ASSERT_EQ(child, waitpid(child, &status, 0));
    timeline_->Recover();
    for (int i = 0; i < kMaxProcesses; ++i) {
      if (file_->processes[i].pid >= 1000) timeline_->ProcessDied(i);
    }
    const int64_t now = file_->now.Signed();
    const Submitted mine = Launch(survivor, kMs);
    timeline_->AdvanceTo(now + 100 * kMs);
    auto finished = Finished(survivor);
    ASSERT_EQ(1u, finished.count(mine.ref)) << "killed at write " << n;
    ASSERT_TRUE(finished[mine.ref].flags & kCompleted) << n;
    ASSERT_EQ(0u, file_->memory_used) << n;
    ASSERT_EQ(0u, file_->active_count) << n;
    ASSERT_EQ(0u, file_->current) << n;
    for (int i = 0; i < kMaxContexts; ++i) {
      if (i == survivor) continue;
      ASSERT_EQ(static_cast<uint64_t>(SlotState::kFree), file_->contexts[i].state) << n;
    }
    if (WIFEXITED(status)) {
      ASSERT_EQ(0, WEXITSTATUS(status));
      break;
    }
    ++killed;
  }
  EXPECT_GT(killed, 100);
}

}  // namespace
}  // namespace baton::sim
