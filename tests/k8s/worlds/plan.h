// A cluster world as its seed has it: what it consists of, and its deeds. Each deed has random
// numbers of its own, so one may be left out and the others stay as they are.
#ifndef BATON_TESTS_K8S_WORLDS_PLAN_H_
#define BATON_TESTS_K8S_WORLDS_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "tests/k8s/binder/world.h"

namespace baton::k8s::testing {

// What is drawn once for all of it.
struct Traits {
  CoreOptions options;
  WorldFaults faults;     // none where `calm`
  bool calm = false;      // nothing is lost or rejected, nobody leads instead, no budget says no
  bool teams = false;     // there are Teams
  bool reforms = false;   // and they change
  bool volumes = false;   // pods have claims
  bool standby = false;   // another core may take over
  bool keeps = false;     // nodes are kept for those that starve
  bool breakage = false;  // nodes, GPUs and agents go and come back
  bool uuids = true;      // pods name GPUs by uuid now and then
  uint32_t nodes = 1;     // set up by the deeds after the first one
  uint32_t deeds = 0;     // in all
};

struct Plan {
  uint64_t seed = 1;
  std::vector<uint32_t> deeds;  // numbers of those that are done, in their order
  bool uuids = true;            // Traits::uuids

  // All that the seed has.
  static Plan Of(uint64_t seed);
};
Traits TraitsOf(const Plan& plan);

// "0-4,7,9-12". kInvalid.
std::string DeedsText(const std::vector<uint32_t>& deeds);
Result<std::vector<uint32_t>> ParseDeeds(const std::string& text);

// Does one, and says in a few words what it was. Takes its random numbers from the world's, which
// it sets by seed and number.
std::string Do(World& world, const Traits& traits, uint64_t seed, uint32_t number);
// A restart of the binder, or a change of who leads, is the runner's to do: the deed says so.
inline constexpr const char* kRestart = "restart";
inline constexpr const char* kTakeOver = "take over";

// All is well: nodes, GPUs and agents are there, nothing is cordoned, no budget is in the way.
void Mend(World& world, const Traits& traits, const Plan& plan);
// Makes the volumes that are wanted somewhere.
void Provision(World& world);

}  // namespace baton::k8s::testing

#endif  // BATON_TESTS_K8S_WORLDS_PLAN_H_
