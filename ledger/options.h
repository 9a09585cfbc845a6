// Where the ledger is, what it keeps, and what use costs.
#ifndef BATON_LEDGER_OPTIONS_H_
#define BATON_LEDGER_OPTIONS_H_

#include <chrono>
#include <string>

#include "base/time.h"
#include "ledger/prices.h"

namespace baton::ledger {

// How long buckets are kept; 0: for ever. Those of a coarser level at least as long.
struct Retention {
  std::chrono::hours fine{6};
  std::chrono::hours minutes{12 * 24};
  std::chrono::hours hours{400 * 24};
  std::chrono::hours days{0};
};

struct LedgerOptions {
  // "sqlite:PATH", or what libpq takes: "postgresql://user@host/database". Of a daemon also empty:
  // SQLite in its state_dir; and "none": no ledger.
  std::string database{};
  // Interval between batches of usage. What a crash interrupts is recorded after it.
  Duration every = std::chrono::seconds(10);
  Retention retention{};
  Prices prices{};         // of a GPU-hour
  ModelWeights weights{};  // of a GPU-hour, in standing and budgets
  std::string currency = "EUR";
  double energy_price = 0;      // of a kilowatt-hour; 0: not said
  double carbon_g_per_kwh = 0;  // the same

  EnergyFactors factors() const {
    EnergyFactors factors;
    if (energy_price > 0) factors.price = energy_price;
    if (carbon_g_per_kwh > 0) factors.carbon_g = carbon_g_per_kwh;
    return factors;
  }

  // Shows `v` each key of [ledger] (config/options.h).
  template <class V>
  void Visit(V& v) {
    v.Text(
        "database", database,
        "The ledger: \"sqlite:PATH\", \"postgresql://...\", \"none\"; empty: SQLite in state_dir.");
    v.Time("every", every, std::chrono::milliseconds(100), std::chrono::hours(1),
           "Interval between batches of usage.");
    v.Hours("keep_fine", retention.fine,
            "Retention of 10 s, minute, hour and day buckets; \"0s\": for ever.");
    v.Hours("keep_minutes", retention.minutes, nullptr);
    v.Hours("keep_hours", retention.hours, nullptr);
    v.Hours("keep_days", retention.days, nullptr);
    v.Text("currency", currency, "Currency of the prices, for display.");
    v.Amount("energy_price", energy_price,
             "Price of a kilowatt-hour, in the same currency; 0: energy costs nothing extra.");
    v.Amount("carbon_g_per_kwh", carbon_g_per_kwh,
             "Grams of CO2 (or what warms as much) that a kilowatt-hour causes; 0: not reported.");
    v.Prices(
        "prices", prices,
        "Price of a GPU-hour by model: \"NVIDIA H200\" = 3.5; \"\": all other models. Or by time:\n"
        "[{price = 3.5}, {from = \"2026-11-01T12:00\", price = 4}] (UTC).");
    v.Weights(
        "weights", weights,
        "Weight of a GPU-hour in standing and budgets by model: \"NVIDIA T4\" = 0.25; \"\": all\n"
        "other models, 1 by default.");
  }
};

}  // namespace baton::ledger

#endif  // BATON_LEDGER_OPTIONS_H_
