// Energy in the books: what pods took and what was left adds up to what the GPUs took.
#include <nlohmann/json.hpp>

#include "ledger/report.h"
#include "tests/ledger/books.h"

namespace baton::ledger {
namespace {

using nlohmann::json;

// Two GPUs, of which one is measured. Its counter goes on while nobody holds.
class EnergyBooks : public LedgerTest {
 protected:
  void Book(Ledger& ledger, int64_t second, std::vector<int64_t> pods_j, int64_t gpu_j) {
    Batch batch = MakeBatch(source_, ++seq_, At(second));
    AddGpu(batch, "GPU-a");
    batch.gpus.back().energy_j = gpu_j;
    AddGpu(batch, "GPU-b");
    for (size_t i = 0; i < pods_j.size(); ++i) {
      const std::string number = std::to_string(i);
      Sample& sample = AddSample(batch, i + 1, "GPU-a", second * kSecond / 4,
                                 {"pod-" + number, "", "team-" + number, ""});
      sample.total.energy_j = pods_j[i];
      sample.total.uncontended_ns = gpu_j == 0 ? 0 : second * kSecond / 8;
    }
    Apply(ledger, batch);
  }
  // The same as a batond of an earlier version says it.
  void BookWithout(Ledger& ledger, int64_t second) { Book(ledger, second, {0, 0}, 0); }
  json Report(Ledger& ledger, Question question, const EnergyFactors& factors = {}) {
    const auto uses = ledger.Query(question);
    EXPECT_TRUE(uses) << uses.error().message;
    return uses ? ReportJson(*uses, question, {}, "EUR", factors) : json();
  }
  const std::string& source() const { return source_; }
  const Window all_{At(0), At(86'400)};

 private:
  const std::string source_ = NewSource();
  uint64_t seq_ = 0;
};

TEST_P(EnergyBooks, PodsAndWhatIsLeftAddUpToWhatTheGpuTook) {
  const auto ledger = Open();
  Book(*ledger, 0, {0, 0}, 50'000);  // before the books
  Book(*ledger, 10, {1'000, 501}, 52'001);
  Book(*ledger, 3'605, {400'003, 100'007}, 650'011);
  const json report = Report(*ledger, {all_, {By::kPod}}, {.price = 0.5, .carbon_g = 400});
  const auto kwh = [](double joules) { return joules / 3.6e6; };
  EXPECT_DOUBLE_EQ(report.at("energy_kwh"), kwh(500'010));
  EXPECT_DOUBLE_EQ(report.at("idle_energy_kwh"), kwh(600'011 - 500'010));
  EXPECT_DOUBLE_EQ(report.at("energy_cost"), kwh(500'010) * 0.5);
  EXPECT_DOUBLE_EQ(report.at("idle_carbon_kg"), kwh(100'001) * 0.4);
  EXPECT_EQ(report.at("currency"), "EUR");
  EXPECT_FALSE(report.contains("cost"));
  ASSERT_EQ(report.at("rows").size(), 2u);
  EXPECT_DOUBLE_EQ(report.at("rows")[0].at("energy_kwh"), kwh(400'003));
  EXPECT_DOUBLE_EQ(report.at("rows")[1].at("carbon_kg"), kwh(100'007) * 0.4);
  EXPECT_FALSE(report.at("rows")[1].contains("idle_energy_kwh"));

  const json by_gpu = Report(*ledger, {all_, {By::kGpu}});
  ASSERT_EQ(by_gpu.at("rows").size(), 2u);
  EXPECT_DOUBLE_EQ(by_gpu.at("rows")[0].at("energy_kwh"), kwh(500'010));
  EXPECT_DOUBLE_EQ(by_gpu.at("rows")[0].at("idle_energy_kwh"), kwh(100'001));
  EXPECT_DOUBLE_EQ(by_gpu.at("rows")[1].at("idle_energy_kwh"), 0);
  EXPECT_FALSE(by_gpu.at("rows")[0].contains("energy_cost"));

  Question of_one{all_, {By::kTeam}};
  of_one.team = "team-1";
  const json some = Report(*ledger, of_one);
  EXPECT_DOUBLE_EQ(some.at("energy_kwh"), kwh(100'007));
  EXPECT_DOUBLE_EQ(some.at("others_energy_kwh"), kwh(400'003));
  EXPECT_DOUBLE_EQ(some.at("idle_energy_kwh"), kwh(100'001));

  // To the joule at each level, whatever a batch was cut into.
  const auto inside = Inside();
  for (const char* level : {"fine", "minutes", "hours", "days"}) {
    int64_t pods = 0, gpus = 0;
    for (const BucketRow& row : BucketsOf(*inside, level, source())) pods += row.use.energy_j;
    for (const PresenceRow& row : PresenceOf(*inside, level, source())) gpus += row.energy_j;
    EXPECT_EQ(pods, 500'010) << level;
    EXPECT_EQ(gpus, 600'011) << level;
  }
}

TEST_P(EnergyBooks, WhereNothingWasMeasuredNothingIsSaid) {
  const auto ledger = Open();
  BookWithout(*ledger, 0);
  BookWithout(*ledger, 10);
  const json report = Report(*ledger, {all_, {By::kPod}}, {.price = 0.5, .carbon_g = 400});
  EXPECT_EQ(report.dump().find("energy"), std::string::npos) << report.dump();
  EXPECT_EQ(report.dump().find("carbon"), std::string::npos) << report.dump();
  EXPECT_FALSE(report.contains("currency"));
}

// A node goes back to an earlier version for a while, which says nothing of energy, nor of who
// wanted the GPU.
TEST_P(EnergyBooks, AnEarlierVersionInBetweenNeitherTakesAnythingBackNorBooksItTwice) {
  const auto ledger = Open();
  Book(*ledger, 0, {0, 0}, 0);
  Book(*ledger, 10, {1'000, 500}, 2'000);
  BookWithout(*ledger, 20);
  const auto fields = [&](const json& report) {
    return std::pair(report.at("energy_kwh").get<double>() * 3.6e6,
                     report.at("idle_energy_kwh").get<double>() * 3.6e6);
  };
  const auto uncontended = [&] {
    return Narrow(ledger->Query({all_, {By::kTotal}})->rows.at(0).use.uncontended_ns);
  };
  EXPECT_EQ(uncontended(), 2 * 10 * kSecond / 8);
  auto [pods, idle] = fields(Report(*ledger, {all_, {By::kTotal}}));
  EXPECT_NEAR(pods, 1'500, 1e-6);
  EXPECT_NEAR(idle, 500, 1e-6);
  Book(*ledger, 30, {1'100, 600}, 2'300);
  std::tie(pods, idle) = fields(Report(*ledger, {all_, {By::kTotal}}));
  EXPECT_NEAR(pods, 1'700, 1e-6);
  EXPECT_NEAR(idle, 600, 1e-6);
  EXPECT_EQ(uncontended(), 2 * 30 * kSecond / 8);
}

// What an earlier version does not know stands at the end, and what it does not say is nothing.
TEST(EnergyBatch, IsReadFromBothVersions) {
  Batch batch = MakeBatch(NewSource(), 1, At(0));
  AddGpu(batch, "GPU-a");
  batch.gpus[0].energy_j = 7;
  AddSample(batch, 1, "GPU-a", 100).total.energy_j = 5;
  const std::string bytes = EncodeBatch(batch);
  const auto read = DecodeBatch(bytes);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->samples[0].total.energy_j, 5);
  EXPECT_EQ(read->gpus[0].energy_j, 7);
  json earlier = json::from_msgpack(bytes);
  earlier[5][0][6].erase(9);
  earlier[5][0][6].erase(8);
  earlier[6][0].erase(4);
  std::string old;
  json::to_msgpack(earlier, old);
  const auto from_earlier = DecodeBatch(old);
  ASSERT_TRUE(from_earlier) << from_earlier.error().message;
  EXPECT_EQ(from_earlier->samples[0].total.held_ns, 100);
  EXPECT_EQ(from_earlier->samples[0].total.energy_j, 0);
  EXPECT_EQ(from_earlier->gpus[0].energy_j, 0);
}

INSTANTIATE_TEST_SUITE_P(Sqlite, EnergyBooks, testing::Values("sqlite"));
INSTANTIATE_TEST_SUITE_P(Postgres, EnergyBooks, testing::Values("postgres"));

}  // namespace
}  // namespace baton::ledger
