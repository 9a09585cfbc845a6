// What is asked about a scenario: "what if team A had 30 %, and there were two more nodes".
#ifndef BATON_CAPACITY_QUESTIONS_H_
#define BATON_CAPACITY_QUESTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "capacity/scenario.h"

namespace baton::capacity {

struct Questions {
  // TEAM=WEIGHT, or TEAM=30%: so much among the teams beside it.
  std::vector<std::string> weights = {};
  // TEAM=GPUS, or TEAM=30% of all GPUs: of a team and all below it.
  std::vector<std::string> guarantees = {};
  std::vector<std::string> limits = {};
  // POD=REQUEST[:LIMIT], in percent.
  std::vector<std::string> shares = {};
  bool advised = false;    // requests are as `baton advise` says
  uint32_t add_gpus = 0;   // one more node with so many GPUs; above kCardsMax several
  uint32_t add_nodes = 0;  // as the one of which there are most

  bool any() const {
    return !weights.empty() || !guarantees.empty() || !limits.empty() || !shares.empty() ||
           advised || add_gpus > 0 || add_nodes > 0;
  }
};

// Changes the scenario. kInvalid, kNotFound: a sentence that names the flag, and says what there
// is.
Result<void> Apply(const Questions& questions, Scenario& scenario);

}  // namespace baton::capacity

#endif  // BATON_CAPACITY_QUESTIONS_H_
