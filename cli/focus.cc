#include "cli/focus.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/utf8.h"

namespace baton::cli {
namespace {

using nlohmann::json;

// FOCUS 1.0's names, and one of our own, for which it has the prefix x_.
constexpr std::array kFocusColumns = {"BilledCost",
                                      "BillingAccountId",
                                      "BillingAccountName",
                                      "BillingCurrency",
                                      "BillingPeriodEnd",
                                      "BillingPeriodStart",
                                      "ChargeCategory",
                                      "ChargeClass",
                                      "ChargeDescription",
                                      "ChargeFrequency",
                                      "ChargePeriodEnd",
                                      "ChargePeriodStart",
                                      "ConsumedQuantity",
                                      "ConsumedUnit",
                                      "ContractedCost",
                                      "ContractedUnitPrice",
                                      "EffectiveCost",
                                      "InvoiceIssuerName",
                                      "ListCost",
                                      "ListUnitPrice",
                                      "PricingCategory",
                                      "PricingQuantity",
                                      "PricingUnit",
                                      "ProviderName",
                                      "PublisherName",
                                      "ResourceId",
                                      "ResourceName",
                                      "ResourceType",
                                      "ServiceCategory",
                                      "ServiceName",
                                      "SkuId",
                                      "SkuPriceId",
                                      "SubAccountId",
                                      "SubAccountName",
                                      "Tags",
                                      "x_Kind"};

using Charge = std::map<std::string, std::string>;

// The month of "2026-11-21" and the one after it.
std::pair<std::string, std::string> MonthOf(const std::string& day) {
  const std::string year = day.substr(0, 4);
  const std::string month = day.substr(5, 2);
  std::string next_year = year;
  std::string next_month = std::to_string(std::stoi(month) + 1);
  if (month == "12") {
    next_year = std::to_string(std::stoi(year) + 1);
    next_month = "1";
  }
  if (next_month.size() == 1) next_month.insert(0, "0");
  const std::string first = "-01T00:00:00Z";
  return {year + "-" + month + first, next_year + "-" + next_month + first};
}

// What all charges have. `row` is by day first.
Charge ChargeFor(const json& row, const std::string& currency, const std::string& model,
                 double hours, const char* kind) {
  const auto [begin, end] = MonthOf(row.at("keys").at(0));
  const double price = row.at("price");
  const std::string cost = Fixed(hours * price, 9);
  const std::string quantity = Fixed(hours, 9);
  const std::string unit_price = Fixed(price, 9);
  const std::string sku = model.empty() ? "GPU" : model;
  return {{"BilledCost", cost},
          {"BillingAccountId", "baton"},
          {"BillingAccountName", "Baton"},
          {"BillingCurrency", currency},
          {"BillingPeriodEnd", end},
          {"BillingPeriodStart", begin},
          {"ChargeCategory", "Usage"},
          {"ChargeFrequency", "Usage-Based"},
          {"ChargePeriodEnd", row.at("to")},
          {"ChargePeriodStart", row.at("from")},
          {"ConsumedQuantity", quantity},
          {"ConsumedUnit", "Hours"},
          {"ContractedCost", cost},
          {"ContractedUnitPrice", unit_price},
          {"EffectiveCost", cost},
          {"InvoiceIssuerName", "Baton"},
          {"ListCost", cost},
          {"ListUnitPrice", unit_price},
          {"PricingCategory", "Standard"},
          {"PricingQuantity", quantity},
          {"PricingUnit", "Hours"},
          {"ProviderName", "Baton"},
          {"PublisherName", "Baton"},
          {"ServiceCategory", "Compute"},
          {"ServiceName", "GPU time"},
          {"SkuId", sku},
          {"SkuPriceId", sku},
          {"x_Kind", kind}};
}

void Add(TextTable& table, const Charge& charge) {
  std::vector<std::string>& cells = table.rows.emplace_back();
  for (const char* column : kFocusColumns) {
    const auto found = charge.find(column);
    cells.push_back(found == charge.end() ? "" : ToPrintable(found->second));
  }
}

// `model`: which of the keys that is.
Result<void> CheckPrices(const json& report, size_t model) {
  for (const json& row : report.at("rows")) {
    if (row.contains("price")) continue;
    return Fail(ErrorCode::kInvalid,
                "a FOCUS charge needs a price, and [ledger.prices] has none for GPUs of model '" +
                    row.at("keys").at(model).get<std::string>() + "'; name it, or \"\" for all");
  }
  return {};
}

}  // namespace

Result<TextTable> FocusTable(const json& use, const json& idle) {
  if (auto good = CheckPrices(use, 5); !good) return tl::unexpected(good.error());
  if (!idle.is_null()) {
    if (auto good = CheckPrices(idle, 1); !good) return tl::unexpected(good.error());
  }
  TextTable table;
  for (const char* column : kFocusColumns) table.columns.push_back({column, true});
  const std::string currency =
      use.value("currency", idle.is_null() ? "" : idle.value("currency", ""));
  const bool none = use.at("rows").empty() && (idle.is_null() || idle.at("rows").empty());
  if (!none && (currency.size() != 3 || !std::all_of(currency.begin(), currency.end(), [](char c) {
                  return c >= 'A' && c <= 'Z';
                }))) {
    return Fail(ErrorCode::kInvalid,
                "FOCUS needs a currency's code such as EUR, and [ledger] "
                "currency is '" +
                    currency + "'");
  }
  for (const json& row : use.at("rows")) {
    const double hours = row.at("held_hours");
    if (hours <= 0) continue;  // it waited
    const auto keys = row.at("keys").get<std::vector<std::string>>();
    const std::string &team = keys.at(1), &user = keys.at(2), &name_space = keys.at(3),
                      &pod = keys.at(4), &model = keys.at(5);
    Charge charge = ChargeFor(row, currency, model, hours, "held");
    charge["ChargeDescription"] = "GPU time of pod " + pod + (model.empty() ? "" : " on " + model);
    charge["ResourceId"] = pod;
    charge["ResourceName"] = name_space.empty() ? pod : pod.substr(name_space.size() + 1);
    charge["ResourceType"] = "Pod";
    charge["SubAccountId"] = charge["SubAccountName"] = team;
    json tags = json::object();
    if (!name_space.empty()) tags["namespace"] = name_space;
    if (!user.empty()) tags["user"] = user;
    if (!tags.empty()) charge["Tags"] = tags.dump();
    Add(table, charge);
  }
  if (idle.is_null()) return table;
  for (const json& row : idle.at("rows")) {
    const std::string model = row.at("keys").at(1);
    const std::string of = model.empty() ? "" : " of " + model;
    for (const auto& [kind, field, text] :
         {std::array{"idle", "idle_hours", "Idle GPU time"},
          std::array{"unattributed", "unattributed_hours", "GPU time between pods"}}) {
      const double hours = row.at(field);
      if (hours <= 0) continue;
      Charge charge = ChargeFor(row, currency, model, hours, kind);
      charge["ChargeDescription"] = text + of;
      Add(table, charge);
    }
  }
  return table;
}

}  // namespace baton::cli
