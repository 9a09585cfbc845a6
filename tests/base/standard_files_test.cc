#include "base/standard_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>

namespace baton {
namespace {

// The exit status of a process that does this.
int InChild(const std::function<int()>& act) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) _exit(act());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(StandardFiles, WhatIsOpenedLaterIsNoneOfThem) {
  EXPECT_GE(InChild([] {
              for (int fd = 0; fd <= 2; ++fd) close(fd);
              OpenStandardFiles();
              return open("/dev/null", O_RDWR);
            }),
            3);
  EXPECT_EQ(InChild([] {
              close(1);
              OpenStandardFiles();
              return write(1, "x", 1) == -1 ? 0 : 1;
            }),
            0)
      << "nobody gets what is printed";
}

TEST(StandardFiles, OutputThatIsNotTakenIsAnError) {
  const auto status = [](const char* path, int flags, int was) {
    return InChild([&] {
      dup2(open(path, flags), 1);
      close(2);
      std::printf("x");
      return AfterOutput("program", was);
    });
  };
  EXPECT_EQ(status("/dev/full", O_WRONLY, 0), 1);
  EXPECT_EQ(status("/dev/full", O_WRONLY, 7), 7);
  EXPECT_EQ(status("/dev/null", O_RDONLY, 0), 1);
  EXPECT_EQ(status("/dev/null", O_WRONLY, 0), 0);
  EXPECT_EQ(status("/dev/null", O_WRONLY, 7), 7);
}

}  // namespace
}  // namespace baton
