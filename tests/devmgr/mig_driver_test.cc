#include "devmgr/machine/mig_driver.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "tests/devmgr/card_use.h"
#include "tests/devmgr/crash_points.h"
#include "tests/devmgr/mig_table.h"
#include "tests/temp_folder.h"

namespace baton::devmgr {
namespace {

// A GPU as NVML has it, by the documented places. An instance is made in two steps and taken away
// in two, and the process may end between them.
class FakeMig final : public MigControl {
 public:
  FakeMig(const DocumentedModel& model, CrashPoints& crash) : model_(model), crash_(crash) {}

  Result<std::vector<MigInstance>> Instances(const std::string&) override {
    if (away) return Fail(ErrorCode::kUnavailable, "NVML does not answer");
    if (gone) return Fail(ErrorCode::kNotFound, "no such GPU");
    std::sort(instances.begin(), instances.end(),
              [](const MigInstance& a, const MigInstance& b) { return a.start < b.start; });
    return instances;
  }
  Result<MigInstance> Create(const std::string&, const std::string& profile,
                             uint32_t start) override {
    if (away) return Fail(ErrorCode::kUnavailable, "NVML does not answer");
    const auto p = std::find_if(model_.profiles.begin(), model_.profiles.end(),
                                [&](const auto& d) { return d.name == profile; });
    if (p == model_.profiles.end() ||
        std::find(p->starts.begin(), p->starts.end(), start) == p->starts.end()) {
      return Fail(ErrorCode::kInvalid, "no such profile, or not there");
    }
    for (const MigInstance& i : instances) {
      if (i.start < start + p->slices && start < i.start + i.slices) {
        return Fail(ErrorCode::kExhausted, "the place is taken");
      }
    }
    crash_.Step();
    instances.push_back({next_, profile, "", start, p->slices});
    const size_t at = instances.size() - 1;
    crash_.Step();
    if (fails) {
      instances.pop_back();
      return Fail(ErrorCode::kUnavailable, "no compute instance");
    }
    instances[at].uuid = "MIG-" + std::to_string(next_++);
    crash_.Step();
    return instances[at];
  }
  Result<void> Destroy(const std::string&, uint32_t id) override {
    const auto at = std::find_if(instances.begin(), instances.end(),
                                 [&](const MigInstance& i) { return i.id == id; });
    if (at == instances.end()) return {};
    if (in_use.count(at->uuid) != 0) return Fail(ErrorCode::kUnavailable, "it is in use");
    crash_.Step();
    at->uuid.clear();
    crash_.Step();
    instances.erase(at);
    crash_.Step();
    return {};
  }

  std::vector<MigInstance> instances;
  std::set<std::string> in_use;
  bool away = false;
  bool gone = false;
  bool fails = false;

 private:
  const DocumentedModel model_;
  CrashPoints& crash_;
  uint32_t next_ = 1;
};

class FakeMarks final : public DeviceMarks {
 public:
  explicit FakeMarks(CrashPoints& crash) : crash_(crash) {}

  Result<std::map<std::string, std::string>> Of(const std::string&) override { return marks; }
  Result<void> Put(const std::string&, const std::string& id, const std::string& text) override {
    crash_.Step();
    marks[id] = text;
    crash_.Step();
    return {};
  }
  Result<void> Remove(const std::string&, const std::string& id) override {
    crash_.Step();
    marks.erase(id);
    crash_.Step();
    return {};
  }

  std::map<std::string, std::string> marks;

 private:
  CrashPoints& crash_;
};

// A machine with one GPU, and a daemon that keeps a map in a file.
struct World {
  CrashPoints crash;
  DocumentedModel model;
  FakeMig mig;
  FakeMarks marks;
  MigMode mode;
  Card card;
  std::map<std::string, DeviceDriver::Vgpu> map;
  bool record_late = false;  // a daemon that records a vGPU only when it has been made

  explicit World(const DocumentedModel& m)
      : model(m), mig(m, crash), marks(crash), card(MigCard(m)) {}

