// Pods as users of HAMi, Volcano, KAI, Run:ai and NVIDIA's time slicing write them, through both
// phases of admission.
#include "k8s/types/foreign_names.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>

#include "k8s/api/base64.h"
#include "k8s/types/annotations.h"
#include "k8s/types/gpu_pod.h"
#include "k8s/types/translate.h"
#include "k8s/webhook/admission.h"
#include "tests/k8s/chart/manifests.h"

namespace baton::k8s {
namespace {

constexpr ForeignOptions kEveryFamily{true, true, true, 4};

ForeignOptions Only(Family family) {
  ForeignOptions options;
  options.hami = family == Family::kHami;
  options.volcano = family == Family::kVolcano;
  options.kai = family == Family::kKai;
  options.replicas = family == Family::kTimeSlicing ? 4 : 0;
  return options;
}

ForeignOptions AllBut(Family family) {
  ForeignOptions options = kEveryFamily;
  const ForeignOptions one = Only(family);
  options.hami &= !one.hami;
  options.volcano &= !one.volcano;
  options.kai &= !one.kai;
  if (one.replicas > 0) options.replicas = 0;
  return options;
}

Json PodOf(const std::string& yaml) {
  Json pod = ToJson(YAML::Load(yaml));
  pod["apiVersion"] = "v1";
  pod["kind"] = "Pod";
  if (!pod["metadata"].contains("name")) pod["metadata"]["name"] = "p";
  return pod;
}

Json Response(const Json& pod, AdmissionKind kind, const ForeignOptions& foreign) {
  AdmissionOptions options;
  options.foreign = foreign;
  const Json request{{"uid", "u-1"},
                     {"resource", {{"group", ""}, {"version", "v1"}, {"resource", "pods"}}},
                     {"operation", "CREATE"},
                     {"namespace", "vision"},
                     {"userInfo", {{"username", "somebody"}}},
                     {"object", pod},
                     {"oldObject", nullptr}};
  const Json review{
      {"apiVersion", "admission.k8s.io/v1"}, {"kind", "AdmissionReview"}, {"request", request}};
  const AdmissionVerdict verdict = Review(review.dump(), kind, options);
  EXPECT_EQ(verdict.status, 200) << verdict.body;
  return Json::parse(verdict.body)["response"];
}

Json Mutated(const Json& pod, const ForeignOptions& foreign) {
  const Json response = Response(pod, AdmissionKind::kMutate, foreign);
  EXPECT_EQ(response["allowed"], true) << response;
  if (!response.contains("patch")) return pod;
  return pod.patch(Json::parse(FromBase64(response["patch"])));
}

// Why it is refused; empty: it is not.
std::string RefusedBecause(const std::string& yaml, const ForeignOptions& foreign = kEveryFamily) {
  const Json response = Response(PodOf(yaml), AdmissionKind::kMutate, foreign);
  return response["allowed"] == true ? std::string()
                                     : response["status"]["message"].get<std::string>();
}

// "main 30/30 3000Mi x2", by containers.
std::string AsRead(const Json& pod) {
  const auto read = ReadGpuPod(pod, kMemoryUnitMib);
  if (!read) return read.error().message;
  std::string text;
  for (const ContainerGpus& gpus : read->containers) {
    if (!text.empty()) text += ", ";
    text += gpus.name + " ";
    text += gpus.whole ? "whole"
                       : policy::PercentText(gpus.request) + "/" + policy::PercentText(gpus.limit);
    if (const std::string memory = GpuMemoryText(gpus.memory); !memory.empty())
      text += " " + memory;
    if (gpus.count > 1) text += fmt::format(" x{}", gpus.count);
  }
  return text;
}

bool HasForeignNames(const Json& pod) {
  Json copy = pod;
  copy["metadata"]["annotations"].erase("baton.dev/translated");
  const Json& annotations = copy["metadata"]["annotations"];
  for (const ForeignName& row : ForeignNames()) {
    if (row.name == kWholeResource) continue;
    const std::string key(row.name);
    if (row.place == ForeignPlace::kAnnotation && annotations.contains(key)) return true;
    if (row.place == ForeignPlace::kResource &&
        copy["spec"].dump().find("\"" + key + "\"") != std::string::npos) {
      return true;
    }
  }
  return annotations.dump().find("nvidia.com/container.") != std::string::npos;
}

struct ForeignManifest {
  Family family;
  std::string yaml;
  std::string as_read;
  std::string translated;
};

std::string OneContainer(const std::string& limits, const std::string& annotations = "{}",
                         const std::string& scheduler = "default-scheduler") {
  return fmt::format(
      "metadata: {{annotations: {}}}\n"
      "spec: {{schedulerName: {}, containers: [{{name: main, image: x, resources: {{limits: "
      "{}}}}}]}}",
      annotations, scheduler, limits);
}

std::vector<ForeignManifest> ForeignManifests() {
  using F = Family;
  return {
      {F::kHami,
       OneContainer("{nvidia.com/gpu: 1, nvidia.com/gpumem: 3k, nvidia.com/gpucores: 30}"),
       "main 30/30 3000Mi",
       "container main: nvidia.com/gpu=1, nvidia.com/gpumem=3000, nvidia.com/gpucores=30 means "
       "request 30, limit 30, memory 3000Mi"},
      {F::kHami, OneContainer("{nvidia.com/gpu: 2, nvidia.com/gpumem: 16384}"),
       "main 1/100 16Gi x2",
       "container main: nvidia.com/gpu=2, nvidia.com/gpumem=16384 means request 1, limit 100, "
       "memory "
       "16Gi, of each of 2 GPUs"},
      {F::kHami,
       OneContainer("{nvidia.com/gpumem-percentage: 50, cpu: 2}",
                    "{nvidia.com/vgpu-mode: hami-core}", "hami-scheduler"),
       "main 1/100 50%",
       "container main: nvidia.com/gpumem-percentage=50 means request 1, limit 100, memory 50%"},
      {F::kVolcano,
       OneContainer("{volcano.sh/vgpu-number: 1, volcano.sh/vgpu-memory: 4096}",
                    "{volcano.sh/vgpu-mode: mps}", "volcano"),
       "main 1/100 4Gi",
       "container main: volcano.sh/vgpu-number=1, volcano.sh/vgpu-memory=4096 means request 1, "
       "limit 100, memory 4Gi; volcano.sh/vgpu-mode means baton.dev/mode"},
      {F::kHami,
       OneContainer("{nvidia.com/gpu: 1, nvidia.com/gpumem: 8000}", "{nvidia.com/vgpu-mode: mig}"),
       "main 1/100 8000Mi",
       "container main: nvidia.com/gpu=1, nvidia.com/gpumem=8000 means request 1, limit 100, "
       "memory 8000Mi; nvidia.com/vgpu-mode means baton.dev/mode"},
      {F::kHami,
       OneContainer(
           "{nvidia.com/gpu: '1', nvidia.com/gpucores: '50'}",
           "{nvidia.com/use-gputype: 'A100,V100', nvidia.com/nouse-gputype: 'A100 40GB', "
           "hami.io/gpu-scheduler-policy: spread, hami.io/node-scheduler-policy: binpack}"),
       "main 50/50",
       "container main: nvidia.com/gpu=1, nvidia.com/gpucores=50 means request 50, limit 50; "
       "nvidia.com/use-gputype means baton.dev/model; nvidia.com/nouse-gputype means "
       "baton.dev/not-model; hami.io/node-scheduler-policy means baton.dev/node-policy; "
       "hami.io/gpu-scheduler-policy means baton.dev/gpu-policy"},
      {F::kHami,
       OneContainer("{nvidia.com/gpu: 1, nvidia.com/gpucores: 50}",
                    "{nvidia.com/use-gpuuuid: 'GPU-1,GPU-2', nvidia.com/nouse-gpuuuid: GPU-3}"),
       "main 50/50",
       "container main: nvidia.com/gpu=1, nvidia.com/gpucores=50 means request 50, limit 50; "
       "nvidia.com/use-gpuuuid means baton.dev/gpu-uuid; nvidia.com/nouse-gpuuuid means "
       "baton.dev/not-gpu-uuid"},
      {F::kHami, R"(
spec:
  initContainers:
    - {name: warm, image: x, resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 512}}}
  containers:
    - {name: side, image: x}
    - name: main
      image: x
      resources:
        requests: {nvidia.com/gpu: 1, nvidia.com/gpucores: 25, nvidia.com/gpumem: 1024}
        limits: {nvidia.com/gpu: 1, nvidia.com/gpucores: 25, nvidia.com/gpumem: 1024}
)",
       "warm 1/100 512Mi, main 25/25 1Gi",
       "container warm: nvidia.com/gpu=1, nvidia.com/gpumem=512 means request 1, limit 100, memory "
       "512Mi; container main: nvidia.com/gpu=1, nvidia.com/gpumem=1024, nvidia.com/gpucores=25 "
       "means request 25, limit 25, memory 1Gi"},
      {F::kHami,
       OneContainer("{nvidia.com/gpu: 2}", "{nvidia.com/use-gputype: H100}", "hami-scheduler"),
       "main whole x2",
       "container main: nvidia.com/gpu=2 means 2 whole GPUs (nvidia.com/gpu); "
       "nvidia.com/use-gputype means baton.dev/model"},

