// Runs cluster worlds, and makes those that fail smaller.
#ifndef BATON_TESTS_K8S_WORLDS_RUN_H_
#define BATON_TESTS_K8S_WORLDS_RUN_H_

#include <string>
#include <vector>

#include "base/time.h"
#include "tests/k8s/worlds/laws.h"
#include "tests/k8s/worlds/plan.h"

namespace baton::k8s::testing {

struct Verdict {
  Violation broken;                // its law is empty: everything held
  std::vector<std::string> story;  // what each deed was, up to there
  uint64_t writes = 0;
  uint64_t bound = 0;
  uint64_t displaced = 0;
  uint64_t rounds = 0;

  bool ok() const { return broken.law.empty(); }
};

// The same for the same plan.
Verdict RunWorld(const Plan& plan);

struct Shrunk {
  Plan plan;
  Verdict verdict;
  uint32_t runs = 0;
};
// Leaves out deeds as long as the same law is broken, for so much real time at most.
Shrunk Shrink(const Plan& plan, const Verdict& failed, Duration budget);

}  // namespace baton::k8s::testing

#endif  // BATON_TESTS_K8S_WORLDS_RUN_H_
