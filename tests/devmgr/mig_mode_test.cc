#include "devmgr/modes/mig_mode.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/random.h"
#include "tests/devmgr/card_use.h"
#include "tests/devmgr/mig_table.h"

namespace baton::devmgr {
namespace {

DocumentedModel Documented(const std::string& name) {
  for (DocumentedModel& model : DocumentedModels()) {
    if (model.name.ends_with(name)) return model;
  }
  ADD_FAILURE() << "no model " << name;
  return {};
}

uint32_t MaskOf(const MigMode::Part& part) { return ((1u << part.slices) - 1) << part.start; }

// Whether instances could be so on the real GPU; empty: yes.
std::string Impossible(const DocumentedModel& model, const std::vector<MigMode::Part>& parts) {
  uint32_t taken = 0, media = 0;
  std::map<std::string, uint32_t> counts;
  for (const MigMode::Part& part : parts) {
    const auto p = std::find_if(model.profiles.begin(), model.profiles.end(),
                                [&](const DocumentedProfile& d) { return d.name == part.profile; });
    if (p == model.profiles.end()) return "no profile " + part.profile;
    if (p->slices != part.slices) return part.profile + " has other slices";
    if (std::find(p->starts.begin(), p->starts.end(), part.start) == p->starts.end()) {
      return part.profile + " cannot start at " + std::to_string(part.start);
    }
    if (++counts[part.profile] > p->count) return "too many of " + part.profile;
    if (taken & MaskOf(part)) return part.profile + " overlaps another";
    taken |= MaskOf(part);
    media += p->media;
  }
  return media > 1 ? "two with media engines" : "";
}

TEST(MigMode, ServesGpusOnWhichMigIsOnAndWhoseModelItKnows) {
  const MigMode mode;
  Card card = MigCard(Documented("H200"));
  EXPECT_TRUE(mode.Serves(card));
  card.mig_enabled = false;
  EXPECT_FALSE(mode.Serves(card));
  EXPECT_EQ(mode.WhyNot(card, {}, {}), "MIG is off");
  card = MigCard(Documented("H200"));
  card.vendor = "acme";
  EXPECT_FALSE(mode.Serves(card));
  card = MigCard(Documented("H200"));
  card.model = "NVIDIA B300";
  EXPECT_FALSE(mode.Serves(card));
  EXPECT_EQ(mode.WhyNot(card, {}, {}),
            "there is no MIG template for 'NVIDIA B300'; there is for A100-SXM4-40GB, "
            "A100-SXM4-80GB, H100 80GB HBM3, H200, A30");
}

// The Done-when of MIG: every documented geometry, in every order of requests.
TEST(MigMode, EveryDocumentedGeometryFillsCompletelyInEveryOrder) {
  size_t geometries = 0, orders = 0;
  for (const DocumentedModel& documented : DocumentedModels()) {
    const MigModel* model = MigTemplates::BuiltIn().Find(documented.name);
    ASSERT_NE(model, nullptr);
    for (const MigGroup& group : model->groups) {
      std::string text = "[[model]]\nnames = [\"" + model->names[0] + "\"]\ngroups = [{";
      std::map<size_t, size_t> counts;
      for (const MigGroup::Part& part : group.parts) ++counts[part.profile];
      for (const auto& [p, n] : counts) {
        text += (text.back() == '{' ? "\"" : ", \"") + model->profiles[p].name +
                "\" = " + std::to_string(n);
      }
      const auto only = MigTemplates::BuiltIn().With(text + "}]", "t.toml");
      ASSERT_TRUE(only) << only.error().message;
      const MigMode mode(*only);
      Card card = MigCard(documented);
      card.model = model->names[0];
      std::vector<size_t> order;
      for (const MigGroup::Part& part : group.parts) order.push_back(part.profile);
      std::sort(order.begin(), order.end());
      ++geometries;
      do {
        ++orders;
        CardUse use;
        std::vector<MigMode::Part> parts;
        std::vector<std::string> got, wanted;
        for (const size_t p : order) {
          const MigProfile& profile = model->profiles[p];
          const auto fit = mode.TryFit(card, use, {profile.share, profile.memory_mib});
          ASSERT_TRUE(fit) << text << ": no " << profile.name;
          const auto part = mode.PartOf(card, fit->slot);
          ASSERT_TRUE(part);
          parts.push_back(*part);
          got.push_back(part->profile);
          wanted.push_back(profile.name);
          Add(use, *fit);
        }
        ASSERT_EQ(Impossible(documented, parts), "") << text;
        // Exactly what the group has: nothing bigger was given away for something small.
        std::sort(got.begin(), got.end());
        std::sort(wanted.begin(), wanted.end());
        ASSERT_EQ(got, wanted);
        ASSERT_FALSE(mode.TryFit(card, use, {policy::Share(1'000), 1}));
        ASSERT_LE(use.share, policy::kWhole);
        ASSERT_LE(use.memory_mib, card.memory_mib);
      } while (std::next_permutation(order.begin(), order.end()));
    }
  }
  EXPECT_EQ(geometries, 184u);
  EXPECT_EQ(orders, 3'129u);
}

TEST(MigMode, TheFirstGroupWithRoomWinsAndTheGpuKeepsToItUntilItIsEmpty) {
  const auto templates = MigTemplates::BuiltIn().With(R"(
[[model]]
names = ["A100-SXM4-40GB"]
groups = [
  {"3g.20gb" = 1, "2g.10gb" = 2},
  {"1g.5gb" = 7},
  {"4g.20gb" = 1, "2g.10gb" = 1, "1g.5gb" = 1},
])",
                                                      "t.toml");
  ASSERT_TRUE(templates);
  const MigMode mode(*templates);
  const Card card = MigCard(Documented("A100-SXM4-40GB"));
  CardUse use;
  // The smallest of the first group, though the second has smaller ones.
  const auto first = mode.TryFit(card, use, {policy::Share(100'000), 4'000});
  ASSERT_TRUE(first);
  EXPECT_EQ(mode.PartOf(card, first->slot)->profile, "2g.10gb");
  EXPECT_EQ(first->share, policy::Share(285'714));
  EXPECT_EQ(first->memory_mib, 9'856u);
  Add(use, *first);
  // Kept to: 4g is in another group.
  EXPECT_FALSE(mode.TryFit(card, use, {policy::Share(571'000), 0}));
  EXPECT_EQ(mode.WhyNot(card, use, {policy::Share(571'000), 0}),
            "it is divided into 3g.20gb + 2 x 2g.10gb until it is empty, of which 2g.10gb, 3g.20gb "
            "is free; 4g.20gb or bigger is needed");
  const auto second = mode.TryFit(card, use, {policy::Share(100'000), 4'000});
  ASSERT_TRUE(second);
  EXPECT_EQ(mode.PartOf(card, second->slot)->profile, "2g.10gb");
  EXPECT_NE(second->slot, first->slot);
  Add(use, *second);
  // No 2g left: the next bigger one.
  const auto third = mode.TryFit(card, use, {policy::Share(100'000), 4'000});
  ASSERT_TRUE(third);
  EXPECT_EQ(mode.PartOf(card, third->slot)->profile, "3g.20gb");
  Add(use, *third);
  EXPECT_EQ(mode.WhyNot(card, use, {policy::Share(100'000), 4'000}),
            "it is divided into 3g.20gb + 2 x 2g.10gb until it is empty, of which nothing is free; "
            "1g.5gb or bigger is needed");
  Remove(mode, card, use, *first);
  Remove(mode, card, use, *third);
  EXPECT_NE(use.layout, 0u);
  EXPECT_FALSE(mode.TryFit(card, use, {policy::Share(571'000), 0}));
  Remove(mode, card, use, *second);
  EXPECT_EQ(use, CardUse{});
  const auto four = mode.TryFit(card, use, {policy::Share(571'000), 0});
  ASSERT_TRUE(four);
  EXPECT_EQ(mode.PartOf(card, four->slot)->profile, "4g.20gb");
}

TEST(MigMode, MemoryAloneCanDecideTheInstance) {
  const MigMode mode;
  const Card card = MigCard(Documented("H200"));
  const auto profile = [&](uint32_t share, uint32_t memory_mib) {
    const auto fit = mode.TryFit(card, {}, {policy::Share(share), memory_mib});
    return fit ? mode.PartOf(card, fit->slot)->profile : "none";
  };
  EXPECT_EQ(profile(1'000, 0), "1g.18gb");
  EXPECT_EQ(profile(142'857, 16'384), "1g.18gb");
  EXPECT_EQ(profile(142'858, 0), "2g.35gb");  // a millionth more than 1/7
  EXPECT_EQ(profile(1'000, 16'385), "1g.35gb");
  EXPECT_EQ(profile(200'000, 30'000), "2g.35gb");
  EXPECT_EQ(profile(1'000, 40'000), "3g.71gb");
  EXPECT_EQ(profile(500'000, 40'000), "4g.71gb");
  EXPECT_EQ(profile(500'000, 80'000), "7g.141gb");
  EXPECT_EQ(profile(policy::kMillion, 0), "7g.141gb");
  EXPECT_EQ(profile(policy::kMillion, 143'361), "none");
  EXPECT_EQ(mode.WhyNot(card, {}, {policy::kWhole, 150'000}),
            "no 7g.147gb on H200: nearest is 7g.141gb with 143360 MiB");
}

TEST(MigMode, AnImpossibleRequestNamesTheNearestProfile) {
  // Of what the groups offer: here nothing above 4g.
  const auto templates = MigTemplates::BuiltIn().With(
      "[[model]]\nnames = [\"A100-SXM4-40GB\"]\ngroups = [{\"4g.20gb\" = 1, \"1g.5gb\" = 3}]",
      "t.toml");
  ASSERT_TRUE(templates);
  const MigMode mode(*templates);
  const Card card = MigCard(Documented("A100-SXM4-40GB"));
  EXPECT_FALSE(mode.TryFit(card, {}, {policy::Share(571'000), 30 * 1024}));
  EXPECT_EQ(mode.WhyNot(card, {}, {policy::Share(571'000), 30 * 1024}),
            "no 4g.30gb on A100-SXM4-40GB: nearest is 4g.20gb with 19968 MiB");
}

TEST(MigMode, WhatOthersMadeOnTheGpuIsLeftAlone) {
  const MigMode mode;
  const DocumentedModel documented = Documented("A100-SXM4-80GB");
  Card card = MigCard(documented);
  card.instances = {{7, "3g.40gb", "MIG-x", 4, 4}};
  const MigMode::Part others{"3g.40gb", 4, 4};
  // 7 x 1g.10gb comes first, and has room for four.
  CardUse use;
  std::vector<MigMode::Part> parts = {others};
  for (int i = 0; i < 4; ++i) {
    const auto fit = mode.TryFit(card, use, {policy::Share(1'000), 0});
    ASSERT_TRUE(fit);
    parts.push_back(*mode.PartOf(card, fit->slot));
    EXPECT_EQ(parts.back().profile, "1g.10gb");
    Add(use, *fit);
  }
  EXPECT_EQ(Impossible(documented, parts), "");
  EXPECT_FALSE(mode.TryFit(card, use, {policy::Share(1'000), 0}));
  EXPECT_EQ(mode.WhyNot(card, use, {policy::Share(1'000), 0}),
            "it is divided into 7 x 1g.10gb, of which nothing is free; an instance that is not in "
            "use by any pod here is in the way of 1g.10gb");
  // Of what is to be had, the first group that has it in a place that is free.
  const auto three = mode.TryFit(card, {}, {policy::Share(400'000), 0});
  ASSERT_TRUE(three);
  EXPECT_EQ(Impossible(documented, {others, *mode.PartOf(card, three->slot)}), "");
  EXPECT_FALSE(mode.TryFit(card, {}, {policy::kWhole, 0}));
  EXPECT_EQ(mode.WhyNot(card, {}, {policy::kWhole, 0}),
            "no room for 7g.80gb beside somebody else's 3g.40gb at slices 4 to 7");
  EXPECT_TRUE(mode.TryFit(card, {}, {policy::Share(570'000), 0}));
}

TEST(MigMode, AfterARestartTheMapsOwnInstancesAreNotInTheWay) {
  const MigMode mode;
  Card card = MigCard(Documented("H100 80GB HBM3"));
  CardUse use;
  std::vector<Fit> fits;
  for (int i = 0; i < 3; ++i) {
    const auto fit = mode.TryFit(card, use, {policy::Share(140'000), 0});
    ASSERT_TRUE(fit);
    fits.push_back(*fit);
    Add(use, *fit);
  }
  // They exist by now; and the templates have been turned round.
  for (const Fit& fit : fits) {
    const auto part = mode.PartOf(card, fit.slot);
    card.instances.push_back({part->start, part->profile, "MIG-y", part->start, part->slices});
  }
  const auto turned = MigTemplates::BuiltIn().With(
      "[[model]]\nnames = [\"H100 80GB HBM3\"]\ngroups = [{\"7g.80gb\" = 1}]", "t.toml");
  ASSERT_TRUE(turned);
  for (const MigMode& after : {mode, MigMode(*turned)}) {
    CardUse again;
    for (const size_t i : {2, 0, 1}) {  // in any order
      const auto fit = after.FitAt(card, again, {policy::Share(140'000), 0}, fits[i].slot);
      ASSERT_TRUE(fit);
      EXPECT_EQ(fit->slot, fits[i].slot);
      EXPECT_FALSE(after.FitAt(card, again, {policy::Share(900'000), 0}, fits[i].slot));
      Add(again, *fit);
      EXPECT_FALSE(
          after.FitAt(card, again, {policy::Share(140'000), 0}, fits[i].slot));  // not twice
    }
    EXPECT_EQ(again.share, use.share);
    EXPECT_EQ(again.layout & 0xffffffff, use.layout & 0xffffffff);
    // And the GPU keeps to its group.
    const auto next = after.TryFit(card, again, {policy::Share(140'000), 0});
    ASSERT_TRUE(next);
    EXPECT_EQ(after.PartOf(card, next->slot)->profile, "1g.10gb");
  }
  // Another instance in its place: then it is not where it was.
  card.instances[1].slices = 2;
  EXPECT_FALSE(mode.FitAt(card, {}, {policy::Share(140'000), 0}, fits[1].slot));
  // A slot that means nothing.
  EXPECT_FALSE(mode.FitAt(card, {}, {policy::Share(140'000), 0}, 12345));
}

TEST(MigMode, TheProcessesFindTheirInstanceByItsUuid) {
  const MigMode mode;
  const Card card = MigCard(Documented("H200"));
  EXPECT_EQ(mode.EnvironmentOf(card, *mode.TryFit(card, {}, {}), "MIG-abc"),
            (Environment{{"CUDA_VISIBLE_DEVICES", "MIG-abc"}}));
}

// Anything at all is asked for and given back, with instances of others on the GPU.
RC_GTEST_PROP(MigModeProperty, NeverOverlapsIsAlwaysDocumentedAndGoesBackExactly, ()) {
  Random random(*rc::gen::noShrink(
      rc::gen::resize(rc::kNominalSize, rc::gen::arbitrary<uint64_t>().as("seed"))));
  const auto models = DocumentedModels();
  const DocumentedModel& model =
      models[static_cast<size_t>(random.Between(0, static_cast<int64_t>(models.size()) - 1))];
  const MigMode mode;
  Card card = MigCard(model);
  std::vector<MigMode::Part> others;
  for (int i = 0; random.OneIn(3) && i < 3; ++i) {
    const auto& p = model.profiles[static_cast<size_t>(
        random.Between(0, static_cast<int64_t>(model.profiles.size()) - 2))];
    others.push_back({p.name,
                      p.starts[static_cast<size_t>(
                          random.Between(0, static_cast<int64_t>(p.starts.size()) - 1))],
                      p.slices});
    if (!Impossible(model, others).empty()) {
      others.pop_back();
      continue;
    }
    card.instances.push_back(
        {static_cast<uint32_t>(i), p.name, "MIG-o", others.back().start, p.slices});
  }
  uint32_t taken_by_others = 0;
  for (const auto& part : others) taken_by_others |= MaskOf(part);

  std::vector<Fit> held;
  CardUse use;
  for (int step = 0; step < 400; ++step) {
    if (!held.empty() && random.OneIn(3)) {
      const auto at = static_cast<size_t>(random.Between(0, static_cast<int64_t>(held.size()) - 1));
      const CardUse before = use;
      const Fit gone = held[at];
      Remove(mode, card, use, gone);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(at));
      // Whatever the order: what is left is what those that are left are.
      uint64_t starts = 0;
      for (const Fit& fit : held) starts |= uint64_t{1} << MigMode::StartOf(fit.slot);
      RC_ASSERT(use.layout == (held.empty() ? 0 : (before.layout & ~uint64_t{0xff}) | starts));
      if (held.empty()) RC_ASSERT(use == CardUse{});
      continue;
    }
    const VgpuWant want{
        policy::Share(random.Spread(1'000, policy::kMillion)),
        random.OneIn(2) ? 0 : static_cast<uint32_t>(random.Spread(1, card.memory_mib))};
    const auto fit = mode.TryFit(card, use, want);
    RC_ASSERT(fit == mode.TryFit(card, use, want));
    if (!fit) {
      RC_ASSERT(!mode.WhyNot(card, use, want).empty());
      continue;
    }
    RC_ASSERT(fit->share >= want.share);
    RC_ASSERT(fit->memory_mib >= want.memory_mib);
    RC_ASSERT(mode.FitAt(card, use, want, fit->slot) == fit);
    // Adding and taking away again leaves what was there, to the bit.
    CardUse after = use;
    Add(after, *fit);
    CardUse back = after;
    Remove(mode, card, back, *fit);
    RC_ASSERT(back == use);
    RC_ASSERT(after.share <= policy::kWhole);
    RC_ASSERT(after.memory_mib <= card.memory_mib);
    held.push_back(*fit);
    use = after;
    std::vector<MigMode::Part> all = others;
    for (const Fit& h : held) all.push_back(*mode.PartOf(card, h.slot));
    uint32_t taken = taken_by_others;
    for (size_t i = others.size(); i < all.size(); ++i) {
      RC_ASSERT(Impossible(model, {all[i]}) == "");
      RC_ASSERT((taken & MaskOf(all[i])) == 0u);
      taken |= MaskOf(all[i]);
    }
    if (others.empty()) RC_ASSERT(Impossible(model, all) == "");
  }
}

}  // namespace
}  // namespace baton::devmgr
