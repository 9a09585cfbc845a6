// What batond keeps on disk beside its pods: holders, accounts, and which node each GPU is of.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "backend/gpu_owners.h"
#include "backend/holder_file.h"
#include "backend/usage_book.h"
#include "base/hash.h"
#include "tests/backend/daemon_process.h"

namespace baton::backend {
namespace {

TEST(HolderFile, RemembersAllMembersOfTheNewestEpoch) {
  const TempFolder folder;
  {
    HolderFile file;
    EXPECT_EQ(file.Open(folder / "h", "boot", true), "");
    EXPECT_TRUE(file.Store(7, {1, 100, 1000, 1}));
    EXPECT_TRUE(file.Store(8, {2, 200, 2000, 2}));
    EXPECT_TRUE(file.Store(8, {2, 201, 2001, 3}));
  }
  HolderFile file;
  EXPECT_EQ(file.Open(folder / "h", "boot", true), "");
  EXPECT_EQ(file.epoch(), 8u);
  ASSERT_EQ(file.members().size(), 2u);
  EXPECT_EQ(file.members()[1].pid, 201u);
  EXPECT_TRUE(file.Clear());
  HolderFile cleared;
  cleared.Open(folder / "h", "boot", true);
  EXPECT_EQ(cleared.epoch(), 8u);
  EXPECT_TRUE(cleared.members().empty());
}

TEST(HolderFile, MembersThatComeAndGoUnderOneTokenDoNotFillIt) {
  const TempFolder folder;
  HolderFile file;
  EXPECT_EQ(file.Open(folder / "h", "boot", true), "");
  for (uint64_t i = 0; i < HolderFile::kMembersMax; ++i) {
    EXPECT_TRUE(file.Store(7, {1, 100 + i, 1000, 1}));
    EXPECT_TRUE(file.Store(7, {1, 100 + i, 1000, 1}));  // it joined again
    EXPECT_EQ(file.members().size(), i + 1);
  }
  EXPECT_TRUE(file.Full(7));
  EXPECT_FALSE(file.Full(8));
  EXPECT_FALSE(file.Store(7, {1, 99, 1000, 1}));
  file.Keep([](const HolderFile::Member& member) { return member.pid == 100; });
  EXPECT_TRUE(file.Store(7, {1, 99, 1000, 1}));
  HolderFile read;
  EXPECT_EQ(read.Open(folder / "h", "boot", true), "");
  ASSERT_EQ(read.members().size(), 2u);
  EXPECT_EQ(read.members()[0].pid, 100u);
  EXPECT_EQ(read.members()[1].pid, 99u);
}

TEST(HolderFile, AWriteCutShortLeavesTheOneBefore) {
  const TempFolder folder;
  {
    HolderFile file;
    file.Open(folder / "h", "boot", true);
    file.Store(7, {1, 100, 1000, 1});
    file.Store(8, {2, 200, 2000, 2});
  }
  // The newest slot is the one that lies first or second, by turns: damage each in its turn.
  std::string text = ReadText(folder / "h");
  const size_t newest = text.find(std::string("\x08\0\0\0\0\0\0\0", 8));
  ASSERT_NE(newest, std::string::npos);
  text[newest] = '\x09';
  WriteText(folder / "h", text);
  HolderFile file;
  EXPECT_EQ(file.Open(folder / "h", "boot", true), "");
  EXPECT_EQ(file.epoch(), 7u);
  ASSERT_EQ(file.members().size(), 1u);
  EXPECT_EQ(file.members()[0].pid, 100u);
}

TEST(HolderFile, OutlivesAFileThatIsCutShortUnderIt) {
  const TempFolder folder;
  HolderFile file;
  EXPECT_EQ(file.Open(folder / "h", "boot", true), "");
  const auto stored = [&] {
    HolderFile read;
    EXPECT_EQ(read.Open(folder / "h", "boot", true), "");
    return read.epoch();
  };
  for (uint64_t epoch = 1; epoch <= 20; ++epoch) {
    EXPECT_TRUE(file.Store(epoch, {1, 100, 1000, 1}));
    EXPECT_EQ(stored(), epoch);
    if (epoch % 5 == 0) std::filesystem::resize_file(folder / "h", 0);
  }
}

TEST(HolderFile, AfterARebootNobodyHolds) {
  const TempFolder folder;
  {
    HolderFile file;
    file.Open(folder / "h", "boot", true);
    file.Store(7, {1, 100, 1000, 1});
  }
  HolderFile file;
  file.Open(folder / "h", "another boot", true);
  EXPECT_EQ(file.epoch(), 7u);
  EXPECT_TRUE(file.members().empty());
}

TEST(HolderFile, OfAnotherMachineItOutlastsThisMachinesReboot) {
  const TempFolder folder;
  {
    HolderFile file;
    file.Open(folder / "h", "boot", false);
    EXPECT_TRUE(file.Store(7, {1, 100, 1000, 1, 5'000}));
  }
  HolderFile file;
  EXPECT_EQ(file.Open(folder / "h", "another boot", false), "");
  ASSERT_EQ(file.members().size(), 1u);
  EXPECT_EQ(file.members()[0].joined_ns, 0u) << "the clock began anew";
}

TEST(HolderFile, KnowsWhenTheTokenWasGrantedAndWhenEachJoinedIt) {
  const TempFolder folder;
  {
    HolderFile file;
    file.Open(folder / "h", "boot", true);
    file.Store(7, {1, 100, 1000, 1, 4'000});
    file.Forget();
    file.Store(7, {1, 100, 1000, 1, 5'000});
    file.Store(7, {1, 101, 1001, 2, 6'000});
    file.Store(7, {1, 100, 1000, 1, 7'000});  // drained, and was sent it again
  }
  HolderFile file;
  EXPECT_EQ(file.Open(folder / "h", "boot", true), "");
  EXPECT_EQ(file.granted_ns(), 5'000u);
  ASSERT_EQ(file.members().size(), 2u);
  EXPECT_EQ(file.members()[0].joined_ns, 7'000u);
  EXPECT_EQ(file.members()[1].joined_ns, 6'000u);
}

TEST(HolderFile, GarbageIsMovedAsideAndSaidSo) {
  const TempFolder folder;
  WriteText(folder / "h", std::string(100'000, 'x'));
  HolderFile file;
  EXPECT_NE(file.Open(folder / "h", "boot", true), "");
  EXPECT_TRUE(file.Store(1, {1, 1, 1, 1}));
  EXPECT_EQ(ReadText(folder / "h.damaged").size(), 100'000u);
}

TEST(HolderFile, OfANewerVersionIsLeftAlone) {
  const TempFolder folder;
  {
    HolderFile file;
    EXPECT_EQ(file.Open(folder / "h", "boot", true), "");
    ASSERT_TRUE(file.Store(5, {1, 2, 3, 4}) && file.Store(6, {1, 2, 3, 4}));
  }
  // It has written one of the slots so far.
  std::string text = ReadText(folder / "h");
  text.replace(text.find("baton holder 2"), 14, "baton holder 3");
  WriteText(folder / "h", text);
  HolderFile file;
  const auto opened = file.Open(folder / "h", "boot", true);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::kDenied);
  EXPECT_EQ(ReadText(folder / "h"), text);
}

TEST(GpuOwners, AreKeptAndBoundedPerNode) {
  const TempFolder folder;
  {
    GpuOwners owners(folder / "o");
    EXPECT_EQ(owners.Load(), "");
    owners.Set("GPU-a", "n0");
    owners.Set("GPU-b", "n1");
    EXPECT_TRUE(owners.Release("GPU-b"));
    EXPECT_FALSE(owners.Release("GPU-b"));
    EXPECT_EQ(owners.degraded(), "");
  }
  GpuOwners owners(folder / "o");
  EXPECT_EQ(owners.Load(), "");
  ASSERT_NE(owners.Find("GPU-a"), nullptr);
  EXPECT_EQ(*owners.Find("GPU-a"), "n0");
  EXPECT_EQ(owners.Find("GPU-b"), nullptr);
  // One that makes up names loses its own alone.
  for (size_t i = 0; i < 2 * GpuOwners::kGpusOfNodeMax; ++i) {
    owners.Set("GPU-" + std::to_string(i), "n1");
  }
  EXPECT_EQ(*owners.Find("GPU-a"), "n0");
  size_t of_n1 = 0;
  for (size_t i = 0; i < 2 * GpuOwners::kGpusOfNodeMax; ++i) {
    of_n1 += owners.Find("GPU-" + std::to_string(i)) != nullptr ? 1 : 0;
  }
  EXPECT_EQ(of_n1, GpuOwners::kGpusOfNodeMax);
}

TEST(GpuOwners, ADamagedFileIsMovedAsideAndANewerOneLeftAlone) {
  const TempFolder folder;
  WriteText(folder / "o", "x");
  GpuOwners damaged(folder / "o");
  EXPECT_NE(damaged.Load(), "");
  EXPECT_EQ(ReadText(folder / "o.damaged"), "x");
  WriteText(folder / "o", "baton gpu nodes 2 0\n{}\n");
  GpuOwners newer(folder / "o");
  EXPECT_FALSE(newer.Load());
  GpuOwners unwritable("/nowhere/at/all");
  unwritable.Set("GPU-a", "n0");
  EXPECT_NE(unwritable.degraded(), "");
}

TEST(UsageBook, OfANewerVersionIsLeftAloneAndADamagedOneReplacesNoneThatIsAside) {
  const TempFolder folder;
  const std::string newer = "baton usage 4\n" + std::string(70'000, 'x');
  WriteText(folder / "usage", newer);
  {
    UsageBook book;
    const auto opened = book.Open(folder / "usage");
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().code, ErrorCode::kDenied);
    EXPECT_EQ(ReadText(folder / "usage"), newer);
  }
  for (const char* text : {"one", "two"}) {
    WriteText(folder / "usage", text);
    UsageBook book;
    const auto opened = book.Open(folder / "usage");
    ASSERT_TRUE(opened);
    EXPECT_NE(*opened, "");
  }
  EXPECT_EQ(ReadText(folder / "usage.damaged"), "one");
  EXPECT_EQ(ReadText(folder / "usage.damaged-2"), "two");
}

TEST(UsageBook, KeepsEntriesAndReusesDroppedOnes) {
  const TempFolder folder;
  const uint64_t gpu = HashOf("GPU-0");
  {
    UsageBook book;
    EXPECT_EQ(book.Open(folder / "usage"), "");
    for (uint64_t i = 1; i <= 2000; ++i) book.At(PodId{i}, gpu, 0).usage.held_ns = i;
    book.At(PodId{5}, gpu, 77).usage.launches = 3;
    book.Drop(PodId{6}, 0);
    EXPECT_EQ(book.degraded(), "");
  }
  UsageBook book;
  EXPECT_EQ(book.Open(folder / "usage"), "");
  EXPECT_EQ(book.Find(PodId{2000}, gpu, 0)->usage.held_ns, 2000u);
  EXPECT_EQ(book.Find(PodId{5}, gpu, 77)->usage.launches, 3u);
  EXPECT_EQ(book.Find(PodId{6}, gpu, 0), nullptr);
  book.Drop(PodId{5}, 77);
  EXPECT_NE(book.Find(PodId{5}, gpu, 0), nullptr);
  EXPECT_EQ(book.Find(PodId{5}, gpu, 77), nullptr);
  EXPECT_EQ(book.At(PodId{6}, gpu, 0).usage.held_ns, 0u);
}

TEST(UsageBook, KnowsWhatTheLastTokenWasCharged) {
  const TempFolder folder;
  const uint64_t gpu = HashOf("GPU-0");
  {
    UsageBook book;
    book.Open(folder / "usage");
    UsageEntry& entry = book.At(PodId{1}, gpu, 0);
    entry.usage.held_ns = 100;
    entry.BeginHold(7);
    entry.usage.held_ns += 30;
    EXPECT_EQ(entry.ChargedFor(7), 30u);
    EXPECT_EQ(entry.ChargedFor(6), 0u);
    // What the next one writes first does not change what is known of this one.
    entry.hold_base_ns[0] = entry.usage.held_ns;
    EXPECT_EQ(entry.ChargedFor(7), 30u);
    book.At(PodId{2}, gpu, 0).BeginHold(6);
    book.At(PodId{2}, gpu + 1, 0).BeginHold(9);
  }
  UsageBook book;
  book.Open(folder / "usage");
  EXPECT_EQ(book.Find(PodId{1}, gpu, 0)->ChargedFor(7), 30u);
  EXPECT_EQ(book.NewestHold(gpu), 7u);
}

TEST(UsageBook, KnowsUntilWhenALimitIsUsedUpInTheSameBoot) {
  const TempFolder folder;
  const uint64_t gpu = HashOf("GPU-0");
  const Instant at = InstantFromNanos(5'000'000'000);
  {
    UsageBook book;
    book.Open(folder / "usage", "boot 1");
    for (const uint64_t pod : {1, 2}) book.At(PodId{pod}, gpu, 0);
    EXPECT_EQ(book.LimitFullAt(PodId{1}, gpu), Instant{});
    book.SetLimitFullAt(PodId{1}, gpu, at);
    book.SetLimitFullAt(PodId{2}, gpu, at);
    book.Drop(PodId{2}, 0);
    book.SetLimitFullAt(PodId{2}, gpu, at);
    EXPECT_EQ(book.LargestPod(), 1u) << "who is forgotten leaves nothing";
  }
  {
    UsageBook book;
    book.Open(folder / "usage", "boot 1");
    EXPECT_EQ(book.LimitFullAt(PodId{1}, gpu), at);
    EXPECT_EQ(book.LimitFullAt(PodId{1}, gpu + 1), Instant{});
    EXPECT_EQ(book.LimitFullAt(PodId{2}, gpu), Instant{});
    EXPECT_EQ(book.NewestHold(gpu), 0u);
  }
  UsageBook book;
  book.Open(folder / "usage", "boot 2");
  EXPECT_EQ(book.LimitFullAt(PodId{1}, gpu), Instant{}) << "the clock began anew";
}

TEST(UsageBook, KeepsEnergyBesideTheAccounts) {
  const TempFolder folder;
  const uint64_t gpu = HashOf("GPU-0");
  const EnergyAccount of_pod{.joules = 1234.567, .held_ns = 77, .counter = 0};
  const EnergyAccount of_gpu{
      .joules = 5000, .counter = 1e6, .at = Instant{} + std::chrono::seconds(9)};
  {
    UsageBook book;
    book.Open(folder / "usage", "boot 1");
    for (const uint64_t pod : {1, 2}) {
      book.At(PodId{pod}, gpu, 0).usage.held_ns = 5;
      book.SetEnergy(PodId{pod}, gpu, of_pod);
    }
    book.SetEnergy(PodId{}, gpu, of_gpu);
    book.Drop(PodId{2}, 0);
    book.SetEnergy(PodId{2}, gpu, of_pod);
    EXPECT_EQ(book.LargestPod(), 1u) << "who is forgotten leaves nothing";
  }
  for (const char* boot : {"boot 1", "boot 2"}) {
    UsageBook book;
    book.Open(folder / "usage", boot);
    EXPECT_DOUBLE_EQ(book.EnergyOf(PodId{1}, gpu).joules, 1234.567);
    EXPECT_EQ(book.EnergyOf(PodId{1}, gpu).held_ns, 77u);
    EXPECT_EQ(book.EnergyOf(PodId{2}, gpu).joules, 0);
    EXPECT_EQ(book.Find(PodId{1}, gpu, 0)->usage.held_ns, 5u);
    const EnergyAccount read = book.EnergyOf(PodId{}, gpu);
    EXPECT_DOUBLE_EQ(read.joules, 5000);
    EXPECT_DOUBLE_EQ(read.counter, 1e6);
    EXPECT_EQ(read.at, std::string(boot) == "boot 1" ? of_gpu.at : kNever) << boot;
    EXPECT_EQ(book.NewestHold(gpu), 0u);
    EXPECT_EQ(book.LargestPod(), 1u);
  }
}

TEST(UsageBook, KnowsWhatNoOtherTeamWanted) {
  const TempFolder folder;
  const uint64_t gpu = HashOf("GPU-0");
  {
    UsageBook book;
    book.Open(folder / "usage", "boot 1");
    for (const uint64_t pod : {1, 2, 3}) book.At(PodId{pod}, gpu, 0).usage.held_ns = 1000;
    EXPECT_EQ(book.Uncontended(PodId{1}, gpu), 0u) << "a book of before";
    book.AddUncontended(PodId{1}, gpu, 400);
    book.AddUncontended(PodId{1}, gpu, -100);
    book.SetLimitFullAt(PodId{1}, gpu, InstantFromNanos(5));
    book.AddUncontended(PodId{2}, gpu, 5000);
    book.AddUncontended(PodId{3}, gpu, 50);
    book.AddUncontended(PodId{3}, gpu, -5000);
    book.AddUncontended(PodId{4}, gpu, 50);
    EXPECT_EQ(book.LargestPod(), 3u) << "who is not known leaves nothing";
  }
  UsageBook book;
  book.Open(folder / "usage", "boot 2");
  EXPECT_EQ(book.Uncontended(PodId{1}, gpu), 300u);
  EXPECT_EQ(book.Uncontended(PodId{2}, gpu), 1000u) << "no more than it held";
  EXPECT_EQ(book.Uncontended(PodId{3}, gpu), 0u);
  EXPECT_EQ(book.Uncontended(PodId{4}, gpu), 0u);
  EXPECT_EQ(book.Uncontended(PodId{1}, gpu + 1), 0u);
  EXPECT_EQ(book.Find(PodId{1}, gpu, 0)->usage.held_ns, 1000u);
  book.Drop(PodId{1}, 0);
  book.At(PodId{1}, gpu, 0).usage.held_ns = 1000;
  EXPECT_EQ(book.Uncontended(PodId{1}, gpu), 0u);
}

TEST(UsageBook, AChangeOfBothEntriesThatWasCutShortIsUndone) {
  const TempFolder folder;
  const uint64_t gpu = HashOf("GPU-0");
  {
    UsageBook book;
    book.Open(folder / "usage");
    UsageEntry& total = book.At(PodId{1}, gpu, 0);
    UsageEntry& last = book.At(PodId{1}, gpu, 77);
    for (const uint64_t launches : {10, 30}) {
      book.Begin(total, last);
      total.usage.launches += launches - last.usage.launches;
      if (launches == 30) break;  // killed here
      last.usage.launches = launches;
      book.End();
    }
  }
  UsageBook book;
  book.Open(folder / "usage");
  EXPECT_EQ(book.Find(PodId{1}, gpu, 0)->usage.launches, 10u);
  EXPECT_EQ(book.Find(PodId{1}, gpu, 77)->usage.launches, 10u);
}

TEST(UsageBook, AJournalOfEntriesThatThereCannotBeIsIgnored) {
  const TempFolder folder;
  const std::string path = folder / "usage";
  {
    UsageBook book;
    book.Open(path);
    book.At(PodId{1}, 7, 0).usage.launches = 5;
  }
  const std::string before = *ReadFile(path, 1 << 20);
  // 2^57 entries of 128 bytes are 2^64: the same place as entry 0.
  for (const uint64_t at : {uint64_t{0}, uint64_t{1} << 57, UINT64_MAX, uint64_t{512}}) {
    std::string text = before;
    const uint64_t journal[3] = {1, at, at};
    memcpy(text.data() + 128, journal, sizeof journal);
    memset(text.data() + 128 + sizeof journal, 0x55, 128);
    folder.Write("usage", text);
    UsageBook book;
    EXPECT_EQ(book.Open(path), "");
    EXPECT_EQ(book.Find(PodId{1}, 7, 0)->usage.launches, 5u);
    EXPECT_EQ(ReadFile(path, 1 << 20)->substr(0, 128), before.substr(0, 128)) << at;
  }
}

TEST(UsageBook, OutlivesAFileThatIsCutShortUnderIt) {
  for (const bool touched : {true, false}) {
    const TempFolder folder;
    const std::string path = folder / "usage";
    {
      UsageBook book;
      EXPECT_EQ(book.Open(path), "");
      book.At(PodId{1}, 7, 0).usage.held_ns = 5;
      EXPECT_EQ(book.Flush(), "");
      const std::string identity = book.identity();
      UsageEntry& young = book.At(PodId{2}, 7, 0);
      std::filesystem::resize_file(path, 0);
      if (touched) {
        book.At(PodId{1}, 7, 0).usage.held_ns += 2;
        young.usage.held_ns = 3;
      }
      EXPECT_NE(book.Flush().find("was cut short by another program; it was written again"),
                std::string::npos);
      EXPECT_EQ(book.Flush(), "");
      EXPECT_EQ(book.degraded(), "");
      EXPECT_EQ(book.identity(), identity);
    }
    UsageBook book;
    EXPECT_EQ(book.Open(path), "");
    EXPECT_EQ(book.At(PodId{1}, 7, 0).usage.held_ns, touched ? 7u : 5u);
    ASSERT_NE(book.Find(PodId{2}, 7, 0), nullptr);
    EXPECT_EQ(book.Find(PodId{2}, 7, 0)->usage.held_ns, touched ? 3u : 0u);
  }
}

TEST(UsageBook, WithoutADiskItGoesOnInMemoryAndSaysSo) {
  UsageBook book;
  EXPECT_NE(book.Open("/nowhere/at/all/usage"), "");
  EXPECT_NE(book.degraded(), "");
  UsageEntry& entry = book.At(PodId{1}, 2, 0);
  entry.usage.held_ns = 5;
  EXPECT_EQ(book.Find(PodId{1}, 2, 0), &entry);
}

}  // namespace
}  // namespace baton::backend
