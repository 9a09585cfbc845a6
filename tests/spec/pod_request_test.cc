#include "spec/pod_request.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

namespace baton::spec {
namespace {

PodRequest Read(const Json& object) {
  PodRequest request;
  const auto read = ReadFields(object, request);
  EXPECT_TRUE(read) << read.error().message;
  const auto complete = Complete(request);
  EXPECT_TRUE(complete) << complete.error().message;
  return request;
}

std::string WhyNot(const Json& object) {
  PodRequest request;
  if (auto read = ReadFields(object, request); !read) return read.error().message;
  const auto complete = Complete(request);
  return complete ? "" : complete.error().message;
}

const Json kFull{{"name", "train"},
                 {"flavor", "small"},
                 {"request", 12.5},
                 {"limit", 80.0},
                 {"memory", "25%"},
                 {"swap", true},
                 {"memory_request", 4294967296},
                 {"priority", "high"},
                 {"latency", "20ms"},
                 {"team", "research/vision"},
                 {"user", "ada"},
                 {"namespace", "ml"},
                 {"gpus", {"GPU-a", "GPU-b"}},
                 {"not_gpus", {"GPU-c"}},
                 {"node_policy", "spread"},
                 {"gpu_policy", "binpack"},
                 {"count", 1},
                 {"mode", "exclusive"},
                 {"models", {"a100 80gb"}},
                 {"not_models", {"t4"}},
                 {"affinity", "x"},
                 {"anti_affinity", "y"},
                 {"exclusion", "z"},
                 {"independent", true},
                 {"gang", "job"},
                 {"gang_size", 4},
                 {"uid", 1000},
                 {"cgroup", "2f6c"},
                 {"ticket", "0123456789abcdef"},
                 {"without_hook", true},
                 {"asked_at", 1794787200}};

TEST(PodFields, EachIsReadAndWrittenBackTheSame) {
  for (const PodField& field : PodFields()) {
    EXPECT_TRUE(kFull.contains(field.key)) << "kFull says nothing of " << field.key;
  }
  EXPECT_EQ(WriteFields(Read(kFull)), kFull);
}

TEST(PodFields, EachIsPartOfWhatMakesTwoRequestsDiffer) {
  const PodRequest full = Read(kFull);
  for (const PodField& field : PodFields()) {
    PodRequest other;
    ASSERT_TRUE(ReadField(field, kFull.at(field.key), other)) << field.key;
    if (field.key == "priority") continue;  // low is said by saying nothing
    EXPECT_NE(other, PodRequest{}) << field.key;
    EXPECT_EQ(WriteField(field, other), WriteField(field, full)) << field.key;
  }
}

TEST(PodFields, AreNamedOnceInEveryPlace) {
  std::set<std::string_view> keys, flags, annotations, paths;
  for (const PodField& field : PodFields()) {
    EXPECT_TRUE(keys.insert(field.key).second) << field.key;
    EXPECT_TRUE(field.flag.empty() || flags.insert(field.flag).second) << field.flag;
    EXPECT_TRUE(field.annotation.empty() || annotations.insert(field.annotation).second);
    EXPECT_TRUE(field.share_pod.empty() || paths.insert(field.share_pod).second);
    EXPECT_FALSE(field.about.empty() || field.about.ends_with('.')) << field.key;
  }
}

TEST(PodFields, WhatIsWrongIsNamedWithWhatIsAccepted) {
  EXPECT_EQ(WhyNot({{"request", 30}, {"limt", 40}}),
            "a pod has no field limt; did you mean 'limit'?");
  EXPECT_EQ(WhyNot({{"request", 130}}),
            "request: '130' is not a share; write a percentage from 0.1 to 100");
  EXPECT_EQ(WhyNot({{"request", true}}), "request must be a percentage");
  EXPECT_EQ(WhyNot({{"request", 30}, {"count", 17}}), "count must be a whole number from 1 to 16");
  EXPECT_EQ(WhyNot({{"request", 30}, {"count", 18446744073709551615u}}),
            "count must be a whole number from 1 to 16");
  EXPECT_EQ(WhyNot({{"request", 30}, {"priority", "urgent"}}),
            "priority: 'urgent' is no priority; write normal, high or idle");
  EXPECT_EQ(WhyNot({{"request", 30}, {"gpus", {-1}}}),
            "gpus must be a list of at most 64 texts of 1 to 128 bytes");
  EXPECT_EQ(WhyNot({{"request", 30}, {"team", std::string(257, 'x')}}),
            "team must have at most 256 bytes");
  EXPECT_EQ(WhyNot({{"name", "a"}}), "a pod needs a request or a limit, in percent of a GPU");
  EXPECT_EQ(WhyNot({{"request", 30}, {"gang_size", 2}}),
            "a gang's size needs the gang's name: set gang");
  EXPECT_EQ(WhyNot({{"request", 30}, {"gang", "job"}, {"gang_size", 1025}}),
            "gang_size must be a whole number from 1 to 1024");
  EXPECT_EQ(WhyNot({{"request", 100}, {"without_hook", true}}),
            "a pod without the hook needs mode exclusive");
  EXPECT_NE(WhyNot({{"request", 50}, {"limit", 30}}).find("below the request"), std::string::npos);
}

TEST(PodFields, ARequestAloneIsElasticAndALimitAloneIsStrict) {
  EXPECT_EQ(Read({{"request", "30%"}}).share.limit, policy::kWhole);
  EXPECT_EQ(Read({{"limit", 30}}).share.request, policy::Share(300'000));
}

TEST(PodFields, AChangeKeepsWhatItDoesNotName) {
  const PodRequest was = Read(kFull);
  const auto now = Changed(was, {{"limit", 90}, {"memory", 0}, {"team", ""}});
  ASSERT_TRUE(now) << now.error().message;
  PodRequest expected = was;
  expected.share.limit = policy::Share(900'000);
  expected.memory_part = {};
  expected.team.clear();
  EXPECT_EQ(*now, expected);
  EXPECT_EQ(*Changed(was, Json::object()), was);
}

TEST(PodFields, AStrictPodStaysStrictWhereOnlyItsRequestGrows) {
  const PodRequest strict = Read({{"limit", 30}});
  EXPECT_EQ(Changed(strict, {{"request", 40}})->share.limit, policy::Share(400'000));
  const PodRequest elastic = Read({{"request", 30}, {"limit", 35}});
  EXPECT_FALSE(Changed(elastic, {{"request", 40}}));
}

TEST(PodFields, OfIdlePriorityHaveNoRequest) {
  const PodRequest idle = Read({{"priority", "idle"}});
  EXPECT_EQ(idle.share.request, policy::Share(0));
  EXPECT_EQ(idle.share.limit, policy::kWhole);
  EXPECT_FALSE(WriteFields(idle).contains("request"));
  EXPECT_EQ(Read({{"priority", "idle"}, {"limit", 40}}).share.limit, policy::Share(400'000));
  EXPECT_NE(WhyNot({{"priority", "idle"}, {"request", 30}}).find("has no request"),
            std::string::npos);
  const PodRequest was = Read({{"request", 30}});
  const auto changed = Changed(was, {{"priority", "idle"}});
  ASSERT_TRUE(changed) << changed.error().message;
  EXPECT_EQ(changed->share.request, policy::Share(0)) << "it gives its request up";
  EXPECT_EQ(Changed(*changed, {{"priority", "normal"}, {"request", 30}}), was);
  EXPECT_FALSE(Changed(*changed, {{"priority", "high"}})) << "how much?";
  EXPECT_EQ(Read({{"request", 30}, {"priority", "low"}}), was) << "the old name";
}

TEST(PodFields, ALatencyIsATimeAndNoneTakesItAway) {
  const auto of = [](const Json& value) {
    return Read({{"request", 10}, {"latency", value}}).share.latency;
  };
  EXPECT_EQ(of("10ms"), std::chrono::milliseconds(10));
  EXPECT_EQ(of("1ms"), policy::kLatencyMin);
  EXPECT_EQ(of("10s"), policy::kLatencyMax);
  for (const Json& none : {Json("none"), Json("0"), Json("0ms"), Json(0)}) {
    EXPECT_EQ(of(none), Duration(0)) << none;
    const PodRequest was = Read({{"request", 10}, {"latency", "10ms"}});
    EXPECT_EQ(Changed(was, {{"latency", none}})->share.latency, Duration(0)) << none;
  }
  EXPECT_FALSE(WriteFields(Read({{"request", 10}, {"latency", "none"}})).contains("latency"));
  for (const Json& bad : {Json("999us"), Json("11s"), Json("-5ms"), Json("10"), Json("soon"),
                          Json(""), Json(10), Json(true), Json(Json::array())}) {
    EXPECT_TRUE(WhyNot({{"request", 10}, {"latency", bad}}).starts_with("latency")) << bad;
  }
  EXPECT_EQ(WhyNot({{"request", 10}, {"latency", "11s"}}),
            "latency must be from 1ms to 10s, or none");
  EXPECT_EQ(WhyNot({{"request", 10}, {"latency", 10}}),
            "latency must be a time with a unit, such as \"20ms\"");
  // What is written is read as the same, however many digits it takes.
  for (int64_t us = 1'000; us <= 10'000'000; us = us * 3 / 2 + 1) {
    const Json written =
        WriteFields(Read({{"request", 10}, {"latency", std::to_string(us) + "us"}}));
    EXPECT_EQ(of(written.at("latency")), std::chrono::microseconds(us)) << written;
  }
}

TEST(PodFields, ALatencyNeedsARequestAndATokenOfItsOwn) {
  EXPECT_NE(WhyNot({{"priority", "idle"}, {"latency", "20ms"}}).find("no latency"),
            std::string::npos);
  const PodRequest pod = Read({{"request", 10}, {"latency", "20ms"}});
  EXPECT_FALSE(Changed(pod, {{"priority", "idle"}})) << "it would wait while others have work";
  EXPECT_TRUE(Changed(pod, {{"priority", "idle"}, {"latency", "none"}}));
  EXPECT_TRUE(CheckShare(pod.share, "", false));
  EXPECT_TRUE(CheckShare(pod.share, "time-slice", false));
  for (const char* mode : {"mig", "mps", "exclusive"}) {
    const auto refused = CheckShare(pod.share, mode, false);
    ASSERT_FALSE(refused) << mode;
    EXPECT_NE(refused.error().message.find("needs mode time-slice"), std::string::npos);
  }
  const auto gang = CheckShare(pod.share, "", true);
  ASSERT_FALSE(gang);
  EXPECT_NE(gang.error().message.find("in no gang"), std::string::npos);
  EXPECT_TRUE(CheckShare(Read({{"request", 10}}).share, "mps", true)) << "without a latency";
}

TEST(PodFields, WhatIsFixedDoesNotChange) {
  const PodRequest was = Read(kFull);
  for (const PodField& field : PodFields()) {
    const auto now = Changed(was, {{std::string(field.key), kFull.at(field.key)}});
    EXPECT_EQ(now.has_value(), field.changes) << field.key;
  }
}

TEST(PodFields, ATeamHasOneSpelling) {
  const PodField& team = *FindPodField("team");
  for (const char* said : {"lab/vision", "/lab/vision", "lab//vision", "//lab/vision//"}) {
    PodRequest request;
    ASSERT_TRUE(ReadField(team, said, request));
    EXPECT_EQ(request.team, "lab/vision") << said;
  }
  PodRequest none;
  ASSERT_TRUE(ReadField(team, "//", none));
  EXPECT_EQ(none.team, "");
}

// docs/pod-fields.md. BATON_UPDATE=1 writes it.
TEST(PodFields, TheReferenceIsUpToDate) {
  std::ostringstream page;
  page << "# What a pod asks for\n\n"
          "Each field, and how it is written: in a `[[pod]]` of batond's file and in JSON to the "
          "control socket, as a flag of `baton run` and `baton vgpu create`, as an annotation "
          "(`baton.dev/...`), and in a SharePod's `spec.gpu`. Those marked *yes* change in place. "
          "This page is generated from `spec/pod_request.cc` by "
          "`BATON_UPDATE=1 build/release/tests/spec/spec_test`.\n\n"
          "| file, JSON | flag | annotation | SharePod | changes | |\n"
          "| --- | --- | --- | --- | --- | --- |\n";
  const auto code = [](std::string_view text) {
    return text.empty() ? std::string() : "`" + std::string(text) + "`";
  };
  for (const PodField& field : PodFields()) {
    std::string flag(field.flag);
    if (!flag.empty() && !field.value.empty()) flag += " " + std::string(field.value);
    for (size_t at = 0; (at = flag.find('|', at)) != std::string::npos; at += 2) {
      flag.insert(at, "\\");
    }
    page << "| " << code(field.key) << " | " << code(flag) << " | " << code(field.annotation)
         << " | " << code(field.share_pod) << " | " << (field.changes ? "yes" : "") << " | "
         << field.about << (field.detail.empty() ? "" : ". ") << field.detail << " |\n";
  }
  const std::filesystem::path path = std::filesystem::path(BATON_SOURCE) / "docs/pod-fields.md";
  if (std::getenv("BATON_UPDATE") != nullptr) std::ofstream(path) << page.str();
  std::ostringstream is;
  is << std::ifstream(path).rdbuf();
  EXPECT_EQ(is.str(), page.str()) << "run this test with BATON_UPDATE=1";
}

}  // namespace
}  // namespace baton::spec
