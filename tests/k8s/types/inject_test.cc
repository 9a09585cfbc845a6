// What the webhook adds to pods.
#include "k8s/types/inject.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "base/random.h"
#include "k8s/types/annotations.h"
#include "k8s/types/gpu_node.h"
#include "k8s/types/gpu_pod.h"
#include "k8s/types/quantity.h"
#include "k8s/types/share_pod.h"
#include "tests/k8s/types/fixture.h"

namespace baton::k8s::testing {
namespace {

TEST(Inject, ContainersThatAskGetATicketAndTheHook) {
  Json pod = GpuPodJson(R"({"baton.dev/gpu-share": 30})", R"({"baton.dev/away": "open"})");
  pod["spec"]["containers"].push_back({{"name", "plain"}});
  pod["spec"]["containers"][0]["env"] = Json::array(
      {{{"name", "LIB"}, {"value", "a.so"}}, {{"name", "LD_PRELOAD"}, {"value", "$(LIB)"}}});
  pod["spec"]["initContainers"] = Parsed(R"([{"name": "first"}])");
  ASSERT_TRUE(Inject(pod).value());
  const Json& main = pod["spec"]["containers"][0];
  EXPECT_EQ(pod["spec"]["schedulerName"], "baton");
  EXPECT_EQ(pod["spec"]["volumes"], Parsed(R"([
      {"name": "baton-socket", "hostPath": {"path": "/run/baton", "type": "Directory"}},
      {"name": "baton-hook", "hostPath": {"path": "/var/lib/baton/hook", "type": "Directory"}}])"));
  EXPECT_EQ(main["volumeMounts"], Parsed(R"([
      {"name": "baton-socket", "mountPath": "/run/baton", "readOnly": true},
      {"name": "baton-hook", "mountPath": "/usr/local/lib/baton", "readOnly": true},
      {"name": "baton-hook", "mountPath": "/etc/ld.so.preload", "subPath": "ld.so.preload",
       "readOnly": true}])"));
  const Json devices = Parsed(R"({"fieldRef": {"fieldPath":
      "metadata.annotations['main.container.baton.dev/visible-devices']"}})");
  EXPECT_EQ(main["env"],
            Json::array(
                {{{"name", "BATON_POD_UID"},
                  {"valueFrom", {{"fieldRef", {{"fieldPath", "metadata.uid"}}}}}},
                 {{"name", "BATON_TICKET"}, {"value", "$(BATON_POD_UID)/main"}},
                 {{"name", "BATON_SOCKET"}, {"value", "/run/baton/baton.sock"}},
                 {{"name", "BATON_AWAY"}, {"value", "open"}},
                 {{"name", "NVIDIA_VISIBLE_DEVICES"}, {"valueFrom", devices}},
                 {{"name", "CUDA_VISIBLE_DEVICES"}, {"valueFrom", devices}},
                 {{"name", "LIB"}, {"value", "a.so"}},
                 {{"name", "LD_PRELOAD"}, {"value", "/usr/local/lib/baton/libbaton.so:$(LIB)"}}}));
  const Json none = Parsed(R"([{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}])");
  EXPECT_EQ(pod["spec"]["containers"][1]["env"], none);
  EXPECT_EQ(pod["spec"]["initContainers"][0]["env"], none);

  Json again = pod;
  // The API server fills in defaults before a second look.
  again["spec"]["containers"][0]["env"][0]["valueFrom"]["fieldRef"]["apiVersion"] = "v1";
  const Json before = again;
  ASSERT_TRUE(Inject(again).value());
  EXPECT_EQ(again, before) << "it is idempotent";

  // Another webhook puts a container before all others, and Baton's is asked again: the ticket is
  // still what the node makes of the pod in the end.
  again["spec"]["initContainers"].insert(again["spec"]["initContainers"].begin(),
                                         Parsed(R"({"name": "mesh"})"));
  const auto reinvoked = Inject(again);
  ASSERT_TRUE(reinvoked) << reinvoked.error().message;
  EXPECT_EQ(again["spec"]["containers"], before["spec"]["containers"]);
}

TEST(Inject, TicketsNameTheContainerWithinTheirLength) {
  const std::string uid = "2f6c0000-1111-2222-3333-444455556666";
  EXPECT_EQ(TicketOf(uid, "main"), uid + "/main");
  const std::string longest(27, 'a');
  EXPECT_EQ(TicketOf(uid, longest), uid + "/" + longest);
  const std::string one = TicketOf(uid, std::string(62, 'a') + "b");
  const std::string other = TicketOf(uid, std::string(62, 'a') + "c");
  EXPECT_EQ(one.size(), 64u);
  EXPECT_TRUE(one.starts_with(uid + "/aaaaaaaaaa~")) << one;
  EXPECT_NE(one, other);
}