      {F::kVolcano,
       OneContainer("{volcano.sh/vgpu-number: 1, volcano.sh/vgpu-memory: 3000}", "{}", "volcano"),
       "main 1/100 3000Mi",
       "container main: volcano.sh/vgpu-number=1, volcano.sh/vgpu-memory=3000 means request 1, "
       "limit "
       "100, memory 3000Mi"},
      {F::kVolcano,
       OneContainer("{volcano.sh/vgpu-number: 2, volcano.sh/vgpu-memory: 8k, "
                    "volcano.sh/vgpu-cores: 50}",
                    "{volcano.sh/vgpu-mode: hami-core}", "volcano"),
       "main 50/50 8000Mi x2",
       "container main: volcano.sh/vgpu-number=2, volcano.sh/vgpu-memory=8000, "
       "volcano.sh/vgpu-cores=50 means request 50, limit 50, memory 8000Mi, of each of 2 GPUs"},
      {F::kVolcano,
       OneContainer("{volcano.sh/vgpu-number: 1, volcano.sh/vgpu-memory-percentage: 25}"),
       "main 1/100 25%",
       "container main: volcano.sh/vgpu-number=1, volcano.sh/vgpu-memory-percentage=25 means "
       "request "
       "1, limit 100, memory 25%"},
      {F::kVolcano, OneContainer("{volcano.sh/vgpu-number: 2}", "{}", "volcano"), "main whole x2",
       "container main: volcano.sh/vgpu-number=2 means 2 whole GPUs (nvidia.com/gpu)"},
      {F::kVolcano, R"(
spec:
  schedulerName: volcano
  containers:
    - {name: a, image: x, resources: {limits: {volcano.sh/vgpu-number: 1, volcano.sh/vgpu-cores: 60}}}
    - {name: b, image: x, resources: {limits: {volcano.sh/vgpu-memory: 2048}}}
)",
       "a 60/60, b 1/100 2Gi",
       "container a: volcano.sh/vgpu-number=1, volcano.sh/vgpu-cores=60 means request 60, limit "
       "60; "
       "container b: volcano.sh/vgpu-memory=2048 means request 1, limit 100, memory 2Gi"},

      {F::kKai, OneContainer("{cpu: 1}", "{gpu-fraction: '0.5'}", "kai-scheduler"),
       "main 50/100 50%",
       "container main: gpu-fraction=0.5 means request 50, limit 100, memory 50%"},
      {F::kKai, OneContainer("{cpu: 1}", "{gpu-memory: '2000'}", "kai-scheduler"),
       "main 1/100 2000Mi",
       "container main: gpu-memory=2000 means request 1, limit 100, memory 2000Mi"},
      {F::kKai,
       OneContainer("{cpu: 1}", "{gpu-fraction: '0.3333', gpu-fraction-num-devices: '2'}",
                    "runai-scheduler"),
       "main 33.3/100 33.3% x2",
       "container main: gpu-fraction=0.3333, gpu-fraction-num-devices=2 means request 33.3, limit "
       "100, memory 33.3%, of each of 2 GPUs"},
      {F::kKai, R"(
metadata:
  labels: {kai.scheduler/queue: q}
  annotations: {gpu-fraction: "0.25", gpu-fraction-container-name: work}
spec:
  schedulerName: kai-scheduler
  containers:
    - {name: side, image: x}
    - {name: work, image: x}
)",
       "work 25/100 25%",
       "container work: gpu-fraction=0.25 means request 25, limit 100, memory 25%"},
      {F::kKai, R"(
metadata:
  annotations:
    nvidia.com/container.work.gpu-memory.request: 4Gi
    nvidia.com/container.work.gpu-memory.limit: 4096Mi
    nvidia.com/container.work.gpu-compute.mode: time-slicing
spec:
  schedulerName: kai-scheduler
  initContainers: [{name: work, image: x}]
  containers: [{name: main, image: x}]
)",
       "work 1/100 4Gi",
       "container work: nvidia.com/container.work.gpu-memory.request=4Gi, "
       "nvidia.com/container.work.gpu-memory.limit=4096Mi means request 1, limit 100, memory 4Gi"},

      {F::kTimeSlicing, OneContainer("{nvidia.com/gpu.shared: 1}"), "main 25/100",
       "container main: nvidia.com/gpu.shared=1 means request 25, limit 100"},
      {F::kTimeSlicing, R"(
spec:
  containers:
    - name: main
      image: x
      resources: {requests: {cpu: 1, nvidia.com/gpu.shared: 1}, limits: {nvidia.com/gpu.shared: 1}}
)",
       "main 25/100", "container main: nvidia.com/gpu.shared=1 means request 25, limit 100"},
      {F::kTimeSlicing, R"(
metadata: {annotations: {baton.dev/team: research, baton.dev/priority: idle}}
spec: {containers: [{name: main, image: x, resources: {limits: {nvidia.com/gpu.shared: "1"}}}]}
)",
       "main 25/100", "container main: nvidia.com/gpu.shared=1 means request 25, limit 100"},
      {F::kTimeSlicing, R"(
spec:
  containers:
    - {name: a, image: x, resources: {limits: {nvidia.com/gpu.shared: 1}}}
    - {name: b, image: x, resources: {limits: {nvidia.com/gpu.shared: 1}}}
)",
       "a 25/100, b 25/100",
       "container a: nvidia.com/gpu.shared=1 means request 25, limit 100; container b: "
       "nvidia.com/gpu.shared=1 means request 25, limit 100"},
      {F::kTimeSlicing, R"(
spec:
  initContainers:
    - {name: check, image: x, resources: {limits: {nvidia.com/gpu.shared: 1}}}
  containers: [{name: main, image: x, resources: {limits: {nvidia.com/gpu.shared: 1}}}]
)",
       "check 25/100, main 25/100",
       "container check: nvidia.com/gpu.shared=1 means request 25, limit 100; container main: "
       "nvidia.com/gpu.shared=1 means request 25, limit 100"},
  };
}

