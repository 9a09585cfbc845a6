#include "devmgr/placement/inventory_toml.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "devmgr/placement/request.h"

namespace baton::devmgr {
namespace {

constexpr const char* kCluster = R"(# Two nodes.
[[node]]
name = "gpu-01"
cpu = 96
memory = "512GiB"
labels = {zone = "a", "topology/rack" = "7"}

[[node.card]]
model = "H200"
uuid = "GPU-1"
numa = 1
island = 0
pcie = 2
bus = "0000:17:00.0"
mig = true
instances = [{profile = "3g.71gb", start = 4, slices = 4, id = 2, uuid = "MIG-2"},
             {profile = "1g.18gb", start = 0, slices = 1}]

[[node.card]]
model = "NVIDIA A100-SXM4-80GB"
uuid = "GPU-2"
health = "failed"
why = "XID 79"
cordoned = true

[[node]]
name = "gpu-02"
cpu = 0.5
cordoned = true

[[node.card]]
model = "Tiles 9000"
vendor = "made-up"
memory = "24GiB"
count = 3

[[node.card]]
model = "L40S"
memory = "45GiB"
uuid = "GPU-x"
count = 2
)";

std::vector<Node> Parsed(const std::string& text) {
  auto nodes = ParseInventory(text, "f");
  if (!nodes) {
    ADD_FAILURE() << nodes.error().message;
    return {};
  }
  return *nodes;
}

// The error for a cluster with one node and one card, of which one line is replaced.
std::string RefusalOf(const std::string& text) {
  const auto nodes = ParseInventory(text, "f");
  return nodes ? "accepted" : nodes.error().message;
}
std::string Card1(const std::string& lines) {
  return "[[node]]\nname = \"n\"\n[[node.card]]\n" + lines;
}

TEST(InventoryToml, AClusterIsReadWithAllThatItSays) {
  const auto nodes = Parsed(kCluster);
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_EQ(nodes[0].name, "gpu-01");
  EXPECT_EQ(nodes[0].cpu_milli, 96'000u);
  EXPECT_EQ(nodes[0].memory_mib, 512u * 1024);
  EXPECT_EQ(nodes[0].labels,
            (std::map<std::string, std::string>{{"topology/rack", "7"}, {"zone", "a"}}));
  ASSERT_EQ(nodes[0].cards.size(), 2u);
  const Card& h200 = nodes[0].cards[0];
  EXPECT_EQ(h200.model, "NVIDIA H200");
  EXPECT_EQ(h200.memory_mib, 143'771u);
  EXPECT_EQ(h200.numa, 1);
  EXPECT_EQ(h200.island, 0);
  EXPECT_EQ(h200.pcie, 2);
  EXPECT_EQ(h200.bus, "0000:17:00.0");
  EXPECT_TRUE(h200.mig_capable);
  EXPECT_TRUE(h200.mig_enabled);
  EXPECT_EQ(h200.instances,
            (std::vector<MigInstance>{{0, "1g.18gb", "", 0, 1}, {2, "3g.71gb", "MIG-2", 4, 4}}));
  const Card& failed = nodes[0].cards[1];
  EXPECT_EQ(failed.health, Health::kFailed);
  EXPECT_EQ(failed.why, "XID 79");
  EXPECT_TRUE(failed.cordoned);
  EXPECT_EQ(failed.numa, -1);
  EXPECT_EQ(nodes[1].cpu_milli, 500u);
  EXPECT_TRUE(nodes[1].cordoned);
  ASSERT_EQ(nodes[1].cards.size(), 5u);
  EXPECT_EQ(nodes[1].cards[2].uuid, "gpu-02/2");
  EXPECT_EQ(nodes[1].cards[2].vendor, "made-up");
  EXPECT_EQ(nodes[1].cards[2].memory_mib, 24'576u);
  EXPECT_FALSE(nodes[1].cards[2].mig_capable);
  EXPECT_EQ(nodes[1].cards[4].uuid, "GPU-x/1");
  EXPECT_EQ(nodes[1].cards[4].memory_mib, 46'080u) << "what is said wins over what is known";
}

TEST(InventoryToml, WhatIsPrintedIsReadAgain) {
  const auto nodes = Parsed(kCluster);
  EXPECT_EQ(Parsed(PrintInventory(nodes)), nodes);
  EXPECT_TRUE(Parsed("").empty());
  EXPECT_EQ(PrintInventory({}), "");
}

TEST(InventoryToml, EveryMistakeIsOneLineWithItsPlace) {
  EXPECT_EQ(RefusalOf(Card1("model = \"H20O\"\n")),
            "f:4: the model H20O is not known, so its card needs a memory (or did you mean H200?)");
  EXPECT_EQ(RefusalOf(Card1("model = \"Tiles\"\n")),
            "f:4: the model Tiles is not known, so its card needs a memory such as \"80GiB\"");
  EXPECT_EQ(RefusalOf(Card1("model = \"H200\"\nmemory = \"0MiB\"\n")),
            "f:5: memory must be whole MiB from 1MiB to 16TiB, not 0MiB");
  EXPECT_EQ(RefusalOf(Card1("model = \"H200\"\nmemory = \"17TiB\"\n")),
            "f:5: memory must be whole MiB from 1MiB to 16TiB, not 17TiB");
  EXPECT_EQ(RefusalOf(Card1("model = \"H200\"\nmemory = \"1.5KiB\"\n")),
            "f:5: memory must be whole MiB from 1MiB to 16TiB, not 1.5KiB");
  EXPECT_EQ(RefusalOf(Card1("model = \"H200\"\nmemory = 80\n")),
            "f:5: memory must be a text with its unit, such as \"80GiB\" or \"81559MiB\"");
  EXPECT_EQ(RefusalOf(Card1("model = \"H200\"\nmemroy = \"80GiB\"\n")),
            "f:5: [[node.card]] has no key memroy; did you mean memory?");
  EXPECT_EQ(RefusalOf("[[nodes]]\nname = \"n\"\n"),
            "f:1: the file has no key nodes; did you mean node?");
  EXPECT_EQ(RefusalOf("[[node]]\nname = \"n\"\nxyz = 1\n"),
            "f:3: [[node]] has no key xyz; it has name, cpu, memory, labels, cordoned, card");
  EXPECT_EQ(RefusalOf("[[node]]\ncpu = 1\n"), "f:1: a [[node]] needs a name");
  EXPECT_EQ(RefusalOf("[[node]]\nname = \"a b\"\n"),
            "f:2: a node's name is 1 to 253 printable bytes without spaces and commas");
  EXPECT_EQ(RefusalOf("[[node]]\nname = \"n\"\n[[node]]\nname = \"n\"\n"),
            "f:4: node n is listed twice");
  EXPECT_EQ(RefusalOf(Card1("uuid = \"GPU-1\"\nmodel = \"H200\"\n[[node.card]]\n"
                            "model = \"H200\"\nuuid = \"GPU-1\"\n")),
            "f:8: card GPU-1 is listed twice");
  EXPECT_EQ(RefusalOf(Card1("uuid = \"GPU-1\"\n")), "f:3: a card needs a model");
  EXPECT_EQ(RefusalOf(Card1("model = \"H200\"\ncount = 17\n")),
            "f:5: count must be a whole number from 1 to 16");
  EXPECT_EQ(
      RefusalOf(Card1("model = \"H200\"\ncount = 9\n[[node.card]]\nmodel = \"H200\"\ncount = 8\n")),
      "f:6: a node has at most 16 cards");
  EXPECT_EQ(RefusalOf(Card1("model = \"H200\"\nbus = \"17:00.0\"\n")),
            "f:5: bus must be such as \"0000:17:00.0\"");
  EXPECT_EQ(RefusalOf(Card1("model = \"H200\"\nnuma = -1\n")),
            "f:5: numa must be a whole number from 0 to 1023");
  EXPECT_EQ(RefusalOf(Card1("model = \"L40S\"\nmig = true\n")),
            "f:5: a NVIDIA L40S has no MIG (or say mig_capable = true)");
  EXPECT_EQ(RefusalOf(Card1("model = \"H200\"\ninstances = []\n")),
            "f:5: instances need mig = true");
  const std::string mig = "model = \"H200\"\nmig = true\n";
  EXPECT_EQ(
      RefusalOf(Card1(mig + "instances = [{profile = \"1g.18gb\", start = 7, slices = 2}]\n")),
      "f:6: a 1g.18gb of 2 slices cannot start at 7: a card has at most 8");
  EXPECT_EQ(RefusalOf(Card1(mig + "instances = [{profile = \"3g.71gb\", start = 0, slices = 4},\n"
                                  "{profile = \"2g.35gb\", start = 2, slices = 2}]\n")),
            "f:7: the 2g.35gb at 2 lies over another instance");
  EXPECT_EQ(RefusalOf(Card1(mig + "instances = [{profile = \"3g.71gb\"}]\n")),
            "f:6: an instance needs a profile, a start and slices");
  EXPECT_EQ(RefusalOf(Card1("model = \"H200\"\nhealth = \"ill\"\n")),
            "f:5: health must be \"healthy\", \"failed\" or \"missing\"");
  EXPECT_EQ(RefusalOf(Card1("model = \"H200\"\nwhy = \"XID 79\"\n")),
            "f:5: why needs health = \"failed\" or \"missing\" beside it");
  EXPECT_EQ(RefusalOf("[[node]]\nname = \"n\"\ncpu = nan\n"),
            "f:3: cpu must be a number of cores from 0.001 to 1000000");
  EXPECT_EQ(RefusalOf("node = 3\n"), "f:1: write [[node]], one for each");
  EXPECT_EQ(RefusalOf("[[node]]\nname = \"n\"\ncard = [1]\n"),
            "f:3: write [[node.card]], one for each");
  EXPECT_EQ(RefusalOf("[[node]]\nname = \"n\"\nlabels = {a = 1}\n"),
            "f:3: a label is a printable text");
  EXPECT_EQ(RefusalOf(std::string(kInventoryBytesMax + 1, '\n')),
            "f: an inventory is at most 32MiB");
}

// What every inventory that is accepted has.
void ExpectSound(const std::vector<Node>& nodes) {
  std::set<std::string> names, uuids;
  for (const Node& node : nodes) {
    EXPECT_FALSE(node.name.empty());
    EXPECT_TRUE(names.insert(node.name).second);
    EXPECT_LE(node.cards.size(), VgpuRequest::kCardsMax);
    for (const Card& card : node.cards) {
      EXPECT_FALSE(card.uuid.empty());
      EXPECT_TRUE(uuids.insert(card.uuid).second);
      EXPECT_GT(card.memory_mib, 0u);
      EXPECT_TRUE(card.mig_enabled || card.instances.empty());
      EXPECT_TRUE(card.mig_capable || !card.mig_enabled);
      uint32_t taken = 0;
      for (const MigInstance& instance : card.instances) {
        const uint32_t slots = ((1u << instance.slices) - 1) << instance.start;
        EXPECT_EQ(taken & slots, 0u);
        EXPECT_LT(slots, 256u);
        taken |= slots;
      }
    }
  }
  const auto again = ParseInventory(PrintInventory(nodes), "f");
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(*again, nodes);
}

// Either sound, or refused in one line. Which?
bool Accepted(const std::string& text) {
  const auto nodes = ParseInventory(text, "f");
  if (nodes) {
    ExpectSound(*nodes);
    return true;
  }
  const std::string& message = nodes.error().message;
  EXPECT_EQ(message.rfind("f:", 0), 0u) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  EXPECT_LT(message.size(), 600u) << message;
  return false;
}

TEST(InventoryToml, ATornFileIsRefusedOrIsWhatCameBeforeTheTear) {
  const std::string whole = kCluster;
  int refused = 0;
  for (size_t length = 0; length < whole.size(); ++length) {
    SCOPED_TRACE(length);
    refused += Accepted(whole.substr(0, length)) ? 0 : 1;
  }
  EXPECT_GT(refused, static_cast<int>(whole.size() / 2));
}

TEST(InventoryToml, NoTextBreaksIt) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto below = [&random](size_t n) { return static_cast<size_t>(random() % n); };
  const char* const pieces[] = {"[[node]]\n",
                                "[[node.card]]\n",
                                "[",
                                "]",
                                "{",
                                "}",
                                "=",
                                "\"",
                                "\n",
                                "'''",
                                "\"\"\"",
                                "name",
                                "model = \"H200\"\n",
                                "count = 16\n",
                                "-1",
                                "nan",
                                "1e999",
                                "9223372036854775807",
                                "\xff\xfe",
                                "\xf0\x9f",
                                "\\u0000",
                                "mig = true\n",
                                "memory = \"1MiB\"\n",
                                "1979-05-27",
                                "slices = 8",
                                "#",
                                ".",
                                ","};
  int accepted = 0;
  for (int i = 0; i < 6'000; ++i) {
    std::string text = kCluster;
    for (size_t change = 0; change <= below(4); ++change) {
      const size_t at = below(text.size());
      switch (below(5)) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, below(40));
          break;
        case 2:
          text.insert(at, pieces[below(std::size(pieces))]);
          break;
        case 3:
          text.insert(at, text.substr(below(text.size()), below(200)));
          break;
        default: {
          // A line that is a value gets another's.
          const size_t equals = text.find('=', at);
          if (equals == std::string::npos) break;
          const size_t end = std::min(text.find('\n', equals), text.size());
          text.replace(equals + 1, end - equals - 1, pieces[below(std::size(pieces))]);
        }
      }
      if (text.empty()) break;
    }
    if (text.empty()) text = "\n";
    accepted += Accepted(text) ? 1 : 0;
  }
  EXPECT_GT(accepted, 20) << "of all those changes some are harmless";
  for (const char* deep : {"[", "{a=", "a=[", "a.", "[[node.card.", "\"\"\""}) {
    std::string text = "a = ";
    for (int i = 0; i < 20'000; ++i) text += deep;
    EXPECT_FALSE(Accepted(text)) << deep;
  }
  EXPECT_FALSE(Accepted(std::string(100'000, 'a') + " = 1\n"));
}

TEST(InventoryToml, TenThousandNodesAreRead) {
  std::string text;
  for (int i = 0; i < 10'000; ++i) {
    text += "[[node]]\nname = \"n" + std::to_string(i) + "\"\ncpu = 96\n";
    text += "[[node.card]]\nmodel = \"H100 80GB HBM3\"\nisland = 0\ncount = 8\n";
  }
  const auto nodes = Parsed(text);
  ASSERT_EQ(nodes.size(), 10'000u);
  EXPECT_EQ(nodes.back().cards.back().uuid, "n9999/7");
  const std::vector<Node> some(nodes.begin(), nodes.begin() + 500);
  EXPECT_EQ(Parsed(PrintInventory(some)), some);
}

TEST(KnownModels, AreFoundWithAndWithoutTheVendor) {
  ASSERT_NE(FindModel("A30"), nullptr);
  EXPECT_EQ(FindModel("A30"), FindModel("NVIDIA A30"));
  EXPECT_EQ(FindModel("A31"), nullptr);
  EXPECT_EQ(FindModel(""), nullptr);
  EXPECT_EQ(FindModel("NVIDIA "), nullptr);
}

}  // namespace
}  // namespace baton::devmgr
