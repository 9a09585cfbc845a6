#include "devmgr/inventory.h"

#include <gtest/gtest.h>

namespace baton::devmgr {
namespace {

using Kind = InventoryEvent::Kind;

Card MakeCard(const std::string& uuid) {
  Card card;
  card.uuid = uuid;
  card.model = "NVIDIA H200";
  card.memory_mib = 143'771;
  return card;
}

Node MakeNode(std::vector<Card> cards) {
  Node node;
  node.name = "n";
  node.cards = std::move(cards);
  return node;
}

std::vector<Kind> Kinds(const Node& before, const Node& after) {
  std::vector<Kind> kinds;
  for (const InventoryEvent& event : Differences(before, after)) kinds.push_back(event.kind);
  return kinds;
}

TEST(Inventory, TwoLooksThatAreTheSameGiveNoEvent) {
  Node node = MakeNode({MakeCard("a"), MakeCard("b")});
  EXPECT_TRUE(Differences(node, node).empty());
}

TEST(Inventory, EachChangeOfAGpuIsAnEventOfItsKind) {
  const Node before = MakeNode({MakeCard("a")});
  Node after = before;
  after.cards[0].health = Health::kFailed;
  after.cards[0].why = "XID 79";
  after.cards[0].cordoned = true;
  EXPECT_EQ(Kinds(before, after), (std::vector{Kind::kFailed, Kind::kCordoned}));
  EXPECT_EQ(Differences(before, after)[0].why, "XID 79");
  EXPECT_EQ(Kinds(after, before), (std::vector{Kind::kRecovered, Kind::kUncordoned}));
  after = before;
  after.cards[0].mig_enabled = true;
  EXPECT_EQ(Kinds(before, after), (std::vector{Kind::kReshaped}));
  after = before;
  after.cards[0].memory_mib -= 1;
  EXPECT_EQ(Kinds(before, after), (std::vector{Kind::kChanged}));
}

TEST(Inventory, AGpuThatVanishesKeepsItsPlaceAndIsSaidOnce) {
  const Node before = MakeNode({MakeCard("a"), MakeCard("b")});
  const Node seen = MakeNode({MakeCard("b")});
  const Node merged = Merged(before, seen);
  ASSERT_EQ(merged.cards.size(), 2u);
  EXPECT_EQ(merged.cards[1].uuid, "a");
  EXPECT_EQ(merged.cards[1].health, Health::kMissing);
  EXPECT_EQ(Kinds(before, merged), (std::vector{Kind::kVanished}));
  EXPECT_TRUE(Differences(merged, Merged(merged, seen)).empty());
  EXPECT_EQ(Kinds(merged, Merged(merged, before)), (std::vector{Kind::kAppeared}));
}

TEST(Inventory, ACordonIsNotUndoneByAnotherLook) {
  Node before = MakeNode({MakeCard("a")});
  before.cards[0].cordoned = true;
  EXPECT_TRUE(Merged(before, MakeNode({MakeCard("a")})).cards[0].cordoned);
}

}  // namespace
}  // namespace baton::devmgr
