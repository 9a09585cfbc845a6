// Which Kubernetes pod a /proc/PID/cgroup names, and which only seem to be named.
#include "node/pod_cgroup.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace baton::node {
namespace {

const std::string kUid = "0f5e3b1c-9d2a-4c3b-8e1f-a0b1c2d3e4f5";
const std::string kSlice = "0f5e3b1c_9d2a_4c3b_8e1f_a0b1c2d3e4f5";
const std::string kOther = "11111111-2222-3333-4444-555555555555";
const std::string kOtherSlice = "11111111_2222_3333_4444_555555555555";

std::string PodOf(const std::string& path) { return KubernetesPodIn("0::" + path + "\n"); }

TEST(PodCgroup, BothDriversAndAllClassesAreKnown) {
  for (const std::string& path : std::vector<std::string>{
           "/kubepods/pod" + kUid + "/abc",
           "/kubepods/burstable/pod" + kUid + "/abc",
           "/kubepods/besteffort/pod" + kUid,
           "/kubelet/kubepods/burstable/pod" + kUid + "/abc",
           "/kubepods.slice/kubepods-pod" + kSlice + ".slice/cri-containerd-abc.scope",
           "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + kSlice +
               ".slice/cri-containerd-abc.scope/init",
           "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + kSlice +
               ".slice/crio-abc.scope",
           "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
           "kubelet-kubepods-burstable-pod" +
               kSlice + ".slice/cri-containerd-abc.scope",
       }) {
    EXPECT_EQ(PodOf(path), kUid) << path;
  }
}

TEST(PodCgroup, TheContainerIsTheOneThatTheRuntimeMade) {
  const std::string id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
  const std::string other(64, 'f');
  for (const std::string& path : std::vector<std::string>{
           "/kubepods/burstable/pod" + kUid + "/" + id,
           "/kubepods.slice/kubepods-pod" + kSlice + ".slice/cri-containerd-" + id + ".scope/init",
           "/docker/" + id,
           "/system.slice/docker-" + id + ".scope",
           "/machine.slice/libpod-" + id + ".scope/container/" + other,
           "/../crio-" + id + ".scope",
       }) {
    EXPECT_EQ(ContainerIn("0::" + path + "\n"), id) << path;
  }
  EXPECT_EQ(ContainerIn("4:memory:/user.slice\n3:cpu:/docker/" + id + "\n2:pids:/docker/" + other),
            id);
  for (const std::string& path :
       std::vector<std::string>{"/", "/user.slice", "/docker/" + id.substr(1), "/docker/x" + id,
                                "/docker/" + std::string(64, 'g'), "/docker/" + id + ".slice"}) {
    EXPECT_EQ(ContainerIn("0::" + path + "\n"), "") << path;
  }
  EXPECT_EQ(ContainerIn(""), "");
  EXPECT_EQ(ContainerIn("no path"), "");
}

// A daemon that runs in a container has a cgroup namespace of its own there.
TEST(PodCgroup, AnotherPodIsSeenFromWithinACgroupNamespace) {
  for (const std::string& path : std::vector<std::string>{
           "/../../kubepods-burstable-pod" + kSlice + ".slice/cri-containerd-abc.scope",
           "/../../../kubepods-pod" + kSlice + ".slice/cri-containerd-abc.scope",
           "/../../../kubepods-besteffort.slice/kubepods-besteffort-pod" + kSlice +
               ".slice/cri-containerd-abc.scope",
           "/../../pod" + kUid + "/abc",
           "/../../../pod" + kUid + "/abc",
           "/../../../besteffort/pod" + kUid + "/abc",
           "/../../../../kubepods/pod" + kUid + "/abc",
       }) {
    EXPECT_EQ(PodOf(path), kUid) << path;
  }
}

TEST(PodCgroup, WhatATenantNamesBelowItsContainerDoesNotCount) {
  EXPECT_EQ(PodOf("/kubepods/burstable/pod" + kUid + "/abc/pod" + kOther), kUid);
  EXPECT_EQ(PodOf("/kubepods/burstable/pod" + kUid + "/abc/kubepods/pod" + kOther + "/x"), kUid);
  EXPECT_EQ(PodOf("/kubepods.slice/kubepods-pod" + kSlice +
                  ".slice/x.scope/kubepods.slice/kubepods-pod" + kOtherSlice + ".slice"),
            kUid);
  EXPECT_EQ(PodOf("/../../pod" + kUid + "/abc/../../pod" + kOther), kUid);
}

TEST(PodCgroup, GroupsOfOthersThanTheKubeletNameNoPod) {
  for (const std::string& path : std::vector<std::string>{
           std::string("/"),
           std::string(""),
           "/pod" + kUid,
           "/burstable/pod" + kUid,
           "/user.slice/user-1000.slice/user@1000.service/kubepods/pod" + kUid + "/abc",
           "/user.slice/kubepods.slice/kubepods-pod" + kSlice + ".slice/abc",
           "/../../../user.slice/user-1000.slice/user@1000.service/kubepods/pod" + kUid,
           "/../cri-containerd-abc.scope/pod" + kUid,
           "/docker/abc/kubepods/pod" + kUid,
           "/kubepods-pod" + kSlice + ".slice/abc",
           "/kubepods/burstable/besteffort/pod" + kUid,
           "/kubepods/pod" + kUid + " (deleted)",
           "/kubepods/pod",
           "/kubepods/pod" + std::string(65, 'a'),
           "/kubepods/pod../abc",
           "/kubepods.slice/kubepods-podx-pod" + kSlice + ".slice/abc",
           "/kubepods.slice/kubepods-pod.slice/abc",
           "/kubepods.slice/x.slice/kubepods-pod" + kSlice + ".slice/abc",
       }) {
    EXPECT_EQ(PodOf(path), "") << path;
  }
}

TEST(PodCgroup, AllHierarchiesThatNameAPodAgree) {
  const std::string mine = "/kubepods/burstable/pod" + kUid + "/abc\n";
  EXPECT_EQ(KubernetesPodIn("9:name=systemd:" + mine + "8:pids:" + mine + "4:memory:/\n0::/\n"),
            kUid);
  EXPECT_EQ(KubernetesPodIn("9:name=systemd:" + mine + "8:pids:/kubepods/pod" + kOther + "/abc\n"),
            "");
  // Agreement that comes after a quarrel does not end it.
  EXPECT_EQ(KubernetesPodIn("3:a:" + mine + "2:b:/kubepods/pod" + kOther + "\n1:c:" + mine), "");
  // A colon in a path is of the path.
  EXPECT_EQ(KubernetesPodIn("0::/kubepods/pod" + kUid + "/a:b:/kubepods/pod" + kOther), kUid);
}

TEST(PodCgroup, DamagedTextNamesNoPod) {
  const std::string whole = "9:name=systemd:/kubepods/burstable/pod" + kUid + "/abc\n";
  for (size_t cut = 0; cut < whole.find(kUid); ++cut) {
    EXPECT_EQ(KubernetesPodIn(whole.substr(0, cut)), "") << cut;
  }
  for (const std::string& text :
       std::vector<std::string>{"\n\n", ":", "::", ":::", "0:kubepods", "\0\0", "0::/kubepods/"}) {
    EXPECT_EQ(KubernetesPodIn(text), "") << text;
  }
}

TEST(PodCgroup, TheGroupOfAContainerEndsWithItsOwnPart) {
  const std::string id(64, 'a');
  const auto group = [](const std::string& text) { return ContainerGroupIn(text); };
  EXPECT_EQ(group("0::/system.slice/docker-" + id + ".scope\n"),
            "/system.slice/docker-" + id + ".scope");
  // What is below was made in the container.
  EXPECT_EQ(group("0::/kubepods/burstable/podx/" + id + "/init/" + std::string(64, 'b') + "\n"),
            "/kubepods/burstable/podx/" + id);
  EXPECT_EQ(group("4:memory:/docker/" + id + "\n0::/docker/" + id), "/docker/" + id);
  // No container, no unified hierarchy, or another namespace's view.
  EXPECT_EQ(group("0::/user.slice/session-1.scope\n"), "");
  EXPECT_EQ(group("4:memory:/docker/" + id + "\n"), "");
  EXPECT_EQ(group("0::/../docker-" + id + ".scope\n"), "");
  EXPECT_EQ(group("0::/a/../docker-" + id + ".scope\n"), "");
  EXPECT_EQ(group("0::docker/" + id + "\n"), "");
  EXPECT_EQ(group(""), "");
  EXPECT_EQ(group("0::"), "");
  EXPECT_EQ(group("\n\n0::/docker/" + id), "/docker/" + id);
}

}  // namespace
}  // namespace baton::node
