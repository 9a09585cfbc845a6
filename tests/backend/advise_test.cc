// What `baton advise` says of a pod, by its use.
#include "backend/advise.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace baton::backend {
namespace {

using nlohmann::json;

constexpr uint64_t kGiB = uint64_t{1} << 30;

policy::Share Part(double part) { return policy::Share(static_cast<uint32_t>(part * 1e6)); }

AdvisedPod Asks(double request, double limit, uint64_t memory_cap = 0) {
  AdvisedPod pod;
  pod.share = {.request = Part(request), .limit = Part(limit)};
  pod.memory_cap = memory_cap;
  pod.gpu_memory = 80 * kGiB;
  return pod;
}

ledger::Profile Used(double p50, double p99, int64_t memory_mib = 1'000) {
  ledger::Profile use;
  use.owner.pod = "a";
  use.gpu = "GPU-a";
  use.held_p50 = use.wanted_p50 = p50;
  use.held_p99 = p99;
  use.memory_p99_mib = use.memory_peak_mib = memory_mib;
  return use;
}

// The field that is to be set, of the one row that there is; null: there is none.
json Set(const AdvisedPod& pod, const ledger::Profile& use) {
  const json rows = AdviceOn(pod, use);
  EXPECT_LE(rows.size(), 1u) << rows;
  return rows.empty() ? json() : rows[0].at("set");
}

TEST(AdviceRules, ARequestThatIsFarFromItsUseIsSet) {
  EXPECT_EQ(Set(Asks(0.6, 1), Used(0.1, 0.1)), json({{"request", 13.0}}));
  EXPECT_EQ(Set(Asks(0.6, 1), Used(0.2, 0.5)), json());
  EXPECT_EQ(Set(Asks(0.2, 1), Used(0.5, 0.9)), json({{"request", 50.0}}));
  EXPECT_EQ(Set(Asks(0.6, 1), Used(0, 0)), json({{"request", 1.0}}));
}

TEST(AdviceRules, ARequestIsNeverRaisedAboveTheLimit) {
  EXPECT_EQ(Set(Asks(0.05, 0.125), Used(0.121, 0.125)), json({{"request", 12.5}}));
}

TEST(AdviceRules, ALimitAtWhichAPodWaitsIsRaised) {
  ledger::Profile use = Used(0.3, 0.3);
  EXPECT_EQ(Set(Asks(0.3, 0.3), use), json()) << "it wants no more";
  use.wanted_p50 = 0.8;
  EXPECT_EQ(Set(Asks(0.3, 0.3), use), json({{"limit", 80.0}}));
  EXPECT_EQ(Set(Asks(0.3, 1), use), json()) << "it waits for others, not for its limit";
  use.held_p50 = 0.25;
  EXPECT_EQ(Set(Asks(0.3, 0.3), use), json()) << "it was not at its limit";
}

TEST(AdviceRules, AMemoryCapThatIsFarFromItsUseIsSet) {
  EXPECT_EQ(Set(Asks(0.3, 1, 16 * kGiB), Used(0.3, 0.3, 4'096)), json({{"memory", 5 * kGiB}}));
  EXPECT_EQ(Set(Asks(0.3, 1, 16 * kGiB), Used(0.3, 0.3, 12'000)), json());
  EXPECT_EQ(Set(Asks(0.3, 1, 16 * kGiB), Used(0.3, 0.3, 16'384)), json({{"memory", 20 * kGiB}}));
  // No GPU has more than it has.
  EXPECT_EQ(Set(Asks(0.3, 1, 76 * kGiB), Used(0.3, 0.3, 76 << 10)), json({{"memory", 80 * kGiB}}));
  EXPECT_EQ(Set(Asks(0.3, 1, 80 * kGiB), Used(0.3, 0.3, 80 << 10)), json());
}

TEST(AdviceRules, ACapIsNeverSetBelowTheMemoryRequest) {
  AdvisedPod pod = Asks(0.3, 1, 32 * kGiB);
  pod.memory_request = 8 * kGiB;
  EXPECT_EQ(Set(pod, Used(0.3, 0.3, 1'000)), json({{"memory", 8 * kGiB}}));
}

TEST(AdviceRules, AWholeGpuOfWhichAPartWouldDoIsNamedWithThePart) {
  const json rows = AdviceOn(Asks(1, 1), Used(0.2, 0.22, 9'216));
  ASSERT_EQ(rows.size(), 1u) << rows;
  EXPECT_EQ(rows[0].at("what"), "part");
  EXPECT_EQ(rows[0].at("now"), "100.0%");
  EXPECT_EQ(rows[0].at("set_to"), "28.0%, 11.25GiB");
  EXPECT_EQ(rows[0].at("frees"), "72.0% of a GPU, 68.75GiB");
  EXPECT_EQ(rows[0].at("set"), json({{"request", 28.0}, {"memory", 11'520 * (kGiB >> 10)}}));
  EXPECT_FALSE(rows[0].contains("cannot"));
}

TEST(AdviceRules, AnExclusivePodIsToldWhatToBeCreatedAgainWith) {
  AdvisedPod pod = Asks(0.1, 1);
  pod.exclusive = true;
  const json rows = AdviceOn(pod, Used(0.2, 0.22, 9'216));
  ASSERT_EQ(rows.size(), 1u) << rows;
  EXPECT_EQ(rows[0].at("what"), "part");
  EXPECT_EQ(rows[0].at("now"), "exclusive");
  EXPECT_NE(rows[0].at("cannot").get<std::string>().find("--request 28 --memory 11.25GiB"),
            std::string::npos)
      << rows;
  // Its request says nothing: the GPU is its own.
  EXPECT_EQ(Set(pod, Used(0.9, 0.9, 9'216)), json());
}

TEST(AdviceRules, AWholeGpuWhoseMemoryOrTimeIsNeededIsNotOfAPart) {
  AdvisedPod pod = Asks(1, 1);
  EXPECT_EQ(Set(pod, Used(0.6, 0.7, 9'216)), json()) << "time";
  // Its memory fits no part, so nobody else could have the rest; its request is too large all the
  // same.
  EXPECT_EQ(Set(pod, Used(0.2, 0.22, 70 << 10)), json({{"request", 28.0}}));
  pod.exclusive = true;
  EXPECT_EQ(Set(pod, Used(0.2, 0.22, 70 << 10)), json());
  pod.gpu_memory = 0;
  EXPECT_EQ(Set(pod, Used(0.2, 0.22, 9'216)), json()) << "nobody knows what a part of it would be";
}

TEST(AdviceRules, WithoutTokensNothingIsSaidOfTime) {
  AdvisedPod pod = Asks(0.6, 1, 16 * kGiB);
  pod.held_known = false;
  EXPECT_EQ(Set(pod, Used(0, 0, 4'096)), json({{"memory", 5 * kGiB}}));
}

TEST(AdviceRules, WhatKubernetesSaysOfAPodIsChangedThere) {
  AdvisedPod pod = Asks(0.6, 1);
  pod.kubernetes = true;
  const json rows = AdviceOn(pod, Used(0.1, 0.1));
  ASSERT_EQ(rows.size(), 1u) << rows;
  EXPECT_NE(rows[0].at("cannot").get<std::string>().find("SharePod"), std::string::npos);
}

}  // namespace
}  // namespace baton::backend
