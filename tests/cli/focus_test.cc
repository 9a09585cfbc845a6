// baton report --format focus: charges as the FinOps Open Cost and Usage Specification 1.0 has
// them.
#include "cli/focus.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/cli/harness.h"

namespace baton::cli {
namespace {

using nlohmann::json;

json Use() {
  return json::parse(R"({"from": "2026-11-30T00:00:00Z", "to": "2026-12-02T00:00:00Z",
    "by": "day,team,user,namespace,pod,model,price", "currency": "EUR", "rows": [
      {"key": "", "keys": ["2026-11-30", "research/vision", "user-a", "lab", "lab/train", "H200", "3.5"],
       "from": "2026-11-30T00:00:00Z", "to": "2026-12-01T00:00:00Z", "held_hours": 12,
       "cost": 42, "price": 3.5},
      {"key": "", "keys": ["2026-12-01", "", "", "", "web", "", "2"], "from": "2026-12-01T00:00:00Z",
       "to": "2026-12-02T00:00:00Z", "held_hours": 0.5, "cost": 1, "price": 2},
      {"key": "", "keys": ["2026-12-01", "", "", "", "waits", "", "2"], "from": "2026-12-01T00:00:00Z",
       "to": "2026-12-02T00:00:00Z", "held_hours": 0, "cost": 0, "price": 2}]})");
}

json Idle() {
  return json::parse(R"({"from": "2026-11-30T00:00:00Z", "to": "2026-12-02T00:00:00Z",
    "by": "day,model,price", "currency": "EUR", "rows": [
      {"key": "", "keys": ["2026-11-30", "H200", "3.5"], "from": "2026-11-30T00:00:00Z",
       "to": "2026-12-01T00:00:00Z", "held_hours": 12, "price": 3.5, "capacity_hours": 24,
       "idle_hours": 10, "unattributed_hours": 2},
      {"key": "", "keys": ["2026-12-01", "", "2"], "from": "2026-12-01T00:00:00Z",
       "to": "2026-12-02T00:00:00Z", "held_hours": 0.5, "price": 2, "capacity_hours": 24,
       "idle_hours": 23.5, "unattributed_hours": 0}]})");
}

// Rows by column.
std::vector<std::map<std::string, std::string>> Charges(const TextTable& table) {
  std::vector<std::map<std::string, std::string>> charges;
  for (const auto& row : table.rows) {
    auto& charge = charges.emplace_back();
    EXPECT_EQ(row.size(), table.columns.size());
    for (size_t i = 0; i < row.size(); ++i) charge[table.columns[i].heading] = row[i];
  }
  return charges;
}

TEST(Focus, HasAllMandatoryColumnsAndTheirValues) {
  const auto table = FocusTable(Use(), Idle());
  ASSERT_TRUE(table) << table.error().message;
  std::set<std::string> columns;
  for (const auto& column : table->columns) EXPECT_TRUE(columns.insert(column.heading).second);
  // Those that may be null last.
  const std::vector<std::string> never_null{
      "BilledCost",         "BillingAccountId", "BillingCurrency",   "BillingPeriodEnd",
      "BillingPeriodStart", "ChargeCategory",   "ChargePeriodEnd",   "ChargePeriodStart",
      "ContractedCost",     "EffectiveCost",    "InvoiceIssuerName", "ListCost",
      "ProviderName",       "PublisherName",    "ServiceCategory",   "ServiceName"};
  for (const auto& charge : Charges(*table)) {
    for (const std::string& column : never_null) {
      ASSERT_TRUE(columns.contains(column)) << column;
      EXPECT_NE(charge.at(column), "") << column;
    }
    // And of usage that is no correction.
    for (const char* column : {"PricingQuantity", "PricingUnit", "ConsumedQuantity", "ConsumedUnit",
                               "ListUnitPrice", "ContractedUnitPrice", "SkuId", "SkuPriceId"}) {
      ASSERT_TRUE(columns.contains(column)) << column;
      EXPECT_NE(charge.at(column), "") << column;
    }
    EXPECT_EQ(charge.at("ChargeClass"), "");
  }
  for (const char* column : {"BillingAccountName", "ChargeClass", "ChargeDescription"}) {
    EXPECT_TRUE(columns.contains(column)) << column;
  }
}

