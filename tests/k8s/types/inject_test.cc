// What the webhook adds to pods.
#include "k8s/types/inject.h"

#include <gtest/gtest.h>

#include <algorithm>
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

TEST(Inject, APodWithSwapIsToldSo) {
  Json pod = GpuPodJson(R"({"baton.dev/gpu-share": 30})", R"({"baton.dev/swap": "true"})");
  ASSERT_TRUE(Inject(pod).value());
  const Json& env = pod["spec"]["containers"][0]["env"];
  EXPECT_NE(std::find(env.begin(), env.end(), Parsed(R"({"name": "BATON_SWAP", "value": "1"})")),
            env.end());
}

// Limits say what the pod takes of a GPU: with swap its memory request, whatever its cap is.
TEST(Inject, MemoryOfAPodWithSwapIsCountedByItsRequest) {
  const auto why = [](const std::string& limits, const std::string& annotations) {
    Json pod = GpuPodJson(limits.c_str(), annotations.c_str());
    const auto done = Inject(pod);
    return done ? "" : done.error().message;
  };
  const std::string both =
      R"({"baton.dev/swap": "true", "baton.dev/memory": "8Gi", "baton.dev/memory-request": "1Gi"})";
  EXPECT_EQ(why(R"({"baton.dev/gpu-share": 30, "baton.dev/gpu-memory": 4})", both), "");
  EXPECT_EQ(why(R"({"baton.dev/gpu-share": 30})", both), "");
  EXPECT_NE(why(R"({"baton.dev/gpu-share": 30, "baton.dev/gpu-memory": 32})", both)
                .find("requests 1024 MiB; set this limit to 4"),
            std::string::npos);
  EXPECT_NE(why(R"({"baton.dev/gpu-share": 30, "baton.dev/gpu-memory": 4})",
                R"({"baton.dev/swap": "true"})")
                .find("baton.dev/memory-request"),
            std::string::npos);
}