TEST(ForeignNames, PodsGetWhatTheirNamesMean) {
  std::map<Family, int> manifests;
  for (const ForeignManifest& manifest : ForeignManifests()) {
    SCOPED_TRACE(manifest.yaml);
    ++manifests[manifest.family];
    const Json given = PodOf(manifest.yaml);
    const Json pod = Mutated(given, Only(manifest.family));
    EXPECT_EQ(AsRead(pod), manifest.as_read);
    EXPECT_FALSE(HasForeignNames(pod)) << pod;
    EXPECT_EQ(pod["metadata"]["annotations"]["baton.dev/translated"], manifest.translated);
    EXPECT_EQ(pod["spec"]["schedulerName"], "baton");
    EXPECT_EQ(pod["metadata"].value("labels", Json()), given["metadata"].value("labels", Json()));
    // The same where the others are on too, and once more changes nothing.
    EXPECT_EQ(Mutated(given, kEveryFamily), pod);
    EXPECT_EQ(Mutated(pod, kEveryFamily), pod);
    const Json validated = Response(pod, AdmissionKind::kValidate, kEveryFamily);
    EXPECT_EQ(validated["allowed"], true) << validated;
    EXPECT_EQ(validated.dump().find("Baton has no such annotation"), std::string::npos);
  }
  for (const auto& [family, count] : manifests) EXPECT_GE(count, 5) << FamilyOf(family).title;
  EXPECT_EQ(manifests.size(), 4u);
}