  CardUse Use() const {
    CardUse use;
    for (const auto& [id, vgpu] : map) {
      const auto fit = mode.FitAt(card, use, {vgpu.fit.share, 0}, vgpu.fit.slot);
      EXPECT_TRUE(fit) << id;
      if (fit) Add(use, *fit);
    }
    return use;
  }
  DeviceDriver::Vgpu Place(const std::string& id, uint32_t share) const {
    const auto fit = mode.TryFit(card, Use(), {policy::Share(share), 0});
    EXPECT_TRUE(fit) << id;
    return {id, card.uuid, fit.value_or(Fit{}), ""};
  }
  // What a daemon does for a pod that comes, and one that goes.
  void Begin(MigDriver& driver, const std::string& id, uint32_t share) {
    DeviceDriver::Vgpu vgpu = Place(id, share);
    if (!record_late) {
      crash.Step();
      map[id] = vgpu;
    }
    const auto device = driver.Create(card, vgpu);
    ASSERT_TRUE(device) << device.error().message;
    crash.Step();
    vgpu.device = *device;
    map[id] = vgpu;
    crash.Step();
  }
  void End(MigDriver& driver, const std::string& id) {
    const DeviceDriver::Vgpu vgpu = map.at(id);
    if (record_late) {
      map.erase(id);
      crash.Step();
    }
    const auto gone = driver.Destroy(card, vgpu);
    ASSERT_TRUE(gone) << gone.error().message;
    crash.Step();
    map.erase(id);
    crash.Step();
  }
  // What it does after a start.
  std::vector<std::string> Reconcile() {
    MigDriver driver(mig, marks, mode);
    std::vector<DeviceDriver::Vgpu> known;
    for (const auto& [id, vgpu] : map) known.push_back(vgpu);
    const auto done = driver.Reconcile(card, known);
    EXPECT_TRUE(done) << done.error().message;
    for (const DeviceDriver::Vgpu& vgpu : known) {
      crash.Step();
      map[vgpu.id] = vgpu;
    }
    return done.value_or(std::vector<std::string>{});
  }
  // No orphan, no virtual GPU without its instance, nothing of others' touched.
  void Check(const std::vector<MigInstance>& others) const {
    size_t ours = 0;
    for (const auto& [id, vgpu] : map) {
      const auto part = mode.PartOf(card, vgpu.fit.slot);
      ASSERT_TRUE(part);
      const auto at = std::find_if(mig.instances.begin(), mig.instances.end(), [&](const auto& i) {
        return i.start == part->start && i.profile == part->profile;
      });
      ASSERT_NE(at, mig.instances.end()) << id << " has no instance";
      EXPECT_FALSE(at->uuid.empty());
      EXPECT_EQ(at->uuid, vgpu.device);
      ++ours;
    }
    EXPECT_EQ(mig.instances.size(), ours + others.size()) << "an orphan";
    for (const MigInstance& other : others) {
      EXPECT_NE(std::find(mig.instances.begin(), mig.instances.end(), other), mig.instances.end());
    }
    EXPECT_EQ(marks.marks.size(), ours);
  }
};

DocumentedModel H100() { return DocumentedModels()[2]; }

TEST(MigDriver, MakesAnInstanceInThePlaceOfTheSlotAndTakesItAwayAgain) {
  World world(H100());
  MigDriver driver(world.mig, world.marks, world.mode);
  world.Begin(driver, "a", 400'000);
  world.Begin(driver, "b", 400'000);
  ASSERT_EQ(world.mig.instances.size(), 2u);
  EXPECT_EQ(world.mig.instances[0].profile, "3g.40gb");
  world.Check({});
  // Again is the same.
  const auto again = driver.Create(world.card, world.map["a"]);
  ASSERT_TRUE(again);
  EXPECT_EQ(*again, world.map["a"].device);
  world.End(driver, "a");
  world.Check({});
  const DeviceDriver::Vgpu gone{"a", world.card.uuid, world.Place("a", 400'000).fit, "MIG-1"};
  EXPECT_TRUE(driver.Destroy(world.card, gone));
  world.End(driver, "b");
  world.Check({});
  EXPECT_TRUE(world.Reconcile().empty());
}

// The Done-when: whatever step is the last, after the next start every virtual GPU has its instance
// and there is no other; also when that start is cut short as well.
TEST(MigDriver, AKillAtAnyStepLeavesNoOrphanAndNoVirtualGpuWithoutAnInstance) {
  size_t kills = 0;
  for (const bool record_late : {false, true}) {
    for (const bool with_others : {false, true}) {
      const auto run = [&](World& world) {
        world.record_late = record_late;
        if (with_others) world.mig.instances = {{99, "3g.40gb", "MIG-other", 4, 4}};
        world.card.instances = world.mig.instances;
        MigDriver driver(world.mig, world.marks, world.mode);
        world.Begin(driver, "a", 140'000);
        world.Begin(driver, "b", 140'000);
        world.End(driver, "a");
        world.Begin(driver, "c", 140'000);
        world.Begin(driver, "d", 140'000);
        world.End(driver, "b");
        world.End(driver, "c");
        world.End(driver, "d");
        world.Begin(driver, "e", with_others ? 280'000 : 560'000);
      };
      World whole(H100());
      whole.crash.ArmAt(0);
      run(whole);
      const int steps = whole.crash.steps();
      ASSERT_GT(steps, 60);
      for (int first = 1; first <= steps; ++first) {
        for (int second = 0; second <= 12; ++second) {
          World world(H100());
          world.crash.ArmAt(first);
          try {
            run(world);
            FAIL() << "not killed at step " << first;
          } catch (const Killed&) {
            ++kills;
          }
          std::vector<MigInstance> others;
          if (with_others) others = {{99, "3g.40gb", "MIG-other", 4, 4}};
          if (second > 0) {
            world.crash.ArmAt(second);
            try {
              world.Reconcile();
            } catch (const Killed&) {
              ++kills;
            }
          }
          world.crash.ArmAt(0);
          world.Reconcile();
          world.Check(others);
          EXPECT_TRUE(world.Reconcile().empty()) << "not done after once";
          if (testing::Test::HasFailure()) {
            FAIL() << "killed at step " << first << ", then at step " << second;
          }
        }
      }
    }
  }
  EXPECT_GT(kills, 4'000u);
}

TEST(MigDriver, InstancesOfOthersAreNeitherGivenToAPodNorTakenAway) {
  World world(H100());
  MigDriver driver(world.mig, world.marks, world.mode);
  // Somebody was faster than our last look at the GPU: the very same instance.
  const DeviceDriver::Vgpu vgpu = world.Place("a", 400'000);
  const auto part = world.mode.PartOf(world.card, vgpu.fit.slot);
  world.mig.instances = {{5, part->profile, "MIG-other", part->start, part->slices}};
  const auto made = driver.Create(world.card, vgpu);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(made.error().message,
            "there is no room for 3g.40gb at slice 0 of GPU-0: GPU instance 5 (3g.40gb at slice 0) "
            "is in the way, and was not made for this virtual GPU; take it away, or place the pod "
            "elsewhere");
  EXPECT_TRUE(world.marks.marks.empty());
  EXPECT_TRUE(driver.Destroy(world.card, vgpu));
  std::vector<DeviceDriver::Vgpu> known = {vgpu};
  const auto done = driver.Reconcile(world.card, known);
  ASSERT_TRUE(done);
  ASSERT_EQ(done->size(), 1u);
  EXPECT_TRUE((*done)[0].starts_with("virtual GPU a has no MIG instance: there is no room"))
      << (*done)[0];
  EXPECT_EQ(known[0].device, "");
  known.clear();
  EXPECT_TRUE(driver.Reconcile(world.card, known));
  ASSERT_EQ(world.mig.instances.size(), 1u);
  EXPECT_EQ(world.mig.instances[0].uuid, "MIG-other");
}

TEST(MigDriver, AnInstanceInUseStaysAndCanBeTakenAwayLater) {
  World world(H100());
  MigDriver driver(world.mig, world.marks, world.mode);
  world.Begin(driver, "a", 400'000);
  world.mig.in_use.insert(world.map["a"].device);
  const auto gone = driver.Destroy(world.card, world.map["a"]);
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(gone.error().message, "cannot take away 3g.40gb at slice 0 of GPU-0: it is in use");
  world.Check({});
  // The map forgets it all the same: said at each reconciliation, until it is gone.
  world.map.clear();
  EXPECT_EQ(world.Reconcile(),
            (std::vector<std::string>{
                "what was made for virtual GPU a, which is not known any more, stays for now: "
                "cannot take away 3g.40gb at slice 0 of GPU-0: it is in use"}));
  world.mig.in_use.clear();
  EXPECT_EQ(world.Reconcile(),
            (std::vector<std::string>{"took away a MIG instance of GPU-0 (3g.40gb 0 4) that was "
                                      "made for virtual GPU a, which is not known any more"}));
  world.Check({});
}

TEST(MigDriver, AfterAResetOfTheGpuTheInstancesAreMadeAgain) {
  World world(H100());
  {
    MigDriver driver(world.mig, world.marks, world.mode);
    world.Begin(driver, "a", 400'000);
    world.Begin(driver, "b", 300'000);
  }
  world.mig.instances.clear();
  const auto done = world.Reconcile();
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0], "made MIG-3 on GPU-0 for virtual GPU a, whose own was gone");
  world.Check({});
}

TEST(MigDriver, ADriverThatFailsOrIsAwayChangesNothing) {
  World world(H100());
  MigDriver driver(world.mig, world.marks, world.mode);
  world.Begin(driver, "a", 400'000);
  world.mig.fails = true;
  const DeviceDriver::Vgpu b = world.Place("b", 400'000);
  const auto made = driver.Create(world.card, b);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().message, "cannot make 3g.40gb at slice 4 of GPU-0: no compute instance");
  world.mig.fails = false;
  world.mig.away = true;
  EXPECT_EQ(driver.Create(world.card, b).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(driver.Destroy(world.card, world.map["a"]).error().code, ErrorCode::kUnavailable);
  world.mig.away = false;
  EXPECT_TRUE(driver.Create(world.card, b));
  EXPECT_TRUE(driver.Destroy(world.card, b));
  world.Check({});
  // A GPU that is gone took its instances with it.
  world.mig.gone = true;
  EXPECT_TRUE(driver.Destroy(world.card, world.map["a"]));
  world.mig.gone = false;
  DeviceDriver::Vgpu odd = b;
  odd.fit.slot = 1;
  EXPECT_EQ(driver.Create(world.card, odd).error().message,
            "virtual GPU b is in a MIG geometry of GPU-0 that no template has; place it anew");
}

TEST(MigDriver, LostMarksAreReplacedByWhatTheMapHasRecorded) {
  World world(H100());
  MigDriver driver(world.mig, world.marks, world.mode);
  world.Begin(driver, "a", 400'000);
  world.Begin(driver, "b", 400'000);
  world.marks.marks.clear();
  EXPECT_TRUE(driver.Destroy(world.card, world.map["a"]));
  world.map.erase("a");
  EXPECT_TRUE(world.Reconcile().empty());
  world.Check({});
}

class FileMarksTest : public testing::Test {
 protected:
  const TempFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path();
};

TEST_F(FileMarksTest, AreThereForTheNextProcessUntilTheyAreRemoved) {
  const std::string odd = "team/pod with words:0";
  {
    FileMarks marks(folder_ / "mig");
    EXPECT_TRUE(marks.Of("GPU-1")->empty());
    ASSERT_TRUE(marks.Put("GPU-1", odd, "1g.10gb 0 1"));
    ASSERT_TRUE(marks.Put("GPU-1", "b", ""));
    ASSERT_TRUE(marks.Put("GPU-1", odd, "1g.10gb 3 1"));
    ASSERT_TRUE(marks.Put("GPU-2", "c", "x"));
  }
  FileMarks marks(folder_ / "mig");
  EXPECT_EQ(*marks.Of("GPU-1"),
            (std::map<std::string, std::string>{{odd, "1g.10gb 3 1"}, {"b", ""}}));
  EXPECT_TRUE(marks.Remove("GPU-1", "b"));
  EXPECT_TRUE(marks.Remove("GPU-1", "b"));
  EXPECT_TRUE(marks.Remove("GPU-1", odd));
  EXPECT_TRUE(marks.Of("GPU-1")->empty());
  EXPECT_FALSE(std::filesystem::exists(folder_ / "mig" / "GPU-1"));
  EXPECT_EQ(marks.Of("GPU-2")->size(), 1u);
}

TEST_F(FileMarksTest, WhatIsTornOrOfAnotherBootIsNotBelieved) {
  FileMarks marks(folder_);
  ASSERT_TRUE(marks.Put("GPU-1", "a", "text"));
  const auto path = std::filesystem::directory_iterator(folder_ / "GPU-1")->path();
  std::ifstream in(path);
  const std::string whole{std::istreambuf_iterator<char>(in), {}};
  // One that was being written when the process ended.
  std::ofstream(path.string() + ".new") << "baton";
  EXPECT_EQ(marks.Of("GPU-1")->size(), 1u);
  std::ofstream(path) << whole.substr(0, whole.size() / 2);
  const auto damaged = marks.Of("GPU-1");
  ASSERT_FALSE(damaged);
  EXPECT_EQ(damaged.error().message,
            path.string() + " is damaged; see what there is on the GPU, then delete the file");
  std::ofstream(path) << "baton mark 1\nanother-boot\na\ntext\n";
  EXPECT_TRUE(marks.Of("GPU-1")->empty());
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(FileMarksTest, NamesFromOutsideStayInTheFolder) {
  FileMarks marks(folder_ / "m");
  for (const char* card : {"", "..", "a/b", "../x", ".hidden"}) {
    EXPECT_FALSE(marks.Put(card, "a", "")) << card;
    EXPECT_FALSE(marks.Of(card)) << card;
  }
  EXPECT_FALSE(marks.Put("GPU-1", "", ""));
  EXPECT_FALSE(marks.Put("GPU-1", "a\nb", ""));
  EXPECT_FALSE(marks.Put("GPU-1", std::string(600, 'a'), ""));
  EXPECT_FALSE(marks.Put("GPU-1", "a", "x\ny"));
  EXPECT_TRUE(marks.Put("GPU-1", "../../etc/passwd", "x"));
  EXPECT_EQ(marks.Of("GPU-1")->begin()->first, "../../etc/passwd");
  std::ofstream(folder_ / "file") << "";
  FileMarks blocked(folder_ / "file");
  const auto put = blocked.Put("GPU-1", "a", "");
  ASSERT_FALSE(put);
  EXPECT_EQ(put.error().code, ErrorCode::kInternal);
}

}  // namespace
}  // namespace baton::devmgr
