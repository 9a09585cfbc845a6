// What is computed from records.
#include "sim/record.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/sim/temp_device.h"

namespace baton::sim {
namespace {

KernelRecord Kernel(uint64_t pid, int64_t start, int64_t end) {
  KernelRecord r{};
  r.pid = pid;
  r.start_ns = start;
  r.end_ns = end;
  r.busy_ns = end - start;
  return r;
}

int64_t ByPid(uint64_t pid) { return static_cast<int64_t>(pid); }

TEST(CountOverlapsTest, CountsEveryKernelThatMeetsAnotherGroups) {
  EXPECT_EQ(0u, CountOverlaps({}, ByPid));
  EXPECT_EQ(2u, CountOverlaps({Kernel(1, 0, 10), Kernel(2, 5, 6)}, ByPid));
  EXPECT_EQ(3u, CountOverlaps({Kernel(1, 0, 10), Kernel(2, 5, 6), Kernel(2, 8, 20)}, ByPid));
}

TEST(CountOverlapsTest, TouchingIsNotOverlapping) {
  EXPECT_EQ(0u, CountOverlaps({Kernel(1, 0, 10), Kernel(2, 10, 20), Kernel(1, 20, 30)}, ByPid));
}

TEST(CountOverlapsTest, TheSameGroupMayOverlap) {
  const auto pairs = [](uint64_t pid) { return static_cast<int64_t>(pid / 2); };
  EXPECT_EQ(0u, CountOverlaps({Kernel(2, 0, 10), Kernel(3, 5, 15)}, pairs));
}

TEST(CountOverlapsTest, AgreesWithTheDefinitionOnRandomRecords) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    std::vector<KernelRecord> records;
    for (int i = 0; i < 40; ++i) {
      const int64_t start = random() % 500;
      records.push_back(Kernel(random() % 4, start, start + random() % 12));
    }
    uint64_t expected = 0;
    for (const auto& a : records) {
      bool overlaps = false;
      for (const auto& b : records) {
        overlaps |=
            a.pid != b.pid && std::max(a.start_ns, b.start_ns) < std::min(a.end_ns, b.end_ns);
      }
      expected += overlaps;
    }
    ASSERT_EQ(expected, CountOverlaps(records, ByPid));
  }
}

TEST(BusyFractionTest, ClipsToTheWindowAndCountsOverlapsOnce) {
  const std::vector<KernelRecord> records = {Kernel(1, -50, 10), Kernel(2, 5, 30),
                                             Kernel(1, 90, 200)};
  EXPECT_DOUBLE_EQ(0.4, BusyFraction(records, 0, 100));
  EXPECT_DOUBLE_EQ(0, BusyFraction(records, 40, 80));
  EXPECT_DOUBLE_EQ(0, BusyFraction(records, 80, 40));
}

TEST(BusyByGroupTest, SharesAKernelAtTheBorderByLength) {
  std::vector<KernelRecord> records = {Kernel(1, 0, 100), Kernel(2, 100, 200)};
  records[1].busy_ns = 50;  // sliced out for half of it
  const auto busy = BusyByGroup(records, ByPid, 50, 150);
  EXPECT_EQ(50, busy.at(1));
  EXPECT_EQ(25, busy.at(2));
}

TEST(ReadRecordsTest, NamesAFileThatIsNoDevice) {
  auto missing = ReadRecords("/nonexistent/a.gpu");
  ASSERT_FALSE(missing);
  EXPECT_NE(std::string::npos, missing.error().message.find("/nonexistent/a.gpu"));
  EXPECT_NE(std::string::npos, missing.error().message.find("baton-simgpu create"));
  EXPECT_FALSE(ReadRecords("/proc/self/exe"));
}

TEST(ReadRecordsTest, KeepsTheNewestAndContinuesFromACount) {
  DeviceOptions options;
  options.records = 8;
  TempDevice temp(options);
  Device* device = *Device::Open(temp.path());
  const int context = [&] {
    const int process = device->Attach();
    Device::Session session(device);
    return session->CreateContext(process);
  }();
  const auto run = [&](int kernels) {
    Device::Session session(device);
    for (int i = 0; i < kernels; ++i) {
      OpRequest request;
      request.kind = OpKind::kKernel;
      request.duration = 1;
      request.name = session->NameId("a_kernel");
      session->Submit(context, 0, request);
      session->AdvanceTo(static_cast<int64_t>(uint64_t{device->file().now}) + 1);
      Completion completion;
      ASSERT_TRUE(session->Collect(context, &completion));
    }
  };
  run(5);
  auto records = ReadRecords(temp.path());
  ASSERT_TRUE(records);
  ASSERT_EQ(5u, records->size());
  EXPECT_EQ("a_kernel", records->front().name);
  EXPECT_EQ(static_cast<uint64_t>(getpid()), records->front().pid);
  EXPECT_EQ(5u, *CountRecords(temp.path()));
  run(6);
  EXPECT_EQ(6u, ReadRecords(temp.path(), 5)->size());
  records = ReadRecords(temp.path());
  ASSERT_EQ(8u, records->size());
  EXPECT_EQ(3u, records->front().index);
}

}  // namespace
}  // namespace baton::sim
