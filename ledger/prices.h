// What a GPU-hour costs, by model and from when on, and what it weighs. Pure. Thread safe.
#ifndef BATON_LEDGER_PRICES_H_
#define BATON_LEDGER_PRICES_H_

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ledger/wall_time.h"

namespace baton::ledger {

// A price holds from a moment until the next one's.
struct DatedPrice {
  WallTime from;  // a whole minute; the epoch: always has
  double price = 0;
  bool operator==(const DatedPrice&) const = default;
};

// The prices of one model, by time, none twice at the same moment; at least one.
class ModelPrices {
 public:
  ModelPrices(double always) : dated_{{WallTime{}, always}} {}
  // kInvalid, with a sentence: there is none, or they are not in the order of time.
  static Result<ModelPrices> Make(std::vector<DatedPrice> dated);

  const std::vector<DatedPrice>& dated() const { return dated_; }
  // One price, that has always held.
  bool plain() const { return dated_.size() == 1 && dated_.front().from == WallTime{}; }
  // None before the first one.
  std::optional<double> At(WallTime at) const;
  bool operator==(const ModelPrices&) const = default;

 private:
  explicit ModelPrices(std::vector<DatedPrice> dated) : dated_(std::move(dated)) {}

  std::vector<DatedPrice> dated_;
};

// By model, as NVML names it; "" stands for all others, and for a model before its first price.
using Prices = std::map<std::string, ModelPrices>;

std::optional<double> PriceAt(const Prices& prices, const std::string& model, WallTime at);
// The moments at which a price begins, by time, none twice; without what has always held.
std::vector<WallTime> PriceChanges(const Prices& prices);

// Of a kilowatt-hour; nothing where it is not said.
struct EnergyFactors {
  std::optional<double> price = {};
  std::optional<double> carbon_g = {};  // grams of CO2 or what warms as much
};

// What a GPU-hour counts in standing and budgets, by model, 0 to 1e6; "" stands for all others.
using ModelWeights = std::map<std::string, double>;

// 1 where neither the model nor "" is there.
double WeightOf(const ModelWeights& weights, const std::string& model);

}  // namespace baton::ledger

#endif  // BATON_LEDGER_PRICES_H_
