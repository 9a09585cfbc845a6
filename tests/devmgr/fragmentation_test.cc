// The measures of free room, against their definitions.
#include "devmgr/placement/fragmentation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/random.h"
#include "tests/devmgr/small_cluster.h"

namespace baton::devmgr {
namespace {

TEST(Fragmentation, PodsThatAskForNoProcessorsFillANodeThatHasNoneLeft) {
  Mix mix;  // such are all
  FreeNode node;
  node.cards = 1;
  node.share[0] = 1'000;
  node.memory[0] = node.part[0] = FreeNode::kEnough;
  node.cpu = node.host = 0;
  for (const int64_t loss : mix.LossesOf(Rule::kRemainder, Mix::Sum(node))) EXPECT_EQ(loss, 0);
}

// The definition, in plain arithmetic.
TEST(Fragmentation, IsWhatTheUsualPodsCannotUseAndTheRemainderWhatTheyWouldLeave) {
  Random random(1);
  for (int i = 0; i < 60; ++i) {
    Mix mix;
    std::vector<PodRequest> pods;
    const auto count = random.Between(1, 40);
    for (int64_t p = 0; p < count; ++p) {
      PodRequest pod = PodOf("p", static_cast<uint32_t>(random.Between(1, 10)) * 100'000,
                             static_cast<uint32_t>(random.Between(1, 3)));
      pod.cpu_milli = static_cast<uint32_t>(random.Between(0, 20)) * 1'000;
      pods.push_back(pod);
      mix.Learn(pod);
    }
    for (int more = 0; more < 400; ++more) {  // so that all are counted alike when it settles
      for (const PodRequest& pod : pods) mix.Learn(pod);
    }
    FreeNode node;
    node.cards = static_cast<size_t>(random.Between(1, 8));
    for (size_t c = 0; c < node.cards; ++c) {
      node.share[c] = static_cast<int16_t>(random.Between(0, 10) * 100);
      node.memory[c] = node.part[c] = FreeNode::kEnough;
    }
    node.cpu = FreeNode::Cpu(static_cast<uint64_t>(random.Between(0, 20)) * 1'000);
    double sum = 0;
    double remains = 0;
    double worth = 0;
    double demand = 0;
    for (const PodRequest& pod : pods) {
      const VgpuRequest& vgpu = pod.containers[0].vgpus[0];
      double total = 0, lost = 0;
      uint32_t fits = 0, slots = 0;
      for (size_t c = 0; c < node.cards; ++c) {
        total += node.share[c];
        if (policy::kShareMin * node.share[c] < vgpu.share) {
          lost += node.share[c];
        } else {
          ++fits;
          slots += policy::kShareMin * node.share[c] / vgpu.share;
        }
      }
      uint32_t filled = slots / vgpu.count;
      if (pod.cpu_milli > 0) {
        filled = std::min<uint32_t>(filled, node.cpu / FreeNode::Cpu(pod.cpu_milli));
      }
      remains += total - filled * vgpu.count * vgpu.share.millionths() / 1e3;
      const bool cannot = fits < vgpu.count || node.cpu < FreeNode::Cpu(pod.cpu_milli);
      sum += cannot ? total : lost;
      const double asked = std::pow(vgpu.share.millionths() * vgpu.count / 1e6, 0.75);
      demand += asked;
      worth += asked * (0.9 * (cannot ? 0 : total - lost) +
                        0.1 * filled * vgpu.count * vgpu.share.millionths() / 1e3);
    }
    const double expected = sum / static_cast<double>(pods.size());
    const auto lost = [&](Rule rule) {
      double all = 0;
      for (const int64_t loss : mix.LossesOf(rule, Mix::Sum(node)))
        all += static_cast<double>(loss);
      return all / static_cast<double>(Mix::kLossUnit);
    };
    const double found = lost(Rule::kFragmentation);
    EXPECT_NEAR(found, expected, expected * 0.02 + 8) << "case " << i;
    const double mean = (expected + remains / static_cast<double>(pods.size())) / 2;
    const double remainder = lost(Rule::kRemainder);
    EXPECT_NEAR(remainder, mean, mean * 0.02 + 8) << "case " << i;
    // No nodes are known, so there is as much for each class.
    EXPECT_NEAR(-lost(Rule::kScarcity), worth / demand, worth / demand * 0.02 + 8) << "case " << i;
  }
}

}  // namespace
}  // namespace baton::devmgr
