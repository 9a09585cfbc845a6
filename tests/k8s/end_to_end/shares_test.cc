// The whole way, without a kubelet: SharePods are applied, a binder binds them, a stand-in for the
// kubelet starts their commands, the hook attaches to a real batond on a simulated GPU, and what
// they get is seen on the device and told in their status.
//
// On a real API server where there is one, on the stand-in always.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>

#include "k8s/types/gpu_pod.h"
#include "k8s/types/inject.h"
#include "tests/k8s/device_plugin/kubelet_stand_in.h"
#include "tests/k8s/end_to_end/shares_fixture.h"

namespace baton::k8s {
namespace {

using bench::WaitUntil;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_P(SharesOnKubernetes, AreWhatWasAskedForAndFollowAPatch) {
  StartNode(1, {"--no-plugin"});
  const std::map<std::string, std::string> asked = {{"a", "60"}, {"b", "30"}, {"c", "10"}};
  for (const auto& [name, request] : asked) Apply(name, request);
  ASSERT_TRUE(WaitUntil(
      [&] {
        for (const auto& [name, request] : asked) {
          if (node_->PidOf("default/" + name) <= 0) return false;
        }
        return true;
      },
      seconds(30)));
  const auto attached = [&](size_t pods) {
    return cluster().WaitForStatus(
        0,
        [&](const Json& status) {
          size_t clients = 0;
          for (const Json& pod : status.at("pods")) clients += !pod.at("clients").empty();
          return clients == pods;
        },
        "pods with processes", seconds(30));
  };
  ASSERT_TRUE(attached(3)) << Must(cluster().Status(0)).dump(1);
  const auto within = [&](const std::map<std::string, std::string>& wanted, double points) {
    for (const auto& [name, request] : wanted) {
      if (std::abs(StatusShare(name) - std::atof(request.c_str())) > points) return false;
    }
    return true;
  };
  EXPECT_TRUE(WaitUntil([&] { return within(asked, 1.0); }, seconds(90)))
      << StatusShare("a") << " " << StatusShare("b") << " " << StatusShare("c");
  for (const auto& [name, request] : asked) {
    bench::Figure("kubernetes_status_" + name, StatusShare(name), "%");
  }

  // A patch is with the token scheduler within a second, and in the shares within five.
  struct Patched {
    std::map<std::string, std::string> to;
    double followed_s;
    std::map<std::string, double> shares;
  };
  const std::map<std::string, std::string> then = {{"a", "20"}, {"b", "30"}, {"c", "50"}};
  bool back = true;
  Windows(
      [&] {
        back = !back;
        Patched patched{back ? asked : then, 0, {}};
        // What shrinks first makes room for what grows.
        std::vector<std::string> names = {"a", "b", "c"};
        if (back) std::reverse(names.begin(), names.end());
        const Instant begin = MonotonicNow();
        for (const std::string& name : names) PatchRequest(name, patched.to.at(name));
        const auto followed = cluster().WaitForStatus(
            0,
            [&](const Json& status) {
              return std::all_of(
                  status.at("pods").begin(), status.at("pods").end(), [&](const Json& pod) {
                    const std::string name = pod.at("name");
                    const std::string& request = patched.to.at(name.substr(name.find('/') + 1));
                    return pod.at("request") == std::atof(request.c_str());
                  });
            },
            "the new requests", seconds(10));
        EXPECT_TRUE(followed) << Must(cluster().Status(0)).dump(1);
        patched.followed_s = std::chrono::duration<double>(MonotonicNow() - begin).count();
        bench::PassTime(seconds(3) - (MonotonicNow() - begin));
        patched.shares = OnDevice(names, seconds(2));
        return patched;
      },
      [&](const Patched& patched) {
        bench::Figure("kubernetes_patch_followed", patched.followed_s, "s");
        EXPECT_LE(patched.followed_s, 1.0);
        for (const auto& [name, request] : patched.to) {
          bench::Figure("kubernetes_after_patch_" + name, patched.shares.at(name), "%");
          EXPECT_NEAR(patched.shares.at(name), std::atof(request.c_str()), 3.0) << name;
        }
      });

  // The end: nothing is left anywhere.
  for (const auto& [name, request] : asked) {
    MustDo(client_->Delete(resources::kSharePods, {"default", name}));
  }
  EXPECT_TRUE(WaitUntil(
      [&] {
        return Items(client_->List(resources::kPods, "default")).empty() &&
               Must(cluster().Status(0)).at("pods").empty();
      },
      seconds(30)))
      << Must(cluster().Status(0)).at("pods").dump(1);
}

TEST_P(SharesOnKubernetes, OutliveTheirPods) {
  StartNode(1, {"--no-plugin"});
  const std::vector<std::string> names = {"a", "b", "c"};
  Apply("a", "30");
  Apply("b", "20", "OnFailure");
  Apply("c", "10", "Never");
  // What runs and is told so; pods by SharePod.
  const auto running = [&] {
    std::map<std::string, std::string> uids;
    for (const std::string& name : names) {
      const auto share_pod = client_->Get(resources::kSharePods, {"default", name});
      const auto pod = client_->Get(resources::kPods, {"default", name});
      if (!share_pod || !pod || TextAt(*share_pod, "status/phase") != "Running") continue;
      if (Find(*pod, "metadata/deletionTimestamp") != nullptr) continue;
      if (TextAt(*pod, "status/phase") == "Running") uids[name] = UidOf(*pod);
    }
    return uids;
  };
  const auto show = [&] {
    return Json(Items(client_->List(resources::kSharePods, "default"))).dump(1);
  };
  ASSERT_TRUE(WaitUntil([&] { return running().size() == 3; }, seconds(30))) << show();
  // `kubectl delete pod`, twice: some of those that come are refused, and come again.
  for (int time = 0; time < 2; ++time) {
    const auto before = running();
    ASSERT_EQ(before.size(), 3u) << show();
    for (const std::string& name : names) {
      MustDo(client_->Delete(resources::kPods, {"default", name}));
    }
    ASSERT_TRUE(WaitUntil(
        [&] {
          const auto now = running();
          return std::all_of(names.begin(), names.end(), [&](const std::string& name) {
            return now.contains(name) && now.at(name) != before.at(name);
          });
        },
        seconds(30)))
        << show();
  }
  EXPECT_GE(node_->refused(), 2u);
  // The shares are theirs again.
  EXPECT_TRUE(cluster().WaitForStatus(
      0,
      [&](const Json& status) {
        return status.at("pods").size() == 3 &&
               std::all_of(status.at("pods").begin(), status.at("pods").end(),
                           [](const Json& pod) { return !pod.at("clients").empty(); });
      },
      "pods with processes", seconds(30)))
      << Must(cluster().Status(0)).dump(1);
}

// Pods that know nothing of Baton, on a node without NVIDIA's device plugin.
TEST_P(SharesOnKubernetes, WholeGpusNeedNoPluginOfNvidias) {
  constexpr const char* kWhole = "nvidia.com/gpu";
  const std::string hook = std::filesystem::canonical(BATON_PROGRAMS "/../lib");
  const TempFolder plugins;
  KubeletStandIn kubelet(plugins.path());
  kubelet.Start();
  StartNode(2, {"--whole-cards", "--plugin-dir", plugins.path(), "--hook-dest", hook});
  ASSERT_TRUE(WaitUntil(
      [&] {
        return kubelet.Allocatable(kWhole) == 2 &&
               kubelet.Allocatable(std::string(kShareResource)) == 200;
      },
      seconds(20)))
      << TailOf(folder_ / "agent.log");
  const Json counted{{kWhole, std::to_string(kubelet.Allocatable(kWhole))}};
  MustDo(client_->Patch(resources::kNodes, {"", kNode}, PatchKind::kMerge,
                        {{"status", {{"capacity", counted}, {"allocatable", counted}}}}, "status"));

  // As the API server does, by the webhook.
  const auto apply = [&](const std::string& name) {
    Json pod{{"apiVersion", "v1"},
             {"kind", "Pod"},
             {"metadata", {{"name", name}, {"namespace", "default"}}},
             {"spec",
              {{"containers",
                Json::array({{{"name", "main"},
                              {"image", "registry.local/burn"},
                              {"command", {cluster().Program("baton-burn"), "--seconds", "300"}},
                              {"resources", {{"limits", {{kWhole, "1"}}}}}}})}}}};
    EXPECT_TRUE(Must(Inject(pod, {})));
    MustDo(client_->Create(resources::kPods, {"default", name}, pod));
  };
  const auto card_of = [&](const std::string& name) {
    const auto pod = client_->Get(resources::kPods, {"default", name});
    if (!pod) return std::string();
    const auto placement = ReadPlacement(*pod);
    return placement && *placement ? (*placement)->vgpus.at(0).card : std::string();
  };
  const auto runs = [&](const std::string& name) {
    return WaitUntil([&] { return node_->PidOf("default/" + name) > 0; }, seconds(30));
  };
  Apply("share", "30");
  ASSERT_TRUE(runs("share"));
  apply("whole");
  ASSERT_TRUE(runs("whole"));
  apply("next");

  // It sees the GPU that nobody else has, and that GPU's time is booked as its own.
  const std::string whole = card_of("whole");
  EXPECT_NE(whole, card_of("share"));
  const auto environment = node_->EnvironmentOf("default/whole");
  EXPECT_EQ(environment.at("NVIDIA_VISIBLE_DEVICES"), whole);
  EXPECT_EQ(environment.at("CUDA_VISIBLE_DEVICES"), whole);
  EXPECT_FALSE(environment.contains("LD_PRELOAD"));
  EXPECT_TRUE(cluster().WaitForStatus(
      0,
      [&](const Json& status) {
        return std::any_of(
            status.at("pods").begin(), status.at("pods").end(), [&](const Json& pod) {
              return pod.at("name") == "default/whole" && pod.value("mode", "") == "exclusive" &&
                     pod.at("held_ns") > 0 && pod.at("achieved_1s") > 99;
            });
      },
      "the pod with a whole GPU", seconds(20)))
      << Must(cluster().Status(0)).dump(1);
  // The kubelet has one left; the binder knows better.
  EXPECT_TRUE(SaysThatItWaits("next"));
  EXPECT_LE(node_->PidOf("default/next"), 0);

  // Whoever comes by another way than the binder gets a number of devices, and sees no GPU.
  const auto devices = kubelet.plugins().at(kWhole).devices;
  const auto given = kubelet.Allocate(kWhole, {devices.begin()->first});
  ASSERT_TRUE(given) << given.error().message;
  EXPECT_EQ(given->environment,
            (std::map<std::string, std::string>{{"NVIDIA_VISIBLE_DEVICES", "void"}}));
  EXPECT_TRUE(given->mounts.empty());

  MustDo(client_->Delete(resources::kPods, {"default", "whole"}));
  ASSERT_TRUE(runs("next"));
  EXPECT_EQ(card_of("next"), whole);
}

INSTANTIATE_TEST_SUITE_P(Servers, SharesOnKubernetes,
                         ::testing::Values(Server::kStandIn, Server::kReal), NameOfServer);

}  // namespace
}  // namespace baton::k8s
