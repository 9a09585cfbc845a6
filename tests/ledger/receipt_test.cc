// What a receipt says a pod was guaranteed and got, and why less: its figures are the report's, and
// add up to the nanosecond.
#include "ledger/receipt.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "ledger/report.h"
#include "ledger/terms.h"
#include "tests/ledger/books.h"

namespace baton::ledger {
namespace {

using nlohmann::json;
using std::chrono::hours;
using std::chrono::minutes;

constexpr double kHourOfNs = 3600e9;
const std::string kReasonNames[] = {"no_work_hours", "outage_hours",        "overcommit_hours",
                                    "limit_hours",   "high_priority_hours", "unattributed_hours",
                                    "others_hours",  "unknown_hours"};

int64_t NsOf(const json& value) { return std::llround(value.get<double>() * kHourOfNs); }

// A node's books, filled hour by hour: what each pod did of each of these is said in hours.
struct DidOf {
  double held = 0, waited = 0, busy = 0;
};
class Node {
 public:
  using On = std::pair<uint64_t, std::string>;  // pod, GPU
  Node(Ledger& ledger, WallTime since, std::vector<std::string> gpus)
      : ledger_(ledger), source_(NewSource()), now_(since), gpus_(std::move(gpus)) {
    Begin(ledger, source_, since, gpus_);
  }
  void Own(uint64_t pod, const std::string& name, const std::string& team,
           const std::string& name_space = "") {
    owners_[pod] = {name, name_space, team, "someone"};
  }
  // `idle`: hours of each GPU.
  void Pass(std::chrono::milliseconds time, const std::map<On, DidOf>& did, double idle = 0) {
    now_ += time;
    Batch batch = MakeBatch(source_, ++seq_, now_);
    const auto ns = [](double h) { return static_cast<int64_t>(h * kHourOfNs); };
    energy_j_ += 1'500'000;
    for (const std::string& gpu : gpus_) {
      AddGpu(batch, gpu, Duration(ns(idle)));
      batch.gpus.back().energy_j = energy_j_;
    }
    for (const auto& [on, one] : did) {
      Counters& total = totals_[on];
      total.held_ns += ns(one.held);
      total.waited_ns += ns(one.waited);
      total.busy_ns += ns(one.busy == 0 ? one.held / 2 : one.busy);
      total.memory_mib_ms += 1024LL * time.count();
      total.grants += one.held > 0 ? 1 : 0;
      total.energy_j += static_cast<int64_t>(1'000'000 * one.held);
      Sample& sample = AddSample(batch, on.first, on.second, 0, owners_.at(on.first));
      sample.total = total;
      sample.memory_peak_mib = 512 * static_cast<int64_t>(on.first);
    }
    Apply(ledger_, batch);
  }
  WallTime now() const { return now_; }

 private:
  Ledger& ledger_;
  const std::string source_;
  WallTime now_;
  std::vector<std::string> gpus_;
  int64_t energy_j_ = 0;
  uint64_t seq_ = 1;
  std::map<uint64_t, Owner> owners_;
  std::map<On, Counters> totals_;
};

Term Asks(const std::string& pod, const std::string& team, double request,
          std::vector<std::string> gpus, std::optional<WallTime> from = {},
          std::optional<WallTime> to = {}) {
  Term term;
  term.pod = term.name = pod;
  term.team = team;
  term.request = std::llround(request * 1e6);
  term.gpus = std::move(gpus);
  term.from = from;
  term.to = to;
  term.present = !to;
  return term;
}

Question OfPod(const std::string& pod, WallTime from, WallTime to, By by = By::kDay) {
  Question question{{from, to}, {by}};
  question.pod = pod;
  return question;
}

Change Changed(int64_t second, const std::string& action, const std::string& pod, const json& was,
               const json& is) {
  const auto text = [](const json& object) { return object.is_null() ? "" : object.dump(); };
  return {At(second), "node", "alice", action, "pod", pod, text(was), text(is)};
}

class Receipts : public LedgerTest {
 protected:
  // Made, and checked: all that must hold of every receipt.
  json Make(Ledger& ledger, const Question& question, const std::vector<Term>& terms,
            const Prices& prices = {{"", 2}}) {
    const auto uses = ledger.Query(question);
    const auto steps = ledger.Steps(question);
    Question whole = question;
    whole.by = {By::kTotal};
    const auto total = ledger.Query(whole);
    EXPECT_TRUE(uses && steps && total);
    const EnergyFactors factors{.price = 0.3, .carbon_g = 400};
    const auto receipt =
        ReceiptJson(question, *uses, *total, *steps, terms, prices, "EUR", factors);
    EXPECT_TRUE(receipt) << receipt.error().message;
    if (!receipt) return json();
    const json report = ReportJson(*total, whole, prices, "EUR", factors);
    const json rows = ReportJson(*uses, question, prices, "EUR", factors).at("rows");
    CheckSums(*receipt, report, rows);
    return *receipt;
  }

