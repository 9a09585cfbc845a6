#include "devmgr/modes/mig_templates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "tests/devmgr/mig_table.h"

namespace baton::devmgr {
namespace {

using Counts = std::map<std::string, uint32_t>;

// Every way to divide a GPU that leaves no room for one more instance, by the table alone.
std::set<Counts> FullGeometries(const DocumentedModel& model) {
  struct Place {
    const DocumentedProfile* profile;
    uint32_t mask;
  };
  std::vector<Place> places;
  for (const DocumentedProfile& p : model.profiles) {
    for (const uint32_t start : p.starts) places.push_back({&p, ((1u << p.slices) - 1) << start});
  }
  std::set<Counts> all;
  const auto extend = [&](auto&& self, size_t from, uint32_t taken, Counts counts,
                          bool media) -> void {
    all.insert(counts);
    for (size_t i = from; i < places.size(); ++i) {
      const DocumentedProfile& p = *places[i].profile;
      if (taken & places[i].mask || (media && p.media)) continue;
      Counts more = counts;
      if (++more[p.name] <= p.count) {
        self(self, i + 1, taken | places[i].mask, more, media || p.media);
      }
    }
  };
  extend(extend, 0, 0, {}, false);
  const auto within = [](const Counts& a, const Counts& b) {
    return a != b && std::all_of(a.begin(), a.end(), [&](const auto& entry) {
             const auto at = b.find(entry.first);
             return at != b.end() && at->second >= entry.second;
           });
  };
  std::set<Counts> full;
  for (const Counts& counts : all) {
    if (std::none_of(all.begin(), all.end(), [&](const Counts& b) { return within(counts, b); })) {
      full.insert(counts);
    }
  }
  return full;
}

Counts CountsOf(const MigModel& model, const MigGroup& group) {
  Counts counts;
  for (const MigGroup::Part& part : group.parts) ++counts[model.profiles[part.profile].name];
  return counts;
}

TEST(MigTemplates, HaveEveryDocumentedProfileOfEveryModelAndNoOther) {
  for (const DocumentedModel& documented : DocumentedModels()) {
    const MigModel* model = MigTemplates::BuiltIn().Find(documented.name);
    ASSERT_NE(model, nullptr) << documented.name;
    EXPECT_EQ(model->slices, documented.slices);
    EXPECT_EQ(model->compute, documented.compute);
    ASSERT_EQ(model->profiles.size(), documented.profiles.size());
    for (const DocumentedProfile& p : documented.profiles) {
      const auto at = std::find_if(model->profiles.begin(), model->profiles.end(),
                                   [&](const MigProfile& has) { return has.name == p.name; });
      ASSERT_NE(at, model->profiles.end()) << documented.name << " " << p.name;
      EXPECT_EQ(at->compute, p.compute);
      EXPECT_EQ(at->slices, p.slices);
      EXPECT_EQ(at->most, p.count);
      EXPECT_EQ(at->media(), p.media);
      uint32_t starts = 0;
      for (const uint32_t start : p.starts) starts |= 1u << start;
      EXPECT_EQ(at->starts, starts) << p.name;
      // Its memory is its slices' part of the GPU's, less what the driver keeps.
      const double part = static_cast<double>(documented.memory_mib) * p.slices / model->slices;
      EXPECT_LE(at->memory_mib, part) << p.name;
      EXPECT_GE(at->memory_mib, 0.9 * part) << p.name;
    }
  }
}

TEST(MigTemplates, HaveEveryGeometryThatTheDocumentedPlacesAllowAndNoOther) {
  size_t geometries = 0;
  for (const DocumentedModel& documented : DocumentedModels()) {
    const MigModel* model = MigTemplates::BuiltIn().Find(documented.name);
    ASSERT_NE(model, nullptr);
    std::set<Counts> has;
    for (const MigGroup& group : model->groups) has.insert(CountsOf(*model, group));
    const std::set<Counts> full = FullGeometries(documented);
    EXPECT_EQ(has, full) << documented.name;
    EXPECT_EQ(has.size(), model->groups.size());
    geometries += full.size();
  }
  EXPECT_EQ(geometries, 4 * 44u + 8u);
}

TEST(MigTemplates, TheFirstGroupForEachSizeIsTheOneThatHasMostOfIt) {
  const MigModel* model = MigTemplates::BuiltIn().Find("A100-SXM4-40GB");
  ASSERT_NE(model, nullptr);
  std::vector<std::string> first;
  for (size_t g = 0; g < 6; ++g) first.push_back(model->Describe(model->groups[g]));
  EXPECT_EQ(first, (std::vector<std::string>{"7 x 1g.5gb", "4 x 1g.10gb", "3 x 2g.10gb + 1g.5gb",
                                             "2 x 3g.20gb", "4g.20gb + 3g.20gb", "7g.40gb"}));
}

TEST(MigTemplates, FindModelsByWhatNvmlCallsThemAndNothingElse) {
  const MigTemplates& built_in = MigTemplates::BuiltIn();
  EXPECT_EQ(built_in.Find("NVIDIA H200"), built_in.Find("H200"));
  EXPECT_NE(built_in.Find("H200"), nullptr);
  EXPECT_NE(built_in.Find("NVIDIA A100 80GB PCIe"), nullptr);
  for (const char* name : {"", "H20", "H2000", "NVIDIA ", "NVIDIA H100 NVL", "Tesla T4", "h200"}) {
    EXPECT_EQ(built_in.Find(name), nullptr) << name;
  }
  EXPECT_EQ(MigTemplates().Find("H200"), nullptr);
}

TEST(MigTemplates, AFileChangesTheModelsThatItNamesAndLeavesTheOthers) {
  const auto changed = MigTemplates::BuiltIn().With(R"(
[[model]]
names = ["H200"]
groups = [{"3g.71gb" = 1, "1g.18gb" = 4}]

[[model]]
names = ["NVIDIA A800-SXM4-80GB"]
like = "A100-SXM4-80GB"

[[model]]
names = ["Tiny"]
slices = 2
compute = 2
profiles = [
  {name = "1g.1gb", compute = 1, slices = 1, memory_mib = 1000, starts = [0, 1], most = 2},
]
groups = [{"1g.1gb" = 2}]
)",
                                                    "mine.toml");
  ASSERT_TRUE(changed) << changed.error().message;
  const MigModel* h200 = changed->Find("NVIDIA H200");
  ASSERT_NE(h200, nullptr);
  EXPECT_EQ(h200->Describe(h200->groups[0]), "3g.71gb + 4 x 1g.18gb");
  EXPECT_TRUE(h200->groups[0].offered);
  // The others are known, so that GPUs in use are understood, and not offered.
  EXPECT_EQ(h200->groups.size(), 44u);
  EXPECT_FALSE(h200->groups[1].offered);
  // A name that was not in the file keeps what it had.
  const MigModel* nvl = changed->Find("H200 NVL");
  ASSERT_NE(nvl, nullptr);
  EXPECT_EQ(nvl->Describe(nvl->groups[0]), "7 x 1g.18gb");
  const MigModel* a800 = changed->Find("A800-SXM4-80GB");
  ASSERT_NE(a800, nullptr);
  EXPECT_EQ(a800->groups.size(), 44u);
  ASSERT_NE(changed->Find("Tiny"), nullptr);
  EXPECT_EQ(changed->Find("Tiny")->profiles[0].share, policy::kWhole / 2);
  EXPECT_NE(changed->Find("A30"), nullptr);
}

TEST(MigTemplates, AGroupIsKnownByItsInstancesAndTheirPlacesNotByItsOrder) {
  const auto turned = MigTemplates::BuiltIn().With(
      "[[model]]\nnames = [\"A30\"]\ngroups = [{\"4g.24gb\" = 1}, {\"1g.6gb\" = 4}]", "t");
  ASSERT_TRUE(turned);
  const MigModel* before = MigTemplates::BuiltIn().Find("A30");
  const MigModel* after = turned->Find("A30");
  ASSERT_TRUE(before != nullptr && after != nullptr);
  EXPECT_EQ(after->groups.size(), before->groups.size());
  for (const MigGroup& group : before->groups) {
    const MigGroup* same = after->FindGroup(group.id);
    ASSERT_NE(same, nullptr);
    EXPECT_EQ(after->Describe(*same), before->Describe(group));
  }
}

TEST(MigTemplates, WhatIsWrongInAFileIsOneLineThatSaysWhere) {
  const auto error = [](const std::string& text) {
    const auto read = MigTemplates::BuiltIn().With(text, "t.toml");
    EXPECT_FALSE(read) << text;
    return read ? "" : read.error().message;
  };
  const std::string h200 = "[[model]]\nnames = [\"H200\"]\n";
  // Geometries that do not exist.
  EXPECT_EQ(error(h200 + "groups = [{\"4g.80gb\" = 1}]"),
            "t.toml:3: group 1 of H200: it has no profile '4g.80gb', only 1g.18gb, 1g.18gb+me, "
            "1g.35gb, 2g.35gb, 3g.71gb, 4g.71gb, 7g.141gb");
  EXPECT_EQ(error(h200 + "groups = [\n{\"7g.141gb\" = 1},\n{\"3g.71gb\" = 3}]"),
            "t.toml:5: group 2 of H200: there is no GPU with 3 x 3g.71gb; at most 2 fit");
  EXPECT_EQ(error(h200 + "groups = [{\"4g.71gb\" = 1, \"3g.71gb\" = 1, \"1g.18gb\" = 1}]"),
            "t.toml:3: group 1 of H200: 1g.18gb + 3g.71gb + 4g.71gb do not fit on one GPU: they "
            "take 9 memory slices of 8 and 8 compute slices of 7");
  EXPECT_EQ(error(h200 + "groups = [{\"3g.71gb\" = 1, \"2g.35gb\" = 1, \"1g.18gb\" = 2, "
                         "\"1g.18gb+me\" = 1}]"),
            "t.toml:3: group 1 of H200: 2 x 1g.18gb + 1g.18gb+me + 2g.35gb + 3g.71gb do not fit on "
            "one GPU: they take 9 memory slices of 8 and 8 compute slices of 7");
  EXPECT_EQ(
      error("[[model]]\nnames = [\"A30\"]\ngroups = [{\"1g.6gb+me\" = 1, \"2g.12gb+me\" = 1}]"),
      "t.toml:3: group 1 of A30: 1g.6gb+me + 2g.12gb+me: only one instance can have the "
      "media engines");
  EXPECT_EQ(error("[[model]]\nnames = [\"X\"]\nslices = 4\ncompute = 4\nprofiles = [\n"
                  "{name = \"a\", compute = 1, slices = 2, memory_mib = 9, starts = [1], most = 1},"
                  "\n{name = \"b\", compute = 1, slices = 2, memory_mib = 9, starts = [0, 2], most "
                  "= 2}]\ngroups = [{a = 1, b = 1}]"),
            "t.toml:8: group 1 of X: a + b do not fit beside each other: wherever they start, two "
            "of them overlap");
  EXPECT_EQ(error(h200 + "groups = [{\"7g.141gb\" = 1}, {\"7g.141gb\" = 1}]"),
            "t.toml:3: group 2 of H200: 7g.141gb is there already, as group 1");
  EXPECT_EQ(error(h200 + "groups = [{\"7g.141gb\" = 0}]"),
            "t.toml:3: group 1 of H200: how many 7g.141gb? Write a number from 1 to 1");
  // The rest.
  EXPECT_EQ(error(h200 + "groups = []"), "t.toml:1: groups is empty");
  EXPECT_EQ(error(h200 + "groups = [{}]"),
            "t.toml:3: write a group as {\"3g.20gb\" = 1, \"1g.5gb\" = 4}");
  EXPECT_EQ(error(h200 + "group = 1"),
            "t.toml:3: a model has no key 'group', only compute, groups, like, names, profiles, "
            "slices");
  EXPECT_EQ(error("[[model]]\nnames = [\"H300\"]\ngroups = [{a = 1}]"),
            "t.toml:1: 'H300' is not known: give its slices, compute and profiles, or like = a "
            "model that is known");
  EXPECT_EQ(error(h200 + "\n[[model]]\nnames = [\"NVIDIA H200\"]"),
            "t.toml:5: there are two models 'H200'");
  EXPECT_EQ(error("[[model]]\ngroups = []"),
            "t.toml:1: a model needs names = [\"...\"], as NVML says them");
  EXPECT_EQ(error("model = 3"), "t.toml:1: write [[model]], one for each");
  EXPECT_EQ(error("models = 3"), "t.toml:1: the file has no key 'models', only model");
  EXPECT_EQ(error("[[model]]\nnames = [\"X\"]\nslices = 9\ncompute = 7\nprofiles = []"),
            "t.toml:3: slices must be a number from 1 to 8");
  EXPECT_EQ(error("[[model]]\nnames = [\"X\"]\nslices = 4\ncompute = 4\nprofiles = [{name = \"a\", "
                  "compute = 1, slices = 2, memory_mib = 0, starts = [0], most = 1}]"),
            "t.toml:5: memory_mib must be a number from 1 to 16777216");
  EXPECT_EQ(error("[[model]]\nnames = [\"X\"]\nslices = 4\ncompute = 4\nprofiles = [{name = \"a\", "
                  "compute = 1, slices = 2, memory_mib = 1, starts = [3], most = 1}]"),
            "t.toml:5: 'a' cannot start there: it has 2 of the GPU's 4 memory slices");
  EXPECT_EQ(error(std::string(300 * 1024, ' ')), "t.toml: more than 256 KiB of MIG templates");
}

TEST(MigTemplates, ATornFileIsRefusedWhereverItIsTorn) {
  const std::string whole(MigTemplates::BuiltInText());
  size_t refused = 0;
  for (size_t size = 0; size < whole.size(); size += 97) {
    const auto read = MigTemplates().With(whole.substr(0, size), "t.toml");
    if (read) continue;
    ++refused;
    EXPECT_EQ(read.error().code, ErrorCode::kInvalid);
    EXPECT_TRUE(read.error().message.starts_with("t.toml:")) << read.error().message;
    EXPECT_EQ(read.error().message.find('\n'), std::string::npos) << read.error().message;
  }
  // It may be torn between two models, or in the comment before the first.
  EXPECT_GT(refused, whole.size() / 97 * 8 / 10);
}

TEST(MigTemplates, AnImpossibleProfileIsAnsweredWithTheNearest) {
  const MigTemplates& built_in = MigTemplates::BuiltIn();
  const auto error = [&](const char* model, const char* profile) {
    const auto want = built_in.Want(model, profile);
    EXPECT_FALSE(want) << model << " " << profile;
    return want ? "" : want.error().message;
  };
  EXPECT_EQ(error("NVIDIA A100-SXM4-40GB", "4g.30gb"),
            "no 4g.30gb on A100-SXM4-40GB: nearest is 4g.20gb with 19968 MiB; 7g.40gb is the "
            "smallest that has both, with 40192 MiB");
  EXPECT_EQ(error("H200", "8g.200gb"), "no 8g.200gb on H200: nearest is 7g.141gb with 143360 MiB");
  EXPECT_EQ(error("A30", "3g.12gb"),
            "no 3g.12gb on A30: nearest is 2g.12gb with 11968 MiB; 4g.24gb is the smallest that "
            "has both, with 24000 MiB");
  EXPECT_EQ(error("A30", "1g.6gb+gfx"), "no 1g.6gb+gfx on A30: nearest is 1g.6gb with 5952 MiB");
  EXPECT_EQ(error("A30", "big"),
            "'big' is no MIG profile; A30 has 1g.6gb, 1g.6gb+me, 2g.12gb, 2g.12gb+me, 4g.24gb");
  EXPECT_EQ(error("Tesla T4", "1g.6gb"),
            "there is no MIG template for 'Tesla T4'; there is for A100-SXM4-40GB, "
            "A100-SXM4-80GB, H100 80GB HBM3, H200, A30");
  const auto want = built_in.Want("NVIDIA H200", "3g.71gb");
  ASSERT_TRUE(want);
  EXPECT_EQ(want->share, policy::Share(428'571));
  EXPECT_EQ(want->memory_mib, 71'424u);
}

}  // namespace
}  // namespace baton::devmgr