TEST(Inject, APreloadFileOfTheContainersOwnStays) {
  Json pod = GpuPodJson(R"({"baton.dev/gpu-share": 30})");
  const Json own = Parsed(R"([{"name": "mine", "mountPath": "/etc/ld.so.preload"}])");
  pod["spec"]["containers"][0]["volumeMounts"] = own;
  ASSERT_TRUE(Inject(pod).value());
  const Json& mounts = pod["spec"]["containers"][0]["volumeMounts"];
  ASSERT_EQ(mounts.size(), 3u);
  EXPECT_EQ(mounts[0], own[0]);
  for (const Json& mount : mounts) EXPECT_FALSE(mount.contains("subPath")) << mount;
}

TEST(Inject, OtherPodsAndSchedulersAreLeftAlone) {
  Json pod = GpuPodJson("{}");
  const Json before = pod;
  EXPECT_FALSE(Inject(pod).value());
  EXPECT_EQ(pod, before);
  Json other = GpuPodJson(R"({"baton.dev/gpu-share": 30})");
  other["spec"]["schedulerName"] = "volcano";
  ASSERT_TRUE(Inject(other).value());
  EXPECT_EQ(other["spec"]["schedulerName"], "volcano");
  Json whole = GpuPodJson(R"({"nvidia.com/gpu": 1})");
  ASSERT_TRUE(Inject(whole).value());
  EXPECT_FALSE(whole["spec"].contains("volumes"));
  EXPECT_EQ(whole["spec"]["containers"][0]["env"].size(), 2u);
}

TEST(Inject, ConflictingPodsAreRefused) {
  const auto with = [](const char* key, const char* value) {
    Json pod = GpuPodJson(R"({"baton.dev/gpu-share": 30})");
    pod["spec"]["containers"][0][key] = Parsed(value);
    const Json before = pod;
    const auto done = Inject(pod);
    EXPECT_EQ(pod, before);
    return Why(done);
  };
  EXPECT_NE(with("env", R"([{"name": "LD_PRELOAD", "valueFrom": {}}])").find("set it as a value"),
            std::string::npos);
  EXPECT_NE(
      with("env", R"([{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}])").find("remove it"),
      std::string::npos);
  EXPECT_NE(with("volumeMounts", R"([{"name": "x", "mountPath": "/run/baton"}])")
                .find("use another path"),
            std::string::npos);
  EXPECT_NE(with("env", "7").find("must be a list"), std::string::npos);
}

// The hook runs in all pods of the node: none may write it, under whatever name.
TEST(Inject, PodsMayNotWriteToHookOrSocketFolders) {
  const auto refusal = [](const char* volume, const char* mount, bool in_another) {
    Json pod = GpuPodJson(R"({"baton.dev/gpu-share": 30})");
    pod["spec"]["volumes"] = Json::array({Parsed(volume)});
    pod["spec"]["containers"].push_back({{"name", "other"}});
    pod["spec"]["containers"][in_another ? 1 : 0]["volumeMounts"] = Json::array({Parsed(mount)});
    return Why(Inject(pod));
  };
  const char* const mount = R"({"name": "mine", "mountPath": "/x"})";
  for (const char* path : {"/var/lib/baton/hook", "/var/lib//baton/hook/", "/var/lib/baton/hook/x",
                           "/run/baton", "/run/./baton/baton.sock"}) {
    const std::string volume =
        std::string(R"({"name": "mine", "hostPath": {"path": ")") + path + "\"}}";
    for (const bool in_another : {false, true}) {
      EXPECT_NE(refusal(volume.c_str(), mount, in_another).find("with readOnly: true"),
                std::string::npos)
          << path;
    }
    EXPECT_EQ(
        refusal(volume.c_str(), R"({"name": "mine", "mountPath": "/x", "readOnly": true})", true),
        "");
  }
  // The very volume that is put in, once more.
  EXPECT_NE(refusal(R"({"name": "baton-hook",
                        "hostPath": {"path": "/var/lib/baton/hook", "type": "Directory"}})",
                    R"({"name": "baton-hook", "mountPath": "/x", "readOnly": false})", true)
                .find("'baton-hook'"),
            std::string::npos);
  EXPECT_EQ(refusal(R"({"name": "mine", "hostPath": {"path": "/run/baton-other"}})", mount, true),
            "");
  EXPECT_EQ(refusal(R"({"name": "mine", "emptyDir": {}})", mount, true), "");
}

}  // namespace
}  // namespace baton::k8s::testing