TEST(ForeignNames, UsersAreWarnedHowTheyAreUnderstood) {
  const Json response =
      Response(PodOf(OneContainer("{nvidia.com/gpu: 1, nvidia.com/gpucores: 30}")),
               AdmissionKind::kMutate, Only(Family::kHami));
  EXPECT_EQ(
      response["warnings"],
      Json({"container main: nvidia.com/gpu=1, nvidia.com/gpucores=30 means request 30, limit "
            "30"}));
}

TEST(ForeignNames, FamiliesThatAreOffAreNeverTouched) {
  for (const ForeignManifest& manifest : ForeignManifests()) {
    SCOPED_TRACE(manifest.yaml);
    Json pod = PodOf(manifest.yaml);
    const Json given = pod;
    for (const ForeignOptions& options : {ForeignOptions{}, AllBut(manifest.family)}) {
      const auto understood = TranslateForeignNames(options, pod);
      ASSERT_TRUE(understood) << understood.error().message;
      EXPECT_TRUE(understood->empty());
      EXPECT_EQ(pod, given);
    }
    EXPECT_FALSE(Mutated(given, {})["metadata"].dump().find("translated") != std::string::npos);
  }
}

TEST(ForeignNames, WholeGpusStayWhole) {
  const Json given = PodOf(OneContainer("{nvidia.com/gpu: 1}"));
  const Json pod = Mutated(given, kEveryFamily);
  EXPECT_EQ(pod, Mutated(given, {})) << "as without the family";
  EXPECT_EQ(AsRead(pod), "main whole");
  // Neither does it keep a pod of Baton's own words from being one.
  const Json exclusive =
      PodOf(OneContainer("{nvidia.com/gpu: 1}", "{baton.dev/mode: exclusive, baton.dev/team: t}"));
  EXPECT_EQ(Mutated(exclusive, kEveryFamily), Mutated(exclusive, {}));
  // HAMi's own scheduler would not come for it any more.
  EXPECT_EQ(Mutated(PodOf(OneContainer("{nvidia.com/gpu: 1}", "{}", "hami-scheduler")),
                    kEveryFamily)["spec"]["schedulerName"],
            "baton");
  EXPECT_EQ(RefusedBecause(R"(
spec:
  containers:
    - {name: a, image: x, resources: {limits: {nvidia.com/gpu: 1}}}
    - {name: b, image: x, resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 1000}}}
)"),
            "spec.containers[a].resources.limits[nvidia.com/gpu]: container a asks for whole GPUs "
            "and container b for a part of one; a pod can use only one of the two: say how much of "
            "it a needs");
}