// What has no tokens has no hook; MPS's clients are told where its daemon is and what is theirs.
TEST(Inject, PodsByMigAndMpsGetTheirPartAndNoHook) {
  for (const std::string mode : {"mig", "mps"}) {
    Json pod = GpuPodJson(R"({"baton.dev/gpu-share": 30, "baton.dev/gpu-memory": 16})",
                          (R"({"baton.dev/mode": ")" + mode + "\"}").c_str());
    ASSERT_TRUE(Inject(pod).value());
    std::map<std::string, std::string> env;
    for (const Json& entry : pod["spec"]["containers"][0]["env"]) {
      env[TextAt(entry, "name")] = TextAt(entry, "valueFrom/fieldRef/fieldPath");
    }
    const std::string of = "metadata.annotations['main.container.baton.dev/";
    std::map<std::string, std::string> wanted{{"NVIDIA_VISIBLE_DEVICES", of + "visible-devices']"},
                                              {"CUDA_VISIBLE_DEVICES", of + "visible-devices']"}};
    if (mode == "mps") {
      wanted["CUDA_MPS_PIPE_DIRECTORY"] = of + "mps-pipe']";
      wanted["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = of + "mps-share']";
      wanted["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = of + "mps-memory']";
    }
    EXPECT_EQ(env, wanted) << mode;
    // With it the kubelet mounts what MPS's clients need.
    EXPECT_EQ(pod["spec"]["containers"][0]["resources"]["limits"].contains("baton.dev/gpu-mps"),
              mode == "mps");
    // The folder with MPS's sockets comes with the hook's.
    EXPECT_TRUE(NeedsHookMounts(pod));
  }
  const auto why = [](const char* annotations) {
    Json pod = GpuPodJson(R"({"baton.dev/gpu-share": 30})", annotations);
    const auto done = Inject(pod);
    return done ? "" : done.error().message;
  };
  EXPECT_NE(why(R"({"baton.dev/mode": "mig", "baton.dev/count": "2"})").find("part of one GPU"),
            std::string::npos);
  EXPECT_NE(why(R"({"baton.dev/mode": "mps", "baton.dev/priority": "idle"})").find("time-slice"),
            std::string::npos);
}

// By which of the two is not known yet: the hook comes along, and stands aside without a ticket.
TEST(Inject, APodThatLeavesItsModeOpenGetsItsTicketWithItsPlace) {
  const auto ticket = [](const Json& pod) {
    for (const Json& entry : pod["spec"]["containers"][0]["env"]) {
      if (TextAt(entry, "name") == "BATON_TICKET") {
        return TextAt(entry, "value") + TextAt(entry, "valueFrom/fieldRef/fieldPath");
      }
    }
    return std::string();
  };
  const std::string later = "metadata.annotations['main.container.baton.dev/ticket']";
  const std::string now = "$(BATON_POD_UID)/main";
  const auto injected = [](const char* annotations, bool choose_mode,
                           const char* limits = R"({"baton.dev/gpu-share": 30})") {
    Json pod = GpuPodJson(limits, annotations);
    EXPECT_TRUE(Inject(pod, {.choose_mode = choose_mode}).value());
    // Whatever it did, it does once.
    const Json once = pod;
    EXPECT_TRUE(Inject(pod, {.choose_mode = choose_mode}).value());
    EXPECT_EQ(pod, once);
    return pod;
  };
  const Json open = injected(R"({"baton.dev/mode": "auto"})", false);
  EXPECT_EQ(ticket(open), later);
  EXPECT_NE(open.dump().find("LD_PRELOAD"), std::string::npos);
  EXPECT_FALSE(open["spec"]["containers"][0]["resources"]["limits"].contains("baton.dev/gpu-mps"));
  // What only pods that take turns have decides it, and may still change: its ticket comes as late.
  EXPECT_EQ(ticket(injected(R"({"baton.dev/mode": "auto", "baton.dev/priority": "high"})", false)),
            later);
  EXPECT_EQ(ticket(injected("{}", false)), now);

  // The operator may say so of pods that name no mode.
  const Json chosen = injected("{}", true);
  EXPECT_EQ(chosen["metadata"]["annotations"]["baton.dev/mode"], "auto");
  EXPECT_EQ(ticket(chosen), later);
  EXPECT_EQ(ticket(injected(R"({"baton.dev/mode": "time-slice"})", true)), now);
  const Json whole = injected("{}", true, R"({"nvidia.com/gpu": 1})");
  EXPECT_FALSE(whole["metadata"]["annotations"].contains("baton.dev/mode"));
  // One of before was made for turns.
  Json before = injected("{}", false);
  const Json as_it_was = before;
  EXPECT_TRUE(Inject(before, {.choose_mode = true}).value());
  EXPECT_EQ(before, as_it_was);
}

TEST(Inject, ContainersThatAskGetATicketAndTheHook) {
  Json pod = GpuPodJson(R"({"baton.dev/gpu-share": 30})", R"({"baton.dev/away": "open"})");
  pod["spec"]["containers"].push_back({{"name", "plain"}});
  pod["spec"]["containers"][0]["env"] = Json::array(
      {{{"name", "LIB"}, {"value", "a.so"}}, {{"name", "LD_PRELOAD"}, {"value", "$(LIB)"}}});
  pod["spec"]["initContainers"] = Parsed(R"([{"name": "first"}])");
  ASSERT_TRUE(Inject(pod).value());
  const Json& main = pod["spec"]["containers"][0];
  EXPECT_EQ(pod["spec"]["schedulerName"], "baton");
  // The kubelet mounts the hook. Of the node's file system the pod says nothing.
  EXPECT_FALSE(pod["spec"].contains("volumes"));
  EXPECT_FALSE(main.contains("volumeMounts"));
  EXPECT_TRUE(NeedsHookMounts(pod));
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
  EXPECT_EQ(pod["spec"]["containers"][0]["volumeMounts"], own);
}

// As a webhook of before made them: they may be copied, and their own controller may know them.
TEST(Inject, PodsWithTheVolumesOfBeforeKeepThem) {
  Json pod = GpuPodJson(R"({"baton.dev/gpu-share": 30})", R"({"baton.dev/injected": "1"})");
  EXPECT_FALSE(NeedsHookMounts(pod)) << "all of it is in the pod";
  pod["spec"]["volumes"] = Parsed(R"([
      {"name": "baton-socket", "hostPath": {"path": "/run/baton", "type": "Directory"}},
      {"name": "baton-hook", "hostPath": {"path": "/var/lib/baton/hook", "type": "Directory"}}])");
  pod["spec"]["containers"][0]["volumeMounts"] = Parsed(R"([
      {"name": "baton-socket", "mountPath": "/run/baton", "readOnly": true},
      {"name": "baton-hook", "mountPath": "/usr/local/lib/baton", "readOnly": true},
      {"name": "baton-hook", "mountPath": "/etc/ld.so.preload", "subPath": "ld.so.preload",
       "readOnly": true}])");
  const Json before = pod["spec"];
  ASSERT_TRUE(Inject(pod).value());
  EXPECT_EQ(pod["spec"]["volumes"], before["volumes"]);
  EXPECT_EQ(pod["spec"]["containers"][0]["volumeMounts"], before["containers"][0]["volumeMounts"]);
  // Another folder under that path is no such mount.
  pod["spec"]["volumes"][1]["hostPath"]["path"] = "/home/mine";
  EXPECT_NE(Why(Inject(pod)).find("/usr/local/lib/baton is where Baton's hook is"),
            std::string::npos);
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
  EXPECT_FALSE(NeedsHookMounts(whole));
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
  for (const char* path : {"/run/baton", "/run//baton/", "/usr/local/lib/baton"}) {
    const std::string mount = std::string(R"([{"name": "x", "mountPath": ")") + path + R"("}])";
    EXPECT_NE(with("volumeMounts", mount.c_str()).find("use another path"), std::string::npos)
        << path;
  }
  Json odd = GpuPodJson(R"({"baton.dev/gpu-share": 30, "baton.dev/gpu-memory": "4Gi"})");
  odd["metadata"]["annotations"] = 7;
  EXPECT_NE(Why(Inject(odd)).find("an object is needed"), std::string::npos);
  odd["metadata"] = "12.5%";
  EXPECT_NE(Why(Inject(odd)).find("an object is needed"), std::string::npos);
  EXPECT_NE(with("volumeMounts", "7").find("must be a list"), std::string::npos);
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

TEST(Inject, TaintsAndRuntimeClassAreAddedOnce) {
  InjectOptions options;
  options.runtime_class = "nvidia";
  options.tolerate = {"nvidia.com/gpu", "example.com/gpu"};
  Json pod = GpuPodJson(R"({"baton.dev/gpu-share": 30})");
  pod["spec"]["tolerations"] =
      Parsed(R"([{"key": "example.com/gpu", "operator": "Exists", "effect": "NoSchedule"}])");
  ASSERT_TRUE(Inject(pod, options).value());
  EXPECT_EQ(pod["spec"]["runtimeClassName"], "nvidia");
  EXPECT_EQ(pod["spec"]["tolerations"], Parsed(R"([
      {"key": "example.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
      {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}])"));
  const Json once = pod;
  ASSERT_TRUE(Inject(pod, options).value());
  EXPECT_EQ(pod, once);
  Json own = GpuPodJson(R"({"nvidia.com/gpu": 1})");
  own["spec"]["runtimeClassName"] = "kata";
  ASSERT_TRUE(Inject(own, options).value());
  EXPECT_EQ(own["spec"]["runtimeClassName"], "kata");
  EXPECT_EQ(own["spec"]["tolerations"].size(), 2u);
  // Who asks for no GPU gets neither.
  Json plain = GpuPodJson("{}");
  EXPECT_FALSE(Inject(plain, options).value());
  EXPECT_FALSE(plain["spec"].contains("tolerations"));
}

TEST(Inject, MemoryLimitsAreSizesAsEverywhere) {
  const auto injected = [](const char* memory, const char* annotations) {
    Json pod = GpuPodJson(R"({"baton.dev/gpu-share": 60})", annotations);
    for (const char* part : {"limits", "requests"}) {
      pod["spec"]["containers"][0]["resources"][part]["baton.dev/gpu-memory"] = memory;
    }
    const auto done = Inject(pod);
    if (!done) return Json(done.error().message);
    return pod;
  };
  const auto units = [](const Json& pod, const char* part) {
    return pod["spec"]["containers"][0]["resources"][part]["baton.dev/gpu-memory"];
  };
  for (const auto& [memory, mib] :
       {std::pair{"4Gi", 4'096u}, {"1500Mi", 1'500u}, {"4294967296", 4'096u}, {"100Mi", 100u}}) {
    const Json pod = injected(memory, "{}");
    const auto read = ReadGpuPod(pod, 256);
    ASSERT_TRUE(read) << memory << " " << Why(read);
    EXPECT_EQ(read->containers[0].memory.mib, mib) << memory;
    EXPECT_EQ(units(pod, "limits"), std::to_string(std::max(1u, mib / 256)));
    EXPECT_EQ(units(pod, "requests"), units(pod, "limits"));
  }
  // Over two GPUs, as the share.
  const Json two = injected("8Gi", R"({"baton.dev/count": "2"})");
  EXPECT_EQ(ReadGpuPod(two, 256)->containers[0].memory.mib, 4'096u);
  EXPECT_EQ(units(two, "limits"), "32");
  EXPECT_NE(injected("1025Mi", R"({"baton.dev/count": "2"})").dump().find("divided evenly"),
            std::string::npos);
  // With swap the limit is what is reserved, as in units.
  const auto swap =
      ReadGpuPod(injected("2Gi", R"({"baton.dev/swap": "true", "baton.dev/memory": "8Gi"})"), 256);
  ASSERT_TRUE(swap) << Why(swap);
  EXPECT_EQ(swap->asked.memory_request, uint64_t{2} << 30);
  EXPECT_EQ(swap->containers[0].memory.mib, 8'192u);
  // Units are as before, and an exact value must be the same.
  EXPECT_EQ(units(injected("16", "{}"), "limits"), "16");
  EXPECT_EQ(ReadGpuPod(injected("16", "{}"), 256)->containers[0].memory.mib, 4'096u);
  EXPECT_NE(injected("4Gi", R"({"baton.dev/memory": "8Gi"})").dump().find("set this limit to"),
            std::string::npos);
  for (const char* much : {"1Ei", "9223372036854775807", "99999999999999999999"}) {
    EXPECT_NE(injected(much, "{}").dump().find("more memory than any GPU has"), std::string::npos)
        << much;
  }
}

}  // namespace
}  // namespace baton::k8s::testing