  static void CheckSums(const json& receipt, const json& report, const json& rows) {
    const json& total = receipt.at("total");
    std::map<std::string, int64_t> sums;
    double cost = 0, energy_cost = 0;
    const auto check = [](const json& line) {
      int64_t less = 0;
      for (const std::string& reason : kReasonNames) {
        EXPECT_GE(line.at("less").at(reason).get<double>(), 0) << reason;
        less += NsOf(line.at("less").at(reason));
      }
      EXPECT_EQ(NsOf(line.at("got_hours")) + less, NsOf(line.at("guaranteed_hours"))) << line;
      EXPECT_EQ(NsOf(line.at("got_hours")) + NsOf(line.at("beyond_hours")),
                NsOf(line.at("held_hours")))
          << line;
    };
    check(total);
    for (const json& line : receipt.at("lines")) {
      check(line);
      for (const char* field : {"pod_hours", "guaranteed_hours", "got_hours", "beyond_hours",
                                "held_hours", "busy_hours", "waited_hours", "unmanaged_hours"}) {
        sums[field] += NsOf(line.at(field));
      }
      for (const std::string& reason : kReasonNames)
        sums[reason] += NsOf(line.at("less").at(reason));
      cost += line.value("cost", 0.0);
      energy_cost += line.value("energy_cost", 0.0);
    }
    for (const auto& [field, sum] : sums) {
      const json& of = total.at("less").contains(field) ? total.at("less") : total;
      EXPECT_EQ(sum, NsOf(of.at(field))) << field;
    }
    EXPECT_NEAR(cost, total.value("cost", 0.0), 1e-9);
    EXPECT_NEAR(energy_cost, total.value("energy_cost", 0.0), 1e-9);
    // And they are the report's: line by line, but for lines of which it knows nothing.
    for (const json& row : report.at("rows")) {
      for (const auto& [field, value] : row.items()) {
        if (field == "key") continue;
        EXPECT_EQ(value, total.at(field)) << field;
      }
    }
    size_t found = 0;
    for (const json& line : receipt.at("lines")) {
      for (const json& row : rows) {
        if (row.at("key") != line.at("key") || row.value("team", "") != line.value("team", "")) {
          continue;
        }
        ++found;
        for (const auto& [field, value] : row.items()) EXPECT_EQ(value, line.at(field)) << field;
      }
    }
    EXPECT_EQ(found, rows.size());
  }