TEST(ForeignNames, PodsThatAskForNothingAreLeftAlone) {
  for (const std::string& yaml :
       {OneContainer("{cpu: 1}"), OneContainer("{cpu: 1}", "{nvidia.com/use-gputype: A100}"),
        OneContainer("{cpu: 1}", "{gpu-fraction-num-devices: '2'}"),
        OneContainer("{cpu: 1}", "{nvidia.com/container.main.gpu-compute.mode: sm-sharing}"),
        OneContainer("{cpu: 1}", "{}", "volcano"), std::string("spec: {}"),
        OneContainer("{nvidia.com/gpu: 0}"), OneContainer("{nvidia.com/gpucores: 0}"),
        std::string("metadata: {annotations: {gpu-memory: 5}}")}) {
    const Json pod = PodOf(yaml);
    EXPECT_EQ(Mutated(pod, kEveryFamily), pod) << yaml;
  }
}

TEST(ForeignNames, ContradictionsAreRefusedWithARemedy) {
  const auto expect = [](const std::string& yaml, const std::string& why) {
    EXPECT_EQ(RefusedBecause(yaml), why) << yaml;
  };
  expect(
      OneContainer("{nvidia.com/gpu: 1, nvidia.com/gpumem: 10, nvidia.com/gpumem-percentage: 5}"),
      "spec.containers[main].resources.limits[nvidia.com/gpumem-percentage]: nvidia.com/gpumem "
      "says the memory of the same container; remove one of the two");
  expect(OneContainer("{cpu: 1}", "{gpu-fraction: '0.5', gpu-memory: '1000'}"),
         "metadata.annotations[gpu-fraction]: gpu-memory says the memory of the same container; "
         "remove one of the two");
  expect(OneContainer("{cpu: 1}",
                      "{nvidia.com/container.main.gpu-memory.request: 1Gi, "
                      "nvidia.com/container.main.gpu-memory.limit: 2Gi}"),
         "metadata.annotations[nvidia.com/container.main.gpu-memory.request]: it is not "
         "nvidia.com/container.main.gpu-memory.limit; make them equal, or use the annotations "
         "baton.dev/swap, baton.dev/memory and baton.dev/memory-request");
  expect(OneContainer("{nvidia.com/gpu: 1, nvidia.com/gpumem: 10, volcano.sh/vgpu-cores: 5}"),
         "spec.containers[main].resources.limits[volcano.sh/vgpu-cores]: the pod has names of "
         "Volcano and of HAMi (nvidia.com/gpumem); remove one");
  // Baton's own sizes, of the pod or of a container; what is no size goes well with them.
  for (const std::string own : {"baton.dev/request", "baton.dev/swap", "baton.dev/flavor",
                                "main.container.baton.dev/memory"}) {
    expect(OneContainer("{nvidia.com/gpucores: 30}", "{" + own + ": '30'}"),
           "spec.containers[main].resources.limits[nvidia.com/gpucores]: the pod has names of HAMi "
           "and Baton's " +
               own + "; remove one of the two");
  }
  expect(OneContainer("{nvidia.com/gpucores: 30, baton.dev/gpu-share: 30}"),
         "spec.containers[main].resources.limits[nvidia.com/gpucores]: the pod has names of HAMi "
         "and Baton's baton.dev/gpu-share; remove one of the two");
  expect(OneContainer("{baton.dev/gpu-share: 30}", "{nvidia.com/use-gputype: A100}"),
         "metadata.annotations[nvidia.com/use-gputype]: the pod has names of HAMi and Baton's "
         "baton.dev/gpu-share; remove one of the two");
  expect(
      OneContainer("{nvidia.com/gpucores: 30}",
                   "{nvidia.com/use-gputype: A100, baton.dev/model: a100}"),
      "metadata.annotations[nvidia.com/use-gputype]: the pod has baton.dev/model too; remove one "
      "of the two");
  expect(
      "spec: {containers: [{name: main, image: x, resources: {limits: {nvidia.com/gpumem: 2}, "
      "requests: {nvidia.com/gpumem: 1}}}]}",
      "spec.containers[main].resources.limits[nvidia.com/gpumem]: resources.requests says "
      "something else; make them equal");
  expect(
      "spec: {containers: [{name: main, image: x, resources: {requests: {nvidia.com/gpumem: 1}}}]}",
      "spec.containers[main].resources.requests[nvidia.com/gpumem]: write it in resources.limits "
      "too");
  expect(OneContainer("{nvidia.com/gpu: 0, nvidia.com/gpumem: 10}"),
         "spec.containers[main].resources.limits[nvidia.com/gpu]: '0'; write 1 to 16 GPUs, or "
         "remove it and the sizes beside it");
  expect(OneContainer("{nvidia.com/gpu: 4, volcano.sh/vgpu-number: 1}"),
         "spec.containers[main].resources.limits[volcano.sh/vgpu-number]: the container has "
         "nvidia.com/gpu too; remove one of the two");
  expect(OneContainer("{nvidia.com/gpu: 1, nvidia.com/gpumem: 10}",
                      "{hami.io/gpu-scheduler-policy: topology-aware}"),
         "metadata.annotations[hami.io/gpu-scheduler-policy]: it is none of binpack, spread");
  const std::string two = "spec: {containers: [{name: a, image: x}, {name: b, image: x}]}\n";
  expect(two +
             "metadata: {annotations: {nvidia.com/container.a.gpu-memory.limit: 1Gi, "
             "nvidia.com/container.b.gpu-memory.limit: 1Gi, gpu-fraction-num-devices: '2'}}",
         "metadata.annotations[gpu-fraction-num-devices]: two containers have sizes, and it may "
         "be of either; remove it");
}