TEST(Focus, ChargesArePodsDaysAndModelsAndAddUpToWhatTheGpusCost) {
  const auto table = FocusTable(Use(), Idle());
  ASSERT_TRUE(table) << table.error().message;
  const auto charges = Charges(*table);
  ASSERT_EQ(charges.size(), 5u) << "nothing for a pod that only waited";
  const auto& first = charges[0];
  const std::map<std::string, std::string> expected{
      {"BilledCost", "42.000000000"},
      {"BillingCurrency", "EUR"},
      {"BillingPeriodStart", "2026-11-01T00:00:00Z"},
      {"BillingPeriodEnd", "2026-12-01T00:00:00Z"},
      {"ChargeCategory", "Usage"},
      {"ChargeDescription", "GPU time of pod lab/train on H200"},
      {"ChargePeriodStart", "2026-11-30T00:00:00Z"},
      {"ChargePeriodEnd", "2026-12-01T00:00:00Z"},
      {"ConsumedQuantity", "12.000000000"},
      {"ListUnitPrice", "3.500000000"},
      {"PricingUnit", "Hours"},
      {"ResourceId", "lab/train"},
      {"ResourceName", "train"},
      {"ServiceCategory", "Compute"},
      {"SkuId", "H200"},
      {"SubAccountId", "research/vision"},
      {"Tags", R"({"namespace":"lab","user":"user-a"})"},
      {"x_Kind", "held"}};
  for (const auto& [column, value] : expected) EXPECT_EQ(first.at(column), value) << column;
  const auto& second = charges[1];
  EXPECT_EQ(second.at("BillingPeriodStart"), "2026-12-01T00:00:00Z");
  EXPECT_EQ(second.at("BillingPeriodEnd"), "2027-01-01T00:00:00Z");
  EXPECT_EQ(second.at("SubAccountId"), "") << "null";
  EXPECT_EQ(second.at("Tags"), "") << "null";
  EXPECT_EQ(second.at("SkuId"), "GPU");
  double cost = 0;
  for (const auto& charge : charges) {
    cost += std::stod(charge.at("BilledCost"));
    EXPECT_NEAR(std::stod(charge.at("ListUnitPrice")) * std::stod(charge.at("PricingQuantity")),
                std::stod(charge.at("ListCost")), 1e-8);
  }
  EXPECT_NEAR(cost, 24 * 3.5 + 24 * 2, 1e-6);
  EXPECT_EQ(charges[2].at("x_Kind"), "idle");
  EXPECT_EQ(charges[3].at("x_Kind"), "unattributed");
  EXPECT_EQ(charges[4].at("ResourceId"), "") << "of nobody";
}

TEST(Focus, NeedsPricesAndACurrencyCode) {
  json unpriced = Use();
  unpriced["rows"][1].erase("price");
  const auto none = FocusTable(unpriced, Idle());
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kInvalid);
  EXPECT_NE(none.error().message.find("has none for GPUs of model ''"), std::string::npos);
  for (const char* currency : {"", "euro", "eur", "EURO"}) {
    json use = Use();
    use["currency"] = currency;
    EXPECT_FALSE(FocusTable(use, json())) << currency;
  }
  const auto empty = FocusTable({{"rows", json::array()}}, json());
  ASSERT_TRUE(empty) << "a window in which nothing was there";
  EXPECT_TRUE(empty->rows.empty());
}

TEST(Focus, TheCommandAsksForUseAndForTheIdleTimeOfTheSameWindow) {
  FakeDaemon daemon([](const json& request) {
    if (request.contains("team")) {
      json use = Use();
      use["others_hours"] = 3;
      return use;
    }
    return request.at("by") == "day,model,price" ? Idle() : Use();
  });
  const Outcome outcome = RunBaton(
      {"report", "--format", "focus", "--last", "2d", "--socket-dir", daemon.socket_dir()});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 6);
  EXPECT_EQ(outcome.out.find("BilledCost,BillingAccountId,BillingAccountName,"), 0u);
  const auto requests = daemon.requests();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].at("by"), "day,team,user,namespace,pod,model,price");
  EXPECT_EQ(requests[0].at("last"), "2d");
  EXPECT_EQ(requests[1], (json{{"command", "report"},
                               {"by", "day,model,price"},
                               {"from", "2026-11-30T00:00:00Z"},
                               {"to", "2026-12-02T00:00:00Z"}}));
  const Outcome team =
      RunBaton({"report", "--format", "focus", "--team", "a", "--socket-dir", daemon.socket_dir()});
  EXPECT_EQ(std::count(team.out.begin(), team.out.end(), '\n'), 3) << "idle time is nobody's";
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{"--by", "day"}, {"--time-zone", "Europe/Berlin"}}) {
    const Outcome refused = RunBaton(
        {"report", "--format", "focus", flags[0], flags[1], "--socket-dir", daemon.socket_dir()});
    EXPECT_EQ(refused.status, 2);
    EXPECT_NE(refused.err.find("leave out " + flags[0]), std::string::npos) << refused.err;
  }
}

// A batch is recorded between the two questions: then they are asked again.
TEST(Focus, ChargesAreOfOneStateOfTheLedger) {
  int asked = 0;
  FakeDaemon daemon([&](const json& request) {
    const bool of_idle = request.at("by") == "day,model,price";
    json answer = of_idle ? Idle() : Use();
    answer["held_hours"] = ++asked < 2 ? 12.5 : 13;
    if (!of_idle && asked > 2) answer["rows"][1]["held_hours"] = 1;
    return answer;
  });
  const Outcome outcome = RunBaton(
      {"report", "--format", "focus", "--last", "2d", "--socket-dir", daemon.socket_dir()});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(daemon.requests().size(), 4u);
  EXPECT_NE(outcome.out.find(",1.000000000,"), std::string::npos) << outcome.out;

  FakeDaemon restless([&](const json& request) {
    json answer = request.at("by") == "day,model,price" ? Idle() : Use();
    answer["held_hours"] = ++asked;
    return answer;
  });
  const Outcome never = RunBaton(
      {"report", "--format", "focus", "--last", "2d", "--socket-dir", restless.socket_dir()});
  EXPECT_EQ(never.status, 1);
  EXPECT_EQ(never.out, "");
}

}  // namespace
}  // namespace baton::cli