  // Of the total, in hours.
  static double Total(const json& receipt, const std::string& field) {
    const json& total = receipt.at("total");
    return (total.at("less").contains(field) ? total.at("less") : total).at(field).get<double>();
  }
};

TEST_P(Receipts, SayWhatWasGuaranteedWhereTheRequestChangedAtNoon) {
  const auto ledger = Open();
  Node node(*ledger, At(0), {"GPU-a"});
  node.Own(1, "train", "research");
  for (int hour = 0; hour < 24; ++hour) node.Pass(hours(1), {{{1, "GPU-a"}, {0.5, 0.5}}});
  // The change is in the middle of an hour, so of a step too.
  const WallTime noon = At(12 * 3600 + 1800);
  const json receipt = Make(*ledger, OfPod("train", At(0), At(2 * 86400)),
                            {Asks("train", "research", 0.3, {"GPU-a"}, At(0), noon),
                             Asks("train", "research", 0.6, {"GPU-a"}, noon)});
  EXPECT_DOUBLE_EQ(Total(receipt, "guaranteed_hours"), 12.5 * 0.3 + 11.5 * 0.6);
  EXPECT_DOUBLE_EQ(Total(receipt, "pod_hours"), 24) << "what comes later is not known yet";
  // Half of each hour was held: more than 30 %, less than 60 %.
  EXPECT_DOUBLE_EQ(Total(receipt, "got_hours"), 12 * 0.3 + 0.45 + 11 * 0.5);
  EXPECT_DOUBLE_EQ(Total(receipt, "no_work_hours"), 0);
  EXPECT_DOUBLE_EQ(Total(receipt, "unattributed_hours"), 11 * 0.1) << "it waited, and nobody held";
  ASSERT_EQ(receipt.at("asked").size(), 2u);
  EXPECT_EQ(receipt.at("asked")[0].at("request"), 30);
  EXPECT_EQ(receipt.at("asked")[1].at("request"), 60);
  EXPECT_EQ(receipt.at("asked")[1].at("from"), "2026-11-16T12:30:00Z");
  EXPECT_EQ(receipt.at("total").at("memory_peak_gib"), 0.5);
}

TEST_P(Receipts, GuaranteeTheHoursThatADayHasWhereTheClocksChange) {
  const auto ledger = Open();
  const TimeZone berlin = *FindTimeZone("Europe/Berlin");
  for (const auto& [day, length] :
       std::map<std::string, int>{{"2026-03-29", 23}, {"2026-10-25", 25}}) {
    const WallTime from = *ParseTime(day, berlin);
    const std::string gpu = "GPU-" + day;
    Node node(*ledger, from - hours(24), {gpu});
    node.Own(1, "of-" + day, "research");
    for (int hour = 0; hour < 24 + length + 24; ++hour) {
      node.Pass(hours(1), {{{1, gpu}, {0.25, 0}}}, 0.75);
    }
    Question question = OfPod("of-" + day, from - hours(24), from + hours(length + 24));
    question.zone = berlin;
    const json receipt = Make(*ledger, question, {Asks("of-" + day, "research", 0.5, {gpu})});
    ASSERT_EQ(receipt.at("lines").size(), 3u);
    const json& line = receipt.at("lines")[1];
    EXPECT_EQ(line.at("key"), day);
    EXPECT_DOUBLE_EQ(line.at("pod_hours"), length);
    EXPECT_DOUBLE_EQ(line.at("guaranteed_hours"), length * 0.5);
    EXPECT_DOUBLE_EQ(line.at("held_hours"), length * 0.25);
    EXPECT_DOUBLE_EQ(line.at("less").at("no_work_hours"), length * 0.25);
  }
}

TEST_P(Receipts, FollowAPodThatMovedToAnotherGpu) {
  const auto ledger = Open();
  Node node(*ledger, At(0), {"GPU-a", "GPU-b"});
  node.Own(1, "train", "research");
  for (int hour = 0; hour < 10; ++hour) {
    node.Pass(hours(1), {{{1, hour < 4 ? "GPU-a" : "GPU-b"}, {hour < 4 ? 0.2 : 0.4, 0}}}, 0.6);
  }
  const std::vector<Term> terms = {Asks("train", "research", 0.5, {"GPU-a"}, At(0), At(4 * 3600)),
                                   Asks("train", "research", 0.5, {"GPU-b"}, At(4 * 3600))};
  const json receipt = Make(*ledger, OfPod("train", At(0), At(10 * 3600), By::kGpu), terms);
  EXPECT_DOUBLE_EQ(Total(receipt, "guaranteed_hours"), 5) << "it was on one GPU at a time";
  ASSERT_EQ(receipt.at("lines").size(), 2u);
  EXPECT_EQ(receipt.at("lines")[0].at("key"), "GPU-a");
  EXPECT_DOUBLE_EQ(receipt.at("lines")[0].at("guaranteed_hours"), 2);
  EXPECT_DOUBLE_EQ(receipt.at("lines")[0].at("held_hours"), 0.8);
  EXPECT_DOUBLE_EQ(receipt.at("lines")[1].at("guaranteed_hours"), 3);
  EXPECT_DOUBLE_EQ(receipt.at("lines")[1].at("less").at("no_work_hours"), 0.6);
}

TEST_P(Receipts, OfATeamHaveItsPodsOnAllNodes) {
  const auto ledger = Open();
  Node one(*ledger, At(0), {"GPU-a"}), two(*ledger, At(0), {"GPU-b"});
  one.Own(1, "train", "research/vision");
  one.Own(2, "other", "sales");
  two.Own(1, "eval", "research");
  for (int hour = 0; hour < 6; ++hour) {
    one.Pass(hours(1), {{{1, "GPU-a"}, {0.5, 0.5}}, {{2, "GPU-a"}, {0.5, 0.5}}});
    two.Pass(hours(1), {{{1, "GPU-b"}, {0.1, 0}}}, 0.9);
  }
  Question question{{At(0), At(6 * 3600)}, {By::kPod}};
  question.team = "research";
  const json receipt = Make(
      *ledger, question,
      {Asks("eval", "research", 0.2, {"GPU-b"}), Asks("idle", "research", 0.4, {"GPU-b"}, At(3600)),
       Asks("other", "sales", 0.5, {"GPU-a"}), Asks("train", "research/vision", 0.5, {"GPU-a"})});
  ASSERT_EQ(receipt.at("lines").size(), 3u) << receipt.at("lines");
  EXPECT_EQ(receipt.at("lines")[0].at("key"), "eval");
  EXPECT_DOUBLE_EQ(receipt.at("lines")[0].at("guaranteed_hours"), 1.2);
  // A pod that used nothing was guaranteed its part all the same.
  EXPECT_EQ(receipt.at("lines")[1].at("key"), "idle");
  EXPECT_DOUBLE_EQ(receipt.at("lines")[1].at("held_hours"), 0);
  EXPECT_DOUBLE_EQ(receipt.at("lines")[1].at("less").at("no_work_hours"), 2);
  EXPECT_EQ(receipt.at("lines")[2].at("key"), "train");
  EXPECT_EQ(receipt.at("lines")[2].at("team"), "research/vision");
  EXPECT_DOUBLE_EQ(receipt.at("lines")[2].at("got_hours"), 3);
  EXPECT_DOUBLE_EQ(Total(receipt, "held_hours"), 3.6);
  EXPECT_DOUBLE_EQ(Total(receipt, "cost"), 7.2);
  EXPECT_EQ(receipt.at("asked").size(), 3u);
}

// One hour of a pod that asks for half of the GPU, beside another.
class Reasons : public Receipts {
 protected:
  void Hour(DidOf mine, DidOf other, Term of_mine, Term of_other, double idle = 0,
            std::chrono::milliseconds time = hours(1)) {
    const auto ledger = Open();
    Node node(*ledger, At(0), {"GPU-a"});
    node.Own(1, "train", "");
    node.Own(2, "other", "");
    node.Pass(time, {{{1, "GPU-a"}, mine}, {{2, "GPU-a"}, other}}, idle);
    receipt_ = Make(*ledger, OfPod("train", At(0), At(86400)), {of_other, of_mine});
  }
  // All of what was missing has this reason.
  void Expect(const std::string& reason, double hours) {
    for (const std::string& one : kReasonNames) {
      EXPECT_NEAR(Total(receipt_, one), one == reason ? hours : 0, 1e-9) << one;
    }
  }
  const Term mine_ = Asks("train", "", 0.5, {"GPU-a"});
  const Term other_ = Asks("other", "", 0.5, {"GPU-a"});
  json receipt_;
};

TEST_P(Reasons, ItHadNoWork) {
  Hour({0.2, 0.2}, {0.4, 0.2}, mine_, other_, 0.4);
  Expect("no_work_hours", 0.3);
}
TEST_P(Reasons, TheGpuWasNotThere) {
  // Two batches that are two hours apart: nobody knows that it was there, but for what was held.
  Hour({0.5, 0.1}, {0.5, 0}, mine_, other_, 0, hours(2));
  Expect("outage_hours", 0.5);
}
TEST_P(Reasons, TheDaemonWasNotThere) {
  // For half an hour the GPU was neither held nor seen idle, and nobody waited.
  Hour({0.25, 0}, {0.25, 0}, mine_, other_, 0);
  Expect("outage_hours", 0.25);
}
TEST_P(Reasons, RequestsWereMoreThanTheGpu) {
  Term most = other_;
  most.request = 750'000;
  Hour({0.4, 0.6}, {0.6, 0.4}, mine_, most);
  Expect("overcommit_hours", 0.1);
}
TEST_P(Reasons, RequestsOneAfterTheOtherAreNotMoreThanTheGpu) {
  Term first = mine_, second = other_;
  first.request = second.request = 900'000;
  first.to = second.from = At(30);  // in the middle of a step
  const DidOf did{24 / 3600.0, 6 / 3600.0};
  Hour(did, did, first, second, 0, minutes(1));
  Expect("unattributed_hours", 3 / 3600.0);
}
TEST_P(Reasons, ItWasAtItsLimit) {
  Term strict = mine_;
  strict.limit = strict.request;
  Hour({0.45, 0.55}, {0, 0}, strict, other_);
  Expect("limit_hours", 0.05);
}
TEST_P(Reasons, PodsOfHighPriorityWentFirst) {
  Term high = other_;
  high.priority = "high";
  Hour({0.45, 0.55}, {0.55, 0.45}, mine_, high);
  Expect("high_priority_hours", 0.05);
}
TEST_P(Reasons, NobodyHeldTheGpu) {
  Hour({0.45, 0.55}, {0.45, 0.55}, mine_, other_);
  Expect("unattributed_hours", 0.05);
}
TEST_P(Reasons, OtherPodsHeldTheGpu) {
  Hour({0.45, 0.55}, {0.55, 0.45}, mine_, other_);
  Expect("others_hours", 0.05);
}
TEST_P(Reasons, NobodyKnowsWhatItWouldHaveHeldWithoutTokens) {
  Hour({0, 0, 0.3}, {0, 0, 0.3}, mine_, other_, 1);
  Expect("unknown_hours", 0.5);
}
INSTANTIATE_TEST_SUITE_P(Sqlite, Reasons, testing::Values("sqlite"));

TEST_P(Receipts, CountNothingAsGuaranteedWhereNobodyKnowsTheRequest) {
  const auto ledger = Open();
  Node node(*ledger, At(0), {"GPU-a"});
  node.Own(1, "train", "");
  node.Pass(hours(1), {{{1, "GPU-a"}, {0.5, 0.5}}});
  const json receipt = Make(*ledger, OfPod("train", At(0), At(86400)), {});
  EXPECT_DOUBLE_EQ(Total(receipt, "guaranteed_hours"), 0);
  EXPECT_DOUBLE_EQ(Total(receipt, "beyond_hours"), 0.5);
  ASSERT_EQ(receipt.at("notes").size(), 1u);
  EXPECT_NE(receipt.at("notes")[0].get<std::string>().find("nothing is known of what train asked"),
            std::string::npos);
}

TEST_P(Receipts, OfVeryManyPodsAreReckonedByTheDay) {
  const auto ledger = Open();
  Node node(*ledger, At(0), {"GPU-a"});
  node.Own(1, "train", "");
  for (int hour = 0; hour < 48; ++hour) {
    node.Pass(hours(1), {{{1, "GPU-a"}, {hour % 2 == 0 ? 0.8 : 0, 0}}}, hour % 2 == 0 ? 0.2 : 1);
  }
  const Question question = OfPod("train", At(0), At(2 * 86400));
  const std::vector<Term> terms = {Asks("train", "", 0.4, {"GPU-a"})};
  EXPECT_DOUBLE_EQ(Total(Make(*ledger, question, terms), "got_hours"), 24 * 0.4);
  const auto by_day = ledger->Steps(question, 10), none = ledger->Steps(question, 1);
  ASSERT_TRUE(by_day);
  EXPECT_EQ(by_day->steps.size(), 2u);
  Question whole = question;
  whole.by = {By::kTotal};
  const auto receipt = ReceiptJson(question, *ledger->Query(question), *ledger->Query(whole),
                                   *by_day, terms, {}, "EUR");
  ASSERT_TRUE(receipt);
  EXPECT_EQ(receipt->at("step_s"), 86400);
  EXPECT_DOUBLE_EQ(Total(*receipt, "got_hours"), 48 * 0.4) << "what it held in its good hours";
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kExhausted);
}

TEST_P(Receipts, AreNotMadeOfTwoStatesOfTheLedger) {
  const auto ledger = Open();
  Node node(*ledger, At(0), {"GPU-a"});
  node.Own(1, "train", "");
  node.Pass(hours(1), {{{1, "GPU-a"}, {0.5, 0.5}}});
  const Question question = OfPod("train", At(0), At(86400));
  Question whole = question;
  whole.by = {By::kTotal};
  const auto uses = ledger->Query(question), total = ledger->Query(whole);
  const auto steps = ledger->Steps(question);
  ASSERT_TRUE(ReceiptJson(question, *uses, *total, *steps, {}, {}, "EUR"));
  node.Pass(hours(1), {{{1, "GPU-a"}, {0, 0.5}}});
  const auto later = ledger->Query(question), later_total = ledger->Query(whole);
  const auto later_steps = ledger->Steps(question);
  for (const auto& receipt : {ReceiptJson(question, *later, *total, *steps, {}, {}, "EUR"),
                              ReceiptJson(question, *uses, *later_total, *steps, {}, {}, "EUR"),
                              ReceiptJson(question, *uses, *total, *later_steps, {}, {}, "EUR")}) {
    ASSERT_FALSE(receipt);
    EXPECT_EQ(receipt.error().code, ErrorCode::kUnavailable);
  }
}

// A cost of 0 has a currency too.
TEST_P(Receipts, OfAPodThatUsedNothingSayTheCurrency) {
  const auto ledger = Open();
  const json receipt = Make(*ledger, OfPod("train", At(0), At(3600)),
                            {Asks("train", "research", 0.3, {"GPU-a"}, At(0))});
  EXPECT_TRUE(receipt.at("lines").empty());
  EXPECT_EQ(receipt.at("total").at("cost"), 0.0);
  EXPECT_EQ(receipt.value("currency", ""), "EUR");
}

// Whoever bills by a month that is not over, or whose last batch has not come, is told.
TEST_P(Receipts, SayWhereNotAllOfTheTimeIsRecordedYet) {
  const auto ledger = Open();
  Node node(*ledger, At(0), {"GPU-a"});
  node.Own(1, "train", "research");
  for (int hour = 0; hour < 6; ++hour) node.Pass(hours(1), {{{1, "GPU-a"}, {.held = 0.5}}});
  const auto notes = [&](std::optional<WallTime> gone, WallTime to, bool ends) {
    const Question question = OfPod("train", At(0), to);
    Question whole = question;
    whole.by = {By::kTotal};
    return ReceiptJson(
               question, *ledger->Query(question), *ledger->Query(whole), *ledger->Steps(question),
               {Asks("train", "research", 0.3, {"GPU-a"}, At(0), gone)}, {}, "EUR", {}, ends)
        ->at("notes");
  };
  const json missing = notes({}, At(8 * 3600), true);
  ASSERT_EQ(missing.size(), 1u);
  EXPECT_NE(missing[0].get<std::string>().find("after " + FormatTime(At(6 * 3600)) + " is missing"),
            std::string::npos)
      << missing;
  EXPECT_EQ(notes(At(7 * 3600), At(8 * 3600), true), missing) << "it was deleted after that";
  EXPECT_TRUE(notes({}, At(8 * 3600), false).empty()) << "up to now";
  EXPECT_TRUE(notes({}, At(6 * 3600), true).empty());
  EXPECT_EQ(notes(At(5 * 3600), At(8 * 3600), true).dump().find("missing"), std::string::npos)
      << "it was gone before that";
}

// A user may call a pod "x/train", which is not pod train of namespace x.
TEST_P(Receipts, OfAPodHaveNothingOfOneWhoseNameEndsAlike) {
  const auto ledger = Open();
  Node node(*ledger, At(0), {"GPU-a"});
  node.Own(1, "train", "research");
  node.Own(2, "x/train", "other");
  node.Own(3, "train", "research", "x");
  const auto terms = TermsOf(
      {Changed(60, "create", "x/train", nullptr,
               {{"request", 10.0}, {"team", "research"}, {"namespace", "x"}, {"gpus", {"GPU-a"}}}),
       Changed(0, "create", "x/train", nullptr,
               {{"request", 30.0}, {"team", "other"}, {"gpus", {"GPU-a"}}}),
       Changed(0, "create", "train", nullptr,
               {{"request", 20.0}, {"team", "research"}, {"gpus", {"GPU-a"}}})},
      {}, "node");
  const auto of_train = [](const Term& term) { return term.name == "train"; };
  EXPECT_EQ(std::count_if(terms.begin(), terms.end(), of_train), 2);
  // Of "x/train" nothing is booked yet, then something.
  for (const double held : {0.0, 0.25}) {
    for (int hour = 0; hour < 2; ++hour) {
      std::map<Node::On, DidOf> did{{{1, "GPU-a"}, {.held = 0.25}}, {{3, "GPU-a"}, {.held = 0.25}}};
      if (held > 0) did[{2, "GPU-a"}] = {.held = held};
      node.Pass(hours(1), did);
    }
    const json receipt = Make(*ledger, OfPod("train", At(0), At(86400)), terms);
    ASSERT_FALSE(receipt.is_null());
    EXPECT_EQ(receipt.at("asked").size(), 2u);
    for (const json& asked : receipt.at("asked")) EXPECT_EQ(asked.at("team"), "research");
  }
  const json other = Make(*ledger, OfPod("x/train", At(0), At(86400), By::kPod), terms);
  EXPECT_EQ(other.at("asked").size(), 2u) << "both may be meant";
}

// Drawn pods on drawn GPUs, whose requests come, change and go at any moment; windows with edges at
// any moment, in zones whose clocks change meanwhile.
TEST_P(Receipts, OfDrawnPodsAddUpToTheReport) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 draw(seed);
  const auto upto = [&](int n) { return static_cast<int>(draw() % static_cast<unsigned>(n)); };
  const auto ledger = Open();
  const std::vector<std::string> gpus = {"GPU-a", "GPU-b"};
  const WallTime begin = *ParseTime(upto(2) == 0 ? "2026-03-27" : "2026-10-23");
  Node node(*ledger, begin, gpus);
  std::vector<Term> terms;
  for (uint64_t pod = 1; pod <= 4; ++pod) {
    const std::string name = "pod-" + std::to_string(pod);
    const std::string team = pod % 2 == 0 ? "research" : "research/vision";
    node.Own(pod, name, team);
    WallTime at = begin + minutes(upto(600));
    for (int i = 0; i < 4; ++i) {
      const WallTime next = at + std::chrono::milliseconds(upto(80'000'000));
      Term term = Asks(name, team, 0.1 * upto(8), {gpus[static_cast<size_t>(upto(2))]}, at, next);
      if (upto(3) == 0) term.priority = "high";
      if (upto(3) == 0) term.limit = term.request;
      if (i == 3) term.to.reset(), term.present = true;
      terms.push_back(term);
      at = upto(3) == 0 ? next + hours(3) : next;
    }
  }
  while (node.now() < begin + hours(96)) {
    std::map<Node::On, DidOf> did;
    const auto time = minutes(upto(20) == 0 ? 150 : 1 + upto(90));
    const double hour = static_cast<double>(time.count()) / 60;
    for (uint64_t pod = 1; pod <= 4; ++pod) {
      for (const std::string& gpu : gpus) {
        if (upto(2) == 0) did[{pod, gpu}] = {hour * upto(100) / 400, hour * upto(100) / 400, 0};
      }
    }
    node.Pass(time, did, hour * upto(100) / 400);
  }
  const Prices prices = {{"", 1.25}};
  for (const char* zone : {"", "Europe/Berlin", "Asia/Kolkata"}) {
    for (const By by : {By::kDay, By::kMonth, By::kPod, By::kGpu}) {
      const WallTime from = begin + minutes(upto(3000)), to = from + minutes(1 + upto(4000));
      Question question{{from, to}, {by}};
      question.zone = *FindTimeZone(zone);
      (upto(2) == 0 ? question.team : question.pod) = upto(2) == 0 ? "research" : "pod-1";
      Make(*ledger, question, terms, prices);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Sqlite, Receipts, testing::Values("sqlite"));
INSTANTIATE_TEST_SUITE_P(Postgres, Receipts, testing::Values("postgres"));

TEST(Terms, AreWhatThePodAskedForFromChangeToChange) {
  const json first = {
      {"request", 30.0}, {"limit", 100.0}, {"priority", "low"}, {"gpus", {"GPU-a"}}};
  json second = first, moved = first;
  second["request"] = moved["request"] = 40.5;
  second["memory"] = "25%";
  moved["gpus"] = {"GPU-b"};
  // As the ledger gives them: the newest first.
  const std::vector<Change> changes = {Changed(400, "create", "train", nullptr, first),
                                       Changed(300, "delete", "train", moved, nullptr),
                                       Changed(200, "move", "train", second, moved),
                                       Changed(100, "set", "train", first, second),
                                       Changed(100, "cordon", "other", nullptr, nullptr)};
  const auto terms = TermsOf(changes, {{"train", first.dump()}}, "node");
  ASSERT_EQ(terms.size(), 4u);
  EXPECT_FALSE(terms[0].from) << "it was there before the log";
  EXPECT_EQ(terms[0].to, At(100));
  EXPECT_EQ(terms[0].request, 300'000);
  EXPECT_EQ(terms[0].priority, "normal");
  EXPECT_EQ(terms[1].from, At(100));
  EXPECT_EQ(terms[1].request, 405'000);
  EXPECT_EQ(terms[1].memory, "25%");
  EXPECT_EQ(terms[1].who, "alice");
  EXPECT_EQ(terms[2].gpus, std::vector<std::string>{"GPU-b"});
  EXPECT_EQ(terms[2].to, At(300)) << "it was deleted";
  EXPECT_EQ(terms[3].from, At(400));
  EXPECT_FALSE(terms[3].to);
  EXPECT_TRUE(terms[3].present);
  EXPECT_FALSE(TermsOf(changes, {}, "node").back().present);
}

TEST(Terms, OfAFileArePlacedWhereThePodIs) {
  const json before = {
      {"request", 30.0}, {"gpus", {"0"}}, {"namespace", "lab"}, {"priority", "idle"}};
  json after = before;
  after["priority"] = "high";
  const json now = {{"request", 30.0}, {"gpus", {"GPU-a"}}, {"team", "/r//v/"}};
  const auto terms =
      TermsOf({Changed(100, "configure", "web", before, after)}, {{"lab/web", now.dump()}}, "node");
  ASSERT_EQ(terms.size(), 2u);
  EXPECT_EQ(terms[0].pod, "lab/web");
  EXPECT_EQ(terms[0].request, 0) << "a pod of idle priority has no request";
  EXPECT_EQ(terms[1].priority, "high");
  EXPECT_EQ(terms[0].gpus, std::vector<std::string>{"GPU-a"});
  EXPECT_EQ(terms[1].gpus, std::vector<std::string>{"GPU-a"});
  // A pod that nobody changed is as it is now.
  const auto same = TermsOf({}, {{"lab/web", now.dump()}, {"broken", "{"}}, "node");
  ASSERT_EQ(same.size(), 1u);
  EXPECT_EQ(same[0].team, "r/v");
  EXPECT_FALSE(same[0].from);
}

// Daemons that write into one database each have pods of their own.
TEST(Terms, OfPodsOfOneNameOnTwoNodesAreApart) {
  const auto on = [](double request, const std::string& gpu) {
    return json{{"request", request}, {"gpus", {gpu}}};
  };
  const auto of = [](Change change, const std::string& node) {
    change.node = node;
    return change;
  };
  const json a = on(50, "GPU-a"), b = on(20, "GPU-b");
  std::vector<Change> changes = {of(Changed(300, "delete", "train", b, nullptr), "n2"),
                                 of(Changed(200, "create", "train", nullptr, b), "n2"),
                                 of(Changed(100, "create", "train", nullptr, a), "n1")};
  const auto terms = TermsOf(changes, {{"train", a.dump()}}, "n1");
  ASSERT_EQ(terms.size(), 2u);
  EXPECT_EQ(terms[0].request, 500'000);
  EXPECT_EQ(terms[0].from, At(100));
  EXPECT_FALSE(terms[0].to);
  EXPECT_TRUE(terms[0].present);
  EXPECT_EQ(terms[1].from, At(200));
  EXPECT_EQ(terms[1].to, At(300));
  EXPECT_EQ(terms[1].request, 200'000);
  // Asked on the other node: there is none there now, and of n1's pod it is not known until when.
  const auto there = TermsOf(changes, {}, "n2");
  EXPECT_FALSE(there[0].present);
  EXPECT_EQ(there[1].to, At(300));
  // A node that was renamed has its pod's GPUs.
  changes.insert(changes.begin(), of(Changed(400, "delete", "train", a, nullptr), "n1-new"));
  const auto renamed = TermsOf(changes, {}, "n1-new");
  ASSERT_EQ(renamed.size(), 2u);
  EXPECT_EQ(renamed[0].to, At(400));
  const auto now = TermsOf({changes.back()}, {{"train", a.dump()}}, "n1-new");
  ASSERT_EQ(now.size(), 1u);
  EXPECT_TRUE(now[0].present);
}

// Whichever is written down first.
TEST(Terms, AnEntryOfAFileAndItsMakingAreOne) {
  const json entry = {{"request", 30.0}, {"gpus", {"0"}}};
  const json pod = {{"request", 30.0}, {"gpus", {"GPU-a"}}, {"memory", "50%"}};
  for (const bool entry_first : {true, false}) {
    Change listed = Changed(entry_first ? 100 : 101, "configure", "web", nullptr, entry);
    Change made = Changed(entry_first ? 101 : 100, "create", "web", nullptr, pod);
    listed.who = made.who = kConfiguration;
    std::vector<Change> changes = {Changed(300, "delete", "web", pod, nullptr), listed, made};
    if (entry_first) std::swap(changes[1], changes[2]);
    const auto terms = TermsOf(changes, {}, "node");
    ASSERT_EQ(terms.size(), 1u) << entry_first;
    EXPECT_EQ(terms[0].from, At(100));
    EXPECT_EQ(terms[0].to, At(300));
    EXPECT_EQ(terms[0].memory, "50%");
    EXPECT_EQ(terms[0].gpus, std::vector<std::string>{"GPU-a"});
  }
}

}  // namespace
}  // namespace baton::ledger
