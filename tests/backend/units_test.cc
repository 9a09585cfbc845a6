// The parts of batond that need no daemon around them: keys, pods.
#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "backend/arbiter.h"
#include "backend/client_table.h"
#include "backend/pods.h"
#include "backend/pods_text.h"
#include "backend/users.h"
#include "base/hash.h"
#include "config/options.h"
#include "net/keys.h"
#include "node/gpu_lock.h"
#include "node/process.h"
#include "tests/backend/daemon_process.h"

// In place of the C library's: a machine whose only group names a crowd of members.
extern "C" int getgrnam_r(const char* name, group* entry, char* text, size_t bytes, group** found) {
  *found = nullptr;
  if (strcmp(name, "crowd") != 0) return 0;
  if (bytes < 300'000) return ERANGE;
  *entry = {.gr_name = text, .gr_passwd = text, .gr_gid = 4711, .gr_mem = nullptr};
  *found = entry;
  return 0;
}

namespace baton::backend {
namespace {

using std::chrono::milliseconds;

TEST(Keys, APairIsWrittenForItsOwnerAloneAndReadBack) {
  const TempFolder folder;
  const std::string path = folder / "node.key";
  ASSERT_TRUE(net::GenerateKeyPair(path));
  struct stat st;
  ASSERT_EQ(stat(path.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u);
  const auto keys = net::ReadKeyPair(path);
  ASSERT_TRUE(keys) << keys.error().message;
  EXPECT_EQ(ReadText(path + ".pub"), keys->public_key + "\n");
  EXPECT_NE(keys->public_key, keys->secret_key);
}

TEST(Keys, AnExistingKeyIsNeverOverwritten) {
  const TempFolder folder;
  ASSERT_TRUE(net::GenerateKeyPair(folder / "node.key"));
  const std::string before = ReadText(folder / "node.key");
  const auto again = net::GenerateKeyPair(folder / "node.key");
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::kExists);
  EXPECT_EQ(ReadText(folder / "node.key"), before);
}

TEST(Keys, AKeyThatOthersCanReadIsRefused) {
  const TempFolder folder;
  ASSERT_TRUE(net::GenerateKeyPair(folder / "node.key"));
  chmod((folder / "node.key").c_str(), 0640);
  const auto keys = net::ReadKeyPair(folder / "node.key");
  ASSERT_FALSE(keys);
  EXPECT_EQ(keys.error().code, ErrorCode::kDenied);
}

TEST(Users, AGroupMayHaveAnyNumberOfMembers) {
  const auto crowd = LookUpGroup("crowd");
  ASSERT_TRUE(crowd) << crowd.error().message;
  EXPECT_EQ(*crowd, 4711u);
  EXPECT_FALSE(LookUpGroup("nobody-here"));
}

TEST(ClientTable, KnowsTheProcessesOfEachPod) {
  UsageBook usage;
  ClientTable clients(usage);
  const PodId a{1}, b{2};
  Client& first = clients.Add(a, {"node", 10, 1}, 100);
  Client& second = clients.Add(a, {"node", 11, 1}, 101);
  clients.Add(b, {"node", 12, 1}, 102);
  EXPECT_EQ(clients.OfPod(a), (std::vector{&first, &second}));
  clients.Remove(first);
  EXPECT_EQ(clients.OfPod(a), std::vector{&second});
  clients.Remove(second);
  EXPECT_TRUE(clients.OfPod(a).empty());
  EXPECT_EQ(clients.OfPod(b).size(), 1u);
  EXPECT_EQ(clients.OfNode("node"), 1u);
}

Pod MakePod(const std::string& name, uint32_t request, const std::string& gpu) {
  Pod pod;
  pod.name = name;
  pod.share = *spec::ShareFrom(policy::Share(request), {}, policy::Priority::kNormal);
  pod.gpus = {gpu};
  return pod;
}

Result<void> Load(const std::string& text, Pods& pods) {
  uint64_t generation = 0;
  auto image = ReadPodsText(text, generation);
  if (!image) return tl::unexpected(image.error());
  return pods.Restore(std::move(*image));
}

TEST(Pods, ANameIsTakenOnce) {
  Pods pods;
  ASSERT_TRUE(pods.Add(MakePod("a", 600'000, "GPU-0")));
  const auto again = pods.Add(MakePod("a", 1'000, "GPU-1"));
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::kExists);
}

TEST(Pods, AreTheSameAfterBeingStoredAndIdsAreNeverGivenOutTwice) {
  Pods pods;
  Pod* a = *pods.Add(MakePod("a", 500'000, "GPU-0"));
  Pod* b = *pods.Add(MakePod("b \"x\"\n", 300'000, "GPU-0"));
  const PodId last = b->id;
  a->memory_part = policy::Share(250'000);
  a->mode = "mig";
  a->wishes = {"mig", {"a100"}, {"t4"}, {"GPU-0"}, "near", "far", "alone"};
  a->vgpus[0] = {{policy::Share(428'571), 20'096, 0, 7u << 8 | 4}, "MIG-0", 5'000, {"GPU-9"}};
  pods.SetCordoned("GPU-7", true);
  const std::string ticket = a->ticket;
  pods.Remove(last, false);
  Pods restored;
  ASSERT_TRUE(Load(WritePodsText(pods, 7), restored));
  ASSERT_NE(restored.FindByTicket(ticket), nullptr);
  EXPECT_EQ(restored.FindByTicket(ticket)->share.request, policy::Share(500'000));
  const Pod& back = *restored.FindByTicket(ticket);
  EXPECT_EQ(back.memory_part, policy::Share(250'000));
  EXPECT_EQ(back.mode, "mig");
  EXPECT_EQ(back.wishes, a->wishes);
  ASSERT_EQ(back.vgpus.size(), 1u);
  EXPECT_EQ(back.vgpus[0].fit, a->vgpus[0].fit);
  EXPECT_EQ(back.vgpus[0].device, "MIG-0");
  EXPECT_EQ(back.vgpus[0].memory_peak, 5'000u);
  EXPECT_EQ(back.Accounted(), (std::vector<std::string>{"GPU-0", "GPU-9"}));
  EXPECT_EQ(back.CapOn("GPU-0"), uint64_t{20'096} << 20);
  EXPECT_EQ(restored.cordoned(), std::set<std::string>{"GPU-7"});
  EXPECT_GT((*restored.Add(MakePod("c", 1000, "GPU-0")))->id, last);
  restored.StartAbove(1000);
  EXPECT_GT((*restored.Add(MakePod("d", 1000, "GPU-0")))->id, PodId{1000});
}

TEST(Pods, AGangIsWholeOnceAllOfItHaveBeenThereAndStaysSo) {
  Pods pods;
  const auto add = [&](const char* name, const char* gpu) {
    Pod pod = MakePod(name, 100'000, gpu);
    pod.gang = "job";
    pod.gang_size = 2;
    return *pods.Add(pod);
  };
  const Pod* a = add("a", "GPU-0");
  EXPECT_TRUE(a->in_gang());
  EXPECT_EQ(pods.MissingOf(*a), 1u);
  const Pod* b = add("b", "GPU-1");
  EXPECT_EQ(pods.MissingOf(*a), 0u);
  EXPECT_EQ(pods.GangOf(*a), (std::vector<const Pod*>{a, b}));
  pods.Remove(b->id, false);
  Pods restored;
  ASSERT_TRUE(Load(WritePodsText(pods, 7), restored));
  EXPECT_EQ(restored.MissingOf(*restored.FindByName("a")), 0u) << "what one pod has done is done";
}

TEST(Pods, OfAGangsPodsThatShareAGpuTheLaterOneIsByItself) {
  Pods pods;
  Pod pod = MakePod("a", 100'000, "GPU-0");
  pod.gang = "job";
  const Pod* a = *pods.Add(pod);
  pod.name = "b";
  Pod* b = *pods.Add(pod);
  EXPECT_TRUE(a->in_gang());
  EXPECT_FALSE(b->in_gang());
  Pods restored;
  ASSERT_TRUE(Load(WritePodsText(pods, 7), restored));
  EXPECT_TRUE(restored.FindByName("b")->beside_own);
  b->gpus = {"GPU-1"};
  pods.JoinGang(*b);
  EXPECT_EQ(pods.GangOf(*a).size(), 2u) << "it has moved";
}

TEST(Pods, ADamagedFileIsRefused) {
  Pods pods;
  ASSERT_TRUE(pods.Add(MakePod("a", 500'000, "GPU-0")));
  const std::string text = WritePodsText(pods, 7);
  for (size_t at = 0; at < text.size(); at += 7) {
    std::string damaged = text;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    Pods loaded;
    EXPECT_FALSE(Load(damaged, loaded)) << "byte " << at;
    EXPECT_FALSE(Load(text.substr(0, at), loaded)) << "cut at " << at;
  }
}

// A checksum only says that somebody wrote it so.
TEST(Pods, AFileThatNoBatondWritesIsRefused) {
  const auto row = [](int id, const char* name) {
    return fmt::format(
        "  {{\n   \"from_file\": \"\",\n   \"gpus\": [\n    \"GPU-0\"\n   ],\n   \"id\": {},\n   "
        "\"limit\": 1000000,\n   \"memory\": 0,\n   \"name\": \"{}\",\n   \"priority\": 0,\n   "
        "\"request\": 500000,\n   \"team\": \"\",\n   \"ticket\": \"t{}\",\n   \"uid\": -1,\n   "
        "\"vgpus\": [{{\"share\": 500000, \"memory_mib\": 0, \"slot\": 0}}]\n  }}",
        id, name, id);
  };
  // As version 1 wrote it before it had the fields by a table.
  const std::string body = fmt::format("{{\n \"last_id\": 2,\n \"pods\": [\n{},\n{}\n ]\n}}\n",
                                       row(1, "a"), row(2, "b"));
  const auto load = [](std::string changed) {
    changed.pop_back();
    Pods loaded;
    return Load(fmt::format("baton pods 1 {:016x}\n{}\n", HashOf(changed), changed), loaded);
  };
  ASSERT_TRUE(load(body));
  std::string deep = body;
  deep.insert(deep.find('{') + 1,
              "\"x\": " + std::string(50'000, '[') + std::string(50'000, ']') + ",");
  EXPECT_FALSE(load(deep));
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"\"last_id\": 2", "\"last_id\": 1e300"},
           {"\"id\": 2", "\"id\": 1e300"},
           {"\"id\": 2", "\"id\": -2"},
           {"\"id\": 2", "\"id\": 1"},
           {"\"limit\": 1000000", "\"limit\": 4295967296"},
           {"\"memory\": 0", "\"memory\": -1"},
           {"\"priority\": 0", "\"priority\": 7"},
           {"\"uid\": -1", "\"uid\": 1e300"},
           {"\"uid\": -1", "\"uid\": -2"},
           {"\"slot\": 0", "\"slot\": -1"},
           {"\"name\": \"b\"", "\"name\": \"a\""},
           {"\"gpus\": [\n    \"GPU-0\"\n   ]", "\"gpus\": []"}}) {
    std::string changed = body;
    bool found = false;
    for (size_t at = changed.find(from); at != std::string::npos;
         at = changed.find(from, at + to.size())) {
      changed.replace(at, from.size(), to);
      found = true;
    }
    ASSERT_TRUE(found) << from;
    EXPECT_FALSE(load(changed)) << to;
  }
}

TEST(Process, IsNamedByPidAndStartTime) {
  const auto start = node::StartTime(getpid());
  ASSERT_TRUE(start);
  EXPECT_TRUE(node::OpenPidfd(getpid(), *start));
  EXPECT_FALSE(node::OpenPidfd(getpid(), *start + 1));
  const TempFolder folder;
  HolderProcess child(folder / "nobody listens", "", "");
  const pid_t pid = child.pid();
  const auto child_start = node::StartTime(pid);
  ASSERT_TRUE(child_start);
  EXPECT_TRUE(node::OpenPidfd(pid, *child_start));
  child.Kill();
  EXPECT_FALSE(node::OpenPidfd(pid, *child_start));
}

TEST(GpuLock, IsExclusiveUntilItIsGivenUp) {
  const TempFolder folder;
  auto first = node::LockGpu(folder / "locks", "GPU-0");
  ASSERT_TRUE(first);
  const auto second = node::LockGpu(folder / "locks", "GPU-0");
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kExists);
  EXPECT_NE(second.error().message.find(std::to_string(getpid())), std::string::npos);
  EXPECT_TRUE(node::LockGpu(folder / "locks", "GPU-1"));
  first->Close();
  EXPECT_TRUE(node::LockGpu(folder / "locks", "GPU-0"));
}

// Another user of this machine.
constexpr uid_t kNobody = 65534;

std::string WhyNoLock(const std::string& folder) {
  const auto lock = node::LockGpu(folder, "GPU-0");
  return lock ? "" : lock.error().message;
}

TEST(GpuLock, ALinkInItsPlaceIsRefusedAndWhatItNamesIsLeftAlone) {
  const TempFolder folder;
  const std::string victim = folder.Write("victim", "precious", 0600);
  ASSERT_EQ(mkdir((folder / "locks").c_str(), 0755), 0);
  const std::string path = folder / "locks/gpu-GPU-0.lock";
  ASSERT_EQ(symlink(victim.c_str(), path.c_str()), 0);
  EXPECT_NE(WhyNoLock(folder / "locks").find("it is a link; remove it"), std::string::npos);
  EXPECT_EQ(ReadText(victim), "precious");
  ASSERT_EQ(unlink(path.c_str()), 0);
  ASSERT_EQ(link(victim.c_str(), path.c_str()), 0);
  EXPECT_NE(WhyNoLock(folder / "locks").find("hard links"), std::string::npos);
  EXPECT_EQ(ReadText(victim), "precious");
  ASSERT_EQ(unlink(path.c_str()), 0);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_NE(WhyNoLock(folder / "locks").find("not a regular file"), std::string::npos);
  ASSERT_EQ(unlink(path.c_str()), 0);
  EXPECT_EQ(WhyNoLock(folder / "locks"), "");
}

TEST(GpuLock, AFolderThatOthersOwnOrMayWriteToOrThatIsALinkIsRefused) {
  const TempFolder folder;
  const std::string locks = folder / "locks";
  ASSERT_EQ(WhyNoLock(locks), "");
  for (const mode_t mode : {01777, 0775}) {
    ASSERT_EQ(chmod(locks.c_str(), mode), 0);
    EXPECT_NE(WhyNoLock(locks).find("may write to it"), std::string::npos) << std::oct << mode;
  }
  ASSERT_EQ(chmod(locks.c_str(), 0755), 0);
  ASSERT_EQ(symlink("locks", (folder / "link").c_str()), 0);
  EXPECT_NE(WhyNoLock(folder / "link").find("it is a link"), std::string::npos);
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a folder to another user";
  ASSERT_EQ(chown(locks.c_str(), kNobody, kNobody), 0);
  EXPECT_NE(WhyNoLock(locks).find("other users own it"), std::string::npos);
}

TEST(GpuLock, AFileThatOthersMayOpenIsRefused) {
  const TempFolder folder;
  const std::string path = folder / "locks/gpu-GPU-0.lock";
  ASSERT_EQ(WhyNoLock(folder / "locks"), "");
  for (const mode_t mode : {0604, 0602, 0640}) {
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    EXPECT_NE(WhyNoLock(folder / "locks").find("may open it"), std::string::npos)
        << std::oct << mode;
  }
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  EXPECT_EQ(WhyNoLock(folder / "locks"), "");
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file to another user";
  ASSERT_EQ(chown(path.c_str(), kNobody, kNobody), 0);
  EXPECT_NE(WhyNoLock(folder / "locks").find("other users own it"), std::string::npos);
}

TEST(GpuLock, AnotherUserCannotHoldIt) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can act as another user";
  const TempFolder folder;
  ASSERT_EQ(chmod(folder.path().c_str(), 0755), 0);
  const auto lock = node::LockGpu(folder / "locks", "GPU-0");
  ASSERT_TRUE(lock) << lock.error().message;
  const std::string held = folder / "locks/gpu-GPU-0.lock", made = folder / "locks/gpu-GPU-1.lock";
  const pid_t child = fork();
  if (child == 0) {
    if (setgid(kNobody) != 0 || setuid(kNobody) != 0) _exit(2);
    const bool opened = open(held.c_str(), O_RDONLY) >= 0 || errno != EACCES;
    const bool created = open(made.c_str(), O_RDWR | O_CREAT, 0600) >= 0 || errno != EACCES;
    _exit(opened || created);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "another user opened the lock of a GPU, or made one";
}

TEST(GpuLock, ByDefaultNobodyButRootCanMakeWhatTheLocksAreIn) {
  const std::filesystem::path dir = config::Options{}.server.lock_dir;
  for (auto above = dir.parent_path(); above != above.root_path(); above = above.parent_path()) {
    struct stat st;
    if (stat(above.c_str(), &st) != 0) continue;
    EXPECT_EQ(st.st_uid, 0u) << above;
    EXPECT_EQ(st.st_mode & 022, 0u) << above << " is open to all";
  }
  const std::string sockets = config::Options{}.server.socket_dir + "/";
  EXPECT_NE(dir.string().substr(0, sockets.size()), sockets) << "pods see that folder";
}

TEST(TimelineOfHolds, AHoldThatIsExtendedDrainsNoMore) {
  const auto at = [](int ms) { return Instant(milliseconds(ms)); };
  Hold hold{PodId{1}, at(0), at(0)};
  // Near the end of its token it closes its gate; then the token is extended.
  hold.OnPhase(wire::Phase::kDraining, at(38));
  EXPECT_EQ(hold.Drains(true), at(38));
  hold.OnPhase(wire::Phase::kHolding, at(40));
  EXPECT_EQ(hold.Drains(true), kNever);
  // A heartbeat in the middle of a drain does not move its beginning.
  hold.OnPhase(wire::Phase::kDraining, at(5'000));
  hold.OnPhase(wire::Phase::kDraining, at(5'001));
  EXPECT_EQ(hold.Drains(true), at(5'000));
}

TEST(TimelineOfHolds, WhileNobodyWaitsNothingDrains) {
  const auto at = [](int ms) { return Instant(milliseconds(ms)); };
  Hold hold{PodId{1}, at(0), at(0)};
  hold.OnPhase(wire::Phase::kDraining, at(38));
  EXPECT_EQ(hold.Drains(false), kNever);
  hold.returned_at = at(41);
  EXPECT_EQ(hold.Drains(false), at(38)) << "it was one";
}

TEST(SeriesOfShares, CountsFromTheSampleThatIsAWindowOld) {
  Series series;
  const auto at = [](int ms) { return Instant(milliseconds(ms)); };
  const auto ns = [](int ms) { return static_cast<uint64_t>(ms) * 1'000'000; };
  // Half of the first ten seconds, all of the eleventh.
  for (int ms = 0; ms <= 10'000; ms += 500) series.Add(at(ms), ns(ms / 2), 0);
  series.Add(at(10'500), ns(5'500), 0);
  EXPECT_DOUBLE_EQ(series.Over(milliseconds(1000), at(11'000), ns(6'000), 0).held, 1.0);
  EXPECT_DOUBLE_EQ(series.Over(milliseconds(10'000), at(11'000), ns(6'000), 0).held, 0.55);
  EXPECT_NEAR(series.Over(milliseconds(60'000), at(11'000), ns(6'000), 0).held, 6.0 / 11, 1e-9);
  EXPECT_EQ(Series().Over(milliseconds(1000), at(5), 1, 1).held, 0);
}

}  // namespace
}  // namespace baton::backend
