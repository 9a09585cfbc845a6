#include "base/short_slice.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/utsname.h>

#include <cstdio>
#include <thread>

namespace baton {
namespace {

// As the kernel has it for the calling thread.
uint64_t SliceNow() {
  SchedAttributes attributes = {};
  EXPECT_EQ(syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0), 0);
  return attributes.runtime;
}

// In a thread of its own: the others keep theirs.
TEST(ShortSlice, IsTheThreadsAndThatOfThoseThatItStarts) {
  utsname name;
  ASSERT_EQ(uname(&name), 0);
  int major = 0, minor = 0;
  ASSERT_EQ(sscanf(name.release, "%d.%d", &major, &minor), 2) << name.release;
  const bool known = major > 6 || (major == 6 && minor >= 12);
  const uint64_t before = SliceNow();
  std::thread([&] {
    const bool used = UseShortSlice();
    EXPECT_FALSE(used && !known) << name.release;
    if (!used) {
      EXPECT_NE(SliceNow(), 100'000u);
      printf("Linux %s gives no short slices here\n", name.release);
      return;
    }
    EXPECT_EQ(SliceNow(), 100'000u);
    std::thread([] { EXPECT_EQ(SliceNow(), 100'000u); }).join();
    EXPECT_TRUE(UseShortSlice()) << "again";
  }).join();
  EXPECT_EQ(SliceNow(), before);
}

TEST(PromptWaking, LeavesTheThreadAsItWas) {
  ASSERT_EQ(prctl(PR_SET_TIMERSLACK, 40'000, 0, 0, 0), 0);
  const uint64_t slice = SliceNow();
  const int nice = getpriority(PRIO_PROCESS, 0);
  PromptWaking prompt;
  for (int i = 0; i < 2; ++i) {
    prompt.Begin();
    prompt.Begin();
    EXPECT_EQ(prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0), 1);
    if (slice != 0) {
      EXPECT_EQ(SliceNow(), 100'000u);
    }
    prompt.End();
    prompt.End();
    EXPECT_EQ(prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0), 40'000);
    EXPECT_EQ(SliceNow(), slice);
    EXPECT_EQ(getpriority(PRIO_PROCESS, 0), nice);
  }
}

TEST(ShortSlice, IsNotForAThreadWithAnotherPolicy) {
  std::thread([] {
    const sched_param none = {};
    ASSERT_EQ(sched_setscheduler(0, SCHED_IDLE, &none), 0);
    EXPECT_FALSE(UseShortSlice());
    EXPECT_EQ(sched_getscheduler(0), SCHED_IDLE);
  }).join();
}

}  // namespace
}  // namespace baton
