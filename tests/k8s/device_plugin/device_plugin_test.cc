// The devices that the kubelet is told of, and the plugin as a kubelet meets it.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <set>

#include "k8s/device_plugin/device_list.h"
#include "k8s/device_plugin/hook_file.h"
#include "k8s/device_plugin/plugin_server.h"
#include "tests/backend/daemon_process.h"
#include "tests/k8s/device_plugin/kubelet_stand_in.h"

namespace baton::k8s {
namespace {

using backend::Eventually;

const std::string kShare = "baton.dev/gpu-share";

std::vector<PluginCard> Cards(size_t count, uint32_t memory_mib) {
  std::vector<PluginCard> cards;
  for (size_t i = 0; i < count; ++i) {
    std::string uuid = "GPU-00000000-0000-0000-0000-000000000000";
    uuid[4] = static_cast<char>('a' + i);
    cards.push_back({uuid, memory_mib, true});
  }
  return cards;
}

std::set<std::string_view> CardsOfAll(const std::vector<std::string>& ids) {
  std::set<std::string_view> cards;
  for (const std::string& id : ids) cards.insert(CardOfDevice(id));
  return cards;
}

TEST(DeviceList, GpuIsAHundredSharesPlusMemoryUnits) {
  auto cards = Cards(2, 1000);
  cards[1].healthy = false;
  const auto shares = ShareDevices(cards);
  ASSERT_EQ(shares.size(), 200u);
  EXPECT_EQ(CardOfDevice(shares[0].id), cards[0].uuid);
  EXPECT_TRUE(shares[99].healthy);
  EXPECT_FALSE(shares[100].healthy);
  const auto memory = MemoryDevices(cards, 256);
  ASSERT_TRUE(memory);
  EXPECT_EQ(memory->size(), 8u) << "1000 MiB are 4 units of 256, the last one in part";
  std::set<std::string> ids;
  for (const auto& device : *memory) {
    EXPECT_LE(device.id.size(), 63u);
    EXPECT_TRUE(ids.insert(device.id).second) << device.id;
  }
}

TEST(DeviceList, WholeGpusCountOneEach) {
  auto cards = Cards(3, 1000);
  cards[2].healthy = false;
  const auto whole = WholeDevices(cards);
  ASSERT_EQ(whole.size(), 3u);
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_EQ(CardOfDevice(whole[i].id), cards[i].uuid);
    EXPECT_EQ(whole[i].healthy, cards[i].healthy);
  }
}

TEST(DeviceList, DeviceIdsFitTheKubeletsLimit) {
  const std::vector<PluginCard> cards{{std::string(100, 'x') + "-end", 1 << 20, true}};
  const auto memory = MemoryDevices(cards, 64);
  ASSERT_TRUE(memory);
  ASSERT_EQ(memory->size(), 16384u);
  for (const auto& device : *memory) ASSERT_LE(device.id.size(), 63u);
  EXPECT_TRUE(CardOfDevice(memory->front().id).ends_with("-end"));
}

TEST(DeviceList, TooSmallUnitIsRefusedWithOneThatFits) {
  const auto cards = Cards(8, 143'771);
  EXPECT_TRUE(MemoryDevices(cards, 256));
  const auto refused = MemoryDevices(cards, 1);
  ASSERT_FALSE(refused);
  const std::string& why = refused.error().message;
  const size_t at = why.find("; ");
  ASSERT_NE(at, std::string::npos) << why;
  const auto fits = static_cast<uint32_t>(std::stoul(why.substr(at + 2)));
  const auto memory = MemoryDevices(cards, fits);
  ASSERT_TRUE(memory) << why;
  EXPECT_LE(ListBytes(*memory), kListBytesMax);
  EXPECT_FALSE(MemoryDevices(cards, fits / 2)) << "the smallest power of two that fits is named";
  EXPECT_FALSE(MemoryDevices(cards, 0));
}

TEST(DeviceList, AllocationUsesTheFewestGpus) {
  std::vector<std::string> available;
  for (int i = 0; i < 30; ++i) available.push_back("a/" + std::to_string(i));
  for (int i = 0; i < 50; ++i) available.push_back("b/" + std::to_string(i));
  for (int i = 0; i < 90; ++i) available.push_back("c/" + std::to_string(i));
  // The GPU on which it fits, with the least left beside.
  const auto forty = PreferredDevices(available, {}, 40);
  EXPECT_EQ(forty.size(), 40u);
  EXPECT_EQ(CardsOfAll(forty), (std::set<std::string_view>{"b"}));
  EXPECT_EQ(forty[2], "b/2");
  EXPECT_EQ(CardsOfAll(PreferredDevices(available, {}, 30)), (std::set<std::string_view>{"a"}));
  // On none alone: the fullest, and the one on which the rest fits best.
  const auto hundred = PreferredDevices(available, {}, 100);
  EXPECT_EQ(hundred.size(), 100u);
  EXPECT_EQ(CardsOfAll(hundred), (std::set<std::string_view>{"a", "c"}));
  // Beside what must be there.
  const auto beside = PreferredDevices(available, {"c/89", "c/89"}, 20);
  EXPECT_EQ(beside.size(), 20u);
  EXPECT_EQ(beside[0], "c/89");
  EXPECT_EQ(CardsOfAll(beside), (std::set<std::string_view>{"c"}));
  EXPECT_EQ(std::set<std::string>(beside.begin(), beside.end()).size(), 20u);
  EXPECT_EQ(PreferredDevices(available, {}, 1000).size(), 170u);
  EXPECT_TRUE(PreferredDevices({}, {}, 5).empty());
}

class Plugin : public ::testing::Test {
 protected:
  Plugin() {
    PluginServerOptions options;
    options.folder = folder_.path();
    options.resource = kShare;
    options.endpoint = "baton-gpu-share.sock";
    options.look_every = std::chrono::milliseconds(20);
    options.mounts = HookMounts({.socket_dir = "/run/b", .host_hook_dir = hooks_.path()});
    options.hook_file = hooks_ / "libbaton.so";
    backend::WriteText(options.hook_file, "hook");
    server_.emplace(options);
  }
  bool AwaitWatched(size_t allocatable) {
    return Eventually([&] {
      const auto plugins = kubelet_.plugins();
      const auto plugin = plugins.find(kShare);
      return plugin != plugins.end() && plugin->second.watched &&
             kubelet_.Allocatable(kShare) == allocatable;
    });
  }

  const TempFolder folder_;  // in which a kubelet that starts keeps nothing
  const TempFolder hooks_;
  KubeletStandIn kubelet_{folder_.path()};
  std::optional<PluginServer> server_;
};

TEST_F(Plugin, RegistersAndReportsDeviceChanges) {
  kubelet_.Start();
  auto cards = Cards(2, 1000);
  server_->SetDevices(ShareDevices(cards));
  ASSERT_TRUE(AwaitWatched(200));
  const auto plugin = kubelet_.plugins().at(kShare);
  EXPECT_EQ(plugin.version, "v1beta1");
  EXPECT_TRUE(plugin.prefers);
  cards[0].healthy = false;
  server_->SetDevices(ShareDevices(cards));
  ASSERT_TRUE(AwaitWatched(100));
  EXPECT_EQ(kubelet_.plugins().at(kShare).devices.size(), 200u);
  const int lists = kubelet_.plugins().at(kShare).lists;
  server_->SetDevices(ShareDevices(cards));
  cards[0].healthy = true;
  server_->SetDevices(ShareDevices(cards));
  ASSERT_TRUE(AwaitWatched(200));
  EXPECT_EQ(kubelet_.plugins().at(kShare).lists, lists + 1) << "the same list is told once";
  EXPECT_TRUE(Eventually([&] { return server_->registrations() == 1; }));
}

TEST_F(Plugin, RegistersWithEveryNewKubelet) {
  server_->SetDevices(ShareDevices(Cards(1, 1000)));
  for (uint64_t round = 1; round <= 3; ++round) {
    kubelet_.Start();
    ASSERT_TRUE(AwaitWatched(100)) << round;
    // A kubelet watches before it has answered.
    EXPECT_TRUE(Eventually([&] { return server_->registrations() == round; })) << round;
    kubelet_.Stop();
  }
}

// Somebody removed its socket, and the kubelet is the same.
TEST_F(Plugin, ServesAgainAfterItsSocketIsRemoved) {
  kubelet_.Start();
  server_->SetDevices(ShareDevices(Cards(1, 1000)));
  ASSERT_TRUE(AwaitWatched(100));
  ASSERT_TRUE(std::filesystem::remove(folder_ / "baton-gpu-share.sock"));
  EXPECT_TRUE(Eventually([&] { return server_->registrations() == 2; }));
  EXPECT_TRUE(AwaitWatched(100));
}

TEST_F(Plugin, AllocationNeverContradictsTheBinder) {
  kubelet_.Start();
  const auto cards = Cards(2, 1000);
  const auto devices = ShareDevices(cards);
  server_->SetDevices(devices);
  ASSERT_TRUE(AwaitWatched(200));
  std::vector<std::string> available;
  for (const auto& device : devices) available.push_back(device.id);
  const auto preferred = kubelet_.Prefer(kShare, available, {devices[150].id}, 60);
  ASSERT_TRUE(preferred) << preferred.error().message;
  EXPECT_EQ(preferred->size(), 60u);
  EXPECT_EQ(CardsOfAll(*preferred), (std::set<std::string_view>{cards[1].uuid}));
  const auto given = kubelet_.Allocate(kShare, *preferred);
  ASSERT_TRUE(given) << given.error().message;
  EXPECT_EQ(given->other, 0u) << "only folders of the node, and those read-only";
  EXPECT_TRUE(given->environment.empty());
  EXPECT_EQ(given->mounts,
            (std::map<std::string, std::string>{{"/run/baton", "/run/b"},
                                                {"/usr/local/lib/baton", hooks_.path()},
                                                {"/etc/ld.so.preload", hooks_ / "ld.so.preload"}}));
  EXPECT_EQ(given->annotations.at(kShare + "-counted"), cards[1].uuid + "=60");
  EXPECT_FALSE(kubelet_.Allocate(kShare, {"GPU-x/1"}));
  EXPECT_FALSE(kubelet_.Prefer(kShare, available, {available[0], available[1]}, 1));
  EXPECT_FALSE(kubelet_.Prefer(kShare, available, {}, -1));
}

// A container without the hook would launch without the token.
TEST_F(Plugin, NoContainerStartsWithoutTheHook) {
  kubelet_.Start();
  const auto devices = ShareDevices(Cards(1, 1000));
  server_->SetDevices(devices);
  ASSERT_TRUE(AwaitWatched(100));
  EXPECT_TRUE(kubelet_.Allocate(kShare, {devices[0].id}));
  ASSERT_TRUE(std::filesystem::remove(hooks_ / "libbaton.so"));
  const auto refused = kubelet_.Allocate(kShare, {devices[0].id});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("Baton's hook is not at"), std::string::npos)
      << refused.error().message;
}

// Eight of the largest GPUs in the units that are the default.
TEST_F(Plugin, ListOfManyLargeGpusArrives) {
  kubelet_.Start();
  const auto devices = MemoryDevices(Cards(16, 294'912), 256);
  ASSERT_TRUE(devices);
  server_->SetDevices(*devices);
  ASSERT_TRUE(AwaitWatched(devices->size()));
  const size_t bytes = kubelet_.plugins().at(kShare).list_bytes;
  EXPECT_LE(bytes, ListBytes(*devices));
  EXPECT_GT(bytes, ListBytes(*devices) * 9 / 10);
}

TEST(HookFile, IsInstalledOnceAndReplacedAtomically) {
  const TempFolder folder;
  const std::string source = folder / "libbaton.so", there = folder / "host/hook/libbaton.so";
  EXPECT_FALSE(InstallHook(source, folder / "host/hook"));
  backend::WriteText(source, "one");
  EXPECT_EQ(InstallHook(source, folder / "host/hook").value_or(false), true);
  EXPECT_EQ(InstallHook(source, folder / "host/hook").value_or(true), false);
  EXPECT_EQ(backend::ReadText(there), "one");
  struct stat before, after;
  ASSERT_EQ(stat(there.c_str(), &before), 0);
  EXPECT_EQ(before.st_mode & 0777, 0755u);
  const std::string kept = folder / "kept";
  std::filesystem::create_hard_link(there, kept);  // as a program that has it mapped
  backend::WriteText(source, "two");
  EXPECT_EQ(InstallHook(source, folder / "host/hook").value_or(false), true);
  ASSERT_EQ(stat(there.c_str(), &after), 0);
  EXPECT_NE(before.st_ino, after.st_ino);
  EXPECT_EQ(backend::ReadText(there), "two");
  EXPECT_EQ(backend::ReadText(kept), "one");
  // What the loader reads in containers; a folder of its name was made by a kubelet.
  const std::string preload = folder / "host/hook/ld.so.preload";
  EXPECT_EQ(backend::ReadText(preload), "/usr/local/lib/baton/libbaton.so\n");
  std::filesystem::remove(preload);
  std::filesystem::create_directory(preload);
  EXPECT_EQ(InstallHook(source, folder / "host/hook").value_or(false), true);
  EXPECT_EQ(backend::ReadText(preload), "/usr/local/lib/baton/libbaton.so\n");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / "host/hook"), {}), 2);
  // Where the folder cannot be made.
  EXPECT_FALSE(InstallHook(source, source + "/x"));
}

}  // namespace
}  // namespace baton::k8s
