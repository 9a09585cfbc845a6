// The pods over restarts: pods.json and its journals, whatever becomes of a write.
#include "backend/pods_file.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "backend/pods_text.h"
#include "base/hash.h"
#include "base/random.h"
#include "tests/backend/memory_disk.h"

namespace baton::backend {
namespace {

Pod MakePod(const std::string& name, const std::string& gpu = "GPU-0") {
  Pod pod;
  pod.name = name;
  pod.share = *spec::ShareFrom(policy::Share(10'000), {}, policy::Priority::kNormal);
  pod.gpus = {gpu};
  return pod;
}

// The pods as they are when they have been read; but for the last id, for those that are not stored
// have ids too.
std::string TextOf(PodsImage image) {
  Pods pods;
  EXPECT_TRUE(pods.Restore(std::move(image)));
  std::string all;
  std::istringstream lines(WritePodsText(pods, 0));
  for (std::string line; std::getline(lines, line);) {
    const size_t json = line.find('{');
    if (json == std::string::npos) continue;
    auto record = nlohmann::json::parse(line.substr(json));
    record.erase("last_id");
    all += record.dump() + "\n";
  }
  return all;
}

// A daemon's part that stores pods, on `disk`.
struct Kept {
  explicit Kept(std::shared_ptr<MemoryDisk> disk, size_t least = PodsFile::kJournalsLeast)
      : file(std::move(disk), pods, log, least) {
    file.SetLater([this](std::function<void()> step) { steps.push_back(std::move(step)); });
  }
  // One step of what waits. False: nothing does.
  bool Step() {
    if (steps.empty()) return false;
    const auto step = std::move(steps.front());
    steps.pop_front();
    step();
    return true;
  }
  // All that is to be stored of them.
  PodsImage Image() const {
    PodsImage image{pods.last_id(), pods.all(), pods.departed(), pods.cordoned()};
    std::erase_if(image.pods, [](const auto& entry) { return entry.second.throw_away; });
    return image;
  }
  std::string Text() const { return TextOf(Image()); }

  Pods pods;
  node::EventLog log;
  PodsFile file;
  std::deque<std::function<void()>> steps;
};

// What a daemon that starts now finds.
std::string AfterRestart(const MemoryDisk& disk, std::vector<std::string>* troubles = nullptr) {
  const auto copy = std::make_shared<MemoryDisk>();
  copy->files = disk.files;
  Kept kept(copy);
  auto found = kept.file.Load();
  if (!found) return found.error().message;
  if (troubles != nullptr) *troubles = found->troubles;
  if (troubles == nullptr) {
    for (const std::string& trouble : found->troubles) ADD_FAILURE() << trouble;
  }
  EXPECT_EQ(kept.file.degraded(), "");
  return kept.Text();
}

// Something that pods do; then it is saved.
void Change(Kept& kept, Random& random, int number) {
  Pods& pods = kept.pods;
  std::vector<PodId> ids;
  for (const auto& [id, pod] : pods.all()) ids.push_back(id);
  const auto any = [&] {
    return ids[static_cast<size_t>(random.Between(0, int64_t(ids.size()) - 1))];
  };
  switch (ids.empty() ? 0 : random.Between(0, 9)) {
    default: {
      Pod pod = MakePod("pod " + std::to_string(random.Between(0, 60)),
                        "GPU-" + std::to_string(number % 3));
      if (random.Between(0, 3) == 0) {
        pod.gang = "g" + std::to_string(random.Between(0, 2));
        pod.gang_size = 2;
      } else if (random.Between(0, 1) == 0) {
        pod.share.latency = std::chrono::milliseconds(random.Between(1, 10'000));
      }
      pod.team = number % 2 == 0 ? "a/b" : "";
      pod.throw_away = random.Between(0, 9) == 0;
      (void)pods.Add(pod);
      break;
    }
    case 1:
    case 2:
    case 3:
      pods.Remove(any(), random.Between(0, 1) == 0);
      break;
    case 4:
      if (!pods.departed().empty()) pods.Forget(pods.departed().begin()->first);
      break;
    case 5: {
      Pod& pod = *pods.Find(any());
      pod.share.request = policy::Share(1'000 * static_cast<uint32_t>(random.Between(1, 9)));
      pod.vgpus[0].fit.memory_mib = static_cast<uint32_t>(number);
      pod.vgpus[0].before = {"GPU-9"};
      pod.from_file = "as number " + std::to_string(number);
      pods.Changed(pod.id);
      break;
    }
    case 6:
      pods.SetCordoned("GPU-" + std::to_string(random.Between(0, 3)), random.Between(0, 1) == 0);
      break;
  }
  kept.file.Save();
}

TEST(PodsFile, AChangeIsOneRecordHoweverManyPodsThereAre) {
  constexpr int kPods = 2'000;
  const auto disk = std::make_shared<MemoryDisk>();
  Kept kept(disk, PodsFile::kJournalsLeast / 8);
  ASSERT_TRUE(kept.file.Load());
  for (int i = 0; i < kPods; ++i) {
    ASSERT_TRUE(kept.pods.Add(MakePod("pod " + std::to_string(i))));
    kept.file.Save();
    kept.Step();
  }
  while (kept.Step()) {
  }
  // However often pods.json was written anew, each pod was written some three times.
  const uint64_t one = disk->files.at("pods.json").size() / kPods;
  EXPECT_LT(disk->bytes, 5 * one * kPods);
  const uint64_t bytes = disk->bytes, operations = disk->operations;
  ASSERT_TRUE(kept.pods.Add(MakePod("one more")));
  kept.file.Save();
  EXPECT_EQ(disk->operations, operations + 1);
  EXPECT_LT(disk->bytes - bytes, 2 * one + 200);
  kept.pods.Remove(kept.pods.FindByName("one more")->id, true);
  kept.file.Save();
  EXPECT_EQ(disk->operations, operations + 2);
  EXPECT_LT(disk->bytes - bytes, 4 * one + 400);
  EXPECT_EQ(AfterRestart(*disk), kept.Text());
}

TEST(PodsFile, NoStepOfWritingPodsJsonAnewIsLong) {
  const auto disk = std::make_shared<MemoryDisk>();
  Kept kept(disk, PodsFile::kJournalsLeast / 8);
  ASSERT_TRUE(kept.file.Load());
  {
    const PodsFile::Batch batch(kept.file);
    for (int i = 0; i < 2'000; ++i) {
      ASSERT_TRUE(kept.pods.Add(MakePod("pod " + std::to_string(i))));
      kept.file.Save();
    }
    EXPECT_LE(disk->files.size(), 2u);
    EXPECT_EQ(disk->files.at("pods.journal-1"), JournalFirstLine(1)) << "it is written at the end";
  }
  const size_t one = disk->files.at("pods.journal-1").size() / 2'000;
  uint64_t before = disk->bytes;
  int steps = 0;
  for (; kept.Step(); ++steps) {
    EXPECT_LE(disk->bytes - before, (PodsFile::kPodsAtOnce + 1) * (one + 50));
    before = disk->bytes;
  }
  EXPECT_GE(steps, static_cast<int>(2'000 / PodsFile::kPodsAtOnce));
  EXPECT_EQ(disk->files.size(), 2u) << "the journal before is gone";
  EXPECT_EQ(AfterRestart(*disk), kept.Text());
}

// The model: what was saved last, or is being saved.
TEST(PodsFile, KilledAtAnyWriteItIsAsBeforeOrAfterTheChange) {
#ifdef BATON_SANITIZED
  constexpr uint64_t kSeeds = 25;
#else
  constexpr uint64_t kSeeds = 100;
#endif
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Random random(seed);
    const auto disk = std::make_shared<MemoryDisk>();
    disk->kill_at = static_cast<uint64_t>(random.Between(1, 400));
    disk->torn_bytes = static_cast<size_t>(random.Between(0, 400));
    PodsImage before, after;
    int lives = 0;
    for (int change = 0; change < 300 && lives < 6;) {
      Kept kept(disk, 2'000);  // pods.json is written anew every few changes
      try {
        const auto found = kept.file.Load();
        ASSERT_TRUE(found) << found.error().message;
        for (const std::string& trouble : found->troubles) ADD_FAILURE() << trouble;
        if (lives > 0 || change > 0) {
          const std::string text = kept.Text(), as_before = TextOf(before);
          ASSERT_TRUE(text == as_before || text == TextOf(after)) << text << "\nis neither\n"
                                                                  << as_before << "\nnor\n"
                                                                  << TextOf(after);
        }
        before = after = kept.Image();
        for (const auto& [id, pod] : kept.pods.all()) ASSERT_LE(id.value, kept.pods.last_id());
        for (; change < 300; ++change) {
          struct Note {
            Kept& kept;
            PodsImage& after;
            ~Note() { after = kept.Image(); }
          };
          {
            const Note note{kept, after};
            Change(kept, random, change);
          }
          before = after;
          if (random.Between(0, 2) == 0) kept.Step();
        }
      } catch (const MemoryDisk::Killed&) {
        ++lives;
        disk->kill_at = disk->operations + static_cast<uint64_t>(random.Between(1, 400));
        disk->torn_bytes = static_cast<size_t>(random.Between(0, 400));
      }
    }
  }
}

TEST(PodsFile, WithoutRoomItSaysSoAndStoresAllOnceThereIs) {
  for (const bool cut_back : {true, false}) {
    const auto disk = std::make_shared<MemoryDisk>();
    disk->cut_back = cut_back;
    Kept kept(disk);
    ASSERT_TRUE(kept.file.Load());
    ASSERT_TRUE(kept.pods.Add(MakePod("a")));
    kept.file.Save();
    const std::string stored = kept.Text();
    disk->room = disk->bytes + 10;
    ASSERT_TRUE(kept.pods.Add(MakePod("b")));
    kept.file.Save();
    EXPECT_NE(
        kept.file.degraded().find("pods could not be saved: no room for pods.journal-1; after "
                                  "a restart the newest would be missing"),
        std::string::npos)
        << kept.file.degraded();
    EXPECT_EQ(AfterRestart(*disk), stored);
    kept.pods.Remove(kept.pods.FindByName("a")->id, true);
    kept.file.Save();
    Instant now = MonotonicNow();
    kept.file.Tend(now);
    EXPECT_NE(kept.file.degraded(), "");
    disk->room = SIZE_MAX;
    for (int i = 0; i < 3; ++i) kept.file.Tend(now += std::chrono::minutes(2));
    while (kept.Step()) {
    }
    EXPECT_EQ(kept.file.degraded(), "");
    EXPECT_EQ(AfterRestart(*disk), kept.Text());
  }
}

TEST(PodsFile, WithoutRoomForPodsJsonTheJournalsGoOn) {
  const auto disk = std::make_shared<MemoryDisk>();
  Kept kept(disk, 40'000);
  ASSERT_TRUE(kept.file.Load());
  disk->room = 70'000;
  for (int i = 0; disk->files.count("pods.json.new") == 0; ++i) {
    ASSERT_TRUE(kept.pods.Add(MakePod("pod " + std::to_string(i))));
    kept.file.Save();
  }
  while (kept.Step()) {
  }
  EXPECT_NE(kept.file.degraded().find("could not be written anew"), std::string::npos);
  EXPECT_EQ(disk->files.count("pods.json.new"), 0u);
  ASSERT_TRUE(kept.pods.Add(MakePod("one more")));
  kept.file.Save();
  EXPECT_EQ(AfterRestart(*disk), kept.Text());
  disk->room = SIZE_MAX;
  kept.file.Tend(MonotonicNow() + std::chrono::minutes(2));
  while (kept.Step()) {
  }
  EXPECT_EQ(kept.file.degraded(), "");
  EXPECT_EQ(disk->files.size(), 2u);
  EXPECT_EQ(AfterRestart(*disk), kept.Text());
}

TEST(PodsFile, WhatIsSavedTogetherIsThereTogether) {
  const auto disk = std::make_shared<MemoryDisk>();
  Kept kept(disk);
  ASSERT_TRUE(kept.file.Load());
  ASSERT_TRUE(kept.pods.Add(MakePod("before")));
  kept.file.Save();
  const std::string before = kept.Text(), journal = disk->files.at("pods.journal-1");
  {
    const PodsFile::Batch batch(kept.file);
    for (const char* name : {"a", "b", "c"}) ASSERT_TRUE(kept.pods.Add(MakePod(name)));
  }
  const std::string whole = disk->files.at("pods.journal-1");
  for (size_t end = journal.size(); end < whole.size(); end += 5) {
    disk->files["pods.journal-1"] = whole.substr(0, end);
    EXPECT_EQ(AfterRestart(*disk), before) << end;
  }
  disk->files["pods.journal-1"] = whole;
  EXPECT_EQ(AfterRestart(*disk), kept.Text());
}

TEST(PodsFile, AFileThatIsTakenAwayIsWrittenAgain) {
  const auto disk = std::make_shared<MemoryDisk>();
  Kept kept(disk);
  ASSERT_TRUE(kept.file.Load());
  ASSERT_TRUE(kept.pods.Add(MakePod("a")));
  kept.file.Save();
  disk->files.clear();
  ASSERT_TRUE(kept.pods.Add(MakePod("b")));
  kept.file.Save();
  kept.file.Tend(MonotonicNow());
  while (kept.Step()) {
  }
  EXPECT_EQ(kept.file.degraded(), "");
  EXPECT_EQ(AfterRestart(*disk), kept.Text());
}

TEST(PodsFile, ADamagedRecordEndsWhatIsReadAndIsSaid) {
  const auto disk = std::make_shared<MemoryDisk>();
  std::vector<std::string> texts;
  std::vector<size_t> ends;
  {
    Kept kept(disk);
    ASSERT_TRUE(kept.file.Load());
    for (const char* name : {"a", "b", "c"}) {
      texts.push_back(kept.Text());
      ends.push_back(disk->files.at("pods.journal-1").size());
      ASSERT_TRUE(kept.pods.Add(MakePod(name)));
      kept.file.Save();
    }
  }
  const std::string good = disk->files.at("pods.journal-1");
  for (size_t at = 0; at < good.size(); at += 3) {
    disk->files["pods.journal-1"] = good;
    disk->files["pods.journal-1"][at] = static_cast<char>(good[at] ^ 0x10);
    std::vector<std::string> troubles;
    const std::string found = AfterRestart(*disk, &troubles);
    size_t whole = 0;
    while (whole + 1 < ends.size() && ends[whole + 1] <= at) ++whole;
    // The last line's end is as good as no end: a write that was cut short.
    if (at + 1 != good.size()) {
      ASSERT_EQ(troubles.size(), 1u) << at;
      EXPECT_NE(troubles[0].find("/state/pods.journal-* were damaged"), std::string::npos);
    }
    EXPECT_EQ(found, texts[whole]) << at;
  }
  // Pods.json itself: nothing of before is there, and the journals are of no use.
  disk->files["pods.journal-1"] = good;
  disk->files["pods.json"][20] ^= 0x10;
  Kept kept(disk);
  const auto found = kept.file.Load();
  ASSERT_TRUE(found);
  EXPECT_FALSE(found->known);
  EXPECT_TRUE(kept.pods.all().empty());
  EXPECT_EQ(disk->files.at("pods.journal-1.damaged"), good);
  EXPECT_EQ(disk->files.count("pods.json.damaged"), 1u);
}

TEST(PodsFile, JournalsOfAnotherPodsJsonAreNotTaken) {
  const auto disk = std::make_shared<MemoryDisk>();
  {
    Kept kept(disk);
    ASSERT_TRUE(kept.file.Load());
    ASSERT_TRUE(kept.pods.Add(MakePod("a")));
    kept.file.Save();
  }
  // Moved away, as the sentence for a newer version says.
  disk->files.erase("pods.json");
  Kept kept(disk);
  const auto found = kept.file.Load();
  ASSERT_TRUE(found);
  EXPECT_FALSE(found->known);
  EXPECT_TRUE(kept.pods.all().empty());
  EXPECT_EQ(found->troubles.size(), 1u);
  EXPECT_EQ(disk->files.count("pods.journal-1.damaged"), 1u);
}

TEST(PodsFile, OfANewerVersionItIsLeftAlone) {
  for (const char* name : {"pods.json", "pods.journal-1"}) {
    const auto disk = std::make_shared<MemoryDisk>();
    {
      Kept kept(disk);
      ASSERT_TRUE(kept.file.Load());
    }
    disk->files[name] =
        std::string(name) == "pods.json" ? "baton pods 3 1\n" : "baton pods journal 2 1\n";
    const auto before = disk->files;
    Kept kept(disk);
    const auto found = kept.file.Load();
    ASSERT_FALSE(found) << name;
    EXPECT_NE(found.error().message.find("a newer version of Baton wrote it"), std::string::npos);
    EXPECT_EQ(disk->files, before);
  }
}

TEST(PodsFile, TheVersionBeforeRefusesIt) {
  const auto disk = std::make_shared<MemoryDisk>();
  Kept kept(disk);
  ASSERT_TRUE(kept.file.Load());
  // Its words: "baton pods ", then a number above 1.
  EXPECT_TRUE(disk->files.at("pods.json").starts_with("baton pods 2 "));
}

}  // namespace
}  // namespace baton::backend