TEST(ForeignNames, TheNumberOfGpusIsOfTheContainerWithTheFraction) {
  const Json pod =
      Mutated(PodOf("spec: {containers: [{name: main, image: x}, {name: side, image: x}]}\n"
                    "metadata: {annotations: {gpu-fraction: '0.5', gpu-fraction-num-devices: '2', "
                    "nvidia.com/container.side.gpu-memory.limit: 2Gi}}"),
              kEveryFamily);
  const Json& annotations = pod["metadata"]["annotations"];
  EXPECT_EQ(annotations.value("main.container.baton.dev/count", ""), "2") << annotations;
  EXPECT_FALSE(annotations.contains("side.container.baton.dev/count"));
}

TEST(ForeignNames, WhatBatonHasNotIsRefusedWithWhatToWriteInstead) {
  const auto says = [](const std::string& yaml, const std::string& part) {
    EXPECT_NE(RefusedBecause(yaml).find(part), std::string::npos)
        << yaml << ": " << RefusedBecause(yaml);
  };
  says(OneContainer("{nvidia.com/gpu: 1, nvidia.com/priority: 0}"), "baton.dev/priority");
  says(OneContainer("{nvidia.com/gpu: 1, nvidia.com/gpumem: 9}", "{nvidia.com/vgpu-mode: tiles}"),
       "write hami-core, mig or mps");
  says(OneContainer("{cpu: 1}",
                    "{nvidia.com/container.main.gpu-memory.limit: 1Gi, "
                    "nvidia.com/container.main.gpu-compute.mode: sm-sharing}"),
       "write time-slicing");
  says(
      "metadata: {annotations: {gpu-fraction: '0.5'}}\nspec: {containers: [{name: main, image: x, "
      "env: [{name: RUNAI_GPU_MEMORY_LIMIT, value: '0.9'}]}]}",
      "baton.dev/swap");
  says(OneContainer("{nvidia.com/gpu.shared: 2}"), "for more use baton.dev/gpu-share");
  says(OneContainer("{nvidia.com/gpucores: 10}", "{hami.io/gpu-scheduler-policy: topology-aware}"),
       "it is none of binpack, spread");
  says(OneContainer("{cpu: 1}", "{gpu-fraction: '1'}"), "nvidia.com/gpu: 1 for a whole GPU");
}

