#include "ledger/prices.h"

#include <algorithm>
#include <set>

namespace baton::ledger {

Result<ModelPrices> ModelPrices::Make(std::vector<DatedPrice> dated) {
  if (dated.empty()) return Fail(ErrorCode::kInvalid, "a list of prices has at least one");
  for (size_t i = 1; i < dated.size(); ++i) {
    if (dated[i - 1].from < dated[i].from) continue;
    return Fail(ErrorCode::kInvalid,
                "a list of prices is in the order of time, with each from but the first one's "
                "later than the one before it");
  }
  return ModelPrices(std::move(dated));
}

std::optional<double> ModelPrices::At(WallTime at) const {
  const auto next = std::find_if(dated_.begin(), dated_.end(),
                                 [&](const DatedPrice& price) { return price.from > at; });
  if (next == dated_.begin()) return std::nullopt;
  return std::prev(next)->price;
}

std::optional<double> PriceAt(const Prices& prices, const std::string& model, WallTime at) {
  for (const std::string& name : {model, std::string()}) {
    const auto it = prices.find(name);
    if (it == prices.end()) continue;
    if (const auto price = it->second.At(at)) return price;
  }
  return std::nullopt;
}

std::vector<WallTime> PriceChanges(const Prices& prices) {
  std::set<WallTime> changes;
  for (const auto& [model, of] : prices) {
    for (const DatedPrice& price : of.dated()) changes.insert(price.from);
  }
  changes.erase(WallTime{});
  return {changes.begin(), changes.end()};
}

double WeightOf(const ModelWeights& weights, const std::string& model) {
  auto it = weights.find(model);
  if (it == weights.end()) it = weights.find("");
  return it == weights.end() ? 1 : it->second;
}

}  // namespace baton::ledger
