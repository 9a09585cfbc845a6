// Device files between real processes.
#include "sim/device.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "sim/record.h"
#include "tests/sim/temp_device.h"

namespace baton::sim {
namespace {

// A child that runs `body` and then waits to be killed; the constructor returns once it has.
class Child {
 public:
  explicit Child(const std::function<void()>& body) {
    int ready[2];
    if (pipe(ready) != 0) throw std::runtime_error("pipe");
    pid_ = fork();
    if (pid_ == 0) {
      body();
      (void)!write(ready[1], "", 1);
      while (true) pause();
    }
    close(ready[1]);
    char byte;
    (void)!read(ready[0], &byte, 1);
    close(ready[0]);
  }
  ~Child() {
    if (pid_ > 0) Kill();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  void Kill() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  // Dead, but not yet waited for by its parent.
  void KillToZombie() {
    kill(pid_, SIGKILL);
    siginfo_t info;
    waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
  }
  uint64_t pid() const { return static_cast<uint64_t>(pid_); }

 private:
  pid_t pid_;
};

void Launch(Device* device, int64_t duration, uint64_t memory = 0) {
  const int process = device->Attach();
  Device::Session session(device);
  const int context = session->CreateContext(process);
  if (memory != 0) session->ChargeMemory(process, memory);
  OpRequest request;
  request.kind = OpKind::kKernel;
  request.duration = duration;
  session->Submit(context, 0, request);
}

TEST(DeviceTest, RefusesWhatIsThereAndWhatIsNot) {
  TempDevice temp;
  auto again = CreateDeviceFile(temp.path(), {});
  ASSERT_FALSE(again);
  EXPECT_EQ(ErrorCode::kExists, again.error().code);
  EXPECT_FALSE(CreateDeviceFile("/nonexistent/x.gpu", {}));
  auto missing = Device::Open("/nonexistent/x.gpu");
  ASSERT_FALSE(missing);
  EXPECT_EQ(ErrorCode::kNotFound, missing.error().code);
}

TEST(DeviceTest, UuidsAreReadAsTheyAreWritten) {
  unsigned char uuid[16], back[16];
  for (int i = 0; i < 16; ++i) uuid[i] = static_cast<unsigned char>(17 * i);
  EXPECT_EQ("GPU-00112233-4455-6677-8899-aabbccddeeff", FormatUuid(uuid));
  ASSERT_TRUE(ParseUuid(FormatUuid(uuid), back));
  EXPECT_EQ(0, memcmp(uuid, back, 16));
  EXPECT_FALSE(ParseUuid("GPU-0011", back));
  EXPECT_FALSE(ParseUuid("GPU-zz112233-4455-6677-8899-aabbccddeeff", back));
}

TEST(DeviceTest, AProcessIsListedWhileItLivesAndThenUntilItsKernelEnds) {
  TempDevice temp;
  Child child([&] { Launch(*Device::Open(temp.path()), 3'600'000'000'000, 4096); });
  Device* device = *Device::Open(temp.path());
  auto processes = device->Processes();
  ASSERT_EQ(1u, processes.size());
  EXPECT_EQ(child.pid(), processes[0].pid);
  EXPECT_EQ(4096u, processes[0].memory);
  EXPECT_FALSE(processes[0].dying);
  child.Kill();
  // Its kernel lasts an hour: the process is gone, its work is not.
  processes = device->Processes();
  ASSERT_EQ(1u, processes.size());
  EXPECT_TRUE(processes[0].dying);
  EXPECT_EQ(4096u, device->file().memory_used);
}

TEST(DeviceTest, AZombieCountsAsDead) {
  TempDevice temp;
  Child child([&] { Launch(*Device::Open(temp.path()), kForever, 4096); });
  Device* device = *Device::Open(temp.path());
  EXPECT_EQ(1u, device->Processes().size());
  child.KillToZombie();
  // What hangs is cut, so nothing is left.
  EXPECT_TRUE(device->Processes().empty());
  EXPECT_EQ(0u, device->file().memory_used);
}

TEST(DeviceTest, TheLockSurvivesTheDeathOfItsHolder) {
  TempDevice temp;
  Device* device = *Device::Open(temp.path());
  for (int64_t n = 1; n <= 60; ++n) {
    const pid_t pid = fork();
    if (pid == 0) {
      Device* mine = *Device::Open(temp.path());
      Undo::KillAtWriteForTest(n);
      Launch(mine, kForever, 4096);
      _exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    EXPECT_TRUE(device->Processes().empty()) << n;
    EXPECT_EQ(0u, device->file().memory_used) << n;
  }
}

TEST(DeviceTest, ADeadProcessIsTornDownByTheNextWhereItsLookerWasKilledOverIt) {
  TempDevice temp;
  Device* device = *Device::Open(temp.path());
  for (int64_t n = 1; n <= 60; ++n) {
    {
      Child child([&] {
        Device* mine = *Device::Open(temp.path());
        Launch(mine, kForever, 4096);
        Device::Session session(mine);
        OpRequest request;
        request.kind = OpKind::kKernel;
        request.duration = kForever;
        session->Submit(session->CreateContext(mine->process()), 0, request);
      });
    }
    const pid_t looker = fork();
    if (looker == 0) {
      Undo::KillAtWriteForTest(n);
      (*Device::Open(temp.path()))->Processes();
      _exit(0);
    }
    int status;
    waitpid(looker, &status, 0);
    EXPECT_TRUE(device->Processes().empty()) << n;
    EXPECT_EQ(0u, device->file().memory_used) << n;
  }
}

TEST(DeviceTest, TwoProcessesOverlapInTheRecordWhenTheyShareTheGpu) {
  TempDevice temp;
  Device* device = *Device::Open(temp.path());
  int64_t start, end;
  {
    Child a([&] { Launch(*Device::Open(temp.path()), 99'000'000); });
    Child b([&] { Launch(*Device::Open(temp.path()), 99'000'000); });
    const auto count = [&] {
      Device::Session session(device);
      return uint64_t{device->file().record_count};
    };
    while (count() < 2) usleep(1000);
  }
  auto records = *ReadRecords(temp.path());
  ASSERT_EQ(2u, records.size());
  start = std::min(records[0].start_ns, records[1].start_ns);
  end = std::max(records[0].end_ns, records[1].end_ns);
  EXPECT_EQ(99'000'000, records[0].busy_ns);
  EXPECT_EQ(99'000'000, records[1].busy_ns);
  // Unless the second came only after the first had ended: they are long, so that it seldom does.
  if (end - start == 198'000'000) {
    EXPECT_EQ(2u, CountOverlaps(records, [](uint64_t p) { return static_cast<int64_t>(p); }));
  }
}

TEST(DeviceTest, AWaitEndsAtOnceWhenTheScheduleChanges) {
  TempDevice temp;
  Device* device = *Device::Open(temp.path());
  const uint32_t word = device->change_word();
  Child child([&] { (*Device::Open(temp.path()))->WakeAll(); });
  device->WaitForChange(word, kForever);
  EXPECT_NE(word, device->change_word());
}

}  // namespace
}  // namespace baton::sim
