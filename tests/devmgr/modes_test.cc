// The modes that divide a GPU into shares of any size, and what holds for every mode.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <memory>
#include <set>

#include "base/random.h"
#include "devmgr/modes/exclusive.h"
#include "devmgr/modes/mig_mode.h"
#include "devmgr/modes/mps_mode.h"
#include "devmgr/modes/time_slice.h"
#include "tests/devmgr/acme_mode.h"
#include "tests/devmgr/card_use.h"

namespace baton::devmgr {
namespace {

Card WholeCard() {
  Card card;
  card.uuid = "GPU-1";
  card.model = "NVIDIA H200";
  card.memory_mib = 143'771;
  card.mig_capable = true;
  return card;
}

TEST(Modes, OnAGpuWithMigOnOnlyMigServesAndWithoutItAllButMig) {
  const TimeSlice time_slice;
  const Exclusive exclusive;
  const MpsMode mps;
  const MigMode mig;
  Card card = WholeCard();
  for (const SharingMode* mode : std::vector<const SharingMode*>{&time_slice, &exclusive, &mps}) {
    card.mig_enabled = false;
    EXPECT_TRUE(mode->Serves(card)) << mode->name();
    card.mig_enabled = true;
    EXPECT_FALSE(mode->Serves(card)) << mode->name();
    EXPECT_EQ(mode->WhyNot(card, {}, {}), "MIG is on, so only instances of it can be used");
    Card other = WholeCard();
    other.vendor = "acme";
    EXPECT_FALSE(mode->Serves(other)) << mode->name();
    EXPECT_EQ(mode->WhyNot(other, {}, {}), "it is not an NVIDIA GPU");
  }
  EXPECT_TRUE(mig.Serves(card));
  card.mig_enabled = false;
  EXPECT_FALSE(mig.Serves(card));
}

TEST(TimeSlice, GivesWhatIsWantedToTheMillionthAndTheMebibyte) {
  const TimeSlice mode;
  const Card card = WholeCard();
  CardUse use;
  const auto first = mode.TryFit(card, use, {policy::Share(333'000), 100'000});
  ASSERT_TRUE(first);
  EXPECT_EQ(*first, (Fit{policy::Share(333'000), 100'000, 0, 0}));
  Add(use, *first);
  EXPECT_TRUE(mode.TryFit(card, use, {policy::Share(667'000), 43'771}));
  EXPECT_TRUE(
      mode.TryFit(card, use, {policy::Share(667'000), 0}));  // no memory asked for: not looked at
  EXPECT_FALSE(mode.TryFit(card, use, {policy::Share(667'001), 0}));
  EXPECT_EQ(mode.WhyNot(card, use, {policy::Share(668'000), 0}),
            "66.7 % of it are free, 66.8 % wanted");
  EXPECT_FALSE(mode.TryFit(card, use, {policy::Share(1'000), 43'772}));
  EXPECT_EQ(mode.WhyNot(card, use, {policy::Share(1'000), 50'000}),
            "of 143771 MiB 43771 are free, 50000 wanted");
  EXPECT_EQ(mode.WhyNot(card, use, {policy::Share(900'000), 200'000}),
            "66.7 % of it are free, 90 % wanted; it has 143771 MiB, 200000 wanted");
  EXPECT_EQ(mode.EnvironmentOf(card, *first, ""), (Environment{{"CUDA_VISIBLE_DEVICES", "GPU-1"}}));
}

TEST(Exclusive, IsAllOfTheGpuOrNothing) {
  const Exclusive mode;
  const Card card = WholeCard();
  CardUse use;
  const auto fit = mode.TryFit(card, use, {policy::Share(300'000), 0});
  ASSERT_TRUE(fit);
  EXPECT_EQ(*fit, (Fit{policy::kWhole, card.memory_mib, 0, 0}));
  Add(use, *fit);
  EXPECT_FALSE(mode.TryFit(card, use, {policy::Share(1'000), 0}));
  EXPECT_EQ(mode.WhyNot(card, use, {policy::Share(1'000), 0}), "a virtual GPU is on it already");
  EXPECT_FALSE(mode.TryFit(card, {}, {policy::kWhole, card.memory_mib + 1}));
  EXPECT_EQ(mode.WhyNot(card, {}, {policy::kWhole, card.memory_mib + 1}),
            "it has 143771 MiB, 143772 wanted");
}

// Another vendor's, of which it is known how programs find it.
TEST(Exclusive, ServesOtherVendorsGpus) {
  Card card = WholeCard();
  card.uuid = "MI-0";
  card.vendor = "amd";
  const Exclusive mode;
  EXPECT_FALSE(mode.Serves(card)) << "nobody could tell a program which it is";
  EXPECT_EQ(mode.WhyNot(card, {}, {}), "it is not an NVIDIA GPU");
  card.environment = {{"HSA_X", "y"}, {"ROCR_VISIBLE_DEVICES", "0"}};
  EXPECT_TRUE(mode.Serves(card));
  const auto fit = mode.TryFit(card, {}, {policy::kWhole, 0});
  ASSERT_TRUE(fit);
  EXPECT_EQ(mode.EnvironmentOf(card, *fit, ""),
            (Environment{{"HSA_X", "y"}, {"ROCR_VISIBLE_DEVICES", "0"}}));
  CardUse use;
  Add(use, *fit);
  EXPECT_EQ(mode.WhyNot(card, use, {policy::Share(1'000), 0}), "a virtual GPU is on it already");
  EXPECT_FALSE(TimeSlice().Serves(card));
  EXPECT_FALSE(MpsMode().Serves(card));
  EXPECT_FALSE(MigMode().Serves(card));
  EXPECT_EQ(TimeSlice().WhyNot(card, {}, {}),
            "it is of vendor amd, so a pod can have it in mode exclusive only");
}

TEST(Mps, SharesAreWholePercentsAndAtMostWhatAServerTakes) {
  const MpsMode mode;
  const Card card = WholeCard();
  const auto fit = mode.TryFit(card, {}, {policy::Share(123'000), 20'000});
  ASSERT_TRUE(fit);
  EXPECT_EQ(*fit, (Fit{policy::Share(130'000), 20'000, 0, 0}));
  EXPECT_EQ(mode.EnvironmentOf(card, *fit, "/run/baton/mps/GPU-1/pipe"),
            (Environment{{"CUDA_VISIBLE_DEVICES", "GPU-1"},
                         {"CUDA_MPS_PIPE_DIRECTORY", "/run/baton/mps/GPU-1/pipe"},
                         {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "13"},
                         {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "GPU-1=20000M"}}));
  const auto without = mode.TryFit(card, {}, {policy::Share(1'000), 0});
  ASSERT_TRUE(without);
  EXPECT_EQ(mode.EnvironmentOf(card, *without, "/p").back(),
            (std::pair<std::string, std::string>{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "1"}));
  CardUse use{policy::Share(995'000), 0, 1, 0, 0};
  EXPECT_FALSE(mode.TryFit(card, use, {policy::Share(1'000), 0}));
  EXPECT_EQ(mode.WhyNot(card, use, {policy::Share(1'000), 0}), "0.5 % of it are free, 1 % wanted");
  use = {policy::Share(480'000), 0, 48, 0, 0};
  EXPECT_FALSE(mode.TryFit(card, use, {policy::Share(1'000), 0}));
  EXPECT_EQ(mode.WhyNot(card, use, {policy::Share(1'000), 0}),
            "an MPS server has at most 48 clients on a GPU");
}

TEST(InPercent, HasAsManyDecimalsAsItTakes) {
  EXPECT_EQ(InPercent(policy::Share(0)), "0 %");
  EXPECT_EQ(InPercent(policy::Share(1)), "0.0001 %");
  EXPECT_EQ(InPercent(policy::Share(142'857)), "14.2857 %");
  EXPECT_EQ(InPercent(policy::Share(500'000)), "50 %");
  EXPECT_EQ(InPercent(policy::kWhole), "100 %");
}

// What the contract promises of every mode, the made-up vendor's too.
RC_GTEST_PROP(ModesProperty, NeverOverTheGpuAndBackToTheBitAndTheSameForTheSame, ()) {
  Random random(*rc::gen::noShrink(
      rc::gen::resize(rc::kNominalSize, rc::gen::arbitrary<uint64_t>().as("seed"))));
  std::vector<std::unique_ptr<SharingMode>> modes;
  modes.push_back(std::make_unique<TimeSlice>());
  modes.push_back(std::make_unique<Exclusive>());
  modes.push_back(std::make_unique<MpsMode>());
  modes.push_back(std::make_unique<MigMode>());
  modes.push_back(std::make_unique<AcmeTiles>());
  const auto which = static_cast<size_t>(random.Between(0, 4));
  const SharingMode& mode = *modes[which];
  Card card = WholeCard();
  card.mig_enabled = which == 3;
  card.vendor = which == 4 ? "acme" : "nvidia";
  RC_ASSERT(mode.Serves(card));
  CardUse use;
  std::vector<Fit> held;
  for (int step = 0; step < 100; ++step) {
    if (!held.empty() && random.OneIn(3)) {
      const auto at = static_cast<size_t>(random.Between(0, static_cast<int64_t>(held.size()) - 1));
      Remove(mode, card, use, held[at]);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(at));
      if (held.empty()) RC_ASSERT(use == CardUse{});
      continue;
    }
    const VgpuWant want{
        policy::Share(random.Spread(1'000, policy::kMillion)),
        random.OneIn(2) ? 0 : static_cast<uint32_t>(random.Spread(1, card.memory_mib + 100))};
    const auto fit = mode.TryFit(card, use, want);
    RC_ASSERT(fit == mode.TryFit(card, use, want));
    if (!fit) {
      const std::string why = mode.WhyNot(card, use, want);
      RC_ASSERT(!why.empty());
      RC_ASSERT(why.find('\n') == std::string::npos);
      continue;
    }
    RC_ASSERT(fit->share >= want.share);
    RC_ASSERT(fit->memory_mib >= want.memory_mib);
    RC_ASSERT(mode.FitAt(card, use, want, fit->slot) == fit);
    RC_ASSERT(mode.Without(card, fit->layout, fit->slot) == use.layout);
    held.push_back(*fit);
    Add(use, *fit);
    RC_ASSERT(use.share <= policy::kWhole);
    RC_ASSERT(use.memory_mib <= card.memory_mib);
    RC_ASSERT(!mode.EnvironmentOf(card, *fit, "d").empty());
  }
}

}  // namespace
}  // namespace baton::devmgr
