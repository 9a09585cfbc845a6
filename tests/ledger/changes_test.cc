// Who changed what: what is written down, found again, and let go.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ledger/ledger.h"
#include "tests/ledger/books.h"

namespace baton::ledger {
namespace {

using std::chrono::hours;

Change ChangeOf(const std::string& object, int64_t second, const std::string& who = "root") {
  return {.at = At(second),
          .node = "n1",
          .who = who,
          .action = "set",
          .kind = "pod",
          .object = object,
          .was = R"({"request":30})",
          .is = R"({"request":40})"};
}

std::vector<std::string> Objects(Ledger& ledger, const ChangesQuestion& question) {
  std::vector<std::string> objects;
  const auto changes = ledger.Changes(question);
  EXPECT_TRUE(changes) << changes.error().message;
  for (const Change& change : changes.value_or(std::vector<Change>())) {
    objects.push_back(change.object);
  }
  return objects;
}

const ChangesQuestion kEver{.from = At(-1'000'000), .to = At(1'000'000)};

TEST_P(LedgerTest, ChangesAreFoundByTimeAndByWhatTheyAreOfTheNewestFirst) {
  const auto ledger = Open();
  ASSERT_TRUE(ledger->Record(ChangeOf("a", 10)));
  ASSERT_TRUE(ledger->Record(ChangeOf("b", 20, "alice")));
  Change cordon = ChangeOf("GPU-a", 30);
  cordon.kind = "gpu";
  ASSERT_TRUE(ledger->Record(cordon));
  ASSERT_TRUE(ledger->Record(ChangeOf("a", 40, "alice")));
  using Names = std::vector<std::string>;
  EXPECT_EQ(Objects(*ledger, kEver), Names({"a", "GPU-a", "b", "a"}));
  EXPECT_EQ(Objects(*ledger, {.from = At(20), .to = At(40)}), Names({"GPU-a", "b"}));
  ChangesQuestion question = kEver;
  question.who = "alice";
  EXPECT_EQ(Objects(*ledger, question), Names({"a", "b"}));
  question.kind = "pod";
  question.object = "a";
  EXPECT_EQ(Objects(*ledger, question), Names({"a"}));
  // A name in each namespace, and a team with those below it, where that is asked for.
  const auto of = [&](const char* kind, const char* object, bool wide) {
    ChangesQuestion one = kEver;
    one.kind = kind;
    one.object = object;
    one.wide = wide;
    return Objects(*ledger, one);
  };
  for (const char* pod : {"lab/c", "c", "xc", "lab/c2"}) {
    ASSERT_TRUE(ledger->Record(ChangeOf(pod, 1'000)));
  }
  for (const char* team : {"r/v", "r", "rx", "r/v/w", "x/r"}) {
    Change change = ChangeOf(team, 1'000);
    change.kind = "team";
    ASSERT_TRUE(ledger->Record(change));
  }
  EXPECT_EQ(of("pod", "c", true), Names({"c", "lab/c"}));
  EXPECT_EQ(of("pod", "c", false), Names({"c"}));
  EXPECT_EQ(of("pod", "lab/c", true), Names({"lab/c"}));
  EXPECT_EQ(of("team", "r", true), Names({"r/v/w", "r", "r/v"}));
  EXPECT_EQ(of("team", "r/v", true), Names({"r/v/w", "r/v"}));
  EXPECT_EQ(of("team", "r", false), Names({"r"}));
  question = kEver;
  question.to = At(1'000);
  question.most = 2;
  EXPECT_EQ(Objects(*ledger, question), Names({"a", "GPU-a"}));
  const auto changes = ledger->Changes(kEver);
  const Change& last = changes->back();
  EXPECT_EQ(last.at, At(10));
  EXPECT_EQ(last.node, "n1");
  EXPECT_EQ(last.action, "set");
  EXPECT_EQ(last.was, R"({"request":30})");
  EXPECT_EQ(last.is, R"({"request":40})");
}

TEST_P(LedgerTest, ChangesOfAnyTextAreKeptAsNearAsCanBe) {
  const auto ledger = Open();
  Change odd = ChangeOf(std::string("a\0b\xff", 4), 1, "\xc3\xa9'; DROP TABLE changes; --");
  odd.is = std::string(100'000, 'x');
  ASSERT_TRUE(ledger->Record(odd));
  const auto changes = ledger->Changes(kEver);
  ASSERT_EQ(changes->size(), 1u);
  EXPECT_EQ(changes->front().object, "a?b?");
  EXPECT_EQ(changes->front().who, odd.who);
  EXPECT_EQ(changes->front().is.size(), 16u << 10);
}

TEST_P(LedgerTest, OfSettingsOnlyWhatIsNotAsItWasIsAChange) {
  const auto ledger = Open();
  const Change by{.at = At(1),
                  .node = "n1",
                  .who = "configuration",
                  .action = "configure",
                  .kind = "",
                  .object = "",
                  .was = "",
                  .is = ""};
  Settings settings{{{"team", "research"}, R"({"weight":1})"}, {{"price", ""}, R"({"price":2})"}};
  ASSERT_TRUE(ledger->RecordSettings(by, settings));
  EXPECT_TRUE(Objects(*ledger, kEver).empty()) << "this is where it begins";
  ASSERT_TRUE(ledger->RecordSettings(by, settings));
  EXPECT_TRUE(Objects(*ledger, kEver).empty());
  // Another node's are its own.
  Change other = by;
  other.node = "n2";
  ASSERT_TRUE(ledger->RecordSettings(other, {{{"price", ""}, R"({"price":9})"}}));
  settings[{"team", "research"}] = R"({"weight":3})";
  settings[{"team", "late"}] = R"({"weight":1})";
  settings.erase({"price", ""});
  ASSERT_TRUE(ledger->RecordSettings(by, settings));
  const auto changes = ledger->Changes(kEver);
  ASSERT_EQ(changes->size(), 3u);
  std::map<std::string, std::pair<std::string, std::string>> found;
  for (const Change& change : *changes) {
    EXPECT_EQ(change.node, "n1");
    EXPECT_EQ(change.who, "configuration");
    found[change.kind + " " + change.object] = {change.was, change.is};
  }
  using WasAndIs = std::pair<std::string, std::string>;
  EXPECT_EQ(found["team research"], WasAndIs(R"({"weight":1})", R"({"weight":3})"));
  EXPECT_EQ(found["team late"], WasAndIs("", R"({"weight":1})"));
  EXPECT_EQ(found["price "], WasAndIs(R"({"price":2})", ""));
  ASSERT_TRUE(ledger->RecordSettings(by, settings));
  EXPECT_EQ(ledger->Changes(kEver)->size(), 3u);
  // What an earlier version did not write down was not changed by the update.
  settings[{"config", "ledger"}] = R"({"currency":"EUR"})";
  ASSERT_TRUE(ledger->RecordSettings(by, settings));
  EXPECT_EQ(ledger->Changes(kEver)->size(), 3u);
  settings[{"config", "ledger"}] = R"({"currency":"USD"})";
  ASSERT_TRUE(ledger->RecordSettings(by, settings));
  EXPECT_EQ(ledger->Changes(kEver)->size(), 4u);
}

TEST_P(LedgerTest, TheOldestChangesGoFirst) {
  const auto ledger = Open();
  ASSERT_TRUE(ledger->Record(ChangeOf("first", 1)));
  ASSERT_TRUE(ledger->Record(ChangeOf("second", 2)));
  // As so many changes would leave it.
  Sql({"UPDATE changes SET id = " + std::to_string(kChangesMax + 1) + " WHERE object = 'second'"});
  ASSERT_TRUE(ledger->Record(ChangeOf("third", 3)));
  EXPECT_EQ(Objects(*ledger, kEver), std::vector<std::string>({"third", "second"}));
  // And those that are older than the days that are kept.
  const auto brief = Open({hours(1), hours(1), hours(1), hours(24)});
  ASSERT_TRUE(brief->Trim(At(2) + hours(24) + std::chrono::milliseconds(1)));
  EXPECT_EQ(Objects(*brief, kEver), std::vector<std::string>({"third"}));
}

TEST_P(LedgerTest, ALedgerOfBeforeTheseTablesGetsThem) {
  { ASSERT_TRUE(Open()); }
  std::vector<std::string> statements = {"DROP TABLE changes",
                                         "DROP TABLE settings",
                                         "DELETE FROM meta WHERE name = 'extra'",
                                         "ALTER TABLE gpus DROP COLUMN counted_j",
                                         "ALTER TABLE meters DROP COLUMN energy_j",
                                         "ALTER TABLE meters DROP COLUMN uncontended_ns"};
  for (const char* level : {"fine", "minutes", "hours", "days"}) {
    statements.push_back(std::string("ALTER TABLE use_") + level + " DROP COLUMN uncontended_ns");
    for (const char* what : {"use_", "gpu_"}) {
      statements.push_back(std::string("ALTER TABLE ") + what + level + " DROP COLUMN energy_j");
    }
  }
  for (const char* table :
       {"use_fine", "gpu_fine", "use_minutes", "gpu_minutes", "use_hours", "gpu_hours"}) {
    statements.push_back(std::string("DROP TABLE IF EXISTS packed_") + table);
  }
  Sql(statements);
  const auto ledger = Open();
  ASSERT_TRUE(ledger->Record(ChangeOf("a", 1)));
  EXPECT_EQ(Objects(*ledger, kEver).size(), 1u);
}

}  // namespace
}  // namespace baton::ledger
