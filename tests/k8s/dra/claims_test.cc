// Claims as pods of batond, as files and as CDI devices.
#include "k8s/dra/claims.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "spec/modes.h"
#include "tests/k8s/dra/claim_of_tests.h"

namespace baton::k8s {
namespace {

ClaimReader Reader() {
  ClaimReader reader;
  reader.node = "n1";
  reader.gpus = {{"gpu-a", "GPU-a"}, {"gpu-b", "GPU-b"}};
  return reader;
}

Json& Result0(Json& claim) { return claim["status"]["allocation"]["devices"]["results"][0]; }

std::string WhyNot(const Json& claim, const ClaimReader& reader = Reader()) {
  const auto read = reader.Read(claim);
  return read ? "" : read.error().message;
}

bool Says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(DraClaims, RequestIsAPodOfWhatItConsumes) {
  const auto claim = Reader().Read(AllocatedClaim("a", "gpu-a", "30", "4Gi"));
  ASSERT_TRUE(claim) << claim.error().message;
  ASSERT_EQ(claim->requests.size(), 1u);
  const ClaimRequest& request = claim->requests[0];
  EXPECT_EQ(request.name, "gpu");
  EXPECT_EQ(request.pod.name, "vision/a");
  EXPECT_EQ(request.pod.name_space, "vision");
  EXPECT_EQ(request.pod.share.request, policy::Share(300'000));
  EXPECT_EQ(request.pod.share.limit, policy::kWhole);
  EXPECT_EQ(request.pod.memory_cap, uint64_t{4} << 30);
  EXPECT_EQ(request.pod.wishes.gpus, std::vector<std::string>{"GPU-a"});
  EXPECT_EQ(request.pod.wishes.mode, spec::kTimeSlice);
  EXPECT_EQ(request.pod.asked_at, 1'769'851'800);
  EXPECT_EQ(request.pod.cgroup, "") << "several pods may use it";
}

TEST(DraClaims, AreNamedByTheirPodOrParameter) {
  Json object = AllocatedClaim("trainer-gpu-x7f2k", "gpu-a", "30", "4Gi");
  SetOwnerPod(object, "trainer");
  EXPECT_EQ(Reader().Read(object)->requests[0].pod.name, "vision/trainer");
  AddParameters(object, "FromClaim", {{"name", "run-7"}});
  const auto claim = Reader().Read(object);
  EXPECT_EQ(NamesFor(*claim, claim->requests[0]),
            (std::vector<std::string>{"vision/run-7", "vision/run-7/gpu",
                                      "vision/trainer-gpu-x7f2k/gpu"}));
  object["metadata"]["name"] = std::string(250, 'x');
  for (const std::string& name : NamesFor(*Reader().Read(object), claim->requests[0])) {
    EXPECT_LE(name.size(), 128u);
  }
}

TEST(DraClaims, ParametersOfTheClaimComeAfterTheClass) {
  Json object = AllocatedClaim("a", "gpu-a", "30", "4Gi");
  AddParameters(object, "FromClaim", {{"limit", "60"}});
  AddParameters(object, "FromClass", {{"limit", "50"}, {"priority", "high"}, {"latency", "20ms"}});
  const auto claim = Reader().Read(object);
  ASSERT_TRUE(claim) << claim.error().message;
  const policy::ShareSpec& share = claim->requests[0].pod.share;
  EXPECT_EQ(share.limit, policy::Share(600'000));
  EXPECT_EQ(share.priority, policy::Priority::kHigh);
  EXPECT_EQ(share.latency, std::chrono::milliseconds(20));
}

TEST(DraClaims, ParametersAreOfTheirRequestsAndDriver) {
  Json object = AllocatedClaim("a", "gpu-a", "30", "4Gi");
  AddParameters(object, "FromClaim", {{"limit", "60"}});
  Json& config = object["status"]["allocation"]["devices"]["config"];
  for (const char* request : {"other", "gpu/other"}) {
    config[0]["requests"] = Json::array({request});
    EXPECT_EQ(Reader().Read(object)->requests[0].pod.share.limit, policy::kWhole) << request;
  }
  Result0(object)["request"] = "gpu/small";
  for (const char* request : {"gpu", "gpu/small"}) {
    config[0]["requests"] = Json::array({request});
    const auto claim = Reader().Read(object);
    EXPECT_EQ(claim->requests[0].pod.share.limit, policy::Share(600'000)) << request;
    EXPECT_EQ(claim->requests[0].name, "gpu") << "as containers name it";
  }
  config[0]["opaque"] = {{"driver", "gpu.example.com"}, {"parameters", {{"x", 1}}}};
  EXPECT_EQ(Reader().Read(object)->requests[0].pod.share.limit, policy::kWhole);
}

TEST(DraClaims, HighPriorityIsTheOperatorsWord) {
  Json object = AllocatedClaim("a", "gpu-a", "30", "4Gi");
  AddParameters(object, "FromClaim", {{"priority", "high"}});
  ClaimReader reader = Reader();
  EXPECT_EQ(WhyNot(object, reader), "");
  reader.tenancy.restricted = {std::string(grants::kHighPriority)};
  EXPECT_TRUE(Says(WhyNot(object, reader), "config[0].opaque.parameters.priority: "));
  reader.name_space = Json::parse(R"({"metadata": {"name": "vision", "labels": {
      "baton.dev/allow-high-priority": "true", "baton.dev/team": "research.vision"}}})");
  const auto claim = reader.Read(object);
  ASSERT_TRUE(claim) << claim.error().message;
  EXPECT_EQ(claim->requests[0].pod.team, "research/vision");
  reader.name_space = Json::object();
  object["status"]["allocation"]["devices"]["config"][0]["source"] = "FromClass";
  EXPECT_EQ(WhyNot(object, reader), "");
}

TEST(DraClaims, IdlePriorityIsRoomAndNoTime) {
  Json object = AllocatedClaim("a", "gpu-a", "1", "4Gi");
  AddParameters(object, "FromClaim", {{"priority", "idle"}});
  const auto claim = Reader().Read(object);
  ASSERT_TRUE(claim) << claim.error().message;
  EXPECT_EQ(claim->requests[0].pod.share.request, policy::Share(0));
}

TEST(DraClaims, SeveralGpusOfARequestAreOnePod) {
  Json object = AllocatedClaim("a", "gpu-b", "30", "8Gi");
  Json& results = object["status"]["allocation"]["devices"]["results"];
  results.push_back(AllocatedGpu("gpu", "gpu-a", "30", "4Gi", "second"));
  results.push_back(AllocatedGpu("other", "gpu-a", "10", "1Gi", "third"));
  const auto claim = Reader().Read(object);
  ASSERT_TRUE(claim) << claim.error().message;
  ASSERT_EQ(claim->requests.size(), 2u);
  EXPECT_EQ(claim->requests[0].pod.wishes.gpus, (std::vector<std::string>{"GPU-b", "GPU-a"}));
  EXPECT_EQ(claim->requests[0].pod.memory_cap, uint64_t{4} << 30) << "of each, so the least";
  EXPECT_EQ(claim->requests[0].devices[1].share_id, "second");
  EXPECT_EQ(claim->requests[1].name, "other");
  EXPECT_NE(NamesFor(*claim, claim->requests[0])[0], NamesFor(*claim, claim->requests[1])[0]);
  results[1]["device"] = "gpu-b";
  EXPECT_TRUE(Says(WhyNot(object), "results[1].device: request gpu has gpu-b twice"));
}

// Of an API server without consumable capacity.
TEST(DraClaims, AWholeGpuIsAllOfItsTime) {
  Json object = AllocatedClaim("a", "gpu-a", "30", "4Gi");
  Result0(object).erase("consumedCapacity");
  Result0(object).erase("shareID");
  const auto claim = Reader().Read(object);
  ASSERT_TRUE(claim) << claim.error().message;
  EXPECT_EQ(claim->requests[0].pod.share.request, policy::kWhole);
  EXPECT_EQ(claim->requests[0].pod.memory_cap, 0u);
}

TEST(DraClaims, RefusalsNameTheField) {
  const std::string results = "status.allocation.devices.results[0].";
  const auto with = [](const char* pointer, const Json& value) {
    Json object = AllocatedClaim("a", "gpu-a", "30", "4Gi");
    Result0(object)[Json::json_pointer(pointer)] = value;
    return WhyNot(object);
  };
  for (const char* share : {"0", "101", "100001m", "x", "-1"}) {
    EXPECT_TRUE(
        with("/consumedCapacity/share", share).starts_with(results + "consumedCapacity.share: "))
        << share << " " << with("/consumedCapacity/share", share);
  }
  EXPECT_EQ(with("/consumedCapacity/share", "100"), "");
  EXPECT_TRUE(
      with("/consumedCapacity/memory", "0").starts_with(results + "consumedCapacity.memory"));
  EXPECT_TRUE(with("/consumedCapacity", 7).starts_with(results + "consumedCapacity: "));
  EXPECT_TRUE(with("/pool", "n2").starts_with(results + "pool: "));
  EXPECT_TRUE(with("/device", "gpu-z").starts_with(results + "device: "));
  EXPECT_TRUE(with("/request", "").starts_with(results + "request: "));
  EXPECT_TRUE(with("/adminAccess", true).starts_with(results + "adminAccess: "));
  EXPECT_TRUE(with("/driver", "gpu.example.com").starts_with("status.allocation: "));
}

TEST(DraClaims, ParametersAreCheckedStrictly) {
  const auto with = [](const Json& parameters) {
    Json object = AllocatedClaim("a", "gpu-a", "30", "4Gi");
    AddParameters(object, "FromClaim", parameters);
    return WhyNot(object);
  };
  const std::string field = "status.allocation.devices.config[0].opaque.parameters";
  EXPECT_EQ(with({{"limit", "30"}}), "");
  for (const auto& [key, value] : std::vector<std::pair<std::string, Json>>{{"limit", "130"},
                                                                            {"limit", 60},
                                                                            {"priority", "urgent"},
                                                                            {"name", "A b"},
                                                                            {"name", "../x"},
                                                                            {"share", "30"},
                                                                            {"cgroup", "x"}}) {
    EXPECT_TRUE(with({{key, value}}).starts_with(fmt::format("{}.{}: ", field, key)))
        << with({{key, value}});
  }
  EXPECT_TRUE(Says(with({{"latency", "1us"}}), field + ": latency"));
  EXPECT_TRUE(Says(with({{"limit", "20"}}), "limit: of request gpu is below its share"));
  EXPECT_TRUE(with({{"kind", "Other"}}).starts_with(field + ": must have apiVersion"));
}

TEST(DraClaims, FilesHaveAllThatIsKnown) {
  Json object = AllocatedClaim("a", "gpu-a", "30", "4Gi");
  AddParameters(object, "FromClaim", {{"limit", "60"}, {"latency", "20ms"}});
  auto claim = Reader().Read(object);
  ASSERT_TRUE(claim);
  claim->requests[0].pod.ticket = "0123456789abcdef";
  const std::string text = DraClaimText(*claim);
  const auto again = ParseDraClaim(text);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(*again, *claim);
  for (size_t size = 0; size < text.size() - 2; ++size) {
    EXPECT_FALSE(ParseDraClaim(text.substr(0, size))) << size;
  }
  Json without = Json::parse(text);
  without["requests"][0]["pod"].erase("ticket");
  EXPECT_FALSE(ParseDraClaim(without.dump()));
  without["v"] = 2;
  EXPECT_TRUE(Says(ParseDraClaim(without.dump()).error().message, "another version"));
}

TEST(DraClaims, ContainersGetTheHookTheirTicketAndTheirGpus) {
  Json object = AllocatedClaim("a", "gpu-b", "30", "8Gi");
  object["status"]["allocation"]["devices"]["results"].push_back(
      AllocatedGpu("gpu", "gpu-a", "30", "8Gi"));
  auto claim = Reader().Read(object);
  ASSERT_TRUE(claim);
  claim->requests[0].pod.ticket = "t";
  const Json spec = CdiSpecOf(*claim, HookMounts());
  EXPECT_EQ(spec.at("kind"), "gpu.baton.dev/claim");
  ASSERT_EQ(spec.at("devices").size(), 1u);
  const Json& device = spec.at("devices")[0];
  EXPECT_EQ("gpu.baton.dev/claim=" + device.at("name").get<std::string>(),
            CdiDeviceOf("uid-a", "gpu"));
  EXPECT_EQ(device.at("containerEdits").at("env"),
            Json({"BATON_TICKET=t", "BATON_SOCKET=/run/baton/baton.sock",
                  "NVIDIA_VISIBLE_DEVICES=GPU-b,GPU-a", "CUDA_VISIBLE_DEVICES=GPU-b,GPU-a"}));
  const Json& mounts = device.at("containerEdits").at("mounts");
  ASSERT_EQ(mounts.size(), HookMounts().size());
  for (size_t i = 0; i < mounts.size(); ++i) {
    EXPECT_EQ(mounts[i].at("hostPath"), HookMounts()[i].host_path);
    EXPECT_EQ(mounts[i].at("containerPath"), HookMounts()[i].container_path);
    EXPECT_EQ(mounts[i].at("options")[0], "ro");
  }
}

TEST(DraClaims, UidsAreNoPaths) {
  EXPECT_TRUE(IsClaimUid("2f6c0b1e-1111-4222-8333-444455556666"));
  for (const char* uid : {"", "..", "a/b", "a.json"}) EXPECT_FALSE(IsClaimUid(uid)) << uid;
  EXPECT_FALSE(IsClaimUid(std::string(65, 'a')));
}

}  // namespace
}  // namespace baton::k8s