TEST(ForeignNames, HostileValuesAreRefusedInOneSentence) {
  const std::string long_text(100'000, '9');
  for (const std::string value :
       {"'-1'", "-1", "'1e400'", "'30m'", "''", "'٣٠'", "'0x1e'", "'NaN'", "[1]", "{a: 1}", "null",
        "true", "'1 0'", "1.5", "'18446744073709551616'", "'9Ei'"}) {
    for (const ForeignName& row : ForeignNames()) {
      if (row.unit.scale == 0 || row.meaning == ForeignMeaning::kRefused) continue;
      std::string name(row.name);
      if (const size_t at = name.find("NAME"); at != name.npos) name.replace(at, 4, "main");
      const bool resource = row.place == ForeignPlace::kResource;
      const std::string said = fmt::format("{{'{}': {}}}", name, value);
      // What asks beside it, so that none is the only name.
      const std::string yaml =
          resource && name == kWholeResource
              ? OneContainer(fmt::format("{{{}: {}, nvidia.com/gpumem: 5}}", name, value))
          : resource ? OneContainer(said)
          : row.meaning == ForeignMeaning::kCount
              ? OneContainer("{cpu: 1}",
                             fmt::format("{{{}: {}, gpu-fraction: '0.5'}}", name, value))
              : OneContainer("{cpu: 1}", said);
      const std::string why = RefusedBecause(yaml);
      EXPECT_NE(why.find(name), std::string::npos) << name << ": " << value << ": " << why;
      EXPECT_LT(why.size(), 300u) << why;
    }
  }
  for (const ForeignName& row : ForeignNames()) {
    Json pod = PodOf(OneContainer("{nvidia.com/gpucores: 10}"));
    pod["metadata"]["annotations"][std::string(row.name)] = long_text;
    const Json response = Response(pod, AdmissionKind::kMutate, Only(row.family));
    if (response["allowed"] == true) continue;
    EXPECT_LT(response["status"]["message"].get<std::string>().size(), 400u);
  }
  EXPECT_EQ(
      RefusedBecause(OneContainer("{nvidia.com/gpumem: 16Gi}")),
      "spec.containers[main].resources.limits[nvidia.com/gpumem]: '16Gi'; write 1 to 16777216 "
      "MiB, such as 16384 for 16Gi");
  EXPECT_EQ(RefusedBecause(OneContainer("{nvidia.com/gpucores: 130}")),
            "spec.containers[main].resources.limits[nvidia.com/gpucores]: '130'; write 1 to 100 "
            "percent");
  EXPECT_EQ(
      RefusedBecause(OneContainer("{cpu: 1}",
                                  "{gpu-fraction: '0.5', "
                                  "gpu-fraction-container-name: other}")),
      "metadata.annotations[gpu-fraction-container-name]: 'other' is no container of the pod; "
      "write its name");
}

// As the API server has them, objects of odd kinds reach nobody; they break nothing either.
TEST(ForeignNames, OddObjectsAreHarmless) {
  const Json odd[]{nullptr, 1, "x", Json::array(), Json::array({1}), Json::object(), true};
  const Json given = PodOf(OneContainer("{nvidia.com/gpucores: 10}", "{gpu-fraction: '0.5'}"));
  for (const char* pointer :
       {"/metadata", "/metadata/annotations", "/spec", "/spec/containers", "/spec/containers/0",
        "/spec/containers/0/name", "/spec/containers/0/resources", "/spec/schedulerName",
        "/spec/containers/0/resources/limits", "/spec/containers/0/resources/requests",
        "/spec/containers/0/env", "/spec/initContainers"}) {
    for (const Json& value : odd) {
      for (const Family family : {Family::kHami, Family::kKai}) {
        Json pod = given;
        pod[Json::json_pointer(pointer)] = value;
        (void)TranslateForeignNames(Only(family), pod);
        (void)Response(pod, AdmissionKind::kMutate, Only(family));
      }
    }
  }
}

std::string NamesPage() {
  static const std::map<ForeignPlace, std::string> kPlaces{
      {ForeignPlace::kResource, "limit"},
      {ForeignPlace::kAnnotation, "annotation"},
      {ForeignPlace::kEnvironment, "variable"}};
  std::string page =
      "| from | where | name | unit | what Baton understands | what differs, what to write instead "
      "|\n| --- | --- | --- | --- | --- | --- |\n";
  for (const ForeignName& row : ForeignNames()) {
    std::string meaning(MeaningText(row.meaning));
    if (!row.only.empty()) meaning += fmt::format(" `{}`", row.only);
    page += fmt::format("| {} | {} | `{}` | {} | {} | {} |\n", FamilyOf(row.family).title,
                        kPlaces.at(row.place), row.name, row.unit.word, meaning, row.note);
  }
  return page;
}

// BATON_UPDATE=1 writes it.
TEST(ForeignNames, TheDocsHaveTheTable) {
  const std::string path = kSource + "/docs/migrating.md";
  std::string page = Text(path);
  const size_t begin = page.find("| from | where |");
  ASSERT_NE(begin, std::string::npos);
  const size_t end = std::min(page.find("\n\n", begin), page.size() - 1) + 1;
  if (std::getenv("BATON_UPDATE") != nullptr) {
    page.replace(begin, end - begin, NamesPage());
    std::ofstream(path) << page;
    return;
  }
  EXPECT_EQ(page.substr(begin, end - begin), NamesPage()) << "run this test with BATON_UPDATE=1";
}

TEST(ForeignNames, NoNameIsInAFamilyTwice) {
  std::set<std::pair<Family, std::string_view>> names;
  for (const ForeignName& row : ForeignNames()) {
    EXPECT_TRUE(names.emplace(row.family, row.name).second) << row.name;
    EXPECT_EQ(row.meaning == ForeignMeaning::kOnly, !row.only.empty()) << row.name;
    EXPECT_FALSE(row.meaning == ForeignMeaning::kRefused && row.note.empty()) << row.name;
  }
}

// A pod that asks by such a name reaches the webhook where the chart switches its family on.
TEST(ForeignNames, TheChartSendsPodsThatAskByThem) {
  size_t webhooks = 0;
  for (const Json& object : Documents(kSource + "/tests/k8s/chart/everything.yaml")) {
    for (const Json& webhook : object.value("webhooks", Json::array())) {
      if (webhook["name"] != "pods.baton.dev") continue;
      ++webhooks;
      const std::string condition = webhook["matchConditions"][0]["expression"];
      for (const ForeignName& row : ForeignNames()) {
        if (row.unit.scale == 0 || row.meaning == ForeignMeaning::kRefused) continue;
        if (row.place == ForeignPlace::kAnnotation && row.meaning == ForeignMeaning::kCount)
          continue;
        const std::string word(row.name.substr(0, row.name.find("NAME")));
        EXPECT_NE(condition.find("\"" + word + "\""), std::string::npos) << row.name;
      }
    }
  }
  EXPECT_EQ(webhooks, 2u);
  for (const char* name : {"baton", "central"}) {
    const std::string text = Text(kSource + "/k8s/manifests/" + name + ".yaml");
    EXPECT_EQ(text.find("gpumem"), std::string::npos) << "off by default";
  }
}

}  // namespace
}  // namespace baton::k8s
